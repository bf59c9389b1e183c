/*
 * pi: `pi -p --mode json`. Every message_update carries the whole message so
 * far twice, so that its output grows with the square of the answer. Of such
 * a line only the begin is looked at, where the new piece of text stands; the
 * rest is never held nor decoded, nor are the lines that repeat what was told.
 *
 * It exits with 0 whatever happened: the last assistant message says how the
 * turn went, unless a retry follows.
 */
#include "agents/event.h"

/* blocks of the message at hand are known by this, see event.h */
static const char here[] = "message";

struct own {
    long index; /* of the block whose pieces come */
};

/* ---- by its begin ---- */

static const char update[] = "{\"type\":\"message_update\",";
static const char delta[] =
    "{\"type\":\"message_update\",\"assistantMessageEvent\":"
    "{\"type\":\"text_delta\",\"contentIndex\":";

static const char *const idle[] = {
    "{\"type\":\"message_start\",\"message\":{\"role\":\"user\",",
    "{\"type\":\"message_start\",\"message\":{\"role\":\"toolResult\",",
    "{\"type\":\"turn_end\",",
    "{\"type\":\"agent_end\",",
    "{\"type\":\"tool_execution_update\",",
    "{\"type\":\"message_end\",\"message\":{\"role\":\"user\",",
    "{\"type\":\"message_end\",\"message\":{\"role\":\"toolResult\",",
};

/* 1: s begins with it, 0: it doesn't, -1: too short to tell */
static int begins(const char *s, size_t n, const char *with)
{
    size_t len = strlen(with);

    if (memcmp(s, with, n < len ? n : len))
        return 0;
    return n >= len ? 1 : -1;
}

/* the end of the JSON string that opens at s[at], or 0 */
static size_t string_end(const char *s, size_t n, size_t at)
{
    for (size_t i = at + 1; i < n; i++) {
        if (s[i] == '\\')
            i++;
        else if (s[i] == '"')
            return i + 1;
    }
    return 0;
}

static void tell_delta(struct parser *p, long index, const char *s, size_t n)
{
    AUTO_BUF struct buf b = {0};
    struct own *own = p->own;
    json_t *o;

    if (own->index != index)
        say_close(p, here);
    own->index = index;

    buf_adds(&b, "{\"d\":");
    buf_add(&b, s, n);
    buf_addc(&b, '}');
    o = stream_line(b.p, b.n, &p->lone);
    say_piece(p, here, json_object_get(o, "d"));
    p->lone = false;
    json_decref(o);
}

/* a message_update: the piece of text in it, if that is what it has */
static enum head look_update(struct parser *p, const char *s, size_t n)
{
    static const char key[] = ",\"delta\":\"";
    size_t at = sizeof(delta) - 1, end;
    int b = begins(s, n, delta);

    if (b <= 0)
        return b ? HEAD_MORE : HEAD_SKIP;
    while (at < n && s[at] >= '0' && s[at] <= '9')
        at++;
    b = begins(s + at, n - at, key);
    if (b <= 0)
        return b ? HEAD_MORE : HEAD_SKIP;
    at += sizeof(key) - 2;
    end = string_end(s, n, at);
    if (!end)
        return HEAD_MORE;
    tell_delta(p, strtol(s + sizeof(delta) - 1, NULL, 10), s + at, end - at);
    return HEAD_SKIP;
}

static enum head head(struct parser *p, const char *s, size_t n, bool whole)
{
    int b = begins(s, n, update);
    bool more = b < 0;

    if (b > 0)
        return look_update(p, s, n);
    for (size_t i = 0; i < ARRAY_LEN(idle); i++) {
        b = begins(s, n, idle[i]);
        if (b > 0)
            return HEAD_SKIP;
        more |= b < 0;
    }
    return more && !whole ? HEAD_MORE : HEAD_PARSE;
}

/* ---- what is decoded ---- */

static void usage(struct parser *p, const json_t *u)
{
    double cost = stream_real(json_object_get(u, "cost"), "total", -1);

    if (!json_is_object(u))
        return;
    p->usage.input += stream_num(u, "input");
    p->usage.output += stream_num(u, "output");
    p->usage.cache_read += stream_num(u, "cacheRead");
    p->usage.cache_write += stream_num(u, "cacheWrite");
    if (cost >= 0)
        p->usage.usd = (p->usage.usd < 0 ? 0 : p->usage.usd) + cost;
    if (p->usage_told || p->usage.input || p->usage.output ||
        p->usage.cache_read || p->usage.cache_write)
        say_usage(p);
}

