#include "fs/files.h"

#include <ctype.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t fresh_ms = 1000;
enum { LISTS_KEPT = 8 };

bool vm_is(const struct node *n)
{
    return n->row->kind == K_VMDIR || n->row->kind == K_VMFILE ||
           n->row->kind == K_VMLINK;
}

static bool is_home(const struct node *n)
{
    return !*n->path;
}

const struct row *vm_row(char type)
{
    switch (type) {
    case 'd':
        return row_get(R_VMSUB);
    case 'f':
        return row_get(R_VMFILE);
    case 'l':
        return row_get(R_VMLINK);
    default:
        return NULL;
    }
}

/* ---- symlinks ---- */

static const char outside[] = "(outside)";

/* the next part of a path, or 0 */
static size_t next_part(const char **p)
{
    *p += strspn(*p, "/");
    return strcspn(*p, "/");
}

static bool part_is(const char *p, size_t n, const char *word)
{
    return n == strlen(word) && !memcmp(p, word, n);
}

/* names without ".." onto out; false if there is one */
static bool add_names(struct buf *out, const char *p)
{
    size_t n;

    while ((n = next_part(&p))) {
        if (part_is(p, n, ".."))
            return false;
        if (!part_is(p, n, ".")) {
            if (out->n && out->p[out->n - 1] != '/')
                buf_addc(out, '/');
            buf_add(out, p, n);
        }
        p += n;
    }
    return true;
}

static size_t depth_of(const char *path)
{
    size_t n = 0;

    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* of two paths, how many bytes of leading directories they share; *n counts
 * those directories */
static size_t shared_dirs(const char *a, const char *b, size_t *n)
{
    size_t at = 0;

    *n = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '/') {
            at = i + 1;
            (*n)++;
        }
    return at;
}

static void add_ups(struct buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_adds(out, i ? "/.." : "..");
}

/* to a place below the home, from a link at path; false if that is none */
static bool add_from_home(struct buf *out, const char *path, const char *to)
{
    AUTO_BUF struct buf names = {0};
    size_t shared, dirs;

    /* a link that leads nowhere is said to lead to itself */
    if (!add_names(&names, to) || !strcmp(buf_str(&names), path))
        return false;
    shared = shared_dirs(path, buf_str(&names), &dirs);
    add_ups(out, depth_of(path) - dirs);
    return add_names(out, buf_str(&names) + shared);
}

/* the text of a relative link */
static bool add_relative(struct buf *out, const char *path, const char *p)
{
    size_t ups = 0, n;

    while ((n = next_part(&p)) &&
           (part_is(p, n, ".") || part_is(p, n, ".."))) {
        ups += n == 2;
        p += n;
    }
    add_ups(out, ups);
    return ups <= depth_of(path) && add_names(out, p);
}

void vm_link_text(const char *path, const char *target, struct buf *out)
{
    static const char home[] = "/home/user";
    const char *p = target ? target : "";
    size_t n = sizeof(home) - 1;
    AUTO_BUF struct buf b = {0};
    bool leads;

    if (*p != '/')
        leads = add_relative(&b, path, p);
    else
        leads = !strncmp(p, home, n) && (!p[n] || p[n] == '/') &&
                add_from_home(&b, path, p + n);
    if (!leads)
        buf_adds(out, outside);
    else
        buf_adds(out, b.n ? b.p : ".");
}

void vm_readlink(fuse_req_t req, struct node *n)
{
    AUTO_BUF struct buf b = {0};

    vm_link_text(n->path, n->vm_target, &b);
    fuse_reply_readlink(req, buf_str(&b));
}

/* ---- what is known ---- */

void vm_learn(struct node *n, const struct courier_entry *e)
{
    n->vm_at = mono_ms();
    n->size = e->size;
    n->vm_mtime = e->mtime_ns;
    n->vm_mode = e->mode;
    free(n->vm_target);
    n->vm_target = xstrdup(e->target);
}

int vm_attr(struct node *n, struct handle *h, struct stat *st)
{
    struct stat spool;

    st->st_mtim.tv_sec = n->vm_mtime / 1000000000;
    st->st_mtim.tv_nsec = n->vm_mtime % 1000000000;
    if (n->row->kind == K_VMLINK) {
        AUTO_BUF struct buf b = {0};

        vm_link_text(n->path, n->vm_target, &b);
        st->st_size = (off_t)b.n;
    } else if (n->row->kind == K_VMFILE) {
        st->st_size = n->size;
        if (n->vm_mode & 0100)
            st->st_mode |= 0100;
    }
    if (h && h->vm && h->vm->fd >= 0 && !fstat(h->vm->fd, &spool)) {
        st->st_size = spool.st_size;
        st->st_mtim = spool.st_mtim;
    }
    st->st_ctim = st->st_atim = st->st_mtim;
    return 0;
}

/* ---- listings kept for a moment ---- */

static struct kept {
    struct oid o;
    char *path;
    int64_t at;
    struct courier_entry *v;
    size_t n;
} kept[LISTS_KEPT];
static unsigned kept_next;

static void kept_clear(struct kept *l)
{
    vm_entries_free(l->v, l->n);
    free(l->path);
    *l = (struct kept){0};
}

void vm_list_keep(struct node *dir, const struct courier_entry *v, size_t n)
{
    struct kept *l = &kept[kept_next++ % LISTS_KEPT];

    kept_clear(l);
    l->o = dir->o;
    l->path = xstrdup(dir->path);
    l->at = mono_ms();
    l->v = xcalloc(n, sizeof(*v));
    l->n = n;
    for (size_t i = 0; i < n; i++) {
        l->v[i] = v[i];
        l->v[i].name = xstrdup(v[i].name);
        l->v[i].target = xstrdup(v[i].target);
    }
}

