/*
 * The inside of proc.c (starting, calls), sub.c (who listens) and pump.c
 * (the thread that reads).
 *
 * A process goes through: starting (not in the epoll set yet), running,
 * exited (reaped; its pipes may hold more), ended (the end event was handed
 * out), and is then forgotten. References are held by the table, by each
 * source that is open, by each subscriber and by the reaper's callback.
 *
 * `proc_lock` guards everything but in_fd, which in_lock guards. Lock order:
 * in_lock, proc_lock; nothing of the box is called under `proc_lock`. Sources
 * are closed by the pump only.
 */
#ifndef LOCAL_PROC_INT_H
#define LOCAL_PROC_INT_H

#include "local/proc.h"

#include <pthread.h>

struct source {
    struct proc *p;
    const char *field; /* of the event: stdout, stderr, pty */
    int fd;            /* -1 after EOF */
    bool armed;        /* in the epoll set */
};

struct proc {
    struct proc *next;
    int refs;
    char *box;
    char *tag;
    json_t *config;
    pid_t pid;
    bool pty;
    struct source src[2];
    pthread_mutex_t in_lock;
    int in_fd; /* -1: none, or closed */
    struct sub *subs;
    bool blocked; /* a subscriber is full: not read */
    bool listed;  /* in the table */
    bool started, exited, ended, box_died;
    int wstatus;
    int drained; /* bytes at most, since the grace after the exit */
    int64_t exit_at, kill_at, forget_at;
    struct chunk *end;
};

struct link {
    struct link *next;
    struct chunk *c;
};

struct sub {
    struct sub *next;
    struct proc *p;
    pthread_cond_t more;
    struct link *head, **tail;
    size_t bytes;
    bool starter; /* the stream of Start */
    int over;     /* 0, or what sub_next says once the queue is empty */
};

/* ---- pump.c ---- */

extern pthread_mutex_t proc_lock;
extern struct proc *proc_table;
extern int pump_epfd;

void pump_start(void);       /* once */
void pump_poke(void);        /* looks at exits and timers now */
void pump_timer(int64_t at); /* and at that mono_ms; under proc_lock */
void pump_exited(void *arg, int wstatus); /* of struct box_spawn */

/* ---- sub.c; all under proc_lock ---- */

void proc_unref(struct proc *p);
void source_arm(struct source *s);
void source_disarm(struct source *s);
void source_close(struct source *s); /* the pump only */
/* bytes that came, to everybody */
void source_publish(struct source *src, const char *buf, size_t n);
struct chunk *chunk_end(int wstatus);
struct sub *sub_new(struct proc *p);
void sub_push(struct sub *s, struct chunk *c);
void sub_over(struct sub *s, int why);
/* reads on when no subscriber is behind any more */
void proc_unblock(struct proc *p);

#endif
