/*
 * files: the file system of a sandbox and its signals: short RPCs in JSON,
 * and bytes over plain HTTP.
 */
#include "base/text.h"
#include "e2b/fail.h"
#include "e2b/http.h"
#include "e2b/json.h"

enum { STALL_MS = 30000, READ_MAX = 1 << 30, LS_MS = 60000 };

/* "cannot read '/x': ..." with a path that is safe to show */
static int about(struct err *e, int rc, const char *verb, const char *path)
{
    AUTO_BUF struct buf b = {0};

    if (!rc)
        return 0;
    text_printable(&b, path, strnlen(path, 150), 0);
    err_prefix(e, "cannot %s '%s'", verb, buf_str(&b));
    return rc;
}

/* a unary RPC; takes j; *out (if wanted) is to be json_decref'd */
static int rpc(const struct e2b_target *t, const char *method, json_t *j,
               bool once, int limit_ms, json_t **out, struct err *e)
{
    struct http_answer a = {0};
    struct curl_slist *h = NULL;
    AUTO_BUF struct buf body = {0};
    AUTO_FREE char *url = NULL;
    struct http_req r = {.method = "POST", .once = once, .limit_ms = limit_ms};
    int rc = json_encode(j, &body, e);

    if (!rc)
        rc = target_url(t, method, &url, e);
    if (rc)
        return rc;
    h = target_headers(t, NULL);
    headers_add(&h, "Content-Type: application/json");
    headers_add(&h, "Connect-Protocol-Version: 1");
    r.url = url;
    r.headers = h;
    r.body = body.p;
    r.body_n = body.n;
    rc = http_want(t->x, &r, &a, e);
    if (!rc && out) {
        *out = json_read(a.body.p, a.body.n);
        if (!json_is_object(*out)) {
            json_decref(*out);
            *out = NULL;
            rc = err_set(e, EPROTO, "the answer is no JSON object");
        }
    }
    headers_free(h);
    http_answer_clear(&a);
    return rc;
}

#define FS "/filesystem.Filesystem/"

int e2b_stat(const struct e2b_target *t, const char *path,
             struct e2b_entry *out, struct err *e)
{
    json_t *j = NULL;
    int rc;

    memset(out, 0, sizeof(*out));
    rc = rpc(t, FS "Stat", json_pack("{s:s}", "path", path), false,
             HTTP_LIMIT_MS, &j, e);
    if (!rc)
        rc = entry_from_json(json_object_get(j, "entry"), out, e);
    json_decref(j);
    return about(e, rc, "stat", path);
}

int e2b_ls(const struct e2b_target *t, const char *path, int depth,
           struct e2b_entry **out, size_t *n, struct err *e)
{
    json_t *j = NULL, *list, *item;
    size_t i;
    int rc;

    *out = NULL;
    *n = 0;
    rc = rpc(
        t, FS "ListDir",
        json_pack("{s:s,s:i}", "path", path, "depth", depth < 1 ? 1 : depth),
        false, LS_MS, &j, e);
    list = json_object_get(j, "entries"); /* absent when empty */
    *out = xcalloc(json_array_size(list), sizeof(**out));
    json_array_foreach(list, i, item)
    {
        if (!entry_from_json(item, &(*out)[*n], NULL))
            ++*n;
        else
            e2b_entry_clear(&(*out)[*n]);
    }
    json_decref(j);
    return about(e, rc, "list", path);
}

int e2b_mkdir(const struct e2b_target *t, const char *path, struct err *e)
{
    int rc = rpc(t, FS "MakeDir", json_pack("{s:s}", "path", path), false,
                 HTTP_LIMIT_MS, NULL, e);

    return about(e, rc == -EEXIST ? 0 : rc, "make directory", path);
}

int e2b_move(const struct e2b_target *t, const char *from, const char *to,
             struct err *e)
{
    int rc = rpc(t, FS "Move",
                 json_pack("{s:s,s:s}", "source", from, "destination", to),
                 true, HTTP_LIMIT_MS, NULL, e);

    return about(e, rc, "move", from);
}

int e2b_remove(const struct e2b_target *t, const char *path, struct err *e)
{
    int rc = rpc(t, FS "Remove", json_pack("{s:s}", "path", path), false,
                 LS_MS, NULL, e);

    return about(e, rc == -ENOENT ? 0 : rc, "remove", path);
}

int e2b_signal(const struct e2b_target *t, int pid, int sig, struct err *e)
{
    const char *name = sig == 9 ? "SIGNAL_SIGKILL" : "SIGNAL_SIGTERM";
    int rc;

    if (sig != 9 && sig != 15)
        return err_set(e, EINVAL, "only signals 9 and 15 can be sent");
    rc = rpc(t, "/process.Process/SendSignal",
             json_pack("{s:{s:i},s:s}", "process", "pid", pid, "signal", name),
             false, HTTP_LIMIT_MS, NULL, e);
    return rc == -ENOENT ? 0 : rc;
}

int e2b_health(const struct e2b_target *t, struct err *e)
{
    struct http_answer a = {0};
    AUTO_FREE char *url = NULL;
    struct http_req r = {.method = "GET", .limit_ms = 5000};
    struct curl_slist *h;
    int rc = target_url(t, "/health", &url, e);

    if (rc)
        return rc;
    h = target_headers(t, NULL);
    r.url = url;
    r.headers = h;
    rc = http_want(t->x, &r, &a, e);
    headers_free(h);
    http_answer_clear(&a);
    return rc;
}

/* ---- bytes ---- */

