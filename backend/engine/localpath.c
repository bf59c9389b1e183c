/*
 * Directories of the host that local sandboxes are shown. The check may run
 * on the thread that serves the mount, so it walks a path by hand and stops
 * before it would look into that.
 */
#include "engine/config.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40 };

/* is path the same as dir, or below it? */
static bool within(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (n == 1)
        return true;
    return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

static void pop(struct buf *b)
{
    while (b->n && b->p[b->n - 1] != '/')
        b->n--;
    if (b->n)
        b->n--;
    if (b->p)
        b->p[b->n] = 0;
}

int path_real(const char *path, const char *avoid, struct buf *out)
{
    AUTO_BUF struct buf rest = {0}, done = {0};
    int links = 0;

    if (*path != '/')
        return -EINVAL;
    buf_adds(&rest, path);
    while (rest.n) {
        size_t skip = strspn(rest.p, "/"), len;
        AUTO_FREE char *part = NULL;
        char target[PATH_MAX];
        struct stat st;
        ssize_t n;

        buf_drop(&rest, skip);
        len = strcspn(buf_str(&rest), "/");
        part = xmemdup0(buf_str(&rest), len);
        buf_drop(&rest, len);
        if (!*part || !strcmp(part, "."))
            continue;
        if (!strcmp(part, "..")) {
            pop(&done);
            continue;
        }
        buf_addf(&done, "/%s", part);
        if (avoid && *avoid && within(done.p, avoid))
            return -EDEADLK;
        if (lstat(done.p, &st) < 0)
            return -errno;
        if (S_ISDIR(st.st_mode))
            continue;
        if (!S_ISLNK(st.st_mode))
            return -ENOTDIR;
        n = readlink(done.p, target, sizeof(target) - 1);
        if (n < 0 || ++links > LINKS_MAX)
            return n < 0 ? -errno : -ELOOP;
        target[n] = 0;
        if (*target == '/')
            buf_clear(&done);
        else
            pop(&done);
        {
            AUTO_FREE char *tail = xstrdup(buf_str(&rest));

            buf_clear(&rest);
            buf_addf(&rest, "%s%s", target, tail);
        }
    }
    buf_adds(out, done.n ? done.p : "/");
    return 0;
}

static int covers(const char *dir, const char *own, const char *what,
                  const char *shown, struct err *e)
{
    if (!own || !*own)
        return 0;
    if (within(own, dir) || within(dir, own))
        return err_set(e, EINVAL, "'%s' covers %s (%s)", shown, what, own);
    return 0;
}

int config_paths_check(const struct courier *c, const char *list,
                       struct err *e)
{
    for (int i = 0;; i++) {
        AUTO_FREE char *dir = config_list_item(list, i);
        AUTO_BUF struct buf real = {0}, data = {0};
        char shown[160];
        int r;

        if (!dir)
            return 0;
        text_refused(dir, shown);
        r = path_real(dir, c->mount, &real);
        if (r == -EDEADLK)
            return err_set(e, EINVAL, "'%s' covers the mount (%s)", shown,
                           c->mount);
        if (r < 0)
            return err_set(e, EINVAL, "'%s': %s", shown,
                           r == -ENOTDIR ? "not a directory" : strerror(-r));
        r = covers(real.p, c->mount, "the mount", shown, e);
        if (r == 0 && c->data && path_real(c->data, c->mount, &data) == 0)
            r = covers(real.p, data.p, "the data directory", shown, e);
        if (r < 0)
            return r;
    }
}
