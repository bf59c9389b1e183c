/*
 * control: the control plane of E2B's API. It reads requests and writes
 * answers in JSON; what happens is box.c's. Every function may block, on the
 * thread of the connection.
 */
#ifndef LOCAL_CONTROL_H
#define LOCAL_CONTROL_H

#include "local/box.h"

/* answers any request that isn't for the data plane; the key was checked */
void control_handle(struct req *r);
/* {"code":status,"message":"..."} */
void control_fail(struct req *r, int status, const char *fmt, ...)
    PRINTF(3, 4);
bool control_id_ok(const char *id);

/* create.c: the body of a create, into s. 0, or the status of the refusal
 * with words. local: over the Unix socket, where more may be asked for */
int create_parse(json_t *body, bool v2, bool local, struct box_spec *s,
                 struct err *e);
/* allow_internet_access and network of a body as a mode and hosts (owned by
 * the caller); 0 or 400 */
int create_network(json_t *body, enum net_mode *mode, char ***hosts,
                   struct err *e);
enum { TIMEOUT_MAX = 24 * 3600 };

/* list.c: GET /sandboxes and /v2/sandboxes */
void list_handle(struct req *r, bool v2);
/* does the box's metadata hold all pairs of the filter? -EINVAL if it is
 * malformed; NULL matches all */
int list_match(json_t *metadata, const char *filter);
/* the fields that lists and details share */
json_t *list_sandbox(struct box *b, const struct box_info *info);
void list_time(int64_t ms, char out[40]); /* RFC 3339 with ms */

#endif
