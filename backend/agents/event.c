#include "agents/event.h"

#include <ctype.h>

static void tell(struct parser *p, struct agent_event *ev)
{
    if (!ev->text)
        ev->n = 0;
    p->fn(p->arg, ev);
}

/* ---- halves of surrogate pairs ---- */

/* the half that stream.c has hidden at s, or 0 */
static uint32_t hidden_half(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;

    if (n < 4 || u[0] != 0xf4 || u[1] != 0x8d || u[2] < 0xa0)
        return 0;
    return 0xd000u | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
}

static void add_lost(struct buf *out, uint32_t *high)
{
    if (*high)
        buf_adds(out, "\xef\xbf\xbd");
    *high = 0;
}

static void add_half(struct buf *out, uint32_t half, uint32_t *high)
{
    uint32_t v;
    char c[4];

    if (half < 0xdc00) {
        add_lost(out, high);
        *high = half;
        return;
    }
    if (!*high) {
        buf_adds(out, "\xef\xbf\xbd");
        return;
    }
    v = 0x10000 + ((*high - 0xd800) << 10) + (half - 0xdc00);
    c[0] = (char)(0xf0 | v >> 18);
    c[1] = (char)(0x80 | (v >> 12 & 0x3f));
    c[2] = (char)(0x80 | (v >> 6 & 0x3f));
    c[3] = (char)(0x80 | (v & 0x3f));
    buf_add(out, c, 4);
    *high = 0;
}

/* the bytes with the halves joined; one at the end waits in *high */
static void join(struct buf *out, const char *s, size_t n, bool lone,
                 uint32_t *high)
{
    size_t from = 0;

    if (n && (!lone || !hidden_half(s, n)))
        add_lost(out, high);
    for (size_t i = 0; lone && i + 4 <= n; i++) {
        uint32_t half = hidden_half(s + i, n - i);

        if (!half)
            continue;
        if (i > from)
            add_lost(out, high);
        buf_add(out, s + from, i - from);
        add_half(out, half, high);
        from = i + 4;
        i += 3;
    }
    if (n > from)
        add_lost(out, high);
    buf_add(out, s + from, n - from);
}

static void join_all(struct parser *p, struct buf *out, const json_t *s)
{
    uint32_t high = 0;

    join(out, json_string_value(s), json_string_length(s), p->lone, &high);
    add_lost(out, &high);
}

/* ---- text ---- */

