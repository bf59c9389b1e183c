#include "engine/run.h"

#include "engine/command.h"
#include "engine/config.h"
#include "engine/docs.h"
#include "engine/keys.h"
#include "engine/usage.h"

enum { ATTEMPTS_MAX = 20 };

/* ---- the row ---- */

int run_get(struct db *d, int64_t id, struct run *r, struct err *e)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT id,project,created,started,ended,name,status,reason,text,"
        "config,want,branch,base,state,grp FROM run WHERE id=?",
        "i", id);
    char **text[] = {&r->name, &r->status, &r->reason, &r->text,  &r->config,
                     &r->want, &r->branch, &r->base,   &r->state, &r->grp};
    char *over; /* its config, as it is now */

    memset(r, 0, sizeof(*r));
    if (!db_row(d, q))
        return err_set(e, ENOENT, "that run is not there any more");
    r->id = col_int(q, 0);
    r->project = col_int(q, 1);
    r->created = col_int(q, 2);
    r->started = col_int(q, 3);
    r->ended = col_int(q, 4);
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        *text[i] = xstrdup(col_text(q, (int)i + 5));
    db_done(q);
    over = doc_text(d, oid(OBJ_RUN, id), "config", NULL);
    if (over) {
        free(r->config);
        r->config = over;
    }
    r->prompt = doc_text(d, oid(OBJ_RUN, id), "prompt", NULL);
    if (!r->prompt)
        r->prompt = xstrdup("");
    return workflow_parse(r->text, strlen(r->text), false, &r->wf, e);
}

void run_clear(struct run *r)
{
    free(r->name);
    free(r->status);
    free(r->reason);
    free(r->text);
    free(r->config);
    free(r->want);
    free(r->branch);
    free(r->base);
    free(r->state);
    free(r->grp);
    free(r->prompt);
    workflow_clear(&r->wf);
    memset(r, 0, sizeof(*r));
}

bool run_ended(const char *status)
{
    static const char *const ends[] = {"completed", "failed", "cancelled",
                                       NULL};

    return text_is_word(status, ends);
}

static int64_t project_of(struct tx *tx, int64_t id)
{
    return db_int(tx->db, 0, "SELECT project FROM run WHERE id=?", "i", id);
}

void tx_run_touch(struct tx *tx, int64_t id, uint64_t aspects)
{
    tx_touch(tx, project_of(tx, id), oid(OBJ_RUN, id),
             aspects | ASPECT_PROGRESS);
}

void tx_run_status(struct tx *tx, int64_t id, const char *to,
                   const char *reason)
{
    AUTO_FREE char *from =
        db_text(tx->db, "SELECT status FROM run WHERE id=?", "i", id);
    AUTO_BUF struct buf why = {0};

    if (!from)
        return;
    if (!reason)
        reason = "";
    text_printable(&why, reason, strlen(reason), 0);
    db_exec(tx->db, "UPDATE run SET status=?,reason=? WHERE id=?", "ssi", to,
            buf_str(&why), id);
    if (!strcmp(to, "running"))
        db_exec(tx->db,
                "UPDATE run SET started=CASE started WHEN 0 THEN ? ELSE "
                "started END,ended=0 WHERE id=?",
                "ii", tx->now_ms, id);
    if (run_ended(to))
        db_exec(tx->db, "UPDATE run SET ended=?,want='' WHERE id=?", "ii",
                tx->now_ms, id);
    if (!strcmp(from, "paused"))
        db_exec(tx->db, "UPDATE pause SET ended=? WHERE run=? AND ended=0",
                "ii", tx->now_ms, id);
    if (!strcmp(to, "paused"))
        db_exec(tx->db, "INSERT INTO pause(run,started) VALUES(?,?)", "ii", id,
                tx->now_ms);
    if (strcmp(from, to))
        tx_event(tx, project_of(tx, id), oid(OBJ_RUN, id), "run",
                 json_pack("{s:s,s:s,s:s}", "from", from, "to", to, "reason",
                           buf_str(&why)));
    tx_run_touch(tx, id, ASPECT_STATUS | ASPECT_EVENTS);
}

