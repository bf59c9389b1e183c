#include "local/control.h"

#include "local/http.h"

#include <time.h>

enum { LIMIT_MAX = 100 };

void list_time(int64_t ms, char out[40])
{
    time_t secs = (time_t)(ms / 1000);
    struct tm tm;
    char day[24];

    gmtime_r(&secs, &tm);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 40, "%s.%03dZ", day, (int)(ms % 1000));
}

json_t *list_sandbox(struct box *b, const struct box_info *info)
{
    const struct box_spec *s = box_spec(b);
    char started[40], end[40];

    list_time(info->started, started);
    list_time(info->end_at, end);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:O, "
        "s:s, s:s, s:[]}",
        "sandboxID", box_id(b), "templateID", s->template, "alias",
        s->template, "clientID", "local", "startedAt", started, "endAt", end,
        "cpuCount", (json_int_t)(s->cpus < 1 ? 1 : s->cpus), "memoryMB",
        (json_int_t)s->memory_mb, "diskSizeMB", BOX_DISK_MB, "metadata",
        s->metadata, "state", info->state == BOX_PAUSED ? "paused" : "running",
        "envdVersion", "0.6.13", "volumeMounts");
}

/* ---- the metadata filter ---- */

/* one "key=value" of it, each escaped; 1, 0 or -EINVAL */
static int match_pair(json_t *metadata, const char *p, size_t n)
{
    const char *eq = memchr(p, '=', n);
    AUTO_BUF struct buf key = {0};
    AUTO_BUF struct buf value = {0};
    const char *have;
    size_t k;

    if (!eq || memchr(eq + 1, '=', n - (size_t)(eq - p) - 1))
        return -EINVAL;
    k = (size_t)(eq - p);
    if (!http_unescape(&key, p, k, true) ||
        !http_unescape(&value, eq + 1, n - k - 1, true))
        return -EINVAL;
    have = json_string_value(json_object_get(metadata, buf_str(&key)));
    return have && strcmp(have, buf_str(&value)) == 0;
}

int list_match(json_t *metadata, const char *filter)
{
    AUTO_BUF struct buf f = {0};
    int all = 1;

    if (!filter || !*filter)
        return 1;
    if (!http_unescape(&f, filter, strlen(filter), true))
        return -EINVAL;
    for (const char *p = buf_str(&f); *p;) {
        size_t n = strcspn(p, "&");
        int one = match_pair(metadata, p, n);

        if (one < 0)
            return one;
        all = all && one;
        p += n + (p[n] ? 1 : 0);
    }
    return all;
}

/* ---- pages ---- */

struct found {
    struct box *b;
    struct box_info info;
};

struct page {
    bool running, paused, ascending;
    const char *metadata, *template;
    int64_t after, limit;
    int64_t token_at; /* -1: from the start */
    char token_id[32];
};

static int older(const void *x, const void *y)
{
    const struct found *a = x, *b = y;

    if (a->info.started != b->info.started)
        return a->info.started < b->info.started ? -1 : 1;
    return strcmp(box_id(a->b), box_id(b->b));
}

static void token_make(struct buf *out, const struct found *f, bool ascending)
{
    AUTO_FREE char *text = xasprintf("%lld__%s%s", (long long)f->info.started,
                                     box_id(f->b), ascending ? "__asc" : "");

    base64_encode(out, text, strlen(text));
    for (size_t i = 0; i < out->n; i++)
        out->p[i] = out->p[i] == '+'   ? '-'
                    : out->p[i] == '/' ? '_'
                                       : out->p[i];
    while (out->n && out->p[out->n - 1] == '=')
        out->p[--out->n] = 0;
}

static bool token_read(struct page *p, const char *token)
{
    AUTO_FREE char *t = xstrdup(token);
    AUTO_BUF struct buf padded = {0};
    AUTO_BUF struct buf text = {0};
    long long at;
    char rest[64] = "";

    for (char *c = t; *c; c++)
        *c = *c == '-' ? '+' : *c == '_' ? '/' : *c;
    buf_adds(&padded, t);
    while (padded.n % 4)
        buf_addc(&padded, '=');
    if (base64_decode(&text, padded.p, padded.n) < 0 ||
        sscanf(buf_str(&text), "%lld__%21[a-z0-9]%63s", &at, p->token_id,
               rest) < 2)
        return false;
    p->token_at = at;
    return strcmp(rest, p->ascending ? "__asc" : "") == 0;
}

