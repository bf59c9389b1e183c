#include "fs/mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"

/* a touch of a mount point that answers takes no such time */
enum { ANSWER_MS = 10000 };

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

/* all that touches the mount point; where nobody answers it waits for ever */
static int check(const char *dir, char **path, struct err *e)
{
    struct stat st;

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

/* ---- who doesn't answer ---- */

/* what the kernel makes of it, but without looking: no ".", "..", "//" */
static char *absolute(const char *dir)
{
    AUTO_FREE char *cwd = *dir == '/' ? NULL : getcwd(NULL, 0);
    AUTO_FREE char *all = xasprintf("%s/%s", cwd ? cwd : "", dir);
    char *rest = all, *out = xmalloc(strlen(all) + 1), *end = out;

    for (char *w = strsep(&rest, "/"); w; w = strsep(&rest, "/")) {
        if (!strcmp(w, "..")) {
            while (end > out && *--end != '/')
                ;
        } else if (*w && strcmp(w, ".")) {
            size_t n = strlen(w);

            *end++ = '/';
            memcpy(end, w, n);
            end += n;
        }
    }
    *end = 0;
    return out;
}

/* is that process a courierfs for this mount point? A relative one can't be
 * told: the daemon has left the directory it was started in */
static bool serves(const char *pid, const char *dir)
{
    AUTO_FREE char *file = xasprintf("/proc/%s/cmdline", pid);
    AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
    AUTO_FREE char *given = NULL;
    char line[8192];
    const char *name, *last;
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

    if (n < 2)
        return false;
    line[n] = line[n - 1] = 0;
    name = strrchr(line, '/');
    last = memrchr(line, 0, (size_t)n - 1);
    if (strcmp(name ? name + 1 : line, "courierfs") || !last || last[1] != '/')
        return false;
    given = absolute(last + 1);
    return !strcmp(given, dir);
}

static pid_t holder(const char *dir)
{
    AUTO_FREE char *path = absolute(dir);
    DIR *d = opendir("/proc");
    int64_t pid = 0, n;
    struct dirent *de;

    for (de = d ? readdir(d) : NULL; de && !pid; de = readdir(d))
        if (text_int(de->d_name, 2, INT32_MAX, &n) && n != getpid() &&
            serves(de->d_name, path))
            pid = n;
    if (d)
        closedir(d);
    return (pid_t)pid;
}

static bool is_stopped(pid_t pid)
{
    AUTO_FREE char *file = xasprintf("/proc/%d/stat", (int)pid);
    AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
    char line[256];
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
    const char *state;

    line[n < 0 ? 0 : n] = 0;
    state = strrchr(line, ')');
    return state && (state[2] == 'T' || state[2] == 't');
}

static int no_answer(const char *dir, struct err *e)
{
    pid_t pid = holder(dir);

    if (!pid)
        return err_set(e, ETIMEDOUT,
                       "the mount point %s does not answer: what is mounted "
                       "there hangs",
                       dir);
    if (is_stopped(pid))
        return err_set(e, ETIMEDOUT,
                       "the mount point %s does not answer: courierfs (pid "
                       "%d) is mounted there and is stopped; kill -CONT %d "
                       "lets it go on",
                       dir, (int)pid, (int)pid);
    return err_set(e, ETIMEDOUT,
                   "the mount point %s does not answer: courierfs (pid %d) "
                   "is mounted there and hangs; kill -9 %d ends it",
                   dir, (int)pid, (int)pid);
}

/* ---- asked by a process that may be left behind ---- */

static void ask(int to, const char *dir)
{
    AUTO_FREE char *path = NULL;
    struct err e = {0};
    int r = check(dir, &path, &e);
    const char *text = r ? e.text : path;

    fd_write_all(to, &r, sizeof(r));
    fd_write_all(to, text, strlen(text));
}

/* all that is said until the end of file; false when time is over */
static bool hear(int from, struct buf *out)
{
    int64_t end = mono_ms() + ANSWER_MS;
    struct pollfd p = {.fd = from, .events = POLLIN};
    char part[512];
    ssize_t n = 1;

    while (n && mono_ms() < end) {
        if (poll(&p, 1, (int)(end - mono_ms())) <= 0)
            continue;
        n = read(from, part, sizeof(part));
        if (n > 0)
            buf_add(out, part, (size_t)n);
    }
    return !n;
}

int mount_check(const char *dir, char **path, struct err *e)
{
    AUTO_BUF struct buf b = {0};
    int fds[2], r;
    bool heard;
    pid_t pid;

    *path = NULL;
    pid = pipe2(fds, O_CLOEXEC) ? -1 : fork();
    if (pid < 0)
        return err_set(e, errno, "the mount point %s can't be looked at: %s",
                       dir, strerror(errno));
    if (!pid) {
        ask(fds[1], dir);
        _exit(0);
    }
    close(fds[1]);
    heard = hear(fds[0], &b);
    close(fds[0]);
    /* one that waits in the kernel may not even die */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, heard ? 0 : WNOHANG);
    if (!heard)
        return no_answer(dir, e);
    if (b.n <= sizeof(r))
        return err_set(e, EIO, "the mount point %s can't be looked at", dir);
    memcpy(&r, b.p, sizeof(r));
    if (r)
        return err_set(e, -r, "%s", b.p + sizeof(r));
    *path = xstrdup(b.p + sizeof(r));
    return 0;
}
