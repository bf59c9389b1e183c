/* A step begins: its row, its sandbox, and what its agent is told. */
#include "engine/rundrive.h"

#include "engine/command.h"
#include "engine/config.h"
#include "engine/inject.h"
#include "engine/usage.h"

enum { CONTEXT_MAX = 24 * 1024 /* bytes of an earlier step's answer */ };

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

/* the latest answers of the steps from `first` to this one; its own of the
 * round before only if this agent doesn't remember it */
static void earlier_steps(struct drive *d, int64_t first, bool own,
                          struct buf *b)
{
    sqlite3_stmt *q = db_query(
        d->tx->db,
        "SELECT name,role,output FROM step s WHERE run=?1 AND pos>=?2 AND "
        "pos<?3 AND output<>'' AND id=(SELECT max(id) FROM step t WHERE "
        "t.run=?1 AND t.pos=s.pos AND t.status='completed' AND t.id<>?4) "
        "ORDER BY id",
        "iiii", d->r->id, first, num(d, "pos") + (own ? 1 : 0),
        num(d, "step"));

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
        "LIMIT 1),''),coalesce((SELECT score FROM step WHERE run=r.id AND "
        "score<>'' ORDER BY id DESC LIMIT 1),'') FROM run r WHERE project=? "
        "AND grp=? AND trash IS NULL ORDER BY id",
        "is", d->r->project, d->r->grp);

    buf_adds(b, "These are attempts at the same task, each on a branch of its "
                "own (of the remote `origin`). Choose one by its name.\n");
    while (db_row(d->tx->db, q)) {
        const char *status = col_text(q, 2);

        buf_addf(b, "\n## %s (branch %s%s%s%s%s)\n\n", col_text(q, 0),
                 col_text(q, 1), *col_text(q, 4) ? ", score " : "",
                 col_text(q, 4), run_ended(status) ? ", " : "",
                 run_ended(status) ? status : "");
        cut_text(b, col_text(q, 3));
        buf_addc(b, '\n');
    }
}

/* does its tool look for skills by itself? */
static bool seeks_skills(struct drive *d)
{
    AUTO_FREE char *name = db_text(
        d->tx->db, "SELECT tool FROM step WHERE id=?", "i", num(d, "step"));
    struct tool *t = NULL;
    bool seeks = !name || tool_get(d->tx->db, name, &t, NULL) < 0 ||
                 (t->skills_dir && *t->skills_dir);

    tool_free(t);
    return seeks;
}

static char *tell(struct drive *d, const struct part *p, bool known)
{
    const struct wf_loop *loop = loop_of(d);
    AUTO_BUF struct buf earlier = {0};
    bool judges = role_judges(p->role);
    bool seeks = seeks_skills(d);
    struct told t = {
        .role = p->role,
        .instructions = p->instructions,
        .skills = p->skills,
        .skills_at = seeks ? NULL : VM_HOME "/" SKILLS_DIR,
        .task = d->r->prompt,
        .feedback = judges              ? ""
                    : *word(d, "fresh") ? word(d, "fresh")
                                        : word(d, "feedback"),
        .round = (int)num(d, "round"),
        .max = loop ? loop->max : 1,
        .known = known,
    };

    if (!strcmp(p->role, "judge") && *d->r->grp)
        other_attempts(d, &earlier);
    else if (!known)
        earlier_steps(d, 0, t.round > 1, &earlier);
    else if (loop)
        earlier_steps(d, loop->first, false, &earlier);
    t.earlier = buf_str(&earlier);
    return run_prompt(&t);
}

/* ---- the row ---- */

static void new_row(struct drive *d, const struct part *p)
{
    struct tx *tx = d->tx;
    int64_t pos = num(d, "pos");
    int64_t nth =
        db_int(tx->db, 0, "SELECT count(*) FROM step WHERE run=? AND pos=?",
               "ii", d->r->id, pos) +
        1;
    char name[96];

    step_name(d->r, (size_t)pos, (int)nth, name);
    db_exec(tx->db,
            "INSERT INTO step(run,name,pos,round,role,status,created,started) "
            "VALUES(?,?,?,?,?,'running',?,?)",
            "isiisii", d->r->id, name, pos, num(d, "round"), p->role,
            tx->now_ms, tx->now_ms);
    put(d, "step", db_last_id(tx->db));
    put(d, "tries", 0);
}

