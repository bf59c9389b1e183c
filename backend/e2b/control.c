/*
 * control: the control plane. Routes exist as v1 and v2; v1 is tried first
 * as every server has it, but for the list, which is paged only in v2.
 */
#include "base/text.h"
#include "e2b/fail.h"
#include "e2b/http.h"
#include "e2b/json.h"

enum { SLOW_MS = 75000, PAGES_MAX = 2000 };

/* headers of a request with or without a body; the key's node comes last and
 * is not owned: cut it off with api_headers_free */
static struct curl_slist *api_headers(const struct e2b *x, bool body)
{
    struct curl_slist *h = NULL, *p;

    headers_add(&h, "Accept: application/json");
    if (body)
        headers_add(&h, "Content-Type: application/json");
    for (p = h; p->next; p = p->next)
        ;
    p->next = x->key_header;
    return h;
}

static void api_headers_free(const struct e2b *x, struct curl_slist *h)
{
    for (struct curl_slist *p = h; p; p = p->next)
        if (p->next == x->key_header)
            p->next = NULL;
    headers_free(h);
}

struct api_call {
    const char *method, *path;
    const char *body; /* JSON or NULL */
    bool once;
    int limit_ms;
    struct e2b_cancel *cancel;
};

static int api_call(struct e2b *x, const struct api_call *c,
                    struct http_answer *a, bool *sent, struct err *e)
{
    AUTO_FREE char *url = api_url(x, c->path);
    struct curl_slist *h = api_headers(x, c->body);
    struct http_req r = {.method = c->method,
                         .url = url,
                         .headers = h,
                         .body = c->body,
                         .body_n = c->body ? strlen(c->body) : 0,
                         .once = c->once,
                         .limit_ms = c->limit_ms ? c->limit_ms : HTTP_LIMIT_MS,
                         .cancel = c->cancel};
    int rc = http_call(x, &r, a, sent, e);

    api_headers_free(x, h);
    return rc;
}

static bool success(const struct http_answer *a)
{
    return a->status >= 200 && a->status < 300;
}

/* the route itself is unknown, not what it was asked about */
static bool no_route(const struct http_answer *a)
{
    json_t *j;
    bool named;

    if (a->status == 405)
        return true;
    if (a->status != 404)
        return false;
    j = json_read(a->body.p, a->body.n);
    named = json_int(j, "code", 0) == 404 && json_str(j, "message") &&
            (strstr(json_str(j, "message"), "andbox") ||
             strstr(json_str(j, "message"), "emplate") ||
             strstr(json_str(j, "message"), "tag '"));
    json_decref(j);
    return !named;
}

/* the call in the version that this server has; v1 is "/sandboxes..." */
static int versioned_call(struct e2b *x, struct api_call *c,
                          struct http_answer *a, bool *sent, struct err *e)
{
    bool v2 = __atomic_load_n(&x->use_v2, __ATOMIC_RELAXED);
    AUTO_FREE char *path = xasprintf("%s%s", v2 ? "/v2" : "", c->path);
    AUTO_FREE char *other = xasprintf("%s%s", v2 ? "" : "/v2", c->path);
    struct http_answer b = {0};
    int rc;

    c->path = path;
    rc = api_call(x, c, a, sent, e);
    if (rc || !no_route(a))
        return rc;
    http_answer_clear(&b);
    c->path = other;
    rc = api_call(x, c, &b, sent, e);
    if (!rc && no_route(&b)) { /* neither: the first answer stands */
        http_answer_clear(&b);
        return 0;
    }
    http_answer_clear(a);
    *a = b;
    if (!rc && success(a))
        __atomic_store_n(&x->use_v2, !v2, __ATOMIC_RELAXED);
    return rc;
}

static int answer_box(const struct http_answer *a, struct e2b_box *out,
                      struct err *e)
{
    json_t *j = json_read(a->body.p, a->body.n);
    int rc = box_from_json(j, out, e);

    json_decref(j);
    return rc;
}

/* ---- create ---- */

static json_t *pairs(const struct e2b_pair *v, size_t n)
{
    json_t *o = json_object();

    for (size_t i = 0; i < n; i++)
        if (json_object_set_new(o, v[i].name, json_string(v[i].value))) {
            json_decref(o);
            return NULL;
        }
    return o;
}

static json_t *network_rules(const char *const *allow)
{
    json_t *out = json_array();

    for (; *allow; allow++)
        json_array_append_new(out, json_string(*allow));
    return json_pack("{s:o,s:[s]}", "allowOut", out, "denyOut", "0.0.0.0/0");
}

