/*
 * A box and a request made of nothing, for the tests of the data plane: the
 * box is a directory, its processes are plain ones, answers are kept.
 */
#ifndef TESTS_ENVD_FAKE_H
#define TESTS_ENVD_FAKE_H

#include "local/host.h"
#include "local/connect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct box {
    bool dead;
    int root;
    char dir[64];
};

static struct box the_box = {.root = -1};
static void (*on_end[8])(const char *id);

struct box *box_get(const char *id);
struct box *box_get(const char *id)
{
    return strcmp(id, "ibox") ? NULL : &the_box;
}

void box_put(struct box *b)
{
    assert_non_null(b);
}

const char *box_id(const struct box *b)
{
    return b ? "ibox" : "";
}

const char *box_token(const struct box *b)
{
    return b ? "tok_aaaaaaaaaaaaaaaaaaaa" : "";
}

bool box_alive(const struct box *b)
{
    return !b->dead;
}

char *const *box_env(const struct box *b)
{
    static char one[] = "BOX=1", two[] = "X=box";
    static char *env[] = {one, two, NULL};

    return b ? env : NULL;
}

int box_root_fd(const struct box *b)
{
    return b->root;
}

void box_ids(const struct box *b, bool root, uid_t *uid, gid_t *gid)
{
    (void)b;
    (void)root;
    *uid = geteuid();
    *gid = getegid();
}

void box_on_end(void (*fn)(const char *id))
{
    for (size_t i = 0; i < ARRAY_LEN(on_end); i++) {
        if (!on_end[i]) {
            on_end[i] = fn;
            return;
        }
    }
}

struct reaper {
    pid_t pid;
    void (*exited)(void *arg, int wstatus);
    void *arg;
};

static void *reap(void *arg)
{
    struct reaper *r = arg;
    int status;

    while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
        ;
    r->exited(r->arg, status);
    free(r);
    return NULL;
}

static void child(const struct box_spawn *s, const char *cwd)
{
    setsid();
    if (s->tty)
        ioctl(s->in, TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++) {
        int fd = i == 0 ? s->in : i == 1 ? s->out : s->err;

        if (fd < 0)
            fd = open("/dev/null", O_RDWR);
        dup2(fd, i);
    }
    if (chdir(cwd))
        _exit(127);
    signal(SIGPIPE, SIG_DFL);
    execve(s->argv[0], s->argv, s->env);
    _exit(127);
}

int box_spawn(struct box *b, const struct box_spawn *s, struct err *e)
{
    AUTO_FREE char *cwd = xasprintf("%s%s", b->dir, s->cwd);
    struct reaper *r;
    pthread_t t;
    pid_t pid = fork();

    if (pid < 0)
        return err_set(e, errno, "fork");
    if (pid == 0)
        child(s, cwd);
    r = xcalloc(1, sizeof(*r));
    *r = (struct reaper){pid, s->exited, s->arg};
    pthread_create(&t, NULL, reap, r);
    pthread_detach(t);
    return pid;
}

int box_signal(struct box *b, pid_t pid, int sig, bool group)
{
    (void)b;
    return kill(group ? -pid : pid, sig) ? -errno : 0;
}

/* ---- a request ---- */

struct fake {
    struct req r;
    const char *headers[16]; /* name, value, ... */
    const char *query[16];
    const char *upload; /* what read_body gives */
    size_t upload_n, upload_step;
    pthread_mutex_t mu;
    int status;
    struct buf extra, out; /* headers and body of the answer */
    _Atomic bool ended, gone, stalled;
};

static const char *lookup(const char *const *v, const char *name)
{
    for (; *v; v += 2)
        if (!strcasecmp(*v, name))
            return v[1];
    return NULL;
}

static struct fake *fake_of(struct req *r)
{
    return r->priv;
}

const char *req_header(struct req *r, const char *name)
{
    return lookup(fake_of(r)->headers, name);
}

const char *req_header_at(struct req *r, size_t i, const char **name)
{
    *name = fake_of(r)->headers[2 * i];
    return *name ? fake_of(r)->headers[2 * i + 1] : NULL;
}

const char *req_query(struct req *r, const char *name)
{
    return lookup(fake_of(r)->query, name);
}

bool req_gone(struct req *r)
{
    return fake_of(r)->gone;
}

void reply_header(struct req *r, const char *name, const char *value)
{
    buf_addf(&fake_of(r)->extra, "%s: %s\n", name, value);
}

