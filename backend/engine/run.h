/*
 * run: workflows at work. A run is a row, its steps are rows, and one job in
 * the lane `run` drives it from step to step. Where it is stands in the row's
 * `state` (JSON), so a restart goes on there.
 *
 *   pending -> running <-> paused -> completed | failed | cancelled
 *
 *   run.c       the row; commands: create, cancel, pause, ...
 *   rundrive.c  the job: waits for turns, ends sandboxes, ends the run
 *   runstep.c   a step begins
 *   runpart.c   what the agent of a step is, and needs
 *   runjudge.c  what an answer means; parallel attempts
 *   runtext.c   what the agents are told, and what is read from their answers
 *   runpr.c     what its pull request says
 *   runhand.c   work that has no remote goes from one sandbox to the next
 */
#ifndef ENGINE_RUN_H
#define ENGINE_RUN_H

#include "engine/engine.h"
#include "engine/workflow.h"

struct run {
    int64_t id, project, created, started, ended;
    char *name, *status, *reason, *text, *config, *want, *branch, *base;
    char *state, *grp, *prompt;
    struct workflow wf;
};
/* 0, -ENOENT, or -EINVAL (its workflow can't be read) */
int run_get(struct db *d, int64_t id, struct run *out, struct err *e);
void run_clear(struct run *r);
bool run_ended(const char *status);
/* the one function that changes a run's status */
void tx_run_status(struct tx *tx, int64_t id, const char *to,
                   const char *reason);
void tx_run_touch(struct tx *tx, int64_t id, uint64_t aspects);

/* `pr` as it is for a run: its own setting, the project's, root's, default;
 * owned by the caller */
char *run_pr_setting(struct db *d, int64_t run);
/* runhand.c: after the clone, into a new VM; blocks (worker) */
int run_hand_over(struct courier *c, struct sandbox *s,
                  const struct e2b_target *t, struct job *j, struct err *e);
/* runpr.c: from its prompt, NULL if it has none; owned by the caller */
char *run_pr_title(struct db *d, int64_t run);
void run_pr_body(struct db *d, int64_t run, struct buf *out);
/* all live runs of root or a project, as killall (cancelled) and `shutdown
 * all` (paused; those with sandboxes of that backend) want it */
void tx_runs_end(struct tx *tx, struct courier *c, struct oid o,
                 const char *reason, const char *backend);

/* runpart.c: the parts of a step, its persona's filled in; free with
 * part_clear */
int step_part(struct db *d, const struct run *r, size_t pos, struct part *out,
              struct err *e);
/* a persona as it was when the run was made, else as it is; owned */
char *run_persona(struct db *d, const struct run *r, const char *name,
                  size_t *n);
/* what a sandbox is to be for a part, as its own settings, the run's, the
 * project's, root's and the tool's say; free with settings_clear */
struct settings {
    struct setting {
        char *value;      /* "" if there is none */
        const char *from; /* static */
        bool own;         /* the sandbox must be told: it is of its run */
    } tool, model, thinking;
};
int part_settings(struct db *d, const struct run *r, const struct part *p,
                  struct settings *out, struct err *e);
void settings_clear(struct settings *s);
/* what a sandbox must have for all steps that it serves; any sandbox */
struct outfit {
    char **tools;  /* NULL-ended, its own first */
    char **skills; /* NULL-ended; NULL: all */
};
void outfit_get(struct db *d, const struct sandbox *s, struct outfit *out);
bool outfit_has(const struct outfit *o, const char *skill);
void outfit_clear(struct outfit *o);
/* index of the step's row name: "01-design", "01-design.2" */
void step_name(const struct run *r, size_t pos, int round, char out[96]);

/* runtext.c: pure */
struct told {
    const char *role, *instructions, *skills, *task, *feedback;
    const char *skills_at; /* where they are; NULL: the tool knows */
    const char *earlier;   /* outputs of the steps before, or "" */
    int round, max;
    bool known; /* this agent was told the task in this conversation */
};
char *run_prompt(const struct told *t);
/* again, for an answer without its block */
char *run_ask_again(const char *role);
struct verdict {
    bool ok;   /* a block was there and whole */
    bool pass; /* of a checker */
    char *feedback, *score, *choice;
    const char *why; /* what was wrong with it; static */
};
bool role_judges(const char *role); /* its answer ends in a block */
void verdict_read(const char *role, const char *answer, struct verdict *out);
void verdict_clear(struct verdict *v);

#endif
