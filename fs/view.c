/*
 * view: texts made when they are opened and kept for that open file, so that
 * one reader never sees two versions. Served with direct_io: a size from
 * before can't cut a text that has grown since.
 */
#include "fs/fs.h"

#include <poll.h>

static int view_render(struct handle *h)
{
    const struct row *r = h->n->row;
    int code = 0;

    buf_clear(&h->text);
    if (r->kind == K_README) {
        tree_readme(&h->text, fs.mount, fs.mounted_by);
    } else {
        h->shown_at = courier_view_mtime(fs.c, h->n->o, (enum view)r->what);
        code = courier_view(fs.c, h->n->o, (enum view)r->what, &h->text);
    }
    h->ready = true;
    h->read_to = 0;
    return code;
}

static void view_open(fuse_req_t req, struct node *n,
                      struct fuse_file_info *fi)
{
    struct handle *h = handle_new(n, fi);
    int r;

    if (handle_writes(h)) {
        handle_free(h);
        fuse_reply_err(req, EROFS);
        return;
    }
    r = view_render(h);
    if (r) {
        handle_free(h);
        fuse_reply_err(req, r == -ENOENT ? ESTALE : -r);
        return;
    }
    fi->direct_io = 1;
    handle_reply(req, h, fi);
}

static void view_read(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
    /* who polls reads from the start again, as in sysfs */
    if (!off && h->read_to && h->listed)
        view_render(h);
    if (off + (off_t)size > h->read_to)
        h->read_to = off + (off_t)size;
    reply_bytes(req, &h->text, size, off);
}

static unsigned view_poll(struct handle *h)
{
    if (h->n->row->kind == K_README || h->read_to < (int64_t)h->text.n ||
        !h->read_to)
        return POLLIN | POLLRDNORM;
    if (courier_view_mtime(fs.c, h->n->o, (enum view)h->n->row->what) !=
        h->shown_at)
        return POLLIN | POLLRDNORM | POLLPRI;
    return 0;
}

const struct file_ops view_ops = {
    .open = view_open,
    .read = view_read,
    .poll = view_poll,
};
