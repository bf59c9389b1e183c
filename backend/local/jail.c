#include "local/jail.h"

#include "base/text.h"
#include "local/init.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    char *data;
    char *const *binds, *const *paths;
    char *path;
    char *bwrap;
} jl;

/* ---- lists of words ---- */

struct args {
    char **v;
    size_t n;
};

static void add(struct args *a, char *word)
{
    a->v = xrealloc(a->v, (a->n + 2) * sizeof(*a->v));
    a->v[a->n++] = word;
    a->v[a->n] = NULL;
}

/* words up to a NULL */
static void adds(struct args *a, ...) __attribute__((sentinel));
static void adds(struct args *a, ...)
{
    va_list ap;
    const char *w;

    va_start(ap, a);
    while ((w = va_arg(ap, const char *)))
        add(a, xstrdup(w));
    va_end(ap);
}

static void args_free(struct args *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->v[i]);
    free(a->v);
}

/* ---- what is the same for every box ---- */

static int write_text(const char *name, const char *text, mode_t mode,
                      struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/%s", jl.data, name);
    AUTO_CLOSE int fd =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

    if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0 ||
        fchmod(fd, mode) < 0)
        return err_set(e, errno, "%s can't be written: %s", path,
                       strerror(errno));
    return 0;
}

static const struct {
    const char *name, *text;
} etc_files[] = {
    {"passwd", "root:x:0:0:root:/root:/bin/bash\n"
               "user:x:1000:1000:user:/home/user:/bin/bash\n"
               "nobody:x:65534:65534:nobody:/nonexistent:"
               "/usr/sbin/nologin\n"},
    {"group", "root:x:0:\nuser:x:1000:\ntty:x:5:\nnogroup:x:65534:\n"},
    {"hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"},
    {"hostname", "sandbox\n"},
    {"nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"
                      "networks: files\nservices: files\n"},
    /* PATH stays as it was given */
    {"profile", "umask 022\n"
                "[ -z \"$PS1\" ] || [ -z \"$BASH\" ] || "
                "[ ! -f /etc/bash.bashrc ] || . /etc/bash.bashrc\n"},
    /* what is shown from the host belongs to nobody inside */
    {"gitconfig", "[safe]\n\tdirectory = *\n"},
};

static int write_etc(struct err *e)
{
    AUTO_FREE char *dir = xasprintf("%s/etc", jl.data);
    AUTO_BUF struct buf host = {0};
    int rc = 0;

    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return err_set(e, errno, "%s: %s", dir, strerror(errno));
    for (size_t i = 0; i < ARRAY_LEN(etc_files) && !rc; i++) {
        AUTO_FREE char *name = xasprintf("etc/%s", etc_files[i].name);

        rc = write_text(name, etc_files[i].text, 0644, e);
    }
    file_read("/etc/hosts", 256 << 10, &host);
    if (!rc)
        rc = write_text("etc/hosts.host", buf_str(&host), 0644, e);
    return rc;
}

/* our own program, where a rebuild can't pull it away under running boxes */
static int copy_self(struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/init", jl.data);
    AUTO_CLOSE int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int to = -1;
    char room[64 << 10];
    ssize_t n;

    unlink(path);
    to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (from < 0 || to < 0)
        return err_set(e, errno, "%s can't be written: %s", path,
                       strerror(errno));
    while ((n = read(from, room, sizeof(room))) > 0)
        if (fd_write_all(to, room, (size_t)n) < 0)
            return err_set(e, EIO, "%s can't be written", path);
    fchmod(to, 0755);
    return 0;
}

static bool beneath(const char *path, const char *top)
{
    size_t n = strlen(top);

    return strncmp(path, top, n) == 0 && (!path[n] || path[n] == '/');
}

static bool seen_inside(const char *dir)
{
    return beneath(dir, "/usr") || beneath(dir, "/opt") ||
           beneath(dir, "/bin") || beneath(dir, "/sbin");
}

static void path_add(struct buf *b, const char *dir)
{
    size_t n = strlen(dir);

    for (const char *p = buf_str(b); *p; p += strcspn(p, ":"), p += *p == ':')
        if (strncmp(p, dir, n) == 0 && (p[n] == ':' || !p[n]))
            return;
    buf_addf(b, "%s%s", b->n ? ":" : "", dir);
}