static bool same(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

static void set_str(char **to, const char *s)
{
    if (same(*to, s))
        return;
    free(*to);
    *to = xstrdup(s);
}

static void forget_open(struct parser *p)
{
    buf_clear(&p->open);
    p->high = 0;
}

static void tell_text(struct parser *p, const char *s, size_t n)
{
    struct agent_event ev = {.kind = AGENT_TEXT, .text = s, .n = n};

    if (!n)
        return;
    p->text_told = true;
    set_str(&p->note, NULL);
    tell(p, &ev);
}

static void tell_text_end(struct parser *p)
{
    struct agent_event ev = {.kind = AGENT_TEXT_END};

    tell(p, &ev);
    forget_open(p);
}

void say_retract(struct parser *p)
{
    struct agent_event ev = {.kind = AGENT_RETRACT};

    if (p->open.n)
        tell(p, &ev);
    forget_open(p);
}

void say_piece(struct parser *p, const char *id, const json_t *s)
{
    size_t from;

    if (!json_is_string(s))
        return;
    if (p->open.n && id && p->open_id && strcmp(id, p->open_id))
        say_retract(p);
    set_str(&p->open_id, id);
    from = p->open.n;
    join(&p->open, json_string_value(s), json_string_length(s), p->lone,
         &p->high);
    tell_text(p, p->open.p + from, p->open.n - from);
}

static bool was_closed(const struct parser *p, const char *id, uint64_t hash)
{
    if (!same(id, p->closed_id))
        return false;
    for (size_t i = 0; i < p->closed_n; i++)
        if (p->closed[i] == hash)
            return true;
    return false;
}

void say_whole(struct parser *p, const char *id, const json_t *s)
{
    AUTO_BUF struct buf b = {0};
    size_t told;

    if (!json_is_string(s) || !json_string_length(s))
        return;
    join_all(p, &b, s);
    if (was_closed(p, id, text_hash(b.p, b.n)))
        return;
    if (p->open.n && ((id && p->open_id && strcmp(id, p->open_id)) ||
                      p->open.n > b.n || memcmp(p->open.p, b.p, p->open.n)))
        say_retract(p);
    told = p->open.n;
    tell_text(p, b.p + told, b.n - told);
    tell_text_end(p);
}

void say_close(struct parser *p, const char *id)
{
    size_t from = p->open.n;

    if (!from)
        return;
    add_lost(&p->open, &p->high);
    tell_text(p, p->open.p + from, p->open.n - from);
    if (!same(id, p->closed_id))
        p->closed_n = 0;
    set_str(&p->closed_id, id);
    if (p->closed_n < CLOSED_MAX)
        p->closed[p->closed_n++] = text_hash(p->open.p, p->open.n);
    tell_text_end(p);
}

void say_thinking(struct parser *p, const json_t *s)
{
    AUTO_BUF struct buf b = {0};
    struct agent_event ev = {.kind = AGENT_THINKING};

    if (!json_is_string(s) || !json_string_length(s))
        return;
    join_all(p, &b, s);
    ev.text = b.p;
    ev.n = b.n;
    tell(p, &ev);
}

/* ---- tools ---- */

static void tell_summary(struct parser *p, struct agent_event *ev,
                         struct buf *b)
{
    AUTO_BUF struct buf out = {0};
    uint32_t high = 0;

    join(&out, buf_str(b), b->n, p->lone, &high);
    add_lost(&out, &high);
    ev->text = buf_str(&out);
    ev->n = out.n;
    set_str(&p->note, NULL);
    tell(p, ev);
}

void say_tool_words(struct parser *p, const char *name, const char *id,
                    const char *words)
{
    AUTO_BUF struct buf b = {0};
    struct agent_event ev = {
        .kind = AGENT_TOOL, .name = name ? name : "tool", .id = id};

    summary_line(&b, words, strlen(words));
    tell_summary(p, &ev, &b);
}

void say_tool(struct parser *p, const char *name, const char *id,
              const json_t *input)
{
    AUTO_BUF struct buf b = {0};
    struct agent_event ev = {
        .kind = AGENT_TOOL, .name = name ? name : "tool", .id = id};

    summary_tool(&b, input, p->cwd);
    tell_summary(p, &ev, &b);
}

void say_result(struct parser *p, const char *id, bool ok, const json_t *out)
{
    AUTO_BUF struct buf all = {0}, b = {0};
    struct agent_event ev = {.kind = AGENT_TOOL_RESULT, .id = id, .ok = ok};
    const json_t *item;
    size_t i;

    if (json_is_string(out))
        summary_line(&b, json_string_value(out), json_string_length(out));
    json_array_foreach(out, i, item)
    {
        const json_t *s = json_object_get(item, "text");

        if (!json_is_string(s))
            continue;
        buf_add(&all, json_string_value(s), json_string_length(s));
        buf_addc(&all, '\n');
        if (all.n > 2 * SUMMARY_MAX)
            break;
    }
    summary_line(&b, buf_str(&all), all.n);
    tell_summary(p, &ev, &b);
}

/* ---- the rest ---- */

static bool session_ok(const char *s)
{
    size_t n = strlen(s);

    if (!n || n > 200 || *s == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
            return false;
    return true;
}

void say_session(struct parser *p, const char *id, const char *model)
{
    struct agent_event ev = {.kind = AGENT_SESSION};
    bool news;

    if (id && !session_ok(id))
        id = NULL;
    news = (id && !same(id, p->session)) || (model && !same(model, p->model));
    if (!news)
        return;
    if (id)
        set_str(&p->session, id);
    if (model)
        set_str(&p->model, model);
    if (!p->session)
        return;
    ev.text = p->session;
    ev.n = strlen(p->session);
    ev.model = p->model;
    tell(p, &ev);
}

void say_note(struct parser *p, const char *fmt, ...)
{
    AUTO_BUF struct buf b = {0}, line = {0};
    struct agent_event ev = {.kind = AGENT_NOTE};
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    summary_line(&line, buf_str(&b), b.n);
    buf_clear(&b);
    fault_mask(&b, buf_str(&line));
    if (!b.n || same(b.p, p->note))
        return;
    set_str(&p->note, b.p);
    ev.text = b.p;
    ev.n = b.n;
    tell(p, &ev);
}

void say_retry(struct parser *p, const struct fault *f, int64_t n, int64_t max)
{
    if (max)
        say_note(p, "%s, retrying %lld/%lld", f->words, (long long)n,
                 (long long)max);
    else
        say_note(p, "%s, retrying", f->words);
}

void say_usage(struct parser *p)
{
    struct agent_event ev = {.kind = AGENT_USAGE, .usage = p->usage};
    const struct agent_usage *a = &p->usage, *b = &p->told;

    if (p->usage_told && a->input == b->input && a->output == b->output &&
        a->cache_read == b->cache_read && a->cache_write == b->cache_write &&
        a->usd == b->usd)
        return;
    p->usage_told = true;
    p->told = p->usage;
    tell(p, &ev);
}

void verdict_ok(struct parser *p)
{
    p->verdict = VERDICT_OK;
}

void verdict_none(struct parser *p)
{
    p->verdict = VERDICT_NONE;
}

void verdict_failed(struct parser *p, const struct fault *f,
                    const char *detail)
{
    AUTO_BUF struct buf line = {0}, b = {0};
    struct agent_event ev = {.kind = AGENT_ERROR};

    if (detail)
        summary_line(&line, detail, strlen(detail));
    fault_mask(&b, buf_str(&line));
    p->verdict = VERDICT_FAILED;
    p->fault = *f;
    set_str(&p->error, buf_str(&b));
    if (same(p->error, p->error_told))
        return;
    set_str(&p->error_told, p->error);
    ev.text = p->fault.words;
    ev.n = strlen(ev.text);
    ev.detail = p->error;
    ev.fault = f->kind;
    tell(p, &ev);
}
