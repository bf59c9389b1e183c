/*
 * The job of a run. All of it happens in one transaction at a time: what
 * takes time is done by the jobs of its sandboxes, and this looks at what
 * came of them. Phases:
 *
 *   begin   the step at `pos` is to be begun
 *   turn    its message is with the agent
 *   ending  the sandbox is being ended (its work saved), `then` follows
 *   finish  all steps are done
 *   pr      the pull request is being made
 */
#include "engine/run.h"

#include "engine/command.h"
#include "engine/config.h"
#include "engine/jobs.h"

enum {
    LOOK_MS = 1000,
    PAUSED_MS = 30000,
    CONTEXT_MAX = 24 * 1024, /* bytes of an earlier step's answer */
};

struct drive {
    struct tx *tx;
    struct courier *c;
    struct run *r;
    json_t *st; /* where the run is; see above */
    bool over;  /* the job has nothing more to do */
    int delay_ms;
};

/* ---- the state ---- */

static int64_t num(const struct drive *d, const char *key)
{
    return json_integer_value(json_object_get(d->st, key));
}

static void put(struct drive *d, const char *key, int64_t v)
{
    json_object_set_new(d->st, key, json_integer(v));
}

static const char *word(const struct drive *d, const char *key)
{
    const char *s = json_string_value(json_object_get(d->st, key));

    return s ? s : "";
}

static void put_word(struct drive *d, const char *key, const char *v)
{
    json_object_set_new(d->st, key, json_string(v ? v : ""));
}

static void phase(struct drive *d, const char *p)
{
    put_word(d, "phase", p);
}

static const struct wf_step *step_at(const struct drive *d)
{
    return &d->r->wf.steps[num(d, "pos")];
}

static const struct wf_loop *loop_of(const struct drive *d)
{
    int l = step_at(d)->loop;

    return l < 0 ? NULL : &d->r->wf.loops[l];
}

static void step_set(struct drive *d, const char *status, const char *reason)
{
    AUTO_FREE char *name = NULL;
    int64_t id = num(d, "step");

    if (!id)
        return;
    db_exec(d->tx->db,
            "UPDATE step SET status=?,reason=?,ended=CASE WHEN ?1 IN"
            "('running','pending') THEN 0 ELSE ? END WHERE id=?",
            "ssii", status, reason ? reason : "", d->tx->now_ms, id);
    name = db_text(d->tx->db, "SELECT name FROM step WHERE id=?", "i", id);
    tx_event(d->tx, d->r->project, oid(OBJ_RUN, d->r->id), "step",
             json_pack("{s:s?,s:s,s:s}", "step", name, "to", status, "reason",
                       reason ? reason : ""));
    tx_changed(d->tx, oid(OBJ_STEP, id), ASPECT_STATUS);
    tx_run_touch(d->tx, d->r->id, ASPECT_STATUS | ASPECT_NAMES);
}

/* ---- ends ---- */

static bool vm_lives(struct drive *d, int64_t vm)
{
    return vm && db_int(d->tx->db, 0,
                        "SELECT status IN('creating','running','paused') FROM "
                        "sandbox WHERE id=?",
                        "i", vm);
}

/* ends the sandbox under way, then goes on with `then` */
static void end_vm(struct drive *d, const char *reason, const char *then)
{
    int64_t vm = num(d, "vm");

    put_word(d, "then", then);
    phase(d, "ending");
    if (vm_lives(d, vm))
        tx_kill(d->tx, d->c, vm, reason, false);
}

static void fail(struct drive *d, const char *reason)
{
    step_set(d, "failed", reason);
    put_word(d, "why", reason);
    end_vm(d, "run failed", "fail");
}

/* ---- what an agent is told ---- */

static void cut_text(struct buf *b, const char *text)
{
    size_t n = strlen(text);

    if (n > CONTEXT_MAX) {
        buf_adds(b, "[...]\n");
        text += n - CONTEXT_MAX;
        while (((unsigned char)*text & 0xc0) == 0x80)
            text++;
    }
    buf_adds(b, text);
}

