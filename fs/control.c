/*
 * control: files whose lines are commands, and `message`, all of which is
 * one command's body.
 *
 * The commands of a write are handed over together and run one after the
 * other, with nothing of the daemon's own doing in between: what the first
 * sets going doesn't change what the next may do. What fails answers the
 * write; what was done before it makes the write a short one, so that the
 * caller comes again with the line that failed and hears why. After that the
 * file is poisoned.
 *
 * The body after " <<" is kept here, made durable at each close of a copy of
 * the descriptor, and carried out at the last one.
 */
#include "fs/fs.h"

#include <fcntl.h>
#include <poll.h>

#include "base/text.h"

enum { LINE_MAX_BYTES = 64 << 10, BODY_MAX_BYTES = 1 << 20 };

/* a write or a flush, under way or waiting for the one before it */
struct op {
    struct op *next;
    struct control *c;
    fuse_req_t req;
    bool flush;
    struct buf text;  /* what is left of earlier writes, then this one */
    size_t earlier;   /* how much of it is from earlier writes */
    size_t pos;       /* up to here it is done */
    size_t line_end;  /* where the line that has a body ends */
    size_t under_way; /* commands without an answer */
    int code;         /* of the one that failed */
    bool failed;      /* the same, of the backend */
    uint64_t owner;
};

struct control {
    struct handle *h;
    enum ctl which;
    struct op *ops;
    struct buf line; /* unfinished */
    uint64_t line_owner;
    int pending;  /* -errno for the next write: its line has failed */
    int poisoned; /* -errno: something has failed, nothing more is done */
    bool in_body, body_new, body_put;
    int64_t body_id;
    struct buf body;
    struct buf outcomes; /* of the commands of this open file */
    size_t told;
};

static void op_start(struct op *op);

/* ---- ends ---- */

static void op_next(struct control *c)
{
    struct op *op = c->ops;

    c->ops = op->next;
    buf_free(&op->text);
    free(op);
    if (c->ops)
        op_start(c->ops);
}

static void op_ok(struct op *op, size_t taken)
{
    if (op->flush)
        fuse_reply_err(op->req, 0);
    else
        fuse_reply_write(op->req, taken);
    op_next(op->c);
}

static void op_fail(struct op *op, int code)
{
    buf_clear(&op->c->line);
    if (!op->c->poisoned)
        op->c->poisoned = code > 0 ? -code : code;
    reply_code(op->req, code);
    op_next(op->c);
}

/* refused here, not by the backend */
static void op_refuse(struct op *op, int code, const char *why)
{
    struct control *c = op->c;
    const char *line = c->in_body ? "<<" : op->text.p + op->pos;
    struct err e = {0};

    err_set(&e, code, "%s", why);
    courier_refused(fs.c, c->h->n->o, c->which, line,
                    c->in_body ? 2 : op->text.n - op->pos, &e);
    op_fail(op, code);
}

/* as the file tells them to others, too */
static void outcome(struct op *op, int code, const struct err *e,
                    const char *made)
{
    struct buf *out = &op->c->outcomes;
    char when[32], line[64] = "message";

    time_rfc3339(now_ms(), when);
    if (op->c->which != CTL_MESSAGE)
        courier_line_quote(op->text.p + op->pos, op->text.n - op->pos, line);
    if (!*line)
        memcpy(line, "body", 5);
    if (code)
        buf_addf(out, "# %s error %s: %s\n", when, line,
                 e->text[0] ? e->text : strerror(-code));
    else
        buf_addf(out, "# %s ok %.*s%s%s\n", when, (int)strcspn(line, " "),
                 line, made ? " " : "", made ? made : "");
}

/* ---- bodies ---- */

static void body_add(struct control *c, const char *p, size_t n)
{
    buf_add(&c->body, p, n);
    c->body_new = c->body_new || n;
}

static void body_take(struct op *op)
{
    struct control *c = op->c;
    size_t n = op->text.n - op->pos;

    if (c->body.n + n > BODY_MAX_BYTES) {
        op_refuse(op, EMSGSIZE, "a body may have 1 MiB");
        return;
    }
    body_add(c, op->text.p + op->pos, n);
    op_ok(op, op->text.n - op->earlier);
}

static void put_done(int code, const struct err *e, const char *made,
                     void *arg)
{
    struct op *op = arg;

    if (code) {
        outcome(op, code, e, made);
        op_fail(op, code);
        return;
    }
    op->c->body_put = true;
    op_ok(op, 0);
}

static void body_flush(struct op *op)
{
    struct control *c = op->c;

    if (!c->body_new && c->body_put) {
        op_ok(op, 0);
        return;
    }
    c->body_new = false;
    courier_body_put(fs.c, c->body_id, buf_str(&c->body), c->body.n, call_done,
                     call_new(put_done, op));
}

static void begin_done(int code, const struct err *e, const char *made,
                       void *arg)
{
    struct op *op = arg;
    struct control *c = op->c;

    if (code || c->which != CTL_MESSAGE)
        outcome(op, code, e, made);
    if (code) {
        op_fail(op, code);
        return;
    }
    c->in_body = true;
    op->pos = op->line_end;
    if (op->flush)
        body_flush(op);
    else
        body_take(op);
}

