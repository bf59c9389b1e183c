/*
 * jobs: the verbs that the queue knows, and what their authors share. Each
 * job_* is a job_fn (engine.h): it runs on a worker, may block, reads top to
 * bottom, and may be begun again after a crash at any point.
 */
#ifndef ENGINE_JOBS_H
#define ENGINE_JOBS_H

#include "engine/engine.h"

/* vmstart.c, vm.c */
int job_start(struct courier *c, struct job *j, int *delay_ms, struct err *e);
int job_pause(struct courier *c, struct job *j, int *delay_ms, struct err *e);
int job_resume(struct courier *c, struct job *j, int *delay_ms, struct err *e);
int job_timeout(struct courier *c, struct job *j, int *delay_ms,
                struct err *e);
/* end.c */
int job_kill(struct courier *c, struct job *j, int *delay_ms, struct err *e);
int job_purge(struct courier *c, struct job *j, int *delay_ms, struct err *e);
/* turn.c */
int job_turn(struct courier *c, struct job *j, int *delay_ms, struct err *e);
int job_exec(struct courier *c, struct job *j, int *delay_ms, struct err *e);
int job_interrupt(struct courier *c, struct job *j, int *delay_ms,
                  struct err *e);
/* input.c */
int job_input(struct courier *c, struct job *j, int *delay_ms, struct err *e);
/* elsewhere; a verb whose function isn't linked fails in words */
#define JOB_LATER __attribute__((weak))
int job_push(struct courier *c, struct job *j, int *delay_ms,
             struct err *e) JOB_LATER;
int job_pr(struct courier *c, struct job *j, int *delay_ms,
           struct err *e) JOB_LATER;
int job_learn(struct courier *c, struct job *j, int *delay_ms,
              struct err *e) JOB_LATER;
int job_run(struct courier *c, struct job *j, int *delay_ms,
            struct err *e) JOB_LATER;

/* what happens to the record when a job failed for good; writer's thread */
void job_start_failed(struct tx *tx, struct courier *c, const struct job *j,
                      const struct err *e);
void job_resume_failed(struct tx *tx, struct courier *c, const struct job *j,
                       const struct err *e);
void job_turn_failed(struct tx *tx, struct courier *c, const struct job *j,
                     const struct err *e);
void job_exec_failed(struct tx *tx, struct courier *c, const struct job *j,
                     const struct err *e);
void job_other_failed(struct tx *tx, struct courier *c, const struct job *j,
                      const struct err *e);

/* is that an error that may be gone the next time? */
bool job_transient(int r);
bool job_cancelled(const struct job *j);
/* a transient error, tried fewer than max times: -EAGAIN; else r */
int job_again(const struct job *j, int r, int max);
/* lets the oldest start that waits for room have another look */
void tx_job_room(struct tx *tx, struct courier *c);
/* all of them: there may be more room than before */
void tx_job_look(struct tx *tx, struct courier *c);

#endif
