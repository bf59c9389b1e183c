/*
 * workflow: the grammar of workflows and personas, and nothing else: it knows
 * no run, no record. Pure functions, any thread.
 *
 *     description = design and review
 *     [step design]
 *     persona = designer
 *     loop = review
 *     [step check]
 *     role = checker
 *     instructions = Run the tests.
 *       Be strict about error handling.
 *     loop = review
 *     [loop review]
 *     max = 3
 *     on_max = fail
 *
 * A line that begins with white space goes on with the value above it: after
 * a newline in `instructions`, after a blank elsewhere. A key given twice in
 * one section: the last wins. The steps of a loop stand one after another.
 */
#ifndef ENGINE_WORKFLOW_H
#define ENGINE_WORKFLOW_H

#include "base/base.h"

/* what an agent of a step or persona is; strings are NULL where not given */
struct part {
    char *description;
    char *role;    /* one of workflow_roles */
    char *persona; /* of a step only: what is not given here is in there */
    char *tool, *model, *thinking;
    char *instructions;
    char *skills; /* names with blanks or commas between */
};

struct wf_step {
    char *name;
    struct part part;
    int loop; /* index into loops, -1: none */
    int line;
};

struct wf_loop {
    char *name;
    int max;         /* rounds, 1-100, default 3 */
    bool continue_;  /* on_max: go on after the loop; else the run fails */
    int first, last; /* its steps */
    int line;
};

struct workflow {
    char *description;
    struct wf_step *steps; /* at least one */
    size_t n_steps;
    struct wf_loop *loops;
    size_t n_loops;
};

extern const char *const workflow_roles[]; /* NULL-ended */

/*
 * lines_only: the text goes on, so only what is wrong whatever follows is
 * judged (the last, unfinished line not at all). -EINVAL, "line N: ..."; out
 * may be NULL.
 */
int workflow_parse(const char *p, size_t n, bool lines_only,
                   struct workflow *out, struct err *e);
void workflow_clear(struct workflow *w);
int persona_parse(const char *p, size_t n, bool lines_only, struct part *out,
                  struct err *e);
void part_clear(struct part *p);

#endif
