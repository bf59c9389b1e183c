#include "base/text.h"
#include "e2b/fail.h"
#include "e2b/stream.h"

enum { PIECE = 48 * 1024, FEED_TRIES = 3, FEED_STALL_S = 60 };

static void feed_next(struct feed *f);

int feed_init(struct feed *f, const struct e2b_target *t, const char *user,
              const void *p, size_t n, bool copy, struct err *e)
{
    int rc;

    memset(f, 0, sizeof(*f));
    rc = target_url(t, "/process.Process/SendInput", &f->input_url, e);
    if (!rc)
        rc = target_url(t, "/process.Process/CloseStdin", &f->close_url, e);
    if (rc)
        return rc;
    f->headers = target_headers(t, user);
    headers_add(&f->headers, "Content-Type: application/json");
    headers_add(&f->headers, "Connect-Protocol-Version: 1");
    f->x = t->x;
    f->n = n;
    f->data = copy ? xmemdup0(p, n) : NULL;
    f->p = copy ? f->data : p;
    return 0;
}

void feed_free(struct feed *f)
{
    if (f->easy) {
        curl_multi_remove_handle(f->multi, f->easy);
        curl_easy_cleanup(f->easy);
    }
    free(f->input_url);
    free(f->close_url);
    headers_free(f->headers);
    if (f->data)
        explicit_bzero(f->data, f->n);
    free(f->data);
    buf_wipe(&f->body);
    buf_free(&f->answer);
    memset(f, 0, sizeof(*f));
}

static size_t on_answer(char *p, size_t one, size_t n, void *arg)
{
    struct feed *f = arg;

    (void)one;
    if (f->answer.n < 65536)
        buf_add(&f->answer, p, n);
    return n;
}

static void feed_request(struct feed *f)
{
    struct http_req r = {.method = "POST",
                         .url = f->closing ? f->close_url : f->input_url,
                         .headers = f->headers,
                         .body = f->body.p,
                         .body_n = f->body.n};
    bool fresh = f->tries > 0 || !f->at;

    buf_clear(&f->answer);
    if (!f->easy)
        f->easy = curl_easy_init();
    else
        curl_easy_reset(f->easy);
    if (!f->easy)
        abort();
    http_setup(f->x, f->easy, &r);
    /* the process may take its time to read; then the pieces that follow use
     * the connection of the first, which was alive a moment ago */
    curl_easy_setopt(f->easy, CURLOPT_FRESH_CONNECT, fresh ? 1L : 0L);
    curl_easy_setopt(f->easy, CURLOPT_HTTP_VERSION,
                     (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(f->easy, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(f->easy, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(f->easy, CURLOPT_PRIVATE, &f->transfer);
    curl_multi_add_handle(f->multi, f->easy);
}

static void feed_fail(struct feed *f)
{
    f->failed = f->over = true;
    err_prefix(&f->why, "stdin can't be sent");
}

/* a process that is gone or has closed its stdin is no failure: how it ended
 * is told by its stream */
static bool reader_gone(const struct feed *f, long status)
{
    AUTO_BUF struct buf words = {0};

    if (status == 404)
        return true;
    fail_words(&f->answer, &words);
    return status == 500 && strstr(buf_str(&words), "stdin") != NULL;
}

static void feed_done(struct transfer *t, CURLcode rc)
{
    struct feed *f = (struct feed *)t;
    bool sent = http_was_sent(f->easy);
    long status = 0;

    curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(f->multi, f->easy);
    if (rc && ++f->tries < FEED_TRIES && (!sent || f->closing)) {
        feed_request(f);
        return;
    }
    if (rc) {
        http_failure(rc, f->input_url, NULL, &f->why);
        feed_fail(f);
    } else if (status == 200) {
        f->at += f->piece;
        f->tries = 0;
        feed_next(f);
    } else if (reader_gone(f, status)) {
        f->over = true;
    } else {
        fail_answer(status, &f->answer, &f->why);
        feed_fail(f);
    }
}

/* the piece at `at`, or the closing when all is sent */
static void feed_next(struct feed *f)
{
    if (f->closing) {
        f->over = true;
        return;
    }
    f->piece = f->n - f->at < PIECE ? f->n - f->at : PIECE;
    buf_clear(&f->body);
    buf_addf(&f->body, "{\"process\":{\"pid\":%d}", f->pid);
    if (f->piece) {
        buf_adds(&f->body, ",\"input\":{\"stdin\":\"");
        base64_encode(&f->body, f->p + f->at, f->piece);
        buf_adds(&f->body, "\"}");
    } else {
        f->closing = true;
    }
    buf_addc(&f->body, '}');
    feed_request(f);
}

void feed_start(struct feed *f, CURLM *m, int pid)
{
    f->transfer.done = feed_done;
    f->multi = m;
    f->pid = pid;
    feed_next(f);
}
