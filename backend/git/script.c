/*
 * script: the shell's side. The scripts are the .bash files beside this, put
 * into the program as they are; what varies goes before them as quoted
 * assignments, so that no value is ever read as code.
 */
#include "git/git.h"
#include "base/text.h"

/* the path is seen from the top of the tree, where the compiler runs */
#define EMBED(name, file)                                                     \
    __asm__(".section .rodata\n" #name ":\n"                                  \
            ".incbin \"backend/git/" file "\"\n.byte 0\n.previous\n");        \
    extern const char name[] __asm__(#name)

EMBED(script_common, "common.bash");
EMBED(script_clone, "clone.bash");
EMBED(script_save, "save.bash");
EMBED(script_export, "export.bash");

static void assign(struct buf *b, const char *name, const char *value)
{
    buf_addf(b, "%s=", name);
    text_shell_quote(b, value ? value : "");
    buf_addc(b, '\n');
}

static char *finish(struct buf *b, const char *script)
{
    buf_adds(b, script_common);
    buf_adds(b, script);
    return buf_take(b);
}

/* the https form of a repository that we have a key for, else as it is;
 * *site is what the credential helper is asked about */
static char *address(const struct git_setup *s, char **site)
{
    char *host, *owner, *name, *url;
    const char *p = strstr(s->repo, "://");

    *site = NULL;
    if (s->credentials && p && !strncasecmp(s->repo, "http", 4)) {
        p += 3;
        *site = xmemdup0(s->repo, (size_t)(p + strcspn(p, "/") - s->repo));
        return xstrdup(s->repo);
    }
    if (!s->credentials || git_forge_parts(s->repo, &host, &owner, &name))
        return xstrdup(git_is_path(s->repo) ? git_path(s->repo) : s->repo);
    *site = xasprintf("https://%s", host);
    url = xasprintf("https://%s/%s/%s.git", host, owner, name);
    free(host);
    free(owner);
    free(name);
    return url;
}

char *git_script_clone(const struct git_setup *s)
{
    AUTO_FREE char *site = NULL, *url = address(s, &site);
    bool path = git_is_path(s->repo);
    struct buf b = {0};

    assign(&b, "repo", url);
    assign(&b, "base", s->base);
    assign(&b, "branch", s->branch);
    assign(&b, "name", s->user_name);
    assign(&b, "email", s->user_email);
    assign(&b, "dir", s->dir);
    assign(&b, "site", site);
    assign(&b, "bound", path ? "1" : "");
    assign(&b, "shallow", s->shallow && !path ? "1" : "");
    return finish(&b, script_clone);
}

char *git_script_save(const char *home, const char *branch, const char *meant,
                      const char *message, bool push, bool fresh)
{
    struct buf b = {0};

    assign(&b, "home", home);
    assign(&b, "branch", branch ? branch : "courier/work");
    assign(&b, "meant", meant);
    assign(&b, "message", message);
    assign(&b, "push", push ? "1" : "");
    assign(&b, "fresh", push && fresh ? "1" : "");
    return finish(&b, script_save);
}

char *git_script_export(const char *dir, const char *branch, const char *meant,
                        const char *out, int64_t max)
{
    struct buf b = {0};

    assign(&b, "dir", dir);
    assign(&b, "branch", branch ? branch : "courier/work");
    assign(&b, "meant", meant);
    assign(&b, "out", out);
    buf_addf(&b, "max=%lld\n", (long long)max);
    return finish(&b, script_export);
}

char *git_script_credentials(const char *token_file)
{
    struct buf b = {0};

    buf_adds(&b, "#!/bin/sh\n# asked by git for the user and the token\n"
                 "[ \"$1\" = get ] || exit 0\n");
    assign(&b, "file", token_file);
    buf_adds(&b,
             "[ -r \"$file\" ] || exit 0\n"
             "IFS= read -r token <\"$file\" || [ -n \"$token\" ] || exit 0\n"
             "printf 'username=x-access-token\\npassword=%s\\n' "
             "\"$token\"\n");
    return buf_take(&b);
}
