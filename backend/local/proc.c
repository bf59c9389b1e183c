#include "local/proc.h"

#include "local/connect.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A process goes through: starting (not in the epoll set yet), running,
 * exited (reaped; its pipes may hold more), ended (the end event was handed
 * out), and is then forgotten. References are held by the table, by each
 * source that is open, by each subscriber and by the reaper's callback.
 *
 * `lock` guards everything but in_fd, which in_lock guards. Lock order:
 * in_lock, lock; nothing of the box is called under `lock`. Sources are closed
 * by the pump only.
 */

enum { READ_MAX = 32768, READ_PTY_MAX = 16384, DRAIN_MAX = 1 << 20 };

struct source {
    struct proc *p;
    const char *field; /* of the event: stdout, stderr, pty */
    int fd;            /* -1 after EOF */
    bool armed;        /* in the epoll set */
};

struct proc {
    struct proc *next;
    int refs;
    char *box;
    char *tag;
    json_t *config;
    pid_t pid;
    bool pty;
    struct source src[2];
    pthread_mutex_t in_lock;
    int in_fd; /* -1: none, or closed */
    struct sub *subs;
    bool blocked; /* a subscriber is full: not read */
    bool listed;  /* in the table */
    bool started, exited, ended, box_died;
    int wstatus;
    int drained; /* bytes at most, since the grace after the exit */
    int64_t exit_at, kill_at, forget_at;
    struct chunk *end;
};

struct link {
    struct link *next;
    struct chunk *c;
};

struct sub {
    struct sub *next;
    struct proc *p;
    pthread_cond_t more;
    struct link *head, **tail;
    size_t bytes;
    bool starter; /* the stream of Start */
    int over;     /* 0, or what sub_next says once the queue is empty */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct proc *table;
static int epfd = -1, wakefd = -1;
static int64_t next_timer;

/* ---- chunks ---- */

static struct chunk *chunk_envelope(const struct buf *json)
{
    AUTO_BUF struct buf b = {0};
    struct chunk *c;

    envelope_add(&b, 0, json->p, json->n);
    c = xmalloc(sizeof(*c) + b.n);
    c->refs = 1;
    c->n = b.n;
    memcpy(c->p, b.p, b.n);
    return c;
}

static struct chunk *chunk_data(const char *name, const char *p, size_t n)
{
    AUTO_BUF struct buf b = {0};

    buf_addf(&b, "{\"event\":{\"data\":{\"%s\":\"", name);
    base64_encode(&b, p, n);
    buf_adds(&b, "\"}}}");
    return chunk_envelope(&b);
}

static struct chunk *chunk_end(int wstatus)
{
    AUTO_BUF struct buf b = {0};

    if (WIFSIGNALED(wstatus)) {
        const char *d = sigdescr_np(WTERMSIG(wstatus));
        AUTO_FREE char *s = d ? xstrdup(d)
                              : xasprintf("signal %d", WTERMSIG(wstatus));

        if (*s >= 'A' && *s <= 'Z')
            *s = (char)(*s - 'A' + 'a');
        buf_addf(&b,
                 "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: "
                 "%s%s\",\"error\":\"signal: %s\"}}}",
                 s, WCOREDUMP(wstatus) ? " (core dumped)" : "", s);
    } else if (WEXITSTATUS(wstatus)) {
        int c = WEXITSTATUS(wstatus);

        buf_addf(&b,
                 "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":true,"
                 "\"status\":\"exit status %d\",\"error\":\"exit status "
                 "%d\"}}}",
                 c, c, c);
    } else {
        buf_adds(&b, "{\"event\":{\"end\":{\"exited\":true,\"status\":"
                     "\"exit status 0\"}}}");
    }
    return chunk_envelope(&b);
}

void chunk_put(struct chunk *c)
{
    if (c && --c->refs == 0)
        free(c);
}

/* ---- processes ---- */

static void unref(struct proc *p)
{
    if (--p->refs)
        return;
    close_cleanup(&p->in_fd);
    close_cleanup(&p->src[0].fd);
    close_cleanup(&p->src[1].fd);
    pthread_mutex_destroy(&p->in_lock);
    chunk_put(p->end);
    json_decref(p->config);
    free(p->box);
    free(p->tag);
    free(p);
}

static void poke(void)
{
    uint64_t one = 1;

    if (write(wakefd, &one, sizeof(one)) < 0)
        return; /* it is full, so the pump will wake anyway */
}

static void timer_set(int64_t at)
{
    if (at && (!next_timer || at < next_timer))
        next_timer = at;
}

static bool all_read(const struct proc *p)
{
    return p->src[0].fd < 0 && p->src[1].fd < 0;
}

static void arm(struct source *s)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};

    if (s->fd < 0 || s->armed)
        return;
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, s->fd, &ev))
        log_msg(LOG_ERR, "can't watch a pipe: %s", strerror(errno));
    else
        s->armed = true;
}

