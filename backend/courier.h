/*
 * courier: the whole backend as the file system sees it. Objects (projects,
 * sandboxes, runs, ...), what can be read of them, what can be commanded, and
 * one callback that tells what changed. It knows no paths, inodes or FUSE.
 *
 * Queries (view, stream, list, find, doc_*, wait) read the local record only,
 * never block on the network, and may be called on any one thread at a time
 * per process (the FUSE loop's). Commands return at once; their `done` comes
 * after the commit that makes them durable (or when they were refused), on
 * the writer's thread: it must not block and must not call back into courier.
 *
 * After each commit, first `changed` is called with everything that the
 * commit changed, then the `done`s of its commands, in order.
 */
#ifndef COURIER_H
#define COURIER_H

#include "base/base.h"

struct courier;

/* ---- objects ---- */

enum obj_kind {
    OBJ_ROOT = 1, /* id 0 */
    OBJ_PROJECT,
    OBJ_SANDBOX,
    OBJ_RUN,
    OBJ_STEP,
    OBJ_EXEC,
    OBJ_KINDS
};
struct oid {
    enum obj_kind kind;
    int64_t id;
};

/* what of an object can change; a view names those it shows */
enum aspect {
    ASPECT_STATUS = 1 << 0, /* status, reason (status of root, project) */
    ASPECT_AGENT = 1 << 1,
    ASPECT_DOCS = 1 << 2,     /* config, prompt, env, keys: any document */
    ASPECT_MESSAGES = 1 << 3, /* the streams messages and messages.jsonl */
    ASPECT_LOG = 1 << 4,
    ASPECT_SETUP = 1 << 5,
    ASPECT_EVENTS = 1 << 6,
    ASPECT_ERRORS = 1 << 7,
    ASPECT_ERROR = 1 << 8,
    ASPECT_EXPIRES = 1 << 9,
    ASPECT_INFO = 1 << 10, /* info.json: whatever of the record changed */
    ASPECT_USAGE = 1 << 11,
    ASPECT_PR = 1 << 12,
    ASPECT_LEARN = 1 << 13,
    ASPECT_BRANCH = 1 << 14,
    ASPECT_DIFF = 1 << 15,
    ASPECT_CTL = 1 << 16,   /* outcomes of commands */
    ASPECT_NAMES = 1 << 17, /* objects listed in it came, went, moved */
    ASPECT_BOARD = 1 << 18,
    ASPECT_SALVAGE = 1 << 19,
    ASPECT_PROGRESS = 1 << 20, /* progress, steps, timeline of a run */
    ASPECT_OUT = 1 << 21,      /* stdout of an exec */
    ASPECT_ERR = 1 << 22,      /* stderr of an exec */
    ASPECT_QUEUE = 1 << 23,    /* messages queued or done: wait/idle, done */
    ASPECT_HOST = 1 << 24,     /* local.env, limits */
    ASPECT_GONE = 1 << 25,     /* the object was purged */
};
/* the name of the file that shows this aspect, for wait/change: "status",
 * "agent", "messages", ...; NULL for what has none */
const char *aspect_name(enum aspect a);

struct courier_change {
    struct oid o;
    uint64_t aspects;
};
typedef void (*courier_changed_fn)(void *ctx, const struct courier_change *c,
                                   size_t n);

/* ---- life ---- */

struct courier_options {
    const char *data;       /* the data directory, exists, 0700 */
    const char *backend;    /* "auto", "e2b", "local" */
    const char *self_dir;   /* directory of the courierfs binary */
    const char *mount;      /* where it will be mounted (for checks) */
    const char *mounted_by; /* for the README and status: user name */
    courier_changed_fn changed;
    void *ctx;
};
/*
 * Opens the record (lock, migrations, integrity check), starts all threads
 * and resumes jobs. The caller is the daemon's final process. Failures, each
 * with its sentence: -EBUSY (in use by another daemon), -EPROTO (from a newer
 * version), -EACCES, -EROFS, -ENOSPC, -EIO (damaged).
 * Reads and wipes the provider variables of the environment.
 */
int courier_open(const struct courier_options *o, struct courier **out,
                 struct err *e);
/* checks what can be known before daemonising, changes nothing */
int courier_probe(const char *data, struct err *e);
/*
 * A new master key for the stored keys of a record that no daemon uses.
 * COURIER_PASSPHRASE opens the old one; COURIER_NEW_PASSPHRASE protects the
 * new one: unset as before, empty not at all. Cut short, the old one holds.
 */
