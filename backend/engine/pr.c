/*
 * Pull requests: '' -> creating -> created -> merged, or failed, or skipped.
 * The job goes on after `created` (step 1): it looks at times whether the
 * request was merged.
 */
#include "engine/jobs.h"
#include "engine/repo.h"

enum {
    LOOK_MS = 60 * 1000,
    LOOK_MAX_MS = 30 * 60 * 1000,
    FOLLOW_MS = 7 * 24 * 3600 * 1000,
    COMMITS_MAX = 100,
    BODY_MAX = 60000,
};

struct outcome {
    int64_t id, project;
    const char *status, *reason, *url, *title;
    int number;
};

static int outcome_fn(struct tx *tx, void *arg, struct err *e)
{
    struct outcome *o = arg;

    (void)e;
    db_exec(tx->db,
            "UPDATE sandbox SET pr_status=?,pr_reason=?,"
            "pr_url=coalesce(?,pr_url),pr_title=coalesce(?,pr_title),"
            "pr_number=CASE ? WHEN 0 THEN pr_number ELSE ? END WHERE id=?",
            "ssssiii", o->status, o->reason ? o->reason : "", o->url, o->title,
            (int64_t)o->number, (int64_t)o->number, o->id);
    tx_event(tx, o->project, oid(OBJ_SANDBOX, o->id), "pr",
             json_pack("{s:s,s:s,s:s}", "status", o->status, "url",
                       o->url ? o->url : "", "reason",
                       o->reason ? o->reason : ""));
    tx_touch(tx, o->project, oid(OBJ_SANDBOX, o->id), ASPECT_PR);
    if (!strcmp(o->status, "failed")) {
        AUTO_FREE char *path = object_path(tx->db, oid(OBJ_SANDBOX, o->id));
        AUTO_FREE char *at = xasprintf("%s/pr/status", path ? path : "");

        tx_error(tx, o->project, at, o->reason ? o->reason : "failed");
    }
    return 0;
}

static int set_status(struct courier *c, const struct sandbox *s,
                      const char *status, const char *reason,
                      const struct forge_pr *pr)
{
    AUTO_BUF struct buf why = {0};
    struct outcome o = {.id = s->id, .project = s->project, .status = status};

    if (reason)
        text_printable(&why, reason, strlen(reason), 0);
    o.reason = buf_str(&why);
    if (pr) {
        o.url = pr->url;
        o.title = pr->title;
        o.number = pr->number;
    }
    return store_do(c->store, outcome_fn, &o, NULL);
}

/* ---- where: the forge and the repository's name there ---- */

struct place {
    char *api, *owner, *name, *token;
};

static void place_clear(struct place *p)
{
    free(p->api);
    free(p->owner);
    free(p->name);
    vault_free(p->token);
}

/* the last two parts of a path, for a forge that the config names */
static void parts_of_path(const char *url, char **owner, char **name)
{
    AUTO_FREE char *copy = xstrdup(git_is_path(url) ? git_path(url) : url);
    size_t n = strlen(copy);
    char *slash;

    while (n && copy[n - 1] == '/')
        copy[--n] = 0;
    if (n > 4 && !strcmp(copy + n - 4, ".git"))
        copy[n - 4] = 0;
    slash = strrchr(copy, '/');
    if (!slash)
        return;
    *name = xstrdup(slash + 1);
    *slash = 0;
    slash = strrchr(copy, '/');
    *owner = xstrdup(slash ? slash + 1 : copy);
}

/* 0, or 1 with words: there is no forge to ask */
static int find_place(struct courier *c, struct sandbox *s,
                      const struct repo *r, struct place *p, struct err *e)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *api = config_value(d, s, "github_api", NULL);
    const char *env = keys_env_setting(c, "GITHUB_API_URL");
    const char *level;
    char *host = NULL;

    memset(p, 0, sizeof(*p));
    if ((!api || !*api) && env && *env) {
        free(api);
        api = xstrdup(env);
    }
    if (git_forge_parts(r->url, &host, &p->owner, &p->name) < 0) {
        if (!api || !*api) {
            free(host);
            err_set(e, EINVAL, "the repository is not on a forge");
            return 1;
        }
        parts_of_path(r->url, &p->owner, &p->name);
    }
    p->api = api && *api ? xstrdup(api) : forge_api_for(host);
    free(host);
    if (!p->api || !p->owner || !p->name) {
        err_set(e, EINVAL, "the repository is not on a forge");
        return 1;
    }
    key_get(c, d, s->project, "github", &p->token, &level, NULL);
    return 0;
}

