/*
 * The inside of a box, for box.c (life), call.c (its init) and guard.c
 * (limits without control groups). Who may touch what is said at each part.
 */
#ifndef LOCAL_BOX_INT_H
#define LOCAL_BOX_INT_H

#include "local/box.h"
#include "local/cpus.h"
#include "local/init.h"

#include <pthread.h>

struct pending {
    uint32_t seq;
    const struct box_spawn *spawn;
    int result, stage, fd;
    bool done;
    struct pending *next;
};

struct proc {
    pid_t pid;
    void (*exited)(void *arg, int wstatus);
    void *arg;
};

struct lines {
    struct box_line *v;
    size_t n;
};

struct box {
    /* set at create, then only read */
    char id[24], token[65], traffic[65];
    struct box_spec spec;
    char **env;
    char *dir;
    uid_t base;
    struct jail j;
    struct cgroup cg;
    cpu_set_t cpus; /* empty: any */

    /* under mu of box.c */
    struct box *next;
    int refs;
    enum box_state state;
    int64_t started, end_at; /* wall clock */
    int64_t deadline;        /* monotonic */
    char why[200];
    bool listed, gone;
    struct lines lines;
    int ooms; /* told already */
    int64_t disk, disk_next;
    int64_t cpu_us, cpu_at;

    int64_t guard_at; /* guard.c's thread */

    pthread_mutex_t op; /* held while pausing or resuming */
    struct net *net;    /* set before RUNNING, freed by the box's thread */

    /* call.c, under call_mu */
    pthread_mutex_t call_mu;
    pthread_cond_t call_cond;
    struct pending *pending;
    struct proc *procs;
    size_t nprocs;
    uint32_t seq;
    bool dead;
};

/* ---- call.c ---- */

/* one request to init; result >= 0 or -errno (ESHUTDOWN, ETIMEDOUT). fds go
 * along, *fd is what came back or -1 */
int call_init(struct box *b, struct init_req *req, const int *fds, int nfds,
              const struct box_spawn *spawn, int *stage, int *fd);
/* reads from init until it is gone */
void call_loop(struct box *b);
/* fails what waits and reports every process as gone */
void call_end(struct box *b);

/* ---- guard.c ---- */

/* starts the thread that holds memory and processes where no control group
 * does, if one is needed */
int guard_start(void);
/* on the ticker's thread, each second. Returns a reason when the box must end,
 * else NULL */
const char *guard_disk(struct box *b);
/* bytes in memory of a box, by looking at its /proc */
int64_t guard_memory(const struct box *b);
/* for guard.c and its tests: see there */
int64_t guard_field(const char *text, const char *name);
int64_t guard_mapped(const char *text, const dev_t *devs, size_t ndevs);

#endif