/* the latest answer of every step before this one (and, in a loop, of the
 * others in it) */
static void earlier_steps(struct drive *d, struct buf *b)
{
    sqlite3_stmt *q = db_query(
        d->tx->db,
        "SELECT name,role,output FROM step s WHERE run=?1 AND id<>?2 AND "
        "pos<>?3 AND status='completed' AND output<>'' AND id=(SELECT max(id) "
        "FROM step t WHERE t.run=?1 AND t.pos=s.pos AND t.status='completed' "
        "AND t.id<>?2) ORDER BY id",
        "iii", d->r->id, num(d, "step"), num(d, "pos"));

    while (db_row(d->tx->db, q)) {
        buf_addf(b, "%s## %s (%s)\n\n", b->n ? "\n\n" : "", col_text(q, 0),
                 col_text(q, 1));
        cut_text(b, col_text(q, 2));
    }
}

/* what the other attempts came to, for a judge */
static void other_attempts(struct drive *d, struct buf *b)
{
    sqlite3_stmt *q = db_query(
        d->tx->db,
        "SELECT name,branch,status,coalesce((SELECT output FROM step WHERE "
        "run=r.id AND status='completed' AND role<>'judge' ORDER BY id DESC "
        "LIMIT 1),'') FROM run r WHERE project=? AND grp=? AND trash IS NULL "
        "ORDER BY id",
        "is", d->r->project, d->r->grp);

    buf_adds(b, "These are attempts at the same task, each on its own branch. "
                "Choose one by its name.\n");
    while (db_row(d->tx->db, q)) {
        buf_addf(b, "\n## %s (branch %s, %s)\n\n", col_text(q, 0),
                 col_text(q, 1), col_text(q, 2));
        cut_text(b, col_text(q, 3));
    }
}

static char *tell(struct drive *d, const struct part *p, bool known)
{
    const struct wf_loop *loop = loop_of(d);
    AUTO_BUF struct buf earlier = {0};
    struct told t = {
        .role = p->role,
        .instructions = p->instructions,
        .task = d->r->prompt,
        .feedback = role_judges(p->role) ? "" : word(d, "feedback"),
        .round = (int)num(d, "round"),
        .max = loop ? loop->max : 1,
        .known = known,
    };

    if (!strcmp(p->role, "judge") && *d->r->grp)
        other_attempts(d, &earlier);
    else if (!known || role_judges(p->role))
        earlier_steps(d, &earlier);
    t.earlier = buf_str(&earlier);
    return run_prompt(&t);
}

/* ---- begin ---- */

static void new_step_row(struct drive *d, const struct part *p)
{
    struct tx *tx = d->tx;
    int64_t pos = num(d, "pos");
    int shown = (int)db_int(tx->db, 0,
                            "SELECT count(*) FROM step WHERE run=? AND pos=?",
                            "ii", d->r->id, pos) +
                1;
    char name[96];

    step_name(d->r, (size_t)pos, shown, name);
    db_exec(tx->db,
            "INSERT INTO step(run,name,pos,round,role,status,created,started) "
            "VALUES(?,?,?,?,?,'running',?,?)",
            "isiisii", d->r->id, name, pos, (int64_t)shown, p->role,
            tx->now_ms, tx->now_ms);
    put(d, "step", db_last_id(tx->db));
    put(d, "tries", 0);
}

/* the settings of a step's sandbox: the run's own, then the step's */
static void step_config(struct drive *d, const struct part *p,
                        struct buf *cfg)
{
    buf_adds(cfg, d->r->config);
    if (p->tool)
        config_set(cfg, "tool", p->tool);
    if (p->model)
        config_set(cfg, "model", p->model);
    if (p->thinking)
        config_set(cfg, "thinking", p->thinking);
    config_set(cfg, "branch", d->r->branch);
    config_set(cfg, "when_done", "keep");
    config_set(cfg, "pr", "off");
}