/* ---- lines ---- */

static bool is_nothing(const char *p, size_t n)
{
    while (n && (*p == ' ' || *p == '\t' || *p == '\r')) {
        p++;
        n--;
    }
    return !n || *p == '#';
}

/* the end of the line at pos; n if a flush ends it; -1 if nothing does */
static ssize_t line_length(const struct op *op, size_t pos)
{
    const char *p = op->text.p + pos;
    size_t n = op->text.n - pos;
    const char *end = n ? memchr(p, '\n', n) : NULL;

    if (end)
        return end - p;
    return op->flush && n ? (ssize_t)n : -1;
}

static size_t after_line(const struct op *op, size_t pos, size_t n)
{
    return pos + n < op->text.n ? pos + n + 1 : pos + n;
}

static void keep_tail(struct op *op)
{
    struct control *c = op->c;

    if (op->text.n - op->pos > LINE_MAX_BYTES) {
        op_refuse(op, EMSGSIZE, "a command line may have 64 KiB");
        return;
    }
    buf_add(&c->line, op->text.p + op->pos, op->text.n - op->pos);
    c->line_owner = op->owner;
    op_ok(op, op->text.n - op->earlier);
}

/* the first line at or after pos that is something, or is not complete */
static size_t next_line(const struct op *op, size_t pos)
{
    for (;;) {
        ssize_t n = line_length(op, pos);

        if (n < 0 || !is_nothing(op->text.p + pos, (size_t)n))
            return pos;
        pos = after_line(op, pos, (size_t)n);
    }
}

static void lines_run(struct op *op);

static void line_done(int code, const struct err *e, const char *made,
                      void *arg)
{
    struct op *op = arg;

    op->under_way--;
    if (!op->code) {
        op->pos = next_line(op, op->pos);
        outcome(op, code, e, made);
        op->code = code;
        if (!code)
            op->pos =
                after_line(op, op->pos, (size_t)line_length(op, op->pos));
    }
    if (op->under_way)
        return;
    code = op->code;
    if (!code) {
        lines_run(op);
    } else if (op->pos > op->earlier && !op->flush) {
        op->c->pending = code;
        op_ok(op, op->pos - op->earlier);
    } else {
        op_fail(op, code);
    }
}

/* hands over the lines up to one with a body; their ends come back here */
static void lines_run(struct op *op)
{
    struct control *c = op->c;
    struct oid o = c->h->n->o;
    size_t at = op->pos;
    const char *line;
    ssize_t n;

    for (;;) {
        at = next_line(op, at);
        line = op->text.p + at;
        n = line_length(op, at);
        if (n < 0 || courier_line_check(c->which, line, (size_t)n, NULL) == 1)
            break;
        op->under_way++;
        courier_command(fs.c, o, c->which, line, (size_t)n, &op->failed,
                        call_done, call_new(line_done, op));
        at = after_line(op, at, (size_t)n);
    }
    if (op->under_way)
        return;
    op->pos = at;
    if (n < 0) {
        keep_tail(op);
        return;
    }
    op->line_end = after_line(op, at, (size_t)n);
    courier_body_begin(fs.c, o, c->which, line, (size_t)n, &c->body_id,
                       call_done, call_new(begin_done, op));
}

static void take_line(struct op *op)
{
    struct control *c = op->c;
    struct buf b = c->line;

    c->line = (struct buf){0};
    op->earlier = b.n;
    buf_add(&b, op->text.p, op->text.n);
    buf_free(&op->text);
    op->text = b;
}

static void message_begin(struct op *op)
{
    static const char line[] = "message <<";
    struct control *c = op->c;

    courier_body_begin(fs.c, c->h->n->o, CTL_MESSAGE, line, sizeof(line) - 1,
                       &c->body_id, call_done, call_new(begin_done, op));
}

static void op_start(struct op *op)
{
    struct control *c = op->c;

    if (c->pending) {
        int code = c->pending;

        c->pending = 0;
        op_fail(op, code);
    } else if (c->poisoned) {
        int code = code_again(c->poisoned);

        if (op->flush && code == -ECANCELED)
            op_ok(op, 0); /* it has been told */
        else
            op_fail(op, code);
    } else if (c->in_body) {
        if (op->flush)
            body_flush(op);
        else
            body_take(op);
    } else if (c->which == CTL_MESSAGE) {
        if (op->flush)
            op_ok(op, 0);
        else
            message_begin(op);
    } else if (op->flush && (!c->line.n || c->line_owner != op->owner)) {
        op_ok(op, 0);
    } else {
        take_line(op);
        lines_run(op);
    }
}

/* ---- the file ---- */

static bool has_own_outcomes(const struct handle *h)
{
    return handle_writes(h) && handle_reads(h) &&
           h->n->row->what != CTL_EXPIRES && h->n->row->kind == K_CONTROL;
}

static int control_render(struct handle *h)
{
    if (!handle_reads(h) || !h->n->row->shows || has_own_outcomes(h))
        return 0;
    return courier_view(fs.c, h->n->o, (enum view)h->n->row->shows, &h->text);
}

