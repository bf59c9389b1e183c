/*
 * endpoint: where requests go and what they carry: URLs, keys, the pool of
 * curl handles. It knows no method of the protocol. Everything here may be
 * called on any thread; nothing blocks but for its short locks.
 *
 * The API key lives in one locked page from e2b_open to e2b_close and is put
 * into requests by reference. Ids, tokens, domains come from servers: they
 * are checked before they become part of a URL or a header.
 */
#ifndef E2B_ENDPOINT_H
#define E2B_ENDPOINT_H

#include "e2b/e2b.h"

#include <curl/curl.h>
#include <pthread.h>

#define ENVD_PORT "49983"

/* one call's curl handles; its connections stay open for the next call */
struct slot {
    CURLM *multi;
    CURL *easy;
    struct e2b_cancel *cancel;         /* of the call under way, or NULL */
    struct slot *next;                 /* in the pool */
    struct slot *run_next, **run_link; /* among the running */
};

struct e2b {
    char *api_url, *sandbox_url, *domain, *unix_socket;
    struct curl_slist *key_header; /* in locked memory, or NULL */
    void *key_page;
    size_t key_page_size;
    CURLSH *share; /* names and TLS sessions */
    pthread_mutex_t share_lock[CURL_LOCK_DATA_LAST];
    pthread_mutex_t lock; /* the pool */
    struct slot *idle;
    int n_idle;
    int use_v2; /* atomic: the server has only the v2 routes */
};

struct slot *slot_take(struct e2b *x, struct e2b_cancel *cancel);
/* reuse false: its connections are closed, as one of them may be dead */
void slot_give(struct e2b *x, struct slot *s, bool reuse);
/* closes the slot's connections and makes it like new */
void slot_renew(struct slot *s);
bool cancel_wanted(const struct e2b_cancel *c);

/* what every request has in common: certificates, keepalive, user agent */
void easy_prepare(struct e2b *x, CURL *h, const char *url);

/* URL of a path ("/sandboxes"), owned by the caller */
char *api_url(const struct e2b *x, const char *path);
/* URL of a path at a sandbox; -EINVAL if id, token or domain are no such */
int target_url(const struct e2b_target *t, const char *path, char **out,
               struct err *e);
int id_check(const char *id, struct err *e);

/* a header list to which lines are added; free with headers_free, which
 * wipes them */
void headers_add(struct curl_slist **h, const char *fmt, ...) PRINTF(2, 3);
void headers_free(struct curl_slist *h);
/* routing and token of a sandbox; user may be NULL */
struct curl_slist *target_headers(const struct e2b_target *t,
                                  const char *user);

/* percent-encodes as one query value */
void url_escape(struct buf *out, const char *s);

#endif
