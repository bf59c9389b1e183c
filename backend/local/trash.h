/*
 * trash: removes a directory that somebody hostile has filled: any depth, any
 * names, any modes, links never followed. May take long; any thread.
 */
#ifndef LOCAL_TRASH_H
#define LOCAL_TRASH_H

#include <stdint.h>

/* 0 or -errno of the first thing that can't be removed */
int trash_remove(const char *path);
/* bytes on disk below path, without following links or mounts */
int64_t trash_measure(const char *path);

#endif
