#include "local/box_int.h"

#include "local/net.h"
#include "local/trash.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINES_MAX = 200, OBITUARY_MS = 5 * 60 * 1000, HOOKS = 8 };

/* ids no distribution hands out; one range a box */
#define BASE_FIRST 0x70000000u
enum { BASE_RANGES = 4095 };

struct obituary {
    char id[24], why[200];
    int64_t until; /* monotonic */
    struct lines lines;
    struct obituary *next;
};

static struct {
    char *data;
    bool stopping;
    struct box *list;
    struct obituary *dead;
    int living; /* boxes and what still cleans up after one */
    int64_t idle_since;
    void (*hooks[HOOKS])(const char *id);
    size_t nhooks;
} host;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* CLOCK_MONOTONIC */

/* ---- small things ---- */

static void random_word(char *out, size_t n, const char *alphabet)
{
    unsigned char r[64];
    size_t k = strlen(alphabet);

    if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
        abort();
    for (size_t i = 0; i < n; i++)
        out[i] = alphabet[r[i % sizeof(r)] % k];
    out[n] = 0;
}

static void random_hex(char out[65])
{
    unsigned char r[32];

    if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
        abort();
    for (size_t i = 0; i < sizeof(r); i++)
        snprintf(out + 2 * i, 3, "%02x", r[i]);
}

static void strings_free(char **v)
{
    for (size_t i = 0; v && v[i]; i++)
        free(v[i]);
    free(v);
}

static void lines_free(struct lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i].text);
    free(l->v);
    *l = (struct lines){0};
}

void box_spec_free(struct box_spec *s)
{
    free(s->template);
    json_decref(s->metadata);
    json_decref(s->network);
    strings_free(s->env);
    strings_free(s->allow);
    strings_free(s->binds);
    *s = (struct box_spec){0};
}

int box_pids(const struct box_spec *s)
{
    return (int)(s->memory_mb < 256    ? 256
                 : s->memory_mb > 2000 ? 2000
                                       : s->memory_mb);
}

static void line_add(struct box *b, const char *level, const char *fmt,
                     va_list ap)
{
    struct lines *l = &b->lines;
    struct buf text = {0};

    buf_vaddf(&text, fmt, ap);
    if (l->n == LINES_MAX) {
        free(l->v[0].text);
        memmove(l->v, l->v + 1, --l->n * sizeof(*l->v));
    }
    l->v = xrealloc(l->v, (l->n + 1) * sizeof(*l->v));
    l->v[l->n++] = (struct box_line){now_ms(), level, buf_take(&text)};
}

/* with mu held */
PRINTF(3, 4)
static void line(struct box *b, const char *level, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    line_add(b, level, fmt, ap);
    va_end(ap);
}

void box_log(struct box *b, const char *level, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    pthread_mutex_lock(&mu);
    line_add(b, level, fmt, ap);
    pthread_mutex_unlock(&mu);
    va_end(ap);
}

/* ---- references and the list ---- */

static void box_free(struct box *b)
{
    close_cleanup(&b->j.sock);
    close_cleanup(&b->j.pidfd);
    close_cleanup(&b->j.root_fd);
    cgroup_close(&b->cg);
    cpus_give(&b->cpus);
    box_spec_free(&b->spec);
    strings_free(b->env);
    free(b->dir);
    free(b->procs);
    lines_free(&b->lines);
    pthread_mutex_destroy(&b->op);
    pthread_mutex_destroy(&b->call_mu);
    pthread_cond_destroy(&b->call_cond);
    free(b);
}

void box_put(struct box *b)
{
    bool last;

    if (!b)
        return;
    pthread_mutex_lock(&mu);
    last = --b->refs == 0;
    pthread_mutex_unlock(&mu);
    if (last)
        box_free(b);
}

static bool visible(const struct box *b)
{
    return b->state == BOX_RUNNING || b->state == BOX_PAUSED;
}

struct box *box_get(const char *id)
{
    struct box *b;

