#include "fs/document.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { PINNED_MAX = 16 << 20, SCRATCH_MAX = 16 << 20 };

/* ---- texts ---- */

int doc_load(struct oid o, const char *path, struct buf *out)
{
    int r = courier_doc_read(fs.c, o, path, 0, PINNED_MAX + 1, out);

    if (!r && out->n > PINNED_MAX)
        r = -EFBIG;
    return r;
}

/* the draft begins as what is stored; a key is never read back */
static int draft_begin(struct docfile *d)
{
    int r = 0;

    if (d->drafting || d->kind == DOC_SCRATCH)
        return 0;
    buf_wipe(&d->draft);
    if (!d->created && !doc_secret(d->path))
        r = doc_load(d->o, d->path, &d->draft);
    if (r == -ENOENT)
        r = 0;
    d->drafting = !r;
    return r;
}

static void draft_empty(struct docfile *d)
{
    buf_clear(&d->draft);
    d->writes++;
    d->mtime_ns = now_ns();
    if (d->kind == DOC_SCRATCH)
        return;
    d->drafting = true;
    d->emptied = true;
}

static void draft_drop(struct docfile *d)
{
    if (d->kind == DOC_SCRATCH)
        return;
    buf_wipe(&d->draft);
    d->drafting = d->dirty = d->emptied = false;
}

static void draft_resize(struct docfile *d, size_t n)
{
    static const char zeros[4096];

    while (d->draft.n < n) {
        size_t more = n - d->draft.n;

        buf_add(&d->draft, zeros, more < 4096 ? more : 4096);
    }
    d->draft.n = n;
    if (d->draft.p)
        d->draft.p[n] = 0;
    d->writes++;
    d->mtime_ns = now_ns();
}

static size_t size_limit(const struct docfile *d)
{
    if (d->kind == DOC_SCRATCH)
        return SCRATCH_MAX;
    return (size_t)courier_doc_limit(d->path);
}

static char *doc_words(const struct docfile *d)
{
    AUTO_FREE char *up = object_words(d->o);

    return xasprintf("%s%s", up, d->path);
}

/* ---- saving ---- */

struct saving {
    struct docfile *d;
    unsigned writes;
    bool back;       /* no other text than what is in force */
    struct buf text; /* for NAME.rejected */
    doc_after after;
    void *arg;
};

/* refused for what it says, not for want of room: it is kept to be read */
static bool keeps_text(int code)
{
    return code == -EINVAL || code == -EBUSY || code == -EPERM ||
           code == -EFBIG;
}

struct refusal {
    struct docfile *d;
    doc_after after;
    void *arg;
    int code;
};

static void refused(int code, const struct err *e, const char *made, void *arg)
{
    struct refusal *f = arg;

    (void)code;
    (void)e;
    (void)made;
    f->after(f->arg, f->code);
    docmem_unref(f->d);
    free(f);
}

/* what was in force is so, and there, before anybody hears of the refusal */
static void doc_refused(struct docfile *d, int code, doc_after after,
                        void *arg)
{
    struct refusal *f = xcalloc(1, sizeof(*f));
    struct courier_doc st;

    f->d = d;
    f->after = after;
    f->arg = arg;
    f->code = code;
    docmem_ref(d);
    d->away_until = 0;
    if (d->has_was && courier_doc_stat(fs.c, d->o, d->path, &st) == -ENOENT)
        courier_doc_put_back(fs.c, d->o, d->path, buf_str(&d->was), d->was.n,
                             &d->was_attr, call_done, call_new(refused, f));
    else
        refused(0, NULL, NULL, f);
}

static void saved(int code, const struct err *e, const char *made, void *arg)
{
    struct saving *s = arg;
    struct docfile *d = s->d;

    (void)made;
    if (d->writes == s->writes)
        d->dirty = d->emptied = false;
    d->created = false;
    if (!code) {
        doc_show(d->o, d->path, s->back);
        s->after(s->arg, 0);
    } else {
        struct docfile *named = docmem_get(d->o, d->path);

        if (keeps_text(code))
            doc_reject(named, e, &s->text);
        doc_refused(named, code, s->after, s->arg);
    }
    buf_wipe(&s->text);
    free(s);
    docmem_unref(d);
}

/* is that text in force, so that there is nothing to save? */
static bool in_force(const struct docfile *d, unsigned mode)
{
    struct courier_doc st;

    return !courier_doc_stat(fs.c, d->o, d->path, &st) &&
           (!mode || !st.mode || mode == st.mode);
}