static int create_text(const struct e2b_create *c, struct buf *out,
                       struct err *e)
{
    json_t *meta = pairs(c->metadata, c->n_metadata);
    json_t *env = pairs(c->env, c->n_env);
    json_t *j = NULL;

    if (meta && env)
        j = json_pack("{s:s,s:i,s:b,s:b,s:b,s:O,s:O}", "templateID",
                      c->template_id ? c->template_id : "base", "timeout",
                      c->timeout, "autoPause", c->auto_pause, "secure", 1,
                      "allow_internet_access", c->internet, "metadata", meta,
                      "envVars", env);
    json_decref(meta);
    json_decref(env);
    if (j && c->allow_out)
        json_object_set_new(j, "network", network_rules(c->allow_out));
    return json_encode(j, out, e);
}

/* what the answer means; everything unclear is -EINPROGRESS */
static int create_answer(const struct http_answer *a, struct e2b_box *out,
                         struct err *e)
{
    int rc;

    if (success(a)) {
        rc = answer_box(a, out, e);
        return rc ? err_set(e, EINPROGRESS,
                            "unclear whether a sandbox was "
                            "made: the answer can't be read")
                  : 0;
    }
    rc = fail_answer(a->status, &a->body, e);
    if (a->status >= 400 && a->status < 500 && a->status != 408)
        return rc;
    if (e)
        e->code = EINPROGRESS;
    err_prefix(e, "unclear whether a sandbox was made");
    return -EINPROGRESS;
}

int e2b_create(struct e2b *x, const struct e2b_create *c, int limit_ms,
               struct e2b_cancel *cancel, struct e2b_box *out, struct err *e)
{
    struct buf body = {0};
    struct http_answer a = {0};
    struct api_call call = {.method = "POST",
                            .path = "/sandboxes",
                            .once = true,
                            .limit_ms = limit_ms,
                            .cancel = cancel};
    bool sent = false;
    int rc;

    memset(out, 0, sizeof(*out));
    if (c->timeout <= 0)
        return err_set(e, EINVAL, "a sandbox needs a timeout above 0 s");
    rc = create_text(c, &body, e);
    if (!rc) {
        call.body = body.p;
        rc = versioned_call(x, &call, &a, &sent, e);
        if (!rc) {
            rc = create_answer(&a, out, e);
        } else if (sent && rc != -ECANCELED) {
            if (e)
                e->code = EINPROGRESS;
            err_prefix(e, "unclear whether a sandbox was made");
            rc = -EINPROGRESS;
        }
    }
    http_answer_clear(&a);
    buf_wipe(&body);
    return rc;
}

/* ---- one sandbox ---- */

/* METHOD /sandboxes/ID[/VERB]; accepts: an extra status that is fine */
static int box_call(struct e2b *x, const char *method, const char *id,
                    const char *verb, const char *body, int limit_ms,
                    struct http_answer *a, struct err *e)
{
    AUTO_FREE char *path = xasprintf("/sandboxes/%s%s", id, verb);
    struct api_call c = {
        .method = method, .path = path, .body = body, .limit_ms = limit_ms};
    bool sent;
    int rc = id_check(id, e);

    return rc ? rc : api_call(x, &c, a, &sent, e);
}

int e2b_get(struct e2b *x, const char *id, struct e2b_box *out, struct err *e)
{
    struct http_answer a = {0};
    int rc;

    memset(out, 0, sizeof(*out));
    rc = box_call(x, "GET", id, "", NULL, 0, &a, e);
    if (!rc && !success(&a))
        rc = fail_answer(a.status, &a.body, e);
    else if (!rc)
        rc = answer_box(&a, out, e);
    http_answer_clear(&a);
    return rc;
}

int e2b_kill(struct e2b *x, const char *id, struct err *e)
{
    struct http_answer a = {0};
    int rc = box_call(x, "DELETE", id, "", NULL, 30000, &a, e);

    if (!rc && !success(&a) && a.status != 404)
        rc = fail_answer(a.status, &a.body, e);
    http_answer_clear(&a);
    return rc;
}

static int state_of(struct e2b *x, const char *id, enum e2b_state *state)
{
    struct e2b_box b;
    int rc = e2b_get(x, id, &b, NULL);

    *state = b.state;
    e2b_box_clear(&b);
    return rc;
}

int e2b_pause(struct e2b *x, const char *id, struct err *e)
{
    struct http_answer a = {0};
    enum e2b_state state;
    int rc = box_call(x, "POST", id, "/pause", "{}", SLOW_MS, &a, e);
    bool unclear = rc == -ETIMEDOUT || rc == -EHOSTUNREACH ||
                   (!rc && (a.status == 409 || a.status >= 500));

    if (!rc && !success(&a))
        rc = fail_answer(a.status, &a.body, e);
    if (unclear && !state_of(x, id, &state) && state == E2B_PAUSED)
        rc = 0;
    http_answer_clear(&a);
    return rc;
}

