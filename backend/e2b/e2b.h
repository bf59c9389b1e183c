/*
 * e2b: a client of E2B's wire protocol, of the cloud, of a cluster of one's
 * own or of the local host (over a Unix socket). It owns connections, retries
 * and the protocol's grammar; it knows no record, no project, no agent.
 *
 * Every call blocks (it is for worker threads) unless it says otherwise, has
 * a time limit, and can be ended early through `struct e2b_cancel`. Calls on
 * one endpoint may run on any number of threads at once.
 *
 * What failed comes back as a negative errno and words:
 *   -ENOENT       no such sandbox, process or file (its own word)
 *   -EACCES       the key is refused (401, 403)
 *   -EAGAIN       too many sandboxes at once (429 without Retry-After), or
 *                 rate limited beyond our patience: try later
 *   -EBUSY        409: in transition
 *   -EHOSTUNREACH no connection, DNS, TLS
 *   -ETIMEDOUT    no answer in time
 *   -EHOSTDOWN    502/503: nothing answers for that sandbox ("unknown", until
 *                 the control plane says so)
 *   -EINVAL       400 and what else the server finds wrong with us
 *   -EPROTO       an answer that can't be understood
 *   -EIO          the server failed (500)
 *   -EEXIST -ENOSPC -ENOSYS  as it says itself
 *   -ECANCELED    ended by e2b_cancel
 */
#ifndef E2B_E2B_H
#define E2B_E2B_H

#include "base/base.h"

/* once per process, before threads; and at the end */
void e2b_init(void);
void e2b_exit(void);
/* the program ends: every call of every endpoint, now and later, ends with
 * -ECANCELED soon (until the next e2b_init). Streams are the pump's matter */
void e2b_stop(void);

/* set from any thread; calls that were given it end with -ECANCELED soon */
struct e2b_cancel {
    int flag; /* atomic */
};
void e2b_cancel(struct e2b_cancel *c);

/* ---- an endpoint: where, and with which key ---- */

struct e2b;
struct e2b_config {
    const char *api_url;     /* e.g. https://api.e2b.app */
    const char *sandbox_url; /* one URL for all sandboxes, or NULL: by host */
    const char *domain;      /* e2b.app, for https://49983-ID.DOMAIN */
    const char *unix_socket; /* or NULL; then the URLs' hosts are ignored */
    const char *key;         /* X-API-KEY, copied to locked memory; or NULL */
};
/* never fails for want of a network; -EINVAL for a bad URL */
int e2b_open(const struct e2b_config *c, struct e2b **out, struct err *e);
void e2b_close(struct e2b *x); /* when no call is under way */

/* ---- control plane ---- */

struct e2b_pair {
    const char *name, *value;
};
struct e2b_create {
    const char *template_id; /* "base" */
    int timeout;             /* seconds, > 0 */
    bool auto_pause;
    bool internet;
    const struct e2b_pair *metadata; /* n_metadata of them */
    size_t n_metadata;
    const struct e2b_pair *env;
    size_t n_env;
    const char *const *allow_out; /* NULL-ended or NULL */
};
enum e2b_state { E2B_RUNNING, E2B_PAUSED };
/* one sandbox; free with e2b_box_clear */
struct e2b_box {
    char *id, *token, *domain, *template_id, *envd_version;
    enum e2b_state state;
    int64_t started_ms, end_ms; /* 0 if not told */
    int cpu, memory_mb, disk_mb;
    struct e2b_meta {
        char *name, *value;
    } * meta;
    size_t n_meta;
};
void e2b_box_clear(struct e2b_box *b);

/*
 * Makes a sandbox: one request, never repeated by itself once it may have
 * been carried out. -EINPROGRESS: the answer is unclear (lost, 5xx, timeout):
 * the caller lists by its metadata and adopts or tries again. (After
 * -ECANCELED, too, there may be one.)
 */
int e2b_create(struct e2b *x, const struct e2b_create *c, int limit_ms,
               struct e2b_cancel *cancel, struct e2b_box *out, struct err *e);
int e2b_get(struct e2b *x, const char *id, struct e2b_box *out, struct err *e);
/* all pages; name/value NULL lists everything; array owned by the caller */
int e2b_list(struct e2b *x, const char *meta_name, const char *meta_value,
             struct e2b_box **out, size_t *n, struct err *e);
int e2b_kill(struct e2b *x, const char *id, struct err *e);  /* gone is 0 */
int e2b_pause(struct e2b *x, const char *id, struct err *e); /* paused is 0 */
/* running or paused -> running; the deadline is only ever extended */
int e2b_connect(struct e2b *x, const char *id, int timeout_s,
                struct e2b_box *out, struct err *e);
int e2b_timeout(struct e2b *x, const char *id, int timeout_s, struct err *e);
int e2b_logs(struct e2b *x, const char *id, struct buf *out, struct err *e);
/* any GET of the control plane as text (e.g. "/limits" of the local host) */
int e2b_api_get(struct e2b *x, const char *path, struct buf *out,
                struct err *e);

