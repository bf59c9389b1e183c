/*
 * Which value a setting has: the sandbox's own, its project's, the root's,
 * the tool's, the default. At the start all are frozen into the row, but for
 * those that may change later: they are looked up anew each time.
 */
#include "engine/config.h"
#include "engine/keys.h"

/* ---- the chain of documents ---- */

static const char *const place[OBJ_KINDS] = {
    [OBJ_ROOT] = "root",
    [OBJ_PROJECT] = "project",
    [OBJ_SANDBOX] = "sandbox",
    [OBJ_RUN] = "run",
};

/* what is said of one tool is nothing to another */
static bool of_one_tool(const char *key)
{
    static const char *const list[] = {"model",         "designer_model",
                                       "checker_model", "thinking",
                                       "template",      NULL};

    return text_is_word(key, list);
}

/* the tool that the levels from k upwards name, or NULL */
static char *tool_from(const struct config_level *v, size_t n, size_t k)
{
    for (; k < n; k++) {
        char *t = v[k].text ? config_find(v[k].text, v[k].n, "tool") : NULL;

        if (t)
            return t;
    }
    return NULL;
}

static bool means_other(const struct config_level *v, size_t n, size_t k)
{
    AUTO_FREE char *mine = tool_from(v, n, k), *counts = tool_from(v, n, 0);

    return mine && counts && strcmp(mine, counts);
}

char *config_pick(const struct config_level *v, size_t n,
                  const char *const *keys, size_t *at)
{
    for (size_t i = 0; i < n; i++) {
        for (const char *const *k = keys; *k && v[i].text; k++) {
            char *value = config_find(v[i].text, v[i].n, *k);

            if (!value)
                continue;
            *at = i;
            if (!of_one_tool(*k) || !means_other(v, n, i))
                return value;
            free(value);
        }
    }
    return NULL;
}

/* the documents from o upwards; at most 3 */
static size_t levels_of(struct db *d, struct oid o, int64_t project,
                        struct config_level v[3])
{
    struct oid at[] = {o, oid(OBJ_PROJECT, project), root_oid()};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        if ((i == 1 && (!project || o.kind == OBJ_PROJECT)) ||
            (i == 2 && o.kind == OBJ_ROOT))
            continue;
        v[n].name = place[at[i].kind];
        v[n].text = doc_text(d, at[i], "config", &v[n].n);
        n++;
    }
    return n;
}

static void levels_clear(struct config_level *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(v[i].text);
}

size_t config_levels_above(struct db *d, int64_t project,
                           struct config_level v[2])
{
    struct config_level all[3];
    size_t n = levels_of(d, oid(OBJ_PROJECT, project), project, all);

    memcpy(v, all, 2 * sizeof(*v));
    return n;
}

/* the value in the documents from o upwards, or NULL */
static char *chain(struct db *d, struct oid o, int64_t project,
                   const char *key, const char **from)
{
    const char *const keys[] = {key, NULL};
    struct config_level v[3];
    size_t n = levels_of(d, o, project, v), at = 0;
    char *value = config_pick(v, n, keys, &at);

    if (value)
        *from = v[at].name;
    levels_clear(v, n);
    return value;
}

char *config_of(struct db *d, struct oid o, const char *key)
{
    const struct config_key *k = config_key_find(key);
    const char *from;
    char *v = chain(d, o, object_project(d, o), key, &from);

    return v ? v : xstrdup(k ? k->dflt : "");
}

/* ---- defaults that depend on other settings ---- */

int config_tool_check(struct db *d, const char *tool, struct err *e)
{
    char shown[160];

    if (db_int(d, 0,
               "SELECT 1 FROM doc WHERE kind=1 AND owner=0 AND "
               "path='tools/'||? AND dir=0",
               "s", tool))
        return 0;
    text_refused(tool, shown);
    return err_set(e, EINVAL, "no tool '%s' in tools/", shown);
}

char *config_default_tool(struct db *d, int64_t project)
{
    struct tool *t = NULL;
    bool claude = tool_get(d, "claude", &t, NULL) == 0 &&
                  keys_need(d, project, t, NULL) == 0;

    tool_free(t);
    return xstrdup(claude ? "claude" : "shell");
}

static char *tool_default(const struct tool *t, const char *key)
{
    const char *v = NULL;

    if (!strcmp(key, "model"))
        v = t->model;
    else if (!strcmp(key, "thinking"))
        v = t->thinking;
    else if (!strcmp(key, "template"))
        v = t->template_id;
    else if (!strcmp(key, "learn"))
        v = !t->service || !strcmp(t->service, "local") ? "off" : "auto";
    return v && *v ? xstrdup(v) : NULL;
}

static bool of_tool(const char *key)
{
    static const char *const list[] = {"model", "thinking", "template",
                                       "learn", NULL};

    return text_is_word(key, list);
}

static char *fallback(struct db *d, const struct sandbox *s, const char *key,
                      const char **from)
{
    const struct config_key *k = config_key_find(key);

    *from = "default";
    if (!strcmp(key, "tool"))
        return config_default_tool(d, s->project);
    if (!strcmp(key, "branch")) {
        AUTO_FREE char *repo = config_value(d, s, "repo", NULL);

        return *repo ? xasprintf("courier/%s", s->name) : xstrdup("");
    }
    if (of_tool(key)) {
        AUTO_FREE char *name = config_value(d, s, "tool", NULL);
        struct tool *t = NULL;
        char *v = NULL;

        if (tool_get(d, name, &t, NULL) == 0)
            v = tool_default(t, key);
        tool_free(t);
        if (v) {
            *from = "tool";
            return v;
        }
    }
    return xstrdup(k ? k->dflt : "");
}

