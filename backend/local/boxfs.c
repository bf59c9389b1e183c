#include "local/boxfs.h"

#include "local/connect.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xfe534d42
#endif
#define CIFS_MAGIC 0xff534d42
#define FUSE_MAGIC 0x65735546

int boxfs_user(const char *user, bool *as_root)
{
    *as_root = user && !strcmp(user, "root");
    return !user || !*user || *as_root || !strcmp(user, "user") ? 0 : -ENOENT;
}

/*
 * The raw calls change this thread only; glibc's would change all of them.
 * Only the effective ids change, so the way back stays open.
 */
void boxfs_enter(struct boxfs *f, struct box *b, bool as_root)
{
    gid_t gid;

    memset(f, 0, sizeof(*f));
    f->b = b;
    f->as_root = as_root;
    f->home = as_root ? "/root" : "/home/user";
    box_ids(b, true, &f->root_uid, &gid);
    box_ids(b, as_root, &f->uid, &f->gid);
    if (geteuid() != 0 || f->uid == 0)
        return;
    f->ngroups = getgroups((int)ARRAY_LEN(f->groups), f->groups);
    if (f->ngroups < 0)
        f->ngroups = 0;
    if (syscall(SYS_setgroups, 0, NULL) ||
        syscall(SYS_setresgid, -1, f->gid, -1) ||
        syscall(SYS_setresuid, -1, f->uid, -1))
        log_msg(LOG_ERR, "can't take the ids of a box: %s", strerror(errno));
    f->switched = true;
}

void boxfs_leave(struct boxfs *f)
{
    if (!f->switched)
        return;
    f->switched = false;
    if (syscall(SYS_setresuid, -1, 0, -1) ||
        syscall(SYS_setresgid, -1, 0, -1) ||
        syscall(SYS_setgroups, f->ngroups, f->groups)) {
        log_msg(LOG_ERR, "can't give the ids of a box back: %s",
                strerror(errno));
        abort();
    }
}

/* ---- paths ---- */

int boxfs_path(const struct boxfs *f, const char *path, char **out,
               struct err *e)
{
    if (path[0] == '~' && path[1] && path[1] != '/')
        return err_set(e, EINVAL,
                       "failed to resolve path: cannot expand "
                       "user-specific home dir");
    if (path[0] == '~')
        path += path[1] ? 2 : 1;
    else if (path[0] == '/') {
        *out = xstrdup(path);
        return 0;
    }
    while (!strncmp(path, "./", 2))
        path += 2;
    if (!strcmp(path, "."))
        path = "";
    *out = *path ? xasprintf("%s/%s", f->home, path) : xstrdup(f->home);
    return 0;
}

int boxfs_open(const struct boxfs *f, const char *abs, int flags, mode_t mode)
{
    struct open_how how = {
        .flags =
            (uint64_t)(flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY)),
        .mode = flags & O_CREAT ? mode : 0,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd;

    if (!box_alive(f->b))
        return -ESHUTDOWN;
    do
        fd = (int)syscall(SYS_openat2, box_root_fd(f->b), *abs ? abs : "/",
                          &how, sizeof(how));
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return fd < 0 ? -errno : fd;
}

int boxfs_reopen(int fd, int flags)
{
    char self[64];
    int n;

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = open(self, flags | O_CLOEXEC | O_NOCTTY);
    return n < 0 ? -errno : n;
}

bool boxfs_kernel_file(int fd)
{
    struct statfs s;

    if (fstatfs(fd, &s))
        return true;
    switch ((unsigned long)s.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
        return true;
    }
    return false;
}

bool boxfs_network_file(int fd)
{
    struct statfs s;

    if (fstatfs(fd, &s))
        return false;
    switch ((unsigned long)s.f_type) {
    case NFS_SUPER_MAGIC:
    case FUSE_MAGIC:
    case V9FS_MAGIC:
    case CIFS_MAGIC:
    case SMB2_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
        return true;
    }
    return false;
}

