/*
 * git_util: what the tests of git/ share: a temporary directory, a shell in
 * it, a server of tests/git beside it. Included once a program.
 */
#ifndef TESTS_GIT_UTIL_H
#define TESTS_GIT_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "git/git.h"

static char tmp[64];
static int sh_status;

/* runs text with SHELL in tmp, HOME there; what it printed, owned */
static char *run_shell(const char *shell, const char *text, bool with_err)
{
    struct buf out = {0};
    char p[4096];
    ssize_t n;
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (!pid) {
        AUTO_FREE char *home = xasprintf("%s/home", tmp);

        dup2(fds[1], 1);
        if (with_err)
            dup2(fds[1], 2);
        close(fds[0]);
        close(fds[1]);
        setenv("HOME", home, 1);
        setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
        unsetenv("XDG_CONFIG_HOME");
        if (chdir(tmp))
            _exit(99);
        execlp(shell, shell, "-c", text, (char *)NULL);
        _exit(98);
    }
    close(fds[1]);
    while ((n = read(fds[0], p, sizeof(p))) > 0)
        buf_add(&out, p, (size_t)n);
    close(fds[0]);
    waitpid(pid, &status, 0);
    sh_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return buf_take(&out);
}

/* must succeed; its output without the last newline */
static char *sh(const char *fmt, ...)
{
    AUTO_BUF struct buf b = {0};
    va_list ap;
    char *out;
    size_t n;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    out = run_shell("bash", b.p, false);
    if (sh_status)
        fail_msg("%s: exit %d: %s", b.p, sh_status, out);
    n = strlen(out);
    if (n && out[n - 1] == '\n')
        out[n - 1] = 0;
    return out;
}
#define SH(...) free(sh(__VA_ARGS__))

static void check_sh(const char *want, const char *command)
{
    AUTO_FREE char *got = sh("%s", command);

    assert_string_equal(got, want);
}

static int tmp_setup(void **state)
{
    (void)state;
    snprintf(tmp, sizeof(tmp), "/tmp/courier-git-XXXXXX");
    if (!mkdtemp(tmp))
        return -1;
    chmod(tmp, 0755);
    SH("mkdir home && git config --global user.name Tester && "
       "git config --global user.email t@example.org && "
       "git config --global init.defaultBranch main && "
       "git config --global push.default current && "
       "git config --global advice.detachedHead false");
    return 0;
}

static int tmp_teardown(void **state)
{
    char *s;

    (void)state;
    s = xasprintf("umount %s/home/project 2>/dev/null; rm -rf -- %s", tmp,
                  tmp);
    free(run_shell("sh", s, false));
    free(s);
    return 0;
}

static char *at(const char *rel)
{
    return xasprintf("%s/%s", tmp, rel);
}

/* a server of tests/git: its URL, owned; ends when *in is closed */
static inline char *serve(int *in, pid_t *pid, const char *script,
                          const char *a, const char *b, const char *c,
                          const char *d)
{
    int to[2], from[2];
    char url[200];
    size_t n = 0;

    if (access(script, R_OK))
        return NULL;
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    *pid = fork();
    if (!*pid) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execlp("python3", "python3", script, "--until-eof", a, b, c, d,
               (char *)NULL);
        _exit(98);
    }
    close(to[0]);
    close(from[1]);
    while (n < sizeof(url) - 1 && read(from[0], url + n, 1) == 1 &&
           url[n] != '\n')
        n++;
    close(from[0]);
    *in = to[1];
    return n ? xmemdup0(url, n) : NULL;
}

static inline void serve_end(int in, pid_t pid)
{
    int status;

    close(in);
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
}

#endif
