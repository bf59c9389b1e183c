#include "local/server.h"

#include "local/control.h"
#include "local/http.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    ENVD_PORT = 49983,
    CONNECTIONS_MAX = 4000,
    STACK = 512 << 10,
    RPC_BODY_MAX = 16 << 20,
    AUTO_RESUME_SECONDS = 300
};

static struct {
    int unix_fd, tcp_fd;
    char *key;
    atomic_int connections;
} srv = {.unix_fd = -1, .tcp_fd = -1};

/* takes as long whatever differs */
static bool same(const char *a, const char *b)
{
    size_t n = strlen(b);
    unsigned diff = strlen(a) != n;

    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(a[i % (strlen(a) + 1)] ^ b[i]);
    return !diff;
}

static bool starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* ---- the data plane ---- */

static void gone(struct req *r, const char *id)
{
    AUTO_FREE char *words = NULL;
    char why[200];

    if (box_obituary(id, why, sizeof(why)) && strcmp(why, "killed") != 0)
        words = xasprintf("The sandbox was not found: it ended: %s", why);
    reply_json(r, 502,
               json_pack("{s:s, s:s, s:i}", "sandboxId", id, "message",
                         words ? words : "The sandbox was not found", "code",
                         502));
}

static void port_closed(struct req *r, const char *id, int port)
{
    reply_json(r, 502,
               json_pack("{s:s, s:s, s:i, s:i}", "sandboxId", id, "message",
                         "The sandbox is running but port "
                         "is not open",
                         "port", port, "code", 502));
}

static bool token_ok(struct req *r, struct box *b)
{
    const char *want = box_token(b);
    const char *got = req_header(r, "X-Access-Token");

    return !*want || (got && same(got, want));
}

static bool reserved(const char *path)
{
    static const char *const all[] = {"/init",     "/freeze",   "/unfreeze",
                                      "/collapse", "/fsfreeze", "/fsthaw",
                                      "/upgrade"};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(path, all[i]) == 0)
            return true;
    return false;
}

static bool is_files(const char *path)
{
    return strcmp(path, "/files") == 0 || starts(path, "/files/");
}

static bool may_use(struct req *r, struct box *b, int port)
{
    const char *traffic = box_traffic_token(b);
    const char *got;

    if (port != ENVD_PORT) {
        got = req_header(r, "e2b-traffic-access-token");
        if (!traffic || (got && same(got, traffic)))
            return true;
        reply_json(r, 403,
                   json_pack("{s:s, s:s, s:i}", "sandboxId", box_id(b),
                             "message",
                             "Sandbox is "
                             "secured with traffic access token. "
                             "Token header "
                             "'e2b-traffic-access-token' is missing "
                             "or wrong",
                             "code", 403));
        return false;
    }
    if (strcmp(r->path, "/health") == 0 || token_ok(r, b))
        return true;
    if (strcmp(r->path, "/files") == 0 && !req_header(r, "X-Access-Token") &&
        files_signature_ok(r, b))
        return true;
    if (strcmp(r->path, "/files") == 0) {
        const char *why =
            req_header(r, "X-Access-Token")
                ? "access token present in header but does not match"
                : files_signature_words(r, b);

        control_fail(r, 401, "%s", why);
        return false;
    }
    control_fail(r, 401,
                 "unauthorized access, please provide a valid access "
                 "token or method signing if supported");
    return false;
}

static void send_metrics(struct req *r, struct box *b)
{
    struct box_usage u;

    box_usage(b, &u);
    reply_json(
        r, 200,
        json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ts",
                  (json_int_t)(now_ms() / 1000), "cpu_count",
                  (json_int_t)box_spec(b)->cpus, "cpu_used_pct", u.cpu_pct,
                  "mem_total", (json_int_t)u.mem_total, "mem_used",
                  (json_int_t)u.mem, "mem_cache", (json_int_t)u.cache,
                  "mem_total_mib", (json_int_t)(u.mem_total >> 20),
                  "mem_used_mib", (json_int_t)(u.mem >> 20), "disk_used",
                  (json_int_t)u.disk, "disk_total", (json_int_t)u.disk_total));
}

static void send_envs(struct req *r, struct box *b)
{
    json_t *all = json_object();

    for (char *const *e = box_env(b); *e; e++) {
        AUTO_FREE char *name = xmemdup0(*e, strcspn(*e, "="));

        json_object_set_new(all, name, json_string(*e + strlen(name) + 1));
    }
    reply_json(r, 200, all);
}

