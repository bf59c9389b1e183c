#include "engine/workflow.h"

#include "base/text.h"
#include "engine/config.h"

#include <ctype.h>

enum { STEPS_MAX = 100, ROUNDS_MAX = 100, ROUNDS = 3 };

const char *const workflow_roles[] = {
    "designer", "checker",   "optimizer", "prompter",  "investigator",
    "planner",  "deep-dive", "reviewer",  "evaluator", "judge",
    "answerer", "custom",    NULL};

void part_clear(struct part *p)
{
    free(p->description);
    free(p->role);
    free(p->persona);
    free(p->tool);
    free(p->model);
    free(p->thinking);
    free(p->instructions);
    free(p->skills);
    memset(p, 0, sizeof(*p));
}

void workflow_clear(struct workflow *w)
{
    for (size_t i = 0; i < w->n_steps; i++) {
        free(w->steps[i].name);
        part_clear(&w->steps[i].part);
    }
    for (size_t i = 0; i < w->n_loops; i++)
        free(w->loops[i].name);
    free(w->steps);
    free(w->loops);
    free(w->description);
    memset(w, 0, sizeof(*w));
}

/* ---- the parser ---- */

enum section { TOP, STEP, LOOP, PERSONA };

struct parse {
    struct workflow *w;
    struct part *persona;
    enum section section;
    int line;
    /* the value that an indented line continues */
    char **value;
    bool value_lines; /* keeps its newlines */
    int blank;        /* empty lines since */
    /* names of loops as the steps tell them */
    char **step_loop;
    struct err *e;
};

