/*
 * command: between the grammar of control files (command.c) and what the
 * verbs do (verbs.c, run.c, learn.c). Functions tx_* are of the writer's
 * thread; a refusal is a negative errno with words, and leaves what it did to
 * be undone by the caller's savepoint.
 */
#ifndef ENGINE_COMMAND_H
#define ENGINE_COMMAND_H

#include "engine/engine.h"

/* fills *a (free with args_clear, also after a failure) */
int args_parse(enum ctl which, const char *text, size_t n, struct args *a,
               struct err *e);
void args_clear(struct args *a);

/* verbs.c */
int tx_named_verb(struct tx *tx, struct courier *c, int64_t project,
                  const struct args *a, struct err *e);
/* every live sandbox of root or a project; backend NULL: of any */
void tx_killall(struct tx *tx, struct courier *c, struct oid o,
                const char *reason, const char *backend);
int tx_create_body(struct tx *tx, struct courier *c, int64_t id, const void *p,
                   size_t n, struct err *e);
int tx_message_end(struct tx *tx, struct courier *c, int64_t message,
                   const void *p, size_t n, struct err *e);
void tx_message_drop(struct tx *tx, int64_t message);
/* an exec is there, as `queued`, from its line on; its command comes with the
 * end of its body, or it is dropped */
int tx_exec_reserve(struct tx *tx, int64_t id, int64_t *exec, struct err *e);
int tx_exec_queue(struct tx *tx, struct courier *c, int64_t exec,
                  const char *cmd, size_t n, struct err *e);
void tx_exec_drop(struct tx *tx, int64_t exec);
int tx_expires(struct tx *tx, struct courier *c, int64_t id, const char *text,
               struct err *e);
/* ends the daemon; all: when the local sandboxes have ended */
void shutdown_begin(struct courier *c, bool all);

/* run.c, learn.c */
int tx_run_create(struct tx *tx, struct courier *c, int64_t project,
                  const struct args *a, bool body_follows, int64_t *id,
                  char **made, struct err *e);
int tx_run_create_body(struct tx *tx, struct courier *c, int64_t id,
                       const void *p, size_t n, struct err *e);
/* a create whose body never came: the run goes, and the other attempts */
void tx_run_drop(struct tx *tx, int64_t id);
int tx_run_verb(struct tx *tx, struct courier *c, int64_t id,
                const struct args *a, struct err *e);
/* the extraction is queued: `pending` */
void tx_learn(struct tx *tx, struct courier *c, const struct sandbox *s);
int tx_learnings_verb(struct tx *tx, struct courier *c, int64_t project,
                      const struct args *a, char **made, struct err *e);

/* at start: bodies whose writer died with the daemon are ended */
void bodies_resume(struct courier *c);

#endif
