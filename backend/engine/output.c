#include "engine/output.h"

#include "engine/keys.h"

enum {
    RESULT_MAX = 4 << 20, /* of an answer, in messages.jsonl */
    TOOLS_MAX = 2000,
    OUTPUT_MAX = 1 << 30,  /* of a turn; then it is stopped */
    HOLD_MAX = 256 * 1024, /* of a stderr line that waits for its end */
};

struct output {
    struct courier *c;
    struct process p; /* strings not used */
    int64_t project;
    struct parser *parser; /* NULL: an exec */
    enum agent_format format;
    bool replay;
    char *model, *service, *keys;
    /* what follows from the bytes so far */
    int64_t off_out, off_err; /* fed */
    struct buf tail;          /* of a character that is not whole */
    struct buf result, hold;
    size_t result_mark;
    bool bol, log_bol, result_cut;
    json_t *tools, *ids;
    struct agent_usage usage;
    bool counted, ended, ok, lost;
    int fault;
    char *error, *detail, *session;
    int code;
    bool signaled;
    /* not yet taken */
    int64_t taken_out, taken_err;
    struct buf log, text, out, err;
    bool new_session, end_due;
};

struct batch {
    struct process p;
    int64_t from_out, from_err, to_out, to_err;
    struct buf log, text, out, err;
    char *session, *model;
    bool end, is_turn, counted;
    char *error, *reason, *exit;
    const char *agent;
    struct buf result;
    json_t *tools;
    struct agent_usage usage;
    bool bad_session;
};

/* ---- text ---- */

static void say(struct output *o, const char *p, size_t n)
{
    transcript_text(&o->text, p, n, &o->bol);
}

static void flush_tail(struct output *o)
{
    say(o, buf_str(&o->tail), o->tail.n);
    buf_clear(&o->tail);
}

static void line_begins(struct output *o)
{
    flush_tail(o);
    if (!o->bol)
        buf_addc(&o->text, '\n');
    o->bol = true;
}

static void say_line(struct output *o, const char *mark, const char *a,
                     const char *b)
{
    line_begins(o);
    buf_adds(&o->text, mark);
    text_printable(&o->text, a, strlen(a), 0);
    if (b && *b) {
        buf_adds(&o->text, "  ");
        text_printable(&o->text, b, strlen(b), 0);
    }
    buf_addc(&o->text, '\n');
}

static void add_result(struct output *o, const char *p, size_t n)
{
    if (o->result.n + n > RESULT_MAX) {
        n = RESULT_MAX - o->result.n;
        n -= text_utf8_tail(p, n);
        o->result_cut = true;
    }
    buf_add(&o->result, p, n);
}

static void on_text(struct output *o, const char *p, size_t n)
{
    size_t keep;

    add_result(o, p, n);
    if (o->tail.n) {
        AUTO_BUF struct buf whole = {0};

        buf_add(&whole, o->tail.p, o->tail.n);
        buf_add(&whole, p, n);
        keep = text_utf8_tail(whole.p, whole.n);
        say(o, whole.p, whole.n - keep);
        buf_clear(&o->tail);
        buf_add(&o->tail, whole.p + whole.n - keep, keep);
        return;
    }
    keep = text_utf8_tail(p, n);
    say(o, p, n - keep);
    buf_add(&o->tail, p + n - keep, keep);
}

static void on_text_end(struct output *o)
{
    line_begins(o);
    if (o->result.n && o->result.p[o->result.n - 1] != '\n')
        add_result(o, "\n", 1);
    o->result_mark = o->result.n;
}

static void on_retract(struct output *o)
{
    o->result.n = o->result_mark;
    if (o->result.p)
        o->result.p[o->result.n] = 0;
    say_line(o, "  ↻ ", "reply cut off, tried again", NULL);
}

/* ---- tools ---- */

static json_t *shown(const char *s)
{
    AUTO_BUF struct buf b = {0};

    text_printable(&b, s ? s : "", s ? strlen(s) : 0, 0);
    return json_string(buf_str(&b));
}

static void on_tool(struct output *o, const struct agent_event *ev)
{
    json_t *t;

    say_line(o, "  ▸ ", ev->name ? ev->name : "tool", ev->text);
    if (json_array_size(o->tools) >= TOOLS_MAX)
        return;
    t = json_object();
    json_object_set_new(t, "name", shown(ev->name));
    json_object_set_new(t, "summary", shown(ev->text));
    json_object_set_new(t, "status", json_string("running"));
    json_array_append_new(o->tools, t);
    if (ev->id)
        json_object_set(o->ids, ev->id, t);
}

