#include "local/boxfs.h"
#include "local/connect.h"
#include "local/watcher.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * filesystem.Filesystem: one function and one row of the table at the end a
 * call. Within a call the thread has the rights of the box's user.
 */

enum { LIST_MAX = 200000, LIST_DEPTH = 100, REMOVE_DEPTH = 64 };

/* one call: its request, its user's files, its words for an error */
struct call {
    struct req *r;
    struct boxfs f;
    json_t *in;
    struct err e;
    char *path; /* the field "path", made absolute */
};

typedef int call_fn(struct call *c, json_t **out);

static int fail(struct call *c, int e, const char *what, const char *path)
{
    if (e == -ESHUTDOWN)
        return err_set(&c->e, ESHUTDOWN, "the sandbox is being killed");
    return err_set(&c->e, -e, "%s %s: %s", what, path, strerror(-e));
}

static int path_field(struct call *c, const char *name, char **out)
{
    return boxfs_path(&c->f, field_str(c->in, name), out, &c->e);
}

static int entry_answer(struct call *c, const char *abs, json_t **out)
{
    json_t *entry = NULL;
    int e = boxfs_stat(&c->f, abs, &entry);

    if (e == -ENOENT || e == -ENOTDIR)
        return err_set(&c->e, ENOENT, "file not found: %s", abs);
    if (e)
        return fail(c, e, "error getting file info", abs);
    *out = json_pack("{s:o}", "entry", entry);
    return 0;
}

static int call_stat(struct call *c, json_t **out)
{
    return entry_answer(c, c->path, out);
}

static int call_make_dir(struct call *c, json_t **out)
{
    bool made;
    int e = boxfs_mkdirs(&c->f, c->path, &made);

    if (e == -ENOTDIR || e == -EEXIST)
        return err_set(&c->e, EINVAL,
                       "path already exists but it is not a directory: %s",
                       c->path);
    if (e)
        return fail(c, e, "error creating directory", c->path);
    if (!made)
        return err_set(&c->e, EEXIST, "directory already exists: %s", c->path);
    return entry_answer(c, c->path, out);
}

static int call_move(struct call *c, json_t **out)
{
    AUTO_FREE char *from = NULL, *to = NULL;
    AUTO_CLOSE int from_dir = -1, to_dir = -1;
    char from_name[256], to_name[256];
    int e = path_field(c, "source", &from);

    if (!e)
        e = path_field(c, "destination", &to);
    if (e)
        return e;
    from_dir = boxfs_parent(&c->f, from, false, from_name);
    if (from_dir == -ENOENT || from_dir == -ENOTDIR ||
        (from_dir >= 0 &&
         faccessat(from_dir, from_name, F_OK, AT_SYMLINK_NOFOLLOW)))
        return err_set(&c->e, ENOENT, "source file not found: %s", from);
    if (from_dir < 0)
        return fail(c, from_dir, "error renaming", from);
    to_dir = boxfs_parent(&c->f, to, true, to_name);
    if (to_dir < 0)
        return fail(c, to_dir, "error creating the parents of", to);
    if (renameat(from_dir, from_name, to_dir, to_name))
        return fail(c, -errno, "error renaming", from);
    return entry_answer(c, to, out);
}

/* ---- ListDir ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_free(char **v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(v[i]);
    free(v);
}

/* the names in fd (taken), in order */
static int names_of(int fd, char ***out, size_t *n)
{
    DIR *d = fdopendir(fd);
    struct dirent *de;

    *out = NULL;
    *n = 0;
    if (!d) {
        int e = -errno;

        close(fd);
        return e;
    }
    while (*n < LIST_MAX && (de = readdir(d))) {
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
            continue;
        if ((*n & (*n + 1)) == 0)
            *out = xrealloc(*out, (2 * *n + 2) * sizeof(**out));
        (*out)[(*n)++] = xstrdup(de->d_name);
    }
    closedir(d);
    if (*n)
        qsort(*out, *n, sizeof(**out), by_name);
    return 0;
}

