/*
 * opencode: `opencode run --format json`. Whole texts; a tool is told once,
 * when it is done; usage a step, to be summed. Nothing marks the end of the
 * turn but the step that stopped, or an error. It retries in silence.
 */
#include "agents/event.h"

static void text(struct parser *p, const json_t *part)
{
    say_whole(p, stream_str(part, "id"), json_object_get(part, "text"));
}

static void tool(struct parser *p, const json_t *part)
{
    const json_t *state = json_object_get(part, "state"), *out;
    const char *id = stream_str(part, "callID");
    bool ok = stream_is(state, "status", "completed") &&
              stream_real(json_object_get(state, "metadata"), "exit", 0) == 0;

    say_tool(p, stream_str(part, "tool"), id, json_object_get(state, "input"));
    out = json_object_get(state, "output");
    if (!out)
        out = json_object_get(state, "error");
    say_result(p, id, ok, out);
}

static void step_finish(struct parser *p, const json_t *part)
{
    const json_t *t = json_object_get(part, "tokens");
    const json_t *cache = json_object_get(t, "cache");
    double cost = stream_real(part, "cost", -1);
    const char *reason = stream_str(part, "reason");

    p->usage.input += stream_num(t, "input");
    p->usage.output += stream_num(t, "output") + stream_num(t, "reasoning");
    p->usage.cache_read += stream_num(cache, "read");
    p->usage.cache_write += stream_num(cache, "write");
    if (cost >= 0)
        p->usage.usd = (p->usage.usd < 0 ? 0 : p->usage.usd) + cost;
    say_usage(p);
    if (!reason || !strcmp(reason, "tool-calls"))
        return;
    if (!strcmp(reason, "length"))
        say_note(p, "the answer was cut at the model's limit");
    verdict_ok(p);
}

static void error(struct parser *p, const json_t *e)
{
    const json_t *data = json_object_get(e, "data");
    const char *name = stream_str(e, "name"), *s = stream_str(data, "message");
    const char *url = stream_str(json_object_get(data, "metadata"), "url");
    struct fault f;

    if (!s)
        s = stream_str(e, "message");
    fault_tell(&f, fault_service(url), (int)stream_num(data, "statusCode"),
               name, s);
    if (name && !strcmp(name, "UnknownError") && f.kind == AGENT_FAULT_OTHER)
        snprintf(f.words, sizeof(f.words),
                 "failed (is the model's name right?)");
    if (name && !strcmp(name, "MessageAbortedError"))
        snprintf(f.words, sizeof(f.words), "interrupted");
    verdict_failed(p, &f, s ? s : name);
}

static void line(struct parser *p, const json_t *o)
{
    const char *type = stream_str(o, "type");
    const json_t *part = json_object_get(o, "part");

    say_session(p, stream_str(o, "sessionID"), NULL);
    if (!type)
        return;
    if (!strcmp(type, "step_start"))
        verdict_none(p);
    else if (!strcmp(type, "text"))
        text(p, part);
    else if (!strcmp(type, "reasoning"))
        say_thinking(p, json_object_get(part, "text"));
    else if (!strcmp(type, "tool_use"))
        tool(p, part);
    else if (!strcmp(type, "step_finish"))
        step_finish(p, part);
    else if (!strcmp(type, "error"))
        error(p, json_object_get(o, "error"));
}

const struct adapter opencode_adapter = {
    .tool = "opencode",
    .format = FORMAT_OPENCODE,
    .line = line,
    .doc = "# OpenCode; a model is named provider/model."
           " In [ ]: left out when the value isn't set.\n"
           "# \\133 and \\135 are brackets of JSON.\n"
           "command = [OPENCODE_CONFIG_CONTENT=\"$(printf"
           " '{\"instructions\":\\133\"%s\"\\135}'"
           " {system_prompt_file})\"] \\\n"
           "    opencode run --auto --format json --thinking [-m {model}] \\\n"
           "    [--variant {thinking}] [--session {session}]\n"
           "format = opencode\n"
           "template = opencode\n"
           "keys = openrouter|anthropic|openai\n"
           "memory_file = AGENTS.md\n"
           "commands_dir = .config/opencode/commands\n"
           "skills_dir = .config/opencode/skills\n"
           "env = OPENCODE_DISABLE_AUTOUPDATE=1\n"
           "service = openrouter\n",
};
