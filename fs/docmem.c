#include "fs/document.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include "base/text.h"

static const int64_t away_ms = 2000;
static const int64_t scratch_ms = 600000;
enum { SCRATCH_FILES = 2000, SCRATCH_BYTES = 128 << 20 };

static struct docfile *docs, **docs_tail = &docs;
static int64_t last_seq;
static size_t doc_count;

/* ---- names ---- */

bool doc_scratch_name(const char *name)
{
    static const char *const forms[] = {
        "4913",      "*~",      ".*.sw?",   ".#*",      "#*#",   "sed??????",
        "*.lock",    "*.tmp",   "*.orig",   "*.rej",    "*.new", "*.bak",
        ".*.??????", ".*.swpx", "Cu??????", "XX??????",
    };

    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        if (!fnmatch(forms[i], name, 0))
            return true;
    return false;
}

static bool below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

bool doc_secret(const char *path)
{
    return below(path, "keys") || below(path, "secrets");
}

bool doc_readonly(const char *path)
{
    const char *old = strstr(path, "/.versions");

    return below(path, "salvage") || below(path, "learnings/versions") ||
           (old && (!old[10] || old[10] == '/'));
}

bool doc_keeps_mode(const char *path)
{
    return below(path, "home") || below(path, "skills");
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool in_dir(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    if (!n)
        return !strchr(path, '/');
    return !strncmp(path, dir, n) && path[n] == '/' &&
           !strchr(path + n + 1, '/');
}

/* ---- the table ---- */

struct docfile *docmem_find(struct oid o, const char *path)
{
    for (struct docfile *d = docs; d; d = d->next)
        if (d->named && oid_same(d->o, o) && !strcmp(d->path, path))
            return d;
    return NULL;
}

struct docfile *docmem_get(struct oid o, const char *path)
{
    struct docfile *d = docmem_find(o, path);

    if (d)
        return d;
    d = xcalloc(1, sizeof(*d));
    d->o = o;
    d->path = xstrdup(path);
    d->named = true;
    d->seq = ++last_seq;
    d->mtime_ns = now_ns();
    *docs_tail = d;
    docs_tail = &d->next;
    doc_count++;
    return d;
}

static void docfile_free(struct docfile *d)
{
    struct docfile **at = &docs;

    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    if (!*at)
        docs_tail = at;
    doc_count--;
    buf_wipe(&d->draft);
    buf_wipe(&d->rejected);
    buf_wipe(&d->was);
    free(d->target);
    free(d->aside);
    free(d->path);
    free(d);
}

void docmem_settle(struct docfile *d)
{
    if (d->refs || (d->named && (d->kind != DOC_STORED || d->away_until ||
                                 d->created || d->has_rejected || d->has_was)))
        return;
    docfile_free(d);
}

void docmem_ref(struct docfile *d)
{
    d->refs++;
}

void docmem_unref(struct docfile *d)
{
    d->refs--;
    if (!d->refs && d->kind == DOC_SCRATCH)
        d->drop_at = now_ms() + scratch_ms;
    docmem_settle(d);
}

void docmem_remove(struct docfile *d)
{
    d->named = false;
    d->gone = true;
    docmem_settle(d);
}

static void move_reason(struct docfile *from, struct docfile *to)
{
    if (!from->has_rejected)
        return;
    buf_wipe(&to->rejected);
    to->rejected = from->rejected;
    to->rejected_ns = from->rejected_ns;
    to->rejected_seen = from->rejected_seen;
    to->has_rejected = true;
    from->rejected = (struct buf){0};
    from->has_rejected = false;
}

void docmem_lose_name(struct docfile *d, bool keep)
{
    if (keep && d->has_rejected) {
        d->named = false;
        move_reason(d, docmem_get(d->o, d->path));
    }
    docmem_remove(d);
}

/* another name, which nobody else has then */
static void set_name(struct docfile *d, struct oid o, char *path)
{
    struct docfile *at = docmem_find(o, path);

    if (at && at != d) {
        move_reason(at, d);
        docmem_remove(at);
    }
    free(d->path);
    d->path = path;
    d->o = o;
}

/* why a text was refused there, and what was removed there, stays there */
static void leave_behind(struct docfile *d)
{
    struct docfile *left;

    if (!d->has_rejected && !d->has_was)
        return;
    d->named = false;
    left = docmem_get(d->o, d->path);
    d->named = true;
    move_reason(d, left);
    left->was = d->was;
    left->was_attr = d->was_attr;
    left->was_until = d->was_until;
    left->has_was = d->has_was;
    d->was = (struct buf){0};
    d->has_was = false;
}

void docmem_moved(struct oid o, const char *from, const char *to)
{
    struct docfile *at = docmem_find(o, to);
    size_t n = strlen(from);

    if (at && (at->refs || at->created))
        docmem_lose_name(at, true);
    for (struct docfile *d = docs; d; d = d->next) {
        if (!d->named || !oid_same(d->o, o) || !below(d->path, from))
            continue;
        if (!d->path[n] && !d->refs)
            continue;
        if (!d->path[n])
            leave_behind(d);
        set_name(d, o, xasprintf("%s%s", to, d->path + n));
    }
}

void docmem_lands(struct docfile *d, const struct docfile *at)
{
    set_name(d, at->o, xstrdup(at->path));
    d->kind = DOC_STORED;
    d->fixed = at->fixed;
    d->drafting = true;
    d->created = d->dirty = d->emptied = false;
    d->drop_at = 0;
}

bool docmem_full(size_t more)
{
    size_t bytes = more;

    for (struct docfile *d = docs; d; d = d->next)
        bytes += d->draft.n + d->rejected.n + d->was.n;
    return doc_count > SCRATCH_FILES || bytes > SCRATCH_BYTES;
}

void doc_reject(struct docfile *d, const struct err *e, const struct buf *b)
{
    char when[32];

    buf_wipe(&d->rejected);
    time_rfc3339(now_ms(), when);
    buf_addf(&d->rejected, "# refused %s\n# ", when);
    for (const char *p = e->text; *p; p++) {
        buf_addc(&d->rejected, *p);
        if (*p == '\n')
            buf_adds(&d->rejected, "# ");
    }
    buf_addc(&d->rejected, '\n');
    if (b && !doc_secret(d->path))
        buf_add(&d->rejected, b->p, b->n);
    d->has_rejected = true;
    d->rejected_seen = false;
    d->rejected_ns = now_ns();
}

void doc_unreject(struct docfile *d)
{
    d->has_rejected = false;
    buf_wipe(&d->rejected);
}

static bool same_text(const struct buf *a, const struct buf *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n));
}

