/*
 * Keys: the project's, the user's, the environment's. A key that is asked for
 * is opened for that moment only; those of the environment stay in locked
 * memory, because they are never stored.
 */
#include "engine/keys.h"

#include <ctype.h>
#include <unistd.h>

enum { SECRET_MAX = 256 * 1024, KEY_MAX = 16 * 1024 };

/* variables read at the start. Those with a key are keys; the name of the
 * variable is also the one a tool gets it under */
static const struct variable {
    const char *name, *key;
} variables[] = {
    {"E2B_API_KEY", "e2b"},
    {"ANTHROPIC_API_KEY", "anthropic"},
    {"ANTHROPIC_AUTH_TOKEN", "anthropic_token"},
    {"OPENAI_API_KEY", "openai"},
    {"OPENROUTER_API_KEY", "openrouter"},
    {"GITHUB_TOKEN", "github"},
    {"E2B_DOMAIN", NULL},
    {"E2B_API_URL", NULL},
    {"E2B_SANDBOX_URL", NULL},
    {"GITHUB_API_URL", NULL},
};

_Static_assert(ARRAY_LEN(variables) <=
                   ARRAY_LEN(((struct courier *)0)->env_keys),
               "room for every variable");

/* bit i: variable i was set at the start; written before there are threads */
static unsigned env_mask;

static int variable_of_key(const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        if (variables[i].key && !strcmp(variables[i].key, key))
            return (int)i;
    }
    return -1;
}

bool key_is_name(const char *name)
{
    return variable_of_key(name) >= 0;
}

/* ---- the environment ---- */

/* takes NAME=VALUE out of the environment and overwrites its bytes, which
 * /proc/PID/environ shows */
static void wipe_variable(const char *name)
{
    size_t n = strlen(name);

    if (!environ)
        return;
    for (char **v = environ; *v;) {
        char *s = *v;

        if (strncmp(s, name, n) || s[n] != '=') {
            v++;
            continue;
        }
        for (char **next = v; *next; next++)
            next[0] = next[1];
        explicit_bzero(s, strlen(s));
    }
}

void keys_env_init(struct courier *c)
{
    env_mask = 0;
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *s = getenv(variables[i].name);
        size_t n = s ? strlen(s) : 0;

        while (n && isspace((unsigned char)*s)) {
            s++;
            n--;
        }
        while (n && isspace((unsigned char)s[n - 1]))
            n--;
        if (!n)
            continue;
        c->env_keys[i] = vault_dup(s, n);
        env_mask |= 1u << i;
    }
    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        wipe_variable(variables[i].name);
}

void keys_env_wipe(struct courier *c)
{
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        vault_free(c->env_keys[i]);
        c->env_keys[i] = NULL;
    }
    env_mask = 0;
}

const char *keys_env_setting(struct courier *c, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        if (!variables[i].key && !strcmp(variables[i].name, name))
            return c->env_keys[i];
    }
    return NULL;
}

/* ---- stored ones ---- */

static char *label(struct oid owner, const char *path)
{
    return xasprintf("%s/%d %lld", path, (int)owner.kind, (long long)owner.id);
}

static bool stored(struct db *d, struct oid owner, const char *path)
{
    return db_int(d, 0,
                  "SELECT 1 FROM secret WHERE kind=? AND owner=? AND path=?",
                  "iis", (int64_t)owner.kind, owner.id, path) != 0;
}

/* -ENOENT, or -EACCES when it can't be opened */
static int unseal(struct courier *c, struct db *d, struct oid owner,
                  const char *path, char **plain, struct err *e)
{
    AUTO_FREE char *name = label(owner, path);
    AUTO_BUF struct buf sealed = {0};
    sqlite3_stmt *q = db_query(
        d, "SELECT sealed FROM secret WHERE kind=? AND owner=? AND path=?",
        "iis", (int64_t)owner.kind, owner.id, path);
    struct err why = {0};
    size_t len;

    if (!db_row(d, q))
        return err_set(e, ENOENT, "no %s", path);
    buf_add(&sealed, sqlite3_column_blob(q, 0),
            (size_t)sqlite3_column_bytes(q, 0));
    db_done(q);
    if (vault_unseal(c->vault, name, buf_str(&sealed), sealed.n, plain, &len,
                     &why) < 0)
        return err_set(e, EACCES, "%s can't be opened: %.200s; set it again",
                       path, why.text);
    return 0;
}