/* ---- data plane: a sandbox at an endpoint ---- */

struct e2b_target {
    struct e2b *x;
    const char *id, *token, *domain; /* borrowed during the call */
};

struct e2b_run {
    const char *cmd;              /* run by /bin/bash -l -c, or as argv: */
    const char *const *argv;      /* NULL-ended; wins over cmd */
    const char *cwd, *user, *tag; /* may be NULL */
    const struct e2b_pair *env;
    size_t n_env;
    const void *stdin_data; /* sent, then stdin is closed; NULL: none */
    size_t stdin_len;
    int limit_ms;   /* 0: none; else the process is killed */
    size_t max_out; /* bytes kept of each stream, the rest is dropped;
                     * 0: 1 MiB. Streams of the pump: no such limit */
    struct e2b_cancel *cancel;
};
struct e2b_result {
    struct buf out, err;
    int exit_code; /* 128+n when killed by signal n, where told */
};
/*
 * Runs a command to its end. Not repeated by itself: make it idempotent. Past
 * limit_ms the process and its descendants are killed: -ETIMEDOUT. When the
 * stream breaks (-EHOSTUNREACH, -ETIMEDOUT) or is cancelled the process may
 * go on. res is filled with what there was in any case: clear it.
 */
int e2b_exec(const struct e2b_target *t, const struct e2b_run *r,
             struct e2b_result *res, struct err *e);
void e2b_result_clear(struct e2b_result *r);

struct e2b_entry {
    char *name, *path, *symlink; /* symlink target or NULL */
    char type;                   /* 'f', 'd', 'l', '?' (of the entry itself) */
    int64_t size, mtime_ns;
    unsigned mode; /* permission bits */
};
void e2b_entries_free(struct e2b_entry *v, size_t n);
void e2b_entry_clear(struct e2b_entry *v);
int e2b_stat(const struct e2b_target *t, const char *path,
             struct e2b_entry *out, struct err *e);
int e2b_ls(const struct e2b_target *t, const char *path, int depth,
           struct e2b_entry **out, size_t *n, struct err *e);
/* with parents; an existing directory is 0 */
int e2b_mkdir(const struct e2b_target *t, const char *path, struct err *e);
/* as rename(2), parents made; not repeated by itself */
int e2b_move(const struct e2b_target *t, const char *from, const char *to,
             struct err *e);
/* recursive; a missing path is 0 */
int e2b_remove(const struct e2b_target *t, const char *path, struct err *e);
/* len < 0: to the end. Appends to out. total (may be NULL): the whole size.
 * An offset at or past the end gives no bytes and 0. */
int e2b_read(const struct e2b_target *t, const char *path, int64_t off,
             int64_t len, struct buf *out, int64_t *total, struct err *e);
/* the whole file, parents made; user NULL is the default user */
int e2b_write(const struct e2b_target *t, const char *path, const void *p,
              size_t n, const char *user, struct err *e);
/* the same from a descriptor, from where it stands to its end. A regular
 * file is sent again after a failure, a pipe is not */
int e2b_write_fd(const struct e2b_target *t, const char *path, int fd,
                 struct err *e);
/* a signal by number 9 or 15 to a pid; gone is 0 */
int e2b_signal(const struct e2b_target *t, int pid, int sig, struct err *e);
/* alive? 0; -EHOSTDOWN */
int e2b_health(const struct e2b_target *t, struct err *e);

/* ---- the pump: many process streams on one thread (curl multi) ---- */

/*
 * A stream runs one command in a sandbox and hands on what it prints as it
 * comes. Callbacks run on the pump's thread and must not block. on_end is
 * called exactly once per stream, with code 0 (the process ended, exit_code
 * tells how) or a negative errno (the stream broke: the process may go on).
 * A stream that was silent for longer than 2.5 keepalive intervals is dead
 * (-ETIMEDOUT).
 */
struct e2b_pump;
struct e2b_stream;
struct e2b_stream_ops {
    /* fd 1 or 2; the bytes are taken, whatever it returns. Returning false
     * pauses the stream until e2b_stream_resume: nothing more is read, the
     * command itself stops once its pipe is full. */
    bool (*on_data)(void *arg, int fd, const char *p, size_t n);
    void (*on_end)(void *arg, int code, int exit_code, const struct err *e);
};
struct e2b_pump *e2b_pump_start(void);
/* ends the thread; every stream still there gets on_end(-ECANCELED) */
void e2b_pump_stop(struct e2b_pump *p);
/* strings are copied; any thread */
struct e2b_stream *e2b_stream_start(struct e2b_pump *p,
                                    const struct e2b_target *t,
                                    const struct e2b_run *r,
                                    const struct e2b_stream_ops *ops,
                                    void *arg);
void e2b_stream_resume(struct e2b_stream *s);
/* asks the stream to end (on_end with -ECANCELED follows, unless it ended);
 * the pointer is invalid once on_end was called. Any thread. */
void e2b_stream_stop(struct e2b_stream *s);

#endif
