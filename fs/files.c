#include "fs/files.h"
#define DOWN(req) fuse_reply_err(req, EHOSTDOWN)
void vm_lookup(fuse_req_t req, struct node *dir, const char *name) { (void)dir; (void)name; DOWN(req); }
void vm_getattr(fuse_req_t req, struct node *n, struct handle *h) { reply_attr(req, n, h); }
void vm_setattr(fuse_req_t req, struct node *n, struct handle *h, const struct stat *st, int to_set) { (void)n; (void)h; (void)st; (void)to_set; DOWN(req); }
void vm_readlink(fuse_req_t req, struct node *n) { (void)n; DOWN(req); }
void vm_mkdir(fuse_req_t req, struct node *dir, const char *name) { (void)dir; (void)name; DOWN(req); }
void vm_remove(fuse_req_t req, struct node *dir, const char *name) { (void)dir; (void)name; DOWN(req); }
void vm_rename(fuse_req_t req, struct node *from, const char *name, struct node *to, const char *newname) { (void)from; (void)name; (void)to; (void)newname; DOWN(req); }
void vm_create(fuse_req_t req, struct node *dir, const char *name, mode_t mode, struct fuse_file_info *fi) { (void)dir; (void)name; (void)mode; (void)fi; DOWN(req); }
void vm_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi) { (void)n; (void)fi; DOWN(req); }
void vm_readdir(fuse_req_t req, struct handle *h, size_t size, off_t off) { (void)h; (void)size; (void)off; DOWN(req); }
void vm_closedir(struct handle *h) { (void)h; }
int vm_attr(struct node *n, struct handle *h, struct stat *st) { (void)n; (void)h; (void)st; return 0; }
const struct file_ops vm_ops = { 0 };