static int fail(struct parse *p, const char *fmt, ...) PRINTF(2, 3);
static int fail(struct parse *p, const char *fmt, ...)
{
    char words[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(words, sizeof(words), fmt, ap);
    va_end(ap);
    return err_set(p->e, EINVAL, "line %d: %s", p->line, words);
}

static int find_step(const struct workflow *w, const char *name)
{
    for (size_t i = 0; i < w->n_steps; i++) {
        if (!strcmp(w->steps[i].name, name))
            return (int)i;
    }
    return -1;
}

static int find_loop(const struct workflow *w, const char *name)
{
    for (size_t i = 0; i < w->n_loops; i++) {
        if (!strcmp(w->loops[i].name, name))
            return (int)i;
    }
    return -1;
}

static int begin_step(struct parse *p, const char *name)
{
    struct workflow *w = p->w;

    if (find_step(w, name) >= 0)
        return fail(p, "step '%s' is there already", name);
    if (w->n_steps == STEPS_MAX)
        return fail(p, "more than %d steps", STEPS_MAX);
    w->steps = xrealloc(w->steps, (w->n_steps + 1) * sizeof(*w->steps));
    p->step_loop =
        xrealloc(p->step_loop, (w->n_steps + 1) * sizeof(*p->step_loop));
    p->step_loop[w->n_steps] = NULL;
    w->steps[w->n_steps++] =
        (struct wf_step){.name = xstrdup(name), .loop = -1, .line = p->line};
    p->section = STEP;
    return 0;
}

static int begin_loop(struct parse *p, const char *name)
{
    struct workflow *w = p->w;

    if (find_loop(w, name) >= 0)
        return fail(p, "loop '%s' is there already", name);
    if (w->n_loops == STEPS_MAX)
        return fail(p, "more than %d loops", STEPS_MAX);
    w->loops = xrealloc(w->loops, (w->n_loops + 1) * sizeof(*w->loops));
    w->loops[w->n_loops++] = (struct wf_loop){.name = xstrdup(name),
                                              .max = ROUNDS,
                                              .first = -1,
                                              .last = -1,
                                              .line = p->line};
    p->section = LOOP;
    return 0;
}

/* [step NAME], [loop NAME] */
static int section(struct parse *p, char *s)
{
    char *end = strchr(s, ']'), *kind, *name, shown[160];
    struct err why;

    p->value = NULL;
    text_refused(s, shown);
    if (p->persona || !end || *text_trim(end + 1))
        return fail(p,
                    p->persona ? "a persona has no sections: %s"
                               : "not [step NAME] or [loop NAME]: %s",
                    shown);
    *end = 0;
    kind = text_trim(s + 1);
    name = kind + strcspn(kind, " \t");
    if (*name)
        *name++ = 0;
    name = text_trim(name);
    if (strcmp(kind, "step") && strcmp(kind, "loop"))
        return fail(p, "not [step NAME] or [loop NAME]: %s", shown);
    if (text_name_check(name, &why) < 0)
        return fail(p, "%.300s", why.text);
    return *kind == 's' ? begin_step(p, name) : begin_loop(p, name);
}

static int set(struct parse *p, char **slot, char **value, bool lines)
{
    free(*slot);
    *slot = *value;
    *value = NULL;
    p->value = slot;
    p->value_lines = lines;
    p->blank = 0;
    return 0;
}

static int set_checked(struct parse *p, const char *key, char **slot,
                       char **value)
{
    struct err why;

    if (config_check(key, *value, CONFIG_SANDBOX, &why) < 0)
        return fail(p, "%.300s", why.text);
    return set(p, slot, value, false);
}

static int set_part(struct parse *p, struct part *t, const char *key,
                    char **value)
{
    char shown[160];

    if (!strcmp(key, "instructions"))
        return set(p, &t->instructions, value, true);
    if (!strcmp(key, "description"))
        return set(p, &t->description, value, false);
    if (!strcmp(key, "skills"))
        return set(p, &t->skills, value, false);
    if (!strcmp(key, "tool") && !strcmp(*value, "claude_code")) {
        free(*value);
        *value = xstrdup("claude");
    }
    if (!strcmp(key, "tool"))
        return set_checked(p, key, &t->tool, value);
    if (!strcmp(key, "model"))
        return set_checked(p, key, &t->model, value);
    if (!strcmp(key, "thinking"))
        return set_checked(p, key, &t->thinking, value);
    text_refused(strcmp(key, "role") ? key : *value, shown);
    if (strcmp(key, "role"))
        return fail(p, "unknown key '%s'", shown);
    if (!text_is_word(*value, workflow_roles))
        return fail(p, "unknown role '%s'", shown);
    return set(p, &t->role, value, false);
}

static int set_step(struct parse *p, const char *key, char **value)
{
    size_t at = p->w->n_steps - 1;
    struct wf_step *s = &p->w->steps[at];
    struct err why;

    if (strcmp(key, "loop") && strcmp(key, "persona"))
        return set_part(p, &s->part, key, value);
    if (text_name_check(*value, &why) < 0)
        return fail(p, "%.300s", why.text);
    if (!strcmp(key, "persona"))
        return set(p, &s->part.persona, value, false);
    set(p, &p->step_loop[at], value, false);
    p->value = NULL;
    return 0;
}

static int set_loop(struct parse *p, const char *key, char **value)
{
    struct wf_loop *l = &p->w->loops[p->w->n_loops - 1];
    int64_t max;
    char shown[160];

    text_refused(*value, shown);
    p->value = NULL;
    if (!strcmp(key, "max")) {
        if (!text_int(*value, 1, ROUNDS_MAX, &max))
            return fail(p, "max '%s': a number from 1 to %d", shown,
                        ROUNDS_MAX);
        l->max = (int)max;
        return 0;
    }
    if (!strcmp(key, "on_max")) {
        if (strcmp(*value, "fail") && strcmp(*value, "continue"))
            return fail(p, "on_max '%s': fail, continue", shown);
        l->continue_ = **value == 'c';
        return 0;
    }
    text_refused(key, shown);
    return fail(p, "unknown key '%s' of a loop", shown);
}

static int pair(struct parse *p, const char *key, char **value)
{
    char shown[160];

    switch (p->section) {
    case STEP:
        return set_step(p, key, value);
    case LOOP:
        return set_loop(p, key, value);
    case PERSONA:
        return set_part(p, p->persona, key, value);
    default:
        if (!strcmp(key, "description"))
            return set(p, &p->w->description, value, false);
        text_refused(key, shown);
        return fail(p, "unknown key '%s' before the first [step NAME]", shown);
    }
}

static int continued(struct parse *p, const char *line, size_t n)
{
    AUTO_FREE char *copy = xmemdup0(line, n);
    struct buf b = {0};

    if (!p->value)
        return fail(p, "an indented line goes on with a value; there is "
                       "none above it");
    buf_adds(&b, *p->value);
    if (p->value_lines) {
        for (; p->blank; p->blank--)
            buf_addc(&b, '\n');
        if (b.n)
            buf_addc(&b, '\n');
    } else if (b.n) {
        buf_addc(&b, ' ');
    }
    p->blank = 0;
    buf_adds(&b, text_trim(copy));
    free(*p->value);
    *p->value = buf_take(&b);
    return 0;
}

static int one_line(struct parse *p, const char *line, size_t n)
{
    AUTO_FREE char *key = NULL, *value = NULL, *copy = xmemdup0(line, n);
    char *s;

    if (memchr(line, 0, n))
        return fail(p, "a NUL byte");
    s = text_trim(copy);
    if (!*s) {
        p->blank++;
        return 0;
    }
    if (isspace((unsigned char)*line))
        return continued(p, line, n);
    if (*s == '#')
        return 0;
    if (*s == '[')
        return section(p, s);
    if (kv_line(line, n, &key, &value) != KV_PAIR)
        return fail(p, "not 'key = value'");
    return pair(p, key, &value);
}

static int lines(struct parse *p, const char *text, size_t n, bool lines_only)
{
    const char *at = text + text_bom(text, n), *end = text + n;

    while (at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        int r;

        if (!nl && lines_only)
            return 0;
        p->line++;
        r = one_line(p, at, (size_t)((nl ? nl : end) - at));
        if (r < 0)
            return r;
        at = nl ? nl + 1 : end;
    }
    return 0;
}

/* ---- the whole ---- */

static int join_loops(struct parse *p)
{
    struct workflow *w = p->w;

    for (size_t i = 0; i < w->n_steps; i++) {
        struct wf_loop *l;
        int at;

        if (!p->step_loop[i])
            continue;
        p->line = w->steps[i].line;
        at = find_loop(w, p->step_loop[i]);
        if (at < 0)
            return fail(p, "there is no [loop %s]", p->step_loop[i]);
        l = &w->loops[at];
        if (l->first >= 0 && l->last != (int)i - 1)
            return fail(p, "the steps of loop '%s' don't stand together",
                        l->name);
        if (l->first < 0)
            l->first = (int)i;
        l->last = (int)i;
        w->steps[i].loop = at;
    }
    for (size_t i = 0; i < w->n_loops; i++) {
        p->line = w->loops[i].line;
        if (w->loops[i].first < 0)
            return fail(p, "loop '%s' has no steps", w->loops[i].name);
    }
    return 0;
}

int workflow_parse(const char *text, size_t n, bool lines_only,
                   struct workflow *out, struct err *e)
{
    struct workflow w = {0};
    struct parse p = {.w = &w, .section = TOP, .e = e};
    int r = lines(&p, text, n, lines_only);

    if (r == 0 && !lines_only && !w.n_steps) {
        p.line = p.line ? p.line : 1;
        r = fail(&p, "a workflow has at least one [step NAME]");
    }
    if (r == 0 && !lines_only)
        r = join_loops(&p);
    for (size_t i = 0; i < w.n_steps; i++)
        free(p.step_loop[i]);
    free(p.step_loop);
    if (r == 0 && out)
        *out = w;
    else
        workflow_clear(&w);
    return r;
}

int persona_parse(const char *text, size_t n, bool lines_only,
                  struct part *out, struct err *e)
{
    struct part t = {0};
    struct parse p = {.persona = &t, .section = PERSONA, .e = e};
    int r = lines(&p, text, n, lines_only);

    if (r == 0 && out)
        *out = t;
    else
        part_clear(&t);
    return r;
}
