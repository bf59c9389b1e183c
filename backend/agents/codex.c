/*
 * codex: `codex exec --json`. Items that start and complete; whole texts
 * only. Its usage counts the whole conversation, cached tokens among the
 * input ones. "error" lines are progress while it reconnects, else the same
 * words that turn.failed has. It ends with turn.completed or turn.failed.
 */
#include "agents/event.h"

enum { STARTED_MAX = 256 };

struct own {
    char *started[STARTED_MAX]; /* items told as tools already */
    size_t started_n;
};

static void tell_fault(struct fault *f, const char *text)
{
    fault_tell(f, "OpenAI", fault_status(text), NULL, text);
}

/* "/bin/bash -lc 'ls -l'" is about ls */
static void command_words(struct buf *out, const char *s)
{
    const char *at = strstr(s, " -lc ");
    char **w = NULL;
    int n = at && at - s < 40 && *s == '/' ? words_split(s, &w, NULL) : 0;

    buf_adds(out, n == 3 ? w[2] : s);
    words_free(w);
}

static void change_words(struct buf *out, const json_t *item)
{
    const json_t *c;
    size_t i;

    json_array_foreach(json_object_get(item, "changes"), i, c)
    {
        const char *path = stream_str(c, "path");
        const char *kind = stream_str(c, "kind");

        buf_addf(out, "%s%s%s", i ? ", " : "",
                 kind && strcmp(kind, "update") ? kind : "",
                 kind && strcmp(kind, "update") ? " " : "");
        buf_adds(out, path ? path : "?");
    }
}

static void tell_tool(struct parser *p, const char *type, const json_t *item)
{
    AUTO_BUF struct buf words = {0};
    const char *id = stream_str(item, "id"), *name = type, *s;

    if (!strcmp(type, "command_execution")) {
        s = stream_str(item, "command");
        name = "shell";
        command_words(&words, s ? s : "");
    } else if (!strcmp(type, "file_change")) {
        name = "edit";
        change_words(&words, item);
    } else if (!strcmp(type, "mcp_tool_call")) {
        s = stream_str(item, "tool");
        say_tool(p, s ? s : type, id, json_object_get(item, "arguments"));
        return;
    } else {
        s = stream_str(item, "query");
        buf_adds(&words, s ? s : "");
    }
    say_tool_words(p, name, id, buf_str(&words));
}

/* whether it was; after this it is */
static bool was_started(struct parser *p, const char *id)
{
    struct own *own = p->own;

    if (!id)
        return false;
    for (size_t i = 0; i < own->started_n; i++)
        if (!strcmp(own->started[i], id))
            return true;
    if (own->started_n == STARTED_MAX) {
        free(own->started[0]);
        own->started_n--;
        memmove(own->started, own->started + 1,
                own->started_n * sizeof(*own->started));
    }
    own->started[own->started_n++] = xstrdup(id);
    return false;
}

static void tell_done(struct parser *p, const json_t *item)
{
    const json_t *out = json_object_get(item, "aggregated_output");
    const json_t *error = json_object_get(item, "error");
    bool ok = !stream_is(item, "status", "failed") &&
              !stream_is(item, "status", "declined") &&
              stream_real(item, "exit_code", 0) == 0;

    if (json_is_object(error))
        out = json_object_get(error, "message");
    else if (!out)
        out = json_object_get(json_object_get(item, "result"), "content");
    say_result(p, stream_str(item, "id"), ok, out);
}

static void item(struct parser *p, const json_t *o, bool completed)
{
    const char *type = stream_str(o, "type");
    const json_t *text = json_object_get(o, "text");

    if (!type || !strcmp(type, "todo_list"))
        return;
    if (!strcmp(type, "agent_message")) {
        if (completed)
            say_whole(p, stream_str(o, "id"), text);
    } else if (!strcmp(type, "reasoning")) {
        if (completed)
            say_thinking(p, text);
    } else if (!strcmp(type, "error")) {
        if (completed && stream_str(o, "message"))
            say_note(p, "%s", stream_str(o, "message"));
    } else {
        if (!was_started(p, stream_str(o, "id")))
            tell_tool(p, type, o);
        if (completed)
            tell_done(p, o);
    }
}

