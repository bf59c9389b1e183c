#include "git/lib.h"
#include "base/text.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

void git_init(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    git_libgit2_init();
    /* nobody's settings: what a repository says must be all that counts */
    for (int level = GIT_CONFIG_LEVEL_PROGRAMDATA;
         level <= GIT_CONFIG_LEVEL_GLOBAL; level++)
        git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, level, "");
    git_libgit2_opts(GIT_OPT_SET_TEMPLATE_PATH, "");
    /* nothing of a repository is executed, so whose it is does not matter */
    git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
    git_libgit2_opts(GIT_OPT_SET_PACK_MAX_OBJECTS, (size_t)PACK_OBJECTS_MAX);
    git_libgit2_opts(GIT_OPT_ENABLE_STRICT_HASH_VERIFICATION, 1);
    git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
    git_libgit2_opts(GIT_OPT_SET_USER_AGENT, "courier/" COURIER_VERSION);
}

void git_exit(void)
{
    git_libgit2_shutdown();
    curl_global_cleanup();
}

static int code_of(int rc)
{
    switch (rc) {
    case GIT_ENOTFOUND:
        return ENOENT;
    case GIT_EEXISTS:
        return EEXIST;
    case GIT_EINVALIDSPEC:
    case GIT_EINVALID:
        return EINVAL;
    case GIT_ELOCKED:
    case GIT_EMODIFIED:
        return EBUSY;
    case GIT_EAUTH:
    case GIT_EUSER:
    case GIT_ECERTIFICATE:
        return EACCES;
    default:
        return EIO;
    }
}

int lib_err(struct err *e, int rc, const char *fmt, ...)
{
    const git_error *last = git_error_last();
    AUTO_BUF struct buf words = {0}, said = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&words, fmt, ap);
    va_end(ap);
    if (last && last->message)
        text_printable(&said, last->message, strnlen(last->message, 300), 0);
    err_set(e, code_of(rc), "%s%s%s", buf_str(&words), said.n ? ": " : "",
            buf_str(&said));
    git_error_clear();
    return -code_of(rc);
}

int lib_open(const char *path, git_repository **out, struct err *e)
{
    int rc = git_repository_open_ext(out, path, GIT_REPOSITORY_OPEN_NO_SEARCH,
                                     NULL);

    if (rc == GIT_ENOTFOUND)
        return err_set(e, ENOENT, "%s is not a git repository", path);
    if (rc)
        return lib_err(e, rc, "%s can't be opened", path);
    return 0;
}

/* the line of a small file, with what is before it; owned, or NULL */
static char *one_line(const char *path, const char *before)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char text[4096];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    size_t skip = strlen(before);

    if (n <= 0)
        return NULL;
    text[n] = 0;
    text[strcspn(text, "\n")] = 0;
    return strncmp(text, before, skip) ? NULL : xstrdup(text + skip);
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* PATH/.git says where it is kept, and that says whose it is: a directory
 * that merely names somebody else's repository isn't one of its work trees */
char *git_common_dir(const char *repo)
{
    AUTO_FREE char *link = xasprintf("%s/.git", git_path(repo));
    AUTO_FREE char *kept = one_line(link, "gitdir: ");
    AUTO_FREE char *back = NULL, *own = NULL, *up = NULL, *common = NULL;
    char *real;

    if (!kept || *kept != '/')
        return NULL;
    back = xasprintf("%s/gitdir", kept);
    own = one_line(back, "");
    up = xasprintf("%s/commondir", kept);
    common = one_line(up, "");
    if (!own || !same_file(own, link) || !common)
        return NULL;
    if (*common != '/') {
        AUTO_FREE char *rel = common;

        common = xasprintf("%s/%s", kept, rel);
    }
    real = realpath(common, NULL);
    return real;
}

const char *git_path_lacks(const char *repo)
{
    static const char *const at[] = {"objects", ".git/objects"};
    AUTO_FREE char *link = xasprintf("%s/.git", git_path(repo));
    AUTO_FREE char *common = git_common_dir(repo);
    struct stat st;

    if (!common && !stat(link, &st) && S_ISREG(st.st_mode))
        return "its .git is kept where the sandbox sees nothing";
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        AUTO_FREE char *file =
            xasprintf("%s/%s/info/alternates", git_path(repo), at[i]);

        if (!stat(file, &st) && st.st_size > 0)
            return "it borrows objects from where the sandbox sees nothing "
                   "(objects/info/alternates): local_bind can show them, git "
                   "repack -a -d makes it whole";
    }
    return NULL;
}

void lib_owner_enter(const char *path, struct lib_owner *o)
{
    struct stat st;

    o->changed = o->masked = false;
    if (stat(path, &st))
        return;
    /* what we make there is open to whom the repository is; the umask is the
     * process's unless a thread asks for one of its own */
    if (!unshare(CLONE_FS)) {
        o->mask = umask(~st.st_mode & 077);
        o->masked = true;
    }
    if (geteuid() || !st.st_uid)
        return;
    o->gid = (gid_t)setfsgid(st.st_gid);
    o->uid = (uid_t)setfsuid(st.st_uid);
    o->changed = true;
}

void lib_owner_leave(struct lib_owner *o)
{
    if (o->masked)
        umask(o->mask);
    o->masked = false;
    if (!o->changed)
        return;
    setfsuid(o->uid);
    setfsgid(o->gid);
    o->changed = false;
}

int lib_branch_oid(git_repository *r, const char *branch, git_oid *out,
                   struct err *e)
{
    AUTO_FREE char *name = branch ? xasprintf("refs/heads/%s", branch) : NULL;
    int rc;

    if (branch) {
        rc = git_reference_name_to_id(out, r, name);
    } else {
        rc = git_reference_name_to_id(out, r, LIB_REMOTE_HEAD);
        if (rc)
            rc = git_reference_name_to_id(out, r, "HEAD");
    }
    if (rc == GIT_ENOTFOUND || rc == GIT_EUNBORNBRANCH) {
        git_error_clear();
        return err_set(e, ENOENT, "there is no branch %s",
                       branch ? branch : "that HEAD points to");
    }
    return rc ? lib_err(e, rc, "branch %s", branch ? branch : "HEAD") : 0;
}
