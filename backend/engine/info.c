/* info.json: the whole record of a sandbox or a run. */
#include "engine/view.h"

static void set_text(json_t *j, const char *key, const char *s)
{
    AUTO_BUF struct buf b = {0};

    text_printable(&b, s, strlen(s), PRINTABLE_LINES | PRINTABLE_TABS);
    json_object_set_new(j, key, json_string(buf_str(&b)));
}

/* what is not there is null */
static void set_known(json_t *j, const char *key, const char *s)
{
    if (s && *s)
        set_text(j, key, s);
    else
        json_object_set_new(j, key, json_null());
}

static void set_time(json_t *j, const char *key, int64_t ms)
{
    char when[32];

    time_rfc3339(ms, when);
    set_known(j, key, when);
}

static void set_int(json_t *j, const char *key, int64_t v)
{
    json_object_set_new(j, key, json_integer(v));
}

static void dump(json_t *j, struct buf *out)
{
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(12));

    buf_adds(out, text ? text : "{}");
    buf_addc(out, '\n');
    free(text);
    json_decref(j);
}

/* what was used, by unit, and what it cost */
static json_t *usage_of(struct db *d, struct oid o)
{
    json_t *j = json_object();
    sqlite3_stmt *q =
        o.kind == OBJ_RUN
            ? db_query(d,
                       "SELECT unit,sum(quantity) FROM usage WHERE run=? AND "
                       "run<>0 GROUP BY unit",
                       "i", o.id)
            : db_query(d,
                       "SELECT unit,sum(quantity) FROM usage WHERE sandbox=? "
                       "GROUP BY unit",
                       "i", o.id);

    while (db_row(d, q)) {
        double v = col_double(q, 1);

        if (v == (double)(int64_t)v)
            set_int(j, col_text(q, 0), (int64_t)v);
        else
            json_object_set_new(j, col_text(q, 0), json_real(v));
    }
    json_object_set_new(j, "usd", json_real(usage_total(d, o, 0)));
    return j;
}

static json_t *pull_request(sqlite3_stmt *q, int at)
{
    json_t *j = json_object();

    set_known(j, "url", col_text(q, at));
    if (col_int(q, at + 1))
        set_int(j, "number", col_int(q, at + 1));
    else
        json_object_set_new(j, "number", json_null());
    set_known(j, "status", col_text(q, at + 2));
    set_known(j, "title", col_text(q, at + 3));
    set_known(j, "reason", col_text(q, at + 4));
    set_known(j, "checks", col_text(q, at + 5));
    set_known(j, "checks_reason", col_text(q, at + 6));
    return j;
}

static void set_pr(struct db *d, const struct sandbox *s, json_t *j)
{
    sqlite3_stmt *q =
        db_query(d,
                 "SELECT pr_url,pr_number,pr_status,pr_title,pr_reason,"
                 "pr_checks,pr_checks_words,learn_status,learn_reason FROM "
                 "sandbox WHERE id=?",
                 "i", s->id);
    json_t *learned = json_object();

    if (db_row(d, q)) {
        json_object_set_new(j, "pr", pull_request(q, 0));
        set_known(learned, "status", col_text(q, 7));
        set_known(learned, "reason", col_text(q, 8));
        db_done(q);
    }
    json_object_set_new(j, "learnings", learned);
}

static json_t *times_of(const struct sandbox *s)
{
    json_t *j = json_object();

    set_time(j, "created", s->created);
    set_time(j, "started", s->started);
    set_time(j, "running", s->running_at);
    set_time(j, "ended", s->ended);
    set_time(j, "expires", s->expires);
    return j;
}

static json_t *run_of(struct db *d, const struct sandbox *s)
{
    AUTO_FREE char *run = NULL, *step = NULL;
    json_t *j;

    if (!s->run)
        return json_null();
    run = db_text(d, "SELECT name FROM run WHERE id=?", "i", s->run);
    step = db_text(d, "SELECT name FROM step WHERE id=?", "i", s->step);
    j = json_object();
    set_int(j, "id", s->run);
    set_known(j, "name", run);
    set_known(j, "step", step);
    return j;
}

static json_t *messages_of(struct db *d, const struct sandbox *s)
{
    sqlite3_stmt *q = db_query(
        d, "SELECT state,count(*) FROM message WHERE sandbox=? GROUP BY state",
        "i", s->id);
    json_t *j = json_object();
    int64_t queued = 0;

    while (db_row(d, q)) {
        const char *state = col_text(q, 0);

        if (!strcmp(state, "queued") || !strcmp(state, "open"))
            queued += col_int(q, 1);
        else
            set_int(j, state, col_int(q, 1));
    }
    set_int(j, "queued", queued);
    return j;
}

static json_t *git_of(const struct sandbox *s, const json_t *config)
{
    const char *repo = json_string_value(
        json_object_get(json_object_get(config, "repo"), "value"));
    json_t *j = json_object();

    set_known(j, "repo", repo);
    set_known(j, "branch", s->branch);
    set_known(j, "meant", s->meant);
    set_known(j, "base", s->base);
    return j;
}

/* who keeps it apart from the machine it runs on */
static const char *isolation(const struct sandbox *s)
{
    if (!strcmp(s->backend, "local"))
        return "container of this machine (bubblewrap), not a micro-VM";
    return !strcmp(s->backend, "e2b") ? "micro-VM of E2B" : "";
}