void reply(struct req *r, int status, const char *type, const void *p,
           size_t n)
{
    struct fake *f = fake_of(r);

    assert_int_equal(f->status, 0);
    pthread_mutex_lock(&f->mu);
    f->status = status;
    buf_addf(&f->extra, "Content-Type: %s\n", type ? type : "");
    buf_add(&f->out, p, n);
    f->ended = true;
    pthread_mutex_unlock(&f->mu);
}

void reply_json(struct req *r, int status, json_t *j)
{
    AUTO_FREE char *s = json_dumps(j, JSON_COMPACT);

    json_decref(j);
    assert_non_null(s);
    reply(r, status, "application/json", s, strlen(s));
}

int reply_begin(struct req *r, int status, const char *type, int64_t len)
{
    struct fake *f = fake_of(r);

    (void)len;
    assert_int_equal(f->status, 0);
    f->status = status;
    buf_addf(&f->extra, "Content-Type: %s\n", type);
    return 0;
}

int reply_write(struct req *r, const void *p, size_t n)
{
    struct fake *f = fake_of(r);

    while (f->stalled)
        sleep_ms(5);
    if (f->gone)
        return -EPIPE;
    pthread_mutex_lock(&f->mu);
    buf_add(&f->out, p, n);
    pthread_mutex_unlock(&f->mu);
    return 0;
}

void reply_end(struct req *r)
{
    struct fake *f = fake_of(r);

    pthread_mutex_lock(&f->mu);
    f->ended = true;
    pthread_mutex_unlock(&f->mu);
}

static ssize_t fake_read(struct req *r, void *p, size_t n)
{
    struct fake *f = fake_of(r);

    if (n > f->upload_n)
        n = f->upload_n;
    if (f->upload_step && n > f->upload_step)
        n = f->upload_step;
    memcpy(p, f->upload, n);
    f->upload += n;
    f->upload_n -= n;
    return (ssize_t)n;
}

static void fake_init(struct fake *f, const char *method, const char *path)
{
    memset(f, 0, sizeof(*f));
    f->r.method = method;
    f->r.path = path;
    f->r.priv = f;
    f->r.read_body = fake_read;
    pthread_mutex_init(&f->mu, NULL);
}

static void fake_clear(struct fake *f)
{
    buf_free(&f->extra);
    buf_free(&f->out);
    buf_free(&f->r.body);
    pthread_mutex_destroy(&f->mu);
}

static void header_set(struct fake *f, const char *name, const char *value)
{
    size_t i = 0;

    while (f->headers[i])
        i += 2;
    f->headers[i] = name;
    f->headers[i + 1] = value;
}

/* a unary call with this body; the answer (owned), *status */
__attribute__((unused)) static json_t *
unary(void (*handle)(struct req *r, struct box *b, const char *call),
      const char *call, int *status, const char *body)
{
    struct fake f;
    json_t *j;

    fake_init(&f, "POST", "/");
    header_set(&f, "Content-Type", "application/json");
    buf_adds(&f.r.body, body);
    handle(&f.r, &the_box, call);
    *status = f.status;
    assert_true(f.ended);
    j = json_loadb(buf_str(&f.out), f.out.n, JSON_DECODE_ANY, NULL);
    fake_clear(&f);
    return j;
}

/* ---- the box's directory ---- */

static int unlink_it(const char *path, const struct stat *st, int flag,
                     struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static int box_setup(void **state)
{
    AUTO_FREE char *home = NULL;

    (void)state;
    memset(&the_box, 0, sizeof(the_box));
    snprintf(the_box.dir, sizeof(the_box.dir), "/tmp/envd-XXXXXX");
    if (!mkdtemp(the_box.dir))
        return -1;
    the_box.root = open(the_box.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    home = xasprintf("%s/home", the_box.dir);
    mkdir(home, 0755);
    free(home);
    home = xasprintf("%s/home/user", the_box.dir);
    return mkdir(home, 0755);
}

static int box_teardown(void **state)
{
    (void)state;
    close(the_box.root);
    return nftw(the_box.dir, unlink_it, 16, FTW_DEPTH | FTW_PHYS);
}

/* a file of the box as the host has it */
__attribute__((unused)) static char *host_path(const char *in_box)
{
    return xasprintf("%s%s", the_box.dir, in_box);
}

#endif