static int make_vm(struct drive *d, const struct part *p, struct err *e)
{
    const struct wf_loop *loop = loop_of(d);
    AUTO_FREE char *name = NULL, *made = NULL;
    AUTO_BUF struct buf cfg = {0};
    struct tx *tx = d->tx;
    int64_t id;
    int r;

    for (int i = 1;; i++) {
        free(name);
        name = i == 1 ? xasprintf("%.30s-%.28s", d->r->name,
                                  loop ? loop->name : step_at(d)->name)
                      : xasprintf("%.30s-%.24s-%d", d->r->name,
                                  loop ? loop->name : step_at(d)->name, i);
        if (!db_int(tx->db, 0,
                    "SELECT 1 FROM sandbox WHERE project=? AND name=? AND "
                    "trash IS NULL",
                    "is", d->r->project, name))
            break;
    }
    r = tx_sandbox_new(tx, d->r->project, name, &id, &made, e);
    if (r < 0)
        return r;
    step_config(d, p, &cfg);
    r = tx_doc_put(tx, oid(OBJ_SANDBOX, id), "config", cfg.p, cfg.n, e);
    if (r < 0)
        return r;
    db_exec(tx->db, "UPDATE sandbox SET kind='run',run=?,step=? WHERE id=?",
            "iii", d->r->id, num(d, "step"), id);
    r = tx_start(tx, d->c, id, e);
    if (r < 0)
        return r;
    put(d, "vm", id);
    put(d, "vmloop", step_at(d)->loop);
    json_object_set_new(d->st, "sessions", json_object());
    return 0;
}

/* the sandbox plays another part now: its tool, model and conversation */
static int take_part(struct drive *d, const struct part *p, struct err *e)
{
    struct tx *tx = d->tx;
    int64_t vm = num(d, "vm");
    json_t *sessions = json_object_get(d->st, "sessions");
    const char *session =
        json_string_value(json_object_get(sessions, step_at(d)->name));
    AUTO_FREE char *old =
        db_text(tx->db, "SELECT config FROM sandbox WHERE id=?", "i", vm);
    json_t *cfg = json_loads(old ? old : "{}", 0, NULL);
    AUTO_FREE char *dump = NULL;
    struct tool *t = NULL;

    if (p->tool) {
        int r = tool_get(tx->db, p->tool, &t, e);

        if (r < 0) {
            json_decref(cfg);
            return r;
        }
        db_exec(tx->db, "UPDATE sandbox SET tool=?,model=? WHERE id=?", "ssi",
                p->tool, p->model ? p->model : t->model ? t->model : "", vm);
    } else if (p->model) {
        db_exec(tx->db, "UPDATE sandbox SET model=? WHERE id=?", "si",
                p->model, vm);
    }
    json_object_set_new(cfg, "thinking",
                        json_pack("{s:s,s:s}", "value",
                                  p->thinking         ? p->thinking
                                  : t && t->thinking ? t->thinking
                                                      : "",
                                  "from", "step"));
    dump = json_dumps(cfg, JSON_COMPACT);
    json_decref(cfg);
    db_exec(tx->db,
            "UPDATE sandbox SET session=?,step=?,config=? WHERE id=?", "sisi",
            session, num(d, "step"), dump, vm);
    tool_free(t);
    return 0;
}

static void send(struct drive *d, const char *text)
{
    int64_t msg = 0;
    struct err e;

    if (tx_message(d->tx, d->c, num(d, "vm"), text, strlen(text), "run", &msg,
                   &e) < 0) {
        fail(d, e.text);
        return;
    }
    put(d, "msg", msg);
    phase(d, "turn");
}

