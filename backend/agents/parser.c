/*
 * parser: cuts what a CLI prints into lines and gives them to its grammar;
 * says at the end how the turn went.
 *
 * Memory: of a line no more than LINE_MAX_BYTES is held (decoding it takes a
 * small multiple of that for a moment); a longer one is skipped with a note,
 * and what follows is read as ever. A line that lies whole in the piece given
 * isn't copied. A grammar may call a line off as soon as it has seen how it
 * begins; of such a line nothing is held and each byte is looked at once.
 */
#include "agents/event.h"

#include <strings.h>

enum { LINE_MAX_BYTES = 32 << 20, LOOK_FIRST = 256 };

const struct adapter *const adapters[] = {
    &claude_adapter, &codex_adapter, &opencode_adapter,
    &pi_adapter,     &shell_adapter, NULL,
};

static const struct adapter *adapter_of(enum agent_format f)
{
    for (size_t i = 0; adapters[i]; i++)
        if (adapters[i]->format == f)
            return adapters[i];
    return &shell_adapter;
}

struct parser *parser_new(enum agent_format f, agent_event_fn fn, void *arg)
{
    struct parser *p = xcalloc(1, sizeof(*p));

    p->a = adapter_of(f);
    p->fn = fn;
    p->arg = arg;
    p->usage.usd = -1;
    p->own = xcalloc(1, p->a->own_size + 1);
    return p;
}

void parser_before(struct parser *p, const struct agent_usage *earlier)
{
    p->earlier = *earlier;
}

void parser_free(struct parser *p)
{
    if (!p)
        return;
    if (p->a->release)
        p->a->release(p);
    buf_free(&p->out.held);
    buf_free(&p->err.held);
    buf_free(&p->open);
    buf_free(&p->err_tail);
    free(p->own);
    free(p->open_id);
    free(p->closed_id);
    free(p->error);
    free(p->error_told);
    free(p->cwd);
    free(p->session);
    free(p->model);
    free(p->note);
    free(p);
}

/* ---- stdout ---- */

static void add_tail(struct parser *p, const char *s, size_t n);

static void line_done(struct parser *p, const char *s, size_t n, bool whole)
{
    json_t *o;

    while (n && (s[n - 1] == '\r' || s[n - 1] == ' '))
        n--;
    if (!n)
        return;
    o = stream_line(s, n, &p->lone);
    if (o)
        p->a->line(p, o);
    else if (whole && *s != '{')
        add_tail(p, s, n); /* not of the stream: words for people */
    json_decref(o);
    p->lone = false;
}

static enum head look(struct parser *p, const char *s, size_t n, bool whole)
{
    return p->a->head ? p->a->head(p, s, n, whole) : HEAD_PARSE;
}

/* part of a line whose end hasn't come yet */
static void line_more(struct parser *p, const char *s, size_t n)
{
    struct line *l = &p->out;
    enum head h;
    bool over;

    if (l->skip)
        return;
    over = n > LINE_MAX_BYTES - l->held.n;
    buf_add(&l->held, s, over ? LINE_MAX_BYTES - l->held.n : n);
    if (!over &&
        (l->keep || l->held.n < (l->look_at ? l->look_at : LOOK_FIRST)))
        return;
    h = l->keep ? HEAD_PARSE : look(p, l->held.p, l->held.n, false);
    l->look_at = 2 * l->held.n;
    l->keep = h == HEAD_PARSE;
    l->huge = over && h != HEAD_SKIP;
    l->skip = over || h == HEAD_SKIP;
    if (l->skip)
        buf_clear(&l->held);
}

/* the end of a line; s is its last part */
static void line_end(struct parser *p, const char *s, size_t n, bool whole)
{
    struct line *l = &p->out;

    if (!l->skip && !l->held.n) {
        if (n > LINE_MAX_BYTES)
            l->huge = look(p, s, LINE_MAX_BYTES, false) != HEAD_SKIP;
        else if (n && look(p, s, n, true) == HEAD_PARSE)
            line_done(p, s, n, whole);
    } else {
        l->look_at = SIZE_MAX; /* the head is asked below, of the whole */
        line_more(p, s, n);
        if (!l->skip &&
            (l->keep || look(p, l->held.p, l->held.n, true) == HEAD_PARSE))
            line_done(p, l->held.p, l->held.n, whole);
    }
    if (l->huge)
        say_note(p, "a line of more than %d MiB was skipped",
                 LINE_MAX_BYTES >> 20);
    if (l->held.cap > 1 << 20)
        buf_free(&l->held);
    buf_clear(&l->held);
    l->look_at = 0;
    l->keep = l->skip = l->huge = false;
}

