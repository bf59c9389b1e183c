#include "local/box_int.h"

#include "base/text.h"
#include "local/trash.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { FREE_MIN_MB = 256, DISK_EVERY_MS = 15000 };

/*
 * When memory is looked at again: as soon as it could be used up at RATE,
 * which a program that only writes zeros comes near to; but never so often
 * that looking takes more than a tenth of a processor.
 */
enum { LOOK_MIN_MS = 20, LOOK_MAX_MS = 1000, COST = 10, LIST_EVERY_MS = 200 };
static const int64_t RATE = 1 << 20; /* bytes a millisecond: 1 GiB/s */

/* one check ends no more than so many, and takes no longer */
enum { VICTIMS = 64, CHECK_MS = 1000, DEATH_MS = 500 };

static const char *const tmpfs[] = {"tmp", "var/tmp", "dev/shm", "run"};

struct use {
    int64_t all;   /* bytes, files in memory included */
    int threads;   /* of all processes but init */
    pid_t biggest; /* as the box numbers it, or -1 */
    int64_t most;
};

/* ---- what /proc says ---- */

/* the value in bytes after each "Name:", in kB; the sum of these lines */
int64_t guard_field(const char *text, const char *name)
{
    size_t n = strlen(name);
    int64_t sum = 0;

    for (const char *p = text; p && *p;) {
        if (strncmp(p, name, n) == 0 && p[n] == ':')
            sum += strtoll(p + n + 1, NULL, 10) << 10;
        p = strchr(p, '\n');
        p = p ? p + 1 : NULL;
    }
    return sum;
}

/* of the mappings in smaps: what is of the file systems devs[] */
int64_t guard_mapped(const char *text, const dev_t *devs, size_t ndevs)
{
    bool ours = false;
    int64_t sum = 0;

    for (const char *p = text; p && *p;) {
        unsigned ma, mi;

        if (sscanf(p, "%*x-%*x %*s %*x %x:%x", &ma, &mi) == 2) {
            ours = false;
            for (size_t i = 0; i < ndevs; i++)
                ours = ours || devs[i] == makedev(ma, mi);
        } else if (ours && strncmp(p, "Pss:", 4) == 0) {
            sum += strtoll(p + 4, NULL, 10) << 10;
        }
        p = strchr(p, '\n');
        p = p ? p + 1 : NULL;
    }
    return sum;
}

static bool read_in(int dir, const char *pid, const char *name,
                    struct buf *out)
{
    AUTO_FREE char *path = xasprintf("%s/%s", pid, name);
    AUTO_CLOSE int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;

    buf_clear(out);
    while (fd >= 0) {
        buf_reserve(out, 16 << 10);
        n = read(fd, out->p + out->n, 16 << 10);
        if (n <= 0)
            break;
        out->n += (size_t)n;
        out->p[out->n] = 0;
    }
    return n == 0 && out->n;
}