    pthread_mutex_lock(&mu);
    for (b = host.list; b; b = b->next)
        if (visible(b) && strcmp(b->id, id) == 0) {
            b->refs++;
            break;
        }
    pthread_mutex_unlock(&mu);
    return b;
}

struct box **box_all(size_t *n)
{
    struct box **all = NULL;

    *n = 0;
    pthread_mutex_lock(&mu);
    for (struct box *b = host.list; b; b = b->next)
        if (visible(b)) {
            all = xrealloc(all, (*n + 1) * sizeof(struct box *));
            all[(*n)++] = b;
            b->refs++;
        }
    pthread_mutex_unlock(&mu);
    return all;
}

static void list_remove(struct box *b)
{
    struct box **at = &host.list;

    while (*at && *at != b)
        at = &(*at)->next;
    if (*at)
        *at = b->next;
}

const char *box_id(const struct box *b)
{
    return b->id;
}

const char *box_token(const struct box *b)
{
    return b->spec.secure ? b->token : "";
}

const char *box_traffic_token(const struct box *b)
{
    return b->spec.private_traffic ? b->traffic : NULL;
}

const struct box_spec *box_spec(const struct box *b)
{
    return &b->spec;
}

char *const *box_env(const struct box *b)
{
    return b->env;
}

int box_root_fd(const struct box *b)
{
    return b->j.root_fd;
}

pid_t box_init_pid(const struct box *b)
{
    return b->j.init;
}

struct net *box_net(const struct box *b)
{
    return b->net;
}

void box_ids(const struct box *b, bool root, uid_t *uid, gid_t *gid)
{
    *uid = b->base ? b->base + (root ? 0 : BOX_UID) : getuid();
    *gid = b->base ? *uid : getgid();
}

bool box_look(struct box *b, struct box_info *info)
{
    bool found;

    pthread_mutex_lock(&mu);
    *info = (struct box_info){b->state, b->started, b->end_at};
    found = visible(b);
    pthread_mutex_unlock(&mu);
    return found;
}

bool box_alive(const struct box *b)
{
    bool alive;

    pthread_mutex_lock(&mu);
    alive = visible(b);
    pthread_mutex_unlock(&mu);
    return alive;
}

bool box_paused(const struct box *b)
{
    bool paused;

    pthread_mutex_lock(&mu);
    paused = b->state == BOX_PAUSED;
    pthread_mutex_unlock(&mu);
    return paused;
}

void box_on_end(void (*fn)(const char *id))
{
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < host.nhooks; i++)
        if (host.hooks[i] == fn)
            fn = NULL;
    if (fn && host.nhooks < HOOKS)
        host.hooks[host.nhooks++] = fn;
    pthread_mutex_unlock(&mu);
}

/* ---- the end of a box ---- */

static void obituaries_trim(bool all)
{
    struct obituary **at = &host.dead;

    while (*at) {
        struct obituary *o = *at;

        if (all || mono_ms() > o->until) {
            *at = o->next;
            lines_free(&o->lines);
            free(o);
        } else {
            at = &o->next;
        }
    }
}

/* with mu held; takes the lines */
static void obituary_add(struct box *b)
{
    struct obituary *o = xcalloc(1, sizeof(*o));

    obituaries_trim(false);
    memcpy(o->id, b->id, sizeof(o->id));
    memcpy(o->why, b->why, sizeof(o->why));
    o->until = mono_ms() + OBITUARY_MS;
    line(b, "info", "sandbox ended: %s", b->why);
    o->lines = b->lines;
    b->lines = (struct lines){0};
    o->next = host.dead;
    host.dead = o;
}

bool box_obituary(const char *id, char *why, size_t size)
{
    const char *text;
    struct obituary *o;

    pthread_mutex_lock(&mu);
    obituaries_trim(false);
    for (o = host.dead; o && strcmp(o->id, id) != 0; o = o->next)
        ;
    text = o ? o->why : NULL;
    /* one that is ending is not to be seen any more, either */
    for (struct box *b = host.list; b && !text; b = b->next)
        if (b->state == BOX_ENDING && strcmp(b->id, id) == 0)
            text = b->why;
    if (text)
        snprintf(why, size, "%s", text);
    pthread_mutex_unlock(&mu);
    return text != NULL;
}

