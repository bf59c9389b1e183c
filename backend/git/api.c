#include "git/api.h"
#include "git/web.h"
#include "base/text.h"

#define ANSWER_MAX ((size_t)8 << 20)

/* what of the header lines matters */
struct heads {
    char *etag;
    int64_t remaining, reset_s, retry_s; /* -1: not given */
};

static char *header_value(const char *p, size_t n, const char *name)
{
    size_t m = strlen(name);
    char *v, *s;

    if (n <= m || strncasecmp(p, name, m) || p[m] != ':')
        return NULL;
    v = xmemdup0(p + m + 1, n - m - 1);
    s = xstrdup(text_trim(v));
    free(v);
    return s;
}

static void header_int(const char *p, size_t n, const char *name, int64_t *out)
{
    AUTO_FREE char *v = header_value(p, n, name);

    if (v && !text_int(v, 0, INT64_MAX / 2000, out))
        *out = -1;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct heads *h = arg;
    char *etag;

    n *= size;
    if (n > 5 && !strncmp(p, "HTTP/", 5)) { /* of the last answer only */
        free(h->etag);
        *h = (struct heads){NULL, -1, -1, -1};
    }
    etag = header_value(p, n, "etag");
    if (etag && strlen(etag) < 300) {
        free(h->etag);
        h->etag = etag;
    } else {
        free(etag);
    }
    header_int(p, n, "x-ratelimit-remaining", &h->remaining);
    header_int(p, n, "x-ratelimit-reset", &h->reset_s);
    header_int(p, n, "retry-after", &h->retry_s);
    return n;
}

static void add_printable(struct buf *b, const char *s, size_t max)
{
    text_printable(b, s, strnlen(s, max), 0);
}

static void add_detail(struct buf *b, json_t *d)
{
    const char *s = json_string_value(d);
    const char *field = json_string_value(json_object_get(d, "field"));
    const char *code = json_string_value(json_object_get(d, "code"));

    if (!s)
        s = json_string_value(json_object_get(d, "message"));
    if (!s && !field && !code)
        return;
    buf_adds(b, b->n ? "; " : "");
    if (s) {
        add_printable(b, s, 200);
        return;
    }
    if (field)
        add_printable(b, field, 60);
    buf_adds(b, field && code ? " " : "");
    if (code)
        add_printable(b, code, 60);
}

char *api_words(const struct api_answer *a)
{
    const char *m = json_string_value(json_object_get(a->json, "message"));
    json_t *errors = json_object_get(a->json, "errors");
    struct buf words = {0};
    AUTO_BUF struct buf details = {0};

    for (size_t i = 0; i < json_array_size(errors) && i < 5; i++)
        add_detail(&details, json_array_get(errors, i));
    if (m)
        add_printable(&words, m, 300);
    if (details.n)
        buf_addf(&words, "%s%s", words.n ? ": " : "", details.p);
    if (!words.n)
        buf_addf(&words, "status %ld", a->status);
    return buf_take(&words);
}

static bool rate_limited(const struct api_answer *a, const struct heads *h,
                         const char *words)
{
    if (a->status != 403 && a->status != 429)
        return false;
    return a->status == 429 || h->remaining == 0 || h->retry_s >= 0 ||
           strcasestr(words, "rate limit");
}

static int refused(const struct forge *f, const struct api_answer *a,
                   const struct heads *h, struct err *e)
{
    AUTO_FREE char *words = api_words(a);
    char until[32] = "";

    if (rate_limited(a, h, words)) {
        int64_t at = h->retry_s >= 0   ? now_ms() + h->retry_s * 1000
                     : h->reset_s >= 0 ? h->reset_s * 1000
                                       : 0;

        time_rfc3339(at, until);
        return err_set(e, EAGAIN, "GitHub's rate limit is reached%s%s: %s",
                       *until ? " until " : "", until, words);
    }
    switch (a->status) {
    case 401:
        return err_set(e, EACCES, "GitHub refused the key: %s", words);
    case 403:
        return err_set(e, EACCES, "GitHub does not allow it: %s", words);
    case 404:
        return err_set(e, ENOENT,
                       f->token
                           ? "GitHub knows no %s/%s, or the key may not see it"
                           : "GitHub knows no %s/%s, or it needs a key",
                       f->owner, f->name);
    default:
        return err_set(e, a->status >= 500 ? EIO : EINVAL,
                       "GitHub refused: %s", words);
    }
}

