/*
 * http: HTTP/1.1 on one accepted socket, by blocking calls on the thread of
 * the connection. Owns the socket, the bytes read ahead, the request and the
 * state of its answer; knows nothing of boxes, keys or paths. The functions
 * req_* and reply_* of host.h are implemented here.
 *
 * Invariants: exactly one answer a request (http_serve sends a 500 when the
 * handler gave none); a request's head is at most 64 KiB. All of a connection
 * happens on one thread; every call may block.
 */
#ifndef LOCAL_HTTP_H
#define LOCAL_HTTP_H

#include "local/host.h"

/* serves requests until the client leaves; takes fd. local: it came over the
 * Unix socket */
void http_serve(int fd, bool local, void (*handler)(struct req *r));
bool http_local(const struct req *r);

/* reads the whole body into r->body; -EFBIG beyond max, -EINVAL when it is
 * malformed, -EPIPE when the client is gone */
int http_body(struct req *r, size_t max);
/* the path and query as they came */
const char *http_target(const struct req *r);

/*
 * Hands the connection to upstream (a connected socket, taken): the request
 * goes there as it came, but for Connection, and then bytes go both ways
 * until either side ends. Counts as the answer. keep_going is asked now and
 * then.
 */
void http_tunnel(struct req *r, int upstream, bool (*keep_going)(void *arg),
                 void *arg);

/* appends s with %XX undone; plus: '+' is a blank too. False if malformed */
bool http_unescape(struct buf *out, const char *s, size_t n, bool plus);
const char *http_status_words(int status);

#endif
