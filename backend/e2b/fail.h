/*
 * fail: what a server's refusal means: HTTP status or Connect code to errno,
 * and a few printable words out of whatever the body was (JSON, HTML of a
 * gateway, text). Pure functions.
 */
#ifndef E2B_FAIL_H
#define E2B_FAIL_H

#include "base/base.h"

/* positive errno for an HTTP status that is not a success */
int fail_status(long status);
/* positive errno for a Connect code word ("not_found"), 0 if unknown */
int fail_code(const char *word);
/*
 * The whole refusal: fills e with "MESSAGE (HTTP n)" and returns -errno. A
 * Connect code in the body, being a word, is finer than the status and wins.
 */
int fail_answer(long status, const struct buf *body, struct err *e);
/* the server's own message, printable, at most ~200 bytes, maybe empty */
void fail_words(const struct buf *body, struct buf *out);
/* exit code of a shell for "signal: killed" and the like: 128+n */
int fail_signal(const char *status);

#endif
