/*
 * .files: what is inside a VM, on a few threads of its own so that slow VMs
 * hold up nothing else. Names that come from a VM are only handed on when
 * they are harmless to a file system.
 */
#include "engine/files.h"

#include "engine/engine.h"
#include "engine/inject.h"
#include "engine/pool.h"

#include <unistd.h>

enum { THREADS = 8, WAITING_MAX = 256 };

struct call {
    struct courier *c;
    int64_t sandbox;
    struct courier_files_call q;
    char *path, *path2;
    courier_files_done done;
    void *arg;
};

static struct pool *files_pool; /* made at the first use */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static struct pool *the_pool(void)
{
    struct pool *p;

    pthread_mutex_lock(&pool_lock);
    if (!files_pool)
        files_pool = pool_new(THREADS);
    p = files_pool;
    pthread_mutex_unlock(&pool_lock);
    return p;
}

void files_close(void)
{
    pthread_mutex_lock(&pool_lock);
    pool_free(files_pool);
    files_pool = NULL;
    pthread_mutex_unlock(&pool_lock);
}

/* a path below the home: no empty part, no "." or ".." */
static int path_check(const char *p, struct err *e)
{
    if (!p || !*p)
        return 0;
    for (;;) {
        size_t n = strcspn(p, "/");

        if (!n || (n == 1 && p[0] == '.') ||
            (n == 2 && p[0] == '.' && p[1] == '.'))
            return err_set(e, EINVAL, "not a path below the home");
        if (n > 255)
            return err_set(e, ENAMETOOLONG, "a name is too long");
        if (!p[n])
            return 0;
        p += n + 1;
    }
}

static char *full_path(const char *p)
{
    return xasprintf("%s%s%s", VM_HOME, p && *p ? "/" : "", p ? p : "");
}

static bool safe_name(const char *name)
{
    return name && *name && !strchr(name, '/') && strcmp(name, ".") &&
           strcmp(name, "..") && strlen(name) <= 255;
}

static void entry_from(struct courier_entry *to, const struct e2b_entry *from)
{
    to->name = from->name;
    to->target = from->symlink;
    to->type = from->type;
    to->size = from->size;
    to->mtime_ns = from->mtime_ns;
    to->mode = from->mode;
}

static void answer(struct call *k, int code, const struct err *e)
{
    struct courier_files_result r = {.code = code, .e = e};

    k->done(k->arg, &r);
}

static void do_stat(struct call *k, const struct e2b_target *t)
{
    AUTO_FREE char *path = full_path(k->path);
    struct courier_files_result r = {0};
    struct courier_entry out = {0};
    struct e2b_entry en = {0};
    struct err e = {0};
    int code = e2b_stat(t, path, &en, &e);

    if (code < 0) {
        answer(k, code, &e);
        return;
    }
    entry_from(&out, &en);
    r.entries = &out;
    r.n = 1;
    r.e = &e;
    k->done(k->arg, &r);
    e2b_entry_clear(&en);
}

static void do_list(struct call *k, const struct e2b_target *t)
{
    AUTO_FREE char *path = full_path(k->path);
    AUTO_FREE struct courier_entry *out = NULL;
    struct courier_files_result r = {0};
    struct e2b_entry *v = NULL;
    struct err e = {0};
    size_t n = 0;
    int code = e2b_ls(t, path, 1, &v, &n, &e);

    if (code < 0) {
        answer(k, code, &e);
        return;
    }
    out = xcalloc(n, sizeof(*out));
    for (size_t i = 0; i < n; i++)
        if (safe_name(v[i].name))
            entry_from(&out[r.n++], &v[i]);
    r.entries = out;
    r.e = &e;
    k->done(k->arg, &r);
    e2b_entries_free(v, n);
}

static void do_read(struct call *k, const struct e2b_target *t)
{
    AUTO_FREE char *path = full_path(k->path);
    AUTO_BUF struct buf b = {0};
    struct courier_files_result r = {0};
    struct err e = {0};
    int64_t total = 0;
    int code = e2b_read(t, path, k->q.off, k->q.len, &b, &total, &e);

    if (code < 0) {
        answer(k, code, &e);
        return;
    }
    r.data = buf_str(&b);
    r.len = b.n;
    r.total = total;
    r.e = &e;
    k->done(k->arg, &r);
}

