/* courier-sandboxd: E2B's protocol served for sandboxes on this machine */
#include "local/box.h"
#include "local/init.h"
#include "local/jail.h"
#include "local/server.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static const char usage[] =
    "usage: courier-sandboxd --data DIR [--port N] [--idle SECONDS]\n"
    "                        [--bind DIR]... [--path DIR]... [--foreground]\n"
    "\n"
    "Serves E2B's protocol on a Unix socket in DIR and on a TCP port of\n"
    "127.0.0.1 for sandboxes that are bubblewrap containers on this machine;\n"
    "DIR/host.json says where, and with which key.\n"
    "\n"
    "  --data DIR       made if missing, mode 0700; one host a directory\n"
    "  --port N         TCP port (default: a free one)\n"
    "  --idle SECONDS   end after so long without a sandbox (default 60)\n"
    "  --bind DIR       show DIR read-only in every sandbox\n"
    "  --path DIR       put DIR first in their PATH, and show it\n"
    "  --foreground     stay in the foreground\n";

enum { LOCK_WAIT_MS = 10000, LOG_MAX = 1 << 20 };

struct options {
    char *data;
    int64_t port, idle;
    bool foreground;
    char **binds, **paths;
    size_t nbinds, npaths;
};

static void list_add(char ***list, size_t *n, const char *word)
{
    *list = xrealloc(*list, (*n + 2) * sizeof(char *));
    (*list)[(*n)++] = xstrdup(word);
    (*list)[*n] = NULL;
}

/* -1 to go on, else the exit status */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"data", required_argument, NULL, 'd'},
        {"port", required_argument, NULL, 'p'},
        {"idle", required_argument, NULL, 'i'},
        {"bind", required_argument, NULL, 'b'},
        {"path", required_argument, NULL, 'P'},
        {"foreground", no_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    int c;

    *o = (struct options){.idle = 60};
    while ((c = getopt_long(argc, argv, "fh", longs, NULL)) >= 0) {
        bool ok = true;

        if (c == 'd')
            o->data = optarg;
        else if (c == 'p')
            ok = text_int(optarg, 0, 65535, &o->port);
        else if (c == 'i')
            ok = text_int(optarg, 1, 365 * 86400, &o->idle);
        else if (c == 'b')
            list_add(&o->binds, &o->nbinds, optarg);
        else if (c == 'P')
            list_add(&o->paths, &o->npaths, optarg);
        else if (c == 'f')
            o->foreground = true;
        else if (c == 'h')
            return fputs(usage, stdout) < 0;
        else if (c == 'v')
            return puts("courier-sandboxd " COURIER_VERSION) < 0;
        else
            return 2;
        if (!ok) {
            fprintf(stderr, "courier-sandboxd: \"%s\" is no such number\n",
                    optarg);
            return 2;
        }
    }
    if (o->data && optind == argc)
        return -1;
    fputs(usage, stderr);
    return 2;
}

static int fail(const struct err *e)
{
    fprintf(stderr, "courier-sandboxd: %s\n", e->text);
    return 1;
}

/* ---- the data directory ---- */

static int open_data(struct options *o, struct err *e)
{
    struct stat st;

    if (mkdir(o->data, 0700) < 0 && errno != EEXIST)
        return err_set(e, errno, "%s: %s", o->data, strerror(errno));
    o->data = realpath(o->data, NULL);
    if (!o->data || stat(o->data, &st) < 0)
        return err_set(e, errno, "the data directory can't be used: %s",
                       strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return err_set(e, EPERM, "%s isn't a directory of ours", o->data);
    if (chmod(o->data, 0700) < 0)
        return err_set(e, errno, "%s: %s", o->data, strerror(errno));
    return 0;
}

static bool serves(const char *data)
{
    AUTO_FREE char *state = xasprintf("%s/host.json", data);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(a.sun_path, sizeof(a.sun_path), "%s/host.sock", data);
    return fd >= 0 && connect(fd, (void *)&a, sizeof(a)) == 0 &&
           access(state, R_OK) == 0;
}

/*
 * The descriptor that holds the lock; -EEXIST if another has it and serves.
 * One that is starting or ending is waited for.
 */
static int take_lock(const char *data, struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/host.lock", data);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int64_t until = mono_ms() + LOCK_WAIT_MS;

    if (fd < 0)
        return err_set(e, errno, "%s: %s", path, strerror(errno));
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        bool busy = errno == EWOULDBLOCK;
        int code = !busy               ? errno
                   : serves(data)      ? EEXIST
                   : mono_ms() > until ? ETIMEDOUT
                                       : 0;

        if (code) {
            close(fd);
            return err_set(e, code, "%s: %s", path,
                           busy ? "another host has it, but doesn't serve"
                                : strerror(code));
        }
        sleep_ms(20);
    }
    return fd;
}

static int write_private(const char *path, const char *text, struct err *e)
{
    AUTO_FREE char *fresh = xasprintf("%s.new", path);
    AUTO_CLOSE int fd = -1;

    unlink(fresh);
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0 ||
        rename(fresh, path) < 0)
        return err_set(e, errno, "%s can't be written: %s", path,
                       strerror(errno));
    return 0;
}

