/*
 * What the verbs do to a sandbox: the table of states of its ctl, row by row.
 */
#include "engine/command.h"
#include "engine/repo.h"
#include "engine/config.h"
#include "engine/run.h"
#include "engine/usage.h"

enum { TIMEOUT_MIN = 60, TIMEOUT_MAX = 4 * 3600, MESSAGE_MAX = 1 << 20 };

static bool ended(const struct sandbox *s)
{
    return sandbox_is(s, "killed") || sandbox_is(s, "error");
}

/* the state doesn't allow it: which one, and what to do about it */
static int busy(const struct sandbox *s, struct err *e)
{
    if (s->trash)
        return err_set(e, EBUSY, "'%s' is in the trash: restore it first",
                       s->name);
    if (ended(s))
        return err_set(e, EBUSY, "'%s' is %s: it has ended", s->name,
                       s->status);
    if (*s->ending)
        return err_set(e, EBUSY, "'%s' is being ended", s->name);
    if (sandbox_is(s, "paused"))
        return err_set(e, EBUSY, "'%s' is paused: resume it first", s->name);
    if (sandbox_is(s, "draft"))
        return err_set(e, EBUSY, "'%s' is a draft: start it first", s->name);
    return err_set(e, EBUSY, "'%s' is %s", s->name, s->status);
}

static int get(struct tx *tx, int64_t id, struct sandbox *s, struct err *e)
{
    if (sandbox_get(tx->db, id, s) < 0)
        return err_set(e, ENOENT, "that sandbox is not there any more");
    return 0;
}

/* ---- create and start ---- */

/* the words of a create line, as the sandbox's own config and prompt */
static int apply_words(struct tx *tx, struct courier *c, int64_t id,
                       const struct args *a, const char **prompt,
                       struct err *e)
{
    AUTO_BUF struct buf text = {0};
    bool named = false;
    int r;

    for (char **w = a->words + 1; *w; w++) {
        char *eq = strchr(*w, '=');
        AUTO_FREE char *key = NULL;

        if (!eq) {
            if (named)
                return err_set(e, EINVAL,
                               "one name at most; '%.40s' is too much", *w);
            named = true;
            continue;
        }
        key = xmemdup0(*w, (size_t)(eq - *w));
        if (!strcmp(key, "id") || !strcmp(key, "name"))
            continue;
        if (!strcmp(key, "prompt")) {
            *prompt = eq + 1;
            continue;
        }
        r = config_check(key, eq + 1, CONFIG_SANDBOX, e);
        if (r == 0 && !strcmp(key, "tool"))
            r = config_tool_check(tx->db, eq + 1, e);
        if (r < 0)
            return r;
        config_set(&text, key, eq + 1);
    }
    if (!text.n)
        return 0;
    return tx_doc_save(tx, c, oid(OBJ_SANDBOX, id), "config", text.p, text.n,
                       0, e);
}

static int set_prompt(struct tx *tx, struct courier *c, int64_t id,
                      const void *p, size_t n, struct err *e)
{
    if (n > MESSAGE_MAX)
        return err_set(e, EMSGSIZE, "the prompt is longer than 1 MiB");
    if (!n)
        return 0;
    return tx_doc_save(tx, c, oid(OBJ_SANDBOX, id), "prompt", p, n, 0, e);
}

int tx_start(struct tx *tx, struct courier *c, int64_t id, struct err *e)
{
    AUTO_FREE char *prompt = NULL;
    struct sandbox s;
    size_t n = 0;
    int r = get(tx, id, &s, e);

    if (r < 0)
        return r;
    if (s.trash || (!sandbox_is(&s, "draft") && !sandbox_is(&s, "creating") &&
                    !sandbox_is(&s, "running")))
        r = busy(&s, e);
    else if (!sandbox_is(&s, "draft"))
        r = 1; /* it is so already */
    sandbox_clear(&s);
    if (r)
        return r < 0 ? r : 0;
    r = tx_config_freeze(tx, c, id, e);
    if (r < 0)
        return r;
    tx_status(tx, id, "creating", "started by user");
    tx_agent(tx, id, "starting", NULL);
    tx_job(tx, c, id, 0, "control", "start", "");
    prompt = doc_text(tx->db, oid(OBJ_SANDBOX, id), "prompt", &n);
    if (prompt && n) {
        AUTO_FREE char *arg = NULL;
        int64_t msg;

        db_exec(tx->db,
                "INSERT INTO message(sandbox,state,text,first,created) "
                "VALUES(?,'queued',?,1,?)",
                "ibi", id, prompt, n, tx->now_ms);
        msg = db_last_id(tx->db);
        arg = xasprintf("%lld", (long long)msg);
        tx_job(tx, c, id, 0, "work", "turn", arg);
    }
    return 0;
}