static void disarm(struct source *s)
{
    if (s->armed)
        epoll_ctl(epfd, EPOLL_CTL_DEL, s->fd, NULL);
    s->armed = false;
}

static void source_close(struct source *s)
{
    if (s->fd < 0)
        return;
    disarm(s);
    close_cleanup(&s->fd);
    unref(s->p);
}

/* ---- subscribers ---- */

static void push(struct sub *s, struct chunk *c)
{
    struct link *l;

    if (s->over)
        return;
    l = xcalloc(1, sizeof(*l));
    c->refs++;
    l->c = c;
    *s->tail = l;
    s->tail = &l->next;
    s->bytes += c->n;
    pthread_cond_signal(&s->more);
}

static void sub_over(struct sub *s, int why)
{
    if (!s->over)
        s->over = why;
    pthread_cond_signal(&s->more);
}

static struct sub *sub_new(struct proc *p)
{
    struct sub *s = xcalloc(1, sizeof(*s));
    pthread_condattr_t a;

    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&s->more, &a);
    pthread_condattr_destroy(&a);
    s->tail = &s->head;
    s->p = p;
    p->refs++;
    s->next = p->subs;
    p->subs = s;
    return s;
}

static struct chunk *pop(struct sub *s)
{
    struct link *l = s->head;
    struct chunk *c = l->c;

    s->head = l->next;
    if (!s->head)
        s->tail = &s->head;
    s->bytes -= c->n;
    free(l);
    return c;
}

/* reads on when no subscriber is behind any more */
static void unblock(struct proc *p)
{
    if (!p->blocked)
        return;
    for (struct sub *s = p->subs; s; s = s->next)
        if (!s->over && s->bytes > SUB_QUEUE_LOW)
            return;
    p->blocked = false;
    arm(&p->src[0]);
    arm(&p->src[1]);
    if (p->exited)
        poke();
}

static void publish(struct source *src, const char *buf, size_t n)
{
    struct proc *p = src->p;
    struct chunk *c;

    if (!p->subs || p->ended)
        return;
    c = chunk_data(src->field, buf, n);
    for (struct sub *s = p->subs; s; s = s->next) {
        push(s, c);
        if (!s->over && s->bytes > SUB_QUEUE_HIGH)
            p->blocked = true;
    }
    chunk_put(c);
    if (p->blocked) {
        disarm(&p->src[0]);
        disarm(&p->src[1]);
    }
}

pid_t sub_pid(const struct sub *s)
{
    return s->p->pid;
}

int sub_next(struct sub *s, int64_t until, struct chunk **out)
{
    struct timespec ts = {until / 1000, (long)(until % 1000) * 1000000};
    int r = 0;

    *out = NULL;
    pthread_mutex_lock(&lock);
    while (!s->head && !s->over && r == 0) {
        if (until)
            r = pthread_cond_timedwait(&s->more, &lock, &ts);
        else
            r = pthread_cond_wait(&s->more, &lock);
    }
    r = 0;
    if (s->head) {
        *out = pop(s);
        r = 1;
        unblock(s->p);
    } else if (s->over) {
        r = s->over;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

void sub_close(struct sub *s)
{
    struct proc *p = s->p;

    pthread_mutex_lock(&lock);
    for (struct sub **at = &p->subs; *at; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    while (s->head)
        chunk_put(pop(s));
    unblock(p);
    unref(p);
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&s->more);
    free(s);
}

/* ---- the pump ---- */

/* one read; false when there is nothing (more) */
static bool source_read(struct source *s)
{
    static char buf[READ_MAX];
    ssize_t n = read(s->fd, buf, s->p->pty ? READ_PTY_MAX : READ_MAX);

    if (n > 0) {
        publish(s, buf, (size_t)n);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (s->p->exited)
        timer_set(mono_ms());
    source_close(s);
    return false;
}

/* what is in the pipes now; true when that is all */
static bool drain(struct proc *p)
{
    for (int i = 0; i < 2; i++)
        while (!p->blocked && p->src[i].fd >= 0 && p->drained < DRAIN_MAX &&
               source_read(&p->src[i]))
            p->drained += READ_PTY_MAX;
    return !p->blocked || p->drained >= DRAIN_MAX;
}

static void finish(struct proc *p, bool box_died)
{
    p->ended = true;
    p->box_died = box_died;
    p->forget_at = box_died ? mono_ms() : mono_ms() + PROC_KEPT_MS;
    timer_set(p->forget_at);
    if (!box_died)
        p->end = chunk_end(p->wstatus);
    for (struct sub *s = p->subs; s; s = s->next) {
        if (p->end)
            push(s, p->end);
        sub_over(s, box_died ? -ESHUTDOWN : -ENODATA);
    }
    if (pthread_mutex_trylock(&p->in_lock) == 0) {
        close_cleanup(&p->in_fd);
        pthread_mutex_unlock(&p->in_lock);
    }
}

static void forget(struct proc *p)
{
    for (struct proc **at = &table; *at; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            p->listed = false;
            unref(p);
            return;
        }
    }
}

struct kill {
    char *box;
    pid_t pid;
};

/* on a thread of its own: the box may be slow to answer */
static void *kill_main(void *arg)
{
    struct kill *k = arg;
    struct box *b = box_get(k->box);

    if (b) {
        box_signal(b, k->pid, SIGKILL, false);
        box_put(b);
    }
    free(k->box);
    free(k);
    return NULL;
}

static void thread_detached(void *(*fn)(void *), void *arg)
{
    pthread_attr_t a;
    pthread_t t;

    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&t, &a, fn, arg))
        log_msg(LOG_ERR, "can't start a thread");
    pthread_attr_destroy(&a);
}

