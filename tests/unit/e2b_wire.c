/* the client against a scripted server: what is repeated, what is not, and
 * what broken answers become */
#include "base/text.h"
#include "e2b/e2b.h"
#include "e2b/envelope.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the server: one thread, one request a connection ---- */

struct step {
    const char *want;   /* the request begins so */
    const char *answer; /* all of it; NULL: the line is dropped */
    size_t n;           /* bytes of answer, 0: strlen */
    int hold_ms;        /* before it answers */
    bool stuck;         /* after it answers the line stays open */
};

static struct {
    int listener, port;
    pthread_t thread;
    const struct step *steps;
    int n, at, wrong;
    struct buf last; /* the last request whole */
    int stuck_fd;
} server;

static bool request_read(int fd, struct buf *b)
{
    char *end = NULL, *len;
    size_t want = 0;
    ssize_t r;

    buf_clear(b);
    do {
        buf_reserve(b, 65536);
        r = read(fd, b->p + b->n, 65536);
        if (r <= 0)
            return false;
        b->n += (size_t)r;
        b->p[b->n] = 0;
        if (!end && (end = strstr(b->p, "\r\n\r\n"))) {
            len = strcasestr(b->p, "\r\nContent-Length:");
            want = (size_t)(end - b->p) + 4 +
                   (len ? strtoul(len + 17, NULL, 10) : 0);
        }
    } while (!end || b->n < want);
    return true;
}

static void *server_main(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(server.listener, NULL, NULL);
        const struct step *s;

        if (fd < 0)
            return NULL;
        if (!request_read(fd, &server.last)) {
            close(fd);
            continue;
        }
        s = server.at < server.n ? &server.steps[server.at] : NULL;
        server.at++;
        if (!s || strncmp(server.last.p, s->want, strlen(s->want)) != 0) {
            fprintf(stderr, "step %d: %.60s\n", server.at, server.last.p);
            server.wrong++;
            close(fd);
            continue;
        }
        if (s->hold_ms)
            sleep_ms(s->hold_ms);
        if (s->answer)
            fd_write_all(fd, s->answer, s->n ? s->n : strlen(s->answer));
        if (s->stuck)
            server.stuck_fd = fd;
        else
            close(fd);
    }
}

static void server_start(const struct step *steps, int n)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof(a);

    memset(&server, 0, sizeof(server));
    server.steps = steps;
    server.n = n;
    server.stuck_fd = -1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(server.listener, 16), 0);
    getsockname(server.listener, (struct sockaddr *)&a, &len);
    server.port = ntohs(a.sin_port);
    pthread_create(&server.thread, NULL, server_main, NULL);
}

static void server_stop(void)
{
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    if (server.stuck_fd >= 0)
        close(server.stuck_fd);
    buf_free(&server.last);
    assert_int_equal(server.wrong, 0);
    assert_int_equal(server.at, server.n);
}

static struct e2b *client(void)
{
    AUTO_FREE char *url = xasprintf("http://127.0.0.1:%d", server.port);
    struct e2b_config c = {
        .api_url = url, .sandbox_url = url, .key = "e2b_0123"};
    struct e2b *x;

    assert_int_equal(e2b_open(&c, &x, NULL), 0);
    return x;
}

#define START(steps) server_start(steps, ARRAY_LEN(steps))
#define HEAD(status, type)                                                    \
    "HTTP/1.1 " status "\r\nContent-Type: " type "\r\nConnection: close\r\n"
#define JSON(status, body) HEAD(status, "application/json") "\r\n" body

/* ---- control plane ---- */

static int make(struct e2b *x, struct e2b_cancel *cancel, int limit_ms,
                struct e2b_box *b, struct err *e)
{
    struct e2b_pair m = {"courier", "x y"};
    struct e2b_create c = {.template_id = "base",
                           .timeout = 300,
                           .metadata = &m,
                           .n_metadata = 1};

    return e2b_create(x, &c, limit_ms, cancel, b, e);
}

#define SANDBOX                                                               \
    JSON("201 Created", "{\"sandboxID\":\"iabc\",\"templateID\":\"base\","    \
                        "\"clientID\":\"c\",\"envdVersion\":\"0.6.13\","      \
                        "\"envdAccessToken\":\"tok\"}")

