#include "fs/touch.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/fs.h"

static const int64_t apart_ms = 50;       /* touches of one file */
static const int64_t lately_ms = 3600000; /* looked at within */
enum { QUEUE = 512, A_RUN = 16, PATH_BYTES = 4096 };

static int sock = -1;
static char *root;
static struct due {
    uint64_t ino;
    int64_t at;
} queue[QUEUE];
static size_t queued;

/* ---- the child ---- */

static void touch_path(const char *path)
{
    struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}};
    int fd;

    /* a time of its own, not "now", which needs the right to write; mtime
     * alone makes it a modification to watchers */
    clock_gettime(CLOCK_REALTIME, &t[1]);
    utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW);
    /* some (entr) only wait for a writer's close */
    fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
}

static void put_line(const char *path, const char *line)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0 && write(fd, line, strlen(line)) < 0)
        log_msg(LOG_DEBUG, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/*
 * Views may be opened for writing by root alone, so the child of others
 * becomes root in a user namespace that has them only: there it may do to
 * their files what the mode bits forbid. Where that isn't allowed, it does
 * without.
 */
static void become_root(uid_t uid, gid_t gid)
{
    AUTO_FREE char *uids = xasprintf("0 %u 1\n", (unsigned)uid);
    AUTO_FREE char *gids = xasprintf("0 %u 1\n", (unsigned)gid);

    if (!uid || unshare(CLONE_NEWUSER))
        return;
    prctl(PR_SET_DUMPABLE, 1); /* else these aren't ours */
    put_line("/proc/self/setgroups", "deny\n");
    put_line("/proc/self/uid_map", uids);
    put_line("/proc/self/gid_map", gids);
    prctl(PR_SET_DUMPABLE, 0);
}

static _Noreturn void child(int fd, pid_t parent)
{
    char path[PATH_BYTES + 1];
    ssize_t n;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "courier-touch");
    if (getppid() != parent || chdir("/"))
        _exit(1);
    if (fd != 3) {
        dup2(fd, 3);
        fd = 3;
    }
    close_range(4, ~0u, 0);
    /* it was forked before the daemon has taken the keys out of there */
    for (char **v = environ; *v; v++)
        explicit_bzero(*v, strlen(*v));
    for (int i = 0; i < 3; i++) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, i);
        if (null > 3)
            close(null);
    }
    become_root(geteuid(), getegid());
    while ((n = recv(fd, path, PATH_BYTES, 0)) > 0) {
        path[n] = 0;
        touch_path(path);
    }
    _exit(0);
}

/* ---- the daemon's side ---- */

int touch_start(void)
{
    pid_t parent = getpid();
    int fds[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return -errno;
    pid = fork();
    if (pid < 0) {
        close(fds[0]);
        close(fds[1]);
        return -errno;
    }
    if (!pid)
        child(fds[1], parent);
    close(fds[1]);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    sock = fds[0];
    fs.toucher = pid;
    return 0;
}

void touch_mounted(const char *mount)
{
    root = xstrdup(mount);
}

static bool shows_content(const struct row *r)
{
    switch (r->kind) {
    case K_LIST:
    case K_LINKS:
    case K_VIEW:
    case K_STREAM:
    case K_CONTROL:
    case K_DOC:
        return true;
    default:
        return false;
    }
}

void touch_changed(struct node *n)
{
    int64_t now = mono_ms();

    if (!root || n->touch_due || queued == QUEUE || !shows_content(n->row) ||
        !n->seen_at || now - n->seen_at > lately_ms)
        return;
    n->touch_due = true;
    queue[queued].ino = n->ino;
    queue[queued++].at =
        n->touched_at + apart_ms > now ? n->touched_at + apart_ms : now;
}

int touch_timeout(void)
{
    int64_t first = INT64_MAX, now = mono_ms();

    for (size_t i = 0; i < queued; i++)
        if (queue[i].at < first)
            first = queue[i].at;
    if (first == INT64_MAX)
        return -1;
    return first <= now ? 1 : (int)(first - now);
}

static void touch_node(struct node *n, int64_t now)
{
    AUTO_FREE char *words = node_words(n);
    AUTO_FREE char *path = xasprintf("%s/%s", root, words);

    n->touch_due = false;
    n->touched_at = now;
    if (strlen(path) <= PATH_BYTES)
        send(sock, path, strlen(path), MSG_NOSIGNAL);
}

void touch_run(void)
{
    int64_t now = mono_ms();
    size_t left = 0, did = 0;

    for (size_t i = 0; i < queued; i++) {
        struct node *n;

        if (queue[i].at > now || did == A_RUN) {
            queue[left++] = queue[i];
            continue;
        }
        n = node_find(queue[i].ino);
        did++;
        if (n)
            touch_node(n, now);
    }
    queued = left;
}

void touch_stop(void)
{
    if (sock >= 0)
        close(sock);
    sock = -1;
    if (fs.toucher) {
        kill(fs.toucher, SIGKILL);
        waitpid(fs.toucher, NULL, 0);
    }
    fs.toucher = 0;
    free(root);
    root = NULL;
    queued = 0;
}