void step_name(const struct run *r, size_t pos, int round, char out[96])
{
    if (round > 1)
        snprintf(out, 96, "%02zu-%s.%d", pos + 1, r->wf.steps[pos].name,
                 round);
    else
        snprintf(out, 96, "%02zu-%s", pos + 1, r->wf.steps[pos].name);
}

char *run_pr_setting(struct db *d, int64_t run)
{
    int64_t project =
        db_int(d, 0, "SELECT project FROM run WHERE id=?", "i", run);
    AUTO_FREE char *cfg = doc_text(d, oid(OBJ_RUN, run), "config", NULL);
    char *v = cfg ? config_find(cfg, strlen(cfg), "pr") : NULL;

    if (!v)
        v = config_of(d, oid(OBJ_PROJECT, project), "pr");
    return v ? v : xstrdup("");
}

/* ---- create ---- */

/* a run keeps the personas that it began with, as its workflow */
static void keep_personas(struct tx *tx, const struct run *r)
{
    for (size_t i = 0; i < r->wf.n_steps; i++) {
        const char *name = r->wf.steps[i].part.persona;
        AUTO_FREE char *path = NULL, *text = NULL;

        if (!name)
            continue;
        path = xasprintf("personas/%s", name);
        text = run_persona(tx->db, r, name, NULL);
        if (text)
            tx_doc_seed(tx, oid(OBJ_RUN, r->id), path, text);
    }
}

/* key=value words that are settings of its sandboxes */
static int own_settings(struct tx *tx, const struct args *a, struct buf *cfg,
                        struct err *e)
{
    static const char *const mine[] = {"workflow", "name", "n", "branch",
                                       "prompt",   "id",   NULL};

    for (char **w = a->words + 1; *w; w++) {
        char *eq = strchr(*w, '=');
        AUTO_FREE char *key = NULL;
        int r;

        if (!eq && *w == args_word(a, 0))
            continue; /* the name */
        if (!eq)
            return err_set(e, EINVAL, "'%.40s' is no key=value", *w);
        key = xmemdup0(*w, (size_t)(eq - *w));
        if (text_is_word(key, mine))
            continue;
        r = config_check(key, eq + 1, CONFIG_SANDBOX, e);
        if (r == 0 && !strcmp(key, "tool"))
            r = config_tool_check(tx->db, eq + 1, e);
        if (r < 0)
            return r;
        config_set(cfg, key, eq + 1);
    }
    return 0;
}

static char *run_made_up(struct tx *tx, int64_t project, const char *wf)
{
    for (int i = 1;; i++) {
        char *name = xasprintf("%.40s-%d", wf, i);

        if (!db_int(tx->db, 0,
                    "SELECT 1 FROM run WHERE project=?1 AND (name=?2 OR "
                    "grp=?2) AND trash IS NULL",
                    "is", project, name))
            return name;
        free(name);
    }
}

static int run_insert(struct tx *tx, int64_t project, const char *name,
                      const char *wf, const char *text, const struct buf *cfg,
                      const char *branch, const char *grp, const char *prompt,
                      size_t n, int64_t *id, struct err *e)
{
    int r = text_name_check(name, e);

    if (r < 0)
        return r;
    if (!strcmp(name, "ctl") || !strcmp(name, "attempts"))
        return err_set(e, EINVAL, "'%s' is the name of a file there", name);
    if (db_int(tx->db, 0,
               "SELECT 1 FROM run WHERE project=? AND name=? AND trash IS "
               "NULL",
               "is", project, name))
        return err_set(e, EEXIST, "run '%s' is there already", name);
    db_exec(tx->db,
            "INSERT INTO run(project,name,status,workflow,text,config,branch,"
            "grp,created) VALUES(?,?,'pending',?,?,?,?,?,?)",
            "issssssi", project, name, wf, text, buf_str(cfg), branch, grp,
            tx->now_ms);
    *id = db_last_id(tx->db);
    if (cfg->n)
        r = tx_doc_put(tx, oid(OBJ_RUN, *id), "config", cfg->p, cfg->n, e);
    if (r == 0 && n)
        r = tx_doc_put(tx, oid(OBJ_RUN, *id), "prompt", prompt, n, e);
    tx_event(tx, project, oid(OBJ_RUN, *id), "created", NULL);
    tx_changed(tx, oid(OBJ_PROJECT, project),
               ASPECT_NAMES | ASPECT_STATUS | ASPECT_BOARD);
    tx_run_touch(tx, *id, ASPECT_STATUS | ASPECT_NAMES);
    return r;
}

