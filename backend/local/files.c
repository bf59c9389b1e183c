#include "local/files.h"

#include "local/boxfs.h"
#include "local/connect.h"
#include "local/multipart.h"

#include <fcntl.h>
#include <sodium.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <zlib.h>

/*
 * GET and POST /files, POST /files/compose. Bodies go through in pieces of
 * PIECE bytes, whatever their size.
 */

enum { PIECE = 65536, COMPOSE_MAX = 1000, KERNEL_FILE_MAX = 16 << 20 };

/* ---- signatures ---- */

/* why the signature isn't right; NULL if it is */
static const char *signature_error(struct req *r, struct box *b)
{
    const char *have = req_query(r, "signature");
    const char *expiry = req_query(r, "signature_expiration");
    const char *path = req_query(r, "path");
    const char *user = req_query(r, "username");
    char want[64];
    int64_t at = 0;

    if (!have || !*have)
        return "missing signature query parameter";
    file_signature(path ? path : "",
                   strcmp(r->method, "GET") ? "write" : "read",
                   user ? user : "", box_token(b), expiry, want);
    if (strlen(have) != strlen(want) ||
        sodium_memcmp(have, want, strlen(want)))
        return "invalid signature";
    if (expiry &&
        (!text_int(expiry, 0, INT64_MAX, &at) || at < now_ms() / 1000))
        return "signature is already expired";
    return NULL;
}

bool files_signature_ok(struct req *r, struct box *b)
{
    return *box_token(b) && !signature_error(r, b);
}

const char *files_signature_words(struct req *r, struct box *b)
{
    const char *e = signature_error(r, b);

    return e ? e : "";
}

/* ---- errors ---- */

static void file_fail(struct req *r, int e, const char *path)
{
    switch (-e) {
    case ENOENT:
    case ENOTDIR:
        http_fail(r, 404, "path '%s' does not exist", path);
        break;
    case EISDIR:
        http_fail(r, 400, "path '%s' is a directory", path);
        break;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
        http_fail(r, 400, "path '%s': %s", path, strerror(-e));
        break;
    case ENXIO:
        http_fail(r, 400, "path '%s' is not a regular file", path);
        break;
    case EACCES:
    case EPERM:
    case EROFS:
        http_fail(r, 403, "path '%s': %s", path, strerror(-e));
        break;
    case ENOSPC:
    case EDQUOT:
        http_fail(r, 507, "not enough disk space available");
        break;
    case EMSGSIZE:
    case EBADMSG:
        http_fail(r, 400, "error parsing the request's body");
        break;
    case ESHUTDOWN:
        http_fail(r, 502, "The sandbox was not found");
        break;
    default:
        http_fail(r, 500, "error opening file '%s': %s", path, strerror(-e));
    }
}

/* ---- GET ---- */

static bool accepts_gzip(struct req *r)
{
    const char *h = req_header(r, "Accept-Encoding");
    const char *p = h ? strcasestr(h, "gzip") : NULL;

    if (!p)
        return false;
    p += 4;
    while (*p == ' ')
        p++;
    if (*p != ';')
        return *p == ',' || !*p;
    p = strcasestr(p, "q=");
    return !p || strtod(p + 2, NULL) > 0;
}

static int send_plain(struct req *r, int fd, int64_t from, int64_t n)
{
    AUTO_FREE char *piece = xmalloc(PIECE);
    int e = 0;

    while (n > 0 && !e) {
        ssize_t got = pread(fd, piece, n < PIECE ? (size_t)n : PIECE, from);

        if (got <= 0)
            return -EIO;
        e = reply_write(r, piece, (size_t)got);
        from += got;
        n -= got;
    }
    return e;
}

/* a file of /proc has no size: what can be read is it */
static void send_kernel_file(struct req *r, int fd)
{
    AUTO_FREE char *piece = xmalloc(PIECE);
    int64_t at = 0;
    ssize_t n;

    if (!reply_begin(r, 200, "text/plain; charset=utf-8", -1))
        while (at < KERNEL_FILE_MAX && (n = pread(fd, piece, PIECE, at)) > 0 &&
               !reply_write(r, piece, (size_t)n))
            at += n;
    reply_end(r);
}

