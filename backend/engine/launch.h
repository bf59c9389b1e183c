/*
 * launch: how a process is started in a VM so that it needs nobody to go on,
 * and how it is looked at and ended. It knows scripts and directories in the
 * VM; it knows no messages and no streams.
 *
 * Each process has a directory there: VM_OWN/turns/ID with prompt, cmd, out,
 * err; `started` (made once: a second start does nothing), `alive` (locked
 * while it runs), `exit` ("CODE SIGNALLED", written at once when the command
 * itself has ended, whatever it left in the background).
 */
#ifndef ENGINE_LAUNCH_H
#define ENGINE_LAUNCH_H

#include "engine/engine.h"

struct launch {
    int64_t process;
    const char *instance;
    const char *cmd;   /* for the shell */
    const char *shell; /* "sh" or "bash" */
    const char *workdir;
    const char *env;   /* NAME='value' lines, or "" */
    const void *input; /* stdin */
    size_t input_n;
    bool merge; /* stderr into out */
    bool feed;  /* stdin is what launch_give brings, not input */
};
/* idempotent. 0, -ENOBUFS (as many processes as a turn may have are there
 * already), -ENOMEM, or as e2b_exec */
int launch_start(const struct e2b_target *t, const struct launch *l,
                 struct e2b_cancel *cancel, struct err *e);

/* a piece for the stdin of a process begun with feed. Its name is a number,
 * larger than those before, or "end"; one given twice counts once. run
 * borrows from g and p; wipe g->coded */
struct launch_give {
    char dir[96], name[24], size[24];
    struct buf coded;
    struct e2b_pair env[1];
    const char *argv[8];
};
enum launch_given { /* the command's exit code */
                    GIVEN = 0,
                    GIVEN_EXITED = 77,
                    GIVEN_ENDED = 78, /* no more is taken */
                    GIVEN_FULL =
                        79, /* the process has not read what came before */
};
void launch_give(struct launch_give *g, int64_t process, const char *name,
                 const void *p, size_t n, struct e2b_run *run);

/* the command that prints what comes from these offsets on, until the end;
 * argv borrows from f */
struct launch_follow {
    char dir[96], out[24], err[24];
    const char *argv[8];
};
void launch_follow_argv(struct launch_follow *f, int64_t process,
                        int64_t off_out, int64_t off_err);

struct launch_state {
    enum { LAUNCH_RUNS, LAUNCH_EXITED, LAUNCH_LOST } now;
    int code;
    bool signaled;
    int64_t out, err; /* sizes */
};
int launch_look(const struct e2b_target *t, int64_t process,
                struct launch_state *out, struct err *e);
int launch_read(const struct e2b_target *t, int64_t process, int fd,
                int64_t off, int64_t len, struct buf *out, struct err *e);
/* ends all that the process has started; 0 when nothing is left. One that
 * was not yet started never starts. */
int launch_kill(const struct e2b_target *t, const char *instance,
                int64_t process, struct e2b_cancel *cancel, struct err *e);
/*
 * Ends what earlier processes left, those first that left most, until there is
 * room for one more; or one of them, the biggest, where memory is short. May
 * be called only while none runs. Into out "PROCESS N" lines: so many threads
 * that this one left are ended, PROCESS negative if it is not sure that it was
 * this one. 0 when there is room, or as e2b_exec.
 */
int launch_clear(const struct e2b_target *t, const char *instance, bool memory,
                 struct buf *out, struct e2b_cancel *cancel, struct err *e);

#endif