int boxfs_read(const struct boxfs *f, const char *abs, struct stat *st)
{
    AUTO_CLOSE int fd = boxfs_open(f, abs, O_PATH, 0);

    if (fd < 0)
        return fd;
    if (fstat(fd, st))
        return -errno;
    if (S_ISDIR(st->st_mode))
        return -EISDIR;
    if (!S_ISREG(st->st_mode))
        return -ENXIO;
    if (boxfs_kernel_file(fd) && geteuid() == 0)
        return -EACCES;
    return boxfs_reopen(fd, O_RDONLY);
}

int boxfs_dir(const struct boxfs *f, const char *abs)
{
    return boxfs_open(f, abs, O_RDONLY | O_DIRECTORY, 0);
}

/* splits "dir/name///" at its last name; -EINVAL if that is none */
static int split(const char *abs, char **dir, char name[256])
{
    size_t end = strlen(abs), from;

    while (end > 1 && abs[end - 1] == '/')
        end--;
    from = end;
    while (from && abs[from - 1] != '/')
        from--;
    if (end - from > 255)
        return -ENAMETOOLONG;
    memcpy(name, abs + from, end - from);
    name[end - from] = 0;
    if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
        return -EINVAL;
    while (from > 1 && abs[from - 1] == '/')
        from--;
    *dir = from ? xmemdup0(abs, from) : xstrdup("/");
    return 0;
}

/* mode and owner of what was just made, through its descriptor */
static void adopt(const struct boxfs *f, int fd, mode_t mode)
{
    struct stat st;

    if (fchmod(fd, mode) == 0 && fstat(fd, &st) == 0 &&
        (st.st_uid != f->uid || st.st_gid != f->gid) &&
        fchown(fd, f->uid, f->gid))
        log_msg(LOG_DEBUG, "chown in a box: %s", strerror(errno));
}

/* opens the directory abs, making it and what is above it */
static int dir_made(const struct boxfs *f, const char *abs, int depth,
                    bool *made)
{
    AUTO_FREE char *up = NULL;
    AUTO_CLOSE int parent = -1;
    char name[256];
    int fd, n;

    fd = boxfs_open(f, abs, O_RDONLY | O_DIRECTORY, 0);
    if (fd == -EACCES) /* may be searched, not listed */
        fd = boxfs_open(f, abs, O_PATH | O_DIRECTORY, 0);
    if (fd != -ENOENT)
        return fd;
    if (depth > 256)
        return -ENAMETOOLONG;
    n = split(abs, &up, name);
    if (n)
        return n == -EINVAL ? -ENOENT : n;
    parent = dir_made(f, up, depth + 1, NULL);
    if (parent < 0)
        return parent;
    if (boxfs_kernel_file(parent))
        return -EACCES;
    if (mkdirat(parent, name, 0755)) {
        if (errno != EEXIST)
            return -errno;
        return boxfs_open(f, abs, O_RDONLY | O_DIRECTORY, 0);
    }
    if (made)
        *made = true;
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    adopt(f, fd, 0755);
    return fd;
}

int boxfs_mkdirs(const struct boxfs *f, const char *abs, bool *made)
{
    AUTO_CLOSE int fd = -1;

    *made = false;
    fd = dir_made(f, abs, 0, made);
    return fd < 0 ? fd : 0;
}

int boxfs_parent(const struct boxfs *f, const char *abs, bool make,
                 char name[256])
{
    AUTO_FREE char *up = NULL;
    int e = split(abs, &up, name);

    if (e)
        return e;
    return make ? dir_made(f, up, 0, NULL)
                : boxfs_open(f, up, O_PATH | O_DIRECTORY, 0);
}

/* ---- entries ---- */

static void permissions(mode_t m, char out[16])
{
    static const char rwx[] = "rwxrwxrwx";
    char *o = out;

    if (S_ISDIR(m))
        *o++ = 'd';
    if (S_ISLNK(m))
        *o++ = 'L';
    if (S_ISBLK(m) || S_ISCHR(m))
        *o++ = 'D';
    if (S_ISFIFO(m))
        *o++ = 'p';
    if (S_ISSOCK(m))
        *o++ = 'S';
    if (m & S_ISUID)
        *o++ = 'u';
    if (m & S_ISGID)
        *o++ = 'g';
    if (S_ISCHR(m))
        *o++ = 'c';
    if (m & S_ISVTX)
        *o++ = 't';
    if (o == out)
        *o++ = '-';
    for (int i = 0; i < 9; i++)
        *o++ = m & (0400u >> i) ? rwx[i] : '-';
    *o = 0;
}