int tx_create(struct tx *tx, struct courier *c, int64_t project,
              const struct args *a, bool body_follows, int64_t *id,
              char **made, struct err *e)
{
    const char *name = args_value(a, "name"), *prompt = NULL;
    size_t mark;
    int r;

    if (name && args_word(a, 0))
        return err_set(e, EINVAL, "create: the name is given twice");
    if (!name)
        name = args_word(a, 0);
    r = tx_sandbox_new(tx, project, name, id, made, e);
    if (r == 0)
        r = apply_words(tx, c, *id, a, &prompt, e);
    if (r == 0 && prompt && body_follows)
        r = err_set(e, EINVAL, "create: a prompt and a body are one too many");
    if (r == 0 && prompt)
        r = set_prompt(tx, c, *id, prompt, strlen(prompt), e);
    if (r < 0)
        return r;
    if (!body_follows)
        return tx_start(tx, c, *id, e);
    /* what would refuse the start is to be known now, not at the close */
    mark = tx_mark(tx);
    r = tx_start(tx, c, *id, e);
    tx_undo(tx, mark);
    return r;
}

int tx_create_body(struct tx *tx, struct courier *c, int64_t id, const void *p,
                   size_t n, struct err *e)
{
    int r = set_prompt(tx, c, id, p, n, e);

    return r < 0 ? r : tx_start(tx, c, id, e);
}

/* ---- messages ---- */

static int message_state(const struct sandbox *s, struct err *e)
{
    if (s->run)
        return err_set(e, EPERM,
                       "'%s' belongs to a run: its messages come from there",
                       s->name);
    if (s->trash || *s->ending ||
        (!sandbox_is(s, "creating") && !sandbox_is(s, "running")))
        return busy(s, e);
    return 0;
}

int message_may(struct db *d, int64_t id, struct err *e)
{
    struct sandbox s;
    int r;

    if (sandbox_get(d, id, &s) < 0)
        return err_set(e, ENOENT, "that sandbox is not there any more");
    r = message_state(&s, e);
    sandbox_clear(&s);
    return r;
}

int courier_message_check(struct courier *c, struct oid o, struct err *e)
{
    return message_may(store_reader(c->store), o.id, e);
}

static void queue_turn(struct tx *tx, struct courier *c, int64_t sandbox,
                       int64_t msg)
{
    AUTO_FREE char *arg = xasprintf("%lld", (long long)msg);

    tx_job(tx, c, sandbox, 0, "work", "turn", arg);
    tx_event(tx,
             db_int(tx->db, 0, "SELECT project FROM sandbox WHERE id=?", "i",
                    sandbox),
             oid(OBJ_SANDBOX, sandbox), "message",
             json_pack("{s:s}", "state", "queued"));
}

int tx_message(struct tx *tx, struct courier *c, int64_t id, const void *p,
               size_t n, const char *state, int64_t *msg, struct err *e)
{
    int64_t m;
    int r = message_may(tx->db, id, e);

    if (r < 0 && r != -EPERM)
        return r;
    if (r == -EPERM && strcmp(state, "run"))
        return r;
    /* what a step is told is bounded by its parts */
    if (n > MESSAGE_MAX && strcmp(state, "run"))
        return err_set(e, EMSGSIZE, "the message is longer than 1 MiB");
    if (strcmp(state, "open"))
        state = "queued";
    db_exec(tx->db,
            "INSERT INTO message(sandbox,state,text,created) VALUES(?,?,?,?)",
            "isbi", id, state, p, n, tx->now_ms);
    m = db_last_id(tx->db);
    if (msg)
        *msg = m;
    if (!strcmp(state, "queued"))
        queue_turn(tx, c, id, m);
    tx_changed(tx, oid(OBJ_SANDBOX, id), ASPECT_QUEUE);
    return 0;
}

