/*
 * .files: what is inside a VM, on a few threads of its own so that slow VMs
 * hold up nothing else. Names that come from a VM are only handed on when
 * they are harmless to a file system.
 */
#include "engine/files.h"

#include "engine/engine.h"
#include "engine/inject.h"
#include "engine/pool.h"
#include "engine/untar.h"

#include <unistd.h>

enum {
    THREADS = 8,
    THREADS_AHEAD = 4,
    WAITING_MAX = 256,
    MANY_MS = 20000, /* for many files in one call */
    MANY_ROOM = 4 << 20,
    ATTRS_MS = 15000,
};

struct call {
    struct courier *c;
    int64_t sandbox;
    struct courier_files_call q;
    char *path, *path2;
    char **paths; /* those of q.paths, or of q.attrs */
    size_t n_paths;
    struct courier_attrs *attrs;
    courier_files_done done;
    void *arg;
};

/* made at the first use; what is fetched ahead never keeps a reader waiting,
 * so that it has threads of its own */
static struct pool *pools[2];
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static struct pool *the_pool(bool ahead)
{
    struct pool *p;

    pthread_mutex_lock(&pool_lock);
    if (!pools[ahead])
        pools[ahead] = pool_new(ahead ? THREADS_AHEAD : THREADS);
    p = pools[ahead];
    pthread_mutex_unlock(&pool_lock);
    return p;
}

void files_close(void)
{
    pthread_mutex_lock(&pool_lock);
    for (size_t i = 0; i < ARRAY_LEN(pools); i++) {
        pool_free(pools[i]);
        pools[i] = NULL;
    }
    pthread_mutex_unlock(&pool_lock);
}

/* ---- VMs that don't answer ---- */

/* who walks a tree in one isn't to wait anew for each name */
static struct silent {
    int64_t sandbox, until;
} silent[32];
static pthread_mutex_t silent_lock = PTHREAD_MUTEX_INITIALIZER;
static const int64_t silent_ms = 5000;

static void silent_note(int64_t sandbox, int code)
{
    struct silent *at = &silent[0];

    pthread_mutex_lock(&silent_lock);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        if (silent[i].sandbox == sandbox) {
            at = &silent[i];
            break;
        } else if (silent[i].until < at->until) {
            at = &silent[i];
        }
    if (code == -ETIMEDOUT)
        *at = (struct silent){sandbox, mono_ms() + silent_ms};
    else if (at->sandbox == sandbox)
        *at = (struct silent){0};
    pthread_mutex_unlock(&silent_lock);
}

static bool silent_is(int64_t sandbox)
{
    int64_t now = mono_ms();
    bool is = false;

    pthread_mutex_lock(&silent_lock);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        is |= silent[i].sandbox == sandbox && silent[i].until > now;
    pthread_mutex_unlock(&silent_lock);
    return is;
}

/* ---- what is handed on ---- */

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

    silent_note(k->sandbox, code);
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
    silent_note(k->sandbox, 0);
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
        e2b_entries_free(v, n);
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
    r.data = &b;
    r.total = total;
    r.e = &e;
    silent_note(k->sandbox, 0);
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

/* ---- by a program in the VM ---- */

/* which of the files asked for is that? The archive has them in their order,
 * from i on */
static bool blob_place(const struct call *k, const char *name, size_t *i)
{
    for (size_t j = *i; j < k->q.n_paths; j++)
        if (!strcmp(k->paths[j], name)) {
            *i = j;
            return true;
        }
    return false;
}

static int unpack(const struct call *k, const struct buf *tar,
                  struct courier_blob *blobs, struct err *e)
{
    struct untar u;
    const char *name, *p;
    size_t n, i = 0;
    int r;

    untar_begin(&u, buf_str(tar), tar->n);
    while ((r = untar_next(&u, &name, &p, &n)) > 0)
        if (blob_place(k, name, &i))
            blobs[i++] = (struct courier_blob){p, n, true};
    untar_end(&u);
    return r < 0 ? err_set(e, EPROTO, "the VM's tar sent no archive") : 0;
}

/* tar fills up what shrinks under it, so a file counts only if it had
 * nothing to complain of */
static void do_many(struct call *k, const struct e2b_target *t)
{
    static const char *const tar[] = {"tar",
                                      "--create",
                                      "--file=-",
                                      "--format=gnu",
                                      "--no-recursion",
                                      "--hard-dereference",
                                      "--"};
    AUTO_FREE const char **argv =
        xcalloc(ARRAY_LEN(tar) + k->q.n_paths + 1, sizeof(*argv));
    AUTO_FREE struct courier_blob *blobs =
        xcalloc(k->q.n_paths, sizeof(*blobs));
    struct courier_files_result r = {.blobs = blobs};
    struct e2b_result res = {0};
    struct err e = {0};
    struct e2b_run run = {.argv = argv,
                          .cwd = VM_HOME,
                          .limit_ms = MANY_MS,
                          .max_out = MANY_ROOM};

    memcpy(argv, tar, sizeof(tar));
    for (size_t i = 0; i < k->q.n_paths; i++)
        argv[ARRAY_LEN(tar) + i] = k->paths[i];
    r.code = e2b_exec(t, &run, &res, &e);
    if (!r.code && res.exit_code)
        r.code = err_set(&e, EIO, "the VM's tar failed");
    if (!r.code)
        r.code = unpack(k, &res.out, blobs, &e);
    if (r.code)
        memset(blobs, 0, k->q.n_paths * sizeof(*blobs));
    r.e = &e;
    k->done(k->arg, &r);
    e2b_result_clear(&res);
}

