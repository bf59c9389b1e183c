/* vmdir: what is known of directories in VMs. On the loop. */
#include "fs/files.h"

enum {
    DIR_SLOTS = 4096,
    DIRS_KEPT = 4096,
    ENTRIES_KEPT = 500000,
    LISTS_MIN_MS = 300, /* a listing that took long is good for that long */
    WALK_MS = 2000,     /* between two directories of one walk */
    WALKED_MS = 5000,
    AHEAD_FLIGHT = 4,  /* listings asked for before anybody wants them, */
    AHEAD_UNUSED = 48, /* and come before anybody wanted them */
    AHEAD_STACK = 2048,
    AHEAD_WASTED = 96, /* so many that nobody used: not a walker */
    AHEAD_OFF_MS = 10000,
    TRIES = 3,
};

struct wait {
    struct wait *next;
    vmdir_fn fn;
    void *arg;
};

struct vmdir {
    struct oid o;
    char *path;
    struct vmlist *list; /* the last one, true until then; afterwards it only
                            tells where a walker may go next */
    int64_t good_until;
    int64_t listed_at; /* when somebody walked into it last */
    int64_t missed_at;
    unsigned missed;  /* lookups that weren't known, since missed_at */
    size_t last_n;    /* how long its listing was */
    uint64_t changes; /* by us, or by a turn that ended */
    bool loading;
    bool walk;         /* what is in it is to be asked for ahead, */
    int64_t walked_at; /* and was then */
    bool ahead;        /* fetched ahead and not used yet */
    int tries;
    struct wait *waits, **waits_tail;
    struct vmdir *hash_next, *newer, *older;
};

/* what is fetched ahead of a walker through one VM */
struct walk {
    struct oid o;
    uint64_t age;
    bool up;      /* it runs, as of that age */
    char **stack; /* directories to be listed, the last one first */
    size_t n, cap;
    unsigned flight, unused, wasted;
    int64_t off_until, swept_at;
    struct walk *next;
};

static struct vmdir *slots[DIR_SLOTS];
static struct vmdir *newest, *oldest;
static size_t dirs_n, entries_n;
static struct walk *walks;

/* ---- listings ---- */

static uint32_t name_hash(const char *name)
{
    uint32_t h = 2166136261U;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619U;
    return h;
}

static void slot_take(struct vmlist *l, size_t i)
{
    size_t at = name_hash(l->v[i].name) & (l->n_slots - 1);

    while (l->slots[at])
        at = (at + 1) & (l->n_slots - 1);
    l->slots[at] = (uint32_t)i + 1;
}

static void slots_fill(struct vmlist *l)
{
    free(l->slots);
    for (l->n_slots = 16; l->n_slots < l->cap * 2;)
        l->n_slots *= 2;
    l->slots = xcalloc(l->n_slots, sizeof(*l->slots));
    for (size_t i = 0; i < l->n; i++)
        slot_take(l, i);
}

/* takes the entries */
static struct vmlist *vmlist_new(struct courier_entry *v, size_t n)
{
    struct vmlist *l = xcalloc(1, sizeof(*l));

    l->refs = 1;
    l->v = v;
    l->n = l->cap = n;
    slots_fill(l);
    entries_n += n;
    return l;
}

void vmlist_unref(struct vmlist *l)
{
    if (!l || --l->refs)
        return;
    entries_n -= l->n;
    vm_entries_free(l->v, l->n);
    free(l->slots);
    free(l);
}

/* the place of a name, also of one that is gone; -1 */
static int64_t place_of(const struct vmlist *l, const char *name)
{
    size_t at = name_hash(name) & (l->n_slots - 1);

    for (; l->slots[at]; at = (at + 1) & (l->n_slots - 1))
        if (!strcmp(l->v[l->slots[at] - 1].name, name))
            return l->slots[at] - 1;
    return -1;
}

const struct courier_entry *vmlist_find(const struct vmlist *l,
                                        const char *name)
{
    int64_t i = place_of(l, name);

    return i < 0 || !l->v[i].type ? NULL : &l->v[i];
}

