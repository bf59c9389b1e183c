/*
 * dns: answers the DNS of one box for the hosts it may reach, by asking the
 * host's resolver, and opens a route in the box for each address told. Owns
 * a thread and two sockets. Other names do not exist; there is no IPv6.
 */
#ifndef LOCAL_DNS_H
#define LOCAL_DNS_H

#include "local/box.h"

struct dns;

/* "example.org" or "*.example.org" */
bool dns_name_ok(const char *host);
/* does name match one of hosts? case doesn't matter */
bool dns_allowed(const char *name, char *const *hosts);
/* the name and type asked for; false if the message is not one question */
bool dns_question(const unsigned char *m, size_t n, char name[256], int *type);
/* calls fn for each IPv4 address in an answer (network order) */
void dns_addresses(const unsigned char *m, size_t n,
                   void (*fn)(uint32_t addr, void *arg), void *arg);
/* may a name lead there? not to loopback, link-local or the box's gateway */
bool dns_address_ok(uint32_t addr);

int dns_start(struct dns **out, struct box *b, char *const *hosts,
              struct err *e);
/* ends the thread; closes the routes it opened unless b is NULL */
void dns_stop(struct dns *d, struct box *b);

#endif
