/*
 * pr: what pr.c (a request is opened) and prlook.c (it is followed) share.
 */
#ifndef ENGINE_PR_H
#define ENGINE_PR_H

#include "engine/engine.h"

enum { PR_LOOK_MS = 60 * 1000 };

/* where requests are: a forge's API, and the repository's name there */
struct pr_place {
    char *api, *owner, *name, *token;
};

/* into the record, with the event; pr and head may be NULL: as they were */
int pr_set(struct courier *c, const struct sandbox *s, const char *status,
           const char *reason, const struct forge_pr *pr, const char *head);
/* the request of a run is that of its sandbox */
void tx_pr_of_run(struct tx *tx, int64_t sandbox);
/* ms until a rate limit ends, as the words of its refusal say */
int pr_limit_delay(const char *words);
/* prlook.c: 0 when there is nothing to follow any more, else -EAGAIN and when
 * to look again */
int pr_follow(struct courier *c, struct job *j, struct sandbox *s,
              struct pr_place *p, int *delay_ms);

#endif