static void test_create(void **state)
{
    static const struct step steps[] = {
        {.want = "POST /sandboxes ", .answer = SANDBOX}};
    struct e2b_box b;
    struct e2b *x;

    (void)state;
    START(steps);
    x = client();
    assert_int_equal(make(x, NULL, 5000, &b, NULL), 0);
    assert_string_equal(b.id, "iabc");
    assert_string_equal(b.token, "tok");
    assert_non_null(strstr(server.last.p, "X-API-KEY: e2b_0123\r\n"));
    assert_non_null(strstr(server.last.p, "\"secure\":true"));
    assert_non_null(strstr(server.last.p, "\"timeout\":300"));
    assert_non_null(strstr(server.last.p, "\"courier\":\"x y\""));
    assert_non_null(strstr(server.last.p, "User-Agent: courier/"));
    e2b_box_clear(&b);
    e2b_close(x);
    server_stop();
}

/* one request, whatever unclear thing comes back */
static void test_create_unclear(void **state)
{
    static const char *const answers[] = {
        NULL,
        JSON("500 Oops", "{\"code\":500,\"message\":\"failed\"}"),
        HEAD("502 Bad Gateway", "text/html") "\r\n<h1>502</h1>",
        JSON("504 Late", "upstream request timeout"),
        JSON("201 Created", "{\"sandboxID\":\"ia"),
        HEAD("201 Created", "text/plain") "Content-Length: 99\r\n\r\nhalf",
        JSON("200 OK", ""),
        "HTTP/1.1 201 Created\r\nContent-",
        "HTTP/1.1 404 No\r\n",
    };
    struct e2b_box b;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct step step = {.want = "POST /sandboxes ", .answer = answers[i]};
        struct e2b *x;

        server_start(&step, 1);
        x = client();
        assert_int_equal(make(x, NULL, 5000, &b, &e), -EINPROGRESS);
        assert_int_equal(e.code, EINPROGRESS);
        assert_null(b.id);
        e2b_close(x);
        server_stop();
    }
}

static void test_create_timeout(void **state)
{
    static const struct step steps[] = {
        {.want = "POST /sandboxes ", .answer = SANDBOX, .hold_ms = 400}};
    struct e2b_box b;
    struct e2b *x;

    (void)state;
    START(steps);
    x = client();
    assert_int_equal(make(x, NULL, 150, &b, NULL), -EINPROGRESS);
    e2b_close(x);
    server_stop();
}

static void test_create_refused(void **state)
{
    static const struct step steps[] = {
        {.want = "POST /sandboxes ",
         .answer =
             HEAD("429 Slow", "application/json") "Retry-After: 0\r\n\r\n"
                                                  "{\"code\":429}"},
        {.want = "POST /sandboxes ",
         .answer = JSON("429 Full", "{\"code\":429,\"message\":\"you have "
                                    "reached the maximum\"}")},
        {.want = "POST /sandboxes ",
         .answer =
             JSON("404 No", "{\"code\":404,\"message\":\"template 'base' "
                            "not found\"}")},
        {.want = "POST /sandboxes ",
         .answer = JSON("401 No", "{\"code\":401,\"message\":\"bad\"}")},
    };
    struct e2b_box b;
    struct e2b *x;
    struct err e;

    (void)state;
    START(steps);
    x = client();
    /* Retry-After means refused: repeated; without one it is the limit */
    assert_int_equal(make(x, NULL, 5000, &b, &e), -EAGAIN);
    assert_non_null(strstr(e.text, "maximum"));
    assert_int_equal(make(x, NULL, 5000, &b, &e), -ENOENT);
    assert_int_equal(make(x, NULL, 5000, &b, &e), -EACCES);
    assert_null(strstr(e.text, "e2b_0123"));
    e2b_close(x);
    server_stop();
}

static void test_create_v2(void **state)
{
    static const struct step steps[] = {
        {.want = "POST /sandboxes ", .answer = JSON("405 No", "")},
        {.want = "POST /v2/sandboxes ", .answer = SANDBOX},
        {.want = "POST /v2/sandboxes ", .answer = SANDBOX},
        {.want = "POST /v2/sandboxes ", .answer = JSON("404 No", "no page")},
        {.want = "POST /sandboxes ", .answer = SANDBOX},
    };
    struct e2b_box b;
    struct e2b *x;

    (void)state;
    START(steps);
    x = client();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(make(x, NULL, 5000, &b, NULL), 0);
        e2b_box_clear(&b);
    }
    e2b_close(x);
    server_stop();
}

static void *cancel_soon(void *c)
{
    sleep_ms(100);
    e2b_cancel(c);
    return NULL;
}

