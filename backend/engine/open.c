/* The life of the backend: what is opened when, and ended in which order. */
#include "engine/command.h"
#include "engine/files.h"
#include "engine/input.h"
#include "engine/keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { SHUTDOWN_ALL_MS = 120 * 1000 };

static int lock_fd = -1; /* of the data directory; one record a process */

/* " (pid N)" of who holds that lock; empty if it can't be told: a process of
 * another pid namespace has no number here */
static char *locked_by(int fd)
{
    FILE *f = fopen("/proc/locks", "re");
    struct stat st;
    char line[256];
    unsigned major, minor;
    unsigned long ino;
    int pid, of = 0;

    while (f && !fstat(fd, &st) && !of && fgets(line, sizeof(line), f))
        if (sscanf(line, "%*s FLOCK %*s WRITE %d %x:%x:%lu", &pid, &major,
                   &minor, &ino) == 4 &&
            makedev(major, minor) == st.st_dev && ino == st.st_ino)
            of = pid;
    if (f)
        fclose(f);
    return of > 0 ? xasprintf(" (pid %d)", of) : xstrdup("");
}

static int take_lock(const char *data, int *fd, struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/lock", data);
    AUTO_FREE char *by = NULL;

    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0)
        return err_set(e, errno, "the data directory %s can't be used: %s",
                       data, strerror(errno));
    /* a daemon that was just killed may still be letting go of it */
    for (int i = 0; flock(*fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (i < 30) {
            sleep_ms(50);
            continue;
        }
        by = locked_by(*fd);
        close(*fd);
        *fd = -1;
        return err_set(
            e, EBUSY, "the data directory %s is in use by another courierfs%s",
            data, by);
    }
    return 0;
}

static int check_dir(const char *data, struct err *e)
{
    struct stat st;

    if (stat(data, &st) < 0)
        return err_set(e, errno, "the data directory %s: %s", data,
                       strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ENOTDIR, "the data directory %s is no directory",
                       data);
    if (access(data, R_OK | W_OK | X_OK) < 0)
        return err_set(e, errno, "the data directory %s can't be used: %s",
                       data, strerror(errno));
    return 0;
}

int courier_probe(const char *data, struct err *e)
{
    int fd, r = check_dir(data, e);

    if (r == 0)
        r = take_lock(data, &fd, e);
    if (r == 0)
        close(fd);
    return r;
}

static int first_start_fn(struct tx *tx, void *arg, struct err *e)
{
    unsigned char raw[16];
    char hex[33];

    (void)arg;
    (void)e;
    if (db_int(tx->db, 0, "SELECT 1 FROM meta WHERE key='instance'", ""))
        return 0;
    randombytes_buf(raw, sizeof(raw));
    sodium_bin2hex(hex, sizeof(hex), raw, sizeof(raw));
    db_exec(tx->db, "INSERT INTO meta(key,value) VALUES('instance',?)", "s",
            hex);
    db_exec(tx->db, "INSERT INTO meta(key,value) VALUES('created',?)", "i",
            tx->now_ms);
    tx_docs_seed_root(tx);
    tx_changed(tx, root_oid(), ASPECT_STATUS | ASPECT_BOARD);
    return 0;
}

static void wipe_env(const char *name)
{
    char *value = getenv(name);

    if (value)
        explicit_bzero(value, strlen(value));
    unsetenv(name);
}

static int open_vault(struct courier *c, struct err *e)
{
    AUTO_FREE char *path = xasprintf("%s/vault.key", c->data);
    int r = vault_open(path, getenv("COURIER_PASSPHRASE"), &c->vault, e);

    wipe_env("COURIER_PASSPHRASE");
    return r;
}

static int open_parts(struct courier *c, const struct courier_options *o,
                      struct err *e)
{
    AUTO_FREE char *db = xasprintf("%s/courier.db", c->data);
    int r =
        store_open(db, engine_migrations, o->changed, o->ctx, &c->store, e);

    if (r == 0)
        r = open_vault(c, e);
    if (r == 0)
        r = store_do(c->store, first_start_fn, NULL, e);
    if (r == 0) {
        c->instance =
            db_text(store_reader(c->store),
                    "SELECT value FROM meta WHERE key='instance'", "");
        c->pump = e2b_pump_start();
        r = endpoints_open(c, e);
    }
    if (r == 0)
        r = follows_open(c, e);
    if (r == 0)
        r = jobs_open(c, e);
    if (r == 0)
        r = reconcile_open(c, e);
    return r;
}

int courier_open(const struct courier_options *o, struct courier **out,
                 struct err *e)
{
    struct courier *c;
    int r = check_dir(o->data, e);

    if (r < 0)
        return r;
    r = take_lock(o->data, &lock_fd, e);
    if (r < 0)
        return r;
    if (sodium_init() < 0)
        return err_set(e, EIO, "libsodium can't be used");
    e2b_init();
    git_init();
    c = xcalloc(1, sizeof(*c));
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    c->data = xstrdup(o->data);
    c->backend = xstrdup(o->backend ? o->backend : "auto");
    c->self_dir = xstrdup(o->self_dir ? o->self_dir : "");
    c->mount = xstrdup(o->mount ? o->mount : "");
    c->mounted_by = xstrdup(o->mounted_by ? o->mounted_by : "");
    c->inotify = xstrdup("off");
    c->started_ms = now_ms();
    keys_env_init(c);
    r = open_parts(c, o, e);
    if (r < 0) {
        courier_close(c);
        return r;
    }
    bodies_resume(c);
    inputs_resume(c);
    jobs_kick(c);
    reconcile_kick(c);
    *out = c;
    return 0;
}

