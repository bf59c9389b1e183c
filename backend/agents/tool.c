/*
 * Tools as documents: `key = value` lines, # comments. A value continues on
 * the next line after a backslash at its end.
 *
 *     command = claude -p [--model {model}] [--resume {session}]
 *
 * {model}, {thinking}, {system_prompt_file} and {session} stand for those
 * values as one quoted word of sh, so they are written outside of quotes
 * (inside "$(...)" is fine). What stands in [ ] around at least one of them
 * is dropped when one of them isn't known; the brackets themselves always
 * go. Any other bracket or brace is the shell's. A placeholder outside of
 * brackets that isn't known becomes the empty word ''.
 */
#include "agents/adapter.h"
#include "base/text.h"

#include <ctype.h>

struct field {
    const char *key;
    size_t at;
    int (*check)(const char *value, struct err *e);
};

static const char *const formats[] = {"text",     "claude", "codex",
                                      "opencode", "pi",     NULL};
static const char *const key_words[] = {
    "anthropic", "anthropic_token", "openai", "openrouter", "github", "e2b",
    NULL};

/* ---- the built-in ones ---- */

const char *const *tool_names(void)
{
    static const char *const names[] = {"claude", "codex", "opencode",
                                        "pi",     "shell", NULL};

    return names;
}

const char *tool_builtin(const char *name)
{
    for (size_t i = 0; adapters[i]; i++)
        if (!strcmp(adapters[i]->tool, name))
            return adapters[i]->doc;
    return NULL;
}

/* ---- reading a document ---- */

static int check_keys(const char *value, struct err *e)
{
    AUTO_FREE char *copy = xstrdup(value);
    char *save = NULL;

    for (char *w = strtok_r(copy, " ,|\t", &save); w;
         w = strtok_r(NULL, " ,|\t", &save))
        if (!text_is_word(w, key_words))
            return err_set(e, EINVAL, "keys: '%.40s' is no name of a key", w);
    return 0;
}

static int check_below(const char *value, struct err *e)
{
    AUTO_FREE char *padded = xasprintf("/%s/", value);

    if (*value == '/' || strstr(padded, "/../") || strstr(padded, "/./") ||
        strstr(padded, "//"))
        return err_set(e, EINVAL, "'%.60s' is no path below a directory",
                       value);
    return 0;
}

static int check_env(const char *value, struct err *e)
{
    char **w;
    int n = words_split(value, &w, e), r = 0;

    if (n < 0)
        return n;
    for (int i = 0; i < n && !r; i++) {
        size_t len = strcspn(w[i], "=");

        if (!len || !w[i][len] || isdigit((unsigned char)*w[i]))
            r = -EINVAL;
        for (size_t k = 0; k < len; k++)
            if (!isalnum((unsigned char)w[i][k]) && w[i][k] != '_')
                r = -EINVAL;
        if (r)
            err_set(e, EINVAL, "env: '%.40s' is not NAME=value", w[i]);
    }
    words_free(w);
    return r;
}

#define AT(name) offsetof(struct tool, name)
static const struct field fields[] = {
    {"command", AT(command), NULL},
    {"continue", AT(continue_), NULL},
    {"template", AT(template_id), NULL},
    {"model", AT(model), NULL},
    {"thinking", AT(thinking), NULL},
    {"keys", AT(keys), check_keys},
    {"memory_file", AT(memory_file), check_below},
    {"skills_dir", AT(skills_dir), check_below},
    {"commands_dir", AT(commands_dir), check_below},
    {"env", AT(env), check_env},
    {"service", AT(service), NULL},
    {"efforts", AT(efforts), NULL},
};

static char **slot(struct tool *t, const struct field *f)
{
    return (char **)(void *)((char *)t + f->at);
}

