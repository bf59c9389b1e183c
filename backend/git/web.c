#include "git/web.h"
#include "base/text.h"

#include <arpa/inet.h>

/* an address, not a name that begins like one */
static bool is_loopback(const char *host)
{
    struct in_addr a;

    return !strcmp(host, "localhost") || !strcmp(host, "[::1]") ||
           (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

/* scheme and host, "" if it is no URL */
static void parts(const char *url, char scheme[16], char host[256])
{
    CURLU *u = curl_url();
    char *s = NULL, *h = NULL;

    scheme[0] = host[0] = 0;
    if (u && !curl_url_set(u, CURLUPART_URL, url, 0) &&
        !curl_url_get(u, CURLUPART_SCHEME, &s, 0) &&
        !curl_url_get(u, CURLUPART_HOST, &h, 0)) {
        snprintf(scheme, 16, "%s", s);
        snprintf(host, 256, "%s", h);
    }
    curl_free(s);
    curl_free(h);
    curl_url_cleanup(u);
}

bool web_may_carry_key(const char *url)
{
    char scheme[16], host[256];

    parts(url, scheme, host);
    return !strcmp(scheme, "https") ||
           (!strcmp(scheme, "http") && is_loopback(host));
}

CURL *web_easy(const char *url, int total_s, struct err *e)
{
    char scheme[16], host[256];
    CURL *c;

    parts(url, scheme, host);
    if (strcmp(scheme, "https") && strcmp(scheme, "http")) {
        err_set(e, EINVAL, "not an http or https address");
        return NULL;
    }
    c = curl_easy_init();
    if (!c) {
        err_set(e, ENOMEM, "curl does not start");
        return NULL;
    }
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    /* once https, always https */
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR,
                     strcmp(scheme, "https") ? "http,https" : "https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 3L);
    curl_easy_setopt(c, CURLOPT_POSTREDIR, (long)CURL_REDIR_POST_ALL);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 15L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)total_s);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_ACCEPT_ENCODING, "");
    return c;
}

int web_err(struct err *e, CURLcode c, const char *url)
{
    char scheme[16], host[256];
    AUTO_BUF struct buf shown = {0};
    int code = EIO;

    parts(url, scheme, host);
    text_printable(&shown, host, strlen(host), 0);
    switch (c) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_PROXY:
        code = EHOSTUNREACH;
        break;
    case CURLE_OPERATION_TIMEDOUT:
        code = ETIMEDOUT;
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        code = EACCES;
        break;
    default:
        break;
    }
    return err_set(e, code, "%s: %s", buf_str(&shown), curl_easy_strerror(c));
}

size_t web_sink_write(char *p, size_t size, size_t n, void *sink)
{
    struct web_sink *s = sink;

    if (size * n > s->max - s->b.n)
        return 0;
    buf_add(&s->b, p, size * n);
    return size * n;
}