void courier_close(struct courier *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    jobs_stop(c);
    reconcile_close(c);
    files_close();
    follows_close(c);
    if (c->pump)
        e2b_pump_stop(c->pump);
    endpoints_close(c);
    store_close(c->store);
    vault_close(c->vault);
    keys_env_wipe(c);
    git_exit();
    e2b_exit();
    if (lock_fd >= 0)
        close(lock_fd);
    lock_fd = -1;
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c->data);
    free(c->backend);
    free(c->self_dir);
    free(c->mount);
    free(c->mounted_by);
    free(c->instance);
    free(c->inotify);
    free(c->last_error);
    free(c);
}

/* ---- a new master key ---- */

struct rotation {
    struct vault *old, *fresh;
};

static int rotate_fn(struct tx *tx, void *arg, struct err *e)
{
    struct rotation *v = arg;

    return tx_keys_reseal(tx, v->old, v->fresh, e);
}

static int rotate_in(struct store *s, struct rotation *v, struct err *e)
{
    const char *pass = getenv("COURIER_NEW_PASSPHRASE");
    int r;

    if (!pass)
        pass = getenv("COURIER_PASSPHRASE");
    r = vault_rotate_begin(v->old, pass && *pass ? pass : NULL, &v->fresh, e);
    if (r == 0)
        r = store_do(s, rotate_fn, v, e);
    if (r == 0)
        r = vault_rotate_commit(v->old, v->fresh, e);
    return r;
}

int courier_rotate_key(const char *data, struct err *e)
{
    AUTO_FREE char *db = xasprintf("%s/courier.db", data);
    AUTO_FREE char *key = xasprintf("%s/vault.key", data);
    struct rotation v = {NULL, NULL};
    struct store *s = NULL;
    int r = check_dir(data, e);

    if (r == 0 && (access(db, F_OK) < 0 || access(key, F_OK) < 0))
        return err_set(e, ENOENT, "there is no record in %s", data);
    if (r == 0)
        r = take_lock(data, &lock_fd, e);
    if (r == 0)
        r = vault_open(key, getenv("COURIER_PASSPHRASE"), &v.old, e);
    if (r == 0)
        r = store_open(db, engine_migrations, NULL, NULL, &s, e);
    if (r == 0)
        r = rotate_in(s, &v, e);
    if (s)
        store_close(s);
    vault_close(v.fresh);
    vault_close(v.old);
    wipe_env("COURIER_PASSPHRASE");
    wipe_env("COURIER_NEW_PASSPHRASE");
    if (lock_fd >= 0)
        close(lock_fd);
    lock_fd = -1;
    return r;
}

char *courier_backend_words(struct courier *c)
{
    struct db *d = store_reader(c->store);
    const char *level = NULL;
    char *key = NULL;
    struct err e;

    if (!strcmp(c->backend, "local"))
        return xstrdup("local (asked for)");
    if (key_get(c, d, 0, "e2b", &key, &level, &e) < 0)
        return xstrdup(strcmp(c->backend, "e2b") ? "local (no E2B key)"
                                                 : "e2b (no E2B key yet)");
    vault_free(key);
    return xasprintf("e2b (key of the %s)", level);
}

void courier_set_inotify(struct courier *c, const char *words)
{
    pthread_mutex_lock(&c->lock);
    free(c->inotify);
    c->inotify = xstrdup(words);
    pthread_mutex_unlock(&c->lock);
}

void courier_on_shutdown(struct courier *c, void (*fn)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&c->lock);
    c->shutdown = fn;
    c->shutdown_ctx = ctx;
    pthread_mutex_unlock(&c->lock);
}

static void tell_shutdown(struct courier *c)
{
    void (*fn)(void *);
    void *ctx;

    pthread_mutex_lock(&c->lock);
    fn = c->shutdown;
    ctx = c->shutdown_ctx;
    pthread_mutex_unlock(&c->lock);
    if (fn)
        fn(ctx);
}

/* waits for the local sandboxes, then ends the daemon */
static void *shutdown_all(void *arg)
{
    struct courier *c = arg;
    int64_t until = mono_ms() + SHUTDOWN_ALL_MS;

    while (mono_ms() < until &&
           db_int(store_reader(c->store), 0,
                  "SELECT count(*) FROM sandbox WHERE backend='local' AND "
                  "status IN('creating','running','paused')",
                  ""))
        sleep_ms(50);
    tell_shutdown(c);
    return NULL;
}

void shutdown_begin(struct courier *c, bool all)
{
    pthread_t t;

    if (!all) {
        tell_shutdown(c);
        return;
    }
    if (pthread_create(&t, NULL, shutdown_all, c) == 0)
        pthread_detach(t);
    else
        tell_shutdown(c);
}
