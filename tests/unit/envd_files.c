#include "envd_fake.h"

#include "local/boxfs.h"
#include "local/proc.h"

#include <zlib.h>

static void put(const char *in_box, const char *text)
{
    AUTO_FREE char *path = host_path(in_box);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void check(const char *in_box, const char *text)
{
    AUTO_FREE char *path = host_path(in_box);
    AUTO_BUF struct buf b = {0};

    assert_int_equal(file_read(path, 1 << 20, &b), 0);
    assert_string_equal(buf_str(&b), text);
}

static void link_at(const char *target, const char *in_box)
{
    AUTO_FREE char *path = host_path(in_box);

    assert_int_equal(symlink(target, path), 0);
}

/* a unary call that must answer `want` */
static json_t *fs_call(const char *call, const char *body, int want)
{
    int status;
    json_t *j = unary(fs_handle, call, &status, body);

    if (status != want)
        print_message("%s %s: %d %s\n", call, body, status,
                      json_string_value(json_object_get(j, "message")));
    assert_int_equal(status, want);
    return j;
}

static void fs_only(const char *call, const char *body, int want)
{
    json_decref(fs_call(call, body, want));
}

static const char *str(json_t *j, const char *name)
{
    const char *s = json_string_value(json_object_get(j, name));

    return s ? s : "";
}

static void test_stat(void **state)
{
    json_t *j, *e;

    (void)state;
    put("/home/user/a.txt", "hello");
    j = fs_call("Stat", "{\"path\":\"a.txt\"}", 200);
    e = json_object_get(j, "entry");
    assert_string_equal(str(e, "name"), "a.txt");
    assert_string_equal(str(e, "path"), "/home/user/a.txt");
    assert_string_equal(str(e, "type"), "FILE_TYPE_FILE");
    assert_string_equal(str(e, "size"), "5");
    assert_string_equal(str(e, "permissions"), "-rw-r-----");
    assert_int_equal(json_integer_value(json_object_get(e, "mode")), 0640);
    assert_string_equal(str(e, "owner"), "user");
    json_decref(j);

    link_at("/home/user/a.txt", "/home/user/link");
    j = fs_call("Stat", "{\"path\":\"~/link\"}", 200);
    e = json_object_get(j, "entry");
    assert_string_equal(str(e, "type"), "FILE_TYPE_FILE");
    assert_string_equal(str(e, "symlinkTarget"), "/home/user/a.txt");
    assert_string_equal(str(e, "permissions"), "Lrwxrwxrwx");
    json_decref(j);

    link_at("nowhere", "/home/user/broken");
    j = fs_call("Stat", "{\"path\":\"broken\"}", 200);
    e = json_object_get(j, "entry");
    assert_null(json_object_get(e, "type"));
    assert_string_equal(str(e, "symlinkTarget"), "/home/user/broken");
    json_decref(j);

    fs_only("Stat", "{\"path\":\"none\"}", 404);
    fs_only("Stat", "{\"path\":\"~other/x\"}", 400);
    fs_only("Stat", "{\"path\":\"\"}", 200);
    fs_only("Stat", "{\"path\":\"/\"}", 200);
    fs_only("Stat", "nonsense", 400);
    fs_only("Nothing", "{}", 404);
}

/* whatever a link or a path says, the way never leads out of the box */
static void test_no_way_out(void **state)
{
    AUTO_FREE char *outside = xasprintf("/tmp/envd-outside-%d", getpid());
    AUTO_FREE char *up = xasprintf("../../../../../..%s", outside);
    AUTO_FREE char *call = NULL;
    AUTO_CLOSE int fd = open(outside, O_WRONLY | O_CREAT, 0600);
    struct boxfs f;
    struct stat st;

    (void)state;
    assert_true(fd >= 0);
    link_at(outside, "/home/user/abs");
    link_at(up, "/home/user/rel");
    fs_only("Move", "{\"source\":\"abs\",\"destination\":\"abs2\"}", 200);
    boxfs_enter(&f, &the_box, false);
    assert_int_equal(boxfs_read(&f, "/home/user/abs2", &st), -ENOENT);
    assert_int_equal(boxfs_read(&f, "/home/user/rel", &st), -ENOENT);
    assert_int_equal(boxfs_read(&f, up, &st), -ENOENT);
    assert_int_equal(boxfs_read(&f, "/dev/null", &st), -ENOENT);
    boxfs_leave(&f);
    call = xasprintf("{\"path\":\"../../../../..%s\"}", outside);
    fs_only("Remove", call, 200);
    assert_int_equal(access(outside, F_OK), 0);
    unlink(outside);
}

static void test_dirs(void **state)
{
    json_t *j, *l;

    (void)state;
    fs_only("MakeDir", "{\"path\":\"d/e/f\"}", 200);
    fs_only("MakeDir", "{\"path\":\"d/e/f\"}", 409);
    put("/home/user/d/x", "");
    fs_only("MakeDir", "{\"path\":\"d/x\"}", 400);
    fs_only("MakeDir", "{\"path\":\"d/x/y\"}", 400);
    put("/home/user/d/e/bad\xff", "1");
    j = fs_call("ListDir", "{\"path\":\"d\"}", 200);
    l = json_object_get(j, "entries");
    assert_int_equal(json_array_size(l), 2);
    assert_string_equal(str(json_array_get(l, 0), "name"), "e");
    assert_string_equal(str(json_array_get(l, 1), "path"), "/home/user/d/x");
    json_decref(j);
    j = fs_call("ListDir", "{\"path\":\"/home/user/d\",\"depth\":2}", 200);
    l = json_object_get(j, "entries");
    assert_int_equal(json_array_size(l), 4);
    assert_string_equal(str(json_array_get(l, 1), "name"), "bad\\xff");
    json_decref(j);
    fs_only("ListDir", "{\"path\":\"d/x\"}", 400);
    fs_only("ListDir", "{\"path\":\"none\"}", 404);
    link_at("loop", "/home/user/loop");
    fs_only("ListDir", "{\"path\":\"loop\"}", 400);
    link_at("d", "/home/user/dlink");
    j = fs_call("ListDir", "{\"path\":\"dlink\"}", 200);
    l = json_object_get(j, "entries");
    assert_string_equal(str(json_array_get(l, 0), "path"),
                        "/home/user/dlink/e");
    json_decref(j);
    j = fs_call("ListDir", "{\"path\":\"d/e/f\"}", 200);
    assert_int_equal(json_object_size(j), 0);
    json_decref(j);

    fs_only("Move", "{\"source\":\"d/x\",\"destination\":\"n/m/x2\"}", 200);
    check("/home/user/n/m/x2", "");
    fs_only("Move", "{\"source\":\"d/x\",\"destination\":\"y\"}", 404);
    fs_only("Remove", "{\"path\":\"d\"}", 200);
    fs_only("Remove", "{\"path\":\"d\"}", 200);
    fs_only("Stat", "{\"path\":\"d\"}", 404);
    fs_only("Remove", "{\"path\":\"/\"}", 400);
}

static void test_remove_deep(void **state)
{
    AUTO_BUF struct buf path = {0}, call = {0};

    (void)state;
    buf_adds(&path, "deep");
    for (int i = 0; i < 250; i++)
        buf_adds(&path, "/d");
    buf_addf(&call, "{\"path\":\"%s\"}", path.p);
    fs_only("MakeDir", call.p, 200);
    fs_only("Remove", "{\"path\":\"deep\"}", 200);
    fs_only("Stat", "{\"path\":\"deep\"}", 404);
}

/* ---- /files ---- */

static int upload(const char *path, const char *type, const char *body,
                  size_t step, struct buf *out)
{
    struct fake f;
    int status;

    fake_init(&f, "POST", "/files");
    header_set(&f, "Content-Type", type);
    if (path) {
        f.query[0] = "path";
        f.query[1] = path;
    }
    f.upload = body;
    f.upload_n = strlen(body);
    f.upload_step = step;
    files_handle(&f.r, &the_box);
    status = f.status;
    if (out)
        buf_add(out, f.out.p, f.out.n);
    fake_clear(&f);
    return status;
}

static int download(const char *path, const char *header, const char *value,
                    struct buf *out, struct buf *extra)
{
    struct fake f;
    int status;

    fake_init(&f, "GET", "/files");
    if (header)
        header_set(&f, header, value);
    f.query[0] = "path";
    f.query[1] = path;
    files_handle(&f.r, &the_box);
    status = f.status;
    buf_clear(out);
    buf_add(out, f.out.p, f.out.n);
    if (extra) {
        buf_clear(extra);
        buf_add(extra, f.extra.p, f.extra.n);
    }
    fake_clear(&f);
    return status;
}

#define OCTETS "application/octet-stream"

static void test_upload(void **state)
{
    AUTO_BUF struct buf out = {0};
    AUTO_FREE char *path = host_path("/home/user/new/dir/f");
    struct stat st;

    (void)state;
    assert_int_equal(upload("new/dir/f", OCTETS, "content", 3, &out), 200);
    assert_string_equal(buf_str(&out), "[{\"name\":\"f\",\"path\":\"/home/user"
                                       "/new/dir/f\",\"type\":\"file\"}]");
    check("/home/user/new/dir/f", "content");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    chmod(path, 0750);
    assert_int_equal(upload("new/dir/f", OCTETS, "", 3, NULL), 200);
    check("/home/user/new/dir/f", "");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0750);
    assert_int_equal(upload("new/dir", OCTETS, "x", 3, NULL), 400);
    assert_int_equal(upload(NULL, OCTETS, "x", 3, NULL), 400);
    assert_int_equal(upload("x", "text/plain", "x", 3, NULL), 400);
    assert_int_equal(upload("new/dir/f/g", OCTETS, "x", 3, NULL), 404);

    put("/home/user/target", "old");
    link_at("target", "/home/user/to-target");
    assert_int_equal(upload("to-target", OCTETS, "through", 3, NULL), 200);
    check("/home/user/target", "through");
}

