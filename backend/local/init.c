#include "local/init.h"

#include "base/base.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const rlim_t MAX_FILE = (rlim_t)10 << 30;

static struct {
    int sock, signals;
    uid_t base;
    rlim_t pids;
    int userns;
    int freezer_procs, freezer_state;
    bool own_net;
    sigset_t old_mask;
} in;

static void tell(const struct init_msg *m, int fd)
{
    struct iovec v = {(void *)m, sizeof(*m)};
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c = {0};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *cm;

        h.msg_control = c.room;
        h.msg_controllen = sizeof(c.room);
        cm = CMSG_FIRSTHDR(&h);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cm), &fd, sizeof(int));
    }
    while (sendmsg(in.sock, &h, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

static void answer(uint32_t seq, int result, int stage, int fd)
{
    struct init_msg m = {
        .kind = INIT_ANSWER, .seq = seq, .result = result, .stage = stage};

    tell(&m, fd);
}

/* ---- the user namespace of the box's processes, when we are root ---- */

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int rc;

    if (fd < 0)
        return -errno;
    rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

static int map_ids(pid_t pid)
{
    static const char *const files[] = {"uid_map", "gid_map"};
    char path[64], map[64];
    int rc = 0;

    snprintf(map, sizeof(map), "0 %u %d", in.base, BOX_UIDS);
    for (size_t i = 0; i < ARRAY_LEN(files) && !rc; i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
        rc = write_file(path, map);
    }
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    if (!rc) {
        in.userns = open(path, O_RDONLY | O_CLOEXEC);
        rc = in.userns < 0 ? -errno : 0;
    }
    return rc;
}

/* a child lives in a new user namespace just long enough to hold it */
static int make_userns(void)
{
    int up[2], down[2], rc;
    char c;
    pid_t pid;

    if (pipe2(up, O_CLOEXEC) < 0 || pipe2(down, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid < 0)
        return -errno;
    if (!pid) {
        close(down[1]);
        c = unshare(CLONE_NEWUSER) < 0 ? (char)errno : 0;
        if (write(up[1], &c, 1) == 1 && read(down[0], &c, 1) < 0)
            _exit(1);
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    if (read(up[0], &c, 1) != 1)
        rc = -EIO;
    else
        rc = c ? -c : map_ids(pid);
    close(up[0]);
    close(down[1]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return rc;
}

/* ---- the network of the box, when we are a plain user ---- */

static int raise_lo(void)
{
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_name = "lo"};

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
        return -errno;
    r.ifr_flags |= IFF_UP;
    return ioctl(fd, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
}

static int make_net(void)
{
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    int rc = unshare(CLONE_NEWNET) < 0 ? -errno : raise_lo();

    if (syscall(SYS_capget, &h, d) < 0)
        return -errno;
    d[0].effective &= ~(1u << CAP_SYS_ADMIN);
    d[0].permitted &= ~(1u << CAP_SYS_ADMIN);
    d[0].inheritable &= ~(1u << CAP_SYS_ADMIN);
    return syscall(SYS_capset, &h, d) < 0 ? -errno : rc;
}

/* ---- making a process ---- */

struct spawn {
    const struct init_req *req;
    char **argv, **env;
    const char *cwd;
    int io[3];
    int report; /* the errno goes here when exec fails */
};

static void fail(const struct spawn *s, int stage, int code)
{
    int32_t words[2] = {stage, code};

    if (write(s->report, words, sizeof(words)) < 0)
        _exit(126);
    _exit(127);
}

static void limit(int what, rlim_t soft)
{
    struct rlimit r;

    if (getrlimit((__rlimit_resource_t)what, &r) < 0)
        return;
    r.rlim_cur = r.rlim_max < soft ? r.rlim_max : soft;
    if (what != RLIMIT_NOFILE && r.rlim_max > soft)
        r.rlim_max = soft;
    setrlimit((__rlimit_resource_t)what, &r);
}

static void drop_caps(void)
{
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {{0}, {0}};

    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    syscall(SYS_capset, &h, d);
}

static int become(bool root)
{
    uid_t id = root ? 0 : BOX_UID;

    if (in.userns < 0) {
        drop_caps();
        return 0;
    }
    if (setns(in.userns, CLONE_NEWUSER) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        return -errno;
    if (!root)
        drop_caps();
    return 0;
}

static void take_io(const struct spawn *s)
{
    int io[3];

    for (int i = 0; i < 3; i++) {
        io[i] = s->io[i] >= 0 ? s->io[i] : open("/dev/null", O_RDWR);
        io[i] = fcntl(io[i], F_DUPFD, 16);
    }
    for (int i = 0; i < 3; i++)
        dup2(io[i], i);
}

static void run_in_path(const struct spawn *s)
{
    const char *path = "/usr/local/bin:/usr/bin:/bin";
    int code = ENOENT;

    for (char **e = s->env; *e; e++)
        if (strncmp(*e, "PATH=", 5) == 0)
            path = *e + 5;
    while (*path) {
        size_t n = strcspn(path, ":");
        char file[4096];

        if (n && (size_t)snprintf(file, sizeof(file), "%.*s/%s", (int)n, path,
                                  s->argv[0]) < sizeof(file)) {
            execve(file, s->argv, s->env);
            if (errno != ENOENT && errno != ENOTDIR)
                code = errno;
        }
        path += n + (path[n] ? 1 : 0);
    }
    errno = code;
}

/* as the real one, which always has a shell in between: what can't be started
 * is told by the shell's words and its exit status */
static void run_by_shell(const struct spawn *s)
{
    size_t n = 0;

    while (s->argv[n])
        n++;

    char *argv[n + 5];

    argv[0] = (char *)(uintptr_t) "/bin/sh";
    argv[1] = (char *)(uintptr_t) "-c";
    argv[2] = (char *)(uintptr_t) "exec \"$@\"";
    argv[3] = (char *)(uintptr_t) "sh";
    memcpy(argv + 4, s->argv, (n + 1) * sizeof(*argv));
    execve(argv[0], argv, s->env);
}

static _Noreturn void child(struct spawn *s)
{
    int code;

    setsid();
    if (in.freezer_procs >= 0 && write(in.freezer_procs, "0", 1) < 0)
        fail(s, STAGE_FORK, errno);
    write_file("/proc/self/oom_score_adj", "100");
    take_io(s);
    if (s->req->flags & INIT_TTY) {
        uid_t id = in.base + (s->req->flags & INIT_ROOT ? 0 : BOX_UID);

        if (in.base && fchown(0, id, id) < 0)
            fail(s, STAGE_FORK, errno);
        if (ioctl(0, TIOCSCTTY, 0) < 0)
            fail(s, STAGE_FORK, errno);
    }
    s->report = fcntl(s->report, F_DUPFD_CLOEXEC, 3);
    limit(RLIMIT_NPROC, in.pids);
    limit(RLIMIT_NOFILE, 65536);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, MAX_FILE);
    code = become(s->req->flags & INIT_ROOT);
    if (code < 0)
        fail(s, STAGE_USER, -code);
    if (chdir(s->cwd) < 0)
        fail(s, STAGE_CWD, errno);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &in.old_mask, NULL);
    /* all but the report is gone at exec; it goes by itself */
    syscall(SYS_close_range, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
    if (strchr(s->argv[0], '/'))
        execve(s->argv[0], s->argv, s->env);
    else
        run_in_path(s);
    if (errno != E2BIG)
        run_by_shell(s);
    fail(s, STAGE_EXEC, errno);
    _exit(127);
}

static int spawn(struct spawn *s, int *stage)
{
    int32_t words[2] = {STAGE_FORK, 0};
    int report[2];
    pid_t pid;
    ssize_t n;

    if (pipe2(report, O_CLOEXEC) < 0)
        return -errno;
    s->report = report[1];
    pid = fork();
    if (!pid)
        child(s);
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        return -EAGAIN;
    }
    do
        n = read(report[0], words, sizeof(words));
    while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n != sizeof(words))
        return (int)pid;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *stage = words[0];
    return -words[1];
}

/* the strings of a spawn: pointers into text, which ends with a NUL */
static bool split(struct spawn *s, char *text, size_t n)
{
    size_t argc = s->req->argc, envc = s->req->envc;
    char *end = text + n;

    if (!n || text[n - 1] || !argc || argc > n || envc > n)
        return false;
    s->argv = xcalloc(argc + 1, sizeof(char *));
    s->env = xcalloc(envc + 1, sizeof(char *));
    for (size_t i = 0; i < argc + envc && text < end; i++) {
        *(i < argc ? &s->argv[i] : &s->env[i - argc]) = text;
        text += strlen(text) + 1;
    }
    s->cwd = text;
    return text < end;
}

static void on_spawn(const struct init_req *req, int *fds, int nfds)
{
    struct spawn s = {.req = req, .io = {-1, -1, -1}};
    struct stat st;
    char *text = MAP_FAILED;
    int stage = STAGE_FORK, rc = -EINVAL, at = 1;

    if (nfds < 1 || fstat(fds[0], &st) < 0 || st.st_size <= 0)
        goto out;
    text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fds[0], 0);
    if (text == MAP_FAILED)
        goto out;
    for (int i = 0; i < 3; i++)
        if (req->has[i] && at < nfds)
            s.io[i] = fds[at++];
    if (split(&s, text, (size_t)st.st_size))
        rc = spawn(&s, &stage);
out:
    answer(req->seq, rc, stage, -1);
    free(s.argv);
    free(s.env);
    if (text != MAP_FAILED)
        munmap(text, (size_t)st.st_size);
}

/* ---- the network ---- */

static void on_connect(const struct init_req *req)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)req->port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6,
                               .sin6_port = to.sin_port,
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = 0;

    if (fd < 0 || connect(fd, (void *)&to, sizeof(to)) < 0) {
        rc = -errno;
        close(fd);
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (void *)&to6, sizeof(to6)) == 0)
            rc = 0;
    }
    answer(req->seq, rc, 0, rc ? -1 : fd);
    close(fd);
}

