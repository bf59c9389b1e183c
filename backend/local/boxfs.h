/*
 * boxfs: the files of a box by path. Paths are resolved by the kernel inside
 * the box's root (openat2, RESOLVE_IN_ROOT) and never by string work: what a
 * link says in there can't lead out. It knows nothing of HTTP.
 *
 * Between boxfs_enter and boxfs_leave the calling thread has the rights of the
 * box's user and no others (when the host runs as root; else it has them
 * anyway), so what is made belongs to that user, and files of /proc or /sys
 * that would reach the machine are refused by the kernel. /proc, /sys and
 * control groups are never written. The pair must be on one thread.
 *
 * Paths: absolute ones are kept, others are under the user's home; "" is the
 * home; "~" and "~/x" expand. Functions return descriptors or 0, or -errno
 * with words; none waits but for the disk (fifos and devices aren't opened).
 */
#ifndef LOCAL_BOXFS_H
#define LOCAL_BOXFS_H

#include "local/host.h"

#include <sys/stat.h>

struct boxfs {
    struct box *b; /* borrowed */
    bool as_root;
    uid_t uid;
    gid_t gid;
    uid_t root_uid;
    const char *home; /* "/home/user" or "/root" */
    bool switched;
    gid_t groups[64];
    int ngroups;
};

/* user "" is the default one; -ENOENT if there is no such user */
int boxfs_user(const char *user, bool *as_root);
void boxfs_enter(struct boxfs *f, struct box *b, bool as_root);
void boxfs_leave(struct boxfs *f);

/* the absolute path (owned) that is meant; -EINVAL with words */
int boxfs_path(const struct boxfs *f, const char *path, char **out,
               struct err *e);

/* openat2 in the root; flags as of open(2), O_CLOEXEC is added */
int boxfs_open(const struct boxfs *f, const char *abs, int flags, mode_t mode);
/* a regular file for reading; -EISDIR, -ENXIO for other kinds */
int boxfs_read(const struct boxfs *f, const char *abs, struct stat *st);
/* a directory that can be listed */
int boxfs_dir(const struct boxfs *f, const char *abs);
/*
 * The directory that holds (or will hold) abs, and the last name; make makes
 * missing ones with mode 0755. -EINVAL if the path has no last name.
 */
int boxfs_parent(const struct boxfs *f, const char *abs, bool make,
                 char name[256]);
/* all missing directories of abs; *made tells if the last one is new */
int boxfs_mkdirs(const struct boxfs *f, const char *abs, bool *made);
/* what fd (even O_PATH) stands for, opened anew */
int boxfs_reopen(int fd, int flags);
/* is it on proc, sysfs, cgroup or the like? */
bool boxfs_kernel_file(int fd);
bool boxfs_network_file(int fd); /* NFS, FUSE, 9p, ... */

/* EntryInfo of dir/name (name "" is dir itself); shown is the path to tell */
int boxfs_entry(const struct boxfs *f, int dir, const char *name,
                const char *shown, json_t **out);
/* the same by path */
int boxfs_stat(const struct boxfs *f, const char *abs, json_t **out);

/*
 * A new content for a file: written beside it, then renamed over it, so that a
 * reader sees the old or the new one. Through a symbolic link it is written
 * in place. The names begin with UPLOAD_NEW or UPLOAD_OVER, by which
 * watchers know them.
 */
#define UPLOAD_NEW ".upload-new~"
#define UPLOAD_OVER ".upload-over~"
struct upload {
    int fd, dir;
    char name[256], tmp[64];
    mode_t mode;
};
/* the metadata of a file is its extended attributes of this prefix */
#define XATTR_META "user.e2b."
enum { META_KEY_MAX = 246, META_TOTAL_MAX = 4096 };
/* -EISDIR, -ENOSPC, ... */
int upload_begin(struct upload *u, const struct boxfs *f, const char *abs);
int upload_commit(struct upload *u);
void upload_abort(struct upload *u); /* also after commit; closes */

#endif