struct level {
    struct oid owner;
    const char *name;
};

/* the levels of a project's keys, the one that wins first; returns how many */
static int levels(int64_t project, struct level out[2])
{
    int n = 0;

    if (project)
        out[n++] = (struct level){oid(OBJ_PROJECT, project), "project"};
    out[n++] = (struct level){root_oid(), "user"};
    return n;
}

int key_get(struct courier *c, struct db *d, int64_t project, const char *name,
            char **plain, const char **level, struct err *e)
{
    AUTO_FREE char *path = xasprintf("keys/%s", name);
    int var = variable_of_key(name), n;
    struct level at[2];

    *plain = NULL;
    n = levels(project, at);
    for (int i = 0; i < n; i++) {
        int r = unseal(c, d, at[i].owner, path, plain, e);

        if (r == -ENOENT)
            continue;
        if (level)
            *level = at[i].name;
        return r < 0 ? err_prefix(e, "the %s's", at[i].name) : 0;
    }
    if (var < 0 || !c->env_keys[var])
        return err_set(e, ENOENT, "no key '%s' is set", name);
    *plain = vault_dup(c->env_keys[var], strlen(c->env_keys[var]));
    if (level)
        *level = "environment";
    return 0;
}

bool key_known(struct db *d, int64_t project, const char *name)
{
    AUTO_FREE char *path = xasprintf("keys/%s", name);
    int var = variable_of_key(name), n;
    struct level at[2];

    if (var < 0)
        return false;
    n = levels(project, at);
    for (int i = 0; i < n; i++) {
        if (stored(d, at[i].owner, path))
            return true;
    }
    return env_mask >> var & 1;
}

bool key_there(struct courier *c, struct db *d, int64_t project,
               const char *name)
{
    (void)c;
    return key_known(d, project, name);
}

/* what reading shows: saved again by a copy of the tree, sed -i, an editor */
static bool is_mask(const char *s, size_t n)
{
    return (n == 4 || n == 8) && !memcmp(s, "****", 4);
}

static int judge(const char *path, const char *s, size_t n, struct err *e)
{
    bool key = !strncmp(path, "keys/", 5);

    if (!n)
        return err_set(e, EINVAL, "%s is empty; rm deletes it", path);
    if (n > (key ? (size_t)KEY_MAX : (size_t)SECRET_MAX))
        return err_set(e, EFBIG, "%s is too long (%zu bytes)", path, n);
    if (memchr(s, 0, n))
        return err_set(e, EINVAL, "%s holds a NUL byte", path);
    if (is_mask(s, n))
        return err_set(e, EINVAL, "that is what %s shows, not what it holds",
                       path);
    for (size_t i = 0; key && i < n; i++) {
        if ((unsigned char)s[i] <= 0x20 || (unsigned char)s[i] >= 0x7f)
            return err_set(e, EINVAL, "%s is one word of printable characters",
                           path);
    }
    return 0;
}

int tx_key_set(struct tx *tx, struct courier *c, struct oid owner,
               const char *path, const void *p, size_t n, struct err *e)
{
    AUTO_FREE char *name = label(owner, path);
    AUTO_BUF struct buf sealed = {0};
    const char *s = p;
    char hint[16];
    int r;

    while (n && isspace((unsigned char)*s)) {
        s++;
        n--;
    }
    while (n && isspace((unsigned char)s[n - 1]))
        n--;
    r = judge(path, s, n, e);
    if (r == 0)
        r = vault_seal(c->vault, name, s, n, &sealed, e);
    if (r < 0)
        return r;
    vault_hint(s, n, hint);
    db_exec(tx->db,
            "INSERT INTO secret(kind,owner,path,sealed,hint,mtime) "
            "VALUES(?,?,?,?,?,?) ON CONFLICT DO UPDATE SET "
            "sealed=excluded.sealed,hint=excluded.hint,refused='',"
            "mtime=max(excluded.mtime,mtime+1)",
            "iisbsi", (int64_t)owner.kind, owner.id, path, buf_str(&sealed),
            sealed.n, hint, now_ns());
    return 0;
}

/* the row of table secret after the one in at, which it replaces */
struct place {
    int64_t kind, owner;
    char *path;
};