int tx_message_end(struct tx *tx, struct courier *c, int64_t message,
                   const void *p, size_t n, struct err *e)
{
    int64_t id = db_int(tx->db, 0,
                        "SELECT sandbox FROM message WHERE id=? AND "
                        "state='open'",
                        "i", message);
    int r = id ? message_may(tx->db, id, e)
               : err_set(e, ENOENT, "that sandbox is not there any more");

    if (r < 0)
        return r;
    if (!n) {
        tx_message_drop(tx, message);
        return 0;
    }
    db_exec(tx->db, "UPDATE message SET state='queued',text=? WHERE id=?",
            "bi", p, n, message);
    queue_turn(tx, c, id, message);
    tx_changed(tx, oid(OBJ_SANDBOX, id), ASPECT_QUEUE);
    return 0;
}

void tx_message_drop(struct tx *tx, int64_t message)
{
    int64_t id = db_int(tx->db, 0, "SELECT sandbox FROM message WHERE id=?",
                        "i", message);

    db_exec(tx->db, "DELETE FROM message WHERE id=? AND state='open'", "i",
            message);
    tx_changed(tx, oid(OBJ_SANDBOX, id), ASPECT_QUEUE);
}

/* ---- exec ---- */

static int exec_may(struct db *d, int64_t id, struct err *e)
{
    struct sandbox s;
    int r = 0;

    if (sandbox_get(d, id, &s) < 0)
        return err_set(e, ENOENT, "that sandbox is not there any more");
    if (s.trash || *s.ending || !sandbox_is(&s, "running"))
        r = busy(&s, e);
    sandbox_clear(&s);
    return r;
}

int tx_exec_reserve(struct tx *tx, int64_t id, int64_t *exec, struct err *e)
{
    int64_t n;
    int r = exec_may(tx->db, id, e);

    if (r < 0)
        return r;
    n = db_int(tx->db, 0, "SELECT max(n) FROM exec WHERE sandbox=?", "i", id);
    db_exec(tx->db,
            "INSERT INTO exec(sandbox,n,cmd,status,created) "
            "VALUES(?,?,'','queued',?)",
            "iii", id, n + 1, tx->now_ms);
    *exec = db_last_id(tx->db);
    tx_changed(tx, oid(OBJ_SANDBOX, id), ASPECT_NAMES);
    return 0;
}

int tx_exec_queue(struct tx *tx, struct courier *c, int64_t exec,
                  const char *cmd, size_t n, struct err *e)
{
    int64_t id =
        db_int(tx->db, 0, "SELECT sandbox FROM exec WHERE id=?", "i", exec);
    AUTO_FREE char *text = xmemdup0(cmd, n);
    AUTO_FREE char *arg = xasprintf("%lld", (long long)exec);
    int r = exec_may(tx->db, id, e);

    if (r < 0)
        return r;
    if (strlen(text) != n)
        return err_set(e, EINVAL, "there is a NUL byte in it");
    db_exec(tx->db, "UPDATE exec SET cmd=? WHERE id=?", "si", text, exec);
    tx_job(tx, c, id, 0, "work", "exec", arg);
    tx_changed(tx, oid(OBJ_EXEC, exec), ASPECT_INFO);
    return 0;
}

void tx_exec_drop(struct tx *tx, int64_t exec)
{
    int64_t id =
        db_int(tx->db, 0, "SELECT sandbox FROM exec WHERE id=?", "i", exec);

    db_exec(tx->db, "DELETE FROM exec WHERE id=?", "i", exec);
    tx_changed(tx, oid(OBJ_EXEC, exec), ASPECT_GONE);
    tx_changed(tx, oid(OBJ_SANDBOX, id), ASPECT_NAMES);
}

/* ---- ending ---- */

