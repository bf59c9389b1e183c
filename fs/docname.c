/* docname: what names of documents and scratch files do */
#include "fs/document.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include "base/text.h"

enum target { T_SCRATCH, T_FIXED, T_STORED, T_NONE };
enum { WAS_MAX = 1 << 20 };

static bool exists(struct node *dir, const char *name)
{
    AUTO_FREE char *path = NULL;
    struct key k;

    return dir_find(dir, name, &k, &path) == 0;
}

/* names of patch (p.oXXXXXX) and helix (pXXXXXX.bck) beside a document p */
static bool beside_document(struct node *dir, const char *name)
{
    size_t n = strlen(name);
    const char *end = n > 10 ? name + n - 10 : "";
    AUTO_FREE char *base = NULL;

    if (!fnmatch("??????.bck", end, 0))
        base = xmemdup0(name, n - 10);
    else if (n > 8 && !fnmatch(".o??????", name + n - 8, 0))
        base = xmemdup0(name, n - 8);
    return base && exists(dir, base);
}

/* what a file of that name would be below dir; path is owned by the caller */
static enum target target_of(struct node *dir, const char *name, char **path)
{
    const struct row *r = row_child(dir->row, name);
    struct docfile *d;

    *path = path_join(dir->path, name);
    d = docmem_find(dir->o, *path);
    if (!dir_holds_docs(dir->row) || (r && r->kind != K_DOC))
        return T_NONE;
    if (r)
        return T_FIXED;
    if (doc_readonly(*path))
        return T_NONE;
    if (doc_scratch_name(name) || dir->row->kind != K_DOCDIR ||
        (d && d->kind != DOC_STORED) || beside_document(dir, name))
        return T_SCRATCH;
    return T_STORED;
}

/* ---- create ---- */

static void reply_created(fuse_req_t req, struct node *dir, const char *name,
                          struct docfile *d, struct fuse_file_info *fi)
{
    struct fuse_entry_param e = {0};
    AUTO_FREE char *path = NULL;
    struct handle *h;
    struct node *n;
    struct key k;
    int r = dir_find(dir, name, &k, &path);

    if (r) {
        fuse_reply_err(req, -r);
        return;
    }
    n = node_get(&k);
    h = doc_handle(req, n, d, fi);
    attr_fill(n, h, &e.attr);
    entry_fill(n, &e);
    n->nlookup++;
    fi->fh = (uint64_t)(uintptr_t)h;
    if (fuse_reply_create(req, &e, fi) == -ENOENT) {
        doc_ops.release(h);
        node_forget(n, 1);
        handle_free(h);
    }
}

static struct docfile *scratch_new(struct oid o, const char *path,
                                   unsigned mode, bool fixed)
{
    struct docfile *d = docmem_find(o, path);

    if (d)
        docmem_remove(d);
    d = docmem_get(o, path);
    d->kind = DOC_SCRATCH;
    d->mode = mode & 0100 ? 0700 : 0600;
    d->fixed = fixed;
    d->drop_at = now_ms() + 600000;
    return d;
}

static void create_scratch(fuse_req_t req, struct node *dir, const char *name,
                           const char *path, mode_t mode,
                           struct fuse_file_info *fi)
{
    struct err e = {0};
    int r = text_filename_check(name, &e);

    if (!r && docmem_full(0))
        r = err_set(&e, ENOSPC, "too many files that are not documents");
    if (r)
        refuse_name(req, dir, name, r, e.text);
    else
        reply_created(
            req, dir, name,
            scratch_new(dir->o, path, mode, dir->row->kind != K_DOCDIR), fi);
}

void doc_create(fuse_req_t req, struct node *dir, const char *name,
                mode_t mode, struct fuse_file_info *fi)
{
    AUTO_FREE char *path = NULL;
    enum target t = target_of(dir, name, &path);
    bool there = exists(dir, name);
    struct docfile *d;
    struct err e = {0};
    int r;

    if (there && fi->flags & O_EXCL) {
        fuse_reply_err(req, EEXIST);
        return;
    }
    if (t == T_NONE || dir->row == row_get(R_LEARNINGS)) {
        refuse_name(req, dir, name, -EPERM, "no file can be made here");
        return;
    }
    if (t == T_SCRATCH && !there) {
        create_scratch(req, dir, name, path, mode, fi);
        return;
    }
    r = t == T_SCRATCH ? 0 : courier_doc_may(fs.c, dir->o, path, &e);
    if (r) {
        refuse_name(req, dir, name, r, e.text);
        return;
    }
    d = docmem_get(dir->o, path);
    if (t != T_SCRATCH) {
        d->fixed = t == T_FIXED;
        d->created = d->created || (!there && t == T_STORED);
        if (!there) {
            d->mode = doc_keeps_mode(path) && mode & 0100 ? 0700 : 0;
            fi->flags |= O_TRUNC;
        }
        d->away_until = 0;
    }
    reply_created(req, dir, name, d, fi);
}

