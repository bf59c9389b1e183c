/* checks: what GitHub has run on a commit: check runs, and the statuses that
 * came before them and are still in use */
#include "git/api.h"
#include "base/text.h"

enum { NAME_MAX_SHOWN = 80, NAMES_MAX = 20 };

void forge_checks_clear(struct forge_checks *c)
{
    free(c->names);
    memset(c, 0, sizeof(*c));
}

static const char *str(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

/* the ends of a check run that hold nothing up */
static bool is_good(const char *conclusion)
{
    static const char *const good[] = {"success", "neutral", "skipped", NULL};

    return text_is_word(conclusion, good);
}

static void add_failed(struct forge_checks *c, struct buf *names,
                       const char *name)
{
    if (c->failed++ >= NAMES_MAX)
        return;
    buf_adds(names, names->n ? ", " : "");
    text_printable(names, name, strnlen(name, NAME_MAX_SHOWN), 0);
}

static void add_runs(struct forge_checks *c, struct buf *names, json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *o = json_array_get(list, i);

        if (strcmp(str(o, "status"), "completed"))
            c->pending++;
        else if (is_good(str(o, "conclusion")))
            c->passed++;
        else
            add_failed(c, names, str(o, "name"));
    }
}

static void add_statuses(struct forge_checks *c, struct buf *names,
                         json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *o = json_array_get(list, i);

        if (!strcmp(str(o, "state"), "pending"))
            c->pending++;
        else if (!strcmp(str(o, "state"), "success"))
            c->passed++;
        else
            add_failed(c, names, str(o, "context"));
    }
}

/* 0, 1 not modified, or negative; a is filled */
static int ask(const struct forge *f, const char *sha, const char *what,
               const char *etag, struct api_answer *a, struct err *e)
{
    struct api_call c = {.method = "GET", .etag = etag};
    int r;

    c.path = xasprintf("commits/%s/%s?per_page=100", sha, what);
    r = api_do(f, &c, a, e);
    return !r && a->status == 304 ? 1 : r;
}

static void keep_etag(char **etag, struct api_answer *a)
{
    free(*etag);
    *etag = a->etag;
    a->etag = NULL;
}

static bool is_sha(const char *s)
{
    size_t n = strspn(s, "0123456789abcdef");

    return (n == 40 || n == 64) && !s[n];
}

int forge_checks(const struct forge *f, const char *sha, char *etags[2],
                 struct forge_checks *out, struct err *e)
{
    struct api_answer runs = {0}, statuses = {0};
    AUTO_BUF struct buf names = {0};
    int r, s = 0;

    memset(out, 0, sizeof(*out));
    if (!is_sha(sha))
        return err_set(e, EINVAL, "GitHub's answer makes no sense: no commit");
    r = ask(f, sha, "check-runs", etags[0], &runs, e);
    if (r >= 0)
        s = ask(f, sha, "status", etags[1], &statuses, e);
    /* one that is as it was is needed when the other is not */
    if (r == 1 && s == 0) {
        api_clear(&runs);
        r = ask(f, sha, "check-runs", NULL, &runs, e);
    } else if (r == 0 && s == 1) {
        api_clear(&statuses);
        s = ask(f, sha, "status", NULL, &statuses, e);
    }
    if (r == 0 && s == 0) {
        add_runs(out, &names, json_object_get(runs.json, "check_runs"));
        add_statuses(out, &names, json_object_get(statuses.json, "statuses"));
        out->names = buf_take(&names);
        keep_etag(&etags[0], &runs);
        keep_etag(&etags[1], &statuses);
    }
    api_clear(&runs);
    api_clear(&statuses);
    return s < 0 ? s : r;
}
