/* dir: what a name means below a directory, and what a listing holds */
#include "fs/fs.h"

#include <sys/stat.h>

#include "fs/document.h"
#include "fs/files.h"

bool dir_holds_docs(const struct row *r)
{
    return r->kind == K_DOCDIR || r->flags & ROW_HOLDS;
}

char *path_join(const char *dir, const char *name)
{
    if (!dir || !*dir)
        return xstrdup(name);
    return xasprintf("%s/%s", dir, name);
}

/* ---- what is there ---- */

static bool link_is_set(const struct row *r, struct oid o)
{
    AUTO_BUF struct buf b = {0};

    return courier_view(fs.c, o, (enum view)r->what, &b) == 0 && b.n &&
           b.p[0] != '\n';
}

bool row_present(const struct row *r, struct oid o)
{
    if (r->flags & ROW_LATER)
        return false;
    if (r->flags & ROW_IF_SET)
        return link_is_set(r, o);
    if (r->kind == K_VIEW)
        return courier_view_mtime(fs.c, o, (enum view)r->what) >= 0;
    return true;
}

/* ---- lookup ---- */

static bool is_trash(const struct node *dir)
{
    return dir->trash || (dir->row->kind == K_LIST &&
                          (dir->row->what == LIST_TRASH ||
                           dir->row->what == LIST_PROJECTS_TRASH));
}

static int find_in_list(struct node *dir, const char *name, struct key *k)
{
    struct oid o;
    int r = courier_find(fs.c, (enum list)dir->row->what, dir->o, name, &o);

    if (r)
        return r;
    k->row = row_of_object(o.kind);
    k->o = o;
    return k->row ? 0 : -ENOENT;
}

static int find_member(struct node *dir, const char *name, struct key *k,
                       char **path)
{
    struct oid o;
    int r = courier_find(fs.c, (enum list)dir->row->what, dir->o, name, &o);

    if (r)
        return r;
    k->row = row_get(R_MEMBER);
    k->path = *path = xstrdup(name);
    return 0;
}

/* both names lead to the same row, with the number of their series as path:
 * so the file that was `events` is the same one as `events.1` */
static void rotated_key(const struct row *r, struct key *k, char **path)
{
    int64_t series = courier_events_series(fs.c);

    if (r->what == STREAM_EVENTS_OLD)
        series--;
    k->row = row_child(row_get(R_ROOT), "events");
    k->path = *path = xasprintf("%lld", (long long)series);
}

int dir_find(struct node *dir, const char *name, struct key *k, char **path)
{
    const struct row *r;

    *path = NULL;
    *k = (struct key){.o = dir->o, .trash = is_trash(dir)};
    if (strlen(name) > 255)
        return -ENAMETOOLONG;
    r = row_child(dir->row, name);
    if (r && r->kind != K_DOC) {
        k->row = r;
        if (r->flags & ROW_ROTATED)
            rotated_key(r, k, path);
        else if (r->path && !row_is_link(r))
            k->path = *path = xstrdup(r->path);
        return row_present(r, dir->o) ? 0 : -ENOENT;
    }
    if (dir_holds_docs(dir->row))
        return doc_find(dir, r, name, k, path);
    switch (dir->row->kind) {
    case K_LIST:
        return find_in_list(dir, name, k);
    case K_LINKS:
        return find_member(dir, name, k, path);
    default:
        return -ENOENT;
    }
}

/* ---- symlinks ---- */

int link_target(struct node *n, struct buf *out)
{
    AUTO_BUF struct buf b = {0};
    const char *form = n->row->path ? n->row->path : "%s";
    const char *hole = strstr(form, "%s");
    int r = 0;

    if (n->row->kind == K_MEMBER)
        buf_adds(&b, n->path);
    else if (n->row->what)
        r = courier_view(fs.c, n->o, (enum view)n->row->what, &b);
    if (r)
        return r;
    while (b.n && b.p[b.n - 1] == '\n')
        b.p[--b.n] = 0;
    if (hole)
        buf_addf(out, "%.*s%s%s", (int)(hole - form), form, buf_str(&b),
                 hole + 2);
    else
        buf_adds(out, form);
    return 0;
}

void dir_readlink(fuse_req_t req, struct node *n)
{
    AUTO_BUF struct buf b = {0};
    int r = link_target(n, &b);

    if (r)
        fuse_reply_err(req, r == -ENOENT ? ESTALE : -r);
    else
        fuse_reply_readlink(req, buf_str(&b));
}

/* ---- readdir ---- */

/*
 * Cookies: 1 and 2 are "." and "..", then come the rows of the table, then
 * what exists in memory only, then the rows of the database. So a listing
 * goes on where it was whatever is made or removed meanwhile.
 */
enum { COOKIE_ROWS = 16, COOKIE_MEMORY = 1 << 16 };
static const int64_t cookie_list = (int64_t)1 << 40;

struct listing {
    fuse_req_t req;
    struct node *dir;
    char *buf;
    size_t n, size;
    const char *base; /* path of the directory, for documents */
};