static void control_open(fuse_req_t req, struct node *n,
                         struct fuse_file_info *fi)
{
    struct handle *h = handle_new(n, fi);
    struct err e = {0};
    int r = 0;

    if (handle_writes(h) && n->row->kind == K_MESSAGE)
        r = courier_message_check(fs.c, n->o, &e);
    if (r) {
        handle_free(h);
        courier_refused(fs.c, n->o, (enum ctl)n->row->what, "message", 7, &e);
        reply_code(req, r);
        return;
    }
    r = control_render(h);
    if (r) {
        handle_free(h);
        fuse_reply_err(req, r == -ENOENT ? ESTALE : -r);
        return;
    }
    if (handle_writes(h)) {
        h->ctl = xcalloc(1, sizeof(*h->ctl));
        h->ctl->h = h;
        h->ctl->which = (enum ctl)n->row->what;
        fs.commanders++;
    }
    fi->direct_io = 1;
    handle_reply(req, h, fi);
}

static void control_read(fuse_req_t req, struct handle *h, size_t size,
                         off_t off)
{
    struct control *c = h->ctl;

    if (!has_own_outcomes(h)) {
        reply_bytes(req, &h->text, size, off);
        return;
    }
    reply_bytes(req, &c->outcomes, size, (off_t)c->told);
    c->told += size;
    if (c->told > c->outcomes.n)
        c->told = c->outcomes.n;
}

static void op_new(fuse_req_t req, struct handle *h, const char *p, size_t n,
                   const struct fuse_file_info *fi, bool flush)
{
    struct op *op = xcalloc(1, sizeof(*op));
    struct op **at = &h->ctl->ops;

    op->c = h->ctl;
    op->req = req;
    op->flush = flush;
    op->owner = fi->lock_owner;
    buf_add(&op->text, p, n);
    while (*at)
        at = &(*at)->next;
    *at = op;
    if (op == h->ctl->ops)
        op_start(op);
}

static void control_write(fuse_req_t req, struct handle *h, const char *p,
                          size_t n, off_t off, const struct fuse_file_info *fi)
{
    (void)off;
    if (n)
        op_new(req, h, p, n, fi, false);
    else
        fuse_reply_write(req, 0);
}

static void control_flush(fuse_req_t req, struct handle *h,
                          const struct fuse_file_info *fi)
{
    if (h->ctl)
        op_new(req, h, "", 0, fi, true);
    else
        fuse_reply_err(req, 0);
}

static void control_fsync(fuse_req_t req, struct handle *h)
{
    (void)h;
    fuse_reply_err(req, 0);
}

static void nothing_done(int code, const struct err *e, const char *made,
                         void *arg)
{
    (void)code;
    (void)e;
    (void)made;
    (void)arg;
}

static void control_release(struct handle *h)
{
    struct control *c = h->ctl;

    if (!c)
        return;
    if (c->in_body)
        courier_body_end(fs.c, c->body_id, c->poisoned, call_done,
                         call_new(nothing_done, NULL));
    buf_free(&c->line);
    buf_free(&c->body);
    buf_free(&c->outcomes);
    free(c);
    fs.commanders--;
}

static unsigned control_poll(struct handle *h)
{
    unsigned out = handle_writes(h) ? POLLOUT | POLLWRNORM : 0;

    if (has_own_outcomes(h) && h->ctl->told >= h->ctl->outcomes.n)
        return out;
    return out | POLLIN | POLLRDNORM;
}

const struct file_ops control_ops = {
    .open = control_open,
    .read = control_read,
    .write = control_write,
    .flush = control_flush,
    .fsync = control_fsync,
    .release = control_release,
    .poll = control_poll,
};

const struct file_ops message_ops = {
    .open = control_open,
    .read = control_read,
    .write = control_write,
    .flush = control_flush,
    .fsync = control_fsync,
    .release = control_release,
    .poll = control_poll,
};

/* ---- touch ---- */

struct touching {
    fuse_req_t req;
    struct node *n;
};

static void touch_done(int code, const struct err *e, const char *made,
                       void *arg)
{
    struct touching *t = arg;

    (void)e;
    (void)made;
    if (code)
        reply_code(t->req, code);
    else
        reply_attr(t->req, t->n, NULL);
    node_unref(t->n);
    free(t);
}

void control_touch(fuse_req_t req, struct node *n, const struct stat *st,
                   int to_set)
{
    struct touching *t;
    char when[32] = "";

    if (n->row->what != CTL_EXPIRES ||
        !(to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW))) {
        reply_attr(req, n, NULL);
        return;
    }
    if (!(to_set & FUSE_SET_ATTR_MTIME_NOW))
        time_rfc3339(st->st_mtim.tv_sec * 1000, when);
    t = xcalloc(1, sizeof(*t));
    t->req = req;
    t->n = n;
    node_ref(n);
    courier_command(fs.c, n->o, CTL_EXPIRES, when, strlen(when), NULL,
                    call_done, call_new(touch_done, t));
}
