#include "fs/files.h"

#include <ctype.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- what is known ---- */

void vm_learn(struct node *n, const struct courier_entry *e, int64_t at)
{
    const struct courier_attrs *a;

    n->vm_at = n->vm_named_at = at;
    n->vm_sized_at = 0;
    n->size = e->size;
    n->vm_mtime = e->mtime_ns;
    n->vm_mode = e->mode;
    a = vm_attrs_of(n->o, n->path);
    if (a && a->set_mtime)
        n->vm_mtime = a->mtime_ns;
    if (a && a->x >= 0)
        n->vm_mode = (n->vm_mode & ~0100U) | (a->x ? 0100 : 0);
    free(n->vm_target);
    n->vm_target = xstrdup(e->target);
}

static int64_t good_ms(int64_t at)
{
    int64_t left = at ? at + VM_FRESH_MS - mono_ms() : 0;

    return left > 0 ? left : 0;
}

bool vm_fresh(const struct node *n)
{
    return good_ms(n->vm_at);
}

/* we changed a name in it, just now; who goes through it needn't ask */
void vm_dir_changed(struct node *n)
{
    n->vm_mtime = now_ns();
}

double vm_good_for(const struct node *n)
{
    return (double)good_ms(n->vm_at) / 1000;
}

double vm_named_for(const struct node *n)
{
    return (double)good_ms(n->vm_named_at) / 1000;
}

static void node_changed(struct node *n)
{
    if (!n->vm_at && !n->vm_named_at)
        return;
    n->vm_at = n->vm_named_at = n->vm_sized_at = 0;
    if (n->nlookup)
        notify_inode(n->ino);
}

/* the times and sizes that the kernel has, too: a stat after wait/done or
 * wait/exited shows what the VM has then */
void vm_changed(const struct courier_change *c)
{
    struct oid o = c->o;
    struct object *obj;
    enum list l;
    char *name = NULL;

    if (o.kind == OBJ_EXEC && c->aspects & ASPECT_STATUS) {
        if (courier_where(fs.c, c->o, &l, &o, &name))
            return;
        free(name);
    } else if (o.kind != OBJ_SANDBOX ||
               !(c->aspects & (ASPECT_QUEUE | ASPECT_STATUS | ASPECT_GONE))) {
        return;
    }
    if (c->o.kind == OBJ_SANDBOX && c->aspects & ASPECT_GONE) {
        vm_text_gone(o);
        vm_attrs_gone(o);
        vmdir_gone(o);
    } else {
        vmdir_drop(o);
    }
    obj = object_find(o);
    for (struct node *n = obj ? obj->nodes : NULL; n; n = n->obj_next)
        if (vm_is(n))
            node_changed(n);
}

bool vm_unsent(const struct handle *h)
{
    return h && h->vm && h->vm->fd >= 0 && (h->vm->dirty || h->vm->emptied);
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
    if (vm_unsent(h) && !fstat(h->vm->fd, &spool)) {
        st->st_size = spool.st_size;
        st->st_mtim = spool.st_mtim;
    }
    st->st_ctim = st->st_atim = st->st_mtim;
    return 0;
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
                        const struct courier_entry *e, int64_t at)
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
    vm_learn(n, e, at);
    reply_entry(req, n);
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
    else if (k->req)
        entry_reply(k->req, k->n, k->path, k->entries, k->sent_at);
    vmcall_free(k);
}

/* can a directory that can't be listed still have names that can be asked
 * for? */
static bool by_name(int code)
{
    return code == -EACCES || code == -EPERM || code == -EINVAL ||
           code == -EIO || code == -EPROTO;
}

static void list_failed(struct vmcall *k, int code, const char *words)
{
    snprintf(k->words, sizeof(k->words), "%.199s", words);
    vmcall_reply(k, code);
    vmcall_free(k);
}

static void lookup_listed(void *arg, int code, const char *words,
                          struct vmlist *l)
{
    struct vmcall *k = arg;
    const struct courier_entry *e = l ? vmlist_find(l, k->name) : NULL;

    vmcall_waited(k);
    if (by_name(code) || (e && e->mtime_ns < 0)) {
        vmcall_send(k, FILES_STAT);
    } else if (!l) {
        list_failed(k, code, words);
    } else {
        if (!e)
            vmcall_reply(k, -ENOENT);
        else if (k->req)
            entry_reply(k->req, k->n, k->path, e, k->sent_at);
        vmcall_free(k);
    }
    vmlist_unref(l);
}

void vm_lookup(fuse_req_t req, struct node *dir, const char *name)
{
    AUTO_FREE char *path = path_join(dir->path, name);
    const struct courier_entry *e = NULL;
    enum vm_known known = VM_UNKNOWN;
    struct vmcall *k;
    bool plain = !is_escaped(name);
    int64_t at = 0;

    if (strlen(name) > 255) {
        fuse_reply_err(req, ENAMETOOLONG);
        return;
    }
    if (vm_up(dir->o) && plain)
        known = vmdir_peek(dir->o, path, &e, &at);
    else
        plain = false;
    if (known == VM_THERE) {
        entry_reply(req, dir, path, e, at);
        return;
    }
    if (known == VM_ABSENT) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    k = vmcall_new(req, dir, name, looked_up);
    k->sent_at = mono_ms();
    if (plain && !e && vmdir_worth(dir->o, dir->path)) {
        vmcall_wait(k);
        vmdir_want(dir->o, dir->path, false, lookup_listed, k);
    } else {
        vmcall_send(k, FILES_STAT);
    }
}

