/*
 * Control lines: the grammar, one table of all verbs, tokens, outcomes.
 * A command that is refused leaves nothing but its outcome and a line of
 * errors; both are committed with it.
 */
#include "engine/command.h"

enum {
    LINE_MAX_BYTES = 64 * 1024,
    BODY_MAX = 1 << 20,
    OUTCOMES = 20, /* kept of each ctl */
    HELP_COLUMN = 21,
};

enum {
    RAW = 1,   /* the rest of the line as it stands */
    BODY = 2,  /* may end in << */
    PAIRS = 4, /* key=value words */
    WORDS = 8, /* plain words */
    NEEDS = 16 /* at least one word */
};

static const struct verb {
    enum ctl ctl;
    const char *name;
    int flags;
    const char *usage; /* after the name */
    const char *help;
} verbs[] = {
    {CTL_ROOT, "killall", 0, "", "end all sandboxes and runs, work saved"},
    {CTL_ROOT, "shutdown", WORDS, " [all]",
     "end courierfs; all: local sandboxes first, work saved"},
    {CTL_PROJECT, "killall", 0, "", "end its sandboxes and runs, work saved"},
    {CTL_SANDBOXES, "create", BODY | PAIRS | WORDS,
     " [NAME] [key=value]... [prompt=TEXT | <<]",
     "make and start a sandbox; keys: see README"},
    {CTL_SANDBOXES, "start", WORDS | NEEDS, " NAME...", "start drafts"},
    {CTL_SANDBOXES, "kill", WORDS | NEEDS, " [now] NAME...",
     "end them, work saved; now: nothing saved"},
    {CTL_SANDBOXES, "pause", WORDS | NEEDS, " NAME...", "freeze the VMs"},
    {CTL_SANDBOXES, "resume", WORDS | NEEDS, " NAME...", "wake paused ones"},
    {CTL_SANDBOXES, "delete", WORDS | NEEDS, " NAME...",
     "move them to the trash (not while they run)"},
    {CTL_SANDBOXES, "restore", WORDS | NEEDS, " NAME...",
     "take them out of the trash"},
    {CTL_SANDBOXES, "purge", WORDS | NEEDS, " [now] NAME...",
     "remove them from the trash for good"},
    {CTL_SANDBOXES, "killall", 0, "",
     "end all sandboxes and runs, work saved"},
    {CTL_SANDBOX, "start", 0, "", "make the VM of a draft, send the prompt"},
    {CTL_SANDBOX, "message", RAW | BODY | NEEDS, " TEXT | <<",
     "tell the agent; the file message does the same"},
    {CTL_SANDBOX, "interrupt", WORDS, " [all]",
     "end this turn; all: drop what is queued, too"},
    {CTL_SANDBOX, "pause", 0, "", "freeze the VM"},
    {CTL_SANDBOX, "resume", 0, "", "wake it"},
    {CTL_SANDBOX, "timeout", WORDS | NEEDS, " DURATION",
     "let it end so long from now: 1m to 4h"},
    {CTL_SANDBOX, "kill", WORDS, " [now]",
     "end it, work saved; now: nothing saved"},
    {CTL_SANDBOX, "push", 0, "", "commit and push the work now"},
    {CTL_SANDBOX, "pr", PAIRS, " [title=TEXT]", "open a pull request"},
    {CTL_SANDBOX, "learn", 0, "", "ask the agent what it learned"},
    {CTL_SANDBOX, "exec", RAW | BODY | NEEDS, " COMMAND | <<",
     "run a command in the VM; exec/last shows it"},
    {CTL_SANDBOX, "delete", 0, "", "move it to the trash (not while it runs)"},
    {CTL_SANDBOX, "restore", 0, "", "take it out of the trash"},
    {CTL_SANDBOX, "purge", WORDS, " [now]",
     "remove it from the trash for good"},
    {CTL_RUNS, "create", BODY | PAIRS | WORDS,
     " workflow=W [name=N] [n=N] [branch=B] [key=value]... "
     "[prompt=TEXT | <<]",
     "start a run of workflows/W"},
    {CTL_RUN, "cancel", 0, "", "end the turn and the run, work saved"},
    {CTL_RUN, "pause", 0, "", "freeze its VM"},
    {CTL_RUN, "resume", 0, "", "wake it"},
    {CTL_RUN, "restart", PAIRS, " [from=STEP]",
     "go on where it ended, or from that step"},
    {CTL_RUN, "stop", 0, "", "let the turn end, then cancel"},
    {CTL_RUN, "delete", 0, "", "move it to the trash (not while it runs)"},
    {CTL_RUN, "restore", 0, "", "take it out of the trash"},
    {CTL_RUN, "purge", WORDS, " [now]", "remove it from the trash for good"},
    {CTL_LEARNINGS, "compile", 0, "",
     "make a version of what is approved, for new sandboxes"},
    {CTL_MESSAGE, "message", RAW | BODY | NEEDS, "", ""},
};