void doc_save(struct docfile *d, const struct buf *text, unsigned mode,
              bool undone, doc_after after, void *arg)
{
    bool back = doc_puts_back(d, text, undone);
    struct saving *s;

    if (back && in_force(d, mode)) {
        d->away_until = 0;
        d->dirty = d->emptied = d->created = false;
        after(arg, 0);
        return;
    }
    s = xcalloc(1, sizeof(*s));
    s->d = d;
    s->back = back;
    s->writes = d->writes;
    buf_add(&s->text, text->p, text->n);
    s->after = after;
    s->arg = arg;
    docmem_ref(d);
    if (back && d->has_was) /* it comes back as it was */
        courier_doc_put_back(fs.c, d->o, d->path, buf_str(&s->text), s->text.n,
                             &d->was_attr, call_done, call_new(saved, s));
    else
        courier_doc_save(fs.c, d->o, d->path, buf_str(&s->text), s->text.n,
                         mode, call_done, call_new(saved, s));
}

static void after_flush(void *req, int code)
{
    reply_code(req, code);
}

static void after_fsync(void *req, int code)
{
    reply_code(req, code == -EINVAL ? -EBADMSG : code);
}

struct late {
    struct late *next;
    fuse_req_t req;
    struct node *dir;
    char *name;
};

bool doc_lookup_waits(fuse_req_t req, struct node *dir, const char *name)
{
    AUTO_FREE char *path = path_join(dir->path, name);
    struct docfile *d =
        dir_holds_docs(dir->row) ? docmem_find(dir->o, path) : NULL;
    struct late *l;

    if (!d || !d->ending)
        return false;
    l = xcalloc(1, sizeof(*l));
    l->req = req;
    l->dir = dir;
    node_ref(dir);
    l->name = xstrdup(name);
    l->next = d->late;
    d->late = l;
    return true;
}

static void after_end(void *arg, int code)
{
    struct docfile *d = arg;

    (void)code;
    d->ending--;
    while (!d->ending && d->late) {
        struct late *l = d->late;

        d->late = l->next;
        reply_entry_of(l->req, l->dir, l->name);
        node_unref(l->dir);
        free(l->name);
        free(l);
    }
    docmem_unref(d);
}

/* ---- open files ---- */

struct handle *doc_handle(fuse_req_t req, struct node *n, struct docfile *d,
                          struct fuse_file_info *fi)
{
    struct handle *h = handle_new(n, fi);

    h->doc = d;
    h->pid = fuse_req_ctx(req)->pid;
    if (d) {
        docmem_ref(d);
        d->drop_at = 0;
        d->writers += handle_writes(h);
        if (fi->flags & O_TRUNC && handle_writes(h))
            draft_empty(d);
    }
    fi->direct_io = 1;
    return h;
}

static void doc_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
    struct docfile *d = docmem_find(n->o, n->path);
    bool writes = (fi->flags & O_ACCMODE) != O_RDONLY;
    struct err e = {0};
    int r = 0;

    if (d && d->kind == DOC_STORED && !writes)
        d = NULL;
    if (writes && !(d && d->kind == DOC_SCRATCH)) {
        if (doc_readonly(n->path))
            r = err_set(&e, EROFS, "the backend alone writes this");
        else
            r = courier_doc_may(fs.c, n->o, n->path, &e);
        if (r) {
            refuse(req, n, r, e.text);
            return;
        }
        d = docmem_get(n->o, n->path);
        d->fixed = n->row != row_get(R_DOCFILE);
    }
    handle_reply(req, doc_handle(req, n, d, fi), fi);
}

/* a reader keeps the version it began with, unless that is too large */
static void read_stored(fuse_req_t req, struct handle *h, size_t size,
                        off_t off)
{
    AUTO_BUF struct buf part = {0};
    int r = 0;

    if (!h->ready) {
        r = doc_load(h->n->o, h->n->path, &h->text);
        h->ready = !r;
    }
    if (r == -EFBIG) {
        buf_free(&h->text);
        r = courier_doc_read(fs.c, h->n->o, h->n->path, off, size, &part);
        if (!r) {
            fuse_reply_buf(req, part.p, part.n);
            return;
        }
    }
    if (r)
        fuse_reply_err(req, r == -ENOENT ? ESTALE : -r);
    else
        reply_bytes(req, &h->text, size, off);
}

static void doc_read(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
    struct docfile *d = h->doc ? h->doc : docmem_find(h->n->o, h->n->path);

    if (h->doc && (d->drafting || d->kind == DOC_SCRATCH))
        reply_bytes(req, &d->draft, size, off);
    else if (d && d->created)
        fuse_reply_buf(req, NULL, 0);
    else
        read_stored(req, h, size, off);
}

