#include "engine/config.h"

#include <ctype.h>

/* ---- refused text in errors ---- */

static bool key_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* a run of 20 or more letters and digits, both among them, or sk-... */
static bool like_key(const char *s, size_t n)
{
    bool digit = false, alpha = false;

    if (n >= 8 && (!strncmp(s, "sk-", 3) || !strncmp(s, "ghp_", 4) ||
                   !strncmp(s, "e2b_", 4) || !strncmp(s, "gho_", 4)))
        return true;
    for (size_t i = 0; i < n; i++) {
        digit |= isdigit((unsigned char)s[i]) != 0;
        alpha |= isalpha((unsigned char)s[i]) != 0;
    }
    return n >= 20 && digit && alpha;
}

void text_refused(const char *s, char out[160])
{
    AUTO_BUF struct buf b = {0}, shown = {0};
    size_t n = strlen(s), i = 0, cut;

    while (i < n && b.n < 200) {
        size_t run = 0;

        while (i + run < n && key_char(s[i + run]))
            run++;
        if (run && like_key(s + i, run))
            buf_adds(&b, "****");
        else
            buf_add(&b, s + i, run ? run : 1);
        i += run ? run : 1;
    }
    cut = b.n > 40 ? 40 : b.n;
    cut -= text_utf8_tail(buf_str(&b), cut);
    text_printable(&shown, buf_str(&b), cut, 0);
    snprintf(out, 160, "%.150s%s", buf_str(&shown), cut < b.n ? "..." : "");
}

/* ---- checks of values ---- */

static int bad(const struct config_key *k, const char *value, struct err *e)
{
    char shown[160];

    text_refused(value, shown);
    return err_set(e, EINVAL, "%s '%s': %s", k->name, shown, k->words);
}

static int check_words(const struct config_key *k, const char *value,
                       struct err *e)
{
    AUTO_FREE char *list = xstrdup(k->words);
    char *rest = list;

    for (char *w = strsep(&rest, ", "); w; w = strsep(&rest, ", ")) {
        if (*w && !strcmp(w, value))
            return 0;
    }
    return bad(k, value, e);
}

static int check_duration(const struct config_key *k, const char *value,
                          struct err *e)
{
    int64_t secs = text_duration(value);

    if (secs < k->min || secs > k->max)
        return bad(k, value, e);
    return 0;
}

/* as a duration, or "none" */
static int check_limit(const struct config_key *k, const char *value,
                       struct err *e)
{
    return strcmp(value, "none") ? check_duration(k, value, e) : 0;
}

static int check_number(const struct config_key *k, const char *value,
                        struct err *e)
{
    int64_t v;

    return text_int(value, k->min, k->max, &v) ? 0 : bad(k, value, e);
}

static int check_usd(const struct config_key *k, const char *value,
                     struct err *e)
{
    double v;

    if (!strcmp(value, "none"))
        return 0;
    if (!text_double(value, 0, 1e6, &v) || v <= 0)
        return bad(k, value, e);
    return 0;
}

static bool plain_text(const char *s, size_t max)
{
    size_t n = strlen(s);

    if (n > max || !text_utf8_valid(s, n))
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    }
    return true;
}

/* free text; max is the length in bytes, min 1: it can't be empty */
static int check_text(const struct config_key *k, const char *value,
                      struct err *e)
{
    if (!plain_text(value, (size_t)k->max))
        return bad(k, value, e);
    return 0;
}

/* one word of free text: goes into command lines and URLs */
static int check_word(const struct config_key *k, const char *value,
                      struct err *e)
{
    if (!*value || *value == '-' || strpbrk(value, " \t") ||
        !plain_text(value, (size_t)k->max))
        return bad(k, value, e);
    return 0;
}

static int check_model(const struct config_key *k, const char *value,
                       struct err *e)
{
    if (*value == '-' || !plain_text(value, (size_t)k->max))
        return bad(k, value, e);
    return 0;
}

static int check_name(const struct config_key *k, const char *value,
                      struct err *e)
{
    if (text_name_check(value, NULL) < 0)
        return bad(k, value, e);
    return 0;
}

static bool effort(const char *s)
{
    static const char *const all[] = {"low", "medium", "high", "max", NULL};

    return text_is_word(s, all);
}

