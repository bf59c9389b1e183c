/*
 * Pull requests: '' -> creating -> created -> merged, or failed, or skipped.
 * The job is beside the lanes, and goes on after `created` (step 1): prlook.c.
 * Its args are the title asked for, then (step 1) what the last look saw.
 */
#include "engine/jobs.h"
#include "engine/pr.h"
#include "engine/repo.h"
#include "engine/run.h"

enum {
    LIMIT_MS = 15 * 60 * 1000, /* rate limited: at least as often as that */
    UNCLEAR_TRIES = 6,
    LIMIT_TRIES = 100,
    COMMITS_MAX = 100,
    LAST_MAX = 30000,
};

struct outcome {
    int64_t id, project;
    const char *status, *reason, *url, *title;
    const char *head; /* of what was opened, or NULL */
    int number;
};

void tx_pr_of_run(struct tx *tx, int64_t sandbox)
{
    int64_t run = db_int(tx->db, 0,
                         "SELECT r.id FROM run r JOIN sandbox s ON s.run=r.id "
                         "WHERE s.id=? AND r.pr_number<>0 AND "
                         "r.pr_number=s.pr_number",
                         "i", sandbox);

    if (!run)
        return;
    db_exec(tx->db,
            "UPDATE run SET (pr_status,pr_title,pr_reason,pr_checks,"
            "pr_checks_words)=(SELECT pr_status,pr_title,pr_reason,pr_checks,"
            "pr_checks_words FROM sandbox WHERE id=?) WHERE id=?",
            "ii", sandbox, run);
    tx_touch(tx,
             db_int(tx->db, 0, "SELECT project FROM run WHERE id=?", "i", run),
             oid(OBJ_RUN, run), ASPECT_PR);
}

static int outcome_fn(struct tx *tx, void *arg, struct err *e)
{
    struct outcome *o = arg;

    (void)e;
    db_exec(tx->db,
            "UPDATE sandbox SET pr_status=?1,pr_reason=?2,"
            "pr_url=coalesce(?3,pr_url),pr_title=coalesce(?4,pr_title),"
            "pr_number=CASE ?5 WHEN 0 THEN pr_number ELSE ?5 END,"
            "pr_head=coalesce(?6,pr_head) WHERE id=?7",
            "ssssisi", o->status, o->reason ? o->reason : "", o->url, o->title,
            (int64_t)o->number, o->head, o->id);
    tx_event(tx, o->project, oid(OBJ_SANDBOX, o->id), "pr",
             json_pack("{s:s,s:s,s:s}", "status", o->status, "url",
                       o->url ? o->url : "", "reason",
                       o->reason ? o->reason : ""));
    tx_touch(tx, o->project, oid(OBJ_SANDBOX, o->id), ASPECT_PR);
    tx_run_look(tx, NULL, o->id);
    tx_pr_of_run(tx, o->id);
    if (!strcmp(o->status, "failed")) {
        AUTO_FREE char *path = object_path(tx->db, oid(OBJ_SANDBOX, o->id));
        AUTO_FREE char *at = xasprintf("%s/pr/status", path ? path : "");

        tx_error(tx, o->project, at, o->reason ? o->reason : "failed");
    }
    return 0;
}

