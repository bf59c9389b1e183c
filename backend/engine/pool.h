/*
 * pool: a few threads that do short blocking things in the order given. It
 * knows nothing of what they are. Threads are started as they are needed, up
 * to the limit.
 */
#ifndef ENGINE_POOL_H
#define ENGINE_POOL_H

#include "base/base.h"

struct pool;
typedef void (*pool_fn)(void *arg);

struct pool *pool_new(int threads);
/* any thread, also one of the pool; not after pool_free */
void pool_add(struct pool *p, pool_fn fn, void *arg);
int pool_waiting(struct pool *p); /* how many nobody has begun */
/* ends when all that was added is done; blocks. NULL is allowed */
void pool_free(struct pool *p);

#endif
