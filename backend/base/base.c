#include "base/base.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void out_of_memory(void)
{
    static const char msg[] = "courier: out of memory\n";

    if (write(2, msg, sizeof(msg) - 1) < 0)
        abort();
    abort();
}

void *xmalloc(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (!p)
        out_of_memory();
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    if (!p)
        out_of_memory();
    return p;
}

void *xrealloc(void *p, size_t n)
{
    void *q = realloc(p, n ? n : 1);

    if (!q)
        out_of_memory();
    return q;
}

char *xstrdup(const char *s)
{
    return s ? xmemdup0(s, strlen(s)) : NULL;
}

char *xmemdup0(const void *p, size_t n)
{
    char *q = xmalloc(n + 1);

    if (n)
        memcpy(q, p, n);
    q[n] = 0;
    return q;
}

char *xasprintf(const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    return buf_take(&b);
}

void free_cleanup(void *pp)
{
    void **p = pp;

    free(*p);
    *p = NULL;
}

void close_cleanup(int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = saved;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (code < 0)
        code = -code;
    if (e) {
        e->code = code;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof(e->text), fmt, ap);
        va_end(ap);
    }
    return -code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    char old[sizeof(e->text)];
    char words[sizeof(e->text)];
    va_list ap;

    if (!e)
        return -EINVAL;
    memcpy(old, e->text, sizeof(old));
    va_start(ap, fmt);
    vsnprintf(words, sizeof(words), fmt, ap);
    va_end(ap);
    snprintf(e->text, sizeof(e->text), "%.200s: %.390s", words, old);
    return -e->code;
}

void buf_reserve(struct buf *b, size_t more)
{
    size_t want = b->n + more + 1;
    size_t cap = b->cap ? b->cap : 64;

    if (want <= b->cap)
        return;
    while (cap < want)
        cap += cap / 2 + 64;
    b->p = xrealloc(b->p, cap);
    b->cap = cap;
    b->p[b->n] = 0;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    buf_reserve(b, n);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        out_of_memory();
    buf_reserve(b, (size_t)n);
    vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
    b->n += (size_t)n;
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(b, fmt, ap);
    va_end(ap);
}

void buf_drop(struct buf *b, size_t n)
{
    if (n > b->n)
        n = b->n;
    if (!n)
        return;
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
    b->p[b->n] = 0;
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    if (b->p)
        b->p[0] = 0;
}

void buf_free(struct buf *b)
{
    free(b->p);
    memset(b, 0, sizeof(*b));
}

void buf_wipe(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    buf_free(b);
}

char *buf_take(struct buf *b)
{
    char *p = b->p ? b->p : xstrdup("");

    memset(b, 0, sizeof(*b));
    return p;
}

const char *buf_str(const struct buf *b)
{
    return b->p ? b->p : "";
}

int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t now_ms(void)
{
    return now_ns() / 1000000;
}

int64_t mono_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void sleep_ms(int ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&ts, NULL);
}

void time_rfc3339(int64_t ms, char out[32])
{
    time_t t = (time_t)(ms / 1000);
    struct tm tm;

    out[0] = 0;
    if (!ms || !gmtime_r(&t, &tm))
        return;
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

int64_t time_parse(const char *s)
{
    struct tm tm;
    int64_t ms, off = 0;
    const char *p;

    memset(&tm, 0, sizeof(tm));
    p = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!p)
        p = strptime(s, "%Y-%m-%d %H:%M:%S", &tm);
    if (!p)
        return -EINVAL;
    ms = (int64_t)timegm(&tm) * 1000;
    if (*p == '.') {
        int scale = 100;

        for (p++; *p >= '0' && *p <= '9'; p++) {
            ms += (*p - '0') * scale;
            scale /= 10;
        }
    }
    if (*p == 'Z' || *p == 'z') {
        p++;
    } else if (*p == '+' || *p == '-') {
        int h, m;

        if (sscanf(p + 1, "%2d:%2d", &h, &m) != 2)
            return -EINVAL;
        off = (int64_t)(h * 60 + m) * 60000;
        if (*p == '-')
            off = -off;
        p += strlen(p) < 6 ? strlen(p) : 6;
    }
    return *p ? -EINVAL : ms - off;
}

int file_read(const char *path, size_t max, struct buf *out)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t r;

    if (fd < 0)
        return -errno;
    for (;;) {
        buf_reserve(out, 65536);
        r = read(fd, out->p + out->n, 65536);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        if (r == 0)
            break;
        out->n += (size_t)r;
        out->p[out->n] = 0;
        if (out->n > max)
            return -EFBIG;
    }
    return 0;
}

int fd_write_all(int fd, const void *p, size_t n)
{
    const char *c = p;

    while (n) {
        ssize_t w = write(fd, c, n);

        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -errno;
        c += w;
        n -= (size_t)w;
    }
    return 0;
}

void fd_std_open(void)
{
    int fd = open("/dev/null", O_RDWR);

    while (fd >= 0 && fd <= 2)
        fd = dup(fd);
    if (fd > 2)
        close(fd);
}

static enum log_level level = LOG_WARN;

void log_level_set(enum log_level l)
{
    level = l;
}

void log_msg(enum log_level l, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    AUTO_BUF struct buf b = {0};
    char when[32];
    va_list ap;

    if (l > level)
        return;
    time_rfc3339(now_ms(), when);
    buf_addf(&b, "%s courier %s: ", when, names[l]);
    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    buf_addc(&b, '\n');
    fd_write_all(2, b.p, b.n);
}