static void on_tool_result(struct output *o, const struct agent_event *ev)
{
    json_t *t = ev->id ? json_object_get(o->ids, ev->id) : NULL;

    if (t)
        json_object_set_new(t, "status",
                            json_string(ev->ok ? "completed" : "error"));
}

/* ---- events ---- */

static void keep(char **to, const char *text)
{
    if (!text || !*text)
        return;
    free(*to);
    *to = xstrdup(text);
}

static void on_session(struct output *o, const struct agent_event *ev)
{
    keep(&o->model, ev->model);
    if (!ev->text || !*ev->text ||
        (o->session && !strcmp(o->session, ev->text)))
        return;
    keep(&o->session, ev->text);
    o->new_session = true;
}

static void on_event(void *arg, const struct agent_event *ev)
{
    struct output *o = arg;

    switch (ev->kind) {
    case AGENT_SESSION:
        on_session(o, ev);
        break;
    case AGENT_TEXT:
        on_text(o, ev->text ? ev->text : "", ev->n);
        break;
    case AGENT_TEXT_END:
        on_text_end(o);
        break;
    case AGENT_RETRACT:
        on_retract(o);
        break;
    case AGENT_TOOL:
        on_tool(o, ev);
        break;
    case AGENT_TOOL_RESULT:
        on_tool_result(o, ev);
        break;
    case AGENT_THINKING:
        break;
    case AGENT_NOTE:
        say_line(o, "  · ", ev->text ? ev->text : "", NULL);
        break;
    case AGENT_USAGE:
        o->usage = ev->usage;
        o->counted = true;
        break;
    case AGENT_ERROR:
        keep(&o->error, ev->text);
        keep(&o->detail, ev->detail);
        if (ev->fault)
            o->fault = (int)ev->fault;
        break;
    case AGENT_END:
        o->ended = true;
        o->ok = ev->ok;
        if (!ev->ok && !o->error)
            keep(&o->error, ev->text);
        if (ev->fault)
            o->fault = (int)ev->fault;
        break;
    }
}

/* ---- the raw stream ---- */

/* lines of stderr go between the lines of stdout, never into one */
static void release_hold(struct output *o, bool all)
{
    size_t n = o->hold.n;

    if (!all) {
        if (!o->log_bol && o->hold.n < HOLD_MAX)
            return;
        while (n && o->hold.p[n - 1] != '\n')
            n--;
        if (!n && o->hold.n >= HOLD_MAX)
            n = o->hold.n;
    }
    if (!n)
        return;
    if (all && !o->log_bol)
        buf_addc(&o->log, '\n');
    buf_add(&o->log, o->hold.p, n);
    o->log_bol = o->hold.p[n - 1] == '\n';
    buf_drop(&o->hold, n);
}

static void log_out(struct output *o, const char *p, size_t n)
{
    size_t rest = n;

    /* held lines find their place at the last line's end in this piece */
    while (rest && p[rest - 1] != '\n')
        rest--;
    buf_add(&o->log, p, rest);
    if (rest) {
        o->log_bol = true;
        release_hold(o, false);
    }
    buf_add(&o->log, p + rest, n - rest);
    if (n > rest)
        o->log_bol = false;
}

void output_feed(struct output *o, int fd, const char *p, size_t n)
{
    if (!n)
        return;
    if (fd == 2)
        o->off_err += (int64_t)n;
    else
        o->off_out += (int64_t)n;
    if (!o->parser) {
        if (!o->replay)
            buf_add(fd == 2 ? &o->err : &o->out, p, n);
        return;
    }
    if (fd == 2) {
        if (!o->replay) {
            buf_add(&o->hold, p, n);
            release_hold(o, false);
        }
        parser_err(o->parser, p, n);
    } else {
        if (o->replay)
            o->log_bol = p[n - 1] == '\n';
        else
            log_out(o, p, n);
        parser_out(o->parser, p, n);
    }
}

void output_replay(struct output *o, int fd, const char *p, size_t n)
{
    o->replay = true;
    output_feed(o, fd, p, n);
    o->replay = false;
    buf_clear(&o->text);
    o->taken_out = o->off_out;
    o->taken_err = o->off_err;
    o->new_session = false;
}

void output_end(struct output *o, int code, bool signaled, bool lost)
{
    o->code = code;
    o->signaled = signaled;
    o->lost = lost;
    o->end_due = true;
    if (!o->parser)
        return;
    release_hold(o, true);
    if (lost) {
        keep(&o->error, "the agent's process is gone");
    } else {
        parser_end(o->parser, code, signaled);
    }
    flush_tail(o);
}

/* ---- opening ---- */

