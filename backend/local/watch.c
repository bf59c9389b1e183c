#include "local/watch.h"

#include "local/connect.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { WATCH_MAX = 16384, WATCH_DEPTH = 64 };

#define WATCH_MASK                                                            \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |        \
     IN_ATTRIB | IN_ONLYDIR)

struct dir {
    int wd;
    char *rel; /* below the watched directory, "" is it */
};

struct watch {
    int fd, root; /* inotify; the directory */
    char *box, *shown;
    bool as_root;
    struct watch_spec spec;
    struct dir *dirs;
    size_t n;
    uint32_t cookie; /* of an upload's renaming that is under way */
    bool cookie_new;
};

static char *join(const char *a, const char *b)
{
    return *a ? xasprintf("%s/%s", a, b) : xstrdup(b);
}

static bool is_upload(const char *name, bool *is_new)
{
    *is_new = !strncmp(name, UPLOAD_NEW, sizeof(UPLOAD_NEW) - 1);
    return *is_new || !strncmp(name, UPLOAD_OVER, sizeof(UPLOAD_OVER) - 1);
}

static struct dir *dir_of(struct watch *w, int wd)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->dirs[i].wd == wd)
            return &w->dirs[i];
    return NULL;
}

static void dir_drop(struct watch *w, size_t i)
{
    free(w->dirs[i].rel);
    w->dirs[i] = w->dirs[--w->n];
}

/* the directory and what is below it are elsewhere now */
static void tree_drop(struct watch *w, const char *rel)
{
    size_t len = strlen(rel), i = 0;

    while (i < w->n) {
        const char *r = w->dirs[i].rel;

        if (strncmp(r, rel, len) || (r[len] && r[len] != '/')) {
            i++;
            continue;
        }
        inotify_rm_watch(w->fd, w->dirs[i].wd);
        dir_drop(w, i);
    }
}

static int dir_add(struct watch *w, int fd, const char *rel)
{
    char self[64];
    struct dir *d;
    int wd;

    if (w->n >= WATCH_MAX)
        return -ENOSPC;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    wd = inotify_add_watch(w->fd, self, WATCH_MASK);
    if (wd < 0)
        return -errno;
    d = dir_of(w, wd);
    if (d) {
        free(d->rel);
        d->rel = xstrdup(rel);
        return 0;
    }
    w->dirs = xrealloc(w->dirs, (w->n + 1) * sizeof(*w->dirs));
    w->dirs[w->n++] = (struct dir){wd, xstrdup(rel)};
    return 0;
}

struct found {
    void (*fn)(void *arg, const char *rel);
    void *arg;
};

