/*
 * notify: what other threads have to say to the loop, and what the loop has
 * to say to the kernel. Two queues and one thread, the notifier.
 *
 * The order is the promise: of a commit, first the kernel forgets what it
 * knew of everything that changed (on the notifier), then parked reads are
 * tried and the callers answered (on the loop). So a stat after a wait or a
 * write is never old.
 *
 * Only attributes are invalidated: that never waits for a lock of the tree.
 * Entries are not, since that can wait for a directory whose lookup waits
 * for us.
 */
#ifndef FS_NOTIFY_H
#define FS_NOTIFY_H

#include "courier.h"

int notify_start(void); /* the inbox; before anything is posted */
int notify_run(void);   /* the thread; once mounted */
void notify_stop(void); /* joins; what is posted later is dropped */

int notify_fd(void); /* readable when there is something for the loop */
/* on the loop: handles what has come; false when there was nothing */
bool notify_drain(void);
bool notify_idle(void);

/* the backend's callback; any thread */
void notify_changed(void *ctx, const struct courier_change *c, size_t n);

/*
 * A call of the backend whose end concerns the loop: pass call_done and what
 * call_new returned as `done, arg`; fn then runs once on the loop. made and
 * e are borrowed.
 */
typedef void (*call_fn)(int code, const struct err *e, const char *made,
                        void *arg);
void *call_new(call_fn fn, void *arg);
void call_done(void *call, int code, const struct err *e, const char *made);

/* runs fn on the loop, behind what was posted before; any thread */
void notify_post(void (*fn)(void *arg), void *arg);
/* on the loop: the kernel is to forget the attributes of these */
void notify_inode(uint64_t ino);

#endif