int pr_set(struct courier *c, const struct sandbox *s, const char *status,
           const char *reason, const struct forge_pr *pr, const char *head)
{
    AUTO_BUF struct buf why = {0};
    struct outcome o = {
        .id = s->id, .project = s->project, .status = status, .head = head};

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

static void place_clear(struct pr_place *p)
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
                      const struct repo *r, struct pr_place *p, struct err *e)
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
    char *title;

    if (asked && *asked)
        return first_line(asked, 200);
    title = s->run ? run_pr_title(store_reader(c->store), s->run) : NULL;
    if (title)
        return title;
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

    if (s->run)
        run_pr_body(store_reader(c->store), s->run, &b);
    else if (last)
        text_printable(&b, last, strnlen(last, LAST_MAX),
                       PRINTABLE_LINES | PRINTABLE_TABS);
    if (log->n)
        buf_adds(&b, b.n ? "\n\n## Commits\n\n" : "## Commits\n\n");
    for (size_t i = 0; i < log->n; i++)
        buf_addf(&b, "- %.12s %s\n", log->v[i].sha, log->v[i].subject);
    if (!s->run)
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
    bool there, protected;
    int rc = git_ls_remote(r->url, &r->auth, &refs, e);

    if (rc < 0)
        return rc;
    there = git_refs_find(&refs, r->branch) != NULL;
    protected = repo_protects(r, &refs, r->branch);
    *base = r->base && *r->base ? xstrdup(r->base)
                                : xstrdup(refs.head ? refs.head : "main");
    git_refs_clear(&refs);
    if (protected) {
        err_set(e, EINVAL, "'%s' is a branch that others begin from",
                r->branch);
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
                        struct pr_place *p, const char *asked,
                        struct forge_pr *out, struct err *e)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *kind =
        s->run ? run_pr_setting(d, s->run) : config_value(d, s, "pr", NULL);
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
    rc =
        forge_open(&(struct forge){p->api, p->token, p->owner, p->name},
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

int pr_limit_delay(const char *words)
{
    const char *until = strstr(words, " until ");
    char at[32] = "";
    int64_t ms;

    if (until)
        snprintf(at, sizeof(at), "%.20s", until + 7);
    ms = time_parse(at);
    ms = ms < 0 ? PR_LOOK_MS : ms - now_ms() + 1000;
    return ms < 1000 ? 1000 : ms > LIMIT_MS ? LIMIT_MS : (int)ms;
}

static bool unclear(int rc)
{
    return rc == -EIO || rc == -ETIMEDOUT || rc == -EHOSTUNREACH;
}

static int follow_fn(struct tx *tx, void *arg, struct err *e)
{
    struct job *j = arg;

    (void)e;
    db_exec(tx->db,
            "DELETE FROM job WHERE sandbox=? AND verb='pr' AND step=1 AND "
            "id<>?",
            "ii", j->sandbox, j->id);
    db_exec(tx->db, "UPDATE job SET step=1,args='',attempt=0 WHERE id=?", "i",
            j->id);
    return 0;
}

/* -EAGAIN: again in *delay_ms, or to be followed from here on */
static int create(struct courier *c, struct job *j, struct sandbox *s,
                  struct repo *r, struct pr_place *p, int *delay_ms,
                  struct err *e)
{
    struct forge_pr pr = {0};
    int rc = open_request(c, s, r, p, j->args, &pr, e);

    if (job_cancelled(j))
        return -ECANCELED;
    if (rc == 1) {
        pr_set(c, s, "skipped", e->text, NULL, NULL);
        return 0;
    }
    if (rc == -EAGAIN && j->attempt < LIMIT_TRIES) {
        *delay_ms = pr_limit_delay(e->text);
        pr_set(c, s, "creating", e->text, NULL, NULL);
        return -EAGAIN;
    }
    if (unclear(rc) && j->attempt < UNCLEAR_TRIES)
        return -EAGAIN;
    if (rc < 0) {
        pr_set(c, s, "failed", e->text, NULL, NULL);
        return 0;
    }
    pr_set(c, s, "created", NULL, &pr, r->branch);
    forge_pr_clear(&pr);
    *delay_ms = PR_LOOK_MS;
    store_do(c->store, follow_fn, j, NULL);
    return -EAGAIN;
}

bool pr_there(const struct sandbox *s)
{
    return (!strcmp(s->pr_status, "created") ||
            !strcmp(s->pr_status, "merged")) &&
           (!*s->pr_head || !strcmp(s->pr_head, s->branch));
}

void tx_pr_mark(struct tx *tx, const struct sandbox *s)
{
    if (pr_there(s) && strcmp(s->pr_status, "merged"))
        return;
    db_exec(tx->db,
            "UPDATE sandbox SET pr_status='creating',pr_reason='' WHERE id=?",
            "i", s->id);
    tx_touch(tx, s->project, oid(OBJ_SANDBOX, s->id), ASPECT_PR);
}

void tx_pr(struct tx *tx, struct courier *c, const struct sandbox *s,
           const char *title)
{
    tx_pr_mark(tx, s);
    if (!db_int(tx->db, 0,
                "SELECT 1 FROM job WHERE sandbox=? AND verb='pr' AND "
                "lane='side' AND step=0 AND args=?",
                "is", s->id, title))
        tx_job(tx, c, s->id, 0, "side", "pr", title);
}

struct handover {
    struct courier *c;
    struct job *j;
};

static int handover_fn(struct tx *tx, void *arg, struct err *e)
{
    struct handover *h = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, h->j->sandbox, &s) < 0)
        return 0;
    tx_pr(tx, h->c, &s, h->j->args);
    tx_job_end(tx, h->c, h->j->id);
    sandbox_clear(&s);
    return 0;
}

/* in the lane of work only what needs the VM is done: the branch goes out.
 * GitHub may take its time */
static int push_first(struct courier *c, struct job *j, struct sandbox *s,
                      struct err *e)
{
    AUTO_BUF struct buf words = {0};
    struct e2b_target t = {0};
    bool saved;
    int rc = 0;

    if (sandbox_is(s, "running") && sandbox_target(c, s, &t, e) == 0)
        rc = work_save(c, s, &t, &j->cancel, WORK_PUSH, &words, &saved, e);
    if (t.x)
        endpoint_put(c, t.x);
    if (job_cancelled(j))
        return -ECANCELED;
    if (rc < 0 && job_again(j, rc, 3) == -EAGAIN)
        return -EAGAIN;
    return store_do(c->store, handover_fn, &(struct handover){c, j}, e);
}

static int at_forge(struct courier *c, struct job *j, struct sandbox *s,
                    int *delay_ms, struct err *e)
{
    struct pr_place p = {0};
    struct repo r;
    int rc = repo_get(c, s, &r);

    if (rc < 0) {
        pr_set(c, s, "skipped", "there is no repository", NULL, NULL);
        return 0;
    }
    rc = find_place(c, s, &r, &p, e);
    if (rc == 1) {
        pr_set(c, s, "skipped", e->text, NULL, NULL);
        rc = 0;
    } else if (j->step == 0) {
        rc = create(c, j, s, &r, &p, delay_ms, e);
    } else {
        rc = pr_follow(c, j, s, &p, delay_ms);
    }
    place_clear(&p);
    repo_clear(&r);
    return rc;
}

int job_pr(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct sandbox s;
    int rc;

    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    if (!strcmp(j->lane, "work"))
        rc = push_first(c, j, &s, e);
    else
        rc = at_forge(c, j, &s, delay_ms, e);
    sandbox_clear(&s);
    return rc;
}
