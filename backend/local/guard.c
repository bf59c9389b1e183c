#include "local/box_int.h"

#include "local/trash.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FREE_MIN_MB = 256, DISK_EVERY_MS = 15000 };

static int64_t rss(const char *pid)
{
    char path[64];
    AUTO_BUF struct buf b = {0};
    long long pages, shared = 0;

    snprintf(path, sizeof(path), "/proc/%.20s/statm", pid);
    if (file_read(path, 4096, &b) < 0 ||
        sscanf(buf_str(&b), "%*d %lld %lld", &pages, &shared) != 2)
        return 0;
    return (int64_t)(pages - shared) * sysconf(_SC_PAGESIZE);
}

int64_t guard_memory(const struct box *b, int *processes, pid_t *biggest)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int64_t sum = 0, most = 0;

    *processes = 0;
    *biggest = -1;
    while (d && (e = readdir(d))) {
        char path[64];
        struct stat st;
        int64_t n;

        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%.20s/ns/pid", e->d_name);
        if (stat(path, &st) < 0 || st.st_ino != b->pidns)
            continue;
        n = rss(e->d_name);
        sum += n;
        ++*processes;
        if (n > most && strtol(e->d_name, NULL, 10) != b->j.init) {
            most = n;
            *biggest = (pid_t)strtol(e->d_name, NULL, 10);
        }
    }
    if (d)
        closedir(d);
    return sum;
}

static void check_memory(struct box *b)
{
    int64_t max = b->spec.memory_mb << 20;
    int count;
    pid_t biggest;

    if (cgroup_kind(CG_MEMORY) && cgroup_kind(CG_PIDS))
        return;
    if (guard_memory(b, &count, &biggest) > max && biggest > 0 &&
        !cgroup_kind(CG_MEMORY)) {
        kill(biggest, SIGKILL);
        box_log(b, "error", "out of memory: a process was killed");
    }
    if (count > box_pids(&b->spec) + 100 && biggest > 0)
        kill(biggest, SIGKILL);
}

static bool host_full(const struct box *b)
{
    struct statvfs v;

    return statvfs(b->dir, &v) == 0 &&
           (int64_t)v.f_bavail * (int64_t)v.f_frsize >> 20 < FREE_MIN_MB;
}

/* the home is measured now and then, the less often the longer it takes */
static const char *check_disk(struct box *b)
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

const char *guard_check(struct box *b)
{
    check_memory(b);
    return check_disk(b);
}
