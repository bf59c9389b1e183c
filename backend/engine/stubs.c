/* Parts that are not built yet, so that the rest links. */
#include "engine/command.h"

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
