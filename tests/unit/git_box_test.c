/*
 * The scripts in a real sandbox of the local host, on a repository of this
 * machine that is bound read-only: clone, work, save, export, and the bundle
 * taken in outside. Skipped where the host isn't built or can't run.
 */
#include "tests/unit/git_util.h"

#include <jansson.h>
#include <libgen.h>
#include <limits.h>

#include "e2b/e2b.h"

static int host_pid;
static char data[80];
static struct e2b *x;
static struct e2b_box box;
static struct e2b_target target;

static char *host_program(void)
{
    const char *bin = getenv("BIN");
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (bin)
        return xasprintf("%s/courier-sandboxd", bin);
    self[n < 0 ? 0 : n] = 0;
    return xasprintf("%s/courier-sandboxd", dirname(dirname(self)));
}

static void read_pid(void)
{
    AUTO_FREE char *path = xasprintf("%s/host.json", data);
    AUTO_BUF struct buf b = {0};
    json_t *j;

    for (int i = 0; i < 100 && file_read(path, 65536, &b); i++)
        sleep_ms(50);
    j = json_loadb(buf_str(&b), b.n, 0, NULL);
    host_pid = (int)json_integer_value(json_object_get(j, "pid"));
    json_decref(j);
}

static bool make_box(void)
{
    AUTO_FREE char *sock = xasprintf("%s/host.sock", data);
    AUTO_FREE char *binds = xasprintf("[\"%s/r\"]", tmp);
    struct e2b_pair meta = {"courier.bind", binds};
    struct e2b_config c = {.unix_socket = sock};
    struct e2b_create make = {.template_id = "base",
                              .timeout = 60,
                              .metadata = &meta,
                              .n_metadata = 1};
    struct err e;

    assert_int_equal(e2b_open(&c, &x, &e), 0);
    if (e2b_create(x, &make, 20000, NULL, &box, &e)) {
        printf("skipped: %s\n", e.text);
        return false;
    }
    target = (struct e2b_target){
        .x = x, .id = box.id, .token = box.token, .domain = box.domain};
    return true;
}

static int setup(void **state)
{
    AUTO_FREE char *program = host_program();
    AUTO_FREE char *cmd = NULL;
    int r = tmp_setup(state);

    if (r || access(program, X_OK))
        return r;
    SH("git init -q r && cd r && echo one >a && git add . && "
       "git commit -qm first");
    snprintf(data, sizeof(data), "%s/host", tmp);
    cmd = xasprintf("%s --data %s --idle 30 >/dev/null", program, data);
    free(run_shell("sh", cmd, false));
    if (sh_status)
        return 0;
    read_pid();
    if (make_box())
        *state = &box;
    return 0;
}

static int teardown(void **state)
{
    struct err e;

    if (*state)
        e2b_kill(x, box.id, &e);
    e2b_box_clear(&box);
    if (x)
        e2b_close(x);
    if (host_pid > 1) {
        kill(host_pid, SIGTERM);
        for (int i = 0; i < 100 && !kill(host_pid, 0); i++)
            sleep_ms(50);
    }
    return tmp_teardown(state);
}

/* runs a script in the box, as the engine does; its output, owned */
static char *in_box(char *script, int want)
{
    const char *const argv[] = {"/bin/bash", "-c", script, NULL};
    struct e2b_run run = {.argv = argv, .limit_ms = 30000};
    struct e2b_result res = {0};
    struct err e = {0};
    char *out;

    if (e2b_exec(&target, &run, &res, &e))
        fail_msg("%s", e.text);
    out = xmemdup0(res.out.p, res.out.n);
    if (res.exit_code != want)
        fail_msg("exit %d: %s%s", res.exit_code, out, buf_str(&res.err));
    e2b_result_clear(&res);
    free(script);
    return out;
}

static void home_and_back(void **state)
{
    AUTO_FREE char *r = at("r");
    AUTO_FREE char *bundle = at("b");
    struct git_setup s = {.repo = r,
                          .branch = "courier/x",
                          .user_name = "Ann",
                          .user_email = "ann@x.org",
                          .dir = "/home/user/project"};
    AUTO_BUF struct buf b = {0};
    struct err e = {0};
    char sha[41];
    char *out;
    int fd;

    if (!*state)
        skip();
    out = in_box(git_script_clone(&s), 0);
    assert_non_null(strstr(out, "\tcourier/x\n"));
    free(out);
    free(in_box(xstrdup("cd project && git status && echo two >a && "
                        "git fetch && git log -1"),
                0));
    out = in_box(git_script_save("/home/user", "courier/x", NULL, "saved",
                                 false, false),
                 0);
    if (!strstr(out, "/project\tcommit-only\tcourier/x "))
        fail_msg("%s", out);
    free(out);
    /* a push to what is bound read-only fails, and says so */
    out = in_box(
        git_script_save("/home/user", "courier/x", NULL, "saved", true, false),
        0);
    assert_non_null(strstr(out, "\tfailed\t"));
    free(out);
    out = in_box(git_script_export("/home/user/project", "courier/x", NULL,
                                   "/tmp/out", 1 << 20),
                 0);
    assert_non_null(strstr(out, "commits.bundle\t"));
    free(out);
    assert_int_equal(
        e2b_read(&target, "/tmp/out/commits.bundle", 0, -1, &b, NULL, &e), 0);
    fd = open(bundle, O_WRONLY | O_CREAT, 0600);
    fd_write_all(fd, b.p, b.n);
    close(fd);
    if (git_bundle_apply(bundle, r, "courier/x", sha, &e))
        fail_msg("%s", e.text);
    check_sh("saved\nfirst", "git -C r log --format=%s courier/x");
    check_sh("", "git -C r status --porcelain");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(home_and_back, setup, teardown),
    };
    int r;

    git_init();
    r = cmocka_run_group_tests(tests, NULL, NULL);
    git_exit();
    return r;
}
