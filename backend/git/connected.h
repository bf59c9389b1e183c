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
/* commits of tip that base lacks, newest first, at most max; for a shallow
 * repository, which libgit2's walks don't know */
size_t git_beyond(git_repository *repo, const git_oid *tip,
                  const git_oid *base, git_oid *out, size_t max);
/* 1 if ancestor is one of tip's commits, or tip; also in a shallow repository.
 * 0, or libgit2's error */
int git_descends(git_repository *repo, const git_oid *tip,
                 const git_oid *ancestor);

#endif
