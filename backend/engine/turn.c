#include "engine/turn.h"

#include "engine/config.h"
#include "engine/inject.h"
#include "engine/input.h"
#include "engine/jobs.h"
#include "engine/launch.h"
#include "engine/room.h"
#include "engine/usage.h"

enum { START_TRIES = 30, CLEAR_TRIES = 4 };

/* ---- rows ---- */

int process_get(struct db *d, int64_t id, struct process *p)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT id,sandbox,job,message,exec,off_out,off_err,deadline,state,"
        "stop FROM process WHERE id=?",
        "i", id);

    memset(p, 0, sizeof(*p));
    if (!db_row(d, q))
        return -ENOENT;
    p->id = col_int(q, 0);
    p->sandbox = col_int(q, 1);
    p->job = col_int(q, 2);
    p->message = col_int(q, 3);
    p->exec = col_int(q, 4);
    p->off_out = col_int(q, 5);
    p->off_err = col_int(q, 6);
    p->deadline = col_int(q, 7);
    p->state = col_dup(q, 8);
    p->stop = col_dup(q, 9);
    db_done(q);
    return 0;
}

void process_clear(struct process *p)
{
    free(p->state);
    free(p->stop);
    p->state = p->stop = NULL;
}

int64_t *processes_live(struct db *d, int64_t sandbox, size_t *n)
{
    sqlite3_stmt *q =
        db_query(d,
                 "SELECT id FROM process WHERE state<>'ended' AND (?1=0 OR "
                 "sandbox=?1) ORDER BY id",
                 "i", sandbox);
    int64_t *ids = NULL;

    *n = 0;
    while (db_row(d, q)) {
        ids = xrealloc(ids, (*n + 1) * sizeof(*ids));
        ids[(*n)++] = col_int(q, 0);
    }
    return ids;
}

/* ---- the transcript ---- */

static void add_messages(struct tx *tx, int64_t sandbox, const struct buf *b)
{
    tx_transcript(tx, sandbox, b->p, b->n);
}

/* the last bytes of it, to know whether a line has been left open */
static void transcript_tail(struct tx *tx, int64_t sandbox, size_t n,
                            struct buf *out)
{
    struct oid o = oid(OBJ_SANDBOX, sandbox);
    int64_t size = store_stream_size(tx->db, o, STREAM_MESSAGES);
    int64_t at = size > (int64_t)n ? size - (int64_t)n : 0;

    store_stream_read(tx->db, o, STREAM_MESSAGES, at, n, out);
}

static json_t *text_json(const char *p, size_t n)
{
    AUTO_BUF struct buf b = {0};

    text_printable(&b, p, n, PRINTABLE_LINES | PRINTABLE_TABS);
    return json_stringn(buf_str(&b), b.n);
}

static json_t *time_json(int64_t ms)
{
    char when[32];

    time_rfc3339(ms, when);
    return json_string(when);
}

static void add_jsonl(struct tx *tx, int64_t sandbox, json_t *j)
{
    char *text = json_dumps(j, JSON_COMPACT);

    if (text) {
        AUTO_FREE char *line = xasprintf("%s\n", text);

        tx_stream_add(tx, oid(OBJ_SANDBOX, sandbox), STREAM_MESSAGES_JSONL,
                      line, strlen(line), ASPECT_MESSAGES);
    }
    free(text);
    json_decref(j);
}

static json_t *line_json(int64_t seq, const char *role, json_t *content,
                         const char *error, int64_t started, int64_t ended)
{
    json_t *j = json_object();

    json_object_set_new(j, "seq", json_integer(seq));
    json_object_set_new(j, "role", json_string(role));
    json_object_set_new(j, "content", content);
    json_object_set_new(j, "status",
                        json_string(error ? "error" : "completed"));
    json_object_set_new(j, "error", error ? json_string(error) : json_null());
    json_object_set_new(j, "started", time_json(started));
    json_object_set_new(j, "completed", time_json(ended));
    return j;
}

static void message_event(struct tx *tx, const struct sandbox *s, int64_t seq,
                          const char *role, const char *state,
                          const char *error)
{
    json_t *j = json_pack("{s:I,s:s,s:s}", "number", (json_int_t)seq, "role",
                          role, "state", state);

    if (error)
        json_object_set_new(j, "error", json_string(error));
    tx_event(tx, s->project, oid(OBJ_SANDBOX, s->id), "message", j);
}