static int check_thinking(const struct config_key *k, const char *value,
                          struct err *e)
{
    AUTO_FREE char *copy = xstrdup(value);
    char *rest = copy;
    int n = 0;

    if (effort(value))
        return 0;
    if (!plain_text(value, 1000))
        return bad(k, value, e);
    for (char *w = strsep(&rest, ", "); w; w = strsep(&rest, ", ")) {
        char *colon = strrchr(w, ':');

        if (!*w)
            continue;
        if (!colon || colon == w || !effort(colon + 1))
            return bad(k, value, e);
        n++;
    }
    return n ? 0 : bad(k, value, e);
}

static int check_branch(const struct config_key *k, const char *value,
                        struct err *e)
{
    if (!*value)
        return err_set(e, EINVAL, "%s is empty", k->name);
    return git_branch_check(value, e);
}

static int check_repo(const struct config_key *k, const char *value,
                      struct err *e)
{
    if (!plain_text(value, 2000))
        return bad(k, value, e);
    return *value ? git_repo_check(value, e) : 0;
}

static bool host_ok(const char *s)
{
    for (; *s; s++) {
        if (!isalnum((unsigned char)*s) && !strchr("-._*:/[]", *s))
            return false;
    }
    return true;
}

static int check_network(const struct config_key *k, const char *value,
                         struct err *e)
{
    AUTO_FREE char *copy = NULL;
    char *rest;
    int n = 0;

    if (!strcmp(value, "on") || !strcmp(value, "off") ||
        !strcmp(value, "host"))
        return 0;
    if (strncmp(value, "allow=", 6))
        return bad(k, value, e);
    copy = rest = xstrdup(value + 6);
    for (char *w = strsep(&rest, ","); w; w = strsep(&rest, ",")) {
        if (!*w || !host_ok(w) || strlen(w) > 253)
            return bad(k, value, e);
        n++;
    }
    return n ? 0 : bad(k, value, e);
}

static int check_url(const struct config_key *k, const char *value,
                     struct err *e)
{
    if (!*value)
        return 0;
    if ((strncmp(value, "https://", 8) && strncmp(value, "http://", 7)) ||
        strpbrk(value, " \t\"'<>\\@") || !plain_text(value, 500))
        return bad(k, value, e);
    return 0;
}

static int check_who(const struct config_key *k, const char *value,
                     struct err *e)
{
    if (!plain_text(value, 200) || strpbrk(value, "<>"))
        return bad(k, value, e);
    return 0;
}

static int check_paths(const struct config_key *k, const char *value,
                       struct err *e)
{
    for (int i = 0;; i++) {
        AUTO_FREE char *p = config_list_item(value, i);

        if (!p)
            return 0;
        if (*p != '/' || !plain_text(p, 4000))
            return bad(k, value, e);
    }
}

/* ---- the table ---- */

enum {
    ALL = CONFIG_ROOT | CONFIG_PROJECT | CONFIG_SANDBOX,
    UP = CONFIG_ROOT | CONFIG_PROJECT,
    HELP_COLUMN = 21,
    HELP_WIDTH = 78,
};

#define TEXT(n) "text of at most " #n " bytes"

