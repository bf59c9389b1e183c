/*
 * vmattr: times and modes of what is in a VM. The protocol has no call for
 * them, a program in the VM sets them. Of a mode only the x bit counts; owners
 * stay the VM's own.
 */
#include "fs/files.h"

#include <sys/stat.h>

enum {
    DELAY_MS = 40,
    REST_MS = 20, /* who sets a time often renames the file next */
    AT_ONCE = 200,
};

struct attr {
    struct courier_attrs a;
    int64_t at;
};
struct attrs {
    struct attr *v;
    size_t n, cap;
};

/* what waits for its change until those under way are done */
struct held {
    struct vmcall *k;
    enum files_op op;
    struct held *next;
};

struct vmattrs {
    struct oid o;
    struct attrs noted, sent;
    int64_t due; /* 0: nothing is noted */
    struct held *held, **held_tail;
    struct vmattrs *next;
};

static struct vmattrs *all;

static struct vmattrs *find(struct oid o)
{
    struct vmattrs *a = all;

    while (a && !oid_same(a->o, o))
        a = a->next;
    return a;
}

static struct vmattrs *get(struct oid o)
{
    struct vmattrs *a = find(o);

    if (a)
        return a;
    a = xcalloc(1, sizeof(*a));
    a->o = o;
    a->held_tail = &a->held;
    a->next = all;
    all = a;
    return a;
}

static struct courier_attrs *of_path(struct attrs *l, const char *path)
{
    for (size_t i = l->n; i-- > 0;)
        if (!strcmp(l->v[i].a.path, path))
            return &l->v[i].a;
    return NULL;
}

const struct courier_attrs *vm_attrs_of(struct oid o, const char *path)
{
    struct vmattrs *a = find(o);
    const struct courier_attrs *x = a ? of_path(&a->noted, path) : NULL;

    return x || !a ? x : of_path(&a->sent, path);
}

static void drop(struct attrs *l, size_t i)
{
    free(l->v[i].a.path);
    l->v[i] = l->v[--l->n];
}

static void clear(struct attrs *l)
{
    while (l->n)
        drop(l, l->n - 1);
}

/* takes the path */
static void add(struct attrs *l, char *path)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->v = xrealloc(l->v, l->cap * sizeof(*l->v));
    }
    l->v[l->n++] = (struct attr){{.path = path, .x = -1}, mono_ms()};
}

void vm_attrs_note(struct oid o, const struct courier_attrs *x)
{
    struct vmattrs *a = get(o);
    struct courier_attrs *to = of_path(&a->noted, x->path);
    struct courier_entry *e = vmdir_entry(o, x->path);
    int64_t ns = x->mtime_ns < 0 ? now_ns() : x->mtime_ns;

    if (!to) {
        add(&a->noted, xstrdup(x->path));
        to = &a->noted.v[a->noted.n - 1].a;
    }
    if (x->set_mtime) {
        to->set_mtime = true;
        to->mtime_ns = ns;
    }
    if (x->x >= 0)
        to->x = x->x;
    if (e && e->mtime_ns >= 0 && x->set_mtime)
        e->mtime_ns = ns;
    if (e && x->x >= 0)
        e->mode = (e->mode & ~0100U) | (x->x ? 0100 : 0);
    if (!a->due)
        a->due = mono_ms() + DELAY_MS;
}

/* ---- sending ---- */

static void send_held(struct vmattrs *a)
{
    struct held *h = a->held, *next;

    a->held = NULL;
    a->held_tail = &a->held;
    for (; h; h = next) {
        next = h->next;
        vmcall_waited(h->k);
        vmcall_send(h->k, h->op);
        free(h);
    }
}

static void attrs_set(struct vmcall *k, int code)
{
    struct vmattrs *a = get(k->o);

    clear(&a->sent);
    if (code && k->words[0]) {
        AUTO_FREE char *up = object_words(k->o);
        AUTO_FREE char *path = xasprintf("%s.files/%s", up, k->path);

        courier_error(fs.c, k->o, path, k->words);
    }
    if (code)
        vmdir_drop(k->o);
    send_held(a);
    vmcall_free(k);
}

static void send(struct vmattrs *a)
{
    struct vmcall *k = vmcall_plain(a->o, "", attrs_set, NULL);
    int64_t now = mono_ms();
    size_t rest = 0;

    k->attrs = xcalloc(AT_ONCE, sizeof(*k->attrs));
    a->due = 0;
    for (size_t i = 0; i < a->noted.n; i++) {
        struct attr *x = &a->noted.v[i];

        if (now - x->at < REST_MS || k->n_attrs == AT_ONCE) {
            a->due = now + REST_MS;
            a->noted.v[rest++] = *x;
            continue;
        }
        k->attrs[k->n_attrs] = x->a;
        k->attrs[k->n_attrs++].path = xstrdup(x->a.path);
        add(&a->sent, x->a.path);
        a->sent.v[a->sent.n - 1] = *x;
    }
    a->noted.n = rest;
    if (!k->n_attrs) {
        vmcall_free(k);
        return;
    }
    free(k->path);
    k->path = xstrdup(k->attrs[0].path);
    vmcall_send(k, FILES_ATTRS);
}