/* ---- the begin ---- */

static void write_begin(struct tx *tx, const struct sandbox *s,
                        const char *text, size_t n, int64_t seq, int64_t made)
{
    AUTO_BUF struct buf b = {0}, last = {0};
    char when[32];

    transcript_tail(tx, s->id, 2, &last);
    if (last.n && strcmp(buf_str(&last), "\n\n"))
        buf_adds(&b, last.p[last.n - 1] == '\n' ? "\n" : "\n\n");
    transcript_user(&b, tx->now_ms, seq, text, n);
    time_rfc3339(tx->now_ms, when);
    buf_addf(&b, "── %s  assistant  #%lld  %s%s", when, (long long)seq + 1,
             s->tool, *s->model ? " " : "");
    text_printable(&b, s->model, strlen(s->model), 0);
    buf_addc(&b, '\n');
    add_messages(tx, s->id, &b);
    add_jsonl(
        tx, s->id,
        line_json(seq, "user", text_json(text, n), NULL, made, tx->now_ms));
    message_event(tx, s, seq, "user", "delivered", NULL);
    message_event(tx, s, seq + 1, "assistant", "working", NULL);
}

struct begin {
    struct courier *c;
    struct job *j;
    int64_t message, exec, process; /* process: out */
};

static int64_t new_process(struct tx *tx, const struct begin *b,
                           int64_t deadline)
{
    db_exec(tx->db,
            "INSERT INTO process(sandbox,job,message,exec,state,deadline,"
            "started) VALUES(?,?,?,?,'starting',?,?)",
            "iiiiii", b->j->sandbox, b->j->id, b->message, b->exec, deadline,
            tx->now_ms);
    return db_last_id(tx->db);
}

static int64_t turn_deadline(struct tx *tx, const struct sandbox *s)
{
    int64_t secs = config_seconds(tx->db, s, "turn_timeout", 0);

    return secs > 0 ? tx->now_ms + secs * 1000 : 0;
}

/* the message is being answered now; again after a crash: nothing changes */
static int tx_turn_begin(struct tx *tx, void *arg, struct err *e)
{
    struct begin *b = arg;
    AUTO_BUF struct buf text = {0};
    struct sandbox s;
    sqlite3_stmt *q;
    int64_t seq, made;

    b->process = db_int(tx->db, 0,
                        "SELECT id FROM process WHERE message=? AND "
                        "state<>'ended'",
                        "i", b->message);
    if (b->process)
        return 0;
    if (sandbox_get(tx->db, b->j->sandbox, &s) < 0)
        return err_set(e, ENOENT, "the sandbox is gone");
    q = db_query(tx->db,
                 "SELECT text,created FROM message WHERE id=? AND "
                 "state='queued'",
                 "i", b->message);
    if (!db_row(tx->db, q)) {
        sandbox_clear(&s);
        return 0; /* nothing to do any more */
    }
    if (!sandbox_is(&s, "running")) {
        db_done(q);
        sandbox_clear(&s);
        return err_set(e, EAGAIN, "the VM does not run");
    }
    buf_add(&text, sqlite3_column_blob(q, 0),
            (size_t)sqlite3_column_bytes(q, 0));
    made = col_int(q, 1);
    db_done(q);
    seq = db_int(tx->db, 1, "SELECT next_seq FROM sandbox WHERE id=?", "i",
                 s.id);
    db_exec(tx->db, "UPDATE sandbox SET next_seq=? WHERE id=?", "ii", seq + 2,
            s.id);
    db_exec(tx->db,
            "UPDATE message SET state='working',seq=?,answer=?,started=? "
            "WHERE id=?",
            "iiii", seq, seq + 1, tx->now_ms, b->message);
    write_begin(tx, &s, buf_str(&text), text.n, seq, made);
    b->process = new_process(tx, b, turn_deadline(tx, &s));
    tx_agent(tx, s.id, "working", NULL);
    tx_changed(tx, oid(OBJ_SANDBOX, s.id), ASPECT_QUEUE | ASPECT_INFO);
    sandbox_clear(&s);
    return 0;
}

