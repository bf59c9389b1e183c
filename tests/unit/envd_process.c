#include "envd_fake.h"

/* a stream on a thread of its own */
struct streaming {
    struct fake f;
    const char *call;
    pthread_t t;
};

static void *stream_main(void *arg)
{
    struct streaming *s = arg;

    process_handle(&s->f.r, &the_box, s->call);
    return NULL;
}

static void stream_begin(struct streaming *s, const char *call,
                         const char *body)
{
    s->call = call;
    header_set(&s->f, "Content-Type", "application/connect+json");
    envelope_add(&s->f.r.body, 0, body, strlen(body));
    pthread_create(&s->t, NULL, stream_main, s);
}

static void sh(struct streaming *s, const char *script, const char *more)
{
    AUTO_FREE char *body = NULL;
    json_t *j = json_pack("{s:{s:s, s:[s, s]}}", "process", "cmd", "/bin/sh",
                          "args", "-c", script);

    if (*more) {
        json_t *m = json_loads(more, 0, NULL);

        assert_non_null(m);
        json_object_update(j, m);
        json_decref(m);
    }
    body = json_dumps(j, 0);
    json_decref(j);
    stream_begin(s, "Start", body);
}

/* all that came so far as an array of messages; the last may be the end */
static json_t *messages(struct streaming *s, bool *ended)
{
    json_t *list = json_array();
    AUTO_BUF struct buf one = {0};
    size_t at = 0;
    ssize_t n;
    int flags;

    *ended = false;
    pthread_mutex_lock(&s->f.mu);
    while ((n = envelope_take(buf_str(&s->f.out) + at, s->f.out.n - at, &flags,
                              &one)) > 0) {
        json_array_append_new(list, json_loadb(one.p, one.n, 0, NULL));
        *ended |= flags & ENVELOPE_END;
        at += (size_t)n;
    }
    pthread_mutex_unlock(&s->f.mu);
    assert_true(n == 0);
    return list;
}

static json_t *event_of(json_t *m, const char *kind)
{
    return json_object_get(json_object_get(m, "event"), kind);
}

/* the bytes of one kind in all messages */
static char *bytes_of(json_t *list, const char *kind)
{
    struct buf b = {0};
    json_t *m;
    size_t i;

    json_array_foreach(list, i, m)
    {
        const char *s =
            json_string_value(json_object_get(event_of(m, "data"), kind));

        if (s)
            assert_int_equal(base64_decode(&b, s, strlen(s)), 0);
    }
    return buf_take(&b);
}

static json_t *finish(struct streaming *s)
{
    bool ended;
    json_t *list;

    pthread_join(s->t, NULL);
    assert_true(s->f.ended);
    list = messages(s, &ended);
    assert_true(ended);
    fake_clear(&s->f);
    return list;
}

static pid_t pid_of(struct streaming *s)
{
    for (int i = 0; i < 400; i++) {
        bool ended;
        json_t *l = messages(s, &ended), *j;
        pid_t pid;

        j = event_of(json_array_get(l, 0), "start");
        pid = (pid_t)json_integer_value(json_object_get(j, "pid"));
        json_decref(l);
        if (pid)
            return pid;
        sleep_ms(5);
    }
    fail_msg("no start event");
    return 0;
}

static void wait_for_text(struct streaming *s, const char *kind,
                          const char *want)
{
    for (int i = 0; i < 600; i++) {
        bool ended, found;
        json_t *l = messages(s, &ended);
        AUTO_FREE char *have = bytes_of(l, kind);

        found = strstr(have, want);
        json_decref(l);
        if (found)
            return;
        sleep_ms(5);
    }
    fail_msg("'%s' never came", want);
}

static json_t *end_of(json_t *list)
{
    return event_of(json_array_get(list, json_array_size(list) - 2), "end");
}

static const char *str(json_t *j, const char *name)
{
    const char *s = json_string_value(json_object_get(j, name));

    return s ? s : "";
}

static const char *end_error(json_t *list)
{
    json_t *m = json_array_get(list, json_array_size(list) - 1);

    return str(json_object_get(m, "error"), "code");
}