static void test_upload_multipart(void **state)
{
    static const char form[] =
        "--b\r\nContent-Disposition: form-data; name=\"file\"; "
        "filename=\"m/a.txt\"\r\n\r\none\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nskip"
        "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; "
        "filename=\"m/b.txt\"\r\n\r\ntwo\r\n--b--\r\n";
    AUTO_BUF struct buf out = {0};

    (void)state;
    assert_int_equal(
        upload(NULL, "multipart/form-data; boundary=b", form, 11, &out), 200);
    check("/home/user/m/a.txt", "one");
    check("/home/user/m/b.txt", "two");
    assert_non_null(strstr(buf_str(&out), "b.txt"));
    /* both parts would be the same file */
    assert_int_equal(
        upload("same", "multipart/form-data; boundary=b", form, 11, NULL),
        400);
    assert_int_equal(
        upload(NULL, "multipart/form-data; boundary=c", form, 11, NULL), 400);
}

/* what is cut short leaves neither a half file nor a temporary one */
static void test_upload_cut(void **state)
{
    json_t *j;

    (void)state;
    fs_only("MakeDir", "{\"path\":\"cut\"}", 200);
    put("/home/user/cut/f", "whole");
    assert_int_equal(upload("cut/f", "multipart/form-data; boundary=b",
                            "--b\r\nContent-Disposition: form-data; "
                            "name=\"file\"; filename=\"f\"\r\n\r\nhal",
                            5, NULL),
                     400);
    check("/home/user/cut/f", "whole");
    j = fs_call("ListDir", "{\"path\":\"cut\"}", 200);
    assert_int_equal(json_array_size(json_object_get(j, "entries")), 1);
    json_decref(j);
}