static int tx_exec_begin(struct tx *tx, void *arg, struct err *e)
{
    struct begin *b = arg;

    (void)e;
    b->process = db_int(tx->db, 0,
                        "SELECT id FROM process WHERE exec=? AND "
                        "state<>'ended'",
                        "i", b->exec);
    if (b->process || !db_int(tx->db, 0,
                              "SELECT 1 FROM exec WHERE id=? AND "
                              "status='queued'",
                              "i", b->exec))
        return 0;
    db_exec(tx->db, "UPDATE exec SET status='running',started=? WHERE id=?",
            "ii", tx->now_ms, b->exec);
    b->process = new_process(tx, b, 0);
    tx_changed(tx, oid(OBJ_EXEC, b->exec), ASPECT_STATUS | ASPECT_INFO);
    return 0;
}

/* ---- the end ---- */

/* tells the tokens of a turn; what the CLI says it cost is spread over them
 * by the usual proportions of prices, so that the sum is right */
static double turn_usage(struct tx *tx, const struct sandbox *s,
                         const char *model, const struct agent_usage *u,
                         bool *unknown)
{
    const struct {
        const char *unit;
        int64_t n;
        double weight;
    } parts[] = {
        {"input_tokens", u->input, 1},
        {"output_tokens", u->output, 5},
        {"cache_read_tokens", u->cache_read, 0.1},
        {"cache_write_tokens", u->cache_write, 1.25},
    };
    struct tool *t = NULL;
    sqlite3_stmt *q;
    AUTO_FREE char *service = NULL;
    double all = 0, usd;
    int64_t last;

    if (tool_get(tx->db, s->tool, &t, NULL) == 0)
        service = xstrdup(t->service);
    if (t)
        tool_free(t);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        all += (double)parts[i].n * parts[i].weight;
    last = db_int(tx->db, 0, "SELECT max(id) FROM usage", "");
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        const char *who = service ? service : s->tool;
        double n = (double)parts[i].n;
        double cost = all > 0 ? u->usd * n * parts[i].weight / all : 0;

        if (!parts[i].n)
            continue;
        /* the rates may know it by the name that it was asked for by */
        if (u->usd < 0)
            cost = usage_price(tx->db, who, model, parts[i].unit, n);
        if (cost < 0)
            cost = usage_price(tx->db, who, s->model, parts[i].unit, n);
        *unknown = *unknown || (cost < 0 && i < 2);
        tx_usage(tx, s->id, who, model, parts[i].unit, n, cost < 0 ? 0 : cost);
    }
    if (all <= 0 && u->usd > 0) /* it tells the cost alone */
        tx_usage(tx, s->id, service ? service : s->tool, model,
                 "output_tokens", 0, u->usd);
    if (u->usd >= 0)
        return u->usd;
    q = db_query(tx->db, "SELECT total(usd) FROM usage WHERE id>?", "i", last);
    usd = db_row(tx->db, q) ? col_double(q, 0) : 0;
    db_done(q);
    return usd;
}

static void write_end(struct tx *tx, int64_t sandbox, int64_t answer,
                      const char *error, const struct agent_usage *u,
                      double usd, bool unknown)
{
    AUTO_BUF struct buf b = {0}, last = {0};
    char when[32];

    transcript_tail(tx, sandbox, 1, &last);
    if (last.n && last.p[last.n - 1] != '\n')
        buf_addc(&b, '\n');
    time_rfc3339(tx->now_ms, when);
    buf_addf(&b, "── %s  #%lld %s", when, (long long)answer,
             error ? "error" : "completed");
    if (error) {
        buf_adds(&b, "  ");
        text_printable(&b, error, strlen(error), 0);
    } else if (u) {
        buf_addf(&b, "  %lld in  %lld out  $%.4f%s",
                 (long long)(u->input + u->cache_read + u->cache_write),
                 (long long)u->output, usd,
                 unknown ? "  cost unknown: no such model in rates" : "");
    }
    buf_addc(&b, '\n');
    add_messages(tx, sandbox, &b);
}

static json_t *usage_json(const struct agent_usage *u, double usd)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:f}", "input_tokens",
                     (json_int_t)u->input, "output_tokens",
                     (json_int_t)u->output, "cache_read_tokens",
                     (json_int_t)u->cache_read, "cache_write_tokens",
                     (json_int_t)u->cache_write, "usd", usd);
}

