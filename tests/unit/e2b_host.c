/*
 * The client against the real local host: BIN/courier-sandboxd (BIN: beside
 * this program's directory if not set) started in a directory of its own.
 * Skipped where the host isn't built or can't run sandboxes.
 */
#include "base/text.h"
#include "e2b/e2b.h"

#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64] = "/var/tmp/courier-e2b-XXXXXX";
static int host_pid;
static struct e2b *x;
static struct e2b_box box;
static struct e2b_target t;

/* runs argv and waits; its exit code */
static int spawn(const char *const *argv)
{
    pid_t pid = fork();
    int st;

    if (!pid) {
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    return waitpid(pid, &st, 0) == pid && WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

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

static void host_wait(void)
{
    AUTO_FREE char *path = xasprintf("%s/host.json", dir);
    AUTO_BUF struct buf b = {0};
    json_t *j;

    for (int i = 0; i < 100 && file_read(path, 65536, &b); i++)
        sleep_ms(50);
    j = json_loadb(buf_str(&b), b.n, 0, NULL);
    host_pid = (int)json_integer_value(json_object_get(j, "pid"));
    json_decref(j);
}

static int setup(void **state)
{
    AUTO_FREE char *program = host_program();
    AUTO_FREE char *sock = NULL;
    struct e2b_config c = {0};
    struct e2b_create make = {
        .template_id = "base", .timeout = 120, .internet = false};
    struct err e;

    (void)state;
    if (access(program, X_OK) || !mkdtemp(dir)) {
        printf("skipped: no %s\n", program);
        return 0;
    }
    if (spawn((const char *[]){program, "--data", dir, "--idle", "30", NULL}))
        return 0;
    host_wait();
    sock = xasprintf("%s/host.sock", dir);
    c.unix_socket = sock;
    assert_int_equal(e2b_open(&c, &x, &e), 0);
    if (e2b_create(x, &make, 20000, NULL, &box, &e)) {
        printf("skipped: %s\n", e.text);
        return 0;
    }
    t = (struct e2b_target){
        .x = x, .id = box.id, .token = box.token, .domain = box.domain};
    return 0;
}

static int teardown(void **state)
{
    AUTO_FREE char *id = xstrdup(box.id);
    struct err e;

    (void)state;
    if (id && e2b_kill(x, id, &e))
        printf("%s\n", e.text);
    e2b_box_clear(&box);
    e2b_close(x);
    x = NULL;
    if (host_pid > 1) {
        kill(host_pid, SIGTERM);
        for (int i = 0; i < 100 && !kill(host_pid, 0); i++)
            sleep_ms(50);
    }
    spawn((const char *[]){"/bin/rm", "-rf", dir, NULL});
    return 0;
}

#define NEEDS_BOX()                                                           \
    do {                                                                      \
        (void)state;                                                          \
        if (!t.id)                                                            \
            skip();                                                           \
    } while (0)

/* success, or the words that say why not */
static void good(int rc, const struct err *e)
{
    if (rc)
        print_error("%s\n", e->text);
    assert_int_equal(rc, 0);
}

static int sh(const char *cmd, struct e2b_result *r, struct err *e)
{
    struct e2b_run c = {.cmd = cmd, .limit_ms = 20000};

    return e2b_exec(&t, &c, r, e);
}

static void test_life(void **state)
{
    struct e2b_box b, *v;
    struct err e;
    size_t n;

    NEEDS_BOX();
    good(e2b_get(x, t.id, &b, &e), &e);
    assert_int_equal(b.state, E2B_RUNNING);
    assert_true(b.end_ms > now_ms() + 100000);
    e2b_box_clear(&b);
    good(e2b_list(x, NULL, NULL, &v, &n, &e), &e);
    assert_int_equal(n, 1);
    assert_string_equal(v[0].id, t.id);
    e2b_box_clear(&v[0]);
    free(v);
    good(e2b_health(&t, &e), &e);
    good(e2b_timeout(x, t.id, 500, &e), &e);
    good(e2b_connect(x, t.id, 60, &b, &e), &e);
    assert_string_equal(b.id, t.id);
    e2b_box_clear(&b);
    good(e2b_get(x, t.id, &b, &e), &e);
    assert_true(b.end_ms > now_ms() + 400000); /* not shortened */
    e2b_box_clear(&b);
    assert_int_equal(e2b_get(x, "i00000000000000000000", &b, &e), -ENOENT);
}

static void test_exec(void **state)
{
    struct e2b_result r;
    struct err e;

    NEEDS_BOX();
    assert_int_equal(sh("echo out; echo err >&2; exit 7", &r, &e), 0);
    assert_string_equal(buf_str(&r.out), "out\n");
    assert_string_equal(buf_str(&r.err), "err\n");
    assert_int_equal(r.exit_code, 7);
    e2b_result_clear(&r);
    good(sh("kill -9 $$", &r, &e), &e);
    assert_int_equal(r.exit_code, 137);
    e2b_result_clear(&r);
    good(sh("head -c 3000000 /dev/zero | tr '\\0' x", &r, &e), &e);
    assert_int_equal(r.out.n, 1 << 20); /* the rest was dropped */
    e2b_result_clear(&r);
}

/* more than every pipe holds, both ways at once */
static void test_exec_stdin(void **state)
{
    size_t n = 1 << 20;
    AUTO_FREE char *data = xmalloc(n);
    struct e2b_run c = {.cmd = "cat",
                        .stdin_data = data,
                        .stdin_len = n,
                        .limit_ms = 20000,
                        .max_out = n * 2};
    struct e2b_result r;
    struct err e;

    NEEDS_BOX();
    for (size_t i = 0; i < n; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    good(e2b_exec(&t, &c, &r, &e), &e);
    assert_int_equal(r.out.n, n);
    assert_memory_equal(r.out.p, data, n);
    e2b_result_clear(&r);
    /* one that doesn't read, and ends */
    c.cmd = "exit 3";
    good(e2b_exec(&t, &c, &r, &e), &e);
    assert_int_equal(r.exit_code, 3);
    e2b_result_clear(&r);
    c.stdin_len = 0;
    c.cmd = "wc -c";
    good(e2b_exec(&t, &c, &r, &e), &e);
    assert_int_equal(strtol(buf_str(&r.out), NULL, 10), 0);
    e2b_result_clear(&r);
}

static void test_exec_limit(void **state)
{
    struct e2b_run c = {.cmd = "sleep 61.5 & sleep 61.5 & echo $!; wait",
                        .limit_ms = 400};
    struct e2b_result r;
    struct err e;

    NEEDS_BOX();
    assert_int_equal(e2b_exec(&t, &c, &r, &e), -ETIMEDOUT);
    assert_non_null(strstr(e.text, "longer than"));
    assert_true(r.out.n > 1);
    e2b_result_clear(&r);
    good(sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' |"
            " grep -c 'sleep 61[.]5'",
            &r, &e),
         &e);
    assert_string_equal(buf_str(&r.out), "0\n");
    e2b_result_clear(&r);
}

static void test_files(void **state)
{
    AUTO_BUF struct buf b = {0};
    struct e2b_entry v, *list;
    int64_t total;
    struct err e;
    size_t n;

    NEEDS_BOX();
    good(e2b_write(&t, "d/ä b\n", "0123456789", 10, NULL, &e), &e);
    good(e2b_read(&t, "d/ä b\n", 0, -1, &b, &total, &e), &e);
    assert_string_equal(b.p, "0123456789");
    buf_clear(&b);
    good(e2b_read(&t, "d/ä b\n", 3, 4, &b, &total, &e), &e);
    assert_string_equal(b.p, "3456");
    assert_int_equal(total, 10);
    buf_clear(&b);
    good(e2b_read(&t, "d/ä b\n", 10, 4, &b, &total, &e), &e);
    assert_int_equal(b.n, 0);
    assert_int_equal(total, 10);
    good(e2b_stat(&t, "d/ä b\n", &v, &e), &e);
    assert_int_equal(v.size, 10);
    assert_int_equal(v.type, 'f');
    assert_string_equal(v.name, "ä b\n");
    e2b_entry_clear(&v);
    good(e2b_mkdir(&t, "d/sub/deep", &e), &e);
    good(e2b_mkdir(&t, "d/sub/deep", &e), &e);
    good(e2b_ls(&t, "d", 1, &list, &n, &e), &e);
    assert_int_equal(n, 2);
    e2b_entries_free(list, n);
    good(e2b_move(&t, "d/ä b\n", "d/c", &e), &e);
    assert_int_equal(e2b_stat(&t, "d/ä b\n", &v, &e), -ENOENT);
    good(e2b_remove(&t, "d", &e), &e);
    good(e2b_remove(&t, "d", &e), &e);
    assert_int_equal(e2b_read(&t, "d/c", 0, -1, &b, NULL, &e), -ENOENT);
    good(e2b_write(&t, "empty", "", 0, NULL, &e), &e);
    good(e2b_read(&t, "empty", 0, 10, &b, &total, &e), &e);
    assert_int_equal(total, 0);
}

static void test_big_file(void **state)
{
    AUTO_BUF struct buf b = {0}, back = {0};
    char path[] = "/var/tmp/courier-e2b-file-XXXXXX";
    AUTO_CLOSE int fd = -1;
    struct err e;

    NEEDS_BOX();
    fd = mkstemp(path);
    unlink(path);
    for (int i = 0; b.n < 5000000; i++)
        buf_addf(&b, "%d\n", i * 7919);
    fd_write_all(fd, b.p, b.n);
    lseek(fd, 0, SEEK_SET);
    good(e2b_write_fd(&t, "/home/user/big", fd, &e), &e);
    good(e2b_read(&t, "/home/user/big", 0, -1, &back, NULL, &e), &e);
    assert_int_equal(back.n, b.n);
    assert_memory_equal(back.p, b.p, b.n);
}

/* ---- streams ---- */

struct seen {
    struct buf out;
    sem_t end, data;
    int code, exit_code;
    bool pause;
};

static bool on_data(void *arg, int fd, const char *p, size_t n)
{
    struct seen *s = arg;

    (void)fd;
    buf_add(&s->out, p, n);
    sem_post(&s->data);
    return !s->pause;
}

static void on_end(void *arg, int code, int exit_code, const struct err *e)
{
    struct seen *s = arg;

    (void)e;
    s->code = code;
    s->exit_code = exit_code;
    sem_post(&s->end);
}

static const struct e2b_stream_ops ops = {on_data, on_end};

static void test_pump(void **state)
{
    struct e2b_pump *p;
    struct seen v[20];
    struct e2b_stream *s[20];
    struct e2b_run c = {
        .cmd = "seq 1 20000; exec cat", .stdin_data = "end\n", .stdin_len = 4};
    AUTO_BUF struct buf want = {0};

    NEEDS_BOX();
    for (int i = 1; i <= 20000; i++)
        buf_addf(&want, "%d\n", i);
    buf_adds(&want, "end\n");
    p = e2b_pump_start();
    for (int i = 0; i < 20; i++) {
        memset(&v[i], 0, sizeof(v[i]));
        sem_init(&v[i].end, 0, 0);
        sem_init(&v[i].data, 0, 0);
        v[i].pause = i == 3;
        s[i] = e2b_stream_start(p, &t, &c, &ops, &v[i]);
    }
    for (int i = 0; i < 20; i++) {
        bool whole = false;

        while (v[i].pause && sem_trywait(&v[i].end)) {
            sem_wait(&v[i].data);
            whole = v[i].out.n == want.n;
            e2b_stream_resume(s[i]);
            if (whole)
                break;
        }
        sem_wait(&v[i].end);
        assert_int_equal(v[i].code, 0);
        assert_int_equal(v[i].out.n, want.n);
        assert_memory_equal(v[i].out.p, want.p, want.n);
        buf_free(&v[i].out);
    }
    e2b_pump_stop(p);
}

/* one endpoint, many threads */
static void *worker(void *arg)
{
    AUTO_FREE char *path = xasprintf("worker-%d", *(int *)arg);
    int wrong = 0;

    for (int i = 0; i < 10; i++) {
        AUTO_BUF struct buf b = {0};
        AUTO_FREE char *text = xasprintf("%s %d", path, i);
        AUTO_FREE char *cmd = xasprintf("cat %s", path);
        struct e2b_result r;

        wrong += e2b_write(&t, path, text, strlen(text), NULL, NULL) != 0;
        wrong += e2b_read(&t, path, 0, -1, &b, NULL, NULL) != 0;
        wrong += strcmp(buf_str(&b), text) != 0;
        wrong += sh(cmd, &r, NULL) != 0;
        wrong += strcmp(buf_str(&r.out), text) != 0;
        e2b_result_clear(&r);
    }
    *(int *)arg = wrong;
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t th[8];
    int arg[8];

    NEEDS_BOX();
    for (int i = 0; i < 8; i++) {
        arg[i] = i;
        pthread_create(&th[i], NULL, worker, &arg[i]);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(th[i], NULL);
        assert_int_equal(arg[i], 0);
    }
}

static void test_pause(void **state)
{
    struct e2b_box b;
    struct e2b_result r;
    struct err e;

    NEEDS_BOX();
    good(e2b_pause(x, t.id, &e), &e);
    good(e2b_pause(x, t.id, &e), &e);
    good(e2b_get(x, t.id, &b, &e), &e);
    assert_int_equal(b.state, E2B_PAUSED);
    e2b_box_clear(&b);
    good(e2b_connect(x, t.id, 100, &b, &e), &e);
    assert_int_equal(b.state, E2B_RUNNING);
    e2b_box_clear(&b);
    good(sh("echo again", &r, &e), &e);
    assert_string_equal(buf_str(&r.out), "again\n");
    e2b_result_clear(&r);
}

static void test_wrong_token(void **state)
{
    struct e2b_target bad = t;
    struct e2b_entry v;
    struct err e;

    NEEDS_BOX();
    bad.token = "wrong";
    assert_int_equal(e2b_stat(&bad, "/", &v, &e), -EACCES);
    bad.id = "i00000000000000000000";
    assert_int_equal(e2b_health(&bad, &e), -EHOSTDOWN);
}

static void test_logs(void **state)
{
    AUTO_BUF struct buf b = {0};
    struct err e;

    NEEDS_BOX();
    good(e2b_logs(x, t.id, &b, &e), &e);
    good(e2b_api_get(x, "/limits", &b, &e), &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),       cmocka_unit_test(test_exec),
        cmocka_unit_test(test_exec_stdin), cmocka_unit_test(test_exec_limit),
        cmocka_unit_test(test_files),      cmocka_unit_test(test_big_file),
        cmocka_unit_test(test_pump),       cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_logs),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_pause),
    };

    e2b_init();
    return cmocka_run_group_tests(tests, setup, teardown);
}
