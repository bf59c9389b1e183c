/*
 * text: the small grammars of courier and text made safe to show. Pure
 * functions on any thread.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/base.h"

/* the rule for names of projects, sandboxes, runs, documents; -EINVAL or
 * -ENAMETOOLONG with words */
int text_name_check(const char *name, struct err *e);
/* any UTF-8 file name up to 255 bytes, not "." or "..", no '/' */
int text_filename_check(const char *name, struct err *e);

/* "90s" "15m" "2h" "45" -> seconds; -EINVAL if malformed */
int64_t text_duration(const char *s);
/* seconds in the largest unit that divides: "90s", "15m", "2h" */
void text_duration_str(int64_t secs, char out[24]);

/* a decimal number, whole string; false if malformed or out of range */
bool text_int(const char *s, int64_t min, int64_t max, int64_t *out);
bool text_double(const char *s, double min, double max, double *out);

enum { PRINTABLE_LINES = 1, PRINTABLE_TABS = 2 };
/*
 * Appends the bytes with every control character and every malformed UTF-8
 * byte made visible (^[ , \x9b), C1 controls and bidi overrides too. Without
 * PRINTABLE_LINES newlines become "\n", without PRINTABLE_TABS tabs become
 * "\t" (two characters each).
 */
void text_printable(struct buf *out, const char *p, size_t n, int flags);
/* how many of the last bytes are the begin of an unfinished UTF-8 sequence
 * (0-3): a chunk of a stream is shown without them, they wait for the next */
size_t text_utf8_tail(const char *p, size_t n);
bool text_utf8_valid(const char *p, size_t n);

/* 'it'\''s': one word for sh */
void text_shell_quote(struct buf *out, const char *s);

/* strips white space at both ends, in place; returns the start */
char *text_trim(char *s);
/* goes on with a line that has `at` bytes: the text from column `indent`,
 * broken at blanks below `width`, the lines after the first indented as well;
 * ends the line */
void text_wrapped(struct buf *out, const char *s, int at, int indent,
                  int width);
bool text_is_word(const char *s, const char *const *list); /* NULL-ended */
uint64_t text_hash(const void *p, size_t n); /* FNV-1a, not for secrets */

/*
 * Words of a ctl line, quoted as in a shell: blanks separate, "..." '...' and
 * backslash quote; nothing is expanded. Returns the number of words (NULL-
 * ended array owned by the caller, free with words_free) or -EINVAL (a quote
 * left open).
 */
int words_split(const char *line, char ***out, struct err *e);
void words_free(char **w);

/* length of the byte order mark that some editors put before a text, or 0 */
size_t text_bom(const char *p, size_t n);

/*
 * One line of a "key = value" document. Comments and blank lines give
 * LINE_NOTHING; else key and value are owned by the caller. A value may be
 * in double quotes. A byte order mark before it is passed over.
 */
enum kv_line { KV_NOTHING, KV_PAIR, KV_BAD };
enum kv_line kv_line(const char *line, size_t n, char **key, char **value);

/* base64, standard alphabet with padding */
void base64_encode(struct buf *out, const void *p, size_t n);
int base64_decode(struct buf *out, const char *p, size_t n); /* -EINVAL */

#endif