static int send_gzip(struct req *r, int fd, int64_t n)
{
    AUTO_FREE char *piece = xmalloc(PIECE), *out = xmalloc(PIECE);
    z_stream z = {0};
    int e = 0, flush = Z_NO_FLUSH;
    int64_t at = 0;

    if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY))
        return -ENOMEM;
    while (flush != Z_FINISH && !e) {
        ssize_t got = at < n ? pread(fd, piece, PIECE, at) : 0;

        if (got < 0) {
            e = -errno;
            break;
        }
        at += got;
        flush = got == 0 ? Z_FINISH : Z_NO_FLUSH;
        z.next_in = (Bytef *)piece;
        z.avail_in = (uInt)got;
        do {
            z.next_out = (Bytef *)out;
            z.avail_out = PIECE;
            deflate(&z, flush);
            if (z.avail_out < PIECE)
                e = reply_write(r, out, PIECE - z.avail_out);
        } while (!z.avail_out && !e);
    }
    deflateEnd(&z);
    return e;
}

/* a name as a token or, with anything unusual in it, by RFC 5987 */
static void disposition(struct req *r, const char *name)
{
    AUTO_BUF struct buf b = {0};
    bool plain = *name;

    for (const char *c = name; *c; c++)
        plain &= (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                 (*c >= '0' && *c <= '9') || strchr("._-", *c);
    if (plain) {
        buf_addf(&b, "inline; filename=%s", name);
    } else {
        buf_adds(&b, "inline; filename*=utf-8''");
        for (const char *c = name; *c; c++) {
            if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                (*c >= '0' && *c <= '9') || strchr("._-", *c))
                buf_addc(&b, *c);
            else
                buf_addf(&b, "%%%02X", (unsigned char)*c);
        }
    }
    reply_header(r, "Content-Disposition", b.p);
}

static bool not_modified(struct req *r, time_t mtime)
{
    const char *h = req_header(r, "If-Modified-Since");
    time_t t;

    return h && http_date_parse(h, &t) && mtime <= t;
}

static bool changed_since(struct req *r, const char *header, time_t mtime)
{
    const char *h = req_header(r, header);
    time_t t;

    return h && (!http_date_parse(h, &t) || mtime > t);
}

static void get_open(struct req *r, int fd, const struct stat *st,
                     const char *name)
{
    const char *h = changed_since(r, "If-Range", st->st_mtime)
                        ? NULL
                        : req_header(r, "Range");
    char first[512], date[32], text[96];
    int64_t from, to;
    ssize_t n = pread(fd, first, sizeof(first), 0);
    const char *type = file_type(name, first, n > 0 ? (size_t)n : 0);
    enum range part = file_range(h, st->st_size, &from, &to);
    bool gzip = !h && !req_header(r, "If-Modified-Since") &&
                !req_header(r, "If-Unmodified-Since") && accepts_gzip(r);

    http_date(st->st_mtime, date);
    if (changed_since(r, "If-Unmodified-Since", st->st_mtime)) {
        reply(r, 412, "text/plain", "", 0);
        return;
    }
    reply_header(r, "Last-Modified", date);
    if (not_modified(r, st->st_mtime)) {
        reply(r, 304, NULL, NULL, 0);
        return;
    }
    disposition(r, name);
    reply_header(r, "Vary", "Accept-Encoding");
    if (part == RANGE_BAD) {
        snprintf(text, sizeof(text), "bytes */%lld", (long long)st->st_size);
        reply_header(r, "Content-Range", text);
        reply(r, 416, "text/plain", "invalid range: failed to overlap\n", 33);
        return;
    }
    if (gzip && st->st_size) {
        reply_header(r, "Content-Encoding", "gzip");
        if (!reply_begin(r, 200, type, -1))
            send_gzip(r, fd, st->st_size);
        reply_end(r);
        return;
    }
    reply_header(r, "Accept-Ranges", "bytes");
    if (part == RANGE_PART) {
        snprintf(text, sizeof(text), "bytes %lld-%lld/%lld", (long long)from,
                 (long long)to, (long long)st->st_size);
        reply_header(r, "Content-Range", text);
    }
    if (!reply_begin(r, part == RANGE_PART ? 206 : 200, type, to - from + 1))
        send_plain(r, fd, from, to - from + 1);
    reply_end(r);
}

