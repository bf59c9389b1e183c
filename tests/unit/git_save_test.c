/* saving and exporting the work of a sandbox, with real git */
#include "tests/unit/git_script_util.h"

static char *export(const char *dir, int64_t max)
{
    AUTO_FREE char *d = at(dir);
    AUTO_FREE char *out = at("out");

    return run_script(git_script_export(d, "courier/x", NULL, out, max));
}

static void saved(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    expect(save(true), "nothing", "");
    SH("cd home/project && rm a && mkdir -p 'd i r' && "
       "echo 1 >'d i r/n\nl' && echo 2 >$'\\xff\\xfe' && echo 3 >-x && "
       "echo 4 >':(exclude)y' && echo secret >ign && echo ign >.gitignore && "
       "ln -s /etc/passwd link && mkdir .git/hooks && "
       "for h in pre-commit commit-msg pre-push post-commit; do "
       "printf '#!/bin/sh\\ntouch ~/hooked; exit 1\\n' >.git/hooks/$h; "
       "chmod +x .git/hooks/$h; done; git config core.hooksPath .git/hooks");
    expect(save(true), "pushed", "courier/x ");
    check_sh("", "git -C home/project status --porcelain; ls home/hooked "
                 "2>/dev/null || true");
    check_sh("it's from 'one'", "git -C r log -1 --format=%s courier/x");
    check_sh("Ann <ann@x.org>",
             "git -C r log -1 --format='%an <%ae>' courier/x");
    check_sh("120000 blob 3594e94c04db171e2767224db355f514b13715c5\tlink",
             "git -C r ls-tree courier/x link");
    check_sh("6", "git -C r ls-tree -rz courier/x | tr -dc '\\0' | wc -c");
    expect(save(true), "nothing", "");
    /* a commit that the agent made itself */
    SH("cd home/project && git config --unset core.hooksPath; "
       "rm -rf .git/hooks; echo 5 >-x && git commit -qam own");
    expect(save(false), "commit-only", "courier/x ");
    expect(save(true), "pushed", "courier/x ");
    check_sh("own", "git -C r log -1 --format=%s courier/x");
    /* a lock that a killed git left */
    SH("cd home/project && echo 6 >-x && touch .git/index.lock");
    expect(save(true), "pushed", "courier/x ");
}

static void save_on_main(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && git checkout -q -b main origin/main && echo m >m");
    expect(save(true), "pushed", "courier/x ");
    check_sh("first", "git -C r log -1 --format=%s main");
    check_sh("m", "git -C r show courier/x:m");
    /* other branches of the agent come along, and the stash */
    SH("cd home/project && git checkout -qb feature && echo f >f && "
       "git add f && git commit -qm feat && git checkout -q courier/x && "
       "echo s >a && git stash -q");
    check_has(save(true), "feature ");
    check_sh("feat", "git -C r log -1 --format=%s feature");
    check_sh("s", "git -C r show courier/x-stash:a");
    expect(save(true), "nothing", "");
}

static void save_detached(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && git checkout -q --detach && echo u >u && "
       "git add u && git commit -qm det && echo v >v && echo w >a");
    expect(save(true), "pushed", "courier/x ");
    check_sh("v", "git -C r show courier/x:v");
    check_sh("u", "git -C r show courier/x:u");
    /* nothing changed for the agent */
    check_sh(" M a\n?? v", "git -C home/project status --porcelain");
    check_sh("det", "git -C home/project log -1 --format=%s");
    expect(save(true), "nothing", "");
    /* it goes on, and commits: our snapshot is replaced */
    SH("cd home/project && echo x >v && git add . && git commit -qm more");
    expect(save(true), "pushed", "courier/x ");
    check_sh("more\ndet\nfirst", "git -C r log --format=%s courier/x");
}

static void save_merging(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && echo mine >a && git commit -qam mine && "
       "git checkout -qb other origin/main && echo theirs >a && "
       "git commit -qam theirs && git checkout -q courier/x && "
       "git merge other >/dev/null 2>&1; echo n >new; "
       "test -e .git/MERGE_HEAD");
    check_has(save(true), "pushed\tcourier/x ");
    check_sh("n", "git -C r show courier/x:new");
    check_has(sh("git -C r show courier/x:a"), "<<<<<<<");
    check_sh("3", "git -C r rev-list --parents -1 courier/x | wc -w");
    check_sh("UU a\n?? new", "git -C home/project status --porcelain");
    /* the agent ends the merge: its commit takes the snapshot's place */
    SH("cd home/project && echo both >a && git add . && "
       "git commit -qm merged");
    check_has(save(true), "pushed\tcourier/x ");
    check_sh("merged", "git -C r log -1 --format=%s courier/x");
}