int courier_rotate_key(const char *data, struct err *e);
/* ends all threads; running sandboxes go on. Blocks a few seconds at most. */
void courier_close(struct courier *c);
/* "local (no E2B key)" or "e2b (key of the environment)" for the start line;
 * owned by the caller */
char *courier_backend_words(struct courier *c);
/* the file system tells how inotify is offered, for `status` */
void courier_set_inotify(struct courier *c, const char *words);

/* asks to shut down (echo shutdown > ctl): called by the engine, handled by
 * the file system's main loop. all is done before the callback. */
void courier_on_shutdown(struct courier *c, void (*fn)(void *ctx), void *ctx);

/* ---- views: small texts made when asked for ---- */

enum view {
    /* root */
    VIEW_ROOT_STATUS = 1,
    VIEW_LOCAL_ENV,
    VIEW_ROOT_BOARD,
    VIEW_ROOT_ERRORS,
    VIEW_ROOT_USAGE,
    VIEW_ROOT_USAGE_JSONL,
    VIEW_ROOT_USAGE_CSV,
    VIEW_ROOT_CTL,
    /* project */
    VIEW_PROJECT_STATUS,
    VIEW_PROJECT_BOARD,
    VIEW_PROJECT_ERRORS,
    VIEW_PROJECT_USAGE,
    VIEW_PROJECT_USAGE_JSONL,
    VIEW_PROJECT_USAGE_CSV,
    VIEW_PROJECT_CTL,
    VIEW_SANDBOXES_CTL,
    VIEW_RUNS_CTL,
    VIEW_LEARNINGS_CTL,
    VIEW_LEARNINGS_ACTIVE, /* target of the symlink */
    VIEW_ATTEMPTS,
    /* sandbox */
    VIEW_STATUS,
    VIEW_REASON,
    VIEW_AGENT,
    VIEW_CTL,
    VIEW_ERROR,
    VIEW_EXPIRES,
    VIEW_INFO,
    VIEW_USAGE,
    VIEW_USAGE_JSONL,
    VIEW_USAGE_CSV,
    VIEW_BRANCH,
    VIEW_DIFF,
    VIEW_PR_URL,
    VIEW_PR_NUMBER,
    VIEW_PR_STATUS,
    VIEW_PR_TITLE,
    VIEW_PR_CHECKS,
    VIEW_PR_REASON,
    VIEW_LEARNINGS,
    VIEW_LEARNINGS_STATUS,
    VIEW_RUN_LINK, /* name of the run it belongs to, "" if none */
    /* run */
    VIEW_RUN_STATUS,
    VIEW_RUN_REASON,
    VIEW_RUN_CTL,
    VIEW_RUN_INFO,
    VIEW_RUN_USAGE,
    VIEW_RUN_PR_URL,
    VIEW_RUN_PR_NUMBER,
    VIEW_RUN_PR_STATUS,
    VIEW_RUN_PR_TITLE,
    VIEW_RUN_PR_CHECKS,
    VIEW_RUN_PR_REASON,
    VIEW_RUN_LEARNINGS,
    VIEW_RUN_PROGRESS,
    VIEW_RUN_TIMELINE,
    /* step */
    VIEW_STEP_STATUS,
    VIEW_STEP_PROMPT,
    VIEW_STEP_OUTPUT,
    VIEW_STEP_VERDICT,
    VIEW_STEP_FEEDBACK,
    VIEW_STEP_SCORE,
    VIEW_STEP_SANDBOX, /* name of its sandbox, "" if none */
    /* exec */
    VIEW_EXEC_CMD,
    VIEW_EXEC_STATUS,
    VIEW_EXEC_EXIT,
    VIEW_EXEC_LAST, /* of a sandbox: number of the newest, "" if none */
    VIEWS
};
/* appends the content; -ENOENT if the object is gone or does not have it */
int courier_view(struct courier *c, struct oid o, enum view v,
                 struct buf *out);
/* when that content last changed, ns; strictly grows with each change. As
 * long as it stays, so does the content. -ENOENT */
int64_t courier_view_mtime(struct courier *c, struct oid o, enum view v);
/* the aspects it depends on */
uint64_t courier_view_aspects(enum view v);

/* ---- streams: only grow ---- */