const char *courier_ctl_help(enum ctl which)
{
    static char text[CTLS][2000];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    AUTO_BUF struct buf b = {0};

    pthread_mutex_lock(&lock);
    if (!text[which][0]) {
        for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
            if (verbs[i].ctl == which) {
                const struct verb *v = &verbs[i];
                int n = (int)(strlen(v->name) + strlen(v->usage));

                buf_addf(&b, "%s%s%*s%s\n", v->name, v->usage,
                         n > HELP_COLUMN - 2 ? 2 : HELP_COLUMN - n, "",
                         v->help);
            }
        snprintf(text[which], sizeof(text[which]), "%s", buf_str(&b));
    }
    pthread_mutex_unlock(&lock);
    return text[which];
}

/* ---- quoting a refused line: short, printable, nothing like a key ---- */

static bool keyish(const char *w)
{
    static const char *const heads[] = {"sk-",  "ghp_", "gho_", "github_pat_",
                                        "e2b_", "sk_",  NULL};
    size_t run = 0, best = 0;

    for (int i = 0; heads[i]; i++)
        if (strstr(w, heads[i]))
            return true;
    for (; *w; w++) {
        bool c = (*w >= '0' && *w <= '9') || (*w >= 'a' && *w <= 'z') ||
                 (*w >= 'A' && *w <= 'Z') || *w == '_' || *w == '-';

        run = c ? run + 1 : 0;
        best = run > best ? run : best;
    }
    return best >= 24;
}

static void quote_line(const char *line, char out[64])
{
    AUTO_BUF struct buf b = {0}, word = {0};
    bool cut = false;

    for (const char *p = line;; p++) {
        if (*p && *p != ' ' && *p != '\t') {
            buf_addc(&word, *p);
            continue;
        }
        if (word.n && keyish(buf_str(&word)))
            buf_adds(&b, "****");
        else
            text_printable(&b, buf_str(&word), word.n, 0);
        buf_clear(&word);
        if (!*p)
            break;
        buf_addc(&b, ' ');
        if (b.n > 40) {
            cut = true;
            break;
        }
    }
    if (b.n > 40)
        cut = true;
    while (b.n > 40 && ((unsigned char)b.p[b.n - 1] & 0xc0) == 0x80)
        b.n--;
    snprintf(out, 64, "%.*s%s", b.n > 40 ? 40 : (int)b.n, buf_str(&b),
             cut ? "..." : "");
}

void courier_line_quote(const char *line, size_t n, char out[64])
{
    AUTO_FREE char *copy = xmemdup0(line, n < 4096 ? n : 4096);

    copy[strcspn(copy, "\r\n")] = 0;
    quote_line(copy + strspn(copy, " \t"), out);
}

/* ---- parsing ---- */

void args_clear(struct args *a)
{
    words_free(a->words);
    free(a->line);
    free(a->token);
    memset(a, 0, sizeof(*a));
}

const char *args_value(const struct args *a, const char *key)
{
    const char *found = NULL;
    size_t n = strlen(key);

    for (char **w = a->words + 1; a->words[0] && *w; w++)
        if (!strncmp(*w, key, n) && (*w)[n] == '=')
            found = *w + n + 1;
    return found;
}