void vm_list_drop(struct oid o)
{
    for (size_t i = 0; i < LISTS_KEPT; i++)
        if (kept[i].path && oid_same(kept[i].o, o))
            kept_clear(&kept[i]);
}

static const struct courier_entry *kept_find(struct node *dir,
                                             const char *name)
{
    for (size_t i = 0; i < LISTS_KEPT; i++) {
        struct kept *l = &kept[i];

        if (!l->path || !oid_same(l->o, dir->o) ||
            strcmp(l->path, dir->path) || mono_ms() - l->at > fresh_ms)
            continue;
        for (size_t j = 0; j < l->n; j++)
            if (!strcmp(l->v[j].name, name))
                return &l->v[j];
    }
    return NULL;
}

/* ---- lookup and attributes ---- */

/* a name that is no UTF-8 is listed in this form, and can't be asked for */
static bool is_escaped(const char *name)
{
    for (const char *p = name; (p = strstr(p, "\\x")); p += 2)
        if (strchr("89abcdef", p[2]) && p[2] && isxdigit(p[3]))
            return true;
    return false;
}

static void entry_reply(fuse_req_t req, struct node *dir, const char *path,
                        const struct courier_entry *e)
{
    struct key k = {.row = vm_row(e->type),
                    .o = dir->o,
                    .path = path,
                    .trash = dir->trash};
    struct node *n;

    if (!k.row) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    n = node_get(&k);
    vm_learn(n, e);
    reply_entry(req, n);
}

void vm_reply_entry(struct vmcall *k, struct node *dir,
                    const struct courier_entry *e)
{
    if (k->req)
        entry_reply(k->req, dir, k->path, e);
}

static void looked_up(struct vmcall *k, int code)
{
    if (code == -ENOENT && is_escaped(k->name)) {
        snprintf(k->words, sizeof(k->words),
                 "the name behind this one is "
                 "not UTF-8 and can't be asked for; rename it in the VM");
        code = -EINVAL;
    }
    if (code || !k->count)
        vmcall_reply(k, code ? code : -ENOENT);
    else
        vm_reply_entry(k, k->n, k->entries);
    vmcall_free(k);
}

void vm_lookup(fuse_req_t req, struct node *dir, const char *name)
{
    const struct courier_entry *e = NULL;

    if (strlen(name) > 255) {
        fuse_reply_err(req, ENAMETOOLONG);
        return;
    }
    if (courier_files_up(fs.c, dir->o) && !is_escaped(name))
        e = kept_find(dir, name);
    if (e) {
        AUTO_FREE char *path = path_join(dir->path, name);

        entry_reply(req, dir, path, e);
        return;
    }
    vmcall_send(vmcall_new(req, dir, name, looked_up), FILES_STAT);
}

static void got_attr(struct vmcall *k, int code)
{
    if (!code && k->count && vm_row(k->entries->type) != k->n->row &&
        !is_home(k->n))
        code = -ESTALE;
    if (code || !k->count) {
        vmcall_reply(k, code == -ENOENT || !code ? -ESTALE : code);
    } else {
        vm_learn(k->n, k->entries);
        if (k->req)
            reply_attr(k->req, k->n, NULL);
    }
    vmcall_free(k);
}

void vm_getattr(fuse_req_t req, struct node *n, struct handle *h)
{
    if ((is_home(n) && !courier_files_up(fs.c, n->o)) ||
        (h && h->vm && h->vm->fd >= 0) ||
        (n->vm_at && mono_ms() - n->vm_at < fresh_ms))
        reply_attr(req, n, h);
    else
        vmcall_send(vmcall_new(req, n, NULL, got_attr), FILES_STAT);
}

void vm_setattr(fuse_req_t req, struct node *n, struct handle *h,
                const struct stat *st, int to_set)
{
    if (to_set & FUSE_SET_ATTR_SIZE && n->row->kind == K_VMFILE)
        vm_resize(req, n, h, st->st_size);
    else
        vm_getattr(req, n, h); /* modes and times stay the VM's own */
}

/* ---- names ---- */

static void name_changed(struct vmcall *k, int code)
{
    vm_list_drop(k->n->o);
    vmcall_reply(k, code);
    vmcall_free(k);
}

void vm_remove(fuse_req_t req, struct node *dir, const char *name)
{
    vmcall_send(vmcall_new(req, dir, name, name_changed), FILES_REMOVE);
}

static void renamed(struct vmcall *k, int code)
{
    if (!code)
        node_moved(k->n->o, K_VMDIR, k->path, k->path2);
    name_changed(k, code);
}

void vm_rename(fuse_req_t req, struct node *from, const char *name,
               struct node *to, const char *newname)
{
    struct vmcall *k;

    if (!oid_same(from->o, to->o)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    k = vmcall_new(req, from, name, renamed);
    k->path2 = path_join(to->path, newname);
    vmcall_send(k, FILES_RENAME);
}

static void made(struct vmcall *k, int code)
{
    vm_list_drop(k->n->o);
    if (code) {
        vmcall_reply(k, code);
        vmcall_free(k);
        return;
    }
    k->fn = looked_up;
    vmcall_send(k, FILES_STAT);
}

void vm_mkdir(fuse_req_t req, struct node *dir, const char *name)
{
    vmcall_send(vmcall_new(req, dir, name, made), FILES_MKDIR);
}