/* the last line of what a program said, in words that are safe to show */
static int said(struct err *e, int code, const struct buf *b)
{
    AUTO_BUF struct buf shown = {0};
    const char *p = buf_str(b), *colon;
    size_t n = b->n;

    while (n && p[n - 1] == '\n')
        n--;
    for (size_t i = n; i-- > 0;)
        if (p[i] == '\n') {
            p += i + 1;
            n -= i + 1;
            break;
        }
    text_printable(&shown, p, n < 200 ? n : 200, 0);
    colon = strrchr(buf_str(&shown), ':');
    return err_set(e, code, "cannot set the time or mode%s",
                   colon ? colon : "");
}

static void when_text(const struct courier_attrs *a, char *out, size_t n)
{
    if (!a->set_mtime)
        *out = 0;
    else if (a->mtime_ns < 0)
        snprintf(out, n, "now");
    else
        snprintf(out, n, "@%lld.%09lld", (long long)(a->mtime_ns / 1000000000),
                 (long long)(a->mtime_ns % 1000000000));
}

static int set_attrs(struct call *k, const struct e2b_target *t, struct err *e)
{
    static const char script[] =
        "bad=0; while [ $# -ge 3 ]; do\n"
        "  if [ -n \"$1\" ]; then\n"
        "    touch -c -h -m -d \"$1\" -- \"$3\" || bad=1; fi\n"
        "  if [ -n \"$2\" ] && [ -e \"$3\" ]; then\n"
        "    chmod \"$2\" -- \"$3\" || bad=1; fi\n"
        "  shift 3; done; exit $bad";
    static const char *const x[] = {"", "a-x", "a+x"};
    enum { HEAD = 4, WHEN_N = 40 };
    size_t n = k->q.n_attrs;
    AUTO_FREE const char **argv = xcalloc(HEAD + 3 * n + 1, sizeof(*argv));
    AUTO_FREE char *when = xcalloc(n, WHEN_N);
    struct e2b_result res = {0};
    struct e2b_run run = {.argv = argv, .cwd = VM_HOME, .limit_ms = ATTRS_MS};
    int r;

    argv[0] = "/bin/sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = "sh";
    for (size_t i = 0; i < n; i++) {
        when_text(&k->q.attrs[i], when + i * WHEN_N, WHEN_N);
        argv[HEAD + 3 * i] = when + i * WHEN_N;
        argv[HEAD + 3 * i + 1] = x[k->q.attrs[i].x + 1];
        argv[HEAD + 3 * i + 2] = k->paths[i];
    }
    r = e2b_exec(t, &run, &res, e);
    if (!r && res.exit_code)
        r = said(e, EPERM, &res.err);
    e2b_result_clear(&res);
    return r;
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
    case FILES_ATTRS:
        r = set_attrs(k, t, &e);
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
    else if (r == 0 && silent_is(k->sandbox))
        r = err_set(&e, ETIMEDOUT, "the VM did not answer a moment ago");
    else if (r == 0)
        r = sandbox_target(k->c, &s, &t, &e);
    if (r < 0) {
        struct courier_files_result res = {.code = r, .e = &e};

        k->done(k->arg, &res);
    } else {
        if (k->q.op == FILES_STAT)
            do_stat(k, &t);
        else if (k->q.op == FILES_LIST)
            do_list(k, &t);
        else if (k->q.op == FILES_READ)
            do_read(k, &t);
        else if (k->q.op == FILES_MANY)
            do_many(k, &t);
        else
            do_other(k, &t);
        endpoint_put(k->c, t.x);
    }
    sandbox_clear(&s);
    if (k->q.op == FILES_WRITE && k->q.fd >= 0)
        close(k->q.fd);
    for (size_t i = 0; i < k->n_paths; i++)
        free(k->paths[i]);
    free(k->paths);
    free(k->attrs);
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
    for (size_t i = 0; i < q->n_paths && r == 0; i++)
        r = path_check(q->paths[i], e);
    for (size_t i = 0; i < q->n_attrs && r == 0; i++)
        r = path_check(q->attrs[i].path, e);
    if (r == 0 && !courier_files_up(c, o))
        r = err_set(e, EHOSTDOWN, "the VM does not run");
    if (r == 0 && pool_waiting(the_pool(q->ahead)) >= WAITING_MAX)
        r = err_set(e, ETIMEDOUT, "too many calls into VMs are waiting");
    return r;
}

static void paths_copy(struct call *k, const struct courier_files_call *q)
{
    k->n_paths = q->n_paths + q->n_attrs;
    k->paths = xcalloc(k->n_paths, sizeof(*k->paths));
    k->attrs = xcalloc(q->n_attrs, sizeof(*k->attrs));
    for (size_t i = 0; i < q->n_paths; i++)
        k->paths[i] = xstrdup(q->paths[i]);
    for (size_t i = 0; i < q->n_attrs; i++) {
        k->paths[q->n_paths + i] = xstrdup(q->attrs[i].path);
        k->attrs[i] = q->attrs[i];
    }
    k->q.attrs = k->attrs;
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
    paths_copy(k, q);
    k->done = done;
    k->arg = arg;
    pool_add(the_pool(q->ahead), run_call, k);
    return 0;
}