bool doc_puts_back(struct docfile *d, const struct buf *text, bool undone)
{
    AUTO_BUF struct buf old = {0};

    if (!d->has_rejected || (d->rejected_seen && !undone) ||
        doc_secret(d->path))
        return false;
    if (!doc_load(d->o, d->path, &old))
        return same_text(&old, text);
    return d->has_was && same_text(&d->was, text);
}

void doc_removed(struct oid o, const char *path, struct buf *text,
                 const struct courier_doc *attr)
{
    struct docfile *d = docmem_get(o, path);

    buf_wipe(&d->was);
    d->was = *text;
    *text = (struct buf){0};
    d->was_attr = *attr;
    d->was_until = now_ms() + away_ms;
    d->has_was = true;
}

static void forget_was(struct docfile *d)
{
    d->has_was = false;
    d->was_until = 0;
    buf_wipe(&d->was);
}

void doc_hide(struct oid o, const char *path, bool fixed)
{
    struct docfile *d = docmem_get(o, path);

    d->fixed = fixed;
    d->away_until = now_ms() + away_ms;
}

void doc_show(struct oid o, const char *path, bool put_back)
{
    struct docfile *d = docmem_find(o, path);

    if (!d)
        return;
    d->away_until = 0;
    forget_was(d);
    if (!put_back)
        doc_unreject(d);
    docmem_settle(d);
}

bool doc_hidden(struct oid o, const char *path)
{
    struct docfile *d = docmem_find(o, path);

    return d && d->away_until && d->away_until > now_ms();
}

bool doc_in_memory(struct oid o, const char *path)
{
    struct docfile *d = docmem_find(o, path);

    return d && (d->kind != DOC_STORED || d->created);
}

static bool list_one(struct docfile *d, int64_t after, doc_memory_fn fn,
                     void *arg)
{
    const char *name = base_name(d->path);
    bool alone = d->kind != DOC_STORED || (d->created && !d->fixed);

    if (alone && d->seq * 2 > after) {
        struct key k = {
            .row = row_get(d->kind == DOC_LINK ? R_DOCLINK : R_DOCFILE),
            .o = d->o,
            .path = d->path};

        if (!fn(arg, d->seq * 2, name, &k))
            return false;
    }
    if (d->has_rejected && d->seq * 2 + 1 > after) {
        AUTO_FREE char *path = xasprintf("%s.rejected", d->path);
        struct key k = {.row = row_get(R_REJECTED), .o = d->o, .path = path};

        d->rejected_seen = true;
        return fn(arg, d->seq * 2 + 1, base_name(path), &k);
    }
    return true;
}

bool doc_list_memory(struct oid o, const char *dir, int64_t after,
                     doc_memory_fn fn, void *arg)
{
    for (struct docfile *d = docs; d; d = d->next)
        if (d->named && oid_same(d->o, o) && in_dir(d->path, dir) &&
            !list_one(d, after, fn, arg))
            return false;
    return true;
}

static bool stop_at_first(void *arg, int64_t seq, const char *name,
                          const struct key *k)
{
    (void)arg;
    (void)seq;
    (void)name;
    (void)k;
    return false;
}

bool doc_none_below(struct oid o, const char *dir)
{
    return doc_list_memory(o, dir, 0, stop_at_first, NULL);
}

/* the document whose refused text has that path, or NULL */
static struct docfile *rejected_of(struct oid o, const char *path)
{
    static const char end[] = ".rejected";
    size_t n = strlen(path), m = sizeof(end) - 1;
    AUTO_FREE char *base = NULL;
    struct docfile *d;

