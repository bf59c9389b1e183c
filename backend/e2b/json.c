#include "e2b/json.h"

#include "base/text.h"
#include "e2b/endpoint.h"

#include <ctype.h>

/* ---- reading ---- */

static int hex4(const char *p, size_t n)
{
    int v = 0;

    if (n < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int c = tolower((unsigned char)p[i]);

        if (!isxdigit(c))
            return -1;
        v = v << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return v;
}

/* copies the escape at p (a backslash), mended; returns its length */
static size_t scrub_escape(struct buf *out, const char *p, size_t n)
{
    int a, b = -1;

    if (n < 2 || p[1] != 'u') {
        buf_add(out, p, n < 2 ? n : 2);
        return n < 2 ? n : 2;
    }
    a = hex4(p + 2, n - 2);
    if (n >= 12 && p[6] == '\\' && p[7] == 'u')
        b = hex4(p + 8, n - 8);
    if (a < 0) {
        buf_adds(out, "\\ufffd");
        return 2;
    }
    if (a >= 0xd800 && a < 0xdc00 && b >= 0xdc00 && b < 0xe000) {
        buf_add(out, p, 12);
        return 12;
    }
    if (a >= 0xd800 && a < 0xe000)
        buf_adds(out, "\\ufffd");
    else
        buf_add(out, p, 6);
    return 6;
}

static size_t utf8_step(const char *p, size_t n)
{
    for (size_t len = 2; len <= 4 && len <= n; len++)
        if (text_utf8_valid(p, len))
            return len;
    return 0;
}

static void scrub(struct buf *out, const char *p, size_t n)
{
    bool str = false;
    size_t i = 0, len;

    while (i < n) {
        unsigned char c = (unsigned char)p[i];

        if (str && c == '\\') {
            i += scrub_escape(out, p + i, n - i);
            continue;
        }
        if (c == '"')
            str = !str;
        if (c >= 0x80) {
            len = utf8_step(p + i, n - i);
            if (len)
                buf_add(out, p + i, len);
            else
                buf_adds(out, "\xef\xbf\xbd");
            i += len ? len : 1;
            continue;
        }
        buf_addc(out, str && c < 0x20 ? ' ' : (char)c);
        i++;
    }
}

json_t *json_read(const char *p, size_t n)
{
    AUTO_BUF struct buf clean = {0};
    json_t *j;

    if (!p || !n)
        return NULL;
    j = json_loadb(p, n, JSON_ALLOW_NUL, NULL);
    if (j)
        return j;
    scrub(&clean, p, n);
    return json_loadb(clean.p, clean.n,
                      JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
}

const char *json_str(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

int64_t json_int(const json_t *o, const char *name, int64_t otherwise)
{
    const json_t *v = json_object_get(o, name);
    double d;
    int64_t n;

    if (json_is_integer(v))
        return json_integer_value(v);
    if (json_is_real(v)) {
        d = json_real_value(v);
        return d > -9e18 && d < 9e18 ? (int64_t)d : otherwise;
    }
    if (json_is_string(v) &&
        text_int(json_string_value(v), INT64_MIN, INT64_MAX, &n))
        return n;
    return otherwise;
}

bool json_flag(const json_t *o, const char *name)
{
    return json_is_true(json_object_get(o, name));
}

int json_encode(json_t *j, struct buf *out, struct err *e)
{
    size_t n = j ? json_dumpb(j, NULL, 0, JSON_COMPACT) : 0;

    if (!n) {
        json_decref(j);
        return err_set(e, EINVAL, "the request has text that is not UTF-8");
    }
    buf_reserve(out, n);
    json_dumpb(j, out->p + out->n, n, JSON_COMPACT);
    out->n += n;
    out->p[out->n] = 0;
    json_decref(j);
    return 0;
}

/* ---- a sandbox ---- */

void e2b_box_clear(struct e2b_box *b)
{
    free(b->id);
    if (b->token)
        explicit_bzero(b->token, strlen(b->token));
    free(b->token);
    free(b->domain);
    free(b->template_id);
    free(b->envd_version);
    for (size_t i = 0; i < b->n_meta; i++) {
        free(b->meta[i].name);
        free(b->meta[i].value);
    }
    free(b->meta);
    memset(b, 0, sizeof(*b));
}

static int64_t time_of(const json_t *j, const char *name)
{
    const char *s = json_str(j, name);
    int64_t t = s ? time_parse(s) : 0;

    return t > 0 ? t : 0;
}

static int small(const json_t *j, const char *name)
{
    int64_t v = json_int(j, name, 0);

    return v < 0 || v > INT32_MAX ? 0 : (int)v;
}

static void meta_from_json(json_t *j, struct e2b_box *b)
{
    const char *name;
    json_t *v;

    b->meta = xcalloc(json_object_size(j), sizeof(*b->meta));
    json_object_foreach(j, name, v)
    {
        if (!json_is_string(v))
            continue;
        b->meta[b->n_meta].name = xstrdup(name);
        b->meta[b->n_meta++].value = xstrdup(json_string_value(v));
    }
}

int box_from_json(const json_t *j, struct e2b_box *b, struct err *e)
{
    const char *id = json_str(j, "sandboxID"), *s;

    memset(b, 0, sizeof(*b));
    if (id_check(id, NULL))
        return err_set(e, EPROTO, "the answer names no sandbox");
    b->id = xstrdup(id);
    b->token = xstrdup(json_str(j, "envdAccessToken"));
    b->domain = xstrdup(json_str(j, "domain"));
    b->template_id = xstrdup(json_str(j, "templateID"));
    b->envd_version = xstrdup(json_str(j, "envdVersion"));
    s = json_str(j, "state");
    b->state = s && !strcmp(s, "paused") ? E2B_PAUSED : E2B_RUNNING;
    b->started_ms = time_of(j, "startedAt");
    b->end_ms = time_of(j, "endAt");
    b->cpu = small(j, "cpuCount");
    b->memory_mb = small(j, "memoryMB");
    b->disk_mb = small(j, "diskSizeMB");
    meta_from_json(json_object_get(j, "metadata"), b);
    return 0;
}

/* ---- a directory entry ---- */

void e2b_entry_clear(struct e2b_entry *v)
{
    free(v->name);
    free(v->path);
    free(v->symlink);
    memset(v, 0, sizeof(*v));
}

void e2b_entries_free(struct e2b_entry *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        e2b_entry_clear(&v[i]);
    free(v);
}

/* for a symlink `type` is the target's: permissions tell of the link */
static char type_of(const json_t *j)
{
    const char *perm = json_str(j, "permissions");
    const char *type = json_str(j, "type");

    if (json_str(j, "symlinkTarget") || (perm && *perm == 'L'))
        return 'l';
    if (!type)
        return json_int(j, "type", 0) == 1   ? 'f'
               : json_int(j, "type", 0) == 2 ? 'd'
                                             : '?';
    if (!strcmp(type, "FILE_TYPE_FILE"))
        return 'f';
    if (!strcmp(type, "FILE_TYPE_SYMLINK"))
        return 'l';
    return !strcmp(type, "FILE_TYPE_DIRECTORY") ? 'd' : '?';
}

static int64_t time_ns_of(const json_t *j, const char *name)
{
    const char *s = json_str(j, name), *dot;
    int64_t ms = time_of(j, name), ns = 0, scale = 100000000;

    if (!ms || ms > 9000000000000) /* past what nanoseconds can say */
        return 0;
    dot = strchr(s, '.');
    for (dot = dot ? dot + 1 : ""; isdigit((unsigned char)*dot); dot++) {
        ns += (*dot - '0') * scale;
        scale /= 10;
    }
    return ms / 1000 * 1000000000 + ns;
}

int entry_from_json(const json_t *j, struct e2b_entry *v, struct err *e)
{
    const char *name = json_str(j, "name");
    const char *path = json_str(j, "path");

    memset(v, 0, sizeof(*v));
    if (!name && path && !strcmp(path, "/"))
        name = "/";
    if (!name || (strcmp(name, "/") && text_filename_check(name, NULL)))
        return err_set(e, EPROTO, "the answer has a file without a name");
    v->name = xstrdup(name);
    v->path = xstrdup(path ? path : name);
    v->symlink = xstrdup(json_str(j, "symlinkTarget"));
    v->type = type_of(j);
    v->size = json_int(j, "size", 0);
    if (v->size < 0)
        v->size = 0;
    v->mode = (unsigned)json_int(j, "mode", 0) & 07777;
    v->mtime_ns = time_ns_of(j, "modifiedTime");
    return 0;
}
