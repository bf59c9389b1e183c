/*
 * server: the sockets of the host, who may come in, and which half of the
 * protocol a request belongs to. Owns the listeners, the key and the limit on
 * connections.
 */
#ifndef LOCAL_SERVER_H
#define LOCAL_SERVER_H

#include "local/host.h"

struct server_conf {
    const char *socket; /* path of the Unix socket; replaced if there */
    int port;           /* 0: any free one */
    const char *key;    /* the API key; copied */
};

/* listens; *port is what it got. Serves from server_run on */
int server_open(const struct server_conf *c, int *port, struct err *e);
int server_run(struct err *e); /* starts the thread that accepts */
void server_close(void);       /* no more connections */

#endif