static void test_download(void **state)
{
    AUTO_BUF struct buf b = {0}, x = {0};
    char text[4096];

    (void)state;
    put("/home/user/d.txt", "0123456789");
    assert_int_equal(download("d.txt", NULL, NULL, &b, &x), 200);
    assert_string_equal(buf_str(&b), "0123456789");
    assert_non_null(strstr(x.p, "inline; filename=d.txt"));
    assert_non_null(strstr(x.p, "text/plain"));
    assert_int_equal(download("d.txt", "Range", "bytes=3-5", &b, &x), 206);
    assert_string_equal(buf_str(&b), "345");
    assert_non_null(strstr(x.p, "Content-Range: bytes 3-5/10"));
    assert_int_equal(download("d.txt", "Range", "bytes=10-", &b, &x), 416);
    assert_non_null(strstr(x.p, "Content-Range: bytes */10"));
    assert_int_equal(download("none", NULL, NULL, &b, NULL), 404);
    assert_int_equal(download("/home", NULL, NULL, &b, NULL), 400);
    assert_int_equal(download("d.txt", "If-Modified-Since",
                              "Sun, 06 Nov 2094 08:49:37 GMT", &b, NULL),
                     304);

    assert_int_equal(
        download("d.txt", "Accept-Encoding", "gzip, deflate", &b, &x), 200);
    assert_non_null(strstr(x.p, "Content-Encoding: gzip"));
    {
        z_stream z = {.next_in = (Bytef *)b.p,
                      .avail_in = (uInt)b.n,
                      .next_out = (Bytef *)text,
                      .avail_out = sizeof(text)};

        inflateInit2(&z, 15 + 16);
        assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
        assert_int_equal(z.total_out, 10);
        inflateEnd(&z);
    }
    {
        AUTO_FREE char *fifo = host_path("/home/user/fifo");

        assert_int_equal(mkfifo(fifo, 0600), 0);
    }
    assert_int_equal(download("fifo", NULL, NULL, &b, NULL), 400);
    assert_int_equal(upload("fifo", OCTETS, "x", 1, NULL), 403);
}