enum stream {
    STREAM_EVENTS = 1,     /* root, project, sandbox, run */
    STREAM_MESSAGES,       /* sandbox, run */
    STREAM_MESSAGES_JSONL, /* sandbox */
    STREAM_LOG,            /* sandbox */
    STREAM_SETUP,          /* sandbox */
    STREAM_OUT,            /* exec */
    STREAM_ERR,            /* exec */
    STREAM_EVENTS_OLD,     /* root: events.1, empty until a rotation */
    STREAMS
};
int courier_stream_stat(struct courier *c, struct oid o, enum stream s,
                        int64_t *size, int64_t *mtime_ns);
/* appends at most n bytes from off; fewer only at the end */
int courier_stream_read(struct courier *c, struct oid o, enum stream s,
                        int64_t off, size_t n, struct buf *out);
/* can nothing more come (the object has ended)? for follow/ */
bool courier_stream_ended(struct courier *c, struct oid o, enum stream s);
/* how often the root's events became events.1: names which of the two files
 * somebody has open */
int64_t courier_events_series(struct courier *c);
uint64_t courier_stream_aspects(enum stream s);

/* ---- lists of objects ---- */

enum list {
    LIST_PROJECTS = 1,   /* of root */
    LIST_PROJECTS_TRASH, /* of root */
    LIST_SANDBOXES,      /* of a project */
    LIST_RUNS,           /* of a project */
    LIST_TRASH,          /* of a project: sandboxes and runs */
    LIST_DRAFT,          /* of a project: by-status/... in this order */
    LIST_CREATING,
    LIST_RUNNING,
    LIST_PAUSED,
    LIST_KILLED,
    LIST_ERROR,
    LIST_STEPS, /* of a run */
    LIST_EXECS, /* of a sandbox */
    LISTS
};
/* row is a cookie > 0 that grows along the list; names are borrowed. The
 * callback returns false to stop. */
typedef bool (*courier_list_fn)(void *arg, int64_t row, const char *name,
                                struct oid o);
int courier_list(struct courier *c, enum list l, struct oid owner,
                 int64_t after, courier_list_fn fn, void *arg);
/* 0 and *out, or -ENOENT */
int courier_find(struct courier *c, enum list l, struct oid owner,
                 const char *name, struct oid *out);
/* where an object is now: its list (SANDBOXES, RUNS, TRASH, PROJECTS, ...),
 * owner and name (owned by the caller); -ENOENT when purged */
int courier_where(struct courier *c, struct oid o, enum list *l,
                  struct oid *owner, char **name);
/* creation and last change of names in it (mtime of a directory), ns */
int courier_times(struct courier *c, struct oid o, int64_t *created_ns,
                  int64_t *names_ns);

/* ---- commands; the result comes through done ---- */

/* code is 0 or a negative errno with e filled. made: the name of what was
 * made, or NULL; both borrowed */
typedef void (*courier_done)(void *arg, int code, const struct err *e,
                             const char *made);

enum ctl {
    CTL_ROOT = 1,
    CTL_PROJECT,
    CTL_SANDBOXES, /* object: the project */
    CTL_SANDBOX,
    CTL_RUNS, /* object: the project */
    CTL_RUN,
    CTL_LEARNINGS, /* object: the project */
    CTL_EXPIRES,   /* a sandbox's expires: a duration, a time, or "" */
    CTL_MESSAGE,   /* a sandbox's file `message`; only courier_body_* */
    CTLS
};
/*
 * Checks the grammar of one line (no newline, no state is looked at):
 * 0 complete, 1 a body follows (" <<"), -EINVAL or -EMSGSIZE with words.
 */
int courier_line_check(enum ctl which, const char *line, size_t n,
                       struct err *e);
/* the verbs of a ctl, their arguments and, after two blanks at least, what
 * they do, a line each; static */
const char *courier_ctl_help(enum ctl which);
/* the keys of config in lines of a manual; those marked * may change after the
 * start */
void courier_settings_help(struct buf *out);
/* a line as outcomes and errors quote it: printable, short, without a key */
void courier_line_quote(const char *line, size_t n, char out[64]);
/*
 * Carries out one complete line that has no body. Lines that share `failed`
 * (NULL: by itself; false at first, the caller's until all are done, who
 * doesn't read it) end with -ECANCELED once one of them was refused.
 */
void courier_command(struct courier *c, struct oid o, enum ctl which,
                     const char *line, size_t n, bool *failed,
                     courier_done done, void *arg);
/*
 * A line with a body (or the file message, line "message <<"): begin makes
 * the draft or counts the message as queued; done's `made` is NULL or the
 * name, and *id can be used after done(0). put replaces the whole body so far
 * and makes it durable (-EMSGSIZE above 1 MiB, nothing changes then). end is
 * the last close: the command is carried out; with no put before it, or with
 * drop, it is dropped. Bodies with a put survive a crash and are ended at the
 * next start.
 */