/* "Reconnecting... 2/5 (why)" */
static bool reconnecting(struct parser *p, const char *s)
{
    struct fault f;
    int n = 0, max = 0;

    if (strncmp(s, "Reconnecting...", 15))
        return false;
    tell_fault(&f, s);
    if (sscanf(s + 15, " %d/%d", &n, &max) == 2)
        say_retry(p, &f, n, max);
    else
        say_note(p, "%s, waiting for the network", f.words);
    return true;
}

static void failed(struct parser *p, const char *s)
{
    AUTO_FREE char *detail = xstrdup(s ? s : "");
    char *url = strstr(detail, ", url: ");
    char *id = strstr(detail, ", request id");
    struct fault f;

    if (url)
        *url = 0;
    else if (id)
        *id = 0;
    tell_fault(&f, s);
    verdict_failed(p, &f, detail);
}

static int64_t since(int64_t total, int64_t before)
{
    return total >= before ? total - before : total;
}

/*
 * The totals of the conversation less those of its earlier turns. If they
 * have gone back it is another conversation, all of it of this turn.
 */
static void usage(struct parser *p, const json_t *u)
{
    struct agent_usage *to = &p->usage, from = p->earlier;
    int64_t input = stream_num(u, "input_tokens");
    int64_t read = stream_num(u, "cached_input_tokens");
    int64_t write = stream_num(u, "cache_write_input_tokens");
    int64_t output = stream_num(u, "output_tokens");
    int64_t plain = input - read - write;

    if (!json_is_object(u))
        return;
    plain = plain > 0 ? plain : 0;
    if (output < from.output ||
        plain + read + write < from.input + from.cache_read + from.cache_write)
        memset(&from, 0, sizeof(from));
    to->input = since(plain, from.input);
    to->output = since(output, from.output);
    to->cache_read = since(read, from.cache_read);
    to->cache_write = since(write, from.cache_write);
    say_usage(p);
}

static void line(struct parser *p, const json_t *o)
{
    const char *type = stream_str(o, "type"), *s;

    if (!type)
        return;
    if (!strcmp(type, "thread.started")) {
        say_session(p, stream_str(o, "thread_id"), NULL);
    } else if (!strcmp(type, "turn.started")) {
        verdict_none(p);
    } else if (!strcmp(type, "item.started")) {
        item(p, json_object_get(o, "item"), false);
    } else if (!strcmp(type, "item.completed")) {
        item(p, json_object_get(o, "item"), true);
    } else if (!strcmp(type, "error")) {
        s = stream_str(o, "message");
        if (s && !reconnecting(p, s))
            failed(p, s);
    } else if (!strcmp(type, "turn.failed")) {
        failed(p, stream_str(json_object_get(o, "error"), "message"));
    } else if (!strcmp(type, "turn.completed")) {
        usage(p, json_object_get(o, "usage"));
        verdict_ok(p);
    }
}

static void release(struct parser *p)
{
    struct own *own = p->own;

    for (size_t i = 0; i < own->started_n; i++)
        free(own->started[i]);
}

#define FLAGS                                                                 \
    " --json --dangerously-bypass-approvals-and-sandbox"                      \
    " --skip-git-repo-check \\\n"                                             \
    "    [-m {model}] [-c model_reasoning_effort={thinking}] \\\n"            \
    "    [-c developer_instructions=\"$(cat {system_prompt_file})\"] "

const struct adapter codex_adapter = {
    .tool = "codex",
    .format = FORMAT_CODEX,
    .service = "OpenAI",
    .own_size = sizeof(struct own),
    .line = line,
    .release = release,
    .doc = "# OpenAI Codex. In [ ]: left out when the value isn't set.\n"
           "command = codex exec" FLAGS "-\n"
           "continue = codex exec resume" FLAGS "{session} -\n"
           "format = codex\n"
           "template = codex\n"
           "efforts = minimal low medium high xhigh\n"
           "keys = openai\n"
           "memory_file = AGENTS.md\n"
           "commands_dir = .codex/prompts\n"
           "skills_dir = .codex/skills\n"
           "service = openai\n",
};
