#include "local/connect.h"
#include "local/files.h"
#include "local/multipart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <sodium.h>
#include <zlib.h>

static void test_envelope_split(void **state)
{
    AUTO_BUF struct buf in = {0}, out = {0};
    int flags = -1;

    (void)state;
    envelope_add(&in, 0, "{\"a\":1}", 7);
    envelope_add(&in, ENVELOPE_END, "{}", 2);
    for (size_t n = 0; n < 12; n++)
        assert_int_equal(envelope_take(in.p, n, &flags, &out), 0);
    assert_int_equal(envelope_take(in.p, in.n, &flags, &out), 12);
    assert_int_equal(flags, 0);
    assert_string_equal(buf_str(&out), "{\"a\":1}");
    assert_int_equal(envelope_take(in.p + 12, in.n - 12, &flags, &out), 7);
    assert_int_equal(flags, ENVELOPE_END);
}

static void test_envelope_bad(void **state)
{
    AUTO_BUF struct buf out = {0};
    int flags;

    (void)state;
    assert_int_equal(envelope_take("\x80\0\0\0\0", 5, &flags, &out), -EINVAL);
    assert_int_equal(envelope_take("\0\xff\xff\xff\xff", 5, &flags, &out),
                     -EMSGSIZE);
    assert_int_equal(envelope_take("\1\0\0\0\3abc", 8, &flags, &out), -EINVAL);
}

static void test_envelope_gzip(void **state)
{
    AUTO_BUF struct buf in = {0}, out = {0};
    unsigned char z[200];
    z_stream s = {0};
    int flags;

    (void)state;
    deflateInit2(&s, 6, Z_DEFLATED, 15 + 16, 8, 0);
    s.next_in = (Bytef *)(uintptr_t) "hello hello";
    s.avail_in = 11;
    s.next_out = z;
    s.avail_out = sizeof(z);
    assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
    envelope_add(&in, ENVELOPE_GZIP, z, sizeof(z) - s.avail_out);
    deflateEnd(&s);
    assert_int_equal(envelope_take(in.p, in.n, &flags, &out), in.n);
    assert_string_equal(buf_str(&out), "hello hello");
}

static void test_fields(void **state)
{
    json_t *j =
        json_loads("{\"include_entry\":true,\"watcherId\":\"x\","
                   "\"size\":\"12\",\"n\":3,\"z\":null,\"bad\":\"1x\"}",
                   0, NULL);
    int64_t v;

    (void)state;
    assert_true(field_bool(j, "includeEntry", false));
    assert_string_equal(field_str(j, "watcherId"), "x");
    assert_true(field_int(j, "size", &v) && v == 12);
    assert_true(field_int(j, "n", &v) && v == 3);
    assert_true(field_int(j, "z", &v) && v == 0);
    assert_false(field_int(j, "bad", &v));
    assert_true(field_bool(NULL, "a", true));
    json_decref(j);
}

static void test_json_text(void **state)
{
    json_t *j = json_text("a\xff"
                          "\xc3\xa9\n\xc3");

    (void)state;
    assert_string_equal(json_string_value(j), "a\\xff\xc3\xa9\n\\xc3");
    json_decref(j);
}

static void test_signature(void **state)
{
    char out[64];

    (void)state;
    file_signature("s.txt", "write", "", "tok_aaaaaaaaaaaaaaaaaaaa", NULL,
                   out);
    assert_string_equal(out, "v1_l4muRYjq+ZDAdtneG96+fcpzaXLCo4N39XqoV5BXtts");
}