static void check_budget(struct tx *tx, struct courier *c, int64_t sandbox)
{
    struct sandbox s;
    double budget;

    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    budget = budget_spent(tx->db, &s, tx->now_ms);
    if (budget > 0 && sandbox_is(&s, "running")) {
        AUTO_FREE char *set = budget_words(budget);
        AUTO_FREE char *why = xasprintf("budget %s reached", set);

        tx_pause(tx, c, sandbox, why);
    }
    sandbox_clear(&s);
}

/* an unused sandbox is to end when its first prompt is done */
static void check_when_done(struct tx *tx, struct courier *c,
                            const struct sandbox *s, bool first, bool ok)
{
    AUTO_FREE char *want = NULL;

    if (!first)
        return;
    want = config_value(tx->db, s, "when_done", NULL);
    if (want && !strcmp(want, "kill"))
        tx_kill(tx, c, s->id, ok ? "prompt done" : "prompt failed", false);
}

void tx_turn_end(struct tx *tx, struct courier *c, int64_t process,
                 const struct turn_end *end)
{
    AUTO_FREE char *tools = NULL, *stop = NULL;
    const char *error = end->error, *agent = end->agent, *model;
    const struct agent_usage none = {.usd = 0}, *u = end->usage;
    int64_t answer, started, first;
    struct process p;
    struct sandbox s;
    sqlite3_stmt *q;
    bool unknown = false;
    double usd = 0;
    json_t *j;

    if (process_get(tx->db, process, &p) < 0)
        return;
    stop = xstrdup(p.stop);
    process_clear(&p);
    db_exec(tx->db, "UPDATE process SET state='ended' WHERE id=?", "i",
            process);
    q = db_query(tx->db,
                 "SELECT answer,started,first FROM message WHERE id=? AND "
                 "state='working'",
                 "i", p.message);
    if (!db_row(tx->db, q) || sandbox_get(tx->db, p.sandbox, &s) < 0) {
        db_done(q);
        return;
    }
    answer = col_int(q, 0);
    started = col_int(q, 1);
    first = col_int(q, 2);
    db_done(q);
    if (stop && *stop) {
        error = stop;
        agent = "idle";
    }
    model = end->model && *end->model ? end->model : s.model;
    if (u)
        usd = turn_usage(tx, &s, model, u, &unknown);
    write_end(tx, s.id, answer, error, u, usd, unknown);
    j = line_json(answer, "assistant",
                  end->result ? json_stringn(end->result, end->result_n)
                              : json_string(""),
                  error, started, tx->now_ms);
    json_object_set_new(j, "tool", json_string(s.tool));
    json_object_set_new(j, "model", text_json(model, strlen(model)));
    if (end->tools)
        json_object_set(j, "tools", end->tools);
    else
        json_object_set_new(j, "tools", json_array());
    json_object_set_new(j, "usage", usage_json(u ? u : &none, usd));
    tools = json_dumps(json_object_get(j, "tools"), JSON_COMPACT);
    add_jsonl(tx, s.id, j);
    u = u ? u : &none;
    db_exec(tx->db,
            "UPDATE message SET state=?,error=?,result=?,tools=?,input=?,"
            "output=?,cache_read=?,cache_write=?,usd=?,ended=? WHERE id=?",
            "ssssiiiidii", error ? "failed" : "completed", error ? error : "",
            end->result ? end->result : "", tools ? tools : "[]", u->input,
            u->output, u->cache_read, u->cache_write, usd, tx->now_ms,
            p.message);
    db_exec(tx->db, "UPDATE sandbox SET last_turn=? WHERE id=?", "si",
            error ? "failed" : "completed", s.id);
    if (error && !(stop && *stop))
        tx_sandbox_error(tx, s.id, error);
    if (end->bad_session)
        db_exec(tx->db, "UPDATE sandbox SET session=NULL WHERE id=?", "i",
                s.id);
    message_event(tx, &s, answer, "assistant", error ? "error" : "completed",
                  error);
    tx_touch(tx, s.project, oid(OBJ_SANDBOX, s.id), ASPECT_QUEUE);
    if (c) {
        const char *reason = end->reason;

        if (stop && *stop)
            reason = stop;
        else if (!error && sandbox_is(&s, "running") &&
                 !strcmp(s.last_turn, "failed"))
            reason = "turn completed";
        tx_agent(tx, s.id, agent, *s.ending ? NULL : reason);
        tx_job_end(tx, c, p.job);
        check_budget(tx, c, s.id);
        check_when_done(tx, c, &s, first != 0, !error);
        tx_after_turn(tx, c, s.id, p.message, !error);
        tx_run_look(tx, c, s.id);
    }
    sandbox_clear(&s);
}

