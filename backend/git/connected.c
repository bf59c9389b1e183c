#include "git/connected.h"

enum { DEPTH_MAX = 400 }; /* of directories */

/* hashes seen, open addressing; they are evenly spread already */
struct seen {
    git_oid *v;
    size_t n, cap;
};

static size_t slot(const struct seen *s, const git_oid *id)
{
    uint64_t h;
    size_t i;

    memcpy(&h, id->id, sizeof(h));
    for (i = h & (s->cap - 1); !git_oid_is_zero(&s->v[i]);
         i = (i + 1) & (s->cap - 1))
        if (git_oid_equal(&s->v[i], id))
            break;
    return i;
}

/* false if it was there */
static bool seen_add(struct seen *s, const git_oid *id)
{
    size_t i;

    if (s->n * 2 >= s->cap) {
        struct seen bigger = {.cap = s->cap ? s->cap * 2 : 1024};

        bigger.v = xcalloc(bigger.cap, sizeof(*bigger.v));
        for (i = 0; i < s->cap; i++)
            if (!git_oid_is_zero(&s->v[i]))
                bigger.v[slot(&bigger, &s->v[i])] = s->v[i];
        bigger.n = s->n;
        free(s->v);
        *s = bigger;
    }
    i = slot(s, id);
    if (!git_oid_is_zero(&s->v[i]))
        return false;
    s->v[i] = *id;
    s->n++;
    return true;
}

struct check {
    git_repository *repo;
    git_odb *odb, *old;
    struct seen seen;
    struct err *e;
};

static int missing(struct check *c, const char *what, const git_oid *id)
{
    git_error_clear();
    return err_set(c->e, EBADMSG,
                   "the bundle is incomplete: a %s (%.12s) is "
                   "missing or malformed",
                   what, git_oid_tostr_s(id));
}

static int check_tree(struct check *c, const git_oid *id, int depth);

static int check_entry(struct check *c, const git_tree_entry *t, int depth)
{
    const git_oid *id = git_tree_entry_id(t);

    switch (git_tree_entry_type(t)) {
    case GIT_OBJECT_COMMIT:
        return 0; /* of a submodule: elsewhere */
    case GIT_OBJECT_TREE:
        return check_tree(c, id, depth + 1);
    default:
        if (git_oid_is_zero(id) ||
            (seen_add(&c->seen, id) && !git_odb_exists(c->odb, id)))
            return missing(c, "file", id);
        return 0;
    }
}

static int check_tree(struct check *c, const git_oid *id, int depth)
{
    git_tree *t;
    int r = 0;

    if (depth > DEPTH_MAX)
        return err_set(c->e, EFBIG,
                       "the bundle has directories more than %d "
                       "deep",
                       DEPTH_MAX);
    if (git_oid_is_zero(id))
        return missing(c, "directory", id);
    if (!seen_add(&c->seen, id) || git_odb_exists(c->old, id))
        return 0;
    if (git_tree_lookup(&t, c->repo, id))
        return missing(c, "directory", id);
    for (size_t i = 0; i < git_tree_entrycount(t) && !r; i++)
        r = check_entry(c, git_tree_entry_byindex(t, i), depth);
    git_tree_free(t);
    return r;
}

static int check_commit(struct check *c, const git_oid *id)
{
    git2_commit *commit;
    int r = 0;

    if (git_odb_exists(c->old, id))
        return 0;
    if (git_commit_lookup(&commit, c->repo, id))
        return missing(c, "commit", id);
    r = check_tree(c, git_commit_tree_id(commit), 0);
    for (unsigned i = 0; i < git_commit_parentcount(commit) && !r; i++)
        if (!git_odb_exists(c->odb, git_commit_parent_id(commit, i)))
            r = missing(c, "commit", git_commit_parent_id(commit, i));
    git_commit_free(commit);
    return r;
}

int git_connected(git_repository *repo, git_odb *old, const git_oid *tip,
                  struct err *e)
{
    struct check c = {.repo = repo, .old = old, .e = e};
    git_revwalk *w = NULL;
    git_oid id;
    int rc, r = 0;

    if (git_oid_is_zero(tip) || git_repository_odb(&c.odb, repo))
        return missing(&c, "commit", tip);
    rc = git_revwalk_new(&w, repo);
    if (!rc)
        rc = git_revwalk_push(w, tip);
    if (!rc)
        rc = git_revwalk_hide_glob(w, "refs/*");
    while (!rc && !r) {
        rc = git_revwalk_next(&id, w);
        if (!rc)
            r = check_commit(&c, &id);
    }
    if (!r && rc != GIT_ITEROVER)
        r = missing(&c, "commit", tip);
    git_revwalk_free(w);
    git_odb_free(c.odb);
    free(c.seen.v);
    git_error_clear();
    return r;
}
