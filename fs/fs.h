/*
 * fs: what the files of this directory share: the mount, open files, parked
 * reads. One thread, the loop, owns all of it and runs every request; no
 * function here may block. Whoever else has something to say (the writer,
 * workers, the notifier) posts to the inbox of notify.h.
 *
 * A request is answered exactly once, now or later. An answer that waits for
 * a change is a park; one that waits for a commit is a call.
 */
#ifndef FS_FS_H
#define FS_FS_H

#include "fs/node.h"
#include "fs/notify.h"

struct fs {
    struct courier *c;
    struct fuse_session *se;
    uid_t uid;
    gid_t gid;
    char *data;
    const char *mount;
    char *mounted_by;
    int64_t started_ns;
    bool ending;    /* no park is taken any more */
    int commanders; /* controls that are open for writing */
    pid_t toucher;  /* the child whose SETATTRs mean nothing; 0 none */
    bool inotify;
};
extern struct fs fs;

/* ---- open files ---- */

struct control;
struct docfile;
struct vmfile;
struct input;

struct handle {
    struct node *n;
    int flags;
    /* a view, a rejected text, a wait that came true */
    struct buf text;
    bool ready;       /* text is what is to be read */
    int spoilt;       /* -errno: a write failed, nothing of it counts */
    bool unsaved;     /* of a document: since its last flush, */
    uint64_t writer;  /* and the process that did; 0 anyone */
    int64_t shown_at; /* change time of what was read last; poll */
    int64_t read_to;  /* streams: how far it was read; poll */
    uint64_t changes; /* wait/change: aspects not told yet */
    struct control *ctl;
    struct docfile *doc;
    pid_t pid; /* of doc and vm: who opened it */
    struct vmfile *vm;
    struct input *input;
    bool wrote, refused; /* input: any write at all */
    struct fuse_pollhandle *ph;
    bool listed;                /* in obj->polled */
    struct handle *poll_next;   /* of obj->polled */
    struct object *obj;         /* held while listed */
    struct handle *prev, *next; /* of all that are open */
};
struct handle *handle_of(const struct fuse_file_info *fi);
struct handle *handle_new(struct node *n, const struct fuse_file_info *fi);
/* answers the open with it, or frees it when nobody is there any more */
void handle_reply(fuse_req_t req, struct handle *h, struct fuse_file_info *fi);
void handle_free(struct handle *h);
/* an open file of that node through which that process writes, or NULL */
struct handle *handle_writing(const struct node *n, pid_t pid);
/* from now on it hears of its object's changes (wait/change) */
void handle_listen(struct handle *h);
bool handle_writes(const struct handle *h);
bool handle_reads(const struct handle *h);

/* what a kind of file does; NULL: not for this kind */
struct file_ops {
    void (*open)(fuse_req_t, struct node *, struct fuse_file_info *);
    void (*read)(fuse_req_t, struct handle *, size_t, off_t);
    void (*write)(fuse_req_t, struct handle *, const char *, size_t, off_t,
                  const struct fuse_file_info *);
    void (*flush)(fuse_req_t, struct handle *, const struct fuse_file_info *);
    void (*fsync)(fuse_req_t, struct handle *);
    void (*release)(struct handle *);
    unsigned (*poll)(struct handle *); /* what is ready now */
};
extern const struct file_ops view_ops, stream_ops, follow_ops, wait_ops,
    change_ops, control_ops, message_ops, doc_ops, rejected_ops, vm_ops,
    input_ops;

/* how long a stream is and when it grew; -ESTALE: it is gone */
int stream_stat(const struct node *n, int64_t *size, int64_t *mtime_ns);

/* ---- parked reads ---- */

struct park {
    fuse_req_t req;
    struct handle *h;
    size_t size;
    off_t off;
    struct object *obj;
    struct park *next, *prev;
};
/* keeps a read until its object changes; EAGAIN if the file does not wait */
void park_read(fuse_req_t req, struct handle *h, size_t size, off_t off);
/* an object changed: its parked reads are tried again */
void park_wake(const struct courier_change *c);
void park_end_all(int err);

/* the same for writes to the stdin of a command */
void input_changed(const struct courier_change *c);
void input_end_all(int err);

/* remembers whom to wake; takes ph */
void poll_watch(struct handle *h, struct fuse_pollhandle *ph);
void poll_wake(struct object *obj);
void poll_forget(struct handle *h);

/* ---- attributes and answers ---- */

/* 0 or -errno (-ESTALE: it is gone) */
int attr_fill(struct node *n, struct handle *h, struct stat *st);
double attr_timeout(const struct node *n);
void reply_attr(fuse_req_t req, struct node *n, struct handle *h);
/* looks the name up and answers as lookup does */
void reply_entry_of(fuse_req_t req, struct node *dir, const char *name);
void reply_entry(fuse_req_t req, struct node *n);
void entry_fill(struct node *n, struct fuse_entry_param *e); /* not attr */
void reply_bytes(fuse_req_t req, const struct buf *b, size_t size, off_t off);
bool from_toucher(fuse_req_t req); /* see touch.h */
/* err is negative or 0 */
void reply_code(fuse_req_t req, int code);
/* what a write after one that failed with code gets. The kernel cuts a large
 * write into several and swallows the error of all but the first, so that a
 * size that is too large has to be said again. */
int code_again(int code);
/* a refusal of our own: told in errors, then answered */
void refuse(fuse_req_t req, const struct node *n, int code, const char *why);
/* the same of a name below dir */
void refuse_name(fuse_req_t req, const struct node *dir, const char *name,
                 int code, const char *why);

/* ---- names ---- */

/* what name means below dir: 0 and *k (its path in *path, owned by the
 * caller), or -ENOENT, -ENAMETOOLONG */
int dir_find(struct node *dir, const char *name, struct key *k, char **path);
bool dir_holds_docs(const struct row *r);
void dir_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi);
void dir_readdir(fuse_req_t req, struct node *n, size_t size, off_t off,
                 struct fuse_file_info *fi);
int link_target(struct node *n, struct buf *out);
void dir_readlink(fuse_req_t req, struct node *n);
/* is a row with a condition there now? */
bool row_present(const struct row *r, struct oid o);
char *path_join(const char *dir, const char *name);

/* ---- objects ---- */

void object_mkdir(fuse_req_t req, struct node *dir, const char *name);
void object_rmdir(fuse_req_t req, struct node *dir, const char *name);
void object_rename(fuse_req_t req, struct node *from, const char *name,
                   struct node *to, const char *newname);
/* a plain command whose outcome answers the request */
void reply_when_done(int code, const struct err *e, const char *made,
                     void *req);

/* a call whose success is answered with the entry of that name */
void *entry_call(fuse_req_t req, struct node *dir, const char *name);

void control_touch(fuse_req_t req, struct node *n, const struct stat *st,
                   int to_set);

extern const struct fuse_lowlevel_ops fs_ops;
/* called on the loop once the kernel has said hello */
extern void (*fs_on_init)(void);

#endif