/* ---- what: title and body ---- */

static bool ours(const char *subject)
{
    return !strncmp(subject, "courier: ", 9);
}

static char *first_line(const char *text, size_t max)
{
    AUTO_BUF struct buf b = {0};
    size_t n;

    text += strspn(text, " \t\r\n");
    n = strcspn(text, "\r\n");
    if (n > max) {
        n = max;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    }
    text_printable(&b, text, n, 0);
    return buf_take(&b);
}

static char *make_title(struct courier *c, struct sandbox *s,
                        const struct git_commits *log, const char *asked)
{
    AUTO_FREE char *prompt = NULL;

    if (asked && *asked)
        return first_line(asked, 200);
    for (size_t i = 0; i < log->n; i++)
        if (!ours(log->v[i].subject))
            return first_line(log->v[i].subject, 200);
    prompt = doc_text(store_reader(c->store), oid(OBJ_SANDBOX, s->id),
                      "prompt", NULL);
    if (prompt && *prompt)
        return first_line(prompt, 72);
    return xasprintf("Work of %s", s->name);
}

static char *make_body(struct courier *c, struct sandbox *s,
                       const struct git_commits *log)
{
    AUTO_FREE char *last =
        db_text(store_reader(c->store),
                "SELECT result FROM message WHERE sandbox=? AND result<>'' "
                "ORDER BY id DESC LIMIT 1",
                "i", s->id);
    struct buf b = {0};

    if (last)
        text_printable(&b, last, strlen(last) < BODY_MAX ? strlen(last)
                                                         : BODY_MAX,
                       PRINTABLE_LINES | PRINTABLE_TABS);
    if (log->n)
        buf_adds(&b, b.n ? "\n\n## Commits\n\n" : "## Commits\n\n");
    for (size_t i = 0; i < log->n; i++)
        buf_addf(&b, "- %.12s %s\n", log->v[i].sha, log->v[i].subject);
    buf_addf(&b, "\nMade by courier in sandbox `%s` (%s).\n", s->name,
             s->tool);
    return buf_take(&b);
}

static char **make_labels(struct db *d, const struct sandbox *s)
{
    AUTO_FREE char *list = config_value(d, s, "pr_labels", NULL);
    char **out = xcalloc(34, sizeof(*out)), *save = NULL;
    size_t n = 0;

    for (char *w = list ? strtok_r(list, ",", &save) : NULL; w && n < 32;
         w = strtok_r(NULL, ",", &save)) {
        w = text_trim(w);
        if (*w)
            out[n++] = xstrdup(w);
    }
    return out;
}

/* ---- the request ---- */

/* is there something to offer? 0; 1 with words when not; negative */
static int worth(struct courier *c, struct repo *r, struct git_commits *log,
                 char **base, struct err *e)
{
    AUTO_FREE char *cache = repo_cache(c);
    struct git_refs refs;
    bool there, is_default;
    int rc = git_ls_remote(r->url, &r->auth, &refs, e);

    if (rc < 0)
        return rc;
    there = git_refs_find(&refs, r->branch) != NULL;
    is_default = !strcmp(r->branch, "main") || !strcmp(r->branch, "master") ||
                 (refs.head && !strcmp(r->branch, refs.head));
    *base = r->base && *r->base ? xstrdup(r->base)
                                : xstrdup(refs.head ? refs.head : "main");
    git_refs_clear(&refs);
    if (is_default) {
        err_set(e, EINVAL, "'%s' is a default branch", r->branch);
        return 1;
    }
    if (!there) {
        err_set(e, EINVAL, "there is nothing new: '%s' is not on the remote",
                r->branch);
        return 1;
    }
    rc = git_fetch(cache, r->url, &r->auth, r->branch, *base, e);
    if (rc == 0)
        rc = git_log(cache, r->url, r->branch, *base, COMMITS_MAX, log, e);
    if (rc == 0 && !log->n) {
        err_set(e, EINVAL, "there is nothing new on '%s'", r->branch);
        return 1;
    }
    return rc;
}

