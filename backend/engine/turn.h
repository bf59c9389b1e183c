/*
 * turn: the begin and the end of a turn and of an exec in the record. A turn
 * is a message, the process that answers it, and two messages' worth of
 * transcript; every word of that is written here, in the transaction that
 * makes it true.
 */
#ifndef ENGINE_TURN_H
#define ENGINE_TURN_H

#include "engine/engine.h"

/* how a turn went; all borrowed */
struct turn_end {
    const char *error;  /* NULL: completed */
    const char *agent;  /* "idle" or "failed" */
    const char *reason; /* of the sandbox, or NULL */
    const char *result; /* the answer's joined text, printable; or NULL */
    size_t result_n;
    const char *model;               /* that the CLI says it used, or NULL */
    json_t *tools;                   /* [{name,summary,status}], or NULL */
    const struct agent_usage *usage; /* or NULL: nothing was counted */
    bool bad_session; /* the conversation can't be gone on with */
};
/*
 * Ends the turn of a process: transcript, jsonl, message, usage, agent, event,
 * job. Does nothing if it has ended. c may be NULL when the sandbox ends with
 * it. What process.stop says wins over how it went.
 */
void tx_turn_end(struct tx *tx, struct courier *c, int64_t process,
                 const struct turn_end *end);
void tx_exec_end(struct tx *tx, struct courier *c, int64_t process,
                 const char *exit);

/* a row of process joined with what it belongs to; free with process_clear */
struct process {
    int64_t id, sandbox, job, message, exec, off_out, off_err, deadline;
    char *state, *stop;
};
int process_get(struct db *d, int64_t id, struct process *out);
void process_clear(struct process *p);
/* ids of the live ones of a sandbox (0: of all), owned by the caller */
int64_t *processes_live(struct db *d, int64_t sandbox, size_t *n);

#endif
