/*
 * lib: libgit2 as the files of git/ see it. Its names that are ours as well
 * (git_diff, git_commit) are git2_diff and git2_commit here. And what they
 * share: words of its errors, opening a repository by path, acting as the
 * owner of somebody's repository.
 */
#ifndef GIT_LIB_H
#define GIT_LIB_H

#define git_diff git2_diff
#define git_commit git2_commit
#include <git2.h>
#include <git2/sys/repository.h>
#include <git2/sys/transport.h>
#undef git_diff
#undef git_commit

#include <sys/types.h>

#include "git/git.h"

/* bounds for what hostile packs and remotes may cost */
#define PACK_BYTES_MAX ((int64_t)4 << 30)
#define PACK_OBJECTS_MAX 10000000u
#define OBJECT_BYTES_MAX ((int64_t)512 << 20)
#define PACK_UNPACKED_MAX ((int64_t)32 << 30)
#define REFS_MAX 100000u

/* "words: what libgit2 said"; picks ENOENT, EEXIST, ... by its code, EIO
 * where it says no more */
int lib_err(struct err *e, int rc, const char *fmt, ...) PRINTF(3, 4);

/* path is the work tree, its .git, or bare; no parent is searched */
int lib_open(const char *path, git_repository **out, struct err *e);

/*
 * As root, files in another user's repository are made as that user, so that
 * they can be removed by him and his links lead us nowhere he may not go. For
 * this thread only; always paired.
 */
struct lib_owner {
    uid_t uid;
    gid_t gid;
    mode_t mask;
    bool changed, masked;
};
void lib_owner_enter(const char *path, struct lib_owner *o);
void lib_owner_leave(struct lib_owner *o);

/* the commit of a branch (NULL: of HEAD, or the remote's as last fetched) */
int lib_branch_oid(git_repository *r, const char *branch, git_oid *out,
                   struct err *e);

/* the remote's HEAD in a cache */
#define LIB_REMOTE_HEAD "refs/courier/HEAD"

/* where log and diff look: the cache, or the path repository itself */
int lib_open_cached(const char *cache_dir, const char *repo,
                    git_repository **out, struct err *e);

/* keeps the cache of a remote as it is until closed; -1: nothing to keep */
int lib_cache_hold(const char *cache_dir, const char *repo);

/* callbacks for a remote with these credentials; ctx lives as long as they */
struct lib_remote {
    const char *url;
    const struct git_auth *auth;
    int code; /* errno of what went wrong, 0 if only libgit2 knows */
    bool agent_tried;
};
void lib_remote_callbacks(struct lib_remote *ctx, git_remote_callbacks *cb);
/* err for a failed call on a remote */
int lib_remote_err(struct err *e, int rc, const struct lib_remote *ctx);
int lib_remote_connect(git_remote *r, struct lib_remote *ctx, struct err *e);
/* of a connected remote; symbolic names resolved, broken ones left out */
int lib_remote_refs(git_remote *r, struct git_refs *out, struct err *e);

#endif
