/*
 * files: .files/, the agent's home inside the running VM. Every answer comes
 * from a worker that talks to the VM, so the request is parked until then
 * (a signal ends the wait); what was learned is used again for a second. A
 * file being written is kept in an unlinked file of the data directory and
 * sent as a whole at its flush, so that the VM never sees half of it.
 *
 * Names and symlinks come from the VM and are hostile: a link can never lead
 * out of .files/ on the host.
 *
 * files.c: names; vmlink.c: symlinks; vmdir.c: what is known of directories;
 * vmfile.c: open files and directories, and writing; vmread.c: reading;
 * vmtext.c: small files;
 * vmattr.c: times and modes; vmcall.c: the calls.
 */
#ifndef FS_FILES_H
#define FS_FILES_H

#include "fs/fs.h"

/* what was seen in a VM is taken for true that long, unless a turn or a
 * command ended there meanwhile */
enum { VM_FRESH_MS = 1000 };

struct vmcall;
/* on the loop; code is 0 or -errno */
typedef void (*vm_fn)(struct vmcall *k, int code);

/* one call to the VM, and a copy of its answer */
struct vmcall {
    fuse_req_t req; /* NULL: nobody waits any more */
    struct node *n; /* held; NULL if it concerns none */
    struct oid o;
    char *name, *path, *path2;
    struct handle *h;
    int fd;
    int64_t off, len;
    mode_t mode;
    struct fuse_file_info fi;
    vm_fn fn;
    void *arg;
    bool ahead;   /* nobody waits yet */
    char **paths; /* of FILES_MANY */
    size_t n_paths;
    struct courier_attrs *attrs; /* of FILES_ATTRS */
    size_t n_attrs;
    enum files_op op; /* under way */
    /* the answer */
    int code;
    char words[200];
    struct courier_entry *entries;
    size_t count;
    struct buf data;
    int64_t total;
    struct buf *blobs; /* of FILES_MANY; */
    bool *came;        /* and which of them */
    int64_t sent_at;
    uint64_t age; /* of FILES_READ: the VM's when it was sent; of FILES_STAT:
                     the directory's */
};
/* name may be NULL; the path is that of n, or of name below it */
struct vmcall *vmcall_new(fuse_req_t req, struct node *n, const char *name,
                          vm_fn fn);
/* one that no request waits for; arg is its fn's */
struct vmcall *vmcall_plain(struct oid o, const char *path, vm_fn fn,
                            void *arg);
/* asks; fn comes once, later */
void vmcall_send(struct vmcall *k, enum files_op op);
/* it waits for another one's answer; a signal ends the wait as well */
void vmcall_wait(struct vmcall *k);
void vmcall_waited(struct vmcall *k);
/* answers the request (if it waits still) with an error or 0 */
void vmcall_reply(struct vmcall *k, int code);
void vmcall_free(struct vmcall *k);
void vm_entries_free(struct courier_entry *v, size_t n);

/* ---- what is known of directories (vmdir.c) ---- */

/* a listing; what we change ourselves is changed in it. Entries keep their
 * places: one that is gone has type 0 */
struct vmlist {
    unsigned refs;
    struct courier_entry *v;
    size_t n, cap;
    uint32_t *slots; /* of a hash of the names: 1 + the place, 0: none */
    size_t n_slots;
};
void vmlist_unref(struct vmlist *l); /* NULL is allowed */
/* NULL if it has no such name */
const struct courier_entry *vmlist_find(const struct vmlist *l,
                                        const char *name);

enum vm_known { VM_UNKNOWN, VM_THERE, VM_ABSENT };
/* what is known of a path now, without asking, and as of when */
enum vm_known vmdir_peek(struct oid o, const char *path,
                         const struct courier_entry **e, int64_t *at);
/* somebody asked for a name in dir that wasn't known: is it time to list it
 * all? */
bool vmdir_worth(struct oid o, const char *dir);
/* the listing, held for fn: known, or asked for. Whoever lists a directory and
 * then one in it is taken for a walker: the next ones are asked for ahead.
 * lists: it is to be listed, not only asked for names */
typedef void (*vmdir_fn)(void *arg, int code, const char *words,
                         struct vmlist *l);
void vmdir_want(struct oid o, const char *dir, bool lists, vmdir_fn fn,
                void *arg);
/* what we did to path ourselves, once it is done */
void vmdir_put(struct oid o, const char *path, const struct courier_entry *e);
/* a file is there, of a size and time that must be asked for */
void vmdir_unsure(struct oid o, const char *path);
/* the same for whatever it is, if it is there */
void vmdir_forget_one(struct oid o, const char *path);
void vmdir_del(struct oid o, const char *path);
void vmdir_moved(struct oid o, const char *from, const char *to);
/* nothing of that directory and what is below, of that VM, is known now */
void vmdir_forget(struct oid o, const char *dir);
void vmdir_drop(struct oid o);
void vmdir_gone(struct oid o); /* nor will be */
/* grows with what is changed in path's directory */
uint64_t vmdir_changes(struct oid o, const char *path);
/* what the VM said when there were that many changes */
void vmdir_learn(struct oid o, const char *path, const struct courier_entry *e,
                 uint64_t changes);