static void envd(struct req *r, struct box *b)
{
    const char *call = strrchr(r->path, '/') + 1;
    bool stream = strcmp(r->path, "/process.Process/StreamInput") == 0;

    reply_header(r, "Access-Control-Allow-Origin", "*");
    if (is_files(r->path)) {
        files_handle(r, b);
        return;
    }
    if (!stream && http_body(r, RPC_BODY_MAX) < 0) {
        control_fail(r, 400, "the body is malformed or too large");
        return;
    }
    if (starts(r->path, "/process.Process/")) {
        process_handle(r, b, call);
    } else if (starts(r->path, "/filesystem.Filesystem/")) {
        fs_handle(r, b, call);
    } else if (strcmp(r->path, "/health") == 0) {
        reply_header(r, "Cache-Control", "no-store");
        reply(r, 204, NULL, NULL, 0);
    } else if (strcmp(r->path, "/metrics") == 0) {
        send_metrics(r, b);
    } else if (strcmp(r->path, "/envs") == 0) {
        send_envs(r, b);
    } else {
        reply(r, 404, "text/plain", "404 page not found\n", 19);
    }
}

static bool still_runs(void *arg)
{
    return box_alive(arg);
}

static void to_port(struct req *r, struct box *b, int port)
{
    int fd = box_dial(b, port);

    if (fd < 0)
        port_closed(r, box_id(b), port);
    else
        http_tunnel(r, fd, still_runs, b);
}

/* true when it runs, perhaps because we resumed it */
static bool awake(struct box *b)
{
    struct err e = {0};

    if (!box_paused(b))
        return box_alive(b);
    if (!box_spec(b)->auto_resume)
        return false;
    box_resume(b, AUTO_RESUME_SECONDS * 1000, &e);
    return box_alive(b) && !box_paused(b);
}

static void to_box(struct req *r, const char *id, int port)
{
    struct box *b = box_get(id);

    if (!b) {
        gone(r, id);
    } else if (port == ENVD_PORT && reserved(r->path)) {
        reply_json(r, 404,
                   json_pack("{s:s, s:s, s:i}", "message",
                             "This endpoint is reserved and can't be "
                             "called from outside",
                             "path", r->path, "code", 404));
    } else if (box_paused(b) && !box_spec(b)->auto_resume) {
        gone(r, id);
    } else if (may_use(r, b, port)) {
        if (!awake(b))
            gone(r, id);
        else if (port == ENVD_PORT)
            envd(r, b);
        else
            to_port(r, b, port);
    }
    box_put(b);
}

/* a signed URL names no sandbox: it is the one whose token signed it */
static void signed_files(struct req *r)
{
    size_t n;
    struct box **all = box_all(&n);
    struct box *found = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!found && *box_token(all[i]) && files_signature_ok(r, all[i]))
            found = all[i];
        else
            box_put(all[i]);
    }
    free(all);
    if (found)
        to_box(r, box_id(found), ENVD_PORT);
    else
        control_fail(r, 401, "invalid signature");
    box_put(found);
}

/* ---- where a request goes ---- */

/* "<port>-<id>.<domain>" */
static bool host_names_box(const char *host, int *port, char id[64])
{
    size_t digits = strspn(host, "0123456789");
    const char *at = host + digits + 1;
    size_t n = 0;

    if (!digits || digits > 5 || host[digits] != '-')
        return false;
    while (islower((unsigned char)at[n]) || isdigit((unsigned char)at[n]))
        n++;
    if (!n || n >= 64 || at[n] != '.')
        return false;
    *port = atoi(host);
    memcpy(id, at, n);
    id[n] = 0;
    return true;
}

static bool data_path(const char *path)
{
    return starts(path, "/process.Process/") ||
           starts(path, "/filesystem.Filesystem/") || is_files(path);
}

static void by_headers(struct req *r, const char *id, const char *port)
{
    int64_t n;
    AUTO_FREE char *copy = NULL;

    if (!id || !port) {
        reply(r, 400, "text/plain", "missing header\n", 15);
        return;
    }
    copy = xstrdup(id);
    copy[strcspn(copy, "-")] = 0;
    if (!control_id_ok(copy))
        reply(r, 400, "text/plain", "Invalid sandbox ID\n", 19);
    else if (!text_int(port, 1, 65535, &n))
        reply(r, 400, "text/plain", "Invalid sandbox port\n", 21);
    else
        to_box(r, copy, (int)n);
}

static void preflight(struct req *r)
{
    reply_header(r, "Access-Control-Allow-Origin", "*");
    reply_header(r, "Access-Control-Allow-Methods",
                 "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS");
    reply_header(r, "Access-Control-Allow-Headers", "*");
    reply_header(r, "Access-Control-Max-Age", "7200");
    reply(r, 204, NULL, NULL, 0);
}

