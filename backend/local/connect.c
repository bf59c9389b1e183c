#include "local/connect.h"

#include <strings.h>
#include <zlib.h>

static const struct {
    const char *word;
    int status;
} codes[] = {
    {"canceled", 499},
    {"unknown", 500},
    {"invalid_argument", 400},
    {"deadline_exceeded", 504},
    {"not_found", 404},
    {"already_exists", 409},
    {"permission_denied", 403},
    {"resource_exhausted", 429},
    {"failed_precondition", 400},
    {"aborted", 409},
    {"out_of_range", 400},
    {"unimplemented", 501},
    {"internal", 500},
    {"unavailable", 503},
    {"data_loss", 500},
    {"unauthenticated", 401},
};

static int code_status(const char *code)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (!strcmp(codes[i].word, code))
            return codes[i].status;
    return 500;
}

const char *rpc_code(int err)
{
    switch (err < 0 ? -err : err) {
    case ENOENT:
    case ESRCH:
    case ENOTDIR:
        return "not_found";
    case EACCES:
    case EPERM:
    case EROFS:
        return "permission_denied";
    case EEXIST:
        return "already_exists";
    case EINVAL:
    case ENAMETOOLONG:
    case EISDIR:
    case EILSEQ:
        return "invalid_argument";
    case ELOOP:
        return "failed_precondition";
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case E2BIG:
        return "resource_exhausted";
    case ESHUTDOWN:
        return "unavailable";
    case ETIMEDOUT:
        return "deadline_exceeded";
    case ENOTSUP:
        return "unimplemented";
    }
    return "internal";
}

/* ---- fields ---- */

json_t *field(const json_t *o, const char *camel)
{
    char snake[64];
    size_t n = 0;
    json_t *v = json_object_get(o, camel);

    if (!v) {
        for (const char *c = camel; *c && n + 2 < sizeof(snake); c++) {
            bool upper = *c >= 'A' && *c <= 'Z';

            if (upper)
                snake[n++] = '_';
            snake[n++] = upper ? (char)(*c - 'A' + 'a') : *c;
        }
        snake[n] = 0;
        v = json_object_get(o, snake);
    }
    return json_is_null(v) ? NULL : v;
}

const char *field_str(const json_t *o, const char *camel)
{
    const char *s = json_string_value(field(o, camel));

    return s ? s : "";
}

bool field_bool(const json_t *o, const char *camel, bool absent)
{
    json_t *v = field(o, camel);

    return v ? json_is_true(v) : absent;
}

bool field_int(const json_t *o, const char *camel, int64_t *out)
{
    json_t *v = field(o, camel);

    *out = 0;
    if (!v)
        return true;
    if (json_is_integer(v))
        *out = json_integer_value(v);
    else if (json_is_real(v) && json_real_value(v) > -1e15 &&
             json_real_value(v) < 1e15)
        *out = (int64_t)json_real_value(v);
    else
        return json_is_string(v) &&
               text_int(json_string_value(v), INT64_MIN, INT64_MAX, out);
    return true;
}

json_t *json_text(const char *s)
{
    AUTO_BUF struct buf b = {0};
    size_t n = strlen(s), from = 0;

    if (text_utf8_valid(s, n))
        return json_stringn_nocheck(s, n);
    while (from < n) {
        size_t len = 1;

        while (len < 4 && from + len < n && !text_utf8_valid(s + from, len))
            len++;
        if (text_utf8_valid(s + from, len)) {
            buf_add(&b, s + from, len);
        } else {
            len = 1;
            buf_addf(&b, "\\x%02x", (unsigned char)s[from]);
        }
        from += len;
    }
    return json_stringn_nocheck(buf_str(&b), b.n);
}

/* ---- answers ---- */

static json_t *error_object(const char *code, const char *text)
{
    return json_pack("{s:s, s:o}", "code", code, "message", json_text(text));
}

void rpc_fail(struct req *r, const char *code, const char *fmt, ...)
{
    AUTO_BUF struct buf b = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    reply_json(r, code_status(code), error_object(code, buf_str(&b)));
}

