/* attr: what a stat shows of each kind of file, and the plain answers */
#include "fs/fs.h"

#include <sys/stat.h>

#include "base/text.h"
#include "fs/document.h"
#include "fs/files.h"

/* names that are data are looked up anew each time; the kernel remembers
 * the others, and is told of what changes in the files behind them */
static const double lasting_s = 3600;
static const double attr_s = 1;

static void set_time(struct stat *st, int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000,
                         .tv_nsec = ns % 1000000000};

    if (ns < 0)
        t.tv_sec = t.tv_nsec = 0;
    st->st_mtim = st->st_ctim = st->st_atim = t;
}

/* of a view its text is made once for each change of it */
static int view_size(struct node *n, enum view v, struct stat *st)
{
    int64_t at = courier_view_mtime(fs.c, n->o, v);

    if (at < 0)
        return (int)at;
    if (at != n->sized_at) {
        AUTO_BUF struct buf b = {0};
        int r = courier_view(fs.c, n->o, v, &b);

        if (r)
            return r;
        n->size = (int64_t)b.n;
        n->sized_at = at;
    }
    st->st_size = n->size;
    set_time(st, at);
    return 0;
}

/* `expires` carries the time it names */
static int expires_size(struct node *n, struct stat *st)
{
    AUTO_BUF struct buf b = {0};
    int r = view_size(n, VIEW_EXPIRES, st);
    int64_t ms;

    if (r || courier_view(fs.c, n->o, VIEW_EXPIRES, &b) || !b.n)
        return r;
    ms = time_parse(text_trim(b.p));
    if (ms > 0)
        set_time(st, ms * 1000000);
    return 0;
}

static int stream_size(struct node *n, struct stat *st)
{
    int64_t size = 0, at = 0;
    int r = stream_stat(n, &size, &at);

    st->st_size = size;
    set_time(st, at);
    return r;
}

static int dir_times(struct node *n, struct stat *st)
{
    int64_t made = 0, names = 0;
    int r = courier_times(fs.c, n->o, &made, &names);

    set_time(st, n->row->kind == K_DIR && made ? made : names);
    return r;
}

static int link_attr(struct node *n, struct stat *st)
{
    int64_t made = 0, names = 0;
    int r = courier_times(fs.c, n->o, &made, &names);

    set_time(st, names);
    if (!r && row_is_link(n->row)) {
        AUTO_BUF struct buf b = {0};

        r = link_target(n, &b);
        st->st_size = (off_t)b.n;
    }
    return r;
}

static int readme_size(struct node *n, struct stat *st)
{
    if (n->sized_at < 0) {
        AUTO_BUF struct buf b = {0};

        tree_readme(&b, fs.mount, fs.mounted_by);
        n->size = (int64_t)b.n;
        n->sized_at = 1;
    }
    st->st_size = n->size;
    set_time(st, fs.started_ns);
    return 0;
}

static int fill_by_kind(struct node *n, struct handle *h, struct stat *st)
{
    switch (n->row->kind) {
    case K_README:
        return readme_size(n, st);
    case K_VIEW:
        return view_size(n, (enum view)n->row->what, st);
    case K_CONTROL:
        if (n->row->what == CTL_EXPIRES)
            return expires_size(n, st);
        return view_size(n, (enum view)n->row->shows, st);
    case K_STREAM:
    case K_FOLLOW:
        return stream_size(n, st);
    case K_DOC:
    case K_DOCDIR:
    case K_DOCLINK:
    case K_REJECTED:
        return doc_attr(n, h, st);
    case K_VMDIR:
    case K_VMFILE:
    case K_VMLINK:
        return vm_attr(n, h, st);
    case K_DIR:
    case K_OBJECT:
    case K_LIST:
    case K_LINKS:
        return dir_times(n, st);
    default:
        return link_attr(n, st);
    }
}

int attr_fill(struct node *n, struct handle *h, struct stat *st)
{
    int r;

    memset(st, 0, sizeof(*st));
    st->st_ino = n->ino;
    st->st_mode = row_mode(n->row);
    /* of a directory 1 means: not counted; 2 would say that it has no other
     * in it, and there are walkers that believe it */
    st->st_nlink = 1;
    st->st_uid = fs.uid;
    st->st_gid = fs.gid;
    st->st_blksize = 4096;
    r = fill_by_kind(n, h, st);
    st->st_blocks = (st->st_size + 511) / 512;
    return r;
}

double attr_timeout(const struct node *n)
{
    switch (n->row->kind) {
    case K_DOC:
    case K_REJECTED:
    case K_DOCLINK:
        return 0;
    case K_VMDIR:
    case K_VMFILE:
    case K_VMLINK:
        return vm_good_for(n);
    default:
        return attr_s;
    }
}

/* ---- answers ---- */

bool from_toucher(fuse_req_t req)
{
    return fs.toucher && fuse_req_ctx(req)->pid == fs.toucher;
}

void reply_code(fuse_req_t req, int code)
{
    fuse_reply_err(req, code < 0 ? -code : code);
}

void reply_attr(fuse_req_t req, struct node *n, struct handle *h)
{
    struct stat st;
    int r = attr_fill(n, h, &st);

    if (r)
        fuse_reply_err(req, r == -ENOENT ? ESTALE : -r);
    else
        fuse_reply_attr(req, &st, attr_timeout(n));
}

void entry_fill(struct node *n, struct fuse_entry_param *e)
{
    e->ino = n->ino;
    e->attr_timeout = attr_timeout(n);
    e->entry_timeout = n->row->flags & ROW_LASTING ? lasting_s : 0;
    if (!e->entry_timeout && vm_is(n))
        e->entry_timeout = vm_named_for(n);
}

void reply_entry(fuse_req_t req, struct node *n)
{
    struct fuse_entry_param e = {0};
    int r = attr_fill(n, NULL, &e.attr);

    if (r) {
        node_ref(n);
        fuse_reply_err(req, -r);
        node_unref(n);
        return;
    }
    entry_fill(n, &e);
    n->nlookup++;
    if (!from_toucher(req))
        n->seen_at = mono_ms();
    if (fuse_reply_entry(req, &e) == -ENOENT)
        node_forget(n, 1);
}

void reply_entry_of(fuse_req_t req, struct node *dir, const char *name)
{
    AUTO_FREE char *path = NULL;
    struct key k;
    int r = dir_find(dir, name, &k, &path);

    if (r)
        fuse_reply_err(req, -r);
    else
        reply_entry(req, node_get(&k));
}

void reply_bytes(fuse_req_t req, const struct buf *b, size_t size, off_t off)
{
    size_t n;

    if (off < 0 || (uint64_t)off >= b->n) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    n = b->n - (size_t)off;
    fuse_reply_buf(req, b->p + off, n < size ? n : size);
}

int code_again(int code)
{
    switch (code) {
    case -EFBIG:
    case -EMSGSIZE:
    case -ENOSPC:
        return code;
    default:
        return -ECANCELED;
    }
}

void refuse(fuse_req_t req, const struct node *n, int code, const char *why)
{
    AUTO_FREE char *path = node_words(n);

    courier_error(fs.c, n->o, path, why);
    reply_code(req, code);
}

void refuse_name(fuse_req_t req, const struct node *dir, const char *name,
                 int code, const char *why)
{
    AUTO_FREE char *up = node_words(dir);
    size_t n = strlen(up);
    /* that of an object ends in a slash */
    AUTO_FREE char *path =
        xasprintf("%s%s%s", up, n && up[n - 1] != '/' ? "/" : "", name);

    courier_error(fs.c, dir->o, path, why);
    reply_code(req, code);
}