static bool states_read(struct page *p, const char *state)
{
    if (!state || !*state) {
        p->running = p->paused = true;
        return true;
    }
    while (*state) {
        size_t n = strcspn(state, ",");

        if (n == 7 && strncmp(state, "running", 7) == 0)
            p->running = true;
        else if (n == 6 && strncmp(state, "paused", 6) == 0)
            p->paused = true;
        else
            return false;
        state += n + (state[n] ? 1 : 0);
    }
    return true;
}

/* NULL, or why not */
static const char *page_read(struct req *r, struct page *p)
{
    const char *order = req_query(r, "order");
    const char *limit = req_query(r, "limit");
    const char *after = req_query(r, "startedAfter");
    const char *token = req_query(r, "nextToken");

    *p = (struct page){.limit = LIMIT_MAX,
                       .token_at = -1,
                       .metadata = req_query(r, "metadata"),
                       .template = req_query(r, "template")};
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return "order must be asc or desc";
    p->ascending = order && *order == 'a';
    if (!states_read(p, req_query(r, "state")))
        return "state must be running, paused or both";
    if (limit && *limit && !text_int(limit, 1, LIMIT_MAX, &p->limit))
        return "limit must be 1 to 100";
    if (after && *after && (p->after = time_parse(after)) < 0)
        return "startedAfter must be a time as of RFC 3339";
    if (token && *token && !token_read(p, token))
        return "Invalid next token";
    return NULL;
}

static bool beyond_token(const struct page *p, const struct found *f)
{
    int64_t at = f->info.started;
    int order = strcmp(box_id(f->b), p->token_id);

    if (p->token_at < 0)
        return true;
    if (at != p->token_at)
        return p->ascending ? at > p->token_at : at < p->token_at;
    return p->ascending ? order > 0 : order < 0;
}

static int wanted(const struct page *p, const struct found *f)
{
    const struct box_spec *s = box_spec(f->b);
    int rc = list_match(s->metadata, p->metadata);

    if (rc <= 0)
        return rc;
    if (p->template && *p->template && strcmp(p->template, s->template) != 0)
        return 0;
    if (f->info.started < p->after)
        return 0;
    return f->info.state == BOX_PAUSED ? p->paused : p->running;
}

/* the boxes that match, in order; -EINVAL for a malformed filter */
static int collect(const struct page *p, struct found **out, size_t *n,
                   int *running)
{
    size_t all_n;
    struct box **all = box_all(&all_n);
    int rc = list_match(NULL, p->metadata);

    *out = xcalloc(all_n, sizeof(**out));
    *n = 0;
    *running = 0;
    for (size_t i = 0; i < all_n; i++) {
        struct found f = {.b = all[i]};
        int one = 0;

        if (rc >= 0 && box_look(f.b, &f.info))
            one = wanted(p, &f);
        if (one > 0) {
            (*out)[(*n)++] = f;
            *running += f.info.state == BOX_RUNNING;
        } else {
            box_put(f.b);
        }
    }
    free(all);
    qsort(*out, *n, sizeof(**out), older);
    return rc < 0 ? rc : 0;
}

static void answer(struct req *r, const struct page *p, struct found *f,
                   size_t n, bool v2)
{
    json_t *out = json_array();
    int64_t left = v2 ? p->limit : INT64_MAX;
    const struct found *last = NULL;

    for (size_t i = 0; i < n; i++) {
        const struct found *one = &f[p->ascending ? i : n - 1 - i];

        if (!beyond_token(p, one))
            continue;
        if (left-- == 0) {
            AUTO_BUF struct buf token = {0};

            token_make(&token, last, p->ascending);
            reply_header(r, "X-Next-Token", token.p);
            break;
        }
        json_array_append_new(out, list_sandbox(one->b, &one->info));
        last = one;
    }
    reply_json(r, 200, out);
}

void list_handle(struct req *r, bool v2)
{
    struct page p = {.running = true, .limit = LIMIT_MAX, .token_at = -1};
    const char *why = NULL;
    struct found *f;
    size_t n;
    int running;
    char text[16];

    if (v2)
        why = page_read(r, &p);
    else
        p.metadata = req_query(r, "metadata");
    if (why) {
        control_fail(r, 400, "%s", why);
        return;
    }
    if (collect(&p, &f, &n, &running) < 0) {
        control_fail(r, 400, "metadata must be key=value pairs");
    } else {
        snprintf(text, sizeof(text), "%d", running);
        if (v2 && p.running)
            reply_header(r, "X-Total-Running", text);
        answer(r, &p, f, n, v2);
    }
    for (size_t i = 0; i < n; i++)
        box_put(f[i].b);
    free(f);
}
