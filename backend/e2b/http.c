#include "e2b/http.h"

#include "base/text.h"
#include "e2b/fail.h"

#include <ctype.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* one try under way; lives on the stack of http_try */
struct try_state {
    const struct http_req *r;
    struct http_answer *a;
    int64_t fd_start, fd_at, last_ms;
    bool sink_stopped, fd_failed;
    char detail[CURL_ERROR_SIZE];
};

void http_answer_clear(struct http_answer *a)
{
    buf_wipe(&a->body); /* it may hold a token */
    memset(a, 0, sizeof(*a));
    a->retry_after = -1;
    a->range_at = a->range_end = a->total = -1;
}

/* ---- what curl calls ---- */

static size_t on_body(char *p, size_t one, size_t n, void *arg)
{
    struct try_state *t = arg;
    struct http_answer *a = t->a;
    bool ok = a->status >= 200 && a->status < 300;

    (void)one;
    t->last_ms = mono_ms();
    if (ok && t->r->sink) {
        if (t->r->sink(t->r->sink_arg, p, n))
            return n;
        t->sink_stopped = true;
        return 0;
    }
    if (a->body.n + n > HTTP_JSON_MAX) {
        a->too_big = true;
        return 0;
    }
    if (ok || a->body.n < 65536)
        buf_add(&a->body, p, n);
    return n;
}

/* "bytes 5-9/100", "bytes * /100" */
static void range_read(struct http_answer *a, const char *v)
{
    const char *slash = strchr(v, '/');
    long long at, end;

    if (sscanf(v, "bytes %lld-%lld", &at, &end) == 2 && at >= 0 && end >= at) {
        a->range_at = at;
        a->range_end = end;
    }
    if (slash)
        text_int(slash + 1, 0, INT64_MAX, &a->total);
}

static size_t on_header(char *p, size_t one, size_t n, void *arg)
{
    struct try_state *t = arg;
    struct http_answer *a = t->a;
    AUTO_FREE char *line = xmemdup0(p, n);
    char *v = strchr(line, ':');
    int64_t secs;

    (void)one;
    t->last_ms = mono_ms();
    if (!strncmp(line, "HTTP/", 5)) {
        v = strchr(line, ' ');
        http_answer_clear(a);
        a->status = v ? strtol(v, NULL, 10) : 0;
        return n;
    }
    if (n <= 2 && (*p == '\r' || *p == '\n'))
        a->whole_head = true;
    if (!v)
        return n;
    *v = 0;
    v = text_trim(v + 1);
    if (!strcasecmp(line, "Retry-After")) {
        if (text_int(v, 0, 86400, &secs))
            a->retry_after = (int)secs;
    } else if (!strcasecmp(line, "X-Next-Token")) {
        if (strlen(v) < sizeof(a->next_token))
            memcpy(a->next_token, v, strlen(v) + 1);
    } else if (!strcasecmp(line, "Content-Range")) {
        range_read(a, v);
    }
    return n;
}

static size_t on_upload(char *p, size_t one, size_t n, void *arg)
{
    struct try_state *t = arg;
    ssize_t got;

    t->last_ms = mono_ms();
    n *= one;
    if (t->fd_start < 0)
        got = read(t->r->body_fd, p, n);
    else
        got = pread(t->r->body_fd, p, n, t->fd_at);
    if (got < 0) {
        t->fd_failed = true;
        return CURL_READFUNC_ABORT;
    }
    t->fd_at += got;
    return (size_t)got;
}

static int on_rewind(void *arg, curl_off_t at, int whence)
{
    struct try_state *t = arg;

    if (t->fd_start < 0 || whence != SEEK_SET)
        return CURL_SEEKFUNC_FAIL;
    t->fd_at = t->fd_start + at;
    return CURL_SEEKFUNC_OK;
}

/* upload progress counts as life too */
static int on_progress(void *arg, curl_off_t dl_total, curl_off_t dl,
                       curl_off_t ul_total, curl_off_t ul)
{
    struct try_state *t = arg;

    (void)dl_total;
    (void)dl;
    (void)ul_total;
    if (ul > 0 && ul != t->fd_at && t->r->body) {
        t->fd_at = ul;
        t->last_ms = mono_ms();
    }
    return 0;
}

/* ---- one try ---- */

