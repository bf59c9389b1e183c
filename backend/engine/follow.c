/*
 * Following the output of processes in VMs. For each there is:
 *
 *   BEGIN   (a pool's thread) replay what is committed, start the stream
 *   LIVE    the pump hands bytes over, the follower's thread parses them and
 *           hands batches to the writer, at most one at a time
 *   FINISH  (a pool's thread) the stream has ended: how did the process end,
 *           and what of its output has not come yet?
 *
 * A stream that breaks leads back to BEGIN, at the offset that had come; a
 * commit that fails leads back to BEGIN with nothing in memory. So nothing
 * depends on the last bytes of a stream.
 *
 * Lock order: follows.lock, then what the pump or the store lock.
 */
#include "engine/jobs.h"
#include "engine/launch.h"
#include "engine/output.h"
#include "engine/pool.h"

enum {
    BATCH_MS = 40,
    BATCH_BYTES = 256 * 1024,
    WAITING_MAX = 4 << 20, /* then the stream is held */
    SLICE = 1 << 20,
    POOL_THREADS = 6,
    BACKOFF_MAX_MS = 5000,
};

struct piece {
    int fd;
    struct buf b;
    struct piece *next;
};

struct follow {
    struct follows *fs;
    int64_t process, sandbox;
    enum { BEGIN, LIVE, FINISH } step;
    int64_t due; /* monotonic ms; INT64_MAX: nothing to do */
    int attempt;
    bool busy;       /* a thread is at it, outside the lock */
    bool committing; /* a batch is with the writer */
    bool dropped;    /* to be freed when nobody is at it */
    bool over, held; /* of the stream */
    struct e2b_stream *stream;
    int over_code;
    struct piece *first, **last;
    size_t waiting;
    int64_t rx_out, rx_err; /* came */
    int64_t flushed;        /* when, monotonic ms */
    struct output *out;     /* belongs to whoever made it busy */
    struct follow *next;
};

struct follows {
    struct courier *c;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct follow *list;
    struct pool *pool;
    pthread_t thread;
    bool running, stop;
};

static void wake(struct follows *fs)
{
    pthread_cond_signal(&fs->wake);
}

static void drop(struct follow *f)
{
    f->dropped = true;
    f->due = 0;
    if (f->stream)
        e2b_stream_stop(f->stream);
    wake(f->fs);
}

