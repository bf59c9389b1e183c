#include "fs/mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void mount_detach(const char *dir)
{
    char *const argv[] = {"fusermount3",          "-u", "-z", "-q", "--",
                          (char *)(uintptr_t)dir, NULL};
    posix_spawn_file_actions_t fa;
    pid_t pid;

    if (!geteuid() && !umount2(dir, MNT_DETACH | UMOUNT_NOFOLLOW))
        return;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    if (!posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ))
        waitpid(pid, NULL, 0);
    posix_spawn_file_actions_destroy(&fa);
}

/* can mkdir -p make it? */
static bool can_make(const char *dir)
{
    AUTO_FREE char *p = xstrdup(dir);
    char *up = p;

    do
        up = dirname(up);
    while (access(up, F_OK) && strcmp(up, ".") && strcmp(up, "/"));
    return !access(up, W_OK | X_OK);
}

static int missing(const char *dir, struct err *e)
{
    struct passwd *pw = getpwuid(geteuid());

    if (!can_make(dir) && pw)
        return err_set(e, ENOENT,
                       "the mount point %s does not exist; make "
                       "it with: sudo install -d -o %s %s",
                       dir, pw->pw_name, dir);
    return err_set(e, ENOENT,
                   "the mount point %s does not exist; make it "
                   "with: mkdir -p %s",
                   dir, dir);
}

static int first_entry(const char *dir, char **name)
{
    DIR *d = opendir(dir);
    struct dirent *de;

    if (!d)
        return -errno;
    *name = NULL;
    for (de = readdir(d); de && !*name; de = readdir(d))
        if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
            *name = xstrdup(de->d_name);
    closedir(d);
    return 0;
}

/* is something mounted there already? */
static bool is_mounted(const char *dir, const struct stat *st)
{
    AUTO_FREE char *up = xasprintf("%s/..", dir);
    struct stat ust;

    return !stat(up, &ust) &&
           (ust.st_dev != st->st_dev || ust.st_ino == st->st_ino);
}

static int check_empty(const char *dir, struct err *e)
{
    AUTO_FREE char *name = NULL;
    int r = first_entry(dir, &name);

    if (r)
        return err_set(e, -r, "the mount point %s: %s", dir, strerror(-r));
    if (name)
        return err_set(e, ENOTEMPTY,
                       "the mount point %s is not empty: it "
                       "holds %s, written while nothing was mounted",
                       dir, name);
    return 0;
}

/* does somebody answer there? A daemon that was just killed still holds the
 * mount for a moment: then the read fails once the kernel has noticed */
static bool answers(const char *dir)
{
    AUTO_FREE char *file = xasprintf("%s/status", dir);
    AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
    char c;

    if (fd >= 0)
        return read(fd, &c, 1) == 1;
    return errno != ENOTCONN && errno != ECONNABORTED;
}

int mount_check(const char *dir, char **path, struct err *e)
{
    struct stat st;

    *path = NULL;
    for (int i = 0;; i++) {
        if (stat(dir, &st) == 0) {
            if (!is_mounted(dir, &st) || answers(dir) || i > 40)
                break;
            sleep_ms(50);
            continue;
        }
        if (errno == ENOENT)
            return missing(dir, e);
        if ((errno != ENOTCONN && errno != ECONNABORTED) || i > 40)
            return err_set(e, errno, "the mount point %s: %s", dir,
                           strerror(errno));
        mount_detach(dir);
    }
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ENOTDIR, "the mount point %s is no directory", dir);
    if (is_mounted(dir, &st))
        return err_set(e, EBUSY,
                       "the mount point %s is busy: something is "
                       "mounted there already",
                       dir);
    *path = realpath(dir, NULL);
    if (!*path)
        return err_set(e, errno, "the mount point %s: %s", dir,
                       strerror(errno));
    if (access(*path, W_OK))
        return err_set(e, EACCES,
                       "the mount point %s is not yours to mount "
                       "on",
                       dir);
    return check_empty(*path, e);
}
