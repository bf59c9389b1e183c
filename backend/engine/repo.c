#include "engine/repo.h"
#include "engine/run.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CLONE_MS = 15 * 60 * 1000,
    SETUP_MS = 30 * 60 * 1000,
    OUTPUT_MAX = 1 << 20, /* kept of a command's output */
    DIFF_MAX = 4 << 20,
    TRIM_MS = 10 * 60 * 1000,
};
#define CACHE_MAX ((int64_t)4 << 30) /* of all remotes */

bool repo_wanted(struct db *d, const struct sandbox *s)
{
    AUTO_FREE char *repo = config_value(d, s, "repo", NULL);

    return repo && *repo;
}

static char *or_null(char *s)
{
    if (s && *s)
        return s;
    free(s);
    return NULL;
}

int repo_get(struct courier *c, struct sandbox *s, struct repo *r)
{
    struct db *d = store_reader(c->store);
    const char *level;

    memset(r, 0, sizeof(*r));
    r->url = or_null(config_value(d, s, "repo", NULL));
    if (!r->url)
        return -ENOENT;
    r->path = git_is_path(r->url);
    r->base = *s->base ? xstrdup(s->base)
                       : or_null(config_value(d, s, "base", NULL));
    r->branch =
        *s->branch ? xstrdup(s->branch) : xasprintf("courier/%s", s->name);
    r->meant = *s->meant ? xstrdup(s->meant) : NULL;
    if (!strncmp(r->url, "http", 4) &&
        key_get(c, d, s->project, "github", &r->token, &level, NULL) == 0) {
        r->auth.user = "x-access-token";
        r->auth.token = r->token;
    }
    return 0;
}

void repo_clear(struct repo *r)
{
    free(r->url);
    free(r->base);
    free(r->branch);
    free(r->meant);
    vault_free(r->token);
    memset(r, 0, sizeof(*r));
}

char *repo_cache(struct courier *c)
{
    return xasprintf("%s/cache", c->data);
}

/* ---- a branch that was refused ---- */

char *repo_beside(const struct repo *r, const char *sha)
{
    char *name = xasprintf("%s-%.8s", r->meant ? r->meant : r->branch, sha);

    for (char *p = name; *p; p++)
        if (*p == '/')
            *p = '-';
    return name;
}

struct beside {
    const struct sandbox *s;
    const char *branch;
};

static int beside_fn(struct tx *tx, void *arg, struct err *e)
{
    struct beside *b = arg;

    (void)e;
    db_exec(tx->db,
            "UPDATE sandbox SET meant=CASE meant WHEN '' THEN branch ELSE "
            "meant END,branch=? WHERE id=?",
            "si", b->branch, b->s->id);
    tx_touch(tx, b->s->project, oid(OBJ_SANDBOX, b->s->id), ASPECT_BRANCH);
    if (b->s->run) { /* the next step begins from there */
        db_exec(tx->db, "UPDATE run SET branch=? WHERE id=?", "si", b->branch,
                b->s->run);
        tx_run_touch(tx, b->s->run, ASPECT_BRANCH);
    }
    return 0;
}

void repo_pushed_to(struct courier *c, const struct sandbox *s, struct repo *r,
                    const char *said)
{
    AUTO_FREE char *name = xmemdup0(said, strcspn(said, " ,;"));
    size_t n = strlen(name);
    AUTO_FREE char *ours = repo_beside(r, n > 8 ? name + n - 8 : "");
    struct beside b = {s, name};

    if (strcmp(name, ours) || !strcmp(name, r->branch) ||
        strspn(name + n - 8, "0123456789abcdef") != 8 ||
        git_branch_check(name, NULL) < 0 ||
        store_do(c->store, beside_fn, &b, NULL) < 0)
        return;
    if (r->meant)
        free(r->branch);
    else
        r->meant = r->branch;
    r->branch = xstrdup(name);
}

/* ---- setup.log ---- */

struct log_line {
    int64_t sandbox;
    struct buf text;
};