static void earlier_usage(struct db *d, const struct process *p,
                          struct parser *parser)
{
    struct agent_usage u = {.usd = -1};
    sqlite3_stmt *q = db_query(
        d,
        "SELECT sum(input),sum(output),sum(cache_read),sum(cache_write) "
        "FROM message WHERE sandbox=? AND id<? AND state IN('completed',"
        "'failed')",
        "ii", p->sandbox, p->message);

    if (db_row(d, q)) {
        u.input = col_int(q, 0);
        u.output = col_int(q, 1);
        u.cache_read = col_int(q, 2);
        u.cache_write = col_int(q, 3);
        db_done(q);
    }
    parser_before(parser, &u);
}

struct output *output_open(struct courier *c, const struct process *p)
{
    struct db *d = store_reader(c->store);
    struct output *o = xcalloc(1, sizeof(*o));
    struct tool *t = NULL;
    struct sandbox s;

    o->c = c;
    o->p = *p;
    o->p.state = o->p.stop = NULL;
    o->bol = o->log_bol = true;
    o->tools = json_array();
    o->ids = json_object();
    o->usage.usd = -1;
    if (!p->message)
        return o;
    if (sandbox_get(d, p->sandbox, &s) < 0) {
        output_free(o);
        return NULL;
    }
    o->project = s.project;
    if (tool_get(d, s.tool, &t, NULL) == 0) {
        o->format = t->format;
        o->keys = xstrdup(t->keys);
        tool_free(t);
    }
    sandbox_clear(&s);
    o->parser = parser_new(o->format, on_event, o);
    earlier_usage(d, p, o->parser);
    return o;
}

void output_free(struct output *o)
{
    if (!o)
        return;
    parser_free(o->parser);
    json_decref(o->ids);
    json_decref(o->tools);
    buf_free(&o->tail);
    buf_free(&o->result);
    buf_free(&o->hold);
    buf_free(&o->log);
    buf_free(&o->text);
    buf_free(&o->out);
    buf_free(&o->err);
    free(o->model);
    free(o->service);
    free(o->keys);
    free(o->error);
    free(o->detail);
    free(o->session);
    free(o);
}

/* ---- batches ---- */

/* which key it was, and whose */
static char *key_words(struct output *o)
{
    AUTO_BUF struct buf b = {0};
    struct db *d = store_reader(o->c->store);
    const char *p = o->keys ? o->keys : "";

    while (*p) {
        size_t n = strcspn(p, "|, ");
        AUTO_FREE char *name = xmemdup0(p, n);
        const char *level = NULL;
        char *plain = NULL;

        if (*name &&
            key_get(o->c, d, o->project, name, &plain, &level, NULL) == 0) {
            vault_free(plain);
            buf_addf(&b, "%skey '%s' of the %s", b.n ? ", " : "", name, level);
            break;
        }
        p += n + (p[n] != 0);
    }
    if (!b.n)
        buf_addf(&b, "no key is set");
    return buf_take(&b);
}

static char *error_words(struct output *o)
{
    AUTO_BUF struct buf b = {0}, line = {0};

    /* "failed" alone adds nothing to what the tool said */
    if (o->error && strcmp(o->error, "failed"))
        buf_adds(&b, o->error);
    if (o->detail && (!o->error || !strstr(o->error, o->detail)))
        buf_addf(&b, "%s%.300s", b.n ? ": " : "", o->detail);
    if (!b.n)
        buf_adds(&b, "failed");
    /* the shell's own words and code for a program that isn't there */
    if (o->code == 127 && o->format != FORMAT_TEXT && strstr(b.p, "not found"))
        buf_adds(&b, " (no such program in the sandbox: set template, or "
                     "local_path in the root's config)");
    if (o->fault == AGENT_FAULT_KEY) {
        AUTO_FREE char *k = key_words(o);

        buf_addf(&b, " (%s)", k);
    }
    text_printable(&line, b.p, b.n, 0);
    return buf_take(&line);
}

/* a tool whose result never came */
static void close_tools(struct output *o)
{
    json_t *t;
    size_t i;

    json_array_foreach(o->tools, i, t)
    {
        const char *st = json_string_value(json_object_get(t, "status"));

        if (st && !strcmp(st, "running"))
            json_object_set_new(t, "status",
                                json_string(o->ok ? "completed" : "error"));
    }
}

