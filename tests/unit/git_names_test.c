/* names of branches and repositories */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "git/git.h"

static void branches(void **state)
{
    static const char *const good[] = {"main", "head",        "courier/fix-1",
                                       "a.b",  "gr\xc3\xbcn", "x#1"};
    static const char *const bad[] = {"",
                                      "-x",
                                      "--upload-pack=x",
                                      "refs/heads/x",
                                      "a..b",
                                      ".x",
                                      "a/.b",
                                      "a b",
                                      "a\nb",
                                      "a\tb",
                                      "a\x1b",
                                      "a~1",
                                      "a^",
                                      "a:b",
                                      "a?",
                                      "a*",
                                      "a[",
                                      "x.lock",
                                      "x/",
                                      "/x",
                                      "a//b",
                                      "@",
                                      "HEAD",
                                      "a@{1}",
                                      "a\\b",
                                      "\xff",
                                      "a\xe2\x80\xaeg"};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(git_branch_check(good[i], &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (git_branch_check(bad[i], &e) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
}

static void repositories(void **state)
{
    static const char *const good[] = {"https://github.com/o/r",
                                       "http://127.0.0.1:8080/r.git",
                                       "git@github.com:o/r.git",
                                       "ssh://git@host:22/o/r",
                                       "/srv/r",
                                       "file:///srv/r",
                                       "/srv/with blank"};
    static const char *const bad[] = {"",
                                      "r",
                                      "./r",
                                      "../r",
                                      "ext::sh -c id",
                                      "-u",
                                      "git@-oProxy:x",
                                      "https://user:pw@host/r",
                                      "https://token@host/r",
                                      "https://host",
                                      "https://host/",
                                      "ftp://host/r",
                                      "git://host/r",
                                      "host::r",
                                      "https://ho st/r",
                                      "file://relative",
                                      "/srv/\x01",
                                      "ssh://-oProxyCommand=id/r",
                                      "-oX@host:r"};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (git_repo_check(good[i], &e))
            fail_msg("%s: %s", good[i], e.text);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (git_repo_check(bad[i], &e) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
    git_repo_check("https://user:hunter2@host/r", &e);
    assert_null(strstr(e.text, "hunter2"));
    assert_string_equal(git_path("file:///srv/r"), "/srv/r");
    assert_string_equal(git_path("file://localhost/srv/r"), "/srv/r");
    assert_string_equal(git_path("/srv/r"), "/srv/r");
}

static void parts(const char *repo, const char *want)
{
    char *h, *o, *n;
    AUTO_FREE char *got = NULL;

    if (git_forge_parts(repo, &h, &o, &n)) {
        assert_null(want);
        return;
    }
    got = xasprintf("%s %s %s", h, o, n);
    free(h);
    free(o);
    free(n);
    assert_non_null(want);
    assert_string_equal(got, want);
}

static void forges(void **state)
{
    (void)state;
    parts("https://github.com/o/r", "github.com o r");
    parts("https://github.com/o/r.git", "github.com o r");
    parts("https://github.com/o/r/", "github.com o r");
    parts("git@github.com:o/r.git", "github.com o r");
    parts("ssh://git@github.com:22/o/r.git", "github.com o r");
    parts("http://127.0.0.1:80/o/my.repo-1", "127.0.0.1:80 o my.repo-1");
    parts("https://github.com/o", NULL);
    parts("https://github.com/o/r/pulls", NULL);
    parts("https://github.com/../r", NULL);
    parts("https://github.com/o/r?x", NULL);
    parts("/srv/o/r", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches),
        cmocka_unit_test(repositories),
        cmocka_unit_test(forges),
    };
    int r;

    git_init();
    r = cmocka_run_group_tests(tests, NULL, NULL);
    git_exit();
    return r;
}