static const struct config_key keys[] = {
    {"backend", ALL, false, "auto", check_words, "auto, e2b, local", 0, 0,
     "where it runs; auto: E2B if there is a key for it"},
    {"tool", ALL, false, "", check_name, "the name of a tool in tools/", 0, 0,
     "which agent works in it"},
    {"template", ALL, false, "", check_word, "the name of a template", 0, 200,
     "what the VM is made from at E2B; else the tool's"},
    {"model", ALL, false, "", check_model, TEXT(200), 0, 200,
     "the model that the agent uses"},
    {"designer_model", ALL, false, "", check_model, TEXT(200), 0, 200,
     "the model of designers in runs"},
    {"checker_model", ALL, false, "", check_model, TEXT(200), 0, 200,
     "the model of checkers in runs"},
    {"thinking", ALL, false, "", check_thinking,
     "low, medium, high, max, or pairs model:effort", 0, 0,
     "how hard the model thinks"},
    {"timeout", ALL, true, "15m", check_duration,
     "a duration from 1m to 4h, like 30m", 60, 14400,
     "how long it lives, unless `expires` is moved"},
    {"on_timeout", ALL, true, "kill", check_words, "kill, pause", 0, 0,
     "what is done with it then"},
    {"salvage_ahead", ALL, true, "60s", check_duration,
     "a duration from 10s to 10m", 10, 600,
     "how long before that its work is saved"},
    {"when_done", ALL, true, "keep", check_words, "keep, kill", 0, 0,
     "what is done with it after its first prompt"},
    {"turn_timeout", ALL, true, "", check_limit,
     "a duration from 1s to 24h, or none", 1, 86400,
     "how long a turn may take"},
    {"memory", ALL, false, "1024", check_number, "MiB from 256 to 8192", 256,
     8192, "of the VM"},
    {"cpu", ALL, false, "2", check_number, "a number from 1 to 8", 1, 8,
     "of the VM"},
    {"repo", ALL, false, "", check_repo, "a URL or path of a repository", 0, 0,
     "what is cloned into it"},
    {"base", ALL, false, "", check_branch, "the name of a branch", 0, 0,
     "what its branch begins from; else the remote's HEAD"},
    {"branch", ALL, false, "", check_branch, "the name of a branch", 0, 0,
     "the branch to work on; else courier/NAME"},
    {"sync", ALL, true, "turn", check_words, "turn, end, off", 0, 0,
     "when its work is pushed: after each turn, at its end"},
    {"pr", ALL, true, "auto", check_words, "auto, draft, off", 0, 0,
     "whether a pull request is opened at its end"},
    {"pr_labels", ALL, true, "", check_text, "labels with commas between", 0,
     500, "of the pull request"},
    {"git_name", ALL, false, "", check_who, "a name without < and >", 0, 0,
     "who commits; else your Git settings"},
    {"git_email", ALL, false, "", check_who, "an address without < and >", 0,
     0, "who commits; else your Git settings"},
    {"setup", ALL, false, "", check_text, "a command on one line", 0, 8000,
     "run after the clone"},
    {"learn", ALL, true, "", check_words, "auto, off", 0, 0,
     "whether the agent is asked at the end what it learned"},
    {"budget", ALL, true, "", check_usd, "USD above 0, like 2.50, or none", 0,
     0, "it is paused when it has cost so much"},
    {"network", ALL, false, "on", check_network,
     "on, off, host, or allow=HOST,HOST", 0, 0, "what it can reach"},
    {"github_api", ALL, true, "", check_url, "a URL like https://HOST/api/v3",
     0, 0, "where pull requests are opened; else the remote's host"},
    {"learning_tool", UP, true, "", check_name, "the name of a tool in tools/",
     0, 0, "who is asked what was learned; else the sandbox's own tool"},
    {"learning_model", UP, true, "", check_model, TEXT(200), 0, 200,
     "the model for that"},
    {"discovery_prompt", UP, true, "", check_text, TEXT(60000), 0, 60000,
     "kept, but without effect so far"},
    {"max_active", CONFIG_ROOT, true, "", check_number,
     "a number from 1 to 100000", 1, 100000,
     "how many live at once; more wait in `creating`"},
    {"local_bind", CONFIG_ROOT, true, "", check_paths,
     "absolute directories with commas between", 0, 0,
     "what local sandboxes see besides the system"},
    {"local_path", CONFIG_ROOT, true, "", check_paths,
     "absolute directories with commas between", 0, 0,
     "as local_bind, and on their PATH"},
    {NULL, 0, false, NULL, NULL, NULL, 0, 0, NULL},
};

static void setting_help(struct buf *out, const struct config_key *k)
{
    AUTO_BUF struct buf b = {0};

    buf_addf(&b, "%s (%s%s%s)%s", k->help, k->words,
             *k->dflt ? "; default " : "", k->dflt,
             k->levels & CONFIG_SANDBOX   ? ""
             : k->levels & CONFIG_PROJECT ? "; project and root only"
                                          : "; root only");
    buf_addf(out, "  %s%s", k->name, k->late ? "*" : "");
    text_wrapped(out, buf_str(&b), (int)strlen(k->name) + k->late + 2,
                 HELP_COLUMN, HELP_WIDTH);
}

