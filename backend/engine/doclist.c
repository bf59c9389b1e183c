/* Looking documents up: what stat, read and list of them show. */
#include "engine/docs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_FIRST = 1000 }; /* rows below it are of the table of places */

static int64_t created_ns(struct courier *c, struct oid owner)
{
    int64_t created = 0, names;

    courier_times(c, owner, &created, &names);
    return created;
}

static char *salvage_path(struct courier *c, struct oid owner,
                          const char *path)
{
    return xasprintf("%s/salvage/%lld%s", c->data, (long long)owner.id,
                     path + strlen("salvage"));
}

/* ---- one ---- */

static int stat_sealed(struct db *d, struct oid owner, const char *path,
                       struct courier_doc *out)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT length(hint),mtime FROM secret WHERE kind=? AND owner=? AND "
        "path=?",
        "iis", (int64_t)owner.kind, owner.id, path);

    if (!db_row(d, q))
        return -ENOENT;
    *out = (struct courier_doc){
        .size = col_int(q, 0) + 1, .mtime_ns = col_int(q, 1), .mode = 0600};
    db_done(q);
    return 0;
}

static int stat_salvage(struct courier *c, struct oid owner, const char *path,
                        struct courier_doc *out)
{
    AUTO_FREE char *at = salvage_path(c, owner, path);
    struct stat st;

    if (lstat(at, &st) < 0 || !S_ISREG(st.st_mode))
        return -ENOENT;
    *out = (struct courier_doc){.size = st.st_size,
                                .mtime_ns = st.st_mtim.tv_sec * 1000000000 +
                                            st.st_mtim.tv_nsec,
                                .mode = 0400};
    return 0;
}

/* TOP/.versions, .../NAME, .../NAME/N */
static int stat_version(struct courier *c, struct oid owner, const char *path,
                        struct courier_doc *out)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *doc = doc_unversion(path), *of = doc_parent(doc);
    sqlite3_stmt *q;
    int64_t n;

    *out = (struct courier_doc){
        .dir = true, .mode = 0500, .mtime_ns = created_ns(c, owner)};
    if (text_int(doc_base(doc), 1, INT32_MAX, &n)) {
        q = db_query(d,
                     "SELECT length(text),time FROM doc_version WHERE kind=? "
                     "AND owner=? AND path=? AND n=?",
                     "iisi", (int64_t)owner.kind, owner.id, of, n);
        if (db_row(d, q)) {
            *out = (struct courier_doc){.size = col_int(q, 0),
                                        .mtime_ns = col_int(q, 1) * 1000000,
                                        .mode = 0400};
            db_done(q);
            return 0;
        }
    }
    if (!strchr(doc, '/'))
        return 0;
    n = db_int(d, 0,
               "SELECT max(time) FROM doc_version WHERE kind=?1 AND "
               "owner=?2 AND (path=?3 OR (path>?3||'/' AND path<?3||'0'))",
               "iis", (int64_t)owner.kind, owner.id, doc);
    out->mtime_ns = n * 1000000;
    return n ? 0 : -ENOENT;
}

static int stat_row(struct courier *c, struct oid owner, const char *path,
                    bool fixed, enum doc_class cl, struct courier_doc *out)
{
    struct db *d = store_reader(c->store);
    sqlite3_stmt *q = db_query(
        d,
        "SELECT dir,length(text),mtime,mode FROM doc WHERE kind=? AND owner=? "
        "AND path=?",
        "iis", (int64_t)owner.kind, owner.id, path);

    *out = (struct courier_doc){.dir = cl == DOC_DIR,
                                .fixed = fixed,
                                .mode = cl == DOC_DIR ? 0700 : 0600};
    if (db_row(d, q)) {
        out->dir = col_int(q, 0) != 0;
        out->size = out->dir ? 0 : col_int(q, 1);
        out->mtime_ns = col_int(q, 2);
        out->mode = (unsigned)col_int(q, 3);
        db_done(q);
    } else if (!fixed) {
        return -ENOENT;
    } else {
        AUTO_FREE char *text = NULL;
        size_t n = 0;

        if (owner.kind == OBJ_RUN)
            text = doc_text(d, owner, path, &n);
        out->size = (int64_t)n;
        out->mtime_ns = created_ns(c, owner);
    }
    if (cl == DOC_LEARNING_VERSION)
        out->mode = 0400;
    return 0;
}

int courier_doc_stat(struct courier *c, struct oid owner, const char *path,
                     struct courier_doc *out)
{
    bool fixed;
    enum doc_class cl = doc_place(owner.kind, path, &fixed);

    switch (cl) {
    case DOC_NONE:
        return -ENOENT;
    case DOC_KEY:
    case DOC_SECRET:
        return stat_sealed(store_reader(c->store), owner, path, out);
    case DOC_SALVAGE:
        return stat_salvage(c, owner, path, out);
    case DOC_VERSIONS:
        return stat_version(c, owner, path, out);
    default:
        return stat_row(c, owner, path, fixed || !*path, cl, out);
    }
}