static void make_path(void)
{
    AUTO_FREE char *own = xstrdup(getenv("PATH"));
    struct buf b = {0};
    char *save = NULL;

    for (char *const *p = jl.paths; p && *p; p++)
        path_add(&b, *p);
    path_add(&b, "/home/user/.local/bin");
    for (char *d = own ? strtok_r(own, ":", &save) : NULL; d;
         d = strtok_r(NULL, ":", &save))
        if (seen_inside(d))
            path_add(&b, d);
    path_add(&b, "/usr/local/sbin");
    path_add(&b, "/usr/local/bin");
    path_add(&b, "/usr/sbin");
    path_add(&b, "/usr/bin");
    path_add(&b, "/sbin");
    path_add(&b, "/bin");
    jl.path = buf_take(&b);
}

static char *find_program(const char *name)
{
    AUTO_FREE char *places = xasprintf("%s:/usr/bin:/usr/local/bin:/bin",
                                       getenv("PATH") ? getenv("PATH") : "");
    char *save = NULL;

    for (char *d = strtok_r(places, ":", &save); d;
         d = strtok_r(NULL, ":", &save)) {
        char *file = xasprintf("%s/%s", d, name);

        if (*d == '/' && access(file, X_OK) == 0)
            return file;
        free(file);
    }
    return NULL;
}

const char *jail_path(void)
{
    return jl.path;
}

int jail_bind_check(const char *path, char **real, struct err *e)
{
    static const char *const never[] = {"/proc", "/sys", "/dev", "/etc",
                                        "/run"};
    static const char *const top[] = {"/",          "/tmp", "/var",
                                      "/var/tmp",   "/usr", "/home",
                                      "/home/user", "/root"};
    AUTO_FREE char *full = NULL;

    if (*path != '/' || strstr(path, "/../") || strstr(path, "/./") ||
        strstr(path, "//"))
        return err_set(e, EINVAL,
                       "\"%s\" isn't an absolute path in its "
                       "plain form",
                       path);
    full = realpath(path, NULL);
    if (!full)
        return err_set(e, errno, "\"%s\" can't be shown in a sandbox: %s",
                       path, strerror(errno));
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        if (beneath(full, never[i]) || beneath(path, never[i]))
            return err_set(e, EINVAL, "\"%s\" can't be shown in a sandbox",
                           path);
    for (size_t i = 0; i < ARRAY_LEN(top); i++)
        if (strcmp(full, top[i]) == 0 || strcmp(path, top[i]) == 0)
            return err_set(e, EINVAL, "\"%s\" can't be shown in a sandbox",
                           path);
    if (beneath(jl.data, full) || beneath(full, jl.data))
        return err_set(e, EINVAL,
                       "\"%s\" can't be shown in a sandbox: the host's own "
                       "data is there",
                       path);
    *real = full;
    full = NULL;
    return 0;
}

/* ---- the thread that forks ---- */

struct job {
    char *const *argv;
    const int *keep;
    int nkeep, err_fd;
    const struct jail_spec *spec; /* NULL: of no box */
    pid_t pid;
    bool done;
    struct job *next;
};

static pthread_mutex_t job_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t job_cond = PTHREAD_COND_INITIALIZER;
static struct job *jobs;

static _Noreturn void run_job(const struct job *j)
{
    static char *const env[] = {
        (char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
                "/sbin:/bin",
        NULL,
    };
    int kept[8], err = fcntl(j->err_fd, F_DUPFD, 32);
    int null = open("/dev/null", O_RDWR);
    sigset_t none;

    setsid();
    if (j->spec)
        cgroup_join(j->spec->cg);
    if (j->spec && CPU_COUNT(j->spec->cpus))
        sched_setaffinity(0, sizeof(cpu_set_t), j->spec->cpus);
    /* within the group only: what is to be done at once in a box comes before
     * what it is busy with */
    if (j->spec && j->spec->cg->join[CG_CPU] >= 0)
        setpriority(PRIO_PROCESS, 0, -19);
    for (int i = 0; i < j->nkeep; i++)
        kept[i] = fcntl(j->keep[i], F_DUPFD, 32);
    dup2(null, 0);
    dup2(null, 1);
    dup2(err, 2);
    for (int i = 0; i < j->nkeep; i++)
        dup2(kept[i], 3 + i);
    syscall(SYS_close_range, 3 + j->nkeep, ~0U, 0);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(j->argv[0], j->argv, env);
    _exit(127);
}

static void *forker(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&job_mu);
    for (;;) {
        struct job *j = jobs;

        if (!j) {
            pthread_cond_wait(&job_cond, &job_mu);
            continue;
        }
        jobs = j->next;
        pthread_mutex_unlock(&job_mu);
        j->pid = fork();
        if (!j->pid)
            run_job(j);
        if (j->pid < 0)
            j->pid = -errno;
        pthread_mutex_lock(&job_mu);
        j->done = true;
        pthread_cond_broadcast(&job_cond);
    }
    return NULL;
}