static void thaw(struct box *b)
{
    if (b->cg.freezer_state >= 0 &&
        write(b->cg.freezer_state, "THAWED", 6) < 0 &&
        pwrite(b->cg.freezer_state, "0", 1, 0) < 0)
        log_msg(LOG_DEBUG, "%s: nothing to thaw", b->id);
}

/* kills init, and so everything; what is frozen dies once it is thawed */
static void strike(struct box *b)
{
    syscall(SYS_pidfd_send_signal, b->j.pidfd, SIGKILL, NULL, 0);
    thaw(b);
}

static void await_outer(struct box *b)
{
    int fd = (int)syscall(SYS_pidfd_open, b->j.outer, 0);
    struct pollfd p = {fd, POLLIN, 0};

    for (int i = 0; fd >= 0 && i < 500 && poll(&p, 1, 20) <= 0; i++)
        strike(b);
    close_cleanup(&fd);
    kill(b->j.outer, SIGKILL);
    while (waitpid(b->j.outer, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* with mu held */
static void ending(struct box *b, const char *why)
{
    b->state = BOX_ENDING;
    snprintf(b->why, sizeof(b->why), "%s", why);
}

static void less_living(void)
{
    pthread_mutex_lock(&mu);
    if (--host.living == 0)
        host.idle_since = mono_ms();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static void remove_files(struct box *b)
{
    int rc = trash_remove(b->dir);

    if (rc < 0)
        log_msg(LOG_WARN, "%s: files are left: %s", b->id, strerror(-rc));
}

static void *box_thread(void *arg)
{
    struct box *b = arg;

    call_loop(b);
    pthread_mutex_lock(&mu);
    if (b->state != BOX_ENDING)
        ending(b, cgroup_ooms(&b->cg) ? "out of memory"
                                      : "its first process was killed");
    pthread_mutex_unlock(&mu);
    await_outer(b);
    call_end(b);
    for (size_t i = 0; i < host.nhooks; i++)
        host.hooks[i](b->id);
    pthread_mutex_lock(&b->op);
    net_stop(b->net);
    b->net = NULL;
    cgroup_remove(&b->cg);
    pthread_mutex_lock(&mu);
    obituary_add(b);
    b->gone = true;
    list_remove(b);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
    pthread_mutex_unlock(&b->op);
    log_msg(LOG_INFO, "%s ended: %s", b->id, b->why);
    remove_files(b);
    box_put(b);
    less_living();
    return NULL;
}

static void await_gone(struct box *b)
{
    pthread_mutex_lock(&mu);
    while (!b->gone)
        pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
}

int box_kill(struct box *b, const char *why)
{
    bool ours;

    pthread_mutex_lock(&mu);
    ours = visible(b);
    if (ours)
        ending(b, why);
    pthread_mutex_unlock(&mu);
    if (ours)
        strike(b);
    await_gone(b);
    return ours ? 0 : -ENOENT;
}

/* ---- the beginning of a box ---- */

static bool env_has(char **env, const char *name, size_t n)
{
    for (; env && *env; env++)
        if (strncmp(*env, name, n) == 0)
            return true;
    return false;
}

static void make_env(struct box *b)
{
    char *own[] = {
        xasprintf("PATH=%s", jail_path()),
        xstrdup("E2B_SANDBOX=true"),
        xasprintf("E2B_SANDBOX_ID=%s", b->id),
        xasprintf("E2B_TEMPLATE_ID=%s", b->spec.template),
    };
    size_t n = 0, given = 0;

    while (b->spec.env && b->spec.env[given])
        given++;
    b->env = xcalloc(ARRAY_LEN(own) + given + 1, sizeof(char *));
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (env_has(b->spec.env, own[i], strcspn(own[i], "=") + 1))
            free(own[i]);
        else
            b->env[n++] = own[i];
    for (size_t i = 0; i < given; i++)
        b->env[n++] = xstrdup(b->spec.env[i]);
}

/* with mu held */
static uid_t free_base(void)
{
    for (;;) {
        uint32_t r;
        struct box *b;

        if (getrandom(&r, sizeof(r), 0) != sizeof(r))
            abort();
        r = BASE_FIRST + r % BASE_RANGES * BOX_UIDS;
        for (b = host.list; b && b->base != r; b = b->next)
            ;
        if (!b)
            return r;
    }
}

static struct box *box_new(struct box_spec *s)
{
    struct box *b = xcalloc(1, sizeof(*b));

    b->spec = *s;
    *s = (struct box_spec){0};
    b->id[0] = 'i';
    random_word(b->id + 1, 20, "abcdefghijklmnopqrstuvwxyz0123456789");
    random_hex(b->token);
    random_hex(b->traffic);
    b->dir = xasprintf("%s/boxes/%s", host.data, b->id);
    b->refs = 2; /* the caller's and that of the list */
    b->j = (struct jail){.sock = -1, .pidfd = -1, .root_fd = -1};
    cgroup_none(&b->cg);
    pthread_mutex_init(&b->op, NULL);
    pthread_mutex_init(&b->call_mu, NULL);
    pthread_cond_init(&b->call_cond, NULL);
    make_env(b);
    return b;
}

static int box_enter(struct box *b, struct err *e)
{
    pthread_mutex_lock(&mu);
    if (host.stopping || host.living >= BASE_RANGES / 2) {
        pthread_mutex_unlock(&mu);
        return err_set(e, EBUSY, "the local host %s",
                       host.stopping ? "is ending" : "has too many sandboxes");
    }
    b->base = geteuid() == 0 ? free_base() : 0;
    b->next = host.list;
    host.list = b;
    host.living++;
    pthread_mutex_unlock(&mu);
    return 0;
}

static int start_jail(struct box *b, struct err *e)
{
    struct jail_spec s = {.dir = b->dir,
                          .base = b->base,
                          .net = b->spec.net,
                          .binds = b->spec.binds,
                          .cg = &b->cg,
                          .cpus = &b->cpus};

    if (mkdir(b->dir, 0711) < 0)
        return err_set(e, errno, "%s can't be made: %s", b->dir,
                       strerror(errno));
    s.memory = b->spec.memory_mb << 20;
    s.pids = box_pids(&b->spec);
    cgroup_make(&b->cg, b->id, b->spec.memory_mb << 20, b->spec.cpus,
                s.pids + 2);
    if (b->cg.join[CG_CPU] < 0)
        cpus_take(b->spec.cpus, &b->cpus);
    return jail_start(&b->j, &s, e);
}

/* nothing runs yet, or no more */
static void box_undo(struct box *b)
{
    cgroup_remove(&b->cg);
    pthread_mutex_lock(&mu);
    list_remove(b);
    pthread_mutex_unlock(&mu);
    trash_remove(b->dir);
    less_living();
    box_put(b);
    box_put(b);
}

/* the box runs, but can't be used */
static int box_abort(struct box *b, const char *why)
{
    pthread_mutex_lock(&mu);
    if (b->state != BOX_ENDING)
        ending(b, why);
    pthread_mutex_unlock(&mu);
    strike(b);
    await_gone(b);
    box_put(b);
    return -1;
}

static int box_open(struct box *b, struct err *e)
{
    struct net *net = NULL;
    int rc = 0;

    if (b->spec.net == NET_ON || b->spec.net == NET_ALLOW)
        rc = net_start(&net, b, b->spec.net, b->spec.allow, e);
    pthread_mutex_lock(&mu);
    if (!rc && (host.stopping || b->state != BOX_STARTING))
        rc = err_set(e, ESHUTDOWN, "the sandbox ended at once: %s",
                     b->state == BOX_ENDING ? b->why : "the host is ending");
    if (!rc) {
        b->state = BOX_RUNNING;
        b->net = net;
        net = NULL;
        b->started = now_ms();
        b->end_at = b->started + b->spec.timeout_ms;
        b->deadline = mono_ms() + b->spec.timeout_ms;
        line(b, "info", "sandbox started");
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mu);
    net_stop(net);
    return rc;
}

int box_create(struct box_spec *s, struct box **out, struct err *e)
{
    struct box *b = box_new(s);
    pthread_t t;
    int rc = box_enter(b, e);

    *out = NULL;
    if (rc) {
        box_put(b);
        box_put(b);
        return rc;
    }
    rc = start_jail(b, e);
    if (rc) {
        box_undo(b);
        return rc;
    }
    if (pthread_create(&t, NULL, box_thread, b)) {
        strike(b);
        await_outer(b);
        box_undo(b);
        return err_set(e, EAGAIN, "no thread for the sandbox");
    }
    pthread_detach(t);
    rc = box_open(b, e);
    if (rc) {
        box_abort(b, "it could not be started");
        return rc;
    }
    log_msg(LOG_INFO, "%s started", b->id);
    *out = b;
    return 0;
}

/* ---- pause, resume, deadlines ---- */

static int hold(struct box *b, bool on)
{
    struct init_req req = {.op = on ? INIT_STOP : INIT_CONT};

    if (cgroup_kind(CG_FREEZER))
        return cgroup_freeze(&b->cg, on);
    return call_init(b, &req, NULL, 0, NULL, NULL, NULL);
}

int box_pause(struct box *b, struct err *e)
{
    struct box_info now;
    int rc;

    pthread_mutex_lock(&b->op);
    if (!box_look(b, &now))
        rc = err_set(e, ENOENT, "it has ended");
    else if (now.state == BOX_PAUSED)
        rc = err_set(e, EALREADY, "it is paused already");
    else if ((rc = hold(b, true)) < 0)
        rc = err_set(e, EIO, "it can't be frozen: %s", strerror(-rc));
    pthread_mutex_lock(&mu);
    if (!rc && b->state != BOX_RUNNING) {
        thaw(b);
        rc = err_set(e, ENOENT, "it has ended");
    } else if (!rc) {
        b->state = BOX_PAUSED;
        b->end_at = now_ms();
        line(b, "info", "sandbox paused");
    }
    pthread_mutex_unlock(&mu);
    pthread_mutex_unlock(&b->op);
    return rc;
}

/* with mu held */
static void deadline_set(struct box *b, int64_t ms)
{
    b->end_at = now_ms() + ms;
    b->deadline = mono_ms() + ms;
    pthread_cond_broadcast(&changed);
}

int box_resume(struct box *b, int64_t ms, struct err *e)
{
    struct box_info now;
    int rc;

    pthread_mutex_lock(&b->op);
    if (!box_look(b, &now))
        rc = err_set(e, ENOENT, "it has ended");
    else if (now.state == BOX_RUNNING)
        rc = err_set(e, EALREADY, "it is running");
    else if ((rc = hold(b, false)) < 0)
        rc = err_set(e, EIO, "it can't be thawed: %s", strerror(-rc));
    pthread_mutex_lock(&mu);
    if (!rc && b->state != BOX_PAUSED) {
        rc = err_set(e, ENOENT, "it has ended");
    } else if (!rc) {
        b->state = BOX_RUNNING;
        deadline_set(b, ms);
        line(b, "info", "sandbox resumed");
    }
    pthread_mutex_unlock(&mu);
    pthread_mutex_unlock(&b->op);
    return rc;
}

int box_deadline(struct box *b, int64_t ms, bool extend)
{
    int rc = 0;

    pthread_mutex_lock(&mu);
    if (b->state == BOX_PAUSED)
        rc = -EPERM;
    else if (b->state != BOX_RUNNING)
        rc = -ENOENT;
    else if (!extend || b->deadline < mono_ms() + ms)
        deadline_set(b, ms);
    pthread_mutex_unlock(&mu);
    return rc;
}

void box_auto_pause_set(struct box *b, bool on)
{
    pthread_mutex_lock(&mu);
    b->spec.auto_pause = on;
    pthread_mutex_unlock(&mu);
}

static void expire(struct box *b)
{
    struct err e = {0};

    if (!b->spec.auto_pause) {
        box_kill(b, "its time was over");
        return;
    }
    if (box_pause(b, &e) < 0 && e.code == EIO)
        box_kill(b, "its time was over and it couldn't be paused");
}

/* ---- the network of a running box ---- */

const char *box_dir(const struct box *b)
{
    return b->dir;
}

int box_network(struct box *b, enum net_mode mode, char *const *hosts,
                struct err *e)
{
    struct net *fresh = NULL;
    int rc = 0;

    if (b->spec.net == NET_HOST)
        return err_set(e, ENOTSUP, "it has the network of the host");
    pthread_mutex_lock(&b->op);
    if (!box_alive(b))
        rc = err_set(e, ENOENT, "it has ended");
    else if (b->net)
        rc = net_change(b->net, b, mode, hosts, e);
    else if (mode != NET_OFF)
        rc = net_start(&fresh, b, mode, hosts, e);
    if (!rc)
        rc = jail_resolv(b->dir, mode, e);
    pthread_mutex_lock(&mu);
    if (fresh && !b->gone) {
        b->net = fresh;
        fresh = NULL;
    }
    pthread_mutex_unlock(&mu);
    pthread_mutex_unlock(&b->op);
    net_stop(fresh);
    return rc;
}

/* ---- the ticker ---- */

/* a referenced box that is due, or NULL; *next is when to look again */
static struct box *take_due(int64_t *next)
{
    int64_t now = mono_ms();

    for (struct box *b = host.list; b; b = b->next) {
        if (b->state != BOX_RUNNING)
            continue;
        if (b->deadline <= now) {
            b->refs++;
            return b;
        }
        if (b->deadline < *next)
            *next = b->deadline;
    }
    return NULL;
}

static void guard_all(void)
{
    size_t n;
    struct box **all = box_all(&n);

    for (size_t i = 0; i < n; i++) {
        struct box_info info;
        const char *why = NULL;

        if (box_look(all[i], &info) && info.state == BOX_RUNNING)
            why = guard_disk(all[i]);
        if (why)
            box_kill(all[i], why);
        box_put(all[i]);
    }
    free(all);
}

static void wait_until(int64_t when)
{
    struct timespec t = {.tv_sec = when / 1000,
                         .tv_nsec = when % 1000 * 1000000};

    pthread_cond_timedwait(&changed, &mu, &t);
}

static void *ticker(void *arg)
{
    int64_t guard_at = 0;

    (void)arg;
    pthread_mutex_lock(&mu);
    for (;;) {
        int64_t next = mono_ms() + (host.list ? 1000 : 60000);
        struct box *due = take_due(&next);
        bool guard = host.list && mono_ms() >= guard_at;

        if (!due && !guard) {
            wait_until(next);
            continue;
        }
        pthread_mutex_unlock(&mu);
        if (due) {
            expire(due);
            box_put(due);
        }
        if (guard) {
            guard_all();
            guard_at = mono_ms() + 1000;
        }
        pthread_mutex_lock(&mu);
    }
    return NULL;
}

/* ---- usage and lines ---- */

void box_usage(struct box *b, struct box_usage *u)
{
    int64_t cpu, now = mono_ms();

    *u = (struct box_usage){.mem_total = b->spec.memory_mb << 20,
                            .disk_total = (int64_t)BOX_DISK_MB << 20};
    pthread_mutex_lock(&b->op);
    u->mem = cgroup_memory(&b->cg);
    u->cache = cgroup_cache(&b->cg);
    cpu = cgroup_cpu_us(&b->cg);
    pthread_mutex_unlock(&b->op);
    if (u->mem < 0)
        u->mem = guard_memory(b);
    if (u->cache < 0)
        u->cache = 0;
    pthread_mutex_lock(&mu);
    u->disk = b->disk;
    if (cpu >= 0 && b->cpu_at && now > b->cpu_at)
        u->cpu_pct = (double)(cpu - b->cpu_us) / 10.0 /
                     (double)(now - b->cpu_at) / b->spec.cpus;
    b->cpu_us = cpu;
    b->cpu_at = now;
    pthread_mutex_unlock(&mu);
}

static void each(const struct lines *l,
                 void (*fn)(const struct box_line *l, void *arg), void *arg)
{
    for (size_t i = 0; i < l->n; i++)
        fn(&l->v[i], arg);
}

bool box_lines(const char *id, void (*fn)(const struct box_line *l, void *arg),
               void *arg)
{
    bool found = false;

    pthread_mutex_lock(&mu);
    for (struct box *b = host.list; b && !found; b = b->next)
        if (visible(b) && strcmp(b->id, id) == 0) {
            int ooms = cgroup_ooms(&b->cg);

            if (ooms > b->ooms)
                line(b, "error", "out of memory: %d killed so far", ooms);
            b->ooms = ooms;
            each(&b->lines, fn, arg);
            found = true;
        }
    for (struct obituary *o = host.dead; o && !found; o = o->next)
        if (strcmp(o->id, id) == 0) {
            each(&o->lines, fn, arg);
            found = true;
        }
    pthread_mutex_unlock(&mu);
    return found;
}

/* ---- the host ---- */

static void remove_leftovers(void)
{
    AUTO_FREE char *dir = xasprintf("%s/boxes", host.data);
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        AUTO_FREE char *path = NULL;

        if (e->d_name[0] == '.')
            continue;
        path = xasprintf("%s/%s", dir, e->d_name);
        if (trash_remove(path) < 0)
            log_msg(LOG_WARN, "%s can't be removed", path);
    }
    if (d)
        closedir(d);
}

int box_init(const struct box_conf *conf, struct err *e)
{
    AUTO_FREE char *dir = xasprintf("%s/boxes", conf->data);
    char tag[40];
    pthread_condattr_t a;
    pthread_t t;
    int rc;

    host.data = xstrdup(conf->data);
    host.idle_since = mono_ms();
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &a);
    snprintf(tag, sizeof(tag), "courier-%08x",
             (unsigned)text_hash(conf->data, strlen(conf->data)));
    cgroup_init(tag);
    if (mkdir(dir, 0711) < 0 && errno != EEXIST)
        return err_set(e, errno, "%s can't be made: %s", dir, strerror(errno));
    remove_leftovers();
    rc = jail_init(conf->data, conf->binds, conf->paths, e);
    if (!rc && ((rc = pthread_create(&t, NULL, ticker, NULL)) != 0 ||
                (rc = -guard_start()) != 0))
        rc = err_set(e, rc, "no thread: %s", strerror(rc));
    if (!rc)
        pthread_detach(t);
    return rc;
}

void box_stop(void)
{
    pthread_mutex_lock(&mu);
    host.stopping = true;
    for (struct box *b = host.list; b; b = b->next)
        if (visible(b)) {
            ending(b, "the host ended");
            strike(b);
        }
    while (host.living)
        pthread_cond_wait(&changed, &mu);
    obituaries_trim(true);
    pthread_mutex_unlock(&mu);
}

bool box_idle(int64_t ms)
{
    bool idle;

    pthread_mutex_lock(&mu);
    if (!host.living && mono_ms() - host.idle_since >= ms)
        host.stopping = true;
    idle = host.stopping;
    pthread_mutex_unlock(&mu);
    return idle;
}

void box_limits(struct box_limits *l)
{
    const char *mem = cgroup_kind(CG_MEMORY), *cpu = cgroup_kind(CG_CPU);
    const char *pids = cgroup_kind(CG_PIDS);

    l->memory = mem ? mem : "watchdog";
    l->cpu = cpu ? cpu : "affinity";
    l->pids = pids ? pids : "rlimit";
    l->freeze = cgroup_kind(CG_FREEZER) ? "cgroup" : "SIGSTOP";
    l->network = net_possible(NULL) ? "slirp4netns" : "none";
}
