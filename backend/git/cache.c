/*
 * cache: one bare repository a remote, with the branches we asked for. What is
 * in it can always be had again, so it is removed as a whole: when it has
 * become many packs, when it was not used for long, or when all together are
 * too large. DIR/HASH.git.lock guards it, over processes too; its time is
 * that of the last use.
 */
#include "git/lib.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PACKS_MAX = 200, /* each fetch adds one */
    UNUSED_S = 30 * 24 * 3600,
    IN_USE_S = 600, /* between a fetch and what is read then */
};

char *git_cache_path(const char *cache_dir, const char *repo)
{
    git_oid id;
    char hex[GIT_OID_HEXSZ + 1];

    git_odb_hash(&id, repo, strlen(repo), GIT_OBJECT_BLOB);
    git_oid_tostr(hex, sizeof(hex), &id);
    return xasprintf("%s/%s.git", cache_dir, hex);
}

int lib_open_cached(const char *cache_dir, const char *repo,
                    git_repository **out, struct err *e)
{
    AUTO_FREE char *path = NULL;

    if (git_is_path(repo))
        return lib_open(git_path(repo), out, e);
    path = git_cache_path(cache_dir, repo);
    if (access(path, F_OK))
        return err_set(e, ENOENT, "the repository was not fetched yet");
    return lib_open(path, out, e);
}

/* ---- who is in it ---- */

/* how: LOCK_*; -1 with words */
static int lock(const char *path, int how, struct err *e)
{
    AUTO_FREE char *name = xasprintf("%s.lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0 || flock(fd, how)) {
        err_set(e, errno, "%s: %s", name, strerror(errno));
        close_cleanup(&fd);
        return -1;
    }
    return fd;
}

int lib_cache_hold(const char *cache_dir, const char *repo)
{
    AUTO_FREE char *path = NULL;

    if (git_is_path(repo) || access(cache_dir, F_OK))
        return -1;
    path = git_cache_path(cache_dir, repo);
    return lock(path, LOCK_SH, NULL);
}

/* ---- how much there is ---- */

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    remove(path);
    return 0;
}