static void vmlist_put(struct vmlist *l, const char *name,
                       const struct courier_entry *e)
{
    int64_t i = place_of(l, name);
    struct courier_entry *to;

    if (i < 0) {
        if (l->n == l->cap) {
            l->cap = l->cap ? l->cap * 2 : 16;
            l->v = xrealloc(l->v, l->cap * sizeof(*l->v));
            slots_fill(l);
        }
        i = (int64_t)l->n++;
        entries_n++;
        l->v[i] = (struct courier_entry){.name = xstrdup(name)};
        slot_take(l, (size_t)i);
    }
    to = &l->v[i];
    free(to->target);
    to->target = xstrdup(e->target);
    to->type = e->type;
    to->size = e->size;
    to->mtime_ns = e->mtime_ns;
    to->mode = e->mode;
}

/* ---- the table ---- */

static size_t slot_of(struct oid o, const char *path)
{
    return (name_hash(path) ^ (uint32_t)o.id * 2654435761U) & (DIR_SLOTS - 1);
}

static struct vmdir *dir_find_known(struct oid o, const char *path)
{
    struct vmdir *d = slots[slot_of(o, path)];

    while (d && (!oid_same(d->o, o) || strcmp(d->path, path)))
        d = d->hash_next;
    return d;
}

static void order_remove(struct vmdir *d)
{
    *(d->newer ? &d->newer->older : &newest) = d->older;
    *(d->older ? &d->older->newer : &oldest) = d->newer;
    d->newer = d->older = NULL;
}

static void order_first(struct vmdir *d)
{
    d->older = newest;
    *(newest ? &newest->newer : &oldest) = d;
    newest = d;
}

static struct walk *walk_of(struct oid o)
{
    struct walk *w = walks;

    while (w && !oid_same(w->o, o))
        w = w->next;
    return w;
}

static void used(struct vmdir *d)
{
    struct walk *w = d->ahead ? walk_of(d->o) : NULL;

    d->ahead = false;
    if (w)
        w->unused--;
}

static void list_lose(struct vmdir *d)
{
    used(d);
    vmlist_unref(d->list);
    d->list = NULL;
}

static void dir_free(struct vmdir *d)
{
    struct vmdir **at = &slots[slot_of(d->o, d->path)];

    list_lose(d);
    while (*at != d)
        at = &(*at)->hash_next;
    *at = d->hash_next;
    order_remove(d);
    dirs_n--;
    free(d->path);
    free(d);
}

/* the newest is in somebody's hands */
static void make_room(void)
{
    struct vmdir *d = oldest, *newer;

    for (; d && (dirs_n > DIRS_KEPT || entries_n > ENTRIES_KEPT); d = newer) {
        newer = d->newer;
        if (!d->loading && d != newest)
            dir_free(d);
    }
}

static struct vmdir *dir_get(struct oid o, const char *path)
{
    struct vmdir *d = dir_find_known(o, path);
    size_t slot = slot_of(o, path);

    if (d) {
        order_remove(d);
        order_first(d);
        return d;
    }
    d = xcalloc(1, sizeof(*d));
    d->o = o;
    d->path = xstrdup(path);
    d->waits_tail = &d->waits;
    d->hash_next = slots[slot];
    slots[slot] = d;
    order_first(d);
    dirs_n++;
    make_room();
    return d;
}

/* what came ahead and was never used is of no use any more */
static void ahead_end(struct vmdir *d)
{
    struct walk *w = d->ahead ? walk_of(d->o) : NULL;

    if (w)
        w->wasted++;
    used(d);
}

static bool is_good(struct vmdir *d)
{
    bool good = d->list && mono_ms() <= d->good_until;

    if (!good)
        ahead_end(d);
    return good;
}

/* of "a/b/c": "a/b" (owned) and "c" */
static char *split(const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');

    *name = slash ? slash + 1 : path;
    return slash ? xmemdup0(path, (size_t)(slash - path)) : xstrdup("");
}

static struct vmdir *parent_of(struct oid o, const char *path,
                               const char **name)
{
    AUTO_FREE char *dir = split(path, name);

    return dir_find_known(o, dir);
}

enum vm_known vmdir_peek(struct oid o, const char *path,
                         const struct courier_entry **e, int64_t *at)
{
    const char *name;
    struct vmdir *d = parent_of(o, path, &name);

    if (!d || !is_good(d))
        return VM_UNKNOWN;
    *e = vmlist_find(d->list, name);
    if (!*e)
        return VM_ABSENT;
    used(d);
    *at = d->good_until - VM_FRESH_MS;
    return (*e)->mtime_ns < 0 ? VM_UNKNOWN : VM_THERE;
}

