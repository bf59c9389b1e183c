/*
 * files: .files/, the agent's home inside the running VM. Every answer comes
 * from a worker that talks to the VM, so every request here is parked until
 * then; what was learned is used again for a second. A file being written is
 * kept in an unlinked file and sent as a whole at its flush.
 *
 * Names and symlinks come from the VM and are hostile: a link can never lead
 * out of .files/ on the host.
 */
#ifndef FS_FILES_H
#define FS_FILES_H

#include "fs/fs.h"

void vm_lookup(fuse_req_t req, struct node *dir, const char *name);
void vm_getattr(fuse_req_t req, struct node *n, struct handle *h);
void vm_setattr(fuse_req_t req, struct node *n, struct handle *h,
                const struct stat *st, int to_set);
void vm_readlink(fuse_req_t req, struct node *n);
void vm_mkdir(fuse_req_t req, struct node *dir, const char *name);
void vm_remove(fuse_req_t req, struct node *dir, const char *name);
void vm_rename(fuse_req_t req, struct node *from, const char *name,
               struct node *to, const char *newname);
void vm_create(fuse_req_t req, struct node *dir, const char *name,
               mode_t mode, struct fuse_file_info *fi);
void vm_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi);
void vm_readdir(fuse_req_t req, struct handle *h, size_t size, off_t off);
void vm_closedir(struct handle *h);
/* what is known without asking the VM */
int vm_attr(struct node *n, struct handle *h, struct stat *st);

#endif