static void get(struct req *r, const struct boxfs *f)
{
    const char *path = req_query(r, "path"), *name;
    AUTO_FREE char *abs = NULL;
    AUTO_CLOSE int fd = -1;
    struct err e = {0};
    struct stat st;

    if (boxfs_path(f, path ? path : "", &abs, &e)) {
        http_fail(r, 400, "%s", e.text);
        return;
    }
    fd = boxfs_read(f, abs, &st);
    if (fd < 0) {
        file_fail(r, fd, abs);
        return;
    }
    name = strrchr(abs, '/');
    if (!st.st_size && boxfs_kernel_file(fd)) {
        send_kernel_file(r, fd);
        return;
    }
    get_open(r, fd, &st, name ? name + 1 : abs);
}

/* ---- POST ---- */

/* X-Metadata-KEY headers, as {key: value}; -EINVAL with words */
static int metadata_of(struct req *r, json_t *out, struct err *e)
{
    const char *name, *value;
    size_t total = 0;

    for (size_t i = 0; (value = req_header_at(r, i, &name)); i++) {
        char key[META_KEY_MAX + 1];
        size_t n = 0;

        if (strncasecmp(name, "X-Metadata-", 11))
            continue;
        name += 11;
        if (!*name || strlen(name) > META_KEY_MAX)
            return err_set(e, EINVAL,
                           "a metadata key must have 1 to %d "
                           "characters",
                           META_KEY_MAX);
        for (; name[n]; n++)
            key[n] = (char)(name[n] >= 'A' && name[n] <= 'Z' ? name[n] | 32
                                                             : name[n]);
        key[n] = 0;
        for (const char *c = value; *c; c++)
            if (*c < 0x20 || *c > 0x7e)
                return err_set(e, EINVAL,
                               "the metadata value of '%.100s' is "
                               "not printable ASCII",
                               key);
        total += n + strlen(value);
        if (total > META_TOTAL_MAX)
            return err_set(e, EINVAL, "metadata is longer than %d bytes",
                           META_TOTAL_MAX);
        if (!json_object_get(out, key))
            json_object_set_new(out, key, json_string(value));
    }
    return 0;
}

/* false if the file system keeps none */
static bool metadata_set(int fd, const json_t *meta)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)meta, key, v)
    {
        AUTO_FREE char *name = xasprintf("%s%s", XATTR_META, key);
        const char *s = json_string_value(v);

        if (fsetxattr(fd, name, s, strlen(s), 0))
            return false;
    }
    return true;
}

/* what an upload is read from */
typedef ssize_t source_fn(void *arg, void *p, size_t n);

static ssize_t from_body(void *arg, void *p, size_t n)
{
    struct req *r = arg;

    return r->read_body ? r->read_body(r, p, n) : 0;
}

static ssize_t from_part(void *arg, void *p, size_t n)
{
    return multipart_read(arg, p, n);
}

static int take_in(const struct boxfs *f, const char *abs, source_fn *source,
                   void *arg, const json_t *meta)
{
    AUTO_FREE char *piece = xmalloc(PIECE);
    struct upload u;
    ssize_t n = 0;
    int e = upload_begin(&u, f, abs);

    while (!e && (n = source(arg, piece, PIECE)) > 0)
        e = fd_write_all(u.fd, piece, (size_t)n);
    if (!e && n < 0)
        e = n == -EINVAL ? -EBADMSG : (int)n;
    if (!e && !metadata_set(u.fd, meta))
        e = -ENOTSUP;
    if (!e)
        e = upload_commit(&u);
    upload_abort(&u);
    return e;
}

/* the list of what was written, which is the answer */
static bool already_written(const json_t *list, const char *abs)
{
    json_t *j;
    size_t i;

    json_array_foreach(list, i, j)
    {
        if (!strcmp(field_str(j, "path"), abs))
            return true;
    }
    return false;
}

