/*
 * endpoints: what endpoint.c offers to its neighbours beyond engine.h.
 */
#ifndef ENGINE_ENDPOINTS_H
#define ENGINE_ENDPOINTS_H

#include "engine/engine.h"

/* the local host's endpoint if it runs already: -ENOENT if not */
int endpoint_local_running(struct courier *c, struct e2b **out, struct err *e);
/* tells the tree when it has begun or ended; by one thread only */
void endpoint_local_look(struct courier *c);
/* all endpoints in use, so that each can be asked for its list: the project
 * is one that has this key, 0 for the user's. Owned by the caller. */
struct endpoint_name {
    int64_t project;
    bool local;
};
struct endpoint_name *endpoints_known(struct courier *c, size_t *n);

#endif
