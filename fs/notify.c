#include "fs/notify.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fs/files.h"
#include "fs/fs.h"
#include "fs/touch.h"

/* something to be run on the loop; changes come with what they changed */
struct msg {
    struct msg *next;
    void (*run)(struct msg *m); /* frees what it carries */
    struct courier_change *changes;
    size_t n;
    call_fn done;
    void *arg;
    void (*fn)(void *arg);
    int code;
    struct err *e;
    char *made;
};

/* inode numbers for the kernel, then messages for the loop */
struct batch {
    struct batch *next;
    uint64_t *inos;
    size_t n, cap;
    struct msg *msgs, **tail;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct msg *inbox, **inbox_tail = &inbox;               /* lock */
static struct batch *to_kernel, **to_kernel_tail = &to_kernel; /* lock */
static struct batch *told, **told_tail = &told;                /* lock */
static unsigned under_way; /* batches at the notifier; loop only */
static bool stopping;      /* lock */
static int event_fd = -1;
static pthread_t thread;
static bool running;
static struct batch *current; /* loop only */

static void signal_loop(void)
{
    uint64_t one = 1;

    if (write(event_fd, &one, sizeof(one)) < 0)
        log_msg(LOG_ERR, "the loop's eventfd: %s", strerror(errno));
}

static void msg_free(struct msg *m)
{
    free(m->changes);
    free(m->e);
    free(m->made);
    free(m);
}

static void post(struct msg *m)
{
    pthread_mutex_lock(&lock);
    *inbox_tail = m;
    inbox_tail = &m->next;
    pthread_mutex_unlock(&lock);
    signal_loop();
}

/* ---- what is posted ---- */

static void run_changes(struct msg *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct object *obj;

        park_wake(&m->changes[i]);
        input_changed(&m->changes[i]);
        obj = object_find(m->changes[i].o);
        if (obj)
            poll_wake(obj);
    }
}

void notify_changed(void *ctx, const struct courier_change *c, size_t n)
{
    struct msg *m;

    (void)ctx;
    if (!n)
        return;
    m = xcalloc(1, sizeof(*m));
    m->run = run_changes;
    m->changes = xmalloc(n * sizeof(*c));
    memcpy(m->changes, c, n * sizeof(*c));
    m->n = n;
    post(m);
}

static void run_done(struct msg *m)
{
    static const struct err none;

    m->done(m->code, m->e ? m->e : &none, m->made, m->arg);
}

void *call_new(call_fn fn, void *arg)
{
    struct msg *m = xcalloc(1, sizeof(*m));

    m->run = run_done;
    m->done = fn;
    m->arg = arg;
    return m;
}

void call_done(void *call, int code, const struct err *e, const char *made)
{
    struct msg *m = call;

    m->code = code > 0 ? -code : code;
    if (code && e)
        m->e = memcpy(xmalloc(sizeof(*e)), e, sizeof(*e));
    m->made = xstrdup(made);
    post(m);
}

static void run_fn(struct msg *m)
{
    m->fn(m->arg);
}

void notify_post(void (*fn)(void *arg), void *arg)
{
    struct msg *m = xcalloc(1, sizeof(*m));

    m->run = run_fn;
    m->fn = fn;
    m->arg = arg;
    post(m);
}

/* ---- the loop's side ---- */

static struct batch *batch_now(void)
{
    if (!current) {
        current = xcalloc(1, sizeof(*current));
        current->tail = &current->msgs;
    }
    return current;
}

void notify_inode(uint64_t ino)
{
    struct batch *b = batch_now();

    if (b->n == b->cap) {
        b->cap = b->cap * 2 + 16;
        b->inos = xrealloc(b->inos, b->cap * sizeof(*b->inos));
    }
    b->inos[b->n++] = ino;
}