bool vmdir_worth(struct oid o, const char *dir)
{
    struct vmdir *d = dir_get(o, dir);
    int64_t now = mono_ms();

    if (d->loading)
        return true;
    if (now - d->missed_at > VM_FRESH_MS) {
        d->missed_at = now;
        d->missed = 0;
    }
    /* a long one costs as much as many single names */
    return ++d->missed > 1 + d->last_n / 100;
}

/* ---- ahead of a walker ---- */

static void load(struct vmdir *d, bool ahead);

static struct walk *walk_get(struct oid o)
{
    struct walk *w = walk_of(o);

    if (w)
        return w;
    w = xcalloc(1, sizeof(*w));
    w->o = o;
    w->next = walks;
    walks = w;
    return w;
}

static void walk_clear(struct walk *w)
{
    while (w->n)
        free(w->stack[--w->n]);
}

/* what came ahead and was never used is old by now */
static void walk_sweep(struct walk *w)
{
    int64_t now = mono_ms();

    if (now - w->swept_at < VM_FRESH_MS)
        return;
    w->swept_at = now;
    for (struct vmdir *d = newest; d; d = d->older)
        if (d->ahead && oid_same(d->o, w->o))
            is_good(d);
}

static void walk_go(struct walk *w)
{
    if (w->unused >= AHEAD_UNUSED)
        walk_sweep(w);
    if (w->wasted > AHEAD_WASTED) {
        w->wasted = 0;
        w->off_until = mono_ms() + AHEAD_OFF_MS;
        walk_clear(w);
    }
    while (w->n && w->flight < AHEAD_FLIGHT && w->unused < AHEAD_UNUSED) {
        AUTO_FREE char *path = w->stack[--w->n];
        struct vmdir *d = dir_get(w->o, path);

        if (!d->loading && !is_good(d)) {
            d->walk = true;
            w->flight++;
            load(d, true);
        }
    }
}

/* the directories in d come next, in their order */
static void walk_into(struct vmdir *d)
{
    struct walk *w = walk_get(d->o);

    d->walk = false;
    d->walked_at = mono_ms();
    if (mono_ms() < w->off_until)
        return;
    for (size_t i = d->list->n; i-- > 0 && w->n < AHEAD_STACK;) {
        if (d->list->v[i].type != 'd')
            continue;
        if (w->n == w->cap) {
            w->cap = w->cap ? w->cap * 2 : 64;
            w->stack = xrealloc(w->stack, w->cap * sizeof(*w->stack));
        }
        w->stack[w->n++] = path_join(d->path, d->list->v[i].name);
    }
    walk_go(w);
}

static bool walked(const struct vmdir *d)
{
    return d->walked_at && mono_ms() - d->walked_at < WALKED_MS;
}

/* somebody lists d, or asks for many names in it: does he come from the one
 * above? */
static void walk_note(struct vmdir *d, bool lists)
{
    const char *name;
    struct vmdir *up = *d->path ? parent_of(d->o, d->path, &name) : NULL;
    int64_t now = mono_ms();

    d->walk = up && now - up->listed_at < WALK_MS && (lists || !walked(d));
    d->listed_at = now;
    if (!d->walk)
        return;
    if (up->list && !walked(up))
        walk_into(up);
    /* the walk goes on above, too */
    for (; up; up = *up->path ? parent_of(d->o, up->path, &name) : NULL) {
        up->listed_at = now;
        if (up->walked_at)
            up->walked_at = now;
    }
}

/* ---- asking ---- */

static void tell(struct vmdir *d, int code, const char *words,
                 struct vmlist *l)
{
    struct wait *w = d->waits, *next;

    d->waits = NULL;
    d->waits_tail = &d->waits;
    for (; w; w = next) {
        next = w->next;
        if (l)
            l->refs++;
        w->fn(w->arg, code, words, l);
        free(w);
    }
}

struct load {
    uint64_t changes;
    bool ahead;
};

