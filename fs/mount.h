/*
 * mount: is the mount point fit to be mounted on, in words if not; a stale
 * mount of a daemon that died is taken away.
 */
#ifndef FS_MOUNT_H
#define FS_MOUNT_H

#include "base/base.h"

/* 0 and its absolute path, owned by the caller; -EBUSY, -ENOENT, ...
 * -ETIMEDOUT, after ten seconds at most, when what is mounted there does not
 * answer: a process of its own touches it. Blocks; before any threads. */
int mount_check(const char *dir, char **path, struct err *e);
/* unmounts lazily, whoever we are */
void mount_detach(const char *dir);

#endif
