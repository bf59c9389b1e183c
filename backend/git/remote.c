/* remote: what branches a repository has, over the network or by path */
#include "git/lib.h"
#include "base/text.h"

int lib_remote_err(struct err *e, int rc, const struct lib_remote *ctx)
{
    AUTO_BUF struct buf url = {0};

    text_printable(&url, ctx->url, strnlen(ctx->url, 200), 0);
    rc = lib_err(e, rc, "%s", buf_str(&url));
    if (!ctx->code)
        return rc;
    if (e)
        e->code = ctx->code;
    return -ctx->code;
}

int lib_remote_connect(git_remote *r, struct lib_remote *ctx, struct err *e)
{
    git_remote_callbacks cb;
    int rc;

    lib_remote_callbacks(ctx, &cb);
    rc = git_remote_connect(r, GIT_DIRECTION_FETCH, &cb, NULL, NULL);
    return rc ? lib_remote_err(e, rc, ctx) : 0;
}

static void refs_add(struct git_refs *r, const char *name, const git_oid *id)
{
    struct git_ref *f;

    if (!(r->n & (r->n + 1))) /* full at 2^k - 1 */
        r->v = xrealloc(r->v, sizeof(*r->v) * (2 * r->n + 2));
    f = &r->v[r->n++];
    f->name = xstrdup(name);
    git_oid_tostr(f->sha, sizeof(f->sha), id);
}

static const char *branch_of(const char *ref)
{
    static const char heads[] = "refs/heads/";

    if (strncmp(ref, heads, sizeof(heads) - 1))
        return NULL;
    ref += sizeof(heads) - 1;
    return *ref ? ref : NULL;
}

int lib_remote_refs(git_remote *r, struct git_refs *out, struct err *e)
{
    const git_remote_head **heads;
    size_t n;
    int rc = git_remote_ls(&heads, &n, r);

    memset(out, 0, sizeof(*out));
    if (rc)
        return lib_err(e, rc, "the remote's branches");
    for (size_t i = 0; i < n && out->n < REFS_MAX; i++) {
        const char *b = branch_of(heads[i]->name);

        if (!strcmp(heads[i]->name, "HEAD") && heads[i]->symref_target &&
            branch_of(heads[i]->symref_target) && !out->head)
            out->head = xstrdup(branch_of(heads[i]->symref_target));
        if (b)
            refs_add(out, b, &heads[i]->oid);
    }
    /* HEAD of an empty repository points to what is not there */
    if (out->head && !git_refs_find(out, out->head)) {
        free(out->head);
        out->head = NULL;
    }
    return 0;
}

static int ls_network(const char *repo, const struct git_auth *a,
                      struct git_refs *out, struct err *e)
{
    struct lib_remote ctx = {.url = repo, .auth = a};
    git_remote *r = NULL;
    int rc = git_remote_create_detached(&r, repo);

    rc = rc ? lib_remote_err(e, rc, &ctx) : lib_remote_connect(r, &ctx, e);
    if (!rc)
        rc = lib_remote_refs(r, out, e);
    git_remote_free(r);
    return rc;
}

static int ls_branches(git_repository *r, struct git_refs *out, struct err *e)
{
    git_reference_iterator *it = NULL;
    git_reference *ref;
    int rc = git_reference_iterator_glob_new(&it, r, "refs/heads/*");

    while (!rc && out->n < REFS_MAX && !git_reference_next(&ref, it)) {
        const char *b = branch_of(git_reference_name(ref));
        git_oid id;

        if (b && !git_reference_name_to_id(&id, r, git_reference_name(ref)))
            refs_add(out, b, &id);
        git_reference_free(ref);
    }
    git_error_clear();
    git_reference_iterator_free(it);
    return rc ? lib_err(e, rc, "the branches") : 0;
}

static int ls_path(const char *path, struct git_refs *out, struct err *e)
{
    git_repository *r;
    git_reference *head = NULL;
    int rc = lib_open(path, &r, e);

    if (rc)
        return rc;
    rc = ls_branches(r, out, e);
    if (!rc && !git_repository_head(&head, r)) {
        const char *b = branch_of(git_reference_name(head));

        out->head = b ? xstrdup(b) : NULL;
    }
    git_error_clear();
    git_reference_free(head);
    git_repository_free(r);
    return rc;
}

int git_ls_remote(const char *repo, const struct git_auth *a,
                  struct git_refs *out, struct err *e)
{
    int r;

    memset(out, 0, sizeof(*out));
    r = git_repo_check(repo, e);
    if (r)
        return r;
    if (git_is_path(repo))
        r = ls_path(git_path(repo), out, e);
    else
        r = ls_network(repo, a, out, e);
    if (r)
        git_refs_clear(out);
    return r;
}

void git_refs_clear(struct git_refs *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->v[i].name);
    free(r->v);
    free(r->head);
    memset(r, 0, sizeof(*r));
}

const char *git_refs_find(const struct git_refs *r, const char *branch)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->v[i].name, branch))
            return r->v[i].sha;
    return NULL;
}
