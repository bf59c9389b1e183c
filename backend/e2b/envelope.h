/*
 * envelope: the framing of Connect streams: a flag byte, four bytes of
 * length, that much payload. Bytes may come split anywhere; what is kept is
 * bounded by one envelope and one push. It knows nothing of what is inside.
 */
#ifndef E2B_ENVELOPE_H
#define E2B_ENVELOPE_H

#include "base/base.h"

enum {
    ENVELOPE_GZIP = 1,
    ENVELOPE_END = 2,
    ENVELOPE_MAX = 1 << 20, /* bytes of payload; the server's are < 64 KiB */
};

struct envelopes {
    struct buf in;
    size_t at; /* bytes of `in` that were handed out */
};

void envelopes_push(struct envelopes *v, const char *p, size_t n);
/*
 * 1: *p is the next payload, valid until the next call; 0: nothing whole is
 * there; -EPROTO: too long, or flags nobody asked for.
 */
int envelopes_next(struct envelopes *v, int *flags, const char **p, size_t *n);
/* bytes of an unfinished envelope? */
bool envelopes_partial(const struct envelopes *v);
void envelopes_free(struct envelopes *v);
/* appends one envelope around p */
void envelope_put(struct buf *out, int flags, const void *p, size_t n);

#endif
