#include "local/cgroup.h"

#include "base/text.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const part_name[CG_PARTS] = {
    "memory", "cpu", "pids", "freezer", "cpuacct",
};

enum { STALE_SECONDS = 60 };

static struct {
    char tag[40];
    char *base[CG_PARTS]; /* where our directories are made; NULL: nowhere */
    bool v2;
} cg;

static bool file_write(const char *dir, const char *name, const char *text)
{
    AUTO_FREE char *path = xasprintf("%s/%s", dir, name);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, text, strlen(text)) > 0;
}

static bool file_text(const char *dir, const char *name, struct buf *out)
{
    AUTO_FREE char *path = xasprintf("%s/%s", dir, name);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    buf_clear(out);
    buf_reserve(out, 16 << 10);
    n = fd < 0 ? -1 : read(fd, out->p, 16 << 10);
    if (n < 0)
        return false;
    out->n = (size_t)n;
    out->p[n] = 0;
    return true;
}

static int64_t file_number(const char *dir, const char *name)
{
    AUTO_BUF struct buf b = {0};
    int64_t n;

    if (!dir || !file_text(dir, name, &b) ||
        !text_int(text_trim(b.p), 0, INT64_MAX, &n))
        return -1;
    return n;
}

/* the number after "key " in a file of such lines, or -1 */
static int64_t file_key(const char *dir, const char *name, const char *key)
{
    AUTO_BUF struct buf b = {0};
    size_t n = strlen(key);

    if (!dir || !file_text(dir, name, &b))
        return -1;
    for (char *line = b.p; line && *line;) {
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            return strtoll(line + n + 1, NULL, 10);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return -1;
}

/* ---- finding the place ---- */

static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; p && *p;) {
        size_t k = strcspn(p, ",");

        if (k == n && memcmp(p, word, n) == 0)
            return true;
        p += k + (p[k] ? 1 : 0);
    }
    return false;
}

/* our own path in the hierarchy of a controller ("" for version 2) */
static char *own_path(const char *controller)
{
    AUTO_BUF struct buf b = {0};

    if (!file_text("/proc/self", "cgroup", &b))
        return NULL;
    for (char *line = b.p; line && *line;) {
        char *next = strchr(line, '\n');
        char *names, *path;

        if (next)
            *next++ = 0;
        names = strchr(line, ':');
        path = names ? strchr(names + 1, ':') : NULL;
        if (path) {
            *path++ = 0;
            names++;
            if (*controller ? in_list(names, controller) : !*names)
                return xstrdup(path);
        }
        line = next;
    }
    return NULL;
}

/* where the hierarchy is mounted, joined with our path in it */
static char *find_base(const char *controller)
{
    AUTO_FREE char *own = own_path(controller);
    FILE *f = own ? fopen("/proc/self/mountinfo", "re") : NULL;
    char line[4096], *found = NULL;

    while (f && !found && fgets(line, sizeof(line), f)) {
        char root[1024], at[1024], type[64], super[1024];
        char *dash = strstr(line, " - ");
        const char *rest = own;
        size_t n;

        if (!dash ||
            sscanf(line, "%*s %*s %*s %1023s %1023s", root, at) != 2 ||
            sscanf(dash, " - %63s %*s %1023s", type, super) != 2)
            continue;
        if (*controller
                ? strcmp(type, "cgroup") != 0 || !in_list(super, controller)
                : strcmp(type, "cgroup2") != 0)
            continue;
        n = strcmp(root, "/") == 0 ? 0 : strlen(root);
        if (n && strncmp(own, root, n) == 0)
            rest = own + n;
        found = xasprintf("%s%s", at, strcmp(rest, "/") == 0 ? "" : rest);
        if (access(found, W_OK) < 0) {
            free(found);
            found = NULL;
        }
    }
    if (f)
        fclose(f);
    return found;
}

/* can a group be made here? */
static bool usable(const char *base)
{
    AUTO_FREE char *dir = xasprintf("%s/%s-try", base, cg.tag);

    rmdir(dir);
    if (mkdir(dir, 0755) < 0)
        return false;
    rmdir(dir);
    return true;
}

