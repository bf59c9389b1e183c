/*
 * exec: a command from start to end on the caller's thread: its stream and
 * its stdin side by side in the slot's multi.
 */
#include "base/text.h"
#include "e2b/stream.h"

enum { OUT_DEFAULT = 1 << 20, KILL_MS = 10000 };

struct exec {
    struct stream stream; /* first */
    struct feed feed;
    const struct e2b_run *r;
    struct e2b_result *res;
    struct slot *slot;
    size_t max_out;
    bool done; /* curl is through with the stream */
    bool start_feed;
};

static bool on_data(void *arg, int fd, const char *p, size_t n)
{
    struct exec *x = arg;
    struct buf *b = fd == 2 ? &x->res->err : &x->res->out;
    size_t room = b->n < x->max_out ? x->max_out - b->n : 0;

    buf_add(b, p, n < room ? n : room);
    return true;
}

/* no handle may be added to a multi from within its callbacks */
static void on_step(void *arg)
{
    struct exec *x = arg;

    if (x->r->stdin_data && !x->feed.multi)
        x->start_feed = true;
}

static void on_done(struct transfer *t, CURLcode rc)
{
    struct exec *x = (struct exec *)t;

    stream_done(&x->stream, rc);
    x->done = true;
}

/* kills a process and all that descends from it; best effort */
static void kill_tree(const struct e2b_target *t, const char *user, int pid)
{
    static const char script[] =
        "k() { kill -STOP $1; for c in $(cat /proc/$1/task/*/children); do "
        "k $c; done; kill -9 $1; }; k %d 2>/dev/null";
    AUTO_FREE char *cmd = xasprintf(script, pid);
    const char *argv[] = {"/bin/sh", "-c", cmd, NULL};
    struct e2b_run r = {.argv = argv, .user = user, .limit_ms = KILL_MS};
    struct e2b_result res;
    struct err e;

    if (pid <= 1)
        return;
    e2b_exec(t, &r, &res, &e);
    e2b_result_clear(&res);
    e2b_signal(t, pid, 9, &e);
}

static int64_t wait_ms(const struct exec *x, int64_t end, int64_t now)
{
    int64_t left = x->stream.last_ms + STREAM_DEAD_MS - now;

    if (end && end - now < left)
        left = end - now;
    return left < 0 ? 0 : left;
}

static void tell_done(CURLM *m)
{
    CURLMsg *msg;
    int n;

    while ((msg = curl_multi_info_read(m, &n))) {
        CURL *easy = msg->easy_handle;
        CURLcode rc = msg->data.result;
        struct transfer *t = NULL;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t);
        t->done(t, rc);
    }
}

/* until the stream is done, or -ETIMEDOUT, -ECANCELED, or stdin's failure */
static int drive(struct exec *x, int64_t end, bool *over_limit, struct err *e)
{
    CURLM *m = x->slot->multi;
    int still;

    for (;;) {
        int64_t now, left;

        curl_multi_perform(m, &still);
        if (x->start_feed && !x->stream.finished) {
            x->start_feed = false;
            feed_start(&x->feed, m, x->stream.pid);
            continue;
        }
        tell_done(m);
        /* a server that doesn't close after the last word isn't waited for */
        if (x->done || x->stream.finished)
            return 0;
        if (x->feed.failed) {
            *over_limit = true; /* it would wait for its stdin for ever */
            *e = x->feed.why;
            return -e->code;
        }
        if (cancel_wanted(x->r->cancel))
            return err_set(e, ECANCELED, "cancelled");
        now = mono_ms();
        left = wait_ms(x, end, now);
        if (!left && end && now >= end) {
            *over_limit = true;
            return err_set(e, ETIMEDOUT,
                           "the command took longer than %d s and was killed",
                           (x->r->limit_ms + 999) / 1000);
        }
        if (!left)
            return err_set(e, ETIMEDOUT, "the command's stream went silent");
        curl_multi_poll(m, NULL, 0, (int)left, NULL);
    }
}

static int exec_once(struct exec *x, const struct e2b_target *t, int64_t end,
                     struct err *e)
{
    bool over_limit = false;
    bool sent;
    int rc;

    stream_begin(&x->stream, t->x);
    x->stream.transfer.done = on_done;
    x->stream.on_data = on_data;
    x->stream.on_step = on_step;
    x->stream.arg = x;
    curl_multi_add_handle(x->slot->multi, x->stream.easy);
    rc = drive(x, end, &over_limit, e);
    sent = http_was_sent(x->stream.easy);
    if (!rc && !x->done)
        stream_done(&x->stream, CURLE_OK);
    curl_multi_remove_handle(x->slot->multi, x->stream.easy);
    if (over_limit)
        kill_tree(t, x->r->user, x->stream.pid);
    if (rc)
        return rc;
    if (x->stream.failed) {
        *e = x->stream.why;
        return sent || x->stream.code == -EPROTO ? x->stream.code : -ENOTCONN;
    }
    x->res->exit_code = x->stream.exit_code;
    return 0;
}

/* starts anew what never left; a 429 was refused, too */
static int exec_tries(struct exec *x, const struct e2b_target *t,
                      struct err *e)
{
    const struct e2b_run *r = x->r;
    int64_t began = mono_ms(), end = r->limit_ms ? began + r->limit_ms : 0;
    int rc;

    for (int i = 1;; i++) {
        rc = stream_init(&x->stream, t, r, e);
        if (!rc && r->stdin_data)
            rc = feed_init(&x->feed, t, NULL, r->stdin_data, r->stdin_len,
                           false, e);
        if (!rc)
            rc = exec_once(x, t, end, e);
        feed_free(&x->feed);
        stream_free(&x->stream);
        x->done = x->start_feed = false;
        if (rc != -ENOTCONN && !(rc == -EAGAIN && i < 3))
            return rc;
        if (i >= HTTP_TRIES || mono_ms() - began > HTTP_PATIENCE_MS ||
            (end && mono_ms() >= end))
            return -(e->code ? e->code : EHOSTUNREACH);
        curl_multi_poll(x->slot->multi, NULL, 0, http_backoff(i), NULL);
    }
}

int e2b_exec(const struct e2b_target *t, const struct e2b_run *r,
             struct e2b_result *res, struct err *e)
{
    struct exec x = {.r = r, .res = res};
    struct err own;
    int rc;

    memset(res, 0, sizeof(*res));
    x.max_out = r->max_out ? r->max_out : OUT_DEFAULT;
    x.slot = slot_take(t->x, r->cancel);
    rc = exec_tries(&x, t, e ? e : &own);
    slot_give(t->x, x.slot, true);
    return rc;
}

void e2b_result_clear(struct e2b_result *r)
{
    buf_free(&r->out);
    buf_free(&r->err);
    memset(r, 0, sizeof(*r));
}