/* a judge of parallel attempts waits for the last of them, and that one asks */
static bool not_my_judge(struct drive *d, const struct part *p)
{
    if (strcmp(p->role, "judge") || !*d->r->grp)
        return false;
    put(d, "past_judge", 1);
    return db_int(d->tx->db, 0,
                  "SELECT 1 FROM run WHERE project=? AND grp=? AND id<>? AND "
                  "trash IS NULL AND status IN('pending','running','paused') "
                  "AND coalesce(json_extract(nullif(state,''),"
                  "'$.past_judge'),0)=0",
                  "isi", d->r->project, d->r->grp, d->r->id);
}

static void begin(struct drive *d)
{
    bool again = num(d, "step") && num(d, "tries") > 0;
    AUTO_FREE char *prompt = NULL;
    struct part p = {0};
    struct err e = {0};
    int64_t vm = num(d, "vm");
    bool reuse, known;

    if (step_part(d->tx->db, d->r, (size_t)num(d, "pos"), &p, &e) < 0) {
        put(d, "step", 0);
        fail(d, e.text);
        return;
    }
    if (not_my_judge(d, &p)) {
        put(d, "pos", num(d, "pos") + 1);
        phase(d, num(d, "pos") < (int64_t)d->r->wf.n_steps ? "begin"
                                                           : "finish");
        part_clear(&p);
        return;
    }
    reuse = vm_lives(d, vm) && step_at(d)->loop >= 0 &&
            num(d, "vmloop") == step_at(d)->loop;
    if (!reuse && vm_lives(d, vm)) {
        end_vm(d, "step finished", "begin");
        part_clear(&p);
        return;
    }
    if (!again)
        new_step_row(d, &p);
    put(d, "asked", 0);
    if ((reuse ? take_part(d, &p, &e) : make_vm(d, &p, &e)) < 0) {
        fail(d, e.text);
        part_clear(&p);
        return;
    }
    vm = num(d, "vm");
    known = json_object_get(json_object_get(d->st, "sessions"),
                            step_at(d)->name) != NULL;
    prompt = tell(d, &p, known);
    db_exec(d->tx->db, "UPDATE step SET sandbox=?,prompt=? WHERE id=?", "isi",
            vm, prompt, num(d, "step"));
    {
        AUTO_FREE char *name =
            db_text(d->tx->db, "SELECT name FROM step WHERE id=?", "i",
                    num(d, "step"));
        AUTO_FREE char *line = xasprintf("── step %s\n\n", name ? name : "");

        tx_stream_add(d->tx, oid(OBJ_RUN, d->r->id), STREAM_MESSAGES, line,
                      strlen(line), ASPECT_MESSAGES);
    }
    step_set(d, "running", NULL);
    send(d, prompt);
    part_clear(&p);
}

/* ---- turn ---- */

/* after a step of a loop, or of none: where to */
static void go_on(struct drive *d)
{
    const struct wf_loop *loop = loop_of(d);
    int64_t pos = num(d, "pos");
    char why[128];

    if (loop && pos == loop->last) {
        if (!num(d, "unhappy")) {
            put(d, "round", 1);
            put_word(d, "feedback", "");
        } else if (num(d, "round") < loop->max) {
            put(d, "round", num(d, "round") + 1);
            put(d, "unhappy", 0);
            put(d, "pos", loop->first);
            phase(d, "begin");
            return;
        } else if (!loop->continue_) {
            snprintf(why, sizeof(why),
                     "loop %.40s: not passed after %d round%s", loop->name,
                     loop->max, loop->max == 1 ? "" : "s");
            put_word(d, "why", why);
            put(d, "step", 0); /* the steps themselves did their work */
            end_vm(d, "run failed", "fail");
            return;
        } else {
            put(d, "round", 1);
        }
        put(d, "unhappy", 0);
    } else if (!loop && num(d, "unhappy")) {
        snprintf(why, sizeof(why), "step %.60s: the verdict is fail",
                 step_at(d)->name);
        put_word(d, "why", why);
        put(d, "step", 0);
        end_vm(d, "run failed", "fail");
        return;
    }
    put(d, "pos", pos + 1);
    phase(d, pos + 1 < (int64_t)d->r->wf.n_steps ? "begin" : "finish");
}

