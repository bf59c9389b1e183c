#include "local/files.h"

#include "base/text.h"

#include <sodium.h>
#include <strings.h>

void file_signature(const char *path, const char *operation, const char *user,
                    const char *token, const char *expiry, char out[64])
{
    AUTO_BUF struct buf text = {0}, b64 = {0};
    unsigned char hash[crypto_hash_sha256_BYTES];

    buf_addf(&text, "%s:%s:%s:%s", path, operation, user, token);
    if (expiry)
        buf_addf(&text, ":%s", expiry);
    crypto_hash_sha256(hash, (const unsigned char *)text.p, text.n);
    explicit_bzero(text.p, text.n);
    base64_encode(&b64, hash, sizeof(hash));
    while (b64.n && b64.p[b64.n - 1] == '=')
        b64.p[--b64.n] = 0;
    snprintf(out, 64, "v1_%s", b64.p);
}

enum range file_range(const char *h, int64_t size, int64_t *from, int64_t *to)
{
    AUTO_FREE char *spec = NULL;
    char *dash;

    *from = 0;
    *to = size - 1;
    if (!h || strncasecmp(h, "bytes=", 6) || strchr(h, ','))
        return RANGE_ALL;
    spec = xstrdup(h + 6);
    dash = strchr(text_trim(spec), '-');
    if (!dash)
        return RANGE_BAD;
    *dash = 0;
    if (!*text_trim(spec)) { /* the last bytes */
        int64_t last;

        if (!text_int(dash + 1, 0, INT64_MAX, &last) || !last)
            return RANGE_BAD;
        if (!size)
            return RANGE_ALL;
        *from = last < size ? size - last : 0;
        return RANGE_PART;
    }
    if (!text_int(text_trim(spec), 0, INT64_MAX, from))
        return RANGE_BAD;
    if (dash[1] && (!text_int(dash + 1, 0, INT64_MAX, to) || *to < *from))
        return RANGE_BAD;
    if (!size) { /* as the real one: an empty file has no range */
        *from = 0;
        *to = -1;
        return RANGE_ALL;
    }
    if (*to >= size)
        *to = size - 1;
    return *from < size ? RANGE_PART : RANGE_BAD;
}

void http_date(time_t t, char out[32])
{
    struct tm tm;

    out[0] = 0;
    if (gmtime_r(&t, &tm))
        strftime(out, 32, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

bool http_date_parse(const char *s, time_t *out)
{
    struct tm tm;

    memset(&tm, 0, sizeof(tm));
    if (!strptime(s, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        return false;
    *out = timegm(&tm);
    return true;
}

static const struct {
    const char *ext, *type;
} types[] = {
    {".avif", "image/avif"},
    {".css", "text/css; charset=utf-8"},
    {".csv", "text/csv; charset=utf-8"},
    {".gif", "image/gif"},
    {".htm", "text/html; charset=utf-8"},
    {".html", "text/html; charset=utf-8"},
    {".jpeg", "image/jpeg"},
    {".jpg", "image/jpeg"},
    {".js", "text/javascript; charset=utf-8"},
    {".json", "application/json"},
    {".md", "text/markdown; charset=utf-8"},
    {".mjs", "text/javascript; charset=utf-8"},
    {".pdf", "application/pdf"},
    {".png", "image/png"},
    {".svg", "image/svg+xml"},
    {".txt", "text/plain; charset=utf-8"},
    {".wasm", "application/wasm"},
    {".webp", "image/webp"},
    {".xml", "text/xml; charset=utf-8"},
};

static const struct {
    const char *magic;
    size_t n;
    const char *type;
} magics[] = {
    {"\x89PNG\r\n\x1a\n", 8, "image/png"},
    {"\xff\xd8\xff", 3, "image/jpeg"},
    {"GIF8", 4, "image/gif"},
    {"%PDF-", 5, "application/pdf"},
    {"PK\x03\x04", 4, "application/zip"},
    {"\x1f\x8b\x08", 3, "application/x-gzip"},
};

const char *file_type(const char *name, const char *p, size_t n)
{
    const char *dot = strrchr(name, '.');

    for (size_t i = 0; dot && i < ARRAY_LEN(types); i++)
        if (!strcasecmp(types[i].ext, dot))
            return types[i].type;
    for (size_t i = 0; i < ARRAY_LEN(magics); i++)
        if (n >= magics[i].n && !memcmp(p, magics[i].magic, magics[i].n))
            return magics[i].type;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        if (c < 0x20 && !(c >= '\t' && c <= '\r' && c != 0x0b) && c != 0x1b)
            return "application/octet-stream";
    }
    return "text/plain; charset=utf-8";
}
