/* forge: a branch's pull request: found, made, adopted, followed */
#include "git/api.h"
#include "base/text.h"

#include <curl/curl.h>

/* in the body of what we made; GitHub does not show it */
#define MARK "<!-- courier -->"
enum { TITLE_MAX = 250, BODY_MAX = 60000, TRIES = 4 };

void forge_pr_clear(struct forge_pr *p)
{
    free(p->url);
    free(p->title);
    free(p->state);
    free(p->sha);
    memset(p, 0, sizeof(*p));
}

char *forge_api_for(const char *host)
{
    if (!strcasecmp(host, "github.com") ||
        !strcasecmp(host, "www.github.com") ||
        !strcasecmp(host, "ssh.github.com"))
        return xstrdup("https://api.github.com");
    return xasprintf("https://%s/api/v3", host);
}

static const char *str(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static char *printable(const char *s, size_t max)
{
    struct buf b = {0};

    text_printable(&b, s, strnlen(s, max), 0);
    return buf_take(&b);
}

static bool is_merged(json_t *o)
{
    return json_is_true(json_object_get(o, "merged")) ||
           json_is_string(json_object_get(o, "merged_at"));
}

static int fill(struct forge_pr *p, json_t *o, struct err *e)
{
    json_int_t n = json_integer_value(json_object_get(o, "number"));

    if (n <= 0 || n > INT32_MAX || strncmp(str(o, "html_url"), "http", 4))
        return err_set(e, EIO,
                       "GitHub's answer makes no sense: a pull "
                       "request without number and address");
    p->number = (int)n;
    p->url = printable(str(o, "html_url"), 2000);
    p->title = printable(str(o, "title"), 300);
    p->sha = printable(str(json_object_get(o, "head"), "sha"), 64);
    p->state = xstrdup(is_merged(o)                        ? "merged"
                       : strcmp(str(o, "state"), "closed") ? "open"
                                                           : "closed");
    p->draft = json_is_true(json_object_get(o, "draft"));
    return 0;
}

/* GitHub lists all when it does not understand the head: so we look again */
static bool is_of_head(const struct forge *f, json_t *o, const char *head)
{
    json_t *h = json_object_get(o, "head");

    return !strcmp(str(h, "ref"), head) &&
           !strcasecmp(str(json_object_get(h, "user"), "login"), f->owner) &&
           !strcmp(str(o, "state"), "open");
}

/* the open one as GitHub gives it, owned; NULL and r 0 if there is none */
static int find(const struct forge *f, const char *head, json_t **out,
                struct err *e)
{
    struct api_answer a;
    struct api_call c = {.method = "GET"};
    char *q = curl_easy_escape(NULL, head, 0);
    int r;

    *out = NULL;
    c.path =
        xasprintf("pulls?state=open&per_page=100&head=%s:%s", f->owner, q);
    curl_free(q);
    r = api_do(f, &c, &a, e);
    if (!r && !json_is_array(a.json))
        r = err_set(e, EIO, "GitHub's answer makes no sense: no list");
    for (size_t i = 0; !r && i < json_array_size(a.json) && !*out; i++)
        if (is_of_head(f, json_array_get(a.json, i), head))
            *out = json_incref(json_array_get(a.json, i));
    api_clear(&a);
    return r;
}

int forge_find(const struct forge *f, const char *head, struct forge_pr *out,
               struct err *e)
{
    json_t *o;
    int r;

    memset(out, 0, sizeof(*out));
    r = find(f, head, &o, e);
    if (r)
        return r;
    if (!o)
        return err_set(e, ENOENT, "there is no open pull request of %s", head);
    r = fill(out, o, e);
    json_decref(o);
    return r;
}

/* JSON takes valid UTF-8 only, a title one line of it */
static char *clean(const char *s, size_t max, int flags)
{
    size_t n = strnlen(s ? s : "", max);
    struct buf b = {0};

    if (s && s[n])
        n -= text_utf8_tail(s, n);
    text_printable(&b, s ? s : "", n, flags);
    return buf_take(&b);
}

static char *title_of(const struct forge_new *n)
{
    char *t = clean(n->title, TITLE_MAX, 0);

    if (*t)
        return t;
    free(t);
    return xstrdup(n->head);
}

static char *body_of(const struct forge_new *n)
{
    AUTO_FREE char *b =
        clean(n->body, BODY_MAX, PRINTABLE_LINES | PRINTABLE_TABS);

    return xasprintf("%s\n\n" MARK "\n", b);
}

/* 0, or -EEXIST where there is one (GitHub says 422) */
static int create(const struct forge *f, const struct forge_new *n, bool draft,
                  struct forge_pr *out, struct err *e)
{
    AUTO_FREE char *title = title_of(n), *body = body_of(n), *words = NULL;
    struct api_call c = {.method = "POST", .path = xstrdup("pulls")};
    struct api_answer a;
    int r;

    c.body = json_pack("{s:s, s:s, s:s, s:s, s:b}", "title", title, "body",
                       body, "head", n->head, "base", n->base, "draft", draft);
    if (!c.body) {
        free(c.path);
        return err_set(e, EINVAL, "the branch's name is not UTF-8");
    }
    r = api_do(f, &c, &a, e);
    if (!r)
        r = fill(out, a.json, e);
    else if (a.status == 422)
        words = api_words(&a);
    api_clear(&a);
    if (words && strcasestr(words, "already exists"))
        return -EEXIST;
    if (words && draft && strcasestr(words, "draft"))
        return create(f, n, false, out, e); /* not every plan has drafts */
    return r;
}

static void add_labels(const struct forge *f, const struct forge_new *n,
                       int number)
{
    struct api_call c = {.method = "POST"};
    struct api_answer a;
    json_t *labels = json_array();
    struct err e;

    for (const char *const *l = n->labels; l && *l; l++)
        if (**l)
            json_array_append_new(labels, json_string(*l));
    if (!json_array_size(labels)) {
        json_decref(labels);
        return;
    }
    c.path = xasprintf("issues/%d/labels", number);
    c.body = json_pack("{s:o}", "labels", labels);
    if (api_do(f, &c, &a, &e))
        log_msg(LOG_WARN, "labels of pull request %d: %s", number, e.text);
    api_clear(&a);
}

static int update(const struct forge *f, const struct forge_new *n,
                  struct forge_pr *out, struct err *e)
{
    AUTO_FREE char *title = title_of(n), *body = body_of(n);
    struct api_call c = {.method = "PATCH"};
    struct api_answer a;
    int r;

    c.path = xasprintf("pulls/%d", out->number);
    c.body = json_pack("{s:s, s:s}", "title", title, "body", body);
    r = api_do(f, &c, &a, e);
    if (!r) {
        forge_pr_clear(out);
        r = fill(out, a.json, e);
    }
    api_clear(&a);
    return r;
}

/* what is there becomes ours; others' words are left alone */
static int adopt(const struct forge *f, const struct forge_new *n, json_t *o,
                 struct forge_pr *out, struct err *e)
{
    bool ours = strstr(str(o, "body"), MARK);
    int r = fill(out, o, e);

    if (!r && ours)
        r = update(f, n, out, e);
    if (!r)
        add_labels(f, n, out->number);
    return r;
}

static bool is_unclear(int r)
{
    return r == -EIO || r == -ETIMEDOUT || r == -EHOSTUNREACH;
}

/* one try: looks first, so that what an unclear answer left is found */
static int open_once(const struct forge *f, const struct forge_new *n,
                     struct forge_pr *out, struct err *e)
{
    json_t *o;
    int r = find(f, n->head, &o, e);

    if (r)
        return r;
    if (o) {
        r = adopt(f, n, o, out, e);
        json_decref(o);
        return r;
    }
    r = create(f, n, n->draft, out, e);
    if (r == -EEXIST) /* made since we looked, or the list was behind */
        return err_set(e, EIO,
                       "GitHub has a pull request of %s, but does "
                       "not list it yet",
                       n->head);
    if (!r)
        add_labels(f, n, out->number);
    return r;
}

int forge_open(const struct forge *f, const struct forge_new *n,
               struct forge_pr *out, struct err *e)
{
    int r = -EIO;

    memset(out, 0, sizeof(*out));
    for (int i = 0; i < TRIES; i++) {
        if (i)
            sleep_ms(200 << (2 * (i - 1))); /* 0.2, 0.8, 3.2 s */
        forge_pr_clear(out);
        r = open_once(f, n, out, e);
        if (!is_unclear(r))
            break;
    }
    if (r)
        forge_pr_clear(out);
    return r;
}

int forge_get(const struct forge *f, int number, char **etag,
              struct forge_pr *out, struct err *e)
{
    struct api_call c = {.method = "GET", .etag = etag ? *etag : NULL};
    struct api_answer a;
    int r;

    memset(out, 0, sizeof(*out));
    c.path = xasprintf("pulls/%d", number);
    r = api_do(f, &c, &a, e);
    if (!r && a.status == 304)
        r = 1;
    else if (!r)
        r = fill(out, a.json, e);
    if (!r && etag) {
        free(*etag);
        *etag = a.etag;
        a.etag = NULL;
    }
    api_clear(&a);
    return r;
}
