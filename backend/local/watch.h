/*
 * watch: changes below a directory, by inotify. Owns the watches; hands out
 * events as JSON; knows nothing of HTTP.
 *
 * A watcher is used by one thread at a time. Uploads of this program (see
 * UPLOAD_NEW in boxfs.h) are shown as what they mean: create, chmod and write
 * of the file.
 */
#ifndef LOCAL_WATCH_H
#define LOCAL_WATCH_H

#include "local/boxfs.h"

struct watch;

struct watch_spec {
    bool recursive, entries, network; /* includeEntry, allowNetworkMounts */
};

/* within boxfs_enter; -ENOTDIR, -ENOENT, -ENOTSUP (a network mount) */
int watch_open(const struct boxfs *f, const char *abs,
               const struct watch_spec *spec, struct watch **out,
               struct err *e);
void watch_close(struct watch *w);
/* to poll for POLLIN; borrowed */
int watch_fd(const struct watch *w);
/*
 * What has happened, without waiting: fn is called with each event {name,
 * type, entry?} (taken by it). Outside of boxfs_enter. 0, or -ESHUTDOWN.
 */
int watch_read(struct watch *w, void (*fn)(void *arg, json_t *event),
               void *arg);

#endif
