/* vault: what is sealed opens only under its label and key; the key file */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vault/vault.h"

static char dir[64], path[96], path_new[128];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/courier-vault-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/key", dir);
    snprintf(path_new, sizeof(path_new), "%s.new", path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    unlink(path_new);
    return rmdir(dir);
}

static void seal(struct vault *v, const char *label, const char *s,
                 struct buf *out)
{
    struct err e;

    assert_int_equal(vault_seal(v, label, s, strlen(s), out, &e), 0);
}

static void opens_as(struct vault *v, const char *label, const struct buf *b,
                     const char *want)
{
    struct err e = {0};
    char *plain;
    size_t n;
    int r = vault_unseal(v, label, b->p, b->n, &plain, &n, &e);

    if (!want) {
        assert_int_equal(r, -EBADMSG);
        assert_null(plain);
        return;
    }
    assert_int_equal(r, 0);
    assert_int_equal(n, strlen(want));
    assert_string_equal(plain, want);
    vault_free(plain);
}

static void round_trip(void **state)
{
    AUTO_BUF struct buf b = {0};
    struct vault *v;
    struct err e;
    struct stat st;

    (void)state;
    assert_int_equal(vault_open(path, NULL, &v, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    seal(v, "key/1/anthropic", "sk-ant-secret", &b);
    assert_null(memmem(b.p, b.n, "secret", 6));
    opens_as(v, "key/1/anthropic", &b, "sk-ant-secret");
    opens_as(v, "key/2/anthropic", &b, NULL);
    vault_close(v);
    assert_int_equal(vault_open(path, NULL, &v, &e), 0);
    opens_as(v, "key/1/anthropic", &b, "sk-ant-secret");
    for (size_t i = 0; i < b.n; i++) {
        b.p[i] ^= 1;
        opens_as(v, "key/1/anthropic", &b, NULL);
        b.p[i] ^= 1;
    }
    for (size_t n = b.n; n-- > 0;) {
        b.n = n;
        opens_as(v, "key/1/anthropic", &b, NULL);
    }
    buf_clear(&b);
    seal(v, "empty", "", &b);
    opens_as(v, "empty", &b, "");
    vault_close(v);
}

static void passphrase(void **state)
{
    AUTO_BUF struct buf b = {0};
    struct vault *v;
    struct err e;

    (void)state;
    assert_int_equal(vault_open(path, "correct horse", &v, &e), 0);
    seal(v, "x", "value", &b);
    vault_close(v);
    assert_int_equal(vault_open(path, "wrong", &v, &e), -EACCES);
    assert_string_equal(e.text, "the passphrase is wrong");
    assert_int_equal(vault_open(path, NULL, &v, &e), -EACCES);
    assert_int_equal(vault_open(path, "", &v, &e), -EINVAL);
    assert_int_equal(vault_open(path, "correct horse", &v, &e), 0);
    opens_as(v, "x", &b, "value");
    vault_close(v);
}

static void bad_files(void **state)
{
    struct vault *v;
    struct err e;
    int fd;

    (void)state;
    assert_int_equal(vault_open(path, NULL, &v, &e), 0);
    vault_close(v);
    assert_int_equal(vault_open(path, "p", &v, &e), -EACCES);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(vault_open(path, NULL, &v, &e), -EACCES);
    assert_int_equal(chmod(path, 0600), 0);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 40), 1);
    assert_int_equal(vault_open(path, NULL, &v, &e), -EINVAL);
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    assert_int_equal(vault_open(path, NULL, &v, &e), -EINVAL);
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(vault_open(path, NULL, &v, &e), -ELOOP);
}

static void rotation(void **state)
{
    AUTO_BUF struct buf old = {0}, neu = {0};
    struct vault *v, *f;
    struct err e;

    (void)state;
    assert_int_equal(vault_open(path, NULL, &v, &e), 0);
    seal(v, "x", "value", &old);
    /* dropped */
    assert_int_equal(vault_rotate_begin(v, "pass", &f, &e), 0);
    vault_close(f);
    assert_int_not_equal(access(path_new, F_OK), 0);
    opens_as(v, "x", &old, "value");
    /* committed, with a passphrase from now on */
    assert_int_equal(vault_rotate_begin(v, "pass", &f, &e), 0);
    seal(f, "x", "value", &neu);
    opens_as(f, "x", &old, NULL);
    assert_int_equal(vault_rotate_commit(v, f, &e), 0);
    vault_close(f);
    opens_as(v, "x", &neu, "value");
    vault_close(v);
    assert_int_equal(vault_open(path, NULL, &v, &e), -EACCES);
    assert_int_equal(vault_open(path, "pass", &v, &e), 0);
    opens_as(v, "x", &neu, "value");
    opens_as(v, "x", &old, NULL);
    vault_close(v);
}

/* killed between the caller's transaction and the commit, or before */
static void rotation_cut(void **state)
{
    AUTO_BUF struct buf old = {0}, neu = {0};
    struct vault *v, *f;
    struct err e;
    pid_t pid;
    char p[64];
    size_t n;
    int fds[2];

    (void)state;
    assert_int_equal(vault_open(path, NULL, &v, &e), 0);
    seal(v, "x", "value", &old);
    vault_close(v);
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (!pid) {
        if (vault_open(path, NULL, &v, &e) ||
            vault_rotate_begin(v, NULL, &f, &e) ||
            vault_seal(f, "x", "value", 5, &neu, &e))
            _exit(1);
        _exit(fd_write_all(fds[1], neu.p, neu.n) ? 1 : 0);
    }
    close(fds[1]);
    n = (size_t)read(fds[0], p, sizeof(p));
    close(fds[0]);
    buf_add(&neu, p, n);
    assert_int_equal(access(path_new, F_OK), 0);
    assert_int_equal(vault_open(path, NULL, &v, &e), 0);
    opens_as(v, "x", &old, "value");
    assert_int_equal(access(path_new, F_OK), 0);
    opens_as(v, "x", &neu, "value"); /* it had been committed */
    assert_int_not_equal(access(path_new, F_OK), 0);
    vault_close(v);
    assert_int_equal(vault_open(path, NULL, &v, &e), 0);
    opens_as(v, "x", &neu, "value");
    opens_as(v, "x", &old, NULL);
    vault_close(v);
}

static void hints(void **state)
{
    char h[16];
    char *p;

    (void)state;
    vault_hint("sk-short", 8, h);
    assert_string_equal(h, "****");
    vault_hint("sk-ant-longer-abcd", 18, h);
    assert_string_equal(h, "****abcd");
    vault_hint("sk-ant-longer\n\xff", 15, h);
    assert_string_equal(h, "****er??");
    p = vault_dup("a\0b", 3);
    assert_memory_equal(p, "a\0b", 4);
    vault_free(p);
    vault_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(passphrase, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_files, setup, teardown),
        cmocka_unit_test_setup_teardown(rotation, setup, teardown),
        cmocka_unit_test_setup_teardown(rotation_cut, setup, teardown),
        cmocka_unit_test(hints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
