/*
 * watcher: who reads a watch: the stream of WatchDir on the thread of its
 * request, or a polled watcher with a thread of its own that keeps events
 * until they are asked for. Owns the table of polled watchers.
 */
#ifndef LOCAL_WATCHER_H
#define LOCAL_WATCHER_H

#include "local/connect.h"
#include "local/watch.h"

enum { WATCHERS_A_BOX = 64, WATCHER_EVENTS = 10000 };

/* the rest of the stream, from its start event to its end; takes w */
void watcher_stream(struct stream *s, const char *box, struct watch *w);

/* takes w, also when it fails: -EAGAIN, too many in this box */
int watcher_add(const char *box, struct watch *w, char id[64], struct err *e);
/* the events since the last call (owned), NULL if there is no such watcher */
json_t *watcher_events(const char *box, const char *id);
int watcher_remove(const char *box, const char *id); /* -ENOENT */

#endif