static void loaded(struct vmcall *k, int code)
{
    struct load *q = k->arg;
    struct vmdir *d = dir_find_known(k->o, k->path);
    bool as_before = q->changes == d->changes;
    struct walk *w = q->ahead ? walk_of(k->o) : NULL;
    struct vmlist *l = NULL;
    int64_t now = mono_ms();

    d->loading = false;
    if (w)
        w->flight--;
    if (!code) {
        l = vmlist_new(k->entries, k->count);
        k->entries = NULL;
        k->count = 0;
        d->last_n = l->n;
    }
    if (!code && !as_before && d->waits && ++d->tries < TRIES) {
        load(d, false); /* what they wait for may have changed meanwhile */
    } else {
        d->tries = 0;
        if (l && as_before) {
            list_lose(d);
            d->list = l;
            l->refs++;
            d->good_until = k->sent_at + VM_FRESH_MS;
            if (d->good_until < now + LISTS_MIN_MS)
                d->good_until = now + LISTS_MIN_MS;
            if (w && !d->waits) {
                d->ahead = true;
                w->unused++;
            }
            if (d->walk)
                walk_into(d);
        }
        tell(d, code, k->words, l);
    }
    vmlist_unref(l);
    if (w)
        walk_go(w);
    make_room();
    free(q);
    vmcall_free(k);
}

static void load(struct vmdir *d, bool ahead)
{
    struct load *q = xcalloc(1, sizeof(*q));
    struct vmcall *k = vmcall_plain(d->o, d->path, loaded, q);

    d->loading = true;
    q->changes = d->changes;
    q->ahead = k->ahead = ahead;
    vmcall_send(k, FILES_LIST);
}

void vmdir_want(struct oid o, const char *dir, bool lists, vmdir_fn fn,
                void *arg)
{
    struct vmdir *d = dir_get(o, dir);
    struct wait *w;

    walk_note(d, lists);
    if (is_good(d)) {
        struct vmlist *l = d->list;
        struct walk *walk = d->ahead ? walk_of(o) : NULL;

        l->refs++;
        used(d);
        if (d->walk)
            walk_into(d);
        else if (walk)
            walk_go(walk);
        fn(arg, 0, "", l);
        return;
    }
    w = xcalloc(1, sizeof(*w));
    w->fn = fn;
    w->arg = arg;
    *d->waits_tail = w;
    d->waits_tail = &w->next;
    if (!d->loading)
        load(d, false);
}

/* ---- what we did ourselves ---- */

static void lose(struct vmdir *d)
{
    list_lose(d);
    d->changes++;
}

struct courier_entry *vmdir_entry(struct oid o, const char *path)
{
    const char *name;
    struct vmdir *d = parent_of(o, path, &name);
    int64_t at = d && is_good(d) ? place_of(d->list, name) : -1;

    return at < 0 ? NULL : &d->list->v[at];
}

void vmdir_forget_one(struct oid o, const char *path)
{
    const char *name;
    struct vmdir *d = parent_of(o, path, &name);
    int64_t at;

    if (!d)
        return;
    d->changes++;
    at = is_good(d) ? place_of(d->list, name) : -1;
    if (at >= 0)
        d->list->v[at].mtime_ns = -1;
}

/* the directory of that path, about to change; its own time is another now */
static struct vmdir *changing(struct oid o, const char *path,
                              const char **name)
{
    struct vmdir *d = parent_of(o, path, name);
    struct courier_entry *own;

    if (!d)
        return NULL;
    d->changes++;
    own = *d->path ? vmdir_entry(o, d->path) : NULL;
    if (own && own->mtime_ns >= 0)
        own->mtime_ns = now_ns();
    return d;
}

void vmdir_put(struct oid o, const char *path, const struct courier_entry *e)
{
    const char *name;
    struct vmdir *d = changing(o, path, &name);

    if (d && is_good(d))
        vmlist_put(d->list, name, e);
}

void vmdir_unsure(struct oid o, const char *path)
{
    const struct courier_entry e = {.type = 'f', .mtime_ns = -1};

    vmdir_put(o, path, &e);
}

uint64_t vmdir_changes(struct oid o, const char *path)
{
    const char *name;
    struct vmdir *d = parent_of(o, path, &name);

    return d ? d->changes : 0;
}

void vmdir_learn(struct oid o, const char *path, const struct courier_entry *e,
                 uint64_t changes)
{
    const char *name;
    struct vmdir *d = parent_of(o, path, &name);

    if (d && is_good(d) && d->changes == changes)
        vmlist_put(d->list, name, e);
}

