/*
 * repo: a sandbox's repository: what its config says, the clone at its start,
 * the branch's way home (push, or a bundle for a path of this machine), its
 * diff. Shared by repo.c, salvage.c, pr.c. Blocking, for workers.
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
    char *token;         /* locked memory, or NULL */
    struct git_auth auth;
};
/* 0, -ENOENT when the sandbox has none; free with repo_clear */
int repo_get(struct courier *c, struct sandbox *s, struct repo *r);
void repo_clear(struct repo *r);
/* the bare caches of remotes; owned */
char *repo_cache(struct courier *c);
/* fetches the branch and keeps its diff in the record; 0 or why not */
int repo_diff(struct courier *c, struct sandbox *s, struct repo *r,
              struct err *e);
/* a line for setup.log */
void repo_log(struct courier *c, int64_t sandbox, const char *fmt, ...)
    PRINTF(3, 4);
/*
 * Commits and pushes what is in the VM; what can't be pushed comes home into
 * DATA/salvage/ID. words: how it went, for `reason`; "" when there was
 * nothing. *saved: something of the project is on its branch at the remote.
 */
int work_save(struct courier *c, struct sandbox *s,
              const struct e2b_target *t, struct e2b_cancel *cancel,
              struct buf *words, bool *saved, struct err *e);

#endif
