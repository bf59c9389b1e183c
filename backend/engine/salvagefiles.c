#include "engine/repo.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EXPORT_MS = 10 * 60 * 1000,
    EXPORT_MAX = 256 << 20, /* bytes of one file */
    PIECE = 1 << 20,        /* fetched at a time */
    OUT_MAX = 256 * 1024,
    MISSED_MAX = 400,
};

static const char *const files[] = {"commits.bundle", "worktree.patch",
                                    "untracked.tar", NULL};
/* where the VM puts them: memory will do when its disk is full */
static const char *const rooms[] = {COURIER_DIR "/export",
                                    "/dev/shm/courier-export", NULL};

void salvaged_clear(struct salvaged *f)
{
    buf_free(&f->files);
    buf_free(&f->missed);
    f->bundle = false;
}

/* ---- the directory ---- */

static char *dir_of(struct courier *c, int64_t id)
{
    return xasprintf("%s/salvage/%lld", c->data, (long long)id);
}

char *salvage_file(struct courier *c, int64_t sandbox, const char *prefix,
                   const char *name)
{
    return xasprintf("%s/salvage/%lld/%s%s", c->data, (long long)sandbox,
                     prefix, name);
}

static int make_dir(struct courier *c, int64_t id, struct err *e)
{
    AUTO_FREE char *top = xasprintf("%s/salvage", c->data);
    AUTO_FREE char *dir = dir_of(c, id);

    if ((mkdir(top, 0700) < 0 && errno != EEXIST) ||
        (mkdir(dir, 0700) < 0 && errno != EEXIST))
        return err_set(e, errno, "%s can't be made: %s", dir, strerror(errno));
    return 0;
}

static int told_fn(struct tx *tx, void *arg, struct err *e)
{
    int64_t id = *(int64_t *)arg;

    (void)e;
    if (db_int(tx->db, 0, "SELECT 1 FROM sandbox WHERE id=?", "i", id))
        tx_touch(tx, 0, oid(OBJ_SANDBOX, id), ASPECT_SALVAGE | ASPECT_DOCS);
    return 0;
}

static void tell(struct courier *c, int64_t sandbox)
{
    store_do(c->store, told_fn, &sandbox, NULL);
}

void salvage_drop(struct courier *c, int64_t sandbox, const char *prefix)
{
    bool any = false;

    for (size_t i = 0; files[i]; i++) {
        AUTO_FREE char *path = salvage_file(c, sandbox, prefix, files[i]);

        any = unlink(path) == 0 || any;
    }
    if (any)
        tell(c, sandbox);
}

bool salvage_any(struct courier *c, int64_t sandbox)
{
    AUTO_FREE char *path = dir_of(c, sandbox);
    DIR *d = opendir(path);
    struct dirent *f;
    bool any = false;

    while (d && !any && (f = readdir(d)))
        any = f->d_name[0] != '.';
    if (d)
        closedir(d);
    return any;
}

static void remove_dir(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *f;

    while (d && (f = readdir(d)))
        unlinkat(dirfd(d), f->d_name, 0);
    if (d)
        closedir(d);
    rmdir(path);
}

struct forget {
    int64_t id;
    char *dir;
    bool gone;
};

static int gone_fn(struct tx *tx, void *arg, struct err *e)
{
    struct forget *f = arg;

    (void)e;
    f->gone =
        !db_int(tx->db, 0, "SELECT 1 FROM sandbox WHERE id=?", "i", f->id);
    return 0;
}

static void gone_done(void *arg, int code, const struct err *e)
{
    struct forget *f = arg;

    (void)e;
    if (code == 0 && f->gone)
        remove_dir(f->dir);
    free(f->dir);
    free(f);
}

void tx_salvage_forget(struct tx *tx, int64_t sandbox)
{
    struct forget *f = xcalloc(1, sizeof(*f));
    AUTO_FREE char *db = db_text(
        tx->db, "SELECT file FROM pragma_database_list WHERE name='main'", "");
    char *slash = db ? strrchr(db, '/') : NULL;

    f->id = sandbox;
    f->dir = slash ? xasprintf("%.*s/salvage/%lld", (int)(slash - db), db,
                               (long long)sandbox)
                   : xstrdup("");
    store_submit(tx->store, gone_fn, f, gone_done, true);
}

/* ---- out of the VM ---- */

static int copy(struct salvage *g, const char *from, int fd, struct err *e)
{
    int64_t off = 0, total = 0;

    do {
        AUTO_BUF struct buf b = {0};
        int rc = e2b_read(g->t, from, off, PIECE, &b, &total, e);

        if (rc < 0)
            return rc;
        if (!b.n && off < total)
            return err_set(e, EPROTO, "%s came short", from);
        if (total > EXPORT_MAX || (int64_t)b.n > g->room)
            return err_set(e, EFBIG, "%s is too large", from);
        rc = fd_write_all(fd, buf_str(&b), b.n);
        if (rc < 0)
            return err_set(e, -rc, "it can't be written: %s", strerror(-rc));
        off += (int64_t)b.n;
        g->room -= (int64_t)b.n;
    } while (off < total);
    return 0;
}

