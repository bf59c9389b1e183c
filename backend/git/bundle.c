/* bundle: a bundle that came out of a VM, read, checked and taken in */
#include "git/connected.h"
#include "git/lib.h"
#include "git/packscan.h"
#include "base/text.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_MAX = 4 << 20 };

struct bundle {
    int fd;
    int64_t pack, end;    /* where the pack begins, the file ends */
    struct git_refs refs; /* full names */
    git_oid *need;        /* what the receiver must have */
    size_t need_n;
};

static void bundle_close(struct bundle *b)
{
    close_cleanup(&b->fd);
    git_refs_clear(&b->refs);
    free(b->need);
}

static int bad(struct err *e, const char *words)
{
    return err_set(e, EBADMSG, "the bundle is damaged: %s", words);
}

static bool parse_oid(const char *p, size_t n, git_oid *id)
{
    for (size_t i = 0; i < GIT_OID_HEXSZ; i++)
        if (i >= n || !memchr("0123456789abcdef", p[i], 16))
            return false;
    return !git_oid_fromstrn(id, p, GIT_OID_HEXSZ);
}

static int add_ref(struct bundle *b, const char *p, size_t n, struct err *e)
{
    struct git_refs *r = &b->refs;
    git_oid id;

    if (!parse_oid(p, n, &id) || n < GIT_OID_HEXSZ + 2 ||
        p[GIT_OID_HEXSZ] != ' ')
        return bad(e, "a line of its header makes no sense");
    if (r->n >= REFS_MAX)
        return bad(e, "too many branches");
    r->v = xrealloc(r->v, sizeof(*r->v) * (r->n + 1));
    git_oid_tostr(r->v[r->n].sha, sizeof(r->v[r->n].sha), &id);
    r->v[r->n].name = xmemdup0(p + GIT_OID_HEXSZ + 1, n - GIT_OID_HEXSZ - 1);
    r->n++;
    return 0;
}

static int add_need(struct bundle *b, const char *p, size_t n, struct err *e)
{
    git_oid id;

    if (!parse_oid(p, n, &id))
        return bad(e, "a prerequisite makes no sense");
    if (b->need_n >= REFS_MAX)
        return bad(e, "too many prerequisites");
    b->need = xrealloc(b->need, sizeof(*b->need) * (b->need_n + 1));
    b->need[b->need_n++] = id;
    return 0;
}

static int capability(const char *p, size_t n, struct err *e)
{
    static const char sha1[] = "@object-format=sha1";
    AUTO_BUF struct buf words = {0};

    if (n == sizeof(sha1) - 1 && !memcmp(p, sha1, n))
        return 0;
    text_printable(&words, p, n < 60 ? n : 60, 0);
    return err_set(e, ENOTSUP, "a bundle with %s can't be read",
                   buf_str(&words));
}

static int header_line(struct bundle *b, const char *p, size_t n,
                       struct err *e)
{
    if (*p == '@')
        return capability(p, n, e);
    if (*p == '-')
        return add_need(b, p + 1, n - 1, e);
    return add_ref(b, p, n, e);
}

/* lines until an empty one; then the pack */
static int parse_header(struct bundle *b, const char *p, size_t n,
                        struct err *e)
{
    const char *start = p, *end = p + n, *nl;

    if (n < 16 || (memcmp(p, "# v2 git bundle\n", 16) &&
                   memcmp(p, "# v3 git bundle\n", 16)))
        return err_set(e, EBADMSG, "this is not a git bundle");
    for (p += 16;; p = nl + 1) {
        int r;

        nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl)
            return bad(e, "its header does not end");
        if (nl == p)
            break;
        r = header_line(b, p, (size_t)(nl - p), e);
        if (r)
            return r;
    }
    b->pack = nl + 1 - start;
    return b->refs.n ? 0 : bad(e, "it names no branch");
}