static void test_signed(void **state)
{
    struct fake f;

    (void)state;
    fake_init(&f, "POST", "/files");
    f.query[0] = "path";
    f.query[1] = "s.txt";
    assert_false(files_signature_ok(&f.r, &the_box));
    assert_string_equal(files_signature_words(&f.r, &the_box),
                        "missing signature query parameter");
    f.query[2] = "signature";
    f.query[3] = "v1_l4muRYjq+ZDAdtneG96+fcpzaXLCo4N39XqoV5BXtts";
    assert_true(files_signature_ok(&f.r, &the_box));
    f.r.method = "GET";
    assert_string_equal(files_signature_words(&f.r, &the_box),
                        "invalid signature");
    fake_clear(&f);
}

static void test_compose(void **state)
{
    struct fake f;

    (void)state;
    put("/home/user/p1", "one ");
    put("/home/user/p2", "two");
    fake_init(&f, "POST", "/files/compose");
    buf_adds(&f.r.body, "{\"source_paths\":[\"p1\",\"/home/user/p2\"],"
                        "\"destination\":\"c/whole\"}");
    files_handle(&f.r, &the_box);
    assert_int_equal(f.status, 200);
    fake_clear(&f);
    check("/home/user/c/whole", "one two");
    fs_only("Stat", "{\"path\":\"p1\"}", 404);
}

/* ---- watching ---- */

static void wait_names(const char *id, const char *const *want)
{
    AUTO_FREE char *ask = xasprintf("{\"watcherId\":\"%s\"}", id);
    AUTO_BUF struct buf have = {0}, all = {0};

    for (; *want; want++)
        buf_addf(&all, "%s\n", *want);
    for (int i = 0; i < 100 && have.n < all.n; i++) {
        json_t *j = fs_call("GetWatcherEvents", ask, 200), *ev;
        size_t k;

        json_array_foreach(json_object_get(j, "events"), k, ev)
        {
            buf_addf(&have, "%s %s\n", str(ev, "name"),
                     str(ev, "type") + strlen("EVENT_TYPE_"));
        }
        json_decref(j);
        sleep_ms(10);
    }
    assert_string_equal(buf_str(&have), all.p);
}

static void test_watcher(void **state)
{
    static const char *const want[] = {
        "f CREATE",  "f CHMOD",  "f WRITE",      "f WRITE",      "sub CREATE",
        "sub CHMOD", "f RENAME", "sub/g CREATE", "sub/g REMOVE", NULL};
    AUTO_FREE char *id = NULL, *ask = NULL;
    json_t *j;

    (void)state;
    fs_only("MakeDir", "{\"path\":\"w\"}", 200);
    j = fs_call("CreateWatcher", "{\"path\":\"w\",\"recursive\":true}", 200);
    id = xstrdup(str(j, "watcherId"));
    json_decref(j);
    assert_int_equal(upload("w/f", OCTETS, "new", 9, NULL), 200);
    assert_int_equal(upload("w/f", OCTETS, "over", 9, NULL), 200);
    fs_only("MakeDir", "{\"path\":\"w/sub\"}", 200);
    sleep_ms(50);
    fs_only("Move", "{\"source\":\"w/f\",\"destination\":\"w/sub/g\"}", 200);
    fs_only("Remove", "{\"path\":\"w/sub/g\"}", 200);
    wait_names(id, want);
    ask = xasprintf("{\"watcherId\":\"%s\"}", id);
    fs_only("RemoveWatcher", ask, 200);
    fs_only("RemoveWatcher", ask, 404);
    fs_only("GetWatcherEvents", ask, 404);
    fs_only("CreateWatcher", "{\"path\":\"none\"}", 404);
    fs_only("CreateWatcher", "{\"path\":\"w/sub/../../d.txt\"}", 400);
    sleep_ms(50);
}

static void test_watch_stream(void **state)
{
    struct fake f;
    int64_t from = mono_ms();

    (void)state;
    fake_init(&f, "POST", "/");
    header_set(&f, "Content-Type", "application/connect+json");
    header_set(&f, "Connect-Timeout-Ms", "300");
    envelope_add(&f.r.body, 0, "{\"path\":\"/home\"}", 16);
    fs_handle(&f.r, &the_box, "WatchDir");
    assert_in_range(mono_ms() - from, 290, 1500);
    assert_non_null(memmem(f.out.p, f.out.n, "{\"start\":{}}", 12));
    assert_non_null(memmem(f.out.p, f.out.n, "deadline_exceeded", 17));
    fake_clear(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat),
        cmocka_unit_test(test_no_way_out),
        cmocka_unit_test(test_dirs),
        cmocka_unit_test(test_remove_deep),
        cmocka_unit_test(test_upload),
        cmocka_unit_test(test_upload_multipart),
        cmocka_unit_test(test_upload_cut),
        cmocka_unit_test(test_download),
        cmocka_unit_test(test_signed),
        cmocka_unit_test(test_compose),
        cmocka_unit_test(test_watcher),
        cmocka_unit_test(test_watch_stream),
    };

    umask(022);
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