    if (n <= m || strcmp(path + n - m, end))
        return NULL;
    base = xmemdup0(path, n - m);
    d = docmem_find(o, base);
    return d && d->has_rejected ? d : NULL;
}

int doc_find(struct node *dir, const struct row *r, const char *name,
             struct key *k, char **path)
{
    struct courier_doc st;
    struct docfile *d;
    int code;

    k->path = *path = path_join(dir->path, name);
    d = docmem_find(k->o, *path);
    if (r) {
        k->row = r;
        return doc_hidden(k->o, *path) ? -ENOENT : 0;
    }
    if (rejected_of(k->o, *path)) {
        k->row = row_get(R_REJECTED);
        return 0;
    }
    if (d && (d->kind != DOC_STORED || d->created)) {
        k->row = row_get(d->kind == DOC_LINK ? R_DOCLINK : R_DOCFILE);
        return 0;
    }
    if (dir->row->kind != K_DOCDIR || doc_hidden(k->o, *path))
        return -ENOENT;
    code = courier_doc_stat(fs.c, k->o, *path, &st);
    if (!code)
        k->row = row_get(st.dir ? R_DOCSUB : R_DOCFILE);
    return code;
}

/* ---- attributes ---- */

static void set_times(struct stat *st, int64_t ns)
{
    st->st_mtim.tv_sec = ns / 1000000000;
    st->st_mtim.tv_nsec = ns % 1000000000;
    st->st_ctim = st->st_atim = st->st_mtim;
}

static int dir_attr(struct node *n, struct stat *st)
{
    struct courier_doc c = {0};
    int64_t made = 0, names = 0;
    int r = courier_doc_stat(fs.c, n->o, n->path, &c);

    if (r && n->row->kind == K_DOCDIR && n->row != row_get(R_DOCSUB))
        r = courier_times(fs.c, n->o, &made, &names);
    set_times(st, c.mtime_ns ? c.mtime_ns : names);
    return r;
}

static int stored_attr(struct node *n, struct stat *st)
{
    struct courier_doc c;
    int r = courier_doc_stat(fs.c, n->o, n->path, &c);

    if (r)
        return r;
    st->st_size = c.size;
    st->st_mode = S_IFREG | (c.mode & 0700 ? c.mode & 0700 : 0600);
    if (doc_readonly(n->path))
        st->st_mode = S_IFREG | 0400;
    set_times(st, c.mtime_ns);
    return 0;
}

int doc_attr(struct node *n, struct handle *h, struct stat *st)
{
    struct docfile *d = h && h->doc ? h->doc : NULL;

    if (n->row->kind == K_DOCDIR)
        return dir_attr(n, st);
    if (n->row->kind == K_REJECTED) {
        d = rejected_of(n->o, n->path);
        if (d)
            d->rejected_seen = true;
        st->st_size = d ? (off_t)d->rejected.n : 0;
        set_times(st, d ? d->rejected_ns : 0);
        return d ? 0 : -ENOENT;
    }
    if (!d)
        d = docmem_find(n->o, n->path);
    if (!d || (d->kind == DOC_STORED && !d->created && !(h && d->drafting)))
        return stored_attr(n, st);
    if (d->kind != DOC_STORED || (h && d->drafting))
        st->st_size = (off_t)(d->target ? strlen(d->target) : d->draft.n);
    if (d->mode && d->kind != DOC_LINK)
        st->st_mode = S_IFREG | (d->mode & 0700) | 0600;
    set_times(st, d->mtime_ns);
    return 0;
}

/* ---- time ---- */

static void drop_scratch(struct docfile *d)
{
    if (!doc_scratch_name(base_name(d->path))) {
        AUTO_FREE char *up = object_words(d->o);
        AUTO_FREE char *path = xasprintf("%s%s", up, d->path);

        courier_error(fs.c, d->o, path,
                      "a file of no meaning here was dropped");
    }
    docmem_remove(d);
}

void doc_tick(int64_t now)
{
    struct docfile *d = docs;

    while (d) {
        struct docfile *next = d->next;

        if (d->has_was && d->was_until <= now)
            forget_was(d);
        if (d->away_until && d->away_until <= now)
            d->away_until = 0;
        if (d->kind == DOC_STORED) {
            docmem_settle(d);
        } else if (!d->refs && d->named && d->drop_at && d->drop_at <= now) {
            drop_scratch(d);
        }
        d = next;
    }
}

int doc_timeout(int64_t now)
{
    int64_t first = INT64_MAX;

    for (struct docfile *d = docs; d; d = d->next) {
        if (d->away_until && d->away_until < first)
            first = d->away_until;
        if (d->has_was && d->was_until < first)
            first = d->was_until;
        if (d->drop_at && !d->refs && d->drop_at < first)
            first = d->drop_at;
    }
    if (first == INT64_MAX)
        return -1;
    return first <= now ? 0 : first - now > 60000 ? 60000 : (int)(first - now);
}
