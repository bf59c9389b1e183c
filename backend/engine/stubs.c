/* Parts that are not built yet, so that the rest links. */
#include "engine/command.h"

int salvage_run(struct courier *c, struct sandbox *s, struct job *j,
                struct buf *reason, struct err *e)
{
    (void)c, (void)s, (void)j, (void)reason, (void)e;
    return 0;
}

int repo_setup(struct courier *c, struct sandbox *s,
               const struct e2b_target *t, struct job *j, struct err *e)
{
    (void)c, (void)s, (void)t, (void)j, (void)e;
    return 0;
}

bool repo_wanted(struct db *d, const struct sandbox *s)
{
    (void)d, (void)s;
    return false;
}

void tx_after_end(struct tx *tx, struct courier *c, int64_t sandbox,
                  bool salvaged)
{
    (void)tx, (void)c, (void)sandbox, (void)salvaged;
}

void tx_after_turn(struct tx *tx, struct courier *c, int64_t sandbox,
                   int64_t message, bool ok)
{
    (void)tx, (void)c, (void)sandbox, (void)message, (void)ok;
}

int tx_run_create(struct tx *tx, struct courier *c, int64_t project,
                  const struct args *a, bool body_follows, int64_t *id,
                  char **made, struct err *e)
{
    (void)tx, (void)c, (void)project, (void)a, (void)body_follows, (void)id,
        (void)made;
    return err_set(e, EINVAL, "runs are not built yet");
}

int tx_run_create_body(struct tx *tx, struct courier *c, int64_t id,
                       const void *p, size_t n, struct err *e)
{
    (void)tx, (void)c, (void)id, (void)p, (void)n;
    return err_set(e, EINVAL, "runs are not built yet");
}

int tx_run_verb(struct tx *tx, struct courier *c, int64_t id,
                const struct args *a, struct err *e)
{
    (void)tx, (void)c, (void)id, (void)a;
    return err_set(e, EINVAL, "runs are not built yet");
}

int tx_learnings_verb(struct tx *tx, struct courier *c, int64_t project,
                      const struct args *a, char **made, struct err *e)
{
    (void)tx, (void)c, (void)project, (void)a, (void)made;
    return err_set(e, EINVAL, "learnings are not built yet");
}
