/*
 * http: one request and its answer, and the rules of trying again. It knows
 * HTTP and nothing of sandboxes. Calls block; e2b_cancel ends them.
 *
 * Trying again: at most 4 tries, none begun later than 20 s after the first;
 * waits have full jitter and honour Retry-After. A request marked `once` is
 * repeated only while it can't have been carried out: the connection never
 * came up, or the server refused with 429. It gets a connection of its own,
 * as curl silently repeats what dies on a reused one.
 */
#ifndef E2B_HTTP_H
#define E2B_HTTP_H

#include "e2b/endpoint.h"

enum {
    HTTP_JSON_MAX = 32 << 20, /* bytes of an answer kept in memory */
    HTTP_LIMIT_MS = 15000,    /* for one try, where nothing else is said */
    HTTP_PATIENCE_MS = 20000, /* no try is begun later */
    HTTP_TRIES = 4,
};

struct http_req {
    const char *method; /* "GET", ... */
    const char *url;
    struct curl_slist *headers; /* borrowed */
    const void *body;           /* borrowed; NULL: none, or body_fd */
    size_t body_n;
    bool has_fd; /* the body is body_fd from where it stands */
    int body_fd;
    bool once;
    int limit_ms; /* of one try; 0: only idle_ms counts */
    int idle_ms;  /* without a byte either way; 0: no such limit */
    struct e2b_cancel *cancel;
    /* takes the body of a 2xx answer; false ends the request. NULL: the body
     * is kept in the answer. Told p == NULL before every try: start anew. */
    bool (*sink)(void *arg, const char *p, size_t n);
    void *sink_arg;
};

struct http_answer {
    long status;
    struct buf body; /* of an error, or without a sink */
    char next_token[512];
    int retry_after;                    /* seconds, -1 if not told */
    int64_t range_at, range_end, total; /* Content-Range, -1 if not told */
    bool
        whole_head; /* curl takes an answer cut in its head for an empty one */
    bool too_big;
};
void http_answer_clear(struct http_answer *a);

/*
 * 0 when there is an answer, of whatever status. Else what kept it away:
 * -EHOSTUNREACH, -ETIMEDOUT, -ECANCELED, -EPROTO (too big). *sent tells if
 * the request may have been carried out.
 */
int http_call(struct e2b *x, const struct http_req *r, struct http_answer *a,
              bool *sent, struct err *e);
/* http_call, and a status other than 2xx is an error as fail.h says */
int http_want(struct e2b *x, const struct http_req *r, struct http_answer *a,
              struct err *e);

/* ---- for the streams, which drive curl themselves ---- */

/* method, headers, body of memory; the URL as easy_prepare */
void http_setup(struct e2b *x, CURL *h, const struct http_req *r);
/* curl's failure as errno and words; url only gives the host's name */
int http_failure(CURLcode rc, const char *url, const char *detail,
                 struct err *e);
/* did curl write any of the request? */
bool http_was_sent(CURL *h);
/* milliseconds to wait before try number n (1 is the second) */
int http_backoff(int n);

#endif