static struct curl_slist *headers(const struct forge *f, const char *etag)
{
    struct curl_slist *l = NULL;

    l = curl_slist_append(l, "Accept: application/vnd.github+json");
    l = curl_slist_append(l, "X-GitHub-Api-Version: 2022-11-28");
    l = curl_slist_append(l, "Content-Type: application/json");
    l = curl_slist_append(l, "Expect:");
    if (f->token) {
        AUTO_FREE char *h = xasprintf("Authorization: Bearer %s", f->token);

        l = curl_slist_append(l, h);
        explicit_bzero(h, strlen(h));
    }
    if (etag && !strpbrk(etag, "\r\n")) {
        AUTO_FREE char *h = xasprintf("If-None-Match: %s", etag);

        l = curl_slist_append(l, h);
    }
    return l;
}

static void headers_free(struct curl_slist *l)
{
    for (struct curl_slist *i = l; i; i = i->next)
        explicit_bzero(i->data, strlen(i->data));
    curl_slist_free_all(l);
}

static int check(const struct forge *f, const char *url, struct err *e)
{
    if (!f->token)
        return 0;
    if (strpbrk(f->token, "\r\n"))
        return err_set(e, EACCES, "the key for GitHub has a line break");
    if (!web_may_carry_key(url))
        return err_set(e, EACCES,
                       "the key is sent over https only, and "
                       "github_api is not");
    return 0;
}

static int perform(const struct forge *f, const struct api_call *c,
                   const char *url, struct web_sink *sink, struct heads *h,
                   struct api_answer *a, struct err *e)
{
    AUTO_FREE char *body = c->body ? json_dumps(c->body, 0) : NULL;
    struct curl_slist *l;
    CURL *curl = web_easy(url, 60, e);
    CURLcode rc;

    if (!curl)
        return -e->code;
    l = headers(f, c->etag);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "courier/" COURIER_VERSION);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, c->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, l);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, web_sink_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, sink);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, h);
    if (body)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    rc = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &a->status);
    curl_easy_cleanup(curl);
    headers_free(l);
    return rc ? web_err(e, rc, url) : 0;
}

int api_do(const struct forge *f, struct api_call *c, struct api_answer *a,
           struct err *e)
{
    AUTO_FREE char *path = c->path;
    AUTO_FREE char *url =
        xasprintf("%s/repos/%s/%s/%s", f->api, f->owner, f->name, path);
    struct web_sink sink = {.max = ANSWER_MAX};
    struct heads h = {NULL, -1, -1, -1};
    struct err mine = {0};
    int r;

    e = e ? e : &mine;
    memset(a, 0, sizeof(*a));
    r = check(f, url, e);
    if (!r)
        r = perform(f, c, url, &sink, &h, a, e);
    json_decref(c->body);
    c->path = NULL;
    c->body = NULL;
    if (!r && sink.b.n)
        a->json = json_loadb(sink.b.p, sink.b.n, 0, NULL);
    buf_free(&sink.b);
    if (!r && (a->status < 200 || a->status > 299) && a->status != 304)
        r = refused(f, a, &h, e);
    if (!r && !a->json && a->status != 304 && a->status != 204)
        r = err_set(e, EIO, "GitHub's answer makes no sense");
    a->etag = h.etag;
    return r;
}

void api_clear(struct api_answer *a)
{
    json_decref(a->json);
    free(a->etag);
    memset(a, 0, sizeof(*a));
}