/* ---- what holds ---- */

static const char *const places[] = {"sandbox", "project", "root", "default",
                                     "tool",    "run",     "step"};

static const char *static_place(const char *s)
{
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (s && !strcmp(s, places[i]))
            return places[i];
    }
    return "default";
}

/* of the frozen JSON, or NULL */
static char *frozen(const json_t *all, const char *key, const char **from)
{
    const json_t *j = json_object_get(all, key);
    const char *v = json_string_value(json_object_get(j, "value"));

    if (!v)
        return NULL;
    *from = static_place(json_string_value(json_object_get(j, "from")));
    return xstrdup(v);
}

static char *value_in(struct db *d, const struct sandbox *s, const json_t *all,
                      const char *key, const char **from)
{
    char *v = NULL;

    if (all && !config_is_late(key))
        v = frozen(all, key, from);
    if (!v)
        v = chain(d, oid(OBJ_SANDBOX, s->id), s->project, key, from);
    return v ? v : fallback(d, s, key, from);
}

char *config_value(struct db *d, const struct sandbox *s, const char *key,
                   const char **from)
{
    json_t *all = s->config && !config_is_late(key)
                      ? json_loads(s->config, 0, NULL)
                      : NULL;
    const char *dummy;
    char *v = value_in(d, s, all, key, from ? from : &dummy);

    json_decref(all);
    return v;
}

json_t *config_effective(struct db *d, const struct sandbox *s)
{
    json_t *all = s->config ? json_loads(s->config, 0, NULL) : NULL;
    json_t *out = json_object();

    for (const struct config_key *k = config_keys(); k->name; k++) {
        const char *from = "default";
        AUTO_FREE char *v = NULL;

        if (!(k->levels & CONFIG_SANDBOX))
            continue;
        v = value_in(d, s, all, k->name, &from);
        json_object_set_new(out, k->name,
                            json_pack("{s:s,s:s}", "value", v, "from", from));
    }
    json_decref(all);
    return out;
}

int64_t config_seconds(struct db *d, const struct sandbox *s, const char *key,
                       int64_t dflt)
{
    AUTO_FREE char *v = config_value(d, s, key, NULL);
    int64_t secs = text_duration(v);

    return secs < 0 ? dflt : secs;
}

/* ---- the start ---- */

static void replace(json_t *all, const char *key, const char *value)
{
    json_object_set_new(json_object_get(all, key), "value",
                        json_string(value));
}

static const char *value_of(const json_t *all, const char *key)
{
    const char *s =
        json_string_value(json_object_get(json_object_get(all, key), "value"));

    return s ? s : "";
}

static int check_backend(struct db *d, const struct sandbox *s,
                         const json_t *all, struct err *e)
{
    if (strcmp(value_of(all, "backend"), "e2b"))
        return 0;
    if (!key_known(d, s->project, "e2b"))
        return err_set(e, EACCES,
                       "backend e2b needs a key: write it to keys/e2b of the "
                       "root or the project");
    if (!strcmp(value_of(all, "network"), "host"))
        return err_set(e, EINVAL,
                       "network = host is there with backend local only");
    return 0;
}

/* settles what can't change any more */
static int settle(struct tx *tx, struct courier *c, const struct sandbox *s,
                  json_t *all, struct err *e)
{
    const char *tool = value_of(all, "tool");
    AUTO_FREE char *effort =
        config_thinking(value_of(all, "thinking"), value_of(all, "model"));
    struct tool *t = NULL;
    int r = config_tool_check(tx->db, tool, e);

    if (r == 0)
        r = tool_get(tx->db, tool, &t, e);
    if (r == 0)
        r = keys_need(tx->db, s->project, t, e);
    tool_free(t);
    if (r < 0)
        return r;
    replace(all, "thinking", effort);
    if (!strcmp(value_of(all, "backend"), "auto"))
        replace(all, "backend", backend_auto(c, tx->db, s->project));
    return check_backend(tx->db, s, all, e);
}

int tx_config_freeze(struct tx *tx, struct courier *c, int64_t sandbox,
                     struct err *e)
{
    AUTO_FREE char *text = NULL;
    struct sandbox s;
    json_t *all;
    int r;

    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return err_set(e, ENOENT, "the sandbox is gone");
    free(s.config);
    s.config = NULL;
    all = config_effective(tx->db, &s);
    r = settle(tx, c, &s, all, e);
    if (r == 0) {
        const char *repo = value_of(all, "repo");

        text = json_dumps(all, JSON_COMPACT);
        db_exec(tx->db,
                "UPDATE sandbox SET config=?,tool=?,model=?,backend=?,"
                "branch=?,base=? WHERE id=?",
                "ssssssi", text, value_of(all, "tool"), value_of(all, "model"),
                value_of(all, "backend"), *repo ? value_of(all, "branch") : "",
                *repo ? value_of(all, "base") : "", sandbox);
        tx_touch(tx, s.project, oid(OBJ_SANDBOX, sandbox),
                 ASPECT_DOCS | ASPECT_BRANCH);
    }
    json_decref(all);
    sandbox_clear(&s);
    return r;
}