static bool judged_by_line(const struct docfile *d)
{
    return d->kind == DOC_STORED && !d->gone && !doc_secret(d->path) &&
           strncmp(d->path, "home/", 5) && strncmp(d->path, "skills/", 7) &&
           strncmp(d->path, "commands/", 9);
}

/* a line is wrong: nothing that came through this open file is saved */
static void spoil(fuse_req_t req, struct handle *h, int code,
                  const struct err *e)
{
    struct docfile *d = h->doc;
    AUTO_FREE char *path = doc_words(d);
    bool stored = d->kind == DOC_STORED && !d->gone;

    if (keeps_text(code) && stored)
        doc_reject(d, e, &d->draft);
    courier_error(fs.c, d->o, path, e->text);
    h->spoilt = code;
    if (d->writers == 1) {
        draft_drop(d);
        d->created = false;
    } else {
        d->dirty = false;
    }
    if (stored)
        doc_refused(d, code, after_flush, req);
    else
        reply_code(req, code);
}

static void doc_write(fuse_req_t req, struct handle *h, const char *p,
                      size_t n, off_t off, const struct fuse_file_info *fi)
{
    struct docfile *d = h->doc;
    struct err e = {0};
    size_t at;
    int r;

    h->writer = fi->lock_owner;
    if (h->spoilt) {
        reply_code(req, code_again(h->spoilt));
        return;
    }
    r = draft_begin(d);
    if (r) {
        reply_code(req, r);
        return;
    }
    at = h->flags & O_APPEND ? d->draft.n : (size_t)off;
    if (off < 0 || at > size_limit(d) || n > size_limit(d) - at) {
        err_set(&e, EFBIG, "too large: it may have %zu bytes", size_limit(d));
        spoil(req, h, -EFBIG, &e);
        return;
    }
    if (docmem_full(n)) {
        err_set(&e, ENOSPC, "too much is being written at once");
        spoil(req, h, -ENOSPC, &e);
        return;
    }
    if (at + n > d->draft.n)
        draft_resize(d, at + n);
    memcpy(d->draft.p + at, p, n);
    d->writes++;
    d->mtime_ns = now_ns();
    d->dirty = h->unsaved = d->kind == DOC_STORED;
    if (at + n == d->draft.n && judged_by_line(d))
        r = courier_doc_check(fs.c, d->o, d->path, d->draft.p, d->draft.n,
                              true, &e);
    if (r)
        spoil(req, h, r, &e);
    else
        fuse_reply_write(req, n);
}

/* saves the draft if there is something in it that is not saved yet */
static void commit(fuse_req_t req, struct handle *h, doc_after after)
{
    struct docfile *d = h->doc;

    if (h->spoilt)
        reply_code(req, code_again(h->spoilt));
    else if (!d || d->kind != DOC_STORED || d->gone || !d->dirty)
        fuse_reply_err(req, 0);
    else
        doc_save(d, &d->draft, d->mode, false, after, req);
    h->unsaved = false;
}

static void doc_flush(fuse_req_t req, struct handle *h,
                      const struct fuse_file_info *fi)
{
    /* who closes it without having written saves no other's half: another
     * open file of it, or a child that merely inherited this one */
    if (h->doc && !h->spoilt &&
        (!h->unsaved || (h->writer && h->writer != fi->lock_owner)))
        fuse_reply_err(req, 0);
    else
        commit(req, h, after_flush);
}

static void doc_fsync(fuse_req_t req, struct handle *h)
{
    commit(req, h, after_fsync);
}

static void doc_release(struct handle *h)
{
    struct docfile *d = h->doc;

    if (!d)
        return;
    d->writers -= handle_writes(h);
    if (handle_writes(h) && !d->writers && d->kind == DOC_STORED) {
        if (!d->gone && !h->spoilt && (d->dirty || d->emptied)) {
            docmem_ref(d);
            d->ending++;
            doc_save(d, &d->draft, d->mode, false, after_end, d);
        } else {
            d->created = false;
        }
        draft_drop(d);
    }
    docmem_unref(d);
}

const struct file_ops doc_ops = {
    .open = doc_open,
    .read = doc_read,
    .write = doc_write,
    .flush = doc_flush,
    .fsync = doc_fsync,
    .release = doc_release,
};

/* ---- NAME.rejected ---- */

