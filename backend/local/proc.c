#include "local/proc_int.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

/* the ends of its input and output that the process gets */
struct ends {
    int in, out, err;
};

static int pipe_pair(int *ours, int *theirs, bool write_ours, uid_t uid,
                     gid_t gid)
{
    int fd[2];

    if (pipe2(fd, O_CLOEXEC))
        return -errno;
    *ours = fd[write_ours];
    *theirs = fd[!write_ours];
    if (fcntl(*ours, F_SETFL, O_NONBLOCK))
        return -errno;
    /* so that /dev/stderr can be opened in there */
    if (geteuid() == 0 && fchown(*theirs, uid, gid))
        return -errno;
    return 0;
}

static int open_ends(struct box *b, const struct proc_spec *s, struct proc *p,
                     struct ends *x)
{
    uid_t uid;
    gid_t gid;
    int e = 0;

    box_ids(b, s->as_root, &uid, &gid);
    if (s->pty) {
        e = pty_open(b, s->as_root, s->cols, s->rows, &p->src[0].fd, &x->in);
        if (e)
            return e;
        p->in_fd = fcntl(p->src[0].fd, F_DUPFD_CLOEXEC, 0);
        x->out = fcntl(x->in, F_DUPFD_CLOEXEC, 0);
        x->err = fcntl(x->in, F_DUPFD_CLOEXEC, 0);
        return p->in_fd < 0 || x->out < 0 || x->err < 0 ? -EMFILE : 0;
    }
    if (s->has_stdin)
        e = pipe_pair(&p->in_fd, &x->in, true, uid, gid);
    if (!e)
        e = pipe_pair(&p->src[0].fd, &x->out, false, uid, gid);
    if (!e)
        e = pipe_pair(&p->src[1].fd, &x->err, false, uid, gid);
    return e;
}

static struct proc *proc_new(struct box *b, const struct proc_spec *s)
{
    struct proc *p = xcalloc(1, sizeof(*p));

    p->refs = 1;
    p->box = xstrdup(box_id(b));
    p->tag = xstrdup(s->tag);
    p->config = json_incref(s->config);
    p->pty = s->pty;
    p->in_fd = -1;
    p->src[0] = (struct source){p, s->pty ? "pty" : "stdout", -1, false};
    p->src[1] = (struct source){p, "stderr", -1, false};
    pthread_mutex_init(&p->in_lock, NULL);
    return p;
}

/* puts it in the table and lets the pump see it */
static void proc_launch(struct proc *p, pid_t pid, int64_t life_ms)
{
    p->pid = pid;
    p->started = true;
    if (life_ms) {
        p->kill_at = mono_ms() + life_ms;
        pump_timer(p->kill_at);
    }
    p->listed = true;
    p->next = proc_table;
    proc_table = p;
    p->refs++;
    for (int i = 0; i < 2; i++) {
        if (p->src[i].fd >= 0) {
            p->refs++;
            source_arm(&p->src[i]);
        }
    }
}

int proc_start(struct box *b, const struct proc_spec *s, struct sub **out,
               struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct ends x = {-1, -1, -1};
    struct proc *p = proc_new(b, s);
    int r;

    pthread_once(&once, pump_start);
    r = open_ends(b, s, p, &x);
    if (r) {
        err_set(e, r, "can't make pipes: %s", strerror(-r));
    } else {
        struct box_spawn bs = {.argv = s->argv,
                               .env = s->env,
                               .cwd = s->cwd,
                               .as_root = s->as_root,
                               .tty = s->pty,
                               .in = x.in,
                               .out = x.out,
                               .err = x.err,
                               .exited = pump_exited,
                               .arg = p};

        p->refs++; /* of the reaper */
        r = box_spawn(b, &bs, e);
        if (r < 0)
            p->refs--;
    }
    close_cleanup(&x.in);
    close_cleanup(&x.out);
    close_cleanup(&x.err);
    pthread_mutex_lock(&proc_lock);
    if (r > 0) {
        *out = sub_new(p);
        (*out)->starter = true;
        proc_launch(p, r, s->life_ms);
    }
    proc_unref(p);
    pthread_mutex_unlock(&proc_lock);
    if (r > 0)
        pump_poke();
    return r > 0 ? 0 : r;
}

/* ---- calls ---- */

static struct proc *find(const char *box, const struct proc_sel *sel,
                         bool live)
{
    for (struct proc *p = proc_table; p; p = p->next) {
        if ((live ? p->exited : p->ended) || strcmp(p->box, box))
            continue;
        if (sel->pid ? p->pid == sel->pid : !strcmp(p->tag, sel->tag))
            return p;
    }
    return NULL;
}