static void on_dns(const struct init_req *req)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(53),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = 0;

    if (fd < 0 || bind(fd, (void *)&a, sizeof(a)) < 0)
        rc = -errno;
    answer(req->seq, rc, 0, rc ? -1 : fd);
    close(fd);
}

struct route {
    struct nlmsghdr h;
    struct rtmsg r;
    char attrs[64];
};

static void attr(struct route *m, unsigned short type, uint32_t value)
{
    struct rtattr *a = (void *)((char *)m + NLMSG_ALIGN(m->h.nlmsg_len));

    a->rta_type = type;
    a->rta_len = RTA_LENGTH(4);
    memcpy(RTA_DATA(a), &value, 4);
    m->h.nlmsg_len = NLMSG_ALIGN(m->h.nlmsg_len) + RTA_LENGTH(4);
}

static int change_route(const struct init_req *req)
{
    bool del = req->flags & INIT_DEL, hole = req->flags & INIT_HOLE;
    struct route m = {
        .h = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
              .nlmsg_type = del ? RTM_DELROUTE : RTM_NEWROUTE,
              .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .r = {.rtm_family = AF_INET,
              .rtm_dst_len = req->prefix,
              .rtm_table = RT_TABLE_MAIN,
              .rtm_protocol = RTPROT_STATIC,
              .rtm_scope = del ? RT_SCOPE_NOWHERE : RT_SCOPE_UNIVERSE,
              .rtm_type = hole ? RTN_UNREACHABLE : RTN_UNICAST},
    };
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
        char rest[256];
    } back;
    AUTO_CLOSE int fd =
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0)
        return -errno;
    if (!del)
        m.h.nlmsg_flags |= NLM_F_CREATE | NLM_F_REPLACE;
    if (del)
        m.r.rtm_protocol = 0;
    attr(&m, RTA_DST, req->addr);
    if (!hole && !del) {
        attr(&m, RTA_GATEWAY, inet_addr("10.0.2.2"));
        attr(&m, RTA_OIF, if_nametoindex("tap0"));
    }
    if (send(fd, &m, m.h.nlmsg_len, 0) < 0 ||
        recv(fd, &back, sizeof(back), 0) < 0)
        return -errno;
    return back.h.nlmsg_type == NLMSG_ERROR ? back.e.error : -EPROTO;
}

