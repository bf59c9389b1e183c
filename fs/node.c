#include "fs/node.h"

#include "base/text.h"
#include "fs/files.h"

enum { NODE_SLOTS = 1 << 16, OBJECT_SLOTS = 1 << 14 };

static struct node *nodes[NODE_SLOTS];
static struct object *objects[OBJECT_SLOTS];

static size_t node_slot(uint64_t ino)
{
    return (ino ^ (ino >> 17)) % NODE_SLOTS;
}

static size_t object_slot(struct oid o)
{
    return ((uint64_t)o.id * 31 + (uint64_t)o.kind) % OBJECT_SLOTS;
}

bool oid_same(struct oid a, struct oid b)
{
    return a.kind == b.kind && a.id == b.id;
}

/* ---- objects ---- */

struct object *object_find(struct oid o)
{
    struct object *obj = objects[object_slot(o)];

    while (obj && !oid_same(obj->o, o))
        obj = obj->next;
    return obj;
}

struct object *object_get(struct oid o)
{
    struct object *obj = object_find(o);

    if (!obj) {
        size_t slot = object_slot(o);

        obj = xcalloc(1, sizeof(*obj));
        obj->o = o;
        obj->next = objects[slot];
        objects[slot] = obj;
    }
    obj->refs++;
    return obj;
}

void object_unref(struct object *obj)
{
    struct object **at;

    if (!obj || --obj->refs)
        return;
    at = &objects[object_slot(obj->o)];
    while (*at != obj)
        at = &(*at)->next;
    *at = obj->next;
    free(obj);
}

/* ---- nodes ---- */

static bool same_path(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool node_is(const struct node *n, const struct key *k)
{
    return n->row == k->row && oid_same(n->o, k->o) && n->trash == k->trash &&
           same_path(n->path, k->path);
}

static uint64_t key_hash(const struct key *k)
{
    struct buf b = {0};
    uint64_t h;

    buf_addf(&b, "%d/%d/%lld/%d/%s", row_index(k->row), (int)k->o.kind,
             (long long)k->o.id, k->trash, k->path ? k->path : "");
    h = text_hash(b.p, b.n);
    buf_free(&b);
    return h > 1 ? h : 2;
}

struct node *node_find(uint64_t ino)
{
    struct node *n = nodes[node_slot(ino)];

    while (n && n->ino != ino)
        n = n->hash_next;
    return n;
}

/* the number it has, or would have; *found is its node if there is one */
static uint64_t ino_of(const struct key *k, struct node **found)
{
    uint64_t ino = k->row == row_get(R_ROOT) ? FUSE_ROOT_ID : key_hash(k);

    for (;; ino = ino + 1 > 1 ? ino + 1 : 2) {
        struct node *n = node_find(ino);

        if (!n || node_is(n, k)) {
            *found = n;
            return ino;
        }
    }
}

uint64_t node_ino_of(const struct key *k)
{
    struct node *n;

    return ino_of(k, &n);
}

struct node *node_get(const struct key *k)
{
    struct node *n;
    uint64_t ino = ino_of(k, &n);

    if (n)
        return n;
    n = xcalloc(1, sizeof(*n));
    n->ino = ino;
    n->row = k->row;
    n->o = k->o;
    n->path = xstrdup(k->path);
    n->trash = k->trash;
    n->sized_at = -1;
    n->obj = object_get(k->o);
    n->obj_next = n->obj->nodes;
    if (n->obj_next)
        n->obj_next->obj_prev = n;
    n->obj->nodes = n;
    n->hash_next = nodes[node_slot(ino)];
    nodes[node_slot(ino)] = n;
    return n;
}

static void node_free_if_unused(struct node *n)
{
    struct node **at = &nodes[node_slot(n->ino)];

    if (n->nlookup || n->refs || n->ino == FUSE_ROOT_ID)
        return;
    while (*at != n)
        at = &(*at)->hash_next;
    *at = n->hash_next;
    if (n->obj_prev)
        n->obj_prev->obj_next = n->obj_next;
    else
        n->obj->nodes = n->obj_next;
    if (n->obj_next)
        n->obj_next->obj_prev = n->obj_prev;
    object_unref(n->obj);
    free(n->vm_target);
    free(n->path);
    free(n);
}

void node_ref(struct node *n)
{
    n->refs++;
}

void node_unref(struct node *n)
{
    n->refs--;
    node_free_if_unused(n);
}

void node_forget(struct node *n, uint64_t nlookup)
{
    n->nlookup -= nlookup < n->nlookup ? nlookup : n->nlookup;
    node_free_if_unused(n);
}

/* the part of path below from, or NULL */
static const char *path_below(const char *path, const char *from)
{
    size_t n = strlen(from);

    if (strncmp(path, from, n) || (path[n] && path[n] != '/'))
        return NULL;
    return path + n;
}

void node_moved(struct oid o, enum kind dir, const char *from, const char *to)
{
    struct object *obj = object_find(o);
    bool vm = dir == K_VMDIR;

    for (struct node *n = obj ? obj->nodes : NULL; n; n = n->obj_next) {
        const char *rest = n->path ? path_below(n->path, from) : NULL;
        char *path;

        if (!rest || n->row->name || vm_is(n) != vm)
            continue;
        path = xasprintf("%s%s", to, rest);
        free(n->path);
        n->path = path;
    }
}

/* fn frees no nodes but, at most, this one's */
void node_each(void (*fn)(struct node *n, int arg), int arg)
{
    for (size_t i = 0; i < NODE_SLOTS; i++) {
        struct node *n = nodes[i];

        while (n) {
            struct node *next = n->hash_next;

            fn(n, arg);
            n = next;
        }
    }
}

void node_init(void)
{
    struct key root = {.row = row_get(R_ROOT), .o = {OBJ_ROOT, 0}};

    node_get(&root)->nlookup = 1;
}

/* ---- words ---- */

static const char *list_place(enum list l)
{
    for (int i = R_ROOT + 1; i < row_count(); i++) {
        const struct row *r = row_at(i);

        if (r->kind == K_LIST && r->what == (int)l)
            return r->name;
    }
    return "?";
}

char *object_words(struct oid o)
{
    AUTO_FREE char *name = NULL;
    AUTO_FREE char *up = NULL;
    struct oid owner;
    enum list l;

    if (o.kind == OBJ_ROOT)
        return xstrdup("");
    if (courier_where(fs.c, o, &l, &owner, &name))
        return xstrdup("(gone)/");
    up = object_words(owner);
    return xasprintf("%s%s/%s/", up, list_place(l), name);
}

static void words_below(struct buf *b, const struct row *r)
{
    if (!r->name)
        return;
    words_below(b, row_get(r->parent));
    if (b->n)
        buf_addc(b, '/');
    buf_adds(b, r->name);
}

char *node_words(const struct node *n)
{
    AUTO_FREE char *up = object_words(n->o);
    AUTO_BUF struct buf b = {0};

    words_below(&b, n->row);
    if (!n->row->name && n->path)
        buf_adds(&b, n->path);
    return xasprintf("%s%s", up, buf_str(&b));
}
