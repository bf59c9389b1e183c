#include "local/proc_int.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum { READ_MAX = 32768, READ_PTY_MAX = 16384, DRAIN_MAX = 1 << 20 };

pthread_mutex_t proc_lock = PTHREAD_MUTEX_INITIALIZER;
struct proc *proc_table;
int pump_epfd = -1;

static int wakefd = -1;
static int64_t next_timer;

void pump_poke(void)
{
    uint64_t one = 1;

    if (write(wakefd, &one, sizeof(one)) < 0)
        return; /* it is full, so the pump will wake anyway */
}

void pump_timer(int64_t at)
{
    if (at && (!next_timer || at < next_timer))
        next_timer = at;
}

static bool all_read(const struct proc *p)
{
    return p->src[0].fd < 0 && p->src[1].fd < 0;
}

/* one read; false when there is nothing (more) */
static bool source_read(struct source *s)
{
    static char buf[READ_MAX];
    ssize_t n = read(s->fd, buf, s->p->pty ? READ_PTY_MAX : READ_MAX);

    if (n > 0) {
        source_publish(s, buf, (size_t)n);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (s->p->exited)
        pump_timer(mono_ms());
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
    pump_timer(p->forget_at);
    if (!box_died)
        p->end = chunk_end(p->wstatus);
    for (struct sub *s = p->subs; s; s = s->next) {
        if (p->end)
            sub_push(s, p->end);
        sub_over(s, box_died ? -ESHUTDOWN : -ENODATA);
    }
    if (pthread_mutex_trylock(&p->in_lock) == 0) {
        close_cleanup(&p->in_fd);
        pthread_mutex_unlock(&p->in_lock);
    }
}

static void forget(struct proc *p)
{
    for (struct proc **at = &proc_table; *at; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            p->listed = false;
            proc_unref(p);
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
    proc_unblock(p);
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
        pump_timer(p->exit_at + PROC_GRACE_MS);
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

    pthread_mutex_lock(&proc_lock);
    now = mono_ms();
    next_timer = 0;
    for (struct proc *p = proc_table; p; p = next) {
        next = p->next;
        if (p->kill_at && !p->exited && p->started && now >= p->kill_at)
            life_over(p);
        if (!p->exited)
            pump_timer(p->kill_at);
        if (n < ARRAY_LEN(ready) && ripe(p, now)) {
            p->refs++;
            ready[n++] = p;
        }
        if (p->ended && now >= p->forget_at)
            forget(p);
        else if (p->ended)
            pump_timer(p->forget_at);
    }
    if (n == ARRAY_LEN(ready))
        pump_timer(now);
    pthread_mutex_unlock(&proc_lock);
    for (size_t i = 0; i < n; i++) {
        bool died = ready[i]->wstatus == -1 || box_gone(ready[i]->box);

        pthread_mutex_lock(&proc_lock);
        if (!ready[i]->ended)
            finish(ready[i], died);
        proc_unref(ready[i]);
        pthread_mutex_unlock(&proc_lock);
    }
}

static int pump_wait_ms(void)
{
    int64_t left;

    pthread_mutex_lock(&proc_lock);
    left = next_timer ? next_timer - mono_ms() : 60000;
    pthread_mutex_unlock(&proc_lock);
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static void *pump_main(void *arg)
{
    struct epoll_event ev[32];
    uint64_t count;

    for (;;) {
        int n = epoll_wait(pump_epfd, ev, ARRAY_LEN(ev), pump_wait_ms());
        bool kicked = false;

        pthread_mutex_lock(&proc_lock);
        for (int i = 0; i < n; i++) {
            struct source *s = ev[i].data.ptr;

            if (!s)
                kicked = read(wakefd, &count, sizeof(count)) > 0;
            else if (s->armed)
                source_read(s);
        }
        kicked |= next_timer && next_timer <= mono_ms();
        pthread_mutex_unlock(&proc_lock);
        if (kicked)
            timers();
    }
    return arg;
}

/* ---- life of a box and of a process ---- */

static void on_box_end(const char *id)
{
    pthread_mutex_lock(&proc_lock);
    for (struct proc *p = proc_table; p; p = p->next) {
        if (strcmp(p->box, id) || p->ended)
            continue;
        p->exited = true;
        p->wstatus = -1;
    }
    pthread_mutex_unlock(&proc_lock);
    pump_poke();
}

void pump_exited(void *arg, int wstatus)
{
    struct proc *p = arg;

    pthread_mutex_lock(&proc_lock);
    if (!p->exited) {
        p->exited = true;
        p->wstatus = wstatus;
        p->exit_at = mono_ms();
    }
    proc_unref(p);
    pthread_mutex_unlock(&proc_lock);
    pump_poke();
}

/* a process takes up to three descriptors, a stream one more */
static void raise_descriptors(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur == r.rlim_max)
        return;
    r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
    if (setrlimit(RLIMIT_NOFILE, &r))
        log_msg(LOG_WARN, "few descriptors: %s", strerror(errno));
}

void pump_start(void)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    signal(SIGPIPE, SIG_IGN);
    raise_descriptors();
    pump_epfd = epoll_create1(EPOLL_CLOEXEC);
    wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pump_epfd < 0 || wakefd < 0 ||
        epoll_ctl(pump_epfd, EPOLL_CTL_ADD, wakefd, &ev))
        abort();
    thread_detached(pump_main, NULL);
    box_on_end(on_box_end);
}