void vmdir_del(struct oid o, const char *path)
{
    const char *name;
    struct vmdir *d = changing(o, path, &name);
    int64_t at = d && is_good(d) ? place_of(d->list, name) : -1;

    if (at >= 0)
        d->list->v[at].type = 0;
    vmdir_forget(o, path);
}

/* and all below it */
void vmdir_forget(struct oid o, const char *path)
{
    size_t n = strlen(path);

    for (struct vmdir *d = newest; d; d = d->older)
        if (oid_same(d->o, o) && !strncmp(d->path, path, n) &&
            (!n || !d->path[n] || d->path[n] == '/'))
            lose(d);
}

void vmdir_moved(struct oid o, const char *from, const char *to)
{
    const char *name;
    struct vmdir *d = parent_of(o, from, &name);
    const struct courier_entry *was =
        d && is_good(d) ? vmlist_find(d->list, name) : NULL;
    struct courier_entry e = was ? *was : (struct courier_entry){0};

    e.name = NULL;
    e.target = xstrdup(e.target);
    vmdir_forget(o, to);
    if (was) {
        vmdir_put(o, to, &e);
    } else {
        d = changing(o, to, &name);
        if (d)
            lose(d);
    }
    vmdir_del(o, from);
    free(e.target);
}

void vmdir_drop(struct oid o)
{
    struct walk *w = walk_of(o);

    vmdir_forget(o, "");
    if (w) {
        walk_clear(w);
        w->age++;
        w->up = false;
    }
}

bool vm_up(struct oid o)
{
    struct walk *w = walk_get(o);

    if (!w->up)
        w->up = courier_files_up(fs.c, o);
    return w->up;
}

uint64_t vmdir_age(struct oid o)
{
    return walk_get(o)->age;
}

void vmdir_gone(struct oid o)
{
    struct walk **at = &walks;
    struct walk *w = walk_of(o);

    vmdir_drop(o);
    if (!w || w->flight)
        return;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    free(w->stack);
    free(w);
}

/* ---- what a walker reads next ---- */

struct taking {
    struct vm_ahead *out;
    size_t n, max, steps;
    vm_wanted_fn wanted;
};

enum { TAKE_STEPS = 4000, TAKE_DEPTH = 32 };

static bool taken_all(struct taking *t)
{
    return t->n == t->max || t->steps > TAKE_STEPS;
}

/* of d the entries from one on to another, and what is below */
static void take(struct taking *t, struct vmdir *d, size_t i, size_t end,
                 int depth)
{
    for (; i < end && !taken_all(t); i++) {
        const struct courier_entry *e = &d->list->v[i];
        AUTO_FREE char *path = NULL;
        struct vmdir *sub;

        t->steps++;
        if (e->type != 'f' && e->type != 'd')
            continue;
        path = path_join(d->path, e->name);
        if (e->type == 'f') {
            if (e->mtime_ns < 0 ||
                !t->wanted(d->o, path, e->size, e->mtime_ns))
                continue;
            t->out[t->n++] = (struct vm_ahead){path, e->size, e->mtime_ns};
            path = NULL;
        } else if (depth < TAKE_DEPTH) {
            sub = dir_find_known(d->o, path);
            if (sub && sub->list)
                take(t, sub, 0, sub->list->n, depth + 1);
        }
    }
}

size_t vmdir_next_files(struct oid o, const char *path, vm_wanted_fn wanted,
                        struct vm_ahead *out, size_t max)
{
    struct taking t = {.out = out, .max = max, .wanted = wanted};
    AUTO_FREE char *at = xstrdup(path);
    const char *name;
    struct vmdir *own = parent_of(o, at, &name);

    for (;;) {
        struct vmdir *d = parent_of(o, at, &name);
        int64_t i = d && d->list ? place_of(d->list, name) : -1;
        char *up;

        if (i < 0)
            break;
        take(&t, d, (size_t)i + 1, d->list->n, 0);
        if (!*d->path || taken_all(&t))
            break;
        up = xstrdup(d->path);
        free(at);
        at = up;
    }
    /* not everybody reads a directory in its order */
    if (own && own->list)
        take(&t, own, 0, own->list->n, TAKE_DEPTH);
    return t.n;
}
