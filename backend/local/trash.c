#include "local/trash.h"

#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH = 64 };

struct bin {
    int top;          /* the directory that is to go */
    unsigned counter; /* of names given to what is moved up */
    int err;
};

static void empty(struct bin *b, int dir, int depth);

/* a subdirectory: emptied here, or moved to the top when it is deep */
static void remove_sub(struct bin *b, int dir, const char *name, int depth)
{
    char moved[32];
    struct stat st;
    int fd;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode)) {
        b->err = -EPERM;
        return;
    }
    fchmodat(dir, name, 0700, 0);
    if (depth >= DEPTH) {
        do
            snprintf(moved, sizeof(moved), ".moved-%u", b->counter++);
        while (faccessat(b->top, moved, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
        if (renameat(dir, name, b->top, moved) < 0 && !b->err)
            b->err = -errno;
        return;
    }
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        empty(b, fd, depth + 1);
    if (unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT && !b->err)
        b->err = -errno;
}

/* removes everything in dir (taken) */
static void empty(struct bin *b, int dir, int depth)
{
    DIR *d = fdopendir(dir);
    struct dirent *e;

    if (!d) {
        close(dir);
        return;
    }
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dir, e->d_name, 0) == 0 || errno == ENOENT)
            continue;
        remove_sub(b, dir, e->d_name, depth);
    }
    closedir(d);
}

int trash_remove(const char *path)
{
    struct bin b = {.top = -1};

    for (int i = 0; i < 1 << 20; i++) {
        unsigned before = b.counter;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
            return errno == ENOENT ? 0 : -errno;
        b.top = fd;
        b.err = 0;
        empty(&b, dup(fd), 0);
        close(fd);
        if (rmdir(path) == 0)
            return 0;
        if (b.counter == before)
            break; /* nothing was moved up, so nothing will change */
    }
    return b.err ? b.err : -ENOTEMPTY;
}

static int64_t measure(int dir, dev_t dev, int depth)
{
    DIR *d = fdopendir(dir);
    struct dirent *e;
    struct stat st;
    int64_t sum = 0;

    if (!d) {
        close(dir);
        return 0;
    }
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        sum +=
            (int64_t)st.st_blocks * 512 /
            (st.st_nlink && !S_ISDIR(st.st_mode) ? (int64_t)st.st_nlink : 1);
        if (S_ISDIR(st.st_mode) && st.st_dev == dev && depth < 200) {
            int fd = openat(dir, e->d_name,
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

            if (fd >= 0)
                sum += measure(fd, dev, depth + 1);
        }
    }
    closedir(d);
    return sum;
}

int64_t trash_measure(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0) {
        close_cleanup(&fd);
        return 0;
    }
    return measure(fd, st.st_dev, 0);
}