static void run_begin(struct tx *tx, struct courier *c, int64_t id)
{
    if (!db_int(tx->db, 0, "SELECT 1 FROM job WHERE run=?", "i", id))
        tx_job(tx, c, 0, id, "run", "run", "");
}

/* a skill that is nowhere is told: it may still be the repository's own */
static void miss_skills(struct tx *tx, const struct run *r, size_t pos,
                        const char *skills)
{
    AUTO_FREE char *copy = xstrdup(skills);
    char *save = NULL;
    AUTO_FREE char *path = object_path(tx->db, oid(OBJ_RUN, r->id));
    AUTO_FREE char *repo = config_find(r->config, strlen(r->config), "repo");

    if (!repo)
        repo = config_of(tx->db, oid(OBJ_PROJECT, r->project), "repo");
    if (*repo)
        return;
    for (char *w = strtok_r(copy, ", \t\n", &save); w;
         w = strtok_r(NULL, ", \t\n", &save)) {
        AUTO_FREE char *why =
            xasprintf("step %s names the skill '%.60s', which is not in "
                      "skills/",
                      r->wf.steps[pos].name, w);

        if (!db_int(tx->db, 0,
                    "SELECT 1 FROM doc WHERE kind=? AND owner=? AND "
                    "instr(path,'skills/'||?||'/') LIMIT 1",
                    "iis", (int64_t)OBJ_PROJECT, r->project, w))
            tx_error(tx, r->project, path ? path : "", why);
    }
}

/* the tool that it will have: is it there, with its key? */
static int tool_ready(struct tx *tx, const struct run *r, size_t pos,
                      const struct part *p, struct err *e)
{
    struct settings s = {0};
    struct tool *t = NULL;
    int rc = p->tool ? config_tool_check(tx->db, p->tool, e) : 0;

    if (rc == 0)
        rc = part_settings(tx->db, r, p, &s, e);
    if (rc == 0)
        rc = tool_get(tx->db, s.tool.value, &t, e);
    if (rc == 0)
        rc = keys_need(tx->db, r->project, t, e);
    if (rc < 0)
        err_prefix(e, "step %s", r->wf.steps[pos].name);
    tool_free(t);
    settings_clear(&s);
    return rc;
}

/* every step must be able to begin: its persona, tool and key are there */
static int take_steps(struct tx *tx, int64_t id, struct err *e)
{
    struct run r;
    int rc = run_get(tx->db, id, &r, e);

    for (size_t i = 0; rc == 0 && i < r.wf.n_steps; i++) {
        struct part p = {0};

        rc = step_part(tx->db, &r, i, &p, e);
        if (rc == 0)
            rc = tool_ready(tx, &r, i, &p, e);
        if (rc == 0 && p.skills)
            miss_skills(tx, &r, i, p.skills);
        part_clear(&p);
    }
    if (rc == 0)
        keep_personas(tx, &r);
    run_clear(&r);
    return rc;
}

