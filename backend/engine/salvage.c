/*
 * Work is never lost: it is committed and pushed before a sandbox ends, and
 * after each turn; what can't be pushed comes home as files.
 */
#include "engine/jobs.h"
#include "engine/repo.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SAVE_MS = 10 * 60 * 1000,
    EXPORT_MAX = 256 << 20, /* bytes of one file */
    PIECE = 1 << 20,        /* fetched at a time */
    OUT_MAX = 256 * 1024,
};
#define EXPORT_DIR COURIER_DIR "/export"

static int run_script(const struct e2b_target *t, const char *script,
                      struct e2b_cancel *cancel, struct e2b_result *res,
                      struct err *e)
{
    const char *const argv[] = {"/bin/bash", "-s", NULL};

    return e2b_exec(t,
                    &(struct e2b_run){.argv = argv,
                                      .stdin_data = script,
                                      .stdin_len = strlen(script),
                                      .limit_ms = SAVE_MS,
                                      .max_out = OUT_MAX,
                                      .cancel = cancel},
                    res, e);
}

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

/* ---- files that come home ---- */

static int salvage_dir(struct courier *c, int64_t id, char **out)
{
    AUTO_FREE char *top = xasprintf("%s/salvage", c->data);

    *out = xasprintf("%s/%lld", top, (long long)id);
    if (mkdir(top, 0700) < 0 && errno != EEXIST)
        return -errno;
    if (mkdir(*out, 0700) < 0 && errno != EEXIST)
        return -errno;
    return 0;
}