static uint64_t aspects_of(const struct row *r)
{
    switch (r->kind) {
    case K_VIEW:
        return courier_view_aspects((enum view)r->what);
    case K_LINK:
        return r->what ? courier_view_aspects((enum view)r->what) : 0;
    case K_CONTROL:
        return courier_view_aspects((enum view)r->shows);
    case K_STREAM:
    case K_FOLLOW:
        return courier_stream_aspects((enum stream)r->what);
    case K_DOC:
    case K_DOCDIR:
        return ASPECT_DOCS | ASPECT_SALVAGE | ASPECT_LEARN;
    case K_OBJECT:
    case K_LIST:
    case K_LINKS:
    case K_DIR:
        return ASPECT_NAMES | ASPECT_DOCS | ASPECT_STATUS | ASPECT_PROGRESS;
    default:
        return 0;
    }
}

static void forget_changed(const struct courier_change *c)
{
    struct object *obj = object_find(c->o);

    vm_changed(c);
    if (!obj)
        return;
    for (struct node *n = obj->nodes; n; n = n->obj_next)
        if (n->nlookup &&
            (c->aspects & ASPECT_GONE || c->aspects & aspects_of(n->row))) {
            notify_inode(n->ino);
            touch_changed(n);
        }
}

static void run_batch(struct batch *b)
{
    struct msg *m = b->msgs;

    while (m) {
        struct msg *next = m->next;

        m->run(m);
        msg_free(m);
        m = next;
    }
    free(b->inos);
    free(b);
}

static void send_current(void)
{
    struct batch *b = current;

    if (!b)
        return;
    current = NULL;
    if (!running || (!b->n && !under_way)) {
        run_batch(b);
        return;
    }
    under_way++;
    pthread_mutex_lock(&lock);
    *to_kernel_tail = b;
    to_kernel_tail = &b->next;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}

bool notify_drain(void)
{
    struct batch *b;
    struct msg *m;
    uint64_t count;

    if (read(event_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        log_msg(LOG_ERR, "the loop's eventfd: %s", strerror(errno));
    pthread_mutex_lock(&lock);
    m = inbox;
    inbox = NULL;
    inbox_tail = &inbox;
    b = told;
    told = NULL;
    told_tail = &told;
    pthread_mutex_unlock(&lock);
    if (!m && !b && !current)
        return false;
    while (b) {
        struct batch *next = b->next;

        under_way--;
        run_batch(b);
        b = next;
    }
    while (m) {
        struct msg *next = m->next;

        for (size_t i = 0; i < m->n; i++)
            forget_changed(&m->changes[i]);
        m->next = NULL;
        *batch_now()->tail = m;
        current->tail = &m->next;
        m = next;
    }
    send_current();
    return true;
}

bool notify_idle(void)
{
    bool idle;

    pthread_mutex_lock(&lock);
    idle = !inbox && !told && !under_way;
    pthread_mutex_unlock(&lock);
    return idle && !current;
}

/* ---- the notifier ---- */

static void *notifier(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct batch *b;

        while (!to_kernel && !stopping)
            pthread_cond_wait(&wake, &lock);
        b = to_kernel;
        if (!b)
            break;
        to_kernel = b->next;
        if (!to_kernel)
            to_kernel_tail = &to_kernel;
        pthread_mutex_unlock(&lock);
        for (size_t i = 0; i < b->n; i++)
            fuse_lowlevel_notify_inval_inode(fs.se, b->inos[i], -1, 0);
        b->next = NULL;
        pthread_mutex_lock(&lock);
        *told_tail = b;
        told_tail = &b->next;
        signal_loop();
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

int notify_fd(void)
{
    return event_fd;
}

int notify_start(void)
{
    event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return event_fd < 0 ? -errno : 0;
}

int notify_run(void)
{
    int r = pthread_create(&thread, NULL, notifier, NULL);

    running = !r;
    return -r;
}

void notify_stop(void)
{
    if (!running)
        return;
    pthread_mutex_lock(&lock);
    stopping = true;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    running = false;
}
