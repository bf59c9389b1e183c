/*
 * git_script_util: a remote, a sandbox's home, and the scripts run in it; for
 * the tests of the scripts. Included once a program.
 */
#ifndef TESTS_GIT_SCRIPT_UTIL_H
#define TESTS_GIT_SCRIPT_UTIL_H

#include "tests/unit/git_util.h"

static char *run_script(char *text)
{
    char *out = run_shell("bash", text, true);

    free(text);
    return out;
}

static char *clone(const char *repo, const char *base, const char *branch)
{
    AUTO_FREE char *dir = at("home/project");
    struct git_setup s = {.repo = repo,
                          .base = base,
                          .branch = branch,
                          .user_name = "Ann",
                          .user_email = "ann@x.org",
                          .dir = dir};

    return run_script(git_script_clone(&s));
}

static inline char *save(bool push)
{
    AUTO_FREE char *home = at("home");

    return run_script(git_script_save(home, "courier/x", NULL,
                                      "it's from 'one'", push, false));
}

/* one line, with RESULT and WORDS that begin so */
static inline void expect(char *got, const char *result, const char *words)
{
    AUTO_FREE char *line = got;
    AUTO_FREE char *want = xasprintf("\t%s\t%s", result, words);

    if (!strstr(line, want) || strchr(line, '\n') != strrchr(line, '\n'))
        fail_msg("not \"%s\": %s", want, line);
}

static void check_has(char *got, const char *part)
{
    AUTO_FREE char *s = got;

    assert_non_null(s);
    if (!strstr(s, part))
        fail_msg("no \"%s\" in: %s", part, s);
}

static int repo_setup(void **state)
{
    int r = tmp_setup(state);

    SH("git init -q --bare r && git clone -q r seed 2>/dev/null && cd seed && "
       "echo one >a && git add . && git commit -qm first && "
       "git push -q origin main && git checkout -qb dev && echo d >d && "
       "git add d && git commit -qm dev && git push -q origin dev");
    *state = at("r");
    return r;
}

static int repo_teardown(void **state)
{
    free(*state);
    return tmp_teardown(state);
}

#endif
