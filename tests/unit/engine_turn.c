/*
 * What the bytes of a turn become in the record: the same transcript however
 * they are cut, and however often the follower begins again in between.
 */
#include "engine_record.h"

#include "engine/output.h"

static const char *the_tool, *the_stop;

struct turn {
    struct process p;
};

static int begin_fn(struct tx *tx, void *arg, struct err *e)
{
    struct turn *t = arg;

    (void)e;
    db_exec(tx->db,
            "INSERT INTO sandbox(project,name,status,created,tool,agent) "
            "VALUES(?,'t'||(SELECT count(*) FROM sandbox),'running',?,?,"
            "'working')",
            "iis", rec.project, tx->now_ms, the_tool);
    t->p.sandbox = db_last_id(tx->db);
    db_exec(tx->db,
            "INSERT INTO message(sandbox,state,text,seq,answer,created,"
            "started) VALUES(?,'working','go',1,2,?,?)",
            "iii", t->p.sandbox, tx->now_ms, tx->now_ms);
    t->p.message = db_last_id(tx->db);
    db_exec(tx->db,
            "INSERT INTO process(sandbox,message,state,stop) "
            "VALUES(?,?,'running',?)",
            "iis", t->p.sandbox, t->p.message, the_stop ? the_stop : "");
    t->p.id = db_last_id(tx->db);
    return 0;
}

static void turn_begin(struct turn *t)
{
    struct err e;

    memset(t, 0, sizeof(*t));
    assert_int_equal(store_do(rec.c.store, begin_fn, t, &e), 0);
}

static int batch_fn(struct tx *tx, void *arg, struct err *e)
{
    return tx_batch(tx, &rec.c, arg, e);
}

static int commit(struct output *o)
{
    struct batch *b = output_take(o);
    struct err e;
    int r;

    if (!b)
        return 0;
    r = store_do(rec.c.store, batch_fn, b, &e);
    batch_free(b);
    return r;
}

/* what the follower does after a restart */
static struct output *again(const struct turn *t, const char *out,
                            const char *err)
{
    struct process p;
    struct output *o;

    assert_int_equal(process_get(reader(), t->p.id, &p), 0);
    o = output_open(&rec.c, &p);
    assert_non_null(o);
    if (p.off_out)
        output_replay(o, 1, out, (size_t)p.off_out);
    if (p.off_err)
        output_replay(o, 2, err, (size_t)p.off_err);
    process_clear(&p);
    return o;
}

static char *stream(const struct turn *t, enum stream s)
{
    struct oid o = oid(OBJ_SANDBOX, t->p.sandbox);
    struct buf b = {0};

    store_stream_read(reader(), o, s, 0, 1 << 24, &b);
    return buf_take(&b);
}

static int forget_fn(struct tx *tx, void *arg, struct err *e)
{
    struct turn *t = arg;

    (void)e;
    tx_forget(tx, oid(OBJ_SANDBOX, t->p.sandbox));
    db_exec(tx->db, "DELETE FROM sandbox WHERE id=?", "i", t->p.sandbox);
    return 0;
}

/* the transcript without the times of the end lines */
static char *without_times(char *s)
{
    struct buf b = {0};

    for (char *p = s; *p;) {
        if (!strncmp(p, "── 20", 9) && strlen(p) > 27 && p[11] == '-') {
            buf_adds(&b, "── T");
            p += 7 + 20;
        } else {
            buf_addc(&b, *p++);
        }
    }
    free(s);
    return buf_take(&b);
}

/* feeds out in pieces of step bytes, beginning again every restart pieces */
static char *run(const char *out, size_t n, size_t step, int restart,
                 enum stream which)
{
    struct output *o;
    struct turn t;
    char *text;
    int k = 0;

    turn_begin(&t);
    o = again(&t, out, "");
    for (size_t at = 0; at < n;) {
        size_t len = n - at < step ? n - at : step;

        output_feed(o, 1, out + at, len);
        at += len;
        assert_int_equal(commit(o), 0);
        if (restart && ++k % restart == 0) {
            output_free(o);
            o = again(&t, out, "");
        }
    }
    output_end(o, 0, false, false);
    assert_int_equal(commit(o), 0);
    output_free(o);
    text = stream(&t, which);
    store_do(rec.c.store, forget_fn, &t, NULL);
    return which == STREAM_MESSAGES ? without_times(text) : text;
}