/* what the VM has, once the provider has told; memory in MiB */
static json_t *size_of(struct db *d, const struct sandbox *s)
{
    sqlite3_stmt *q = db_query(
        d, "SELECT vm_cpu,vm_memory FROM sandbox WHERE id=?", "i", s->id);
    json_t *j = json_object();

    if (db_row(d, q)) {
        if (col_int(q, 0))
            set_int(j, "cpu", col_int(q, 0));
        if (col_int(q, 1))
            set_int(j, "memory", col_int(q, 1));
        db_done(q);
    }
    return j;
}

int view_info(struct courier *c, struct db *d, struct oid o, struct buf *out)
{
    AUTO_FREE char *project = NULL;
    struct sandbox s;
    json_t *j, *config;

    (void)c;
    if (sandbox_get(d, o.id, &s) < 0)
        return -ENOENT;
    project =
        db_text(d, "SELECT name FROM project WHERE id=?", "i", s.project);
    config = config_effective(d, &s);
    j = json_object();
    set_int(j, "id", s.id);
    set_text(j, "name", s.name);
    set_known(j, "project", project);
    set_text(j, "kind", s.kind);
    set_text(j, "status", s.status);
    set_known(j, "reason", s.reason);
    set_text(j, "agent", s.agent);
    set_known(j, "error", s.error);
    set_known(j, "trash", s.trash);
    set_known(j, "backend", s.backend);
    set_known(j, "isolation", isolation(&s));
    set_known(j, "provider_id", s.vm);
    json_object_set_new(j, "vm", size_of(d, &s));
    set_known(j, "tool", s.tool);
    set_known(j, "model", s.model);
    set_known(j, "session", s.session);
    set_known(j, "last_turn", s.last_turn);
    json_object_set_new(j, "times", times_of(&s));
    json_object_set_new(j, "run", run_of(d, &s));
    json_object_set_new(j, "git", git_of(&s, config));
    set_pr(d, &s, j);
    json_object_set_new(j, "messages", messages_of(d, &s));
    json_object_set_new(j, "usage", usage_of(d, o));
    json_object_set_new(j, "config", config);
    sandbox_clear(&s);
    dump(j, out);
    return 0;
}

/* ---- runs ---- */

static json_t *steps_of(struct db *d, int64_t run)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT t.name,t.role,t.round,t.status,t.verdict,t.score,t.reason,"
        "t.started,t.ended,coalesce(s.name,''),t.tool,t.model FROM step t "
        "LEFT JOIN sandbox s ON s.id=t.sandbox WHERE t.run=? ORDER BY t.id",
        "i", run);
    json_t *all = json_array();

    while (db_row(d, q)) {
        json_t *j = json_object();

        set_text(j, "name", col_text(q, 0));
        set_known(j, "role", col_text(q, 1));
        set_int(j, "round", col_int(q, 2));
        set_text(j, "status", col_text(q, 3));
        set_known(j, "verdict", col_text(q, 4));
        set_known(j, "score", col_text(q, 5));
        set_known(j, "reason", col_text(q, 6));
        set_time(j, "started", col_int(q, 7));
        set_time(j, "ended", col_int(q, 8));
        set_known(j, "sandbox", col_text(q, 9));
        set_known(j, "tool", col_text(q, 10));
        set_known(j, "model", col_text(q, 11));
        json_array_append_new(all, j);
    }
    return all;
}

/* the run's own settings: what was given when it was created */
static json_t *run_config(struct db *d, struct oid o)
{
    size_t n = 0;
    AUTO_FREE char *text = doc_text(d, o, "config", &n);
    const char *p = text ? text : "", *end = p + n;
    json_t *j = json_object();

    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);
        AUTO_FREE char *k = NULL, *v = NULL;

        if (kv_line(p, len, &k, &v) == KV_PAIR)
            json_object_set_new(
                j, k, json_pack("{s:s,s:s}", "value", v, "from", "run"));
        p += len + (nl ? 1 : 0);
    }
    return j;
}

int view_run_info(struct courier *c, struct db *d, struct oid o,
                  struct buf *out)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT r.pr_url,r.pr_number,r.pr_status,r.pr_title,r.pr_reason,"
        "r.pr_checks,r.pr_checks_words,"
        "r.name,p.name,r.status,r.reason,r.workflow,r.branch,r.base,r.grp,"
        "coalesce(r.trash,''),r.created,r.started,r.ended FROM run r JOIN "
        "project p ON p.id=r.project WHERE r.id=?",
        "i", o.id);
    json_t *j, *git, *times;

    (void)c;
    if (!db_row(d, q))
        return -ENOENT;
    j = json_object();
    set_int(j, "id", o.id);
    set_text(j, "name", col_text(q, 7));
    set_text(j, "project", col_text(q, 8));
    set_text(j, "status", col_text(q, 9));
    set_known(j, "reason", col_text(q, 10));
    set_text(j, "workflow", col_text(q, 11));
    set_known(j, "attempts", col_text(q, 14));
    set_known(j, "trash", col_text(q, 15));
    git = json_object();
    set_known(git, "branch", col_text(q, 12));
    set_known(git, "base", col_text(q, 13));
    times = json_object();
    set_time(times, "created", col_int(q, 16));
    set_time(times, "started", col_int(q, 17));
    set_time(times, "ended", col_int(q, 18));
    json_object_set_new(j, "pr", pull_request(q, 0));
    json_object_set_new(j, "times", times);
    json_object_set_new(j, "git", git);
    db_done(q);
    json_object_set_new(j, "steps", steps_of(d, o.id));
    json_object_set_new(j, "usage", usage_of(d, o));
    json_object_set_new(j, "config", run_config(d, o));
    dump(j, out);
    return 0;
}
