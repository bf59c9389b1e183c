/* bundles taken in, branches listed, log and diff of repositories by path */
#include "tests/unit/git_util.h"

static void base_repo(void)
{
    SH("git init -q r && cd r && echo one >a && git add . && "
       "git commit -qm first && git branch other");
    SH("git clone -q r vm 2>&1 && cd vm && git checkout -qb courier/x && "
       "echo two >a && echo 'b' >'b c' && git add . && "
       "git commit -qm 'second'");
    SH("cd vm && git bundle create -q ../b courier/x ^origin/main");
}

static void apply(int want, const char *branch, const char *words)
{
    AUTO_FREE char *b = at("b"), *r = at("r");
    struct err e = {0};
    char sha[41] = "";
    int rc = git_bundle_apply(b, r, branch, sha, &e);

    if (rc != want)
        fail_msg("%d, not %d: %s", rc, want, e.text);
    if (words && !strstr(e.text, words))
        fail_msg("%s", e.text);
    if (!rc) {
        AUTO_FREE char *tip = sh("git -C vm rev-parse courier/x");

        assert_string_equal(sha, tip);
    }
}

static void no_rubbish(void)
{
    check_sh("", "find r -name 'tmp_*' -o -name '*.lock'; "
                 "git -C r status --porcelain; git -C r fsck 2>&1");
}

static void taken_in(void **state)
{
    (void)state;
    base_repo();
    apply(0, "courier/x", NULL);
    check_sh("second\nfirst", "git -C r log --format=%s courier/x");
    check_sh("main", "git -C r symbolic-ref --short HEAD");
    apply(0, "courier/x", NULL); /* again: nothing to do */
    no_rubbish();
    SH("cd vm && echo 3 >a && git commit -qam third && "
       "git bundle create -q ../b courier/x ^origin/main");
    apply(0, "courier/x", NULL);
    check_sh("third", "git -C r log -1 --format=%s courier/x");
    no_rubbish();
}

static void refused(void **state)
{
    (void)state;
    base_repo();
    apply(-ENOENT, "courier/y", "no branch courier/y");
    apply(-EINVAL, "-x", NULL);
    /* checked out, in the main tree and in a linked one */
    SH("git -C r checkout -qb courier/x");
    apply(-EBUSY, "courier/x", "checked out");
    SH("git -C r checkout -q main");
    SH("git -C r worktree add ../wt courier/x 2>&1");
    apply(-EBUSY, "courier/x", "checked out");
    SH("git -C r worktree remove ../wt");
    apply(0, "courier/x", NULL);
    /* commits there that the VM lacks */
    SH("cd r && git checkout -q courier/x && echo z >z && git add z && "
       "git commit -qm theirs && git checkout -q main");
    apply(-EEXIST, "courier/x", "has commits");
    check_sh("theirs", "git -C r log -1 --format=%s courier/x");
    no_rubbish();
    /* a branch where a directory is */
    SH("cd r && git branch -qD courier/x && git branch courier");
    apply(-EIO, "courier/x", "courier");
    no_rubbish();
}

/* a repository that has only the last commits of its own */
static void shallow(void **state)
{
    AUTO_FREE char *r = at("r");
    AUTO_BUF struct buf d = {0};
    struct git_commits c;
    struct err e;

    (void)state;
    SH("git init -q all && cd all && for i in 1 2 3; do echo $i >a && "
       "git add . && git commit -qm $i; done");
    SH("git clone -q --depth=1 file://$PWD/all r && git clone -q r vm 2>&1 && "
       "cd vm && git checkout -qb courier/x && echo two >b && git add . && "
       "git commit -qm second && "
       "git bundle create -q ../b courier/x ^origin/main");
    apply(0, "courier/x", NULL);
    SH("cd vm && echo 3 >b && git commit -qam third && "
       "git bundle create -q ../b courier/x ^origin/main");
    apply(0, "courier/x", NULL);
    check_sh("third", "git -C r log -1 --format=%s courier/x");
    assert_int_equal(git_log(r, r, "courier/x", "main", 9, &c, &e), 0);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.v[0].subject, "third");
    git_commits_clear(&c);
    assert_int_equal(git_diff(r, r, "courier/x", "main", 4096, &d, &e), 0);
    assert_non_null(strstr(d.p, "+3\n"));
    assert_null(strstr(d.p, "b/a")); /* what the branch has not touched */
    SH("cd vm && git commit -q --amend -m other && "
       "git bundle create -q ../b courier/x ^origin/main");
    apply(-EEXIST, "courier/x", "has commits");
    no_rubbish();
}