int tx_run_create(struct tx *tx, struct courier *c, int64_t project,
                  const struct args *a, bool body_follows, int64_t *id,
                  char **made, struct err *e)
{
    const char *wf = args_value(a, "workflow"), *n = args_value(a, "n");
    const char *name = args_value(a, "name"), *br = args_value(a, "branch");
    const char *prompt = args_value(a, "prompt");
    AUTO_FREE char *path = NULL, *text = NULL, *own = NULL;
    AUTO_BUF struct buf cfg = {0};
    int64_t count = 1;
    size_t len = 0;
    int r;

    if (!wf)
        return err_set(e, EINVAL, "workflow= is missing");
    r = text_name_check(wf, e);
    if (r < 0)
        return r;
    path = xasprintf("workflows/%s", wf);
    text = doc_text(tx->db, oid(OBJ_PROJECT, project), path, &len);
    if (!text || !len)
        return err_set(e, ENOENT, "there is no workflow '%s'", wf);
    if (n && !text_int(n, 1, ATTEMPTS_MAX, &count))
        return err_set(e, EINVAL, "n is a number from 1 to %d", ATTEMPTS_MAX);
    if (br && (r = git_branch_check(br, e)) < 0)
        return r;
    if (body_follows && prompt)
        return err_set(e, EINVAL,
                       "create: a prompt and a body are one too many");
    if (name && args_word(a, 0))
        return err_set(e, EINVAL, "the name is given twice");
    if (!name)
        name = args_word(a, 0);
    r = own_settings(tx, a, &cfg, e);
    if (r < 0)
        return r;
    if (!name)
        name = own = run_made_up(tx, project, wf);
    for (int64_t k = 1; r == 0 && k <= count; k++) {
        AUTO_FREE char *one = count > 1
                                  ? xasprintf("%s-%lld", name, (long long)k)
                                  : xstrdup(name);
        AUTO_FREE char *branch = !br ? xasprintf("courier/%s", one)
                                 : count > 1
                                     ? xasprintf("%s-%lld", br, (long long)k)
                                     : xstrdup(br);

        r = run_insert(tx, project, one, wf, text, &cfg, branch,
                       count > 1 ? name : "", prompt,
                       prompt ? strlen(prompt) : 0, id, e);
        if (r == 0)
            r = take_steps(tx, *id, e);
        if (r == 0 && !body_follows)
            run_begin(tx, c, *id);
    }
    if (r == 0)
        *made = xstrdup(name);
    return r;
}

/* the runs that were made with this one, in order; at most ATTEMPTS_MAX */
static size_t attempts_of(struct tx *tx, int64_t id, int64_t ids[])
{
    sqlite3_stmt *q = db_query(
        tx->db,
        "SELECT r.id FROM run r JOIN run m ON m.id=?1 AND (r.id=m.id OR "
        "m.grp<>'' AND r.grp=m.grp AND r.project=m.project AND "
        "r.created=m.created) WHERE r.status='pending' OR r.id=m.id ORDER BY "
        "r.id",
        "i", id);
    size_t n = 0;

    while (n < ATTEMPTS_MAX && db_row(tx->db, q))
        ids[n++] = col_int(q, 0);
    if (n == ATTEMPTS_MAX)
        db_done(q);
    return n;
}

int tx_run_create_body(struct tx *tx, struct courier *c, int64_t id,
                       const void *p, size_t n, struct err *e)
{
    int64_t ids[ATTEMPTS_MAX];
    size_t k = attempts_of(tx, id, ids);
    int r = 0;

    if (!k)
        return err_set(e, ENOENT, "that run is not there any more");
    for (size_t i = 0; r == 0 && i < k; i++) {
        if (n)
            r = tx_doc_put(tx, oid(OBJ_RUN, ids[i]), "prompt", p, n, e);
        if (r == 0)
            run_begin(tx, c, ids[i]);
    }
    return r;
}

void tx_run_drop(struct tx *tx, int64_t id)
{
    int64_t ids[ATTEMPTS_MAX];
    size_t k = attempts_of(tx, id, ids);

    for (size_t i = 0; i < k; i++)
        if (!db_int(tx->db, 0, "SELECT 1 FROM sandbox WHERE run=? LIMIT 1",
                    "i", ids[i]))
            tx_purge_row(tx, oid(OBJ_RUN, ids[i]));
}

