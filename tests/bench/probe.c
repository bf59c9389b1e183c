/*
 * probe: how long things take, as medians (and the 99th of 100) in µs.
 *
 *   probe stat PATH N      stat(2)
 *   probe cat PATH N       open, read to the end, close
 *   probe stamps FILE N    lines of FILE that are a time in ns: how old each
 *                          is when it is here, the first few left out
 *   probe parse FORMAT FILE MB     a parser of agents, MB/s
 */
#include "agents/agents.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ns(clockid_t c)
{
    struct timespec t;

    clock_gettime(c, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static void show(int64_t *t, size_t n)
{
    if (!n)
        return;
    qsort(t, n, sizeof(*t), by_size);
    printf("%.1f %.1f\n", (double)t[n / 2] / 1e3,
           (double)t[n * 99 / 100] / 1e3);
}

static int one_stat(const char *path)
{
    struct stat st;

    return stat(path, &st);
}

static int one_cat(const char *path)
{
    char room[65536];
    int fd = open(path, O_RDONLY);

    if (fd < 0)
        return -1;
    while (read(fd, room, sizeof(room)) > 0)
        ;
    return close(fd);
}

static int timed(int (*fn)(const char *), const char *path, size_t n)
{
    AUTO_FREE int64_t *t = xcalloc(n, sizeof(*t));

    for (size_t i = 0; i < n; i++) {
        int64_t from = clock_ns(CLOCK_MONOTONIC);

        if (fn(path))
            return 1;
        t[i] = clock_ns(CLOCK_MONOTONIC) - from;
    }
    show(t, n);
    return 0;
}

static int stamps(const char *path, size_t n)
{
    AUTO_FREE int64_t *t = xcalloc(n, sizeof(*t));
    AUTO_CLOSE int fd = open(path, O_RDONLY);
    char room[65536], line[64];
    size_t have = 0, len = 0, seen = 0;
    ssize_t got;

    while (fd >= 0 && have < n && (got = read(fd, room, sizeof(room))) > 0) {
        int64_t now = clock_ns(CLOCK_REALTIME);

        for (ssize_t i = 0; i < got && have < n; i++) {
            if (room[i] != '\n') {
                if (len < sizeof(line) - 1)
                    line[len++] = room[i];
                continue;
            }
            line[len] = 0;
            if (len == 19 && strspn(line, "0123456789") == 19 && seen++ >= 5)
                t[have++] = now - strtoll(line, NULL, 10);
            len = 0;
        }
    }
    show(t, have);
    return have < n;
}

static void nothing(void *arg, const struct agent_event *ev)
{
    *(size_t *)arg += ev->n;
}

static int parse(const char *format, const char *path, size_t mb)
{
    static const char *const formats[] = {"text", "claude", "codex",
                                          "opencode", "pi"};
    AUTO_BUF struct buf b = {0};
    size_t done = 0, sum = 0;
    int64_t from;
    int f = 0;

    while (f < 4 && strcmp(formats[f], format))
        f++;
    if (file_read(path, 1 << 30, &b))
        return 1;
    from = clock_ns(CLOCK_MONOTONIC);
    while (done < mb << 20) {
        struct parser *p = parser_new((enum agent_format)f, nothing, &sum);

        for (size_t i = 0; i < b.n; i += 65536)
            parser_out(p, b.p + i, b.n - i < 65536 ? b.n - i : 65536);
        parser_end(p, 0, false);
        parser_free(p);
        done += b.n;
    }
    printf("%.1f\n", (double)done / 1048576 /
                         ((double)(clock_ns(CLOCK_MONOTONIC) - from) / 1e9));
    return 0;
}

int main(int argc, char **argv)
{
    size_t n = argc > 3 ? strtoul(argv[argc - 1], NULL, 10) : 0;

    if (argc == 4 && !strcmp(argv[1], "stat"))
        return timed(one_stat, argv[2], n);
    if (argc == 4 && !strcmp(argv[1], "cat"))
        return timed(one_cat, argv[2], n);
    if (argc == 4 && !strcmp(argv[1], "stamps"))
        return stamps(argv[2], n);
    if (argc == 5 && !strcmp(argv[1], "parse"))
        return parse(argv[2], argv[3], n);
    return 2;
}
