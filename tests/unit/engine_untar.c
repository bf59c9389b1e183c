/* archives from a VM: those of the real tar, cut anywhere, and made-up ones */
#include "engine/untar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

static void tar_of(struct buf *out, const char *format)
{
    AUTO_FREE char *cmd = xasprintf(
        "d=$(mktemp -d) && cd \"$d\" && mkdir sub && printf one >a && "
        ": >empty && head -c 512 /dev/zero >block && printf two >sub/b && "
        "ln -s a soft && ln a hard && n=$(printf '%%060d/%%090d' 7 8) && "
        "mkdir $(dirname $n) && printf long >$n && "
        "tar --create --file=- --format=%s --no-recursion --hard-dereference "
        "-- a empty block sub sub/b soft hard $n; rm -r \"$d\"",
        format);
    char b[4096];
    int fds[2], status;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (!pid) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        execl("/bin/sh", "sh", "-c", cmd, NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    close(fds[1]);
    while ((n = read(fds[0], b, sizeof(b))) > 0)
        buf_add(out, b, (size_t)n);
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void read_all(const struct buf *tar, struct buf *out, int *end)
{
    struct untar u;
    const char *name, *p;
    size_t n;

    untar_begin(&u, buf_str(tar), tar->n);
    while ((*end = untar_next(&u, &name, &p, &n)) > 0)
        buf_addf(out, "%s=%.*s(%zu) ", strlen(name) > 100 ? "LONG" : name,
                 *p ? (int)n : 0, p, n);
    untar_end(&u);
}

static void real(void **state)
{
    static const char *const formats[] = {"gnu", "ustar"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        AUTO_BUF struct buf tar = {0}, out = {0};
        int end;

        tar_of(&tar, formats[i]);
        read_all(&tar, &out, &end);
        assert_int_equal(end, 0);
        assert_string_equal(buf_str(&out),
                            "a=one(3) empty=(0) block=(512) sub/b=two(3) "
                            "hard=one(3) LONG=long(4) ");
    }
}

static void cut(void **state)
{
    AUTO_BUF struct buf tar = {0};

    (void)state;
    tar_of(&tar, "gnu");
    for (size_t n = 0; n < tar.n; n += 37) {
        AUTO_BUF struct buf part = {0}, out = {0};
        int end;

        buf_add(&part, tar.p, n);
        read_all(&part, &out, &end);
        assert_true(end == 0 || end == -EPROTO);
    }
}

static void hostile(void **state)
{
    static const char *const sizes[] = {"77777777777", "-1", "9", "\x80\xff",
                                        "12x"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        AUTO_BUF struct buf tar = {0}, out = {0};
        char block[512] = "name";
        int end;

        memcpy(block + 124, sizes[i], strlen(sizes[i]));
        block[156] = '0';
        buf_add(&tar, block, sizeof(block));
        read_all(&tar, &out, &end);
        assert_int_equal(end, -EPROTO);
        assert_int_equal(out.n, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real),
        cmocka_unit_test(cut),
        cmocka_unit_test(hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