static void text_any_cut(void **state)
{
    static const char out[] =
        "caf\xc3\xa9 \xf0\x9f\x99\x82\n── 2026 forged\n\x1b[31m\xff"
        " end\n\n──no";
    AUTO_FREE char *whole = NULL;

    (void)state;
    the_tool = "shell";
    whole = run(out, sizeof(out) - 1, sizeof(out), 0, STREAM_MESSAGES);
    assert_string_equal(whole,
                        "caf\xc3\xa9 \xf0\x9f\x99\x82\n ── 2026 forged\n"
                        "^[[31m\\xff end\n\n ──no\n── T  #2 completed\n");
    for (size_t step = 1; step < 12; step++) {
        for (int restart = 0; restart < 3; restart++) {
            AUTO_FREE char *cut =
                run(out, sizeof(out) - 1, step, restart, STREAM_MESSAGES);
            AUTO_FREE char *raw =
                run(out, sizeof(out) - 1, step, restart, STREAM_LOG);

            assert_string_equal(cut, whole);
            assert_string_equal(raw, out);
        }
    }
}

static void json_any_cut(void **state)
{
    static const char out[] =
        "{\"type\":\"thread.started\",\"thread_id\":\"th-1\"}\n"
        "{\"type\":\"turn.started\"}\n"
        "{\"type\":\"item.started\",\"item\":{\"id\":\"i1\",\"type\":"
        "\"command_execution\",\"command\":\"ls\",\"status\":"
        "\"in_progress\"}}\n"
        "{\"type\":\"item.completed\",\"item\":{\"id\":\"i1\",\"type\":"
        "\"command_execution\",\"command\":\"ls\",\"aggregated_output\":"
        "\"a\\n\",\"exit_code\":0,\"status\":\"completed\"}}\n"
        "{\"type\":\"item.completed\",\"item\":{\"id\":\"i2\",\"type\":"
        "\"agent_message\",\"text\":\"Fait: caf\xc3\xa9.\"}}\n"
        "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":10,"
        "\"cached_input_tokens\":4,\"output_tokens\":5}}\n";
    AUTO_FREE char *whole = NULL;

    (void)state;
    the_tool = "codex";
    whole = run(out, sizeof(out) - 1, sizeof(out), 0, STREAM_MESSAGES);
    assert_non_null(strstr(whole, "  ▸ "));
    assert_non_null(strstr(whole, "Fait: caf\xc3\xa9.\n── T  #2 completed  "
                                  "10 in  5 out  $"));
    for (size_t step = 7; step < 200; step += 31) {
        for (int restart = 0; restart < 3; restart++) {
            AUTO_FREE char *cut =
                run(out, sizeof(out) - 1, step, restart, STREAM_MESSAGES);

            assert_string_equal(cut, whole);
        }
    }
}

static void errors_between_lines(void **state)
{
    struct output *o;
    struct turn t;
    AUTO_FREE char *log = NULL;

    (void)state;
    the_tool = "codex";
    turn_begin(&t);
    o = again(&t, "", "");
    output_feed(o, 1, "{\"a\":", 5);
    output_feed(o, 2, "warn 1\nwa", 9);
    assert_int_equal(commit(o), 0);
    output_feed(o, 1, "1}\n{\"b\"", 7);
    assert_int_equal(commit(o), 0);
    output_feed(o, 2, "rn 2\n", 5);
    output_feed(o, 1, ":2}\n", 4);
    assert_int_equal(commit(o), 0);
    output_end(o, 0, false, false);
    assert_int_equal(commit(o), 0);
    output_free(o);
    log = stream(&t, STREAM_LOG);
    assert_string_equal(log, "{\"a\":1}\nwarn 1\n{\"b\":2}\nwarn 2\n");
}

