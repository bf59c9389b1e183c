/*
 * claude: `claude -p --output-format stream-json`, with partial messages.
 * Pieces of text come as stream_event; each block comes again whole, as an
 * assistant line, with the usage of its message repeated. A cut message is
 * made again under another id. `result` ends the turn; its is_error counts,
 * not its subtype "success" nor the exit code.
 */
#include "agents/event.h"

struct own {
    char *message; /* id of the message that streams */
    /* usage of the messages before, and of the one at hand */
    struct agent_usage before, at_hand;
    char *at_hand_id;
    bool results;             /* the result's sums are the usage */
    char *error_code, *error; /* made up by the CLI in the place of text */
};

static void set(char **to, const char *s)
{
    free(*to);
    *to = xstrdup(s);
}

static bool same(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

/* ---- usage ---- */

static void add(struct agent_usage *to, const struct agent_usage *u)
{
    to->input += u->input;
    to->output += u->output;
    to->cache_read += u->cache_read;
    to->cache_write += u->cache_write;
}

static void read_usage(struct agent_usage *to, const json_t *u)
{
    to->input = stream_num(u, "input_tokens");
    to->output = stream_num(u, "output_tokens");
    to->cache_read = stream_num(u, "cache_read_input_tokens");
    to->cache_write = stream_num(u, "cache_creation_input_tokens");
}

static bool any(const struct agent_usage *u)
{
    return u->input || u->output || u->cache_read || u->cache_write;
}

static void tell_messages(struct parser *p)
{
    struct own *own = p->own;
    double usd = p->usage.usd;

    if (own->results)
        return;
    p->usage = own->before;
    add(&p->usage, &own->at_hand);
    p->usage.usd = usd;
    if (any(&p->usage))
        say_usage(p);
}

/* each message once: its lines repeat the same counts */
static void message_usage(struct parser *p, const char *id, const json_t *u)
{
    struct own *own = p->own;

    if (!json_is_object(u))
        return;
    if (!same(id, own->at_hand_id)) {
        add(&own->before, &own->at_hand);
        set(&own->at_hand_id, id);
    }
    read_usage(&own->at_hand, u);
    tell_messages(p);
}

/* what the messages have told stands if the result has only zeroes, as it
 * has after a message that was made again */
static void result_usage(struct parser *p, const json_t *o)
{
    struct own *own = p->own;
    struct agent_usage sum = {0};
    double usd = stream_real(o, "total_cost_usd", -1);

    read_usage(&sum, json_object_get(o, "usage"));
    if (usd >= 0)
        p->usage.usd = usd;
    if (any(&sum)) {
        if (!own->results) {
            usd = p->usage.usd;
            memset(&p->usage, 0, sizeof(p->usage));
            p->usage.usd = usd;
        }
        own->results = true;
        add(&p->usage, &sum);
    }
    say_usage(p);
}

/* ---- pieces ---- */

static void stream_event(struct parser *p, const json_t *o)
{
    struct own *own = p->own;
    const json_t *ev = json_object_get(o, "event");
    const json_t *delta = json_object_get(ev, "delta");
    const char *type = stream_str(ev, "type");

    if (!type || json_is_string(json_object_get(o, "parent_tool_use_id")))
        return; /* of an agent below this one */
    if (!strcmp(type, "message_start")) {
        say_retract(p);
        set(&own->message, stream_str(json_object_get(ev, "message"), "id"));
    } else if (!strcmp(type, "content_block_delta")) {
        if (stream_is(delta, "type", "text_delta"))
            say_piece(p, own->message, json_object_get(delta, "text"));
    } else if (!strcmp(type, "content_block_stop")) {
        say_close(p, own->message);
    } else if (!strcmp(type, "message_delta")) {
        int64_t n = stream_num(json_object_get(ev, "usage"), "output_tokens");

        if (n && same(own->message, own->at_hand_id)) {
            own->at_hand.output = n;
            tell_messages(p);
        }
    }
}

/* ---- whole messages ---- */

static void content(struct parser *p, const char *id, const json_t *c,
                    bool below)
{
    if (stream_is(c, "type", "text") && !below)
        say_whole(p, id, json_object_get(c, "text"));
    else if (stream_is(c, "type", "thinking") && !below)
        say_thinking(p, json_object_get(c, "thinking"));
    else if (stream_is(c, "type", "tool_use") ||
             stream_is(c, "type", "server_tool_use"))
        say_tool(p, stream_str(c, "name"), stream_str(c, "id"),
                 json_object_get(c, "input"));
}

static void assistant(struct parser *p, const json_t *o)
{
    struct own *own = p->own;
    const json_t *m = json_object_get(o, "message"), *c;
    const json_t *all = json_object_get(m, "content");
    const char *id = stream_str(m, "id"), *code = stream_str(o, "error");
    bool below = json_is_string(json_object_get(o, "parent_tool_use_id"));
    size_t i;

    if (code) {
        set(&own->error_code, code);
        set(&own->error, stream_str(json_array_get(all, 0), "text"));
        return;
    }
    json_array_foreach(all, i, c) content(p, id, c, below);
    if (!stream_is(m, "model", "<synthetic>"))
        message_usage(p, id, json_object_get(m, "usage"));
}

static void user(struct parser *p, const json_t *o)
{
    const json_t *c;
    size_t i;

    json_array_foreach(
        json_object_get(json_object_get(o, "message"), "content"), i,
        c) if (stream_is(c, "type", "tool_result"))
        say_result(p, stream_str(c, "tool_use_id"),
                   !json_is_true(json_object_get(c, "is_error")),
                   json_object_get(c, "content"));
}

/* ---- errors and the end ---- */

static void retry(struct parser *p, const json_t *o)
{
    int status = (int)stream_num(o, "error_status");
    const char *code = stream_str(o, "error");
    struct fault f;

    fault_tell(&f, "Anthropic", status, code, NULL);
    if (f.kind == AGENT_FAULT_OTHER && !status)
        fault_tell(&f, "Anthropic", 0, "network", NULL);
    say_retry(p, &f, stream_num(o, "attempt"), stream_num(o, "max_retries"));
}

static void failed(struct parser *p, int status, const char *code,
                   const char *text)
{
    struct fault f;

    fault_tell(&f, "Anthropic", status, code, text);
    verdict_failed(p, &f, text);
}

/* what ended it, in the result's own fields */
static const char *reason(const json_t *o)
{
    const char *why = stream_str(o, "terminal_reason");
    const char *subtype = stream_str(o, "subtype");

    if (why && !strncmp(why, "aborted", 7))
        return "interrupted";
    if (same(subtype, "error_max_turns"))
        return "the limit of steps was reached";
    if (same(subtype, "error_max_budget_usd"))
        return "the limit of costs was reached";
    return NULL;
}

static void result(struct parser *p, const json_t *o)
{
    struct own *own = p->own;
    const char *subtype = stream_str(o, "subtype"), *why = reason(o);
    const char *text = stream_str(o, "result");
    struct fault f = {.kind = AGENT_FAULT_OTHER};

    if (!text || !*text)
        text =
            json_string_value(json_array_get(json_object_get(o, "errors"), 0));
    result_usage(p, o);
    if (!json_is_true(json_object_get(o, "is_error")) &&
        (!subtype || !strncmp(subtype, "success", 7))) {
        if (!p->text_told)
            say_whole(p, NULL, json_object_get(o, "result"));
        verdict_ok(p);
    } else if (why) {
        snprintf(f.words, sizeof(f.words), "%s", why);
        verdict_failed(p, &f, NULL);
    } else {
        failed(p, (int)stream_num(o, "api_error_status"), own->error_code,
               own->error ? own->error : text);
    }
}

static void line(struct parser *p, const json_t *o)
{
    const char *type = stream_str(o, "type");

    if (!type)
        return;
    if (!strcmp(type, "stream_event")) {
        stream_event(p, o);
    } else if (!strcmp(type, "assistant")) {
        assistant(p, o);
    } else if (!strcmp(type, "user")) {
        user(p, o);
    } else if (!strcmp(type, "result")) {
        result(p, o);
    } else if (!strcmp(type, "system")) {
        if (stream_is(o, "subtype", "init")) {
            set(&p->cwd, stream_str(o, "cwd"));
            say_session(p, stream_str(o, "session_id"),
                        stream_str(o, "model"));
            verdict_none(p);
        } else if (stream_is(o, "subtype", "api_retry")) {
            retry(p, o);
        }
    }
}

/* an error that no result followed */
static void eof(struct parser *p)
{
    struct own *own = p->own;

    if (p->verdict == VERDICT_NONE && own->error)
        failed(p, 0, own->error_code, own->error);
}

static void release(struct parser *p)
{
    struct own *own = p->own;

    free(own->message);
    free(own->at_hand_id);
    free(own->error_code);
    free(own->error);
}

const struct adapter claude_adapter = {
    .tool = "claude",
    .format = FORMAT_CLAUDE,
    .service = "Anthropic",
    .own_size = sizeof(struct own),
    .line = line,
    .eof = eof,
    .release = release,
    .doc = "# Claude Code. In [ ]: left out when the value isn't set.\n"
           "command = claude -p --output-format stream-json --verbose"
           " --include-partial-messages \\\n"
           "    --dangerously-skip-permissions [--model {model}]"
           " [--effort {thinking}] \\\n"
           "    [--append-system-prompt-file {system_prompt_file}]"
           " [--resume {session}]\n"
           "format = claude\n"
           "template = claude\n"
           "model = claude-sonnet-4-6\n"
           "efforts = low medium high xhigh max\n"
           "keys = anthropic|anthropic_token\n"
           "memory_file = CLAUDE.md\n"
           "skills_dir = .claude/skills\n"
           "commands_dir = .claude/commands\n"
           "env = IS_SANDBOX=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"
           " DISABLE_AUTOUPDATER=1\n"
           "service = anthropic\n",
};