/* plain text: whole characters as they come */
static void text_more(struct parser *p, const char *s, size_t n)
{
    struct buf *held = &p->out.held;
    size_t tail;
    char last;
    struct agent_event ev = {.kind = AGENT_TEXT};

    buf_add(held, s, n);
    tail = text_utf8_tail(buf_str(held), held->n);
    if (held->n <= tail)
        return;
    ev.n = held->n - tail;
    ev.text = held->p;
    last = held->p[ev.n];
    held->p[ev.n] = 0;
    p->text_told = true;
    p->fn(p->arg, &ev);
    held->p[ev.n] = last;
    buf_drop(held, ev.n);
}

static void text_eof(struct parser *p)
{
    struct agent_event ev = {.kind = AGENT_TEXT};
    struct agent_event end = {.kind = AGENT_TEXT_END};

    if (p->out.held.n) {
        ev.text = p->out.held.p;
        ev.n = p->out.held.n;
        p->text_told = true;
        p->fn(p->arg, &ev);
        buf_clear(&p->out.held);
    }
    if (p->text_told)
        p->fn(p->arg, &end);
}

void parser_out(struct parser *p, const char *data, size_t n)
{
    const char *nl;

    if (!p->a->line) {
        text_more(p, data, n);
        return;
    }
    while (n && (nl = memchr(data, '\n', n))) {
        size_t len = (size_t)(nl - data);

        line_end(p, data, len, true);
        data += len + 1;
        n -= len + 1;
    }
    if (n)
        line_more(p, data, n);
}

/* ---- stderr: its last lines explain what nothing else explains ---- */

/* a line without colours and such */
static void add_plain(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\033') {
            buf_addc(out, s[i]);
            continue;
        }
        if (i + 1 < n && s[i + 1] == '[')
            for (i += 2; i < n && (s[i] < '@' || s[i] > '~'); i++)
                ;
    }
}

static void add_tail(struct parser *p, const char *s, size_t n)
{
    AUTO_BUF struct buf plain = {0}, b = {0};

    add_plain(&plain, s, n < ERR_TAIL ? n : ERR_TAIL);
    summary_line(&b, buf_str(&plain), plain.n);
    /* what codex always says */
    if (!b.n || !strncmp(b.p, "Reading additional input", 24) ||
        !strncmp(b.p, "Reading prompt from stdin", 25))
        return;
    if (!strncasecmp(b.p, "warning:", 8))
        say_note(p, "%s", b.p);
    if (p->err_tail.n + b.n > ERR_TAIL)
        buf_clear(&p->err_tail);
    buf_add(&p->err_tail, b.p, b.n + 1);
}

static void err_end(struct parser *p)
{
    if (p->err.held.n)
        add_tail(p, p->err.held.p, p->err.held.n);
    buf_clear(&p->err.held);
}

void parser_err(struct parser *p, const char *data, size_t n)
{
    while (n) {
        const char *nl = memchr(data, '\n', n);
        size_t len = nl ? (size_t)(nl - data) : n;
        size_t room = ERR_TAIL - p->err.held.n;

        buf_add(&p->err.held, data, len < room ? len : room);
        if (nl)
            err_end(p);
        data += len + (nl ? 1 : 0);
        n -= len + (nl ? 1 : 0);
    }
}

/* the line of stderr that says most: one that begins "error", or the last */
static const char *err_line(const struct parser *p)
{
    const char *s = p->err_tail.p, *best = NULL;
    const char *end = s ? s + p->err_tail.n : NULL;

    for (; s < end; s += strlen(s) + 1)
        if (!best || strncasecmp(best, "error: ", 7) ||
            !strncasecmp(s, "error: ", 7))
            best = s;
    if (best && !strncasecmp(best, "error: ", 7))
        best += 7;
    return best;
}

/* ---- the end ---- */

static void add_exit(struct buf *out, int code, bool signaled)
{
    int sig = code > 128 ? code - 128 : signaled ? code : 0;
    const char *name = sig ? sigabbrev_np(sig) : NULL;

    if (signaled)
        buf_addf(out, "killed by signal %d", sig);
    else
        buf_addf(out, "exited %d", code);
    if (name)
        buf_addf(out, " (SIG%s)", name);
}