static void remove_all(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static _Thread_local int64_t bytes_seen;

static int add_bytes(const char *path, const struct stat *st, int type,
                     struct FTW *at)
{
    (void)path;
    (void)at;
    if (type == FTW_F || type == FTW_D)
        bytes_seen += (int64_t)st->st_blocks * 512;
    return 0;
}

static bool many_packs(const char *path)
{
    AUTO_FREE char *packs = xasprintf("%s/objects/pack", path);
    DIR *d = opendir(packs);
    struct dirent *f;
    int n = 0;

    while (d && (f = readdir(d)))
        n += strstr(f->d_name, ".pack") != NULL;
    if (d)
        closedir(d);
    return n > PACKS_MAX;
}

struct cached {
    char *path;
    int64_t bytes, used_s;
};

static int by_use(const void *a, const void *b)
{
    const struct cached *x = a, *y = b;

    return (x->used_s > y->used_s) - (x->used_s < y->used_s);
}

static size_t caches_in(const char *dir, struct cached **out)
{
    DIR *d = opendir(dir);
    struct dirent *f;
    size_t n = 0;

    *out = NULL;
    while (d && (f = readdir(d))) {
        AUTO_FREE char *path = xasprintf("%s/%s", dir, f->d_name);
        AUTO_FREE char *name = xasprintf("%s.lock", path);
        size_t len = strlen(f->d_name);
        struct stat st;

        if (len < 5 || strcmp(f->d_name + len - 4, ".git"))
            continue;
        bytes_seen = 0;
        nftw(path, add_bytes, 16, FTW_PHYS);
        *out = xrealloc(*out, (n + 1) * sizeof(**out));
        (*out)[n++] = (struct cached){path, bytes_seen,
                                      stat(name, &st) ? 0 : st.st_mtime};
        path = NULL;
    }
    if (d)
        closedir(d);
    if (n)
        qsort(*out, n, sizeof(**out), by_use);
    return n;
}

static bool drop(const char *path)
{
    AUTO_CLOSE int fd = lock(path, LOCK_EX | LOCK_NB, NULL);

    if (fd < 0)
        return false;
    remove_all(path);
    return true;
}

void git_cache_trim(const char *cache_dir, int64_t max_bytes)
{
    int64_t total = 0, now = now_ms() / 1000;
    struct cached *v;
    size_t n = caches_in(cache_dir, &v);

    for (size_t i = 0; i < n; i++)
        total += v[i].bytes;
    for (size_t i = 0; i < n; i++) {
        int64_t idle = now - v[i].used_s;

        if ((idle > UNUSED_S || (total > max_bytes && idle > IN_USE_S)) &&
            drop(v[i].path))
            total -= v[i].bytes;
        free(v[i].path);
    }
    free(v);
}

/* ---- fetching ---- */

static int make(const char *path, git_repository **out, struct err *e)
{
    git_repository_init_options o;
    int rc;

    git_repository_init_options_init(&o, GIT_REPOSITORY_INIT_OPTIONS_VERSION);
    o.flags = GIT_REPOSITORY_INIT_BARE | GIT_REPOSITORY_INIT_MKDIR;
    rc = git_repository_init_ext(out, path, &o);
    return rc ? lib_err(e, rc, "%s", path) : 0;
}

/* adds "+refs/heads/B:refs/heads/B" unless it is there */
static void want(char *spec[2], size_t *n, const char *branch)
{
    char *s = xasprintf("+refs/heads/%s:refs/heads/%s", branch, branch);

    if (*n && !strcmp(spec[0], s))
        free(s);
    else
        spec[(*n)++] = s;
}

static int set_ref(git_repository *r, const char *name, const char *sha,
                   struct err *e)
{
    git_reference *ref = NULL;
    git_oid id;
    int rc = git_oid_fromstr(&id, sha);

    if (!rc)
        rc = git_reference_create(&ref, r, name, &id, 1, "fetch");
    git_reference_free(ref);
    return rc ? lib_err(e, rc, "%s", name) : 0;
}

static int set_refs(git_repository *r, const struct git_refs *refs,
                    const char *branch, const char *base, struct err *e)
{
    const char *const names[] = {branch, base, refs->head};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *sha = names[i] ? git_refs_find(refs, names[i]) : NULL;
        AUTO_FREE char *name = NULL;
        int rc;

        /* HEAD is known by its branch, fetched only where it is the base */
        if (!sha || (i == 2 && base))
            continue;
        name = i == 2 ? xstrdup(LIB_REMOTE_HEAD)
                      : xasprintf("refs/heads/%s", names[i]);
        rc = set_ref(r, name, sha, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int missing(const char *repo, const char *branch, struct err *e)
{
    return err_set(e, ENOENT, "%.200s has no branch %s", repo, branch);
}

/* of a connected remote: the packs, then the names */
static int download(git_repository *r, git_remote *remote,
                    struct lib_remote *ctx, const char *branch,
                    const char *base, struct err *e)
{
    struct git_refs refs;
    git_fetch_options o;
    char *spec[2] = {NULL, NULL};
    git_strarray specs = {spec, 0};
    int rc = lib_remote_refs(remote, &refs, e);

    if (rc)
        return rc;
    if (!git_refs_find(&refs, branch))
        rc = missing(ctx->url, branch, e);
    else if (base && !git_refs_find(&refs, base))
        rc = missing(ctx->url, base, e);
    if (!rc) {
        want(spec, &specs.count, branch);
        if (base || refs.head)
            want(spec, &specs.count, base ? base : refs.head);
        git_fetch_options_init(&o, GIT_FETCH_OPTIONS_VERSION);
        lib_remote_callbacks(ctx, &o.callbacks);
        o.download_tags = GIT_REMOTE_DOWNLOAD_TAGS_NONE;
        rc = git_remote_download(remote, &specs, &o);
        rc = rc ? lib_remote_err(e, rc, ctx)
                : set_refs(r, &refs, branch, base, e);
    }
    free(spec[0]);
    free(spec[1]);
    git_refs_clear(&refs);
    return rc;
}

static int fetch(const char *path, const char *repo, const struct git_auth *a,
                 const char *branch, const char *base, struct err *e)
{
    struct lib_remote ctx = {.url = repo, .auth = a};
    git_repository *r = NULL;
    git_remote *remote = NULL;
    git_remote_create_options o;
    int rc = make(path, &r, e);

    if (rc)
        return rc;
    git_remote_create_options_init(&o, GIT_REMOTE_CREATE_OPTIONS_VERSION);
    o.repository = r;
    o.flags = GIT_REMOTE_CREATE_SKIP_INSTEADOF |
              GIT_REMOTE_CREATE_SKIP_DEFAULT_FETCHSPEC;
    rc = git_remote_create_with_opts(&remote, repo, &o);
    rc =
        rc ? lib_remote_err(e, rc, &ctx) : lib_remote_connect(remote, &ctx, e);
    if (!rc)
        rc = download(r, remote, &ctx, branch, base, e);
    git_remote_free(remote);
    git_repository_free(r);
    return rc;
}

/* a path repository is its own cache */
static int look(const char *repo, const char *branch, const char *base,
                struct err *e)
{
    git_repository *r;
    git_oid id;
    int rc = lib_open(git_path(repo), &r, e);

    if (rc)
        return rc;
    rc = lib_branch_oid(r, branch, &id, e);
    if (!rc && base)
        rc = lib_branch_oid(r, base, &id, e);
    git_repository_free(r);
    return rc;
}

int git_fetch(const char *cache_dir, const char *repo,
              const struct git_auth *a, const char *branch, const char *base,
              struct err *e)
{
    AUTO_FREE char *path = NULL;
    AUTO_CLOSE int fd = -1;
    int r = git_repo_check(repo, e);

    if (!r)
        r = git_branch_check(branch, e);
    if (!r && base)
        r = git_branch_check(base, e);
    if (r)
        return r;
    if (git_is_path(repo))
        return look(repo, branch, base, e);
    if (mkdir(cache_dir, 0700) && errno != EEXIST)
        return err_set(e, errno, "%s: %s", cache_dir, strerror(errno));
    path = git_cache_path(cache_dir, repo);
    fd = lock(path, LOCK_EX, e);
    if (fd < 0)
        return e ? -e->code : -EIO;
    futimens(fd, NULL);
    if (many_packs(path))
        remove_all(path);
    return fetch(path, repo, a, branch, base, e);
}