static void test_run(void **state)
{
    struct streaming s = {0};
    json_t *l;
    AUTO_FREE char *out = NULL, *err = NULL;

    (void)state;
    fake_init(&s.f, "POST", "/");
    sh(&s, "echo hi $X $HOME $E2B_SANDBOX; echo oops >&2; pwd; exit 3",
       "{\"stdin\":false}");
    l = finish(&s);
    out = bytes_of(l, "stdout");
    err = bytes_of(l, "stderr");
    assert_non_null(strstr(out, "hi box /home/user true\n"));
    assert_non_null(strstr(out, "/home/user\n"));
    assert_string_equal(err, "oops\n");
    assert_string_equal(str(end_of(l), "status"), "exit status 3");
    assert_int_equal(
        json_integer_value(json_object_get(end_of(l), "exitCode")), 3);
    json_decref(l);
}

static void test_errors(void **state)
{
    struct streaming s = {0};
    json_t *l;

    (void)state;
    fake_init(&s.f, "POST", "/");
    stream_begin(&s, "Start",
                 "{\"process\":{\"cmd\":\"/bin/sh\",\"cwd\":\"/nope\"}}");
    l = finish(&s);
    assert_int_equal(json_array_size(l), 1);
    assert_string_equal(end_error(l), "invalid_argument");
    json_decref(l);

    memset(&s, 0, sizeof(s));
    fake_init(&s.f, "POST", "/");
    stream_begin(&s, "Start", "{\"process\":{\"cmd\":\"no-such-program\"}}");
    l = finish(&s);
    assert_string_equal(str(end_of(l), "status"), "exit status 127");
    json_decref(l);

    memset(&s, 0, sizeof(s));
    fake_init(&s.f, "POST", "/");
    stream_begin(&s, "Connect", "{\"process\":{\"pid\":999999}}");
    l = finish(&s);
    assert_string_equal(end_error(l), "not_found");
    json_decref(l);
}

static void test_stdin(void **state)
{
    struct streaming s = {0};
    char body[200];
    int status;
    json_t *l;
    AUTO_FREE char *out = NULL;
    pid_t pid;

    (void)state;
    fake_init(&s.f, "POST", "/");
    sh(&s, "cat", "{\"tag\":\"t1\"}");
    pid = pid_of(&s);
    l = unary(process_handle, "List", &status, "{}");
    assert_int_equal(json_array_size(json_object_get(l, "processes")), 1);
    assert_int_equal(process_count("ibox"), 1);
    json_decref(l);
    snprintf(body, sizeof(body),
             "{\"process\":{\"pid\":%d},\"input\":{\"stdin\":\"aGVsbG8K\"}}",
             pid);
    json_decref(unary(process_handle, "SendInput", &status, body));
    assert_int_equal(status, 200);
    wait_for_text(&s, "stdout", "hello\n");
    json_decref(unary(process_handle, "SendInput", &status,
                      "{\"process\":{\"tag\":\"t1\"},"
                      "\"input\":{\"pty\":\"aGVsbG8K\"}}"));
    assert_int_equal(status, 500);
    for (int i = 0; i < 2; i++)
        json_decref(unary(process_handle, "CloseStdin", &status,
                          "{\"process\":{\"tag\":\"t1\"}}"));
    l = finish(&s);
    out = bytes_of(l, "stdout");
    assert_string_equal(out, "hello\n");
    assert_string_equal(str(end_of(l), "status"), "exit status 0");
    json_decref(l);
    json_decref(unary(process_handle, "CloseStdin", &status,
                      "{\"process\":{\"tag\":\"t1\"}}"));
    assert_int_equal(status, 404);
}

