/*
 * tree: the whole tree as one table. A row per file or directory: below
 * which row it stands, its name, what kind of file it is, what of the
 * backend it shows or takes, and one line of help. README is made from it.
 *
 * It knows names and kinds only: no inodes, no requests, no content. Rows
 * are constant; pointers to them are valid for ever, on any thread.
 */
#ifndef FS_TREE_H
#define FS_TREE_H

#include "courier.h"

enum kind {
    /* directories */
    K_DIR = 1, /* its rows and nothing else */
    K_OBJECT,  /* an object: its rows */
    K_LIST,    /* its rows and the objects of a list */
    K_LINKS,   /* symlinks to the objects of a list */
    K_DOCDIR,  /* documents, any depth */
    K_VMDIR,   /* a directory inside the VM */
    /* files */
    K_VIEW,
    K_STREAM,
    K_FOLLOW, /* a stream whose reads wait at its end */
    K_WAIT,
    K_CHANGE, /* wait/change */
    K_CONTROL,
    K_MESSAGE, /* all that is written through one open file is one body */
    K_INPUT,   /* the stdin of a command */
    K_DOC,
    K_REJECTED, /* NAME.rejected beside a document */
    K_VMFILE,
    K_README,
    /* symlinks */
    K_LINK,    /* to what a view names, or to a fixed place */
    K_MEMBER,  /* of a K_LINKS */
    K_DOCLINK, /* an editor's lock: memory only */
    K_VMLINK,
};

enum row_id {
    R_NONE,
    R_ROOT,
    R_PROJECTS,
    R_PROJECTS_TRASH,
    R_PROJECT,
    R_SANDBOXES,
    R_BYSTATUS,
    R_RUNS,
    R_LEARNINGS,
    R_TRASH,
    R_SANDBOX,
    R_SANDBOX_PR,
    R_EXECS,
    R_SANDBOX_WAIT,
    R_SANDBOX_FOLLOW,
    R_EXEC,
    R_EXEC_WAIT,
    R_RUN,
    R_RUN_PR,
    R_STEPS,
    R_RUN_WAIT,
    R_RUN_FOLLOW,
    R_STEP,
    /* what has no place of its own: found by name below others */
    R_DOCFILE,
    R_DOCSUB,
    R_DOCLINK,
    R_REJECTED,
    R_MEMBER,
    R_VMSUB,
    R_VMFILE,
    R_VMLINK,
    R_NAMED /* rows without a name here follow */
};

enum {
    ROW_UNLISTED = 1 << 0,
    ROW_LATER = 1 << 1,    /* not built: not there */
    ROW_HOLDS = 1 << 2,    /* documents are among its rows: scratch is taken */
    ROW_IF_SET = 1 << 3,   /* there only while its view is not empty */
    ROW_READONLY = 1 << 5, /* documents that the backend alone writes */
    ROW_LASTING = 1 << 6,  /* the name never means another file below its
                              object: the kernel may remember it */
    ROW_ROTATED = 1 << 7,  /* the root's events and events.1: a file keeps its
                              number and content when its name changes */
};

struct row {
    enum row_id parent;
    const char *name;
    enum kind kind;
    int what;         /* enum view, stream, list, wait_for or ctl, by kind */
    int shows;        /* the view of a control */
    const char *path; /* of a document in its owner; of a link: the target
                         with %s for what the view says */
    unsigned flags;
    const char *help;
};

const struct row *row_get(enum row_id id);
int row_index(const struct row *r); /* the same at every start */
int row_count(void);
const struct row *row_at(int index);
/* the row of that name below parent, or NULL */
const struct row *row_child(const struct row *parent, const char *name);
const struct row *row_of_object(enum obj_kind k);
bool row_is_dir(const struct row *r);
bool row_is_link(const struct row *r);
unsigned row_mode(const struct row *r); /* type and permissions */

/* the manual of the tree; without a mount it tells of /courier */
void tree_readme(struct buf *out, const char *mount, const char *mounted_by);

#endif
