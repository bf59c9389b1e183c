/* the client's pure parts: framing at every split, errors, lenient JSON */
#include "base/text.h"
#include "e2b/endpoint.h"
#include "e2b/envelope.h"
#include "e2b/fail.h"
#include "e2b/json.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- framing ---- */

static void take_all(struct envelopes *v, struct buf *seen, int *ends)
{
    const char *p;
    size_t n;
    int flags;

    while (envelopes_next(v, &flags, &p, &n) == 1) {
        buf_addf(seen, "[%zu:", n);
        buf_add(seen, p, n);
        buf_addc(seen, ']');
        *ends += !!(flags & ENVELOPE_END);
    }
}

static void test_every_split(void **state)
{
    static const char want[] = "[5:hello][0:][3:abc][2:{}]";
    AUTO_BUF struct buf wire = {0};

    (void)state;
    envelope_put(&wire, 0, "hello", 5);
    envelope_put(&wire, 0, "", 0);
    envelope_put(&wire, 0, "abc", 3);
    envelope_put(&wire, ENVELOPE_END, "{}", 2);
    for (size_t a = 0; a <= wire.n; a++) {
        for (size_t b = a; b <= wire.n; b++) {
            AUTO_BUF struct buf seen = {0};
            struct envelopes v = {0};
            int ends = 0;

            envelopes_push(&v, wire.p, a);
            take_all(&v, &seen, &ends);
            envelopes_push(&v, wire.p + a, b - a);
            take_all(&v, &seen, &ends);
            envelopes_push(&v, wire.p + b, wire.n - b);
            take_all(&v, &seen, &ends);
            assert_string_equal(seen.p, want);
            assert_int_equal(ends, 1);
            assert_false(envelopes_partial(&v));
            envelopes_free(&v);
        }
    }
}

static void test_bad_frames(void **state)
{
    static const unsigned char bad[][5] = {{0, 0xff, 0xff, 0xff, 0xff},
                                           {0, 0, 0x10, 0, 1},
                                           {1, 0, 0, 0, 1},
                                           {0x80, 0, 0, 0, 0}};
    const char *p;
    size_t n;
    int flags;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct envelopes v = {0};

        envelopes_push(&v, (const char *)bad[i], 4);
        assert_int_equal(envelopes_next(&v, &flags, &p, &n), 0);
        assert_true(envelopes_partial(&v));
        envelopes_push(&v, (const char *)bad[i] + 4, 1);
        assert_int_equal(envelopes_next(&v, &flags, &p, &n), -EPROTO);
        envelopes_free(&v);
    }
}

/* ---- errors ---- */

static int refusal(long status, const char *body, struct err *e)
{
    struct buf b = {0};
    int rc;

    buf_adds(&b, body);
    rc = fail_answer(status, &b, e);
    buf_free(&b);
    return rc;
}

static void test_errors(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(refusal(401, "{\"code\":401,\"message\":\"no key\"}", &e),
                     -EACCES);
    assert_string_equal(e.text, "no key (HTTP 401)");
    assert_int_equal(refusal(404, "{\"code\":404,\"message\":\"gone\"}", &e),
                     -ENOENT);
    assert_int_equal(refusal(409, "{\"code\":\"already_exists\"}", &e),
                     -EEXIST);
    assert_int_equal(refusal(409, "{\"code\":409}", &e), -EBUSY);
    assert_int_equal(refusal(400, "{\"code\":\"failed_precondition\"}", &e),
                     -EINVAL);
    assert_int_equal(refusal(429, "", &e), -EAGAIN);
    assert_string_equal(e.text, "too many requests (HTTP 429)");
    assert_int_equal(
        refusal(500, "{\"code\":\"internal\",\"message\":\"x\"}", &e), -EIO);
    assert_int_equal(refusal(502,
                             "{\"sandboxId\":\"i\",\"message\":\"The sandbox "
                             "was not found\",\"code\":502}",
                             &e),
                     -EHOSTDOWN);
    assert_int_equal(refusal(503, "{\"code\":\"unavailable\"}", &e),
                     -EHOSTDOWN);
    assert_int_equal(refusal(504, "upstream request timeout", &e), -ETIMEDOUT);
    assert_string_equal(e.text, "upstream request timeout (HTTP 504)");
    assert_int_equal(refusal(507, "{\"code\":507}", &e), -ENOSPC);
    assert_int_equal(refusal(302, "", &e), -EPROTO);
    assert_int_equal(refusal(502,
                             "<html>\n<head><title>502 Bad Gateway</title>"
                             "</head>\r\n<body><h1>Sorry\033[31m</h1>",
                             &e),
                     -EHOSTDOWN);
    assert_string_equal(e.text, "502 Bad Gateway Sorry^[[31m (HTTP 502)");
}