static void attr_is(struct vmcall *k, const struct courier_entry *e,
                    int64_t at)
{
    if (!e || (vm_row(e->type) != k->n->row && !is_home(k->n))) {
        vmcall_reply(k, -ESTALE);
        return;
    }
    vm_learn(k->n, e, at);
    if (k->req)
        reply_attr(k->req, k->n, NULL);
}

static void got_attr(struct vmcall *k, int code)
{
    if (code && code != -ENOENT)
        vmcall_reply(k, code);
    else
        attr_is(k, code || !k->count ? NULL : k->entries, k->sent_at);
    vmcall_free(k);
}

static void attr_listed(void *arg, int code, const char *words,
                        struct vmlist *l)
{
    struct vmcall *k = arg;
    const char *slash = strrchr(k->path, '/');
    const struct courier_entry *e =
        l ? vmlist_find(l, slash ? slash + 1 : k->path) : NULL;

    vmcall_waited(k);
    if (by_name(code) || (e && e->mtime_ns < 0)) {
        vmcall_send(k, FILES_STAT);
    } else if (!l && code != -ENOENT) {
        list_failed(k, code, words);
    } else {
        attr_is(k, e, k->sent_at);
        vmcall_free(k);
    }
    vmlist_unref(l);
}

void vm_getattr(fuse_req_t req, struct node *n, struct handle *h)
{
    const char *slash = strrchr(n->path, '/');
    size_t up = slash ? (size_t)(slash - n->path) : 0;
    AUTO_FREE char *dir = xmemdup0(n->path, up);
    const struct courier_entry *e = NULL;
    enum vm_known known = VM_UNKNOWN;
    struct vmcall *k;
    int64_t at = 0;

    /* fstat doesn't tell through which open file */
    if (!h && !vm_fresh(n) && n->row->kind == K_VMFILE)
        h = handle_writing(n, fuse_req_ctx(req)->pid);
    if ((is_home(n) && !vm_up(n->o)) || vm_unsent(h) || vm_fresh(n)) {
        reply_attr(req, n, h);
        return;
    }
    k = vmcall_new(req, n, NULL, got_attr);
    k->sent_at = mono_ms();
    if (!is_home(n) && vm_up(n->o))
        known = vmdir_peek(n->o, n->path, &e, &at);
    if (known != VM_UNKNOWN) {
        attr_is(k, e, at);
        vmcall_free(k);
    } else if (!is_home(n) && !e && vmdir_worth(n->o, dir)) {
        vmcall_wait(k);
        vmdir_want(n->o, dir, false, attr_listed, k);
    } else {
        vmcall_send(k, FILES_STAT);
    }
}

void vm_setattr(fuse_req_t req, struct node *n, struct handle *h,
                const struct stat *st, int to_set)
{
    if (to_set & FUSE_SET_ATTR_SIZE && n->row->kind == K_VMFILE)
        vm_resize(req, n, h, st->st_size);
    else
        vm_set_attrs(req, n, h, st, to_set);
}

/* ---- names ---- */

static void removed(struct vmcall *k, int code)
{
    if (code)
        vmdir_forget(k->o, k->n->path);
    else
        vmdir_del(k->o, k->path);
    vm_dir_changed(k->n);
    vmcall_reply(k, code);
    vmcall_free(k);
}

void vm_remove(fuse_req_t req, struct node *dir, const char *name)
{
    vmcall_send(vmcall_new(req, dir, name, removed), FILES_REMOVE);
}

static void renamed(struct vmcall *k, int code)
{
    if (code) { /* it may have been done for all that */
        vmdir_forget(k->o, "");
    } else {
        node_moved(k->o, K_VMDIR, k->path, k->path2);
        vmdir_moved(k->o, k->path, k->path2);
    }
    vm_dir_changed(k->n);
    vmcall_reply(k, code);
    vmcall_free(k);
}

static void rename_checked(struct vmcall *k, int code)
{
    char *path = k->path;

    /* it was asked for what is there to be replaced */
    k->path = k->path2;
    k->path2 = path;
    k->fn = renamed;
    if (code == -ENOENT) {
        vmcall_send(k, FILES_RENAME);
        return;
    }
    vmcall_reply(k, code ? code : -EEXIST);
    vmcall_free(k);
}

void vm_rename(fuse_req_t req, struct node *from, const char *name,
               struct node *to, const char *newname, bool replace)
{
    struct vmcall *k;
    char *path;

    if (!oid_same(from->o, to->o)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    k = vmcall_new(req, from, name, renamed);
    k->path2 = path_join(to->path, newname);
    vm_dir_changed(to);
    if (replace) {
        vmcall_send(k, FILES_RENAME);
        return;
    }
    path = k->path;
    k->path = k->path2;
    k->path2 = path;
    k->fn = rename_checked;
    vmcall_send(k, FILES_STAT);
}

static void made_seen(struct vmcall *k, int code)
{
    if (!code && k->count)
        vmdir_put(k->o, k->path, k->entries);
    looked_up(k, code);
}

static void made(struct vmcall *k, int code)
{
    vm_dir_changed(k->n);
    if (code) {
        vmdir_forget(k->o, k->n->path);
        vmcall_reply(k, code);
        vmcall_free(k);
        return;
    }
    k->fn = made_seen;
    vmcall_send(k, FILES_STAT);
}

static void mkdir_checked(struct vmcall *k, int code)
{
    k->fn = made;
    if (code == -ENOENT) {
        vmcall_send(k, FILES_MKDIR);
        return;
    }
    vmcall_reply(k, code ? code : -EEXIST);
    vmcall_free(k);
}

/* the protocol makes no difference between one that was made and one that was
 * there, and mkdir is what scripts take for a lock */
void vm_mkdir(fuse_req_t req, struct node *dir, const char *name)
{
    vmcall_send(vmcall_new(req, dir, name, mkdir_checked), FILES_STAT);
}
