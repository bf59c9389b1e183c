/*
 * input: the stdin of a command. What is written through one open file after
 * the other goes to it in order. When nobody has the file open any more, the
 * input ends, unless all that was written was appended (>>).
 */
#include "fs/fs.h"

#include <fcntl.h>
#include <poll.h>

/* a write; it waits while the command doesn't read what came before */
struct op {
    struct op *next;
    struct input *in;
    fuse_req_t req;
    struct handle *h;
    struct buf data;
    bool sent; /* the backend has it */
};

/* the stdin of one command, while anybody has it open */
struct input {
    struct input *next;
    struct oid o;
    unsigned writers;
    bool ends, keeps; /* what the writers that are gone wanted */
    struct op *ops;   /* in order */
};

static struct input *inputs;

static struct input *input_get(struct oid o)
{
    struct input *in;

    for (in = inputs; in; in = in->next)
        if (oid_same(in->o, o))
            return in;
    in = xcalloc(1, sizeof(*in));
    in->o = o;
    in->next = inputs;
    inputs = in;
    return in;
}

static void input_drop(struct input *in)
{
    struct input **at = &inputs;

    while (*at != in)
        at = &(*at)->next;
    *at = in->next;
    free(in);
}

/* ---- writes ---- */

static void op_free(struct op *op)
{
    struct op **at = &op->in->ops;

    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    buf_wipe(&op->data);
    free(op);
}

/* code: 0 or negative; the words are told in errors */
static void op_answer(struct op *op, int code, const char *words)
{
    fuse_req_interrupt_func(op->req, NULL, NULL);
    op->h->refused = op->h->refused || code;
    op->h->wrote = op->h->wrote || !code;
    if (!code)
        fuse_reply_write(op->req, op->data.n);
    else if (words && *words)
        refuse(op->req, op->h->n, code, words);
    else
        reply_code(op->req, code);
    op_free(op);
}

static void interrupted(fuse_req_t req, void *data)
{
    struct op *op = data;

    op->h->refused = true;
    op_free(op);
    fuse_reply_err(req, EINTR);
}

static void send_next(struct input *in);

static void taken(int code, const struct err *e, const char *made, void *arg)
{
    struct op *op = arg;
    struct input *in = op->in;

    (void)made;
    op->sent = false;
    if (code == -EAGAIN && !fs.ending)
        fuse_req_interrupt_func(op->req, interrupted, op);
    else
        op_answer(op, code == -EAGAIN ? -ESHUTDOWN : code, e->text);
    send_next(in);
}

static void send_next(struct input *in)
{
    struct op *op = in->ops;

    if (!op || op->sent || courier_input_may(fs.c, in->o, NULL) == -EAGAIN)
        return;
    fuse_req_interrupt_func(op->req, NULL, NULL);
    op->sent = true;
    courier_input_write(fs.c, in->o, buf_str(&op->data), op->data.n, call_done,
                        call_new(taken, op));
}

void input_changed(const struct courier_change *c)
{
    if (c->o.kind != OBJ_EXEC && c->o.kind != OBJ_SANDBOX)
        return;
    for (struct input *in = inputs; in; in = in->next) {
        struct object *obj = object_find(in->o);

        send_next(in);
        if (obj && c->o.kind == OBJ_SANDBOX)
            poll_wake(obj);
    }
}

void input_end_all(int err)
{
    for (struct input *in = inputs; in; in = in->next)
        while (in->ops && !in->ops->sent)
            op_answer(in->ops, -err, NULL);
}

static void input_write(fuse_req_t req, struct handle *h, const char *p,
                        size_t n, off_t off, const struct fuse_file_info *fi)
{
    struct input *in = h->input;
    struct op *op, **at = &in->ops;

    (void)off;
    if (!n) {
        fuse_reply_write(req, 0);
        return;
    }
    if (fs.ending ||
        (fi->flags & O_NONBLOCK &&
         (in->ops || courier_input_may(fs.c, in->o, NULL) == -EAGAIN))) {
        fuse_reply_err(req, fs.ending ? ESHUTDOWN : EAGAIN);
        return;
    }
    op = xcalloc(1, sizeof(*op));
    op->in = in;
    op->req = req;
    op->h = h;
    buf_add(&op->data, p, n);
    while (*at)
        at = &(*at)->next;
    *at = op;
    send_next(in);
    if (!op->sent)
        fuse_req_interrupt_func(req, interrupted, op);
}

/* ---- open, close ---- */

struct opening {
    fuse_req_t req;
    struct node *n;
    struct fuse_file_info fi;
};

static void input_release(struct handle *h);

static void opened(int code, const struct err *e, const char *made, void *arg)
{
    struct opening *o = arg;
    struct handle *h;

    (void)made;
    if (code) {
        refuse(o->req, o->n, code, e->text);
    } else {
        h = handle_new(o->n, &o->fi);
        h->input = input_get(o->n->o);
        h->input->writers++;
        o->fi.fh = (uint64_t)(uintptr_t)h;
        if (fuse_reply_open(o->req, &o->fi) == -ENOENT) {
            h->refused = true;
            input_release(h);
            handle_free(h);
        }
    }
    node_unref(o->n);
    free(o);
}

static void input_open(fuse_req_t req, struct node *n,
                       struct fuse_file_info *fi)
{
    struct opening *o;

    fi->direct_io = 1;
    if ((fi->flags & O_ACCMODE) == O_RDONLY) {
        handle_reply(req, handle_new(n, fi), fi);
        return;
    }
    o = xcalloc(1, sizeof(*o));
    o->req = req;
    o->n = n;
    o->fi = *fi;
    node_ref(n);
    courier_input_open(fs.c, n->o, fi->flags & O_APPEND, call_done,
                       call_new(opened, o));
}

/* it is no window into the command */
static void input_read(fuse_req_t req, struct handle *h, size_t size,
                       off_t off)
{
    (void)h;
    (void)size;
    (void)off;
    fuse_reply_buf(req, NULL, 0);
}

static void input_fsync(fuse_req_t req, struct handle *h)
{
    if (h->wrote)
        courier_input_sync(fs.c, call_done, call_new(reply_when_done, req));
    else
        fuse_reply_err(req, 0);
}

static void input_flush(fuse_req_t req, struct handle *h,
                        const struct fuse_file_info *fi)
{
    (void)fi;
    input_fsync(req, h);
}

/* who came with an input of which nothing was taken has changed nothing */
static void input_release(struct handle *h)
{
    struct input *in = h->input;

    if (!in)
        return;
    if (h->flags & O_APPEND)
        in->keeps = in->keeps || h->wrote;
    else if (h->wrote || (h->flags & O_TRUNC && !h->refused))
        in->ends = true;
    if (--in->writers)
        return;
    courier_input_close(fs.c, in->o,
                        in->ends    ? INPUT_END
                        : in->keeps ? INPUT_KEEP
                                    : INPUT_NOTHING);
    input_drop(in);
}

static unsigned input_poll(struct handle *h)
{
    unsigned out = handle_reads(h) ? POLLIN | POLLRDNORM : 0;
    int r;

    if (!h->input)
        return out;
    r = courier_input_may(fs.c, h->input->o, NULL);
    if (r == -EAGAIN || h->input->ops)
        return out;
    return out | POLLOUT | POLLWRNORM | (r ? POLLERR : 0);
}

const struct file_ops input_ops = {
    .open = input_open,
    .read = input_read,
    .write = input_write,
    .flush = input_flush,
    .fsync = input_fsync,
    .release = input_release,
    .poll = input_poll,
};