static pid_t run(char *const *argv, const int *keep, int nkeep, int err_fd,
                 const struct jail_spec *spec)
{
    struct job j = {.argv = argv,
                    .keep = keep,
                    .nkeep = nkeep,
                    .err_fd = err_fd,
                    .spec = spec};

    pthread_mutex_lock(&job_mu);
    j.next = jobs;
    jobs = &j;
    pthread_cond_broadcast(&job_cond);
    while (!j.done)
        pthread_cond_wait(&job_cond, &job_mu);
    pthread_mutex_unlock(&job_mu);
    return j.pid;
}

pid_t jail_run(char *const *argv, const int *keep, int nkeep, int err_fd)
{
    return run(argv, keep, nkeep, err_fd, NULL);
}

int jail_init(const char *data, char *const *binds, char *const *paths,
              struct err *e)
{
    pthread_t t;
    int rc;

    jl.data = xstrdup(data);
    jl.binds = binds;
    jl.paths = paths;
    make_path();
    jl.bwrap = find_program("bwrap");
    if (!jl.bwrap)
        return err_set(e, ENOENT,
                       "bubblewrap (the program bwrap) is not "
                       "installed");
    rc = write_etc(e);
    if (!rc)
        rc = copy_self(e);
    if (!rc && (rc = pthread_create(&t, NULL, forker, NULL)) != 0)
        rc = err_set(e, rc, "no thread: %s", strerror(rc));
    if (!rc)
        pthread_detach(t);
    return rc;
}

/* ---- bwrap's arguments ---- */

static void add_system(struct args *a)
{
    static const char *const dirs[] = {"bin",   "sbin",  "lib",
                                       "lib32", "lib64", "libx32"};

    adds(a, "--ro-bind", "/usr", "/usr", "--ro-bind-try", "/opt", "/opt",
         NULL);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        AUTO_FREE char *path = xasprintf("/%s", dirs[i]);
        char to[PATH_MAX];
        ssize_t n = readlink(path, to, sizeof(to) - 1);

        if (n > 0) {
            to[n] = 0;
            adds(a, "--symlink", to, path, NULL);
        } else {
            adds(a, "--ro-bind-try", path, path, NULL);
        }
    }
}

static void add_etc(struct args *a, const struct jail_spec *s)
{
    static const char *const host[] = {
        "ssl",
        "ca-certificates",
        "pki",
        "crypto-policies",
        "alternatives",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "localtime",
        "timezone",
        "terminfo",
        "bash.bashrc",
        "bashrc",
        "inputrc",
        "mime.types",
        "services",
        "protocols",
        "fonts",
        "java-8-openjdk",
        "java-11-openjdk",
        "java-17-openjdk",
        "java-21-openjdk",
        "perl",
        "python3",
        "os-release",
        "lsb-release",
        "debian_version",
        "vim",
        "nanorc",
        "magic",
        "shells",
        "login.defs",
        "skel",
        "rpc",
        "papersize",
        "environment.d",
        "locale.alias",
        "locale.conf",
    };
    static const char *const own[] = {"passwd",        "group",   "hostname",
                                      "nsswitch.conf", "profile", "gitconfig"};

    adds(a, "--perms", "0755", "--dir", "/etc", NULL);
    for (size_t i = 0; i < ARRAY_LEN(host); i++) {
        AUTO_FREE char *path = xasprintf("/etc/%s", host[i]);

        if (access(path, F_OK) == 0)
            adds(a, "--ro-bind-try", path, path, NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        AUTO_FREE char *from = xasprintf("%s/etc/%s", jl.data, own[i]);
        AUTO_FREE char *to = xasprintf("/etc/%s", own[i]);

        adds(a, "--ro-bind", from, to, NULL);
    }
    add(a, xstrdup("--ro-bind"));
    add(a, xasprintf("%s/etc/hosts%s", jl.data,
                     s->net == NET_HOST ? ".host" : ""));
    add(a, xstrdup("/etc/hosts"));
    add(a, xstrdup("--ro-bind"));
    add(a, xasprintf("%s/resolv.conf", s->dir));
    add(a, xstrdup("/etc/resolv.conf"));
}

static void add_tmpfs(struct args *a, const char *mode, int64_t size,
                      const char *at)
{
    AUTO_FREE char *bytes = xasprintf("%lld", (long long)size);

    adds(a, "--perms", mode, "--size", bytes, "--tmpfs", at, NULL);
}

/* what leads to path; bwrap itself would make it for root only */
static void add_parents(struct args *a, const char *path)
{
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        AUTO_FREE char *dir = xmemdup0(path, (size_t)(p - path));

        if (!seen_inside(dir))
            adds(a, "--perms", "0755", "--dir", dir, NULL);
    }
}

