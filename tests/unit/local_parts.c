/* the pure parts of the local host: names, filters, bodies, DNS messages */
#include "local/box_int.h"
#include "local/control.h"
#include "local/dns.h"
#include "local/http.h"
#include "local/net.h"
#include "local/trash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- names and hosts ---- */

static void ids(void **state)
{
    (void)state;
    assert_true(control_id_ok("i0123456789abcdefghij"));
    assert_false(control_id_ok(""));
    assert_false(control_id_ok("I0"));
    assert_false(control_id_ok("../x"));
    assert_false(control_id_ok("i\xff"));
}

static void hosts(void **state)
{
    (void)state;
    assert_true(net_host_ok("example.org"));
    assert_true(net_host_ok("*.example.org"));
    assert_true(net_host_ok("192.0.2.1"));
    assert_true(net_host_ok("10.0.0.0/8"));
    assert_false(net_host_ok("10.0.0.0/33"));
    assert_false(net_host_ok("exa mple"));
    assert_false(net_host_ok("a..b"));
    assert_false(net_host_ok("*"));
    assert_false(net_host_ok(""));
}

static void allowed(void **state)
{
    char *list[] = {(char *)"example.org", (char *)"*.example.net", NULL};

    (void)state;
    assert_true(dns_allowed("EXAMPLE.org", list));
    assert_false(dns_allowed("www.example.org", list));
    assert_true(dns_allowed("a.b.example.net", list));
    assert_false(dns_allowed("example.net", list));
    assert_false(dns_allowed("badexample.net", list));
    assert_false(dns_allowed("", list));
}

static uint32_t ip(unsigned a, unsigned b, unsigned c, unsigned d)
{
    unsigned char p[4] = {(unsigned char)a, (unsigned char)b, (unsigned char)c,
                          (unsigned char)d};
    uint32_t v;

    memcpy(&v, p, 4);
    return v;
}

static void addresses(void **state)
{
    (void)state;
    assert_true(dns_address_ok(ip(192, 0, 2, 1)));
    assert_false(dns_address_ok(ip(127, 0, 0, 1)));
    assert_false(dns_address_ok(ip(169, 254, 169, 254)));
    assert_false(dns_address_ok(ip(10, 0, 2, 2)));
    assert_false(dns_address_ok(ip(0, 0, 0, 0)));
    assert_false(dns_address_ok(ip(224, 0, 0, 1)));
}

/* ---- DNS messages ---- */

static const unsigned char question[] =
    "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
    "\x07"
    "example"
    "\x03"
    "org"
    "\x00"
    "\x00\x01\x00\x01";
static const unsigned char two_answers[] =
    "\x12\x34\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00"
    "\x07"
    "example"
    "\x03"
    "org"
    "\x00"
    "\x00\x01\x00\x01"
    "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01"
    "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x02";

struct seen {
    uint32_t a[8];
    size_t n;
};

static void see(uint32_t a, void *arg)
{
    struct seen *s = arg;

    if (s->n < 8)
        s->a[s->n++] = a;
}

static void dns_messages(void **state)
{
    struct seen s = {0};
    char name[256];
    int type;

    (void)state;
    assert_true(dns_question(question, sizeof(question) - 1, name, &type));
    assert_string_equal(name, "example.org");
    assert_int_equal(type, 1);
    dns_addresses(two_answers, sizeof(two_answers) - 1, see, &s);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.a[1], ip(192, 0, 2, 2));
}

/* any cut and any changed byte: no crash, never more than was there */
static void dns_hostile(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof(two_answers); n++)
        for (size_t i = 0; i <= n && i < n + 1; i++) {
            unsigned char *m = xmalloc(n + 1);
            struct seen s = {0};
            char name[256];
            int type;

            memcpy(m, two_answers, n);
            if (i < n)
                m[i] ^= 0xff;
            m = xrealloc(m, n ? n : 1);
            dns_question(m, n, name, &type);
            dns_addresses(m, n, see, &s);
            assert_true(s.n <= 8);
            free(m);
        }
}

/* ---- filters and bodies ---- */

