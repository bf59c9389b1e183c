#include "base/text.h"

#include <ctype.h>
#include <math.h>

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcmp(s + n - m, end);
}

int text_name_check(const char *name, struct err *e)
{
    AUTO_BUF struct buf shown = {0};
    size_t n = strlen(name);

    text_printable(&shown, name, n < 60 ? n : 60, 0);
    if (n > 255)
        return err_set(e, ENAMETOOLONG, "the name is too long (%zu bytes)", n);
    if (!n)
        return err_set(e, EINVAL, "the name is empty");
    if (n > 63)
        return err_set(e, EINVAL, "name '%s...' is longer than 63 characters",
                       buf_str(&shown));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];

        if (c < 128 && isalnum(c))
            continue;
        if (i && (c == '.' || c == '_' || c == '-'))
            continue;
        return err_set(e, EINVAL,
                       "name '%s': only letters, digits and . _ - are "
                       "allowed, and it begins with a letter or digit",
                       buf_str(&shown));
    }
    if (strstr(name, "..") || name[n - 1] == '.')
        return err_set(e, EINVAL,
                       "name '%s' has two dots in a row or ends in one",
                       buf_str(&shown));
    if (ends_with(name, ".lock") || ends_with(name, ".rejected"))
        return err_set(e, EINVAL, "name '%s' ends in .lock or .rejected",
                       buf_str(&shown));
    return 0;
}

int text_filename_check(const char *name, struct err *e)
{
    size_t n = strlen(name);

    if (n > 255)
        return err_set(e, ENAMETOOLONG, "the name is too long (%zu bytes)", n);
    if (!n || !strcmp(name, ".") || !strcmp(name, "..") || strchr(name, '/'))
        return err_set(e, EINVAL, "that is no file name");
    if (!text_utf8_valid(name, n))
        return err_set(e, EINVAL, "the name is not UTF-8");
    return 0;
}

int64_t text_duration(const char *s)
{
    char *end;
    long long v;

    if (!isdigit((unsigned char)*s))
        return -EINVAL;
    errno = 0;
    v = strtoll(s, &end, 10);
    if (errno || v > 1000000000)
        return -EINVAL;
    if (!*end || !strcmp(end, "s"))
        return v;
    if (!strcmp(end, "m"))
        return v * 60;
    if (!strcmp(end, "h"))
        return v * 3600;
    if (!strcmp(end, "d"))
        return v * 86400;
    return -EINVAL;
}

void text_duration_str(int64_t secs, char out[24])
{
    if (secs && secs % 3600 == 0)
        snprintf(out, 24, "%lldh", (long long)(secs / 3600));
    else if (secs && secs % 60 == 0)
        snprintf(out, 24, "%lldm", (long long)(secs / 60));
    else
        snprintf(out, 24, "%llds", (long long)secs);
}

bool text_int(const char *s, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    long long v;

    if (!isdigit((unsigned char)*s) && *s != '-')
        return false;
    errno = 0;
    v = strtoll(s, &end, 10);
    if (errno || end == s || *end || v < min || v > max)
        return false;
    *out = v;
    return true;
}

bool text_double(const char *s, double min, double max, double *out)
{
    char *end;
    double v;

    if (!isdigit((unsigned char)*s) && *s != '.' && *s != '-')
        return false;
    errno = 0;
    v = strtod(s, &end);
    if (errno || end == s || *end || !isfinite(v) || v < min || v > max)
        return false;
    *out = v;
    return true;
}

/* length of the valid sequence at p, 0 if malformed, -1 if cut short */
static int utf8_len(const unsigned char *p, size_t n, uint32_t *cp)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int len;
    uint32_t v;

    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        len = 2;
    else if ((p[0] & 0xf0) == 0xe0)
        len = 3;
    else if (p[0] >= 0xf0 && p[0] <= 0xf4)
        len = 4;
    else
        return 0;
    v = p[0] & (0xffu >> (len + 1));
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3f);
    }
    if (v < least[len] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
        return 0;
    *cp = v;
    return len;
}

/* line separators and direction overrides can forge what a terminal shows */
static bool cp_hidden(uint32_t cp)
{
    return (cp >= 0x80 && cp < 0xa0) || (cp >= 0x202a && cp <= 0x202e) ||
           (cp >= 0x2066 && cp <= 0x2069) || cp == 0x2028 || cp == 0x2029;
}

void text_printable(struct buf *out, const char *p, size_t n, int flags)
{
    const unsigned char *s = (const unsigned char *)p;
    size_t i = 0;

    buf_reserve(out, n);
    while (i < n) {
        uint32_t cp = 0;
        int len = utf8_len(s + i, n - i, &cp);

        if (len <= 0) {
            buf_addf(out, "\\x%02x", s[i]);
            i++;
            continue;
        }
        if (cp == '\n')
            buf_adds(out, flags & PRINTABLE_LINES ? "\n" : "\\n");
        else if (cp == '\t')
            buf_adds(out, flags & PRINTABLE_TABS ? "\t" : "\\t");
        else if (cp == '\r' && flags & PRINTABLE_LINES && i + 1 < n &&
                 s[i + 1] == '\n')
            ; /* a DOS line end shows as a line end */
        else if (cp < 0x20)
            buf_addf(out, "^%c", (char)(cp + '@'));
        else if (cp == 0x7f)
            buf_adds(out, "^?");
        else if (cp_hidden(cp))
            buf_addf(out, "\\u%04x", cp);
        else
            buf_add(out, s + i, (size_t)len);
        i += (size_t)len;
    }
}

size_t text_utf8_tail(const char *p, size_t n)
{
    const unsigned char *s = (const unsigned char *)p;

    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint32_t cp;

        if ((s[n - back] & 0xc0) == 0x80)
            continue;
        return utf8_len(s + n - back, back, &cp) < 0 ? back : 0;
    }
    return 0;
}

