/*
 * Where VMs live. An endpoint is made once for each key and kept until the
 * end. The local host is a process of its own: found by its socket below the
 * data directory, started when nothing answers there.
 */
#include "engine/endpoints.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_LIMIT_MS = 15000, IDLE_S = 60, HOST_JSON_MAX = 65536 };

struct endpoint {
    struct e2b *x;
    bool local;
    char *key; /* locked memory; NULL for the local host */
    struct endpoint *next;
};

struct endpoints {
    pthread_mutex_t lock;       /* guards the list */
    pthread_mutex_t local_lock; /* one looks after the local host at a time */
    struct endpoint *list;
    char *limits;      /* words; under lock */
    int64_t limits_of; /* inode of the socket they were asked from */
    bool ran;          /* the local host, when it was looked at last */
    int probe; /* a connection that nothing is sent on, or -1; under lock */
};

/* ---- the local host's traces ---- */

static char *host_path(struct courier *c, const char *name)
{
    return xasprintf("%s/host%s%s", c->data, *name ? "/" : "", name);
}

/* a connection to who listens there, or -1; never blocks */
static int host_connect(struct courier *c)
{
    AUTO_FREE char *path = host_path(c, "host.sock");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || strlen(path) >= sizeof(a.sun_path)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    /* EAGAIN: a queue that is full has an owner */
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) && errno != EAGAIN) {
        close(fd);
        return -1;
    }
    return fd;
}