void http_setup(struct e2b *x, CURL *h, const struct http_req *r)
{
    easy_prepare(x, h, r->url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, r->headers);
    if (r->body) {
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t)r->body_n);
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, r->body);
    } else if (!strcmp(r->method, "POST")) {
        curl_easy_setopt(h, CURLOPT_POST, 1L);
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
    }
    if (strcmp(r->method, "GET") != 0 && strcmp(r->method, "POST") != 0)
        curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, r->method);
    if (r->once)
        curl_easy_setopt(h, CURLOPT_FRESH_CONNECT, 1L);
}

static void setup_fd(CURL *h, struct try_state *t)
{
    struct stat st;
    bool file = !fstat(t->r->body_fd, &st) && S_ISREG(st.st_mode);
    curl_off_t left = st.st_size - t->fd_start;

    curl_easy_setopt(h, CURLOPT_POST, 1L);
    curl_easy_setopt(h, CURLOPT_READFUNCTION, on_upload);
    curl_easy_setopt(h, CURLOPT_READDATA, t);
    curl_easy_setopt(h, CURLOPT_SEEKFUNCTION, on_rewind);
    curl_easy_setopt(h, CURLOPT_SEEKDATA, t);
    curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE,
                     file && left >= 0 ? left : (curl_off_t)-1);
}

static void setup_try(struct e2b *x, CURL *h, struct try_state *t)
{
    http_setup(x, h, t->r);
    if (t->r->has_fd)
        setup_fd(h, t);
    curl_easy_setopt(h, CURLOPT_ACCEPT_ENCODING, "gzip");
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(h, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, t->detail);
}

static void host_of(const char *url, struct buf *out)
{
    const char *p = strstr(url, "://");
    size_t n;

    p = p ? p + 3 : url;
    n = strcspn(p, "/?#");
    text_printable(out, p, n < 100 ? n : 100, 0);
}

int http_failure(CURLcode rc, const char *url, const char *detail,
                 struct err *e)
{
    AUTO_BUF struct buf host = {0}, words = {0};

    if (!detail || !*detail)
        detail = curl_easy_strerror(rc);
    host_of(url, &host);
    text_printable(&words, detail, strnlen(detail, 150), 0);
    if (rc == CURLE_OPERATION_TIMEDOUT)
        return err_set(e, ETIMEDOUT, "%s: no answer in time", host.p);
    if (rc == CURLE_BAD_CONTENT_ENCODING || rc == CURLE_WEIRD_SERVER_REPLY ||
        rc == CURLE_UNSUPPORTED_PROTOCOL)
        return err_set(e, EPROTO, "%s: %s", host.p, words.p);
    return err_set(e, EHOSTUNREACH, "%s: %s", host.p, words.p);
}

bool http_was_sent(CURL *h)
{
    long n = 0;

    return curl_easy_getinfo(h, CURLINFO_REQUEST_SIZE, &n) || n > 0;
}

/* how long this try may still wait; 0 when it has run out */
static int time_left(const struct try_state *t, int64_t began)
{
    int64_t now = mono_ms(), left = 60000, n;

    if (t->r->limit_ms) {
        n = began + t->r->limit_ms - now;
        left = n < left ? n : left;
    }
    if (t->r->idle_ms) {
        n = t->last_ms + t->r->idle_ms - now;
        left = n < left ? n : left;
    }
    return left < 0 ? 0 : (int)left;
}

/* drives the transfer to its end: a CURLcode, or -1 when cancelled */
static int drive(struct slot *s, const struct try_state *t)
{
    int64_t began = mono_ms();
    int still = 1, left;
    CURLMsg *m;

    for (;;) {
        if (curl_multi_perform(s->multi, &still))
            return CURLE_OUT_OF_MEMORY;
        while ((m = curl_multi_info_read(s->multi, &still)))
            if (m->msg == CURLMSG_DONE)
                return (int)m->data.result;
        if (cancel_wanted(t->r->cancel))
            return -1;
        left = time_left(t, began);
        if (!left)
            return CURLE_OPERATION_TIMEDOUT;
        curl_multi_poll(s->multi, NULL, 0, left, NULL);
    }
}