static int list(struct call *c, int fd, const char *shown, int64_t depth,
                json_t *out)
{
    char **names;
    size_t n;
    int e = names_of(fcntl(fd, F_DUPFD_CLOEXEC, 0), &names, &n);

    for (size_t i = 0; !e && i < n; i++) {
        AUTO_FREE char *below =
            xasprintf("%s%s%s", shown,
                      shown[strlen(shown) - 1] == '/' ? "" : "/", names[i]);
        AUTO_CLOSE int sub = -1;
        json_t *entry = NULL;

        if (json_array_size(out) >= LIST_MAX) {
            e = err_set(&c->e, E2BIG, "more than %d entries in %s", LIST_MAX,
                        c->path);
            break;
        }
        if (boxfs_entry(&c->f, fd, names[i], below, &entry))
            continue; /* gone meanwhile */
        json_array_append_new(out, entry);
        if (depth <= 1)
            continue;
        sub = openat(fd, names[i],
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
            e = list(c, sub, below, depth - 1, out);
    }
    names_free(names, n);
    return e;
}

static int call_list_dir(struct call *c, json_t **out)
{
    AUTO_CLOSE int fd = boxfs_dir(&c->f, c->path);
    json_t *entries = NULL;
    int64_t depth;
    int e;

    if (!field_int(c->in, "depth", &depth) || depth < 0)
        return err_set(&c->e, EINVAL, "depth should be at least one");
    if (fd == -ENOENT)
        return err_set(&c->e, ENOENT, "directory not found: %s", c->path);
    if (fd == -ENOTDIR)
        return err_set(&c->e, EINVAL, "path is not a directory: %s", c->path);
    if (fd == -ELOOP)
        return err_set(&c->e, ELOOP,
                       "cyclic symlink or chain >255 links at "
                       "%s",
                       c->path);
    if (fd < 0)
        return fail(c, fd, "error reading directory", c->path);
    entries = json_array();
    e = list(c, fd, c->path, depth > LIST_DEPTH ? LIST_DEPTH : depth, entries);
    *out = json_object();
    if (!e && json_array_size(entries))
        json_object_set(*out, "entries", entries);
    json_decref(entries);
    if (e && !c->e.code)
        e = fail(c, e, "error reading directory", c->path);
    return e;
}

/* ---- Remove ---- */

/* what lies deeper than REMOVE_DEPTH is brought up to top under a new name,
 * so that no more descriptors are open than that */
struct removal {
    int top;
    unsigned moved;
    int64_t unique;
};

static int remove_at(struct removal *x, int dir, const char *name, int depth);

static int remove_inside(struct removal *x, int fd, int depth)
{
    char **names;
    size_t n;
    int e;

    do {
        e = names_of(fcntl(fd, F_DUPFD_CLOEXEC, 0), &names, &n);
        for (size_t i = 0; !e && i < n; i++)
            e = remove_at(x, fd, names[i], depth + 1);
        names_free(names, n);
        lseek(fd, 0, SEEK_SET);
    } while (!e && n == LIST_MAX);
    return e;
}

static int remove_at(struct removal *x, int dir, const char *name, int depth)
{
    AUTO_CLOSE int fd = -1;
    int e;

    if (!unlinkat(dir, name, 0) || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (!unlinkat(dir, name, AT_REMOVEDIR))
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return errno == ENOENT ? 0 : -errno;
    if (depth > REMOVE_DEPTH) {
        char up[64];

        snprintf(up, sizeof(up), ".remove~%llx-%x",
                 (unsigned long long)x->unique, x->moved++);
        return renameat(dir, name, x->top, up) ? -errno : 0;
    }
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    e = remove_inside(x, fd, depth);
    if (!e && unlinkat(dir, name, AT_REMOVEDIR) && errno != ENOENT)
        e = -errno;
    return e;
}

static int call_remove(struct call *c, json_t **out)
{
    AUTO_CLOSE int dir = -1;
    struct removal x = {.unique = now_ns()};
    char name[256];
    int e;

    *out = json_object();
    dir = boxfs_parent(&c->f, c->path, false, name);
    if (dir == -ENOENT || dir == -ENOTDIR)
        return 0;
    if (dir < 0)
        return fail(c, dir, "error removing file or directory", c->path);
    x.top = dir;
    e = remove_at(&x, dir, name, 0);
    for (unsigned i = 0; !e && i < x.moved; i++) {
        char up[64];

        snprintf(up, sizeof(up), ".remove~%llx-%x",
                 (unsigned long long)x.unique, i);
        e = remove_at(&x, dir, up, 0);
    }
    return e ? fail(c, e, "error removing file or directory", c->path) : 0;
}

/* ---- watching ---- */

static void watch_spec_of(const json_t *in, struct watch_spec *s)
{
    s->recursive = field_bool(in, "recursive", false);
    s->entries = field_bool(in, "includeEntry", false);
    s->network = field_bool(in, "allowNetworkMounts", false);
}

static int open_watch(struct call *c, struct watch **out)
{
    struct watch_spec spec;
    int e;

    watch_spec_of(c->in, &spec);
    e = watch_open(&c->f, c->path, &spec, out, &c->e);
    if (e == -ENOTDIR)
        return err_set(&c->e, EINVAL, "path %s is not a directory", c->path);
    if (e == -ENOTSUP)
        c->e.code = EINVAL;
    return -c->e.code;
}

static int call_create_watcher(struct call *c, json_t **out)
{
    struct watch *w = NULL;
    char id[64];
    int e = open_watch(c, &w);

    if (!e)
        e = watcher_add(box_id(c->f.b), w, id, &c->e);
    if (!e)
        *out = json_pack("{s:s}", "watcherId", id);
    return e;
}

static int call_watcher_events(struct call *c, json_t **out)
{
    const char *id = field_str(c->in, "watcherId");
    json_t *events = watcher_events(box_id(c->f.b), id);

    if (!events)
        return err_set(&c->e, ENOENT, "watcher with id %s not found", id);
    *out = json_object();
    if (json_array_size(events))
        json_object_set(*out, "events", events);
    json_decref(events);
    return 0;
}

static int call_remove_watcher(struct call *c, json_t **out)
{
    const char *id = field_str(c->in, "watcherId");

    if (watcher_remove(box_id(c->f.b), id))
        return err_set(&c->e, ENOENT, "watcher with id %s not found", id);
    *out = json_object();
    return 0;
}

static void watch_dir(struct req *r, struct box *b)
{
    struct call c = {.r = r};
    struct stream s;
    struct watch *w = NULL;
    bool as_root = false;
    int e;

    c.in = stream_open(&s, r);
    if (!c.in)
        return;
    e = rpc_user(r, &as_root, &c.e);
    if (!e) {
        boxfs_enter(&c.f, b, as_root);
        e = path_field(&c, "path", &c.path);
        if (!e)
            e = open_watch(&c, &w);
        boxfs_leave(&c.f);
        if (e)
            stream_end(&s, rpc_code(e), "%s", c.e.text);
    } else {
        stream_end(&s, "unauthenticated", "%s", c.e.text);
    }
    json_decref(c.in);
    free(c.path);
    if (!e)
        watcher_stream(&s, box_id(b), w);
}

/* ---- the table ---- */

static const struct row {
    const char *name;
    call_fn *fn;
    bool path;
} calls[] = {
    {"Stat", call_stat, true},
    {"ListDir", call_list_dir, true},
    {"MakeDir", call_make_dir, true},
    {"Move", call_move, false},
    {"Remove", call_remove, true},
    {"CreateWatcher", call_create_watcher, true},
    {"GetWatcherEvents", call_watcher_events, false},
    {"RemoveWatcher", call_remove_watcher, false},
};

static void unary(struct req *r, struct box *b, const struct row *row)
{
    struct call c = {.r = r};
    json_t *out = NULL;
    bool as_root = false;
    int e;

    c.in = rpc_request(r);
    if (!c.in)
        return;
    if (rpc_user(r, &as_root, &c.e)) {
        rpc_fail(r, "unauthenticated", "%s", c.e.text);
        json_decref(c.in);
        return;
    }
    boxfs_enter(&c.f, b, as_root);
    e = row->path ? path_field(&c, "path", &c.path) : 0;
    if (!e)
        e = row->fn(&c, &out);
    boxfs_leave(&c.f);
    if (e) {
        rpc_fail(r, rpc_code(e), "%s", c.e.text);
        json_decref(out);
    } else {
        rpc_reply(r, out);
    }
    json_decref(c.in);
    free(c.path);
}

void fs_handle(struct req *r, struct box *b, const char *call)
{
    const struct row *row = NULL;
    bool watch = !strcmp(call, "WatchDir");

    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (!strcmp(calls[i].name, call))
            row = &calls[i];
    if (!row && !watch) {
        reply(r, 404, "text/plain", "404 page not found\n", 19);
    } else if (strcmp(r->method, "POST")) {
        reply_header(r, "Allow", "POST");
        reply(r, 405, "text/plain", "", 0);
    } else if (watch) {
        watch_dir(r, b);
    } else {
        unary(r, b, row);
    }
}
