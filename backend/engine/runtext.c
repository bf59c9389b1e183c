#include "engine/run.h"

enum { FEEDBACK_MAX = 32 * 1024 };

bool role_judges(const char *role)
{
    static const char *const roles[] = {"checker", "reviewer", "evaluator",
                                        "judge", NULL};

    return role && text_is_word(role, roles);
}

static const char *block_of(const char *role)
{
    if (!strcmp(role, "evaluator"))
        return "{\"score\": 0-100, \"feedback\": \"why\"}";
    if (!strcmp(role, "judge"))
        return "{\"choice\": \"NAME\", \"feedback\": \"why\"}";
    return "{\"verdict\": \"pass\" or \"fail\", \"feedback\": \"what is to be "
           "changed, or empty\"}";
}

char *run_prompt(const struct told *t)
{
    struct buf b = {0};

    if (!t->known) {
        if (t->instructions && *t->instructions)
            buf_addf(&b, "%s\n\n", t->instructions);
        if (t->skills && *t->skills)
            buf_addf(&b, "Use these of your skills: %s%s%s\n\n", t->skills,
                     t->skills_at ? "; each is described in SKILL.md of its "
                                    "directory below "
                                  : "",
                     t->skills_at ? t->skills_at : "");
        buf_addf(&b, "# The task\n\n%s\n", t->task);
    } else {
        buf_addf(&b, "This is round %d of at most %d.\n", t->round, t->max);
    }
    if (t->earlier && *t->earlier)
        buf_addf(&b, "\n# What was done before you\n\n%s\n", t->earlier);
    if (t->feedback && *t->feedback)
        buf_addf(&b,
                 "\n# Feedback of the checker: deal with all of it\n\n%s\n",
                 t->feedback);
    if (role_judges(t->role))
        buf_addf(&b,
                 "\nEnd your answer with a fenced block of the language json, "
                 "exactly of this form:\n```json\n%s\n```\n",
                 block_of(t->role));
    return buf_take(&b);
}

char *run_ask_again(const char *role)
{
    return xasprintf("Your answer did not end with the fenced json block that "
                     "is needed. Answer again with nothing but it:\n"
                     "```json\n%s\n```\n",
                     block_of(role));
}

static void read_score(const json_t *j, struct verdict *v)
{
    const json_t *s = json_object_get(j, "score");
    double n;

    if (!json_is_number(s)) {
        v->why = "there is no number in score";
        return;
    }
    n = json_number_value(s);
    if (n < 0 || n > 100) {
        v->why = "score is not from 0 to 100";
        return;
    }
    v->score = xasprintf("%g", n);
    v->ok = v->pass = true;
}

static void read_verdict(const json_t *j, struct verdict *v)
{
    const char *s = json_string_value(json_object_get(j, "verdict"));

    if (!s || (strcmp(s, "pass") && strcmp(s, "fail"))) {
        v->why = "verdict is neither pass nor fail";
        return;
    }
    v->ok = true;
    v->pass = !strcmp(s, "pass");
}

static void read_choice(const json_t *j, struct verdict *v)
{
    const char *s = json_string_value(json_object_get(j, "choice"));
    AUTO_BUF struct buf b = {0};

    if (!s || !*s) {
        v->why = "there is no choice";
        return;
    }
    text_printable(&b, s, strlen(s), 0);
    v->choice = buf_take(&b);
    v->ok = v->pass = true;
}

void verdict_read(const char *role, const char *answer, struct verdict *v)
{
    AUTO_FREE char *block = agent_last_block(answer, strlen(answer));
    json_t *j = block ? json_loads(block, 0, NULL) : NULL;
    const char *fb = json_string_value(json_object_get(j, "feedback"));

    memset(v, 0, sizeof(*v));
    if (!block)
        v->why = "the answer has no fenced block";
    else if (!json_is_object(j))
        v->why = "the fenced block is no JSON object";
    else if (!strcmp(role, "evaluator"))
        read_score(j, v);
    else if (!strcmp(role, "judge"))
        read_choice(j, v);
    else
        read_verdict(j, v);
    if (fb) {
        size_t n = strnlen(fb, FEEDBACK_MAX);
        AUTO_BUF struct buf b = {0};

        text_printable(&b, fb, n - (fb[n] ? text_utf8_tail(fb, n) : 0),
                       PRINTABLE_LINES | PRINTABLE_TABS);
        buf_adds(&b, fb[n] ? "\n[...]" : "");
        v->feedback = buf_take(&b);
    }
    json_decref(j);
}

void verdict_clear(struct verdict *v)
{
    free(v->feedback);
    free(v->score);
    free(v->choice);
    memset(v, 0, sizeof(*v));
}
