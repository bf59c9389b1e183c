/* the clone in a sandbox, with real git */
#include "tests/unit/git_script_util.h"

static void cloned(void **state)
{
    check_has(clone(*state, NULL, "courier/x"), "\tcourier/x\n");
    check_sh("first", "git -C home/project log --format=%s");
    check_sh("courier/x", "git -C home/project symbolic-ref --short HEAD");
    check_sh("Ann", "git -C home/project config user.name");
    check_sh("", "git -C home/project status --porcelain");
    /* once more: nothing happens to what the agent did */
    SH("cd home/project && echo 2 >a");
    check_has(clone(*state, NULL, "courier/x"), "\tcourier/x\n");
    check_sh("2", "cat home/project/a");
}

static void cloned_base(void **state)
{
    free(clone(*state, "dev", "courier/x"));
    check_sh("dev\nfirst", "git -C home/project log --format=%s");
    SH("rm -rf home/project");
    check_has(clone(*state, "nope", "courier/x"), "no branch nope");
    assert_int_equal(sh_status, 1);
    SH("rm -rf home/project");
    check_has(clone(*state, "dev", NULL), "\tdev\n");
    SH("rm -rf home/project");
    check_has(clone(*state, NULL, NULL), "\tmain\n");
    /* the remote has the branch: goes on with it */
    SH("rm -rf home/project; git -C seed push -q origin dev:courier/x");
    free(clone(*state, NULL, "courier/x"));
    check_sh("dev", "git -C home/project log -1 --format=%s");
    SH("rm -rf home/project");
    check_has(clone("/nowhere/at all", NULL, "x"), "does not appear to be");
    assert_int_equal(sh_status, 1);
}

/* killed at any point, and begun again */
static void clone_cut(void **state)
{
    AUTO_FREE char *dir = at("home/project");
    struct git_setup s = {.repo = *state, .branch = "courier/x", .dir = dir};

    for (int ms = 15; ms < 175; ms += 40) {
        AUTO_FREE char *script = git_script_clone(&s);
        AUTO_FREE char *cmd = NULL;
        AUTO_BUF struct buf q = {0};

        buf_adds(&q, script);
        cmd = at("script");
        SH("rm -rf home/project");
        {
            int fd = open(cmd, O_WRONLY | O_CREAT | O_TRUNC, 0600);

            fd_write_all(fd, q.p, q.n);
            close(fd);
        }
        SH("exec 2>/dev/null; timeout -s KILL 0.%03d bash script >/dev/null; "
           "touch home/project/.git/index.lock; true",
           ms);
        check_has(clone(*state, NULL, "courier/x"), "\tcourier/x\n");
        assert_int_equal(sh_status, 0);
        check_sh("one", "cat home/project/a");
        check_sh("", "git -C home/project status --porcelain");
    }
}

/* what failed at one address, or an agent's own settings, leave nothing that
 * the next would take up */
static void clone_elsewhere(void **state)
{
    SH("printf '[alias]\\n\\tst = status' >home/.gitconfig");
    for (int i = 0; i < 2; i++) {
        free(clone("/nowhere/at \"all\\", NULL, "x"));
        assert_int_equal(sh_status, 1);
        check_sh("/nowhere/at \"all\\",
                 "git -C home/project config --get-all remote.origin.url");
    }
    check_has(clone(*state, NULL, "courier/x"), "\tcourier/x\n");
    SH("git -C home/project config --get-all remote.origin.url >urls; "
       "git -C home/project config --get-all remote.origin.fetch >>urls; "
       "git -C home/project config --local --get-all user.name >>urls");
    check_sh("3", "wc -l <urls");
    check_sh(*state, "head -n 1 urls");
    check_sh("status", "git config -f home/.gitconfig alias.st");
    check_sh("Ann", "git config -f home/.gitconfig user.name");
}

