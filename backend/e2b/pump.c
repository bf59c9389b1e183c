/*
 * pump: one thread, one curl multi, epoll; every stream costs a socket and
 * about 50 KiB and nothing while it is silent.
 *
 * Other threads touch only what `lock` protects: the lists `fresh` and
 * `marked` and the flags of a stream, and wake the thread by `wake`. All
 * else belongs to the thread. Callbacks are called with no lock held.
 */
#include "base/text.h"
#include "e2b/stream.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SWEEP_MS = 5000, EVENTS = 128 };

struct e2b_stream {
    struct stream stream; /* first */
    struct feed feed;
    struct e2b_pump *pump;
    struct e2b *x;
    struct e2b_stream_ops ops;
    void *arg;
    struct e2b_stream *next, **link; /* among the pump's, or fresh */
    int64_t end_ms;                  /* its time limit, or 0 */
    CURLcode rc;
    bool has_feed, in_multi, done;
    struct e2b_stream *touched_next; /* among those to be settled */
    bool touched;
    /* under the pump's lock */
    struct e2b_stream *marked_next;
    bool marked, want_stop;
};

struct e2b_pump {
    pthread_t thread;
    CURLM *multi;
    int epoll, wake;
    int64_t timer; /* mono_ms of curl's next wish, or -1 */
    int64_t swept;
    struct e2b_stream *streams, *touched;
    pthread_mutex_t lock;
    struct e2b_stream *fresh, *marked; /* newest first */
    bool stop;
};

static void wake(struct e2b_pump *p)
{
    uint64_t one = 1;

    if (write(p->wake, &one, sizeof(one)) < 0)
        return; /* it is full: the thread wakes anyway */
}

/* ---- a stream's life, on the thread ---- */

static void list_add(struct e2b_stream **list, struct e2b_stream *s)
{
    s->next = *list;
    s->link = list;
    if (*list)
        (*list)->link = &s->next;
    *list = s;
}

static void list_remove(struct e2b_stream *s)
{
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
}

/* something happened to it: it is to be settled once curl has returned */
static void touch(struct e2b_stream *s)
{
    if (s->touched)
        return;
    s->touched = true;
    s->touched_next = s->pump->touched;
    s->pump->touched = s;
}

static void untouch(struct e2b_stream *s)
{
    struct e2b_stream **pp;

    for (pp = &s->pump->touched; s->touched && *pp; pp = &(*pp)->touched_next)
        if (*pp == s) {
            *pp = s->touched_next;
            break;
        }
}

static void unmark(struct e2b_stream *s)
{
    struct e2b_stream **pp;

    pthread_mutex_lock(&s->pump->lock);
    for (pp = &s->pump->marked; s->marked && *pp; pp = &(*pp)->marked_next)
        if (*pp == s) {
            *pp = s->marked_next;
            break;
        }
    pthread_mutex_unlock(&s->pump->lock);
}

/* tells the end and forgets the stream */
static void finish(struct e2b_stream *s, int code, const struct err *e)
{
    list_remove(s);
    feed_free(&s->feed);
    if (s->in_multi)
        curl_multi_remove_handle(s->pump->multi, s->stream.easy);
    s->ops.on_end(s->arg, code, code ? 0 : s->stream.exit_code, e);
    unmark(s);
    untouch(s);
    stream_free(&s->stream);
    free(s);
}

static void finish_words(struct e2b_stream *s, int code, const char *words)
{
    struct err e;

    finish(s, err_set(&e, code, "%s", words), &e);
}

static void finish_own(struct e2b_stream *s)
{
    static const struct err none;

    if (s->stream.failed)
        finish(s, s->stream.code, &s->stream.why);
    else
        finish(s, 0, &none);
}

static bool on_data(void *arg, int fd, const char *p, size_t n)
{
    struct e2b_stream *s = arg;

    return s->ops.on_data(s->arg, fd, p, n);
}

static void on_step(void *arg)
{
    touch(arg);
}

static void on_done(struct transfer *t, CURLcode rc)
{
    struct e2b_stream *s = (struct e2b_stream *)t;

    s->done = true;
    s->rc = rc;
    touch(s);
}

static void begin(struct e2b_pump *p, struct e2b_stream *s)
{
    list_add(&p->streams, s);
    touch(s);
    if (s->stream.failed)
        return; /* settle tells it */
    stream_begin(&s->stream, s->x);
    s->stream.transfer.done = on_done;
    s->stream.on_data = on_data;
    s->stream.on_step = on_step;
    s->stream.arg = s;
    s->in_multi = !curl_multi_add_handle(p->multi, s->stream.easy);
    if (!s->in_multi) {
        s->stream.failed = true;
        s->stream.code = err_set(&s->stream.why, ENOMEM, "no memory");
    }
}

