/* remotes over smart HTTP: what is there, the cache, keys; and the scripts
 * of the sandbox against the same server */
#include "tests/unit/git_util.h"

static int in;
static pid_t pid;
static char *url, *repo;
static const struct git_auth good = {NULL, "ghp_secret"};
static const struct git_auth wrong = {NULL, "ghp_wrong"};

static int setup(void **state)
{
    AUTO_FREE char *dir = NULL;
    int r = tmp_setup(state);

    if (r)
        return r;
    dir = at("srv");
    SH("mkdir -p srv/o && git init -q --bare srv/o/r.git && "
       "git -C srv/o/r.git config http.receivepack true && "
       "git clone -q srv/o/r.git seed 2>/dev/null && cd seed && "
       "echo one >a && git add . && git commit -qm first && "
       "git push -q origin main && git checkout -qb courier/x && "
       "echo two >a && printf 'a\\0b' >bin && git add . && "
       "git commit -qm $'second \\e[31m' && git push -q origin courier/x && "
       "git checkout -q main");
    url = serve(&in, &pid, "tests/git/smart-http", "--root", dir, "--token",
                "ghp_secret");
    repo = url ? xasprintf("%s/o/r.git", url) : NULL;
    return 0;
}

static int teardown(void **state)
{
    if (url)
        serve_end(in, pid);
    free(url);
    free(repo);
    url = repo = NULL;
    return tmp_teardown(state);
}

#define NEEDS_SERVER()                                                        \
    do {                                                                      \
        if (!url)                                                             \
            skip();                                                           \
    } while (0)

static void listed(void **state)
{
    AUTO_FREE char *none = NULL, *moved = NULL;
    struct git_refs refs;
    struct err e;

    (void)state;
    NEEDS_SERVER();
    assert_int_equal(git_ls_remote(repo, &good, &refs, &e), 0);
    assert_int_equal(refs.n, 2);
    assert_string_equal(refs.head, "main");
    {
        AUTO_FREE char *sha = sh("git -C seed rev-parse courier/x");

        assert_string_equal(git_refs_find(&refs, "courier/x"), sha);
    }
    git_refs_clear(&refs);
    assert_int_equal(git_ls_remote(repo, &wrong, &refs, &e), -EACCES);
    assert_non_null(strstr(e.text, "refused the key"));
    assert_null(strstr(e.text, "ghp_"));
    assert_int_equal(git_ls_remote(repo, NULL, &refs, &e), -EACCES);
    assert_non_null(strstr(e.text, "there is none"));
    none = xasprintf("%s/o/none.git", url);
    assert_int_equal(git_ls_remote(none, &good, &refs, &e), -ENOENT);
    moved = xasprintf("%s/moved/o/r.git", url);
    assert_int_equal(git_ls_remote(moved, &good, &refs, &e), 0);
    git_refs_clear(&refs);
    SH("git init -q --bare srv/o/empty.git");
    free(none);
    none = xasprintf("%s/o/empty.git", url);
    assert_int_equal(git_ls_remote(none, &good, &refs, &e), 0);
    assert_int_equal(refs.n, 0);
    assert_null(refs.head);
    git_refs_clear(&refs);
}

static void unreachable(void **state)
{
    struct git_refs refs;
    struct err e;

    (void)state;
    assert_int_equal(git_ls_remote("http://127.0.0.1:1/r", NULL, &refs, &e),
                     -EHOSTUNREACH);
    assert_int_equal(
        git_ls_remote("https://nowhere.invalid/r", NULL, &refs, &e),
        -EHOSTUNREACH);
    assert_int_equal(
        git_ls_remote("http://nowhere.invalid/r", &good, &refs, &e),
        -EACCES); /* no key over http */
    assert_int_equal(git_ls_remote("/nowhere", NULL, &refs, &e), -ENOENT);
}

static void cached(void **state)
{
    AUTO_FREE char *cache = at("cache");
    AUTO_FREE char *path = git_cache_path(cache, repo ? repo : "");
    AUTO_BUF struct buf d = {0};
    struct git_commits c;
    struct err e;

    (void)state;
    NEEDS_SERVER();
    assert_int_equal(git_log(cache, repo, "courier/x", NULL, 9, &c, &e),
                     -ENOENT);
    assert_int_equal(git_fetch(cache, repo, &good, "nope", NULL, &e), -ENOENT);
    if (git_fetch(cache, repo, &good, "courier/x", NULL, &e))
        fail_msg("%s", e.text);
    assert_int_equal(git_log(cache, repo, "courier/x", NULL, 9, &c, &e), 0);
    assert_int_equal(c.n, 1);
    assert_string_equal(c.v[0].subject, "second ^[[31m");
    git_commits_clear(&c);
    assert_int_equal(git_diff(cache, repo, "courier/x", NULL, 4096, &d, &e),
                     0);
    assert_non_null(strstr(d.p, "-one\n+two\n"));
    assert_non_null(strstr(d.p, "Binary files"));
    /* the branch goes on, is rewritten, and main, too */
    SH("cd seed && echo m >m && git add m && git commit -qm onmain && "
       "git push -q && git checkout -q courier/x && "
       "git commit -q --amend -m again && git push -qf && echo 3 >a && "
       "git commit -qam third && git push -q && git push -q origin HEAD:dev");
    assert_int_equal(git_fetch(cache, repo, &good, "courier/x", "main", &e),
                     0);
    assert_int_equal(git_log(cache, repo, "courier/x", "main", 9, &c, &e), 0);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.v[0].subject, "third");
    assert_string_equal(c.v[1].subject, "again");
    git_commits_clear(&c);
    buf_clear(&d);
    assert_int_equal(git_diff(cache, repo, "courier/x", "main", 4096, &d, &e),
                     0);
    assert_null(strstr(d.p, "onmain"));
    assert_null(strstr(d.p, " m\n")); /* of the merge base, not of main */
    {
        AUTO_FREE char *cmd = xasprintf("git -C %s fsck --no-dangling "
                                        "2>/dev/null; grep -c ghp_ %s/config "
                                        "|| true",
                                        path, path);

        check_sh("0", cmd);
    }
}