/* the answer of a step that judges; false: it is asked once more */
static bool judge(struct drive *d, const char *role, const char *answer)
{
    struct verdict v;
    const char *feedback;
    AUTO_FREE char *why = NULL;

    verdict_read(role, answer, &v);
    if (!v.ok && !num(d, "asked")) {
        AUTO_FREE char *again = run_ask_again(role);

        put(d, "asked", 1);
        verdict_clear(&v);
        send(d, again);
        return false;
    }
    if (!v.ok) {
        why = xasprintf("no verdict: %s", v.why);
        put(d, "unhappy", !strcmp(role, "checker") ||
                              !strcmp(role, "reviewer"));
    } else if (!v.pass) {
        put(d, "unhappy", 1);
    }
    feedback = why ? why : v.feedback ? v.feedback : "";
    if (!v.pass)
        put_word(d, "feedback", feedback);
    else
        put_word(d, "feedback", "");
    db_exec(d->tx->db,
            "UPDATE step SET verdict=?,feedback=?,score=? WHERE id=?", "sssi",
            v.choice  ? v.choice
            : v.score ? ""
            : v.pass  ? "pass"
                      : "fail",
            feedback, v.score ? v.score : "", num(d, "step"));
    if (v.choice)
        put_word(d, "choice", v.choice);
    verdict_clear(&v);
    return true;
}

static void turn_done(struct drive *d, const char *answer)
{
    int64_t vm = num(d, "vm");
    AUTO_FREE char *session = db_text(
        d->tx->db, "SELECT session FROM sandbox WHERE id=?", "i", vm);
    AUTO_FREE char *role = db_text(
        d->tx->db, "SELECT role FROM step WHERE id=?", "i", num(d, "step"));

    json_object_set_new(json_object_get(d->st, "sessions"), step_at(d)->name,
                        json_string(session ? session : ""));
    if (!num(d, "asked"))
        db_exec(d->tx->db, "UPDATE step SET output=? WHERE id=?", "si", answer,
                num(d, "step"));
    if (role_judges(role)) {
        if (!judge(d, role, answer))
            return;
    }
    step_set(d, "completed", NULL);
    if (!strcmp(d->r->want, "stop")) {
        put_word(d, "why", "stopped by user after this turn");
        end_vm(d, "run stopped", "cancel");
        return;
    }
    go_on(d);
}

/* the sandbox ended under the step: once more from the last push, then not */
static void vm_died(struct drive *d)
{
    AUTO_FREE char *why = db_text(
        d->tx->db,
        "SELECT status||': '||CASE WHEN error<>'' THEN error ELSE reason END "
        "FROM sandbox WHERE id=?",
        "i", num(d, "vm"));
    AUTO_FREE char *text =
        xasprintf("the sandbox ended under the step (%.300s)",
                  why ? why : "it is gone");

    put(d, "vm", 0);
    if (num(d, "tries") > 0) {
        fail(d, text);
        return;
    }
    put(d, "tries", 1);
    db_exec(d->tx->db, "UPDATE step SET attempt=attempt+1,reason=? WHERE id=?",
            "si", text, num(d, "step"));
    phase(d, "begin");
}

/* true: there is something new to look at */
static bool turn(struct drive *d)
{
    sqlite3_stmt *q =
        db_query(d->tx->db, "SELECT state,result,error FROM message WHERE id=?",
                 "i", num(d, "msg"));
    AUTO_FREE char *state = NULL, *result = NULL, *error = NULL;

    if (!db_row(d->tx->db, q)) {
        vm_died(d);
        return true;
    }
    state = xstrdup(col_text(q, 0));
    result = xstrdup(col_text(q, 1));
    error = xstrdup(col_text(q, 2));
    db_done(q);
    if (!strcmp(state, "completed")) {
        turn_done(d, result);
        return true;
    }
    if (!vm_lives(d, num(d, "vm"))) {
        vm_died(d);
        return true;
    }
    if (!strcmp(state, "failed")) {
        fail(d, *error ? error : "the agent failed");
        return true;
    }
    return false;
}

