/*
 * git: what courier does with repositories on the host's side (libgit2), and
 * the shell scripts that do it inside a sandbox. It never runs a command on
 * the host, never executes anything of a repository (no hooks, filters or
 * attributes), and knows no record and no VM. Blocking, for worker threads.
 */
#ifndef GIT_GIT_H
#define GIT_GIT_H

#include "base/base.h"

void git_init(void);
void git_exit(void);

/* credentials for one call; borrowed */
struct git_auth {
    const char *user;  /* "x-access-token" for GitHub */
    const char *token; /* or NULL */
};

/* the identity in this user's Git settings; each owned, NULL if not set */
void git_user(char **name, char **email);

/* ---- names ---- */

/* may this be a branch we make or push? -EINVAL with words ("main" and HEAD
 * are legal names; refuses options, refs/..., dots, control characters) */
int git_branch_check(const char *name, struct err *e);
bool git_is_path(const char *repo); /* a path of this machine (or file://) */
/* the local path of such a repo; points into repo */
const char *git_path(const char *repo);
/* of a linked work tree: the repository that it belongs to, if that knows it;
 * else NULL; owned. It must be seen where the work tree is cloned from. */
char *git_common_dir(const char *repo);
/* why a clone of that path may fail where only it is seen; static, or NULL */
const char *git_path_lacks(const char *repo);
int git_repo_check(const char *repo, struct err *e); /* scheme and shape */
/* https://github.com/o/r(.git) or git@github.com:o/r -> host, owner, name */
int git_forge_parts(const char *repo, char **host, char **owner, char **name);

/* ---- the remote ---- */

struct git_refs {
    char *head; /* the branch HEAD points to, or NULL (empty, detached) */
    struct git_ref {
        char *name; /* without refs/heads/ */
        char sha[41];
    } * v;
    size_t n;
};
int git_ls_remote(const char *repo, const struct git_auth *a,
                  struct git_refs *out, struct err *e);
void git_refs_clear(struct git_refs *r);
const char *git_refs_find(const struct git_refs *r, const char *branch);

/* ---- a bare cache of a remote: DIR/HASH.git ---- */

/* the cache of a remote: a bare repository, may not exist yet; owned by the
 * caller. A path repository has none: it is its own cache. */
char *git_cache_path(const char *cache_dir, const char *repo);
/* fetches branch and base (NULL: the remote's HEAD) into the cache, made if
 * missing. -ENOENT: no such branch or repository, -EACCES: the key (or its
 * lack), -EHOSTUNREACH, -ETIMEDOUT. git_ls_remote has the same errnos. */
int git_fetch(const char *cache_dir, const char *repo,
              const struct git_auth *a, const char *branch, const char *base,
              struct err *e);
/* removes caches that were not used for 30 days, and the longest unused ones
 * beyond max_bytes in all. Those in use, or of the last minutes, stay */
void git_cache_trim(const char *cache_dir, int64_t max_bytes);
struct git_commits {
    struct git_commit {
        char sha[41];
        char *subject, *author;
        int64_t time_ms;
    } * v;
    size_t n;
};
/* commits of branch that base lacks, newest first, at most max */
int git_log(const char *cache_dir, const char *repo, const char *branch,
            const char *base, size_t max, struct git_commits *out,
            struct err *e);
void git_commits_clear(struct git_commits *c);
/* unified diff of the merge base to branch, at most max bytes, printable only
 * where it was text */
int git_diff(const char *cache_dir, const char *repo, const char *branch,
             const char *base, size_t max, struct buf *out, struct err *e);

/* ---- bundles ---- */

/*
 * A bundle that came out of a VM: header checked, pack indexed (and so
 * verified) into the repository at path `into` (a bare cache or the user's
 * repository), then branch there is set to the bundle's ref of that name,
 * only forward (-EEXIST: it has commits that the bundle lacks). path_repo of
 * the user: only refs/heads/BRANCH is touched, never the work tree; a branch
 * that is checked out there is refused (-EBUSY).
 */
int git_bundle_apply(const char *bundle, const char *into, const char *branch,
                     char sha[41], struct err *e);
int git_bundle_verify(const char *bundle, struct err *e);

/* ---- scripts for the sandbox (bash), returned as text to run there; all
 * values are quoted by these functions ---- */

struct git_setup {
    const char *repo;   /* URL, or the path where it is bound in the box */
    const char *base;   /* branch to start from, NULL: remote HEAD */
    const char *branch; /* to make, or to go on with if the remote has it */
    const char *user_name, *user_email;
    const char *dir;  /* /home/user/project */
    bool credentials; /* a helper script gives the token: see below */
    bool shallow;
};
/* where the helper (git_script_credentials) must be, mode 0700, before a
 * clone with credentials; the clone makes git ask it about the repo's host */