static void to_control(struct req *r)
{
    const char *key = req_header(r, "X-API-KEY");

    if (!http_local(r) && strcmp(r->path, "/health") != 0 &&
        !(key && same(key, srv.key)))
        control_fail(r, 401, "%s",
                     key ? "Invalid API key"
                         : "the header X-API-KEY is missing");
    else if (strcmp(r->path, "/limits") == 0 && !http_local(r))
        control_fail(r, 404, "no such call");
    else
        control_handle(r);
}

static void route(struct req *r)
{
    const char *host = req_header(r, "Host");
    const char *id = req_header(r, "E2b-Sandbox-Id");
    const char *port = req_header(r, "E2b-Sandbox-Port");
    char named[64];
    int n;

    if (host && host_names_box(host, &n, named)) {
        if (n == ENVD_PORT && strcmp(r->method, "OPTIONS") == 0)
            preflight(r);
        else
            to_box(r, named, n);
    } else if (strcmp(r->method, "OPTIONS") == 0 && data_path(r->path)) {
        preflight(r);
    } else if (id || port) {
        by_headers(r, id, port);
    } else if (strcmp(r->path, "/files") == 0 && req_query(r, "signature")) {
        signed_files(r);
    } else if (data_path(r->path)) {
        by_headers(r, NULL, NULL);
    } else {
        to_control(r);
    }
}

/* ---- connections ---- */

struct visitor {
    int fd;
    bool local;
};

static void *visitor_thread(void *arg)
{
    struct visitor *v = arg;
    int fd = v->fd;
    bool local = v->local;

    free(v);
    http_serve(fd, local, route);
    atomic_fetch_sub(&srv.connections, 1);
    return NULL;
}

static void welcome(int listener, bool local)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct visitor *v;
    pthread_attr_t a;
    pthread_t t;
    int on = 1;

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            sleep_ms(50);
        return;
    }
    if (!local)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    v = xmalloc(sizeof(*v));
    *v = (struct visitor){fd, local};
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, STACK);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    if (atomic_fetch_add(&srv.connections, 1) >= CONNECTIONS_MAX ||
        pthread_create(&t, &a, visitor_thread, v)) {
        atomic_fetch_sub(&srv.connections, 1);
        close(fd);
        free(v);
    }
    pthread_attr_destroy(&a);
}

static void *accept_thread(void *arg)
{
    struct pollfd p[2] = {{srv.unix_fd, POLLIN, 0}, {srv.tcp_fd, POLLIN, 0}};

    (void)arg;
    for (;;) {
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[0].revents & (POLLNVAL | POLLERR | POLLHUP))
            return NULL;
        if (p[0].revents)
            welcome(srv.unix_fd, true);
        if (p[1].revents)
            welcome(srv.tcp_fd, false);
    }
}

static int open_unix(const char *path, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    mode_t old;
    int rc;

    if (strlen(path) >= sizeof(a.sun_path))
        return err_set(e, ENAMETOOLONG,
                       "the path of the socket is too long: "
                       "%s",
                       path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    srv.unix_fd =
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(path);
    old = umask(077);
    rc = srv.unix_fd < 0 || bind(srv.unix_fd, (void *)&a, sizeof(a)) < 0 ||
                 listen(srv.unix_fd, 512) < 0
             ? -errno
             : 0;
    umask(old);
    return rc ? err_set(e, -rc, "%s: %s", path, strerror(-rc)) : 0;
}

static int open_tcp(int port, int *got, struct err *e)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof(a);
    int on = 1;

    srv.tcp_fd =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(srv.tcp_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (srv.tcp_fd < 0 || bind(srv.tcp_fd, (void *)&a, sizeof(a)) < 0 ||
        listen(srv.tcp_fd, 512) < 0 ||
        getsockname(srv.tcp_fd, (void *)&a, &n) < 0)
        return err_set(e, errno, "127.0.0.1:%d: %s", port, strerror(errno));
    *got = ntohs(a.sin_port);
    return 0;
}

int server_open(const struct server_conf *c, int *port, struct err *e)
{
    int rc = open_unix(c->socket, e);

    srv.key = xstrdup(c->key);
    return rc ? rc : open_tcp(c->port, port, e);
}

int server_run(struct err *e)
{
    pthread_t t;
    int rc = pthread_create(&t, NULL, accept_thread, NULL);

    if (rc)
        return err_set(e, rc, "no thread: %s", strerror(rc));
    pthread_detach(t);
    return 0;
}

void server_close(void)
{
    shutdown(srv.unix_fd, SHUT_RDWR);
    shutdown(srv.tcp_fd, SHUT_RDWR);
}