static void test_signal_and_late_connect(void **state)
{
    struct streaming s = {0}, c = {0};
    char body[200];
    int status;
    json_t *l;
    pid_t pid;

    (void)state;
    fake_init(&s.f, "POST", "/");
    sh(&s, "echo a; exec sleep 60", "{\"stdin\":false}");
    pid = pid_of(&s);
    wait_for_text(&s, "stdout", "a\n");
    snprintf(body, sizeof(body),
             "{\"process\":{\"pid\":%d},\"signal\":\"SIGNAL_SIGKILL\"}", pid);
    json_decref(unary(process_handle, "SendSignal", &status, body));
    assert_int_equal(status, 200);
    l = finish(&s);
    assert_string_equal(str(end_of(l), "status"), "signal: killed");
    json_decref(l);
    json_decref(unary(process_handle, "SendSignal", &status, body));
    assert_int_equal(status, 404);

    fake_init(&c.f, "POST", "/");
    snprintf(body, sizeof(body), "{\"process\":{\"pid\":%d}}", pid);
    stream_begin(&c, "Connect", body);
    l = finish(&c);
    assert_int_equal(json_array_size(l), 3);
    assert_string_equal(str(end_of(l), "status"), "signal: killed");
    json_decref(l);
}

static void test_children_hold_pipes(void **state)
{
    struct streaming s = {0};
    int64_t from = mono_ms();
    json_t *l;
    AUTO_FREE char *out = NULL;

    (void)state;
    fake_init(&s.f, "POST", "/");
    sh(&s, "sleep 3 & echo x", "{\"stdin\":false}");
    l = finish(&s);
    out = bytes_of(l, "stdout");
    assert_string_equal(out, "x\n");
    assert_true(mono_ms() - from < 1500);
    json_decref(l);
}

static void test_deadline(void **state)
{
    struct streaming s = {0}, c = {0};
    char body[100];
    json_t *l;

    (void)state;
    fake_init(&s.f, "POST", "/");
    header_set(&s.f, "Connect-Timeout-Ms", "300");
    sh(&s, "exec sleep 60", "");
    snprintf(body, sizeof(body), "{\"process\":{\"pid\":%d}}", pid_of(&s));
    l = finish(&s);
    assert_int_equal(json_array_size(l), 2);
    assert_string_equal(end_error(l), "deadline_exceeded");
    json_decref(l);
    fake_init(&c.f, "POST", "/");
    stream_begin(&c, "Connect", body);
    l = finish(&c);
    assert_string_equal(str(end_of(l), "status"), "signal: killed");
    json_decref(l);
}

/* a reader that stands still holds the process up and loses nothing */
static void test_backpressure(void **state)
{
    struct streaming s = {0};
    json_t *l;
    AUTO_FREE char *out = NULL;
    int lines = 0;

    (void)state;
    fake_init(&s.f, "POST", "/");
    sh(&s,
       "i=0; while [ $i -lt 100000 ]; do echo line $i xxxxxxxxxxxxxxxxxxx;"
       " i=$((i+1)); done",
       "{\"stdin\":false}");
    pid_of(&s);
    s.f.stalled = true;
    sleep_ms(500);
    assert_int_equal(process_count("ibox"), 1);
    s.f.stalled = false;
    l = finish(&s);
    out = bytes_of(l, "stdout");
    for (char *c = out; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 100000);
    assert_string_equal(str(end_of(l), "status"), "exit status 0");
    json_decref(l);
}

static void test_keepalive_and_disconnect(void **state)
{
    struct streaming s = {0}, c = {0};
    char body[100];
    bool ended;
    int status;
    json_t *l;
    pid_t pid;

    (void)state;
    fake_init(&s.f, "POST", "/");
    header_set(&s.f, "Keepalive-Ping-Interval", "0.1");
    sh(&s, "read a; echo got $a", "");
    pid = pid_of(&s);
    sleep_ms(350);
    l = messages(&s, &ended);
    assert_in_range(json_array_size(l), 3, 5);
    assert_non_null(event_of(json_array_get(l, 1), "keepalive"));
    json_decref(l);
    s.f.gone = true;
    pthread_join(s.t, NULL);
    fake_clear(&s.f);
    assert_int_equal(process_count("ibox"), 1);

    fake_init(&c.f, "POST", "/");
    snprintf(body, sizeof(body), "{\"process\":{\"pid\":\"%d\"}}", pid);
    stream_begin(&c, "Connect", body);
    assert_int_equal(pid_of(&c), pid);
    snprintf(body, sizeof(body),
             "{\"process\":{\"pid\":%d},\"input\":{\"stdin\":\"eQo=\"}}", pid);
    json_decref(unary(process_handle, "SendInput", &status, body));
    l = finish(&c);
    {
        AUTO_FREE char *out = bytes_of(l, "stdout");

        assert_string_equal(out, "got y\n");
    }
    json_decref(l);
}