static int load_key(const char *data, char key[48], struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/host.key", data);
    AUTO_BUF struct buf b = {0};
    unsigned char r[20];

    if (file_read(path, 100, &b) == 0 && b.n >= 44 &&
        strncmp(b.p, "e2b_", 4) == 0) {
        memcpy(key, b.p, 44);
        key[44] = 0;
        return 0;
    }
    if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
        return err_set(e, errno, "no random numbers");
    memcpy(key, "e2b_", 5);
    for (size_t i = 0; i < sizeof(r); i++)
        snprintf(key + 4 + 2 * i, 3, "%02x", r[i]);
    return write_private(path, key, e);
}

static int write_state(const char *data, int port, const char *key,
                       const char *sock, struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/host.json", data);
    AUTO_FREE char *url = xasprintf("http://127.0.0.1:%d", port);
    AUTO_FREE char *text = NULL;
    json_t *j =
        json_pack("{s:i, s:i, s:s, s:s, s:s}", "pid", (int)getpid(), "port",
                  port, "url", url, "key", key, "socket", sock);

    text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text ? write_private(path, text, e)
                : err_set(e, EILSEQ,
                          "the path of the data directory isn't "
                          "UTF-8");
}

/* ---- running ---- */

static void remove_state(const char *data)
{
    static const char *const files[] = {"host.json", "host.sock", "init"};

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTO_FREE char *path = xasprintf("%s/%s", data, files[i]);

        unlink(path);
    }
}

static int start(const struct options *o, struct err *e)
{
    struct box_conf conf = {o->data, o->binds, o->paths};
    AUTO_FREE char *sock = xasprintf("%s/host.sock", o->data);
    char key[48];
    struct server_conf sc = {sock, (int)o->port, key};
    int port, rc;

    remove_state(o->data);
    rc = load_key(o->data, key, e);
    if (!rc)
        rc = box_init(&conf, e);
    for (char **b = o->binds; !rc && b && *b; b++) {
        AUTO_FREE char *real = NULL;

        rc = jail_bind_check(*b, &real, e);
        if (rc == -ENOENT) /* shown once it is there */
            rc = 0;
    }
    if (!rc)
        rc = server_open(&sc, &port, e);
    if (!rc)
        rc = write_state(o->data, port, key, sock, e);
    return rc ? rc : server_run(e);
}

static void serve(const struct options *o, const sigset_t *ends)
{
    struct timespec tick = {.tv_sec = 1};

    while (sigtimedwait(ends, NULL, &tick) < 0)
        if (box_idle(o->idle * 1000))
            break;
    log_msg(LOG_INFO, "ending");
    server_close();
    box_stop();
    remove_state(o->data);
}

/*
 * The child tells the parent by a pipe how it went: nothing and the end of
 * the pipe when it serves, else the words. Returns the pipe in the child; the
 * parent never returns.
 */
static int detach(const char *data)
{
    AUTO_FREE char *log = xasprintf("%s/host.log", data);
    int p[2], null, out;
    char words[700];
    ssize_t n, have = 0;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid < 0)
        return -1;
    if (pid) {
        close(p[1]);
        while ((n = read(p[0], words + have,
                         sizeof(words) - 1 - (size_t)have)) > 0)
            have += n;
        words[have] = 0;
        if (have > 1)
            fprintf(stderr, "courier-sandboxd: %s\n", words);
        else if (have == 1)
            printf("courier-sandboxd: serving in %s\n", data);
        else
            fputs("courier-sandboxd: ended while starting\n", stderr);
        fflush(stdout);
        _exit(have == 1 ? 0 : 1);
    }
    setsid();
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out >= 0 && lseek(out, 0, SEEK_END) > LOG_MAX && ftruncate(out, 0) < 0)
        close_cleanup(&out);
    dup2(null, 0);
    dup2(null, 1);
    dup2(out >= 0 ? out : null, 2);
    close_cleanup(&null);
    close_cleanup(&out);
    if (chdir("/") < 0)
        return -1;
    return p[1];
}

/* nothing of our caller's stays open: a mount, a lock, a pipe it waits for */
static void close_inherited(void)
{
    syscall(SYS_close_range, 3, ~0U, 0);
}

static void set_log_level(void)
{
    static const char *const names[] = {"err", "warn", "info", "debug"};
    const char *want = getenv("COURIER_LOG");

    log_level_set(LOG_INFO);
    for (int i = 0; want && i < (int)ARRAY_LEN(names); i++)
        if (strcmp(want, names[i]) == 0)
            log_level_set((enum log_level)i);
}

int main(int argc, char **argv)
{
    static struct options o; /* what it points to is kept to the end */
    struct err e = {0};
    sigset_t ends;
    int status, lock, tell = -1, rc;

    if (argc > 1 && strcmp(argv[1], "--init") == 0)
        return init_main(argc, argv);
    fd_std_open();
    status = parse(argc, argv, &o);
    if (status >= 0)
        return status;
    close_inherited();
    set_log_level();
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (open_data(&o, &e) < 0)
        return fail(&e);
    lock = take_lock(o.data, &e);
    if (lock == -EEXIST) {
        printf("courier-sandboxd: already running in %s\n", o.data);
        return 0;
    }
    if (lock < 0)
        return fail(&e);
    if (!o.foreground && (tell = detach(o.data)) < 0)
        return 1;
    rc = start(&o, &e);
    if (tell >= 0 &&
        (rc ? write(tell, e.text, strlen(e.text)) : write(tell, "", 1)) < 0)
        rc = rc ? rc : -EPIPE;
    close_cleanup(&tell);
    if (rc) {
        remove_state(o.data);
        return fail(&e);
    }
    log_msg(LOG_INFO, "serving");
    serve(&o, &ends);
    return 0;
}
