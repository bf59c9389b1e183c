/*
 * Work is never lost: it is committed and pushed before a sandbox ends, and
 * after each turn; what can't be pushed comes home as files.
 */
#include "engine/jobs.h"
#include "engine/repo.h"
#include "engine/run.h"

#include <fcntl.h>
#include <unistd.h>

enum {
    SAVE_MS = 10 * 60 * 1000,
    OUT_MAX = 256 * 1024,
    HOME_MAX = 1 << 30, /* bytes of a salvage in all */
    REFS_SHOWN = 100,   /* of a bundle */
    HEAD_MAX = 64 * 1024,
    TRIES = 3,
};

struct save {
    struct salvage g; /* first */
    struct sandbox *s;
    struct repo *r;
    int how;
    struct buf *words, prefixes;
    bool saved;
};

/* the next line of a text that is cut into lines in place; NULL at its end */
static char *next_line(char **rest)
{
    char *line = *rest, *nl;

    if (!line || !*line)
        return NULL;
    nl = strchr(line, '\n');
    if (nl)
        *nl++ = 0;
    *rest = nl;
    return line;
}

static void say(struct save *v, const char *fmt, ...) PRINTF(2, 3);

static void say(struct save *v, const char *fmt, ...)
{
    va_list ap;

    if (v->words->n)
        buf_adds(v->words, "; ");
    va_start(ap, fmt);
    buf_vaddf(v->words, fmt, ap);
    va_end(ap);
}

/* ---- a repository of this machine gets its branches from the bundle ---- */

struct bundle_ref {
    char sha[41];
    char *name;
};

/* the branches that a bundle's header lists */
static size_t bundle_refs(const char *path, struct bundle_ref *v, size_t max)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    AUTO_FREE char *head = xmalloc(HEAD_MAX + 1);
    ssize_t got = fd < 0 ? -1 : pread(fd, head, HEAD_MAX, 0);
    char *rest = head, *line;
    size_t n = 0;

    if (got <= 0)
        return 0;
    head[got] = 0;
    next_line(&rest); /* its signature */
    while (n < max && (line = next_line(&rest)) && *line) {
        static const char heads[] = " refs/heads/";

        if (*line == '-' || *line == '@' || strlen(line) < 53 ||
            strncmp(line + 40, heads, sizeof(heads) - 1))
            continue;
        memcpy(v[n].sha, line, 40);
        v[n].sha[40] = 0;
        v[n++].name = xstrdup(line + 40 + sizeof(heads) - 1);
    }
    return n;
}

/* the branch there has other commits, or is checked out: beside it */
static int apply_beside(struct save *v, const struct bundle_ref *f,
                        struct salvaged *out, const char *path, char sha[41],
                        char **name, struct err *e)
{
    int rc;

    *name = repo_beside(v->r, f->sha);
    salvaged_clear(out);
    rc = salvage_export(&v->g, PROJECT_DIR, *name, "", out, e);
    if (rc == 0 && out->bundle)
        rc = git_bundle_apply(path, git_path(v->r->url), *name, sha, e);
    return rc;
}

static int apply_one(struct save *v, const struct bundle_ref *f,
                     struct salvaged *out, const char *path, struct err *e)
{
    bool own = !strcmp(f->name, v->r->branch);
    AUTO_FREE char *other = NULL;
    char sha[41] = "";
    struct err why = {0};
    int rc;

    if (!own && repo_protects(v->r, NULL, f->name))
        return err_set(e, EPERM, "commits on %.60s", f->name);
    rc = git_bundle_apply(path, git_path(v->r->url), f->name, sha, e);
    if (own && (rc == -EEXIST || rc == -EBUSY)) {
        why = *e;
        rc = apply_beside(v, f, out, path, sha, &other, e);
    }
    if (rc < 0)
        return rc;
    say(v, "pushed %s %.12s", other ? other : f->name, sha);
    if (!other)
        return 0;
    buf_addf(v->words, "; %s was refused: %s", v->r->branch, why.text);
    repo_pushed_to(v->g.c, v->s, v->r, other);
    return 0;
}