/*
 * In version 2 a group with processes can't hand controllers down, so we move
 * into a child of our own first. That fails when others live beside us; then
 * root may use the top of the tree.
 */
static bool prepare_v2(const char *base)
{
    AUTO_FREE char *leaf = xasprintf("%s/%s-host", base, cg.tag);
    AUTO_BUF struct buf have = {0};

    if (!file_text(base, "cgroup.controllers", &have) ||
        !strstr(have.p, "memory"))
        return false;
    if (file_write(base, "cgroup.subtree_control", "+memory +pids +cpu"))
        return true;
    if (mkdir(leaf, 0755) < 0 && errno != EEXIST)
        return false;
    if (file_write(leaf, "cgroup.procs", "0") &&
        file_write(base, "cgroup.subtree_control", "+memory +pids +cpu"))
        return true;
    file_write(base, "cgroup.procs", "0");
    rmdir(leaf);
    return false;
}

static void find_v2(void)
{
    char *base = find_base("");

    if (base && !prepare_v2(base)) {
        free(base);
        base = NULL;
        if (geteuid() == 0 && prepare_v2("/sys/fs/cgroup"))
            base = xstrdup("/sys/fs/cgroup");
    }
    if (!base || !usable(base)) {
        free(base);
        return;
    }
    cg.v2 = true;
    for (int i = 0; i < CG_PARTS; i++)
        cg.base[i] = xstrdup(base);
    free(base);
}

/* ---- making and removing ---- */

static void kill_all(const char *dir)
{
    AUTO_BUF struct buf b = {0};

    if (file_write(dir, "cgroup.kill", "1") ||
        !file_text(dir, "cgroup.procs", &b))
        return;
    for (char *p = b.p; p && *p;) {
        long pid = strtol(p, NULL, 10);

        if (pid > 1)
            kill((pid_t)pid, SIGKILL);
        p = strchr(p, '\n');
        p = p ? p + 1 : NULL;
    }
}

static void thaw(const char *dir)
{
    if (cg.v2)
        file_write(dir, "cgroup.freeze", "0");
    else
        file_write(dir, "freezer.state", "THAWED");
}

static void remove_dir(const char *dir)
{
    for (int i = 0; i < 200; i++) {
        if (rmdir(dir) == 0 || errno == ENOENT)
            return;
        kill_all(dir);
        thaw(dir);
        sleep_ms(i < 20 ? 1 : 10);
    }
    log_msg(LOG_WARN, "a control group can't be removed: %s", dir);
}

static void remove_leftovers(const char *base)
{
    DIR *d = opendir(base);
    struct dirent *e;
    size_t n = strlen(cg.tag);

    while (d && (e = readdir(d))) {
        AUTO_FREE char *dir = NULL;

        if (strncmp(e->d_name, cg.tag, n) != 0 || e->d_name[n] != '-' ||
            strcmp(e->d_name + n, "-host") == 0)
            continue;
        dir = xasprintf("%s/%s%s", base, e->d_name, cg.v2 ? "/run" : "");
        remove_dir(dir);
        if (cg.v2) {
            dir[strlen(dir) - 4] = 0;
            remove_dir(dir);
        }
    }
    if (d)
        closedir(d);
}

/* courier-<8 hex digits>-<id>, and old enough not to be in the making */
static bool stale(const char *base, const char *name)
{
    AUTO_FREE char *dir = xasprintf("%s/%s", base, name);
    struct stat st;

    return strncmp(name, "courier-", 8) == 0 &&
           strspn(name + 8, "0123456789abcdef") == 8 && name[16] == '-' &&
           stat(dir, &st) == 0 && st.st_ctime + STALE_SECONDS < time(NULL);
}

static bool exists(int part, const char *name)
{
    AUTO_FREE char *dir =
        xasprintf("%s/%s", cg.base[part] ? cg.base[part] : "", name);

    return cg.base[part] && access(dir, F_OK) == 0;
}