static void save_refused(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && echo 1 >f");
    expect(save(true), "pushed", "courier/x ");
    /* somebody pushed to it */
    SH("cd seed && git fetch -q && git checkout -q courier/x && echo o >o && "
       "git add o && git commit -qm theirs && git push -q");
    SH("cd home/project && echo 2 >f");
    expect(save(true), "pushed", "courier-x-");
    check_sh("theirs", "git -C r log -1 --format=%s courier/x");
    check_sh("2", "git -C r show $(git -C r for-each-ref "
                  "--format='%(refname)' 'refs/heads/courier-x-*'):f");
    /* nobody may push */
    SH("printf '#!/bin/sh\\necho no such luck >&2; exit 1\\n' "
       ">r/hooks/pre-receive; chmod +x r/hooks/pre-receive");
    SH("cd home/project && echo 3 >f");
    check_has(save(true), "\tfailed\t");
    SH("rm -rf r; cd home/project && echo 4 >f");
    check_has(save(true), "\tfailed\t");
    check_sh("", "git -C home/project status --porcelain");
}

static void save_others(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    /* nested, without a commit, without a remote, a hidden one, a link */
    SH("cd home/project && git init -q 'in side' && echo i >'in side/i' && "
       "git init -q empty && mkdir -p ../repos && git init -q "
       "$'../repos/a\\tb' "
       "&& echo 1 >$'../repos/a\\tb/f' && git init -q ../.nvm && "
       "echo 1 >../.nvm/f && ln -s ../project ../repos/loop && echo p >p");
    AUTO_FREE char *out = save(true);

    if (!strstr(out, "/repos/a\\tb\tcommit-only\tit has no remote\n") ||
        !strstr(out, "/project/in side\tcommit-only\t") ||
        !strstr(out, "/project/empty\tnothing\t") ||
        !strstr(out, "/project\tpushed\tcourier/x ") || strstr(out, "nvm"))
        fail_msg("%s", out);
    check_sh("a\np", "git -C r ls-tree -r --name-only courier/x");
}

static void save_submodule(void **state)
{
    SH("git init -q --bare s && git clone -q s sseed 2>/dev/null && "
       "cd sseed && echo s >s && git add . && git commit -qm s && "
       "git push -q origin main && cd ../seed && git checkout -q main && "
       "git -c protocol.file.allow=always submodule add -q %s/s sub && "
       "git commit -qm sub && git push -q",
       tmp);
    SH("git config --global protocol.file.allow always");
    free(clone(*state, NULL, "courier/x"));
    check_sh("s", "cat home/project/sub/s");
    SH("echo t >home/project/sub/t");
    {
        AUTO_FREE char *out = save(true);

        if (!strstr(out, "/project/sub\tpushed\tcourier/x ") ||
            !strstr(out, "/project\t"))
            fail_msg("%s", out);
    }
    check_sh("t", "git -C s show courier/x:t");
}

static void save_huge(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && truncate -s 96M big && truncate -s 96M ign && "
       "echo ign >.gitignore");
    check_has(save(true), "left out as too large: big\n");
    check_sh(".gitignore\na", "git -C r ls-tree -r --name-only courier/x");
}

static void take_in(const char *want)
{
    AUTO_FREE char *b = at("out/commits.bundle");
    AUTO_FREE char *r = at("r");
    struct err e = {0};
    char sha[41];

    if (git_bundle_apply(b, r, "courier/x", sha, &e))
        fail_msg("%s", e.text);
    check_sh(want, "git -C r log -1 --format=%s courier/x");
}

static void exported(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    free(export("home/project", 1 << 20));
    assert_int_equal(sh_status, 0);
    check_sh("", "ls out");
    SH("cd home/project && echo 1 >f && git add f && git commit -qm own && "
       "echo 2 >f && echo 3 >$'un\\ntracked' && echo big >.gitignore && "
       "head -c 3000000 /dev/urandom >huge");
    check_has(export("home/project", 1 << 20),
              "left-out\t3000000\thuge\ncommits.bundle\t");
    check_sh("commits.bundle\nuntracked.tar\nworktree.patch", "ls out");
    check_sh("700", "stat -c %a out");
    check_sh(".gitignore\nun\\ntracked", "tar tf out/untracked.tar");
    take_in("own");
    SH("git -C seed fetch -q && cd seed && git checkout -q courier/x && "
       "git apply ../out/worktree.patch && grep -qx 2 f");
    /* after a save, all is in the bundle */
    SH("rm home/project/huge; git -C seed checkout -q -f main");
    free(save(false));
    free(export("home/project", 1 << 20));
    check_sh("commits.bundle", "ls out");
    take_in("it's from 'one'");
    check_sh("", "git -C home/project for-each-ref refs/courier");
}

