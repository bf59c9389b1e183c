/*
 * api: one call of GitHub's REST API: sends JSON, gives JSON, and turns every
 * way to fail into an errno and words. It knows no pull requests.
 */
#ifndef GIT_API_H
#define GIT_API_H

#include <jansson.h>

#include "git/git.h"

struct api_call {
    const char *method; /* GET, POST, PATCH */
    char *path;         /* after the repository's, "pulls/3"; taken */
    json_t *body;       /* or NULL; taken */
    const char *etag;   /* to be sent, or NULL */
};
struct api_answer {
    long status;
    json_t *json; /* may be NULL */
    char *etag;
};

/*
 * 0 for 2xx and 304. -EACCES: 401, 403; -EAGAIN: rate limited; -ENOENT: 404;
 * -EINVAL: 422 and what else is our fault; -EIO: 5xx or no sense;
 * -EHOSTUNREACH, -ETIMEDOUT, -EIO: no answer. *a is filled for refusals, too.
 */
int api_do(const struct forge *f, struct api_call *c, struct api_answer *a,
           struct err *e);
void api_clear(struct api_answer *a);
/* GitHub's words about a refusal: "message: what; what"; owned */
char *api_words(const struct api_answer *a);

#endif