void courier_body_begin(struct courier *c, struct oid o, enum ctl which,
                        const char *line, size_t n, int64_t *id,
                        courier_done done, void *arg);
void courier_body_put(struct courier *c, int64_t id, const void *p, size_t n,
                      courier_done done, void *arg);
void courier_body_end(struct courier *c, int64_t id, bool drop,
                      courier_done done, void *arg);
/* may the file message be opened for writing now? 0, -EBUSY, -EPERM */
int courier_message_check(struct courier *c, struct oid o, struct err *e);
/* a command that the file system refused before it came to be one: told in
 * the outcomes of that ctl and in errors */
void courier_refused(struct courier *c, struct oid o, enum ctl which,
                     const char *line, size_t n, const struct err *e);
/* writes a line to /courier/errors (and the project's): path is as seen below
 * the mount. For refusals that the file system itself makes. */
void courier_error(struct courier *c, struct oid o, const char *path,
                   const char *text);

void courier_mkdir(struct courier *c, enum list l, struct oid owner,
                   const char *name, courier_done done, void *arg);
/* rmdir of an object in that list: to the trash, or in a trash: for good */
void courier_rmdir(struct courier *c, enum list l, struct oid o,
                   courier_done done, void *arg);
/* rename; between SANDBOXES/RUNS and TRASH, or within one list, or
 * PROJECTS and PROJECTS_TRASH. -EPERM between projects, -EEXIST taken */
void courier_rename(struct courier *c, struct oid o, enum list from,
                    enum list to, struct oid to_owner, const char *name,
                    courier_done done, void *arg);

/* ---- stdin of a command ---- */

/* can it be written to now? 0; -EAGAIN: not before it has read what came
 * (ask again when something changes); -EBUSY: it has exited; -EHOSTDOWN: the
 * VM is paused; -ENOENT */
int courier_input_may(struct courier *c, struct oid exec, struct err *e);
/* from now on somebody has it open; -EBUSY (its input has ended, too),
 * -EHOSTDOWN. keeps: his close won't be the end of the input */
void courier_input_open(struct courier *c, struct oid exec, bool keeps,
                        courier_done done, void *arg);
/* takes all of it or nothing; it is brought to the command in order */
void courier_input_write(struct courier *c, struct oid exec, const void *p,
                         size_t n, courier_done done, void *arg);
/* done comes when what was written before is on the disk */
void courier_input_sync(struct courier *c, courier_done done, void *arg);
/* nobody has it open any more */
enum input_close {
    INPUT_END = 1, /* the command's stdin ends */
    INPUT_KEEP,    /* more may come later */
    INPUT_NOTHING, /* as if it had not been opened */
};
void courier_input_close(struct courier *c, struct oid exec,
                         enum input_close how);

/* ---- waits ---- */

enum wait_for {
    WAIT_RUNNING = 1,
    WAIT_PAUSED,
    WAIT_ENDED,
    WAIT_IDLE,
    WAIT_DONE, /* sandbox and run */
    WAIT_OK,   /* sandbox and run */
    WAIT_PR,
    WAIT_LEARNED,
    WAIT_EXITED, /* exec */
    WAITS
};
/* 0: it holds, the line (with newline) is appended; -EAGAIN: not yet;
 * -ECANCELED: never; -ENOENT: the object is gone */
int courier_wait(struct courier *c, struct oid o, enum wait_for w,
                 struct buf *out);

/* ---- documents: stored texts by owner and path ("config",
 * "personas/designer", "skills/x/SKILL.md", "keys/openai") ---- */

struct courier_doc {
    bool dir;
    int64_t size, mtime_ns;
    unsigned mode; /* 0600 or 0700 for files with the x bit */
    bool fixed;    /* always there (config, prompt, env, ...): reads as "" */
};
/* -ENOENT. Keys and secrets are as long as what reading them shows. */
int courier_doc_stat(struct courier *c, struct oid owner, const char *path,
                     struct courier_doc *out);
int courier_doc_read(struct courier *c, struct oid owner, const char *path,
                     int64_t off, size_t n, struct buf *out);
/* children of dir ("" is the owner's top); cookie as for courier_list */
typedef bool (*courier_doc_fn)(void *arg, int64_t row, const char *name,
                               const struct courier_doc *d);
int courier_doc_list(struct courier *c, struct oid owner, const char *dir,
                     int64_t after, courier_doc_fn fn, void *arg);
