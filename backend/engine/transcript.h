/*
 * transcript: how a conversation is written down for people (`messages`).
 * Pure: bytes in, text out; everything it writes is printable, and no line of
 * content can be taken for a header.
 */
#ifndef ENGINE_TRANSCRIPT_H
#define ENGINE_TRANSCRIPT_H

#include "base/base.h"

/* the block of a user's message */
void transcript_user(struct buf *out, int64_t ms, int64_t seq, const char *p,
                     size_t n);
/* content, made printable; *bol says whether it begins at the start of a
 * line, and is left so for what follows */
void transcript_text(struct buf *out, const char *p, size_t n, bool *bol);

#endif