/* ---- the end ---- */

static bool ending(struct drive *d)
{
    if (vm_lives(d, num(d, "vm"))) {
        struct sandbox s;

        /* an end that was refused or lost is asked for again */
        if (sandbox_get(d->tx->db, num(d, "vm"), &s) == 0) {
            if (!*s.ending)
                tx_kill(d->tx, d->c, s.id, "run ended", false);
            sandbox_clear(&s);
        }
        return false;
    }
    if (num(d, "vm"))
        put(d, "lastvm", num(d, "vm"));
    put(d, "vm", 0);
    if (!strcmp(word(d, "then"), "fail")) {
        tx_run_status(d->tx, d->r->id, "failed", word(d, "why"));
        d->over = true;
    } else if (!strcmp(word(d, "then"), "cancel")) {
        step_set(d, strcmp(d->r->want, "stop") ? "cancelled" : "completed",
                 NULL);
        tx_run_status(d->tx, d->r->id, "cancelled", word(d, "why"));
        d->over = true;
    } else {
        phase(d, word(d, "then"));
    }
    return true;
}

static void finish(struct drive *d)
{
    int64_t vm = num(d, "vm") ? num(d, "vm") : num(d, "lastvm");
    struct sandbox s;
    AUTO_FREE char *pr = NULL, *repo = NULL;

    if (vm_lives(d, num(d, "vm"))) {
        end_vm(d, "run completed", "finish");
        return;
    }
    phase(d, "pr");
    if (!vm || sandbox_get(d->tx->db, vm, &s) < 0)
        return;
    /* the sandboxes of a run have pr = off: the run's own setting counts */
    pr = config_find(d->r->config, strlen(d->r->config), "pr");
    if (!pr)
        pr = config_of(d->tx->db, oid(OBJ_PROJECT, d->r->project), "pr");
    repo = config_value(d->tx->db, &s, "repo", NULL);
    if (repo && *repo && (!pr || strcmp(pr, "off"))) {
        db_exec(d->tx->db, "UPDATE sandbox SET pr_status='creating' WHERE id=?",
                "i", vm);
        db_exec(d->tx->db, "UPDATE run SET pr_status='creating' WHERE id=?",
                "i", d->r->id);
        tx_run_touch(d->tx, d->r->id, ASPECT_PR);
        tx_job(d->tx, d->c, vm, 0, "side", "pr", "");
        put(d, "prvm", vm);
    }
    sandbox_clear(&s);
}

static bool pr(struct drive *d)
{
    int64_t vm = num(d, "prvm");
    AUTO_FREE char *why = NULL;

    if (vm) {
        AUTO_FREE char *st = db_text(
            d->tx->db, "SELECT pr_status FROM sandbox WHERE id=?", "i", vm);

        if (st && !strcmp(st, "creating"))
            return false;
        db_exec(d->tx->db,
                "UPDATE run SET (pr_url,pr_number,pr_status,pr_title,"
                "pr_reason)=(SELECT pr_url,pr_number,pr_status,pr_title,"
                "pr_reason FROM sandbox WHERE id=?) WHERE id=?",
                "ii", vm, d->r->id);
        tx_run_touch(d->tx, d->r->id, ASPECT_PR);
    }
    if (*word(d, "choice"))
        why = xasprintf("the judge chose %s", word(d, "choice"));
    tx_run_status(d->tx, d->r->id, "completed",
                  why ? why : "all steps completed");
    d->over = true;
    return true;
}

/* ---- control ---- */