/* of a linked work tree: its branch, and that of the main one, stay */
static void linked(void **state)
{
    AUTO_FREE char *r = at("r"), *wt = at("wt"), *b = at("b");
    AUTO_FREE char *dir = NULL;
    struct git_refs refs;
    struct err e;

    (void)state;
    base_repo();
    SH("git -C r worktree add -q ../wt -b side");
    assert_int_equal(git_ls_remote(wt, NULL, &refs, &e), 0);
    assert_string_equal(refs.head, "side");
    git_refs_clear(&refs);
    assert_int_equal(git_bundle_apply(b, wt, "courier/x", NULL, &e), 0);
    check_sh("second", "git -C r log -1 --format=%s courier/x");
    SH("cd vm && git checkout -qB main && echo 9 >a && git commit -qam nine "
       "&& git bundle create -q ../b main ^origin/main");
    assert_int_equal(git_bundle_apply(b, wt, "main", NULL, &e), -EBUSY);
    SH("cd vm && git checkout -qB side && "
       "git bundle create -q ../b side ^origin/main");
    assert_int_equal(git_bundle_apply(b, wt, "side", NULL, &e), -EBUSY);
    dir = git_common_dir(wt);
    {
        AUTO_FREE char *want = at("r/.git");

        assert_string_equal(dir, want);
    }
    assert_null(git_common_dir(r));
    /* who only says that he belongs to a repository shows nothing of it */
    SH("mkdir evil && cp wt/.git evil/");
    {
        AUTO_FREE char *evil = at("evil");

        assert_null(git_common_dir(evil));
    }
    no_rubbish();
}

static void prerequisite_missing(void **state)
{
    (void)state;
    base_repo();
    SH("cd vm && echo 3 >a && git commit -qam third && "
       "git bundle create -q ../b courier/x ^courier/x~1");
    apply(-ENOENT, "courier/x", "lacks commit");
    no_rubbish();
}

/* every byte of a small bundle damaged, and cut at every length */
static void damaged(void **state)
{
    AUTO_FREE char *path = at("b"), *r = at("r");
    AUTO_BUF struct buf good = {0};
    char sha[41];
    struct err e;
    ptrdiff_t comment;
    int fd;

    (void)state;
    base_repo();
    assert_int_equal(file_read(path, 1 << 20, &good), 0);
    comment = strchr(good.p + 16, '\n') - good.p;
    fd = open(path, O_RDWR);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)good.n; i += 3) {
        char c = good.p[i] ^ 0x15;

        if (i >= 16 + 41 && i <= comment)
            continue; /* the subject of what it builds on: only words */
        assert_int_equal(pwrite(fd, &c, 1, (off_t)i), 1);
        if (!git_bundle_apply(path, r, "courier/x", sha, &e))
            fail_msg("byte %td damaged, and taken", i);
        assert_int_equal(pwrite(fd, good.p + i, 1, (off_t)i), 1);
    }
    for (size_t n = good.n; n-- > 0;) {
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        if (!git_bundle_verify(path, &e))
            fail_msg("cut at %zu, and found good", n);
    }
    close(fd);
    check_sh("", "git -C r branch --list 'courier/*'");
    no_rubbish();
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(git_bundle_verify(path, &e), -ELOOP);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(git_bundle_verify(path, &e), -EINVAL);
}

/* a pack that lacks what its commit needs */
static void unconnected(void **state)
{
    (void)state;
    base_repo();
    SH("cd vm && { printf '# v2 git bundle\\n%%s refs/heads/courier/x\\n\\n' "
       "$(git rev-parse courier/x); git rev-parse courier/x | "
       "git pack-objects --stdout -q; } >../b");
    apply(-EBADMSG, "courier/x", "missing");
    check_sh("", "git -C r branch --list 'courier/*'");
    no_rubbish();
}

