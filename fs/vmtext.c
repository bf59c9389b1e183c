/*
 * vmtext: small files of VMs, fetched many at once. Whoever opens small files
 * one after the other gets the next ones with the one he asks for: those that
 * a walker comes to next, as far as the directories are known. What was
 * fetched counts as long as the file has the size and the time that it had.
 */
#include "fs/files.h"

enum {
    SLOTS = 4096,
    SMALL = 64 << 10,
    KEPT = 16 << 20, /* bytes in all, */
    KEPT_MS = 10000, /* and at most that long */
    ROW_MS = 500,    /* between two files of one row */
    ROW_MIN = 2,     /* files in a row before more is fetched */
    BATCH_FIRST = 16,
    BATCH = 128,
    BATCH_BYTES = 1 << 20,
    OFF_MIN_MS =
        2000, /* after a batch that failed, and twice that and so on */
    OFF_MAX_MS = 60000,
};

struct wait {
    struct wait *next;
    struct vmfile *f;
};

struct text {
    struct oid o;
    char *path;
    struct buf b;
    int64_t size, mtime, at;
    uint64_t batch; /* that it came with */
    bool loading;
    struct wait *waits;
    struct text *hash_next, *newer, *older;
};

/* who reads one file after the other in one VM */
struct row_reader {
    struct oid o;
    int64_t last_at, off_until, off_ms;
    unsigned row;
    uint64_t batch; /* the newest */
    size_t batch_n, batch_used;
    char *batch_last; /* the path that it ended with */
    bool fetching;
    struct row_reader *next;
};

static struct text *slots[SLOTS];
static struct text *newest, *oldest;
static size_t kept;
static struct row_reader *readers;

static size_t slot_of(struct oid o, const char *path)
{
    uint32_t h = 2166136261U ^ (uint32_t)o.id * 2654435761U;

    for (; *path; path++)
        h = (h ^ (unsigned char)*path) * 16777619U;
    return h & (SLOTS - 1);
}

static struct text *text_find(struct oid o, const char *path)
{
    struct text *t = slots[slot_of(o, path)];

    while (t && (!oid_same(t->o, o) || strcmp(t->path, path)))
        t = t->hash_next;
    return t;
}

static void text_free(struct text *t)
{
    struct text **at = &slots[slot_of(t->o, t->path)];

    while (*at != t)
        at = &(*at)->hash_next;
    *at = t->hash_next;
    *(t->newer ? &t->newer->older : &newest) = t->older;
    *(t->older ? &t->older->newer : &oldest) = t->newer;
    kept -= t->b.n;
    buf_free(&t->b);
    free(t->path);
    free(t);
}

static struct text *text_new(struct oid o, const struct vm_ahead *a)
{
    struct text *t = text_find(o, a->path);
    size_t slot = slot_of(o, a->path);

    if (t)
        text_free(t);
    t = xcalloc(1, sizeof(*t));
    t->o = o;
    t->path = xstrdup(a->path);
    t->size = a->size;
    t->mtime = a->mtime;
    t->at = mono_ms();
    t->loading = true;
    t->hash_next = slots[slot];
    slots[slot] = t;
    t->older = newest;
    *(newest ? &newest->newer : &oldest) = t;
    newest = t;
    return t;
}

static void make_room(void)
{
    struct text *t = oldest, *newer;
    int64_t now = mono_ms();

    for (; t && (kept > KEPT || now - t->at > KEPT_MS); t = newer) {
        newer = t->newer;
        if (!t->loading)
            text_free(t);
    }
}

static bool text_good(const struct text *t, int64_t size, int64_t mtime)
{
    return t->size == size && t->mtime == mtime && mono_ms() - t->at < KEPT_MS;
}

/* tells who waits; alone: it did not come */
static void text_tell(struct text *t, bool alone)
{
    struct wait *w = t->waits, *next;

    t->waits = NULL;
    for (; w; w = next) {
        next = w->next;
        if (alone)
            vm_read_again(w->f);
        else
            vm_read_text(w->f);
        vmfile_unref(w->f);
        free(w);
    }
}

/* ---- batches ---- */

static struct row_reader *reader_of(struct oid o)
{
    struct row_reader *r = readers;

    while (r && !oid_same(r->o, o))
        r = r->next;
    if (r)
        return r;
    r = xcalloc(1, sizeof(*r));
    r->o = o;
    r->next = readers;
    readers = r;
    return r;
}

void vm_text_gone(struct oid o)
{
    struct row_reader **at = &readers, *r;

    while (*at && !oid_same((*at)->o, o))
        at = &(*at)->next;
    r = *at;
    if (!r || r->fetching)
        return;
    *at = r->next;
    free(r->batch_last);
    free(r);
}