/* does what may not be done inside curl's callbacks; may free the stream */
static void settle(struct e2b_stream *s)
{
    if (s->has_feed && s->stream.running && !s->stream.finished) {
        s->has_feed = false;
        feed_start(&s->feed, s->pump->multi, s->stream.pid);
    }
    if (s->stream.paused)
        return;
    if (s->stream.failed || s->stream.finished) {
        stream_done(&s->stream, CURLE_OK);
        finish_own(s);
    } else if (s->done) {
        stream_done(&s->stream, s->rc);
        finish_own(s);
    } else if (s->feed.failed) {
        finish(s, -s->feed.why.code, &s->feed.why);
    }
}

/* ---- the loop ---- */

static int on_timer(CURLM *m, long ms, void *arg)
{
    struct e2b_pump *p = arg;

    (void)m;
    p->timer = ms < 0 ? -1 : mono_ms() + ms;
    return 0;
}

static int on_socket(CURL *h, curl_socket_t fd, int what, void *arg,
                     void *known)
{
    struct e2b_pump *p = arg;
    struct epoll_event ev = {.data.fd = fd};

    (void)h;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(p->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN)
        ev.events |= EPOLLIN;
    if (what & CURL_POLL_OUT)
        ev.events |= EPOLLOUT;
    if (epoll_ctl(p->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev))
        epoll_ctl(p->epoll, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &ev);
    curl_multi_assign(p->multi, fd, p);
    return 0;
}

static void tell_done(struct e2b_pump *p)
{
    CURLMsg *msg;
    int n;

    while ((msg = curl_multi_info_read(p->multi, &n))) {
        CURL *easy = msg->easy_handle;
        CURLcode rc = msg->data.result;
        struct transfer *t = NULL;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t);
        t->done(t, rc);
    }
}

static void settle_all(struct e2b_pump *p)
{
    while (p->touched) {
        struct e2b_stream *s = p->touched;

        p->touched = s->touched_next;
        s->touched = false;
        settle(s);
    }
}

enum order { ORDER_NONE, ORDER_BEGIN, ORDER_STOP, ORDER_RESUME };

/* a stream is begun before anything else is done with it */
static enum order next_order(struct e2b_pump *p, struct e2b_stream **out)
{
    enum order what = ORDER_NONE;
    struct e2b_stream *s;

    pthread_mutex_lock(&p->lock);
    if ((s = p->fresh)) {
        p->fresh = s->next;
        what = ORDER_BEGIN;
    } else if ((s = p->marked)) {
        p->marked = s->marked_next;
        s->marked = false;
        what = s->want_stop ? ORDER_STOP : ORDER_RESUME;
    }
    pthread_mutex_unlock(&p->lock);
    *out = s;
    return what;
}

/* what other threads asked for; true: the end of it all */
static bool take_orders(struct e2b_pump *p)
{
    struct e2b_stream *s;
    enum order what;
    bool stop;

    while ((what = next_order(p, &s)) != ORDER_NONE) {
        if (what == ORDER_BEGIN) {
            begin(p, s);
        } else if (what == ORDER_STOP) {
            finish_words(s, ECANCELED, "stopped");
        } else {
            touch(s);
            stream_resume(&s->stream);
        }
    }
    pthread_mutex_lock(&p->lock);
    stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    return stop;
}

/* silence and time limits */
static void sweep(struct e2b_pump *p, int64_t now)
{
    struct e2b_stream *s, *next;

    p->swept = now;
    for (s = p->streams; s; s = next) {
        next = s->next;
        if (s->end_ms && now >= s->end_ms)
            finish_words(s, ETIMEDOUT, "the stream's time is over");
        else if (!s->stream.paused && now - s->stream.last_ms > STREAM_DEAD_MS)
            finish_words(s, ETIMEDOUT, "the stream went silent");
        else if (s->feed.failed)
            touch(s);
    }
}

static int next_wait(const struct e2b_pump *p, int64_t now)
{
    int64_t at = p->streams ? p->swept + SWEEP_MS : -1;

    if (p->timer >= 0 && (at < 0 || p->timer < at))
        at = p->timer;
    if (at < 0)
        return -1;
    return at <= now ? 0 : (int)(at - now);
}