static int set_format(struct tool *t, const char *value, struct err *e)
{
    for (int i = 0; formats[i]; i++)
        if (!strcmp(formats[i], value)) {
            t->format = (enum agent_format)i;
            return 0;
        }
    return err_set(e, EINVAL,
                   "format: '%.40s' is none of text, claude, codex, "
                   "opencode, pi",
                   value);
}

static int set_pair(struct tool *t, const char *key, const char *value,
                    struct err *e)
{
    int r;

    if (!text_utf8_valid(value, strlen(value)))
        return err_set(e, EINVAL, "%.40s: the value is not UTF-8", key);
    if (!strcmp(key, "format"))
        return set_format(t, value, e);
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        char **to = slot(t, &fields[i]);

        if (strcmp(fields[i].key, key))
            continue;
        r = *value && fields[i].check ? fields[i].check(value, e) : 0;
        if (r)
            return r;
        free(*to);
        *to = *value ? xstrdup(value) : NULL;
        return 0;
    }
    return err_set(e, EINVAL, "unknown key '%.40s'", key);
}

static int read_line(struct tool *t, const char *s, size_t n, struct err *e)
{
    AUTO_FREE char *key = NULL;
    AUTO_FREE char *value = NULL;

    switch (kv_line(s, n, &key, &value)) {
    case KV_NOTHING:
        return 0;
    case KV_PAIR:
        return set_pair(t, key, value, e);
    default:
        return err_set(e, EINVAL, "not of the form key = value");
    }
}

/* one line, with those that continue it; returns how much was taken */
static size_t whole_line(struct buf *out, const char *doc, size_t n, int *no)
{
    size_t i = 0;

    for (;;) {
        const char *nl = memchr(doc + i, '\n', n - i);
        size_t len = nl ? (size_t)(nl - doc) - i : n - i;
        bool more;

        buf_add(out, doc + i, len);
        i += len + (nl ? 1 : 0);
        if (out->n && out->p[out->n - 1] == '\r')
            out->p[--out->n] = 0;
        more = out->n && out->p[out->n - 1] == '\\' && i < n &&
               out->p[strspn(out->p, " \t")] != '#';
        if (!more)
            return i;
        out->p[--out->n] = 0;
        (*no)++;
        while (i < n && (doc[i] == ' ' || doc[i] == '\t'))
            i++;
    }
}

static int read_doc(struct tool *t, const char *doc, size_t n, struct err *e)
{
    AUTO_BUF struct buf b = {0};
    size_t mark = text_bom(doc, n);
    int no = 0, r;

    doc += mark;
    n -= mark;
    while (n) {
        size_t taken;
        int first = ++no;

        buf_clear(&b);
        taken = whole_line(&b, doc, n, &no);
        doc += taken;
        n -= taken;
        r = read_line(t, buf_str(&b), b.n, e);
        if (r) {
            err_prefix(e, "line %d", first);
            return r;
        }
    }
    return 0;
}

int tool_parse(const char *name, const char *doc, size_t n, struct tool **out,
               struct err *e)
{
    struct tool *t = xcalloc(1, sizeof(*t));
    const char *builtin = tool_builtin(name);
    int r = 0;

    *out = NULL;
    t->name = xstrdup(name);
    if (builtin)
        r = read_doc(t, builtin, strlen(builtin), e);
    if (!r)
        r = read_doc(t, doc, n, e);
    if (!r && !t->command)
        r = err_set(e, EINVAL, "the key 'command' is missing");
    if (r)
        tool_free(t);
    else
        *out = t;
    return r;
}

void tool_free(struct tool *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        free(*slot(t, &fields[i]));
    free(t->name);
    free(t);
}

/* ---- the command line ---- */

struct value {
    const char *name, *value;
};

/* the placeholder at s, and its length; NULL: none */
static const struct value *value_at(const struct value *v, const char *s,
                                    size_t *len)
{
    for (; v->name; v++) {
        *len = strlen(v->name);
        if (!strncmp(s, v->name, *len))
            return v;
    }
    return NULL;
}

