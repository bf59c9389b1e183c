/*
 * net: the way out of a box. Owns its slirp4netns process and, where only
 * some hosts are allowed, a thread that answers DNS for those and opens a
 * route for each address it tells. Knows nothing of HTTP.
 *
 * The host's loopback and link-local addresses are never reachable.
 */
#ifndef LOCAL_NET_H
#define LOCAL_NET_H

#include "local/box.h"

struct net;

/* can there be a network at all? words when not */
bool net_possible(const char **why);
/* mode NET_ON or NET_ALLOW; blocks until it works, some ten ms */
int net_start(struct net **out, struct box *b, enum net_mode mode,
              char *const *allow, struct err *e);
/* changes the mode (also NET_OFF) and the hosts */
int net_change(struct net *n, struct box *b, enum net_mode mode,
               char *const *allow, struct err *e);
void net_stop(struct net *n); /* waits for the process; NULL is fine */
/* a host name, an IPv4 address or a.b.c.d/n */
bool net_host_ok(const char *host);

#endif