static int log_fn(struct tx *tx, void *arg, struct err *e)
{
    struct log_line *l = arg;

    (void)e;
    tx_stream_add(tx, oid(OBJ_SANDBOX, l->sandbox), STREAM_SETUP, l->text.p,
                  l->text.n, ASPECT_SETUP);
    return 0;
}

static void log_add(struct courier *c, int64_t sandbox, const char *p,
                    size_t n)
{
    struct log_line l = {.sandbox = sandbox};

    text_printable(&l.text, p, n, PRINTABLE_LINES | PRINTABLE_TABS);
    if (l.text.n && l.text.p[l.text.n - 1] != '\n')
        buf_addc(&l.text, '\n');
    store_do(c->store, log_fn, &l, NULL);
    buf_free(&l.text);
}

void repo_log(struct courier *c, int64_t sandbox, const char *fmt, ...)
{
    AUTO_BUF struct buf b = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    log_add(c, sandbox, b.p, b.n);
}

/* the last lines of a text, for an error */
static const char *tail_of(const struct buf *b, size_t max)
{
    const char *s = buf_str(b);
    size_t n = b->n;

    return n > max ? s + n - max : s;
}

/* ---- the clone ---- */

static const char *default_of(const struct git_refs *refs)
{
    return refs && refs->head ? refs->head : "";
}

bool repo_protects(const struct repo *r, const struct git_refs *refs,
                   const char *branch)
{
    return !strcmp(branch, "main") || !strcmp(branch, "master") ||
           !strcmp(branch, default_of(refs)) ||
           (r->base && !strcmp(branch, r->base));
}

/* a branch of the remote that is a part of this name's path, or the other way
 * round: both can't be. NULL if there is none */
static const char *in_the_way(const struct git_refs *refs, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < refs->n; i++) {
        const char *have = refs->v[i].name;
        size_t m = strlen(have);

        if ((m < n && !strncmp(have, name, m) && name[m] == '/') ||
            (n < m && !strncmp(have, name, n) && have[n] == '/'))
            return have;
    }
    return NULL;
}

/* a name of our own: new, and one that the remote can have */
static void own_name(struct courier *c, struct sandbox *s, struct repo *r,
                     const struct git_refs *refs)
{
    const char *clash = in_the_way(refs, r->branch);
    AUTO_FREE char *stem = NULL;

    if (clash) {
        AUTO_FREE char *was = xstrdup(r->branch);

        for (char *p = r->branch; *p; p++)
            if (*p == '/')
                *p = '-';
        repo_log(c, s->id,
                 "# the remote has a branch '%s', so '%s' can't be: this one "
                 "is '%s'\n",
                 clash, was, r->branch);
    }
    stem = xstrdup(r->branch);
    for (int k = 2; git_refs_find(refs, r->branch) && k < 1000; k++) {
        free(r->branch);
        r->branch = xasprintf("%s-%d", stem, k);
    }
    if (strcmp(stem, r->branch))
        repo_log(c, s->id,
                 "# the remote has a branch '%s' already: this one is '%s'\n",
                 stem, r->branch);
}

static int check_base(struct repo *r, const struct git_refs *refs,
                      struct err *e)
{
    if (r->base && refs->n && !git_refs_find(refs, r->base))
        return err_set(e, EINVAL, "the repository has no branch '%s' (base)",
                       r->base);
    if (!r->base && refs->head)
        r->base = xstrdup(refs->head);
    return 0;
}

/* the branch that the remote's branches allow, and the base that it offers */
static int choose_names(struct courier *c, struct sandbox *s, struct repo *r,
                        struct err *e)
{
    const char *from = "";
    AUTO_FREE char *value =
        config_value(store_reader(c->store), s, "branch", &from);
    struct git_refs refs;
    const char *clash;
    int rc = git_ls_remote(r->url, &r->auth, &refs, e);