static void backoff(struct follow *f, int step)
{
    int ms = 100;

    for (int i = 0; i < f->attempt && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    f->attempt++;
    f->step = step;
    f->due = mono_ms() + (ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS);
    wake(f->fs);
}

static void pieces_free(struct piece *p)
{
    while (p) {
        struct piece *next = p->next;

        buf_free(&p->b);
        free(p);
        p = next;
    }
}

/* nothing in memory counts any more; busy must be ours, no stream */
static void forget(struct follow *f)
{
    output_free(f->out);
    f->out = NULL;
    pieces_free(f->first);
    f->first = NULL;
    f->last = &f->first;
    f->waiting = 0;
}

/* ---- the pump's side ---- */

static bool on_data(void *arg, int fd, const char *p, size_t n)
{
    struct follow *f = arg;
    struct follows *fs = f->fs;
    struct piece *last = NULL;
    int64_t due;
    bool more;

    pthread_mutex_lock(&fs->lock);
    if (f->dropped) {
        pthread_mutex_unlock(&fs->lock);
        return true;
    }
    for (struct piece *q = f->first; q; q = q->next)
        last = q;
    if (!last || last->fd != fd || last->b.n > BATCH_BYTES) {
        last = xcalloc(1, sizeof(*last));
        last->fd = fd;
        *f->last = last;
        f->last = &last->next;
    }
    buf_add(&last->b, p, n);
    f->waiting += n;
    f->attempt = 0;
    if (fd == 2)
        f->rx_err += (int64_t)n;
    else
        f->rx_out += (int64_t)n;
    due = f->waiting >= BATCH_BYTES ? 0 : f->flushed + BATCH_MS;
    if (due < f->due)
        f->due = due;
    more = f->waiting <= WAITING_MAX;
    f->held = !more;
    wake(fs);
    pthread_mutex_unlock(&fs->lock);
    return more;
}

static void on_end(void *arg, int code, int exit_code, const struct err *e)
{
    struct follow *f = arg;
    struct follows *fs = f->fs;

    (void)exit_code;
    pthread_mutex_lock(&fs->lock);
    if (code && code != -ECANCELED)
        log_msg(LOG_DEBUG, "stream of process %lld: %s", (long long)f->process,
                e->text);
    f->stream = NULL;
    if (!f->over) { /* else a commit has failed */
        f->over = true;
        f->over_code = code;
    }
    f->due = 0;
    wake(fs);
    pthread_mutex_unlock(&fs->lock);
}

static const struct e2b_stream_ops stream_ops = {on_data, on_end};

/* ---- steps that block ---- */

/* 0; -ENOENT: not to be followed; other: try again */
static int target(struct follow *f, struct process *p, struct sandbox *s,
                  struct e2b_target *t, struct err *e)
{
    struct courier *c = f->fs->c;
    struct db *d = store_reader(c->store);
    int r = -ENOENT;

    memset(s, 0, sizeof(*s));
    if (process_get(d, f->process, p) < 0)
        return -ENOENT;
    if (!strcmp(p->state, "running") && sandbox_get(d, p->sandbox, s) == 0 &&
        sandbox_is(s, "running"))
        r = sandbox_target(c, s, t, e);
    else
        (void)err_set(e, ENOENT, "it has ended");
    if (r < 0) {
        process_clear(p);
        sandbox_clear(s);
    }
    return r;
}

static int replay(struct follow *f, const struct e2b_target *t, int fd,
                  int64_t to, struct err *e)
{
    int64_t at = 0;

    while (at < to) {
        AUTO_BUF struct buf b = {0};
        int64_t len = to - at < SLICE ? to - at : SLICE;
        int r = launch_read(t, f->process, fd, at, len, &b, e);

        if (r < 0)
            return r;
        if (!b.n)
            return err_set(e, EPROTO,
                           "the output in the VM is shorter than "
                           "what was read of it");
        output_replay(f->out, fd, b.p, b.n);
        at += (int64_t)b.n;
    }
    return 0;
}

static int open_output(struct follow *f, const struct process *p,
                       const struct e2b_target *t, struct err *e)
{
    int r;

    if (f->out)
        return 0;
    f->out = output_open(f->fs->c, p);
    if (!f->out)
        return err_set(e, ENOENT, "the sandbox is gone");
    r = replay(f, t, 1, p->off_out, e);
    if (r == 0)
        r = replay(f, t, 2, p->off_err, e);
    if (r < 0) {
        output_free(f->out);
        f->out = NULL;
        return r;
    }
    f->rx_out = p->off_out;
    f->rx_err = p->off_err;
    return 0;
}

static void start_stream(struct follow *f, const struct e2b_target *t)
{
    struct launch_follow lf;
    struct e2b_run run = {.argv = lf.argv};

    launch_follow_argv(&lf, f->process, f->rx_out, f->rx_err);
    pthread_mutex_lock(&f->fs->lock);
    if (!f->dropped) {
        f->over = f->held = false;
        f->step = LIVE;
        f->due = INT64_MAX;
        f->stream = e2b_stream_start(f->fs->c->pump, t, &run, &stream_ops, f);
    }
    pthread_mutex_unlock(&f->fs->lock);
}

static void at_rest(struct follow *f)
{
    pthread_mutex_lock(&f->fs->lock);
    f->busy = false;
    wake(f->fs);
    pthread_mutex_unlock(&f->fs->lock);
}

static void trouble(struct follow *f, int r, int step, const struct err *e)
{
    log_msg(LOG_DEBUG, "following process %lld: %s", (long long)f->process,
            e->text);
    if (r == -EHOSTDOWN || r == -ENOENT)
        reconcile_kick(f->fs->c);
    pthread_mutex_lock(&f->fs->lock);
    backoff(f, step);
    pthread_mutex_unlock(&f->fs->lock);
}

static void leave(struct follow *f)
{
    pthread_mutex_lock(&f->fs->lock);
    drop(f);
    pthread_mutex_unlock(&f->fs->lock);
}

static void step_begin(void *arg)
{
    struct follow *f = arg;
    struct e2b_target t;
    struct process p;
    struct sandbox s;
    struct err e = {0};
    int r = target(f, &p, &s, &t, &e);

    if (r == -ENOENT) {
        leave(f);
    } else if (r < 0) {
        trouble(f, r, BEGIN, &e);
    } else {
        r = open_output(f, &p, &t, &e);
        if (r < 0)
            trouble(f, r, BEGIN, &e);
        else
            start_stream(f, &t);
        endpoint_put(f->fs->c, t.x);
        process_clear(&p);
        sandbox_clear(&s);
    }
    at_rest(f);
}

static int read_rest(struct follow *f, const struct e2b_target *t, int fd,
                     int64_t *at, int64_t to, struct err *e)
{
    while (*at < to) {
        AUTO_BUF struct buf b = {0};
        int64_t len = to - *at < SLICE ? to - *at : SLICE;
        int r = launch_read(t, f->process, fd, *at, len, &b, e);

        if (r < 0)
            return r;
        if (!b.n)
            break;
        output_feed(f->out, fd, b.p, b.n);
        *at += (int64_t)b.n;
    }
    return 0;
}

static void submit(struct follow *f, struct batch *b);

static void step_finish(void *arg)
{
    struct follow *f = arg;
    struct launch_state st;
    struct e2b_target t;
    struct process p;
    struct sandbox s;
    struct err e = {0};
    int r = target(f, &p, &s, &t, &e);

    if (r == -ENOENT) {
        leave(f);
        at_rest(f);
        return;
    }
    if (r == 0) {
        r = launch_look(&t, f->process, &st, &e);
        if (r == 0 && st.now == LAUNCH_RUNS)
            r = err_set(&e, EAGAIN, "it runs");
        if (r == 0)
            r = read_rest(f, &t, 1, &f->rx_out, st.out, &e);
        if (r == 0)
            r = read_rest(f, &t, 2, &f->rx_err, st.err, &e);
        if (r == 0) {
            output_end(f->out, st.code, st.signaled, st.now == LAUNCH_LOST);
            submit(f, output_take(f->out));
        }
        endpoint_put(f->fs->c, t.x);
        process_clear(&p);
        sandbox_clear(&s);
    }
    if (r < 0)
        trouble(f, r, BEGIN, &e);
    at_rest(f);
}

/* ---- batches ---- */

struct submitted {
    struct follow *f;
    struct batch *b;
};

static int tx_submitted(struct tx *tx, void *arg, struct err *e)
{
    struct submitted *s = arg;

    return tx_batch(tx, s->f->fs->c, s->b, e);
}

static void committed(void *arg, int code, const struct err *e)
{
    struct submitted *s = arg;
    struct follow *f = s->f;
    struct follows *fs = f->fs;
    bool end = batch_is_end(s->b);

    pthread_mutex_lock(&fs->lock);
    f->committing = false;
    if (code == 0 && end) {
        drop(f);
    } else if (code < 0) {
        log_msg(code == -ESTALE ? LOG_DEBUG : LOG_WARN,
                "output of process %lld: %s", (long long)f->process, e->text);
        /* what was taken is lost here, not in the VM */
        if (f->stream)
            e2b_stream_stop(f->stream);
        f->over = true;
        f->over_code = -EIO;
        f->due = mono_ms() + (code == -ESTALE ? 0 : 1000);
        f->step = LIVE;
    } else if (f->first || f->over) {
        f->due = f->over ? 0 : f->flushed + BATCH_MS;
    }
    wake(fs);
    pthread_mutex_unlock(&fs->lock);
    batch_free(s->b);
    free(s);
}

static void submit(struct follow *f, struct batch *b)
{
    struct submitted *s;

    if (!b)
        return;
    s = xcalloc(1, sizeof(*s));
    s->f = f;
    s->b = b;
    pthread_mutex_lock(&f->fs->lock);
    f->committing = true;
    pthread_mutex_unlock(&f->fs->lock);
    store_submit(f->fs->c->store, tx_submitted, s, committed,
                 !batch_is_end(b));
}

/* ---- the follower's thread ---- */

/* called and returns with the lock; gives it up between */
static void flush(struct follow *f)
{
    struct follows *fs = f->fs;
    struct piece *list = f->first;

    f->first = NULL;
    f->last = &f->first;
    f->waiting = 0;
    f->busy = true;
    f->flushed = mono_ms();
    f->due = INT64_MAX;
    if (f->held && f->stream)
        e2b_stream_resume(f->stream);
    f->held = false;
    pthread_mutex_unlock(&fs->lock);
    for (struct piece *p = list; p; p = p->next)
        output_feed(f->out, p->fd, p->b.p, p->b.n);
    pieces_free(list);
    submit(f, output_take(f->out));
    pthread_mutex_lock(&fs->lock);
    f->busy = false;
    if (f->over && !f->committing)
        f->due = 0;
}

static void stream_over(struct follow *f)
{
    if (f->over_code == -EIO) {
        forget(f); /* the commit failed */
        backoff(f, BEGIN);
    } else if (f->over_code == 0) {
        f->step = FINISH;
        f->due = 0;
    } else {
        if (f->over_code == -EHOSTDOWN || f->over_code == -ENOENT)
            reconcile_kick(f->fs->c);
        backoff(f, BEGIN);
    }
    f->over = false;
}

/* does what is due for one; true if the lock was given up on the way */
static bool serve(struct follow *f)
{
    f->due = INT64_MAX;
    switch (f->step) {
    case BEGIN:
    case FINISH:
        f->busy = true;
        pool_add(f->fs->pool, f->step == BEGIN ? step_begin : step_finish, f);
        return false;
    case LIVE:
        if (f->first && !(f->over && f->over_code == -EIO)) {
            flush(f);
            return true;
        }
        if (f->over && !f->stream)
            stream_over(f);
        return false;
    }
    return false;
}

/* frees those that nobody is at; the time of what comes next */
static int64_t sweep(struct follows *fs)
{
    int64_t now = mono_ms(), next = INT64_MAX;

again:
    next = INT64_MAX;
    for (struct follow **at = &fs->list; *at;) {
        struct follow *f = *at;

        if (f->busy || f->committing) {
            at = &f->next;
            continue;
        }
        if (f->dropped && !f->stream) {
            *at = f->next;
            forget(f);
            free(f);
            continue;
        }
        if (!f->dropped && f->due <= now) {
            if (serve(f))
                goto again;
        }
        if (!f->dropped && !f->busy && f->due < next)
            next = f->due;
        at = &f->next;
    }
    return next;
}

static void *follower(void *arg)
{
    struct follows *fs = arg;

    pthread_mutex_lock(&fs->lock);
    while (!fs->stop || fs->list) {
        int64_t next = sweep(fs), now = mono_ms(), ms;
        struct timespec ts;

        if (fs->stop && !fs->list)
            break;
        if (next <= now)
            continue;
        ms = next - now < 60000 ? next - now : 60000;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        ts.tv_sec += ms / 1000;
        ts.tv_nsec += ms % 1000 * 1000000;
        if (ts.tv_nsec >= 1000000000) {
            ts.tv_sec++;
            ts.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&fs->wake, &fs->lock, &ts);
    }
    pthread_mutex_unlock(&fs->lock);
    return NULL;
}

/* ---- from outside ---- */

void follow_start(struct courier *c, int64_t process)
{
    struct follows *fs = c->follows;
    struct process p;
    struct follow *f;

    if (!fs || process_get(store_reader(c->store), process, &p) < 0)
        return;
    pthread_mutex_lock(&fs->lock);
    for (f = fs->list; f; f = f->next)
        if (f->process == process && !f->dropped)
            break;
    if (!f && !fs->stop) {
        f = xcalloc(1, sizeof(*f));
        f->fs = fs;
        f->process = process;
        f->sandbox = p.sandbox;
        f->last = &f->first;
        f->next = fs->list;
        fs->list = f;
    } else if (f && f->step == BEGIN) {
        f->due = 0;
    }
    wake(fs);
    pthread_mutex_unlock(&fs->lock);
    process_clear(&p);
}

void follow_stop(struct courier *c, int64_t sandbox)
{
    struct follows *fs = c->follows;

    if (!fs)
        return;
    pthread_mutex_lock(&fs->lock);
    for (struct follow *f = fs->list; f; f = f->next)
        if (f->sandbox == sandbox && !f->dropped)
            drop(f);
    pthread_mutex_unlock(&fs->lock);
}

static void start_all(struct courier *c)
{
    size_t n;
    AUTO_FREE int64_t *ids = processes_live(store_reader(c->store), 0, &n);

    for (size_t i = 0; i < n; i++)
        if (db_int(store_reader(c->store), 0,
                   "SELECT 1 FROM process p JOIN sandbox s ON s.id=p.sandbox "
                   "WHERE p.id=? AND p.state='running' AND "
                   "s.status='running'",
                   "i", ids[i]))
            follow_start(c, ids[i]);
}

int follows_open(struct courier *c, struct err *e)
{
    struct follows *fs = xcalloc(1, sizeof(*fs));
    pthread_condattr_t a;

    fs->c = c;
    pthread_mutex_init(&fs->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&fs->wake, &a);
    pthread_condattr_destroy(&a);
    fs->pool = pool_new(POOL_THREADS);
    c->follows = fs;
    fs->running = !pthread_create(&fs->thread, NULL, follower, fs);
    if (!fs->running) {
        follows_close(c);
        return err_set(e, EAGAIN, "no thread to follow output");
    }
    start_all(c);
    return 0;
}

void follows_close(struct courier *c)
{
    struct follows *fs = c->follows;

    if (!fs)
        return;
    pthread_mutex_lock(&fs->lock);
    fs->stop = true;
    for (struct follow *f = fs->list; f; f = f->next)
        drop(f);
    wake(fs);
    pthread_mutex_unlock(&fs->lock);
    if (fs->running)
        pthread_join(fs->thread, NULL);
    pool_free(fs->pool);
    c->follows = NULL;
    pthread_cond_destroy(&fs->wake);
    pthread_mutex_destroy(&fs->lock);
    free(fs);
}