static int files_url(const struct e2b_target *t, const char *path,
                     const char *user, char **out, struct err *e)
{
    AUTO_BUF struct buf b = {0};

    buf_adds(&b, "/files?path=");
    url_escape(&b, path);
    if (user) {
        buf_adds(&b, "&username=");
        url_escape(&b, user);
    }
    return target_url(t, b.p, out, e);
}

/* a reading under way: what a whole answer must skip, what may be kept */
struct reading {
    struct buf *out;
    size_t begin; /* out's length before */
    int64_t off, len;
    int64_t seen; /* of the answer's body */
    const struct http_answer *a;
};

static bool on_bytes(void *arg, const char *p, size_t n)
{
    struct reading *g = arg;
    int64_t skip, room;

    if (!p) { /* a new try */
        g->seen = 0;
        if (g->out->n > g->begin)
            g->out->p[g->out->n = g->begin] = 0;
        return true;
    }
    /* a server that knows no ranges sends everything */
    skip = g->a->status == 206 ? 0 : g->off - g->seen;
    skip = skip < 0 ? 0 : skip > (int64_t)n ? (int64_t)n : skip;
    g->seen += (int64_t)n;
    p += skip;
    n -= (size_t)skip;
    room = (g->len < 0 ? READ_MAX : g->len) - (int64_t)(g->out->n - g->begin);
    if ((int64_t)n > room) {
        if (g->len < 0)
            return false;
        n = (size_t)room;
    }
    buf_add(g->out, p, n);
    return true;
}

static int read_result(const struct reading *g, const struct http_answer *a,
                       int64_t *total, struct err *e)
{
    bool whole = a->status == 200;

    if (a->status == 206 && a->range_at >= 0 && a->range_at != g->off)
        return err_set(e, EPROTO, "the server sent another part");
    if (a->status == 206 && g->seen != (int64_t)(g->out->n - g->begin))
        return err_set(e, EPROTO, "the server sent more than asked for");
    if (a->range_at >= 0 && g->seen != a->range_end - a->range_at + 1)
        return err_set(e, EHOSTUNREACH, "the answer was cut short");
    if (total)
        *total = whole ? g->seen : a->total >= 0 ? a->total : g->off + g->seen;
    return 0;
}

/* the size alone, for a range that is empty */
static int size_of(const struct e2b_target *t, const char *path,
                   int64_t *total, struct err *e)
{
    struct e2b_entry v;
    int rc = total ? e2b_stat(t, path, &v, e) : 0;

    if (total && !rc) {
        *total = v.size;
        e2b_entry_clear(&v);
    }
    return rc;
}

static int read_once(const struct e2b_target *t, const char *path,
                     struct reading *g, int64_t *total, struct err *e)
{
    struct http_answer a = {0};
    AUTO_FREE char *url = NULL;
    struct http_req r = {
        .method = "GET", .idle_ms = STALL_MS, .sink = on_bytes, .sink_arg = g};
    struct curl_slist *h;
    bool sent;
    int rc = files_url(t, path, NULL, &url, e);

    if (rc)
        return rc;
    h = target_headers(t, NULL);
    if (g->len >= 0)
        headers_add(&h, "Range: bytes=%lld-%lld", (long long)g->off,
                    (long long)(g->off + g->len - 1));
    else if (g->off)
        headers_add(&h, "Range: bytes=%lld-", (long long)g->off);
    /* a packed range would be a part of the packed file */
    if (g->len >= 0 || g->off)
        headers_add(&h, "Accept-Encoding: identity");
    r.url = url;
    r.headers = h;
    g->a = &a;
    rc = http_call(t->x, &r, &a, &sent, e);
    if (!rc && a.status == 416) {
        if (total && a.total >= 0)
            *total = a.total;
        else
            rc = size_of(t, path, total, e);
    } else if (!rc && (a.status == 200 || a.status == 206)) {
        rc = read_result(g, &a, total, e);
    } else if (!rc) {
        rc = fail_answer(a.status, &a.body, e);
    }
    headers_free(h);
    http_answer_clear(&a);
    return rc;
}

int e2b_read(const struct e2b_target *t, const char *path, int64_t off,
             int64_t len, struct buf *out, int64_t *total, struct err *e)
{
    struct reading g = {.out = out, .begin = out->n, .off = off, .len = len};
    int rc;

    if (off < 0 || (len > 0 && off > INT64_MAX - len))
        return err_set(e, EINVAL, "no such place in a file");
    rc = len ? read_once(t, path, &g, total, e) : size_of(t, path, total, e);
    if (rc && out->n > g.begin)
        out->p[out->n = g.begin] = 0;
    return about(e, rc, "read", path);
}

static int upload(const struct e2b_target *t, const char *path,
                  const char *user, struct http_req *r, struct err *e)
{
    struct http_answer a = {0};
    AUTO_FREE char *url = NULL;
    struct curl_slist *h;
    int rc = files_url(t, path, user, &url, e);

    if (rc)
        return about(e, rc, "write", path);
    h = target_headers(t, NULL);
    headers_add(&h, "Content-Type: application/octet-stream");
    r->method = "POST";
    r->url = url;
    r->headers = h;
    r->idle_ms = STALL_MS;
    rc = http_want(t->x, r, &a, e);
    headers_free(h);
    http_answer_clear(&a);
    return about(e, rc, "write", path);
}

int e2b_write(const struct e2b_target *t, const char *path, const void *p,
              size_t n, const char *user, struct err *e)
{
    struct http_req r = {.body = n ? p : "", .body_n = n};

    return upload(t, path, user, &r, e);
}

int e2b_write_fd(const struct e2b_target *t, const char *path, int fd,
                 struct err *e)
{
    struct http_req r = {.has_fd = true, .body_fd = fd};

    return upload(t, path, NULL, &r, e);
}