static int open_request(struct courier *c, struct sandbox *s, struct repo *r,
                        struct place *p, const char *asked,
                        struct forge_pr *out, struct err *e)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *kind = config_value(d, s, "pr", NULL);
    AUTO_FREE char *base = NULL, *title = NULL, *body = NULL;
    char **labels;
    struct git_commits log = {0};
    int rc = worth(c, r, &log, &base, e);

    if (rc) {
        git_commits_clear(&log);
        return rc;
    }
    title = make_title(c, s, &log, asked);
    body = make_body(c, s, &log);
    labels = make_labels(d, s);
    rc = forge_open(
        &(struct forge){p->api, p->token, p->owner, p->name},
        &(struct forge_new){.head = r->branch,
                            .base = base,
                            .title = title,
                            .body = body,
                            .draft = kind && !strcmp(kind, "draft"),
                            .labels = (const char *const *)labels},
        out, e);
    words_free(labels);
    git_commits_clear(&log);
    return rc;
}

static int create(struct courier *c, struct job *j, struct sandbox *s,
                  struct repo *r, struct place *p, int *delay_ms,
                  struct err *e)
{
    struct forge_pr pr = {0};
    int rc;

    if (strcmp(s->pr_status, "created"))
        set_status(c, s, "creating", NULL, NULL);
    rc = open_request(c, s, r, p, j->args, &pr, e);
    if (rc == 1) {
        set_status(c, s, "skipped", e->text, NULL);
        return 0;
    }
    if (rc == -EAGAIN || rc == -ETIMEDOUT || rc == -EHOSTUNREACH) {
        if (j->attempt < 6)
            return -EAGAIN;
    }
    if (rc < 0) {
        set_status(c, s, "failed", e->text, NULL);
        return 0;
    }
    set_status(c, s, "created", NULL, &pr);
    forge_pr_clear(&pr);
    *delay_ms = LOOK_MS;
    return -EAGAIN; /* and follow it: step 1 */
}

static int step_fn(struct tx *tx, void *arg, struct err *e)
{
    (void)e;
    tx_job_step(tx, *(int64_t *)arg, 1);
    return 0;
}

/* merged yet? the answer isn't worth an error */
static int follow(struct courier *c, struct job *j, struct sandbox *s,
                  struct place *p, int *delay_ms)
{
    struct db *d = store_reader(c->store);
    int number = (int)db_int(d, 0, "SELECT pr_number FROM sandbox WHERE id=?",
                             "i", s->id);
    int64_t since =
        db_int(d, 0, "SELECT created FROM job WHERE id=?", "i", j->id);
    struct forge_pr pr = {0};
    char *etag = NULL;
    struct err e;
    int rc;

    if (!number || !since || now_ms() - since > FOLLOW_MS)
        return 0;
    rc = forge_get(&(struct forge){p->api, p->token, p->owner, p->name},
                   number, &etag, &pr, &e);
    free(etag);
    if (rc == 0 && pr.state && !strcmp(pr.state, "merged")) {
        set_status(c, s, "merged", NULL, &pr);
        forge_pr_clear(&pr);
        return 0;
    }
    if (rc == 0 && pr.state && !strcmp(pr.state, "closed")) {
        set_status(c, s, "created", "closed without a merge", &pr);
        forge_pr_clear(&pr);
        return 0;
    }
    forge_pr_clear(&pr);
    *delay_ms = j->attempt > 30 ? LOOK_MAX_MS : LOOK_MS * (1 + j->attempt / 3);
    return -EAGAIN;
}

int job_pr(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct sandbox s;
    struct repo r;
    struct place p = {0};
    int rc;

    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    rc = repo_get(c, &s, &r);
    if (rc < 0) {
        set_status(c, &s, "skipped", "there is no repository", NULL);
        sandbox_clear(&s);
        return 0;
    }
    rc = find_place(c, &s, &r, &p, e);
    if (rc == 1) {
        set_status(c, &s, "skipped", e->text, NULL);
        rc = 0;
    } else if (j->step == 0) {
        /* the branch may still be here only */
        if (sandbox_is(&s, "running") && !strcmp(j->lane, "work")) {
            AUTO_BUF struct buf words = {0};
            struct e2b_target t;
            bool saved;

            if (sandbox_target(c, &s, &t, e) == 0)
                work_save(c, &s, &t, &j->cancel, &words, &saved, e);
        }
        rc = create(c, j, &s, &r, &p, delay_ms, e);
        if (rc == -EAGAIN && *delay_ms == LOOK_MS) {
            store_do(c->store, step_fn, &j->id, NULL);
            if (!strcmp(j->lane, "work"))
                rc = 0; /* the lane is needed; a kill's job follows it */
        }
    } else {
        rc = follow(c, j, &s, &p, delay_ms);
    }
    place_clear(&p);
    repo_clear(&r);
    sandbox_clear(&s);
    return rc;
}