void tx_exec_end(struct tx *tx, struct courier *c, int64_t process,
                 const char *exit)
{
    struct process p;

    if (process_get(tx->db, process, &p) < 0)
        return;
    db_exec(tx->db, "UPDATE process SET state='ended' WHERE id=?", "i",
            process);
    db_exec(tx->db,
            "UPDATE exec SET status='exited',exit=?,ended=? WHERE id=? AND "
            "status<>'exited'",
            "sii", exit ? exit : "", tx->now_ms, p.exec);
    tx_changed(tx, oid(OBJ_EXEC, p.exec),
               ASPECT_STATUS | ASPECT_INFO | ASPECT_OUT | ASPECT_ERR |
                   ASPECT_QUEUE);
    tx_input_exited(tx, c, p.exec);
    if (c)
        tx_job_end(tx, c, p.job);
    process_clear(&p);
}

/* what the transcript has of the answer under way, without the marks */
static void answer_so_far(struct tx *tx, int64_t sandbox, struct buf *out)
{
    enum { LOOK = 1 << 20 };
    static const char *const marks[] = {
        "── ",
        "  ▸ ",
        "  · ",
        "  ↻ ",
    };
    AUTO_BUF struct buf b = {0};
    char *p, *line;

    transcript_tail(tx, sandbox, LOOK, &b);
    p = b.p;
    for (line = b.p; line && *line;) { /* the last header */
        char *next = strchr(line, '\n');

        if (!strncmp(line, marks[0], strlen(marks[0])))
            p = next ? next + 1 : line + strlen(line);
        line = next ? next + 1 : NULL;
    }
    for (line = p; line && *line;) {
        size_t n = strcspn(line, "\n");
        bool mark = false;

        for (size_t i = 0; i < ARRAY_LEN(marks); i++)
            mark = mark || !strncmp(line, marks[i], strlen(marks[i]));
        if (!mark) {
            buf_add(out, line, n);
            if (line[n])
                buf_addc(out, '\n');
        }
        line += n + (line[n] == '\n');
    }
    while (out->n && out->p[out->n - 1] == '\n')
        out->p[--out->n] = 0;
}

static void abandon(struct tx *tx, struct courier *c, int64_t process,
                    const char *why)
{
    AUTO_BUF struct buf text = {0};
    struct turn_end end = {.error = why, .agent = "idle"};
    struct process p;

    if (process_get(tx->db, process, &p) < 0)
        return;
    if (p.message) {
        answer_so_far(tx, p.sandbox, &text);
        end.result = buf_str(&text);
        end.result_n = text.n;
        tx_turn_end(tx, c, process, &end);
    } else {
        tx_exec_end(tx, c, process, "killed");
    }
    process_clear(&p);
}

void turn_abandon(struct tx *tx, int64_t sandbox, const char *why)
{
    size_t n;
    AUTO_FREE int64_t *ids = processes_live(tx->db, sandbox, &n);

    for (size_t i = 0; i < n; i++)
        abandon(tx, NULL, ids[i], why);
}

/* ---- the jobs ---- */

struct started {
    struct courier *c;
    struct job *j;
    int64_t process;
    bool follow, stopped; /* out */
};

static int tx_started(struct tx *tx, void *arg, struct err *e)
{
    struct started *s = arg;
    struct process p;

    (void)e;
    if (process_get(tx->db, s->process, &p) < 0)
        return 0;
    if (strcmp(p.state, "ended")) {
        db_exec(tx->db, "UPDATE process SET state='running' WHERE id=?", "i",
                p.id);
        db_exec(tx->db, "UPDATE job SET state='waiting',attempt=0 WHERE id=?",
                "i", s->j->id);
        if (p.exec)
            tx_input_begun(tx, s->c, p.exec);
        s->follow = true;
        s->stopped = *p.stop != 0;
    }
    process_clear(&p);
    return 0;
}

/* from here on the output is what counts; 1 waiting, 0 it has ended */
static int hand_over(struct courier *c, struct job *j, int64_t process,
                     const struct e2b_target *t, struct err *e)
{
    struct started s = {c, j, process, false, false};
    int r = store_do(c->store, tx_started, &s, e);

    if (r < 0)
        return -EAGAIN;
    if (!s.follow)
        return 0;
    if (s.stopped)
        launch_kill(t, c->instance, process, NULL, NULL);
    follow_start(c, process);
    return 1;
}

