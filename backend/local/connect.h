/*
 * connect: the Connect protocol, JSON codec only. Owns envelopes, error words
 * and their HTTP status; knows nothing of processes or files.
 *
 * A unary call reads rpc_request and answers with exactly one of rpc_reply
 * and rpc_fail. A stream begins with stream_open, which answers by itself when
 * it fails, and must finish with stream_end. Everything runs on the thread of
 * the request and may block in a write.
 */
#ifndef LOCAL_CONNECT_H
#define LOCAL_CONNECT_H

#include "local/host.h"

enum { ENVELOPE_HEAD = 5, ENVELOPE_MAX = 64 << 20 };
enum { ENVELOPE_GZIP = 1, ENVELOPE_END = 2 };

struct stream {
    struct req *r;
    int64_t deadline;     /* mono_ms of Connect-Timeout-Ms, 0 for none */
    int64_t timeout_ms;   /* as asked, 0 for none */
    int64_t keepalive_ms; /* silence after which a keepalive is due */
};

/* the word of an errno, e.g. "not_found" */
const char *rpc_code(int err);

/* the object of a unary call (owned), or NULL after it was refused */
json_t *rpc_request(struct req *r);
void rpc_reply(struct req *r, json_t *j); /* takes j */
void rpc_fail(struct req *r, const char *code, const char *fmt, ...)
    PRINTF(3, 4);
/* errors outside of RPCs: {"code":<int>,"message":"..."} */
void http_fail(struct req *r, int status, const char *fmt, ...) PRINTF(3, 4);
/* mono_ms of Connect-Timeout-Ms, 0 for none, -EINVAL if malformed */
int64_t rpc_deadline(struct req *r, int64_t *timeout_ms);

/*
 * The one message of a server stream (owned), with the answer begun, or NULL
 * after it was refused.
 */
json_t *stream_open(struct stream *s, struct req *r);
/* one message; 0 or -EPIPE. json is bare text */
int stream_send(struct stream *s, const char *json, size_t n);
/* code NULL is success */
void stream_end(struct stream *s, const char *code, const char *fmt, ...)
    PRINTF(3, 4);

/* appends one envelope */
void envelope_add(struct buf *out, int flags, const void *p, size_t n);
/*
 * Takes the first envelope off in[0..n): the bytes used, 0 when it is not
 * whole, -EINVAL or -EMSGSIZE if it can't be. The payload is decompressed into
 * out (cleared first).
 */
ssize_t envelope_take(const char *in, size_t n, int *flags, struct buf *out);

/* the user of Basic auth; -EACCES with words if there is no such one */
int rpc_user(struct req *r, bool *as_root, struct err *e);
/* is the content type this one, parameters aside? */
bool rpc_type_is(struct req *r, const char *type);

/* a field by its lowerCamelCase or snake_case name; NULL if absent or null */
json_t *field(const json_t *o, const char *camel);
const char *field_str(const json_t *o, const char *camel); /* "" if absent */
bool field_bool(const json_t *o, const char *camel, bool absent);
/* number or decimal string; absent gives 0; false if neither */
bool field_int(const json_t *o, const char *camel, int64_t *out);
/* text that may not be UTF-8 as a JSON string, bad bytes as \xNN */
json_t *json_text(const char *s);

#endif
