/* ops: the requests of the kernel, each handed to what it concerns */
#include "fs/fs.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "fs/document.h"
#include "fs/files.h"
#include "fs/touch.h"

struct fs fs;
void (*fs_on_init)(void);

static const struct file_ops *ops_of(const struct node *n)
{
    switch (n->row->kind) {
    case K_VIEW:
    case K_README:
        return &view_ops;
    case K_STREAM:
        return &stream_ops;
    case K_FOLLOW:
        return &follow_ops;
    case K_WAIT:
        return &wait_ops;
    case K_CHANGE:
        return &change_ops;
    case K_CONTROL:
        return &control_ops;
    case K_MESSAGE:
        return &message_ops;
    case K_INPUT:
        return &input_ops;
    case K_DOC:
        return &doc_ops;
    case K_REJECTED:
        return &rejected_ops;
    case K_VMFILE:
        return &vm_ops;
    default:
        return NULL;
    }
}

/* the node, or an answer and NULL */
static struct node *node_or_stale(fuse_req_t req, fuse_ino_t ino)
{
    struct node *n = node_find(ino);

    if (!n)
        fuse_reply_err(req, ESTALE);
    else if (!from_toucher(req))
        n->seen_at = mono_ms();
    return n;
}

/* ---- names ---- */

static void op_init(void *data, struct fuse_conn_info *conn)
{
    (void)data;
    conn->want &=
        ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                    FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE |
                    FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
    conn->want |=
        conn->capable & (FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA |
                         FUSE_CAP_PARALLEL_DIROPS);
    conn->max_write = 1 << 20;
    if (fs_on_init)
        fs_on_init();
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct node *n = node_or_stale(req, parent);

    if (!n)
        return;
    if (n->row->kind == K_VMDIR)
        vm_lookup(req, n, name);
    else if (!doc_lookup_waits(req, n, name))
        reply_entry_of(req, n, name);
}

static void forget_one(fuse_ino_t ino, uint64_t nlookup)
{
    struct node *n = node_find(ino);

    if (n)
        node_forget(n, nlookup);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    forget_one(ino, nlookup);
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count,
                            struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        forget_one(forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
                       struct fuse_file_info *fi)
{
    struct node *n = node_or_stale(req, ino);

    if (!n)
        return;
    if (vm_is(n))
        vm_getattr(req, n, handle_of(fi));
    else if (n->row->kind == K_DOC)
        doc_getattr(req, n, handle_of(fi));
    else
        reply_attr(req, n, handle_of(fi));
}

/* does that ask for the mode and owner it has? */
static bool changes_nothing(struct node *n, const struct stat *st, int to_set)
{
    struct stat is;

    return !(to_set & FUSE_SET_ATTR_SIZE) && !attr_fill(n, NULL, &is) &&
           !(to_set & FUSE_SET_ATTR_MODE &&
             (st->st_mode ^ is.st_mode) & 07777) &&
           !(to_set & FUSE_SET_ATTR_UID && st->st_uid != is.st_uid) &&
           !(to_set & FUSE_SET_ATTR_GID && st->st_gid != is.st_gid);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st,
                       int to_set, struct fuse_file_info *fi)
{
    struct node *n = node_or_stale(req, ino);

    if (!n)
        return;
    if (from_toucher(req)) {
        reply_attr(req, n, NULL);
        return;
    }
    switch (n->row->kind) {
    case K_CONTROL:
        control_touch(req, n, st, to_set);
        break;
    case K_MESSAGE:
    case K_INPUT:
        reply_attr(req, n, NULL);
        break;
    case K_DOC:
    case K_DOCDIR:
        doc_setattr(req, n, handle_of(fi), st, to_set);
        break;
    case K_VMDIR:
    case K_VMFILE:
        vm_setattr(req, n, handle_of(fi), st, to_set);
        break;
    default:
        if (!changes_nothing(n, st, to_set))
            fuse_reply_err(req, row_is_dir(n->row) ? EPERM : EROFS);
        else
            reply_attr(req, n, NULL);
    }
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    struct node *n = node_or_stale(req, ino);

    if (!n)
        return;
    if (n->row->kind == K_DOCLINK)
        doc_readlink(req, n);
    else if (n->row->kind == K_VMLINK)
        vm_readlink(req, n);
    else if (row_is_link(n->row))
        dir_readlink(req, n);
    else
        fuse_reply_err(req, EINVAL);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
                     mode_t mode)
{
    struct node *n = node_or_stale(req, parent);

    (void)mode;
    if (!n)
        return;
    if (n->row->kind == K_VMDIR)
        vm_mkdir(req, n, name);
    else if (n->row->kind == K_LIST)
        object_mkdir(req, n, name);
    else
        doc_mkdir(req, n, name);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
                     mode_t mode, dev_t rdev)
{
    (void)parent;
    (void)name;
    (void)mode;
    (void)rdev;
    fuse_reply_err(req, EPERM);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct node *n = node_or_stale(req, parent);

    if (!n)
        return;
    if (n->row->kind == K_VMDIR)
        vm_remove(req, n, name);
    else
        doc_unlink(req, n, name);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct node *n = node_or_stale(req, parent);

    if (!n)
        return;
    if (n->row->kind == K_VMDIR)
        vm_remove(req, n, name);
    else if (n->row->kind == K_DOCDIR)
        doc_rmdir(req, n, name);
    else
        object_rmdir(req, n, name);
}

static void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent,
                       const char *name)
{
    struct node *n = node_or_stale(req, parent);

    if (n)
        doc_symlink(req, n, name, link);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent,
                    const char *name)
{
    (void)ino;
    (void)parent;
    (void)name;
    fuse_reply_err(req, EPERM);
}

