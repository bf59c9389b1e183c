/*
 * Judges documents: line by line while they are written, as a whole when they
 * are saved. Words quote keys and values sparingly: a line may hold a secret.
 */
#include "engine/config.h"
#include "engine/docs.h"
#include "engine/keys.h"
#include "engine/rates.h"
#include "engine/workflow.h"

#include <ctype.h>

typedef int (*line_fn)(void *arg, const char *line, size_t n, struct err *e);

/* with lines_only the unfinished last line is left out */
static int each_line(const char *p, size_t n, bool lines_only, line_fn fn,
                     void *arg, struct err *e)
{
    const char *end = p + n;

    p += text_bom(p, n);
    for (int no = 1; p < end; no++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        int r;

        if (!nl && lines_only)
            return 0;
        r = fn(arg, p, (size_t)((nl ? nl : end) - p), e);
        if (r < 0) {
            err_prefix(e, "line %d", no);
            return r;
        }
        p = nl ? nl + 1 : end;
    }
    return 0;
}

/* ---- config ---- */

struct config_state {
    const struct courier *c;
    struct db *d;
    struct oid owner;
    bool started;    /* only late keys may change */
    const char *old; /* the text in force */
    size_t old_n;
};

static int level_of(enum obj_kind kind)
{
    return kind == OBJ_ROOT      ? CONFIG_ROOT
           : kind == OBJ_PROJECT ? CONFIG_PROJECT
                                 : CONFIG_SANDBOX;
}

static int frozen_key(const struct config_state *s, const char *key,
                      const char *value, struct err *e)
{
    AUTO_FREE char *was = NULL;

    if (!s->started || config_is_late(key))
        return 0;
    was = config_find(s->old, s->old_n, key);
    if ((!was && !value) || (was && value && !strcmp(was, value)))
        return 0;
    return err_set(e, EBUSY, "%s can't be changed after the start", key);
}

static int config_line(void *arg, const char *line, size_t n, struct err *e)
{
    struct config_state *s = arg;
    AUTO_FREE char *key = NULL, *value = NULL;
    int r;

    switch (kv_line(line, n, &key, &value)) {
    case KV_NOTHING:
        return 0;
    case KV_BAD:
        return err_set(e, EINVAL, "not 'key = value'");
    case KV_PAIR:
        break;
    }
    r = config_check(key, value, level_of(s->owner.kind), e);
    if (r == 0 && (!strcmp(key, "tool") || !strcmp(key, "learning_tool")))
        r = config_tool_check(s->d, value, e);
    if (r == 0 && (!strcmp(key, "local_bind") || !strcmp(key, "local_path")))
        r = config_paths_check(s->c, value, e);
    return r;
}

/* the state, of a whole text: a value may stand again, but not be another */
static int config_frozen(const struct config_state *s, const char *p, size_t n,
                         struct err *e)
{
    for (const struct config_key *k = config_keys(); k->name; k++) {
        AUTO_FREE char *v = config_find(p, n, k->name);
        int r = frozen_key(s, k->name, v, e);

        if (r < 0)
            return r;
    }
    return 0;
}

static int frozen_line(void *arg, const char *line, size_t n, struct err *e)
{
    AUTO_FREE char *key = NULL, *value = NULL;

    if (kv_line(line, n, &key, &value) != KV_PAIR)
        return 0;
    return frozen_key(arg, key, value, e);
}

static int check_config(const struct courier *c, struct db *d,
                        struct oid owner, const char *p, size_t n,
                        bool lines_only, struct err *e)
{
    struct config_state s = {.c = c, .d = d, .owner = owner};
    AUTO_FREE char *old = NULL;
    int r = each_line(p, n, lines_only, config_line, &s, e);

    if (r < 0 || (owner.kind != OBJ_SANDBOX && owner.kind != OBJ_RUN))
        return r;
    s.started = owner.kind == OBJ_RUN ||
                db_int(d, 0, "SELECT status<>'draft' FROM sandbox WHERE id=?",
                       "i", owner.id);
    if (!s.started)
        return 0;
    old = doc_text(d, owner, "config", &s.old_n);
    s.old = old;
    if (lines_only)
        return each_line(p, n, true, frozen_line, &s, e);
    return config_frozen(&s, p, n, e);
}

/* ---- env, rates, tools ---- */

