/*
 * multipart: multipart/form-data pulled from a stream, a part after another,
 * with no part ever whole in memory. Knows nothing of HTTP or files; the bytes
 * come from a function. One thread; blocks as that function does.
 */
#ifndef LOCAL_MULTIPART_H
#define LOCAL_MULTIPART_H

#include "base/base.h"

#include <sys/types.h>

enum { PART_HEADERS_MAX = 16384 };

struct multipart {
    ssize_t (*read)(void *arg, void *p, size_t n);
    void *arg;
    struct buf in;    /* read and not yet used */
    struct buf delim; /* CR LF "--" boundary */
    bool eof, first, in_part, done;
};

struct part {
    char *name, *filename; /* filename NULL if there is none */
};

/* boundary from a content type; -EINVAL if it has none */
int multipart_init(struct multipart *m, const char *content_type,
                   ssize_t (*read)(void *arg, void *p, size_t n), void *arg);
void multipart_release(struct multipart *m);
/* 1 and the next part (skips what is left of the one before), 0 at the end,
 * -EINVAL if malformed or cut short, or what read returned */
int multipart_next(struct multipart *m, struct part *p);
void part_release(struct part *p);
/* bytes of this part, 0 at its end, negative as above */
ssize_t multipart_read(struct multipart *m, void *p, size_t n);

#endif