/* rmdir semantics: the protocol's Remove takes a whole tree */
static int remove_one(const struct e2b_target *t, const char *path,
                      struct err *e)
{
    struct e2b_entry en = {0}, *v = NULL;
    size_t n = 0;
    int r = e2b_stat(t, path, &en, e);
    char type = en.type;

    e2b_entry_clear(&en);
    if (r < 0)
        return r;
    if (type == 'd') {
        r = e2b_ls(t, path, 1, &v, &n, e);
        e2b_entries_free(v, n);
        if (r < 0)
            return r;
        if (n)
            return err_set(e, ENOTEMPTY, "the directory is not empty");
    }
    return e2b_remove(t, path, e);
}

static void do_other(struct call *k, const struct e2b_target *t)
{
    AUTO_FREE char *path = full_path(k->path), *path2 = full_path(k->path2);
    struct err e = {0};
    int r;

    switch (k->q.op) {
    case FILES_WRITE:
        r = e2b_write_fd(t, path, k->q.fd, &e);
        break;
    case FILES_MKDIR:
        r = e2b_mkdir(t, path, &e);
        break;
    case FILES_REMOVE:
        r = remove_one(t, path, &e);
        break;
    case FILES_RENAME:
        r = e2b_move(t, path, path2, &e);
        break;
    default:
        r = err_set(&e, EINVAL, "no such call");
        break;
    }
    answer(k, r, &e);
}

static void run_call(void *arg)
{
    struct call *k = arg;
    struct e2b_target t;
    struct sandbox s;
    struct err e = {0};
    int r = sandbox_get(store_reader(k->c->store), k->sandbox, &s);

    if (r == 0 && !sandbox_is(&s, "running"))
        r = err_set(&e, EHOSTDOWN, "the VM does not run");
    else if (r == 0)
        r = sandbox_target(k->c, &s, &t, &e);
    if (r < 0) {
        answer(k, r, &e);
    } else {
        if (k->q.op == FILES_STAT)
            do_stat(k, &t);
        else if (k->q.op == FILES_LIST)
            do_list(k, &t);
        else if (k->q.op == FILES_READ)
            do_read(k, &t);
        else
            do_other(k, &t);
        endpoint_put(k->c, t.x);
    }
    sandbox_clear(&s);
    if (k->q.op == FILES_WRITE && k->q.fd >= 0)
        close(k->q.fd);
    free(k->path);
    free(k->path2);
    free(k);
}

bool courier_files_up(struct courier *c, struct oid o)
{
    return o.kind == OBJ_SANDBOX &&
           db_int(store_reader(c->store), 0,
                  "SELECT 1 FROM sandbox WHERE id=? AND status='running' AND "
                  "vm IS NOT NULL",
                  "i", o.id) != 0;
}

static int refused(struct courier *c, struct oid o,
                   const struct courier_files_call *q, struct err *e)
{
    int r = path_check(q->path, e);

    if (r == 0)
        r = path_check(q->path2, e);
    if (r == 0 && !courier_files_up(c, o))
        r = err_set(e, EHOSTDOWN, "the VM does not run");
    if (r == 0 && pool_waiting(the_pool()) >= WAITING_MAX)
        r = err_set(e, ETIMEDOUT, "too many calls into VMs are waiting");
    return r;
}

int courier_files(struct courier *c, struct oid o,
                  const struct courier_files_call *q, courier_files_done done,
                  void *arg, struct err *e)
{
    struct call *k;
    int r = refused(c, o, q, e);

    if (r < 0) {
        if (q->op == FILES_WRITE && q->fd >= 0)
            close(q->fd);
        return r;
    }
    k = xcalloc(1, sizeof(*k));
    k->c = c;
    k->sandbox = o.id;
    k->q = *q;
    k->path = xstrdup(q->path);
    k->path2 = xstrdup(q->path2);
    k->done = done;
    k->arg = arg;
    pool_add(the_pool(), run_call, k);
    return 0;
}