static char *turn_text(struct db *d, int64_t message, size_t *n)
{
    sqlite3_stmt *q =
        db_query(d, "SELECT text FROM message WHERE id=?", "i", message);
    char *out = NULL;

    *n = 0;
    if (db_row(d, q)) {
        *n = (size_t)sqlite3_column_bytes(q, 0);
        out = xmemdup0(*n ? sqlite3_column_blob(q, 0) : "", *n);
        db_done(q);
    }
    return out;
}

/* a CLI that prints text tells no session: it goes on once it has answered */
static const char *session_of(struct db *d, const struct sandbox *s,
                              const struct tool *tool)
{
    if ((s->session && *s->session) || tool->format != FORMAT_TEXT)
        return s->session;
    return db_int(d, 0,
                  "SELECT 1 FROM message WHERE sandbox=? AND "
                  "state='completed' LIMIT 1",
                  "i", s->id)
               ? "last"
               : NULL;
}

/* one that is younger than the VM gets there with the first turn that it is
 * for */
static void add_system_prompt(struct db *d, const struct sandbox *s,
                              struct buf *script)
{
    size_t n = 0;
    AUTO_FREE char *text =
        doc_text(d, oid(OBJ_PROJECT, s->project), "system-prompt.md", &n);

    if (!text || !n)
        return;
    buf_adds(script, "[ -e " VM_SYSTEM_PROMPT " ] || printf %s ");
    text_shell_quote(script, text);
    buf_adds(script, " >" VM_SYSTEM_PROMPT "\n");
}

static int launch_turn(struct courier *c, struct job *j,
                       const struct sandbox *s, int64_t message,
                       int64_t process, const struct e2b_target *t,
                       struct err *e)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *cmd = NULL, *thinking = NULL, *text = NULL;
    struct launch l = {.process = process, .instance = c->instance};
    struct tool *tool = NULL;
    struct buf env = {0};
    size_t n;
    int r = tool_get(d, s->tool, &tool, e);

    if (r == -ENOENT) /* which would be taken for a lost VM */
        return err_set(e, EINVAL,
                       "there is no tool '%.60s' in tools/ any more", s->tool);
    if (r < 0)
        return r;
    thinking = config_value(d, s, "thinking", NULL);
    text = turn_text(d, message, &n);
    cmd =
        tool_command(tool, session_of(d, s, tool), s->model, thinking,
                     inject_has_system_prompt(d, s) ? VM_SYSTEM_PROMPT : NULL);
    r = env_script(c, d, s, tool, &env, e);
    add_system_prompt(d, s, &env);
    l.cmd = cmd;
    l.shell = "sh";
    l.workdir = vm_workdir(d, s);
    l.env = buf_str(&env);
    l.input = text;
    l.input_n = n;
    l.merge = tool->format == FORMAT_TEXT;
    if (r == 0)
        r = launch_start(t, &l, &j->cancel, e);
    buf_wipe(&env);
    tool_free(tool);
    return r;
}

static int launch_exec(struct courier *c, struct job *j,
                       const struct sandbox *s, int64_t exec, int64_t process,
                       const struct e2b_target *t, struct err *e)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *cmd =
        db_text(d, "SELECT cmd FROM exec WHERE id=?", "i", exec);
    struct launch l = {.process = process,
                       .instance = c->instance,
                       .cmd = cmd ? cmd : "",
                       .shell = "bash",
                       .feed = true,
                       .workdir = vm_workdir(d, s)};
    struct tool *tool = NULL;
    struct buf env = {0};
    int r;

    /* an exec works without the agent's keys, too */
    if (tool_get(d, s->tool, &tool, NULL) == 0 &&
        env_script(c, d, s, tool, &env, NULL) < 0) {
        buf_wipe(&env);
        if (env_script(c, d, s, NULL, &env, NULL) < 0)
            buf_wipe(&env);
    }
    if (tool)
        tool_free(tool);
    l.env = buf_str(&env);
    r = launch_start(t, &l, &j->cancel, e);
    buf_wipe(&env);
    return r;
}

