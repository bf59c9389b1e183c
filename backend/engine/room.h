/*
 * room: what earlier turns left running goes on, unless it leaves no room for
 * the next one to start. Then as much of it as must be is ended, which
 * `errors` tells.
 */
#ifndef ENGINE_ROOM_H
#define ENGINE_ROOM_H

#include "engine/engine.h"

/* what launch_start said is short: -ENOBUFS or -ENOMEM. 0: something was
 * ended, try again. On a job's thread; blocks */
int room_make(struct courier *c, struct job *j, const struct e2b_target *t,
              int what);

#endif
