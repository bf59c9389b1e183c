#include "local/dns.h"

#include "local/init.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE = 4096, WAITING = 128, ROUTES_MAX = 4096 };
enum { TYPE_A = 1, TYPE_CNAME = 5, RCODE_SERVFAIL = 2, RCODE_NXDOMAIN = 3 };

struct waiting {
    struct sockaddr_in from;
    uint16_t id; /* as the box gave it */
    bool used;
};

struct dns {
    struct box *b; /* borrowed: the box stops us before it ends */
    char **hosts;
    int inside, upstream, stop;
    pthread_t thread;
    struct waiting waiting[WAITING];
    unsigned next;
    uint32_t *routes;
    size_t nroutes;
};

bool dns_name_ok(const char *host)
{
    size_t n = 0;

    if (strncmp(host, "*.", 2) == 0)
        host += 2;
    if (strlen(host) > 253)
        return false;
    for (; *host; host++) {
        if (*host == '.') {
            if (!n)
                return false;
            n = 0;
        } else if (!(isalnum((unsigned char)*host) || *host == '-' ||
                     *host == '_') ||
                   ++n > 63) {
            return false;
        }
    }
    return n > 0;
}

bool dns_allowed(const char *name, char *const *hosts)
{
    size_t n = strlen(name);

    for (; hosts && *hosts; hosts++) {
        const char *h = *hosts;
        size_t k = strlen(h);

        if (strcasecmp(h, name) == 0)
            return true;
        if (k > 2 && h[0] == '*' && h[1] == '.' && n > k - 1 &&
            strcasecmp(name + n - (k - 1), h + 1) == 0)
            return true;
    }
    return false;
}

static int two(const unsigned char *p)
{
    return p[0] << 8 | p[1];
}

bool dns_question(const unsigned char *m, size_t n, char name[256], int *type)
{
    size_t at = 12, out = 0;

    if (n < 17 || m[2] & 0xf8 || two(m + 4) != 1)
        return false;
    while (at < n && m[at]) {
        size_t k = m[at++];

        if (k > 63 || at + k >= n || out + k + 1 > 254)
            return false;
        if (out)
            name[out++] = '.';
        for (; k; k--, at++) {
            if (!m[at] || m[at] == '.')
                return false;
            name[out++] = (char)m[at];
        }
    }
    name[out] = 0;
    if (at + 5 > n)
        return false;
    *type = two(m + at + 1);
    return true;
}

static size_t skip_name(const unsigned char *m, size_t n, size_t at)
{
    while (at < n) {
        if (!m[at])
            return at + 1;
        if (m[at] >= 0xc0)
            return at + 2;
        at += m[at] + 1u;
    }
    return n;
}

void dns_addresses(const unsigned char *m, size_t n,
                   void (*fn)(uint32_t addr, void *arg), void *arg)
{
    size_t at = 12;
    int questions, answers;

    if (n < 12)
        return;
    questions = two(m + 4);
    answers = two(m + 6);
    while (questions-- > 0 && at < n)
        at = skip_name(m, n, at) + 4;
    while (answers-- > 0 && at < n) {
        size_t len;

        at = skip_name(m, n, at);
        if (at + 10 > n)
            return;
        len = (size_t)two(m + at + 8);
        if (at + 10 + len > n)
            return;
        if (two(m + at) == TYPE_A && len == 4) {
            uint32_t a;

            memcpy(&a, m + at + 10, 4);
            fn(a, arg);
        }
        at += 10 + len;
    }
}

bool dns_address_ok(uint32_t addr)
{
    uint32_t a = ntohl(addr);

    return a >> 24 != 0 && a >> 24 != 127 && a >> 16 != 0xa9fe &&
           a >> 8 != 0x0a0002 && a >> 28 < 0xe;
}

/* ---- the thread ---- */

static void refuse(struct dns *d, unsigned char *m, size_t n, int rcode,
                   const struct sockaddr_in *to)
{
    size_t end = skip_name(m, n, 12) + 4;

    if (end > n)
        return;
    m[2] = (unsigned char)(0x80 | (m[2] & 1));
    m[3] = (unsigned char)(0x80 | rcode);
    memset(m + 6, 0, 6);
    sendto(d->inside, m, end, MSG_DONTWAIT, (const void *)to, sizeof(*to));
}

static void from_box(struct dns *d)
{
    unsigned char m[MESSAGE];
    struct sockaddr_in from;
    socklen_t len = sizeof(from);
    char name[256];
    int type;
    struct waiting *w;
    ssize_t n =
        recvfrom(d->inside, m, sizeof(m), MSG_DONTWAIT, (void *)&from, &len);

    if (n < 0 || !dns_question(m, (size_t)n, name, &type))
        return;
    if (!dns_allowed(name, d->hosts)) {
        refuse(d, m, (size_t)n, RCODE_NXDOMAIN, &from);
        return;
    }
    if (type != TYPE_A && type != TYPE_CNAME) {
        refuse(d, m, (size_t)n, 0, &from);
        return;
    }
    w = &d->waiting[d->next % WAITING];
    *w = (struct waiting){from, (uint16_t)two(m), true};
    m[0] = (unsigned char)(d->next >> 8);
    m[1] = (unsigned char)d->next;
    d->next++;
    if (send(d->upstream, m, (size_t)n, MSG_DONTWAIT) < 0)
        refuse(d, m, (size_t)n, RCODE_SERVFAIL, &from);
}