static void apply_all(struct save *v, struct salvaged *out)
{
    AUTO_FREE char *path =
        salvage_file(v->g.c, v->s->id, "", "commits.bundle");
    struct bundle_ref refs[REFS_SHOWN];
    size_t n = bundle_refs(path, refs, REFS_SHOWN);
    struct err e = {0}, why = {0};
    int bad = n ? 0 : err_set(&why, EPROTO, "the bundle has no branch");

    for (size_t i = 0; i < n; i++) {
        if (apply_one(v, &refs[i], out, path, &e) < 0) {
            bad = -1;
            why = e;
        }
        free(refs[i].name);
    }
    if (bad) {
        AUTO_BUF struct buf shown = {0};

        text_printable(&shown, why.text, strlen(why.text), 0);
        say(v, "not pushed (%s): work is in salvage/ (%s)", buf_str(&shown),
            buf_str(&out->files));
        return;
    }
    v->saved = true;
    unlink(path);
    if (strlen(buf_str(&out->files)) > strlen("commits.bundle"))
        say(v, "what git did not take is in salvage/ (%s)",
            buf_str(&out->files) + strlen("commits.bundle, "));
}

/* ---- one repository ---- */

/* a directory's name below home as a prefix of file names, each once */
static void prefix_of(struct save *v, const char *dir, char out[80])
{
    AUTO_FREE char *mark = NULL;
    const char *p = dir;
    size_t n = 0;

    out[0] = 0;
    if (!strcmp(dir, PROJECT_DIR))
        return;
    if (!strncmp(p, HOME_DIR "/", sizeof(HOME_DIR)))
        p += sizeof(HOME_DIR);
    for (; *p && n < 60; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '.' || *p == '_';

        out[n] = plain && (n || *p != '.') ? *p : '-';
        n++;
    }
    out[n] = 0;
    mark = xasprintf("/%s-/", out);
    if (strstr(buf_str(&v->prefixes), mark))
        n += (size_t)snprintf(out + n, 80 - n, "-%zu", v->prefixes.n);
    out[n++] = '-';
    out[n] = 0;
    buf_addf(&v->prefixes, "/%s/", out);
}

/* at: "", or the words that tell which repository */
static int come_home(struct save *v, const char *dir, const char *prefix,
                     const char *at, const char *why)
{
    struct salvaged out = {0};
    struct err e = {0};
    int rc = salvage_export(&v->g, dir, v->r->branch, prefix, &out, &e);

    if (rc < 0) {
        say(v, "%snot saved (%s)", at, e.text);
    } else {
        if (v->r->path && out.bundle && !*prefix && (v->how & WORK_PUSH))
            apply_all(v, &out);
        else if (out.files.n)
            say(v, "%snot pushed (%.200s): work is in salvage/ (%s)", at, why,
                buf_str(&out.files));
        else
            say(v, "%snot pushed (%.200s)", at, why);
        if (out.missed.n)
            say(v, "%sleft out: %s", at, buf_str(&out.missed));
    }
    salvaged_clear(&out);
    return rc;
}

/* a name as the script wrote it: \t \n \r \\ are one byte each */
static void unescape(char *s)
{
    char *to = s;

    for (; *s; s++) {
        if (*s == '\\' && s[1])
            switch (*++s) {
            case 't':
                *to++ = '\t';
                continue;
            case 'n':
                *to++ = '\n';
                continue;
            case 'r':
                *to++ = '\r';
                continue;
            }
        *to++ = *s;
    }
    *to = 0;
}

/*
 * What the VM says of itself may be false: has the remote the commit that
 * "BRANCH SHA12" names? Where it can't be asked from here, the VM's word
 * counts.
 */
static bool arrived(struct save *v, const char *said)
{
    const char *space = strchr(said, ' '), *sha;
    AUTO_FREE char *branch = NULL;
    struct git_refs refs;
    bool there;

    if (v->r->path || !v->r->url)
        return true;
    if (!space || strlen(space + 1) < 12)
        return false;
    branch = xmemdup0(said, (size_t)(space - said));
    if (git_ls_remote(v->r->url, &v->r->auth, &refs, NULL) < 0)
        return true;
    sha = git_refs_find(&refs, branch);
    there = sha && !strncmp(sha, space + 1, 12);
    git_refs_clear(&refs);
    return there;
}

/* what the clone believes of the remote is false: all is new again */
static void disbelieve(struct save *v, const char *said)
{
    AUTO_FREE char *ref =
        xasprintf("refs/remotes/origin/%.*s", (int)strcspn(said, " "), said);
    const char *const argv[] = {
        "/usr/bin/git", "-C", PROJECT_DIR, "update-ref", "-d", ref, NULL};
    struct e2b_result res = {0};

    e2b_exec(v->g.t,
             &(struct e2b_run){.argv = argv,
                               .limit_ms = 20000,
                               .max_out = 4096,
                               .cancel = v->g.cancel},
             &res, NULL);
    e2b_result_clear(&res);
}