static void written(json_t *list, const char *abs, json_t *meta)
{
    const char *name = strrchr(abs, '/');
    json_t *j =
        json_pack("{s:o, s:o, s:s}", "name", json_text(name ? name + 1 : abs),
                  "path", json_text(abs), "type", "file");

    if (json_object_size(meta))
        json_object_set(j, "metadata", meta);
    json_array_append_new(list, j);
}

static void written_answer(struct req *r, const json_t *list)
{
    AUTO_FREE char *text = json_dumps(list, JSON_COMPACT);

    reply(r, 200, "text/plain; charset=utf-8", text, strlen(text));
}

/* one part; false when the request was answered with an error */
static bool post_part(struct req *r, const struct boxfs *f,
                      struct multipart *m, const struct part *p, json_t *list,
                      json_t *meta)
{
    const char *path = req_query(r, "path");
    AUTO_FREE char *abs = NULL;
    struct err e = {0};
    int x;

    if (!p->name || strcmp(p->name, "file"))
        return true;
    if (!path || !*path)
        path = p->filename;
    if (!path || !*path) {
        http_fail(r, 400,
                  "path is missing: neither in the query nor as the "
                  "name of the file");
        return false;
    }
    if (boxfs_path(f, path, &abs, &e)) {
        http_fail(r, 400, "%s", e.text);
        return false;
    }
    if (already_written(list, abs)) {
        http_fail(r, 400,
                  "you cannot upload multiple files to the same path "
                  "'%s' in one upload request",
                  abs);
        return false;
    }
    x = take_in(f, abs, from_part, m, meta);
    if (x) {
        file_fail(r, x, abs);
        return false;
    }
    written(list, abs, meta);
    return true;
}

static void post_multipart(struct req *r, const struct boxfs *f, json_t *meta)
{
    struct multipart m;
    struct part p;
    json_t *list = json_array();
    bool ok = true;
    int n = 0;

    if (multipart_init(&m, req_header(r, "Content-Type"), from_body, r)) {
        http_fail(r, 400, "error parsing multipart form: no boundary");
        json_decref(list);
        return;
    }
    while (ok && (n = multipart_next(&m, &p)) > 0) {
        ok = post_part(r, f, &m, &p, list, meta);
        part_release(&p);
    }
    if (ok && n < 0)
        http_fail(r, 400, "error parsing multipart form: %s",
                  n == -EINVAL ? "unexpected end" : strerror(-n));
    else if (ok)
        written_answer(r, list);
    multipart_release(&m);
    json_decref(list);
}

static void post_octets(struct req *r, const struct boxfs *f, json_t *meta)
{
    const char *path = req_query(r, "path");
    AUTO_FREE char *abs = NULL;
    struct err e = {0};
    json_t *list;
    int x;

    if (!path || !*path) {
        http_fail(r, 400, "path is required for a raw upload");
        return;
    }
    if (boxfs_path(f, path, &abs, &e)) {
        http_fail(r, 400, "%s", e.text);
        return;
    }
    x = take_in(f, abs, from_body, r, meta);
    if (x) {
        file_fail(r, x, abs);
        return;
    }
    list = json_array();
    written(list, abs, meta);
    written_answer(r, list);
    json_decref(list);
}

static void post(struct req *r, const struct boxfs *f)
{
    const char *type = req_header(r, "Content-Type");
    json_t *meta = json_object();
    struct err e = {0};

    if (metadata_of(r, meta, &e))
        http_fail(r, 400, "%s", e.text);
    else if (rpc_type_is(r, "multipart/form-data"))
        post_multipart(r, f, meta);
    else if (rpc_type_is(r, "application/octet-stream"))
        post_octets(r, f, meta);
    else
        http_fail(r, 400, "unsupported content type: %s", type ? type : "");
    json_decref(meta);
}

/* ---- compose ---- */

static int append_file(const struct boxfs *f, int to, const char *abs)
{
    struct stat st;
    AUTO_FREE char *piece = xmalloc(PIECE);
    AUTO_CLOSE int fd = boxfs_read(f, abs, &st);
    ssize_t n;
    int e = 0;

    if (fd < 0)
        return fd;
    while (!e && (n = read(fd, piece, PIECE)) != 0)
        e = n < 0 ? -errno : fd_write_all(to, piece, (size_t)n);
    return e;
}

