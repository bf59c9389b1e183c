#include "e2b/envelope.h"

enum { HEAD = 5 };

void envelopes_push(struct envelopes *v, const char *p, size_t n)
{
    if (v->at) {
        buf_drop(&v->in, v->at);
        v->at = 0;
    }
    buf_add(&v->in, p, n);
}

int envelopes_next(struct envelopes *v, int *flags, const char **p, size_t *n)
{
    const unsigned char *h = (const unsigned char *)v->in.p + v->at;
    size_t left = v->in.n - v->at, len;

    if (left < HEAD) {
        if (!left && v->in.cap > 2 * 65536) {
            buf_free(&v->in); /* a burst's memory is not kept */
            v->at = 0;
        }
        return 0;
    }
    len = (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
    if (len > ENVELOPE_MAX || (h[0] & ~ENVELOPE_END))
        return -EPROTO;
    if (left < HEAD + len)
        return 0;
    *flags = h[0];
    *p = (const char *)h + HEAD;
    *n = len;
    v->at += HEAD + len;
    return 1;
}

bool envelopes_partial(const struct envelopes *v)
{
    return v->in.n > v->at;
}

void envelopes_free(struct envelopes *v)
{
    buf_free(&v->in);
    v->at = 0;
}

void envelope_put(struct buf *out, int flags, const void *p, size_t n)
{
    unsigned char h[HEAD] = {(unsigned char)flags, (unsigned char)(n >> 24),
                             (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                             (unsigned char)n};

    buf_add(out, h, HEAD);
    buf_add(out, p, n);
}
