#include "fs/files.h"

#include <unistd.h>

static void interrupted(fuse_req_t req, void *data)
{
    struct vmcall *k = data;

    k->req = NULL;
    fuse_reply_err(req, EINTR);
}

struct vmcall *vmcall_new(fuse_req_t req, struct node *n, const char *name,
                          vm_fn fn)
{
    struct vmcall *k = xcalloc(1, sizeof(*k));

    k->req = req;
    k->n = n;
    k->o = n->o;
    k->fn = fn;
    k->fd = -1;
    k->name = xstrdup(name);
    k->path = name ? path_join(n->path, name) : xstrdup(n->path);
    node_ref(n);
    return k;
}

struct vmcall *vmcall_plain(struct oid o, const char *path, vm_fn fn,
                            void *arg)
{
    struct vmcall *k = xcalloc(1, sizeof(*k));

    k->o = o;
    k->fn = fn;
    k->arg = arg;
    k->fd = -1;
    k->path = xstrdup(path);
    return k;
}

void vm_entries_free(struct courier_entry *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(v[i].name);
        free(v[i].target);
    }
    free(v);
}

static void answer_free(struct vmcall *k)
{
    vm_entries_free(k->entries, k->count);
    k->entries = NULL;
    k->count = 0;
    for (size_t i = 0; k->blobs && i < k->n_paths; i++)
        buf_free(&k->blobs[i]);
    free(k->blobs);
    free(k->came);
    k->blobs = NULL;
    k->came = NULL;
    k->words[0] = 0;
    k->total = 0;
}

void vmcall_free(struct vmcall *k)
{
    answer_free(k);
    buf_free(&k->data);
    for (size_t i = 0; i < k->n_paths; i++)
        free(k->paths[i]);
    free(k->paths);
    for (size_t i = 0; i < k->n_attrs; i++)
        free(k->attrs[i].path);
    free(k->attrs);
    if (k->fd >= 0)
        close(k->fd);
    free(k->name);
    free(k->path);
    free(k->path2);
    if (k->n)
        node_unref(k->n);
    free(k);
}

void vmcall_reply(struct vmcall *k, int code)
{
    if (!k->req)
        return;
    if (code && k->words[0] && code != -ENOENT) {
        AUTO_FREE char *up = object_words(k->o);
        AUTO_FREE char *path = xasprintf("%s.files/%s", up, k->path);

        courier_error(fs.c, k->o, path, k->words);
    }
    reply_code(k->req, code);
}

/* back on the loop */
static void answered(void *arg)
{
    struct vmcall *k = arg;

    vmcall_waited(k);
    if (k->op == FILES_STAT && !k->code && k->count)
        vmdir_learn(k->o, k->path, k->entries, k->age);
    k->fn(k, k->code);
}

static void copy_entries(struct vmcall *k,
                         const struct courier_files_result *r)
{
    if (!r->n)
        return;
    k->entries = xcalloc(r->n, sizeof(*k->entries));
    k->count = r->n;
    for (size_t i = 0; i < r->n; i++) {
        k->entries[i] = r->entries[i];
        k->entries[i].name = xstrdup(r->entries[i].name);
        k->entries[i].target = xstrdup(r->entries[i].target);
    }
}

static void copy_blobs(struct vmcall *k, const struct courier_files_result *r)
{
    if (!r->blobs)
        return;
    k->blobs = xcalloc(k->n_paths, sizeof(*k->blobs));
    k->came = xcalloc(k->n_paths, sizeof(*k->came));
    for (size_t i = 0; i < k->n_paths; i++) {
        k->came[i] = r->blobs[i].came;
        if (r->blobs[i].n)
            buf_add(&k->blobs[i], r->blobs[i].p, r->blobs[i].n);
    }
}

/* on a worker: all of it is borrowed */
static void done(void *arg, const struct courier_files_result *r)
{
    struct vmcall *k = arg;

    k->code = r->code > 0 ? -r->code : r->code;
    if (k->code && r->e)
        snprintf(k->words, sizeof(k->words), "%.199s", r->e->text);
    copy_entries(k, r);
    if (r->data) {
        buf_free(&k->data);
        k->data = *r->data;
        *r->data = (struct buf){0};
    }
    copy_blobs(k, r);
    k->total = r->total;
    notify_post(answered, k);
}

void vmcall_wait(struct vmcall *k)
{
    if (k->req)
        fuse_req_interrupt_func(k->req, interrupted, k);
}

void vmcall_waited(struct vmcall *k)
{
    if (k->req)
        fuse_req_interrupt_func(k->req, NULL, NULL);
}

void vmcall_send(struct vmcall *k, enum files_op op)
{
    struct courier_files_call q = {
        .op = op,
        .path = k->path,
        .path2 = k->path2,
        .off = k->off,
        .len = k->len,
        .fd = -1,
        .ahead = k->ahead,
        .paths = (const char *const *)k->paths,
        .n_paths = k->n_paths,
        .attrs = k->attrs,
        .n_attrs = k->n_attrs,
    };
    struct err e = {0};
    int r = 0;

    k->op = op;
    answer_free(k);
    buf_clear(&k->data);
    if (vm_attrs_hold(k, op)) {
        vmcall_wait(k);
        return;
    }
    k->sent_at = mono_ms();
    if (op == FILES_STAT)
        k->age = vmdir_changes(k->o, k->path);
    if (op == FILES_WRITE) {
        lseek(k->fd, 0, SEEK_SET);
        q.fd = dup(k->fd);
        r = q.fd < 0 ? -errno : 0;
    }
    if (!r)
        r = courier_files(fs.c, k->o, &q, done, k, &e);
    if (r) {
        k->code = r;
        snprintf(k->words, sizeof(k->words), "%.199s", e.text);
        notify_post(answered, k);
    }
    vmcall_wait(k);
}
