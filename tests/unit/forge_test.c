/* forge: pull requests against a stand-in for GitHub */
#include "tests/unit/git_util.h"

#include "git/web.h"

static int in;
static pid_t pid;
static char *url;

static int setup(void **state)
{
    AUTO_FREE char *dir = NULL;
    int r = tmp_setup(state);

    dir = at("state");
    if (!r)
        url = serve(&in, &pid, "tests/git/github.py", "--state", dir,
                    "--token", "ghp_secret");
    return r;
}

static int teardown(void **state)
{
    if (url)
        serve_end(in, pid);
    free(url);
    url = NULL;
    return tmp_teardown(state);
}

static struct forge forge(void)
{
    return (struct forge){url, "ghp_secret", "o", "r"};
}

static struct forge_new new_pr(void)
{
    return (struct forge_new){.head = "courier/x",
                              .base = "main",
                              .title = "Fix it",
                              .body = "Because.\n"};
}

static void faults(const char *json)
{
    SH("cat >state/faults <<'E'\n%s\nE\n", json);
}

/* opens; 0 and the PR's number, or -errno with words */
static int open_pr(const struct forge_new *n, const char *words)
{
    struct forge f = forge();
    struct forge_pr p;
    struct err e = {0};
    int r = forge_open(&f, n, &p, &e);

    if (words && !strstr(e.text, words))
        fail_msg("not \"%s\": %s", words, e.text);
    if (strstr(e.text, "ghp_secret"))
        fail_msg("the key is in: %s", e.text);
    if (!r)
        r = p.number;
    forge_pr_clear(&p);
    return r;
}

static void count_pulls(const char *want)
{
    AUTO_FREE char *cmd = xasprintf("python3 -c \"import json; print(len("
                                    "json.load(open('%s/state/pulls.json'"
                                    "))))\"",
                                    tmp);

    check_sh(want, cmd);
}

#define NEEDS_SERVER()                                                        \
    do {                                                                      \
        if (!url)                                                             \
            skip();                                                           \
    } while (0)

static void opened(void **state)
{
    static const char *const labels[] = {"ai", "bug", NULL};
    struct forge f = forge();
    struct forge_new n = new_pr();
    struct forge_pr p;
    struct err e;

    (void)state;
    NEEDS_SERVER();
    assert_int_equal(forge_find(&f, "courier/x", &p, &e), -ENOENT);
    n.draft = true;
    n.labels = labels;
    assert_int_equal(forge_open(&f, &n, &p, &e), 0);
    assert_int_equal(p.number, 1);
    assert_string_equal(p.url, "https://github.com/o/r/pull/1");
    assert_string_equal(p.title, "Fix it");
    assert_string_equal(p.state, "open");
    assert_true(p.draft);
    forge_pr_clear(&p);
    check_sh("2", "grep -c '^ *\"\\(ai\\|bug\\)\"' state/pulls.json");
    /* again: adopted, ours, so updated */
    n.title = "Fix it\nwell \xff";
    assert_int_equal(forge_open(&f, &n, &p, &e), 0);
    assert_int_equal(p.number, 1);
    assert_string_equal(p.title, "Fix it\\nwell \\xff");
    forge_pr_clear(&p);
    count_pulls("1");
    assert_int_equal(forge_find(&f, "courier/x", &p, &e), 0);
    forge_pr_clear(&p);
    assert_int_equal(forge_find(&f, "courier", &p, &e), -ENOENT);
}

static void others_untouched(void **state)
{
    struct forge_new n = new_pr();

    (void)state;
    NEEDS_SERVER();
    SH("curl -sf -H 'Authorization: Bearer ghp_secret' -d '{\"title\": "
       "\"Mine\", \"body\": \"by hand\", \"head\": \"courier/x\", \"base\": "
       "\"main\"}' %s/repos/o/r/pulls >out",
       url);
    assert_int_equal(open_pr(&n, NULL), 1);
    check_sh("1", "grep -c '\"title\": \"Mine\"' state/pulls.json");
    check_sh("0", "grep -c PATCH state/calls || true");
}