static void test_cancel(void **state)
{
    static const struct step steps[] = {
        {.want = "POST /sandboxes ", .stuck = true, .answer = ""}};
    struct e2b_cancel cancel = {0};
    int64_t began = mono_ms();
    struct e2b_box b;
    pthread_t t;
    struct e2b *x;

    (void)state;
    START(steps);
    x = client();
    pthread_create(&t, NULL, cancel_soon, &cancel);
    assert_int_equal(make(x, &cancel, 20000, &b, NULL), -ECANCELED);
    assert_true(mono_ms() - began < 1000);
    pthread_join(t, NULL);
    e2b_close(x);
    server_stop();
}

static void test_get_again(void **state)
{
    static const struct step steps[] = {
        {.want = "GET /sandboxes/iabc "},
        {.want = "GET /sandboxes/iabc ",
         .answer = HEAD("502 Bad", "text/html") "\r\n<h1>x</h1>"},
        {.want = "GET /sandboxes/iabc ",
         .answer = HEAD("429 Slow", "text/plain") "Retry-After: 1\r\n\r\n"},
        {.want = "GET /sandboxes/iabc ",
         .answer = JSON("200 OK", "{\"sandboxID\":\"iabc\",\"state\":"
                                  "\"paused\"}")},
        {.want = "GET /sandboxes/igone ",
         .answer = JSON("404 No", "{\"code\":404,\"message\":\"Sandbox "
                                  "\\\"igone\\\" doesn't exist\"}")},
        {.want = "DELETE /sandboxes/igone ",
         .answer = JSON("404 No", "{\"code\":404}")},
        {.want = "POST /sandboxes/iabc/pause ",
         .answer = JSON("409 No", "{\"code\":409}")},
        {.want = "GET /sandboxes/iabc ",
         .answer = JSON("200 OK", "{\"sandboxID\":\"iabc\",\"state\":"
                                  "\"paused\"}")},
    };
    int64_t began = mono_ms();
    struct e2b_box b;
    struct e2b *x;
    struct err e;

    (void)state;
    START(steps);
    x = client();
    assert_int_equal(e2b_get(x, "iabc", &b, &e), 0);
    assert_int_equal(b.state, E2B_PAUSED);
    assert_true(mono_ms() - began >= 1000);
    e2b_box_clear(&b);
    assert_int_equal(e2b_get(x, "igone", &b, &e), -ENOENT);
    assert_int_equal(e2b_get(x, "../x", &b, &e), -EINVAL);
    assert_int_equal(e2b_kill(x, "igone", &e), 0);
    assert_int_equal(e2b_pause(x, "iabc", &e), 0);
    e2b_close(x);
    server_stop();
}

