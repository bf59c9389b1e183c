/* untar: the formats of GNU tar and of POSIX, tar(5) */
#include "engine/untar.h"

enum {
    BLOCK = 512,
    NAME_N = 100,
    SIZE_AT = 124,
    SIZE_N = 12,
    TYPE_AT = 156,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_N = 155,
};

void untar_begin(struct untar *u, const char *p, size_t n)
{
    *u = (struct untar){.p = p, .end = p + n};
}

void untar_end(struct untar *u)
{
    free(u->name);
    u->name = NULL;
}

/* octal digits; -1 for anything else */
static int64_t number(const char *p, size_t n)
{
    int64_t v = 0;
    size_t i = 0;

    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        v = v * 8 + (p[i] - '0');
    return i < n && p[i] && p[i] != ' ' ? -1 : v;
}

static bool is_zero(const char *p)
{
    for (size_t i = 0; i < BLOCK; i++)
        if (p[i])
            return false;
    return true;
}

static char *name_of(const char *h)
{
    AUTO_BUF struct buf b = {0};

    if (!memcmp(h + MAGIC_AT, "ustar", 6) && h[PREFIX_AT]) {
        buf_add(&b, h + PREFIX_AT, strnlen(h + PREFIX_AT, PREFIX_N));
        buf_addc(&b, '/');
    }
    buf_add(&b, h, strnlen(h, NAME_N));
    return xstrdup(buf_str(&b));
}

/* takes one entry off the front: its type, 0 at the end, -EPROTO */
static int entry(struct untar *u, const char **h, const char **p, size_t *n)
{
    int64_t size;
    size_t room;

    if (u->end - u->p < BLOCK)
        return -EPROTO;
    *h = u->p;
    if (is_zero(*h))
        return 0;
    size = number(*h + SIZE_AT, SIZE_N);
    room = (size_t)(u->end - u->p) - BLOCK;
    if (size < 0 || (uint64_t)size > room)
        return -EPROTO;
    *p = u->p + BLOCK;
    *n = (size_t)size;
    size = (size + BLOCK - 1) / BLOCK * BLOCK;
    u->p = (uint64_t)size < room ? *p + size : u->end;
    return (*h)[TYPE_AT] ? (*h)[TYPE_AT] : '0';
}

int untar_next(struct untar *u, const char **name, const char **p, size_t *n)
{
    const char *h;
    bool named = false;
    int type;

    while ((type = entry(u, &h, p, n)) > 0) {
        if (type == 'L') { /* GNU's long name */
            free(u->name);
            u->name = xmemdup0(*p, *n);
            named = true;
            continue;
        }
        if (type == '0') {
            if (!named) {
                free(u->name);
                u->name = name_of(h);
            }
            *name = u->name;
            return 1;
        }
        named = false;
    }
    return type;
}
