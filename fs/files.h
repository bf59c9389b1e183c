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
 * files.c: names; vmfile.c: open files and directories; vmcall.c: the calls.
 */
#ifndef FS_FILES_H
#define FS_FILES_H

#include "fs/fs.h"

struct vmcall;
/* on the loop; code is 0 or -errno */
typedef void (*vm_fn)(struct vmcall *k, int code);

/* one call to the VM, and a copy of its answer */
struct vmcall {
    fuse_req_t req; /* NULL: nobody waits any more */
    struct node *n; /* held */
    char *name, *path, *path2;
    struct handle *h;
    int fd;
    int64_t off, len;
    mode_t mode;
    struct fuse_file_info fi;
    vm_fn fn;
    /* the answer */
    int code;
    char words[200];
    struct courier_entry *entries;
    size_t count;
    struct buf data;
    int64_t total;
};
/* name may be NULL; the path is that of n, or of name below it */
struct vmcall *vmcall_new(fuse_req_t req, struct node *n, const char *name,
                          vm_fn fn);
/* asks; fn comes once, maybe before this returns */
void vmcall_send(struct vmcall *k, enum files_op op);
/* answers the request (if it waits still) with an error or 0 */
void vmcall_reply(struct vmcall *k, int code);
void vmcall_free(struct vmcall *k);
/* takes the answer's entries out of it */
struct courier_entry *vmcall_take(struct vmcall *k, size_t *n);
void vm_entries_free(struct courier_entry *v, size_t n);

struct vmfile {
    struct courier_entry *list; /* of a directory */
    size_t n;
    int fd; /* what is being written; -1: only read */
    bool dirty, emptied;
    struct buf window; /* read ahead */
    int64_t window_off, window_at, total;
};

bool vm_is(const struct node *n);
/* what a symlink at path (below the home) may show */
void vm_link_text(const char *path, const char *target, struct buf *out);
/* what the VM said of n */
void vm_learn(struct node *n, const struct courier_entry *e);
const struct row *vm_row(char type); /* NULL: not shown */
/* a listing is remembered for a moment, until something is changed */
void vm_list_keep(struct node *dir, const struct courier_entry *v, size_t n);
void vm_list_drop(struct oid o);
void vm_reply_entry(struct vmcall *k, struct node *dir,
                    const struct courier_entry *e);

void vm_lookup(fuse_req_t req, struct node *dir, const char *name);
void vm_getattr(fuse_req_t req, struct node *n, struct handle *h);
void vm_setattr(fuse_req_t req, struct node *n, struct handle *h,
                const struct stat *st, int to_set);
void vm_readlink(fuse_req_t req, struct node *n);
void vm_mkdir(fuse_req_t req, struct node *dir, const char *name);
void vm_remove(fuse_req_t req, struct node *dir, const char *name);
void vm_rename(fuse_req_t req, struct node *from, const char *name,
               struct node *to, const char *newname);
void vm_create(fuse_req_t req, struct node *dir, const char *name, mode_t mode,
               struct fuse_file_info *fi);
void vm_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi);
void vm_readdir(fuse_req_t req, struct handle *h, size_t size, off_t off);
void vm_closedir(struct handle *h);
/* changes the size of a file that nobody has open, or that h is */
void vm_resize(fuse_req_t req, struct node *n, struct handle *h, off_t size);
/* what is known without asking the VM */
int vm_attr(struct node *n, struct handle *h, struct stat *st);

#endif