static void test_ranges(void **state)
{
    static const struct {
        const char *h;
        int64_t size;
        enum range r;
        int64_t from, to;
    } t[] = {
        {NULL, 10, RANGE_ALL, 0, 9},
        {"bytes=0-", 10, RANGE_PART, 0, 9},
        {"bytes=3-5", 10, RANGE_PART, 3, 5},
        {"bytes=3-500", 10, RANGE_PART, 3, 9},
        {"bytes=-4", 10, RANGE_PART, 6, 9},
        {"bytes=-40", 10, RANGE_PART, 0, 9},
        {"bytes=9-9", 10, RANGE_PART, 9, 9},
        {"bytes=10-", 10, RANGE_BAD, 0, 0},
        {"bytes=5-3", 10, RANGE_BAD, 0, 0},
        {"bytes=a-", 10, RANGE_BAD, 0, 0},
        {"bytes=-", 10, RANGE_BAD, 0, 0},
        {"bytes=-0", 10, RANGE_BAD, 0, 0},
        {"bytes=99999999999999999999-", 10, RANGE_BAD, 0, 0},
        {"bytes=0-1,3-4", 10, RANGE_ALL, 0, 9},
        {"lines=0-1", 10, RANGE_ALL, 0, 9},
        {"bytes=0-", 0, RANGE_ALL, 0, -1},
        {"bytes=5-", 0, RANGE_ALL, 0, -1},
        {"bytes=5-6", 0, RANGE_ALL, 0, -1},
        {"bytes=-5", 0, RANGE_ALL, 0, -1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        int64_t from, to;

        assert_int_equal(file_range(t[i].h, t[i].size, &from, &to), t[i].r);
        if (t[i].r == RANGE_BAD)
            continue;
        assert_int_equal(from, t[i].from);
        assert_int_equal(to, t[i].to);
    }
}

static void test_dates(void **state)
{
    char s[32];
    time_t t;

    (void)state;
    http_date(784111777, s);
    assert_string_equal(s, "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_true(http_date_parse(s, &t) && t == 784111777);
    assert_false(http_date_parse("yesterday", &t));
}

/* ---- multipart ---- */

struct src {
    const char *p;
    size_t n, step;
};

static ssize_t src_read(void *arg, void *p, size_t n)
{
    struct src *s = arg;

    if (n > s->n)
        n = s->n;
    if (n > s->step)
        n = s->step;
    memcpy(p, s->p, n);
    s->p += n;
    s->n -= n;
    return (ssize_t)n;
}

static ssize_t part_all(struct multipart *m, struct buf *out, size_t step)
{
    char b[64];
    ssize_t n;

    while ((n = multipart_read(m, b, step)) > 0)
        buf_add(out, b, (size_t)n);
    return n;
}

static const char form[] =
    "preamble\r\n--xx\r\n"
    "Content-Disposition: form-data; name=\"file\"; filename=\"dir/a b;c.txt\""
    "\r\nContent-Type: application/octet-stream\r\n\r\n"
    "hello\r\n--x\r\n\r\n--xx\r\n"
    "content-disposition: form-data; filename=\"q%22.txt\"; name=file\r\n\r\n"
    "\r\n--xx\r\n\r\nplain\r\n--xx--\r\n";

static void test_multipart(void **state)
{
    (void)state;
    for (size_t step = 1; step < sizeof(form); step++) {
        struct src s = {form, sizeof(form) - 1, step};
        AUTO_BUF struct buf one = {0}, two = {0}, three = {0};
        struct multipart m;
        struct part p;

        assert_int_equal(multipart_init(&m,
                                        "multipart/form-data; boundary=\"xx\"",
                                        src_read, &s),
                         0);
        assert_int_equal(multipart_next(&m, &p), 1);
        assert_string_equal(p.name, "file");
        assert_string_equal(p.filename, "dir/a b;c.txt");
        part_release(&p);
        assert_int_equal(part_all(&m, &one, 1 + step % 60), 0);
        assert_string_equal(buf_str(&one), "hello\r\n--x\r\n");
        assert_int_equal(multipart_next(&m, &p), 1);
        assert_string_equal(p.name, "file");
        assert_string_equal(p.filename, "q\".txt");
        part_release(&p);
        assert_int_equal(part_all(&m, &two, 7), 0);
        assert_int_equal(two.n, 0);
        assert_int_equal(multipart_next(&m, &p), 1);
        assert_null(p.name);
        assert_int_equal(part_all(&m, &three, 7), 0);
        assert_string_equal(buf_str(&three), "plain");
        assert_int_equal(multipart_next(&m, &p), 0);
        multipart_release(&m);
    }
}

/* every cut of it is an error, never a part that looks whole */
static void test_multipart_cut(void **state)
{
    size_t end = (size_t)(strstr(form, "--xx--") - form) + 6;

    (void)state;
    for (size_t n = 0; n < end; n++) {
        struct src s = {form, n, 1000};
        struct multipart m;
        struct part p;
        int r;

        multipart_init(&m, "multipart/form-data; boundary=xx", src_read, &s);
        while ((r = multipart_next(&m, &p)) > 0)
            part_release(&p);
        assert_int_equal(r, -EINVAL);
        multipart_release(&m);
    }
}

static void test_multipart_bad(void **state)
{
    struct multipart m;

    (void)state;
    assert_int_equal(multipart_init(&m, "multipart/form-data", src_read, NULL),
                     -EINVAL);
    assert_int_equal(
        multipart_init(&m, "multipart/form-data; boundary=", src_read, NULL),
        -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_envelope_split),
        cmocka_unit_test(test_envelope_bad),
        cmocka_unit_test(test_envelope_gzip),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_signature),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_multipart),
        cmocka_unit_test(test_multipart_cut),
        cmocka_unit_test(test_multipart_bad),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