bool text_utf8_valid(const char *p, size_t n)
{
    const unsigned char *s = (const unsigned char *)p;
    size_t i = 0;

    while (i < n) {
        uint32_t cp;
        int len = utf8_len(s + i, n - i, &cp);

        if (len <= 0)
            return false;
        i += (size_t)len;
    }
    return true;
}

void text_shell_quote(struct buf *out, const char *s)
{
    buf_addc(out, '\'');
    for (; *s; s++) {
        if (*s == '\'')
            buf_adds(out, "'\\''");
        else
            buf_addc(out, *s);
    }
    buf_addc(out, '\'');
}

void text_wrapped(struct buf *out, const char *s, int at, int indent,
                  int width)
{
    for (;;) {
        size_t n = strlen(s), max;

        buf_addf(out, "%*s", indent > at ? indent - at : 1, "");
        max = (size_t)(width - (indent > at ? indent : at + 1));
        if (n > max) {
            n = max;
            while (n && s[n] != ' ')
                n--;
            if (!n)
                n = strcspn(s, " ");
        }
        buf_add(out, s, n);
        buf_addc(out, '\n');
        s += n + strspn(s + n, " ");
        if (!*s)
            return;
        at = 0;
    }
}

char *text_trim(char *s)
{
    size_t n;

    while (isspace((unsigned char)*s))
        s++;
    n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1]))
        s[--n] = 0;
    return s;
}

bool text_is_word(const char *s, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(s, *list))
            return true;
    return false;
}

uint64_t text_hash(const void *p, size_t n)
{
    const unsigned char *s = p;
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ s[i]) * 0x100000001b3u;
    return h;
}

int words_split(const char *line, char ***out, struct err *e)
{
    char **w = xcalloc(1, sizeof(*w));
    struct buf cur = {0};
    bool in_word = false;
    char quote = 0;
    int n = 0;

    for (const char *p = line;; p++) {
        if (!quote && (!*p || isspace((unsigned char)*p))) {
            if (in_word) {
                w = xrealloc(w, sizeof(*w) * (size_t)(n + 2));
                w[n++] = buf_take(&cur);
                w[n] = NULL;
                in_word = false;
            }
            if (!*p)
                break;
            continue;
        }
        if (!*p) {
            buf_free(&cur);
            words_free(w);
            *out = NULL;
            return err_set(e, EINVAL, "a quote (%c) is left open", quote);
        }
        in_word = true;
        if (quote == '\'' && *p == '\'') {
            quote = 0;
        } else if (quote == '"' && *p == '"') {
            quote = 0;
        } else if (!quote && (*p == '"' || *p == '\'')) {
            quote = *p;
        } else if (*p == '\\' && quote != '\'') {
            if (!p[1]) {
                buf_free(&cur);
                words_free(w);
                *out = NULL;
                return err_set(e, EINVAL, "a backslash ends the line");
            }
            if (quote == '"' && !strchr("\"\\$`", p[1]))
                buf_addc(&cur, '\\');
            buf_addc(&cur, *++p);
        } else {
            buf_addc(&cur, *p);
        }
    }
    buf_free(&cur);
    *out = w;
    return n;
}

void words_free(char **w)
{
    if (!w)
        return;
    for (char **p = w; *p; p++)
        free(*p);
    free(w);
}

size_t text_bom(const char *p, size_t n)
{
    return n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
}

enum kv_line kv_line(const char *line, size_t n, char **key, char **value)
{
    AUTO_FREE char *copy = xmemdup0(line, n);
    char *s = text_trim(copy), *eq, *k, *v;
    size_t len;

    *key = *value = NULL;
    if (strlen(copy) != n && memchr(line, 0, n))
        return KV_BAD;
    s = text_trim(s + text_bom(s, strlen(s)));
    if (!*s || *s == '#')
        return KV_NOTHING;
    eq = strchr(s, '=');
    if (!eq)
        return KV_BAD;
    *eq = 0;
    k = text_trim(s);
    v = text_trim(eq + 1);
    if (!*k)
        return KV_BAD;
    len = strlen(v);
    if (len >= 2 && (*v == '"' || *v == '\'') && v[len - 1] == *v) {
        v[len - 1] = 0;
        v++;
    }
    *key = xstrdup(k);
    *value = xstrdup(v);
    return KV_PAIR;
}

static const char b64[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct buf *out, const void *p, size_t n)
{
    const unsigned char *s = p;

    buf_reserve(out, (n + 2) / 3 * 4);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)s[i] << 16;
        char q[4];

        if (i + 1 < n)
            v |= (uint32_t)s[i + 1] << 8;
        if (i + 2 < n)
            v |= s[i + 2];
        q[0] = b64[v >> 18];
        q[1] = b64[v >> 12 & 63];
        q[2] = i + 1 < n ? b64[v >> 6 & 63] : '=';
        q[3] = i + 2 < n ? b64[v & 63] : '=';
        buf_add(out, q, 4);
    }
}

static int b64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(struct buf *out, const char *p, size_t n)
{
    uint32_t v = 0;
    int bits = 0;

    buf_reserve(out, n / 4 * 3 + 3);
    for (size_t i = 0; i < n; i++) {
        int d = b64_value(p[i]);

        if (p[i] == '=') {
            while (i < n && p[i] == '=')
                i++;
            return i == n ? 0 : -EINVAL;
        }
        if (d < 0)
            return -EINVAL;
        v = v << 6 | (uint32_t)d;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            buf_addc(out, (char)(v >> bits));
            v &= (1u << bits) - 1;
        }
    }
    return 0;
}
