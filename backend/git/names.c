/* what repositories and branches may be called; pure */
#include "git/lib.h"
#include "base/text.h"

#include <ctype.h>

static bool shown_as_is(const char *s)
{
    AUTO_BUF struct buf b = {0};

    text_printable(&b, s, strlen(s), 0);
    return !strcmp(buf_str(&b), s);
}

int git_branch_check(const char *name, struct err *e)
{
    AUTO_FREE char *ref = xasprintf("refs/heads/%s", name);
    int valid = 0;

    if (!*name)
        return err_set(e, EINVAL, "a branch needs a name");
    if (strlen(name) > 200)
        return err_set(e, EINVAL, "a branch name is at most 200 bytes long");
    if (!shown_as_is(name))
        return err_set(e, EINVAL,
                       "the branch name has characters that can't"
                       " be shown");
    if (*name == '-' || !strncmp(name, "refs/", 5) || !strcmp(name, "@") ||
        !strcmp(name, "HEAD"))
        return err_set(e, EINVAL, "%.40s is no name for a branch", name);
    if (git_reference_name_is_valid(&valid, ref) || !valid) {
        git_error_clear();
        return err_set(e, EINVAL, "git does not allow a branch named %.40s",
                       name);
    }
    return 0;
}

static const char *after(const char *s, const char *prefix)
{
    size_t n = strlen(prefix);

    return strncasecmp(s, prefix, n) ? NULL : s + n;
}

bool git_is_path(const char *repo)
{
    return *repo == '/' || after(repo, "file://");
}

const char *git_path(const char *repo)
{
    const char *p = after(repo, "file://localhost/");

    if (p)
        return p - 1;
    p = after(repo, "file://");
    return p ? p : repo;
}

/* scheme://authority/path, or user@host:path */
struct url {
    const char *host, *path;
    size_t host_n; /* with the port */
    bool http, ssh, scp, secret;
};

static bool split_url(const char *repo, struct url *u)
{
    const char *p = after(repo, "https://"), *end, *at;

    memset(u, 0, sizeof(*u));
    if (!p)
        p = after(repo, "http://");
    u->http = p;
    if (!p) {
        p = after(repo, "ssh://");
        u->ssh = p;
    }
    if (p) {
        end = strchr(p, '/');
        u->path = end ? end + 1 : NULL;
    } else {
        p = repo;
        end = strchr(p, ':');
        if (!end || strstr(p, "://") || end[1] == ':' ||
            memchr(p, '/', (size_t)(end - p)))
            return false;
        u->ssh = u->scp = true;
        u->path = end + 1;
    }
    if (!end)
        end = p + strlen(p);
    at = memrchr(p, '@', (size_t)(end - p));
    if (at) {
        u->secret = u->http || memchr(p, ':', (size_t)(at - p));
        p = at + 1;
    }
    u->host = p;
    u->host_n = (size_t)(end - p);
    return u->host_n && *p != '-' && *(at ? repo : p) != '-';
}

static int path_check(const char *repo, struct err *e)
{
    const char *p = git_path(repo);

    if (*p != '/')
        return err_set(e, EINVAL,
                       "the path of a repository must begin "
                       "with /");
    if (strlen(p) > 4000)
        return err_set(e, EINVAL, "the path of the repository is too long");
    return 0;
}

int git_repo_check(const char *repo, struct err *e)
{
    struct url u;

    if (!shown_as_is(repo) || strlen(repo) > 4096)
        return err_set(e, EINVAL,
                       "the repository has characters that can't "
                       "be shown, or is too long");
    if (git_is_path(repo))
        return path_check(repo, e);
    if (strpbrk(repo, " \t\\") || !split_url(repo, &u))
        return err_set(e, EINVAL,
                       "a repository is https://HOST/PATH, "
                       "ssh://HOST/PATH, USER@HOST:PATH or an absolute path");
    if (u.secret)
        return err_set(e, EINVAL,
                       "the address of the repository holds a "
                       "name or password: write the token to keys/github, "
                       "and the address without it");
    if (!u.path || !*u.path)
        return err_set(e, EINVAL,
                       "the address of the repository lacks the "
                       "path");
    return 0;
}

static bool name_ok(const char *s, size_t n)
{
    if (!n || n > 100 || *s == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
            return false;
    return true;
}

int git_forge_parts(const char *repo, char **host, char **owner, char **name)
{
    struct url u;
    const char *slash, *p;
    size_t n, host_n;

    *host = *owner = *name = NULL;
    if (git_is_path(repo) || !split_url(repo, &u) || !u.path)
        return -EINVAL;
    for (p = u.path; *p == '/'; p++)
        ;
    n = strlen(p);
    while (n && p[n - 1] == '/')
        n--;
    if (n > 4 && !strncmp(p + n - 4, ".git", 4))
        n -= 4;
    slash = memchr(p, '/', n);
    if (!slash || !name_ok(p, (size_t)(slash - p)) ||
        !name_ok(slash + 1, n - (size_t)(slash + 1 - p)))
        return -EINVAL;
    host_n = u.host_n;
    if (u.ssh && memchr(u.host, ':', host_n))
        host_n = (size_t)((char *)memchr(u.host, ':', host_n) - u.host);
    *host = xmemdup0(u.host, host_n);
    *owner = xmemdup0(p, (size_t)(slash - p));
    *name = xmemdup0(slash + 1, n - (size_t)(slash + 1 - p));
    return 0;
}
