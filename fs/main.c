/*
 * courierfs: starts the daemon. The parent checks what can be checked, forks
 * and waits on a pipe for the child's one line: what is mounted, or why not.
 */
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "fs/hello.h"
#include "fs/loop.h"
#include "fs/mount.h"
#include "fs/touch.h"

struct args {
    bool foreground, allow_other, noinotify, rotate_key;
    const char *data, *backend, *mount;
};

static const char usage[] =
    "Usage: courierfs [-f] [--data DIR] [--backend auto|e2b|local]\n"
    "                 [-o OPT[,OPT]...] MOUNTPOINT\n"
    "\n"
    "Shows a fleet of coding agents in sandboxes as a directory tree.\n"
    "\n"
    "  -f, --foreground   stay in the foreground, log to stderr\n"
    "  --data DIR         the record (default $COURIER_DATA, else\n"
    "                     $XDG_DATA_HOME/courier, for root\n"
    "                     /var/lib/courier)\n"
    "  --backend WHAT     where sandboxes run: auto (default), e2b, local\n"
    "  -o OPT             allow_other: let other users in by the mode bits\n"
    "                     noinotify: no inotify for changes from below\n"
    "  --rotate-key       seal the stored keys with a new master key and "
    "end;\n"
    "                     COURIER_PASSPHRASE opens the old one, and\n"
    "                     COURIER_NEW_PASSPHRASE is the new one's\n"
    "  --tree             print the manual of the tree and end\n"
    "  --version, --help\n"
    "\n"
    "MOUNTPOINT/README is the manual of the tree.\n";

static struct args args = {.backend = "auto"};
static int tell_fd = -1; /* the parent hears the outcome here */

/* one line, whatever the names in it are */
static void say(FILE *to, const char *prefix, const char *text)
{
    AUTO_BUF struct buf b = {0};

    text_printable(&b, text, strlen(text), 0);
    fprintf(to, "%s%s\n", prefix, buf_str(&b));
    fflush(to);
}

static int fail(const char *text)
{
    say(stderr, "courierfs: ", text);
    return 1;
}

/* ---- options ---- */

/* what mount(8) says of every mount, and is so in any case */
static bool is_given(const char *word)
{
    static const char *const words[] = {
        "rw", "nosuid", "nodev", "noexec", "default_permissions", "", NULL};

    return text_is_word(word, words);
}

static int option_words(const char *words, struct err *e)
{
    AUTO_FREE char *copy = xstrdup(words);
    char *rest = copy;

    for (char *w = strsep(&rest, ","); w; w = strsep(&rest, ",")) {
        if (!strcmp(w, "allow_other"))
            args.allow_other = true;
        else if (!strcmp(w, "noinotify"))
            args.noinotify = true;
        else if (!is_given(w))
            return err_set(e, EINVAL,
                           "unknown option -o %s (there are "
                           "allow_other and noinotify)",
                           w);
    }
    return 0;
}

static void print_tree(void)
{
    AUTO_BUF struct buf b = {0};

    tree_readme(&b, NULL, NULL);
    fputs(buf_str(&b), stdout);
}

/* what getopt did not take; the exit status of a wrong call + 1 */
static int usage_error(int c, char **argv)
{
    AUTO_FREE char *text = NULL;
    const char *word = optind > 0 ? argv[optind - 1] : "";

    if (c == ':')
        text = xasprintf("option %s needs a value", word);
    else if (optopt && !strncmp(word, "--", 2))
        text = xasprintf("option %s takes no value", word);
    else if (optopt)
        text = xasprintf("there is no option -%c, see --help", optopt);
    else
        text = xasprintf("there is no option %s, see --help", word);
    fail(text);
    return 3;
}

static int wrong_call(const char *text)
{
    fail(text);
    return 3;
}

