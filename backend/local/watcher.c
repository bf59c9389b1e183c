#include "local/watcher.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

/*
 * Every reader of a watch waits on its inotify descriptor and on an eventfd,
 * `stop`, which the end of the box or RemoveWatcher writes. `lock` guards the
 * list of readers and the events of the polled ones.
 */

enum { GONE_CHECK_MS = 5000 };

struct reader {
    struct reader *next;
    char *box;
    char id[64]; /* "" for a stream */
    int stop;
    struct watch *w;
    json_t *events; /* of a polled one */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct reader *readers;

static void stop(struct reader *r)
{
    uint64_t one = 1;

    if (write(r->stop, &one, sizeof(one)) < 0)
        log_msg(LOG_WARN, "can't stop a watcher: %s", strerror(errno));
}

static void on_box_end(const char *id)
{
    pthread_mutex_lock(&lock);
    for (struct reader *r = readers; r; r = r->next)
        if (!strcmp(r->box, id))
            stop(r);
    pthread_mutex_unlock(&lock);
}

static void hook(void)
{
    box_on_end(on_box_end);
}

static struct reader *reader_new(const char *box, struct watch *w)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct reader *r = xcalloc(1, sizeof(*r));

    pthread_once(&once, hook);
    r->box = xstrdup(box);
    r->w = w;
    r->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&lock);
    r->next = readers;
    readers = r;
    pthread_mutex_unlock(&lock);
    return r;
}

static void reader_free(struct reader *r)
{
    pthread_mutex_lock(&lock);
    for (struct reader **at = &readers; *at; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    watch_close(r->w);
    close_cleanup(&r->stop);
    json_decref(r->events);
    free(r->box);
    free(r);
}

/* waits for events: 1, 0 when the time is up, -ESHUTDOWN when stopped */
static int wait_for(struct reader *r, int ms)
{
    struct pollfd p[2] = {{.fd = watch_fd(r->w), .events = POLLIN},
                          {.fd = r->stop, .events = POLLIN}};
    int n = poll(p, 2, ms);

    if (n < 0 && errno != EINTR)
        return -errno;
    if (n > 0 && p[1].revents)
        return -ESHUTDOWN;
    return n > 0;
}

/* ---- streams ---- */

struct sink {
    struct stream *s;
    int error;
};

static void sink_event(void *arg, json_t *event)
{
    struct sink *k = arg;
    json_t *j = json_pack("{s:o}", "filesystem", event);
    AUTO_FREE char *text = json_dumps(j, JSON_COMPACT);

    json_decref(j);
    if (!k->error)
        k->error = stream_send(k->s, text, strlen(text));
}

static int stream_wait_ms(const struct stream *s, int64_t heard)
{
    int64_t now = mono_ms(), left = heard + s->keepalive_ms - now;

    if (s->deadline && s->deadline - now < left)
        left = s->deadline - now;
    if (left > GONE_CHECK_MS)
        left = GONE_CHECK_MS;
    return left < 0 ? 0 : (int)left;
}

static int stream_loop(struct stream *s, struct reader *r)
{
    struct sink k = {s, 0};
    int64_t heard = mono_ms();

    for (;;) {
        int n = wait_for(r, stream_wait_ms(s, heard));

        if (n > 0) {
            n = watch_read(r->w, sink_event, &k);
            heard = mono_ms();
        }
        if (n < 0 || k.error)
            return n < 0 ? n : k.error;
        if (s->deadline && mono_ms() >= s->deadline)
            return -ETIMEDOUT;
        if (mono_ms() >= heard + s->keepalive_ms) {
            k.error = stream_send(s, "{\"keepalive\":{}}", 16);
            heard = mono_ms();
        } else if (n == 0 && req_gone(s->r)) {
            return -EPIPE;
        }
    }
}

void watcher_stream(struct stream *s, const char *box, struct watch *w)
{
    struct reader *r = reader_new(box, w);
    int e = r->stop < 0 ? -EMFILE : stream_send(s, "{\"start\":{}}", 12);

    if (!e)
        e = stream_loop(s, r);
    reader_free(r);
    if (e == -EPIPE)
        reply_end(s->r);
    else if (e == -ETIMEDOUT)
        stream_end(s, "deadline_exceeded", "context deadline exceeded");
    else if (e == -ESHUTDOWN)
        stream_end(s, "unavailable",
                   "the sandbox was killed or reached its end of life");
    else
        stream_end(s, "internal", "watching failed: %s", strerror(-e));
}

/* ---- polled watchers ---- */

static void keep_event(void *arg, json_t *event)
{
    struct reader *r = arg;

    pthread_mutex_lock(&lock);
    if (json_array_size(r->events) < WATCHER_EVENTS)
        json_array_append_new(r->events, event);
    else
        json_decref(event);
    pthread_mutex_unlock(&lock);
}

static void *polled_main(void *arg)
{
    struct reader *r = arg;

    for (;;) {
        int n = wait_for(r, -1);

        if (n < 0 || (n > 0 && watch_read(r->w, keep_event, r)))
            break;
    }
    reader_free(r);
    return NULL;
}

static struct reader *polled(const char *box, const char *id)
{
    for (struct reader *r = readers; r && *id; r = r->next)
        if (!strcmp(r->id, id) && !strcmp(r->box, box))
            return r;
    return NULL;
}

static size_t count_polled(const char *box)
{
    size_t n = 0;

    pthread_mutex_lock(&lock);
    for (struct reader *r = readers; r; r = r->next)
        n += *r->id && !strcmp(r->box, box);
    pthread_mutex_unlock(&lock);
    return n;
}

int watcher_add(const char *box, struct watch *w, char id[64], struct err *e)
{
    pthread_attr_t a;
    pthread_t t;
    struct reader *r;
    uint64_t rnd[2];
    int x;

    if (count_polled(box) >= WATCHERS_A_BOX) {
        watch_close(w);
        return err_set(e, EAGAIN, "this sandbox has %d watchers already",
                       WATCHERS_A_BOX);
    }
    if (getrandom(rnd, sizeof(rnd), 0) != sizeof(rnd))
        abort();
    r = reader_new(box, w);
    r->events = json_array();
    snprintf(id, 64, "w%016llx%016llx", (unsigned long long)rnd[0],
             (unsigned long long)rnd[1]);
    pthread_mutex_lock(&lock);
    memcpy(r->id, id, sizeof(r->id));
    pthread_mutex_unlock(&lock);
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    x = r->stop < 0 ? EMFILE : pthread_create(&t, &a, polled_main, r);
    pthread_attr_destroy(&a);
    if (!x)
        return 0;
    reader_free(r);
    return err_set(e, x, "can't start a watcher: %s", strerror(x));
}

json_t *watcher_events(const char *box, const char *id)
{
    json_t *events = NULL;
    struct reader *r;

    /* let its thread take in what is there now */
    sleep_ms(10);
    pthread_mutex_lock(&lock);
    r = polled(box, id);
    if (r) {
        events = r->events;
        r->events = json_array();
    }
    pthread_mutex_unlock(&lock);
    return events;
}

int watcher_remove(const char *box, const char *id)
{
    struct reader *r;

    pthread_mutex_lock(&lock);
    r = polled(box, id);
    if (r) {
        r->id[0] = 0;
        stop(r);
    }
    pthread_mutex_unlock(&lock);
    return r ? 0 : -ENOENT;
}
