#include "local/http.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

enum { HEAD_MAX = 64 << 10, READ_AHEAD = 64 << 10, DRAIN_MAX = 1 << 20 };

enum body_kind { BODY_NONE, BODY_LENGTH, BODY_CHUNKED };

struct pair {
    char *name, *value;
};

struct pairs {
    struct pair *v;
    size_t n;
};

struct http {
    int fd;
    bool local;
    bool old; /* HTTP/1.0 */
    bool keep;
    char *head; /* as it came, without the empty line */
    char *method, *target, *path;
    struct pairs headers, query;

    /* bytes read ahead: in[at..end) */
    char in[READ_AHEAD];
    size_t at, end;

    enum body_kind kind;
    uint64_t left; /* of the body, or of this chunk */
    bool chunk_open, body_end, expects;
    bool inflating, inflate_end;
    z_stream z;
    char zin[16 << 10];

    struct buf extra; /* headers of the answer */
    bool answered, open, chunked, broken;
    int64_t owed; /* bytes of the answer still to come, -1 unknown */
};

/* ---- words ---- */

const char *http_status_words(int status)
{
    static const struct {
        int status;
        const char *words;
    } table[] = {
        {100, "Continue"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {429, "Too Many Requests"},
        {431, "Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {507, "Insufficient Storage"},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].status == status)
            return table[i].words;
    return "Status";
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool http_unescape(struct buf *out, const char *s, size_t n, bool plus)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '%') {
            int hi = i + 2 < n ? hex(s[i + 1]) : -1;

            if (hi < 0 || hex(s[i + 2]) < 0)
                return false;
            buf_addc(out, (char)(hi << 4 | hex(s[i + 2])));
            i += 2;
        } else {
            buf_addc(out, plus && s[i] == '+' ? ' ' : s[i]);
        }
    }
    return true;
}

/* takes both */
static void pairs_add(struct pairs *p, char *name, char *value)
{
    p->v = xrealloc(p->v, (p->n + 1) * sizeof(*p->v));
    p->v[p->n++] = (struct pair){name, value};
}

static void pairs_free(struct pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->v[i].name);
        free(p->v[i].value);
    }
    free(p->v);
    *p = (struct pairs){0};
}

/* ---- bytes in ---- */