static bool next_sealed(struct db *d, struct place *at, struct buf *sealed)
{
    sqlite3_stmt *q =
        db_query(d,
                 "SELECT kind,owner,path,sealed FROM secret WHERE "
                 "(kind,owner,path)>(?,?,?) ORDER BY kind,owner,path LIMIT 1",
                 "iis", at->kind, at->owner, at->path);

    if (!db_row(d, q))
        return false;
    at->kind = col_int(q, 0);
    at->owner = col_int(q, 1);
    free(at->path);
    at->path = col_dup(q, 2);
    buf_clear(sealed);
    buf_add(sealed, sqlite3_column_blob(q, 3),
            (size_t)sqlite3_column_bytes(q, 3));
    db_done(q);
    return true;
}

static int reseal(struct tx *tx, const struct place *at,
                  const struct buf *sealed, struct vault *old,
                  struct vault *fresh, struct err *e)
{
    AUTO_FREE char *name =
        label(oid((enum obj_kind)at->kind, at->owner), at->path);
    AUTO_BUF struct buf now = {0};
    char *plain;
    size_t n;
    int r = vault_unseal(old, name, buf_str(sealed), sealed->n, &plain, &n, e);

    if (r < 0)
        return err_prefix(e, "nothing was changed");
    r = vault_seal(fresh, name, plain, n, &now, e);
    vault_free(plain);
    if (r == 0)
        db_exec(tx->db,
                "UPDATE secret SET sealed=? WHERE kind=? AND owner=? AND "
                "path=?",
                "biis", buf_str(&now), now.n, at->kind, at->owner, at->path);
    return r;
}

int tx_keys_reseal(struct tx *tx, struct vault *old, struct vault *fresh,
                   struct err *e)
{
    struct place at = {0, 0, xstrdup("")};
    AUTO_BUF struct buf sealed = {0};
    int r = 0;

    while (r == 0 && next_sealed(tx->db, &at, &sealed))
        r = reseal(tx, &at, &sealed, old, fresh, e);
    free(at.path);
    return r;
}

/* ---- what a tool needs ---- */

/* does env or secrets set that variable itself? */
static bool set_by_project(struct db *d, int64_t project, const char *var)
{
    AUTO_FREE char *path = xasprintf("secrets/%s", var);
    size_t n = 0;
    AUTO_FREE char *env = NULL, *value = NULL;

    if (!project)
        return false;
    if (stored(d, oid(OBJ_PROJECT, project), path))
        return true;
    env = doc_text(d, oid(OBJ_PROJECT, project), "env", &n);
    value = env ? config_find(env, n, var) : NULL;
    return value && *value;
}

/* the first of the alternatives a|b that a level has, the project's level
 * before the user's; false if none has any */
static bool pick(struct db *d, int64_t project, const char *alternatives,
                 char **key)
{
    struct level at[2];
    int n = levels(project, at);

    for (int i = 0; i <= n; i++) {
        AUTO_FREE char *copy = xstrdup(alternatives);
        char *rest = copy;

        for (char *w = strsep(&rest, "|"); w; w = strsep(&rest, "|")) {
            AUTO_FREE char *path = xasprintf("keys/%s", w);
            int var = variable_of_key(w);

            if (i < n ? !stored(d, at[i].owner, path)
                      : var < 0 || !(env_mask >> var & 1))
                continue;
            *key = xstrdup(w);
            return true;
        }
    }
    return false;
}

static bool any_set_by_project(struct db *d, int64_t project,
                               const char *alternatives)
{
    AUTO_FREE char *copy = xstrdup(alternatives);
    char *rest = copy;

    for (char *w = strsep(&rest, "|"); w; w = strsep(&rest, "|")) {
        int var = variable_of_key(w);

        if (var >= 0 && set_by_project(d, project, variables[var].name))
            return true;
    }
    return false;
}

static int missing(const struct tool *t, const char *need, struct err *e)
{
    AUTO_BUF struct buf words = {0};

    for (const char *s = need; *s; s++) {
        if (*s == '|')
            buf_adds(&words, " or ");
        else
            buf_addc(&words, *s);
    }
    return err_set(e, EACCES,
                   "tool '%s' needs a key: %s (write it to keys/%.*s of the "
                   "root or the project)",
                   t->name, buf_str(&words), (int)strcspn(need, "|"), need);
}