static struct proc *find_ended(const char *box, const struct proc_sel *sel)
{
    for (struct proc *p = proc_table; p; p = p->next) {
        if (!p->end || strcmp(p->box, box))
            continue;
        if (sel->pid ? p->pid == sel->pid : !strcmp(p->tag, sel->tag))
            return p;
    }
    return NULL;
}

int proc_connect(const char *box, const struct proc_sel *sel, struct sub **out)
{
    struct proc *p;

    pthread_mutex_lock(&proc_lock);
    p = find(box, sel, false);
    if (!p)
        p = find_ended(box, sel);
    if (p) {
        *out = sub_new(p);
        if (p->ended) {
            sub_push(*out, p->end);
            sub_over(*out, -ENODATA);
        }
    }
    pthread_mutex_unlock(&proc_lock);
    return p ? 0 : -ESRCH;
}

/* a live process, with a reference; NULL if there is none */
static struct proc *take(const char *box, const struct proc_sel *sel)
{
    struct proc *p;

    pthread_mutex_lock(&proc_lock);
    p = find(box, sel, true);
    if (p)
        p->refs++;
    pthread_mutex_unlock(&proc_lock);
    return p;
}

static void give(struct proc *p)
{
    pthread_mutex_lock(&proc_lock);
    proc_unref(p);
    pthread_mutex_unlock(&proc_lock);
}

static bool has_exited(struct proc *p)
{
    bool x;

    pthread_mutex_lock(&proc_lock);
    x = p->exited;
    pthread_mutex_unlock(&proc_lock);
    return x;
}

json_t *proc_list(const char *box)
{
    json_t *list = json_array();

    pthread_mutex_lock(&proc_lock);
    for (struct proc *p = proc_table; p; p = p->next) {
        json_t *j;

        if (p->exited || strcmp(p->box, box))
            continue;
        j = json_pack("{s:O, s:i}", "config", p->config, "pid", (int)p->pid);
        if (*p->tag)
            json_object_set_new(j, "tag", json_string(p->tag));
        json_array_append_new(list, j);
    }
    pthread_mutex_unlock(&proc_lock);
    return list;
}

size_t process_count(const char *box)
{
    size_t n = 0;

    pthread_mutex_lock(&proc_lock);
    for (struct proc *p = proc_table; p; p = p->next)
        n += !p->exited && !strcmp(p->box, box);
    pthread_mutex_unlock(&proc_lock);
    return n;
}

int proc_signal(struct box *b, const struct proc_sel *sel, int sig)
{
    struct proc *p = take(box_id(b), sel);
    int e;

    if (!p)
        return -ESRCH;
    e = box_signal(b, p->pid, sig, false);
    give(p);
    return e;
}

int proc_resize(const char *box, const struct proc_sel *sel,
                unsigned short cols, unsigned short rows)
{
    struct proc *p = take(box, sel);
    int e = -EBADF;

    if (!p)
        return -ESRCH;
    pthread_mutex_lock(&p->in_lock);
    if (p->pty && p->in_fd >= 0)
        e = pty_resize(p->in_fd, cols, rows);
    pthread_mutex_unlock(&p->in_lock);
    give(p);
    return e;
}

/* under in_lock; looks up once a second, for what poll can't tell it */
static int write_all(struct box *b, struct proc *p, const char *c, size_t n,
                     int64_t until)
{
    while (n) {
        struct pollfd pf = {.fd = p->in_fd, .events = POLLOUT};
        ssize_t w = write(p->in_fd, c, n);

        if (w > 0) {
            c += w;
            n -= (size_t)w;
            continue;
        }
        if (w < 0 && errno != EAGAIN && errno != EINTR)
            return errno == EIO ? -EPIPE : -errno;
        if (!box_alive(b))
            return -ESHUTDOWN;
        if (has_exited(p))
            return -ESRCH;
        if (until && mono_ms() >= until)
            return -ETIMEDOUT;
        poll(&pf, 1, 1000);
    }
    return 0;
}

int proc_write(struct box *b, const struct proc_sel *sel, bool pty,
               const void *data, size_t n, int64_t until)
{
    struct proc *p = take(box_id(b), sel);
    int e = -EBADF;

    if (!p)
        return -ESRCH;
    pthread_mutex_lock(&p->in_lock);
    if (p->in_fd >= 0 && p->pty == pty)
        e = write_all(b, p, data, n, until);
    if (has_exited(p))
        close_cleanup(&p->in_fd);
    pthread_mutex_unlock(&p->in_lock);
    give(p);
    return e;
}

int proc_close_stdin(const char *box, const struct proc_sel *sel)
{
    struct proc *p = take(box, sel);
    int e = 0;

    if (!p)
        return -ESRCH;
    pthread_mutex_lock(&p->in_lock);
    if (p->pty)
        e = -EBADF;
    else
        close_cleanup(&p->in_fd);
    pthread_mutex_unlock(&p->in_lock);
    give(p);
    return e;
}
