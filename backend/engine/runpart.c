/*
 * What the agent of a step is: its part, its tool and model; and what a
 * sandbox that steps share must have for all of them.
 */
#include "engine/run.h"

#include "engine/config.h"

/* ---- its part ---- */

char *run_persona(struct db *d, const struct run *r, const char *name,
                  size_t *n)
{
    AUTO_FREE char *path = xasprintf("personas/%s", name);
    char *text = doc_text(d, oid(OBJ_RUN, r->id), path, n);

    return text ? text : doc_text(d, oid(OBJ_PROJECT, r->project), path, n);
}

static void over(char **own, const char *persona)
{
    if (!*own && persona)
        *own = xstrdup(persona);
}

int step_part(struct db *d, const struct run *r, size_t pos, struct part *out,
              struct err *e)
{
    const struct part *own = &r->wf.steps[pos].part;
    struct part p = {0};
    int rc = 0;

    if (own->persona) {
        size_t n = 0;
        AUTO_FREE char *text = run_persona(d, r, own->persona, &n);

        if (!text)
            return err_set(e, ENOENT, "step %s: there is no persona '%s'",
                           r->wf.steps[pos].name, own->persona);
        rc = persona_parse(text, n, false, &p, e);
        if (rc < 0)
            return rc;
    }
    *out = (struct part){
        .role = xstrdup(own->role),
        .tool = xstrdup(own->tool),
        .model = xstrdup(own->model),
        .thinking = xstrdup(own->thinking),
        .skills = xstrdup(own->skills),
    };
    over(&out->role, p.role);
    over(&out->tool, p.tool);
    over(&out->model, p.model);
    over(&out->thinking, p.thinking);
    over(&out->skills, p.skills);
    if (!out->role)
        out->role = xstrdup("custom");
    if (p.instructions && own->instructions)
        out->instructions =
            xasprintf("%s\n\n%s", p.instructions, own->instructions);
    else
        out->instructions =
            xstrdup(own->instructions ? own->instructions : p.instructions);
    part_clear(&p);
    return 0;
}

/* ---- its settings ---- */

enum { STEP, RUN, LEVELS = 4 };

/* the step's own, its run's, the project's, the root's */
static size_t levels_get(struct db *d, const struct run *r,
                         const struct part *p, struct config_level v[LEVELS])
{
    struct buf own = {0};

    if (p->tool)
        config_set(&own, "tool", p->tool);
    if (p->model)
        config_set(&own, "model", p->model);
    if (p->thinking)
        config_set(&own, "thinking", p->thinking);
    v[STEP] = (struct config_level){"step", own.p, own.n};
    v[RUN] =
        (struct config_level){"run", xstrdup(r->config), strlen(r->config)};
    return 2 + config_levels_above(d, r->project, v + 2);
}

static const char *role_model(const struct part *p)
{
    if (!strcmp(p->role, "designer"))
        return "designer_model";
    if (!strcmp(p->role, "checker") || !strcmp(p->role, "reviewer"))
        return "checker_model";
    return "model";
}

static void pick(const struct config_level *v, size_t n, const char *key,
                 const char *or_key, struct setting *out)
{
    const char *const keys[] = {key, or_key, NULL};
    size_t at = 0;

    out->value = config_pick(v, n, keys, &at);
    out->from = out->value ? v[at].name : "tool";
    out->own = out->value && at <= RUN;
}

int part_settings(struct db *d, const struct run *r, const struct part *p,
                  struct settings *out, struct err *e)
{
    struct config_level v[LEVELS];
    size_t n = levels_get(d, r, p, v);
    struct tool *t = NULL;
    int rc;

    memset(out, 0, sizeof(*out));
    pick(v, n, "tool", NULL, &out->tool);
    if (!out->tool.value) {
        out->tool.value = config_default_tool(d, r->project);
        out->tool.from = "default";
    }
    pick(v, n, role_model(p), "model", &out->model);
    pick(v, n, "thinking", NULL, &out->thinking);
    /* what no other part of the sandbox's config says */
    out->model.own = out->model.own || strcmp(role_model(p), "model");
    for (size_t i = 0; i < n; i++)
        free(v[i].text);
    rc = tool_get(d, out->tool.value, &t, e);
    if (!out->model.value)
        out->model.value = xstrdup(t && t->model ? t->model : "");
    if (!out->thinking.value)
        out->thinking.value = xstrdup(t && t->thinking ? t->thinking : "");
    tool_free(t);
    if (rc < 0)
        settings_clear(out);
    return rc;
}

void settings_clear(struct settings *s)
{
    free(s->tool.value);
    free(s->model.value);
    free(s->thinking.value);
    memset(s, 0, sizeof(*s));
}

/* ---- what steps that share a sandbox need ---- */

static void add_name(char ***list, const char *name)
{
    size_t n = 0;

    for (; *list && (*list)[n]; n++)
        if (!strcmp((*list)[n], name))
            return;
    *list = xrealloc(*list, (n + 2) * sizeof(**list));
    (*list)[n] = xstrdup(name);
    (*list)[n + 1] = NULL;
}

static void add_skills(struct outfit *o, const char *names, bool *all)
{
    AUTO_FREE char *copy = xstrdup(names ? names : "");
    char *save = NULL, *w = strtok_r(copy, ", \t\n", &save);

    if (!w)
        *all = true;
    for (; w; w = strtok_r(NULL, ", \t\n", &save))
        add_name(&o->skills, w);
}

static void add_step(struct db *d, const struct run *r, size_t pos,
                     struct outfit *o, bool *all)
{
    struct settings s;
    struct part p = {0};

    if (step_part(d, r, pos, &p, NULL) < 0) {
        *all = true;
        return;
    }
    if (part_settings(d, r, &p, &s, NULL) == 0) {
        add_name(&o->tools, s.tool.value);
        settings_clear(&s);
    }
    add_skills(o, p.skills, all);
    part_clear(&p);
}

void outfit_get(struct db *d, const struct sandbox *s, struct outfit *o)
{
    int64_t pos =
        s->run ? db_int(d, -1, "SELECT pos FROM step WHERE id=?", "i", s->step)
               : -1;
    bool all = pos < 0;
    struct run r;

    memset(o, 0, sizeof(*o));
    add_name(&o->tools, s->tool);
    if (pos >= 0 && run_get(d, s->run, &r, NULL) == 0) {
        int loop = (size_t)pos < r.wf.n_steps ? r.wf.steps[pos].loop : -1;
        size_t first = (size_t)pos, last = (size_t)pos;

        if (loop >= 0) {
            first = (size_t)r.wf.loops[loop].first;
            last = (size_t)r.wf.loops[loop].last;
        }
        for (size_t i = first; i <= last && i < r.wf.n_steps; i++)
            add_step(d, &r, i, o, &all);
        run_clear(&r);
    }
    if (all) {
        words_free(o->skills);
        o->skills = NULL;
    }
}

bool outfit_has(const struct outfit *o, const char *skill)
{
    for (char **w = o->skills; w && *w; w++)
        if (!strcmp(*w, skill))
            return true;
    return !o->skills;
}

void outfit_clear(struct outfit *o)
{
    words_free(o->tools);
    words_free(o->skills);
    memset(o, 0, sizeof(*o));
}
