/*
 * packscan: reads a pack through and adds up what it would cost to unpack,
 * before libgit2 is let at it. It checks structure and sizes, no hashes (the
 * indexer does), and keeps nothing in memory.
 */
#ifndef GIT_PACKSCAN_H
#define GIT_PACKSCAN_H

#include "base/base.h"

/* the pack is the bytes [off, end) of fd; -EBADMSG if it is malformed,
 * -EFBIG if it unpacks to more than we take. Blocking. */
int pack_scan(int fd, int64_t off, int64_t end, struct err *e);

#endif