static void batch_came(struct vmcall *k, int code)
{
    struct row_reader *r = reader_of(k->o);

    r->fetching = false;
    if (code) {
        r->off_ms = r->off_ms ? r->off_ms * 2 : OFF_MIN_MS;
        if (r->off_ms > OFF_MAX_MS)
            r->off_ms = OFF_MAX_MS;
        r->off_until = mono_ms() + r->off_ms;
    } else {
        r->off_ms = 0;
    }
    for (size_t i = 0; i < k->n_paths; i++) {
        struct text *t = text_find(k->o, k->paths[i]);
        bool came = !code && k->came && k->came[i] && t &&
                    (int64_t)k->blobs[i].n == t->size;

        if (!t || !t->loading)
            continue;
        t->loading = false;
        t->at = k->sent_at;
        if (came) {
            t->b = k->blobs[i];
            k->blobs[i] = (struct buf){0};
            kept += t->b.n;
        }
        text_tell(t, !came);
        if (!came)
            text_free(t);
    }
    make_room();
    vmcall_free(k);
}

static bool text_loading(struct oid o, const char *path)
{
    struct text *t = text_find(o, path);

    return t && t->loading;
}

static bool wanted(struct oid o, const char *path, int64_t size, int64_t mtime)
{
    struct text *t = size <= SMALL ? text_find(o, path) : NULL;

    return size <= SMALL &&
           (!t || (!t->loading && !text_good(t, size, mtime)));
}

/* asks for a[0..n], whose paths it takes */
static void batch_send(struct row_reader *r, struct vm_ahead *a, size_t n,
                       bool ahead)
{
    struct vmcall *k = vmcall_plain(r->o, "", batch_came, NULL);
    int64_t bytes = 0;

    r->batch++;
    r->batch_n = r->batch_used = 0;
    r->fetching = true;
    k->ahead = ahead;
    k->paths = xcalloc(n, sizeof(*k->paths));
    for (size_t i = 0; i < n; i++) {
        if (bytes >= BATCH_BYTES || text_loading(r->o, a[i].path)) {
            free(a[i].path);
            continue;
        }
        bytes += a[i].size;
        text_new(r->o, &a[i])->batch = r->batch;
        free(r->batch_last);
        r->batch_last = xstrdup(a[i].path);
        k->paths[k->n_paths++] = a[i].path;
    }
    r->batch_n = k->n_paths;
    if (!k->n_paths) {
        r->fetching = false;
        vmcall_free(k);
        return;
    }
    vmcall_send(k, FILES_MANY);
}

/* half of the newest ones were read: the next, so that they are here in time
 */
static void batch_ahead(struct row_reader *r)
{
    struct vm_ahead a[BATCH];
    size_t n;

    if (r->fetching || !r->batch_last || r->batch_used * 2 < r->batch_n ||
        mono_ms() < r->off_until)
        return;
    n = vmdir_next_files(r->o, r->batch_last, wanted, a, BATCH);
    if (n > 1)
        batch_send(r, a, n, true);
    else if (n)
        free(a[0].path);
}

static bool in_a_row(struct row_reader *r)
{
    int64_t now = mono_ms();

    if (now - r->last_at > ROW_MS) {
        r->row = 0;
        free(r->batch_last);
        r->batch_last = NULL;
    }
    r->last_at = now;
    return ++r->row > ROW_MIN && now >= r->off_until;
}

struct vm_text vm_text_get(struct vmfile *f, struct node *n)
{
    struct vm_text out = {0};
    struct row_reader *r;
    struct text *t;
    struct wait *w;
    bool row;

    if (!vm_fresh(n) || n->size > SMALL || !n->vm_mtime)
        return out;
    r = reader_of(n->o);
    row = in_a_row(r);
    t = text_find(n->o, n->path);
    if (t && !t->loading && !text_good(t, n->size, n->vm_mtime)) {
        text_free(t);
        t = NULL;
    }
    if (t && !t->loading) {
        buf_add(&out.b, t->b.p, t->b.n);
        out.there = true;
        r->batch_used += t->batch == r->batch;
        batch_ahead(r);
        return out;
    }
    if (!t && row && !r->fetching) {
        struct vm_ahead a[BATCH] = {{xstrdup(n->path), n->size, n->vm_mtime}};
        size_t max = r->batch ? BATCH - 1 : BATCH_FIRST - 1;

        batch_send(r, a,
                   1 + vmdir_next_files(n->o, n->path, wanted, a + 1, max),
                   false);
        t = text_find(n->o, n->path);
    }
    if (!t)
        return out;
    w = xcalloc(1, sizeof(*w));
    w->f = f;
    w->next = t->waits;
    t->waits = w;
    f->refs++;
    out.waits = true;
    return out;
}
