/*
 * wait: a read that returns one line once a condition holds, then the end of
 * the file. wait/change tells the next thing that changed since the open
 * with each read, and never ends.
 */
#include "fs/fs.h"

#include <poll.h>

static void open_to_read(fuse_req_t req, struct node *n,
                         struct fuse_file_info *fi)
{
    struct handle *h = handle_new(n, fi);

    if (handle_writes(h)) {
        handle_free(h);
        fuse_reply_err(req, EROFS);
        return;
    }
    if (n->row->kind == K_CHANGE)
        handle_listen(h);
    fi->direct_io = 1;
    fi->nonseekable = 1;
    handle_reply(req, h, fi);
}

/* 0 once the line is there */
static int wait_try(struct handle *h)
{
    int r = 0;

    if (!h->ready)
        r = courier_wait(fs.c, h->n->o, (enum wait_for)h->n->row->what,
                         &h->text);
    if (!r)
        h->ready = true;
    return r == -ENOENT ? -ECANCELED : r;
}

static void wait_read(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
    int r = wait_try(h);

    (void)off;
    if (r == -EAGAIN) {
        park_read(req, h, size, off);
    } else if (r) {
        fuse_reply_err(req, -r);
    } else {
        reply_bytes(req, &h->text, size, h->read_to);
        h->read_to += (int64_t)size;
    }
}

static unsigned wait_poll(struct handle *h)
{
    int r = wait_try(h);

    if (r == -EAGAIN)
        return 0;
    return r ? POLLIN | POLLRDNORM | POLLERR : POLLIN | POLLRDNORM;
}

/* takes one change that has a name off the handle; NULL if there is none */
static const char *next_change(struct handle *h)
{
    while (h->changes) {
        uint64_t bit = h->changes & -h->changes;
        const char *name = aspect_name((enum aspect)bit);

        h->changes &= ~bit;
        if (name)
            return name;
    }
    return NULL;
}

static void change_read(fuse_req_t req, struct handle *h, size_t size,
                        off_t off)
{
    bool gone = h->changes & ASPECT_GONE;
    const char *name = next_change(h);
    AUTO_BUF struct buf b = {0};

    if (name) {
        buf_addf(&b, "%s\n", name);
        fuse_reply_buf(req, b.p, b.n < size ? b.n : size);
    } else if (gone) {
        h->changes = ASPECT_GONE;
        fuse_reply_err(req, ECANCELED);
    } else {
        park_read(req, h, size, off);
    }
}

static unsigned change_poll(struct handle *h)
{
    for (uint64_t left = h->changes; left; left &= left - 1)
        if (aspect_name((enum aspect)(left & -left)))
            return POLLIN | POLLRDNORM;
    return h->changes & ASPECT_GONE ? POLLIN | POLLRDNORM | POLLERR : 0;
}

const struct file_ops wait_ops = {
    .open = open_to_read,
    .read = wait_read,
    .poll = wait_poll,
};

const struct file_ops change_ops = {
    .open = open_to_read,
    .read = change_read,
    .poll = change_poll,
};