/*
 * The length of the group that opens at s, brackets included; 0: it is the
 * shell's own bracket. *known: all in it have values.
 */
static size_t group_at(const struct value *v, const char *s, bool *known)
{
    bool any = false;
    size_t len;

    *known = true;
    for (size_t i = 1; s[i] && s[i] != '['; i++) {
        const struct value *p;

        if (s[i] == ']')
            return any ? i + 1 : 0;
        p = s[i] == '{' ? value_at(v, s + i, &len) : NULL;
        any |= p != NULL;
        if (p && !p->value)
            *known = false;
    }
    return 0;
}

static void expand(struct buf *out, const struct value *v, const char *s)
{
    const char *close = NULL; /* where the open group ends */

    while (*s) {
        const struct value *p;
        size_t len;
        bool known;

        if (s == close) {
            close = NULL;
            s++;
            continue;
        }
        len = *s == '[' && !close ? group_at(v, s, &known) : 0;
        if (len) {
            close = known ? s + len - 1 : NULL;
            s += known ? 1 : len;
            if (!known && (!out->n || out->p[out->n - 1] == ' '))
                s += strspn(s, " ");
            continue;
        }
        p = *s == '{' ? value_at(v, s, &len) : NULL;
        if (p)
            text_shell_quote(out, p->value ? p->value : "");
        else
            buf_addc(out, *s);
        s += p ? len : 1;
    }
}

static bool is_effort(const char *list, const char *word, size_t n)
{
    for (const char *s = list; *s;) {
        size_t len = strcspn(s, " ,");

        if (len == n && !strncmp(s, word, n))
            return true;
        s += len;
        s += strspn(s, " ,");
    }
    return false;
}

/* "max" is the strongest word that the tool knows */
static char *effort_word(const struct tool *t, const char *word, size_t n)
{
    const char *last;

    if (!t->efforts || n != 3 || strncmp(word, "max", 3) ||
        is_effort(t->efforts, "max", 3))
        return xmemdup0(word, n);
    last = strrchr(t->efforts, ' ');
    return xstrdup(last ? last + 1 : t->efforts);
}

/* the word for this model from "low" or "opus:high sonnet:low medium" */
static char *effort_of(const struct tool *t, const char *list,
                       const char *model)
{
    const char *best = NULL;
    size_t best_n = 0;

    for (const char *s = list + strspn(list, " ,\t"); *s;) {
        size_t len = strcspn(s, " ,\t");
        const char *colon = memrchr(s, ':', len);
        size_t before = colon ? (size_t)(colon - s) : 0;

        if (!colon && !best) {
            best = s;
            best_n = len;
        } else if (colon && model && strlen(model) == before &&
                   !strncmp(s, model, before)) {
            best = colon + 1;
            best_n = len - before - 1;
            break;
        }
        s += len;
        s += strspn(s, " ,\t");
    }
    return best_n ? effort_word(t, best, best_n) : NULL;
}

static const char *or_null(const char *s)
{
    return s && *s ? s : NULL;
}

char *tool_command(const struct tool *t, const char *session,
                   const char *model, const char *thinking,
                   const char *system_prompt_file)
{
    AUTO_FREE char *effort = NULL;
    struct buf out = {0};
    bool first;

    /* it came from the VM: no option may hide in it */
    session = or_null(session);
    if (session && *session == '-')
        session = NULL;
    model = or_null(model) ? model : or_null(t->model);
    thinking = or_null(thinking) ? thinking : or_null(t->thinking);
    if (thinking)
        effort = effort_of(t, thinking, model);
    first = !session || !t->continue_;
    expand(&out,
           (const struct value[]){
               {"{model}", model},
               {"{thinking}", effort},
               {"{system_prompt_file}", or_null(system_prompt_file)},
               {"{session}", session},
               {NULL, NULL},
           },
           first ? t->command : t->continue_);
    while (out.n && out.p[out.n - 1] == ' ')
        out.p[--out.n] = 0;
    return buf_take(&out);
}