static bool is_pair(const char *w)
{
    const char *eq = strchr(w, '=');

    if (!eq || eq == w)
        return false;
    for (; w < eq; w++)
        if (!(*w >= 'a' && *w <= 'z') && *w != '_')
            return false;
    return true;
}

const char *args_word(const struct args *a, int k)
{
    for (char **w = a->words + 1; a->words[0] && *w; w++)
        if (!is_pair(*w) && k-- == 0)
            return *w;
    return NULL;
}

static const struct verb *verb_find(enum ctl which, const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (verbs[i].ctl == which && strlen(verbs[i].name) == n &&
            !memcmp(verbs[i].name, name, n))
            return &verbs[i];
    return NULL;
}

/* takes a leading id=TOKEN off the rest of a raw line */
static void raw_token(struct args *a)
{
    const char *end;

    if (strncmp(a->rest, "id=", 3))
        return;
    end = a->rest + strcspn(a->rest, " \t");
    a->token = xmemdup0(a->rest + 3, (size_t)(end - a->rest) - 3);
    a->rest = end + strspn(end, " \t");
}

static int parse_raw(struct args *a, const struct verb *v, struct err *e)
{
    a->words = xcalloc(2, sizeof(*a->words));
    a->words[0] = xstrdup(v->name);
    raw_token(a);
    if (a->token && !*a->token)
        return err_set(e, EINVAL, "id= needs a token");
    if (!strcmp(a->rest, "<<")) {
        a->body_follows = true;
        a->rest = "";
        return 0;
    }
    if (!a->rest[strspn(a->rest, " \t\r")])
        return err_set(e, EINVAL, "there is no text after %s", v->name);
    return 0;
}

/* a line that ends in an unquoted " <<": cut it off */
static int take_body_mark(struct args *a, const struct verb *v, char *line,
                          struct err *e)
{
    size_t n = strlen(line);
    const char *last;

    while (n && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        line[--n] = 0;
    last = line + n;
    while (last > line && last[-1] != ' ' && last[-1] != '\t')
        last--;
    if (strncmp(last, "<<", 2))
        return 0;
    if (last[2])
        return err_set(e, EINVAL,
                       "no end marker here: end the line in << and the body "
                       "goes up to the close");
    if (!(v->flags & BODY))
        return err_set(e, EINVAL, "%s takes no body", v->name);
    line[last - line] = 0;
    a->body_follows = true;
    return 0;
}

static int check_words(struct args *a, const struct verb *v, struct err *e)
{
    int plain = 0;

    for (char **w = a->words + 1; *w; w++) {
        AUTO_BUF struct buf shown = {0};
        size_t n = strlen(*w);

        text_printable(&shown, *w, n < 40 ? n : 40, 0);
        if (!strncmp(*w, "id=", 3)) {
            free(a->token);
            a->token = xstrdup(*w + 3);
            if (!*a->token)
                return err_set(e, EINVAL, "id= needs a token");
            continue;
        }
        if (is_pair(*w) && !(v->flags & PAIRS))
            return err_set(e, EINVAL, "%s takes no %.*s=", v->name,
                           (int)strcspn(*w, "="), *w);
        if (is_pair(*w))
            continue;
        if (!(v->flags & WORDS))
            return err_set(e, EINVAL, "%s takes no '%s'", v->name,
                           keyish(*w) ? "****" : buf_str(&shown));
        plain++;
    }
    if ((v->flags & NEEDS) && !plain)
        return err_set(e, EINVAL, "%s needs more:%s", v->name, v->usage);
    return 0;
}

int args_parse(enum ctl which, const char *text, size_t n, struct args *a,
               struct err *e)
{
    const struct verb *v;
    char *p, shown[64];
    size_t len;
    int r;