/* whatever is lost on the way, there is one */
static void never_two(void **state)
{
    struct forge_new n = new_pr();

    (void)state;
    NEEDS_SERVER();
    faults("[{\"method\": \"POST\", \"status\": \"drop\"}]");
    assert_int_equal(open_pr(&n, NULL), 1);
    count_pulls("1");
    n.head = "b";
    faults("[{\"method\": \"POST\", \"status\": \"lost\"}]");
    assert_int_equal(open_pr(&n, NULL), 2);
    n.head = "c";
    faults("[{\"method\": \"POST\", \"status\": \"html\"}]");
    assert_int_equal(open_pr(&n, NULL), 3);
    n.head = "d";
    faults("[{\"method\": \"POST\", \"status\": \"drop\"}, "
           "{\"method\": \"GET\", \"status\": \"hide\", \"count\": 2}]");
    assert_int_equal(open_pr(&n, NULL), 4);
    count_pulls("4");
    check_sh("", "cat state/faults | tr -d '[] \\n'");
}

static void refusals(void **state)
{
    struct forge_new n = new_pr();
    struct forge f = forge();
    struct forge_pr p;
    struct err e;

    (void)state;
    NEEDS_SERVER();
    faults("[{\"method\": \"POST\", \"status\": 422, \"message\": \"Validation"
           " Failed\", \"errors\": [{\"resource\": \"PullRequest\", \"code\": "
           "\"custom\", \"message\": \"No commits between main and "
           "courier/x\\u001b[31m\"}]}]");
    assert_int_equal(open_pr(&n, "GitHub refused: Validation Failed: No "
                                 "commits between main and courier/x^[[31m"),
                     -EINVAL);
    faults("[{\"method\": \"POST\", \"status\": 422, \"message\": \"Validation"
           " Failed\", \"errors\": [{\"resource\": \"PullRequest\", \"field\":"
           " \"head\", \"code\": \"invalid\"}]}]");
    assert_int_equal(open_pr(&n, "Validation Failed: head invalid"), -EINVAL);
    faults("[{\"status\": 403, \"message\": \"API rate limit exceeded\", "
           "\"headers\": {\"X-RateLimit-Remaining\": \"0\", "
           "\"X-RateLimit-Reset\": \"1893456000\"}}]");
    assert_int_equal(open_pr(&n, "until 2030-01-01T00:00:00Z"), -EAGAIN);
    faults("[{\"status\": 429, \"message\": \"You have exceeded a secondary "
           "rate limit\", \"headers\": {\"Retry-After\": \"60\"}}]");
    assert_int_equal(open_pr(&n, "secondary rate limit"), -EAGAIN);
    faults("[{\"status\": 403, \"message\": \"Resource not accessible by "
           "personal access token\"}]");
    assert_int_equal(open_pr(&n, "does not allow it: Resource not"), -EACCES);
    f.token = "wrong";
    assert_int_equal(forge_open(&f, &n, &p, &e), -EACCES);
    assert_string_equal(e.text, "GitHub refused the key: Bad credentials");
    f = forge();
    f.name = "missing";
    assert_int_equal(forge_open(&f, &n, &p, &e), -ENOENT);
    f.api = "http://example.invalid";
    assert_int_equal(forge_open(&f, &n, &p, &e), -EACCES);
    assert_non_null(strstr(e.text, "https only"));
    /* labels that can't be set, a plan without drafts */
    n.draft = true;
    faults("[{\"method\": \"POST\", \"path\": \"pulls\", \"status\": 422, "
           "\"message\": \"Draft pull requests are not supported in this "
           "repository.\"}]");
    assert_int_equal(open_pr(&n, NULL), 1);
    check_sh("1", "grep -c '\"draft\": false' state/pulls.json");
}

static void gives_up(void **state)
{
    struct forge_new n = new_pr();

    (void)state;
    NEEDS_SERVER();
    faults("[{\"method\": \"GET\", \"status\": 500, \"message\": \"oops\", "
           "\"count\": 1}, {\"method\": \"POST\", \"path\": \"labels\", "
           "\"status\": 500}]");
    assert_int_equal(open_pr(&n, NULL), 1);
}