static void test_errors_are_bounded(void **state)
{
    AUTO_BUF struct buf body = {0};
    struct err e;

    (void)state;
    buf_adds(&body, "{\"message\":\"");
    for (int i = 0; i < 100000; i++)
        buf_adds(&body, "\xc3\xa4\xc2\x9b");
    buf_adds(&body, "\"}");
    assert_int_equal(fail_answer(500, &body, &e), -EIO);
    assert_true(strlen(e.text) < 400);
    assert_true(text_utf8_valid(e.text, strlen(e.text)));
    assert_null(strstr(e.text, "\xc2\x9b"));
    fail_answer(500, &(struct buf){0}, NULL);
}

static void test_signals(void **state)
{
    (void)state;
    assert_int_equal(fail_signal("signal: killed"), 137);
    assert_int_equal(fail_signal("signal: segmentation fault (core dumped)"),
                     139);
    assert_int_equal(fail_signal("signal: terminated"), 143);
    assert_int_equal(fail_signal("signal: signal 34"), 162);
    assert_int_equal(fail_signal("whatever"), 255);
    assert_int_equal(fail_signal(NULL), 255);
}

/* ---- JSON ---- */

static void reads(const char *text, size_t n, const char *want)
{
    json_t *j = json_read(text, n);

    assert_non_null(j);
    assert_string_equal(json_str(j, "a"), want);
    json_decref(j);
}

#define READS(text, want) reads(text, sizeof(text) - 1, want)

static void test_lenient(void **state)
{
    (void)state;
    READS("{\"a\":\"ok\"}", "ok");
    READS("{\"a\":\"x\\ud800y\"}", "x\xef\xbf\xbdy");
    READS("{\"a\":\"\\udc00\\ud800\"}", "\xef\xbf\xbd\xef\xbf\xbd");
    READS("{\"a\":\"\\ud83d\\ude00\\ud83d\"}", "\xf0\x9f\x98\x80\xef\xbf\xbd");
    READS("{\"a\":\"b\xff\xc3\"}", "b\xef\xbf\xbd\xef\xbf\xbd");
    READS("{\"a\":\"b\nc\",\"n\":1}", "b c");
    READS("{\"a\":\"x\",\"n\":99999999999999999999999}", "x");
    READS("{\"a\":\"x\\u0000y\"}", "x");
    assert_null(json_read("", 0));
    assert_null(json_read(NULL, 0));
    assert_null(json_read("{\"a\":\"\\", 7));
    assert_null(json_read("{\"a\":\"\\u12", 10));
    assert_null(json_read("<html>", 6));
}

/* whatever comes: no crash; a fixed sequence of mutations */
static void test_mutations(void **state)
{
    static const char seed[] =
        "{\"sandboxID\":\"iabc\",\"metadata\":{\"k\":\"v\\ud83d\\ude00\"},"
        "\"startedAt\":\"2026-11-29T12:00:01.5Z\",\"cpuCount\":2}";
    unsigned r = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        char text[sizeof(seed)];
        struct e2b_box b;
        json_t *j;

        memcpy(text, seed, sizeof(seed));
        for (int k = 0; k < 3; k++) {
            r = r * 1103515245 + 12345;
            text[r / 65536 % (sizeof(seed) - 1)] = (char)(r >> 8);
        }
        j = json_read(text, sizeof(seed) - 1);
        box_from_json(j, &b, NULL);
        e2b_box_clear(&b);
        json_decref(j);
    }
}

static void test_box(void **state)
{
    static const char text[] =
        "{\"sandboxID\":\"i0abc\",\"templateID\":\"base\",\"state\":"
        "\"paused\","
        "\"domain\":null,\"envdAccessToken\":\"tok\",\"metadata\":"
        "{\"a\":\"b\",\"bad\":3},\"cpuCount\":\"2\",\"memoryMB\":-5,"
        "\"endAt\":\"2026-11-29T12:00:01Z\"}";
    json_t *j = json_read(text, sizeof(text) - 1);
    struct e2b_box b;

    (void)state;
    assert_int_equal(box_from_json(j, &b, NULL), 0);
    assert_string_equal(b.id, "i0abc");
    assert_string_equal(b.token, "tok");
    assert_null(b.domain);
    assert_int_equal(b.state, E2B_PAUSED);
    assert_int_equal(b.n_meta, 1);
    assert_int_equal(b.cpu, 2);
    assert_int_equal(b.memory_mb, 0);
    assert_true(b.end_ms > 0 && b.started_ms == 0);
    e2b_box_clear(&b);
    json_object_set_new(j, "sandboxID", json_string("../../etc"));
    assert_int_equal(box_from_json(j, &b, NULL), -EPROTO);
    json_decref(j);
    assert_int_equal(box_from_json(NULL, &b, NULL), -EPROTO);
}