    memset(a, 0, sizeof(*a));
    if (n > LINE_MAX_BYTES)
        return err_set(e, EMSGSIZE, "the line is longer than 64 KiB");
    a->line = xmemdup0(text, n);
    if (memchr(text, 0, n))
        return err_set(e, EINVAL, "there is a NUL byte in the line");
    if (n && a->line[n - 1] == '\r')
        a->line[n - 1] = 0;
    p = a->line + strspn(a->line, " \t");
    len = strcspn(p, " \t");
    v = verb_find(which, p, len);
    quote_line(p, shown);
    if (!v)
        return err_set(e, EINVAL,
                       "unknown command '%s'; `cat ctl` lists what it takes",
                       shown);
    if (v->flags & RAW) {
        a->rest = p + len + strspn(p + len, " \t");
        return parse_raw(a, v, e);
    }
    r = take_body_mark(a, v, p, e);
    if (r < 0)
        return r;
    a->rest = p + (strlen(p) < len ? strlen(p) : len);
    r = words_split(p, &a->words, e);
    if (r < 0) {
        err_prefix(e, "'%s'", shown);
        return r;
    }
    return check_words(a, v, e);
}

int courier_line_check(enum ctl which, const char *line, size_t n,
                       struct err *e)
{
    struct args a;
    size_t skip = 0;
    int r;

    if (which == CTL_EXPIRES)
        return n > 64 ? err_set(e, EINVAL, "a time or a duration is wanted")
                      : 0;
    while (skip < n && (line[skip] == ' ' || line[skip] == '\t'))
        skip++;
    if (skip == n || line[skip] == '#' ||
        (skip + 1 == n && line[skip] == '\r'))
        return 0;
    r = args_parse(which, line, n, &a, e);
    if (r == 0 && a.body_follows)
        r = 1;
    args_clear(&a);
    return r;
}

/* ---- outcomes ---- */

static void outcome(struct tx *tx, enum ctl which, struct oid o,
                    const char *line, const struct err *e, const char *made)
{
    AUTO_BUF struct buf b = {0};
    char shown[64];
    size_t verb;

    line += strspn(line, " \t");
    verb = strcspn(line, " \t\r");
    if (e) {
        quote_line(line, shown);
        buf_addf(&b, "error %s: %s", shown, e->text);
    } else {
        buf_addf(&b, "ok %.*s%s%s", verb > 40 ? 40 : (int)verb, line,
                 made ? " " : "", made ? made : "");
    }
    db_exec(tx->db,
            "INSERT INTO outcome(ctl,object,time,text) VALUES(?,?,?,?)",
            "iiis", (int64_t)which, o.id, tx->now_ms, buf_str(&b));
    db_exec(tx->db,
            "DELETE FROM outcome WHERE ctl=?1 AND object=?2 AND id<=(SELECT "
            "id FROM outcome WHERE ctl=?1 AND object=?2 ORDER BY id DESC "
            "LIMIT 1 OFFSET ?3)",
            "iii", (int64_t)which, o.id, (int64_t)OUTCOMES);
    tx_changed(tx, o, ASPECT_CTL);
}

static const char *ctl_file(enum ctl which)
{
    switch (which) {
    case CTL_SANDBOXES:
        return "sandboxes/ctl";
    case CTL_RUNS:
        return "runs/ctl";
    case CTL_LEARNINGS:
        return "learnings/ctl";
    case CTL_EXPIRES:
        return "expires";
    case CTL_MESSAGE:
        return "message";
    default:
        return "ctl";
    }
}

static void refuse(struct tx *tx, enum ctl which, struct oid o,
                   const char *line, const struct err *e)
{
    AUTO_FREE char *at = object_path(tx->db, o);
    AUTO_FREE char *path = xasprintf("%s%s%s", at ? at : "",
                                     at && *at ? "/" : "", ctl_file(which));
    AUTO_FREE char *text = NULL;
    char shown[64];

    if (which == CTL_MESSAGE)
        line = "message";
    outcome(tx, which == CTL_MESSAGE ? CTL_SANDBOX : which, o, line, e, NULL);
    quote_line(line, shown);
    /* the path says it is a message */
    text = *shown && which != CTL_MESSAGE ? xasprintf("%s: %s", shown, e->text)
                                          : xstrdup(e->text);
    tx_error(tx, object_project(tx->db, o), path, text);
}

/* what the file system refused before it came here */
struct refusal {
    struct oid o;
    enum ctl which;
    char *line;
    struct err e;
};

static int refusal_fn(struct tx *tx, void *arg, struct err *e)
{
    struct refusal *r = arg;

    (void)e;
    refuse(tx, r->which, r->o, r->line, &r->e);
    return 0;
}

static void refusal_done(void *arg, int code, const struct err *e)
{
    struct refusal *r = arg;

    (void)code;
    (void)e;
    free(r->line);
    free(r);
}

void courier_refused(struct courier *c, struct oid o, enum ctl which,
                     const char *line, size_t n, const struct err *e)
{
    struct refusal *r = xcalloc(1, sizeof(*r));

    *r = (struct refusal){o, which, xmemdup0(line, n < 4096 ? n : 4096), *e};
    r->line[strcspn(r->line, "\r\n")] = 0;
    store_submit(c->store, refusal_fn, r, refusal_done, true);
}

/* ---- carrying out ---- */

struct cmd {
    struct courier *c;
    struct oid o;
    enum ctl which;
    char *line;
    size_t n;
    bool *failed; /* of all that came with it */
    /* bodies */
    int64_t *id_out, id;
    char *body;
    size_t body_n;
    bool drop;
    courier_done done;
    void *arg;
    /* what came of it */
    int code;
    struct err e;
    char *made;
    int64_t cancel; /* sandbox whose work is to be ended after the commit */
    int shutdown;   /* 1, 2 with all */
};

static void cmd_over(void *arg, int code, const struct err *e)
{
    struct cmd *m = arg;

    if (code == 0) {
        code = m->code;
        e = &m->e;
    }
    if (m->id_out)
        *m->id_out = m->id;
    if (code == 0 && m->cancel)
        job_cancel_work(m->c, m->cancel);
    if (code == 0)
        jobs_kick(m->c);
    if (m->done)
        m->done(m->arg, code, e, m->made);
    if (code == 0 && m->shutdown)
        shutdown_begin(m->c, m->shutdown == 2);
    free(m->line);
    free(m->body);
    free(m->made);
    free(m);
}

/* the same token with the same text was done before; another is refused */
static int token_check(struct tx *tx, struct cmd *m, const struct args *a,
                       struct err *e)
{
    int64_t hash, had;
    uint64_t both;
    sqlite3_stmt *q;

