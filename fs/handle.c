/* handle: open files, the reads that wait, whoever polls */
#include "fs/fs.h"

#include <fcntl.h>
#include <unistd.h>

static struct handle *all; /* those open at the end stay the kernel's */

struct handle *handle_of(const struct fuse_file_info *fi)
{
    return fi ? (struct handle *)(uintptr_t)fi->fh : NULL;
}

struct handle *handle_new(struct node *n, const struct fuse_file_info *fi)
{
    struct handle *h = xcalloc(1, sizeof(*h));

    h->n = n;
    h->flags = fi->flags;
    h->shown_at = -1;
    h->next = all;
    if (all)
        all->prev = h;
    all = h;
    node_ref(n);
    return h;
}

void handle_free(struct handle *h)
{
    poll_forget(h);
    if (h->prev)
        h->prev->next = h->next;
    else
        all = h->next;
    if (h->next)
        h->next->prev = h->prev;
    buf_free(&h->text);
    node_unref(h->n);
    free(h);
}

void handle_reply(fuse_req_t req, struct handle *h, struct fuse_file_info *fi)
{
    fi->fh = (uint64_t)(uintptr_t)h;
    if (fuse_reply_open(req, fi) == -ENOENT)
        handle_free(h);
}

static bool same_process(pid_t a, pid_t b)
{
    AUTO_FREE char *thread = xasprintf("/proc/%d/task/%d", (int)a, (int)b);

    return a == b || !access(thread, F_OK);
}

struct handle *handle_writing(const struct node *n, pid_t pid)
{
    for (struct handle *h = all; h; h = h->next)
        if (h->n == n && (h->doc || h->vm) && handle_writes(h) &&
            same_process(h->pid, pid))
            return h;
    return NULL;
}

bool handle_writes(const struct handle *h)
{
    return (h->flags & O_ACCMODE) != O_RDONLY;
}

bool handle_reads(const struct handle *h)
{
    return (h->flags & O_ACCMODE) != O_WRONLY;
}

/* ---- parked reads ---- */

static void park_unlink(struct park *p)
{
    if (p->prev)
        p->prev->next = p->next;
    else
        p->obj->parks = p->next;
    if (p->next)
        p->next->prev = p->prev;
}

static void park_free(struct park *p)
{
    object_unref(p->obj);
    node_unref(p->h->n);
    free(p);
}

static void interrupted(fuse_req_t req, void *data)
{
    struct park *p = data;

    park_unlink(p);
    fuse_reply_err(req, EINTR);
    park_free(p);
}

void park_read(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
    struct park *p;

    if (fs.ending) {
        fuse_reply_err(req, ESHUTDOWN);
        return;
    }
    if (h->flags & O_NONBLOCK) {
        fuse_reply_err(req, EAGAIN);
        return;
    }
    p = xcalloc(1, sizeof(*p));
    p->req = req;
    p->h = h;
    p->size = size;
    p->off = off;
    node_ref(h->n);
    p->obj = object_get(h->n->o);
    p->next = p->obj->parks;
    if (p->next)
        p->next->prev = p;
    p->obj->parks = p;
    fuse_req_interrupt_func(req, interrupted, p);
}

static const struct file_ops *waiting_ops(enum kind k)
{
    switch (k) {
    case K_WAIT:
        return &wait_ops;
    case K_CHANGE:
        return &change_ops;
    default:
        return &follow_ops;
    }
}

/* can that change be what the read waits for? */
static bool concerns(const struct row *r, uint64_t aspects)
{
    static const uint64_t talk = ASPECT_MESSAGES | ASPECT_LOG | ASPECT_SETUP |
                                 ASPECT_EVENTS | ASPECT_BOARD | ASPECT_CTL;

    if (r->kind == K_CHANGE)
        return true;
    if (aspects & ~talk)
        return true;
    return r->kind == K_FOLLOW &&
           aspects & courier_stream_aspects((enum stream)r->what);
}

/* takes the parked reads off the object and tries each again; those for whom
 * it is still too early park themselves anew, in front of where we are */
static void retry_parks(struct object *obj, uint64_t aspects)
{
    struct park *p = obj->parks;

    while (p) {
        struct park *next = p->next;

        if (concerns(p->h->n->row, aspects)) {
            park_unlink(p);
            fuse_req_interrupt_func(p->req, NULL, NULL);
            waiting_ops(p->h->n->row->kind)
                ->read(p->req, p->h, p->size, p->off);
            park_free(p);
        }
        p = next;
    }
}

void park_wake(const struct courier_change *c)
{
    struct object *obj = object_find(c->o);

    if (!obj)
        return;
    obj->refs++;
    for (struct handle *h = obj->polled; h; h = h->poll_next)
        if (h->n->row->kind == K_CHANGE)
            h->changes |= c->aspects;
    retry_parks(obj, c->aspects);
    object_unref(obj);
}

static void end_parks(struct node *n, int err)
{
    struct object *obj = n->obj;

    while (obj->parks) {
        struct park *p = obj->parks;

        park_unlink(p);
        fuse_req_interrupt_func(p->req, NULL, NULL);
        fuse_reply_err(p->req, err);
        park_free(p);
    }
}

void park_end_all(int err)
{
    node_each(end_parks, err);
}

/* ---- poll ---- */

/* puts the handle on its object's list of those told about changes */
static void list_handle(struct handle *h)
{
    if (h->listed)
        return;
    h->listed = true;
    h->obj = object_get(h->n->o);
    h->poll_next = h->obj->polled;
    h->obj->polled = h;
}

void handle_listen(struct handle *h)
{
    list_handle(h);
}

void poll_watch(struct handle *h, struct fuse_pollhandle *ph)
{
    if (h->ph)
        fuse_pollhandle_destroy(h->ph);
    h->ph = ph;
    list_handle(h);
}

void poll_wake(struct object *obj)
{
    for (struct handle *h = obj->polled; h; h = h->poll_next) {
        if (!h->ph)
            continue;
        fuse_lowlevel_notify_poll(h->ph);
        fuse_pollhandle_destroy(h->ph);
        h->ph = NULL;
    }
}

void poll_forget(struct handle *h)
{
    struct handle **at;

    if (h->ph)
        fuse_pollhandle_destroy(h->ph);
    h->ph = NULL;
    if (!h->listed)
        return;
    at = &h->obj->polled;
    while (*at != h)
        at = &(*at)->poll_next;
    *at = h->poll_next;
    h->listed = false;
    object_unref(h->obj);
}