/* false: the page is full */
static bool list_add(struct listing *l, const char *name, uint64_t ino,
                     unsigned mode, int64_t cookie)
{
    struct stat st = {.st_ino = ino, .st_mode = mode};
    size_t need = fuse_add_direntry(l->req, l->buf + l->n, l->size - l->n,
                                    name, &st, cookie);

    if (need > l->size - l->n)
        return false;
    l->n += need;
    return true;
}

static bool list_key(struct listing *l, const char *name, const struct key *k,
                     int64_t cookie)
{
    struct key here = *k;

    here.trash = is_trash(l->dir);
    return list_add(l, name, node_ino_of(&here), row_mode(k->row), cookie);
}

static bool list_dots(struct listing *l, int64_t after)
{
    if (after < 1 && !list_add(l, ".", l->dir->ino, S_IFDIR, 1))
        return false;
    return after >= 2 || list_add(l, "..", FUSE_ROOT_ID, S_IFDIR, 2);
}

static bool lists_all(const struct row *dir)
{
    return dir->flags & ROW_UNLISTED;
}

static bool list_rows(struct listing *l, int64_t after)
{
    int id = row_index(l->dir->row);

    for (int i = R_ROOT + 1; i < row_count(); i++) {
        const struct row *r = row_at(i);
        AUTO_FREE char *path = NULL;
        struct key k = {
            .row = r, .o = l->dir->o, .path = row_is_link(r) ? NULL : r->path};

        if ((int)r->parent != id || !r->name || i + COOKIE_ROWS <= after)
            continue;
        if (r->flags & ROW_UNLISTED && !lists_all(l->dir->row))
            continue;
        if (!row_present(r, l->dir->o) ||
            (r->kind == K_DOC && doc_hidden(l->dir->o, r->path)))
            continue;
        if (r->flags & ROW_ROTATED)
            rotated_key(r, &k, &path);
        if (!list_key(l, r->name, &k, i + COOKIE_ROWS))
            return false;
    }
    return true;
}

static bool list_object(void *arg, int64_t row, const char *name, struct oid o)
{
    struct listing *l = arg;
    struct key k = {.row = row_of_object(o.kind), .o = o};

    if (l->dir->row->kind == K_LINKS)
        k = (struct key){
            .row = row_get(R_MEMBER), .o = l->dir->o, .path = name};
    if (!k.row)
        return true;
    return list_key(l, name, &k, cookie_list + row);
}

static bool list_doc(void *arg, int64_t row, const char *name,
                     const struct courier_doc *d)
{
    struct listing *l = arg;
    AUTO_FREE char *path = path_join(l->base, name);
    struct key k = {.row = row_get(d->dir ? R_DOCSUB : R_DOCFILE),
                    .o = l->dir->o,
                    .path = path};

    if (doc_in_memory(l->dir->o, path) || doc_hidden(l->dir->o, path))
        return true;
    return list_key(l, name, &k, cookie_list + row);
}

static bool list_memory(void *arg, int64_t seq, const char *name,
                        const struct key *k)
{
    return list_key(arg, name, k, COOKIE_MEMORY + seq);
}

static int list_from(struct listing *l, int64_t after)
{
    const struct row *r = l->dir->row;
    int64_t row = after > cookie_list ? after - cookie_list : 0;
    int64_t seq = after > COOKIE_MEMORY ? after - COOKIE_MEMORY : 0;

    if (!row) {
        if (after < COOKIE_MEMORY &&
            (!list_dots(l, after) || !list_rows(l, after)))
            return 0;
        if (dir_holds_docs(r) &&
            !doc_list_memory(l->dir->o, l->base, seq, list_memory, l))
            return 0;
    }
    if (r->kind == K_LIST || r->kind == K_LINKS)
        return courier_list(fs.c, (enum list)r->what, l->dir->o, row,
                            list_object, l);
    if (r->kind == K_DOCDIR)
        return courier_doc_list(fs.c, l->dir->o, l->base, row, list_doc, l);
    return 0;
}

void dir_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
    struct handle *h;
    struct stat st;
    int r;

    if (n->row->kind == K_VMDIR) {
        vm_opendir(req, n, fi);
        return;
    }
    r = attr_fill(n, NULL, &st);
    if (r) {
        fuse_reply_err(req, r == -ENOENT ? ESTALE : -r);
        return;
    }
    h = handle_new(n, fi);
    handle_reply(req, h, fi);
}

void dir_readdir(fuse_req_t req, struct node *n, size_t size, off_t off,
                 struct fuse_file_info *fi)
{
    AUTO_FREE char *buf = NULL;
    struct listing l = {.req = req, .dir = n, .size = size};
    int r;

    if (n->row->kind == K_VMDIR) {
        vm_readdir(req, handle_of(fi), size, off);
        return;
    }
    l.base = n->path ? n->path : "";
    l.buf = buf = xmalloc(size);
    r = list_from(&l, off);
    if (r && !l.n)
        fuse_reply_err(req, -r);
    else
        fuse_reply_buf(req, buf, l.n);
}
