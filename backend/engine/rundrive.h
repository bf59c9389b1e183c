/*
 * rundrive: what the job of a run keeps in hand while it looks, inside one
 * transaction of the writer. Nothing here blocks; what takes time is done by
 * the jobs of the run's sandboxes, which tell the run when something came
 * (tx_run_look).
 *
 * Where a run is stands in `st`, saved with the transaction:
 *   phase    begin    the step at `pos` is to be begun
 *            turn     its message `msg` is with the agent
 *            ending   sandbox `vm` is being ended (its work saved); `then`
 *            finish   all steps are done
 *            pr       the pull request is being made
 *   pos, round, step (row), tries, asked     the step under way
 *   vm, vmloop, lastvm, sessions             its sandbox and the
 *                                            conversations in it, by step
 *   feedback, fresh, unhappy   of the last round; of this one
 *   at_judge, anew, choice     parallel attempts
 */
#ifndef ENGINE_RUNDRIVE_H
#define ENGINE_RUNDRIVE_H

#include "engine/run.h"

struct drive {
    struct tx *tx;
    struct courier *c;
    struct run *r;
    json_t *st;
    bool over; /* the job has nothing more to do */
};

static inline int64_t num(const struct drive *d, const char *key)
{
    return json_integer_value(json_object_get(d->st, key));
}
static inline void put(struct drive *d, const char *key, int64_t v)
{
    json_object_set_new(d->st, key, json_integer(v));
}
static inline const char *word(const struct drive *d, const char *key)
{
    const char *s = json_string_value(json_object_get(d->st, key));

    return s ? s : "";
}
static inline void put_word(struct drive *d, const char *key, const char *v)
{
    json_object_set_new(d->st, key, json_string(v ? v : ""));
}
static inline void phase(struct drive *d, const char *p)
{
    put_word(d, "phase", p);
}
static inline const struct wf_step *step_at(const struct drive *d)
{
    return &d->r->wf.steps[num(d, "pos")];
}
static inline const struct wf_loop *loop_of(const struct drive *d)
{
    int l = step_at(d)->loop;

    return l < 0 ? NULL : &d->r->wf.loops[l];
}

/* ---- rundrive.c ---- */

bool vm_lives(struct drive *d, int64_t vm);
void step_set(struct drive *d, const char *status, const char *reason);
/* ends the sandbox under way, then goes on with phase `then`, or with
 * "fail" or "cancel" */
void end_vm(struct drive *d, const char *reason, const char *then);
/* the step has failed, and with it the run */
void drive_fail(struct drive *d, const char *reason);

/* ---- runstep.c: the step at `pos` begins ---- */

/* false: nothing more to do until something comes */
bool step_begin(struct drive *d);
/* the same agent is asked once more: its answer had no verdict */
void step_ask_again(struct drive *d, const char *role);

/* ---- runjudge.c: what an answer means, and where to go from there ---- */

/* is the step a script that checks? Then its exit code is a verdict */
bool exit_judges(struct drive *d);
/* exited: "exited N", of such a script that failed; else NULL */
void step_answered(struct drive *d, const char *answer, const char *exited);
/* parallel attempts wait for each other at the judge; the first asks it */
enum judging { JUDGE_WAIT, JUDGE_ASK, JUDGE_PAST };
enum judging judge_turn(struct drive *d);
/* the others of the group have something to look at */
void tell_group(struct drive *d);

#endif