/* 1 GiB of zeros is a few kB in a pack */
static void bomb(void **state)
{
    AUTO_FREE char *path = at("b");
    struct err e;

    (void)state;
    SH("python3 - b <<'E'\n"
       "import zlib, sys, struct\n"
       "f = open(sys.argv[1], 'wb')\n"
       "f.write(b'# v2 git bundle\\n' + b'1' * 40 + b' refs/heads/x\\n\\n')\n"
       "f.write(b'PACK' + struct.pack('>II', 2, 1))\n"
       "n = 1 << 40; out = bytearray([0x30 | (n & 15) | 0x80]); n >>= 4\n"
       "while n > 127: out.append(n & 127 | 128); n >>= 7\n"
       "out.append(n); f.write(out)\n"
       "f.write(zlib.compress(b'0' * 1000) + b'x' * 20)\nE\n");
    assert_int_equal(git_bundle_verify(path, &e), -EFBIG);
}

/* a bare one, and one that belongs to somebody else */
static void other_owner(void **state)
{
    (void)state;
    if (geteuid())
        skip();
    base_repo();
    SH("chown -R 4321:4321 r");
    apply(0, "courier/x", NULL);
    check_sh("", "find r ! -user 4321");
    SH("rm -rf r && git clone -q --bare vm r && "
       "git -C r update-ref -d refs/heads/courier/x");
    apply(0, "courier/x", NULL);
}

static void by_path(void **state)
{
    AUTO_FREE char *r = at("r");
    AUTO_FREE char *url = xasprintf("file://%s", r);
    AUTO_BUF struct buf d = {0};
    struct git_refs refs;
    struct git_commits c;
    struct err e;

    (void)state;
    base_repo();
    apply(0, "courier/x", NULL);
    assert_int_equal(git_ls_remote(url, NULL, &refs, &e), 0);
    assert_int_equal(refs.n, 3);
    assert_string_equal(refs.head, "main");
    assert_non_null(git_refs_find(&refs, "courier/x"));
    assert_null(git_refs_find(&refs, "nope"));
    git_refs_clear(&refs);
    assert_int_equal(git_fetch(NULL, r, NULL, "courier/x", NULL, &e), 0);
    assert_int_equal(git_fetch(NULL, r, NULL, "nope", NULL, &e), -ENOENT);
    assert_int_equal(git_log(NULL, r, "courier/x", NULL, 10, &c, &e), 0);
    assert_int_equal(c.n, 1);
    assert_string_equal(c.v[0].subject, "second");
    assert_string_equal(c.v[0].author, "Tester");
    git_commits_clear(&c);
    assert_int_equal(git_diff(NULL, r, "courier/x", "main", 1 << 20, &d, &e),
                     0);
    assert_non_null(strstr(d.p, "-one\n+two\n"));
    assert_non_null(strstr(d.p, "b c"));
    buf_clear(&d);
    assert_int_equal(git_diff(NULL, r, "courier/x", "main", 50, &d, &e), 0);
    assert_int_equal(d.n, 50);
    SH("rm -rf r && git init -q r");
    assert_int_equal(git_ls_remote(r, NULL, &refs, &e), 0);
    assert_int_equal(refs.n, 0);
    assert_null(refs.head);
    SH("rm -rf r");
    assert_int_equal(git_ls_remote(r, NULL, &refs, &e), -ENOENT);
}

static void user(void **state)
{
    AUTO_FREE char *home = at("home");
    char *name, *email;

    (void)state;
    unsetenv("XDG_CONFIG_HOME");
    setenv("HOME", home, 1);
    git_user(&name, &email);
    assert_string_equal(name, "Tester");
    assert_string_equal(email, "t@example.org");
    free(name);
    free(email);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, tmp_setup, tmp_teardown)
    const struct CMUnitTest tests[] = {
        T(taken_in),    T(refused), T(prerequisite_missing),
        T(shallow),     T(linked),  T(damaged),
        T(unconnected), T(bomb),    T(other_owner),
        T(by_path),     T(user),
    };
    int r;

    git_init();
    r = cmocka_run_group_tests(tests, NULL, NULL);
    git_exit();
    return r;
}