static void remove_file(const struct boxfs *f, const char *abs)
{
    char name[256];
    AUTO_CLOSE int dir = boxfs_parent(f, abs, false, name);

    if (dir >= 0)
        unlinkat(dir, name, 0);
}

/* the absolute paths of the sources; -EINVAL if they aren't paths */
static int sources_of(const struct boxfs *f, const json_t *in, json_t *out,
                      const char *dest, struct err *e)
{
    json_t *list = field(in, "sourcePaths"), *j;
    size_t i;

    if (!json_array_size(list) || json_array_size(list) > COMPOSE_MAX)
        return err_set(e, EINVAL, "source_paths must be 1 to %d paths",
                       COMPOSE_MAX);
    json_array_foreach(list, i, j)
    {
        AUTO_FREE char *abs = NULL;

        if (!json_is_string(j))
            return err_set(e, EINVAL, "source_paths must be paths");
        if (boxfs_path(f, json_string_value(j), &abs, e))
            return -EINVAL;
        if (!strcmp(abs, dest))
            return err_set(e, EINVAL, "the destination is a source");
        json_array_append_new(out, json_text(abs));
    }
    return 0;
}

static void compose_to(struct req *r, const struct boxfs *f, const char *dest,
                       const json_t *sources)
{
    struct upload u;
    json_t *j, *entry = NULL;
    const char *at = dest;
    size_t i;
    int e = upload_begin(&u, f, dest);

    json_array_foreach(sources, i, j)
    {
        if (e)
            break;
        at = json_string_value(j);
        e = append_file(f, u.fd, at);
    }
    if (!e)
        e = upload_commit(&u);
    upload_abort(&u);
    if (e) {
        file_fail(r, e, at);
        return;
    }
    json_array_foreach(sources, i, j)
    {
        remove_file(f, json_string_value(j));
    }
    e = boxfs_stat(f, dest, &entry);
    if (e)
        file_fail(r, e, dest);
    else
        reply_json(r, 200, entry);
}

static void compose(struct req *r, const struct boxfs *f, const json_t *in)
{
    AUTO_FREE char *dest = NULL;
    json_t *sources = json_array();
    struct err e = {0};

    if (!*field_str(in, "destination"))
        http_fail(r, 400, "destination is missing");
    else if (boxfs_path(f, field_str(in, "destination"), &dest, &e) ||
             sources_of(f, in, sources, dest, &e))
        http_fail(r, 400, "%s", e.text);
    else
        compose_to(r, f, dest, sources);
    json_decref(sources);
}

static void body_all(struct req *r, struct buf *out)
{
    ssize_t n;

    buf_add(out, r->body.p, r->body.n);
    while (!r->body.n && r->read_body && out->n < (1 << 20)) {
        buf_reserve(out, PIECE);
        n = r->read_body(r, out->p + out->n, PIECE);
        if (n <= 0)
            break;
        out->n += (size_t)n;
    }
}

/* ---- what the server calls ---- */

void files_handle(struct req *r, struct box *b)
{
    bool composing = !strcmp(r->path, "/files/compose");
    bool getting = !strcmp(r->method, "GET") && !composing, as_root;
    AUTO_BUF struct buf body = {0};
    const char *user = req_query(r, "username");
    json_t *in = NULL;
    struct boxfs f;

    if (!getting && strcmp(r->method, "POST")) {
        reply_header(r, "Allow", composing ? "POST" : "GET, POST");
        reply(r, 405, "text/plain", "", 0);
        return;
    }
    if (composing) {
        body_all(r, &body);
        in = json_loadb(buf_str(&body), body.n, 0, NULL);
        user = field_str(in, "username");
    }
    if (boxfs_user(user, &as_root)) {
        http_fail(r, 401, "error looking up user '%s': user: unknown user %s",
                  user, user);
        json_decref(in);
        return;
    }
    boxfs_enter(&f, b, as_root);
    if (getting)
        get(r, &f);
    else if (composing)
        compose(r, &f, in);
    else
        post(r, &f);
    boxfs_leave(&f);
    json_decref(in);
}