    (void)value;
    if (rc < 0)
        return rc;
    rc = check_base(r, &refs, e);
    if (rc == 0 && !strcmp(from, "default") && !s->run) {
        own_name(c, s, r, &refs);
    } else if (rc == 0 && s->run && in_the_way(&refs, r->branch) &&
               !strncmp(r->branch, "courier/", 8)) {
        r->branch[7] = '-';
        repo_log(c, s->id, "# the run's branch is '%s'\n", r->branch);
    } else if (rc == 0) {
        clash = in_the_way(&refs, r->branch);
        if (clash)
            rc = err_set(e, EINVAL,
                         "the remote has a branch '%s', so '%s' can't be one, "
                         "too: give another branch",
                         clash, r->branch);
    }
    git_refs_clear(&refs);
    return rc;
}

struct names {
    int64_t id;
    const char *branch, *base;
};

static int names_fn(struct tx *tx, void *arg, struct err *e)
{
    struct names *n = arg;
    int64_t run;

    (void)e;
    db_exec(tx->db, "UPDATE sandbox SET branch=?,base=? WHERE id=?", "ssi",
            n->branch, n->base ? n->base : "", n->id);
    run = db_int(tx->db, 0, "SELECT run FROM sandbox WHERE id=?", "i", n->id);
    if (run) {
        db_exec(tx->db, "UPDATE run SET branch=? WHERE id=?", "si", n->branch,
                run);
        tx_changed(tx, oid(OBJ_RUN, run), ASPECT_BRANCH | ASPECT_INFO);
    }
    tx_touch(tx,
             db_int(tx->db, 0, "SELECT project FROM sandbox WHERE id=?", "i",
                    n->id),
             oid(OBJ_SANDBOX, n->id), ASPECT_BRANCH);
    return 0;
}

static int put_credentials(struct repo *r, const struct e2b_target *t,
                           struct err *e)
{
    AUTO_FREE char *script = NULL;
    struct e2b_result res = {0};
    struct e2b_run run = {.cmd = "chmod 700 " GIT_CREDENTIAL_HELPER
                                 " && chmod 600 " COURIER_DIR "/token",
                          .limit_ms = 20000,
                          .max_out = 4096};
    int rc;

    if (!r->token)
        return 0;
    script = git_script_credentials(COURIER_DIR "/token");
    rc = e2b_write(t, COURIER_DIR "/token", r->token, strlen(r->token), NULL,
                   e);
    if (rc == 0)
        rc = e2b_write(t, GIT_CREDENTIAL_HELPER, script, strlen(script), NULL,
                       e);
    if (rc == 0)
        rc = e2b_exec(t, &run, &res, e);
    if (rc == 0 && res.exit_code)
        rc = err_set(e, EPROTO, "the credential helper can't be installed");
    e2b_result_clear(&res);
    return rc;
}

static int run_logged(struct courier *c, struct sandbox *s,
                      const struct e2b_target *t, const struct e2b_run *run,
                      struct e2b_result *res, struct err *e)
{
    int rc = e2b_exec(t, run, res, e);

    if (rc == 0) {
        log_add(c, s->id, buf_str(&res->out), res->out.n);
        log_add(c, s->id, buf_str(&res->err), res->err.n);
        repo_log(c, s->id, "# exit code %d\n", res->exit_code);
    } else {
        repo_log(c, s->id, "# %s\n", e ? e->text : strerror(-rc));
    }
    return rc;
}

/* what of a repository only its owner may read; owned, or NULL */
static char *closed_part(const char *dir)
{
    static const char *const parts[] = {
        "", "/.git", "/HEAD", "/.git/HEAD", "/objects", "/.git/objects"};
    struct stat st;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char *at = xasprintf("%s%s", dir, parts[i]);
        mode_t need = S_IROTH;

        if (stat(at, &st) == 0) {
            need |= S_ISDIR(st.st_mode) ? S_IXOTH : 0;
            if ((st.st_mode & need) != need)
                return at;
        }
        free(at);
    }
    return NULL;
}

/* the sandbox's user is another than its owner */
static char *closed_path(const struct repo *r)
{
    AUTO_FREE char *common = r->path ? git_common_dir(r->url) : NULL;
    char *at = r->path ? closed_part(git_path(r->url)) : NULL;

    return at || !common ? at : closed_part(common);
}

