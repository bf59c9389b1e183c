/* user: who the mounting user is to git. The one place where settings of the
 * machine are read: git_init keeps them from all other calls. */
#include "git/lib.h"

#include <unistd.h>

static void add(git_config *cfg, char *path, git_config_level_t level)
{
    if (path && !access(path, R_OK) &&
        git_config_add_file_ondisk(cfg, path, level, NULL, 0))
        git_error_clear();
    free(path);
}

static char *value(git_config *cfg, const char *key)
{
    const char *v;

    if (!git_config_get_string(&v, cfg, key) && *v)
        return xstrdup(v);
    git_error_clear();
    return NULL;
}

void git_user(char **name, char **email)
{
    const char *home = getenv("HOME"), *xdg = getenv("XDG_CONFIG_HOME");
    git_config *cfg = NULL, *snap = NULL;

    *name = *email = NULL;
    if (git_config_new(&cfg))
        return;
    add(cfg, xstrdup("/etc/gitconfig"), GIT_CONFIG_LEVEL_SYSTEM);
    if (xdg && *xdg)
        add(cfg, xasprintf("%s/git/config", xdg), GIT_CONFIG_LEVEL_XDG);
    else if (home)
        add(cfg, xasprintf("%s/.config/git/config", home),
            GIT_CONFIG_LEVEL_XDG);
    if (home)
        add(cfg, xasprintf("%s/.gitconfig", home), GIT_CONFIG_LEVEL_GLOBAL);
    if (!git_config_snapshot(&snap, cfg)) {
        *name = value(snap, "user.name");
        *email = value(snap, "user.email");
    }
    git_error_clear();
    git_config_free(snap);
    git_config_free(cfg);
}