/* 0 go on, else the exit status + 1 */
static int options(int argc, char **argv)
{
    static const struct option longs[] = {
        {"foreground", no_argument, NULL, 'f'},
        {"data", required_argument, NULL, 'd'},
        {"backend", required_argument, NULL, 'b'},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {"tree", no_argument, NULL, 't'},
        {"rotate-key", no_argument, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    struct err e;
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":fo:hV", longs, NULL)) != -1) {
        switch (c) {
        case 'f':
            args.foreground = true;
            break;
        case 'd':
            args.data = optarg;
            break;
        case 'b':
            args.backend = optarg;
            break;
        case 'o':
            if (option_words(optarg, &e))
                return 1 + fail(e.text);
            break;
        case 'V':
            puts("courierfs " COURIER_VERSION);
            return 1;
        case 'h':
            fputs(usage, stdout);
            return 1;
        case 't':
            print_tree();
            return 1;
        case 'r':
            args.rotate_key = true;
            break;
        default:
            return usage_error(c, argv);
        }
    }
    if (strcmp(args.backend, "auto") && strcmp(args.backend, "e2b") &&
        strcmp(args.backend, "local"))
        return 1 + fail("--backend is auto, e2b or local");
    if (args.data && !*args.data)
        return wrong_call("--data needs the name of a directory");
    if (args.rotate_key && optind == argc)
        return 0;
    if (args.rotate_key)
        return wrong_call("--rotate-key takes no mount point");
    if (optind == argc)
        return wrong_call("no mount point was given, see --help");
    if (optind != argc - 1)
        return wrong_call("there is one mount point, not several");
    args.mount = argv[optind];
    return 0;
}

/* ---- the data directory ---- */

static char *data_default(void)
{
    const char *xdg = getenv("XDG_DATA_HOME");
    const char *own = getenv("COURIER_DATA");
    const char *home = getenv("HOME");

    if (own && *own)
        return xstrdup(own);
    if (!geteuid() && !(xdg && *xdg))
        return xstrdup("/var/lib/courier");
    if (xdg && *xdg)
        return xasprintf("%s/courier", xdg);
    if (!home || !*home) {
        struct passwd *pw = getpwuid(geteuid());

        home = pw ? pw->pw_dir : "/tmp";
    }
    return xasprintf("%s/.local/share/courier", home);
}

static int make_dirs(const char *path, struct err *e)
{
    AUTO_FREE char *p = xstrdup(path);
    struct stat st;

    for (char *s = p + 1; *s; s++) {
        if (*s != '/')
            continue;
        *s = 0;
        mkdir(p, 0755);
        *s = '/';
    }
    if (mkdir(p, 0700) && errno != EEXIST)
        return err_set(e, errno, "the data directory %s can't be made: %s",
                       path, strerror(errno));
    if (!stat(p, &st) && !S_ISDIR(st.st_mode))
        return err_set(e, ENOTDIR, "the data directory %s is no directory",
                       path);
    if (access(p, R_OK | W_OK | X_OK))
        return err_set(e, errno, "the data directory %s can't be used: %s",
                       path, strerror(errno));
    return 0;
}

static bool inside(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

/* is it, or will it be, below the mount point? What is there of it tells */
static bool below_mount(const char *path)
{
    AUTO_FREE char *p = xstrdup(path);
    AUTO_FREE char *real = realpath(p, NULL);

    for (char *s; !real && (s = strrchr(p, '/')); real = realpath(p, NULL)) {
        if (s == p)
            return false;
        *s = 0;
    }
    if (!real)
        real = realpath(".", NULL);
    return real && inside(real, args.mount);
}

static int data_prepare(struct err *e)
{
    AUTO_FREE char *given = args.data ? xstrdup(args.data) : data_default();
    int r;

    if (below_mount(given))
        return err_set(e, EINVAL,
                       "the data directory %s is below the mount point",
                       given);
    r = make_dirs(given, e);
    if (r)
        return r;
    fs.data = realpath(given, NULL);
    if (!fs.data)
        return err_set(e, errno, "the data directory %s: %s", given,
                       strerror(errno));
    if (inside(fs.data, args.mount)) /* by a ".." of what was not there */
        return err_set(e, EINVAL,
                       "the data directory %s is below the mount point",
                       fs.data);
    return courier_probe(fs.data, e);
}

/* ---- the parent's ear ---- */

/* one byte of status, then the line */
static void tell(bool ok, const char *text)
{
    AUTO_BUF struct buf b = {0};

    if (tell_fd < 0) {
        say(ok ? stdout : stderr, ok ? "" : "courierfs: ", text);
        return;
    }
    buf_addc(&b, ok ? '0' : '1');
    buf_adds(&b, text);
    fd_write_all(tell_fd, b.p, b.n);
    close(tell_fd);
    tell_fd = -1;
}

/*
 * The kernel makes the root of a mount without any permissions and asks for
 * them at the first use. When something is told about the root at that very
 * moment, it drops the answer, and whoever came first is refused. So this
 * comes first, and again until the answer was kept.
 */
static void settle(void)
{
    for (int i = 0; i < 400 && access(args.mount, X_OK) && errno == EACCES;
         i++)
        sleep_ms(5);
}

static int hear(int fd, pid_t child)
{
    AUTO_BUF struct buf b = {0};
    char part[512];
    ssize_t n;

    while ((n = read(fd, part, sizeof(part))) > 0 || (n < 0 && errno == EINTR))
        if (n > 0)
            buf_add(&b, part, (size_t)n);
    if (!b.n) {
        AUTO_FREE char *text = xasprintf("the daemon ended before it was "
                                         "ready, see %s/log",
                                         fs.data);

        waitpid(child, NULL, 0);
        return fail(text);
    }
    if (b.p[0] != '0') {
        waitpid(child, NULL, 0);
        return fail(b.p + 1);
    }
    settle();
    say(stdout, "", b.p + 1);
    return 0;
}

/* ---- the daemon ---- */

static void redirect(const char *path, int flags, int to)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);

    if (fd < 0)
        return;
    dup2(fd, to);
    if (fd != to)
        close(fd);
}