/* calls fn for each key that is to be used; stops at what is missing */
static int each_need(struct db *d, int64_t project, const struct tool *t,
                     int (*fn)(void *arg, const char *key, struct err *e),
                     void *arg, struct err *e)
{
    AUTO_FREE char *copy = xstrdup(t->keys ? t->keys : "");
    char *rest = copy;

    for (char *need = strsep(&rest, ", \t"); need;
         need = strsep(&rest, ", \t")) {
        AUTO_FREE char *key = NULL;
        int r = 0;

        if (!*need || any_set_by_project(d, project, need))
            continue;
        if (!pick(d, project, need, &key))
            return missing(t, need, e);
        if (fn)
            r = fn(arg, key, e);
        if (r < 0)
            return r;
    }
    return 0;
}

int keys_need(struct db *d, int64_t project, const struct tool *t,
              struct err *e)
{
    return each_need(d, project, t, NULL, NULL, e);
}

/* ---- the environment of an agent ---- */

struct script {
    struct courier *c;
    struct db *d;
    int64_t project;
    struct buf *out;
};

static void add_var(struct buf *out, const char *name, const char *value)
{
    buf_addf(out, "%s=", name);
    text_shell_quote(out, value);
    buf_addc(out, '\n');
}

static int add_key(void *arg, const char *key, struct err *e)
{
    struct script *s = arg;
    char *plain;
    int r = key_get(s->c, s->d, s->project, key, &plain, NULL, e);

    if (r < 0)
        return r;
    add_var(s->out, variables[variable_of_key(key)].name, plain);
    vault_free(plain);
    return 0;
}

static bool var_name(const char *s, size_t n)
{
    if (!n || isdigit((unsigned char)*s))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '_' && (!isalnum((unsigned char)s[i]) || s[i] & 0x80))
            return false;
    }
    return true;
}

static void add_tool_env(const struct tool *t, struct buf *out)
{
    char **words = NULL;
    int n = t->env ? words_split(t->env, &words, NULL) : 0;

    for (int i = 0; i < n; i++) {
        char *eq = strchr(words[i], '=');

        if (!eq || !var_name(words[i], (size_t)(eq - words[i])))
            continue;
        *eq = 0;
        add_var(out, words[i], eq + 1);
    }
    if (n > 0)
        words_free(words);
}

static void add_env_doc(struct script *s)
{
    size_t n = 0;
    AUTO_FREE char *text =
        doc_text(s->d, oid(OBJ_PROJECT, s->project), "env", &n);
    const char *p = text ? text : "", *end = p + n;

    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);
        AUTO_FREE char *k = NULL, *v = NULL;

        if (kv_line(p, len, &k, &v) == KV_PAIR && var_name(k, strlen(k)))
            add_var(s->out, k, v);
        p += len + (nl ? 1 : 0);
    }
}

static int add_secrets(struct script *s, struct err *e)
{
    struct oid owner = oid(OBJ_PROJECT, s->project);
    sqlite3_stmt *q =
        db_query(s->d,
                 "SELECT path FROM secret WHERE kind=? AND owner=? AND "
                 "path>'secrets/' AND path<'secrets0' ORDER BY path",
                 "ii", (int64_t)owner.kind, owner.id);
    int r = 0;

    while (r == 0 && db_row(s->d, q)) {
        const char *path = col_text(q, 0), *name = path + 8;
        char *plain = NULL;

        if (!var_name(name, strlen(name)))
            continue;
        r = unseal(s->c, s->d, owner, path, &plain, e);
        if (r == 0)
            add_var(s->out, name, plain);
        vault_free(plain);
    }
    db_done(q);
    return r;
}

int env_script(struct courier *c, struct db *d, const struct sandbox *sb,
               const struct tool *t, struct buf *out, struct err *e)
{
    struct script s = {c, d, sb->project, out};
    int r = 0;

    /* what comes later wins: the project's own word is the last */
    if (t)
        r = each_need(d, s.project, t, add_key, &s, e);
    if (r == 0 && t)
        add_tool_env(t, out);
    if (r == 0 && s.project) {
        add_env_doc(&s);
        r = add_secrets(&s, e);
    }
    return r;
}