static void add_binds(struct args *a, char *const *binds, bool must)
{
    for (; binds && *binds; binds++) {
        AUTO_FREE char *real = realpath(*binds, NULL);

        if (!real && !must)
            continue;
        add_parents(a, *binds);
        adds(a, must ? "--ro-bind" : "--ro-bind-try", real ? real : *binds,
             *binds, NULL);
    }
}

/* directories of PATH that a box would not see otherwise */
static void add_paths(struct args *a)
{
    for (char *const *p = jl.paths; p && *p; p++)
        if (!seen_inside(*p))
            add_binds(a, (char *const[]){*p, NULL}, false);
}

static void add_own(struct args *a, const struct jail_spec *s)
{
    AUTO_FREE char *home = xasprintf("%s/home", s->dir);
    AUTO_FREE char *root = xasprintf("%s/root", s->dir);
    AUTO_FREE char *init = xasprintf("%s/init", jl.data);

    /* bwrap would make it 0700, and the user could not go through */
    adds(a, "--dir", "/home", NULL);
    adds(a, "--bind", home, "/home/user", "--bind", root, "/root", "--ro-bind",
         init, "/run/courier/init", NULL);
}

/*
 * Not --die-with-parent: init ends by itself when its socket does, and it
 * must be let to thaw what is frozen, which else could never die.
 */
static void build(struct args *a, const struct jail_spec *s, bool freezer)
{
    AUTO_FREE char *base = xasprintf("%u", s->base);
    AUTO_FREE char *pids = xasprintf("%d", s->pids);
    bool own_net = !s->base && s->net != NET_HOST;

    adds(a, jl.bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-uts",
         "--unshare-cgroup-try", "--hostname", "sandbox", "--as-pid-1",
         "--clearenv", NULL);
    if (s->base && s->net != NET_HOST)
        adds(a, "--unshare-net", NULL);
    if (s->base)
        adds(a, "--cap-add", "ALL", NULL);
    else
        adds(a, "--unshare-user", "--uid", "1000", "--gid", "1000", NULL);
    /* bwrap would make the network in a user namespace that it leaves for
     * another; only in its own has init a say in it, so init makes it */
    if (own_net)
        adds(a, "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_NET_ADMIN",
             "--cap-add", "CAP_NET_BIND_SERVICE", NULL);
    add_system(a);
    adds(a, "--proc", "/proc", "--dev", "/dev", NULL);
    /* full, they leave something: else no turn could start any more */
    add_tmpfs(a, "1777", s->memory / 8, "/dev/shm");
    add_tmpfs(a, "1777", s->memory / 2, "/tmp");
    adds(a, "--perms", "0755", "--dir", "/var", NULL);
    add_tmpfs(a, "1777", s->memory / 4, "/var/tmp");
    add_tmpfs(a, "0755", s->memory / 16 < 16 << 20 ? s->memory / 16 : 16 << 20,
              "/run");
    add_etc(a, s);
    add_own(a, s);
    add_binds(a, jl.binds, false);
    add_paths(a);
    add_binds(a, s->binds, true);
    adds(a, "--remount-ro", "/", "--chdir", "/home/user", "--",
         "/run/courier/init", "--init", "3", base, pids, freezer ? "4" : "-1",
         freezer ? "5" : "-1", own_net ? "1" : "0", NULL);
}

/* ---- starting ---- */

static int make_dir(const char *top, const char *name, uid_t id, mode_t mode,
                    struct err *e)
{
    AUTO_FREE char *dir = xasprintf("%s/%s", top, name);

    if (mkdir(dir, mode) < 0 || chmod(dir, mode) < 0 ||
        (id && chown(dir, id, id) < 0))
        return err_set(e, errno, "%s can't be made: %s", dir, strerror(errno));
    return 0;
}

static int make_dirs(const struct jail_spec *s, struct err *e)
{
    uid_t user = s->base ? s->base + BOX_UID : 0;
    int rc = make_dir(s->dir, "home", user, 0755, e);

    if (!rc)
        rc = make_dir(s->dir, "root", s->base, 0711, e);
    return rc ? rc : jail_resolv(s->dir, s->net, e);
}

