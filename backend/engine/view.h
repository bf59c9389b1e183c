/*
 * view: the texts that are made when asked for. view.c has the table of them
 * all and those that are one column; the makers of the others are here. They
 * read the record on the caller's connection, never block, and show nothing
 * that changes with the clock alone.
 */
#ifndef ENGINE_VIEW_H
#define ENGINE_VIEW_H

#include "engine/engine.h"

/* appends the content for o; 0 or -ENOENT */
typedef int (*view_fn)(struct courier *c, struct db *d, struct oid o,
                       struct buf *out);

/* board.c: o is the root or a project */
int view_root_status(struct courier *c, struct db *d, struct oid o,
                     struct buf *out);
int view_project_status(struct courier *c, struct db *d, struct oid o,
                        struct buf *out);
int view_board(struct courier *c, struct db *d, struct oid o, struct buf *out);
int view_errors(struct courier *c, struct db *d, struct oid o,
                struct buf *out);

/* info.c */
int view_info(struct courier *c, struct db *d, struct oid o, struct buf *out);
int view_run_info(struct courier *c, struct db *d, struct oid o,
                  struct buf *out);

/* runview.c */
int view_run_progress(struct courier *c, struct db *d, struct oid o,
                      struct buf *out);
int view_run_timeline(struct courier *c, struct db *d, struct oid o,
                      struct buf *out);
int view_run_learnings(struct courier *c, struct db *d, struct oid o,
                       struct buf *out);
int view_attempts(struct courier *c, struct db *d, struct oid o,
                  struct buf *out);

/* one line of free text in a column: printable, without tabs */
void view_field(struct buf *out, const char *s);

#endif