    if (!a->token)
        return 0;
    both = text_hash(m->line, m->n);
    if (m->body)
        both ^= text_hash(m->body, m->body_n) * 31;
    hash = (int64_t)both;
    q = db_query(tx->db,
                 "SELECT hash FROM token WHERE ctl=? AND object=? AND token=?",
                 "iis", (int64_t)m->which, m->o.id, a->token);
    if (db_row(tx->db, q)) {
        had = col_int(q, 0);
        db_done(q);
        if (had == hash)
            return 1;
        return err_set(e, EEXIST, "id=%.40s was used for another command",
                       a->token);
    }
    db_exec(tx->db, "INSERT INTO token(ctl,object,token,hash) VALUES(?,?,?,?)",
            "iisi", (int64_t)m->which, m->o.id, a->token, hash);
    return 0;
}

static int shutdown_verb(struct cmd *m, const struct args *a, struct tx *tx,
                         struct err *e)
{
    const char *w = args_word(a, 0);

    if (w && strcmp(w, "all"))
        return err_set(e, EINVAL, "shutdown takes nothing but 'all'");
    m->shutdown = w ? 2 : 1;
    if (w)
        tx_killall(tx, m->c, root_oid(), "shutdown", "local");
    return 0;
}

/* a body of a sandbox's ctl is a message's or a command's */
static bool is_exec(const struct cmd *m)
{
    const char *p = m->line + strspn(m->line, " \t");

    return m->which == CTL_SANDBOX && !strncmp(p, "exec", 4);
}

/* the number under which the command just given is shown in exec/ */
static char *exec_newest(struct db *d, int64_t sandbox)
{
    return db_text(d, "SELECT max(n) FROM exec WHERE sandbox=?", "i", sandbox);
}

static int dispatch(struct tx *tx, struct cmd *m, const struct args *a,
                    struct err *e)
{
    const char *verb = a->words[0];
    int64_t id;
    int r;