/* ---- the loop ---- */

static void on_signal(const struct init_req *req)
{
    pid_t pid = req->pid;
    int rc = -ESRCH;

    if (pid > 1)
        rc = kill(req->flags & INIT_GROUP ? -pid : pid, req->sig) < 0 ? -errno
                                                                      : 0;
    answer(req->seq, rc, 0, -1);
}

/* to everything but ourselves, as often as it takes to catch what was being
 * forked */
static void on_all(const struct init_req *req, int sig)
{
    for (int i = 0; i < (sig == SIGSTOP ? 3 : 1); i++)
        kill(-1, sig);
    answer(req->seq, 0, 0, -1);
}

static void handle(const struct init_req *req, int *fds, int nfds)
{
    switch (req->op) {
    case INIT_SPAWN:
        on_spawn(req, fds, nfds);
        break;
    case INIT_SIGNAL:
        on_signal(req);
        break;
    case INIT_CONNECT:
        on_connect(req);
        break;
    case INIT_DNS:
        on_dns(req);
        break;
    case INIT_ROUTE:
        answer(req->seq, change_route(req), 0, -1);
        break;
    case INIT_STOP:
        on_all(req, SIGSTOP);
        break;
    case INIT_CONT:
        on_all(req, SIGCONT);
        break;
    default:
        answer(req->seq, -ENOSYS, 0, -1);
    }
}