static void open_route(uint32_t addr, void *arg)
{
    struct dns *d = arg;

    for (size_t i = 0; i < d->nroutes; i++)
        if (d->routes[i] == addr)
            return;
    if (!dns_address_ok(addr) || d->nroutes >= ROUTES_MAX ||
        box_route(d->b, addr, 32, 0) < 0)
        return;
    d->routes = xrealloc(d->routes, (d->nroutes + 1) * sizeof(*d->routes));
    d->routes[d->nroutes++] = addr;
}

static void from_upstream(struct dns *d)
{
    unsigned char m[MESSAGE];
    ssize_t n = recv(d->upstream, m, sizeof(m), MSG_DONTWAIT);
    struct waiting *w;
    unsigned id;

    if (n < 12)
        return;
    id = (unsigned)two(m);
    w = &d->waiting[id % WAITING];
    if (!w->used || (uint16_t)(d->next - id) > WAITING)
        return;
    w->used = false;
    m[0] = (unsigned char)(w->id >> 8);
    m[1] = (unsigned char)w->id;
    dns_addresses(m, (size_t)n, open_route, d);
    sendto(d->inside, m, (size_t)n, MSG_DONTWAIT, (void *)&w->from,
           sizeof(w->from));
}

static void *dns_thread(void *arg)
{
    struct dns *d = arg;

    for (;;) {
        struct pollfd p[3] = {{d->stop, POLLIN, 0},
                              {d->inside, POLLIN, 0},
                              {d->upstream, POLLIN, 0}};

        if (poll(p, 3, -1) < 0)
            continue;
        if (p[0].revents)
            return NULL;
        if (p[1].revents)
            from_box(d);
        if (p[2].revents)
            from_upstream(d);
    }
}

/* ---- start and stop ---- */

static int open_upstream(struct dns *d, struct err *e)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(53)};
    AUTO_BUF struct buf conf = {0};
    char addr[64] = "127.0.0.1";

    file_read("/etc/resolv.conf", 64 << 10, &conf);
    for (const char *p = buf_str(&conf); p && *p;) {
        if (sscanf(p, "nameserver %63s", addr) == 1 &&
            inet_pton(AF_INET, addr, &a.sin_addr) == 1)
            break;
        p = strchr(p, '\n');
        p = p ? p + 1 : NULL;
    }
    if (!a.sin_addr.s_addr)
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    d->upstream = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (d->upstream < 0 || connect(d->upstream, (void *)&a, sizeof(a)) < 0)
        return err_set(e, errno, "no DNS: %s", strerror(errno));
    return 0;
}

static void dns_free(struct dns *d)
{
    for (char **h = d->hosts; h && *h; h++)
        free(*h);
    free(d->hosts);
    close_cleanup(&d->inside);
    close_cleanup(&d->upstream);
    close_cleanup(&d->stop);
    free(d->routes);
    free(d);
}

static char **copy_hosts(char *const *hosts)
{
    size_t n = 0;
    char **out;

    while (hosts && hosts[n])
        n++;
    out = xcalloc(n + 1, sizeof(char *));
    for (size_t i = 0; i < n; i++)
        out[i] = xstrdup(hosts[i]);
    return out;
}

int dns_start(struct dns **out, struct box *b, char *const *hosts,
              struct err *e)
{
    struct dns *d = xcalloc(1, sizeof(*d));
    int rc;

    *out = NULL;
    d->b = b;
    d->hosts = copy_hosts(hosts);
    d->upstream = -1;
    d->stop = eventfd(0, EFD_CLOEXEC);
    d->inside = box_dns_socket(b);
    rc = d->inside < 0 ? err_set(e, -d->inside, "no DNS in the sandbox: %s",
                                 strerror(-d->inside))
                       : open_upstream(d, e);
    if (!rc && (rc = pthread_create(&d->thread, NULL, dns_thread, d)) != 0)
        rc = err_set(e, rc, "no thread: %s", strerror(rc));
    if (rc)
        dns_free(d);
    else
        *out = d;
    return rc;
}

void dns_stop(struct dns *d, struct box *b)
{
    if (!d)
        return;
    eventfd_write(d->stop, 1);
    pthread_join(d->thread, NULL);
    for (size_t i = 0; b && i < d->nroutes; i++)
        box_route(b, d->routes[i], 32, INIT_DEL);
    dns_free(d);
}