static void rejected_open(fuse_req_t req, struct node *n,
                          struct fuse_file_info *fi)
{
    size_t m = strlen(n->path) - strlen(".rejected");
    AUTO_FREE char *base = xmemdup0(n->path, m);
    struct docfile *d = docmem_find(n->o, base);
    struct handle *h;

    if ((fi->flags & O_ACCMODE) != O_RDONLY || !d || !d->has_rejected) {
        fuse_reply_err(req, d && d->has_rejected ? EROFS : ESTALE);
        return;
    }
    h = handle_new(n, fi);
    buf_add(&h->text, d->rejected.p, d->rejected.n);
    fi->direct_io = 1;
    handle_reply(req, h, fi);
}

static void rejected_read(fuse_req_t req, struct handle *h, size_t size,
                          off_t off)
{
    reply_bytes(req, &h->text, size, off);
}

const struct file_ops rejected_ops = {
    .open = rejected_open,
    .read = rejected_read,
};

/* ---- attributes ---- */

/* the kernel doesn't say through which open file it asks, only for whom */
void doc_getattr(fuse_req_t req, struct node *n, struct handle *h)
{
    struct docfile *d = docmem_find(n->o, n->path);

    if (!h && d && d->drafting)
        h = handle_writing(n, fuse_req_ctx(req)->pid);
    reply_attr(req, n, h);
}

struct setting {
    fuse_req_t req;
    struct node *n;
};

static void set_after(void *arg, int code)
{
    struct setting *s = arg;

    if (code)
        reply_code(s->req, code);
    else
        reply_attr(s->req, s->n, NULL);
    node_unref(s->n);
    free(s);
}

static void set_done(int code, const struct err *e, const char *made,
                     void *arg)
{
    (void)e;
    (void)made;
    set_after(arg, code);
}

static struct setting *setting_new(fuse_req_t req, struct node *n)
{
    struct setting *s = xcalloc(1, sizeof(*s));

    s->req = req;
    s->n = n;
    node_ref(n);
    return s;
}

/* truncate(2) by name: a whole save */
static void truncate_stored(fuse_req_t req, struct node *n, size_t size)
{
    struct docfile *d;
    struct err e = {0};
    int r = courier_doc_may(fs.c, n->o, n->path, &e);

    if (doc_readonly(n->path))
        r = err_set(&e, EROFS, "the backend alone writes this");
    if (r) {
        refuse(req, n, r, e.text);
        return;
    }
    d = docmem_get(n->o, n->path);
    docmem_ref(d);
    r = draft_begin(d);
    if (!r && size > size_limit(d))
        r = -EFBIG;
    if (r) {
        reply_code(req, r);
    } else {
        draft_resize(d, size);
        doc_save(d, &d->draft, 0, false, set_after, setting_new(req, n));
    }
    if (!d->writers)
        draft_drop(d);
    docmem_unref(d);
}

/* true: answered */
static bool set_size(fuse_req_t req, struct node *n, struct handle *h,
                     size_t size)
{
    struct docfile *d = h && h->doc ? h->doc : docmem_find(n->o, n->path);
    int r;

    if (!d || (!h && d->kind == DOC_STORED && !d->writers)) {
        truncate_stored(req, n, size);
        return true;
    }
    r = draft_begin(d);
    if (!r && size > size_limit(d))
        r = -EFBIG;
    if (!r && size != d->draft.n)
        draft_resize(d, size);
    if (r) {
        reply_code(req, r);
        return true;
    }
    d->dirty = d->kind == DOC_STORED;
    if (h) {
        h->unsaved = d->dirty;
        h->writer = 0;
    }
    return false;
}

void doc_setattr(fuse_req_t req, struct node *n, struct handle *h,
                 const struct stat *st, int to_set)
{
    struct docfile *d = h && h->doc ? h->doc : docmem_find(n->o, n->path);
    unsigned mode = st->st_mode & 0100 ? 0700 : 0600;

    if (n->row->kind != K_DOC) {
        reply_attr(req, n, h);
        return;
    }
    if (to_set & FUSE_SET_ATTR_SIZE &&
        set_size(req, n, h, (size_t)st->st_size))
        return;
    if (to_set & FUSE_SET_ATTR_MODE) {
        if (d && (d->kind == DOC_SCRATCH || d->created || d->writers))
            d->mode = mode;
        if (doc_keeps_mode(n->path) &&
            !(d && (d->kind == DOC_SCRATCH || d->created))) {
            courier_doc_chmod(fs.c, n->o, n->path, mode, call_done,
                              call_new(set_done, setting_new(req, n)));
            return;
        }
    }
    doc_getattr(req, n, h);
}