static int settle(struct save *v, char *dir, const char *result,
                  const char *said)
{
    AUTO_BUF struct buf shown = {0}, at = {0};
    bool project, pushed = !strcmp(result, "pushed");
    const char *why;
    char prefix[80];

    unescape(dir);
    project = !strcmp(dir, PROJECT_DIR);
    text_printable(&shown, said, strlen(said), 0);
    if (pushed && project && !arrived(v, said)) {
        pushed = false;
        result = "failed";
        buf_clear(&shown);
        buf_adds(&shown, "the remote does not have what was pushed");
        disbelieve(v, said);
    }
    if (!project) {
        text_printable(&at, dir, strlen(dir), 0);
        buf_adds(&at, ": ");
    }
    prefix_of(v, dir, prefix);
    if (!pushed && strcmp(result, "nothing")) {
        why = shown.n ? buf_str(&shown) : "no remote";
        if (!(v->how & WORK_PUSH))
            why = "sync = off";
        return come_home(v, dir, prefix, buf_str(&at), why);
    }
    if (project)
        v->saved = true;
    if (pushed)
        say(v, "%spushed %s", buf_str(&at), buf_str(&shown));
    if (pushed && project)
        repo_pushed_to(v->g.c, v->s, v->r, said);
    if (strstr(said, "left out as too large"))
        return v->how & WORK_END
                   ? come_home(v, dir, prefix, buf_str(&at), "large files")
                   : 0;
    if (pushed)
        salvage_drop(v->g.c, v->s->id, prefix);
    return 0;
}

static int run_save(struct save *v, struct e2b_result *res, struct err *e)
{
    AUTO_FREE char *message =
        xasprintf("courier: work of sandbox %s", v->s->name);
    /* a branch that is gone after its merge is to stay so; to a path all is
     * brought each time */
    bool fresh =
        v->how & WORK_END && !v->r->path && strcmp(v->s->pr_status, "merged");
    AUTO_FREE char *script =
        git_script_save(HOME_DIR, v->r->branch, v->r->meant, message,
                        v->how & WORK_PUSH, fresh);
    const char *const argv[] = {"/bin/bash", "-s", NULL};
    int rc = e2b_exec(v->g.t,
                      &(struct e2b_run){.argv = argv,
                                        .stdin_data = script,
                                        .stdin_len = strlen(script),
                                        .limit_ms = SAVE_MS,
                                        .max_out = OUT_MAX,
                                        .cancel = v->g.cancel},
                      res, e);

    /* a VM without git has no repositories */
    if (rc == 0 && res->exit_code && v->r->url) {
        AUTO_BUF struct buf why = {0};

        text_printable(&why, buf_str(&res->err),
                       strnlen(buf_str(&res->err), 300), 0);
        rc = err_set(e, EINVAL, "the work can't be committed: %s",
                     buf_str(&why));
    }
    return rc;
}

/* "REMOTE\tDIR\tRESULT\tWORDS", one a repository */
static int settle_all(struct save *v, char *rest, struct err *e)
{
    char *line;
    int rc = 0;

    while ((line = next_line(&rest))) {
        char *f[4] = {line, NULL, NULL, NULL};
        int k = 1;

        for (char *p = line; *p && k < 4; p++)
            if (*p == '\t') {
                *p = 0;
                f[k++] = p + 1;
            }
        if (k < 4)
            continue;
        if (settle(v, f[1], f[2], f[3]) < 0)
            rc = err_set(e, EINVAL, "not all could be saved");
    }
    return rc;
}

/* nothing was left to be pushed: turns did that, and an end tells the same */
static void say_where(struct save *v)
{
    AUTO_FREE char *cache = repo_cache(v->g.c);
    struct git_commits log = {0};

    if (v->r->base &&
        git_log(cache, v->r->url, v->r->branch, v->r->base, 1, &log, NULL) ==
            0 &&
        log.n)
        say(v, "pushed %s %.12s", v->r->branch, log.v[0].sha);
    git_commits_clear(&log);
}

int work_save(struct courier *c, struct sandbox *s, const struct e2b_target *t,
              struct e2b_cancel *cancel, int how, struct buf *words,
              bool *saved, struct err *e)
{
    struct repo r;
    struct save v = {.g = {.c = c,
                           .sandbox = s->id,
                           .t = t,
                           .cancel = cancel,
                           .room = HOME_MAX},
                     .s = s,
                     .r = &r,
                     .how = how,
                     .words = words};
    struct e2b_result res = {0};
    int rc = repo_get(c, s, &r);

    if (rc == -ENOENT)
        r.branch = xasprintf("courier/%s", s->name);
    v.g.meant = r.meant;
    rc = run_save(&v, &res, e);
    if (rc == 0)
        rc = settle_all(&v, res.out.p, e);
    e2b_result_clear(&res);
    if (r.url && v.saved) {
        struct err why = {0};
        int d = repo_diff(c, s, &r, &why);

        if (d < 0 && d != -ENOENT)
            repo_log(c, s->id, "# diff: %s\n", why.text);
        if (d == 0 && !words->n && (how & WORK_END))
            say_where(&v);
    }
    if (rc < 0 && !words->n)
        repo_log(c, s->id, "# save: %s\n", e ? e->text : strerror(-rc));
    else
        repo_log(c, s->id, "# save: %s\n",
                 words->n ? buf_str(words) : "nothing new");
    buf_free(&v.prefixes);
    repo_clear(&r);
    *saved = v.saved;
    return rc;
}

