/*
 * box: the sandboxes of this host, from create to the last file removed. It
 * owns their processes, control groups, directories and deadlines; it knows
 * nothing of HTTP. The part that the data plane uses is in host.h.
 *
 *   STARTING --ready--> RUNNING <--pause/resume--> PAUSED
 *                          \________ kill, deadline, death ____> ENDING
 *
 * A box in STARTING or ENDING is not found. Every box has a thread that reads
 * what its init says; when that socket ends, so does the box: the thread
 * waits for the last process, tells the modules, removes everything. A reason
 * is kept for five minutes.
 *
 * Locks: `mu` of box.c guards the list, states, deadlines and references;
 * each box has one for requests to its init and one (op) that pause and
 * resume hold while they wait. Order: op, mu. None is held in call-backs.
 */
#ifndef LOCAL_BOX_H
#define LOCAL_BOX_H

#include "local/host.h"
#include "local/jail.h"

enum box_state { BOX_STARTING, BOX_RUNNING, BOX_PAUSED, BOX_ENDING };

/* everything the caller of create wants; owned by the box afterwards */
struct box_spec {
    char *template;
    json_t *metadata, *network; /* objects; network may be NULL */
    char **env;                 /* name=value, NULL-ended */
    bool secure, private_traffic;
    bool auto_pause, auto_resume;
    int internet; /* allow_internet_access: -1 not said */
    int64_t timeout_ms;
    int64_t memory_mb;
    double cpus;
    enum net_mode net;
    char **allow; /* hosts of NET_ALLOW */
    char **binds;
};

struct box_conf {
    const char *data;
    char *const *binds, *const *paths;
};

/* a copy of what changes */
struct box_info {
    enum box_state state;
    int64_t started, end_at; /* wall clock, ms */
};

/* which limits hold: words, or "none" */
struct box_limits {
    const char *memory, *cpu, *pids, *freeze, *network;
};

enum { BOX_DISK_MB = 10240 };
/* processes and threads at once: one for each MiB, 256 to 2,000 */
int box_pids(const struct box_spec *s);

/* removes what an earlier host left; starts the threads */
int box_init(const struct box_conf *conf, struct err *e);
/* kills all and waits until nothing is left; no box can be made after */
void box_stop(void);
/* true once there has been no box for ms: then none can be made after */
bool box_idle(int64_t ms);
void box_limits(struct box_limits *l);

void box_spec_free(struct box_spec *s);
/* takes s in any case; *out is a reference */
int box_create(struct box_spec *s, struct box **out, struct err *e);
const struct box_spec *box_spec(const struct box *b);
const char *box_traffic_token(const struct box *b); /* NULL if public */
/* false if it is not to be found (any more) */
bool box_look(struct box *b, struct box_info *info);
/* references to all that are to be found; free each and the array */
struct box **box_all(size_t *n);

/* -ENOENT if it had ended already; returns when nothing of it runs */
int box_kill(struct box *b, const char *why);
/* -EALREADY when it is so, -ENOENT, -EIO */
int box_pause(struct box *b, struct err *e);
/* resumes with a deadline that far from now; -EALREADY if running */
int box_resume(struct box *b, int64_t ms, struct err *e);
/* of a running one; extend: never earlier than now. -ENOENT, -EPERM paused */
int box_deadline(struct box *b, int64_t ms, bool extend);
void box_auto_pause_set(struct box *b, bool on);

/* why a box that is gone ended, into why; false when unknown */
bool box_obituary(const char *id, char *why, size_t size);

/* a socket connected to a port inside, or -errno */
int box_dial(struct box *b, int port);
int box_dns_socket(struct box *b);
int box_route(struct box *b, uint32_t addr, int prefix, uint32_t flags);
pid_t box_init_pid(const struct box *b);
/* the network of the box: net.c's, NULL if none */
struct net *box_net(const struct box *b);
const char *box_dir(const struct box *b);
/* for a box whose network came or changed; hosts are copied */
int box_network(struct box *b, enum net_mode mode, char *const *hosts,
                struct err *e);

struct box_usage {
    int64_t mem, mem_total, cache, disk, disk_total; /* bytes */
    double cpu_pct;
};
void box_usage(struct box *b, struct box_usage *u);

/* a line of the box's log */
void box_log(struct box *b, const char *level, const char *fmt, ...)
    PRINTF(3, 4);
struct box_line {
    int64_t at; /* ms */
    const char *level;
    char *text;
};
/* calls fn for each line, oldest first, also of a box gone lately; false if
 * the id is unknown */
bool box_lines(const char *id, void (*fn)(const struct box_line *l, void *arg),
               void *arg);

#endif
