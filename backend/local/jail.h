/*
 * jail: starts bubblewrap with our init in it, and says what is seen inside.
 * Owns the private /etc under the data directory and the thread that forks;
 * knows nothing of states, deadlines or HTTP.
 *
 * As root the box's processes live in a user namespace of their own with 65536
 * ids nobody else has; init stays outside of it. As a plain user there is one
 * id, the caller's.
 *
 * All is forked by one thread, with nothing between fork and exec but system
 * calls.
 */
#ifndef LOCAL_JAIL_H
#define LOCAL_JAIL_H

#include "local/cgroup.h"

#include <sched.h>
#include <sys/types.h>

enum net_mode { NET_OFF, NET_ON, NET_ALLOW, NET_HOST };

struct jail_spec {
    const char *dir; /* of this box: home, root are made in it */
    uid_t base;      /* 0: the caller's id only */
    enum net_mode net;
    char *const *binds; /* further host directories, read-only; may be NULL */
    const struct cgroup *cg;
    const cpu_set_t *cpus; /* to run on; empty: any */
    int64_t memory;        /* bytes; files in it have less together */
    int pids;              /* processes at once, of each user inside */
};

struct jail {
    pid_t outer; /* bwrap, our child */
    pid_t init;  /* as seen from here */
    int pidfd;   /* of init */
    int sock;    /* see init.h */
    int root_fd; /* O_PATH of "/" inside */
};

/* data is the host's directory; binds and paths (borrowed for ever) are of
 * every box. Writes data/etc and data/init. */
int jail_init(const char *data, char *const *binds, char *const *paths,
              struct err *e);
/* PATH for the processes of a box; borrowed */
const char *jail_path(void);
/* may path (absolute) be shown in a box? The real path into real when so */
int jail_bind_check(const char *path, char **real, struct err *e);

/* (re)writes the resolv.conf of the box at dir, seen inside at once */
int jail_resolv(const char *dir, enum net_mode net, struct err *e);

/* blocks until init is ready, some ten milliseconds; on failure nothing is
 * left but the directory */
int jail_start(struct jail *j, const struct jail_spec *s, struct err *e);

/* a child process of the forking thread, in no box: argv with the descriptors
 * keep[] as 3, 4, ...; its standard error goes to err_fd. pid or -errno */
pid_t jail_run(char *const *argv, const int *keep, int nkeep, int err_fd);

#endif
