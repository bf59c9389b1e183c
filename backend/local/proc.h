/*
 * proc: the processes started through the API, and who listens to them. Owns
 * their pipes and terminals; knows nothing of HTTP. One thread (the pump)
 * reads all output and hands it to subscribers as ready envelopes; requests
 * wait on their own threads.
 *
 * A process goes on when nobody listens: its output is read and dropped. A
 * subscriber whose queue is full holds the process up (and its other
 * subscribers with it), as the real daemon does, so nothing is lost. The last
 * event comes when the leader was reaped, whoever still holds its pipes, and
 * is kept PROC_KEPT_MS for late subscribers.
 *
 * All functions are safe on any thread; only sub_next and proc_write wait.
 */
#ifndef LOCAL_PROC_H
#define LOCAL_PROC_H

#include "local/host.h"

enum {
    PROC_KEPT_MS = 30000,
    PROC_GRACE_MS = 100,        /* output of children after the exit */
    SUB_QUEUE_HIGH = 256 << 10, /* bytes waiting that stop the reading */
    SUB_QUEUE_LOW = 64 << 10,
};

struct proc_spec {
    char *const *argv; /* argv, env, cwd as of struct box_spawn */
    char *const *env;
    const char *cwd;
    json_t *config;  /* what List shows; borrowed */
    const char *tag; /* "" for none */
    bool as_root, has_stdin, pty;
    unsigned short cols, rows;
    int64_t life_ms; /* killed after that; 0 is never */
};

/* which process: by pid, or by tag if pid is 0 */
struct proc_sel {
    int64_t pid;
    const char *tag;
};

struct chunk {
    _Atomic int refs;
    size_t n;
    char p[];
};
void chunk_put(struct chunk *c);

struct sub;

/* starts it with a first subscriber (owned); errnos as of box_spawn */
int proc_start(struct box *b, const struct proc_spec *s, struct sub **out,
               struct err *e);
/* a subscriber for what comes from now on (owned); -ESRCH */
int proc_connect(const char *box, const struct proc_sel *sel,
                 struct sub **out);
pid_t sub_pid(const struct sub *s);
/*
 * Waits until mono_ms `until` (0 is for ever) for the next envelope(s): 1 and
 * *out (owned); 0 when the time is up; -ENODATA after the end event;
 * -ETIMEDOUT when the life of the process was over; -ESHUTDOWN when its box
 * ended.
 */
int sub_next(struct sub *s, int64_t until, struct chunk **out);
void sub_close(struct sub *s);

json_t *proc_list(const char *box);
/* -ESRCH if there is no such live process */
int proc_signal(struct box *b, const struct proc_sel *sel, int sig);
int proc_resize(const char *box, const struct proc_sel *sel,
                unsigned short cols, unsigned short rows);
/* all of it, waiting while the pipe is full until mono_ms `until` (0 is for
 * ever); -EBADF: no such input, -EPIPE, -ESRCH, -ETIMEDOUT, -ESHUTDOWN */
int proc_write(struct box *b, const struct proc_sel *sel, bool pty,
               const void *p, size_t n, int64_t until);
int proc_close_stdin(const char *box, const struct proc_sel *sel);

/* ---- pty.c ---- */

/* a terminal of the box (of this machine if it has none): both ends */
int pty_open(struct box *b, bool as_root, unsigned short cols,
             unsigned short rows, int *master, int *slave);
int pty_resize(int fd, unsigned short cols, unsigned short rows);

#endif