int jail_resolv(const char *dir, enum net_mode net, struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/resolv.conf", dir);
    AUTO_CLOSE int fd = open(
        path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    AUTO_BUF struct buf text = {0};

    if (net == NET_HOST)
        file_read("/etc/resolv.conf", 64 << 10, &text);
    else if (net != NET_OFF)
        buf_addf(&text, "nameserver %s\n",
                 net == NET_ON ? "10.0.2.3" : "127.0.0.1");
    if (fd < 0 || fd_write_all(fd, buf_str(&text), text.n) < 0)
        return err_set(e, errno, "%s can't be written: %s", path,
                       strerror(errno));
    fchmod(fd, 0644);
    return 0;
}

/* what bwrap said before it gave up */
static int bwrap_failed(int err_fd, struct err *e)
{
    char said[400];
    ssize_t n = pread(err_fd, said, sizeof(said), 0);
    AUTO_BUF struct buf text = {0};

    while (n > 0 && said[n - 1] == '\n')
        n--;
    if (n > 0)
        text_printable(&text, said, (size_t)n, 0);
    return err_set(e, EIO, "the sandbox didn't start: %s",
                   text.n ? text.p : "bwrap ended without a word");
}

static int await_ready(struct jail *j, int err_fd, struct err *e)
{
    struct init_msg m = {0};
    struct iovec v = {&m, sizeof(m)};
    union {
        char room[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } c;
    struct msghdr h = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = c.room,
                       .msg_controllen = sizeof(c.room)};
    ssize_t n;

    do
        n = recvmsg(j->sock, &h, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return bwrap_failed(err_fd, e);
    for (struct cmsghdr *cm = CMSG_FIRSTHDR(&h); cm; cm = CMSG_NXTHDR(&h, cm))
        if (cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS)
            memcpy(&j->root_fd, CMSG_DATA(cm), sizeof(int));
        else if (cm->cmsg_level == SOL_SOCKET &&
                 cm->cmsg_type == SCM_CREDENTIALS)
            memcpy(&j->init, CMSG_DATA(cm), sizeof(pid_t));
    if (m.kind != INIT_READY || m.result < 0)
        return err_set(e, m.result ? -m.result : EPROTO,
                       "the sandbox didn't start: its init failed: %s",
                       strerror(m.result ? -m.result : EPROTO));
    j->pidfd = (int)syscall(SYS_pidfd_open, j->init, 0);
    if (j->pidfd < 0 || j->root_fd < 0)
        return err_set(e, errno, "the sandbox didn't start: %s",
                       strerror(errno));
    return 0;
}

static int open_sockets(int pair[2], struct err *e)
{
    int on = 1;
    struct timeval wait = {.tv_sec = 10};

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(e, errno, "no socket: %s", strerror(errno));
    setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    return 0;
}

static void give_up(struct jail *j)
{
    if (j->outer > 0) {
        kill(j->outer, SIGKILL);
        while (waitpid(j->outer, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close_cleanup(&j->sock);
    close_cleanup(&j->pidfd);
    close_cleanup(&j->root_fd);
}

int jail_start(struct jail *j, const struct jail_spec *s, struct err *e)
{
    struct args a = {0};
    AUTO_CLOSE int err_fd = memfd_create("bwrap", MFD_CLOEXEC);
    struct timeval never = {0};
    bool freezer = s->cg->freezer_procs >= 0 && s->cg->freezer_state >= 0;
    int pair[2], keep[3], rc;

    *j = (struct jail){
        .outer = -1, .init = -1, .pidfd = -1, .sock = -1, .root_fd = -1};
    rc = make_dirs(s, e);
    if (!rc)
        rc = open_sockets(pair, e);
    if (rc)
        return rc;
    j->sock = pair[0];
    keep[0] = pair[1];
    keep[1] = s->cg->freezer_procs;
    keep[2] = s->cg->freezer_state;
    build(&a, s, freezer);
    j->outer = run(a.v, keep, freezer ? 3 : 1, err_fd, s);
    close(pair[1]);
    args_free(&a);
    if (j->outer < 0)
        rc = err_set(e, -j->outer, "no process: %s", strerror(-j->outer));
    else
        rc = await_ready(j, err_fd, e);
    if (rc)
        give_up(j);
    else
        setsockopt(j->sock, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never));
    return rc;
}
