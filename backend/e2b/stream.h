/*
 * stream: one process stream (process.Process/Start) as a state machine that
 * somebody else drives with curl multi: e2b_exec on the caller's thread, the
 * pump on its own. And the feed, which sends a process its stdin meanwhile.
 * Nothing here blocks or locks: a stream belongs to the thread that drives.
 *
 * A stream: opening -> (start event) running -> (end event) ended -> finished
 * once curl is done. `failed` is set by whatever goes wrong first.
 */
#ifndef E2B_STREAM_H
#define E2B_STREAM_H

#include "e2b/envelope.h"
#include "e2b/http.h"

enum {
    STREAM_PING_S = 20,
    STREAM_DEAD_MS = STREAM_PING_S * 2500, /* 2.5 intervals of silence */
};

/* CURLOPT_PRIVATE of every handle in a multi: who is told when it is done */
struct transfer {
    void (*done)(struct transfer *t, CURLcode rc);
};

struct stream {
    struct transfer transfer; /* first; the driver sets done */
    CURL *easy;
    char *url;
    struct curl_slist *headers;
    struct buf request, error_body;
    struct envelopes in;
    long status;
    int pid; /* once running */
    int exit_code;
    bool running, ended, finished, failed, paused, curl_paused;
    int code; /* negative errno, of failed */
    struct err why;
    int64_t last_ms; /* when anything came */
    char detail[CURL_ERROR_SIZE];
    /* set by the driver; on_data false: paused until stream_resume. The
     * bytes count as taken either way. on_step: running or finished now */
    bool (*on_data)(void *arg, int fd, const char *p, size_t n);
    void (*on_step)(void *arg);
    void *arg;
};

/* makes the request for r (its stdin: only whether there is one); -EINVAL */
int stream_init(struct stream *s, const struct e2b_target *t,
                const struct e2b_run *r, struct err *e);
void stream_free(struct stream *s);
/* a new easy handle, ready to be added to a multi */
void stream_begin(struct stream *s, struct e2b *x);
/* curl is done with it, and it isn't paused: settles `failed` and why */
void stream_done(struct stream *s, CURLcode rc);
/* hands out what was held back; then curl goes on, unless paused again */
void stream_resume(struct stream *s);

/* stdin of one process: SendInput in pieces, in order, then CloseStdin */
struct feed {
    struct transfer transfer; /* first */
    CURLM *multi;
    CURL *easy; /* NULL: nothing under way */
    struct e2b *x;
    char *input_url, *close_url;
    struct curl_slist *headers;
    struct buf body, answer;
    char *data; /* owned copy, or NULL when borrowed */
    const char *p;
    size_t n, at, piece;
    int pid, tries;
    bool closing, over, failed;
    struct err why;
};

int feed_init(struct feed *f, const struct e2b_target *t, const char *user,
              const void *p, size_t n, bool copy, struct err *e);
void feed_start(struct feed *f, CURLM *m, int pid);
/* takes its handle out of the multi */
void feed_free(struct feed *f);

#endif