static void filters(void **state)
{
    json_t *m = json_pack("{s:s, s:s}", "a", "b c", "k&", "x=y");

    (void)state;
    assert_int_equal(list_match(m, NULL), 1);
    assert_int_equal(list_match(m, ""), 1);
    assert_int_equal(list_match(m, "a=b%2520c"), 1);
    assert_int_equal(list_match(m, "a=b+c"), 1);
    assert_int_equal(list_match(m, "a=b"), 0);
    assert_int_equal(list_match(m, "z=1"), 0);
    assert_int_equal(list_match(m, "k%2526=x%253Dy"), 1);
    assert_int_equal(list_match(m, "a=b%2520c&z=1"), 0);
    assert_int_equal(list_match(m, "a"), -EINVAL);
    assert_int_equal(list_match(m, "a=b=c"), -EINVAL);
    assert_int_equal(list_match(m, "a=%25zz"), -EINVAL);
    assert_int_equal(list_match(NULL, "a=b"), 0);
    json_decref(m);
}

static int parse(const char *body, bool v2, bool local, struct box_spec *s)
{
    json_t *j = json_loads(body, 0, NULL);
    struct err e = {0};
    int rc = create_parse(j, v2, local, s, &e);

    json_decref(j);
    if (rc)
        box_spec_free(s);
    return rc;
}

static void bodies(void **state)
{
    struct box_spec s;

    (void)state;
    assert_int_equal(parse("{\"templateID\":\"base\"}", true, true, &s), 0);
    assert_int_equal(s.timeout_ms, 300000);
    assert_true(s.secure);
    assert_int_equal(s.net, NET_ON);
    assert_int_equal(s.memory_mb, 1024);
    box_spec_free(&s);
    assert_int_equal(parse("{\"templateID\":\"base\"}", false, true, &s), 0);
    assert_int_equal(s.timeout_ms, 15000);
    assert_false(s.secure);
    box_spec_free(&s);
    assert_int_equal(parse("{\"templateID\":\"b\",\"network\":{\"allowOut\":"
                           "[\"example.org\"],\"denyOut\":[\"0.0.0.0/0\"]}}",
                           true, false, &s),
                     0);
    assert_int_equal(s.net, NET_ALLOW);
    assert_string_equal(s.allow[0], "example.org");
    box_spec_free(&s);
    assert_int_equal(parse("{\"templateID\":\"b\",\"metadata\":"
                           "{\"courier.allow\":\"a.org, b.org\","
                           "\"courier.memory\":\"64\",\"courier.cpu\":"
                           "\"0.5\"},\"envVars\":{\"A\":\"=\"}}",
                           true, false, &s),
                     0);
    assert_int_equal(s.net, NET_ALLOW);
    assert_string_equal(s.allow[1], "b.org");
    assert_null(s.allow[2]);
    assert_int_equal(s.memory_mb, 64);
    assert_string_equal(s.env[0], "A==");
    box_spec_free(&s);
}

static void bad_bodies(void **state)
{
    static const char *const all[] = {
        "[]",
        "{}",
        "{\"templateID\":1}",
        "{\"templateID\":\"a b\"}",
        "{\"templateID\":\"b\",\"timeout\":-1}",
        "{\"templateID\":\"b\",\"timeout\":\"x\"}",
        "{\"templateID\":\"b\",\"timeout\":86401}",
        "{\"templateID\":\"b\",\"metadata\":[]}",
        "{\"templateID\":\"b\",\"metadata\":{\"a\":1}}",
        "{\"templateID\":\"b\",\"envVars\":{\"\":\"x\"}}",
        "{\"templateID\":\"b\",\"envVars\":{\"a\":1}}",
        "{\"templateID\":\"b\",\"autoPauseMemory\":false}",
        "{\"templateID\":\"b\",\"network\":{\"allowOut\":[1]}}",
        "{\"templateID\":\"b\",\"network\":{\"denyOut\":[\"1.2.3.4\"]}}",
        "{\"templateID\":\"b\",\"network\":{\"rules\":{\"a\":[]}}}",
        "{\"templateID\":\"b\",\"metadata\":{\"courier.network\":\"?\"}}",
        "{\"templateID\":\"b\",\"metadata\":{\"courier.network\":\"host\"}}",
        "{\"templateID\":\"b\",\"metadata\":{\"courier.memory\":\"1\"}}",
        "{\"templateID\":\"b\",\"metadata\":{\"courier.cpu\":\"nan\"}}",
        "{\"templateID\":\"b\",\"metadata\":{\"courier.bind\":\"[]\"}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct box_spec s;

        if (parse(all[i], true, false, &s) != 400)
            fail_msg("accepted: %s", all[i]);
    }
}