static void run_events(struct e2b_pump *p, const struct epoll_event *ev, int n)
{
    int still;
    uint64_t count;

    for (int i = 0; i < n; i++) {
        int flags = 0;

        if (ev[i].data.fd == p->wake) {
            if (read(p->wake, &count, sizeof(count)) < 0)
                continue;
            continue;
        }
        if (ev[i].events & EPOLLIN)
            flags |= CURL_CSELECT_IN;
        if (ev[i].events & EPOLLOUT)
            flags |= CURL_CSELECT_OUT;
        if (ev[i].events & (EPOLLERR | EPOLLHUP))
            flags |= CURL_CSELECT_ERR;
        curl_multi_socket_action(p->multi, ev[i].data.fd, flags, &still);
    }
}

static void end_all(struct e2b_pump *p)
{
    while (p->streams)
        finish_words(p->streams, ECANCELED, "stopped");
    for (;;) {
        struct e2b_stream *s;

        pthread_mutex_lock(&p->lock);
        s = p->fresh;
        if (s)
            p->fresh = s->next;
        pthread_mutex_unlock(&p->lock);
        if (!s)
            return;
        list_add(&p->streams, s);
        finish_words(s, ECANCELED, "stopped");
    }
}

static void *pump_main(void *arg)
{
    struct e2b_pump *p = arg;
    struct epoll_event ev[EVENTS];
    int64_t now;
    int n, still;

    pthread_setname_np(pthread_self(), "pump");
    while (!take_orders(p)) {
        settle_all(p);
        now = mono_ms();
        n = epoll_wait(p->epoll, ev, EVENTS, next_wait(p, now));
        run_events(p, ev, n < 0 ? 0 : n);
        now = mono_ms();
        if (p->timer >= 0 && now >= p->timer) {
            p->timer = -1;
            curl_multi_socket_action(p->multi, CURL_SOCKET_TIMEOUT, 0, &still);
        }
        tell_done(p);
        if (now - p->swept >= SWEEP_MS)
            sweep(p, now);
    }
    end_all(p);
    return NULL;
}

/* ---- for everybody ---- */

struct e2b_pump *e2b_pump_start(void)
{
    struct e2b_pump *p = xcalloc(1, sizeof(*p));
    struct epoll_event ev = {.events = EPOLLIN};

    pthread_mutex_init(&p->lock, NULL);
    p->multi = curl_multi_init();
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->timer = -1;
    p->swept = mono_ms();
    ev.data.fd = p->wake;
    if (!p->multi || p->epoll < 0 || p->wake < 0 ||
        epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->wake, &ev)) {
        log_msg(LOG_ERR, "the pump can't start");
        abort();
    }
    curl_multi_setopt(p->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(p->multi, CURLMOPT_SOCKETDATA, p);
    curl_multi_setopt(p->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(p->multi, CURLMOPT_TIMERDATA, p);
    curl_multi_setopt(p->multi, CURLMOPT_MAXCONNECTS, 16L);
    if (pthread_create(&p->thread, NULL, pump_main, p)) {
        log_msg(LOG_ERR, "the pump's thread can't start");
        abort();
    }
    return p;
}

void e2b_pump_stop(struct e2b_pump *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_mutex_unlock(&p->lock);
    wake(p);
    pthread_join(p->thread, NULL);
    curl_multi_cleanup(p->multi);
    close(p->epoll);
    close(p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

struct e2b_stream *e2b_stream_start(struct e2b_pump *p,
                                    const struct e2b_target *t,
                                    const struct e2b_run *r,
                                    const struct e2b_stream_ops *ops,
                                    void *arg)
{
    struct e2b_stream *s = xcalloc(1, sizeof(*s));
    struct err why;
    int rc = stream_init(&s->stream, t, r, &why);

    s->pump = p;
    s->x = t->x;
    s->ops = *ops;
    s->arg = arg;
    s->end_ms = r->limit_ms ? mono_ms() + r->limit_ms : 0;
    s->has_feed = r->stdin_data != NULL;
    if (!rc && s->has_feed)
        rc = feed_init(&s->feed, t, NULL, r->stdin_data, r->stdin_len, true,
                       &why);
    if (rc) {
        s->stream.failed = true;
        s->stream.code = rc;
        s->stream.why = why;
    }
    pthread_mutex_lock(&p->lock);
    s->next = p->fresh;
    p->fresh = s;
    pthread_mutex_unlock(&p->lock);
    wake(p);
    return s;
}

static void mark(struct e2b_stream *s, bool stop)
{
    struct e2b_pump *p = s->pump;

    pthread_mutex_lock(&p->lock);
    s->want_stop = s->want_stop || stop;
    if (!s->marked) {
        s->marked = true;
        s->marked_next = p->marked;
        p->marked = s;
    }
    pthread_mutex_unlock(&p->lock);
    wake(p);
}

void e2b_stream_resume(struct e2b_stream *s)
{
    mark(s, false);
}

void e2b_stream_stop(struct e2b_stream *s)
{
    mark(s, true);
}
