/* What agents are told, and what is read from their answers. */
#include "engine_record.h"

#include "engine/run.h"

#define BLOCK(s) "I looked.\n```json\n" s "\n```\n"

static void reads(const char *role, const char *answer, bool ok, bool pass,
                  const char *what)
{
    struct verdict v;

    verdict_read(role, answer, &v);
    assert_int_equal(v.ok, ok);
    assert_int_equal(v.pass, pass);
    if (!ok)
        assert_non_null(strstr(v.why, what));
    else if (!strcmp(role, "evaluator"))
        assert_string_equal(v.score, what);
    else if (!strcmp(role, "judge"))
        assert_string_equal(v.choice, what);
    else
        assert_string_equal(v.feedback, what);
    verdict_clear(&v);
    verdict_clear(&v);
}

static void verdicts(void **state)
{
    (void)state;
    reads("checker", BLOCK("{\"verdict\":\"pass\",\"feedback\":\"\"}"), true,
          true, "");
    reads("checker", BLOCK("{\"verdict\":\"fail\",\"feedback\":\"a\\nb\"}"),
          true, false, "a\nb");
    /* the last block counts, whatever stands before */
    reads("reviewer",
          BLOCK("{\"verdict\":\"pass\",\"feedback\":\"x\"}")
              BLOCK("{\"verdict\":\"fail\",\"feedback\":\"y\"}"),
          true, false, "y");
    reads("checker", "looks good", false, false, "no fenced block");
    reads("checker", "", false, false, "no fenced block");
    reads("checker", BLOCK("[1]"), false, false, "no JSON object");
    reads("checker", BLOCK("{\"verdict\":"), false, false, "no JSON object");
    reads("checker", BLOCK("{\"verdict\":\"PASS\"}"), false, false,
          "neither pass nor fail");
    reads("checker", BLOCK("{\"verdict\":true}"), false, false,
          "neither pass nor fail");
    /* what an agent says can't forge a line, a colour */
    reads("checker",
          BLOCK("{\"verdict\":\"fail\",\"feedback\":\"a\\u001b[31mb\"}"), true,
          false, "a^[[31mb");
}

static void scores(void **state)
{
    (void)state;
    reads("evaluator", BLOCK("{\"score\":87.5}"), true, true, "87.5");
    reads("evaluator", BLOCK("{\"score\":0}"), true, true, "0");
    reads("evaluator", BLOCK("{\"score\":100}"), true, true, "100");
    reads("evaluator", BLOCK("{\"score\":101}"), false, false, "0 to 100");
    reads("evaluator", BLOCK("{\"score\":-1}"), false, false, "0 to 100");
    reads("evaluator", BLOCK("{\"score\":\"87\"}"), false, false, "no number");
    reads("judge", BLOCK("{\"choice\":\"try-2\"}"), true, true, "try-2");
    reads("judge", BLOCK("{\"choice\":\"\"}"), false, false, "no choice");
    reads("judge", BLOCK("{}"), false, false, "no choice");
}

static void prompts(void **state)
{
    struct told t = {.role = "checker",
                     .instructions = "Be strict.",
                     .skills = "testing",
                     .task = "The task.",
                     .earlier = "## 01-design",
                     .round = 1,
                     .max = 3};
    char *p = run_prompt(&t);

    (void)state;
    assert_ptr_equal(strstr(p, "Be strict."), p);
    assert_non_null(strstr(p, "skills: testing\n"));
    assert_non_null(strstr(p, "# The task\n\nThe task.\n"));
    assert_non_null(strstr(p, "## 01-design\n"));
    assert_non_null(strstr(p, "\"verdict\""));
    assert_null(strstr(p, "Feedback"));
    free(p);
    t = (struct told){.role = "designer",
                      .instructions = "Build.",
                      .task = "The task.",
                      .feedback = "More tests.",
                      .round = 2,
                      .max = 3,
                      .known = true};
    p = run_prompt(&t);
    assert_non_null(strstr(p, "round 2 of at most 3"));
    assert_non_null(strstr(p, "More tests."));
    assert_null(strstr(p, "The task."));
    assert_null(strstr(p, "```"));
    free(p);
    p = run_ask_again("evaluator");
    assert_non_null(strstr(p, "\"score\""));
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts),
        cmocka_unit_test(scores),
        cmocka_unit_test(prompts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