/* nothing that whoever started us had open stays so: a pipe or a lock of
 * theirs would be held for ever */
static void close_inherited(void)
{
    if (tell_fd > 3) {
        close_range(3, (unsigned)tell_fd - 1, 0);
        close_range((unsigned)tell_fd + 1, ~0u, 0);
    } else {
        close_range(tell_fd == 3 ? 4 : 3, ~0u, 0);
    }
}

static void detach(void)
{
    AUTO_FREE char *log = xasprintf("%s/log", fs.data);

    setsid();
    if (chdir("/"))
        log_msg(LOG_WARN, "chdir /: %s", strerror(errno));
    redirect("/dev/null", O_RDONLY, 0);
    redirect("/dev/null", O_WRONLY, 1);
    redirect(log, O_WRONLY | O_CREAT | O_APPEND, 2);
}

static void harden(void)
{
    static const struct rlimit none = {0, 0};

    umask(077);
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
}

/* what a large output took for a moment goes back to the system when it is
 * freed: glibc would keep ever larger pieces for the next one */
static void keep_memory_small(void)
{
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    mallopt(M_ARENA_MAX, 4);
}

static void raise_files(void)
{
    struct rlimit rl;

    if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur == rl.rlim_max)
        return;
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
}

static char *self_dir(void)
{
    char *p = realpath("/proc/self/exe", NULL);
    char *slash = p ? strrchr(p, '/') : NULL;

    if (slash && slash != p)
        *slash = 0;
    return p ? p : xstrdup("/usr/local/bin");
}

/* whoever started us with a socket for it (systemd, Type=notify) hears that
 * the tree answers */