/* what can be had again has a bound */
static void bounded(void **state)
{
    AUTO_FREE char *cache = at("cache");
    AUTO_FREE char *other = NULL, *path = NULL, *path2 = NULL;
    struct git_commits c;
    struct err e;

    (void)state;
    NEEDS_SERVER();
    SH("cp -a srv/o/r.git srv/o/other.git");
    other = xasprintf("%s/o/other.git", url);
    path = git_cache_path(cache, repo);
    path2 = git_cache_path(cache, other);
    git_cache_trim(cache, 0); /* there is none yet */
    assert_int_equal(git_fetch(cache, repo, &good, "courier/x", NULL, &e), 0);
    assert_int_equal(git_fetch(cache, other, &good, "courier/x", NULL, &e), 0);
    git_cache_trim(cache, 1);
    assert_int_equal(access(path, F_OK), 0); /* both are in use */
    SH("touch -d '1 hour ago' %s.lock; touch -d '2 hours ago' %s.lock", path,
       path2);
    git_cache_trim(cache, (int64_t)1 << 30);
    assert_int_equal(access(path2, F_OK), 0);
    {
        AUTO_FREE char *kb = sh("du -sk %s | cut -f1", path);

        git_cache_trim(cache, strtoll(kb, NULL, 10) * 1024 + 4096);
    }
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(access(path2, F_OK), -1); /* the longest unused */
    assert_int_equal(git_log(cache, other, "courier/x", NULL, 9, &c, &e),
                     -ENOENT);
    assert_int_equal(git_fetch(cache, other, &good, "courier/x", NULL, &e), 0);
    assert_int_equal(git_log(cache, other, "courier/x", NULL, 9, &c, &e), 0);
    git_commits_clear(&c);
    SH("touch -d '31 days ago' %s.lock", path);
    git_cache_trim(cache, (int64_t)1 << 30);
    assert_int_equal(access(path, F_OK), -1); /* not used for a month */
    /* each fetch leaves a pack: beyond some they are made one */
    SH("cd %s/objects/pack && seq 300 | sed 's/.*/pack-&.pack/' | xargs touch",
       path2);
    assert_int_equal(git_fetch(cache, other, &good, "courier/x", NULL, &e), 0);
    {
        AUTO_FREE char *cmd =
            xasprintf("ls %s/objects/pack/*.pack | wc -l", path2);

        check_sh("1", cmd);
    }
    assert_int_equal(git_log(cache, other, "courier/x", NULL, 9, &c, &e), 0);
    git_commits_clear(&c);
}

static char *in_vm(char *text)
{
    char *out = run_shell("bash", text, true);

    free(text);
    return out;
}

static void from_the_sandbox(void **state)
{
    AUTO_FREE char *dir = at("home/project");
    AUTO_FREE char *home = at("home");
    AUTO_FREE char *token = at("token");
    AUTO_FREE char *helper = git_script_credentials(token);
    AUTO_FREE char *path = at("home/.courier/git-credential");
    struct git_setup s = {.repo = repo,
                          .branch = "courier/y",
                          .dir = dir,
                          .credentials = true,
                          .shallow = true};
    char *out;
    int fd;

    (void)state;
    NEEDS_SERVER();
    SH("umask 077; mkdir home/.courier; printf ghp_secret >token");
    fd = open(path, O_WRONLY | O_CREAT, 0700);
    fd_write_all(fd, helper, strlen(helper));
    close(fd);
    out = in_vm(git_script_clone(&s));
    if (!strstr(out, "\tcourier/y\n"))
        fail_msg("%s", out);
    free(out);
    SH("echo w >home/project/w");
    out = in_vm(git_script_save(home, "courier/y", NULL, "work", true, false));
    if (!strstr(out, "\tpushed\tcourier/y "))
        fail_msg("%s", out);
    free(out);
    check_sh("w", "git -C srv/o/r.git show courier/y:w");
    /* the key is nowhere, and the agent's own push works */
    check_sh("", "grep -r ghp_ home || true");
    SH("cd home/project && echo v >w && git commit -qam v && git push -q");
    /* without it, nothing is pushed, and it says why at once */
    SH("rm token; echo u >home/project/w");
    out = in_vm(git_script_save(home, "courier/y", NULL, "work", true, false));
    if (!strstr(out, "\tfailed\t"))
        fail_msg("%s", out);
    free(out);
    out = in_vm(git_script_clone(&s)); /* done before: no network */
    assert_int_equal(sh_status, 0);
    free(out);
    SH("rm -rf home/project");
    out = in_vm(git_script_clone(&s));
    assert_int_equal(sh_status, 1);
    free(out);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(listed),  cmocka_unit_test(unreachable), T(cached),
        T(bounded), T(from_the_sandbox),
    };
    int r;

    git_init();
    r = cmocka_run_group_tests(tests, NULL, NULL);
    git_exit();
    return r;
}
