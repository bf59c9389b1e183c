/* Use, its prices, its table and records. */
#include "engine_record.h"

#include "engine/rates.h"
#include "engine/usage.h"

static void prices(void **state)
{
    static const char doc[] = "a * input_tokens 1 per 1M\n"
                              "a m* input_tokens 2 per 1M\n"
                              "a m-1 input_tokens 3 per 1k\n"
                              "a m-2* input_tokens 4\n"
                              "a m-2* input_tokens 5\n";
    size_t n = strlen(doc);

    (void)state;
    assert_true(rates_find(doc, n, "a", "x", "input_tokens") == 1e-6);
    assert_true(rates_find(doc, n, "a", "mx", "input_tokens") == 2e-6);
    assert_true(rates_find(doc, n, "a", "m-1", "input_tokens") == 3e-3);
    assert_true(rates_find(doc, n, "a", "m-2x", "input_tokens") == 5);
    assert_true(rates_find(doc, n, "b", "m-1", "input_tokens") == -1);
    assert_int_equal(rates_line_check("a b input_tokens 1 per", 22, NULL),
                     -EINVAL);
    assert_int_equal(rates_line_check("a b miles 1", 11, NULL), -EINVAL);
    assert_int_equal(rates_line_check(" # x", 4, NULL), 0);
    assert_true(rates_find(rates_default, strlen(rates_default), "anthropic",
                           "claude-sonnet-4-5-20250929",
                           "output_tokens") == 15e-6);
}

static int used(struct tx *tx, void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    tx_usage(tx, rec.sandbox, "anthropic", "claude-opus-4-6", "input_tokens",
             1e6, -1);
    tx_usage(tx, rec.sandbox, "anthropic", "claude-opus-4-6", "output_tokens",
             10, 0.5);
    tx_usage(tx, rec.sandbox, "local", "a,\"b", "sandbox_seconds", 12.3456,
             -1);
    tx_usage(tx, rec.sandbox, "anthropic", "", "cache_read_tokens", 0, -1);
    return 0;
}

static void recorded(void **state)
{
    AUTO_BUF struct buf table = {0}, csv = {0}, lines = {0};
    struct err e = {0};
    json_t *j;

    (void)state;
    assert_int_equal(store_do(rec.c.store, used, NULL, &e), 0);
    assert_true(usage_total(reader(), the_sandbox(), 0) == 5.5);
    assert_true(usage_total(reader(), the_project(), 0) == 5.5);
    assert_true(usage_total(reader(), root_oid(), now_ms() + 1000) == 0);
    usage_table(reader(), root_oid(), &table);
    assert_non_null(strstr(table.p, "anthropic    input_tokens                "
                                    "1000000       5.0000\n"));
    assert_non_null(strstr(table.p, "sandbox_seconds              12.346"));
    assert_non_null(strstr(table.p, "total"));
    usage_records(reader(), the_project(), true, &csv);
    assert_non_null(strstr(csv.p, "time,service,model,unit,quantity,usd,"
                                  "project,sandbox,run,step\n"));
    assert_non_null(strstr(csv.p, ",local,\"a,\"\"b\",sandbox_seconds,12.346,"
                                  "0.000000,web,one,,\n"));
    usage_records(reader(), the_sandbox(), false, &lines);
    *strchr(lines.p, '\n') = 0;
    j = json_loads(lines.p, 0, NULL);
    assert_non_null(j);
    assert_true(json_number_value(json_object_get(j, "usd")) == 5.0);
    assert_string_equal(json_string_value(json_object_get(j, "project")),
                        "web");
    json_decref(j);
}

static void budgets_are_told_as_they_were_set(void **state)
{
    static const char *const set[][2] = {
        {"2.5", "2.50"},    {"1", "1.00"},         {"0.005", "0.005"},
        {"0.015", "0.015"}, {"0.1", "0.10"},       {"1e-05", "0.00001"},
        {"1e-20", "1e-20"}, {"1e6", "1000000.00"}, {"12.345678", "12.345678"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(set); i++) {
        AUTO_FREE char *s = budget_words(strtod(set[i][0], NULL));

        assert_string_equal(s, set[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prices),
        cmocka_unit_test(budgets_are_told_as_they_were_set),
        cmocka_unit_test_setup_teardown(recorded, record_open, record_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