static int try_result(struct try_state *t, int rc, struct err *e)
{
    if (rc == -1)
        return err_set(e, ECANCELED, "cancelled");
    if (t->a->too_big)
        return err_set(e, EPROTO, "the answer is larger than %d MiB",
                       HTTP_JSON_MAX >> 20);
    if (t->sink_stopped)
        return err_set(e, EFBIG, "the answer is larger than asked for");
    if (t->fd_failed)
        return err_set(e, EIO, "what is to be sent can't be read");
    if (rc)
        return http_failure((CURLcode)rc, t->r->url, t->detail, e);
    if (t->a->status && !t->a->whole_head)
        return err_set(e, EHOSTUNREACH, "the answer was cut short");
    if (!t->a->status)
        return err_set(e, EPROTO, "the answer is no HTTP");
    return 0;
}

static int http_try(struct e2b *x, struct slot *s, const struct http_req *r,
                    struct http_answer *a, int64_t fd_start, bool *sent,
                    struct err *e)
{
    struct try_state t = {.r = r,
                          .a = a,
                          .fd_start = fd_start,
                          .fd_at = fd_start,
                          .last_ms = mono_ms()};
    int rc, res;

    http_answer_clear(a);
    if (r->sink)
        r->sink(r->sink_arg, NULL, 0);
    setup_try(x, s->easy, &t);
    curl_multi_add_handle(s->multi, s->easy);
    rc = drive(s, &t);
    *sent = http_was_sent(s->easy);
    res = try_result(&t, rc, e);
    curl_multi_remove_handle(s->multi, s->easy);
    curl_easy_reset(s->easy);
    if (res)
        slot_renew(s); /* none of its connections is to be trusted */
    return res;
}

/* ---- trying again ---- */

int http_backoff(int n)
{
    int cap = 250 << (n < 5 ? n : 5);
    uint32_t r;

    if (getrandom(&r, sizeof(r), 0) != sizeof(r))
        r = (uint32_t)now_ns();
    return 20 + (int)(r % (uint32_t)cap);
}

/* "not found" of a sandbox proxy is mostly the truth: asked once more only */
static bool worth_asking(const struct http_answer *a, int tries)
{
    switch (a->status) {
    case 408:
    case 429:
    case 500:
    case 503:
    case 504:
        return true;
    case 502:
        return tries < 2 || !memmem(a->body.p ? a->body.p : "", a->body.n,
                                    "sandbox was not found", 21);
    }
    return false;
}

static bool again(const struct http_req *r, const struct http_answer *a,
                  int res, bool sent, int tries, int64_t fd_start)
{
    if (r->has_fd && fd_start < 0 && sent)
        return false; /* a pipe can't be sent twice */
    if (res == -ECANCELED || res == -EFBIG || res == -EIO)
        return false;
    if (res)
        return !sent || (!r->once && res != -EPROTO);
    if (r->once)
        return a->status == 429 && a->retry_after >= 0;
    return worth_asking(a, tries);
}

/* waits, or returns false if cancelled meanwhile */
static bool wait_for_turn(struct slot *s, const struct http_req *r, int ms)
{
    int64_t end = mono_ms() + ms;

    while (!cancel_wanted(r->cancel)) {
        int64_t left = end - mono_ms();

        if (left <= 0)
            return true;
        curl_multi_poll(s->multi, NULL, 0, (int)left, NULL);
    }
    return false;
}

int http_call(struct e2b *x, const struct http_req *r, struct http_answer *a,
              bool *sent, struct err *e)
{
    int64_t began = mono_ms();
    off_t fd_start = r->has_fd ? lseek(r->body_fd, 0, SEEK_CUR) : -1;
    struct slot *s = slot_take(x, r->cancel);
    bool now_sent;
    int res, wait;

    *sent = false;
    for (int tries = 1;; tries++) {
        res = http_try(x, s, r, a, fd_start, &now_sent, e);
        *sent = now_sent;
        if (tries >= HTTP_TRIES ||
            !again(r, a, res, now_sent, tries, fd_start))
            break;
        wait = http_backoff(tries);
        if (!res && a->retry_after >= 0)
            wait += a->retry_after * 1000;
        if (mono_ms() + wait - began > HTTP_PATIENCE_MS)
            break;
        if (!wait_for_turn(s, r, wait)) {
            res = err_set(e, ECANCELED, "cancelled");
            break;
        }
    }
    slot_give(x, s, true);
    return res;
}

int http_want(struct e2b *x, const struct http_req *r, struct http_answer *a,
              struct err *e)
{
    bool sent;
    int rc = http_call(x, r, a, &sent, e);

    if (rc)
        return rc;
    if (a->status >= 200 && a->status < 300)
        return 0;
    return fail_answer(a->status, &a->body, e);
}