static void exported_detached(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && git checkout -q --detach && echo 1 >f && "
       "git add f && git commit -qm det && echo 2 >g");
    expect(save(false), "commit-only", "courier/x ");
    free(export("home/project", 1 << 20));
    check_sh("commits.bundle", "ls out");
    take_in("it's from 'one'");
    check_sh("2", "git -C r show courier/x:g");
    /* an empty repository, one without a remote, a bundle too large */
    SH("git init -q home/e && git init -q home/l && cd home/l && "
       "head -c 90000 /dev/urandom >r && git add r && git commit -qm l");
    free(export("home/e", 1 << 20));
    check_sh("", "ls out");
    free(export("home/l", 1 << 20));
    check_sh("commits.bundle", "ls out");
    check_has(export("home/l", 40960), "left-out\t-\tcommits.bundle");
    check_sh("", "ls out");
    free(export("home/nope", 1 << 20));
    assert_int_equal(sh_status, 1);
}

/* a repository that calls itself bare: with files beside it, and without */
static void save_bare(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && echo 1 >f && git add f && git commit -qm own && "
       "echo 2 >g && git config core.bare true");
    expect(save(true), "pushed", "courier/x ");
    check_sh("1\n2", "git -C r show courier/x:f courier/x:g");
    SH("cd home/project && echo 3 >h");
    free(export("home/project", 1 << 20));
    check_sh("h", "tar tf out/untracked.tar");
    SH("rm -rf home/project && mkdir home/project && cd home/project && "
       "git clone -q --bare ../../r .git && git config remote.origin.fetch "
       "'+refs/heads/*:refs/remotes/origin/*' && "
       "git worktree add -q w -b courier/w && cd w && echo 1 >w && "
       "git add w && git commit -qm tree");
    check_has(save(true), "/project/w\tpushed\tcourier/w ");
    check_sh("tree", "git -C r log -1 --format=%s courier/w");
    check_sh("w", "ls home/project");
    free(export("home/project", 1 << 20));
    assert_int_equal(sh_status, 0);
}

/* what git can't read any more comes home as files */
static void export_broken(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && mkdir d && echo 1 >d/f && git add d && "
       "git commit -qm own && echo 2 >u && ln -s / d/link && "
       "cp -a ../project ../no-head && cp -a ../project ../no-tree && "
       "cp -a ../project ../no-blob && rm -rf .git/objects/??");
    free(export("home/project", 1 << 20));
    assert_int_equal(sh_status, 0);
    check_sh("a\nd/f\nd/link\nu", "tar tf out/untracked.tar | sort");
    SH("echo rubbish >home/no-head/.git/HEAD; cd home/no-tree && "
       "t=$(git rev-parse HEAD^{tree}) && rm -f .git/objects/${t:0:2}/${t:2}; "
       "cd ../no-blob && t=$(git rev-parse HEAD:d/f) && "
       "rm -f .git/objects/${t:0:2}/${t:2}");
    for (int i = 0; i < 3; i++) {
        static const char *const dirs[] = {"home/no-head", "home/no-tree",
                                           "home/no-blob"};

        free(export(dirs[i], 1 << 20));
        assert_int_equal(sh_status, 0);
        check_sh("1", "tar xOf out/untracked.tar d/f");
    }
}

static void save_many(void **state)
{
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && for i in $(seq 20); do git checkout -qb b$i && "
       "git commit -q --allow-empty -m $i; done");
    check_has(save(true), ", and 12 more\n");
    check_sh("22", "git -C r branch | wc -l");
}

static bool sh_says(const char *command)
{
    free(run_shell("sh", command, false));
    return !sh_status;
}

/* no space left: the work is told to be unsaved, and comes out as a patch */
static void save_disk_full(void **state)
{
    if (geteuid())
        skip();
    free(sh("mkdir home/project; mount -t tmpfs -o size=1m none "
            "home/project || true"));
    if (!sh_says("mountpoint -q home/project"))
        skip();
    free(clone(*state, NULL, "courier/x"));
    SH("cd home/project && echo 2 >a && "
       "head -c 4000 /dev/urandom >small; cat /dev/zero >big 2>/dev/null; "
       "true");
    check_has(save(true), "\tfailed\t");
    free(export("home/project", 1 << 19));
    check_sh("untracked.tar\nworktree.patch", "ls out");
    check_sh("small", "tar tf out/untracked.tar");
    SH("umount home/project");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, repo_setup, repo_teardown)
    const struct CMUnitTest tests[] = {
        T(saved),          T(save_on_main),      T(save_detached),
        T(save_merging),   T(save_refused),      T(save_others),
        T(save_submodule), T(save_huge),         T(save_bare),
        T(export_broken),  T(save_many),         T(save_disk_full),
        T(exported),       T(exported_detached),
    };
    int r;

    git_init();
    r = cmocka_run_group_tests(tests, NULL, NULL);
    git_exit();
    return r;
}
