/* Keys of config: levels, ranges, texts, what holds and where it is from. */
#include "engine_record.h"

#include "engine/config.h"

static int check(const char *key, const char *value)
{
    struct err e = {0};

    return config_check(key, value, CONFIG_SANDBOX, &e);
}

static void ranges(void **state)
{
    (void)state;
    assert_int_equal(check("timeout", "1m"), 0);
    assert_int_equal(check("timeout", "59s"), -EINVAL);
    assert_int_equal(check("timeout", "4h"), 0);
    assert_int_equal(check("timeout", "14401"), -EINVAL);
    assert_int_equal(check("timeout", ""), -EINVAL);
    assert_int_equal(check("memory", "256"), 0);
    assert_int_equal(check("memory", "255"), -EINVAL);
    assert_int_equal(check("memory", "8193"), -EINVAL);
    assert_int_equal(check("cpu", "8"), 0);
    assert_int_equal(check("cpu", "9"), -EINVAL);
    assert_int_equal(check("cpu", "two"), -EINVAL);
    assert_int_equal(check("salvage_ahead", "10s"), 0);
    assert_int_equal(check("salvage_ahead", "11m"), -EINVAL);
    assert_int_equal(check("budget", "2.50"), 0);
    assert_int_equal(check("budget", "0"), -EINVAL);
    assert_int_equal(check("budget", "nan"), -EINVAL);
    assert_int_equal(check("on_timeout", "pause"), 0);
    assert_int_equal(check("on_timeout", ""), -EINVAL);
    assert_int_equal(check("pr", "yes"), -EINVAL);
    assert_int_equal(check("branch", ""), -EINVAL);
    assert_int_equal(check("branch", "-x"), -EINVAL);
    assert_int_equal(check("branch", "feature/a"), 0);
    assert_int_equal(check("network", "allow=github.com,10.0.0.0/8"), 0);
    assert_int_equal(check("network", "allow="), -EINVAL);
    assert_int_equal(check("network", "allow=a b"), -EINVAL);
    assert_int_equal(check("network", "perhaps"), -EINVAL);
    assert_int_equal(check("thinking", "max"), 0);
    assert_int_equal(check("thinking", "opus:high, x:free:low"), 0);
    assert_int_equal(check("thinking", "opus:huge"), -EINVAL);
    assert_int_equal(check("max_active", "3"), -EINVAL);
    assert_int_equal(check("learning_tool", "shell"), -EINVAL);
    assert_int_equal(check("nonsense", "3"), -EINVAL);
    assert_int_equal(config_check("max_active", "3", CONFIG_ROOT, NULL), 0);
    assert_int_equal(config_check("max_active", "0", CONFIG_ROOT, NULL),
                     -EINVAL);
}

static void texts(void **state)
{
    static const char text[] = "# mine\ntimeout = 30m\n\nmodel = a b\n"
                               "timeout = 1h\n# end";
    AUTO_FREE char *v = config_find(text, strlen(text), "timeout");
    AUTO_FREE char *none = config_find(text, strlen(text), "cpu");
    AUTO_FREE char *effort = config_thinking("a:low b:high", "b");
    AUTO_BUF struct buf b = {0};
    char shown[160];

    (void)state;
    assert_string_equal(v, "1h");
    assert_null(none);
    assert_string_equal(effort, "high");
    buf_adds(&b, text);
    config_set(&b, "timeout", "2h");
    config_set(&b, "cpu", "4");
    assert_string_equal(b.p, "# mine\ntimeout = 2h\n\nmodel = a b\n# end\n"
                             "cpu = 4\n");
    text_refused("sk-ant-api03-abcdefgh1234567890 and more words than fit in "
                 "forty",
                 shown);
    assert_null(strstr(shown, "ant-api03"));
    assert_true(strlen(shown) <= 43);
}

static void levels(void **state)
{
    struct sandbox s;
    const char *from;
    char *v;

    (void)state;
    assert_int_equal(save(root_oid(), "config", "cpu = 3\ntimeout = 1h\n"), 0);
    assert_int_equal(save(the_project(), "config", "timeout = 2h\n"), 0);
    assert_int_equal(save(the_sandbox(), "config", "memory = 512\n"), 0);
    assert_int_equal(sandbox_get(reader(), rec.sandbox, &s), 0);
    v = config_value(reader(), &s, "memory", &from);
    assert_string_equal(v, "512");
    assert_string_equal(from, "sandbox");
    free(v);
    v = config_value(reader(), &s, "timeout", &from);
    assert_string_equal(v, "2h");
    assert_string_equal(from, "project");
    free(v);
    v = config_value(reader(), &s, "cpu", &from);
    assert_string_equal(v, "3");
    assert_string_equal(from, "root");
    free(v);
    v = config_value(reader(), &s, "tool", &from);
    assert_string_equal(v, "shell"); /* there is no key */
    assert_string_equal(from, "default");
    free(v);
    v = config_value(reader(), &s, "learn", &from);
    assert_string_equal(v, "off");
    free(v);
    assert_int_equal(config_seconds(reader(), &s, "timeout", 1), 7200);
    sandbox_clear(&s);
}

