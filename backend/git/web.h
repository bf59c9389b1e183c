/*
 * web: curl handles set up the one careful way for forges and git remotes:
 * https (http for the loopback), certificates checked, bounded redirects,
 * connections that stall are given up. It knows no API and no protocol.
 */
#ifndef GIT_WEB_H
#define GIT_WEB_H

#include <curl/curl.h>

#include "base/base.h"

/* NULL with words when the URL is not one we speak to. total_s 0: as long as
 * bytes come. Freed with curl_easy_cleanup */
CURL *web_easy(const char *url, int total_s, struct err *e);
/* may a key be sent there: https, or the loopback */
bool web_may_carry_key(const char *url);
/* err for a failed transfer; scheme and host of url are named */
int web_err(struct err *e, CURLcode c, const char *url);

/* appends in n bytes at a time until max, then fails the transfer */
struct web_sink {
    struct buf b;
    size_t max;
};
size_t web_sink_write(char *p, size_t size, size_t n, void *sink);

#endif