static int job_process(struct courier *c, struct job *j, bool turn,
                       struct err *e)
{
    struct begin b = {.c = c, .j = j};
    int64_t arg = strtoll(j->args, NULL, 10);
    struct e2b_target t;
    struct sandbox s;
    int r;

    b.message = turn ? arg : 0;
    b.exec = turn ? 0 : arg;
    r = store_do(c->store, turn ? tx_turn_begin : tx_exec_begin, &b, e);
    if (r < 0 || !b.process)
        return r == -ENOENT ? 0 : r;
    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    if (!sandbox_is(&s, "running")) {
        sandbox_clear(&s);
        return err_set(e, EAGAIN, "the VM does not run");
    }
    r = sandbox_target(c, &s, &t, e);
    if (r == 0) {
        for (int i = 0; i < CLEAR_TRIES; i++) {
            r = turn ? launch_turn(c, j, &s, b.message, b.process, &t, e)
                     : launch_exec(c, j, &s, b.exec, b.process, &t, e);
            if ((r != -ENOBUFS && r != -ENOMEM) || room_make(c, j, &t, r) < 0)
                break;
        }
        if (r == 0)
            r = hand_over(c, j, b.process, &t, e);
        endpoint_put(c, t.x);
    }
    sandbox_clear(&s);
    if (r == -ENOENT || r == -EHOSTDOWN) {
        reconcile_kick(c);
        r = -EHOSTDOWN;
    }
    if (r == -ENOMEM) /* it comes back */
        r = -EAGAIN;
    return job_again(j, r, START_TRIES);
}

int job_turn(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    (void)delay_ms;
    return job_process(c, j, true, e);
}

int job_exec(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    (void)delay_ms;
    return job_process(c, j, false, e);
}

void job_turn_failed(struct tx *tx, struct courier *c, const struct job *j,
                     const struct err *e)
{
    int64_t process = db_int(tx->db, 0,
                             "SELECT id FROM process WHERE job=? AND "
                             "state<>'ended'",
                             "i", j->id);
    struct turn_end end = {
        .error = e->text, .agent = "failed", .reason = e->text};

    if (process) {
        tx_turn_end(tx, c, process, &end);
    } else {
        tx_sandbox_error(tx, j->sandbox, e->text);
        db_exec(tx->db,
                "UPDATE message SET state='failed',error=?,ended=? WHERE "
                "id=? AND state='queued'",
                "sii", e->text, tx->now_ms,
                (int64_t)strtoll(j->args, NULL, 10));
    }
    tx_changed(tx, oid(OBJ_SANDBOX, j->sandbox), ASPECT_QUEUE);
    tx_run_look(tx, c, j->sandbox);
}

void job_exec_failed(struct tx *tx, struct courier *c, const struct job *j,
                     const struct err *e)
{
    int64_t process = db_int(tx->db, 0,
                             "SELECT id FROM process WHERE job=? AND "
                             "state<>'ended'",
                             "i", j->id);

    tx_sandbox_error(tx, j->sandbox, e->text);
    if (process)
        tx_exec_end(tx, c, process, "not started");
}

/* ---- interrupt ---- */

struct stop {
    struct courier *c;
    struct job *j;
    int64_t *ids; /* out */
    size_t n;
};

static void drop_queued(struct tx *tx, const struct sandbox *s)
{
    static const char why[] = "not delivered: dropped by interrupt all";

    for (;;) {
        AUTO_BUF struct buf text = {0}, b = {0}, last = {0};
        int64_t id, seq;
        char when[32];
        sqlite3_stmt *q = db_query(tx->db,
                                   "SELECT id,text FROM message WHERE "
                                   "sandbox=? AND state='queued' ORDER BY id "
                                   "LIMIT 1",
                                   "i", s->id);

        if (!db_row(tx->db, q))
            return;
        id = col_int(q, 0);
        buf_add(&text, sqlite3_column_blob(q, 1),
                (size_t)sqlite3_column_bytes(q, 1));
        db_done(q);
        seq = db_int(tx->db, 1, "SELECT next_seq FROM sandbox WHERE id=?", "i",
                     s->id);
        transcript_tail(tx, s->id, 2, &last);
        if (last.n && strcmp(buf_str(&last), "\n\n"))
            buf_adds(&b, last.p[last.n - 1] == '\n' ? "\n" : "\n\n");
        transcript_user(&b, tx->now_ms, seq, buf_str(&text), text.n);
        time_rfc3339(tx->now_ms, when);
        buf_addf(&b, "── %s  #%lld error  ", when, (long long)seq);
        buf_addf(&b, "%s\n", why);
        add_messages(tx, s->id, &b);
        add_jsonl(tx, s->id,
                  line_json(seq, "user", text_json(buf_str(&text), text.n),
                            why, tx->now_ms, tx->now_ms));
        db_exec(tx->db,
                "UPDATE message SET state='dropped',seq=?,ended=?,error=? "
                "WHERE id=?",
                "iisi", seq, tx->now_ms, why, id);
        db_exec(tx->db, "UPDATE sandbox SET next_seq=? WHERE id=?", "ii",
                seq + 1, s->id);
    }
}

