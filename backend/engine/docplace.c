#include "engine/docs.h"

#include <ctype.h>

const struct doc_place doc_places[] = {
    {OBJ_ROOT, "config", DOC_CONFIG, true},
    {OBJ_ROOT, "rates", DOC_RATES, true},
    {OBJ_ROOT, "keys", DOC_DIR, true},
    {OBJ_ROOT, "keys/*", DOC_KEY, false},
    {OBJ_ROOT, "tools", DOC_DIR, true},
    {OBJ_ROOT, "tools/*", DOC_TOOL, false},
    {OBJ_PROJECT, "config", DOC_CONFIG, true},
    {OBJ_PROJECT, "env", DOC_ENV, true},
    {OBJ_PROJECT, "system-prompt.md", DOC_TEXT, true},
    {OBJ_PROJECT, "CLAUDE.md", DOC_TEXT, true},
    {OBJ_PROJECT, "keys", DOC_DIR, true},
    {OBJ_PROJECT, "keys/*", DOC_KEY, false},
    {OBJ_PROJECT, "secrets", DOC_DIR, true},
    {OBJ_PROJECT, "secrets/*", DOC_SECRET, false},
    {OBJ_PROJECT, "personas", DOC_DIR, true},
    {OBJ_PROJECT, "personas/*", DOC_PERSONA, false},
    {OBJ_PROJECT, "workflows", DOC_DIR, true},
    {OBJ_PROJECT, "workflows/*", DOC_WORKFLOW, false},
    {OBJ_PROJECT, "commands", DOC_DIR, true},
    {OBJ_PROJECT, "commands/*", DOC_COMMAND, false},
    {OBJ_PROJECT, "skills", DOC_DIR, true},
    {OBJ_PROJECT, "skills/*", DOC_SKILL_TOP, false},
    {OBJ_PROJECT, "skills/*/**", DOC_SKILL, false},
    {OBJ_PROJECT, "home", DOC_DIR, true},
    {OBJ_PROJECT, "home/**", DOC_HOME, false},
    {OBJ_PROJECT, "learnings", DOC_DIR, true},
    {OBJ_PROJECT, "learnings/pending", DOC_DIR, true},
    {OBJ_PROJECT, "learnings/pending/*", DOC_LEARNING, false},
    {OBJ_PROJECT, "learnings/approved", DOC_DIR, true},
    {OBJ_PROJECT, "learnings/approved/*", DOC_LEARNING, false},
    {OBJ_PROJECT, "learnings/rejected", DOC_DIR, true},
    {OBJ_PROJECT, "learnings/rejected/*", DOC_LEARNING, false},
    {OBJ_PROJECT, "learnings/versions", DOC_DIR, true},
    {OBJ_PROJECT, "learnings/versions/*", DOC_LEARNING_VERSION, false},
    {OBJ_SANDBOX, "config", DOC_CONFIG, true},
    {OBJ_SANDBOX, "prompt", DOC_PROMPT, true},
    {OBJ_SANDBOX, "salvage", DOC_DIR, true},
    {OBJ_SANDBOX, "salvage/*", DOC_SALVAGE, false},
    {OBJ_RUN, "config", DOC_CONFIG, true},
    {OBJ_RUN, "prompt", DOC_PROMPT, true},
    {0, NULL, DOC_NONE, false},
};

/* does path fit the pattern, name by name? */
static bool fits(const char *pattern, const char *path)
{
    for (;;) {
        size_t m = strcspn(pattern, "/"), n = strcspn(path, "/");

        if (m == 2 && !strncmp(pattern, "**", 2))
            return n > 0;
        if (m == 1 && *pattern == '*' ? !n
                                      : m != n || strncmp(pattern, path, n))
            return false;
        pattern += m;
        path += n;
        if (!*pattern || !*path)
            return !*pattern && !*path;
        pattern++;
        path++;
    }
}

/* no empty names, no . or .. */
static bool sound(const char *path)
{
    if (strlen(path) > DOC_PATH_MAX)
        return false;
    while (*path) {
        size_t n = strcspn(path, "/");

        if (!n || (n == 1 && *path == '.') ||
            (n == 2 && !strncmp(path, "..", 2)))
            return false;
        path += n;
        if (*path && !*++path)
            return false;
    }
    return true;
}

