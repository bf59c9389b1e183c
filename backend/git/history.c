/* history: the commits and the diff of a branch against its base */
#include "git/connected.h"
#include "base/text.h"

#define FILE_DIFF_MAX (2 << 20) /* a larger file counts as binary */

static char *printable(const char *s, size_t max)
{
    struct buf b = {0};

    if (s)
        text_printable(&b, s, strnlen(s, max), 0);
    return buf_take(&b);
}

static void commits_add(struct git_commits *c, git_repository *r,
                        const git_oid *id)
{
    git2_commit *commit;
    struct git_commit *o;
    const git_signature *who;

    if (git_commit_lookup(&commit, r, id))
        return;
    if (!(c->n & (c->n + 1)))
        c->v = xrealloc(c->v, sizeof(*c->v) * (2 * c->n + 2));
    o = &c->v[c->n++];
    who = git_commit_author(commit);
    git_oid_tostr(o->sha, sizeof(o->sha), id);
    o->subject = printable(git_commit_summary(commit), 300);
    o->author = printable(who ? who->name : NULL, 100);
    o->time_ms = git_commit_time(commit) * 1000;
    git_commit_free(commit);
}

static void walk_shallow(git_repository *r, const git_oid *tip,
                         const git_oid *base, size_t max,
                         struct git_commits *out)
{
    AUTO_FREE git_oid *ids = xmalloc((max + 1) * sizeof(*ids));
    size_t n = git_beyond(r, tip, base, ids, max);

    for (size_t i = 0; i < n; i++)
        commits_add(out, r, &ids[i]);
}

static int walk(git_repository *r, const git_oid *tip, const git_oid *base,
                size_t max, struct git_commits *out)
{
    git_revwalk *w;
    git_oid id;
    int rc;

    if (git_repository_is_shallow(r) == 1) {
        walk_shallow(r, tip, base, max, out);
        return 0;
    }
    rc = git_revwalk_new(&w, r);
    if (rc)
        return rc;
    git_revwalk_sorting(w, GIT_SORT_TOPOLOGICAL | GIT_SORT_TIME);
    rc = git_revwalk_push(w, tip);
    if (!rc)
        rc = git_revwalk_hide(w, base);
    while (!rc && out->n < max) {
        rc = git_revwalk_next(&id, w);
        if (!rc)
            commits_add(out, r, &id);
    }
    git_revwalk_free(w);
    return rc == GIT_ITEROVER ? 0 : rc;
}

/* opens, and finds both ends */
static int ends(const char *cache_dir, const char *repo, const char *branch,
                const char *base, git_repository **r, git_oid *tip,
                git_oid *bottom, struct err *e)
{
    int rc = git_repo_check(repo, e);

    if (!rc)
        rc = lib_open_cached(cache_dir, repo, r, e);
    if (rc)
        return rc;
    rc = lib_branch_oid(*r, branch, tip, e);
    if (!rc)
        rc = lib_branch_oid(*r, base, bottom, e);
    if (rc)
        git_repository_free(*r);
    return rc;
}

int git_log(const char *cache_dir, const char *repo, const char *branch,
            const char *base, size_t max, struct git_commits *out,
            struct err *e)
{
    AUTO_CLOSE int held = lib_cache_hold(cache_dir, repo);
    git_repository *r;
    git_oid tip, bottom;
    int rc;

    memset(out, 0, sizeof(*out));
    (void)held;
    rc = ends(cache_dir, repo, branch, base, &r, &tip, &bottom, e);
    if (rc)
        return rc;
    rc = walk(r, &tip, &bottom, max, out);
    if (rc) {
        rc = lib_err(e, rc, "the commits of %s", branch);
        git_commits_clear(out);
    }
    git_repository_free(r);
    return rc;
}

void git_commits_clear(struct git_commits *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->v[i].subject);
        free(c->v[i].author);
    }
    free(c->v);
    memset(c, 0, sizeof(*c));
}

struct printer {
    struct buf *out;
    size_t end; /* out->n at which it is enough */
};

static int print_line(const git_diff_delta *d, const git_diff_hunk *h,
                      const git_diff_line *l, void *arg)
{
    struct printer *p = arg;
    size_t room = p->end - p->out->n;
    size_t n = l->content_len < room ? l->content_len : room;

    (void)d;
    (void)h;
    if (l->origin == GIT_DIFF_LINE_CONTEXT ||
        l->origin == GIT_DIFF_LINE_ADDITION ||
        l->origin == GIT_DIFF_LINE_DELETION)
        buf_addc(p->out, l->origin);
    text_printable(p->out, l->content, n, PRINTABLE_LINES | PRINTABLE_TABS);
    return p->out->n >= p->end ? GIT_EUSER : 0;
}

static int tree_of(git_repository *r, const git_oid *id, git_tree **out)
{
    git2_commit *c;
    int rc = git_commit_lookup(&c, r, id);

    if (rc)
        return rc;
    rc = git_commit_tree(out, c);
    git_commit_free(c);
    return rc;
}

/* where the branch left its base; GIT_ENOTFOUND: they have nothing in common
 */
static int parting(git_repository *r, const git_oid *tip,
                   const git_oid *bottom, git_oid *out)
{
    if (git_repository_is_shallow(r) == 1 &&
        git_descends(r, tip, bottom) == 1) {
        *out = *bottom;
        return 0;
    }
    return git_merge_base(out, r, tip, bottom);
}

static int print_diff(git_repository *r, const git_oid *from,
                      const git_oid *to, struct printer *p)
{
    git_diff_options o;
    git_tree *a = NULL, *b = NULL;
    git2_diff *d = NULL;
    int rc;

    git_diff_options_init(&o, GIT_DIFF_OPTIONS_VERSION);
    o.max_size = FILE_DIFF_MAX;
    rc = from ? tree_of(r, from, &a) : 0;
    if (!rc)
        rc = tree_of(r, to, &b);
    if (!rc)
        rc = git_diff_tree_to_tree(&d, r, a, b, &o);
    if (!rc)
        rc = git_diff_print(d, GIT_DIFF_FORMAT_PATCH, print_line, p);
    git_diff_free(d);
    git_tree_free(a);
    git_tree_free(b);
    return rc;
}

int git_diff(const char *cache_dir, const char *repo, const char *branch,
             const char *base, size_t max, struct buf *out, struct err *e)
{
    AUTO_CLOSE int held = lib_cache_hold(cache_dir, repo);
    struct printer p = {out, out->n + max};
    git_repository *r;
    git_oid tip, bottom, common;
    int rc = ends(cache_dir, repo, branch, base, &r, &tip, &bottom, e);

    (void)held;
    if (rc)
        return rc;
    rc = parting(r, &tip, &bottom, &common);
    if (!rc || rc == GIT_ENOTFOUND)
        rc = print_diff(r, rc ? NULL : &common, &tip, &p);
    if (out->n >= p.end) {
        out->n = p.end;
        out->n -= text_utf8_tail(out->p, out->n);
        out->p[out->n] = 0;
        rc = 0;
    }
    git_repository_free(r);
    if (rc)
        return lib_err(e, rc, "the diff of %s", branch);
    git_error_clear();
    return 0;
}
