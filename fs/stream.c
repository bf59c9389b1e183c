/*
 * stream: what only grows, read by offset straight from the record through
 * the page cache. follow/ shows the same bytes, but a read at the end waits
 * until there are more, and ends when there can be none.
 */
#include "fs/fs.h"

#include <poll.h>

static int stream_of(const struct node *n, enum stream *s)
{
    int64_t age = 0;

    *s = (enum stream)n->row->what;
    if (n->row->flags & ROW_ROTATED)
        age = courier_events_series(fs.c) - strtoll(n->path, NULL, 10);
    if (age == 1)
        *s = STREAM_EVENTS_OLD;
    return age == 0 || age == 1 ? 0 : -ESTALE;
}

int stream_stat(const struct node *n, int64_t *size, int64_t *mtime_ns)
{
    enum stream s, now;
    int r;

    do {
        r = stream_of(n, &s);
        if (!r)
            r = courier_stream_stat(fs.c, n->o, s, size, mtime_ns);
    } while (!r && !stream_of(n, &now) && now != s);
    return r;
}

static bool refuses_write(fuse_req_t req, struct handle *h)
{
    if (!handle_writes(h))
        return false;
    handle_free(h);
    fuse_reply_err(req, EROFS);
    return true;
}

static void stream_open(fuse_req_t req, struct node *n,
                        struct fuse_file_info *fi)
{
    struct handle *h = handle_new(n, fi);

    if (refuses_write(req, h))
        return;
    handle_reply(req, h, fi);
}

static void follow_open(fuse_req_t req, struct node *n,
                        struct fuse_file_info *fi)
{
    struct handle *h = handle_new(n, fi);

    if (refuses_write(req, h))
        return;
    fi->direct_io = 1;
    handle_reply(req, h, fi);
}

static int stream_get(struct handle *h, size_t size, off_t off,
                      struct buf *out)
{
    enum stream s, now;
    int r;

    do { /* it may be rotated between the question and the answer */
        buf_clear(out);
        r = stream_of(h->n, &s);
        if (!r)
            r = courier_stream_read(fs.c, h->n->o, s, off, size, out);
    } while (!r && !stream_of(h->n, &now) && now != s);
    if (!r && off + (int64_t)out->n > h->read_to)
        h->read_to = off + (int64_t)out->n;
    return r == -ENOENT ? -ESTALE : r;
}

static void stream_read(fuse_req_t req, struct handle *h, size_t size,
                        off_t off)
{
    AUTO_BUF struct buf b = {0};
    int r = stream_get(h, size, off, &b);

    if (r)
        fuse_reply_err(req, -r);
    else
        fuse_reply_buf(req, b.p, b.n);
}

static bool stream_ended(const struct node *n)
{
    enum stream s;

    return stream_of(n, &s) || s == STREAM_EVENTS_OLD ||
           courier_stream_ended(fs.c, n->o, s);
}

static void follow_read(fuse_req_t req, struct handle *h, size_t size,
                        off_t off)
{
    AUTO_BUF struct buf b = {0};
    int r = stream_get(h, size, off, &b);

    if (r == -ESTALE)
        fuse_reply_buf(req, NULL, 0);
    else if (r)
        fuse_reply_err(req, -r);
    else if (b.n || stream_ended(h->n))
        fuse_reply_buf(req, b.p, b.n);
    else
        park_read(req, h, size, off);
}

static unsigned stream_poll(struct handle *h)
{
    int64_t size, at;

    if (stream_ended(h->n) || stream_stat(h->n, &size, &at) ||
        size > h->read_to)
        return POLLIN | POLLRDNORM;
    return 0;
}

const struct file_ops stream_ops = {
    .open = stream_open,
    .read = stream_read,
    .poll = stream_poll,
};

const struct file_ops follow_ops = {
    .open = follow_open,
    .read = follow_read,
    .poll = stream_poll,
};
