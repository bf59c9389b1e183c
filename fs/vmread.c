/*
 * vmread: reading files in a VM. A file is read in windows: what was fetched
 * last and, for who reads on, what comes next, which is fetched meanwhile.
 * Small files that are opened in a row, as grep -r and cp -r do, come many in
 * one call (vmtext.c). A read is answered in full, but at the end of the file.
 */
#include "fs/files.h"

enum {
    STEP = 256 << 10,       /* fetched at once, */
    STEP_MAX = 4 << 20,     /* and for who reads in a row */
    WINDOWS_MAX = 64 << 20, /* of all open files, before steps are small */
};

/* one read that waits */
struct vmread {
    struct vmread *next;
    fuse_req_t req;
    struct vmfile *f;
    struct node *n;
    struct buf got;
    size_t size;
    off_t off;
    bool alone; /* its file has to be asked for by itself */
};

static size_t windows_n;

/* ---- windows ---- */

static void window_clear(struct vmwindow *w)
{
    windows_n -= w->b.n;
    buf_free(&w->b);
    *w = (struct vmwindow){0};
}

static int64_t window_end(const struct vmwindow *w)
{
    return w->off + (int64_t)w->b.n;
}

static bool window_good(struct vmwindow *w, uint64_t age)
{
    if (w->at && (mono_ms() - w->at >= VM_FRESH_MS || w->age != age))
        window_clear(w);
    return w->at;
}

void vm_read_free(struct vmfile *f)
{
    window_clear(&f->now);
    window_clear(&f->next);
}

/* takes what is in b */
static void window_put(struct vmfile *f, struct buf *b, int64_t off,
                       int64_t total, int64_t at, uint64_t age)
{
    struct vmwindow *to = &f->now;

    if (window_good(&f->next, age) && off == window_end(&f->next)) {
        window_clear(&f->now);
        f->now = f->next;
        f->next = (struct vmwindow){0};
        to = &f->next;
    } else if (window_good(&f->now, age) && off == window_end(&f->now)) {
        to = &f->next;
    } else {
        window_clear(&f->next);
    }
    window_clear(to);
    to->b = *b;
    *b = (struct buf){0};
    windows_n += to->b.n;
    to->off = off;
    to->at = at;
    to->age = age;
    /* nothing where there should be: it has become shorter meanwhile */
    to->total = to->b.n ? total : total < off ? total : off;
}

/* ---- one read ---- */

static void read_interrupted(fuse_req_t req, void *data)
{
    struct vmread *r = data;
    struct vmread **at = &r->f->reads;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    buf_free(&r->got);
    free(r);
    fuse_reply_err(req, EINTR);
}

/* out of its file's list, and nobody interrupts it any more */
static void read_out(struct vmread *r)
{
    struct vmread **at = &r->f->reads;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    fuse_req_interrupt_func(r->req, NULL, NULL);
}

static void read_free(struct vmread *r)
{
    buf_free(&r->got);
    free(r);
}

/* p is borrowed */
static void read_done(struct vmread *r, const char *p, size_t n)
{
    read_out(r);
    fuse_reply_buf(r->req, p, n);
    read_free(r);
}

static void read_failed(struct vmread *r, int code, const char *words)
{
    if (r->got.n) { /* the next read gets to hear of it */
        read_done(r, r->got.p, r->got.n);
        return;
    }
    if (*words && code != -ENOENT) {
        AUTO_FREE char *up = object_words(r->n->o);
        AUTO_FREE char *path = xasprintf("%s.files/%s", up, r->n->path);

        courier_error(fs.c, r->n->o, path, words);
    }
    read_out(r);
    reply_code(r->req, code);
    read_free(r);
}

/* all of it is in one window, as nearly always: 1 + how much there is, or 0 */
static size_t read_whole(const struct vmread *r, uint64_t age, const char **p)
{
    struct vmwindow *w[2] = {&r->f->now, &r->f->next};

    for (size_t i = 0; i < 2 && !r->got.n; i++) {
        int64_t end = window_good(w[i], age) ? window_end(w[i]) : 0;
        int64_t n = end - r->off;

        if (n <= 0 || r->off < w[i]->off)
            continue;
        if ((int64_t)r->size > n && end < w[i]->total)
            continue;
        *p = w[i]->b.p + (r->off - w[i]->off);
        return 1 + ((int64_t)r->size < n ? r->size : (size_t)n);
    }
    return 0;
}