/* a mark in the run's conversation: from here on it is that step's */
static void write_mark(struct drive *d, const char *name, bool again)
{
    struct oid o = oid(OBJ_RUN, d->r->id);
    int64_t size = store_stream_size(d->tx->db, o, STREAM_MESSAGES);
    AUTO_BUF struct buf b = {0}, last = {0};
    char when[32];

    store_stream_read(d->tx->db, o, STREAM_MESSAGES, size > 2 ? size - 2 : 0,
                      2, &last);
    if (last.n && strcmp(buf_str(&last), "\n\n"))
        buf_adds(&b, last.p[last.n - 1] == '\n' ? "\n" : "\n\n");
    time_rfc3339(d->tx->now_ms, when);
    /* a turn that isn't the first of its sandbox begins with a blank line */
    buf_addf(&b, "── %s  step %s%s\n%s", when, name, again ? " again" : "",
             store_stream_size(d->tx->db, oid(OBJ_SANDBOX, num(d, "vm")),
                               STREAM_MESSAGES)
                 ? ""
                 : "\n");
    tx_stream_add(d->tx, o, STREAM_MESSAGES, b.p, b.n, ASPECT_MESSAGES);
}

/* ---- the sandbox ---- */

/* the settings of a step's sandbox: the run's own, then the step's */
static void step_config(struct drive *d, const struct settings *s,
                        struct buf *cfg)
{
    static const char *const told[] = {"model", "thinking"};
    const struct setting *v[] = {&s->model, &s->thinking};
    AUTO_FREE char *budget = NULL;

    buf_adds(cfg, d->r->config);
    if (s->tool.own)
        config_set(cfg, "tool", s->tool.value);
    for (size_t i = 0; i < ARRAY_LEN(told); i++) {
        AUTO_FREE char *other = config_find(cfg->p, cfg->n, told[i]);

        if (v[i]->own || other) /* which is for another tool */
            config_set(cfg, told[i], v[i]->value);
    }
    budget = config_find(cfg->p, cfg->n, "budget");
    if (budget) /* which is of all its sandboxes together */
        config_set(cfg, "budget", "none");
    config_set(cfg, "branch", d->r->branch);
    config_set(cfg, "when_done", "keep");
    config_set(cfg, "pr", "off");
}

static char *free_name(struct drive *d)
{
    const struct wf_loop *loop = loop_of(d);
    const char *of = loop ? loop->name : step_at(d)->name;
    char *name = xasprintf("%.30s-%.28s", d->r->name, of);

    for (int i = 2; db_int(d->tx->db, 0,
                           "SELECT 1 FROM sandbox WHERE project=? AND name=? "
                           "AND trash IS NULL",
                           "is", d->r->project, name);
         i++) {
        free(name);
        name = xasprintf("%.30s-%.24s-%d", d->r->name, of, i);
    }
    for (size_t n = strlen(name); name[n - 1] == '.';)
        name[n - 1] = '_'; /* cut where no name may end */
    return name;
}

static int make_vm(struct drive *d, const struct settings *s, struct err *e)
{
    AUTO_FREE char *name = free_name(d), *made = NULL, *why = NULL;
    AUTO_BUF struct buf cfg = {0};
    struct tx *tx = d->tx;
    int64_t id;
    int r = tx_sandbox_new(tx, d->r->project, name, &id, &made, e);

    if (r < 0)
        return r;
    step_config(d, s, &cfg);
    r = tx_doc_put(tx, oid(OBJ_SANDBOX, id), "config", cfg.p, cfg.n, e);
    if (r < 0)
        return r;
    db_exec(tx->db, "UPDATE sandbox SET kind='run',run=?,step=? WHERE id=?",
            "iii", d->r->id, num(d, "step"), id);
    r = tx_start(tx, d->c, id, e);
    if (r < 0)
        return r;
    why = xasprintf("started by run %s", d->r->name);
    tx_status(tx, id, "creating", why);
    put(d, "vm", id);
    put(d, "vmloop", step_at(d)->loop);
    json_object_set_new(d->st, "sessions", json_object());
    return 0;
}

static void set_setting(json_t *cfg, const char *key, const struct setting *v)
{
    json_object_set_new(
        cfg, key, json_pack("{s:s,s:s}", "value", v->value, "from", v->from));
}

/* what it has in mind of this step: the id of its conversation, or NULL */
static const char *session_of(struct drive *d)
{
    const char *s = json_string_value(
        json_object_get(json_object_get(d->st, "sessions"), step_at(d)->name));

    return s && *s ? s : NULL;
}

/* the sandbox plays another part now: its tool, model and conversation */
static void take_part(struct drive *d, const struct settings *s)
{
    struct tx *tx = d->tx;
    int64_t vm = num(d, "vm");
    AUTO_FREE char *old =
        db_text(tx->db, "SELECT config FROM sandbox WHERE id=?", "i", vm);
    AUTO_FREE char *dump = NULL;
    json_t *cfg = json_loads(old ? old : "{}", 0, NULL);
    struct err e = {0};

    if (!cfg)
        cfg = json_object();
    set_setting(cfg, "tool", &s->tool);
    set_setting(cfg, "model", &s->model);
    set_setting(cfg, "thinking", &s->thinking);
    dump = json_dumps(cfg, JSON_COMPACT);
    json_decref(cfg);
    tx_bill(tx, vm);
    db_exec(tx->db,
            "UPDATE sandbox SET tool=?,model=?,session=?,step=?,config=? "
            "WHERE id=?",
            "sssisi", s->tool.value, s->model.value, session_of(d),
            num(d, "step"), dump, vm);
    /* each step has the whole of its time */
    if (tx_expires(tx, d->c, vm, "", &e) < 0)
        log_msg(LOG_DEBUG, "run %s: %s", d->r->name, e.text);
    tx_touch(tx, d->r->project, oid(OBJ_SANDBOX, vm),
             ASPECT_BRANCH | ASPECT_DOCS);
}