void tx_kill(struct tx *tx, struct courier *c, int64_t id, const char *reason,
             bool now)
{
    json_t *j = json_pack("{s:s,s:b}", "reason", reason, "now", now);
    AUTO_FREE char *args = json_dumps(j, JSON_COMPACT);

    json_decref(j);
    if (job_there(tx->db, id, "control", "kill")) {
        if (now)
            db_exec(tx->db,
                    "UPDATE job SET args=?,not_before=0 WHERE sandbox=? AND "
                    "verb='kill'",
                    "si", args, id);
        return;
    }
    db_exec(tx->db, "UPDATE sandbox SET ending=? WHERE id=?", "si", reason,
            id);
    tx_job(tx, c, id, 0, "control", "kill", args);
}

void tx_pause(struct tx *tx, struct courier *c, int64_t id, const char *reason)
{
    if (!job_there(tx->db, id, "control", "pause"))
        tx_job(tx, c, id, 0, "control", "pause", reason);
}

void tx_killall(struct tx *tx, struct courier *c, struct oid o,
                const char *reason, const char *backend)
{
    int64_t project = o.kind == OBJ_PROJECT ? o.id : 0;
    sqlite3_stmt *q = db_query(
        tx->db,
        "SELECT id FROM sandbox WHERE (?1=0 OR project=?1) AND status "
        "IN('creating','running','paused') AND (?2 IS NULL OR backend=?2)",
        "is", project, backend);
    int64_t *ids = NULL;
    size_t n = 0;

    while (db_row(tx->db, q)) {
        ids = xrealloc(ids, (n + 1) * sizeof(*ids));
        ids[n++] = col_int(q, 0);
    }
    tx_runs_end(tx, c, o, reason, backend);
    for (size_t i = 0; i < n; i++)
        tx_kill(tx, c, ids[i], reason, false);
    free(ids);
}

static int verb_kill(struct tx *tx, struct courier *c, const struct sandbox *s,
                     const struct args *a, struct err *e)
{
    const char *w = args_word(a, 0);

    if (w && strcmp(w, "now"))
        return err_set(e, EINVAL, "kill takes nothing but 'now'");
    if (s->trash)
        return busy(s, e);
    if (sandbox_is(s, "draft")) {
        tx_purge_row(tx, oid(OBJ_SANDBOX, s->id));
        return 0;
    }
    if (!ended(s))
        tx_kill(tx, c, s->id, "killed by user", w != NULL);
    return 0;
}

/* ---- time ---- */

static int set_timeout(struct tx *tx, struct courier *c,
                       const struct sandbox *s, int64_t secs, struct err *e)
{
    AUTO_FREE char *arg = NULL;
    char shown[24];

    if (secs < TIMEOUT_MIN || secs > TIMEOUT_MAX)
        return err_set(e, EINVAL, "a timeout is from 1m to 4h from now");
    if (s->trash || *s->ending ||
        (!sandbox_is(s, "creating") && !sandbox_is(s, "running")))
        return busy(s, e);
    if (sandbox_is(s, "creating")) {
        struct buf text = {0};
        size_t n = 0;
        int r;

        text.p = doc_text(tx->db, oid(OBJ_SANDBOX, s->id), "config", &n);
        text.n = text.p ? n : 0;
        text.cap = text.p ? n + 1 : 0;
        text_duration_str(secs, shown);
        config_set(&text, "timeout", shown);
        r = tx_doc_save(tx, c, oid(OBJ_SANDBOX, s->id), "config", text.p,
                        text.n, 0, e);
        buf_free(&text);
        return r;
    }
    arg = xasprintf("%lld", (long long)(tx->now_ms + secs * 1000));
    db_exec(tx->db, "UPDATE sandbox SET expires=? WHERE id=?", "ii",
            tx->now_ms + secs * 1000, s->id);
    db_exec(tx->db,
            "DELETE FROM job WHERE sandbox=? AND verb='timeout' AND "
            "lane='control' AND attempt=0 AND state='queued' AND step=0 AND "
            "id<>(SELECT min(id) FROM job WHERE sandbox=? AND "
            "lane='control')",
            "ii", s->id, s->id);
    tx_job(tx, c, s->id, 0, "control", "timeout", arg);
    tx_touch(tx, s->project, oid(OBJ_SANDBOX, s->id), ASPECT_EXPIRES);
    return 0;
}