static int env_line(void *arg, const char *line, size_t n, struct err *e)
{
    AUTO_FREE char *key = NULL, *value = NULL;
    char shown[160];

    (void)arg;
    switch (kv_line(line, n, &key, &value)) {
    case KV_NOTHING:
        return 0;
    case KV_BAD:
        return err_set(e, EINVAL, "not NAME=value");
    case KV_PAIR:
        break;
    }
    for (const char *s = key; *s; s++) {
        unsigned char ch = (unsigned char)*s;

        if (ch == '_' || (ch < 128 && isalpha(ch)) ||
            (s > key && ch < 128 && isdigit(ch)))
            continue;
        text_refused(key, shown);
        return err_set(e, EINVAL, "'%s' is no name of a variable", shown);
    }
    return 0;
}

static int rate_line(void *arg, const char *line, size_t n, struct err *e)
{
    (void)arg;
    return rates_line_check(line, n, e);
}

/* *arg: the line above ended in a backslash, this one goes on with it */
static int pair_line(void *arg, const char *line, size_t n, struct err *e)
{
    AUTO_FREE char *key = NULL, *value = NULL;
    bool *more = arg, rest = *more;
    size_t blank = 0;

    if (n && line[n - 1] == '\r')
        n--;
    while (blank < n && (line[blank] == ' ' || line[blank] == '\t'))
        blank++;
    *more = n && line[n - 1] == '\\' && (rest || line[blank] != '#');
    if (!rest && kv_line(line, n, &key, &value) == KV_BAD)
        return err_set(e, EINVAL, "not 'key = value'");
    return 0;
}

static int check_tool(const char *path, const char *p, size_t n,
                      bool lines_only, struct err *e)
{
    struct tool *t = NULL;
    bool more = false;
    int r;

    if (lines_only)
        return each_line(p, n, true, pair_line, &more, e);
    r = tool_parse(doc_base(path), p, n, &t, e);
    tool_free(t);
    return r;
}

int doc_text_check(const struct courier *c, struct db *d, struct oid owner,
                   const char *path, const char *p, size_t n, bool lines_only,
                   struct err *e)
{
    int64_t limit = courier_doc_limit(path);

    if ((int64_t)n > limit)
        return err_set(e, EFBIG, "larger than %lld MiB",
                       (long long)(limit >> 20));
    switch (doc_place(owner.kind, path, NULL)) {
    case DOC_CONFIG:
        return check_config(c, d, owner, p, n, lines_only, e);
    case DOC_ENV:
        return each_line(p, n, lines_only, env_line, NULL, e);
    case DOC_RATES:
        return each_line(p, n, lines_only, rate_line, NULL, e);
    case DOC_TOOL:
        return check_tool(path, p, n, lines_only, e);
    case DOC_PERSONA:
        return persona_parse(p, n, lines_only, NULL, e);
    case DOC_WORKFLOW:
        return workflow_parse(p, n, lines_only, NULL, e);
    case DOC_NONE:
    case DOC_DIR:
    case DOC_VERSIONS:
        return err_set(e, EPERM, "no document belongs there");
    default:
        return 0;
    }
}

/* ---- the state ---- */

static int sandbox_state(struct db *d, struct oid owner, enum doc_class cl,
                         struct err *e)
{
    int64_t draft;

    if (cl != DOC_PROMPT)
        return 0;
    draft = db_int(d, -1, "SELECT status='draft' FROM sandbox WHERE id=?", "i",
                   owner.id);
    if (draft < 0)
        return err_set(e, ENOENT, "the sandbox is gone");
    return draft ? 0
                 : err_set(e, EBUSY,
                           "the prompt is read-only after the start; write "
                           "to message");
}

static int run_state(struct db *d, struct oid run, enum doc_class cl,
                     const char *path, struct err *e)
{
    if (cl != DOC_CONFIG)
        return err_set(e, EBUSY, "a run's %s is fixed when it is created",
                       path);
    if (db_int(d, 0,
               "SELECT status NOT IN('pending','running','paused') OR trash "
               "IS NOT NULL FROM run WHERE id=?",
               "i", run.id))
        return err_set(e, EBUSY, "the run has ended");
    return 0;
}

int doc_state_check(struct db *d, struct oid owner, const char *path,
                    struct err *e)
{
    enum doc_class cl = doc_place(owner.kind, path, NULL);
    int r = doc_name_check(owner.kind, path, e);

    if (r < 0)
        return r;
    if (cl == DOC_DIR)
        return err_set(e, EISDIR, "that is a directory");
    if (cl == DOC_SALVAGE || cl == DOC_LEARNING_VERSION)
        return err_set(e, EPERM, "%s is read-only", doc_base(path));
    if (owner.kind == OBJ_RUN)
        return run_state(d, owner, cl, path, e);
    if (owner.kind == OBJ_SANDBOX)
        return sandbox_state(d, owner, cl, e);
    return 0;
}
