#include "git/packscan.h"
#include "git/lib.h"

#include <unistd.h>
#include <zlib.h>

enum { HASH = 20, CHUNK = 1 << 16 };
enum { OBJ_OFS_DELTA = 6, OBJ_REF_DELTA = 7 };

struct scan {
    int fd;
    int64_t pos, end; /* of the next byte to read from fd; where objects end */
    unsigned char in[CHUNK], out[CHUNK];
    size_t at, n; /* unread part of in */
    int64_t unpacked;
    struct err *e;
};

static int bad(struct scan *s, const char *words)
{
    return err_set(s->e, EBADMSG, "the pack is damaged: %s", words);
}

static int fill(struct scan *s)
{
    int64_t left = s->end - s->pos;
    ssize_t got;

    if (s->at < s->n)
        return 0;
    if (left <= 0)
        return bad(s, "it is cut short");
    got = pread(s->fd, s->in, left < CHUNK ? (size_t)left : CHUNK, s->pos);
    if (got <= 0)
        return got ? err_set(s->e, errno, "the pack: %s", strerror(errno))
                   : bad(s, "it is cut short");
    s->pos += got;
    s->at = 0;
    s->n = (size_t)got;
    return 0;
}

static int byte(struct scan *s)
{
    int r = fill(s);

    return r ? r : s->in[s->at++];
}

static int skip(struct scan *s, int n)
{
    while (n--) {
        int c = byte(s);

        if (c < 0)
            return c;
    }
    return 0;
}

/* type and size of the next object; the rest of a delta's header skipped */
static int object_header(struct scan *s, int *type, int64_t *size)
{
    int c = byte(s), shift = 4;

    if (c < 0)
        return c;
    *type = c >> 4 & 7;
    *size = c & 15;
    while (c & 0x80) {
        c = byte(s);
        if (c < 0)
            return c;
        if (shift > 50)
            return bad(s, "a size is out of range");
        *size |= (int64_t)(c & 0x7f) << shift;
        shift += 7;
    }
    if (*type == OBJ_REF_DELTA)
        return skip(s, HASH);
    if (*type == OBJ_OFS_DELTA)
        do {
            c = byte(s);
        } while (c >= 0 && c & 0x80);
    if (c < 0)
        return c;
    return !*type || *type == 5 ? bad(s, "an object has no known type") : 0;
}

static int too_big(struct scan *s, int64_t size)
{
    s->unpacked += size;
    if (size > OBJECT_BYTES_MAX)
        return err_set(s->e, EFBIG,
                       "an object of the pack is larger than "
                       "%lld MiB",
                       (long long)(OBJECT_BYTES_MAX >> 20));
    if (s->unpacked > PACK_UNPACKED_MAX)
        return err_set(s->e, EFBIG, "the pack unpacks to more than %lld GiB",
                       (long long)(PACK_UNPACKED_MAX >> 30));
    return 0;
}

/* a delta begins with two sizes: of its base, of its result */
static int delta_size(struct scan *s, size_t n)
{
    int64_t size = 0;
    size_t i = 0;

    for (int which = 0; which < 2; which++) {
        int shift = 0;

        size = 0;
        do {
            if (i >= n || shift > 50)
                return bad(s, "a delta has no size");
            size |= (int64_t)(s->out[i] & 0x7f) << shift;
            shift += 7;
        } while (s->out[i++] & 0x80);
    }
    return too_big(s, size);
}

static int inflate_object(struct scan *s, z_stream *z, int type, int64_t size)
{
    bool delta = type == OBJ_OFS_DELTA || type == OBJ_REF_DELTA;
    int64_t total = 0;
    int rc = Z_OK;

    while (rc != Z_STREAM_END) {
        int r = fill(s);
        size_t got;

        if (r)
            return r;
        z->next_in = s->in + s->at;
        z->avail_in = (uInt)(s->n - s->at);
        /* the first bytes of a delta must come out together */
        if (!delta || total || !z->next_out) {
            z->next_out = s->out;
            z->avail_out = CHUNK;
        }
        rc = inflate(z, Z_NO_FLUSH);
        s->at = s->n - z->avail_in;
        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
            return bad(s, "an object can't be decompressed");
        got = CHUNK - z->avail_out;
        if (delta && !total && got < 40 && rc != Z_STREAM_END)
            continue;
        if (delta && !total) {
            r = delta_size(s, got);
            if (r)
                return r;
        }
        total += (int64_t)got;
        if (total > size)
            break;
    }
    return total != size ? bad(s, "an object's size is not what it says") : 0;
}

static int object(struct scan *s, z_stream *z)
{
    int64_t size;
    int type, r = object_header(s, &type, &size);

    if (!r)
        r = too_big(s, size);
    if (r)
        return r;
    inflateReset(z);
    z->next_out = NULL;
    z->avail_out = 0;
    return inflate_object(s, z, type, size);
}

static int header(struct scan *s, uint32_t *count)
{
    unsigned char h[12];

    for (size_t i = 0; i < sizeof(h); i++) {
        int c = byte(s);

        if (c < 0)
            return c;
        h[i] = (unsigned char)c;
    }
    if (memcmp(h, "PACK\0\0\0\2", 8) && memcmp(h, "PACK\0\0\0\3", 8))
        return bad(s, "it does not begin as one");
    *count = (uint32_t)h[8] << 24 | (uint32_t)h[9] << 16 |
             (uint32_t)h[10] << 8 | h[11];
    if (*count > PACK_OBJECTS_MAX)
        return err_set(s->e, EFBIG, "the pack has more than %u objects",
                       PACK_OBJECTS_MAX);
    return 0;
}

int pack_scan(int fd, int64_t off, int64_t end, struct err *e)
{
    AUTO_FREE struct scan *s = xcalloc(1, sizeof(*s));
    z_stream z = {0};
    uint32_t count = 0;
    int r;

    s->fd = fd;
    s->pos = off;
    s->end = end - HASH;
    s->e = e;
    r = header(s, &count);
    if (r)
        return r;
    if (inflateInit(&z) != Z_OK)
        return err_set(e, ENOMEM, "zlib does not start");
    for (uint32_t i = 0; i < count && !r; i++)
        r = object(s, &z);
    inflateEnd(&z);
    if (!r && s->pos - (int64_t)(s->n - s->at) != s->end)
        r = bad(s, "bytes follow its end");
    return r;
}