/* ---- unlink ---- */

/* what has that name is about to be removed */
static void remember(struct oid o, const char *path)
{
    AUTO_BUF struct buf text = {0};
    struct courier_doc st;

    if (doc_secret(path) || courier_doc_stat(fs.c, o, path, &st) || st.dir ||
        st.size > WAS_MAX || docmem_full((size_t)st.size) ||
        doc_load(o, path, &text))
        return;
    doc_removed(o, path, &text, &st);
}

static void unlink_stored(fuse_req_t req, struct node *dir, const char *path,
                          bool fixed)
{
    struct docfile *d = docmem_find(dir->o, path);
    bool created = d && d->created;

    if (doc_readonly(path)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    if (d)
        docmem_lose_name(d, fixed || created || !d->rejected_seen);
    if (!fixed && !created)
        remember(dir->o, path);
    if (fixed) {
        doc_hide(dir->o, path, true);
        fuse_reply_err(req, 0);
    } else if (created) {
        fuse_reply_err(req, 0);
    } else {
        courier_doc_remove(fs.c, dir->o, path, call_done,
                           call_new(reply_when_done, req));
    }
}

static void unlink_rejected(struct oid o, const char *path)
{
    AUTO_FREE char *base = xmemdup0(path, strlen(path) - strlen(".rejected"));
    struct docfile *d = docmem_find(o, base);

    if (!d)
        return;
    doc_unreject(d);
    docmem_settle(d);
}

void doc_unlink(fuse_req_t req, struct node *dir, const char *name)
{
    AUTO_FREE char *path = NULL;
    struct docfile *d;
    struct key k;
    int r = dir_find(dir, name, &k, &path);

    if (r) {
        fuse_reply_err(req, -r);
        return;
    }
    d = path ? docmem_find(dir->o, path) : NULL;
    if (k.row->kind == K_REJECTED) {
        unlink_rejected(dir->o, path);
        fuse_reply_err(req, 0);
    } else if (k.row->kind == K_DOCLINK ||
               (k.row->kind == K_DOC && d && d->kind == DOC_SCRATCH)) {
        docmem_remove(d);
        fuse_reply_err(req, 0);
    } else if (k.row->kind == K_DOC) {
        unlink_stored(req, dir, path, k.row != row_get(R_DOCFILE));
    } else {
        fuse_reply_err(req, row_is_dir(k.row) ? EISDIR : EPERM);
    }
}

/* ---- rename ---- */

struct moving {
    fuse_req_t req;
    struct docfile *d; /* what is saved under its new name */
    struct oid o;      /* where it came from */
    char *from;
    enum target source;
};

static void moving_free(struct moving *m)
{
    docmem_unref(m->d);
    free(m->from);
    free(m);
}

/* the text is saved under the new name: the old one goes */
static void moved(void *arg, int code)
{
    struct moving *m = arg;
    struct docfile *old = docmem_find(m->o, m->from);
    bool stored = m->source == T_STORED && !(old && old->created);

    if (!code && (m->d->writers || (old && old->writers)))
        docmem_lose_name(m->d, true); /* its writers' is what was replaced */
    if (!code && old && old->writers && m->source != T_FIXED) {
        docmem_lands(old, m->d);
        old = NULL;
    }
    if (code) {
        reply_code(m->req, code == -EINVAL ? -EBADMSG : code);
    } else if (stored) {
        courier_doc_remove(fs.c, m->o, m->from, call_done,
                           call_new(reply_when_done, m->req));
    } else {
        if (m->source == T_FIXED)
            doc_hide(m->o, m->from, true);
        else if (old)
            docmem_remove(old);
        reply_code(m->req, 0);
    }
    moving_free(m);
}

static int text_of(struct oid o, const char *path, struct buf *out)
{
    struct docfile *d = docmem_find(o, path);

    if (d && (d->kind == DOC_SCRATCH || d->created)) {
        buf_add(out, d->draft.p, d->draft.n);
        return 0;
    }
    if (doc_secret(path))
        return -EPERM;
    return doc_load(o, path, out);
}

/* is it what was set aside from there, untouched? */
static bool comes_back(const struct docfile *src, struct oid o,
                       const char *path)
{
    return src && src->aside && !src->writes && oid_same(src->o, o) &&
           !strcmp(src->aside, path);
}

static void save_as(fuse_req_t req, struct node *from, const char *path,
                    enum target source, struct node *to, const char *newpath)
{
    struct docfile *src = docmem_find(from->o, path);
    AUTO_BUF struct buf text = {0};
    struct moving *m;
    unsigned mode = 0;
    int r = courier_doc_may(fs.c, to->o, newpath, NULL);

    if (!r)
        r = text_of(from->o, path, &text);
    if (r) {
        reply_code(req, r);
        return;
    }
    if (doc_keeps_mode(newpath))
        mode = src && src->mode & 0100 ? 0700 : 0600;
    m = xcalloc(1, sizeof(*m));
    m->req = req;
    m->o = from->o;
    m->from = xstrdup(path);
    m->source = source;
    m->d = docmem_get(to->o, newpath);
    docmem_ref(m->d);
    doc_save(m->d, &text, mode, comes_back(src, to->o, newpath), moved, m);
    buf_wipe(&text);
}

/* a document's text goes on as a scratch file; its name comes back after a
 * moment if nothing else takes it */
static void set_aside(fuse_req_t req, struct node *from, const char *path,
                      bool fixed, struct node *to, const char *newpath)
{
    AUTO_BUF struct buf text = {0};
    struct docfile *d;
    int r = text_of(from->o, path, &text);

    if (r) {
        reply_code(req, r);
        return;
    }
    d = scratch_new(to->o, newpath, 0600, to->row->kind != K_DOCDIR);
    buf_add(&d->draft, text.p, text.n);
    buf_wipe(&text);
    if (oid_same(from->o, to->o))
        d->aside = xstrdup(path);
    d = docmem_find(from->o, path);
    if (d && d->created)
        docmem_remove(d);
    else
        doc_hide(from->o, path, fixed);
    fuse_reply_err(req, 0);
}

static void rename_scratch(fuse_req_t req, struct docfile *d, struct node *to,
                           const char *newpath)
{
    struct docfile *old = docmem_find(to->o, newpath);

    if (old && old != d)
        docmem_remove(old);
    free(d->path);
    d->path = xstrdup(newpath);
    d->o = to->o;
    d->fixed = to->row->kind != K_DOCDIR;
    fuse_reply_err(req, 0);
}

struct renaming {
    fuse_req_t req;
    struct oid o;
    char *from, *to;
    bool back; /* no other text than what is in force */
};

/* was it the text that can't be there? */
static bool refuses(struct oid o, const char *from, const char *to,
                    const struct err *e)
{
    AUTO_BUF struct buf text = {0};

    if (doc_load(o, from, &text) ||
        courier_doc_check(fs.c, o, to, buf_str(&text), text.n, false, NULL) !=
            -EINVAL)
        return false;
    doc_reject(docmem_get(o, to), e, &text);
    return true;
}

static void renamed(int code, const struct err *e, const char *made, void *arg)
{
    struct renaming *n = arg;

    (void)made;
    if (!code) {
        doc_show(n->o, n->to, n->back);
        node_moved(n->o, K_DOCDIR, n->from, n->to);
        if (strcmp(n->from, n->to))
            docmem_moved(n->o, n->from, n->to);
    } else if (refuses(n->o, n->from, n->to, e)) {
        code = -EBADMSG;
    }
    reply_code(n->req, code);
    free(n->from);
    free(n->to);
    free(n);
}

static void rename_stored(fuse_req_t req, struct node *from, const char *path,
                          struct node *to, const char *newpath)
{
    struct docfile *over = docmem_find(to->o, newpath);
    AUTO_BUF struct buf text = {0};
    struct renaming *n;

    if (!doc_none_below(to->o, newpath)) {
        fuse_reply_err(req, ENOTEMPTY);
        return;
    }
    n = xcalloc(1, sizeof(*n));
    if (over && over->has_rejected && !doc_load(from->o, path, &text))
        n->back = doc_puts_back(over, &text, false);
    remember(from->o, path);
    n->req = req;
    n->o = from->o;
    n->from = xstrdup(path);
    n->to = xstrdup(newpath);
    courier_doc_rename(fs.c, from->o, path, newpath, call_done,
                       call_new(renamed, n));
}

/* a symlink is an editor's lock or the choice of a version, no document */
static void rename_link(fuse_req_t req, struct docfile *d, struct node *to,
                        const char *newname, const char *newpath,
                        enum target t)
{
    if (to->row == row_get(R_LEARNINGS) && !strcmp(newname, "active")) {
        courier_link_set(fs.c, to->o, d->target, call_done,
                         call_new(reply_when_done, req));
        docmem_remove(d);
    } else if (t == T_SCRATCH) {
        rename_scratch(req, d, to, newpath);
    } else {
        refuse_name(req, to, newname, -EPERM, "no symlink can be made here");
    }
}

static enum target source_of(const struct key *k, const struct docfile *d)
{
    if (k->row->kind == K_DOCLINK || (d && d->kind != DOC_STORED))
        return T_SCRATCH;
    if (k->row == row_get(R_DOCFILE) || k->row == row_get(R_DOCSUB))
        return T_STORED;
    return k->row->kind == K_DOC ? T_FIXED : T_NONE;
}

void doc_rename(fuse_req_t req, struct node *from, const char *name,
                struct node *to, const char *newname)
{
    AUTO_FREE char *path = NULL;
    AUTO_FREE char *newpath = NULL;
    enum target t = target_of(to, newname, &newpath);
    enum target s;
    struct docfile *d;
    struct key k;
    int r = dir_find(from, name, &k, &path);

    if (r) {
        fuse_reply_err(req, -r);
        return;
    }
    d = path ? docmem_find(from->o, path) : NULL;
    s = source_of(&k, d);
    if (d && d->kind == DOC_LINK)
        rename_link(req, d, to, newname, newpath, t);
    else if (s == T_NONE || t == T_NONE)
        refuse_name(req, from, name, -EPERM,
                    s == T_NONE ? "that can't be renamed"
                                : "nothing can be moved there");
    else if (s == T_SCRATCH && t == T_SCRATCH)
        rename_scratch(req, d, to, newpath);
    else if (row_is_dir(k.row) && !oid_same(from->o, to->o))
        refuse_name(req, from, name, -EPERM,
                    "a directory can't be moved there: copy it");
    else if (row_is_dir(k.row) ||
             (s == T_STORED && t == T_STORED && oid_same(from->o, to->o) &&
              !(d && d->created)))
        rename_stored(req, from, path, to, newpath);
    else if (t == T_SCRATCH)
        set_aside(req, from, path, s == T_FIXED, to, newpath);
    else
        save_as(req, from, path, s, to, newpath);
}

/* ---- directories and links ---- */

void doc_symlink(fuse_req_t req, struct node *dir, const char *name,
                 const char *target)
{
    bool learn = dir->row == row_get(R_LEARNINGS);
    AUTO_FREE char *path = path_join(dir->path, name);
    struct docfile *d;

    if (learn && !strcmp(name, "active")) {
        courier_link_set(fs.c, dir->o, target, call_done,
                         entry_call(req, dir, name));
        return;
    }
    if (!dir_holds_docs(dir->row) || !doc_scratch_name(name) ||
        strlen(target) > 4000 || docmem_full(0)) {
        refuse_name(req, dir, name, -EPERM, "no symlink can be made here");
        return;
    }
    d = scratch_new(dir->o, path, 0600, dir->row->kind != K_DOCDIR);
    d->kind = DOC_LINK;
    d->target = xstrdup(target);
    reply_entry_of(req, dir, name);
}

void doc_readlink(fuse_req_t req, struct node *n)
{
    struct docfile *d = docmem_find(n->o, n->path);

    if (d && d->target)
        fuse_reply_readlink(req, d->target);
    else
        fuse_reply_err(req, ESTALE);
}

void doc_mkdir(fuse_req_t req, struct node *dir, const char *name)
{
    AUTO_FREE char *path = path_join(dir->path, name);

    if (dir->row->kind != K_DOCDIR || doc_readonly(path)) {
        refuse_name(req, dir, name, -EPERM, "no directory can be made here");
        return;
    }
    courier_doc_mkdir(fs.c, dir->o, path, call_done,
                      entry_call(req, dir, name));
}

void doc_rmdir(fuse_req_t req, struct node *dir, const char *name)
{
    AUTO_FREE char *path = NULL;
    struct key k;
    int r = dir_find(dir, name, &k, &path);

    if (r)
        fuse_reply_err(req, -r);
    else if (!row_is_dir(k.row))
        fuse_reply_err(req, ENOTDIR);
    else if (k.row != row_get(R_DOCSUB))
        fuse_reply_err(req, EPERM);
    else if (!doc_none_below(dir->o, path))
        fuse_reply_err(req, ENOTEMPTY);
    else
        courier_doc_remove(fs.c, dir->o, path, call_done,
                           call_new(reply_when_done, req));
}