void courier_settings_help(struct buf *out)
{
    for (const struct config_key *k = keys; k->name; k++)
        setting_help(out, k);
}

const struct config_key *config_keys(void)
{
    return keys;
}

const struct config_key *config_key_find(const char *key)
{
    for (const struct config_key *k = keys; k->name; k++) {
        if (!strcmp(k->name, key))
            return k;
    }
    return NULL;
}

bool config_is_key(const char *key, int level)
{
    const struct config_key *k = config_key_find(key);

    return k && k->levels & level;
}

bool config_is_late(const char *key)
{
    const struct config_key *k = config_key_find(key);

    return k && k->late;
}

int config_check(const char *key, const char *value, int level, struct err *e)
{
    const struct config_key *k = config_key_find(key);
    char shown[160];

    text_refused(key, shown);
    if (!k)
        return err_set(e, EINVAL, "unknown key '%s'", shown);
    if (!(k->levels & level))
        return err_set(e, EINVAL, "key '%s' is set in the config of %s", shown,
                       k->levels & CONFIG_PROJECT ? "a project or the root"
                                                  : "the root only");
    return k->check(k, value, e);
}

/* ---- values in a config text ---- */

/* calls kv_line for the line that begins at *p and moves on */
static enum kv_line next_line(const char **p, const char *end,
                              const char **line, size_t *len, char **key,
                              char **value)
{
    const char *nl = memchr(*p, '\n', (size_t)(end - *p));

    *line = *p;
    *len = (size_t)((nl ? nl : end) - *p);
    *p = nl ? nl + 1 : end;
    return kv_line(*line, *len, key, value);
}

char *config_find(const char *text, size_t n, const char *key)
{
    const char *p = text, *end = text + n, *line;
    char *found = NULL;
    size_t len;

    while (text && p < end) {
        AUTO_FREE char *k = NULL, *v = NULL;

        if (next_line(&p, end, &line, &len, &k, &v) != KV_PAIR ||
            strcmp(k, key))
            continue;
        free(found);
        found = v;
        v = NULL;
    }
    return found;
}

static void add_pair(struct buf *b, const char *key, const char *value)
{
    size_t n = strlen(value);
    bool quote = n && (value[0] == ' ' || value[0] == '\t' ||
                       value[n - 1] == ' ' || value[n - 1] == '\t' ||
                       (n > 1 && (*value == '"' || *value == '\'') &&
                        value[n - 1] == *value));

    buf_addf(b, quote ? "%s = \"%s\"\n" : "%s = %s\n", key, value);
}

void config_set(struct buf *text, const char *key, const char *value)
{
    const char *p = buf_str(text), *end = p + text->n, *line;
    struct buf out = {0};
    bool done = false;
    size_t len;

    while (p < end) {
        AUTO_FREE char *k = NULL, *v = NULL;

        if (next_line(&p, end, &line, &len, &k, &v) != KV_PAIR ||
            strcmp(k, key)) {
            buf_add(&out, line, len);
            buf_addc(&out, '\n');
        } else if (!done) {
            add_pair(&out, key, value);
            done = true;
        }
    }
    if (!done)
        add_pair(&out, key, value);
    buf_free(text);
    *text = out;
}

char *config_list_item(const char *list, int k)
{
    static const char sep[] = ", \t:";
    const char *p = list + strspn(list, sep);

    for (; k > 0 && *p; k--) {
        p += strcspn(p, sep);
        p += strspn(p, sep);
    }
    return *p ? xmemdup0(p, strcspn(p, sep)) : NULL;
}

char *config_thinking(const char *value, const char *model)
{
    AUTO_FREE char *copy = NULL;
    char *rest;

    if (!strchr(value, ':'))
        return xstrdup(value);
    copy = rest = xstrdup(value);
    for (char *w = strsep(&rest, ", "); w; w = strsep(&rest, ", ")) {
        char *colon = strrchr(w, ':');

        if (!colon)
            continue;
        *colon = 0;
        if (!strcmp(w, model))
            return xstrdup(colon + 1);
    }
    return xstrdup("");
}
