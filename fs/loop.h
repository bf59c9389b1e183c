/*
 * loop: the one thread that answers the kernel. It sleeps until a request,
 * something in the inbox or a signal comes, or a moment of a document or of
 * the toucher is due.
 */
#ifndef FS_LOOP_H
#define FS_LOOP_H

#include "fs/fs.h"

/* blocks SIGTERM, SIGINT, SIGHUP for this thread and those it starts */
int loop_init(struct err *e);
/* serves until it is unmounted, a signal comes or loop_end was called */
void loop_run(void);
void loop_end(void *unused); /* any thread: ends the daemon */

#endif