static void life_over(struct proc *p)
{
    struct kill *k = xcalloc(1, sizeof(*k));

    p->kill_at = 0;
    for (struct sub *s = p->subs; s; s = s->next)
        if (s->starter)
            sub_over(s, -ETIMEDOUT);
    unblock(p);
    k->box = xstrdup(p->box);
    k->pid = p->pid;
    thread_detached(kill_main, k);
}

/* is it time for the end event? */
static bool ripe(struct proc *p, int64_t now)
{
    if (!p->started || !p->exited || p->ended)
        return false;
    if (all_read(p) || p->wstatus == -1)
        return true;
    if (now < p->exit_at + PROC_GRACE_MS) {
        timer_set(p->exit_at + PROC_GRACE_MS);
        return false;
    }
    return drain(p);
}

static bool box_gone(const char *id)
{
    struct box *b = box_get(id);
    bool gone = !b || !box_alive(b);

    if (b)
        box_put(b);
    return gone;
}

/* everything that depends on the time or on an exit */
static void timers(void)
{
    struct proc *ready[64], *next;
    size_t n = 0;
    int64_t now;

    pthread_mutex_lock(&lock);
    now = mono_ms();
    next_timer = 0;
    for (struct proc *p = table; p; p = next) {
        next = p->next;
        if (p->kill_at && !p->exited && p->started && now >= p->kill_at)
            life_over(p);
        if (!p->exited)
            timer_set(p->kill_at);
        if (n < ARRAY_LEN(ready) && ripe(p, now)) {
            p->refs++;
            ready[n++] = p;
        }
        if (p->ended && now >= p->forget_at)
            forget(p);
        else if (p->ended)
            timer_set(p->forget_at);
    }
    if (n == ARRAY_LEN(ready))
        timer_set(now);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < n; i++) {
        bool died = ready[i]->wstatus == -1 || box_gone(ready[i]->box);

        pthread_mutex_lock(&lock);
        if (!ready[i]->ended)
            finish(ready[i], died);
        unref(ready[i]);
        pthread_mutex_unlock(&lock);
    }
}

