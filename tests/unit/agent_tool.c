/* Tools as documents, and the command lines that come of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agents/agents.h"
#include "base/text.h"

static struct tool *parse(const char *name, const char *doc)
{
    struct err e = {0};
    struct tool *t = NULL;

    if (tool_parse(name, doc, strlen(doc), &t, &e))
        fail_msg("%s", e.text);
    return t;
}

static void refuse(const char *name, const char *doc, const char *want)
{
    struct err e = {0};
    struct tool *t = NULL;

    assert_int_equal(tool_parse(name, doc, strlen(doc), &t, &e), -EINVAL);
    assert_null(t);
    assert_string_equal(e.text, want);
}

static void expect(const char *doc, const char *session, const char *model,
                   const char *thinking, const char *file, const char *want)
{
    struct tool *t = parse("mine", doc);
    AUTO_FREE char *got = tool_command(t, session, model, thinking, file);

    assert_string_equal(got, want);
    tool_free(t);
}

static void built_in_tools_are_complete(void **state)
{
    const char *const *names = tool_names();

    (void)state;
    for (int i = 0; names[i]; i++) {
        struct tool *t = parse(names[i], "");
        AUTO_FREE char *first = tool_command(t, NULL, NULL, NULL, NULL);
        AUTO_FREE char *next =
            tool_command(t, "s-1", "m'x", "max", "/t/system prompt");

        assert_non_null(tool_builtin(names[i]));
        assert_non_null(t->service);
        assert_true(strcmp(names[i], "shell") ? t->keys && t->memory_file
                                              : !t->keys);
        assert_null(strstr(first, "{model}"));
        assert_null(strstr(first, "''"));
        if (strcmp(names[i], "shell")) {
            assert_non_null(strstr(next, "'s-1'"));
            assert_non_null(strstr(next, "'m'\\''x'"));
            assert_non_null(strstr(next, "'/t/system prompt'"));
        }
        tool_free(t);
    }
    assert_null(tool_builtin("nope"));
}

static void unset_groups_vanish(void **state)
{
    static const char doc[] = "command = run [--model {model}] "
                              "[-c effort={thinking}] [--id {session}] now";

    (void)state;
    expect(doc, NULL, NULL, NULL, NULL, "run now");
    expect(doc, "", "", "", "", "run now");
    expect(doc, "s", NULL, "high", NULL, "run -c effort='high' --id 's' now");
    expect(doc, "--evil", "a b", NULL, NULL, "run --model 'a b' now");
    expect("command = x {model}", NULL, NULL, NULL, NULL, "x ''");
    expect("command = x [{model} {session}]", NULL, "m", NULL, NULL, "x");
    expect("command = x\nmodel = own", NULL, NULL, NULL, NULL, "x");
    expect("command = x [{model}]\nmodel = own", NULL, NULL, NULL, NULL,
           "x 'own'");
}

static void other_brackets_are_the_shells(void **state)
{
    (void)state;
    expect("command = [ -f x ] && a[1]=${HOME} { b; }", NULL, NULL, NULL, NULL,
           "[ -f x ] && a[1]=${HOME} { b; }");
    expect("command = [[ a ]] [-m {model}] [", NULL, "m", NULL, NULL,
           "[[ a ]] -m 'm' [");
    expect("command = echo \"[$(cat {system_prompt_file})]\"", NULL, NULL,
           NULL, NULL, "echo \"\"");
}

static void continue_is_for_later_turns(void **state)
{
    static const char doc[] = "command = first\ncontinue = next {session}\n";

    (void)state;
    expect(doc, NULL, NULL, NULL, NULL, "first");
    expect(doc, "i", NULL, NULL, NULL, "next 'i'");
}

static void thinking_may_be_pairs(void **state)
{
    static const char doc[] = "command = x [{thinking}]\n"
                              "efforts = low high xhigh\n";

    (void)state;
    expect(doc, NULL, "b", "low", NULL, "x 'low'");
    expect(doc, NULL, "b", "max", NULL, "x 'xhigh'");
    expect(doc, NULL, "b", "a:low b:max", NULL, "x 'xhigh'");
    expect(doc, NULL, "p/b:free", "a:low, p/b:free:high", NULL, "x 'high'");
    expect(doc, NULL, "c", "a:low b:max", NULL, "x");
    expect(doc, NULL, "c", "a:low high", NULL, "x 'high'");
    expect("command = x [{thinking}]", NULL, NULL, "max", NULL, "x 'max'");
}

static void documents_change_and_add(void **state)
{
    struct tool *t = parse("claude", "# mine\nmodel = opus\nkeys =\n");

    (void)state;
    assert_string_equal(t->model, "opus");
    assert_null(t->keys);
    assert_string_equal(t->memory_file, "CLAUDE.md");
    assert_int_equal(t->format, FORMAT_CLAUDE);
    tool_free(t);
    t = parse("mine", "command = a \\\n   b\nformat = pi\n"
                      "env = A=1 'B=x y'\n");
    assert_string_equal(t->command, "a b");
    assert_int_equal(t->format, FORMAT_PI);
    tool_free(t);
}

static void mistakes_are_told_with_their_line(void **state)
{
    (void)state;
    refuse("mine", "", "the key 'command' is missing");
    refuse("mine", "command = x\n\nfoo = 1\n", "line 3: unknown key 'foo'");
    refuse("mine", "command = a \\\n b\nnonsense\n",
           "line 3: not of the form key = value");
    refuse("claude", "format = json\n",
           "line 1: format: 'json' is none of text, claude, codex, opencode, "
           "pi");
    refuse("claude", "keys = anthropic|gold\n",
           "line 1: keys: 'gold' is no name of a key");
    refuse("claude", "memory_file = ../x\n",
           "line 1: '../x' is no path below a directory");
    refuse("claude", "env = A=1 2B=3\n",
           "line 1: env: '2B=3' is not "
           "NAME=value");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_tools_are_complete),
        cmocka_unit_test(unset_groups_vanish),
        cmocka_unit_test(other_brackets_are_the_shells),
        cmocka_unit_test(continue_is_for_later_turns),
        cmocka_unit_test(thinking_may_be_pairs),
        cmocka_unit_test(documents_change_and_add),
        cmocka_unit_test(mistakes_are_told_with_their_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