/* watches fd (taken) and the directories below; tells what is in them */
static int tree_add(struct watch *w, int fd, const char *rel, int depth,
                    const struct found *found)
{
    int e = dir_add(w, fd, rel);
    DIR *d = e || depth > WATCH_DEPTH ? NULL : fdopendir(fd);
    struct dirent *de;

    if (!d) {
        close(fd);
        return e;
    }
    while ((de = readdir(d))) {
        AUTO_FREE char *below = NULL;
        int sub;

        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
            continue;
        below = join(rel, de->d_name);
        if (found)
            found->fn(found->arg, below);
        if (de->d_type != DT_DIR && de->d_type != DT_UNKNOWN)
            continue;
        sub = openat(fd, de->d_name,
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
            tree_add(w, sub, below, depth + 1, found);
    }
    closedir(d);
    return 0;
}

int watch_open(const struct boxfs *f, const char *abs,
               const struct watch_spec *spec, struct watch **out,
               struct err *e)
{
    struct watch *w;
    int root = boxfs_dir(f, abs), fd, x = 0;

    if (root < 0)
        return err_set(e, -root,
                       root == -ENOENT ? "path %s not found"
                                       : "error watching path %s",
                       abs);
    if (!spec->network && boxfs_network_file(root)) {
        close(root);
        return err_set(e, ENOTSUP,
                       "cannot watch path on network filesystem: %s", abs);
    }
    w = xcalloc(1, sizeof(*w));
    w->root = root;
    w->box = xstrdup(box_id(f->b));
    w->shown = xstrdup(abs);
    w->as_root = f->as_root;
    w->spec = *spec;
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    fd = w->fd < 0 ? -1 : fcntl(root, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        x = -errno;
    else if (spec->recursive)
        x = tree_add(w, fd, "", 0, NULL);
    else {
        x = dir_add(w, fd, "");
        close(fd);
    }
    if (x) {
        watch_close(w);
        return err_set(e, -x, "error watching path %s: %s", abs, strerror(-x));
    }
    *out = w;
    return 0;
}

void watch_close(struct watch *w)
{
    if (!w)
        return;
    close_cleanup(&w->fd);
    close_cleanup(&w->root);
    while (w->n)
        dir_drop(w, w->n - 1);
    free(w->dirs);
    free(w->box);
    free(w->shown);
    free(w);
}

int watch_fd(const struct watch *w)
{
    return w->fd;
}

/* ---- events ---- */

struct reading {
    struct watch *w;
    const struct boxfs *f;
    void (*fn)(void *arg, json_t *event);
    void *arg;
};

static void emit(struct reading *r, const char *rel, const char *type,
                 bool entry)
{
    json_t *j = json_pack("{s:o, s:s}", "name", json_text(rel), "type", type);
    AUTO_FREE char *shown = join(r->w->shown, rel);
    json_t *info = NULL;

    if (entry && r->w->spec.entries && boxfs_stat(r->f, shown, &info) == 0)
        json_object_set_new(j, "entry", info);
    r->fn(r->arg, j);
}

static void emit_found(void *arg, const char *rel)
{
    emit(arg, rel, "EVENT_TYPE_CREATE", true);
}

/* a directory has appeared: what is in it already is told as created */
static void new_dir(struct reading *r, const char *rel)
{
    struct found found = {emit_found, r};
    AUTO_FREE char *abs = join(r->w->shown, rel);
    int fd = boxfs_open(r->f, abs, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

    if (fd >= 0)
        tree_add(r->w, fd, rel, 0, &found);
}

/* the end of one of our uploads; true if that is what it was */
static bool upload_event(struct reading *r, const struct inotify_event *ev,
                         const char *rel)
{
    struct watch *w = r->w;
    bool is_new;

    if (is_upload(ev->name, &is_new)) {
        if (ev->mask & IN_MOVED_FROM) {
            w->cookie = ev->cookie;
            w->cookie_new = is_new;
        }
        return true;
    }
    if (!(ev->mask & IN_MOVED_TO) || !ev->cookie || ev->cookie != w->cookie)
        return false;
    w->cookie = 0;
    if (w->cookie_new) {
        emit(r, rel, "EVENT_TYPE_CREATE", true);
        emit(r, rel, "EVENT_TYPE_CHMOD", true);
    }
    emit(r, rel, "EVENT_TYPE_WRITE", true);
    return true;
}

static void one_event(struct reading *r, const struct inotify_event *ev)
{
    struct watch *w = r->w;
    struct dir *d = dir_of(w, ev->wd);
    AUTO_FREE char *rel = NULL;
    bool is_dir = ev->mask & IN_ISDIR;

    if (d && ev->mask & IN_IGNORED)
        dir_drop(w, (size_t)(d - w->dirs));
    if (!d || !ev->len)
        return;
    rel = join(d->rel, ev->name);
    if (!is_dir && upload_event(r, ev, rel))
        return;
    if (ev->mask & (IN_CREATE | IN_MOVED_TO)) {
        emit(r, rel, "EVENT_TYPE_CREATE", true);
        if (is_dir && w->spec.recursive)
            new_dir(r, rel);
    }
    if (ev->mask & IN_MODIFY)
        emit(r, rel, "EVENT_TYPE_WRITE", true);
    if (ev->mask & IN_ATTRIB)
        emit(r, rel, "EVENT_TYPE_CHMOD", true);
    if (ev->mask & IN_MOVED_FROM) {
        emit(r, rel, "EVENT_TYPE_RENAME", false);
        if (is_dir)
            tree_drop(w, rel);
    }
    if (ev->mask & IN_DELETE)
        emit(r, rel, "EVENT_TYPE_REMOVE", false);
}

int watch_read(struct watch *w, void (*fn)(void *arg, json_t *event),
               void *arg)
{
    char buf[16384] __attribute__((aligned(8)));
    struct box *b = box_get(w->box);
    struct boxfs f;
    struct reading r = {w, &f, fn, arg};
    ssize_t n;

    if (!b || !box_alive(b)) {
        if (b)
            box_put(b);
        return -ESHUTDOWN;
    }
    n = read(w->fd, buf, sizeof(buf));
    boxfs_enter(&f, b, w->as_root);
    for (char *p = buf; n > 0 && p < buf + n;) {
        const struct inotify_event *ev = (const void *)p;

        one_event(&r, ev);
        p += sizeof(*ev) + ev->len;
    }
    boxfs_leave(&f);
    box_put(b);
    return 0;
}