static void test_list(void **state)
{
    static const struct step steps[] = {
        {.want = "GET /v2/sandboxes?state=running,paused&limit=100&"
                 "metadata=a%3Db%252520c ",
         .answer = HEAD("200 OK",
                        "application/json") "X-Next-Token: t+1\r\n"
                                            "\r\n[{\"sandboxID\":\"i1\","
                                            "\"metadata\":{\"a\":\"b c\"}},"
                                            "{\"sandboxID\":\"i2\","
                                            "\"metadata\":{\"a\":\"other\"}},"
                                            "{\"sandboxID\":\"\\ud800\"},7]"},
        {.want = "GET /v2/sandboxes?state=running,paused&limit=100&"
                 "metadata=a%3Db%252520c&nextToken=t%2B1 ",
         .answer = JSON("200 OK", "[{\"sandboxID\":\"i3\",\"metadata\":"
                                  "{\"a\":\"b c\"}}]")},
        {.want = "GET /v2/sandboxes?state=running,paused&limit=100 ",
         .answer = JSON("404 No", "404 page not found")},
        {.want = "GET /sandboxes ", .answer = JSON("200 OK", "[]")},
    };
    struct e2b_box *v;
    struct e2b *x;
    size_t n;

    (void)state;
    START(steps);
    x = client();
    assert_int_equal(e2b_list(x, "a", "b c", &v, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_string_equal(v[1].id, "i3");
    e2b_box_clear(&v[0]);
    e2b_box_clear(&v[1]);
    free(v);
    assert_int_equal(e2b_list(x, NULL, NULL, &v, &n, NULL), 0);
    assert_int_equal(n, 0);
    free(v);
    e2b_close(x);
    server_stop();
}

/* ---- data plane ---- */

static void test_read(void **state)
{
    static const struct step steps[] = {
        {.want = "GET /files?path=%2Fa%20b ",
         .answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Cu"},
        {.want = "GET /files?path=%2Fa%20b ",
         .answer = HEAD("200 OK", "text/plain") "Content-Length: 10\r\n\r\n"
                                                "01234"},
        {.want = "GET /files?path=%2Fa%20b ",
         .answer = HEAD("200 OK", "text/plain") "Content-Length: 10\r\n\r\n"
                                                "0123456789"},
        {.want = "GET /files?path=f ",
         .answer = HEAD("206 Part",
                        "text/plain") "Content-Range: bytes 4-6/10"
                                      "\r\nContent-Length: 3\r\n\r\n456"},
        {.want = "GET /files?path=f ",
         .answer = HEAD("416 Range", "text/plain") "Content-Range: bytes */10"
                                                   "\r\n\r\n"},
        /* one that knows no ranges */
        {.want = "GET /files?path=f ",
         .answer = HEAD("200 OK", "text/plain") "\r\n0123456789"},
        {.want = "GET /files?path=f ",
         .answer =
             HEAD("206 Part",
                  "text/plain") "Content-Range: bytes 0-9/10"
                                "\r\nContent-Length: 10\r\n\r\n0123456789"},
        {.want = "GET /files?path=%0A ",
         .answer = JSON("404 No", "{\"code\":404,\"message\":\"no\\n\"}")},
    };
    AUTO_BUF struct buf b = {0};
    struct e2b_target t = {.id = "iabc", .token = "tok"};
    int64_t total;
    struct err e;

    (void)state;
    START(steps);
    t.x = client();
    buf_adds(&b, ">");
    assert_int_equal(e2b_read(&t, "/a b", 0, -1, &b, &total, &e), 0);
    assert_string_equal(b.p, ">0123456789");
    assert_int_equal(total, 10);
    assert_non_null(strstr(server.last.p, "X-Access-Token: tok\r\n"));
    assert_null(strstr(server.last.p, "X-API-KEY"));
    assert_int_equal(e2b_read(&t, "f", 4, 3, &b, &total, &e), 0);
    assert_non_null(strstr(server.last.p, "Range: bytes=4-6\r\n"));
    assert_string_equal(b.p, ">0123456789456");
    assert_int_equal(e2b_read(&t, "f", 12, 3, &b, &total, &e), 0);
    assert_int_equal(b.n, 14);
    assert_int_equal(total, 10);
    buf_clear(&b);
    assert_int_equal(e2b_read(&t, "f", 8, 9, &b, &total, &e), 0);
    assert_string_equal(b.p, "89");
    assert_int_equal(total, 10);
    assert_int_equal(e2b_read(&t, "f", 4, 3, &b, &total, &e), -EPROTO);
    assert_string_equal(b.p, "89");
    assert_int_equal(e2b_read(&t, "\n", 0, -1, &b, NULL, &e), -ENOENT);
    assert_string_equal(e.text, "cannot read '\\n': no\\n (HTTP 404)");
    e2b_close(t.x);
    server_stop();
}

static void test_write(void **state)
{
    static const struct step steps[] = {
        {.want = "POST /files?path=%2Fx&username=root "},
        {.want = "POST /files?path=%2Fx&username=root ",
         .answer = JSON("200 OK", "[]")},
        {.want = "POST /files?path=%2Fe ", .answer = JSON("200 OK", "[]")},
        {.want = "POST /files?path=%2Ff ", .answer = JSON("500 No", "")},
        {.want = "POST /files?path=%2Ff ", .answer = JSON("200 OK", "[]")},
        {.want = "POST /files?path=%2Ff ",
         .answer = JSON("507 Full", "{\"code\":507,\"message\":\"full\"}")},
        {.want = "POST /filesystem.Filesystem/Move ",
         .answer = JSON("500 No", "{\"code\":\"internal\"}")},
        {.want = "POST /filesystem.Filesystem/MakeDir ",
         .answer = JSON("409 Is", "{\"code\":\"already_exists\"}")},
        {.want = "POST /filesystem.Filesystem/ListDir ",
         .answer = JSON("200 OK", "{}")},
    };
    struct e2b_target t = {.id = "iabc"};
    FILE *f = tmpfile();
    struct e2b_entry *v;
    size_t n;

    (void)state;
    fputs("skip:hello", f);
    fflush(f);
    lseek(fileno(f), 5, SEEK_SET);
    START(steps);
    t.x = client();
    assert_int_equal(e2b_write(&t, "/x", "abc", 3, "root", NULL), 0);
    assert_non_null(strstr(server.last.p, "\r\n\r\nabc"));
    assert_int_equal(e2b_write(&t, "/e", NULL, 0, NULL, NULL), 0);
    assert_non_null(strstr(server.last.p, "Content-Length: 0\r\n"));
    assert_int_equal(e2b_write_fd(&t, "/f", fileno(f), NULL), 0);
    assert_non_null(strstr(server.last.p, "\r\n\r\nhello"));
    assert_int_equal(e2b_write(&t, "/f", "x", 1, NULL, NULL), -ENOSPC);
    assert_int_equal(e2b_move(&t, "/a", "/b", NULL), -EIO);
    assert_int_equal(e2b_mkdir(&t, "/a", NULL), 0);
    assert_int_equal(e2b_ls(&t, "/a", 1, &v, &n, NULL), 0);
    assert_int_equal(n, 0);
    free(v);
    assert_int_equal(e2b_mkdir(&t, "\xff", NULL), -EINVAL);
    e2b_close(t.x);
    server_stop();
    fclose(f);
}

/* ---- streams ---- */

static void frame(struct buf *b, int flags, const char *json)
{
    envelope_put(b, flags, json, strlen(json));
}

static void stream_head(struct buf *b)
{
    buf_adds(b, HEAD("200 OK", "application/connect+json") "\r\n");
    frame(b, 0, "{\"event\":{\"start\":{\"pid\":7}}}");
}

static int run(struct e2b_target *t, struct e2b_result *r, struct err *e)
{
    struct e2b_run c = {.cmd = "echo hi", .user = "root"};

    return e2b_exec(t, &c, r, e);
}

static void test_exec(void **state)
{
    AUTO_BUF struct buf b = {0};
    struct e2b_target t = {.id = "iabc", .token = "tok"};
    struct step step = {.want = "POST /process.Process/Start "};
    struct e2b_result r;

    (void)state;
    stream_head(&b);
    frame(&b, 0, "{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}");
    frame(&b, 0, "{\"event\":{\"keepalive\":{}}}");
    frame(&b, 0, "{\"event\":{\"data\":{\"stderr\":\"ZXJyCg==\"}}}");
    frame(&b, 0, "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true}}}");
    frame(&b, 2, "{}");
    step.answer = b.p;
    step.n = b.n;
    server_start(&step, 1);
    t.x = client();
    assert_int_equal(run(&t, &r, NULL), 0);
    assert_string_equal(r.out.p, "hi\n");
    assert_string_equal(r.err.p, "err\n");
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(server.last.p, "Authorization: Basic cm9vdDo=\r"));
    assert_non_null(strstr(server.last.p, "Keepalive-Ping-Interval: 20\r"));
    assert_null(strcasestr(server.last.p, "Connect-Timeout-Ms"));
    e2b_result_clear(&r);
    e2b_close(t.x);
    server_stop();
}

static void exec_gives(const struct buf *b, int want, int code)
{
    struct e2b_target t = {.id = "iabc"};
    struct step step = {
        .want = "POST /process.Process/Start ", .answer = b->p, .n = b->n};
    struct e2b_result r;
    struct err e;

    server_start(&step, 1);
    t.x = client();
    assert_int_equal(run(&t, &r, &e), want);
    if (!want)
        assert_int_equal(r.exit_code, code);
    else
        assert_true(e.code == -want && *e.text);
    e2b_result_clear(&r);
    e2b_close(t.x);
    server_stop();
}

/* the answer cut after every byte: never repeated, always a plain error */
static void test_exec_cuts(void **state)
{
    struct buf b = {0};
    size_t n;

    (void)state;
    stream_head(&b);
    frame(&b, 0, "{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}");
    n = b.n;
    for (size_t cut = 20; cut < n; cut += 3) {
        struct buf part = {b.p, cut, b.cap};

        exec_gives(&part, -EHOSTUNREACH, 0);
    }
    frame(&b, 0,
          "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":"
          "\"signal: killed\"}}}");
    exec_gives(&b, 0, 137); /* the end is known, though no last word came */
    buf_free(&b);
}

static void test_exec_errors(void **state)
{
    static const struct {
        const char *json;
        int flags, want;
    } v[] = {
        {"{\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd\"}}", 2,
         -EINVAL},
        {"{\"error\":{\"code\":\"unavailable\"}}", 2, -EHOSTDOWN},
        {"{\"error\":{\"code\":\"deadline_exceeded\"}}", 2, -ETIMEDOUT},
        {"{\"error\":{\"code\":\"what\",\"message\":\"\\ud800\"}}", 2, -EIO},
        {"{}", 2, -EPROTO},
        {"nonsense", 0, -EPROTO},
        {"{\"event\":{\"data\":{\"stdout\":\"!!!\"}}}", 0, -EPROTO},
        {"{}", 1, -EPROTO},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct buf b = {0};

        stream_head(&b);
        frame(&b, v[i].flags, v[i].json);
        exec_gives(&b, v[i].want, 0);
        buf_free(&b);
    }
    for (size_t i = 0; i < 2; i++) {
        struct buf b = {0};

        buf_adds(&b,
                 i ? JSON("502 Bad", "{\"sandboxId\":\"iabc\",\"code\":502,"
                                     "\"message\":\"not found\"}")
                   : JSON("401 No", "{\"code\":401}"));
        exec_gives(&b, i ? -EHOSTDOWN : -EACCES, 0);
        buf_free(&b);
    }
}

/* ---- the pump ---- */

struct seen {
    struct buf out;
    sem_t step;
    int code, exit_code, ends;
    bool pause;
};

static bool seen_data(void *arg, int fd, const char *p, size_t n)
{
    struct seen *s = arg;

    (void)fd;
    buf_add(&s->out, p, n);
    if (s->pause)
        sem_post(&s->step);
    return !s->pause;
}

static void seen_end(void *arg, int code, int exit_code, const struct err *e)
{
    struct seen *s = arg;

    (void)e;
    s->code = code;
    s->exit_code = exit_code;
    s->ends++;
    sem_post(&s->step);
}

static const struct e2b_stream_ops seen_ops = {seen_data, seen_end};

static void test_pump(void **state)
{
    AUTO_BUF struct buf b = {0};
    struct e2b_target t = {.id = "iabc"}, bad = {.id = "NO"};
    struct step steps[3] = {{.want = "POST /process.Process/Start "},
                            {.want = "POST /process.Process/Start "},
                            {.want = "POST /process.Process/Start "}};
    struct e2b_run c = {.cmd = "x"};
    struct e2b_pump *p;
    struct e2b_stream *s;
    struct seen v = {.pause = true};

    (void)state;
    stream_head(&b);
    for (int i = 0; i < 20; i++)
        frame(&b, 0, "{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}");
    steps[1].answer = steps[2].answer = xmemdup0(b.p, b.n);
    steps[1].n = steps[2].n = b.n;
    steps[1].stuck = true;
    frame(&b, 0, "{\"event\":{\"end\":{\"exited\":true}}}");
    frame(&b, 2, "{}");
    steps[0].answer = b.p;
    steps[0].n = b.n;
    START(steps);
    t.x = bad.x = client();
    sem_init(&v.step, 0, 0);
    p = e2b_pump_start();
    /* paused after each piece, and every piece is still there */
    s = e2b_stream_start(p, &t, &c, &seen_ops, &v);
    for (int i = 1; i <= 20; i++) {
        sem_wait(&v.step);
        assert_int_equal(v.out.n, 3 * i);
        if (i == 10)
            sleep_ms(100); /* the server is through long ago */
        assert_int_equal(v.ends, 0);
        e2b_stream_resume(s);
    }
    sem_wait(&v.step);
    assert_int_equal(v.code, 0);
    /* stopped */
    v.pause = false;
    s = e2b_stream_start(p, &t, &c, &seen_ops, &v);
    sleep_ms(100);
    e2b_stream_stop(s);
    sem_wait(&v.step);
    assert_int_equal(v.code, -ECANCELED);
    /* cut */
    e2b_stream_start(p, &t, &c, &seen_ops, &v);
    sem_wait(&v.step);
    assert_int_equal(v.code, -EHOSTUNREACH);
    assert_int_equal(v.out.n, 180);
    /* never begun */
    e2b_stream_start(p, &bad, &c, &seen_ops, &v);
    sem_wait(&v.step);
    assert_int_equal(v.code, -EINVAL);
    assert_int_equal(v.ends, 4);
    e2b_pump_stop(p);
    e2b_close(t.x);
    server_stop();
    buf_free(&v.out);
    free((char *)(uintptr_t)steps[1].answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_create_unclear),
        cmocka_unit_test(test_create_timeout),
        cmocka_unit_test(test_create_refused),
        cmocka_unit_test(test_create_v2),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_get_again),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_exec_cuts),
        cmocka_unit_test(test_exec_errors),
        cmocka_unit_test(test_pump),
    };

    e2b_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
