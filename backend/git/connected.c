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

/* ---- commits, each once; what a shallow repository lacks is its end ---- */

struct todo {
    git_oid *v;
    size_t n, cap;
};

static void todo_add(struct todo *t, const git_oid *id)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 64;
        t->v = xrealloc(t->v, t->cap * sizeof(*t->v));
    }
    t->v[t->n++] = *id;
}

/* its tree is there, and so are its parents: those are looked at then */
static int check_commit(struct check *c, const git_oid *id, struct todo *t)
{
    git2_commit *commit;
    int r = 0;

    if (git_odb_exists(c->old, id))
        return 0;
    if (git_commit_lookup(&commit, c->repo, id))
        return missing(c, "commit", id);
    r = check_tree(c, git_commit_tree_id(commit), 0);
    for (unsigned i = 0; i < git_commit_parentcount(commit) && !r; i++) {
        const git_oid *parent = git_commit_parent_id(commit, i);

        if (!git_odb_exists(c->odb, parent))
            r = missing(c, "commit", parent);
        else if (seen_add(&c->seen, parent))
            todo_add(t, parent);
    }
    git_commit_free(commit);
    return r;
}

int git_connected(git_repository *repo, git_odb *old, const git_oid *tip,
                  struct err *e)
{
    struct check c = {.repo = repo, .old = old, .e = e};
    struct todo t = {0};
    int r = 0;

    if (git_oid_is_zero(tip) || git_repository_odb(&c.odb, repo))
        return missing(&c, "commit", tip);
    seen_add(&c.seen, tip);
    todo_add(&t, tip);
    while (t.n && !r) {
        git_oid id = t.v[--t.n];

        r = check_commit(&c, &id, &t);
    }
    free(t.v);
    git_odb_free(c.odb);
    free(c.seen.v);
    git_error_clear();
    return r;
}

/* those from tip that were not seen, each with its first parent after it;
 * fills out up to max, NULL: only sees them. Ends at wanted */
static size_t walk(git_repository *repo, struct seen *seen, const git_oid *tip,
                   const git_oid *wanted, git_oid *out, size_t max)
{
    struct todo t = {0};
    size_t n = 0;
    bool found = false;

    if (seen_add(seen, tip))
        todo_add(&t, tip);
    while (t.n && !found && n < max) {
        git_oid id = t.v[--t.n];
        git2_commit *commit;

        found = wanted && git_oid_equal(&id, wanted);
        if (git_commit_lookup(&commit, repo, &id))
            continue; /* beyond what a shallow repository has */
        if (out)
            out[n] = id;
        n++;
        for (unsigned i = git_commit_parentcount(commit); i--;)
            if (!git_oid_is_zero(git_commit_parent_id(commit, i)) &&
                seen_add(seen, git_commit_parent_id(commit, i)))
                todo_add(&t, git_commit_parent_id(commit, i));
        git_commit_free(commit);
    }
    free(t.v);
    git_error_clear();
    return wanted ? found : n;
}

size_t git_beyond(git_repository *repo, const git_oid *tip,
                  const git_oid *base, git_oid *out, size_t max)
{
    struct seen seen = {0};
    size_t n;

    walk(repo, &seen, base, NULL, NULL, SIZE_MAX);
    n = walk(repo, &seen, tip, NULL, out, max);
    free(seen.v);
    return n;
}

int git_descends(git_repository *repo, const git_oid *tip,
                 const git_oid *ancestor)
{
    struct seen seen = {0};
    size_t found;

    if (git_repository_is_shallow(repo) != 1)
        return git_oid_equal(tip, ancestor) ||
               git_graph_descendant_of(repo, tip, ancestor);
    found = walk(repo, &seen, tip, ancestor, NULL, SIZE_MAX);
    free(seen.v);
    return found != 0;
}