/* ---- reading ---- */

static void add_part(const char *p, size_t size, int64_t off, size_t n,
                     struct buf *out)
{
    if (off < 0 || (size_t)off >= size)
        return;
    buf_add(out, p + off, size - (size_t)off < n ? size - (size_t)off : n);
}

static int read_salvage(struct courier *c, struct oid owner, const char *path,
                        int64_t off, size_t n, struct buf *out)
{
    AUTO_FREE char *at = salvage_path(c, owner, path);
    AUTO_CLOSE int fd = open(at, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return -ENOENT;
    buf_reserve(out, n);
    while (n) {
        ssize_t got = pread(fd, out->p + out->n, n, off);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : 0;
        out->n += (size_t)got;
        out->p[out->n] = 0;
        off += got;
        n -= (size_t)got;
    }
    return 0;
}

/* of a query whose first column is the part asked for */
static int read_blob(struct db *d, sqlite3_stmt *q, struct buf *out)
{
    if (!db_row(d, q))
        return -ENOENT;
    buf_add(out, sqlite3_column_blob(q, 0),
            (size_t)sqlite3_column_bytes(q, 0));
    db_done(q);
    return 0;
}

static int read_version(struct db *d, struct oid owner, const char *path,
                        int64_t off, size_t n, struct buf *out)
{
    AUTO_FREE char *doc = doc_unversion(path), *of = doc_parent(doc);
    int64_t no;

    if (!text_int(doc_base(doc), 1, INT32_MAX, &no))
        return -ENOENT;
    return read_blob(
        d,
        db_query(d,
                 "SELECT substr(text,?,?) FROM doc_version WHERE kind=? AND "
                 "owner=? AND path=? AND n=?",
                 "iiiisi", off + 1, (int64_t)n, (int64_t)owner.kind, owner.id,
                 of, no),
        out);
}

static int read_sealed(struct db *d, struct oid owner, const char *path,
                       int64_t off, size_t n, struct buf *out)
{
    AUTO_FREE char *hint = db_text(
        d, "SELECT hint FROM secret WHERE kind=? AND owner=? AND path=?",
        "iis", (int64_t)owner.kind, owner.id, path);
    AUTO_FREE char *line = hint ? xasprintf("%s\n", hint) : NULL;

    if (!line)
        return -ENOENT;
    add_part(line, strlen(line), off, n, out);
    return 0;
}

int courier_doc_read(struct courier *c, struct oid owner, const char *path,
                     int64_t off, size_t n, struct buf *out)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *text = NULL;
    bool fixed;
    size_t size = 0;
    int r;

    switch (doc_place(owner.kind, path, &fixed)) {
    case DOC_NONE:
        return -ENOENT;
    case DOC_DIR:
        return -EISDIR;
    case DOC_KEY:
    case DOC_SECRET:
        return read_sealed(d, owner, path, off, n, out);
    case DOC_SALVAGE:
        return read_salvage(c, owner, path, off, n, out);
    case DOC_VERSIONS:
        return read_version(d, owner, path, off, n, out);
    default:
        break;
    }
    r = read_blob(d,
                  db_query(d,
                           "SELECT substr(text,?,?) FROM doc WHERE kind=? "
                           "AND owner=? AND path=? AND dir=0",
                           "iiiis", off + 1, (int64_t)n, (int64_t)owner.kind,
                           owner.id, path),
                  out);
    if (r == 0 || !fixed)
        return r;
    if (owner.kind == OBJ_RUN)
        text = doc_text(d, owner, path, &size);
    add_part(text ? text : "", size, off, n, out);
    return 0;
}

/* ---- lists ---- */

/* names without rows of their own: in the order of their hash, which is
 * their cookie and so survives that others come and go */
struct names {
    struct name {
        int64_t row;
        char *name;
    } * v;
    size_t n;
};

static void add_name(struct names *l, const char *name)
{
    int64_t row = (int64_t)(text_hash(name, strlen(name)) >> 2) + NAMES_FIRST;

    for (size_t i = 0; i < l->n; i++) {
        if (!strcmp(l->v[i].name, name))
            return;
    }
    l->v = xrealloc(l->v, (l->n + 1) * sizeof(*l->v));
    l->v[l->n++] = (struct name){row, xstrdup(name)};
}

static int by_row(const void *a, const void *b)
{
    const struct name *x = a, *y = b;

    return x->row < y->row ? -1 : x->row > y->row;
}

static void tell_names(struct courier *c, struct oid owner, const char *dir,
                       struct names *l, int64_t after, courier_doc_fn fn,
                       void *arg)
{
    bool go = true;

    if (l->n)
        qsort(l->v, l->n, sizeof(*l->v), by_row);
    for (size_t i = 0; i < l->n; i++) {
        AUTO_FREE char *path = xasprintf("%s/%s", dir, l->v[i].name);
        struct courier_doc doc;

        if (go && l->v[i].row > after &&
            courier_doc_stat(c, owner, path, &doc) == 0)
            go = fn(arg, l->v[i].row, l->v[i].name, &doc);
        free(l->v[i].name);
    }
    free(l->v);
}