static void followed(void **state)
{
    struct forge f = forge();
    struct forge_new n = new_pr();
    struct forge_pr p;
    struct err e;
    char *etag = NULL;

    (void)state;
    NEEDS_SERVER();
    assert_int_equal(open_pr(&n, NULL), 1);
    assert_int_equal(forge_get(&f, 1, &etag, &p, &e), 0);
    assert_string_equal(p.state, "open");
    forge_pr_clear(&p);
    assert_non_null(etag);
    assert_int_equal(forge_get(&f, 1, &etag, &p, &e), 1);
    forge_pr_clear(&p);
    SH("curl -sf -d '{\"state\": \"closed\", \"merged\": true}' "
       "%s/_/o/r/pulls/1 >out",
       url);
    assert_int_equal(forge_get(&f, 1, &etag, &p, &e), 0);
    assert_string_equal(p.state, "merged");
    forge_pr_clear(&p);
    /* a closed one is no obstacle to the next */
    assert_int_equal(open_pr(&n, NULL), 2);
    SH("curl -sf -d '{\"state\": \"closed\"}' %s/_/o/r/pulls/2 >out", url);
    assert_int_equal(forge_get(&f, 2, NULL, &p, &e), 0);
    assert_string_equal(p.state, "closed");
    forge_pr_clear(&p);
    assert_int_equal(forge_get(&f, 9, NULL, &p, &e), -ENOENT);
    free(etag);
}

/* 0 with what it says, 1: as before, -errno */
static int checks(const char *json, char *etags[2], const char *want,
                  const char *names)
{
    static const char sha[] = "1111111111111111111111111111111111111111";
    struct forge f = forge();
    struct forge_checks k;
    struct err e;
    char got[40];
    int r;

    if (json)
        SH("echo '%s' >state/checks.json", json);
    r = forge_checks(&f, sha, etags, &k, &e);
    if (!r) {
        snprintf(got, sizeof(got), "%d %d %d", k.passed, k.failed, k.pending);
        assert_string_equal(got, want);
        assert_string_equal(k.names, names);
    }
    forge_checks_clear(&k);
    return r;
}

static void checked(void **state)
{
    char *etags[2] = {NULL, NULL};
    struct forge f = forge();
    struct forge_checks k;
    struct err e;

    (void)state;
    NEEDS_SERVER();
    assert_int_equal(checks(NULL, etags, "0 0 0", ""), 0);
    assert_int_equal(checks(NULL, etags, NULL, NULL), 1);
    /* one of the two has changed: both count */
    assert_int_equal(checks("{\"runs\": {\"build\": null, \"lint\": "
                            "\"success\"}}",
                            etags, "1 0 1", ""),
                     0);
    assert_int_equal(checks("{\"runs\": {\"build\": null, \"lint\": "
                            "\"success\"}, \"statuses\": {\"ci/old\": "
                            "\"error\", \"ci/ok\": \"success\"}}",
                            etags, "2 1 1", "ci/old"),
                     0);
    assert_int_equal(checks("{\"runs\": {\"a\": \"skipped\", \"b\": "
                            "\"neutral\", \"c\": \"cancelled\", \"d\\u001b\": "
                            "\"timed_out\"}}",
                            etags, "2 2 0", "c, d^["),
                     0);
    assert_int_equal(checks(NULL, etags, NULL, NULL), 1);
    faults("[{\"method\": \"GET\", \"path\": \"status\", \"status\": 403, "
           "\"message\": \"no\"}]");
    assert_int_equal(checks("{}", etags, NULL, NULL), -EACCES);
    assert_int_equal(checks(NULL, etags, "0 0 0", ""), 0);
    assert_int_equal(forge_checks(&f, "../../user", etags, &k, &e), -EINVAL);
    free(etags[0]);
    free(etags[1]);
}

/* in clear only to this machine */
static void keys_go_to(void **state)
{
    static const char *const good[] = {"https://api.github.com",
                                       "http://127.0.0.1:9000",
                                       "http://localhost/x", "http://[::1]/"};
    static const char *const bad[] = {"http://api.github.com",
                                      "http://127.evil.example/",
                                      "http://127.0.0.1.evil.example",
                                      "http://localhost.evil.example",
                                      "ftp://127.0.0.1/",
                                      "nonsense"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(web_may_carry_key(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(web_may_carry_key(bad[i]));
}

static void apis(void **state)
{
    AUTO_FREE char *a = forge_api_for("github.com");
    AUTO_FREE char *b = forge_api_for("git.corp.example");

    (void)state;
    assert_string_equal(a, "https://api.github.com");
    assert_string_equal(b, "https://git.corp.example/api/v3");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(opened),
        T(others_untouched),
        T(never_two),
        T(refusals),
        T(gives_up),
        T(followed),
        T(checked),
        cmocka_unit_test(apis),
        cmocka_unit_test(keys_go_to),
    };
    int r;

    git_init();
    r = cmocka_run_group_tests(tests, NULL, NULL);
    git_exit();
    return r;
}