void http_fail(struct req *r, int status, const char *fmt, ...)
{
    AUTO_BUF struct buf b = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    reply_json(r, status,
               json_pack("{s:i, s:o}", "code", status, "message",
                         json_text(buf_str(&b))));
}

void rpc_reply(struct req *r, json_t *j)
{
    reply_json(r, 200, j);
}

/* ---- requests ---- */

bool rpc_type_is(struct req *r, const char *type)
{
    const char *have = req_header(r, "Content-Type");
    size_t n = strlen(type);

    return have && !strncasecmp(have, type, n) &&
           (!have[n] || have[n] == ';' || have[n] == ' ');
}

static bool type_check(struct req *r, const char *type)
{
    if (rpc_type_is(r, type))
        return true;
    reply_header(r, "Accept-Post", type);
    reply(r, 415, "text/plain", "", 0);
    return false;
}

static json_t *parse(const char *p, size_t n, char *why, size_t why_n)
{
    json_error_t je;
    json_t *j;

    if (!n)
        return json_object();
    j = json_loadb(p, n, 0, &je);
    if (!j)
        snprintf(why, why_n, "malformed JSON: %s", je.text);
    else if (!json_is_object(j))
        snprintf(why, why_n, "malformed message: not an object");
    else
        return j;
    json_decref(j);
    return NULL;
}

int64_t rpc_deadline(struct req *r, int64_t *timeout_ms)
{
    const char *h = req_header(r, "Connect-Timeout-Ms");
    int64_t ms;

    if (timeout_ms)
        *timeout_ms = 0;
    if (!h || !*h)
        return 0;
    if (!text_int(h, 0, 9999999999, &ms))
        return -EINVAL;
    if (timeout_ms)
        *timeout_ms = ms;
    return mono_ms() + ms;
}

json_t *rpc_request(struct req *r)
{
    char why[300];
    json_t *j;

    if (!type_check(r, "application/json"))
        return NULL;
    if (rpc_deadline(r, NULL) < 0) {
        rpc_fail(r, "invalid_argument", "protocol error: invalid timeout");
        return NULL;
    }
    j = parse(r->body.p, r->body.n, why, sizeof(why));
    if (!j)
        rpc_fail(r, "invalid_argument", "%s", why);
    return j;
}

/* the user of Basic auth; "" if there is none */
static void basic_user(struct req *r, char out[64])
{
    const char *h = req_header(r, "Authorization");
    AUTO_BUF struct buf b = {0};
    const char *end;

    out[0] = 0;
    if (!h || strncasecmp(h, "Basic ", 6) ||
        base64_decode(&b, h + 6, strlen(h + 6)))
        return;
    end = memchr(buf_str(&b), ':', b.n);
    if (end)
        snprintf(out, 64, "%.*s", (int)(end - b.p), b.p);
}

int rpc_user(struct req *r, bool *as_root, struct err *e)
{
    char user[64];

    basic_user(r, user);
    *as_root = !strcmp(user, "root");
    if (*user && !*as_root && strcmp(user, "user"))
        return err_set(e, EACCES, "invalid username: '%s'", user);
    return 0;
}

/* ---- envelopes ---- */

void envelope_add(struct buf *out, int flags, const void *p, size_t n)
{
    unsigned char h[ENVELOPE_HEAD] = {
        (unsigned char)flags, (unsigned char)(n >> 24),
        (unsigned char)(n >> 16), (unsigned char)(n >> 8), (unsigned char)n};

    buf_reserve(out, sizeof(h) + n);
    buf_add(out, h, sizeof(h));
    buf_add(out, p, n);
}