int tx_expires(struct tx *tx, struct courier *c, int64_t id, const char *text,
               struct err *e)
{
    AUTO_FREE char *copy = xstrdup(text);
    char *t = text_trim(copy);
    struct sandbox s;
    int64_t secs;
    int r = get(tx, id, &s, e);

    if (r < 0)
        return r;
    if (!*t) {
        secs = config_seconds(tx->db, &s, "timeout", 900);
    } else {
        secs = text_duration(t);
        if (secs < 0) {
            int64_t at = time_parse(t);

            secs = at < 0 ? -1 : (at - tx->now_ms + 500) / 1000;
        }
        if (secs < 0)
            r = err_set(e, EINVAL,
                        "a duration (30m) or a time (2026-11-29T12:00:00Z) "
                        "is wanted, 1m to 4h from now");
    }
    if (r == 0)
        r = set_timeout(tx, c, &s, secs, e);
    sandbox_clear(&s);
    return r;
}

/* ---- the table ---- */

static int verb_interrupt(struct tx *tx, struct courier *c,
                          const struct sandbox *s, const struct args *a,
                          struct err *e)
{
    const char *w = args_word(a, 0);

    if (w && strcmp(w, "all"))
        return err_set(e, EINVAL, "interrupt takes nothing but 'all'");
    if (s->trash || *s->ending ||
        (!sandbox_is(s, "creating") && !sandbox_is(s, "running")))
        return busy(s, e);
    if (sandbox_is(s, "creating"))
        return 0;
    tx_job(tx, c, s->id, 0, "control", "interrupt", w ? w : "");
    return 0;
}

/* the state after the control work that is waiting */
static bool will_be_paused(struct tx *tx, const struct sandbox *s)
{
    AUTO_FREE char *last =
        db_text(tx->db,
                "SELECT verb FROM job WHERE sandbox=? AND lane='control' AND "
                "verb IN('pause','resume') ORDER BY id DESC LIMIT 1",
                "i", s->id);

    return last ? !strcmp(last, "pause") : sandbox_is(s, "paused");
}

static int verb_pause(struct tx *tx, struct courier *c,
                      const struct sandbox *s, struct err *e)
{
    if (s->trash || *s->ending ||
        (!sandbox_is(s, "running") && !sandbox_is(s, "paused")))
        return busy(s, e);
    if (!will_be_paused(tx, s))
        tx_job(tx, c, s->id, 0, "control", "pause", "paused by user");
    return 0;
}

static int verb_resume(struct tx *tx, struct courier *c,
                       const struct sandbox *s, struct err *e)
{
    double budget;

    if (s->trash || *s->ending ||
        (!sandbox_is(s, "running") && !sandbox_is(s, "paused")))
        return busy(s, e);
    budget = budget_spent(tx->db, s, tx->now_ms);
    if (budget > 0) {
        AUTO_FREE char *set = budget_words(budget);

        return err_set(e, EDQUOT,
                       "the budget of %s is spent: raise budget in the "
                       "config of the %s first",
                       set,
                       s->run && budget_spent_run(tx->db, s->run, tx->now_ms)
                           ? "run"
                           : "sandbox");
    }
    if (will_be_paused(tx, s))
        tx_job(tx, c, s->id, 0, "control", "resume", "");
    return 0;
}

/* push, pr, learn: they need a repository, or a conversation */
static int verb_work(struct tx *tx, struct courier *c, const struct sandbox *s,
                     const char *verb, const struct args *a, struct err *e)
{
    const char *title = args_value(a, "title");
    bool live = sandbox_is(s, "running") && !*s->ending;

    if (s->trash || (!live && !(ended(s) && strcmp(verb, "push"))))
        return busy(s, e);
    if (strcmp(verb, "learn") && !repo_wanted(tx->db, s))
        return err_set(e, EINVAL, "'%s' has no repository: set repo", s->name);
    if (!strcmp(verb, "pr"))
        tx_pr_mark(tx, s);
    if (!strcmp(verb, "learn") && job_there(tx->db, s->id, "side", "learn"))
        return 0;
    if (!strcmp(verb, "learn"))
        tx_learn(tx, c, s);
    else
        tx_job(tx, c, s->id, 0, live ? "work" : "side", verb,
               title ? title : "");
    return 0;
}