static int read_header(struct bundle *b, struct err *e)
{
    size_t n = b->end < HEADER_MAX ? (size_t)b->end : HEADER_MAX;
    AUTO_FREE char *p = xmalloc(n + 1);
    size_t have = 0;

    while (have < n) {
        ssize_t got = pread(b->fd, p + have, n - have, (off_t)have);

        if (got < 0)
            return err_set(e, errno, "the bundle: %s", strerror(errno));
        if (!got)
            break;
        have += (size_t)got;
    }
    return parse_header(b, p, have, e);
}

static int bundle_open(const char *path, struct bundle *b, struct err *e)
{
    struct stat st;
    int r;

    memset(b, 0, sizeof(*b));
    b->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (b->fd < 0 || fstat(b->fd, &st)) {
        r = err_set(e, errno, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        r = err_set(e, EINVAL, "%s is not a regular file", path);
    } else if (st.st_size > PACK_BYTES_MAX) {
        r = err_set(e, EFBIG, "the bundle is larger than %lld GiB",
                    (long long)(PACK_BYTES_MAX >> 30));
    } else {
        b->end = st.st_size;
        r = read_header(b, e);
    }
    if (!r)
        r = pack_scan(b->fd, b->pack, b->end, e);
    if (r)
        bundle_close(b);
    return r;
}

int git_bundle_verify(const char *bundle, struct err *e)
{
    struct bundle b;
    int r = bundle_open(bundle, &b, e);

    if (!r)
        bundle_close(&b);
    return r;
}

/* ---- taking it in ---- */

struct intake {
    git_repository *repo;
    git_odb *odb;
    const char *branch;
    char *ref, *objects; /* refs/heads/BRANCH; the directory */
    char *room; /* where the pack waits until all is known to be well */
    git_oid tip;
};

static int all_needs(struct intake *t, const struct bundle *b, struct err *e)
{
    for (size_t i = 0; i < b->need_n; i++)
        if (!git_odb_exists(t->odb, &b->need[i]))
            return err_set(e, ENOENT,
                           "the repository lacks commit %.12s, "
                           "which the bundle builds on",
                           git_oid_tostr_s(&b->need[i]));
    return 0;
}

static int find_tip(struct intake *t, const struct bundle *b, struct err *e)
{
    const char *sha = git_refs_find(&b->refs, t->ref);

    if (!sha)
        return err_set(e, ENOENT, "the bundle has no branch %s", t->branch);
    return git_oid_fromstr(&t->tip, sha) ? bad(e, "a bad hash") : 0;
}

/* git's own name for such a directory: git gc removes what a crash leaves */
static int make_room(struct intake *t, struct err *e)
{
    AUTO_FREE char *pack = NULL;

    t->room = xasprintf("%s/tmp_objdir-courier-XXXXXX", t->objects);
    if (!mkdtemp(t->room)) {
        int code = errno;

        free(t->room);
        t->room = NULL;
        return err_set(e, code, "%s: %s", t->objects, strerror(code));
    }
    pack = xasprintf("%s/pack", t->room);
    if (mkdir(pack, 0700))
        return err_set(e, errno, "%s: %s", pack, strerror(errno));
    return 0;
}

static bool is_pack_file(const char *name)
{
    size_t n = strlen(name);

    return !strncmp(name, "pack-", 5) && n > 5 &&
           (!strcmp(name + n - 4, ".idx") || !strcmp(name + n - 5, ".pack"));
}

/* every file of the room: moved to the repository, or removed. A pack goes
 * before its index, so that no reader sees one without the other */
static int empty_room(struct intake *t, const char *suffix, bool move)
{
    AUTO_FREE char *dir = xasprintf("%s/pack", t->room);
    DIR *d = opendir(dir);
    struct dirent *de;
    int r = 0;

    while (d && (de = readdir(d))) {
        AUTO_FREE char *from = xasprintf("%s/%s", dir, de->d_name);
        AUTO_FREE char *to = xasprintf("%s/pack/%s", t->objects, de->d_name);
        size_t n = strlen(de->d_name), m = strlen(suffix);

        if (*de->d_name == '.')
            continue;
        if (!move)
            unlink(from);
        else if (is_pack_file(de->d_name) && n > m &&
                 !strcmp(de->d_name + n - m, suffix) && rename(from, to))
            r = -errno;
    }
    if (d)
        closedir(d);
    return r;
}

static int move_in(struct intake *t, struct err *e)
{
    AUTO_FREE char *pack = xasprintf("%s/pack", t->objects);
    int r;

    if (mkdir(pack, 0777) && errno != EEXIST)
        return err_set(e, errno, "%s: %s", pack, strerror(errno));
    r = empty_room(t, ".pack", true);
    if (!r)
        r = empty_room(t, ".idx", true);
    return r ? err_set(e, r, "%s: %s", pack, strerror(-r)) : 0;
}

static void clear_room(struct intake *t)
{
    AUTO_FREE char *pack = NULL;

    if (!t->room)
        return;
    empty_room(t, "", false);
    pack = xasprintf("%s/pack", t->room);
    rmdir(pack);
    rmdir(t->room);
    free(t->room);
}

static int append_all(git_indexer *idx, const struct bundle *b, struct err *e)
{
    AUTO_FREE char *p = xmalloc(1 << 16);
    git_indexer_progress stats = {0};
    int64_t off = b->pack;

    while (off < b->end) {
        ssize_t got = pread(b->fd, p, 1 << 16, off);
        int rc;

        if (got <= 0)
            return err_set(e, got ? errno : EIO, "the bundle can't be read");
        rc = git_indexer_append(idx, p, (size_t)got, &stats);
        if (rc)
            return lib_err(e, rc, "the bundle's pack");
        off += got;
    }
    if (stats.total_objects) {
        int rc = git_indexer_commit(idx, &stats);

        return rc ? lib_err(e, rc, "the bundle's pack") : 0;
    }
    return 0;
}

static int index_pack(struct intake *t, const struct bundle *b, struct err *e)
{
    AUTO_FREE char *dir = xasprintf("%s/pack", t->room);
    git_indexer *idx;
    int rc = git_indexer_new(&idx, dir, 0444, t->odb, NULL);

    if (rc)
        return lib_err(e, rc, "the bundle's pack");
    rc = append_all(idx, b, e);
    git_indexer_free(idx);
    if (rc)
        return rc;
    rc = git_odb_add_disk_alternate(t->odb, t->room);
    return rc ? lib_err(e, rc, "the bundle's pack") : 0;
}

static bool head_is(git_repository *r, const char *ref)
{
    git_reference *head = NULL;
    bool is = false;

    if (!git_reference_lookup(&head, r, "HEAD") &&
        git_reference_type(head) == GIT_REFERENCE_SYMBOLIC)
        is = !strcmp(git_reference_symbolic_target(head), ref);
    git_reference_free(head);
    return is;
}

/* the tree beside which the linked ones are */
static bool main_has(git_repository *r, const char *ref)
{
    git_repository *all = NULL;
    bool is = git_repository_is_worktree(r) &&
              !git_repository_open(&all, git_repository_commondir(r)) &&
              !git_repository_is_bare(all) && head_is(all, ref);

    git_repository_free(all);
    return is;
}

static bool checked_out(git_repository *r, const char *ref)
{
    git_strarray trees = {0};
    bool is =
        (!git_repository_is_bare(r) && head_is(r, ref)) || main_has(r, ref);

    if (!git_worktree_list(&trees, r)) {
        for (size_t i = 0; i < trees.count && !is; i++) {
            git_worktree *w = NULL;
            git_repository *wr = NULL;

            if (!git_worktree_lookup(&w, r, trees.strings[i]) &&
                !git_repository_open_from_worktree(&wr, w))
                is = head_is(wr, ref);
            git_repository_free(wr);
            git_worktree_free(w);
        }
        git_strarray_dispose(&trees);
    }
    git_error_clear();
    return is;
}

static int all_there(struct intake *t, struct err *e)
{
    git_odb *old = NULL;
    int rc = git_odb_open(&old, t->objects);

    rc = rc ? lib_err(e, rc, "%s", t->objects)
            : git_connected(t->repo, old, &t->tip, e);
    git_odb_free(old);
    return rc;
}

/* may the branch be moved to the tip? *old is what it is now, if *has */
static int check_forward(struct intake *t, git_oid *old, bool *has,
                         struct err *e)
{
    git2_commit *c;
    int rc = git_commit_lookup(&c, t->repo, &t->tip);

    if (rc)
        return lib_err(e, rc, "the bundle's branch %s", t->branch);
    git_commit_free(c);
    rc = git_reference_name_to_id(old, t->repo, t->ref);
    *has = !rc;
    if (rc && rc != GIT_ENOTFOUND)
        return lib_err(e, rc, "branch %s", t->branch);
    if (*has && git_oid_equal(old, &t->tip))
        return 0;
    if (checked_out(t->repo, t->ref))
        return err_set(e, EBUSY, "branch %s is checked out there", t->branch);
    if (!*has)
        return 0;
    rc = git_descends(t->repo, &t->tip, old);
    if (rc < 0)
        return lib_err(e, rc, "branch %s", t->branch);
    return rc ? 0
              : err_set(e, EEXIST,
                        "branch %s has commits there that the "
                        "sandbox lacks",
                        t->branch);
}

static int set_branch(struct intake *t, const git_oid *old, bool has,
                      struct err *e)
{
    git_reference *ref = NULL;
    int rc;

    git_repository_set_ident(t->repo, "courier", "courier@localhost");
    if (has)
        rc = git_reference_create_matching(&ref, t->repo, t->ref, &t->tip, 1,
                                           old, "courier: from a sandbox");
    else
        rc = git_reference_create(&ref, t->repo, t->ref, &t->tip, 0,
                                  "courier: from a sandbox");
    git_reference_free(ref);
    return rc ? lib_err(e, rc, "branch %s", t->branch) : 0;
}

static int take_in(struct intake *t, const struct bundle *b, struct err *e)
{
    git_oid old;
    bool has = false;
    int r = all_needs(t, b, e);

    if (!r)
        r = find_tip(t, b, e);
    if (!r)
        r = make_room(t, e);
    if (!r)
        r = index_pack(t, b, e);
    if (!r)
        r = all_there(t, e);
    if (!r)
        r = check_forward(t, &old, &has, e);
    if (r || (has && git_oid_equal(&old, &t->tip)))
        return r;
    r = move_in(t, e);
    if (!r)
        git_odb_refresh(t->odb);
    return r ? r : set_branch(t, &old, has, e);
}

static int apply(const struct bundle *b, const char *into, const char *branch,
                 char sha[41], struct err *e)
{
    struct intake t = {.branch = branch};
    git_buf objects = {0};
    int r = lib_open(into, &t.repo, e), rc;

    if (r)
        return r;
    rc = git_repository_odb(&t.odb, t.repo);
    if (!rc)
        rc = git_repository_item_path(&objects, t.repo,
                                      GIT_REPOSITORY_ITEM_OBJECTS);
    if (rc) {
        r = lib_err(e, rc, "%s", into);
    } else {
        t.ref = xasprintf("refs/heads/%s", branch);
        t.objects = xmemdup0(objects.ptr, objects.size);
        if (objects.size && t.objects[objects.size - 1] == '/')
            t.objects[objects.size - 1] = 0;
        r = take_in(&t, b, e);
    }
    if (!r && sha)
        git_oid_tostr(sha, 41, &t.tip);
    git_buf_dispose(&objects);
    git_odb_free(t.odb);
    git_repository_free(t.repo);
    clear_room(&t);
    free(t.ref);
    free(t.objects);
    return r;
}

int git_bundle_apply(const char *bundle, const char *into, const char *branch,
                     char sha[41], struct err *e)
{
    struct lib_owner owner;
    struct bundle b;
    int r = git_branch_check(branch, e);

    if (!r)
        r = bundle_open(bundle, &b, e);
    if (r)
        return r;
    lib_owner_enter(git_path(into), &owner);
    r = apply(&b, git_path(into), branch, sha, e);
    lib_owner_leave(&owner);
    bundle_close(&b);
    return r;
}
