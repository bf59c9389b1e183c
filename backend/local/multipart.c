#include "local/multipart.h"

#include <strings.h>

enum { FILL = 65536 };

/* the value of a parameter of a header: name=value or name="value" */
static char *parameter(const char *h, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = strchr(h, ';'); p; p = strchr(p, ';')) {
        struct buf b = {0};

        p++;
        while (*p == ' ' || *p == '\t')
            p++;
        if (strncasecmp(p, name, n) || p[n] != '=') {
            /* a quoted value may hold a semicolon */
            while (*p && *p != ';' && *p != '"')
                p++;
            if (*p == '"')
                for (p++; *p && *p != '"'; p++)
                    p += *p == '\\' && p[1];
            continue;
        }
        p += n + 1;
        if (*p != '"') {
            buf_add(&b, p, strcspn(p, "; \t"));
            return buf_take(&b);
        }
        for (p++; *p && *p != '"'; p++) {
            if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
                p++;
            buf_addc(&b, *p);
        }
        return buf_take(&b);
    }
    return NULL;
}

/* undoes %22 %0D %0A, which browsers write in names for those characters */
static void unescape_name(char *s)
{
    char *o = s;

    for (; *s; s++) {
        if (!strncmp(s, "%22", 3))
            *o++ = '"', s += 2;
        else if (!strncasecmp(s, "%0d", 3))
            *o++ = '\r', s += 2;
        else if (!strncasecmp(s, "%0a", 3))
            *o++ = '\n', s += 2;
        else
            *o++ = *s;
    }
    *o = 0;
}

int multipart_init(struct multipart *m, const char *content_type,
                   ssize_t (*read)(void *arg, void *p, size_t n), void *arg)
{
    AUTO_FREE char *boundary = parameter(content_type, "boundary");

    memset(m, 0, sizeof(*m));
    if (!boundary || !*boundary || strlen(boundary) > 200)
        return -EINVAL;
    m->read = read;
    m->arg = arg;
    m->first = true;
    buf_addf(&m->delim, "\r\n--%s", boundary);
    /* so that the first boundary looks like the others */
    buf_adds(&m->in, "\r\n");
    return 0;
}

void multipart_release(struct multipart *m)
{
    buf_free(&m->in);
    buf_free(&m->delim);
}

/* reads more; 0, -EINVAL at the end of the stream, or its error */
static int fill(struct multipart *m)
{
    ssize_t n;

    if (m->eof)
        return -EINVAL;
    buf_reserve(&m->in, FILL);
    n = m->read(m->arg, m->in.p + m->in.n, FILL);
    if (n < 0)
        return (int)n;
    if (n == 0) {
        m->eof = true;
        return -EINVAL;
    }
    m->in.n += (size_t)n;
    m->in.p[m->in.n] = 0;
    return 0;
}

static char *find_delim(const struct multipart *m)
{
    return m->in.n ? memmem(m->in.p, m->in.n, m->delim.p, m->delim.n) : NULL;
}

ssize_t multipart_read(struct multipart *m, void *p, size_t n)
{
    for (;;) {
        char *at = find_delim(m);
        size_t have;
        int e;

        if (!m->in_part)
            return 0;
        if (at)
            have = (size_t)(at - m->in.p);
        else /* the last bytes may begin a delimiter */
            have = m->in.n >= m->delim.n ? m->in.n - m->delim.n + 1 : 0;
        if (have) {
            if (n > have)
                n = have;
            memcpy(p, m->in.p, n);
            buf_drop(&m->in, n);
            return (ssize_t)n;
        }
        if (at) {
            m->in_part = false;
            return 0;
        }
        e = fill(m);
        if (e)
            return e;
    }
}

static int skip(struct multipart *m)
{
    char buf[4096];
    ssize_t n;

    m->in_part |= m->first; /* the preamble is like a part */
    m->first = false;
    do
        n = multipart_read(m, buf, sizeof(buf));
    while (n > 0);
    return (int)n;
}

/* at a delimiter: takes it and the rest of its line; 1, 0 if it is the last */
static int delimiter(struct multipart *m)
{
    char *nl;
    int e = 0;

    while (!e && m->in.n < m->delim.n + 2)
        e = fill(m);
    if (e)
        return e;
    if (!memcmp(m->in.p + m->delim.n, "--", 2))
        return 0;
    while (!(
        nl = memmem(m->in.p + m->delim.n, m->in.n - m->delim.n, "\r\n", 2))) {
        if (m->in.n > m->delim.n + 1024)
            return -EINVAL;
        e = fill(m);
        if (e)
            return e;
    }
    /* its CR LF stays, so that a part with no headers is seen as such */
    buf_drop(&m->in, (size_t)(nl - m->in.p));
    return 1;
}

static void part_header(struct part *p, char *line)
{
    if (strncasecmp(line, "Content-Disposition:", 20))
        return;
    free(p->name);
    free(p->filename);
    p->name = parameter(line, "name");
    p->filename = parameter(line, "filename");
    if (p->filename)
        unescape_name(p->filename);
}

static int part_headers(struct multipart *m, struct part *p)
{
    char *end, *line, *next;
    size_t used;

    while (!(end = memmem(m->in.p, m->in.n, "\r\n\r\n", 4))) {
        int e = m->in.n > PART_HEADERS_MAX ? -EINVAL : fill(m);

        if (e)
            return e;
    }
    used = (size_t)(end - m->in.p) + 4;
    *end = 0;
    for (line = m->in.p; line; line = next) {
        next = strstr(line, "\r\n");
        if (next) {
            *next = 0;
            next += 2;
        }
        part_header(p, line);
    }
    buf_drop(&m->in, used);
    return 0;
}

int multipart_next(struct multipart *m, struct part *p)
{
    int e;

    memset(p, 0, sizeof(*p));
    if (m->done)
        return 0;
    e = skip(m);
    if (!e)
        e = delimiter(m);
    if (e == 0)
        m->done = true;
    if (e <= 0)
        return e;
    e = part_headers(m, p);
    if (e) {
        part_release(p);
        return e;
    }
    m->in_part = true;
    return 1;
}

void part_release(struct part *p)
{
    free(p->name);
    free(p->filename);
    memset(p, 0, sizeof(*p));
}
