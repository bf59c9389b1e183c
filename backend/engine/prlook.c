/*
 * prlook: an open pull request, followed: was it merged or closed, and what do
 * the forge's checks say of its newest commit? Questions are conditional: what
 * did not change costs nothing of the rate limit.
 */
#include "engine/jobs.h"
#include "engine/pr.h"

enum {
    LOOK_MAX_MS = 30 * 60 * 1000,
    FOLLOW_MS = 7 * 24 * 3600 * 1000,
};

/* what the last look saw: the job's args, as JSON */
struct seen {
    char *sha, *etag, *checks[2];
};

static char *seen_text(json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? xstrdup(s) : NULL;
}

static void seen_load(struct seen *n, const char *args)
{
    json_t *j = json_loads(args, 0, NULL);

    n->sha = seen_text(j, "sha");
    n->etag = seen_text(j, "etag");
    n->checks[0] = seen_text(j, "runs");
    n->checks[1] = seen_text(j, "statuses");
    json_decref(j);
}

static void checks_unseen(struct seen *n)
{
    free(n->checks[0]);
    free(n->checks[1]);
    n->checks[0] = n->checks[1] = NULL;
}

static void seen_clear(struct seen *n)
{
    free(n->sha);
    free(n->etag);
    checks_unseen(n);
}

struct record {
    struct job *j;
    const struct sandbox *s;
    const char *args, *checks, *words; /* checks: NULL, as they were */
};

static void tx_checks(struct tx *tx, const struct record *r)
{
    struct oid o = oid(OBJ_SANDBOX, r->s->id);

    if (db_int(tx->db, 0,
               "SELECT 1 FROM sandbox WHERE id=? AND pr_checks=? AND "
               "pr_checks_words=?",
               "iss", r->s->id, r->checks, r->words))
        return;
    db_exec(tx->db,
            "UPDATE sandbox SET pr_checks=?,pr_checks_words=? WHERE id=?",
            "ssi", r->checks, r->words, r->s->id);
    tx_event(tx, r->s->project, o, "pr",
             json_pack("{s:s,s:s,s:s}", "status", r->s->pr_status, "checks",
                       r->checks, "reason", r->words));
    tx_touch(tx, r->s->project, o, ASPECT_PR);
    tx_pr_of_run(tx, r->s->id);
}

static int record_fn(struct tx *tx, void *arg, struct err *e)
{
    struct record *r = arg;

    (void)e;
    db_exec(tx->db, "UPDATE job SET args=? WHERE id=?", "si", r->args,
            r->j->id);
    if (r->checks)
        tx_checks(tx, r);
    return 0;
}

static void set_some(json_t *j, const char *key, const char *value)
{
    if (value)
        json_object_set_new(j, key, json_string(value));
}

static void record(struct courier *c, struct record *r, const struct seen *n)
{
    json_t *j = json_object();
    char *args;

    set_some(j, "sha", n->sha);
    set_some(j, "etag", n->etag);
    set_some(j, "runs", n->checks[0]);
    set_some(j, "statuses", n->checks[1]);
    args = json_dumps(j, JSON_COMPACT);
    r->args = args ? args : "";
    store_do(c->store, record_fn, r, NULL);
    free(args);
    json_decref(j);
}

static const char *word_of(const struct forge_checks *k)
{
    if (k->failed)
        return "failed";
    return k->pending ? "pending" : k->passed ? "passed" : "";
}

static void words_of(const struct forge_checks *k, struct buf *out)
{
    int all = k->passed + k->failed + k->pending;

    if (!all)
        return;
    buf_addf(out, "%d of %d passed", k->passed, all);
    if (k->pending)
        buf_addf(out, ", %d to come", k->pending);
    if (k->failed)
        buf_addf(out, ", failed: %s", k->names);
}

/* a look that fails isn't worth an error; 0, or -EAGAIN: limited */
static int look_at_checks(struct courier *c, struct record *r, struct seen *n,
                          const struct forge *f, struct err *e)
{
    struct forge_checks k = {0};
    AUTO_BUF struct buf words = {0};
    int rc = n->sha ? forge_checks(f, n->sha, n->checks, &k, e) : 1;

    if (rc == 0) {
        words_of(&k, &words);
        r->checks = word_of(&k);
        r->words = buf_str(&words);
    }
    record(c, r, n);
    forge_checks_clear(&k);
    return rc == -EAGAIN ? rc : 0;
}

static int look(struct courier *c, struct job *j, struct sandbox *s,
                const struct forge *f, int number, struct err *e)
{
    struct record r = {.j = j, .s = s, .words = ""};
    struct forge_pr pr = {0};
    struct seen n = {0};
    bool over = false;
    int rc;

    seen_load(&n, j->args);
    rc = forge_get(f, number, &n.etag, &pr, e);
    if (rc == 0 && (!n.sha || strcmp(n.sha, pr.sha))) {
        free(n.sha);
        n.sha = xstrdup(pr.sha);
        checks_unseen(&n);
    }
    if (rc == 0 && pr.state && strcmp(pr.state, "open")) {
        over = true;
        if (!strcmp(pr.state, "merged"))
            pr_set(c, s, "merged", NULL, &pr, NULL);
        else
            pr_set(c, s, "created", "closed without a merge", &pr, NULL);
    }
    if (rc >= 0)
        rc = look_at_checks(c, &r, &n, f, e);
    forge_pr_clear(&pr);
    seen_clear(&n);
    if (over)
        return 0;
    return rc == -EAGAIN ? -EBUSY : -EAGAIN;
}

int pr_follow(struct courier *c, struct job *j, struct sandbox *s,
              struct pr_place *p, int *delay_ms)
{
    struct db *d = store_reader(c->store);
    int number = (int)db_int(d, 0, "SELECT pr_number FROM sandbox WHERE id=?",
                             "i", s->id);
    int64_t since =
        db_int(d, 0, "SELECT created FROM job WHERE id=?", "i", j->id);
    struct err e = {0};
    int rc;

    if (!number || !since || now_ms() - since > FOLLOW_MS)
        return 0;
    rc = look(c, j, s, &(struct forge){p->api, p->token, p->owner, p->name},
              number, &e);
    if (rc == 0)
        return 0;
    *delay_ms =
        j->attempt > 30 ? LOOK_MAX_MS : PR_LOOK_MS * (1 + j->attempt / 3);
    if (rc == -EBUSY)
        *delay_ms = pr_limit_delay(e.text);
    return -EAGAIN;
}