/* takes from the windows what they have; true: it is answered in full */
static bool read_fill(struct vmread *r, uint64_t age)
{
    struct vmwindow *w[2] = {&r->f->now, &r->f->next};

    for (size_t i = 0; i < 2; i++) {
        int64_t pos = r->off + (int64_t)r->got.n;
        size_t n, left = r->size - r->got.n;

        if (!window_good(w[i], age) || pos < w[i]->off)
            continue;
        if (pos >= w[i]->total)
            return true;
        if (pos >= window_end(w[i]))
            continue;
        n = (size_t)(window_end(w[i]) - pos);
        buf_add(&r->got, w[i]->b.p + (pos - w[i]->off), n < left ? n : left);
        pos = r->off + (int64_t)r->got.n;
        if (r->got.n == r->size || pos >= w[i]->total)
            return true;
    }
    return false;
}

/* ---- fetching ---- */

static void reads_try(struct vmfile *f);

static void fetched(struct vmcall *k, int code)
{
    struct vmfile *f = k->arg;

    f->fetching = false;
    if (!code) {
        window_put(f, &k->data, k->off, k->total, k->sent_at, k->age);
    } else {
        struct vmread *r, *next;

        f->step = STEP;
        for (r = f->reads; r; r = next) {
            int64_t pos = r->off + (int64_t)r->got.n;

            next = r->next;
            if (pos >= k->off && pos < k->off + k->len)
                read_failed(r, code, k->words);
        }
    }
    reads_try(f);
    vmfile_unref(f);
    vmcall_free(k);
}

static void fetch(struct vmfile *f, struct node *n, int64_t off, int64_t len,
                  bool ahead)
{
    struct vmcall *k = vmcall_new(NULL, n, NULL, fetched);

    f->refs++;
    f->fetching = true;
    k->arg = f;
    k->off = off;
    k->len = len;
    k->ahead = ahead;
    k->age = vmdir_age(n->o);
    vmcall_send(k, FILES_READ);
}

/* the reader went on to pos: what he needs next is fetched meanwhile */
static void read_on(struct vmfile *f, struct node *n, int64_t pos,
                    uint64_t age)
{
    struct vmwindow *last = window_good(&f->next, age) ? &f->next : &f->now;

    if (f->fetching || f->step <= STEP || !window_good(last, age) ||
        window_end(last) >= last->total || windows_n > WINDOWS_MAX ||
        (last == &f->next && pos < last->off))
        return;
    if (f->step < STEP_MAX)
        f->step *= 2;
    fetch(f, n, window_end(last), f->step, true);
}

/* in a row: with growing steps */
static void step_set(struct vmfile *f, const struct vmread *r)
{
    if (r->off != f->next_off || windows_n > WINDOWS_MAX || !f->step)
        f->step = STEP;
    else if (f->step < STEP_MAX)
        f->step *= 2;
}

static bool read_try(struct vmread *r)
{
    struct vmfile *f = r->f;
    struct node *n = r->n;
    uint64_t age = vmdir_age(n->o);
    int64_t pos, len, end = r->off + (int64_t)r->size;
    const char *p = NULL;
    size_t whole = read_whole(r, age, &p);

    if (whole || read_fill(r, age)) {
        bool in_a_row = r->off == f->next_off;
        size_t did = whole ? whole - 1 : r->got.n;

        f->next_off = pos = r->off + (int64_t)did;
        read_done(r, whole ? p : r->got.p, did);
        if (in_a_row)
            read_on(f, n, pos, age);
        return true;
    }
    pos = r->off + (int64_t)r->got.n;
    if (f->fetching)
        return false;
    if (!pos && !r->alone) {
        struct vm_text t = vm_text_get(f, n);

        if (t.there) {
            window_put(f, &t.b, 0, (int64_t)t.b.n, n->vm_at, age);
            if (window_good(&f->now, age))
                return read_try(r);
            r->alone = true;
        } else if (t.waits) {
            return false;
        }
    }
    step_set(f, r);
    len = end - pos > f->step ? end - pos : f->step;
    fetch(f, n, pos, len, false);
    return false;
}

static void reads_try(struct vmfile *f)
{
    struct vmread *r = f->reads, *next;

    for (; r; r = next) {
        next = r->next;
        read_try(r);
    }
}

void vm_read_again(struct vmfile *f)
{
    for (struct vmread *r = f->reads; r; r = r->next)
        r->alone = true;
    reads_try(f);
}

void vm_read_text(struct vmfile *f)
{
    reads_try(f);
}

void vm_read_file(fuse_req_t req, struct handle *h, size_t size, off_t off)
{
    struct vmread *r = xcalloc(1, sizeof(*r));
    struct vmfile *f = h->vm;

    r->req = req;
    r->f = f;
    r->n = h->n;
    r->size = size;
    r->off = off;
    r->next = f->reads;
    f->reads = r;
    if (!read_try(r))
        fuse_req_interrupt_func(req, read_interrupted, r);
}
