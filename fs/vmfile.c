/* vmfile: open files and directories of .files/ */
#include "fs/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FETCH = 1 << 20 };

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

void vmfile_unref(struct vmfile *f)
{
    if (!f || --f->refs)
        return;
    vmlist_unref(f->list);
    vm_read_free(f);
    if (f->fd >= 0)
        close(f->fd);
    free(f);
}

/* req may be NULL */
static struct handle *vm_handle(fuse_req_t req, struct node *n,
                                const struct fuse_file_info *fi, int spool)
{
    struct handle *h = handle_new(n, fi);

    h->pid = req ? fuse_req_ctx(req)->pid : 0;
    h->vm = xcalloc(1, sizeof(*h->vm));
    h->vm->refs = 1;
    h->vm->fd = spool;
    h->vm->x = -1;
    return h;
}

/* answers an open; who is gone meanwhile holds nothing */
static void open_reply(struct vmcall *k, struct handle *h)
{
    k->fi.direct_io = 1;
    k->fi.fh = (uint64_t)(uintptr_t)h;
    if (k->req && fuse_reply_open(k->req, &k->fi) == 0)
        return;
    vm_closedir(h);
    handle_free(h);
}

/* ---- directories ---- */

static void listed(void *arg, int code, const char *words, struct vmlist *l)
{
    struct vmcall *k = arg;
    struct handle *h;

    vmcall_waited(k);
    if (l) {
        h = vm_handle(k->req, k->n, &k->fi, -1);
        h->vm->list = l;
        h->vm->list_n = l->n;
        open_reply(k, h);
    } else {
        snprintf(k->words, sizeof(k->words), "%.199s", words);
        vmcall_reply(k, code);
    }
    vmcall_free(k);
}

void vm_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
    struct vmcall *k = vmcall_new(req, n, NULL, NULL);

    if (!vm_up(n->o)) {
        vmcall_reply(k, -EHOSTDOWN);
        vmcall_free(k);
        return;
    }
    k->fi = *fi;
    vmcall_wait(k);
    vmdir_want(n->o, n->path, true, listed, k);
}

void vm_closedir(struct handle *h)
{
    vmfile_unref(h->vm);
    h->vm = NULL;
}

static bool dir_entry(struct handle *h, size_t i, const char **name,
                      struct stat *st)
{
    const struct courier_entry *e;
    AUTO_FREE char *path = NULL;
    struct key k = {.o = h->n->o, .trash = h->n->trash};

    if (i < 2) {
        *name = i ? ".." : ".";
        st->st_ino = h->n->ino;
        st->st_mode = S_IFDIR;
        return true;
    }
    e = &h->vm->list->v[i - 2];
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

    for (size_t i = (size_t)off; i < h->vm->list_n + 2; i++) {
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
        struct handle *h = vm_handle(k->req, k->n, &k->fi, k->fd);

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

    if (!vm_up(n->o)) {
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
    h = vm_handle(req, n, fi, spool);
    h->vm->emptied = writes;
    fi->direct_io = 1;
    handle_reply(req, h, fi);
}

/* it is there now, and empty; what else is known of it is ours to tell until
 * it is closed */
static void created(struct vmcall *k, int code)
{
    struct courier_entry made = {
        .type = 'f', .mode = 0600, .mtime_ns = now_ns()};
    struct fuse_entry_param e = {0};
    struct key key = {.row = row_get(R_VMFILE),
                      .o = k->o,
                      .path = k->path,
                      .trash = k->n->trash};
    struct handle *h;
    struct node *n;

    vm_dir_changed(k->n);
    if (code)
        vmdir_forget(k->o, k->n->path);
    else
        vmdir_unsure(k->o, k->path);
    if (code || !k->req) {
        vmcall_reply(k, code);
        vmcall_free(k);
        return;
    }
    n = node_get(&key);
    vm_learn(n, &made, 0);
    n->vm_named_at = mono_ms();
    h = vm_handle(k->req, n, &k->fi, k->fd);
    k->fd = -1;
    if (k->mode & 0100) {
        h->vm->x = 1;
        h->vm->emptied = true; /* so that it is told even if nothing comes */
    }
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

/* who made it meanwhile in the VM doesn't lose it: the kernel looks again */
static void create_checked(struct vmcall *k, int code)
{
    k->fn = created;
    if (code == -ENOENT) {
        vmcall_send(k, FILES_WRITE);
        return;
    }
    if (!code) {
        vmdir_forget_one(k->o, k->path);
        vmdir_forget(k->o, k->n->path);
        code = k->fi.flags & O_EXCL ? -EEXIST : -ESTALE;
    }
    vmcall_reply(k, code);
    vmcall_free(k);
}

void vm_create(fuse_req_t req, struct node *dir, const char *name, mode_t mode,
               struct fuse_file_info *fi)
{
    struct vmcall *k;
    int spool = spool_new();

    if (spool < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    k = vmcall_new(req, dir, name, create_checked);
    k->fi = *fi;
    k->fd = spool;
    k->mode = mode;
    vmcall_send(k, FILES_STAT);
}

/* ---- reading and writing ---- */

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
    if (h->vm->fd >= 0)
        read_spool(req, h->vm->fd, size, off);
    else
        vm_read_file(req, h, size, off);
}

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
    h->vm->set_mtime = false;
    fuse_reply_write(req, (size_t)did);
}

static void uploaded(struct vmcall *k, int code)
{
    struct stat st;

    k->n->vm_at = 0;
    if (!code && !fstat(k->fd, &st)) {
        k->n->size = st.st_size;
        k->n->vm_sized_at = k->sent_at;
    }
    vmdir_unsure(k->o, k->path);
    if (code && k->h && k->req)
        k->h->vm->dirty = true;
    if (!code && k->n_attrs)
        vm_attrs_note(k->o, &k->attrs[0]);
    vmcall_reply(k, code);
    vmcall_free(k);
}

static void upload(fuse_req_t req, struct handle *h, vm_fn fn)
{
    struct vmcall *k = vmcall_new(req, h->n, NULL, fn);

    if (h->vm->set_mtime || h->vm->x >= 0) {
        k->attrs = xcalloc(1, sizeof(*k->attrs));
        k->n_attrs = 1;
        k->attrs[0] = (struct courier_attrs){
            xstrdup(k->path), h->vm->set_mtime, h->vm->mtime_ns, h->vm->x};
    }
    h->vm->dirty = h->vm->emptied = h->vm->set_mtime = false;
    h->vm->x = -1;
    k->h = req ? h : NULL;
    k->fd = dup(h->vm->fd);
    vmcall_send(k, FILES_WRITE);
}

static void vm_flush(fuse_req_t req, struct handle *h,
                     const struct fuse_file_info *fi)
{
    (void)fi;
    if (h->vm->fd >= 0 && (h->vm->dirty || h->vm->set_mtime || h->vm->x >= 0))
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
    vm_closedir(h);
}

/* ---- size ---- */

static void resized(struct vmcall *k, int code)
{
    k->n->vm_at = 0;
    vmdir_unsure(k->o, k->path);
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