/* ---- before an end ---- */

static bool is(struct courier *c, const struct sandbox *s, const char *key,
               const char *value)
{
    AUTO_FREE char *v = config_value(store_reader(c->store), s, key, NULL);

    return v && !strcmp(v, value);
}

int salvage_run(struct courier *c, struct sandbox *s, struct job *j,
                struct buf *reason, struct err *e)
{
    int how = WORK_END | (is(c, s, "sync", "off") ? 0 : WORK_PUSH);
    AUTO_BUF struct buf words = {0};
    struct e2b_target t = {0};
    struct err mine = {0};
    bool saved = false;
    int rc;

    e = e ? e : &mine;
    rc = sandbox_target(c, s, &t, e);
    for (int i = 0; rc == 0 && i < TRIES; i++) {
        if (i)
            sleep_ms(1000 << i);
        buf_clear(&words);
        rc = work_save(c, s, &t, &j->cancel, how, &words, &saved, e);
        if (!job_transient(rc) || job_cancelled(j))
            break;
        rc = i + 1 < TRIES ? 0 : rc;
    }
    if (t.x)
        endpoint_put(c, t.x);
    if (job_cancelled(j))
        return err_set(e, ECANCELED, "to be ended now");
    if (words.n)
        buf_addf(reason, "%s%s", reason->n ? "; " : "", buf_str(&words));
    if (rc < 0 && !words.n)
        buf_addf(reason, "%sthe work could not be saved: %s",
                 reason->n ? "; " : "", e->text);
    return 0;
}

/* push: by the user, or after a turn (args "sync") */
int job_push(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    AUTO_BUF struct buf words = {0};
    struct e2b_target t = {0};
    struct sandbox s;
    bool saved = false;
    int rc;

    (void)delay_ms;
    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    if (!sandbox_is(&s, "running")) {
        sandbox_clear(&s);
        return 0;
    }
    rc = sandbox_target(c, &s, &t, e);
    if (rc == 0)
        rc = work_save(c, &s, &t, &j->cancel, WORK_PUSH, &words, &saved, e);
    if (t.x)
        endpoint_put(c, t.x);
    if ((rc == 0 && !saved && words.n &&
         repo_wanted(store_reader(c->store), &s)) ||
        (rc == -EINVAL && words.n))
        rc = err_set(e, EINVAL, "push: %s", buf_str(&words));
    sandbox_clear(&s);
    return job_again(j, rc, 3);
}

/* ---- what follows from an end, and from a turn ---- */

static bool on(struct db *d, const struct sandbox *s, const char *key,
               const char *off)
{
    AUTO_FREE char *v = config_value(d, s, key, NULL);

    return v && strcmp(v, off);
}

static bool pr_after(struct db *d, const struct sandbox *s, bool salvaged)
{
    return salvaged && !s->run && repo_wanted(d, s) && on(d, s, "pr", "off") &&
           !pr_there(s);
}

void tx_after_end(struct tx *tx, struct courier *c, int64_t sandbox,
                  bool salvaged)
{
    struct sandbox s;

    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    if (!strcmp(s.pr_status, "creating") || pr_after(tx->db, &s, salvaged))
        tx_pr(tx, c, &s, "");
    tx_learn_after_end(tx, c, &s);
    sandbox_clear(&s);
}

void tx_after_turn(struct tx *tx, struct courier *c, int64_t sandbox,
                   int64_t message, bool ok)
{
    AUTO_FREE char *sync = NULL;
    struct sandbox s;

    (void)message;
    (void)ok; /* what an agent left that crashed is work, too */
    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    sync = config_value(tx->db, &s, "sync", NULL);
    if (sandbox_is(&s, "running") && !*s.ending && repo_wanted(tx->db, &s) &&
        (!sync || !strcmp(sync, "turn")) &&
        !job_there(tx->db, sandbox, "work", "push"))
        tx_job(tx, c, sandbox, 0, "work", "push", "sync");
    sandbox_clear(&s);
}
