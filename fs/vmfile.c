/* vmfile: open files and directories of .files/ */
#include "fs/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AHEAD = 256 << 10, FETCH = 1 << 20 };
static const int64_t window_ms = 1000;

static int spool_new(void)
{
    int fd = open(fs.data, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    AUTO_FREE char *path = NULL;

    if (fd >= 0 || errno == ENOSPC)
        return fd;
    path = xasprintf("%s/spool.XXXXXX", fs.data);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

static void vmfile_free(struct vmfile *f)
{
    if (!f)
        return;
    vm_entries_free(f->list, f->n);
    buf_free(&f->window);
    if (f->fd >= 0)
        close(f->fd);
    free(f);
}

static struct handle *vm_handle(struct node *n,
                                const struct fuse_file_info *fi, int spool)
{
    struct handle *h = handle_new(n, fi);

    h->vm = xcalloc(1, sizeof(*h->vm));
    h->vm->fd = spool;
    return h;
}

/* answers an open; who is gone meanwhile holds nothing */
static void open_reply(struct vmcall *k, struct handle *h)
{
    k->fi.direct_io = 1;
    k->fi.fh = (uint64_t)(uintptr_t)h;
    if (k->req && fuse_reply_open(k->req, &k->fi) == 0)
        return;
    vmfile_free(h->vm);
    h->vm = NULL;
    handle_free(h);
}

/* ---- directories ---- */

static void listed(struct vmcall *k, int code)
{
    struct handle *h;

    if (code) {
        vmcall_reply(k, code);
    } else {
        vm_list_keep(k->n, k->entries, k->count);
        h = vm_handle(k->n, &k->fi, -1);
        h->vm->list = vmcall_take(k, &h->vm->n);
        open_reply(k, h);
    }
    vmcall_free(k);
}

void vm_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
    struct vmcall *k = vmcall_new(req, n, NULL, listed);

    k->fi = *fi;
    vmcall_send(k, FILES_LIST);
}

void vm_closedir(struct handle *h)
{
    vmfile_free(h->vm);
    h->vm = NULL;
}

static bool dir_entry(struct handle *h, size_t i, const char **name,
                      struct stat *st)
{
    struct courier_entry *e;
    AUTO_FREE char *path = NULL;
    struct key k = {.o = h->n->o, .trash = h->n->trash};

    if (i < 2) {
        *name = i ? ".." : ".";
        st->st_ino = h->n->ino;
        st->st_mode = S_IFDIR;
        return true;
    }
    e = &h->vm->list[i - 2];
    *name = e->name;
    k.row = vm_row(e->type);
    if (!k.row)
        return false;
    k.path = path = path_join(h->n->path, e->name);
    st->st_ino = node_ino_of(&k);
    st->st_mode = row_mode(k.row);
    return true;
}

void vm_readdir(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
    AUTO_FREE char *buf = xmalloc(size);
    size_t n = 0;

    for (size_t i = (size_t)off; i < h->vm->n + 2; i++) {
        struct stat st = {0};
        const char *name;
        size_t need;

        if (!dir_entry(h, i, &name, &st))
            continue;
        need =
            fuse_add_direntry(req, buf + n, size - n, name, &st, (off_t)i + 1);
        if (need > size - n)
            break;
        n += need;
    }
    fuse_reply_buf(req, buf, n);
}

/* ---- a file brought here to be written ---- */

/* appends what came to the spool; true: there is more to ask for */
static bool spooled(struct vmcall *k, int *code)
{
    if (!*code)
        *code = fd_write_all(k->fd, k->data.p, k->data.n);
    if (*code || !k->data.n)
        return false;
    k->off += (int64_t)k->data.n;
    return k->off < k->total;
}

static void fetched_open(struct vmcall *k, int code)
{
    if (spooled(k, &code)) {
        vmcall_send(k, FILES_READ);
        return;
    }
    if (code) {
        vmcall_reply(k, code);
    } else {
        struct handle *h = vm_handle(k->n, &k->fi, k->fd);

        k->fd = -1;
        open_reply(k, h);
    }
    vmcall_free(k);
}

/* ---- open ---- */

static void vm_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
    bool writes = (fi->flags & O_ACCMODE) != O_RDONLY;
    struct vmcall *k;
    struct handle *h;
    int spool = -1;

    if (!courier_files_up(fs.c, n->o)) {
        fuse_reply_err(req, EHOSTDOWN);
        return;
    }
    if (writes)
        spool = spool_new();
    if (writes && spool < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    if (writes && !(fi->flags & O_TRUNC)) {
        k = vmcall_new(req, n, NULL, fetched_open);
        k->fi = *fi;
        k->fd = spool;
        k->len = FETCH;
        vmcall_send(k, FILES_READ);
        return;
    }
    h = vm_handle(n, fi, spool);
    h->vm->emptied = writes;
    fi->direct_io = 1;
    handle_reply(req, h, fi);
}

static void created_stat(struct vmcall *k, int code)
{
    struct fuse_entry_param e = {0};
    struct key key = {.row = row_get(R_VMFILE),
                      .o = k->n->o,
                      .path = k->path,
                      .trash = k->n->trash};
    struct handle *h;
    struct node *n;

    if (!code && (!k->count || k->entries->type != 'f'))
        code = -ESTALE;
    if (code || !k->req) {
        vmcall_reply(k, code);
        vmcall_free(k);
        return;
    }
    n = node_get(&key);
    vm_learn(n, k->entries);
    h = vm_handle(n, &k->fi, k->fd);
    k->fd = -1;
    attr_fill(n, h, &e.attr);
    entry_fill(n, &e);
    n->nlookup++;
    k->fi.direct_io = 1;
    k->fi.fh = (uint64_t)(uintptr_t)h;
    if (fuse_reply_create(k->req, &e, &k->fi) == -ENOENT) {
        vm_closedir(h);
        node_forget(n, 1);
        handle_free(h);
    }
    vmcall_free(k);
}

static void created(struct vmcall *k, int code)
{
    vm_list_drop(k->n->o);
    if (code) {
        vmcall_reply(k, code);
        vmcall_free(k);
        return;
    }
    k->fn = created_stat;
    vmcall_send(k, FILES_STAT);
}

void vm_create(fuse_req_t req, struct node *dir, const char *name, mode_t mode,
               struct fuse_file_info *fi)
{
    struct vmcall *k;
    int spool = spool_new();

    (void)mode;
    if (spool < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    k = vmcall_new(req, dir, name, created);
    k->fi = *fi;
    k->fd = spool;
    vmcall_send(k, FILES_WRITE);
}

/* ---- read ---- */

static bool window_has(const struct vmfile *f, off_t off)
{
    return f->window.n && mono_ms() - f->window_at < window_ms &&
           off >= f->window_off && off < f->window_off + (off_t)f->window.n;
}

static void window_reply(fuse_req_t req, struct vmfile *f, size_t size,
                         off_t off)
{
    reply_bytes(req, &f->window, size, off - f->window_off);
}

static void read_done(struct vmcall *k, int code)
{
    struct vmfile *f;

    /* once nobody waits the handle may be gone */
    if (code || !k->req) {
        vmcall_reply(k, code);
    } else {
        f = k->h->vm;
        buf_free(&f->window);
        f->window = k->data;
        k->data = (struct buf){0};
        f->window_off = k->off;
        f->window_at = mono_ms();
        window_reply(k->req, f, (size_t)k->mode, k->off);
    }
    vmcall_free(k);
}

static void read_spool(fuse_req_t req, int fd, size_t size, off_t off)
{
    AUTO_FREE char *p = xmalloc(size);
    ssize_t n = pread(fd, p, size, off);

    if (n < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_buf(req, p, (size_t)n);
}

static void vm_read(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
    struct vmcall *k;

    if (h->vm->fd >= 0) {
        read_spool(req, h->vm->fd, size, off);
        return;
    }
    if (window_has(h->vm, off)) {
        window_reply(req, h->vm, size, off);
        return;
    }
    k = vmcall_new(req, h->n, NULL, read_done);
    k->h = h;
    k->off = off;
    k->mode = (mode_t)size;
    k->len = size > AHEAD ? (int64_t)size : AHEAD;
    vmcall_send(k, FILES_READ);
}

/* ---- write ---- */

static void vm_write(fuse_req_t req, struct handle *h, const char *p, size_t n,
                     off_t off, const struct fuse_file_info *fi)
{
    struct stat st;
    ssize_t did;

    (void)fi;
    if (h->flags & O_APPEND && !fstat(h->vm->fd, &st))
        off = st.st_size;
    did = pwrite(h->vm->fd, p, n, off);
    if (did < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    h->vm->dirty = true;
    fuse_reply_write(req, (size_t)did);
}

static void uploaded(struct vmcall *k, int code)
{
    vm_list_drop(k->n->o);
    k->n->vm_at = 0;
    if (code && k->h && k->req)
        k->h->vm->dirty = true;
    vmcall_reply(k, code);
    vmcall_free(k);
}

static void upload(fuse_req_t req, struct handle *h, vm_fn fn)
{
    struct vmcall *k = vmcall_new(req, h->n, NULL, fn);

    h->vm->dirty = h->vm->emptied = false;
    k->h = req ? h : NULL;
    k->fd = dup(h->vm->fd);
    vmcall_send(k, FILES_WRITE);
}

static void vm_flush(fuse_req_t req, struct handle *h,
                     const struct fuse_file_info *fi)
{
    (void)fi;
    if (h->vm->fd >= 0 && h->vm->dirty)
        upload(req, h, uploaded);
    else
        fuse_reply_err(req, 0);
}

static void vm_fsync(fuse_req_t req, struct handle *h)
{
    vm_flush(req, h, NULL);
}

static void vm_release(struct handle *h)
{
    if (h->vm->fd >= 0 && h->vm->emptied && !h->vm->dirty)
        upload(NULL, h, uploaded);
    vmfile_free(h->vm);
    h->vm = NULL;
}

/* ---- size ---- */

static void resized(struct vmcall *k, int code)
{
    vm_list_drop(k->n->o);
    k->n->vm_at = 0;
    if (code || !k->req)
        vmcall_reply(k, code);
    else
        vm_getattr(k->req, k->n, NULL);
    vmcall_free(k);
}

static void fetched_resize(struct vmcall *k, int code)
{
    if (spooled(k, &code)) {
        vmcall_send(k, FILES_READ);
        return;
    }
    if (!code && ftruncate(k->fd, k->fi.fh ? (off_t)k->fi.fh : 0))
        code = -errno;
    if (code) {
        vmcall_reply(k, code);
        vmcall_free(k);
        return;
    }
    k->fn = resized;
    vmcall_send(k, FILES_WRITE);
}

void vm_resize(fuse_req_t req, struct node *n, struct handle *h, off_t size)
{
    struct vmcall *k;

    if (h && h->vm && h->vm->fd >= 0) {
        if (ftruncate(h->vm->fd, size)) {
            fuse_reply_err(req, errno);
            return;
        }
        h->vm->dirty = true;
        reply_attr(req, n, h);
        return;
    }
    k = vmcall_new(req, n, NULL, fetched_resize);
    k->fd = spool_new();
    k->fi.fh = (uint64_t)size;
    k->len = FETCH;
    if (k->fd < 0) {
        fuse_reply_err(req, errno);
        vmcall_free(k);
    } else {
        vmcall_send(k, FILES_READ);
    }
}

const struct file_ops vm_ops = {
    .open = vm_open,
    .read = vm_read,
    .write = vm_write,
    .flush = vm_flush,
    .fsync = vm_fsync,
    .release = vm_release,
};