    switch (m->which) {
    case CTL_ROOT:
        if (!strcmp(verb, "shutdown"))
            return shutdown_verb(m, a, tx, e);
        tx_killall(tx, m->c, m->o, "killall", NULL);
        return 0;
    case CTL_PROJECT:
        tx_killall(tx, m->c, m->o, "killall", NULL);
        return 0;
    case CTL_SANDBOXES:
        if (!strcmp(verb, "create"))
            return tx_create(tx, m->c, m->o.id, a, false, &id, &m->made, e);
        if (!strcmp(verb, "killall")) {
            tx_killall(tx, m->c, m->o, "killall", NULL);
            return 0;
        }
        return tx_named_verb(tx, m->c, m->o.id, a, e);
    case CTL_SANDBOX:
        if (!strcmp(verb, "kill"))
            m->cancel = m->o.id;
        r = tx_sandbox_verb(tx, m->c, m->o.id, a, e);
        if (r == 0 && !strcmp(verb, "exec"))
            m->made = exec_newest(tx->db, m->o.id);
        return r;
    case CTL_RUNS:
        return tx_run_create(tx, m->c, m->o.id, a, false, &id, &m->made, e);
    case CTL_RUN:
        return tx_run_verb(tx, m->c, m->o.id, a, e);
    case CTL_LEARNINGS:
        return tx_learnings_verb(tx, m->c, m->o.id, a, &m->made, e);
    default:
        return err_set(e, EINVAL, "nothing can be commanded here");
    }
}

static int run_line(struct tx *tx, struct cmd *m, struct err *e)
{
    struct args a = {0};
    int r;

    if (m->which == CTL_EXPIRES)
        return tx_expires(tx, m->c, m->o.id, m->line, e);
    r = args_parse(m->which, m->line, m->n, &a, e);
    if (r == 0)
        r = token_check(tx, m, &a, e);
    if (r == 0)
        r = dispatch(tx, m, &a, e);
    args_clear(&a);
    return r < 0 ? r : 0;
}

static bool blank(const char *line)
{
    line += strspn(line, " \t\r");
    return !*line || *line == '#';
}

/* runs fn; what it refuses is undone and told */
static int guarded(struct tx *tx, struct cmd *m,
                   int (*fn)(struct tx *, struct cmd *, struct err *))
{
    size_t mark = tx_mark(tx);
    int r = fn(tx, m, &m->e);

    if (r < 0 || db_error(tx->db)) {
        bool broken = r >= 0;

        if (broken && db_error(tx->db) != -EEXIST)
            return db_error(tx->db); /* the disk, not the command */
        if (broken)
            r = err_set(&m->e, EEXIST, "that is there already");
        tx_undo(tx, mark);
        m->code = r;
        m->cancel = 0;
        m->shutdown = 0;
        refuse(tx, m->which, m->o, m->line, &m->e);
        return 0;
    }
    tx_keep(tx, mark);
    return 0;
}

static int cmd_fn(struct tx *tx, void *arg, struct err *e)
{
    struct cmd *m = arg;
    int r;

    (void)e;
    if (m->which != CTL_EXPIRES && blank(m->line))
        return 0;
    if (m->failed && *m->failed) {
        m->code = -ECANCELED;
        return 0;
    }
    r = guarded(tx, m, run_line);
    if (m->failed && (r || m->code))
        *m->failed = true;
    if (r == 0 && m->code == 0)
        outcome(tx, m->which, m->o, m->line, NULL, m->made);
    return r;
}

static struct cmd *cmd_new(struct courier *c, courier_done done, void *arg)
{
    struct cmd *m = xcalloc(1, sizeof(*m));