#define GIT_CREDENTIAL_HELPER "/home/user/.courier/git-credential"
/*
 * May be run again after a crash at any point, and beside an agent's own files
 * in dir. Exit 0: the last line is "cloned\tSHA\tBRANCH" ("-" for what an
 * empty repository or a detached HEAD lacks), before it perhaps
 * "note\tWORDS". Exit 1: stderr says why.
 */
char *git_script_clone(const struct git_setup *s);
/*
 * Commits what is uncommitted and pushes (push true), for all repositories
 * below home. Prints one line a repository: "REPO\tDIR\tRESULT\tWORDS":
 *   pushed       all is on the remote; WORDS begin "BRANCH SHA12", one pair a
 *                pushed branch, ", " between; "; " and notes may follow
 *   nothing      there was nothing to save
 *   commit-only  committed here, not pushed (push false: "BRANCH SHA12", or
 *                there is no remote): export it
 *   failed       WORDS are git's: export it
 * A branch that refuses (or that has other commits) gets one beside it, named
 * BRANCH-SHA8. main, master and the remote's default are never pushed to
 * unless branch names them: `branch` is used. It is also used for what is on
 * the branch `meant` (NULL: none), which was refused before. fresh: what the
 * remotes have is asked anew, so that what was pushed once and is gone there
 * is pushed again. Hidden
 * directories of home and node_modules are not searched. Exit 0 always, but
 * for 1 with words on stderr where no script could work (no git, no space at
 * all). Tabs and newlines of names are shown as \t and \n. message: the commit
 * message.
 */
char *git_script_save(const char *home, const char *branch, const char *meant,
                      const char *message, bool push, bool fresh);
/*
 * After a save. Writes into OUT, as far as there is something: commits.bundle
 * (all that no remote has; its refs/heads/BRANCH is what HEAD or the save's
 * commit is), worktree.patch, untracked.tar of DIR; each at most max bytes;
 * ignored files left out. Prints "FILE\tBYTES" for each written, and
 * "left-out\tBYTES\tNAME" for what did not fit. Exit 1: stderr says why.
 */
char *git_script_export(const char *dir, const char *branch, const char *meant,
                        const char *out, int64_t max);
/* the git credential helper: reads the token from a file that exists only
 * while the VM lives (0600, outside the repository) */
char *git_script_credentials(const char *token_file);

/* ---- forge: pull requests through GitHub's REST API ---- */

struct forge {
    const char *api;   /* https://api.github.com, no slash at the end */
    const char *token; /* or NULL */
    const char *owner, *name;
};
struct forge_pr {
    int number;
    char *url, *title, *state; /* open, closed, merged */
    char *sha;                 /* the commit at its head */
    bool draft;
};
void forge_pr_clear(struct forge_pr *p);
struct forge_new {
    const char *head, *base, *title, *body;
    bool draft;
    const char *const *labels; /* NULL-ended or NULL */
};
/* the open PR of this head, -ENOENT if there is none */
int forge_find(const struct forge *f, const char *head, struct forge_pr *out,
               struct err *e);
/*
 * Creates, or adopts the open one: never two, also after an unclear answer. A
 * line in the body, which GitHub does not show, marks what we made; only such
 * a one gets our title and body when it is adopted. Labels that can't be set
 * are no failure. -EACCES key refused, -EAGAIN rate limited (words say until
 * when), -EINVAL refused with GitHub's words, -ENOENT no such repository;
 * anything else (-EIO, -EHOSTUNREACH, -ETIMEDOUT): unclear, call it again.
 */
int forge_open(const struct forge *f, const struct forge_new *n,
               struct forge_pr *out, struct err *e);
/* etag in/out (owned by the caller, may be NULL); 1: not modified, *out is
 * empty then */
int forge_get(const struct forge *f, int number, char **etag,
              struct forge_pr *out, struct err *e);
/* checks.c: what was run on a commit, check runs and statuses together */
struct forge_checks {
    int passed, failed, pending;
    char *names; /* of those that failed, ", " between; printable */
};
void forge_checks_clear(struct forge_checks *c);
/* etags in/out, owned by the caller, each may be NULL; 1: not modified, *out
 * is empty then; errnos of forge_open */
int forge_checks(const struct forge *f, const char *sha, char *etags[2],
                 struct forge_checks *out, struct err *e);
/* the API's base URL for a repository's host; owned by the caller */
char *forge_api_for(const char *host);

#endif