/* files in memory, and the file systems that hold them */
static int64_t tmpfs_used(const struct box *b, dev_t *devs)
{
    int64_t sum = 0;

    for (size_t i = 0; i < ARRAY_LEN(tmpfs); i++) {
        AUTO_CLOSE int fd =
            openat(b->j.root_fd, tmpfs[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct statvfs v;
        struct stat st;

        devs[i] = 0;
        if (fd < 0 || fstat(fd, &st) < 0 || fstatvfs(fd, &v) < 0)
            continue;
        devs[i] = st.st_dev;
        sum += (int64_t)(v.f_blocks - v.f_bfree) * (int64_t)v.f_frsize;
    }
    return sum;
}

/*
 * What a process has. Quick: pages that several have are counted with each.
 * Else they are shared out, and those of files in memory, which are counted
 * already, left out.
 */
static int64_t process_use(int proc, const char *pid, bool quick,
                           const dev_t *devs, struct buf *room, int *threads)
{
    int64_t n, shmem;

    if (!read_in(proc, pid, "status", room))
        return 0;
    *threads = (int)(guard_field(buf_str(room), "Threads") >> 10);
    shmem = guard_field(buf_str(room), "RssShmem");
    n = guard_field(buf_str(room), "RssAnon") + shmem +
        guard_field(buf_str(room), "VmSwap");
    if (quick || !n || !read_in(proc, pid, "smaps_rollup", room))
        return n;
    n = guard_field(buf_str(room), "Pss_Anon") +
        guard_field(buf_str(room), "Pss_Shmem") +
        guard_field(buf_str(room), "SwapPss");
    if (shmem && read_in(proc, pid, "smaps", room))
        n -= guard_mapped(buf_str(room), devs, ARRAY_LEN(tmpfs));
    return n > 0 ? n : 0;
}

/* by the box's own /proc, where no other processes are to be looked at */
static struct use look(const struct box *b, bool quick)
{
    struct use u = {.biggest = -1};
    AUTO_BUF struct buf room = {0};
    dev_t devs[ARRAY_LEN(tmpfs)];
    int fd = openat(b->j.root_fd, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    u.all = tmpfs_used(b, devs);
    while (d && (e = readdir(d))) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        int threads = 0;
        int64_t n;

        if (pid < 1)
            continue;
        n = process_use(fd, e->d_name, quick, devs, &room, &threads);
        u.all += n;
        if (pid == 1)
            continue;
        u.threads += threads;
        if (n > u.most) {
            u.most = n;
            u.biggest = pid;
        }
    }
    if (d)
        closedir(d);
    else
        close_cleanup(&fd);
    return u;
}

int64_t guard_memory(const struct box *b)
{
    return look(b, false).all;
}

/* ---- memory and processes ---- */

/* kills it and waits until what it had is free */
static void end_process(const struct box *b, pid_t pid)
{
    AUTO_FREE char *path = xasprintf("proc/%d", (int)pid);
    AUTO_CLOSE int fd =
        openat(b->j.root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_BUF struct buf room = {0};
    int64_t until = mono_ms() + DEATH_MS;

    if (fd < 0 || syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) < 0)
        return;
    while (mono_ms() < until && read_in(fd, ".", "status", &room) &&
           guard_field(buf_str(&room), "VmRSS"))
        sleep_ms(2);
}

/* how far the box is from its limit; negative: over it */
static int64_t check_memory(struct box *b)
{
    int64_t max = b->spec.memory_mb << 20, until = mono_ms() + CHECK_MS;
    int killed = 0;
    struct use u = look(b, true);

    while (u.all > max || u.threads > box_pids(&b->spec) + 100) {
        bool many = u.all <= max;

        if (!many)
            u = look(b, false);
        if ((!many && u.all <= max) || u.biggest < 0 || killed >= VICTIMS ||
            mono_ms() > until)
            break;
        end_process(b, u.biggest);
        killed += !many;
        u = look(b, true);
    }
    if (killed)
        box_log(b, "error", "out of memory: %d killed", killed);
    return max - u.all;
}

/* when this box is to be looked at again */
static void guard_box(struct box *b)
{
    int64_t begun = mono_ms(), left = check_memory(b), now = mono_ms();
    int64_t wait = left / RATE, least = (now - begun) * COST;

    wait = wait > LOOK_MAX_MS ? LOOK_MAX_MS : wait;
    least = least < LOOK_MIN_MS ? LOOK_MIN_MS : least;
    b->guard_at = now + (wait > least ? wait : least);
}

static void *watch(void *arg)
{
    (void)arg;
    for (;;) {
        int64_t next = mono_ms() + LIST_EVERY_MS, now;
        size_t n;
        struct box **all = box_all(&n);

        for (size_t i = 0; i < n; i++) {
            if (!box_paused(all[i]) && all[i]->guard_at <= mono_ms())
                guard_box(all[i]);
            if (!box_paused(all[i]) && all[i]->guard_at < next)
                next = all[i]->guard_at;
            box_put(all[i]);
        }
        free(all);
        now = mono_ms();
        sleep_ms(next > now ? (int)(next - now) : 1);
    }
    return NULL;
}

int guard_start(void)
{
    pthread_t t;
    int rc;

    if (cgroup_kind(CG_MEMORY) && cgroup_kind(CG_PIDS))
        return 0;
    rc = pthread_create(&t, NULL, watch, NULL);
    if (!rc)
        pthread_detach(t);
    return -rc;
}

/* ---- the disk ---- */

static bool host_full(const struct box *b)
{
    struct statvfs v;

    return statvfs(b->dir, &v) == 0 &&
           (int64_t)v.f_bavail * (int64_t)v.f_frsize >> 20 < FREE_MIN_MB;
}

/* the home is measured now and then, the less often the longer it takes */
const char *guard_disk(struct box *b)
{
    int64_t now = mono_ms(), took;
    bool full = host_full(b);

    if (now < b->disk_next && !full)
        return NULL;
    b->disk = trash_measure(b->dir);
    took = mono_ms() - now;
    b->disk_next = mono_ms() + DISK_EVERY_MS + 50 * took;
    if (b->disk >> 20 > BOX_DISK_MB)
        return "disk limit exceeded";
    return full && b->disk >> 20 > 512 ? "the host's disk is full" : NULL;
}