/* has the other end closed it, or never taken it? */
static bool is_closed(int fd)
{
    char b;

    return recv(fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

/* does the local host run? A connection is kept for that, since every call
 * asks */
static bool host_answers(struct courier *c)
{
    struct endpoints *p = c->endpoints;
    bool answers;

    pthread_mutex_lock(&p->lock);
    if (p->probe >= 0 && is_closed(p->probe)) {
        close(p->probe);
        p->probe = -1;
    }
    if (p->probe < 0)
        p->probe = host_connect(c);
    answers = p->probe >= 0;
    pthread_mutex_unlock(&p->lock);
    return answers;
}

static json_t *host_json(struct courier *c)
{
    AUTO_FREE char *path = host_path(c, "host.json");
    AUTO_BUF struct buf text = {0};

    if (file_read(path, HOST_JSON_MAX, &text) < 0)
        return NULL;
    return json_loadb(buf_str(&text), text.n, 0, NULL);
}

void local_env(struct courier *c, struct buf *out)
{
    json_t *j = host_json(c);
    const char *url = json_string_value(json_object_get(j, "url"));
    const char *key = json_string_value(json_object_get(j, "key"));

    if (url && key && host_answers(c))
        buf_addf(out, "E2B_API_URL=%s\nE2B_SANDBOX_URL=%s\nE2B_API_KEY=%s\n",
                 url, url, key);
    json_decref(j);
}

/* ---- starting it ---- */

static bool runnable(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

static char *host_program(struct courier *c)
{
    const char *path = getenv("PATH"), *p;
    char *found = xasprintf("%s/courier-sandboxd", c->self_dir);

    if (runnable(found))
        return found;
    free(found);
    found = xasprintf("%s/../libexec/courier/courier-sandboxd", c->self_dir);
    if (runnable(found))
        return found;
    free(found);
    for (p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
        size_t n = strcspn(p, ":");

        if (n) {
            found = xasprintf("%.*s/courier-sandboxd", (int)n, p);
            if (runnable(found))
                return found;
            free(found);
        }
        p += n + (p[n] == ':');
    }
    return NULL;
}

static void add_dirs(struct courier *c, char **argv, size_t *n,
                     const char *key, const char *flag, size_t max)
{
    AUTO_FREE char *text = NULL, *list = NULL;
    size_t len = 0;

    text = doc_text(store_reader(c->store), root_oid(), "config", &len);
    list = text ? config_find(text, len, key) : NULL;
    for (int i = 0; list && *n + 2 < max; i++) {
        char *dir = config_list_item(list, i);

        if (!dir)
            break;
        argv[(*n)++] = xstrdup(flag);
        argv[(*n)++] = dir;
    }
}

static int wait_started(pid_t pid, struct err *e)
{
    int64_t until = mono_ms() + START_LIMIT_MS;
    int status;

    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);

        if (got == pid)
            break;
        if (got < 0 && errno != EINTR)
            return 0; /* somebody else reaped it; the socket tells */
        if (mono_ms() > until) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return err_set(e, EHOSTUNREACH,
                           "the local host did not start in time");
        }
        sleep_ms(5);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return err_set(e, EHOSTUNREACH,
                   "the local host (courier-sandboxd) could not be started");
}

/* the last line of what it said, for the error */
static void said(int fd, struct err *e)
{
    char text[400];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    AUTO_BUF struct buf b = {0};
    char *t;

    if (n <= 0)
        return;
    text[n] = 0;
    t = text_trim(text);
    if (strrchr(t, '\n'))
        t = strrchr(t, '\n') + 1;
    text_printable(&b, t, strlen(t), 0);
    err_set(e, EHOSTUNREACH, "the local host could not be started: %s",
            buf_str(&b));
}

static int host_spawn(struct courier *c, struct err *e)
{
    AUTO_FREE char *prog = host_program(c), *dir = host_path(c, "");
    const char *path = getenv("PATH"), *home = getenv("HOME");
    AUTO_FREE char *env_path = xasprintf(
        "PATH=%s", path ? path : "/usr/local/bin:/usr/bin:/bin:/usr/sbin");
    AUTO_FREE char *env_home = xasprintf("HOME=%s", home ? home : "/");
    char *env[] = {env_path, env_home, NULL};
    char idle[16], *argv[128];
    AUTO_CLOSE int log = memfd_create("said", MFD_CLOEXEC);
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    sigset_t none;
    size_t n = 0;
    pid_t pid;
    int r;

    if (!prog)
        return err_set(e, ENOENT,
                       "courier-sandboxd is neither beside courierfs nor in "
                       "PATH: no local sandboxes");
    (void)snprintf(idle, sizeof(idle), "%d", IDLE_S);
    argv[n++] = xstrdup("courier-sandboxd");
    argv[n++] = xstrdup("--data");
    argv[n++] = xstrdup(dir);
    argv[n++] = xstrdup("--idle");
    argv[n++] = xstrdup(idle);
    add_dirs(c, argv, &n, "local_bind", "--bind", ARRAY_LEN(argv) - 1);
    add_dirs(c, argv, &n, "local_path", "--path", ARRAY_LEN(argv) - 1);
    argv[n] = NULL;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, log, 1);
    posix_spawn_file_actions_adddup2(&fa, 1, 2);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    posix_spawnattr_init(&at);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    r = posix_spawn(&pid, prog, &fa, &at, argv, env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
    while (n)
        free(argv[--n]);
    if (r)
        return err_set(e, EHOSTUNREACH, "%s: %s", prog, strerror(r));
    r = wait_started(pid, e);
    if (r < 0)
        said(log, e);
    return r;
}

/* ---- endpoints ---- */

static struct endpoint *find(struct endpoints *p, bool local, const char *key)
{
    for (struct endpoint *x = p->list; x; x = x->next)
        if (x->local == local && (local || !strcmp(x->key, key)))
            return x;
    return NULL;
}

static int get(struct courier *c, const struct e2b_config *conf, bool local,
               struct e2b **out, struct err *e)
{
    struct endpoints *p = c->endpoints;
    struct endpoint *x;
    int r = 0;

    pthread_mutex_lock(&p->lock);
    x = find(p, local, conf->key);
    if (!x) {
        x = xcalloc(1, sizeof(*x));
        x->local = local;
        r = e2b_open(conf, &x->x, e);
        if (r < 0) {
            free(x);
            x = NULL;
        } else {
            x->key =
                conf->key ? vault_dup(conf->key, strlen(conf->key)) : NULL;
            x->next = p->list;
            p->list = x;
        }
    }
    if (x)
        *out = x->x;
    pthread_mutex_unlock(&p->lock);
    return r;
}

static int local_open(struct courier *c, struct e2b **out, struct err *e)
{
    AUTO_FREE char *path = host_path(c, "host.sock");
    struct e2b_config conf = {
        .api_url = "http://localhost",
        .sandbox_url = "http://localhost",
        .domain = "localhost",
        .unix_socket = path,
    };

    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return err_set(e, ENAMETOOLONG,
                       "the path of the data directory is too long for the "
                       "local host's socket: %s",
                       path);
    return get(c, &conf, true, out, e);
}

static void ask_limits(struct courier *c, struct e2b *x)
{
    struct endpoints *p = c->endpoints;
    AUTO_FREE char *path = host_path(c, "host.sock");
    AUTO_BUF struct buf text = {0}, words = {0};
    const char *key;
    json_t *j, *v;
    struct stat st;

    if (stat(path, &st) < 0 || (int64_t)st.st_ino == p->limits_of ||
        e2b_api_get(x, "/limits", &text, NULL) < 0)
        return;
    j = json_loadb(buf_str(&text), text.n, 0, NULL);
    json_object_foreach(j, key, v)
    {
        if (json_is_string(v))
            buf_addf(&words, "%s%s: %s", words.n ? ", " : "", key,
                     json_string_value(v));
    }
    json_decref(j);
    pthread_mutex_lock(&p->lock);
    free(p->limits);
    p->limits = NULL;
    if (words.n) {
        AUTO_BUF struct buf shown = {0};

        text_printable(&shown, words.p, words.n, 0);
        p->limits = xstrdup(buf_str(&shown));
    }
    p->limits_of = (int64_t)st.st_ino;
    pthread_mutex_unlock(&p->lock);
}

static int tx_host_changed(struct tx *tx, void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    tx_changed(tx, root_oid(), ASPECT_HOST | ASPECT_STATUS);
    return 0;
}

static int local_get(struct courier *c, struct e2b **out, struct err *e)
{
    struct endpoints *p = c->endpoints;
    bool started = false;
    int r = 0;

    if (!host_answers(c)) {
        pthread_mutex_lock(&p->local_lock);
        if (!host_answers(c)) {
            r = host_spawn(c, e);
            started = r == 0;
        }
        pthread_mutex_unlock(&p->local_lock);
        if (r == 0 && !host_answers(c))
            r = err_set(e, EHOSTUNREACH, "the local host does not answer");
    }
    if (r == 0)
        r = local_open(c, out, e);
    if (r == 0) {
        ask_limits(c, *out);
        if (started)
            store_submit(c->store, tx_host_changed, NULL, NULL, true);
    }
    return r;
}

void endpoint_local_look(struct courier *c)
{
    bool runs = host_answers(c);

    if (runs != c->endpoints->ran)
        store_submit(c->store, tx_host_changed, NULL, NULL, true);
    c->endpoints->ran = runs;
}

int endpoint_local_running(struct courier *c, struct e2b **out, struct err *e)
{
    int r;

    if (!host_answers(c))
        return err_set(e, ENOENT, "the local host does not run");
    r = local_open(c, out, e);
    if (r == 0)
        ask_limits(c, *out);
    return r;
}

static int cloud_get(struct courier *c, int64_t project, struct e2b **out,
                     struct err *e)
{
    const char *level, *domain = keys_env_setting(c, "E2B_DOMAIN");
    const char *api = keys_env_setting(c, "E2B_API_URL");
    AUTO_FREE char *url = NULL;
    struct e2b_config conf = {
        .sandbox_url = keys_env_setting(c, "E2B_SANDBOX_URL"),
    };
    char *key = NULL;
    int r =
        key_get(c, store_reader(c->store), project, "e2b", &key, &level, e);

    if (r == -ENOENT)
        return err_set(e, EACCES,
                       "no E2B key: put one into keys/e2b, or use the local "
                       "backend");
    if (r < 0)
        return r;
    conf.domain = domain && *domain ? domain : "e2b.app";
    url =
        api && *api ? xstrdup(api) : xasprintf("https://api.%s", conf.domain);
    conf.api_url = url;
    conf.key = key;
    if (conf.sandbox_url && !*conf.sandbox_url)
        conf.sandbox_url = NULL;
    r = get(c, &conf, false, out, e);
    vault_free(key);
    return r;
}

int endpoint_get(struct courier *c, int64_t project, const char *backend,
                 struct e2b **out, struct err *e)
{
    if (!strcmp(backend, "local"))
        return local_get(c, out, e);
    return cloud_get(c, project, out, e);
}

void endpoint_put(struct courier *c, struct e2b *x)
{
    (void)c; /* they live until the end: a call may be under way on any */
    (void)x;
}

int sandbox_target(struct courier *c, const struct sandbox *s,
                   struct e2b_target *t, struct err *e)
{
    int r;

    memset(t, 0, sizeof(*t));
    if (!s->vm)
        return err_set(e, EHOSTDOWN, "'%s' has no VM", s->name);
    /* a host that is gone has taken its VMs along: it isn't started for one */
    r = strcmp(s->backend, "local")
            ? endpoint_get(c, s->project, s->backend, &t->x, e)
            : endpoint_local_running(c, &t->x, e);
    if (r == -ENOENT)
        return err_set(e, EHOSTDOWN, "the local host does not run");
    t->id = s->vm;
    t->token = s->vm_token;
    t->domain = s->vm_domain;
    return r;
}

const char *backend_auto(struct courier *c, struct db *d, int64_t project)
{
    if (c->backend && !strcmp(c->backend, "e2b"))
        return "e2b";
    if (c->backend && !strcmp(c->backend, "local"))
        return "local";
    return key_there(c, d, project, "e2b") ? "e2b" : "local";
}

char *local_limits(struct courier *c)
{
    char *out = NULL;

    if (!c->endpoints)
        return NULL;
    pthread_mutex_lock(&c->endpoints->lock);
    out = xstrdup(c->endpoints->limits);
    pthread_mutex_unlock(&c->endpoints->lock);
    return out;
}

static void known_add(struct endpoint_name **v, size_t *n, int64_t project,
                      bool local)
{
    *v = xrealloc(*v, (*n + 1) * sizeof(**v));
    (*v)[(*n)++] = (struct endpoint_name){project, local};
}

struct endpoint_name *endpoints_known(struct courier *c, size_t *n)
{
    struct db *d = store_reader(c->store);
    struct endpoint_name *v = NULL;
    sqlite3_stmt *q;

    *n = 0;
    if (host_answers(c) ||
        db_int(d, 0,
               "SELECT 1 FROM sandbox WHERE backend='local' AND vm IS NOT "
               "NULL LIMIT 1",
               ""))
        known_add(&v, n, 0, true);
    if (key_there(c, d, 0, "e2b"))
        known_add(&v, n, 0, false);
    q = db_query(d,
                 "SELECT owner FROM secret WHERE kind=? AND path='keys/e2b'",
                 "i", (int64_t)OBJ_PROJECT);
    while (db_row(d, q))
        known_add(&v, n, col_int(q, 0), false);
    return v;
}

int endpoints_open(struct courier *c, struct err *e)
{
    struct endpoints *p = xcalloc(1, sizeof(*p));

    (void)e;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->local_lock, NULL);
    p->probe = -1;
    c->endpoints = p;
    return 0;
}

void endpoints_close(struct courier *c)
{
    struct endpoints *p = c->endpoints;

    if (!p)
        return;
    while (p->list) {
        struct endpoint *x = p->list;

        p->list = x->next;
        e2b_close(x->x);
        vault_free(x->key);
        free(x);
    }
    if (p->probe >= 0)
        close(p->probe);
    free(p->limits);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->local_lock);
    c->endpoints = NULL;
    free(p);
}