int vm_attrs_timeout(void)
{
    int64_t ms = -1, now = mono_ms();

    for (struct vmattrs *a = all; a; a = a->next)
        if (a->due && !a->sent.n && (ms < 0 || a->due - now < ms))
            ms = a->due > now ? a->due - now : 0;
    return (int)ms;
}

void vm_attrs_tick(void)
{
    int64_t now = mono_ms();

    for (struct vmattrs *a = all; a; a = a->next)
        if (a->due && a->due <= now && !a->sent.n)
            send(a);
}

void vm_attrs_gone(struct oid o)
{
    struct vmattrs **at = &all;
    struct vmattrs *a = find(o);

    if (!a)
        return;
    clear(&a->noted);
    a->due = 0;
    if (a->sent.n || a->held)
        return;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    free(a->noted.v);
    free(a->sent.v);
    free(a);
}

/* ---- other changes meanwhile ---- */

/* is it path, or below it? */
static const char *below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return !strncmp(path, dir, n) && (!path[n] || path[n] == '/') ? path + n
                                                                  : NULL;
}

static bool touches(const struct attrs *l, const char *path)
{
    for (size_t i = 0; i < l->n; i++)
        if (below(l->v[i].a.path, path))
            return true;
    return false;
}

static void drop_below(struct attrs *l, const char *path)
{
    for (size_t i = l->n; i-- > 0;)
        if (below(l->v[i].a.path, path))
            drop(l, i);
}

static void move_below(struct attrs *l, const char *from, const char *to)
{
    for (size_t i = 0; i < l->n; i++) {
        const char *rest = below(l->v[i].a.path, from);
        char *path;

        if (!rest)
            continue;
        path = xasprintf("%s%s", to, rest);
        free(l->v[i].a.path);
        l->v[i].a.path = path;
    }
}

bool vm_attrs_hold(struct vmcall *k, enum files_op op)
{
    struct vmattrs *a = find(k->o);
    struct held *h;

    if (!a || (op != FILES_WRITE && op != FILES_REMOVE && op != FILES_RENAME))
        return false;
    if (touches(&a->sent, k->path) ||
        (k->path2 && touches(&a->sent, k->path2))) {
        h = xcalloc(1, sizeof(*h));
        h->k = k;
        h->op = op;
        *a->held_tail = h;
        a->held_tail = &h->next;
        return true;
    }
    /* a new content has a time of its own */
    drop_below(&a->noted, op == FILES_RENAME ? k->path2 : k->path);
    if (op == FILES_RENAME)
        move_below(&a->noted, k->path, k->path2);
    return false;
}

/* ---- setattr ---- */

static struct courier_attrs wanted_of(const struct node *n,
                                      const struct stat *st, int to_set)
{
    struct courier_attrs w = {.path = n->path, .x = -1};

    if (to_set & FUSE_SET_ATTR_MTIME_NOW) {
        w.set_mtime = true;
        w.mtime_ns = -1;
    } else if (to_set & FUSE_SET_ATTR_MTIME) {
        w.set_mtime = true;
        w.mtime_ns = st->st_mtim.tv_sec * 1000000000LL + st->st_mtim.tv_nsec;
        if (w.mtime_ns < 0)
            w.mtime_ns = 0;
    }
    if (to_set & FUSE_SET_ATTR_MODE && n->row->kind == K_VMFILE &&
        ((!vm_fresh(n) && !n->vm_sized_at) ||
         (st->st_mode ^ n->vm_mode) & 0100))
        w.x = !!(st->st_mode & 0100);
    return w;
}

static void apply(struct node *n, const struct courier_attrs *a)
{
    struct courier_entry e = {.type = 'f', .size = n->size};

    if (a->set_mtime)
        n->vm_mtime = a->mtime_ns;
    if (a->x >= 0)
        n->vm_mode = (n->vm_mode & ~0100U) | (a->x ? 0100 : 0);
    if (n->row->kind == K_VMFILE) {
        e.mtime_ns = n->vm_mtime;
        e.mode = n->vm_mode;
        vmdir_learn(n->o, n->path, &e, vmdir_changes(n->o, n->path));
    }
}

void vm_set_attrs(fuse_req_t req, struct node *n, struct handle *h,
                  const struct stat *st, int to_set)
{
    struct courier_attrs w = wanted_of(n, st, to_set);

    if ((!w.set_mtime && w.x < 0) || !vm_up(n->o)) {
        vm_getattr(req, n, h);
        return;
    }
    /* the kernel doesn't tell through which open file: futimens, fchmod */
    if (!h)
        h = handle_writing(n, fuse_req_ctx(req)->pid);
    if (vm_unsent(h)) {
        if (w.set_mtime) {
            h->vm->set_mtime = true;
            h->vm->mtime_ns = w.mtime_ns;
        }
        if (w.x >= 0)
            h->vm->x = w.x;
        reply_attr(req, n, h);
        return;
    }
    vm_attrs_note(n->o, &w);
    /* of what we wrote ourselves only the time was not known */
    if (w.set_mtime && n->vm_sized_at)
        n->vm_at = n->vm_sized_at;
    if (vm_fresh(n))
        apply(n, vm_attrs_of(n->o, n->path));
    vm_getattr(req, n, h);
}