/* what to ask for, so that a server that sets deadlines doesn't shorten it */
static int extended(const struct e2b_box *now, int timeout_s)
{
    int64_t left = (now->end_ms - now_ms() + 999) / 1000;

    if (now->state == E2B_RUNNING && now->end_ms && left > timeout_s &&
        left < INT32_MAX)
        return (int)left;
    return timeout_s;
}

static int connect_once(struct e2b *x, const char *id, int timeout_s,
                        struct http_answer *a, struct err *e)
{
    AUTO_FREE char *path = xasprintf("/sandboxes/%s/connect", id);
    AUTO_FREE char *body = xasprintf("{\"timeout\":%d}", timeout_s);
    struct api_call c = {
        .method = "POST", .path = path, .body = body, .limit_ms = SLOW_MS};
    bool sent;
    int rc;

    http_answer_clear(a);
    rc = versioned_call(x, &c, a, &sent, e);
    if (!rc && !success(a))
        rc = fail_answer(a->status, &a->body, e);
    return rc;
}

int e2b_connect(struct e2b *x, const char *id, int timeout_s,
                struct e2b_box *out, struct err *e)
{
    struct http_answer a = {0};
    struct e2b_box now;
    int rc, known;

    memset(out, 0, sizeof(*out));
    if (timeout_s <= 0)
        return err_set(e, EINVAL, "a sandbox needs a timeout above 0 s");
    known = e2b_get(x, id, &now, e);
    if (known == -ENOENT || known == -EACCES || known == -EINVAL)
        return known;
    rc = connect_once(x, id, extended(&now, timeout_s), &a, e);
    /* a plan's maximum may forbid what is left: the wish itself then */
    if (rc == -EINVAL && !known && extended(&now, timeout_s) != timeout_s)
        rc = connect_once(x, id, timeout_s, &a, e);
    /* a resume right after a pause is at times not found */
    for (int i = 1; i <= 3 && rc == -ENOENT && !known; i++) {
        sleep_ms(http_backoff(i + 1));
        rc = connect_once(x, id, timeout_s, &a, e);
    }
    if (!rc)
        rc = answer_box(&a, out, e);
    if (!rc) {
        out->state = E2B_RUNNING;
        /* the answer has no metadata: what we saw before still holds */
        if (!out->n_meta && !known) {
            free(out->meta);
            out->meta = now.meta;
            out->n_meta = now.n_meta;
            now.meta = NULL;
            now.n_meta = 0;
        }
    }
    e2b_box_clear(&now);
    http_answer_clear(&a);
    return rc;
}

int e2b_timeout(struct e2b *x, const char *id, int timeout_s, struct err *e)
{
    AUTO_FREE char *body = xasprintf("{\"timeout\":%d}", timeout_s);
    struct http_answer a = {0};
    int rc;

    if (timeout_s < 0)
        return err_set(e, EINVAL, "a timeout can't be negative");
    rc = box_call(x, "POST", id, "/timeout", body, 0, &a, e);
    if (!rc && !success(&a))
        rc = fail_answer(a.status, &a.body, e);
    http_answer_clear(&a);
    return rc;
}

int e2b_api_get(struct e2b *x, const char *path, struct buf *out,
                struct err *e)
{
    struct http_answer a = {0};
    struct api_call c = {.method = "GET", .path = path};
    bool sent;
    int rc = api_call(x, &c, &a, &sent, e);

    if (!rc && !success(&a))
        rc = fail_answer(a.status, &a.body, e);
    if (!rc)
        buf_add(out, a.body.p, a.body.n);
    http_answer_clear(&a);
    return rc;
}

/* ---- list ---- */

struct boxes {
    struct e2b_box *v;
    size_t n, cap;
};

static void boxes_clear(struct boxes *b)
{
    for (size_t i = 0; i < b->n; i++)
        e2b_box_clear(&b->v[i]);
    free(b->v);
    memset(b, 0, sizeof(*b));
}

/* a server that ignores the filter must not hand us other people's */
static bool matches(const struct e2b_box *b, const char *name,
                    const char *value)
{
    for (size_t i = 0; name && i < b->n_meta; i++)
        if (!strcmp(b->meta[i].name, name) && !strcmp(b->meta[i].value, value))
            return true;
    return !name;
}