static int verb_purge(struct tx *tx, struct courier *c,
                      const struct sandbox *s, const struct args *a,
                      struct err *e)
{
    const char *w = args_word(a, 0);

    if (w && strcmp(w, "now"))
        return err_set(e, EINVAL, "purge takes nothing but 'now'");
    return tx_purge(tx, c, oid(OBJ_SANDBOX, s->id), w != NULL, e);
}

static int one_verb(struct tx *tx, struct courier *c, const struct sandbox *s,
                    const struct args *a, struct err *e)
{
    const char *verb = a->words[0];
    struct oid o = oid(OBJ_SANDBOX, s->id);

    if (!strcmp(verb, "start"))
        return tx_start(tx, c, s->id, e);
    if (!strcmp(verb, "message"))
        return tx_message(tx, c, s->id, a->rest, strlen(a->rest), "queued",
                          NULL, e);
    if (!strcmp(verb, "interrupt"))
        return verb_interrupt(tx, c, s, a, e);
    if (!strcmp(verb, "pause"))
        return verb_pause(tx, c, s, e);
    if (!strcmp(verb, "resume"))
        return verb_resume(tx, c, s, e);
    if (!strcmp(verb, "timeout")) {
        int64_t secs = text_duration(args_word(a, 0));

        return set_timeout(tx, c, s, secs, e);
    }
    if (!strcmp(verb, "kill"))
        return verb_kill(tx, c, s, a, e);
    if (!strcmp(verb, "exec")) {
        int64_t exec;
        int r = tx_exec_reserve(tx, s->id, &exec, e);

        return r < 0 ? r
                     : tx_exec_queue(tx, c, exec, a->rest, strlen(a->rest), e);
    }
    if (!strcmp(verb, "delete"))
        return tx_delete(tx, o, e);
    if (!strcmp(verb, "restore"))
        return tx_restore(tx, o, NULL, e);
    if (!strcmp(verb, "purge"))
        return verb_purge(tx, c, s, a, e);
    return verb_work(tx, c, s, verb, a, e);
}

int tx_sandbox_verb(struct tx *tx, struct courier *c, int64_t id,
                    const struct args *a, struct err *e)
{
    struct sandbox s;
    int r = get(tx, id, &s, e);

    if (r < 0)
        return r;
    r = one_verb(tx, c, &s, a, e);
    sandbox_clear(&s);
    return r;
}

/* start|kill|... NAME... of sandboxes/ctl: all of them or none */
int tx_named_verb(struct tx *tx, struct courier *c, int64_t project,
                  const struct args *a, struct err *e)
{
    char *words[3] = {a->words[0], NULL, NULL};
    struct args one = {.words = words};
    bool trash = !strcmp(words[0], "restore") || !strcmp(words[0], "purge");
    bool takes_now = !strcmp(words[0], "kill") || !strcmp(words[0], "purge");
    char **w = a->words + 1;

    if (*w && takes_now && !strcmp(*w, "now") && w[1])
        words[1] = *w++;
    for (; *w; w++) {
        int64_t id;
        int r;

        if (!strncmp(*w, "id=", 3))
            continue;
        id = trash ? db_int(tx->db, 0,
                            "SELECT id FROM sandbox WHERE project=? AND "
                            "trash=?",
                            "is", project, *w)
                   : db_int(tx->db, 0,
                            "SELECT id FROM sandbox WHERE project=? AND "
                            "name=? AND trash IS NULL",
                            "is", project, *w);
        if (!id)
            return err_set(e, ENOENT, "there is no sandbox '%.60s'%s", *w,
                           trash ? " in the trash" : "");
        r = tx_sandbox_verb(tx, c, id, &one, e);
        if (r < 0)
            return r;
    }
    return 0;
}
