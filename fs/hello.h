/*
 * hello: what courier tells the kernel at its start beyond what libfuse can
 * say. Files served past the page cache (direct_io) may be mapped shared,
 * from Linux 6.6 on; libfuse has no word for that before 3.17.
 */
#ifndef FS_HELLO_H
#define FS_HELLO_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

/* after the mount, before the first request is read; 0 or -1 */
int hello_prepare(struct fuse_session *se);

#endif