/* who does the step, whatever its sandbox does later */
static int settle_part(struct drive *d, const struct part *p, bool reuse,
                       struct err *e)
{
    struct settings s;
    int r = part_settings(d->tx->db, d->r, p, &s, e);

    if (r < 0)
        return r;
    if (reuse)
        take_part(d, &s);
    else
        r = make_vm(d, &s, e);
    db_exec(d->tx->db, "UPDATE step SET tool=?,model=? WHERE id=?", "ssi",
            s.tool.value, s.model.value, num(d, "step"));
    settings_clear(&s);
    return r;
}

/* ---- begin ---- */

static void send(struct drive *d, const char *text)
{
    int64_t msg = 0;
    struct err e;

    if (tx_message(d->tx, d->c, num(d, "vm"), text, strlen(text), "run", &msg,
                   &e) < 0) {
        drive_fail(d, e.text);
        return;
    }
    put(d, "msg", msg);
    phase(d, "turn");
}

static void past_judge(struct drive *d)
{
    put(d, "pos", num(d, "pos") + 1);
    phase(d, num(d, "pos") < (int64_t)d->r->wf.n_steps ? "begin" : "finish");
}

static void deliver(struct drive *d, const struct part *p, bool again)
{
    AUTO_FREE char *prompt = tell(d, p, session_of(d) != NULL);
    AUTO_FREE char *name = NULL;
    int64_t step = num(d, "step");

    db_exec(d->tx->db, "UPDATE step SET sandbox=?,prompt=? WHERE id=?", "isi",
            num(d, "vm"), prompt, step);
    name = db_text(d->tx->db, "SELECT name FROM step WHERE id=?", "i", step);
    write_mark(d, name ? name : "", again);
    step_set(d, "running", NULL);
    send(d, prompt);
}

static bool out_of_budget(struct drive *d)
{
    double budget = budget_spent_run(d->tx->db, d->r->id, d->tx->now_ms);
    AUTO_FREE char *set = budget_words(budget);
    AUTO_FREE char *why = xasprintf("budget %s reached", set);

    if (budget > 0)
        tx_run_status(d->tx, d->r->id, "paused", why);
    return budget > 0;
}

static bool begin_part(struct drive *d, const struct part *p)
{
    bool again = num(d, "step") && num(d, "again"), reuse;
    int64_t vm = num(d, "vm");
    struct err e = {0};

    reuse = vm_lives(d, vm) && step_at(d)->loop >= 0 &&
            num(d, "vmloop") == step_at(d)->loop;
    if (!reuse && vm_lives(d, vm)) {
        end_vm(d, "step finished", "begin");
        return true;
    }
    if (!strcmp(p->role, "judge") && *d->r->grp && !again) {
        enum judging j = judge_turn(d);

        if (j == JUDGE_PAST)
            past_judge(d);
        if (j != JUDGE_ASK)
            return j == JUDGE_PAST;
    }
    if (out_of_budget(d))
        return false;
    if (!again)
        new_row(d, p);
    put(d, "asked", 0);
    put(d, "again", 0);
    if (settle_part(d, p, reuse, &e) < 0)
        drive_fail(d, e.text);
    else
        deliver(d, p, again);
    return true;
}

bool step_begin(struct drive *d)
{
    struct part p = {0};
    struct err e = {0};
    bool more = true;

    if (step_part(d->tx->db, d->r, (size_t)num(d, "pos"), &p, &e) < 0) {
        put(d, "step", 0);
        drive_fail(d, e.text);
    } else {
        more = begin_part(d, &p);
    }
    part_clear(&p);
    return more;
}

/* an agent that remembers nothing gets the whole again */
void step_ask_again(struct drive *d, const char *role)
{
    AUTO_FREE char *again = run_ask_again(role), *text = NULL, *prompt = NULL;

    put(d, "asked", 1);
    if (session_of(d)) {
        send(d, again);
        return;
    }
    prompt = db_text(d->tx->db, "SELECT prompt FROM step WHERE id=?", "i",
                     num(d, "step"));
    text = xasprintf("%s\n\n%s", prompt ? prompt : "", again);
    send(d, text);
}
