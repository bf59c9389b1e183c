/*
 * base: memory, growable bytes, errors in words, time. What every module
 * of courier stands on; it knows nothing of sandboxes, SQL, HTTP or FUSE.
 *
 * Invariants: allocation never fails (the process aborts instead), so no
 * caller checks for NULL. Nothing here keeps state, but for the log level.
 * All functions are safe on any thread and none blocks.
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRINTF(f, a) __attribute__((format(printf, f, a)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* ---- memory ---- */

void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);            /* NULL gives NULL */
char *xmemdup0(const void *p, size_t n); /* n bytes and a NUL */
char *xasprintf(const char *fmt, ...) PRINTF(1, 2);

void free_cleanup(void *pp);
void close_cleanup(int *fd);
/* scope clean-up: freed or closed when the variable goes out of scope */
#define AUTO_FREE __attribute__((cleanup(free_cleanup)))
#define AUTO_CLOSE __attribute__((cleanup(close_cleanup)))
#define AUTO_BUF __attribute__((cleanup(buf_free)))

/* ---- errors ---- */

/*
 * Why something failed: an errno (positive) and a sentence for people, with
 * no full stop and no newline. A function that can fail returns 0 or a
 * negative errno and fills this; a NULL struct err is allowed everywhere.
 * The text never holds a key, and remote text in it is already printable.
 */
struct err {
    int code;
    char text[600];
};

/* fills *e and returns -code */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF(3, 4);
/* puts "words: " before the text that is there; returns -e->code */
int err_prefix(struct err *e, const char *fmt, ...) PRINTF(2, 3);

/* ---- growable bytes ---- */

/* zero-initialised is empty and valid; p is NUL-terminated once not NULL */
struct buf {
    char *p;
    size_t n, cap;
};

void buf_add(struct buf *b, const void *p, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
void buf_vaddf(struct buf *b, const char *fmt, va_list ap);
void buf_reserve(struct buf *b, size_t more); /* room for more bytes */
void buf_drop(struct buf *b, size_t n);       /* takes n bytes off the front */
void buf_clear(struct buf *b);                /* n = 0, the memory is kept */
void buf_free(struct buf *b);                 /* may be called twice */
void buf_wipe(struct buf *b);  /* zeroes the memory, then frees */
char *buf_take(struct buf *b); /* the bytes, owned by the caller; never NULL */
const char *buf_str(const struct buf *b); /* "" when empty; borrowed */

/* ---- time ---- */

int64_t now_ms(void); /* wall clock, since 1970 */
int64_t now_ns(void);
int64_t mono_ms(void); /* monotonic */
void sleep_ms(int ms);
/* RFC 3339 in UTC, whole seconds: "2026-11-29T12:00:01Z"; 0 gives "" */
void time_rfc3339(int64_t ms, char out[32]);
/* any RFC 3339 time to ms, or -EINVAL */
int64_t time_parse(const char *s);

/* ---- files ---- */

/* the whole of a regular file of at most max bytes; 0 or -errno */
int file_read(const char *path, size_t max, struct buf *out);
/* write all of it, retrying EINTR and short writes; 0 or -errno */
int fd_write_all(int fd, const void *p, size_t n);
/* descriptors 0, 1 and 2 are /dev/null where whoever started us closed them:
 * else the next file opened is taken for one of these. First thing in main */
void fd_std_open(void);

/* ---- log: stderr, one line each, with time and level ---- */

enum log_level { LOG_ERR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_level_set(enum log_level l); /* COURIER_LOG=debug|info|warn|err */
void log_msg(enum log_level l, const char *fmt, ...) PRINTF(2, 3);

#endif