static void stale_batches(void **state)
{
    struct output *a, *b;
    struct turn t;
    AUTO_FREE char *log = NULL;

    (void)state;
    the_tool = "shell";
    turn_begin(&t);
    a = again(&t, "one\n", "");
    b = again(&t, "one\n", "");
    output_feed(a, 1, "one\n", 4);
    output_feed(b, 1, "one\n", 4);
    assert_int_equal(commit(a), 0);
    assert_int_equal(commit(b), -ESTALE);
    output_end(a, 0, false, false);
    assert_int_equal(commit(a), 0);
    output_feed(a, 1, "late\n", 5);
    assert_int_equal(commit(a), -ESTALE);
    output_free(a);
    output_free(b);
    log = stream(&t, STREAM_LOG);
    assert_string_equal(log, "one\n");
}

static void stopped_turn(void **state)
{
    struct output *o;
    struct turn t;
    AUTO_FREE char *text = NULL, *jsonl = NULL, *agent = NULL;

    (void)state;
    the_tool = "shell";
    the_stop = "interrupted by user";
    turn_begin(&t);
    the_stop = NULL;
    o = again(&t, "", "");
    output_feed(o, 1, "half", 4);
    output_end(o, 137, true, false);
    assert_int_equal(commit(o), 0);
    output_free(o);
    text = without_times(stream(&t, STREAM_MESSAGES));
    assert_string_equal(text, "half\n── T  #2 error  interrupted by user\n");
    jsonl = stream(&t, STREAM_MESSAGES_JSONL);
    assert_non_null(strstr(jsonl, "\"content\":\"half\""));
    assert_non_null(strstr(jsonl, "\"error\":\"interrupted by user\""));
    agent = db_text(reader(), "SELECT agent FROM sandbox WHERE id=?", "i",
                    t.p.sandbox);
    assert_string_equal(agent, "idle");
}

static int abandon_fn(struct tx *tx, void *arg, struct err *e)
{
    (void)e;
    turn_abandon(tx, ((struct turn *)arg)->p.sandbox, "sandbox ended");
    return 0;
}

static void abandoned_turn(void **state)
{
    struct output *o;
    struct turn t;
    AUTO_FREE char *text = NULL, *state_now = NULL;

    (void)state;
    the_tool = "shell";
    turn_begin(&t);
    o = again(&t, "", "");
    output_feed(o, 1, "so far\n", 7);
    assert_int_equal(commit(o), 0);
    assert_int_equal(store_do(rec.c.store, abandon_fn, &t, NULL), 0);
    output_feed(o, 1, "more\n", 5);
    assert_int_equal(commit(o), -ESTALE);
    output_free(o);
    text = without_times(stream(&t, STREAM_MESSAGES));
    assert_string_equal(text, "so far\n── T  #2 error  sandbox ended\n");
    state_now = db_text(reader(), "SELECT state FROM message WHERE id=?", "i",
                        t.p.message);
    assert_string_equal(state_now, "failed");
}

static void exit_codes(void **state)
{
    static const struct {
        int code;
        bool signaled;
        const char *words;
    } cases[] = {
        {3, false, "#2 error  exited 3"},
        {137, true, "#2 error  killed by signal 9 (SIGKILL)"},
    };

    (void)state;
    the_tool = "shell";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *text = NULL;
        struct output *o;
        struct turn t;

        turn_begin(&t);
        o = again(&t, "", "");
        output_end(o, cases[i].code, cases[i].signaled, false);
        assert_int_equal(commit(o), 0);
        output_free(o);
        text = stream(&t, STREAM_MESSAGES);
        assert_non_null(strstr(text, cases[i].words));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_any_cut, record_open,
                                        record_close),
        cmocka_unit_test_setup_teardown(json_any_cut, record_open,
                                        record_close),
        cmocka_unit_test_setup_teardown(errors_between_lines, record_open,
                                        record_close),
        cmocka_unit_test_setup_teardown(stale_batches, record_open,
                                        record_close),
        cmocka_unit_test_setup_teardown(stopped_turn, record_open,
                                        record_close),
        cmocka_unit_test_setup_teardown(abandoned_turn, record_open,
                                        record_close),
        cmocka_unit_test_setup_teardown(exit_codes, record_open, record_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
