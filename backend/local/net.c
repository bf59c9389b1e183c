#include "local/net.h"

#include "local/dns.h"
#include "local/init.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct net {
    pthread_mutex_t mu;
    pid_t slirp;
    int exit_fd; /* slirp4netns ends when it closes, also if we are killed */
    enum net_mode mode;
    struct dns *dns;
    /* routes made for addresses that are allowed as such */
    uint32_t *addr;
    int *prefix;
    size_t n;
};

static const char *slirp_path(void)
{
    static const char *const places[] = {"/usr/bin/slirp4netns",
                                         "/usr/local/bin/slirp4netns",
                                         "/bin/slirp4netns"};

    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

bool net_possible(const char **why)
{
    const char *words = NULL;

    if (!slirp_path())
        words = "slirp4netns is not installed";
    else if (access("/dev/net/tun", R_OK | W_OK) < 0)
        words = "/dev/net/tun can't be opened";
    if (why)
        *why = words;
    return !words;
}

static bool parse_cidr(const char *s, uint32_t *addr, int *prefix)
{
    char text[32];
    size_t n = strcspn(s, "/");
    struct in_addr a;
    int64_t bits = 32;

    if (n >= sizeof(text))
        return false;
    memcpy(text, s, n);
    text[n] = 0;
    if (inet_pton(AF_INET, text, &a) != 1 ||
        (s[n] && !text_int(s + n + 1, 0, 32, &bits)))
        return false;
    *prefix = (int)bits;
    *addr = a.s_addr & (bits ? htonl(~0U << (32 - bits)) : 0);
    return true;
}

bool net_host_ok(const char *host)
{
    uint32_t a;
    int p;

    return parse_cidr(host, &a, &p) || dns_name_ok(host);
}

/* ---- slirp4netns ---- */

static int wait_ready(struct net *n, int fd, int err_fd, struct err *e)
{
    struct pollfd p = {fd, POLLIN, 0};
    char c, said[300];
    ssize_t k;
    AUTO_BUF struct buf text = {0};

    if (poll(&p, 1, 5000) > 0 && read(fd, &c, 1) == 1)
        return 0;
    k = pread(err_fd, said, sizeof(said), 0);
    while (k > 0 && said[k - 1] == '\n')
        k--;
    if (k > 0)
        text_printable(&text, said, (size_t)k, 0);
    if (waitpid(n->slirp, NULL, WNOHANG) == n->slirp)
        n->slirp = -1;
    return err_set(e, EIO, "the sandbox's network didn't start: %s",
                   text.n ? text.p : "slirp4netns says nothing");
}

static int slirp_start(struct net *n, struct box *b, struct err *e)
{
    AUTO_FREE char *pid = xasprintf("%d", (int)box_init_pid(b));
    AUTO_CLOSE int err_fd = memfd_create("slirp", MFD_CLOEXEC);
    /* its sandbox wants to be id 0 in the box's user namespace, where a plain
     * user has one id only, another */
    bool boxed = geteuid() == 0;
    char *argv[] = {(char *)slirp_path(),
                    (char *)"--configure",
                    (char *)"--mtu=65520",
                    (char *)"--disable-host-loopback",
                    (char *)"--enable-seccomp",
                    (char *)"--ready-fd=3",
                    (char *)"--exit-fd=4",
                    (char *)(boxed ? "--enable-sandbox" : "--"),
                    pid,
                    (char *)"tap0",
                    NULL};
    int ready[2], gone[2], keep[2], rc;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return err_set(e, errno, "no pipe: %s", strerror(errno));
    if (pipe2(gone, O_CLOEXEC) < 0) {
        close(ready[0]);
        close(ready[1]);
        return err_set(e, errno, "no pipe: %s", strerror(errno));
    }
    keep[0] = ready[1];
    keep[1] = gone[0];
    n->exit_fd = gone[1];
    n->slirp = jail_run(argv, keep, 2, err_fd);
    close(ready[1]);
    close(gone[0]);
    rc = n->slirp < 0 ? err_set(e, EIO, "no process for the network")
                      : wait_ready(n, ready[0], err_fd, e);
    close(ready[0]);
    return rc;
}

/* ---- who may be reached ---- */

static void drop_allowed(struct net *n, struct box *b)
{
    for (size_t i = 0; i < n->n; i++)
        box_route(b, n->addr[i], n->prefix[i], INIT_DEL);
    n->n = 0;
    dns_stop(n->dns, b);
    n->dns = NULL;
}

static int allow(struct net *n, struct box *b, char *const *hosts,
                 struct err *e)
{
    int rc = 0;

    for (char *const *h = hosts; h && *h && !rc; h++) {
        uint32_t addr;
        int prefix;

        if (!parse_cidr(*h, &addr, &prefix))
            continue;
        n->addr = xrealloc(n->addr, (n->n + 1) * sizeof(*n->addr));
        n->prefix = xrealloc(n->prefix, (n->n + 1) * sizeof(*n->prefix));
        n->addr[n->n] = addr;
        n->prefix[n->n++] = prefix;
        rc = box_route(b, addr, prefix, 0);
    }
    if (rc < 0)
        return err_set(e, -rc, "no route: %s", strerror(-rc));
    return dns_start(&n->dns, b, hosts, e);
}

/* the routes say what can be reached; nothing in the box may change them */
static int apply(struct net *n, struct box *b, enum net_mode mode,
                 char *const *hosts, struct err *e)
{
    int rc;

    drop_allowed(n, b);
    rc = box_route(b, inet_addr("169.254.0.0"), 16, INIT_HOLE);
    if (rc < 0)
        return err_set(e, -rc, "no route: %s", strerror(-rc));
    /* the DNS that slirp4netns has is for those who may reach everything */
    if (mode == NET_ON) {
        box_route(b, inet_addr("10.0.2.3"), 32, INIT_HOLE | INIT_DEL);
        rc = box_route(b, 0, 0, 0);
    } else {
        box_route(b, inet_addr("10.0.2.3"), 32, INIT_HOLE);
        rc = box_route(b, 0, 0, INIT_DEL);
        if (rc == -ESRCH)
            rc = 0;
    }
    if (rc < 0)
        return err_set(e, -rc, "no route: %s", strerror(-rc));
    n->mode = mode;
    return mode == NET_ALLOW ? allow(n, b, hosts, e) : 0;
}

int net_change(struct net *n, struct box *b, enum net_mode mode,
               char *const *hosts, struct err *e)
{
    int rc;

    pthread_mutex_lock(&n->mu);
    rc = apply(n, b, mode, hosts, e);
    pthread_mutex_unlock(&n->mu);
    return rc;
}

int net_start(struct net **out, struct box *b, enum net_mode mode,
              char *const *hosts, struct err *e)
{
    struct net *n;
    const char *why;
    int rc;

    *out = NULL;
    if (!net_possible(&why)) {
        if (mode == NET_ON) {
            box_log(b, "warn", "no network: %s", why);
            return 0;
        }
        return err_set(e, ENOTSUP,
                       "hosts can't be allowed one by one here: "
                       "%s",
                       why);
    }
    n = xcalloc(1, sizeof(*n));
    pthread_mutex_init(&n->mu, NULL);
    n->slirp = n->exit_fd = -1;
    rc = slirp_start(n, b, e);
    if (!rc)
        rc = apply(n, b, mode, hosts, e);
    if (rc)
        net_stop(n);
    else
        *out = n;
    return rc;
}

void net_stop(struct net *n)
{
    if (!n)
        return;
    dns_stop(n->dns, NULL);
    close_cleanup(&n->exit_fd);
    if (n->slirp > 0) {
        kill(n->slirp, SIGTERM);
        for (int i = 0; i < 100; i++) {
            if (waitpid(n->slirp, NULL, WNOHANG) == n->slirp) {
                n->slirp = -1;
                break;
            }
            sleep_ms(2);
        }
    }
    if (n->slirp > 0) {
        kill(n->slirp, SIGKILL);
        while (waitpid(n->slirp, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    pthread_mutex_destroy(&n->mu);
    free(n->addr);
    free(n->prefix);
    free(n);
}