static int pump_wait_ms(void)
{
    int64_t left;

    pthread_mutex_lock(&lock);
    left = next_timer ? next_timer - mono_ms() : 60000;
    pthread_mutex_unlock(&lock);
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static void *pump_main(void *arg)
{
    struct epoll_event ev[32];
    uint64_t count;

    for (;;) {
        int n = epoll_wait(epfd, ev, ARRAY_LEN(ev), pump_wait_ms());
        bool kicked = false;

        pthread_mutex_lock(&lock);
        for (int i = 0; i < n; i++) {
            struct source *s = ev[i].data.ptr;

            if (!s)
                kicked = read(wakefd, &count, sizeof(count)) > 0;
            else if (s->armed)
                source_read(s);
        }
        kicked |= next_timer && next_timer <= mono_ms();
        pthread_mutex_unlock(&lock);
        if (kicked)
            timers();
    }
    return arg;
}

/* ---- life of a box and of a process ---- */

static void on_box_end(const char *id)
{
    pthread_mutex_lock(&lock);
    for (struct proc *p = table; p; p = p->next) {
        if (strcmp(p->box, id) || p->ended)
            continue;
        p->exited = true;
        p->wstatus = -1;
    }
    pthread_mutex_unlock(&lock);
    poke();
}

static void on_exited(void *arg, int wstatus)
{
    struct proc *p = arg;

    pthread_mutex_lock(&lock);
    if (!p->exited) {
        p->exited = true;
        p->wstatus = wstatus;
        p->exit_at = mono_ms();
    }
    unref(p);
    pthread_mutex_unlock(&lock);
    poke();
}

static void start_pump(void)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    signal(SIGPIPE, SIG_IGN);
    epfd = epoll_create1(EPOLL_CLOEXEC);
    wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epfd < 0 || wakefd < 0 ||
        epoll_ctl(epfd, EPOLL_CTL_ADD, wakefd, &ev))
        abort();
    thread_detached(pump_main, NULL);
    box_on_end(on_box_end);
}

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
        timer_set(p->kill_at);
    }
    p->listed = true;
    p->next = table;
    table = p;
    p->refs++;
    for (int i = 0; i < 2; i++) {
        if (p->src[i].fd >= 0) {
            p->refs++;
            arm(&p->src[i]);
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

    pthread_once(&once, start_pump);
    r = open_ends(b, s, p, &x);
    if (r) {
        err_set(e, r, "can't make pipes: %s", strerror(-r));
    } else {
        struct box_spawn bs = {
            .argv = s->argv, .env = s->env, .cwd = s->cwd,
            .as_root = s->as_root, .tty = s->pty, .in = x.in, .out = x.out,
            .err = x.err, .exited = on_exited, .arg = p};

        p->refs++; /* of the reaper */
        r = box_spawn(b, &bs, e);
        if (r < 0)
            p->refs--;
    }
    close_cleanup(&x.in);
    close_cleanup(&x.out);
    close_cleanup(&x.err);
    pthread_mutex_lock(&lock);
    if (r > 0) {
        *out = sub_new(p);
        (*out)->starter = true;
        proc_launch(p, r, s->life_ms);
    }
    unref(p);
    pthread_mutex_unlock(&lock);
    if (r > 0)
        poke();
    return r > 0 ? 0 : r;
}

/* ---- calls ---- */

static struct proc *find(const char *box, const struct proc_sel *sel,
                         bool live)
{
    for (struct proc *p = table; p; p = p->next) {
        if ((live ? p->exited : p->ended) || strcmp(p->box, box))
            continue;
        if (sel->pid ? p->pid == sel->pid : !strcmp(p->tag, sel->tag))
            return p;
    }
    return NULL;
}

static struct proc *find_ended(const char *box, const struct proc_sel *sel)
{
    for (struct proc *p = table; p; p = p->next) {
        if (!p->end || strcmp(p->box, box))
            continue;
        if (sel->pid ? p->pid == sel->pid : !strcmp(p->tag, sel->tag))
            return p;
    }
    return NULL;
}

int proc_connect(const char *box, const struct proc_sel *sel,
                 struct sub **out)
{
    struct proc *p;

    pthread_mutex_lock(&lock);
    p = find(box, sel, false);
    if (!p)
        p = find_ended(box, sel);
    if (p) {
        *out = sub_new(p);
        if (p->ended) {
            push(*out, p->end);
            sub_over(*out, -ENODATA);
        }
    }
    pthread_mutex_unlock(&lock);
    return p ? 0 : -ESRCH;
}

/* a live process, with a reference; NULL if there is none */
static struct proc *take(const char *box, const struct proc_sel *sel)
{
    struct proc *p;

    pthread_mutex_lock(&lock);
    p = find(box, sel, true);
    if (p)
        p->refs++;
    pthread_mutex_unlock(&lock);
    return p;
}

static void give(struct proc *p)
{
    pthread_mutex_lock(&lock);
    unref(p);
    pthread_mutex_unlock(&lock);
}

static bool has_exited(struct proc *p)
{
    bool x;

    pthread_mutex_lock(&lock);
    x = p->exited;
    pthread_mutex_unlock(&lock);
    return x;
}

json_t *proc_list(const char *box)
{
    json_t *list = json_array();

    pthread_mutex_lock(&lock);
    for (struct proc *p = table; p; p = p->next) {
        json_t *j;

        if (p->exited || strcmp(p->box, box))
            continue;
        j = json_pack("{s:O, s:i}", "config", p->config, "pid", (int)p->pid);
        if (*p->tag)
            json_object_set_new(j, "tag", json_string(p->tag));
        json_array_append_new(list, j);
    }
    pthread_mutex_unlock(&lock);
    return list;
}

size_t process_count(const char *box)
{
    size_t n = 0;

    pthread_mutex_lock(&lock);
    for (struct proc *p = table; p; p = p->next)
        n += !p->exited && !strcmp(p->box, box);
    pthread_mutex_unlock(&lock);
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