/* a working turn is ended first: what is dropped comes after it */
static int tx_drop_queue(struct tx *tx, void *arg, struct err *e)
{
    struct stop *st = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, st->j->sandbox, &s) < 0)
        return 0;
    drop_queued(tx, &s);
    db_exec(tx->db,
            "DELETE FROM job WHERE sandbox=? AND verb='turn' AND "
            "state='queued'",
            "i", s.id);
    tx_changed(tx, oid(OBJ_SANDBOX, s.id), ASPECT_QUEUE);
    sandbox_clear(&s);
    return 0;
}

static int tx_stop(struct tx *tx, void *arg, struct err *e)
{
    struct stop *st = arg;
    const char *args = st->j->args;
    const char *why =
        !*args || !strcmp(args, "all") ? "interrupted by user" : args;
    sqlite3_stmt *q;

    (void)e;
    db_exec(tx->db,
            "UPDATE process SET stop=? WHERE sandbox=? AND message<>0 AND "
            "state<>'ended' AND stop=''",
            "si", why, st->j->sandbox);
    q = db_query(tx->db,
                 "SELECT id FROM process WHERE sandbox=? AND message<>0 AND "
                 "state<>'ended'",
                 "i", st->j->sandbox);
    while (db_row(tx->db, q)) {
        st->ids = xrealloc(st->ids, (st->n + 1) * sizeof(*st->ids));
        st->ids[st->n++] = col_int(q, 0);
    }
    return 0;
}

/* those that nothing follows yet end here; the others when their output has
 * been read to its end */
static int tx_stopped(struct tx *tx, void *arg, struct err *e)
{
    struct stop *st = arg;

    (void)e;
    for (size_t i = 0; i < st->n; i++) {
        struct process p;

        if (process_get(tx->db, st->ids[i], &p) < 0)
            continue;
        if (!strcmp(p.state, "starting"))
            abandon(tx, st->c, p.id, p.stop);
        process_clear(&p);
    }
    return 0;
}

static bool all_ended(struct db *d, const struct stop *st)
{
    for (size_t i = 0; i < st->n; i++)
        if (db_int(d, 0, "SELECT 1 FROM process WHERE id=? AND state<>'ended'",
                   "i", st->ids[i]))
            return false;
    return true;
}

static int stop_processes(struct courier *c, struct stop *st, struct job *j,
                          struct err *e)
{
    struct e2b_target t;
    struct sandbox s;
    int r;

    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    r = sandbox_target(c, &s, &t, e);
    if (r == 0) {
        for (size_t i = 0; i < st->n && r == 0; i++)
            r = launch_kill(&t, c->instance, st->ids[i], &j->cancel, e);
        endpoint_put(c, t.x);
    }
    sandbox_clear(&s);
    return r;
}

int job_interrupt(struct courier *c, struct job *j, int *delay_ms,
                  struct err *e)
{
    struct stop st = {.c = c, .j = j};
    int64_t until;
    int r = store_do(c->store, tx_stop, &st, e);

    (void)delay_ms;
    if (r == 0 && st.n) {
        r = stop_processes(c, &st, j, e);
        if (r == 0)
            r = store_do(c->store, tx_stopped, &st, e);
        /* the next turn isn't begun before this one's end is written */
        until = mono_ms() + 5000;
        while (r == 0 && mono_ms() < until && !job_cancelled(j) &&
               !all_ended(store_reader(c->store), &st))
            sleep_ms(5);
    }
    if (r == 0 && !strcmp(j->args, "all"))
        r = store_do(c->store, tx_drop_queue, &st, e);
    free(st.ids);
    return job_again(j, r, 10);
}