static void tell_fault(struct fault *f, const json_t *m, const char *s)
{
    fault_tell(f, fault_service(stream_str(m, "provider")), fault_status(s),
               NULL, s);
    if (f->kind == AGENT_FAULT_OTHER && s && !strcmp(s, "terminated")) {
        f->kind = AGENT_FAULT_NETWORK;
        snprintf(f->words, sizeof(f->words), "connection lost");
    }
}

static void content(struct parser *p, const json_t *m, bool failed)
{
    const json_t *c;
    size_t i;

    json_array_foreach(json_object_get(m, "content"), i, c)
    {
        if (stream_is(c, "type", "thinking"))
            say_thinking(p, json_object_get(c, "thinking"));
        else if (stream_is(c, "type", "text") && !failed)
            say_whole(p, here, json_object_get(c, "text"));
    }
    p->closed_n = 0;
}

static void message(struct parser *p, const json_t *m)
{
    const char *why = stream_str(m, "stopReason"), *s;
    struct fault f;
    bool failed;

    if (!stream_is(m, "role", "assistant"))
        return;
    failed = why && (!strcmp(why, "error") || !strcmp(why, "aborted"));
    say_session(p, NULL, stream_str(m, "model"));
    content(p, m, failed);
    usage(p, json_object_get(m, "usage"));
    verdict_none(p);
    if (!why || !strcmp(why, "toolUse"))
        return;
    if (!failed) {
        if (!strcmp(why, "length"))
            say_note(p, "the answer was cut at the model's limit");
        verdict_ok(p);
        return;
    }
    s = stream_str(m, "errorMessage");
    tell_fault(&f, m, s);
    if (!strcmp(why, "aborted"))
        snprintf(f.words, sizeof(f.words), "interrupted");
    p->fault = f;
    p->verdict = VERDICT_FAILED;
    free(p->error);
    p->error = xstrdup(s ? s : "");
}

static void retry(struct parser *p, const json_t *o)
{
    struct fault f = p->fault;

    if (p->verdict != VERDICT_FAILED)
        tell_fault(&f, NULL, stream_str(o, "errorMessage"));
    say_retract(p);
    say_retry(p, &f, stream_num(o, "attempt"), stream_num(o, "maxAttempts"));
    verdict_none(p);
}

static void line(struct parser *p, const json_t *o)
{
    const char *type = stream_str(o, "type");
    const char *id = stream_str(o, "toolCallId");
    const json_t *result = json_object_get(o, "result");

    if (!type)
        return;
    if (!strcmp(type, "session")) {
        free(p->cwd);
        p->cwd = xstrdup(stream_str(o, "cwd"));
        say_session(p, stream_str(o, "id"), NULL);
    } else if (!strcmp(type, "turn_start")) {
        verdict_none(p);
    } else if (!strcmp(type, "message_start")) {
        say_session(p, NULL,
                    stream_str(json_object_get(o, "message"), "model"));
    } else if (!strcmp(type, "message_end")) {
        message(p, json_object_get(o, "message"));
    } else if (!strcmp(type, "tool_execution_start")) {
        say_tool(p, stream_str(o, "toolName"), id, json_object_get(o, "args"));
    } else if (!strcmp(type, "tool_execution_end")) {
        say_result(p, id, !json_is_true(json_object_get(o, "isError")),
                   json_object_get(result, "content"));
    } else if (!strcmp(type, "auto_retry_start")) {
        retry(p, o);
    }
}

/* no retry came: the error stands, and is told now */
static void eof(struct parser *p)
{
    AUTO_FREE char *error = p->error;
    struct fault f = p->fault;

    p->error = NULL;
    if (p->verdict == VERDICT_FAILED) {
        say_close(p, NULL);
        verdict_failed(p, &f, error);
    }
}

const struct adapter pi_adapter = {
    .tool = "pi",
    .format = FORMAT_PI,
    .own_size = sizeof(struct own),
    .head = head,
    .line = line,
    .eof = eof,
    .doc = "# pi; a model is named provider/model."
           " In [ ]: left out when the value isn't set.\n"
           "command = pi -p --mode json --offline [--model {model}] \\\n"
           "    [--thinking {thinking}]"
           " [--append-system-prompt {system_prompt_file}] \\\n"
           "    [--session {session}]\n"
           "format = pi\n"
           "template = pi\n"
           "efforts = off minimal low medium high xhigh\n"
           "keys = openrouter|anthropic|openai\n"
           "memory_file = AGENTS.md\n"
           "commands_dir = .pi/agent/prompts\n"
           "skills_dir = .pi/agent/skills\n"
           "service = openrouter\n",
};