/*
 * What hosts left that were killed and never came back: groups with nothing
 * in them. A freezer's may be empty while its box lives, whose processes are
 * in the other groups.
 */
static void sweep(int part)
{
    DIR *d = opendir(cg.base[part]);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        AUTO_FREE char *dir = NULL;

        if (!stale(cg.base[part], e->d_name) ||
            (part == CG_FREEZER &&
             (exists(CG_PIDS, e->d_name) || exists(CG_CPU, e->d_name))))
            continue;
        dir = xasprintf("%s/%s", cg.base[part], e->d_name);
        rmdir(dir); /* fails where something lives */
    }
    if (d)
        closedir(d);
}

void cgroup_init(const char *tag)
{
    snprintf(cg.tag, sizeof(cg.tag), "%s", tag);
    for (int i = 0; i < CG_PARTS; i++) {
        cg.base[i] = find_base(part_name[i]);
        if (cg.base[i] && !usable(cg.base[i])) {
            free(cg.base[i]);
            cg.base[i] = NULL;
        }
    }
    if (!cg.base[CG_MEMORY] && !cg.base[CG_FREEZER])
        find_v2();
    /* frozen processes first, they can't be killed where they are counted */
    if (cg.base[CG_FREEZER])
        remove_leftovers(cg.base[CG_FREEZER]);
    for (int i = 0; i < CG_PARTS; i++)
        if (cg.base[i])
            remove_leftovers(cg.base[i]);
    if (cg.v2 || !cg.base[CG_PIDS] || !cg.base[CG_CPU])
        return;
    for (int i = 0; i < CG_PARTS; i++)
        if (cg.base[i] && i != CG_FREEZER)
            sweep(i);
    if (cg.base[CG_FREEZER])
        sweep(CG_FREEZER);
}

const char *cgroup_kind(int part)
{
    return !cg.base[part] ? NULL : cg.v2 ? "cgroup v2" : "cgroup v1";
}

static int open_in(const char *dir, const char *name)
{
    AUTO_FREE char *path = xasprintf("%s/%s", dir, name);

    return open(path, O_WRONLY | O_CLOEXEC);
}

static void set_limits(struct cgroup *g, int64_t mem, double cpus, int pids)
{
    char n[64];

    snprintf(n, sizeof(n), "%lld", (long long)mem);
    if (g->dir[CG_MEMORY]) {
        file_write(g->dir[CG_MEMORY],
                   cg.v2 ? "memory.max" : "memory.limit_in_bytes", n);
        if (cg.v2)
            file_write(g->dir[CG_MEMORY], "memory.swap.max", "0");
        else if (!file_write(g->dir[CG_MEMORY], "memory.memsw.limit_in_bytes",
                             n))
            file_write(g->dir[CG_MEMORY], "memory.swappiness", "0");
    }
    if (g->dir[CG_CPU]) {
        long quota = (long)(cpus * 100000);

        snprintf(n, sizeof(n), cg.v2 ? "%ld 100000" : "%ld", quota);
        file_write(g->dir[CG_CPU], cg.v2 ? "cpu.max" : "cpu.cfs_quota_us", n);
    }
    snprintf(n, sizeof(n), "%d", pids);
    if (g->dir[CG_PIDS])
        file_write(g->dir[CG_PIDS], "pids.max", n);
}

void cgroup_none(struct cgroup *g)
{
    *g = (struct cgroup){.freezer_procs = -1, .freezer_state = -1};
    for (int i = 0; i < CG_PARTS; i++)
        g->join[i] = -1;
}