/* reads more ahead; 0 at the end, -EPIPE on failure */
static ssize_t fill(struct http *h)
{
    ssize_t n;

    if (h->at == h->end)
        h->at = h->end = 0;
    if (h->end == sizeof(h->in)) {
        memmove(h->in, h->in + h->at, h->end - h->at);
        h->end -= h->at;
        h->at = 0;
    }
    if (h->end == sizeof(h->in))
        return -EPIPE;
    do
        n = recv(h->fd, h->in + h->end, sizeof(h->in) - h->end, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -EPIPE;
    h->end += (size_t)n;
    return n;
}

/* a line without its end, into out; false when there is none */
static bool take_line(struct http *h, struct buf *out, size_t max)
{
    buf_clear(out);
    for (;;) {
        char *nl = memchr(h->in + h->at, '\n', h->end - h->at);
        size_t n = nl ? (size_t)(nl - h->in) - h->at : h->end - h->at;

        if (out->n + n > max)
            return false;
        buf_add(out, h->in + h->at, n);
        h->at += n + (nl ? 1 : 0);
        if (nl)
            break;
        if (fill(h) <= 0)
            return false;
    }
    if (out->n && out->p[out->n - 1] == '\r')
        out->p[--out->n] = 0;
    return true;
}

/* ---- bytes out ---- */

static int send_parts(struct http *h, struct iovec *v, int n)
{
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

    while (m.msg_iovlen) {
        ssize_t sent = sendmsg(h->fd, &m, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            h->broken = true;
            return -EPIPE;
        }
        while (m.msg_iovlen && (size_t)sent >= m.msg_iov->iov_len) {
            sent -= (ssize_t)m.msg_iov->iov_len;
            m.msg_iov++;
            m.msg_iovlen--;
        }
        if (m.msg_iovlen) {
            m.msg_iov->iov_base = (char *)m.msg_iov->iov_base + sent;
            m.msg_iov->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

static int send_bytes(struct http *h, const void *p, size_t n)
{
    struct iovec v = {(void *)p, n};

    return n ? send_parts(h, &v, 1) : 0;
}

/* ---- the head of a request ---- */

static bool parse_query(struct http *h, const char *q)
{
    while (*q) {
        size_t n = strcspn(q, "&");
        size_t k = 0;
        struct buf name = {0}, value = {0};
        bool ok;

        while (k < n && q[k] != '=')
            k++;
        ok = http_unescape(&name, q, k, true) &&
             (k >= n || http_unescape(&value, q + k + 1, n - k - 1, true));
        pairs_add(&h->query, buf_take(&name), buf_take(&value));
        if (!ok)
            return false;
        q += n + (q[n] ? 1 : 0);
    }
    return true;
}

static bool parse_target(struct http *h)
{
    struct buf path = {0};
    const char *t = h->target;
    size_t n;
    bool ok;

    if (*t != '/') { /* absolute form */
        t = strstr(t, "://");
        t = t ? strchr(t + 3, '/') : NULL;
        if (!t)
            return false;
    }
    n = strcspn(t, "?");
    ok = http_unescape(&path, t, n, false);
    if (path.p && strlen(path.p) != path.n)
        ok = false;
    h->path = buf_take(&path);
    return ok && (!t[n] || parse_query(h, t + n + 1));
}

static bool parse_first(struct http *h, char *line)
{
    char *target = strchr(line, ' ');
    char *version;

    if (!target)
        return false;
    *target++ = 0;
    version = strchr(target, ' ');
    if (!version)
        return false;
    *version++ = 0;
    if (strncmp(version, "HTTP/1.", 7) != 0)
        return false;
    h->old = version[7] == '0';
    h->method = xstrdup(line);
    h->target = xstrdup(target);
    return parse_target(h);
}

static bool parse_header(struct http *h, char *line)
{
    char *colon = strchr(line, ':');

    if (!colon || colon == line || line[0] == ' ' || line[0] == '\t')
        return false;
    *colon = 0;
    pairs_add(&h->headers, xstrdup(line), xstrdup(text_trim(colon + 1)));
    return true;
}

static const char *header(const struct http *h, const char *name)
{
    for (size_t i = 0; i < h->headers.n; i++)
        if (strcasecmp(h->headers.v[i].name, name) == 0)
            return h->headers.v[i].value;
    return NULL;
}

static bool body_kind_set(struct http *h)
{
    const char *te = header(h, "transfer-encoding");
    const char *cl = header(h, "content-length");
    const char *ce = header(h, "content-encoding");
    const char *ex = header(h, "expect");
    int64_t n = 0;

    if (te) {
        if (strcasecmp(te, "chunked") != 0 || cl)
            return false;
        h->kind = BODY_CHUNKED;
    } else if (cl) {
        if (!text_int(cl, 0, INT64_MAX, &n))
            return false;
        h->kind = n ? BODY_LENGTH : BODY_NONE;
        h->left = (uint64_t)n;
    }
    h->body_end = h->kind == BODY_NONE;
    h->expects = ex && strcasecmp(ex, "100-continue") == 0;
    if (ce && strcasecmp(ce, "gzip") == 0 && h->kind != BODY_NONE)
        h->inflating = inflateInit2(&h->z, 15 + 32) == Z_OK;
    return true;
}

static bool keeps_alive(struct http *h)
{
    const char *c = header(h, "connection");

    if (h->old)
        return c && strcasestr(c, "keep-alive");
    return !c || !strcasestr(c, "close");
}

/* 1 a request, 0 the client left, -EINVAL or -E2BIG malformed */
static int read_head(struct http *h)
{
    AUTO_BUF struct buf line = {0};
    AUTO_BUF struct buf head = {0};

    do
        if (!take_line(h, &line, HEAD_MAX))
            return line.n ? -EINVAL : 0;
    while (!line.n);
    buf_addf(&head, "%s\r\n", line.p);
    if (strlen(line.p) != line.n || !parse_first(h, line.p))
        return -EINVAL;
    for (;;) {
        if (!take_line(h, &line, HEAD_MAX))
            return -EINVAL;
        if (!line.n)
            break;
        if (head.n + line.n > HEAD_MAX)
            return -E2BIG;
        buf_addf(&head, "%s\r\n", line.p);
        if (strlen(line.p) != line.n || !parse_header(h, line.p))
            return -EINVAL;
    }
    h->head = buf_take(&head);
    if (!body_kind_set(h))
        return -EINVAL;
    h->keep = keeps_alive(h);
    return 1;
}

/* ---- the body of a request ---- */

/* the size line of the next chunk; at the last one the trailers too */
static int next_chunk(struct http *h)
{
    AUTO_BUF struct buf line = {0};
    char *end;

    if (h->chunk_open && (!take_line(h, &line, 16) || line.n))
        return -EINVAL;
    if (!take_line(h, &line, 1024) || hex(buf_str(&line)[0]) < 0)
        return -EINVAL;
    errno = 0;
    h->left = strtoull(line.p, &end, 16);
    if (errno || h->left > INT64_MAX || (*end && *end != ';' && *end != ' '))
        return -EINVAL;
    h->chunk_open = true;
    if (h->left)
        return 0;
    h->body_end = true;
    do
        if (!take_line(h, &line, 8192))
            return -EINVAL;
    while (line.n);
    return 0;
}

static ssize_t read_plain(struct http *h, void *p, size_t n)
{
    if (h->expects && !h->body_end) {
        h->expects = false;
        if (send_bytes(h, "HTTP/1.1 100 Continue\r\n\r\n", 25) < 0)
            return -EPIPE;
    }
    if (h->kind == BODY_CHUNKED && !h->body_end && !h->left) {
        int rc = next_chunk(h);

        if (rc < 0) {
            h->broken = true;
            return rc;
        }
    }
    if (h->body_end || !n)
        return 0;
    if (h->at == h->end && fill(h) <= 0) {
        h->broken = true;
        return -EPIPE;
    }
    if (n > h->end - h->at)
        n = h->end - h->at;
    if (n > h->left)
        n = (size_t)h->left;
    memcpy(p, h->in + h->at, n);
    h->at += n;
    h->left -= n;
    if (h->kind == BODY_LENGTH && !h->left)
        h->body_end = true;
    return (ssize_t)n;
}

static ssize_t read_inflated(struct http *h, void *p, size_t n)
{
    h->z.next_out = p;
    h->z.avail_out = (uInt)(n > 1 << 20 ? 1 << 20 : n);
    n = h->z.avail_out;
    while (h->z.avail_out == n && !h->inflate_end) {
        int rc;

        if (!h->z.avail_in) {
            ssize_t got = read_plain(h, h->zin, sizeof(h->zin));

            if (got <= 0)
                return got < 0 ? got : -EINVAL; /* cut short */
            h->z.next_in = (Bytef *)h->zin;
            h->z.avail_in = (uInt)got;
        }
        rc = inflate(&h->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END)
            h->inflate_end = true;
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return -EINVAL;
    }
    return (ssize_t)(n - h->z.avail_out);
}

static ssize_t body_read(struct req *r, void *p, size_t n)
{
    struct http *h = r->c;

    return h->inflating ? read_inflated(h, p, n) : read_plain(h, p, n);
}

int http_body(struct req *r, size_t max)
{
    ssize_t n;

    for (;;) {
        buf_reserve(&r->body, 16 << 10);
        n = body_read(r, r->body.p + r->body.n, 16 << 10);
        if (n <= 0)
            break;
        r->body.n += (size_t)n;
        r->body.p[r->body.n] = 0;
        if (r->body.n > max)
            return -EFBIG;
    }
    return (int)n;
}

/* what the handler left unread is thrown away, if it isn't much */
static bool drain(struct http *h)
{
    char scrap[8192];
    size_t total = 0;

    if (h->expects)
        return h->body_end;
    while (!h->body_end) {
        ssize_t n = read_plain(h, scrap, sizeof(scrap));

        if (n < 0 || (total += (size_t)n) > DRAIN_MAX)
            return false;
    }
    return true;
}

/* ---- what a handler asks ---- */

const char *req_header(struct req *r, const char *name)
{
    return header(r->c, name);
}

const char *req_header_at(struct req *r, size_t i, const char **name)
{
    struct pairs *h = &r->c->headers;

    if (i >= h->n)
        return NULL;
    *name = h->v[i].name;
    return h->v[i].value;
}

const char *req_query(struct req *r, const char *name)
{
    struct pairs *q = &r->c->query;

    for (size_t i = 0; i < q->n; i++)
        if (strcmp(q->v[i].name, name) == 0)
            return q->v[i].value;
    return NULL;
}

int req_fd(struct req *r)
{
    return r->c->fd;
}

bool req_gone(struct req *r)
{
    struct pollfd p = {r->c->fd, POLLRDHUP, 0};

    return r->c->broken ||
           (poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

bool http_local(const struct req *r)
{
    return r->c->local;
}

const char *http_target(const struct req *r)
{
    return r->c->target;
}

/* ---- answers ---- */

void reply_header(struct req *r, const char *name, const char *value)
{
    if (strpbrk(value, "\r\n"))
        return;
    buf_addf(&r->c->extra, "%s: %s\r\n", name, value);
}

static bool has_body(struct http *h, int status)
{
    return status >= 200 && status != 204 && status != 304 &&
           strcmp(h->method, "HEAD") != 0;
}

static void head_out(struct http *h, struct buf *out, int status,
                     const char *type, int64_t len)
{
    buf_addf(out, "HTTP/1.1 %d %s\r\n", status, http_status_words(status));
    if (type && status != 204)
        buf_addf(out, "Content-Type: %s\r\n", type);
    if (h->extra.n)
        buf_add(out, h->extra.p, h->extra.n);
    if (len >= 0 && status != 204 && status != 304)
        buf_addf(out, "Content-Length: %lld\r\n", (long long)len);
    else if (len < 0 && !h->old)
        buf_adds(out, "Transfer-Encoding: chunked\r\n");
    if (len < 0 && h->old)
        h->keep = false;
    if (!h->keep)
        buf_adds(out, "Connection: close\r\n");
    buf_adds(out, "\r\n");
    h->answered = true;
}

void reply(struct req *r, int status, const char *type, const void *p,
           size_t n)
{
    struct http *h = r->c;
    AUTO_BUF struct buf out = {0};
    struct iovec v[2];

    if (h->answered)
        return;
    if (!h->body_end && (h->left > DRAIN_MAX || h->expects))
        h->keep = false;
    head_out(h, &out, status, type, (int64_t)n);
    v[0] = (struct iovec){out.p, out.n};
    v[1] = (struct iovec){(void *)p, n};
    send_parts(h, v, n && has_body(h, status) ? 2 : 1);
}

void reply_json(struct req *r, int status, json_t *j)
{
    AUTO_FREE char *s = json_dumps(j, JSON_COMPACT);

    json_decref(j);
    if (!s)
        s = xstrdup("{}");
    reply(r, status, "application/json", s, strlen(s));
}

int reply_begin(struct req *r, int status, const char *type, int64_t len)
{
    struct http *h = r->c;
    AUTO_BUF struct buf out = {0};

    if (h->answered)
        return -EINVAL;
    head_out(h, &out, status, type, len);
    h->open = true;
    h->chunked = len < 0 && !h->old;
    h->owed = len;
    if (!has_body(h, status)) {
        h->chunked = false;
        h->owed = 0;
    }
    return send_bytes(h, out.p, out.n);
}

int reply_write(struct req *r, const void *p, size_t n)
{
    struct http *h = r->c;
    char size[24];
    struct iovec v[3];

    if (h->broken)
        return -EPIPE;
    if (!n || !h->open)
        return 0;
    if (!h->chunked) {
        if (h->owed >= 0) {
            if ((uint64_t)h->owed < n)
                n = (size_t)h->owed;
            h->owed -= (int64_t)n;
        }
        return send_bytes(h, p, n);
    }
    v[0] = (struct iovec){size,
                          (size_t)snprintf(size, sizeof(size), "%zx\r\n", n)};
    v[1] = (struct iovec){(void *)p, n};
    v[2] = (struct iovec){(void *)"\r\n", 2};
    return send_parts(h, v, 3);
}

void reply_end(struct req *r)
{
    struct http *h = r->c;

    if (!h->open)
        return;
    h->open = false;
    if (h->chunked)
        send_bytes(h, "0\r\n\r\n", 5);
    else if (h->owed != 0)
        h->keep = false; /* promised more, or only the end tells the end */
}

/* ---- the tunnel to a port of a box ---- */

static void tunnel_head(struct http *h, struct buf *out)
{
    const char *up = header(h, "upgrade");
    const char *p = h->head;

    while (*p) {
        size_t n = strcspn(p, "\n") + 1;

        if (up || strncasecmp(p, "connection:", 11) != 0)
            buf_add(out, p, n);
        p += n;
    }
    if (!up)
        buf_adds(out, "Connection: close\r\n");
    buf_adds(out, "\r\n");
}

/* moves what there is from one to the other; false at the end */
static bool pass(int from, int to, char *room, size_t size)
{
    ssize_t n = recv(from, room, size, 0);

    if (n <= 0) {
        shutdown(to, SHUT_WR);
        return n < 0 && errno == EINTR;
    }
    for (ssize_t at = 0; at < n;) {
        ssize_t k = send(to, room + at, (size_t)(n - at), MSG_NOSIGNAL);

        if (k < 0 && errno != EINTR)
            return false;
        at += k > 0 ? k : 0;
    }
    return true;
}

void http_tunnel(struct req *r, int upstream, bool (*keep_going)(void *arg),
                 void *arg)
{
    struct http *h = r->c;
    AUTO_CLOSE int up = upstream;
    AUTO_BUF struct buf head = {0};
    struct pollfd p[2] = {{h->fd, POLLIN, 0}, {up, POLLIN, 0}};

    h->answered = true;
    h->keep = false;
    tunnel_head(h, &head);
    buf_add(&head, h->in + h->at, h->end - h->at);
    if (fd_write_all(up, head.p, head.n) < 0)
        return;
    while (p[1].fd >= 0 && keep_going(arg)) {
        if (poll(p, 2, 1000) < 0 && errno != EINTR)
            return;
        if (p[0].revents && !pass(h->fd, up, h->in, sizeof(h->in)))
            p[0].fd = -1;
        if (p[1].revents && !pass(up, h->fd, h->in, sizeof(h->in)))
            p[1].fd = -1;
        p[0].revents = p[1].revents = 0;
    }
}

/* ---- a connection ---- */

static void forget(struct http *h)
{
    free(h->head);
    free(h->method);
    free(h->target);
    free(h->path);
    h->head = h->method = h->target = h->path = NULL;
    pairs_free(&h->headers);
    pairs_free(&h->query);
    if (h->inflating)
        inflateEnd(&h->z);
    memset(&h->z, 0, sizeof(h->z));
    buf_free(&h->extra);
    h->kind = BODY_NONE;
    h->left = 0;
    h->chunk_open = h->body_end = h->expects = false;
    h->inflating = h->inflate_end = false;
    h->answered = h->open = h->chunked = h->broken = false;
    h->owed = 0;
}

static void refuse(struct http *h, int rc)
{
    static const char text[] = "malformed request\n";
    AUTO_BUF struct buf out = {0};

    h->keep = false;
    head_out(h, &out, rc == -E2BIG ? 431 : 400, "text/plain",
             sizeof(text) - 1);
    buf_adds(&out, text);
    send_bytes(h, out.p, out.n);
}

static bool serve_one(struct http *h, void (*handler)(struct req *r))
{
    struct req r = {.c = h, .read_body = body_read};
    int rc = read_head(h);
    bool more;

    if (rc < 0)
        refuse(h, rc);
    if (rc <= 0) {
        forget(h);
        return false;
    }
    r.method = h->method;
    r.path = h->path;
    handler(&r);
    reply_end(&r);
    if (!h->answered)
        reply(&r, 500, "text/plain", "no answer\n", 10);
    buf_wipe(&r.body);
    more = h->keep && !h->broken && drain(h);
    forget(h);
    return more;
}

void http_serve(int fd, bool local, void (*handler)(struct req *r))
{
    struct http *h = xcalloc(1, sizeof(*h));
    struct timeval idle = {.tv_sec = 640};
    char scrap[4096];

    h->fd = fd;
    h->local = local;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &idle, sizeof(idle));
    while (serve_one(h, handler))
        ;
    /* let the client read the answer before a reset could overtake it */
    shutdown(fd, SHUT_WR);
    idle.tv_sec = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &idle, sizeof(idle));
    for (int i = 0; i < 256 && recv(fd, scrap, sizeof(scrap), 0) > 0; i++)
        ;
    close(fd);
    free(h);
}