static void a_key_makes_claude_the_tool(void **state)
{
    struct sandbox s;
    char *v;

    (void)state;
    assert_int_equal(save(the_project(), "keys/anthropic", "sk-test-12345678"),
                     0);
    assert_int_equal(sandbox_get(reader(), rec.sandbox, &s), 0);
    v = config_value(reader(), &s, "tool", NULL);
    assert_string_equal(v, "claude");
    free(v);
    sandbox_clear(&s);
}

static int freeze(struct tx *tx, void *arg, struct err *e)
{
    (void)arg;
    return tx_config_freeze(tx, &rec.c, rec.sandbox, e);
}

static int start(struct err *e)
{
    int r = store_do(rec.c.store, freeze, NULL, e);

    if (r == 0)
        record_sql("UPDATE sandbox SET status='running'");
    return r;
}

static void frozen(void **state)
{
    struct err e = {0};
    struct sandbox s;
    const char *from;
    char *v;

    (void)state;
    assert_int_equal(save(the_sandbox(), "config",
                          "tool = shell\nbackend = local\ncpu = 2\n"
                          "repo = https://github.com/o/r\n"),
                     0);
    assert_int_equal(start(&e), 0);
    assert_int_equal(sandbox_get(reader(), rec.sandbox, &s), 0);
    assert_string_equal(s.tool, "shell");
    assert_string_equal(s.backend, "local");
    assert_string_equal(s.branch, "courier/one");
    /* what can't change stays, what can is looked up */
    assert_int_equal(
        save(the_project(), "config", "memory = 4096\ntimeout = 3h\n"), 0);
    v = config_value(reader(), &s, "memory", &from);
    assert_string_equal(v, "1024");
    assert_string_equal(from, "default");
    free(v);
    v = config_value(reader(), &s, "timeout", &from);
    assert_string_equal(v, "3h");
    free(v);
    sandbox_clear(&s);
    assert_int_equal(save(the_sandbox(), "config",
                          "tool = shell\nbackend = local\ncpu = 2\n"
                          "repo = https://github.com/o/r\ntimeout = 20m\n"),
                     0);
    assert_int_equal(save(the_sandbox(), "config", "tool = claude\n"), -EBUSY);
    assert_int_equal(save(the_sandbox(), "config", "timeout = 20m\n"), -EBUSY);
    assert_int_equal(courier_doc_check(&rec.c, the_sandbox(), "config",
                                       "cpu = 4\n", 8, true, &e),
                     -EBUSY);
    assert_int_equal(courier_doc_check(&rec.c, the_sandbox(), "config",
                                       "pr = off\n", 9, true, &e),
                     0);
    assert_int_equal(courier_doc_may(&rec.c, the_sandbox(), "prompt", &e),
                     -EBUSY);
}

static void refused_starts(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(save(the_sandbox(), "config", "tool = claude\n"), 0);
    assert_int_equal(start(&e), -EACCES);
    assert_non_null(strstr(e.text, "anthropic"));
    assert_int_equal(save(the_project(), "env", "ANTHROPIC_API_KEY=x\n"), 0);
    assert_int_equal(
        save(the_sandbox(), "config", "tool = claude\nbackend = e2b\n"), 0);
    assert_int_equal(start(&e), -EACCES);
    assert_non_null(strstr(e.text, "e2b"));
}

static void refused_documents(void **state)
{
    AUTO_FREE char *bind = xasprintf("local_bind = %s\n", rec.dir);
    AUTO_FREE char *upper = xasprintf("local_path = /usr/bin:/\n");
    AUTO_FREE char *link = xasprintf("%s-link", rec.dir);
    AUTO_FREE char *via = xasprintf("local_bind = %s\n", link);

    (void)state;
    assert_int_equal(save(the_sandbox(), "config", "cpu = 2\nnope = 1\n"),
                     -EINVAL);
    assert_string_equal(last_words, "line 2: unknown key 'nope'");
    assert_int_equal(save(the_sandbox(), "config", "cpu\n"), -EINVAL);
    assert_int_equal(save(the_project(), "config", "tool = nothing\n"),
                     -EINVAL);
    assert_string_equal(last_words, "line 1: no tool 'nothing' in tools/");
    assert_int_equal(save(the_project(), "config", "local_bind = /usr\n"),
                     -EINVAL);
    assert_int_equal(save(root_oid(), "config", "local_bind = /usr, /etc\n"),
                     0);
    assert_int_equal(save(root_oid(), "config", bind), -EINVAL);
    assert_non_null(strstr(last_words, "data directory"));
    assert_int_equal(save(root_oid(), "config", upper), -EINVAL);
    assert_int_equal(save(root_oid(), "config", "local_bind = usr\n"),
                     -EINVAL);
    assert_int_equal(
        save(root_oid(), "config", "local_bind = /nowhere/courier/x\n"),
        -EINVAL);
    assert_int_equal(symlink(rec.dir, link), 0);
    assert_int_equal(save(root_oid(), "config", via), -EINVAL);
    unlink(link);
    assert_doc(root_oid(), "config", "local_bind = /usr, /etc\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(texts),
        cmocka_unit_test_setup_teardown(levels, record_open, record_close),
        cmocka_unit_test_setup_teardown(a_key_makes_claude_the_tool,
                                        record_open, record_close),
        cmocka_unit_test_setup_teardown(frozen, record_open, record_close),
        cmocka_unit_test_setup_teardown(refused_starts, record_open,
                                        record_close),
        cmocka_unit_test_setup_teardown(refused_documents, record_open,
                                        record_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