/* may it go better the next time? */
static bool passing(const char *words)
{
    static const char *const some[] = {
        "Could not resolve", "timed out",      "Connection re", "early EOF",
        "RPC failed",        "Failed to conn", "still running"};

    for (size_t i = 0; i < ARRAY_LEN(some); i++)
        if (strstr(words, some[i]))
            return true;
    return false;
}

static int clone_failed(const struct repo *r, struct buf *said, struct err *e)
{
    AUTO_BUF struct buf why = {0};
    const char *lacks = r->path ? git_path_lacks(r->url) : NULL, *tail;
    AUTO_FREE char *closed = closed_path(r);

    while (said->n && said->p[said->n - 1] == '\n')
        said->p[--said->n] = 0;
    tail = tail_of(said, 400);
    text_printable(&why, tail, strlen(tail), 0);
    if (closed && geteuid() == 0)
        return err_set(e, EINVAL,
                       "the repository can't be cloned: the sandbox's user "
                       "may not read %s (chmod -R o+rX lets it)",
                       closed);
    if (lacks)
        return err_set(e, EINVAL, "the repository can't be cloned: %s; %s",
                       lacks, buf_str(&why));
    return err_set(e, passing(tail) ? EPROTO : EINVAL,
                   "the repository can't be cloned: %s", buf_str(&why));
}

static int clone_into(struct courier *c, struct sandbox *s, struct repo *r,
                      const struct e2b_target *t, struct job *j, struct err *e)
{
    struct db *d = store_reader(c->store);
    AUTO_FREE char *name = or_null(config_value(d, s, "git_name", NULL));
    AUTO_FREE char *email = or_null(config_value(d, s, "git_email", NULL));
    AUTO_FREE char *own_name = NULL, *own_email = NULL, *script = NULL;
    const char *const argv[] = {"/bin/bash", "-s", NULL};
    struct e2b_result res = {0};
    struct git_setup g;
    int rc;

    git_user(&own_name, &own_email);
    g = (struct git_setup){
        .repo = r->path ? git_path(r->url) : r->url,
        .base = r->base,
        .branch = r->branch,
        .user_name = name       ? name
                     : own_name ? own_name
                                : "courier",
        .user_email = email       ? email
                      : own_email ? own_email
                                  : "courier@localhost",
        .dir = PROJECT_DIR,
        .credentials = r->token != NULL,
        .shallow = false,
    };
    script = git_script_clone(&g);
    repo_log(c, s->id, "$ git clone %s (branch %s from %s)\n", g.repo,
             r->branch, r->base ? r->base : "nothing");
    rc = run_logged(c, s, t,
                    &(struct e2b_run){.argv = argv,
                                      .stdin_data = script,
                                      .stdin_len = strlen(script),
                                      .limit_ms = CLONE_MS,
                                      .max_out = OUTPUT_MAX,
                                      .cancel = &j->cancel},
                    &res, e);
    if (rc == 0 && res.exit_code)
        rc = clone_failed(r, &res.err, e);
    e2b_result_clear(&res);
    return rc;
}