static void test_pty(void **state)
{
    struct streaming s = {0};
    char body[200];
    int status;
    json_t *l;
    AUTO_FREE char *out = NULL;
    pid_t pid;

    (void)state;
    fake_init(&s.f, "POST", "/");
    sh(&s, "stty size; read a; stty size; test -t 0 && echo tty $a",
       "{\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}");
    pid = pid_of(&s);
    wait_for_text(&s, "pty", "24 80");
    snprintf(body, sizeof(body),
             "{\"process\":{\"pid\":%d},\"pty\":{\"size\":"
             "{\"cols\":100,\"rows\":30}}}",
             pid);
    json_decref(unary(process_handle, "Update", &status, body));
    assert_int_equal(status, 200);
    snprintf(body, sizeof(body),
             "{\"process\":{\"pid\":%d},\"input\":{\"pty\":\"eQo=\"}}", pid);
    json_decref(unary(process_handle, "SendInput", &status, body));
    assert_int_equal(status, 200);
    l = finish(&s);
    out = bytes_of(l, "pty");
    assert_non_null(strstr(out, "30 100"));
    assert_non_null(strstr(out, "tty y"));
    assert_string_equal(str(end_of(l), "status"), "exit status 0");
    json_decref(l);
}

static void test_box_ends(void **state)
{
    struct streaming s = {0};
    json_t *l;
    pid_t pid;

    (void)state;
    fake_init(&s.f, "POST", "/");
    sh(&s, "exec sleep 60", "");
    pid = pid_of(&s);
    the_box.dead = true;
    for (size_t i = 0; i < ARRAY_LEN(on_end); i++)
        if (on_end[i])
            on_end[i]("ibox");
    l = finish(&s);
    assert_string_equal(end_error(l), "unavailable");
    json_decref(l);
    kill(pid, SIGKILL);
    sleep_ms(100);
    the_box.dead = false;
}

static void test_stream_input(void **state)
{
    struct streaming s = {0};
    struct fake f;
    struct buf up = {0};
    char body[200];
    json_t *l;
    AUTO_FREE char *out = NULL;

    (void)state;
    fake_init(&s.f, "POST", "/");
    sh(&s, "head -c 6", "");
    fake_init(&f, "POST", "/");
    header_set(&f, "Content-Type", "application/connect+json");
    snprintf(body, sizeof(body), "{\"start\":{\"process\":{\"pid\":%d}}}",
             pid_of(&s));
    envelope_add(&up, 0, body, strlen(body));
    for (int i = 0; i < 2; i++) {
        const char *m = i ? "{\"data\":{\"input\":{\"stdin\":\"bG8K\"}}}"
                          : "{\"data\":{\"input\":{\"stdin\":\"aGVs\"}}}";

        envelope_add(&up, 0, m, strlen(m));
    }
    f.upload = up.p;
    f.upload_n = up.n;
    f.upload_step = 7;
    process_handle(&f.r, &the_box, "StreamInput");
    assert_int_equal(f.status, 200);
    assert_int_equal(f.out.n, 14);
    fake_clear(&f);
    buf_free(&up);
    l = finish(&s);
    out = bytes_of(l, "stdout");
    assert_string_equal(out, "hello\n");
    json_decref(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_stdin),
        cmocka_unit_test(test_signal_and_late_connect),
        cmocka_unit_test(test_children_hold_pipes),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_backpressure),
        cmocka_unit_test(test_keepalive_and_disconnect),
        cmocka_unit_test(test_pty),
        cmocka_unit_test(test_stream_input),
        cmocka_unit_test(test_box_ends),
    };

    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
