/* cache: one bare repository a remote, with the branches we asked for */
#include "git/lib.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* one writer a cache, over processes too; -1 with words */
static int lock(const char *path, struct err *e)
{
    AUTO_FREE char *name = xasprintf("%s.lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0 || flock(fd, LOCK_EX)) {
        err_set(e, errno, "%s: %s", name, strerror(errno));
        close_cleanup(&fd);
        return -1;
    }
    return fd;
}

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
    fd = lock(path, e);
    if (fd < 0)
        return e ? -e->code : -EIO;
    return fetch(path, repo, a, branch, base, e);
}
