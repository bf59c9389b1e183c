#include "engine/engine.h"

static int line(struct buf *out, const char *s)
{
    buf_addf(out, "%s\n", s);
    return 0;
}

/* is a message queued, being written, or under way? */
static bool at_work(struct db *d, int64_t id)
{
    return db_int(d, 0,
                  "SELECT 1 FROM message WHERE sandbox=? AND state "
                  "IN('open','queued','working') LIMIT 1",
                  "i", id);
}

static int wait_done(struct db *d, const struct sandbox *s, bool ended,
                     bool ok, struct buf *out)
{
    if (!ended && (!sandbox_is(s, "running") || at_work(d, s->id)))
        return -EAGAIN;
    if (ok && !strcmp(s->last_turn, "failed"))
        return -ECANCELED;
    if (ended && !*s->last_turn)
        return sandbox_is(s, "error") && !ok ? line(out, "failed")
               : sandbox_is(s, "error")      ? -ECANCELED
                                             : line(out, "completed");
    return line(out, !strcmp(s->last_turn, "failed") ? "failed" : "completed");
}

static int wait_pr(const struct sandbox *s, bool ended, struct buf *out)
{
    static const char *const final[] = {"created", "failed", "skipped",
                                        "merged", NULL};

    if (text_is_word(s->pr_status, final))
        return line(out, s->pr_status);
    return ended && !*s->pr_status ? -ECANCELED : -EAGAIN;
}

static int wait_learned(const struct sandbox *s, bool ended, struct buf *out)
{
    static const char *const final[] = {"completed", "skipped", "error", NULL};

    if (text_is_word(s->learn_status, final))
        return line(out, s->learn_status);
    return ended && !*s->learn_status ? -ECANCELED : -EAGAIN;
}

static int wait_sandbox(struct db *d, const struct sandbox *s, enum wait_for w,
                        struct buf *out)
{
    bool ended = sandbox_is(s, "killed") || sandbox_is(s, "error");

    switch (w) {
    case WAIT_RUNNING:
        if (sandbox_is(s, "running"))
            return line(out, "running");
        return ended ? -ECANCELED : -EAGAIN;
    case WAIT_PAUSED:
        if (sandbox_is(s, "paused"))
            return line(out, "paused");
        return ended ? -ECANCELED : -EAGAIN;
    case WAIT_ENDED:
        return ended ? line(out, s->status) : -EAGAIN;
    case WAIT_IDLE:
        if (ended)
            return -ECANCELED;
        if (!sandbox_is(s, "running") || at_work(d, s->id))
            return -EAGAIN;
        return line(out, !strcmp(s->agent, "failed") ? "failed" : "idle");
    case WAIT_DONE:
        return wait_done(d, s, ended, false, out);
    case WAIT_OK:
        return wait_done(d, s, ended, true, out);
    case WAIT_PR:
        return wait_pr(s, ended, out);
    case WAIT_LEARNED:
        return wait_learned(s, ended, out);
    default:
        return -EINVAL;
    }
}

static int wait_run(struct db *d, int64_t id, enum wait_for w, struct buf *out)
{
    static const char *const final[] = {"completed", "failed", "cancelled",
                                        NULL};
    AUTO_FREE char *st =
        db_text(d, "SELECT status FROM run WHERE id=?", "i", id);

    if (!st)
        return -ENOENT;
    if (!text_is_word(st, final))
        return -EAGAIN;
    if (w == WAIT_OK && strcmp(st, "completed"))
        return -ECANCELED;
    return line(out, st);
}

int courier_wait(struct courier *c, struct oid o, enum wait_for w,
                 struct buf *out)
{
    struct db *d = store_reader(c->store);
    struct sandbox s;
    int r;

    if (o.kind == OBJ_RUN)
        return wait_run(d, o.id, w, out);
    if (o.kind == OBJ_EXEC) {
        AUTO_FREE char *st =
            db_text(d, "SELECT status FROM exec WHERE id=?", "i", o.id);

        if (!st)
            return -ENOENT;
        return strcmp(st, "exited") ? -EAGAIN : line(out, st);
    }
    if (sandbox_get(d, o.id, &s) < 0)
        return -ENOENT;
    r = wait_sandbox(d, &s, w, out);
    sandbox_clear(&s);
    return r;
}