/*
 * May this document hold this text? The whole text, judged as at a save: 0,
 * -EINVAL with "line N: ...", -EFBIG. lines_only: judge only complete lines
 * by themselves (for a write that goes on). Pure.
 */
int courier_doc_check(struct courier *c, struct oid owner, const char *path,
                      const void *p, size_t n, bool lines_only, struct err *e);
/* may it be written or made at all now? -EBUSY, -EPERM, -EINVAL (name) */
int courier_doc_may(struct courier *c, struct oid owner, const char *path,
                    struct err *e);
/* the largest size of that document, bytes */
int64_t courier_doc_limit(const char *path);
/* saves the whole text if it passes the check and the state allows it.
 * mode 0 keeps the mode. A refused one leaves the old in force; its text is
 * not kept here (the file system shows NAME.rejected). */
void courier_doc_save(struct courier *c, struct oid owner, const char *path,
                      const void *p, size_t n, unsigned mode,
                      courier_done done, void *arg);
/* the same for a text that was removed a moment ago, with the time it had */
void courier_doc_put_back(struct courier *c, struct oid owner,
                          const char *path, const void *p, size_t n,
                          const struct courier_doc *was, courier_done done,
                          void *arg);
void courier_doc_chmod(struct courier *c, struct oid owner, const char *path,
                       unsigned mode, courier_done done, void *arg);
void courier_doc_mkdir(struct courier *c, struct oid owner, const char *path,
                       courier_done done, void *arg);
/* a file, or an empty directory */
void courier_doc_remove(struct courier *c, struct oid owner, const char *path,
                        courier_done done, void *arg);
/* within one owner; over an existing file; directories with all below them.
 * learnings/pending/x.md -> learnings/approved/x.md is the decision */
void courier_doc_rename(struct courier *c, struct oid owner, const char *from,
                        const char *to, courier_done done, void *arg);
/* learnings/active -> versions/N.md */
void courier_link_set(struct courier *c, struct oid project,
                      const char *target, courier_done done, void *arg);

/* ---- inside the VM (.files): on workers, with the network ---- */

struct courier_entry {
    char *name;   /* safe to show: never '/', NUL, "." or ".." */
    char *target; /* of a symlink, as the VM has it */
    char type;    /* 'f' 'd' 'l' '?' */
    int64_t size, mtime_ns;
    unsigned mode;
};
/* what came; all borrowed. entries for STAT (one) and LIST */
struct courier_files_result {
    int code;
    const struct err *e;
    const struct courier_entry *entries;
    size_t n;
    struct buf *data;                 /* READ; its bytes may be taken */
    int64_t total;                    /* READ: the file's size */
    const struct courier_blob *blobs; /* MANY: one for each of paths */
};
struct courier_blob {
    const char *p;
    size_t n;
    bool came; /* false: ask for it by itself */
};
typedef void (*courier_files_done)(void *arg,
                                   const struct courier_files_result *r);
enum files_op {
    FILES_STAT = 1,
    FILES_LIST,
    FILES_READ,  /* off, len */
    FILES_WRITE, /* the whole file from fd (owned by the call) */
    FILES_MKDIR,
    FILES_REMOVE, /* a file or an empty directory */
    FILES_RENAME, /* path -> path2 */
    FILES_MANY,   /* paths, small files, whole; one call for all of them. It
                     runs a program in the VM, which may not be able to */
    FILES_ATTRS,  /* attrs, by a program as well; what is gone is left out */
};
struct courier_attrs {
    char *path;
    bool set_mtime;   /* to mtime_ns, or to the VM's now if that is < 0 */
    int64_t mtime_ns; /* of a symlink: its own */
    int x;            /* 1, 0: executable or not; -1: as it is */
};
struct courier_files_call {
    enum files_op op;
    const char *path, *path2; /* below /home/user, "" is the home itself */
    int64_t off, len;
    int fd;
    bool ahead; /* nobody waits yet: done after what is waited for */
    const char *const *paths;
    size_t n_paths;
    const struct courier_attrs *attrs;
    size_t n_attrs;
};
/* 0: done comes once, on a worker; or -EHOSTDOWN (not running) and it does
 * not come */
int courier_files(struct courier *c, struct oid sandbox,
                  const struct courier_files_call *call,
                  courier_files_done done, void *arg, struct err *e);
/* is the VM there to be looked into now? for lookups of .files */
bool courier_files_up(struct courier *c, struct oid sandbox);

#endif