static json_t *owner_name(const struct boxfs *f, uint32_t id, bool group)
{
    uid_t uid;
    gid_t gid;

    box_ids(f->b, false, &uid, &gid);
    if (id == (group ? gid : uid))
        return json_string("user");
    if (id == 0 || id == f->root_uid)
        return json_string("root");
    return json_sprintf("%u", id);
}

static json_t *time_text(const struct timespec *ts)
{
    char secs[32];
    size_t n;
    time_t t = ts->tv_sec;
    struct tm tm;

    if (!gmtime_r(&t, &tm))
        return json_string("1970-01-01T00:00:00Z");
    strftime(secs, sizeof(secs), "%Y-%m-%dT%H:%M:%S", &tm);
    n = strlen(secs);
    secs[n] = 0;
    return ts->tv_nsec ? json_sprintf("%s.%09ldZ", secs, ts->tv_nsec)
                       : json_sprintf("%sZ", secs);
}

/* where a descriptor is, as paths are inside the box; NULL if unknown */
static char *fd_path(const struct boxfs *f, int fd)
{
    char self[64], root[4096], path[4096];
    ssize_t n, m;

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = readlink(self, path, sizeof(path) - 1);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", box_root_fd(f->b));
    m = readlink(self, root, sizeof(root) - 1);
    if (n <= 0 || m <= 0)
        return NULL;
    path[n] = 0;
    root[m] = 0;
    if (m > 1 && !strncmp(path, root, (size_t)m) && path[m] == '/')
        return xstrdup(path + m);
    return xstrdup(path);
}

static const char *type_name(mode_t m)
{
    if (S_ISREG(m))
        return "FILE_TYPE_FILE";
    if (S_ISDIR(m))
        return "FILE_TYPE_DIRECTORY";
    return NULL;
}

/* type, mode and target of a link come from what it leads to */
static void entry_link(const struct boxfs *f, json_t *j, const char *shown)
{
    AUTO_CLOSE int fd = boxfs_open(f, shown, O_PATH, 0);
    AUTO_FREE char *target = NULL;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0) {
        target = fd_path(f, fd);
        if (type_name(st.st_mode))
            json_object_set_new(j, "type", json_string(type_name(st.st_mode)));
        json_object_set_new(j, "mode", json_integer(st.st_mode & 0777));
    }
    json_object_set_new(j, "symlinkTarget",
                        json_text(target ? target : shown));
}

/* metadata as uploads leave it; NULL if there is none */
static json_t *metadata(int dir, const char *name)
{
    char path[320], names[8192], value[META_TOTAL_MAX];
    json_t *j = NULL;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d%s%s", dir, *name ? "/" : "",
             name);
    n = *name ? llistxattr(path, names, sizeof(names))
              : listxattr(path, names, sizeof(names));
    for (char *k = names; n > 0 && k < names + n; k += strlen(k) + 1) {
        ssize_t m;

        if (strncmp(k, XATTR_META, sizeof(XATTR_META) - 1))
            continue;
        m = *name ? lgetxattr(path, k, value, sizeof(value) - 1)
                  : getxattr(path, k, value, sizeof(value) - 1);
        if (m < 0)
            continue;
        value[m] = 0;
        if (!j)
            j = json_object();
        if (text_utf8_valid(k, strlen(k)))
            json_object_set_new(j, k + sizeof(XATTR_META) - 1,
                                json_text(value));
    }
    return j;
}