static void tell_manager(void)
{
    static const char ready[] = "READY=1";
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    int fd;

    if (!n || n >= sizeof(to.sun_path))
        return;
    memcpy(to.sun_path, path, n);
    if (*path == '@') /* no file: a name of the kernel's */
        to.sun_path[0] = 0;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (sendto(fd, ready, sizeof(ready) - 1, 0, (struct sockaddr *)&to,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        log_msg(LOG_WARN, "NOTIFY_SOCKET: %s", strerror(errno));
    close(fd);
}

static void say_started(void)
{
    AUTO_FREE char *backend = courier_backend_words(fs.c);
    AUTO_FREE char *line = NULL;

    line = xasprintf("courier: mounted on %s, data in %s, backend %s%s",
                     args.mount, fs.data, backend,
                     args.allow_other ? ", other users let in by the mode "
                                        "bits (allow_other)"
                                      : "");
    tell(true, line);
    tell_manager();
    log_msg(LOG_INFO, "%s", line);
}

static int session_open(struct err *e)
{
    AUTO_FREE char *opts =
        xasprintf("default_permissions,nosuid,nodev,noexec,fsname=courier,"
                  "subtype=courier%s",
                  args.allow_other ? ",allow_other" : "");
    char *argv[] = {"courierfs", "-o", opts, NULL};
    struct fuse_args fa = FUSE_ARGS_INIT(3, argv);

    fs.se = fuse_session_new(&fa, &fs_ops, sizeof(fs_ops), NULL);
    fuse_opt_free_args(&fa);
    if (!fs.se)
        return err_set(e, EIO, "libfuse refuses the options");
    if (fuse_session_mount(fs.se, args.mount))
        return err_set(e, EPERM, "mounting on %s failed%s", args.mount,
                       args.allow_other && geteuid()
                           ? " (allow_other needs user_allow_other in "
                             "/etc/fuse.conf)"
                       : access("/dev/fuse", R_OK | W_OK)
                           ? " (/dev/fuse can't be opened)"
                           : "");
    if (hello_prepare(fs.se))
        log_msg(LOG_WARN, "shared mappings are not allowed: libfuse refuses");
    return 0;
}

static void stop_signal(void *unused)
{
    loop_end(unused);
}

static int backend_open(struct err *e)
{
    AUTO_FREE char *dir = self_dir();
    struct courier_options o = {
        .data = fs.data,
        .backend = args.backend,
        .self_dir = dir,
        .mount = args.mount,
        .mounted_by = fs.mounted_by,
        .changed = notify_changed,
    };
    int r = courier_open(&o, &fs.c, e);

    if (r)
        return r;
    courier_on_shutdown(fs.c, stop_signal, NULL);
    return 0;
}

static void serve(void)
{
    fs.started_ns = now_ns();
    node_init();
    fs_on_init = say_started;
    courier_set_inotify(fs.c, fs.inotify ? "yes, for files looked at lately"
                              : args.noinotify ? "no (-o noinotify)"
                                               : "no (its helper failed)");
    if (notify_run())
        log_msg(LOG_ERR, "no notifier: attributes may be a second old");
    if (fs.inotify)
        touch_mounted(args.mount);
    loop_run();
    fuse_session_unmount(fs.se);
    touch_stop();
    notify_stop();
}

static int daemon_run(void)
{
    struct err e = {0};
    int r = loop_init(&e);

    if (!r && !args.noinotify)
        fs.inotify = !touch_start();
    if (!r)
        r = backend_open(&e);
    if (!r)
        r = session_open(&e);
    if (r) {
        touch_stop();
        tell(false, e.text[0] ? e.text : strerror(-r));
        if (fs.c)
            courier_close(fs.c);
        return 1;
    }
    serve();
    courier_close(fs.c);
    fuse_session_destroy(fs.se);
    log_msg(LOG_INFO, "ended");
    return 0;
}

static int start(void)
{
    int fds[2];
    pid_t pid;

    if (args.foreground) {
        close_inherited();
        return daemon_run();
    }
    pid = pipe2(fds, O_CLOEXEC) ? -1 : fork();
    if (pid < 0) {
        AUTO_FREE char *text =
            xasprintf("the daemon can't be started: %s", strerror(errno));

        return fail(text);
    }
    if (pid) {
        close(fds[1]);
        return hear(fds[0], pid);
    }
    tell_fd = fds[1];
    close_inherited();
    detach();
    return daemon_run();
}

static int rotate_key(void)
{
    AUTO_FREE char *data = args.data ? xstrdup(args.data) : data_default();
    struct err e = {0};

    if (courier_rotate_key(data, &e))
        return fail(e.text);
    printf("courier: the keys in %s have a new master key\n", data);
    return 0;
}

static void log_setup(void)
{
    static const char *const names[] = {"err", "warn", "info", "debug"};
    const char *want = getenv("COURIER_LOG");

    log_level_set(LOG_INFO);
    for (int i = 0; want && i < 4; i++)
        if (!strcmp(want, names[i]))
            log_level_set((enum log_level)i);
}

int main(int argc, char **argv)
{
    AUTO_FREE char *mount = NULL;
    struct passwd *pw = getpwuid(geteuid());
    struct err e = {0};
    int r;

    fd_std_open();
    r = options(argc, argv);
    if (r)
        return r - 1;
    harden();
    keep_memory_small();
    log_setup();
    raise_files();
    if (args.rotate_key)
        return rotate_key();
    if (mount_check(args.mount, &mount, &e))
        return fail(e.text);
    args.mount = mount;
    if (data_prepare(&e))
        return fail(e.text);
    fs.mount = mount;
    fs.uid = geteuid();
    fs.gid = getegid();
    fs.mounted_by =
        pw ? xstrdup(pw->pw_name) : xasprintf("%u", (unsigned)fs.uid);
    return start();
}