static int run_setup(struct courier *c, struct sandbox *s,
                     const struct e2b_target *t, struct job *j, struct err *e)
{
    AUTO_FREE char *cmd =
        or_null(config_value(store_reader(c->store), s, "setup", NULL));
    const char *const argv[] = {"/bin/bash", "-s", NULL};
    struct db *d = store_reader(c->store);
    struct e2b_result res = {0};
    struct buf script = {0}; /* holds keys */
    struct tool *tool = NULL;
    int rc;

    if (!cmd)
        return 0;
    buf_adds(&script, "set -a\n");
    rc = tool_get(d, s->tool, &tool, e);
    if (rc == 0)
        rc = env_script(c, d, s, tool, &script, e);
    tool_free(tool);
    if (rc < 0) {
        buf_wipe(&script);
        return rc;
    }
    buf_addf(&script, "\nset +a\n{\n%s\n} </dev/null\n", cmd);
    repo_log(c, s->id, "$ %s\n", cmd);
    rc = run_logged(
        c, s, t,
        &(struct e2b_run){.argv = argv,
                          .stdin_data = script.p,
                          .stdin_len = script.n,
                          .cwd = repo_wanted(d, s) ? PROJECT_DIR : HOME_DIR,
                          .limit_ms = SETUP_MS,
                          .max_out = OUTPUT_MAX,
                          .cancel = &j->cancel},
        &res, e);
    buf_wipe(&script);
    if (rc == 0 && res.exit_code) {
        AUTO_BUF struct buf why = {0};
        struct buf *b = res.err.n ? &res.err : &res.out;

        while (b->n && b->p[b->n - 1] == '\n')
            b->p[--b->n] = 0;

        text_printable(&why, tail_of(b, 300), strlen(tail_of(b, 300)), 0);
        rc = err_set(e, EINVAL, "setup exited %d: %s", res.exit_code,
                     buf_str(&why));
    }
    e2b_result_clear(&res);
    return rc;
}

int repo_setup(struct courier *c, struct sandbox *s,
               const struct e2b_target *t, struct job *j, struct err *e)
{
    struct repo r;
    struct names n;
    int rc = repo_get(c, s, &r);

    if (rc == -ENOENT) {
        rc = run_hand_over(c, s, t, j, e);
        return rc < 0 ? rc : run_setup(c, s, t, j, e);
    }
    if (r.path && !strcmp(s->backend, "e2b"))
        rc = err_set(e, EINVAL,
                     "repo is a path of this machine, which a VM of E2B "
                     "can't see: give a URL");
    if (rc == 0) {
        rc = choose_names(c, s, &r, e);
        /* these are words about the VM and its provider to the caller; and a
         * path that can't be read now won't be later */
        if ((rc == -ENOENT || rc == -EACCES || (rc == -EIO && r.path)) && e)
            rc = -(e->code = EINVAL);
    }
    n = (struct names){s->id, r.branch, r.base};
    if (rc == 0)
        rc = store_do(c->store, names_fn, &n, e);
    if (rc == 0)
        rc = put_credentials(&r, t, e);
    if (rc == 0)
        rc = clone_into(c, s, &r, t, j, e);
    if (rc == 0)
        rc = run_hand_over(c, s, t, j, e);
    if (rc == 0)
        rc = run_setup(c, s, t, j, e);
    repo_clear(&r);
    return rc;
}

/* ---- the diff ---- */

struct diff {
    int64_t id;
    struct buf text;
};

static int diff_fn(struct tx *tx, void *arg, struct err *e)
{
    struct diff *f = arg;

    (void)e;
    db_exec(tx->db, "UPDATE sandbox SET diff=? WHERE id=?", "bi", f->text.p,
            f->text.n, f->id);
    tx_touch(tx, 0, oid(OBJ_SANDBOX, f->id), ASPECT_DIFF);
    return 0;
}

/* now and then: what is kept of remotes has a bound */
static void trim(const char *cache)
{
    static _Atomic int64_t next;
    int64_t now = mono_ms(), was = next;

    if (now >= was &&
        atomic_compare_exchange_strong(&next, &was, now + TRIM_MS))
        git_cache_trim(cache, CACHE_MAX);
}

int repo_diff(struct courier *c, struct sandbox *s, struct repo *r,
              struct err *e)
{
    AUTO_FREE char *cache = repo_cache(c);
    struct diff f = {.id = s->id};
    int rc = git_fetch(cache, r->url, &r->auth, r->branch, r->base, e);

    if (rc == 0 && r->base)
        rc = git_diff(cache, r->url, r->branch, r->base, DIFF_MAX, &f.text, e);
    if (rc == 0)
        rc = store_do(c->store, diff_fn, &f, e);
    if (!r->path)
        trim(cache);
    buf_free(&f.text);
    return rc;
}