    m->c = c;
    m->done = done;
    m->arg = arg;
    return m;
}

void courier_command(struct courier *c, struct oid o, enum ctl which,
                     const char *line, size_t n, bool *failed,
                     courier_done done, void *arg)
{
    struct cmd *m = cmd_new(c, done, arg);

    m->o = o;
    m->which = which;
    m->line = xmemdup0(line, n);
    m->n = n;
    m->failed = failed;
    store_submit(c->store, cmd_fn, m, cmd_over, false);
}

/* ---- bodies ---- */

/* its body will tell whether it is the same command: nothing is made before */
static bool token_known(struct tx *tx, const struct cmd *m,
                        const struct args *a)
{
    return a->token &&
           db_int(tx->db, 0,
                  "SELECT 1 FROM token WHERE ctl=? AND object=? AND token=?",
                  "iis", (int64_t)m->which, m->o.id, a->token);
}

static int begin_line(struct tx *tx, struct cmd *m, struct err *e)
{
    struct args a = {0};
    int64_t made = 0;
    int r = args_parse(m->which, m->line, m->n, &a, e);

    if (r == 0 && token_known(tx, m, &a))
        r = 0;
    else if (r == 0 && m->which == CTL_SANDBOXES)
        r = tx_create(tx, m->c, m->o.id, &a, true, &made, &m->made, e);
    else if (r == 0 && m->which == CTL_RUNS)
        r = tx_run_create(tx, m->c, m->o.id, &a, true, &made, &m->made, e);
    else if (r == 0 && !strcmp(a.words[0], "message"))
        r = tx_message(tx, m->c, m->o.id, "", 0, "open", &made, e);
    else if (r == 0)
        r = tx_exec_reserve(tx, m->o.id, &made, e);
    args_clear(&a);
    if (r < 0)
        return r;
    db_exec(tx->db,
            "INSERT INTO body(ctl,object,kind,line,made) VALUES(?,?,?,?,?)",
            "iiisi", (int64_t)m->which, m->o.id, (int64_t)m->o.kind, m->line,
            made);
    m->id = db_last_id(tx->db);
    return 0;
}

static int begin_fn(struct tx *tx, void *arg, struct err *e)
{
    (void)e;
    return guarded(tx, arg, begin_line);
}

void courier_body_begin(struct courier *c, struct oid o, enum ctl which,
                        const char *line, size_t n, int64_t *id,
                        courier_done done, void *arg)
{
    struct cmd *m = cmd_new(c, done, arg);

    m->o = o;
    m->which = which;
    m->line = xmemdup0(line, n);
    m->n = n;
    m->id_out = id;
    store_submit(c->store, begin_fn, m, cmd_over, false);
}

static int put_fn(struct tx *tx, void *arg, struct err *e)
{
    struct cmd *m = arg;

    if (m->body_n > BODY_MAX)
        return err_set(e, EMSGSIZE, "the text is longer than 1 MiB");
    db_exec(tx->db, "UPDATE body SET text=? WHERE id=?", "bi", m->body,
            m->body_n, m->id);
    return 0;
}

void courier_body_put(struct courier *c, int64_t id, const void *p, size_t n,
                      courier_done done, void *arg)
{
    struct cmd *m = cmd_new(c, done, arg);

    m->id = id;
    m->body_n = n;
    m->body = xmemdup0(p, n > BODY_MAX ? 0 : n);
    store_submit(c->store, put_fn, m, cmd_over, false);
}

/* one that somebody has started meanwhile is there to stay */
static void drop_made(struct tx *tx, struct cmd *m, int64_t made)
{
    if (!made)
        return;
    if (m->which == CTL_SANDBOXES &&
        db_int(tx->db, 0,
               "SELECT 1 FROM sandbox WHERE id=? AND status='draft'", "i",
               made))
        tx_purge_row(tx, oid(OBJ_SANDBOX, made));
    else if (m->which == CTL_SANDBOXES)
        return;
    else if (m->which == CTL_RUNS)
        tx_run_drop(tx, made);
    else if (is_exec(m))
        tx_exec_drop(tx, made);
    else
        tx_message_drop(tx, made);
}

/* a create whose start was refused stays as a draft: nothing is lost */
static void drop_refused(struct tx *tx, struct cmd *m, int64_t made)
{
    if (m->which == CTL_MESSAGE || m->which == CTL_SANDBOX)
        drop_made(tx, m, made);
}

static int end_line(struct tx *tx, struct cmd *m, struct err *e)
{
    struct args a = {0};
    int64_t made = m->id;
    int r = args_parse(m->which, m->line, m->n, &a, e);

    a.body = m->body;
    a.body_n = m->body_n;
    if (r == 0)
        r = token_check(tx, m, &a, e);
    if (r == 1) { /* done before: this one is not wanted */
        drop_made(tx, m, made);
        r = 0;
    } else if (r == 0 && m->which == CTL_SANDBOXES) {
        r = tx_create_body(tx, m->c, made, m->body, m->body_n, e);
    } else if (r == 0 && m->which == CTL_RUNS) {
        r = tx_run_create_body(tx, m->c, made, m->body, m->body_n, e);
    } else if (r == 0 && !strcmp(a.words[0], "message")) {
        r = tx_message_end(tx, m->c, made, m->body, m->body_n, e);
    } else if (r == 0) {
        r = tx_exec_queue(tx, m->c, made, m->body, m->body_n, e);
        m->made = r < 0 ? NULL
                        : db_text(tx->db, "SELECT n FROM exec WHERE id=?", "i",
                                  made);
    }
    args_clear(&a);
    return r;
}

static void body_outcome(struct tx *tx, struct cmd *m, int64_t made)
{
    AUTO_FREE char *name = NULL;

    if (made && (m->which == CTL_SANDBOXES || m->which == CTL_RUNS))
        name = db_text(tx->db,
                       m->which == CTL_RUNS
                           ? "SELECT name FROM run WHERE id=?"
                           : "SELECT name FROM sandbox WHERE id=?",
                       "i", made);
    else
        name = xstrdup(m->made);
    outcome(tx, m->which == CTL_MESSAGE ? CTL_SANDBOX : m->which, m->o,
            m->line, NULL, name);
}

static int end_fn(struct tx *tx, void *arg, struct err *e)
{
    struct cmd *m = arg;
    int64_t made, body = m->id;
    sqlite3_stmt *q = db_query(
        tx->db, "SELECT ctl,object,kind,line,made,text FROM body WHERE id=?",
        "i", body);
    bool crash = m->drop;
    int r;

    (void)e;
    if (!db_row(tx->db, q))
        return 0;
    m->which = (enum ctl)col_int(q, 0);
    m->o = oid((enum obj_kind)col_int(q, 2), col_int(q, 1));
    m->line = xstrdup(col_text(q, 3));
    m->n = strlen(m->line);
    made = col_int(q, 4);
    m->drop = m->drop && col_null(q, 5);
    m->body_n = (size_t)sqlite3_column_bytes(q, 5);
    m->body = xmemdup0(sqlite3_column_blob(q, 5), m->body_n);
    db_done(q);
    db_exec(tx->db, "DELETE FROM body WHERE id=?", "i", body);
    if (m->drop || (crash && !m->body_n && m->which == CTL_MESSAGE)) {
        drop_made(tx, m, made);
        return 0;
    }
    m->id = made;
    r = guarded(tx, m, end_line);
    if (m->code < 0)
        drop_refused(tx, m, made);
    else if (r == 0)
        body_outcome(tx, m, made);
    return r;
}

void courier_body_end(struct courier *c, int64_t id, bool drop,
                      courier_done done, void *arg)
{
    struct cmd *m = cmd_new(c, done, arg);

    m->id = id;
    m->drop = drop;
    store_submit(c->store, end_fn, m, cmd_over, false);
}

void bodies_resume(struct courier *c)
{
    struct db *d = store_reader(c->store);
    sqlite3_stmt *q = db_query(d, "SELECT id FROM body ORDER BY id", "");

    while (db_row(d, q))
        courier_body_end(c, col_int(q, 0), true, NULL, NULL);
}
