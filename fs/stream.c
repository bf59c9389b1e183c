/*
 * stream: what only grows, read by offset straight from the record through
 * the page cache. follow/ shows the same bytes, but a read at the end waits
 * until there are more, and ends when there can be none.
 */
#include "fs/fs.h"

#include <poll.h>

static enum stream stream_of(const struct handle *h)
{
    return (enum stream)h->n->row->what;
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
    int r = courier_stream_read(fs.c, h->n->o, stream_of(h), off, size, out);

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

static void follow_read(fuse_req_t req, struct handle *h, size_t size,
                        off_t off)
{
    AUTO_BUF struct buf b = {0};
    int r = stream_get(h, size, off, &b);

    if (r == -ESTALE)
        fuse_reply_buf(req, NULL, 0);
    else if (r)
        fuse_reply_err(req, -r);
    else if (b.n || courier_stream_ended(fs.c, h->n->o, stream_of(h)))
        fuse_reply_buf(req, b.p, b.n);
    else
        park_read(req, h, size, off);
}

static unsigned stream_poll(struct handle *h)
{
    int64_t size, at;

    if (courier_stream_stat(fs.c, h->n->o, stream_of(h), &size, &at) ||
        size > h->read_to || courier_stream_ended(fs.c, h->n->o, stream_of(h)))
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