/* ---- control ---- */

void tx_run_look(struct tx *tx, struct courier *c, int64_t sandbox)
{
    int64_t run =
        db_int(tx->db, 0, "SELECT run FROM sandbox WHERE id=?", "i", sandbox);

    /* what is changed here beside not_before is how tx_outcome sees that
     * something came while the job looked */
    if (run) {
        tx_changed(tx, oid(OBJ_RUN, run), ASPECT_PROGRESS);
        db_exec(tx->db,
                "UPDATE job SET step=step+1,not_before=0 WHERE run=? AND "
                "lane='run'",
                "i", run);
    } else {
        db_exec(tx->db,
                "UPDATE job SET attempt=attempt+1,not_before=0 WHERE "
                "verb='learn' AND step=1 AND args=CAST(? AS TEXT)",
                "i", sandbox);
    }
    if (c && db_changes(tx->db))
        tx_jobs_kick(tx, c);
}

static void set_want(struct tx *tx, struct courier *c, int64_t id,
                     const char *want)
{
    db_exec(tx->db, "UPDATE run SET want=? WHERE id=?", "si", want, id);
    db_exec(tx->db,
            "UPDATE job SET step=step+1,not_before=0 WHERE run=? AND "
            "lane='run'",
            "i", id);
    run_begin(tx, c, id);
    tx_run_touch(tx, id, ASPECT_STATUS);
    tx_jobs_kick(tx, c);
}

void tx_runs_end(struct tx *tx, struct courier *c, struct oid o,
                 const char *reason, const char *backend)
{
    int64_t project = o.kind == OBJ_PROJECT ? o.id : 0;
    sqlite3_stmt *q = db_query(
        tx->db,
        "SELECT id FROM run r WHERE (?1=0 OR project=?1) AND status "
        "IN('pending','running','paused') AND (?2 IS NULL OR EXISTS(SELECT 1 "
        "FROM sandbox WHERE run=r.id AND backend=?2 AND status "
        "IN('creating','running','paused')))",
        "is", project, backend);
    int64_t *ids = NULL;
    size_t n = 0;

    while (db_row(tx->db, q)) {
        ids = xrealloc(ids, (n + 1) * sizeof(*ids));
        ids[n++] = col_int(q, 0);
    }
    for (size_t i = 0; i < n; i++)
        set_want(tx, c, ids[i], reason);
    free(ids);
}

/* ---- restart ---- */

/* the step that is meant: its name, or as its directory is called */
static int find_step(const struct run *r, const char *from, int64_t *pos,
                     struct err *e)
{
    for (size_t i = 0; i < r->wf.n_steps; i++) {
        AUTO_FREE char *dir =
            xasprintf("%02zu-%s", i + 1, r->wf.steps[i].name);
        size_t n = strlen(dir);

        if (!strcmp(r->wf.steps[i].name, from) ||
            (!strncmp(dir, from, n) && (!from[n] || from[n] == '.'))) {
            *pos = (int64_t)i;
            return 0;
        }
    }
    return err_set(e, ENOENT, "there is no step '%.60s'", from);
}

/* where it ended: a loop whose rounds are spent begins anew, with what its
 * checker said last */
static int64_t ended_at(const struct run *r, const json_t *st,
                        const char **feedback)
{
    int64_t pos = json_integer_value(json_object_get(st, "pos"));
    int loop;

    if (pos >= (int64_t)r->wf.n_steps || !strcmp(r->status, "completed"))
        return 0;
    loop = r->wf.steps[pos].loop;
    if (loop >= 0 && json_integer_value(json_object_get(st, "spent")))
        pos = r->wf.loops[loop].first;
    if (loop >= 0)
        *feedback = json_string_value(json_object_get(st, "feedback"));
    return pos;
}