static int gunzip(const char *p, size_t n, struct buf *out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n};
    int e;

    if (inflateInit2(&z, 15 + 32) != Z_OK)
        return -EINVAL;
    do {
        buf_reserve(out, 16384);
        z.next_out = (Bytef *)(out->p + out->n);
        z.avail_out = 16384;
        e = inflate(&z, Z_NO_FLUSH);
        out->n += 16384 - z.avail_out;
        out->p[out->n] = 0;
    } while (e == Z_OK && out->n <= ENVELOPE_MAX);
    inflateEnd(&z);
    if (out->n > ENVELOPE_MAX)
        return -EMSGSIZE;
    return e == Z_STREAM_END ? 0 : -EINVAL;
}

ssize_t envelope_take(const char *in, size_t n, int *flags, struct buf *out)
{
    const unsigned char *h = (const unsigned char *)in;
    size_t len;
    int e = 0;

    if (n < ENVELOPE_HEAD)
        return 0;
    len = (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
    *flags = h[0];
    if (h[0] & ~(ENVELOPE_GZIP | ENVELOPE_END))
        return -EINVAL;
    if (len > ENVELOPE_MAX)
        return -EMSGSIZE;
    if (n - ENVELOPE_HEAD < len)
        return 0;
    buf_clear(out);
    if (h[0] & ENVELOPE_GZIP)
        e = gunzip(in + ENVELOPE_HEAD, len, out);
    else
        buf_add(out, in + ENVELOPE_HEAD, len);
    return e ? e : (ssize_t)(ENVELOPE_HEAD + len);
}

/* ---- streams ---- */

static json_t *only_message(struct stream *s)
{
    AUTO_BUF struct buf b = {0};
    char why[300];
    ssize_t used;
    int flags;
    json_t *j;

    used = envelope_take(s->r->body.p, s->r->body.n, &flags, &b);
    if (used < 0 || (used == 0 && s->r->body.n)) {
        stream_end(s, "invalid_argument",
                   "protocol error: incomplete envelope");
        return NULL;
    }
    if (used == 0 || (flags & ENVELOPE_END)) {
        stream_end(s, "unimplemented", "unary request has zero messages");
        return NULL;
    }
    if ((size_t)used < s->r->body.n) {
        stream_end(s, "unimplemented", "unary request has multiple messages");
        return NULL;
    }
    j = parse(b.p, b.n, why, sizeof(why));
    if (!j)
        stream_end(s, "invalid_argument", "%s", why);
    return j;
}

json_t *stream_open(struct stream *s, struct req *r)
{
    const char *ping = req_header(r, "Keepalive-Ping-Interval");
    double secs;

    memset(s, 0, sizeof(*s));
    s->r = r;
    s->keepalive_ms = 90000;
    if (!type_check(r, "application/connect+json"))
        return NULL;
    if (ping && text_double(ping, 0.01, 1e6, &secs))
        s->keepalive_ms = (int64_t)(secs * 1000);
    s->deadline = rpc_deadline(r, &s->timeout_ms);
    if (s->deadline < 0) {
        rpc_fail(r, "invalid_argument", "protocol error: invalid timeout");
        return NULL;
    }
    if (reply_begin(r, 200, "application/connect+json", -1)) {
        reply_end(r);
        return NULL;
    }
    return only_message(s);
}

int stream_send(struct stream *s, const char *json, size_t n)
{
    AUTO_BUF struct buf b = {0};

    envelope_add(&b, 0, json, n);
    return reply_write(s->r, b.p, b.n);
}

void stream_end(struct stream *s, const char *code, const char *fmt, ...)
{
    AUTO_BUF struct buf text = {0}, b = {0};
    AUTO_FREE char *json = NULL;
    json_t *j = NULL;
    va_list ap;

    if (code) {
        va_start(ap, fmt);
        buf_vaddf(&text, fmt, ap);
        va_end(ap);
        j = json_pack("{s:o}", "error", error_object(code, buf_str(&text)));
        json = json_dumps(j, JSON_COMPACT);
        json_decref(j);
    }
    envelope_add(&b, ENVELOPE_END, json ? json : "{}",
                 json ? strlen(json) : 2);
    reply_write(s->r, b.p, b.n);
    reply_end(s->r);
}