/* sets what isn't told by an entry that is known */
struct courier_entry *vmdir_entry(struct oid o, const char *path);
/* grows with each vmdir_drop */
uint64_t vmdir_age(struct oid o);
/* the regular files that a walker who was at path comes to next, as far as
 * they are known and wanted; paths owned by the caller */
struct vm_ahead {
    char *path;
    int64_t size, mtime;
};
typedef bool (*vm_wanted_fn)(struct oid o, const char *path, int64_t size,
                             int64_t mtime);
size_t vmdir_next_files(struct oid o, const char *path, vm_wanted_fn wanted,
                        struct vm_ahead *out, size_t max);

/* ---- open files ---- */

/* a part of a file, as it was a moment ago */
struct vmwindow {
    struct buf b;
    int64_t off, at, total;
    uint64_t age;
};
struct vmread;
struct vmfile {
    unsigned refs;       /* the handle, and what is being fetched for it */
    struct vmlist *list; /* of a directory */
    size_t list_n;       /* how much of it is shown */
    int fd;              /* what is being written; -1: only read */
    bool dirty, emptied;
    bool set_mtime; /* with the next upload: struct courier_attrs */
    int64_t mtime_ns;
    int x;
    /* of a reader: what was read last and what comes next */
    struct vmwindow now, next;
    struct vmread *reads; /* waiting */
    bool fetching;
    int64_t fetch_off, fetch_len;
    int64_t next_off; /* where a reader in a row goes on */
    int64_t step;     /* how much is fetched at once */
};
void vmfile_unref(struct vmfile *f);
/* vmread.c */
void vm_read_file(fuse_req_t req, struct handle *h, size_t size, off_t off);
void vm_read_free(struct vmfile *f);
/* what its reads waited for has come, or has to be asked for alone */
void vm_read_text(struct vmfile *f);
void vm_read_again(struct vmfile *f);
/* the whole of a small file, if there is a cheap way: there (b is owned by
 * the caller), or waits: one of the two above will be called */
struct vm_text {
    bool there, waits;
    struct buf b;
};
struct vm_text vm_text_get(struct vmfile *f, struct node *n);
void vm_text_gone(struct oid o);

bool vm_is(const struct node *n);
/* does the VM run? */
bool vm_up(struct oid o);
/* what a symlink at path (below the home) may show */
void vm_link_text(const char *path, const char *target, struct buf *out);
/* what the VM said of n, asked at that time */
void vm_learn(struct node *n, const struct courier_entry *e, int64_t at);
bool vm_fresh(const struct node *n);
/* for how long the kernel may believe it, and that it is there; in seconds */
void vm_dir_changed(struct node *n);
double vm_good_for(const struct node *n);
double vm_named_for(const struct node *n);
const struct row *vm_row(char type); /* NULL: not shown */

void vm_lookup(fuse_req_t req, struct node *dir, const char *name);
void vm_getattr(fuse_req_t req, struct node *n, struct handle *h);
void vm_setattr(fuse_req_t req, struct node *n, struct handle *h,
                const struct stat *st, int to_set);
void vm_readlink(fuse_req_t req, struct node *n);
/* an object changed: what may have changed in its VM is asked anew */
void vm_changed(const struct courier_change *c);
void vm_mkdir(fuse_req_t req, struct node *dir, const char *name);
void vm_remove(fuse_req_t req, struct node *dir, const char *name);
void vm_rename(fuse_req_t req, struct node *from, const char *name,
               struct node *to, const char *newname, bool replace);
void vm_create(fuse_req_t req, struct node *dir, const char *name, mode_t mode,
               struct fuse_file_info *fi);
void vm_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi);
void vm_readdir(fuse_req_t req, struct handle *h, size_t size, off_t off);
void vm_closedir(struct handle *h);
/* ---- times and modes (vmattr.c) ----
 * Programs set them one by one, a program in the VM does it for many: they
 * count at once, and are sent a moment later. */

void vm_set_attrs(fuse_req_t req, struct node *n, struct handle *h,
                  const struct stat *st, int to_set);
/* copies the path */
void vm_attrs_note(struct oid o, const struct courier_attrs *a);
/* those of a path that the VM hasn't got yet, or NULL */
const struct courier_attrs *vm_attrs_of(struct oid o, const char *path);
/* k is about to change a path: true if it has to wait, and it is sent then */
bool vm_attrs_hold(struct vmcall *k, enum files_op op);
void vm_attrs_gone(struct oid o);
int vm_attrs_timeout(void); /* ms until vm_attrs_tick is due; -1 never */
void vm_attrs_tick(void);

/* changes the size of a file that nobody has open, or that h is */
void vm_resize(fuse_req_t req, struct node *n, struct handle *h, off_t size);
/* does it hold what the VM hasn't got yet? h may be NULL */
bool vm_unsent(const struct handle *h);
/* what is known without asking the VM */
int vm_attr(struct node *n, struct handle *h, struct stat *st);

#endif