static void clone_beside_files(void **state)
{
    SH("mkdir -p home/project/.claude/skills && cd home/project && "
       "echo hi >CLAUDE.md && echo s >.claude/skills/s && echo p >AGENTS.md");
    SH("cd seed && git checkout -q main && echo theirs >AGENTS.md && "
       "git add . && git commit -qm agents && git push -q");
    free(clone(*state, NULL, "courier/x"));
    check_sh("", "git -C home/project status --porcelain");
    check_sh("hi", "cat home/project/CLAUDE.md");
    check_sh("theirs", "cat home/project/AGENTS.md");
    expect(save(true), "nothing", "");
    SH("cd home/project && echo mine >>AGENTS.md");
    expect(save(true), "pushed", "courier/x ");
    check_sh("AGENTS.md\na", "git -C r ls-tree -r --name-only courier/x");
}

static void clone_empty(void **state)
{
    AUTO_FREE char *e = at("e");

    (void)state;
    SH("git init -q --bare e");
    check_has(clone(e, NULL, "courier/x"), "cloned\t-\tcourier/x");
    expect(save(true), "nothing", "");
    SH("echo 1 >home/project/f");
    expect(save(true), "pushed", "courier/x ");
    check_sh("1", "git -C e show courier/x:f");
    SH("rm -rf home/project");
    SH("git -C r checkout --detach 2>/dev/null; "
       "git -C r update-ref --no-deref HEAD refs/heads/dev");
    check_has(clone(*state, NULL, NULL), "\t-\n");
}

/* bound from the host: read-only, another user's */
static void clone_bound(void **state)
{
    AUTO_FREE char *script = NULL, *dir = NULL;
    struct git_setup s = {.repo = *state, .branch = "courier/x"};

    if (geteuid())
        skip();
    dir = at("home/project");
    s.dir = dir;
    script = git_script_clone(&s);
    SH("chown -R 4321:4321 home; chmod -R a-w r");
    {
        AUTO_FREE char *path = at("script");
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

        fd_write_all(fd, script, strlen(script));
        close(fd);
    }
    check_has(sh("cd / && setpriv --reuid 4321 --regid 4321 --clear-groups "
                 "bash %s/script 2>&1",
                 tmp),
              "\tcourier/x");
    check_sh("one", "cat home/project/a");
    /* the agent's own commands work, too */
    SH("cd home/project && setpriv --reuid 4321 --regid 4321 --clear-groups "
       "git fetch -q");
}

/* values are never code */
static void quoted(void **state)
{
    AUTO_FREE char *script =
        git_script_save("/nonexistent/$(touch x)`touch x`'\"\n", "$(touch x)'",
                        NULL, "';touch x;'", true, false);

    (void)state;
    free(run_shell("bash", script, true));
    check_sh("", "ls x 2>/dev/null || true");
    assert_int_equal(sh_status, 0);
}

static void helper(void **state)
{
    AUTO_FREE char *token = at("to'ken");
    AUTO_FREE char *text = git_script_credentials(token);
    AUTO_FREE char *path = at("helper");
    int fd = open(path, O_WRONLY | O_CREAT, 0700);

    (void)state;
    fd_write_all(fd, text, strlen(text));
    close(fd);
    check_sh("", "./helper get");
    SH("printf 'ghp_x%%%%y' >\"to'ken\"");
    check_sh("username=x-access-token\npassword=ghp_x%y", "./helper get");
    check_sh("", "./helper store");
    SH("rm \"to'ken\"");
    check_sh("", "./helper get");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, repo_setup, repo_teardown)
    const struct CMUnitTest tests[] = {
        T(cloned),
        T(cloned_base),
        T(clone_cut),
        T(clone_elsewhere),
        T(clone_beside_files),
        T(clone_empty),
        T(clone_bound),
        T(quoted),
        T(helper),
    };
    int r;

    git_init();
    r = cmocka_run_group_tests(tests, NULL, NULL);
    git_exit();
    return r;
}