static _Noreturn void end(void)
{
    /* what is frozen can't die */
    if (in.freezer_state >= 0 && write(in.freezer_state, "THAWED", 6) < 0 &&
        pwrite(in.freezer_state, "0", 1, 0) < 0)
        _exit(1);
    _exit(0);
}

static void take_request(void)
{
    struct init_req req = {0};
    struct iovec v = {&req, sizeof(req)};
    union {
        char room[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } c;
    struct msghdr h = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = c.room,
                       .msg_controllen = sizeof(c.room)};
    struct cmsghdr *cm;
    int fds[4], nfds = 0;
    ssize_t n = recvmsg(in.sock, &h, MSG_CMSG_CLOEXEC);

    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        end();
    if (n < 0)
        return;
    for (cm = CMSG_FIRSTHDR(&h); cm; cm = CMSG_NXTHDR(&h, cm))
        if (cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS) {
            nfds = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(cm), (size_t)nfds * sizeof(int));
        }
    if (n == sizeof(req))
        handle(&req, fds, nfds);
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
}

static void reap(void)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    if (read(in.signals, &info, sizeof(info)) < 0)
        return;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct init_msg m = {.kind = INIT_EXIT, .pid = pid, .status = status};

        tell(&m, -1);
    }
}

static int set_up(void)
{
    sigset_t set;

    in.userns = -1;
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NAME, "courier-init");
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sig != SIGCHLD)
            signal(sig, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &in.old_mask);
    sigdelset(&in.old_mask, SIGCHLD);
    in.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    fcntl(in.sock, F_SETFD, FD_CLOEXEC);
    umask(022);
    if (in.signals < 0)
        return -errno;
    return in.base ? make_userns() : in.own_net ? make_net() : 0;
}

static int number(const char *s)
{
    int64_t n;

    return s && text_int(s, -1, INT32_MAX, &n) ? (int)n : -1;
}

int init_main(int argc, char **argv)
{
    struct init_msg ready = {.kind = INIT_READY};
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (argc < 8 || getpid() != 1)
        return 2;
    in.sock = number(argv[2]);
    in.base = (uid_t)number(argv[3]);
    in.pids = (rlim_t)number(argv[4]);
    in.freezer_procs = number(argv[5]);
    in.freezer_state = number(argv[6]);
    in.own_net = number(argv[7]) == 1;
    ready.result = set_up();
    tell(&ready, root);
    close(root);
    for (;;) {
        struct pollfd p[2] = {{in.sock, POLLIN, 0}, {in.signals, POLLIN, 0}};

        if (poll(p, 2, -1) < 0)
            continue;
        if (p[1].revents)
            reap();
        if (p[0].revents)
            take_request();
    }
}
