/*
 * repo: a sandbox's repository: what its config says, the clone at its start,
 * the branch's way home (a push, or a bundle for a path of this machine), its
 * diff, and what comes home as files. Shared by repo.c, salvage.c,
 * salvagefiles.c and pr.c. Blocking, for workers, but for tx_*.
 */
#ifndef ENGINE_REPO_H
#define ENGINE_REPO_H

#include "engine/engine.h"

#define HOME_DIR "/home/user"
#define PROJECT_DIR "/home/user/project"
#define COURIER_DIR "/home/user/.courier"

struct repo {
    char *url; /* or path */
    bool path;
    char *base, *branch; /* base may be NULL until the clone */
    char *meant;         /* refused, so that branch is another; or NULL */
    char *token;         /* locked memory, or NULL */
    struct git_auth auth;
};
/* 0, -ENOENT when the sandbox has none; free with repo_clear */
int repo_get(struct courier *c, struct sandbox *s, struct repo *r);
void repo_clear(struct repo *r);
/* the bare caches of remotes; owned */
char *repo_cache(struct courier *c);
/* fetches the branch and keeps its diff in the record; 0 or why not (-ENOENT:
 * the branch is not there) */
int repo_diff(struct courier *c, struct sandbox *s, struct repo *r,
              struct err *e);
/* main, master, the default, the base: never written to unless asked for */
bool repo_protects(const struct repo *r, const struct git_refs *refs,
                   const char *branch);
/* the name beside the one that was meant, for that commit; owned */
char *repo_beside(const struct repo *r, const char *sha);
/* said: "BRANCH SHA...", of the work's own push. Is that the branch beside
 * the one that was meant, which was refused? Then it goes on there */
void repo_pushed_to(struct courier *c, const struct sandbox *s, struct repo *r,
                    const char *said);
/* a line for setup.log */
void repo_log(struct courier *c, int64_t sandbox, const char *fmt, ...)
    PRINTF(3, 4);

/* ---- pr.c ---- */

/* is there one, of the branch where the work is? */
bool pr_there(const struct sandbox *s);
/* a pull request is wanted: `creating`, unless there is one */
void tx_pr_mark(struct tx *tx, const struct sandbox *s);
/* that, and the job that makes it; title "": made up */
void tx_pr(struct tx *tx, struct courier *c, const struct sandbox *s,
           const char *title);

/* ---- salvage.c ---- */

enum {
    WORK_PUSH = 1, /* else it comes home as files */
    WORK_END = 2,  /* nothing comes after this: what is too large, too */
};
/*
 * Commits and pushes what is in the VM; what can't be pushed comes home into
 * DATA/salvage/ID. words: how it went, for `reason`; "" when there was
 * nothing. *saved: nothing of the project is here only, but for what words
 * say.
 */
int work_save(struct courier *c, struct sandbox *s, const struct e2b_target *t,
              struct e2b_cancel *cancel, int how, struct buf *words,
              bool *saved, struct err *e);

/* ---- salvagefiles.c: DATA/salvage/ID ---- */

struct salvage {
    struct courier *c;
    int64_t sandbox;
    const struct e2b_target *t;
    struct e2b_cancel *cancel;
    int64_t room;      /* bytes that may still come home */
    const char *meant; /* of struct repo; borrowed, or NULL */
};
struct salvaged {
    bool bundle;       /* PREFIXcommits.bundle is there */
    struct buf files;  /* their names, ", " between */
    struct buf missed; /* what did not fit, printable */
};
void salvaged_clear(struct salvaged *f);
/* one repository of the VM as files of that prefix, whole or not at all;
 * branch: the bundle's name for what HEAD is */
int salvage_export(struct salvage *g, const char *dir, const char *branch,
                   const char *prefix, struct salvaged *out, struct err *e);
char *salvage_file(struct courier *c, int64_t sandbox, const char *prefix,
                   const char *name); /* its path; owned */
/* removes what is there of a prefix: it is on the remote by now */
void salvage_drop(struct courier *c, int64_t sandbox, const char *prefix);
bool salvage_any(struct courier *c, int64_t sandbox);
/* the files go when the sandbox's row has gone; in its transaction */
void tx_salvage_forget(struct tx *tx, int64_t sandbox);

#endif