static void list_sealed(struct courier *c, struct oid owner, const char *dir,
                        struct names *l)
{
    struct db *d = store_reader(c->store);
    sqlite3_stmt *q =
        db_query(d,
                 "SELECT path FROM secret WHERE kind=?1 AND owner=?2 AND "
                 "path>?3||'/' AND path<?3||'0'",
                 "iis", (int64_t)owner.kind, owner.id, dir);

    while (db_row(d, q))
        add_name(l, doc_base(col_text(q, 0)));
}

static void list_salvage(struct courier *c, struct oid owner, const char *dir,
                         struct names *l)
{
    AUTO_FREE char *at = salvage_path(c, owner, dir);
    DIR *h = opendir(at);
    struct dirent *ent;

    if (!h)
        return;
    for (ent = readdir(h); ent; ent = readdir(h)) {
        if (*ent->d_name != '.')
            add_name(l, ent->d_name);
    }
    closedir(h);
}

static void list_versions(struct courier *c, struct oid owner, const char *dir,
                          struct names *l)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *doc = doc_unversion(dir);
    size_t n = strlen(doc);
    sqlite3_stmt *q = db_query(
        d,
        "SELECT path,n FROM doc_version WHERE kind=?1 AND owner=?2 AND "
        "(path=?3 OR (path>?3||'/' AND path<?3||'0'))",
        "iis", (int64_t)owner.kind, owner.id, doc);

    while (db_row(d, q)) {
        const char *path = col_text(q, 0);
        AUTO_FREE char *name =
            path[n] ? xmemdup0(path + n + 1, strcspn(path + n + 1, "/"))
                    : xasprintf("%lld", (long long)col_int(q, 1));

        add_name(l, name);
    }
}

/* places that are always there, directly below dir; false: stopped */
static bool list_places(struct courier *c, struct oid owner, const char *dir,
                        int64_t after, bool *any, courier_doc_fn fn, void *arg)
{
    *any = false;
    for (const struct doc_place *p = doc_places; p->path; p++) {
        AUTO_FREE char *parent = doc_parent(p->path);
        struct courier_doc doc;
        int64_t row = p - doc_places + 1;

        if (p->kind != owner.kind || !p->fixed || strcmp(parent, dir))
            continue;
        *any = true;
        if (row > after && courier_doc_stat(c, owner, p->path, &doc) == 0 &&
            !fn(arg, row, doc_base(p->path), &doc))
            return false;
    }
    return true;
}

static void list_rows(struct courier *c, struct oid owner, const char *dir,
                      int64_t after, courier_doc_fn fn, void *arg)
{
    struct db *d = store_reader(c->store);
    sqlite3_stmt *q = db_query(
        d,
        "SELECT id,path,dir,length(text),mtime,mode FROM doc WHERE kind=? AND "
        "owner=? AND parent=? AND id>? ORDER BY id",
        "iisi", (int64_t)owner.kind, owner.id, dir,
        after > NAMES_FIRST ? after - NAMES_FIRST : 0);
    bool read_only = !strcmp(dir, "learnings/versions");

    while (db_row(d, q)) {
        struct courier_doc doc = {.dir = col_int(q, 2) != 0,
                                  .size = col_int(q, 3),
                                  .mtime_ns = col_int(q, 4),
                                  .mode = (unsigned)col_int(q, 5)};

        if (doc.dir)
            doc.size = 0;
        if (read_only)
            doc.mode = 0400;
        if (!fn(arg, col_int(q, 0) + NAMES_FIRST, doc_base(col_text(q, 1)),
                &doc)) {
            db_done(q);
            return;
        }
    }
}

int courier_doc_list(struct courier *c, struct oid owner, const char *dir,
                     int64_t after, courier_doc_fn fn, void *arg)
{
    struct courier_doc self;
    struct names l = {0};
    bool any, named = true;
    int r = courier_doc_stat(c, owner, dir, &self);

    if (r < 0)
        return r;
    if (!self.dir)
        return -ENOTDIR;
    if (!list_places(c, owner, dir, after, &any, fn, arg) || any)
        return 0;
    if (doc_place(owner.kind, dir, NULL) == DOC_VERSIONS)
        list_versions(c, owner, dir, &l);
    else if (!strcmp(dir, "keys") || !strcmp(dir, "secrets"))
        list_sealed(c, owner, dir, &l);
    else if (!strcmp(dir, "salvage"))
        list_salvage(c, owner, dir, &l);
    else
        named = false;
    if (named)
        tell_names(c, owner, dir, &l, after, fn, arg);
    else
        list_rows(c, owner, dir, after, fn, arg);
    return 0;
}
