/* vmlink: symlinks in a VM, shown so that none leads out of .files/ */
#include "fs/files.h"

static const char outside[] = "(outside)";

/* the next part of a path, or 0 */
static size_t next_part(const char **p)
{
    *p += strspn(*p, "/");
    return strcspn(*p, "/");
}

static bool part_is(const char *p, size_t n, const char *word)
{
    return n == strlen(word) && !memcmp(p, word, n);
}

/* names without ".." onto out; false if there is one */
static bool add_names(struct buf *out, const char *p)
{
    size_t n;

    while ((n = next_part(&p))) {
        if (part_is(p, n, ".."))
            return false;
        if (!part_is(p, n, ".")) {
            if (out->n && out->p[out->n - 1] != '/')
                buf_addc(out, '/');
            buf_add(out, p, n);
        }
        p += n;
    }
    return true;
}

static size_t depth_of(const char *path)
{
    size_t n = 0;

    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* of two paths, how many bytes of leading directories they share; *n counts
 * those directories */
static size_t shared_dirs(const char *a, const char *b, size_t *n)
{
    size_t at = 0;

    *n = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '/') {
            at = i + 1;
            (*n)++;
        }
    return at;
}

static void add_ups(struct buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_adds(out, i ? "/.." : "..");
}

/* to a place below the home, from a link at path; false if that is none */
static bool add_from_home(struct buf *out, const char *path, const char *to)
{
    AUTO_BUF struct buf names = {0};
    size_t shared, dirs;

    /* a link that leads nowhere is said to lead to itself */
    if (!add_names(&names, to) || !strcmp(buf_str(&names), path))
        return false;
    shared = shared_dirs(path, buf_str(&names), &dirs);
    add_ups(out, depth_of(path) - dirs);
    return add_names(out, buf_str(&names) + shared);
}

/* the text of a relative link */
static bool add_relative(struct buf *out, const char *path, const char *p)
{
    size_t ups = 0, n;

    while ((n = next_part(&p)) &&
           (part_is(p, n, ".") || part_is(p, n, ".."))) {
        ups += n == 2;
        p += n;
    }
    add_ups(out, ups);
    return ups <= depth_of(path) && add_names(out, p);
}

void vm_link_text(const char *path, const char *target, struct buf *out)
{
    static const char home[] = "/home/user";
    const char *p = target ? target : "";
    size_t n = sizeof(home) - 1;
    AUTO_BUF struct buf b = {0};
    bool leads;

    if (*p != '/')
        leads = add_relative(&b, path, p);
    else
        leads = !strncmp(p, home, n) && (!p[n] || p[n] == '/') &&
                add_from_home(&b, path, p + n);
    if (!leads)
        buf_adds(out, outside);
    else
        buf_adds(out, b.n ? b.p : ".");
}

void vm_readlink(fuse_req_t req, struct node *n)
{
    AUTO_BUF struct buf b = {0};

    vm_link_text(n->path, n->vm_target, &b);
    fuse_reply_readlink(req, buf_str(&b));
}
