/* Keys and secrets: levels, hints, the environment, what an agent gets. */
#include "engine_record.h"

#include "engine/keys.h"

static void assert_key(const char *name, const char *plain, const char *at)
{
    const char *level = NULL;
    struct err e = {0};
    char *got = NULL;

    assert_int_equal(
        key_get(&rec.c, reader(), rec.project, name, &got, &level, &e), 0);
    assert_string_equal(got, plain);
    assert_string_equal(level, at);
    vault_free(got);
}

static void levels(void **state)
{
    struct err e = {0};
    char *plain;

    (void)state;
    assert_int_equal(
        key_get(&rec.c, reader(), rec.project, "openai", &plain, NULL, &e),
        -ENOENT);
    assert_int_equal(save(root_oid(), "keys/openai", " sk-user-12345678\n"),
                     0);
    assert_key("openai", "sk-user-12345678", "user");
    assert_int_equal(save(the_project(), "keys/openai", "short\n"), 0);
    assert_key("openai", "short", "project");
    assert_doc(root_oid(), "keys/openai", "****5678\n");
    assert_doc(the_project(), "keys/openai", "****\n");
    assert_int_equal(doc_rm(the_project(), "keys/openai"), 0);
    assert_int_equal(doc_rm(the_project(), "keys/openai"), -ENOENT);
    assert_key("openai", "sk-user-12345678", "user");
    assert_int_equal(save(root_oid(), "keys/other", "x"), -EINVAL);
    assert_int_equal(save(root_oid(), "keys/github", "two words"), -EINVAL);
    assert_int_equal(save(root_oid(), "keys/github", " \n"), -EINVAL);
    assert_int_equal(save(the_project(), "secrets/a-b", "x"), -EINVAL);
    assert_null(doc_text(reader(), root_oid(), "keys/openai", NULL));
}

static void environment(void **state)
{
    char var[] = "ANTHROPIC_API_KEY=sk-env-123456789";

    (void)state;
    setenv("E2B_API_URL", "http://127.0.0.1:1", 1);
    putenv(var);
    keys_env_init(&rec.c);
    assert_null(getenv("ANTHROPIC_API_KEY"));
    assert_null(getenv("E2B_API_URL"));
    assert_int_equal(var[0], 0);
    assert_int_equal(var[sizeof(var) - 2], 0);
    assert_key("anthropic", "sk-env-123456789", "environment");
    assert_string_equal(keys_env_setting(&rec.c, "E2B_API_URL"),
                        "http://127.0.0.1:1");
    assert_null(keys_env_setting(&rec.c, "E2B_DOMAIN"));
    assert_null(keys_env_setting(&rec.c, "ANTHROPIC_API_KEY"));
    assert_true(key_there(&rec.c, reader(), rec.project, "anthropic"));
    assert_int_equal(save(root_oid(), "keys/anthropic", "sk-stored-1234"), 0);
    assert_key("anthropic", "sk-stored-1234", "user");
    keys_env_wipe(&rec.c);
    assert_false(key_there(&rec.c, reader(), rec.project, "e2b"));
}

static char *script(const char *tool, int want)
{
    struct buf b = {0};
    struct err e = {0};
    struct tool *t = NULL;
    struct sandbox s;

    assert_int_equal(sandbox_get(reader(), rec.sandbox, &s), 0);
    assert_int_equal(tool_get(reader(), tool, &t, &e), 0);
    assert_int_equal(env_script(&rec.c, reader(), &s, t, &b, &e), want);
    tool_free(t);
    sandbox_clear(&s);
    return buf_take(&b);
}

static void scripts(void **state)
{
    char *s = script("claude", -EACCES);

    (void)state;
    free(s);
    assert_int_equal(save(root_oid(), "keys/anthropic", "sk-user-12345678"),
                     0);
    assert_int_equal(save(the_project(), "keys/anthropic_token", "tok'en"), 0);
    assert_int_equal(save(the_project(), "env", "# c\nA = it's\nB=x y\n"), 0);
    assert_int_equal(save(the_project(), "secrets/DB", "pass word\n"), 0);
    s = script("claude", 0);
    /* the project's token goes before the user's key */
    assert_non_null(strstr(s, "ANTHROPIC_AUTH_TOKEN='tok'\\''en'\n"));
    assert_null(strstr(s, "ANTHROPIC_API_KEY"));
    assert_non_null(strstr(s, "A='it'\\''s'\nB='x y'\nDB='pass word'\n"));
    free(s);
    s = script("shell", 0);
    assert_null(strstr(s, "ANTHROPIC"));
    free(s);
}

/* neither the database nor events nor errors ever hold a key */
static void never_shown(void **state)
{
    AUTO_BUF struct buf b = {0};
    AUTO_FREE char *wal = xasprintf("%s/courier.db-wal", rec.dir);

    (void)state;
    assert_int_equal(save(root_oid(), "keys/openai", "sk-findme-now-1234"), 0);
    assert_int_equal(
        save(root_oid(), "keys/openai", "sk-findme-now-1234 with words"),
        -EINVAL);
    assert_null(strstr(last_words, "findme"));
    assert_int_equal(file_read(wal, 64 << 20, &b), 0);
    assert_null(memmem(b.p, b.n, "findme", 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(levels, record_open, record_close),
        cmocka_unit_test_setup_teardown(environment, record_open,
                                        record_close),
        cmocka_unit_test_setup_teardown(scripts, record_open, record_close),
        cmocka_unit_test_setup_teardown(never_shown, record_open,
                                        record_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