/* ---- removing what somebody hostile made ---- */

static void trash(void **state)
{
    char top[] = "/var/tmp/courier-trash-XXXXXX", path[128], kept[128];
    int dir, fd;

    (void)state;
    assert_non_null(mkdtemp(top));
    snprintf(kept, sizeof(kept), "%s.kept", top);
    fd = open(kept, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
    dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(symlinkat(kept, dir, "link"), 0);
    fd = openat(dir, ".moved-0", O_WRONLY | O_CREAT, 0);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, top, sizeof(top)), sizeof(top));
    close(fd);
    snprintf(path, sizeof(path), "%s", top);
    assert_true(trash_measure(path) > 0);
    for (int i = 0; i < 1500; i++) { /* deeper than PATH_MAX */
        int next;

        assert_int_equal(mkdirat(dir, "deep", 0700), 0);
        assert_int_equal(symlinkat("..", dir, "up"), 0);
        next = openat(dir, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        if (i % 100 == 50)
            fchmod(dir, 0);
        close(dir);
        dir = next;
    }
    close(dir);
    assert_int_equal(trash_remove(top), 0);
    assert_int_equal(access(top, F_OK), -1);
    assert_int_equal(access(kept, F_OK), 0);
    unlink(kept);
    assert_int_equal(trash_remove(top), 0);
}

/* ---- HTTP ---- */

static void echo(struct req *r)
{
    AUTO_BUF struct buf out = {0};

    if (strcmp(r->path, "/silent") == 0)
        return;
    if (strcmp(r->path, "/unread") == 0) {
        reply(r, 200, "text/plain", "u", 1);
        return;
    }
    if (http_body(r, 1000) < 0) {
        reply(r, 400, "text/plain", "bad", 3);
        return;
    }
    if (strcmp(r->path, "/stream") == 0) {
        reply_begin(r, 200, "text/plain", -1);
        reply_write(r, "one", 3);
        reply_write(r, "", 0);
        reply_write(r, "three", 5);
        reply_end(r);
        return;
    }
    buf_addf(&out, "%s %s q=%s x=%s b=%s", r->method, r->path,
             req_query(r, "q") ? req_query(r, "q") : "-",
             req_header(r, "x-test") ? req_header(r, "x-test") : "-",
             buf_str(&r->body));
    reply(r, 200, "text/plain", out.p, out.n);
}

static void *serve(void *arg)
{
    http_serve(*(int *)arg, true, echo);
    return NULL;
}

