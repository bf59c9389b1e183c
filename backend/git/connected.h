/*
 * connected: is everything there that a new commit stands on? The indexer's
 * own check leaks what it parses (libgit2 1.5), and this one looks only at
 * what the repository did not have before, once.
 */
#ifndef GIT_CONNECTED_H
#define GIT_CONNECTED_H

#include "git/lib.h"

/* repo sees the new objects, old does not. -EBADMSG with words if a commit,
 * tree or file is missing or malformed. Blocking. */
int git_connected(git_repository *repo, git_odb *old, const git_oid *tip,
                  struct err *e);

#endif