static bool control(struct drive *d)
{
    int64_t vm = num(d, "vm");
    const char *want = d->r->want;

    if (!strcmp(want, "cancel") && strcmp(word(d, "then"), "cancel")) {
        put_word(d, "why", "cancelled by user");
        end_vm(d, "run cancelled", "cancel");
        if (!strcmp(d->r->status, "paused"))
            tx_run_status(d->tx, d->r->id, "running", "being cancelled");
    } else if (!strcmp(want, "pause") && strcmp(d->r->status, "paused")) {
        if (vm && db_int(d->tx->db, 0,
                         "SELECT status='running' FROM sandbox WHERE id=?",
                         "i", vm))
            tx_pause(d->tx, d->c, vm, "run paused");
        else if (vm_lives(d, vm))
            return true; /* still being made: paused when it is there */
        db_exec(d->tx->db, "UPDATE run SET want='' WHERE id=?", "i", d->r->id);
        tx_run_status(d->tx, d->r->id, "paused", "paused by user");
        d->delay_ms = PAUSED_MS;
        return false;
    } else if (!strcmp(want, "resume")) {
        if (vm_lives(d, vm))
            tx_job(d->tx, d->c, vm, 0, "control", "resume", "");
        db_exec(d->tx->db, "UPDATE run SET want='' WHERE id=?", "i", d->r->id);
        tx_run_status(d->tx, d->r->id, "running", "resumed by user");
    } else if (!strcmp(d->r->status, "paused")) {
        d->delay_ms = PAUSED_MS;
        return false;
    }
    return true;
}

static void drive(struct drive *d)
{
    if (!control(d))
        return;
    if (!strcmp(d->r->status, "pending"))
        tx_run_status(d->tx, d->r->id, "running", "");
    for (int guard = 0; guard < 50 && !d->over; guard++) {
        const char *p = word(d, "phase");
        bool more = true;

        if (!*p || !strcmp(p, "begin"))
            begin(d);
        else if (!strcmp(p, "turn"))
            more = turn(d);
        else if (!strcmp(p, "ending"))
            more = ending(d);
        else if (!strcmp(p, "finish"))
            finish(d);
        else
            more = pr(d);
        if (!more)
            return;
    }
}

struct call {
    struct courier *c;
    int64_t run;
    bool over;
    int delay_ms;
};

static int drive_fn(struct tx *tx, void *arg, struct err *e)
{
    struct call *k = arg;
    struct run r;
    struct drive d = {.tx = tx, .c = k->c, .r = &r, .delay_ms = LOOK_MS};
    AUTO_FREE char *dump = NULL;
    int rc = run_get(tx->db, k->run, &r, e);

    if (rc == -ENOENT || (rc == 0 && run_ended(r.status))) {
        k->over = true;
        run_clear(&r);
        return 0;
    }
    if (rc < 0) {
        tx_run_status(tx, k->run, "failed", e->text);
        k->over = true;
        run_clear(&r);
        return 0;
    }
    d.st = json_loads(*r.state ? r.state : "{\"round\":1}", 0, NULL);
    if (!d.st)
        d.st = json_pack("{s:i}", "round", 1);
    drive(&d);
    dump = json_dumps(d.st, JSON_COMPACT);
    json_decref(d.st);
    if (strcmp(dump, r.state)) {
        db_exec(tx->db, "UPDATE run SET state=? WHERE id=?", "si", dump,
                r.id);
        tx_run_touch(tx, r.id, ASPECT_PROGRESS);
    }
    k->over = d.over;
    k->delay_ms = d.delay_ms;
    run_clear(&r);
    return 0;
}

int job_run(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct call k = {.c = c, .run = j->run};
    int rc = store_do(c->store, drive_fn, &k, e);

    if (rc < 0)
        return rc;
    jobs_kick(c); /* what it queued */
    if (k.over)
        return 0;
    *delay_ms = k.delay_ms;
    return -EAGAIN;
}