int boxfs_entry(const struct boxfs *f, int dir, const char *name,
                const char *shown, json_t **out)
{
    const char *base = strrchr(shown, '/');
    char perm[16];
    struct stat st;
    json_t *j;

    if (fstatat(dir, name, &st,
                AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH)))
        return -errno;
    permissions(st.st_mode, perm);
    j = json_object();
    json_object_set_new(j, "name",
                        json_text(*name             ? name
                                  : base && base[1] ? base + 1
                                                    : shown));
    if (type_name(st.st_mode))
        json_object_set_new(j, "type", json_string(type_name(st.st_mode)));
    json_object_set_new(j, "path", json_text(shown));
    if (st.st_size)
        json_object_set_new(j, "size",
                            json_sprintf("%lld", (long long)st.st_size));
    if (st.st_mode & 0777)
        json_object_set_new(j, "mode", json_integer(st.st_mode & 0777));
    json_object_set_new(j, "permissions", json_string(perm));
    json_object_set_new(j, "owner", owner_name(f, st.st_uid, false));
    json_object_set_new(j, "group", owner_name(f, st.st_gid, true));
    json_object_set_new(j, "modifiedTime", time_text(&st.st_mtim));
    if (S_ISLNK(st.st_mode))
        entry_link(f, j, shown);
    if (S_ISREG(st.st_mode)) {
        json_t *meta = metadata(dir, name);

        if (meta)
            json_object_set_new(j, "metadata", meta);
    }
    *out = j;
    return 0;
}

int boxfs_stat(const struct boxfs *f, const char *abs, json_t **out)
{
    AUTO_CLOSE int fd = boxfs_open(f, abs, O_PATH | O_NOFOLLOW, 0);

    return fd < 0 ? fd : boxfs_entry(f, fd, "", abs, out);
}

/* ---- uploads ---- */

static void metadata_clear(int fd)
{
    char names[8192];
    ssize_t n = flistxattr(fd, names, sizeof(names));

    for (char *k = names; n > 0 && k < names + n; k += strlen(k) + 1)
        if (!strncmp(k, XATTR_META, sizeof(XATTR_META) - 1))
            fremovexattr(fd, k);
}

static int upload_in_place(struct upload *u, const struct boxfs *f,
                           const char *abs)
{
    struct stat st;

    u->fd = boxfs_open(f, abs, O_WRONLY | O_CREAT | O_NONBLOCK, 0644);
    if (u->fd < 0)
        return u->fd;
    if (fstat(u->fd, &st) || !S_ISREG(st.st_mode) || boxfs_kernel_file(u->fd))
        return -EACCES;
    metadata_clear(u->fd);
    return ftruncate(u->fd, 0) ? -errno : 0;
}

static int upload_beside(struct upload *u, const char *prefix)
{
    static _Atomic unsigned count;

    snprintf(u->tmp, sizeof(u->tmp), "%s%lx-%x", prefix,
             (unsigned long)now_ns(), count++);
    u->fd = openat(u->dir, u->tmp,
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return u->fd < 0 ? -errno : 0;
}

int upload_begin(struct upload *u, const struct boxfs *f, const char *abs)
{
    struct stat st;
    int e;

    memset(u, 0, sizeof(*u));
    u->fd = -1;
    u->mode = 0644;
    u->dir = boxfs_parent(f, abs, true, u->name);
    if (u->dir < 0)
        return u->dir == -EINVAL ? -EISDIR : u->dir;
    if (boxfs_kernel_file(u->dir))
        return -EACCES;
    if (fstatat(u->dir, u->name, &st, AT_SYMLINK_NOFOLLOW)) {
        e = errno == ENOENT ? upload_beside(u, UPLOAD_NEW) : -errno;
    } else if (S_ISDIR(st.st_mode)) {
        e = -EISDIR;
    } else if (S_ISLNK(st.st_mode)) {
        e = upload_in_place(u, f, abs);
    } else if (!S_ISREG(st.st_mode)) {
        e = -EACCES;
    } else {
        u->mode = st.st_mode & 07777;
        e = upload_beside(u, UPLOAD_OVER);
    }
    if (e == 0 && *u->tmp)
        adopt(f, u->fd, u->mode);
    return e;
}

int upload_commit(struct upload *u)
{
    if (!*u->tmp)
        return 0;
    if (renameat(u->dir, u->tmp, u->dir, u->name))
        return -errno;
    *u->tmp = 0;
    return 0;
}

void upload_abort(struct upload *u)
{
    if (*u->tmp && u->dir >= 0)
        unlinkat(u->dir, u->tmp, 0);
    *u->tmp = 0;
    close_cleanup(&u->fd);
    close_cleanup(&u->dir);
}
