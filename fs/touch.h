/*
 * touch: inotify for changes that come from below. The kernel tells watchers
 * nothing when the daemon changes a file, so a child process sets the time
 * of what changed, through the mount, as any user could; the daemon answers
 * those SETATTRs with nothing done. It also opens and closes the file as a
 * writer would, which some watchers wait for. The child holds no descriptor
 * of the daemon's but its pipe, so that it can hold up nothing, and dies with
 * it.
 *
 * Only files that somebody looked at lately are touched, each at most every
 * 50 ms. A convenience, not a contract.
 */
#ifndef FS_TOUCH_H
#define FS_TOUCH_H

#include "fs/node.h"

/* forks the child; before any thread or database is there */
int touch_start(void);
void touch_mounted(const char *mount); /* where to touch; from then on */
void touch_changed(struct node *n);    /* on the loop; never blocks */
int touch_timeout(void);               /* ms until touch_run has to, or -1 */
void touch_run(void);
/* waits until it is gone; after unmounting, which ends what it waits for */
void touch_stop(void);

#endif