/* sends text, closes, and returns all that came back */
static char *talk(const char *text, size_t n)
{
    struct buf got = {0};
    char room[4096];
    pthread_t t;
    ssize_t k;
    int s[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
    assert_int_equal(pthread_create(&t, NULL, serve, &s[1]), 0);
    send(s[0], text, n, MSG_NOSIGNAL);
    shutdown(s[0], SHUT_WR);
    while ((k = recv(s[0], room, sizeof(room), 0)) > 0)
        buf_add(&got, room, (size_t)k);
    close(s[0]);
    pthread_join(t, NULL);
    return buf_take(&got);
}

static void expect(const char *text, const char *want)
{
    AUTO_FREE char *got = talk(text, strlen(text));

    if (!strstr(got, want))
        fail_msg("\"%s\" gave \"%s\", not \"%s\"", text, got, want);
}

static void http(void **state)
{
    (void)state;
    expect("GET /a%20b?q=1+2%2B HTTP/1.1\r\nX-Test: y \r\n\r\n",
           "GET /a b q=1 2+ x=y b=");
    expect("GET http://h/a HTTP/1.1\r\n\r\n", "GET /a q=- x=- b=");
    expect("POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", "b=abc");
    expect("POST /a HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\n\r\n"
           "2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n",
           "b=abc");
    expect("POST /a HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
           "\r\nhi",
           "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK");
    expect("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n", "GET /2");
    expect("POST /unread HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"
           "GET /2 HTTP/1.1\r\n\r\n",
           "GET /2");
    expect("GET /stream HTTP/1.1\r\n\r\n",
           "\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n");
    expect("GET /stream HTTP/1.0\r\n\r\n", "\r\n\r\nonethree");
    expect("GET /silent HTTP/1.1\r\n\r\n", "HTTP/1.1 500");
}

static void http_malformed(void **state)
{
    static const char *const all[] = {
        "nonsense\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / FTP/1.1\r\n\r\n",
        "GET /%zz HTTP/1.1\r\n\r\n",
        "GET /%00 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked"
        "\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        "ffffffffffffffffff\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab",
        "POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n"
        "\r\nab",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        expect(all[i], "HTTP/1.1 400");
    expect("POST / HTTP/1.1\r\nContent-Length: 2000\r\n\r\n", "400");
}

static void http_long(void **state)
{
    AUTO_BUF struct buf b = {0};
    AUTO_FREE char *got = NULL;

    (void)state;
    buf_adds(&b, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 2000; i++)
        buf_addf(&b, "X-%d: %080d\r\n", i, i);
    buf_adds(&b, "\r\n");
    got = talk(b.p, b.n);
    assert_non_null(strstr(got, "HTTP/1.1 431"));
}

static void unescape(void **state)
{
    AUTO_BUF struct buf b = {0};

    (void)state;
    assert_true(http_unescape(&b, "a%2", 1, false));
    assert_false(http_unescape(&b, "a%2", 3, false));
    assert_false(http_unescape(&b, "%", 1, false));
    buf_clear(&b);
    assert_true(http_unescape(&b, "%41+", 4, true));
    assert_string_equal(b.p, "A ");
}

/* ---- guard.c ---- */

static void guard_counts_what_is_there(void **state)
{
    static const char status[] = "Name:\tRssAnon: 99 kB\nVmRSS:\t  300 kB\n"
                                 "RssAnon:\t  200 kB\nThreads:\t7\n";
    static const char smaps[] =
        "7f00-7f10 rw-s 00000000 00:2a 5    /tmp/a b\n"
        "Rss:     20 kB\nPss:     10 kB\nPss_Dirty: 10 kB\n"
        "7f10-7f20 rw-p 00000000 00:00 0 \n"
        "Pss:     40 kB\n"
        "7f20-7f30 rw-s 00000000 00:2b 6    /dev/shm/x\n"
        "Pss:      3 kB\n";
    const dev_t devs[] = {makedev(0, 0x2a), makedev(0, 0x2b)};

    (void)state;
    assert_int_equal(guard_field(status, "RssAnon"), 200 << 10);
    assert_int_equal(guard_field(status, "Threads") >> 10, 7);
    assert_int_equal(guard_field(status, "VmSwap"), 0);
    assert_int_equal(guard_field(smaps, "Pss"), 53 << 10);
    assert_int_equal(guard_mapped(smaps, devs, 2), 13 << 10);
    assert_int_equal(guard_mapped(smaps, devs, 1), 10 << 10);
    assert_int_equal(guard_mapped("", devs, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guard_counts_what_is_there),
        cmocka_unit_test(ids),
        cmocka_unit_test(hosts),
        cmocka_unit_test(allowed),
        cmocka_unit_test(addresses),
        cmocka_unit_test(dns_messages),
        cmocka_unit_test(dns_hostile),
        cmocka_unit_test(filters),
        cmocka_unit_test(bodies),
        cmocka_unit_test(bad_bodies),
        cmocka_unit_test(trash),
        cmocka_unit_test(http),
        cmocka_unit_test(http_malformed),
        cmocka_unit_test(http_long),
        cmocka_unit_test(unescape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
