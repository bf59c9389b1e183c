/*
 * Work that no remote has goes from one sandbox of a run to the next: what
 * the last one left in DATA/salvage is put into the new VM. A branch that was
 * pushed needs none of this.
 */
#include "engine/repo.h"
#include "engine/run.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUNDLE_MAX = 128 << 20, HAND_MS = 5 * 60 * 1000 };
#define HAND_DIR COURIER_DIR "/hand"
#define BUNDLE "commits.bundle"

/* $1: the bundle, $2: the directory, $3: the branch it is of. A clone goes
 * forward to it; a repository that isn't there is made */
static const char script[] =
    "set -e\n"
    "b=$1 d=$2 ref=refs/heads/$3\n"
    "git bundle list-heads \"$b\" | grep -qF \" $ref\" ||\n"
    "  ref=$(git bundle list-heads \"$b\" | sed -n 's/^[^ ]* "
    "//p' | head -n 1)\n"
    "if [ -e \"$d/.git\" ]; then\n"
    "  cd \"$d\"\n"
    "  git fetch -q \"$b\" \"$ref\"\n"
    "  git merge -q --ff-only FETCH_HEAD\n"
    "else\n"
    "  git init -q \"$d\"\n"
    "  cd \"$d\"\n"
    "  git fetch -q \"$b\" \"$ref\"\n"
    "  git checkout -q -B main FETCH_HEAD\n"
    "fi\n"
    "rm -f \"$b\"\n"
    "git log -1 --format='%h %s'\n";

static int read_file(const char *path, struct buf *out, struct err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(e, errno, "%s: %s", path, strerror(errno));
    if (st.st_size > BUNDLE_MAX)
        return err_set(e, EFBIG,
                       "the work of the step before is larger than %d MiB",
                       BUNDLE_MAX >> 20);
    while (out->n < (size_t)st.st_size) {
        char piece[65536];
        ssize_t n = read(fd, piece, sizeof(piece));

        if (n < 0)
            return err_set(e, errno, "%s: %s", path, strerror(errno));
        if (n == 0)
            break;
        buf_add(out, piece, (size_t)n);
    }
    return 0;
}

static int hand_one(struct courier *c, struct sandbox *s,
                    const struct e2b_target *t, struct job *j,
                    const char *from, const char *prefix, const char *branch,
                    struct err *e)
{
    AUTO_FREE char *dir = *prefix ? xasprintf("%s/%.*s", HOME_DIR,
                                              (int)strlen(prefix) - 1, prefix)
                                  : xstrdup(PROJECT_DIR);
    AUTO_FREE char *to = xasprintf("%s/%s%s", HAND_DIR, prefix, BUNDLE);
    const char *argv[] = {"/bin/bash", "-c", script, "hand",
                          to,          dir,  branch, NULL};
    struct e2b_result res = {0};
    AUTO_BUF struct buf b = {0};
    int rc = read_file(from, &b, e);

    if (rc == 0)
        rc = e2b_write(t, to, b.p, b.n, NULL, e);
    if (rc == 0)
        rc = e2b_exec(t,
                      &(struct e2b_run){.argv = argv,
                                        .limit_ms = HAND_MS,
                                        .max_out = 16384,
                                        .cancel = &j->cancel},
                      &res, e);
    if (rc == 0) {
        AUTO_BUF struct buf shown = {0};

        text_printable(&shown, buf_str(res.exit_code ? &res.err : &res.out),
                       res.exit_code ? res.err.n : res.out.n, 0);
        repo_log(c, s->id, "# work of the step before in %s: %s\n", dir,
                 buf_str(&shown));
        if (res.exit_code)
            rc = err_set(e, EPROTO,
                         "the work of the step before can't be taken over: "
                         "%.300s",
                         buf_str(&shown));
    }
    e2b_result_clear(&res);
    return rc;
}

/* the last sandbox of the run before this one that left something */
static int64_t giver(struct courier *c, struct db *d, const struct sandbox *s)
{
    sqlite3_stmt *q = db_query(
        d, "SELECT id FROM sandbox WHERE run=? AND id<? ORDER BY id DESC",
        "ii", s->run, s->id);
    int64_t found = 0;

    while (!found && db_row(d, q)) {
        if (salvage_any(c, col_int(q, 0)))
            found = col_int(q, 0);
    }
    if (found)
        db_done(q);
    return found;
}

int run_hand_over(struct courier *c, struct sandbox *s,
                  const struct e2b_target *t, struct job *j, struct err *e)
{
    struct db *d = store_reader(c->store);
    int64_t from = s->run ? giver(c, d, s) : 0;
    AUTO_FREE char *dir = NULL, *branch = NULL;
    struct dirent *f;
    int rc = 0;
    DIR *at;

    if (!from)
        return 0;
    branch = db_text(d,
                     "SELECT CASE WHEN branch<>'' THEN branch ELSE "
                     "'courier/'||name END FROM sandbox WHERE id=?",
                     "i", from);
    dir = xasprintf("%s/salvage/%lld", c->data, (long long)from);
    at = opendir(dir);
    while (at && rc == 0 && (f = readdir(at))) {
        size_t n = strlen(f->d_name), k = strlen(BUNDLE);
        AUTO_FREE char *path = NULL, *prefix = NULL;

        if (n < k || strcmp(f->d_name + n - k, BUNDLE))
            continue;
        path = xasprintf("%s/%s", dir, f->d_name);
        prefix = xmemdup0(f->d_name, n - k);
        rc = hand_one(c, s, t, j, path, prefix, branch ? branch : "", e);
    }
    if (at)
        closedir(at);
    return rc;
}