static char entry_type(const char *text)
{
    json_t *j = json_read(text, strlen(text));
    struct e2b_entry v;
    char type = entry_from_json(j, &v, NULL) ? 0 : v.type;

    e2b_entry_clear(&v);
    json_decref(j);
    return type;
}

static void test_entries(void **state)
{
    static const char text[] =
        "{\"name\":\"a\",\"path\":\"/x/a\",\"type\":\"FILE_TYPE_FILE\","
        "\"size\":\"5000000000\",\"mode\":420,"
        "\"modifiedTime\":\"2026-11-29T11:31:10.212300148Z\"}";
    json_t *j = json_read(text, sizeof(text) - 1);
    struct e2b_entry v;

    (void)state;
    assert_int_equal(entry_from_json(j, &v, NULL), 0);
    assert_int_equal(v.size, 5000000000);
    assert_int_equal(v.mode, 0644);
    assert_int_equal(v.mtime_ns % 1000000000, 212300148);
    e2b_entry_clear(&v);
    json_decref(j);
    assert_int_equal(entry_type("{\"name\":\"a\",\"symlinkTarget\":\"/b\"}"),
                     'l');
    assert_int_equal(entry_type("{\"name\":\"a\"}"), '?');
    assert_int_equal(entry_type("{\"name\":\"a\",\"type\":2}"), 'd');
    assert_int_equal(entry_type("{\"name\":\"..\"}"), 0);
    assert_int_equal(entry_type("{\"name\":\"a/b\"}"), 0);
    assert_int_equal(entry_type("{}"), 0);
    assert_int_equal(entry_type("[]"), 0);
}

/* ---- URLs ---- */

static int url_of(const char *id, const char *domain, char **out)
{
    struct e2b_config c = {.key = "e2b_1"};
    struct e2b_target t = {.id = id, .domain = domain};
    int rc;

    assert_int_equal(e2b_open(&c, &t.x, NULL), 0);
    rc = target_url(&t, "/health", out, NULL);
    e2b_close(t.x);
    return rc;
}

static void test_urls(void **state)
{
    AUTO_FREE char *a = NULL;
    char *b;
    AUTO_BUF struct buf q = {0};

    (void)state;
    assert_int_equal(url_of("iabc", NULL, &a), 0);
    assert_string_equal(a, "https://49983-iabc.e2b.app/health");
    assert_int_equal(url_of("iabc", "evil.com/x?", &b), -EINVAL);
    assert_int_equal(url_of("iabc", "u@evil", &b), -EINVAL);
    assert_int_equal(url_of("a.b/", NULL, &b), -EINVAL);
    assert_int_equal(url_of("", NULL, &b), -EINVAL);
    assert_int_equal(url_of(NULL, NULL, &b), -EINVAL);
    url_escape(&q, "/a b&c=d%\xc3\xa4~");
    assert_string_equal(q.p, "%2Fa%20b%26c%3Dd%25%C3%A4~");
}

static void test_open_refuses(void **state)
{
    struct e2b_config key = {.key = "a\r\nX: y"};
    struct e2b_config url = {.api_url = "file:///etc/passwd"};
    struct e2b_config url2 = {.api_url = "http://h/\nx"};
    struct e2b *x;
    struct err e;

    (void)state;
    assert_int_equal(e2b_open(&key, &x, &e), -EINVAL);
    assert_null(strstr(e.text, "X: y"));
    assert_int_equal(e2b_open(&url, &x, &e), -EINVAL);
    assert_int_equal(e2b_open(&url2, &x, &e), -EINVAL);
    assert_null(x);
    e2b_close(NULL);
}

static void test_no_server(void **state)
{
    struct e2b_config c = {.unix_socket = "/nonexistent/sock"};
    struct e2b_create make = {.template_id = "base", .timeout = 300};
    struct e2b_box b;
    struct e2b *x;
    struct err e;

    (void)state;
    assert_int_equal(e2b_open(&c, &x, NULL), 0);
    assert_int_equal(e2b_create(x, &make, 5000, NULL, &b, &e), -EHOSTUNREACH);
    assert_null(b.id);
    e2b_close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split),
        cmocka_unit_test(test_bad_frames),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_errors_are_bounded),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_lenient),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_box),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_no_server),
    };

    e2b_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