/* a file of the VM into path, in pieces, whole or not at all */
static int fetch(const struct e2b_target *t, const char *from,
                 const char *path, struct err *e)
{
    AUTO_FREE char *tmp = xasprintf("%s.tmp", path);
    AUTO_CLOSE int fd =
        open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int64_t off = 0, total = 0;
    int rc = 0;

    if (fd < 0)
        return err_set(e, errno, "%s can't be written: %s", path,
                       strerror(errno));
    do {
        AUTO_BUF struct buf b = {0};

        rc = e2b_read(t, from, off, PIECE, &b, &total, e);
        if (rc == 0 && fd_write_all(fd, buf_str(&b), b.n) < 0)
            rc = err_set(e, errno, "%s can't be written", path);
        if (rc == 0 && !b.n && off < total)
            rc = err_set(e, EPROTO, "%s came short", from);
        off += (int64_t)b.n;
        if (off > EXPORT_MAX)
            rc = err_set(e, EFBIG, "%s is too large", from);
    } while (rc == 0 && off < total);
    if (rc == 0 && fsync(fd) < 0)
        rc = -errno;
    if (rc == 0 && rename(tmp, path) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(tmp);
    return rc;
}

struct told {
    int64_t id;
};

static int told_fn(struct tx *tx, void *arg, struct err *e)
{
    struct told *t = arg;

    (void)e;
    tx_touch(tx, 0, oid(OBJ_SANDBOX, t->id), ASPECT_SALVAGE | ASPECT_DOCS);
    return 0;
}

/* one repository of the VM, as files; prefix "" for the project */
static int bring_home(struct courier *c, struct sandbox *s,
                      const struct e2b_target *t, const char *dir,
                      const char *branch, const char *prefix,
                      struct e2b_cancel *cancel, bool *bundle, struct buf *what,
                      struct err *e)
{
    AUTO_FREE char *script =
        git_script_export(dir, branch, EXPORT_DIR, EXPORT_MAX);
    AUTO_FREE char *home = NULL;
    struct e2b_result res = {0};
    struct told told = {s->id};
    int rc = run_script(t, script, cancel, &res, e);
    char *line, *rest;

    *bundle = false;
    if (rc == 0 && res.exit_code) {
        repo_log(c, s->id, "# export of %s: %s\n", dir, buf_str(&res.err));
        rc = err_set(e, EPROTO, "the work can't be exported");
    }
    if (rc == 0)
        rc = salvage_dir(c, s->id, &home);
    rest = rc ? NULL : res.out.p;
    while (!rc && (line = next_line(&rest))) {
        static const char *const files[] = {"commits.bundle",
                                            "worktree.patch", "untracked.tar",
                                            NULL};
        AUTO_FREE char *from = NULL, *to = NULL;
        char *tab = strchr(line, '\t');

        if (!tab)
            continue;
        *tab = 0;
        if (!text_is_word(line, files))
            continue;
        from = xasprintf(EXPORT_DIR "/%s", line);
        to = xasprintf("%s/%s%s", home, prefix, line);
        rc = fetch(t, from, to, e);
        if (rc == 0 && !strcmp(line, "commits.bundle"))
            *bundle = true;
        if (rc == 0)
            buf_addf(what, "%s%s%s", what->n ? ", " : "", prefix, line);
    }
    e2b_result_clear(&res);
    store_do(c->store, told_fn, &told, NULL);
    return rc;
}

/* ---- a repository of this machine gets its branch from the bundle ---- */

static int apply_to_path(struct courier *c, struct sandbox *s, struct repo *r,
                         struct buf *words, struct err *e)
{
    AUTO_FREE char *bundle = xasprintf("%s/salvage/%lld/commits.bundle",
                                       c->data, (long long)s->id);
    char sha[41];
    int rc = git_bundle_apply(bundle, git_path(r->url), r->branch, sha, e);

    if (rc < 0)
        return rc;
    buf_addf(words, "%s%s is at %.12s", words->n ? "; " : "", r->branch, sha);
    unlink(bundle);
    return 0;
}

/* a name of a directory as a prefix of file names */
static void prefix_of(const char *dir, char out[80])
{
    const char *base = strrchr(dir, '/');
    size_t n = 0;

    for (base = base ? base + 1 : dir; *base && n < 60; base++) {
        bool plain = (*base >= 'a' && *base <= 'z') ||
                     (*base >= 'A' && *base <= 'Z') ||
                     (*base >= '0' && *base <= '9') || *base == '-';

        out[n++] = plain ? *base : '_';
    }
    out[n++] = '-';
    out[n] = 0;
}

/* what to do about one line of the save script */
static int settle(struct courier *c, struct sandbox *s, struct repo *r,
                  const struct e2b_target *t, struct e2b_cancel *cancel,
                  const char *dir, const char *result, const char *said,
                  struct buf *words, bool *saved, struct err *e)
{
    bool project = !strcmp(dir, PROJECT_DIR), bundle;
    const char *branch = r->branch ? r->branch : "courier";
    AUTO_BUF struct buf shown = {0}, what = {0};
    char prefix[80] = "";
    int rc;

    text_printable(&shown, said, strlen(said), 0);
    repo_log(c, s->id, "# save %s: %s %s\n", dir, result, buf_str(&shown));
    if (!strcmp(result, "nothing")) {
        if (project)
            *saved = true;
        return 0;
    }
    if (!strcmp(result, "pushed")) {
        if (project)
            *saved = true;
        buf_addf(words, "%spushed %s", words->n ? "; " : "", buf_str(&shown));
        return 0;
    }
    if (!project)
        prefix_of(dir, prefix);
    rc = bring_home(c, s, t, dir, branch, prefix, cancel, &bundle, &what, e);
    if (rc == 0 && project && r->path && bundle) {
        struct err why = {0};

        rc = apply_to_path(c, s, r, words, &why);
        if (rc == 0) {
            *saved = true;
            return 0;
        }
        buf_addf(words, "%snot pushed (%s): work is in salvage/ (%s)",
                 words->n ? "; " : "", why.text, buf_str(&what));
        return 0;
    }
    if (rc == 0 && what.n)
        buf_addf(words, "%snot pushed (%.200s): work is in salvage/ (%s)",
                 words->n ? "; " : "",
                 shown.n ? buf_str(&shown) : "no remote", buf_str(&what));
    return rc;
}

int work_save(struct courier *c, struct sandbox *s,
              const struct e2b_target *t, struct e2b_cancel *cancel,
              struct buf *words, bool *saved, struct err *e)
{
    AUTO_FREE char *message =
        xasprintf("courier: work of sandbox %s", s->name);
    AUTO_FREE char *script = NULL;
    struct e2b_result res = {0};
    struct repo r;
    char *line, *rest;
    int rc;

    *saved = false;
    rc = repo_get(c, s, &r);
    if (rc == -ENOENT)
        r.branch = xasprintf("courier/%s", s->name);
    script = git_script_save(HOME_DIR, r.branch, message, true);
    rc = run_script(t, script, cancel, &res, e);
    if (rc == 0 && res.exit_code) {
        /* a sandbox without git has no repositories of ours */
        if (r.url)
            rc = err_set(e, EPROTO, "the save script exited %d",
                         res.exit_code);
    }
    rest = rc ? NULL : res.out.p;
    while ((line = next_line(&rest))) {
        char *f[4] = {line, NULL, NULL, NULL};
        struct err why = {0};
        int k = 1;

        for (char *p = line; *p && k < 4; p++)
            if (*p == '\t') {
                *p = 0;
                f[k++] = p + 1;
            }
        if (k < 4 || strcmp(f[0], "REPO"))
            continue;
        if (settle(c, s, &r, t, cancel, f[1], f[2], f[3], words, saved, &why) <
            0) {
            rc = -why.code;
            buf_addf(words, "%s%s: not saved (%s)", words->n ? "; " : "", f[1],
                     why.text);
            if (e)
                *e = why;
        }
    }
    e2b_result_clear(&res);
    if (r.url && *saved) {
        struct err why = {0};

        if (repo_diff(c, s, &r, &why) < 0)
            repo_log(c, s->id, "# diff: %s\n", why.text);
    }
    repo_clear(&r);
    return rc;
}

int salvage_run(struct courier *c, struct sandbox *s, struct job *j,
                struct buf *reason, struct err *e)
{
    AUTO_BUF struct buf words = {0};
    struct e2b_target t;
    bool saved = false;
    int rc = sandbox_target(c, s, &t, e);

    if (rc == 0)
        rc = work_save(c, s, &t, &j->cancel, &words, &saved, e);
    if (words.n)
        buf_addf(reason, "%s%s", reason->n ? "; " : "", buf_str(&words));
    if (rc < 0 && rc != -ECANCELED)
        buf_addf(reason, "%snot everything could be saved: %s",
                 reason->n ? "; " : "", e ? e->text : strerror(-rc));
    return rc == -ECANCELED ? rc : 0;
}

/* push: by the user, or after a turn (args "sync") */
int job_push(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    AUTO_BUF struct buf words = {0};
    struct e2b_target t;
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
        rc = work_save(c, &s, &t, &j->cancel, &words, &saved, e);
    if (rc == 0 && !saved && words.n && repo_wanted(store_reader(c->store), &s))
        rc = err_set(e, EPROTO, "push: %s", buf_str(&words));
    sandbox_clear(&s);
    return rc < 0 && job_transient(rc) ? job_again(j, rc, 3) : rc;
}

/* ---- what follows from an end, and from a turn ---- */

static bool on(struct db *d, const struct sandbox *s, const char *key,
               const char *off)
{
    AUTO_FREE char *v = config_value(d, s, key, NULL);

    return v && strcmp(v, off);
}

void tx_after_end(struct tx *tx, struct courier *c, int64_t sandbox,
                  bool salvaged)
{
    struct sandbox s;

    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    if (salvaged && !s.run && repo_wanted(tx->db, &s) &&
        on(tx->db, &s, "pr", "off") && strcmp(s.pr_status, "created")) {
        db_exec(tx->db, "UPDATE sandbox SET pr_status='creating' WHERE id=?",
                "i", sandbox);
        tx_touch(tx, s.project, oid(OBJ_SANDBOX, sandbox), ASPECT_PR);
        tx_job(tx, c, sandbox, 0, "side", "pr", "");
    }
    tx_learn_after_end(tx, c, &s);
    sandbox_clear(&s);
}

void tx_after_turn(struct tx *tx, struct courier *c, int64_t sandbox,
                   int64_t message, bool ok)
{
    AUTO_FREE char *sync = NULL, *done = NULL;
    struct sandbox s;
    bool first = db_int(tx->db, 0, "SELECT first FROM message WHERE id=?", "i",
                        message);

    (void)ok;
    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    sync = config_value(tx->db, &s, "sync", NULL);
    done = config_value(tx->db, &s, "when_done", NULL);
    if (sandbox_is(&s, "running") && !*s.ending) {
        if (first && done && !strcmp(done, "kill"))
            tx_kill(tx, c, sandbox, "first prompt done", false);
        else if (repo_wanted(tx->db, &s) && (!sync || !strcmp(sync, "turn")) &&
                 !job_there(tx->db, sandbox, "work", "push"))
            tx_job(tx, c, sandbox, 0, "work", "push", "sync");
    }
    sandbox_clear(&s);
}