/* TOP/.versions or something below it, in a place that keeps versions */
static bool versions(enum obj_kind kind, const char *path)
{
    static const char *const tops[] = {"personas", "workflows", "skills",
                                       "commands", "home",      NULL};
    size_t n = strcspn(path, "/");
    AUTO_FREE char *top = xmemdup0(path, n);

    if (strncmp(path + n, "/.versions", 10) ||
        (path[n + 10] && path[n + 10] != '/'))
        return false;
    return kind == OBJ_ROOT ? !strcmp(top, "tools")
                            : kind == OBJ_PROJECT && text_is_word(top, tops);
}

enum doc_class doc_place(enum obj_kind kind, const char *path, bool *fixed)
{
    if (fixed)
        *fixed = false;
    if (!sound(path))
        return DOC_NONE;
    if (!*path)
        return DOC_DIR;
    if (versions(kind, path))
        return DOC_VERSIONS;
    for (const struct doc_place *p = doc_places; p->path; p++) {
        if (p->kind != kind || !fits(p->path, path))
            continue;
        if (fixed)
            *fixed = p->fixed;
        return p->cl;
    }
    return DOC_NONE;
}

bool doc_is_tree(enum doc_class cl)
{
    return cl == DOC_SKILL || cl == DOC_HOME || cl == DOC_SKILL_TOP;
}

bool doc_is_versioned(enum doc_class cl)
{
    return cl == DOC_PERSONA || cl == DOC_WORKFLOW || cl == DOC_SKILL ||
           cl == DOC_COMMAND || cl == DOC_HOME || cl == DOC_TOOL;
}

bool doc_is_sealed(enum doc_class cl)
{
    return cl == DOC_KEY || cl == DOC_SECRET;
}

bool doc_is_removable(enum doc_class cl)
{
    return doc_is_versioned(cl) || doc_is_sealed(cl) || cl == DOC_SKILL_TOP ||
           cl == DOC_LEARNING;
}

char *doc_parent(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? xmemdup0(path, (size_t)(slash - path)) : xstrdup("");
}

const char *doc_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

char *doc_unversion(const char *path)
{
    const char *at = strstr(path, "/.versions");

    return xasprintf("%.*s%s", (int)(at - path), path, at + 10);
}

/* ---- names ---- */

static int md_name(const char *name, struct err *e)
{
    size_t n = strlen(name);
    AUTO_FREE char *stem = NULL;

    if (n < 4 || strcmp(name + n - 3, ".md"))
        return err_set(e, EINVAL, "a name here ends in .md");
    stem = xmemdup0(name, n - 3);
    return text_name_check(stem, e);
}

static int var_name(const char *name, struct err *e)
{
    size_t n = strlen(name);

    if (n > 255)
        return err_set(e, ENAMETOOLONG, "the name is too long");
    for (size_t i = 0; i < n; i++) {
        unsigned char ch = (unsigned char)name[i];

        if (ch == '_' || (ch < 128 && isalpha(ch)) ||
            (i && ch < 128 && isdigit(ch)))
            continue;
        return err_set(e, EINVAL,
                       "a secret is named like a variable: letters, digits "
                       "and _, no digit first");
    }
    return 0;
}

int doc_name_check(enum obj_kind kind, const char *path, struct err *e)
{
    const char *name = doc_base(path);
    enum doc_class cl = doc_place(kind, path, NULL);

    if (strlen(path) > DOC_PATH_MAX)
        return err_set(e, ENAMETOOLONG, "the path is too long");
    switch (cl) {
    case DOC_NONE:
        return err_set(e, EPERM, "no document belongs there");
    case DOC_VERSIONS:
        return err_set(e, EPERM, "earlier versions are read-only");
    case DOC_TOOL:
    case DOC_PERSONA:
    case DOC_WORKFLOW:
    case DOC_SKILL_TOP:
        return text_name_check(name, e);
    case DOC_COMMAND:
    case DOC_LEARNING:
    case DOC_LEARNING_VERSION:
        return md_name(name, e);
    case DOC_SKILL:
    case DOC_HOME:
        return text_filename_check(name, e);
    case DOC_SECRET:
        return var_name(name, e);
    case DOC_KEY:
        for (const char *const *k =
                 (const char *const[]){"e2b", "anthropic", "anthropic_token",
                                       "openai", "openrouter", "github", NULL};
             *k; k++) {
            if (!strcmp(*k, name))
                return 0;
        }
        return err_set(e, EINVAL,
                       "keys are: e2b anthropic anthropic_token openai "
                       "openrouter github");
    default:
        return 0;
    }
}