static int restart(struct tx *tx, struct courier *c, const struct run *r,
                   const char *from, struct err *e)
{
    json_t *old = json_loads(*r->state ? r->state : "{}", 0, NULL);
    AUTO_FREE char *dump = NULL;
    const char *feedback = NULL;
    json_t *st;
    int64_t pos;

    pos = ended_at(r, old, &feedback);
    if (from && find_step(r, from, &pos, e) < 0) {
        json_decref(old);
        return -ENOENT;
    }
    /* earlier tries of these steps stay readable under their names */
    st = json_pack("{s:I,s:i,s:s,s:s,s:i,s:I}", "pos", (json_int_t)pos,
                   "round", 1, "phase", "begin", "feedback",
                   feedback && !from ? feedback : "", "anew", from != NULL,
                   "lastvm",
                   json_integer_value(json_object_get(old, "lastvm")));
    dump = json_dumps(st, JSON_COMPACT);
    json_decref(st);
    json_decref(old);
    db_exec(tx->db,
            "UPDATE run SET state=?,want='',pr_status='',pr_reason='' WHERE "
            "id=?",
            "si", dump, r->id);
    tx_run_status(tx, r->id, "running", "restarted");
    run_begin(tx, c, r->id);
    return 0;
}

/* ---- verbs ---- */

static int live_verb(struct tx *tx, struct courier *c, const struct run *r,
                     const char *verb, struct err *e)
{
    bool paused = !strcmp(r->status, "paused");
    bool cancels = !strcmp(r->want, "cancel") || !strcmp(r->want, "killall");

    if (cancels && strcmp(verb, "cancel"))
        return err_set(e, EBUSY, "'%s' is being cancelled", r->name);
    if (!strcmp(verb, "pause") && paused)
        return 0;
    if (!strcmp(verb, "resume") && paused) {
        double budget = budget_spent_run(tx->db, r->id, tx->now_ms);

        if (budget > 0) {
            AUTO_FREE char *set = budget_words(budget);

            return err_set(e, EDQUOT,
                           "the budget of %s is spent: raise budget in the "
                           "run's config first",
                           set);
        }
    }
    if (!strcmp(verb, "resume") && !paused && strcmp(r->want, "pause"))
        return 0;
    if (!cancels)
        set_want(tx, c, r->id, verb);
    return 0;
}

static int run_verb(struct tx *tx, struct courier *c, const struct run *r,
                    const struct args *a, struct err *e)
{
    const char *verb = a->words[0];
    bool ended = run_ended(r->status);
    bool trash = db_int(
        tx->db, 0, "SELECT trash IS NOT NULL FROM run WHERE id=?", "i", r->id);

    if (!strcmp(verb, "delete"))
        return tx_delete(tx, oid(OBJ_RUN, r->id), e);
    if (!strcmp(verb, "restore"))
        return tx_restore(tx, oid(OBJ_RUN, r->id), NULL, e);
    if (!strcmp(verb, "purge"))
        return tx_purge(tx, c, oid(OBJ_RUN, r->id), false, e);
    if (trash)
        return err_set(e, EBUSY, "'%s' is in the trash: restore it first",
                       r->name);
    if (!strcmp(verb, "restart") && ended)
        return restart(tx, c, r, args_value(a, "from"), e);
    if (!strcmp(verb, "cancel") && !strcmp(r->status, "cancelled"))
        return 0;
    if (ended || !strcmp(verb, "restart"))
        return err_set(e, EBUSY,
                       ended ? "'%s' is %s: it has ended"
                             : "'%s' is %s: cancel it first",
                       r->name, r->status);
    return live_verb(tx, c, r, verb, e);
}

int tx_run_verb(struct tx *tx, struct courier *c, int64_t id,
                const struct args *a, struct err *e)
{
    struct run r;
    int rc = run_get(tx->db, id, &r, e);

    if (rc == 0)
        rc = run_verb(tx, c, &r, a, e);
    run_clear(&r);
    return rc;
}