static bool taken(struct node *dir, const char *name)
{
    AUTO_FREE char *path = NULL;
    struct key k;

    return dir_find(dir, name, &k, &path) == 0;
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
                      fuse_ino_t newparent, const char *newname,
                      unsigned int flags)
{
    struct node *from = node_or_stale(req, parent);
    struct node *to = from ? node_or_stale(req, newparent) : NULL;
    bool vm;

    if (!to)
        return;
    vm = from->row->kind == K_VMDIR;
    if (flags & ~1u) { /* all but RENAME_NOREPLACE */
        fuse_reply_err(req, EINVAL);
    } else if (strlen(newname) > 255) {
        fuse_reply_err(req, ENAMETOOLONG);
    } else if (vm != (to->row->kind == K_VMDIR)) {
        refuse_name(req, from, name, -EPERM,
                    "nothing moves into a VM or out of it: copy it");
    } else if (vm) {
        vm_rename(req, from, name, to, newname, !flags);
    } else if (flags && taken(to, newname)) {
        fuse_reply_err(req, EEXIST);
    } else if (from->row->kind == K_LIST && to->row->kind == K_LIST) {
        object_rename(req, from, name, to, newname);
    } else if (dir_holds_docs(from->row) && dir_holds_docs(to->row)) {
        doc_rename(req, from, name, to, newname);
    } else {
        refuse_name(req, from, name, -EPERM, "nothing can be moved there");
    }
}

/* ---- open files ---- */

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct node *n = node_or_stale(req, ino);
    const struct file_ops *ops = n ? ops_of(n) : NULL;

    if (ops && from_toucher(req))
        handle_reply(req, handle_new(n, fi), fi);
    else if (ops)
        ops->open(req, n, fi);
    else if (n)
        fuse_reply_err(req, row_is_dir(n->row) ? EISDIR : ELOOP);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name,
                      mode_t mode, struct fuse_file_info *fi)
{
    struct node *n = node_or_stale(req, parent);

    if (!n)
        return;
    if (n->row->kind == K_VMDIR)
        vm_create(req, n, name, mode, fi);
    else
        doc_create(req, n, name, mode, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    const struct file_ops *ops = ops_of(h->n);

    (void)ino;
    /* fcntl can change it after the open */
    h->flags = (h->flags & ~O_NONBLOCK) | (fi->flags & O_NONBLOCK);
    ops->read(req, h, size, off);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf,
                     size_t size, off_t off, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    const struct file_ops *ops = ops_of(h->n);

    (void)ino;
    if (ops->write)
        ops->write(req, h, buf, size, off, fi);
    else
        fuse_reply_err(req, EROFS);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    const struct file_ops *ops = ops_of(h->n);

    (void)ino;
    if (ops->flush)
        ops->flush(req, h, fi);
    else
        fuse_reply_err(req, 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
                     struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    const struct file_ops *ops = ops_of(h->n);

    (void)ino;
    (void)datasync;
    if (ops->fsync)
        ops->fsync(req, h);
    else
        fuse_reply_err(req, 0);
}

static void op_release(fuse_req_t req, fuse_ino_t ino,
                       struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    const struct file_ops *ops = ops_of(h->n);

    (void)ino;
    if (ops->release)
        ops->release(h);
    handle_free(h);
    fuse_reply_err(req, 0);
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
                    struct fuse_pollhandle *ph)
{
    struct handle *h = handle_of(fi);
    const struct file_ops *ops = ops_of(h->n);

    (void)ino;
    if (!ops->poll) {
        if (ph)
            fuse_pollhandle_destroy(ph);
        fuse_reply_poll(req, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
        return;
    }
    if (ph)
        poll_watch(h, ph);
    fuse_reply_poll(req, ops->poll(h));
}

/* ---- directories ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino,
                       struct fuse_file_info *fi)
{
    struct node *n = node_or_stale(req, ino);

    if (n)
        dir_opendir(req, n, fi);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    struct node *n = node_or_stale(req, ino);

    if (n)
        dir_readdir(req, n, size, off, fi);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino,
                          struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);

    (void)ino;
    if (h->vm)
        vm_closedir(h);
    handle_free(h);
    fuse_reply_err(req, 0);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
                        struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    (void)fi;
    fuse_reply_err(req, 0);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;

    (void)ino;
    if (statvfs(fs.data, &st)) {
        fuse_reply_err(req, errno);
        return;
    }
    st.f_namemax = 255;
    fuse_reply_statfs(req, &st);
}

const struct fuse_lowlevel_ops fs_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .symlink = op_symlink,
    .link = op_link,
    .rename = op_rename,
    .open = op_open,
    .create = op_create,
    .read = op_read,
    .write = op_write,
    .flush = op_flush,
    .fsync = op_fsync,
    .release = op_release,
    .poll = op_poll,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_releasedir,
    .fsyncdir = op_fsyncdir,
    .statfs = op_statfs,
};