/* a file of the VM into path, whole or not at all */
static int fetch(struct salvage *g, const char *from, const char *path,
                 struct err *e)
{
    AUTO_FREE char *tmp = xasprintf("%s.tmp", path);
    AUTO_CLOSE int fd =
        open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc;

    if (fd < 0)
        return err_set(e, errno, "%s can't be written: %s", path,
                       strerror(errno));
    rc = copy(g, from, fd, e);
    if (rc == 0 && (fsync(fd) < 0 || rename(tmp, path) < 0))
        rc = err_set(e, errno, "%s can't be written: %s", path,
                     strerror(errno));
    if (rc < 0)
        unlink(tmp);
    return rc;
}

static void missed(struct salvaged *out, const char *what)
{
    if (out->missed.n > MISSED_MAX)
        return;
    if (out->missed.n)
        buf_adds(&out->missed, ", ");
    text_printable(&out->missed, what, strnlen(what, 100), 0);
}

/* "FILE\tBYTES", or "left-out\tBYTES\tNAME" */
static int take_line(struct salvage *g, const char *room, char *line,
                     const char *prefix, struct salvaged *out, struct err *e)
{
    AUTO_FREE char *from = NULL, *to = NULL;
    char *tab = strchr(line, '\t'), *name;
    int rc;

    if (!tab)
        return 0;
    *tab = 0;
    if (!strcmp(line, "left-out")) {
        name = strchr(tab + 1, '\t');
        missed(out, name ? name + 1 : tab + 1);
        return 0;
    }
    if (!text_is_word(line, files))
        return 0;
    from = xasprintf("%s/%s", room, line);
    to = salvage_file(g->c, g->sandbox, prefix, line);
    rc = fetch(g, from, to, e);
    if (rc == -EFBIG) {
        missed(out, line);
        return 0;
    }
    if (rc < 0)
        return rc;
    out->bundle = out->bundle || !strcmp(line, files[0]);
    buf_addf(&out->files, "%s%s%s", out->files.n ? ", " : "", prefix, line);
    return 0;
}

/* 1: no space in that room */
static int export_to(struct salvage *g, const char *room, const char *dir,
                     const char *branch, const char *prefix,
                     struct salvaged *out, struct err *e)
{
    AUTO_FREE char *script =
        git_script_export(dir, branch, g->meant, room,
                          g->room < EXPORT_MAX ? g->room : EXPORT_MAX);
    const char *const argv[] = {"/bin/bash", "-s", NULL};
    struct e2b_result res = {0};
    char *line, *save = NULL;
    int rc = e2b_exec(g->t,
                      &(struct e2b_run){.argv = argv,
                                        .stdin_data = script,
                                        .stdin_len = strlen(script),
                                        .limit_ms = EXPORT_MS,
                                        .max_out = OUT_MAX,
                                        .cancel = g->cancel},
                      &res, e);

    if (rc == 0 && (strstr(buf_str(&res.err), "No space left") ||
                    strstr(buf_str(&res.out), "No space left")))
        rc = 1;
    else if (rc == 0 && res.exit_code)
        rc = err_set(e, EPROTO, "%s can't be exported", dir);
    if (rc) {
        AUTO_BUF struct buf why = {0};

        text_printable(&why, buf_str(&res.err),
                       strnlen(buf_str(&res.err), 400), 0);
        repo_log(g->c, g->sandbox, "# export of %s: %s\n", dir,
                 why.n ? buf_str(&why) : "no space left");
    } else {
        salvage_drop(g->c, g->sandbox, prefix);
    }
    for (line = rc || !res.out.n ? NULL : strtok_r(res.out.p, "\n", &save);
         rc == 0 && line; line = strtok_r(NULL, "\n", &save))
        rc = take_line(g, room, line, prefix, out, e);
    e2b_remove(g->t, room, NULL);
    e2b_result_clear(&res);
    return rc;
}

int salvage_export(struct salvage *g, const char *dir, const char *branch,
                   const char *prefix, struct salvaged *out, struct err *e)
{
    int rc = make_dir(g->c, g->sandbox, e);

    for (size_t i = 0; rc >= 0 && rooms[i]; i++) {
        salvaged_clear(out);
        rc = export_to(g, rooms[i], dir, branch, prefix, out, e);
        if (rc <= 0)
            break;
    }
    if (rc == 1)
        rc = err_set(e, ENOSPC,
                     "%s can't be exported: there is no space in "
                     "the VM",
                     dir);
    tell(g->c, g->sandbox);
    return rc;
}