void cgroup_make(struct cgroup *g, const char *id, int64_t mem_bytes,
                 double cpus, int pids)
{
    cgroup_none(g);
    for (int i = 0; i < CG_PARTS; i++) {
        if (!cg.base[i])
            continue;
        /* in version 2 one group is all of them; what is to be frozen is in
         * one below it */
        if (cg.v2 && i != CG_MEMORY && i != CG_FREEZER) {
            g->dir[i] = g->dir[CG_MEMORY] ? xstrdup(g->dir[CG_MEMORY]) : NULL;
            continue;
        }
        g->dir[i] = xasprintf("%s/%s-%s%s", cg.base[i], cg.tag, id,
                              cg.v2 && i == CG_FREEZER ? "/run" : "");
        if (mkdir(g->dir[i], 0755) < 0 && errno != EEXIST) {
            free(g->dir[i]);
            g->dir[i] = NULL;
            continue;
        }
        if (i != CG_FREEZER)
            g->join[i] = open_in(g->dir[i], "cgroup.procs");
    }
    set_limits(g, mem_bytes, cpus, pids);
    if (g->dir[CG_FREEZER]) {
        g->freezer_procs = open_in(g->dir[CG_FREEZER], "cgroup.procs");
        g->freezer_state = open_in(g->dir[CG_FREEZER],
                                   cg.v2 ? "cgroup.freeze" : "freezer.state");
    }
}

void cgroup_join(const struct cgroup *g)
{
    for (int i = 0; i < CG_PARTS; i++)
        if (g->join[i] >= 0 && write(g->join[i], "0", 1) < 0)
            continue;
}

/* asks for it, returns what holds now: 1 frozen, 0 not, or -1 */
static int freeze_step(const char *dir, bool on)
{
    AUTO_BUF struct buf b = {0};

    if (cg.v2)
        return file_write(dir, "cgroup.freeze", on ? "1" : "0")
                   ? (int)file_key(dir, "cgroup.events", "frozen")
                   : -1;
    if (!file_write(dir, "freezer.state", on ? "FROZEN" : "THAWED") ||
        !file_text(dir, "freezer.state", &b))
        return -1;
    if (strcmp(text_trim(b.p), "FROZEN") == 0)
        return 1;
    /* half frozen is neither */
    return strcmp(text_trim(b.p), "THAWED") == 0 ? 0 : 2;
}

int cgroup_freeze(struct cgroup *g, bool on)
{
    const char *dir = g->dir[CG_FREEZER];

    if (!dir)
        return -ENOTSUP;
    for (int i = 0; i < 300; i++) {
        int now = freeze_step(dir, on);

        if (now < 0)
            return -EIO;
        if (now == on)
            return 0;
        sleep_ms(i < 20 ? 1 : 10);
    }
    if (on)
        thaw(dir);
    return -ETIMEDOUT;
}

int64_t cgroup_memory(const struct cgroup *g)
{
    return file_number(g->dir[CG_MEMORY],
                       cg.v2 ? "memory.current" : "memory.usage_in_bytes");
}

int64_t cgroup_cache(const struct cgroup *g)
{
    return file_key(g->dir[CG_MEMORY], "memory.stat",
                    cg.v2 ? "file" : "total_cache");
}

int64_t cgroup_cpu_us(const struct cgroup *g)
{
    int64_t ns;

    if (cg.v2)
        return file_key(g->dir[CG_CPU], "cpu.stat", "usage_usec");
    ns = file_number(g->dir[CG_CPUACCT], "cpuacct.usage");
    return ns < 0 ? -1 : ns / 1000;
}

int cgroup_ooms(const struct cgroup *g)
{
    int64_t n =
        file_key(g->dir[CG_MEMORY],
                 cg.v2 ? "memory.events" : "memory.oom_control", "oom_kill");

    return n > 0 ? (int)n : 0;
}

void cgroup_remove(struct cgroup *g)
{
    for (int i = CG_PARTS - 1; i >= 0; i--) {
        if (g->dir[i] && (!cg.v2 || i == CG_MEMORY || i == CG_FREEZER))
            remove_dir(g->dir[i]);
        free(g->dir[i]);
        g->dir[i] = NULL;
    }
}

void cgroup_close(struct cgroup *g)
{
    for (int i = 0; i < CG_PARTS; i++)
        close_cleanup(&g->join[i]);
    close_cleanup(&g->freezer_procs);
    close_cleanup(&g->freezer_state);
}