static void tell_end(struct parser *p, bool ok, const char *text,
                     const char *detail)
{
    struct agent_event ev = {.kind = AGENT_END, .ok = ok, .text = text};

    ev.n = text ? strlen(text) : 0;
    ev.detail = ok ? NULL : detail;
    ev.fault = ok ? AGENT_FAULT_NONE : p->fault.kind;
    ev.usage = p->usage;
    p->fn(p->arg, &ev);
}

/* the stream has no end, or there is none in this format */
static void end_by_exit(struct parser *p, int code, bool signaled)
{
    AUTO_BUF struct buf b = {0}, why = {0};
    const char *line = err_line(p);

    add_exit(&b, code, signaled);
    if (p->a->line && !code && !signaled)
        buf_adds(&b, p->text_told ? " without saying that it was done"
                                  : " without an answer");
    if (!p->a->line) {
        fault_mask(&why, line ? line : "");
        p->fault.kind = AGENT_FAULT_OTHER;
        tell_end(p, !code && !signaled, code || signaled ? b.p : NULL,
                 why.n ? why.p : NULL);
        return;
    }
    if (line && !signaled) {
        struct fault f;

        fault_tell(&f, p->a->service, 0, NULL, line);
        fault_mask(&why, line);
        if (f.kind != AGENT_FAULT_OTHER) {
            size_t n = strlen(f.words);

            /* "no such session (exited 1)" */
            snprintf(f.words + n, sizeof(f.words) - n, " (%s)", b.p);
            verdict_failed(p, &f, line);
            buf_clear(&b);
            buf_adds(&b, f.words);
        }
        buf_addf(&b, ": %s", why.p);
    } else if (p->note) {
        buf_addf(&b, "; before that: %s", p->note);
    }
    if (p->verdict != VERDICT_FAILED)
        p->fault.kind = AGENT_FAULT_OTHER;
    tell_end(p, false, b.p, why.n ? why.p : p->note);
}

void parser_end(struct parser *p, int exit_code, bool signaled)
{
    AUTO_BUF struct buf b = {0};

    err_end(p);
    if (p->a->line)
        line_end(p, NULL, 0, false);
    else
        text_eof(p);
    if (p->a->eof)
        p->a->eof(p);
    say_close(p, NULL);
    if (p->verdict == VERDICT_NONE) {
        end_by_exit(p, exit_code, signaled);
    } else if (p->verdict == VERDICT_OK) {
        tell_end(p, true, NULL, NULL);
    } else {
        buf_adds(&b, p->fault.words);
        if (p->error && *p->error && strcmp(p->error, p->fault.words))
            buf_addf(&b, ": %s", p->error);
        tell_end(p, false, b.p, p->error);
    }
}

/* ---- fenced blocks ---- */

struct fence {
    char c;
    size_t n;
};

/* a fence at the begin of a line, and what stands after it */
static bool fence_at(const char *s, size_t n, struct fence *f,
                     const char **info, size_t *info_n)
{
    size_t i = 0, from;

    while (i < n && i < 3 && s[i] == ' ')
        i++;
    from = i;
    while (i < n && (s[i] == '`' || s[i] == '~') && s[i] == s[from])
        i++;
    if (i - from < 3)
        return false;
    f->c = s[from];
    f->n = i - from;
    while (i < n && (s[i] == ' ' || s[i] == '\t'))
        i++;
    while (n > i && strchr(" \t\r", s[n - 1]))
        n--;
    *info = s + i;
    *info_n = n - i;
    return true;
}

char *agent_last_block(const char *text, size_t n)
{
    struct fence open = {0}, f;
    const char *from = NULL, *best = NULL, *end = text + n;
    size_t best_n = 0;

    for (const char *s = text; s < end;) {
        const char *nl = memchr(s, '\n', (size_t)(end - s)), *info;
        size_t len = (size_t)((nl ? nl : end) - s), info_n;
        const char *next = nl ? nl + 1 : end;

        if (fence_at(s, len, &f, &info, &info_n)) {
            if (!open.n) {
                open = f;
                from = next;
            } else if (f.c == open.c && f.n >= open.n && !info_n) {
                best = from;
                best_n = (size_t)(s - from);
                open.n = 0;
            }
        }
        s = next;
    }
    return best ? xmemdup0(best, best_n) : NULL;
}
