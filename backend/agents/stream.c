/*
 * JSON lines as the CLIs print them, and one-line summaries.
 *
 * jansson refuses a line with malformed UTF-8 or with half a surrogate pair,
 * which is what a JavaScript program prints when it cuts a string between
 * the halves. Such a line is mended and read again: bad bytes become U+FFFD,
 * a lone half \uD83D becomes the character U+10D83D (private use, plane 16),
 * which event.c joins with its other half or turns into U+FFFD.
 */
#include "agents/event.h"

#include <ctype.h>

/* no integer is too big to be read: numbers here are counts and prices */
enum { READ_FLAGS = JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL };

static int hex4(const char *s, size_t n)
{
    int v = 0;

    if (n < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)s[i]))
            return -1;
        v = v * 16 + (isdigit((unsigned char)s[i])
                          ? s[i] - '0'
                          : tolower((unsigned char)s[i]) - 'a' + 10);
    }
    return v;
}

/* the half of a pair escaped at s ("\uXXXX"), or 0 */
static int half_at(const char *s, size_t n)
{
    int v;

    if (n < 6 || s[0] != '\\' || s[1] != 'u')
        return 0;
    v = hex4(s + 2, n - 2);
    return v >= 0xd800 && v <= 0xdfff ? v : 0;
}

/* an escape at s: copies it, mended; returns its length */
static size_t mend_escape(struct buf *out, const char *s, size_t n, bool *lone)
{
    int v = half_at(s, n);

    if (!v) {
        size_t len = n < 2 ? n : 2;

        buf_add(out, s, len);
        return len;
    }
    if (v < 0xdc00 && half_at(s + 6, n - 6) >= 0xdc00) {
        buf_add(out, s, 12);
        return 12;
    }
    *lone = true;
    buf_addf(out, "\\u%04x\\u%04x", v < 0xdc00 ? 0xdbf6 : 0xdbf7,
             0xdc00 + (v & 0x3ff));
    return 6;
}

static size_t good_len(const char *s, size_t n)
{
    unsigned char c = (unsigned char)*s;
    size_t len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    return len <= n && text_utf8_valid(s, len) ? len : 0;
}

static void mend(struct buf *out, const char *s, size_t n, bool *lone)
{
    size_t i = 0;

    buf_reserve(out, n + 64);
    while (i < n) {
        size_t len;

        if (s[i] == '\\') {
            i += mend_escape(out, s + i, n - i, lone);
            continue;
        }
        len = good_len(s + i, n - i);
        if (len)
            buf_add(out, s + i, len);
        else
            buf_adds(out, "\xef\xbf\xbd");
        i += len ? len : 1;
    }
}

json_t *stream_line(const char *s, size_t n, bool *lone)
{
    AUTO_BUF struct buf b = {0};
    json_t *o = json_loadb(s, n, READ_FLAGS, NULL);

    *lone = false;
    if (!o) {
        mend(&b, s, n, lone);
        o = json_loadb(buf_str(&b), b.n, READ_FLAGS, NULL);
    }
    if (o && !json_is_object(o)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

const char *stream_str(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

double stream_real(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : otherwise;
}

int64_t stream_num(const json_t *o, const char *key)
{
    double v = stream_real(o, key, 0);

    return v > 0 && v < 9e15 ? (int64_t)v : 0;
}

bool stream_is(const json_t *o, const char *key, const char *value)
{
    const char *s = stream_str(o, key);

    return s && !strcmp(s, value);
}

void summary_line(struct buf *out, const char *s, size_t n)
{
    size_t start = out->n, i = 0;
    bool blank = false;

    for (; i < n && out->n - start < SUMMARY_MAX; i++) {
        if (isspace((unsigned char)s[i]) || !s[i]) {
            blank = out->n > start;
            continue;
        }
        if (blank)
            buf_addc(out, ' ');
        blank = false;
        buf_addc(out, s[i]);
    }
    while (i < n && (isspace((unsigned char)s[i]) || !s[i]))
        i++;
    if (i == n)
        return;
    out->n -= text_utf8_tail(out->p + start, out->n - start);
    out->p[out->n] = 0;
    buf_adds(out, "…");
}

static void add_path(struct buf *out, const char *path, const char *cwd)
{
    size_t n = cwd ? strlen(cwd) : 0;

    if (n && !strncmp(path, cwd, n) && path[n] == '/' && path[n + 1])
        path += n + 1;
    summary_line(out, path, strlen(path));
}

static void add_other(struct buf *out, const json_t *input)
{
    AUTO_FREE char *s = json_dumps(input, JSON_COMPACT);

    if (s && strcmp(s, "{}"))
        summary_line(out, s, strlen(s));
}

void summary_tool(struct buf *out, const json_t *input, const char *cwd)
{
    static const char *const paths[] = {"file_path", "filePath",
                                        "notebook_path"};
    static const char *const words[] = {"command", "pattern",     "url",
                                        "query",   "description", "skill",
                                        "prompt",  "subject"};
    const char *s, *path = stream_str(input, "path");

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        s = stream_str(input, paths[i]);
        if (s) {
            add_path(out, s, cwd);
            return;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        s = stream_str(input, words[i]);
        if (!s)
            continue;
        summary_line(out, s, strlen(s));
        if (path && !strcmp(words[i], "pattern")) {
            buf_adds(out, " in ");
            add_path(out, path, cwd);
        }
        return;
    }
    if (path)
        add_path(out, path, cwd);
    else if (json_is_string(input))
        summary_line(out, json_string_value(input), json_string_length(input));
    else if (input)
        add_other(out, input);
}