static void take_end(struct output *o, struct batch *b)
{
    b->end = true;
    if (!o->parser) {
        b->exit = o->lost ? xstrdup("lost") : xasprintf("%d", o->code);
        return;
    }
    b->counted = o->counted;
    b->model = xstrdup(o->model);
    b->usage = o->usage;
    close_tools(o);
    b->tools = json_deep_copy(o->tools); /* it goes to another thread */
    b->agent = "idle";
    text_printable(&b->result, buf_str(&o->result), o->result.n,
                   PRINTABLE_LINES | PRINTABLE_TABS);
    while (b->result.n && b->result.p[b->result.n - 1] == '\n')
        b->result.p[--b->result.n] = 0;
    if (o->result_cut)
        buf_adds(&b->result, "\n(cut: the answer is longer)");
    if (o->ended && o->ok)
        return;
    b->error = error_words(o);
    b->agent = "failed";
    b->bad_session = o->fault == AGENT_FAULT_SESSION;
    b->reason =
        !strncmp(b->error, "exited ", 7) || !strncmp(b->error, "killed ", 7)
            ? xasprintf("agent %s", b->error)
            : xstrdup(b->error);
}

static void move(struct buf *to, struct buf *from)
{
    *to = *from;
    memset(from, 0, sizeof(*from));
}

struct batch *output_take(struct output *o)
{
    /* what is held will be had again */
    int64_t to_err = o->off_err - (int64_t)o->hold.n;
    struct batch *b;

    if (!o->end_due && o->off_out == o->taken_out && to_err == o->taken_err)
        return NULL;
    b = xcalloc(1, sizeof(*b));
    b->p = o->p;
    b->is_turn = o->parser != NULL;
    b->from_out = o->taken_out;
    b->from_err = o->taken_err;
    b->to_out = o->taken_out = o->off_out;
    b->to_err = o->taken_err = to_err;
    move(&b->log, &o->log);
    move(&b->text, &o->text);
    move(&b->out, &o->out);
    move(&b->err, &o->err);
    if (o->new_session)
        b->session = xstrdup(o->session);
    o->new_session = false;
    if (o->end_due)
        take_end(o, b);
    o->end_due = false;
    return b;
}

bool batch_is_end(const struct batch *b)
{
    return b->end;
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    buf_free(&b->log);
    buf_free(&b->text);
    buf_free(&b->out);
    buf_free(&b->err);
    buf_free(&b->result);
    json_decref(b->tools);
    free(b->session);
    free(b->model);
    free(b->error);
    free(b->reason);
    free(b->exit);
    free(b);
}

static void batch_end(struct tx *tx, struct courier *c, struct batch *b)
{
    struct turn_end end = {
        .error = b->error,
        .agent = b->agent,
        .reason = b->reason,
        .result = buf_str(&b->result),
        .result_n = b->result.n,
        .tools = b->tools,
        .model = b->model,
        .usage = b->counted ? &b->usage : NULL,
        .bad_session = b->bad_session,
    };

    if (b->is_turn)
        tx_turn_end(tx, c, b->p.id, &end);
    else
        tx_exec_end(tx, c, b->p.id, b->exit);
}

int tx_batch(struct tx *tx, struct courier *c, struct batch *b, struct err *e)
{
    struct oid box = oid(OBJ_SANDBOX, b->p.sandbox);
    struct oid ex = oid(OBJ_EXEC, b->p.exec);
    struct process p;
    bool here;

    if (process_get(tx->db, b->p.id, &p) < 0)
        return err_set(e, ESTALE, "the process is not in the record");
    here = strcmp(p.state, "ended") && p.off_out == b->from_out &&
           p.off_err == b->from_err;
    process_clear(&p);
    if (!here)
        return err_set(e, ESTALE, "the process has ended");
    if (b->is_turn) {
        tx_stream_add(tx, box, STREAM_LOG, b->log.p, b->log.n, ASPECT_LOG);
        tx_transcript(tx, b->p.sandbox, b->text.p, b->text.n);
    } else {
        tx_stream_add(tx, ex, STREAM_OUT, b->out.p, b->out.n, ASPECT_OUT);
        tx_stream_add(tx, ex, STREAM_ERR, b->err.p, b->err.n, ASPECT_ERR);
    }
    db_exec(tx->db, "UPDATE process SET off_out=?,off_err=? WHERE id=?", "iii",
            b->to_out, b->to_err, b->p.id);
    if (b->session)
        db_exec(tx->db, "UPDATE sandbox SET session=? WHERE id=?", "si",
                b->session, b->p.sandbox);
    if (b->end)
        batch_end(tx, c, b);
    else if (b->is_turn && b->to_out > OUTPUT_MAX &&
             !job_there(tx->db, b->p.sandbox, "control", "interrupt"))
        tx_job(tx, c, b->p.sandbox, 0, "control", "interrupt",
               "more than 1 GiB of output");
    return 0;
}
