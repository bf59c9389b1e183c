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
    k->fn = fn;
    k->fd = -1;
    k->name = xstrdup(name);
    k->path = name ? path_join(n->path, name) : xstrdup(n->path);
    node_ref(n);
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

struct courier_entry *vmcall_take(struct vmcall *k, size_t *n)
{
    struct courier_entry *v = k->entries;

    *n = k->count;
    k->entries = NULL;
    k->count = 0;
    return v;
}

void vmcall_free(struct vmcall *k)
{
    vm_entries_free(k->entries, k->count);
    buf_free(&k->data);
    if (k->fd >= 0)
        close(k->fd);
    free(k->name);
    free(k->path);
    free(k->path2);
    node_unref(k->n);
    free(k);
}

void vmcall_reply(struct vmcall *k, int code)
{
    if (!k->req)
        return;
    if (code && k->words[0] && code != -ENOENT) {
        AUTO_FREE char *up = object_words(k->n->o);
        AUTO_FREE char *path = xasprintf("%s.files/%s", up, k->path);

        courier_error(fs.c, k->n->o, path, k->words);
    }
    reply_code(k->req, code);
}

/* back on the loop */
static void answered(void *arg)
{
    struct vmcall *k = arg;

    if (k->req)
        fuse_req_interrupt_func(k->req, NULL, NULL);
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

/* on a worker: all of it is borrowed */
static void done(void *arg, const struct courier_files_result *r)
{
    struct vmcall *k = arg;

    k->code = r->code > 0 ? -r->code : r->code;
    if (k->code && r->e)
        snprintf(k->words, sizeof(k->words), "%.199s", r->e->text);
    copy_entries(k, r);
    if (r->len)
        buf_add(&k->data, r->data, r->len);
    k->total = r->total;
    notify_post(answered, k);
}

static void answer_reset(struct vmcall *k)
{
    vm_entries_free(k->entries, k->count);
    k->entries = NULL;
    k->count = 0;
    buf_clear(&k->data);
    k->words[0] = 0;
    k->total = 0;
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
    };
    struct err e = {0};
    int r = 0;

    answer_reset(k);
    if (op == FILES_WRITE) {
        lseek(k->fd, 0, SEEK_SET);
        q.fd = dup(k->fd);
        r = q.fd < 0 ? -errno : 0;
    }
    if (!r)
        r = courier_files(fs.c, k->n->o, &q, done, k, &e);
    if (r) {
        k->code = r;
        k->fn(k, r);
        return;
    }
    if (k->req)
        fuse_req_interrupt_func(k->req, interrupted, k);
}
