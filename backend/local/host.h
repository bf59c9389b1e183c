/*
 * host: the inside of courier-sandboxd, which serves E2B's wire protocol for
 * sandboxes that are bubblewrap containers on this machine.
 *
 *   http.c     HTTP/1.1 on a socket: a thread a connection, requests in,
 *              answers out
 *   server.c   listening, auth, routing by path, E2b-Sandbox-Id or Host
 *   control.c  the control plane: get, kill, pause, timeouts, logs, ...;
 *              create.c reads the body of a create, list.c makes pages
 *   box.c      a sandbox: its states, deadline, death
 *   jail.c     bwrap and what is seen inside; cgroup.c and guard.c its
 *              limits; trash.c removes what it leaves
 *   init.c     PID 1 inside (the same program, started as `--init`): makes
 *              processes on request, reaps, passes descriptors; call.c asks it
 *   net.c      the network of a box; dns.c, where only some hosts are allowed
 *   process.c  process.Process: Start, Connect, List, signals, stdin, pty;
 *              proc.c, sub.c, pump.c, pty.c: the processes and who listens
 *   fs.c       filesystem.Filesystem: Stat, ListDir, ...; watcher.c, watch.c
 *   files.c    GET and POST /files, signatures, compose; multipart.c,
 *              filemeta.c
 *   boxfs.c    the files of a box by path, as its user
 *   connect.c  Connect envelopes, JSON unary answers and errors
 *
 * A box is used under a reference (box_get/box_put), so a handler can go on
 * with one that is being killed: its calls then fail with -ESHUTDOWN. No
 * handler holds a lock while it waits.
 */
#ifndef LOCAL_HOST_H
#define LOCAL_HOST_H

#include "base/base.h"
#include "base/text.h"

#include <jansson.h>
#include <sys/types.h>

struct box;
struct http;

/* ---- box.c ---- */

struct box *box_get(const char *id); /* a reference, or NULL */
void box_put(struct box *b);
const char *box_id(const struct box *b);
const char *box_token(const struct box *b); /* of X-Access-Token; "" if open */
bool box_alive(const struct box *b);        /* false once it is being killed */
bool box_paused(const struct box *b);
/* name=value pairs of every process: PATH, E2B_SANDBOX, E2B_SANDBOX_ID,
 * E2B_TEMPLATE_ID and what was given at create (no name twice); HOME, USER,
 * LOGNAME are the caller's to add. NULL-ended; borrowed */
char *const *box_env(const struct box *b);
/* an O_PATH descriptor of the box's "/", for openat2(RESOLVE_IN_ROOT);
 * borrowed, valid while the reference is held */
int box_root_fd(const struct box *b);
/* the ids, as seen on this side, that `user` and `root` of the box have; what
 * is made in the box through box_root_fd must end up owned by them */
void box_ids(const struct box *b, bool root, uid_t *uid, gid_t *gid);

/*
 * A process in the box, made by its init. argv, env and cwd are as inside.
 * in/out/err are descriptors the process gets as 0, 1, 2 (borrowed; -1 is
 * /dev/null); with tty it becomes a session leader with in as controlling
 * terminal. It is always leader of a session of its own. Returns its pid (as
 * seen inside) or a negative errno with words (ENOENT: no such program or
 * cwd; EACCES; ESHUTDOWN). May block for the answer of init, seconds at most.
 * argv[0] without a slash is looked up in the PATH of env. With tty the
 * terminal is handed to the user; a pty of the box's own devpts (opened with
 * openat of "dev/ptmx" under box_root_fd, the slave by TIOCGPTPEER) has a
 * name inside, one of the host has none.
 * exited is called once, on a thread of the box, when it was reaped: wait
 * status as of waitpid(2), -1 if the box died. Mind that a short process may
 * be reported before box_spawn has returned. It is not called when box_spawn
 * fails. It may not block long and may not call box_spawn.
 */
struct box_spawn {
    char *const *argv;
    char *const *env;
    const char *cwd;
    bool as_root;
    bool tty;
    int in, out, err;
    void (*exited)(void *arg, int wstatus);
    void *arg;
};
int box_spawn(struct box *b, const struct box_spawn *s, struct err *e);
/* to one process, or to its session's process group when group; 0, -ESRCH */
int box_signal(struct box *b, pid_t pid, int sig, bool group);
/* called when the box ends, so that a module frees what it keeps of it; id is
 * the box's; may not block */
void box_on_end(void (*fn)(const char *id));

/* ---- server.c ---- */

/* one request, valid during the handler; the handler runs on the thread of
 * its connection and may block */
struct req {
    struct http *c;
    const char *method, *path; /* path without the query, decoded */
    struct buf body;           /* whole, gunzipped; empty for uploads that
                                  are streamed (see below) */
    /* the request's body as a stream, for POST /files: returns bytes read, 0
     * at the end, negative errno when the client is gone; gunzipped */
    ssize_t (*read_body)(struct req *r, void *p, size_t n);
    void *priv;
};
const char *req_header(struct req *r, const char *name); /* or NULL */
/* the i-th header: its value and *name, NULL behind the last */
const char *req_header_at(struct req *r, size_t i, const char **name);
/* the socket of the client, only to poll() for POLLRDHUP|POLLHUP|POLLERR: the
 * client is gone */
int req_fd(struct req *r);
bool req_gone(struct req *r);
const char *req_query(struct req *r, const char *name); /* decoded, or NULL */

/* answers; exactly one of these per request. Body is copied. */
void reply(struct req *r, int status, const char *type, const void *p,
           size_t n);
void reply_json(struct req *r, int status, json_t *j); /* takes j */
void reply_header(struct req *r, const char *name, const char *value);
/*
 * An answer whose body is written as it comes: begin, then write until done
 * or until it fails (-EPIPE: the client is gone), then end. Each write is
 * flushed as one chunk. len < 0 is chunked.
 */
int reply_begin(struct req *r, int status, const char *type, int64_t len);
int reply_write(struct req *r, const void *p, size_t n);
void reply_end(struct req *r);

/* ---- the data plane: process.c, fs.c, files.c; the box is alive and not
 * paused, the token was checked (but for signed /files requests) ---- */

void process_handle(struct req *r, struct box *b, const char *call);
void fs_handle(struct req *r, struct box *b, const char *call);
void files_handle(struct req *r, struct box *b);
/* is the request for /files signed rightly for this box? */
bool files_signature_ok(struct req *r, struct box *b);
/* why it is not, as the 401 says it; "" if it is */
const char *files_signature_words(struct req *r, struct box *b);
/* how many processes the API knows of in this box (for tests, metrics) */
size_t process_count(const char *box_id);

#endif
