/*
 * dump: the events of a parser as lines of text, the same for every split of
 * the input: pieces of text that follow each other are joined. Texts above
 * 300 bytes are shown by length and hash.
 */
#ifndef TESTS_AGENTS_DUMP_H
#define TESTS_AGENTS_DUMP_H

#include "agents/agents.h"
#include "base/text.h"

struct dump {
    struct buf out, text;
};

static void dump_string(struct buf *out, const char *s, size_t n)
{
    if (n > 300) {
        buf_addf(out, " (%zu bytes, %016llx)", n,
                 (unsigned long long)text_hash(s, n));
        return;
    }
    buf_addc(out, ' ');
    text_printable(out, s, n, 0);
}

static void dump_word(struct buf *out, const char *name, const char *s)
{
    if (!s)
        return;
    buf_addf(out, " %s=", name);
    text_printable(out, s, strlen(s), 0);
}

static void dump_flush(struct dump *d)
{
    if (!d->text.n)
        return;
    buf_adds(&d->out, "text");
    dump_string(&d->out, d->text.p, d->text.n);
    buf_addc(&d->out, '\n');
    buf_clear(&d->text);
}

static void dump_event(void *arg, const struct agent_event *ev)
{
    static const char *const names[] = {
        "session",  "text", "end of text", "retract", "tool", "result",
        "thinking", "note", "usage",       "error",   "end"};
    static const char *const faults[] = {"none",    "key",   "credit",
                                         "rate",    "model", "network",
                                         "session", "usage", "other"};
    struct dump *d = arg;

    if (ev->text && strlen(ev->text) != ev->n && !memchr(ev->text, 0, ev->n))
        abort(); /* not NUL-terminated */
    if (ev->kind == AGENT_TEXT) {
        buf_add(&d->text, ev->text, ev->n);
        return;
    }
    dump_flush(d);
    buf_adds(&d->out, names[ev->kind]);
    if (ev->kind == AGENT_USAGE) {
        buf_addf(&d->out, " in=%lld out=%lld read=%lld write=%lld",
                 (long long)ev->usage.input, (long long)ev->usage.output,
                 (long long)ev->usage.cache_read,
                 (long long)ev->usage.cache_write);
        if (ev->usage.usd >= 0)
            buf_addf(&d->out, " usd=%.6f", ev->usage.usd);
    }
    if (ev->kind == AGENT_TOOL_RESULT || ev->kind == AGENT_END)
        buf_adds(&d->out, ev->ok ? " ok" : " failed");
    if (ev->fault)
        buf_addf(&d->out, " (%s)", faults[ev->fault]);
    dump_word(&d->out, "name", ev->name);
    dump_word(&d->out, "id", ev->id);
    dump_word(&d->out, "model", ev->model);
    if (ev->text)
        dump_string(&d->out, ev->text, ev->n);
    if (ev->detail && ev->kind == AGENT_ERROR)
        dump_word(&d->out, "detail", ev->detail);
    buf_addc(&d->out, '\n');
}

static void dump_free(struct dump *d)
{
    buf_free(&d->out);
    buf_free(&d->text);
}

#endif