static int boxes_add(struct boxes *b, const struct http_answer *a,
                     const char *name, const char *value, struct err *e)
{
    json_t *j = json_read(a->body.p, a->body.n), *item;
    struct e2b_box box;
    size_t i;

    if (!json_is_array(j)) {
        json_decref(j);
        return err_set(e, EPROTO, "the list of sandboxes can't be read");
    }
    json_array_foreach(j, i, item)
    {
        if (box_from_json(item, &box, NULL))
            continue;
        if (!matches(&box, name, value)) {
            e2b_box_clear(&box);
            continue;
        }
        if (b->n == b->cap) {
            b->cap = b->cap * 2 + 16;
            b->v = xrealloc(b->v, b->cap * sizeof(*b->v));
        }
        b->v[b->n++] = box;
    }
    json_decref(j);
    return 0;
}

/* the name and the value are encoded each, and the pair twice more */
static void add_filter(struct buf *path, const char *name, const char *value)
{
    AUTO_BUF struct buf n1 = {0}, v1 = {0}, n2 = {0}, v2 = {0}, pair = {0};

    url_escape(&n1, name);
    url_escape(&v1, value);
    url_escape(&n2, buf_str(&n1));
    url_escape(&v2, buf_str(&v1));
    buf_addf(&pair, "%s=%s", buf_str(&n2), buf_str(&v2));
    buf_adds(path, "metadata=");
    url_escape(path, pair.p);
}

static int list_page(struct e2b *x, bool v2, const char *name,
                     const char *value, const char *token,
                     struct http_answer *a, struct err *e)
{
    AUTO_BUF struct buf path = {0};
    struct api_call c = {.method = "GET"};
    bool sent;

    buf_adds(&path, v2 ? "/v2/sandboxes?state=running,paused&limit=100&"
                       : "/sandboxes?");
    if (name)
        add_filter(&path, name, value);
    if (*token) {
        buf_adds(&path, "&nextToken=");
        url_escape(&path, token);
    }
    if (strchr("?&", path.p[path.n - 1]))
        path.p[--path.n] = 0;
    c.path = path.p;
    http_answer_clear(a);
    return api_call(x, &c, a, &sent, e);
}

static int list_all(struct e2b *x, const char *name, const char *value,
                    struct boxes *all, struct http_answer *a, struct err *e)
{
    char token[sizeof(a->next_token)] = "";
    bool v2 = true;
    int rc;

    for (int page = 0; page < PAGES_MAX; page++) {
        rc = list_page(x, v2, name, value, token, a, e);
        if (!rc && v2 && !page && no_route(a)) {
            v2 = false;
            rc = list_page(x, v2, name, value, token, a, e);
        }
        if (!rc && !success(a))
            rc = fail_answer(a->status, &a->body, e);
        if (!rc)
            rc = boxes_add(all, a, name, value, e);
        if (rc || !*a->next_token)
            return rc;
        if (!strcmp(token, a->next_token))
            break;
        memcpy(token, a->next_token, sizeof(token));
    }
    return err_set(e, EPROTO, "the list of sandboxes has no end");
}

int e2b_list(struct e2b *x, const char *meta_name, const char *meta_value,
             struct e2b_box **out, size_t *n, struct err *e)
{
    struct http_answer a = {0};
    struct boxes all = {0};
    int rc = list_all(x, meta_name, meta_value ? meta_value : "", &all, &a, e);

    if (rc)
        boxes_clear(&all);
    *out = all.v;
    *n = all.n;
    http_answer_clear(&a);
    return rc;
}

/* ---- logs ---- */

static void log_line(json_t *v, struct buf *out)
{
    const char *when = json_str(v, "timestamp");
    const char *level = json_str(v, "level");
    const char *msg = json_str(v, "message");
    const char *parts[] = {when, level, msg};

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (!parts[i])
            continue;
        text_printable(out, parts[i], strlen(parts[i]), PRINTABLE_TABS);
        buf_addc(out, i + 1 < ARRAY_LEN(parts) ? ' ' : '\n');
    }
    if (!msg)
        buf_addc(out, '\n');
}

int e2b_logs(struct e2b *x, const char *id, struct buf *out, struct err *e)
{
    struct http_answer a = {0};
    json_t *j = NULL, *list, *v;
    size_t i;
    int rc = box_call(x, "GET", id, "/logs", NULL, 0, &a, e);

    if (!rc && !success(&a))
        rc = fail_answer(a.status, &a.body, e);
    if (!rc) {
        j = json_read(a.body.p, a.body.n);
        if (!j)
            rc = err_set(e, EPROTO, "the logs can't be read");
    }
    list = json_object_get(j, "logEntries");
    if (!json_is_array(list))
        list = json_object_get(j, "logs");
    json_array_foreach(list, i, v) log_line(v, out);
    json_decref(j);
    http_answer_clear(&a);
    return rc;
}
