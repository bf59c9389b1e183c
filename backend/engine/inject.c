#include "engine/inject.h"

#include "engine/jobs.h"
#include "engine/run.h"

#include <time.h>

/* below home: what the clone puts into the repository's directory */
#define BESIDE ".courier/project/"

enum { BLOCK = 512, STDIN_MAX = 1 << 20, UNPACK_LIMIT_MS = 60000 };

/* ---- tar ---- */

static void octal(char *to, size_t width, uint64_t v)
{
    to[--width] = 0;
    while (width) {
        to[--width] = (char)('0' + (v & 7));
        v >>= 3;
    }
}

static void pad(struct buf *tar, size_t n)
{
    static const char zeros[BLOCK];

    if (n % BLOCK)
        buf_add(tar, zeros, BLOCK - n % BLOCK);
}

static void header(struct buf *tar, const char *name, char type, unsigned mode,
                   size_t n)
{
    char h[BLOCK] = {0};
    size_t len = strlen(name);
    unsigned sum = 0;

    memcpy(h, name, len < 100 ? len : 100);
    octal(h + 100, 8, mode);
    octal(h + 108, 8, 0);
    octal(h + 116, 8, 0);
    octal(h + 124, 12, n);
    octal(h + 136, 12, (uint64_t)(now_ms() / 1000));
    memset(h + 148, ' ', 8);
    h[156] = type;
    memcpy(h + 257, "ustar  ", 8); /* GNU: long names by an entry of type L */
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)h[i];
    octal(h + 148, 7, sum);
    buf_add(tar, h, BLOCK);
}

void tar_file(struct buf *tar, const char *path, unsigned mode, const void *p,
              size_t n)
{
    size_t len = strlen(path);

    if (len > 99) {
        header(tar, "././@LongLink", 'L', 0644, len + 1);
        buf_add(tar, path, len + 1);
        pad(tar, len + 1);
    }
    header(tar, path, '0', mode & 0777, n);
    buf_add(tar, p, n);
    pad(tar, n);
}

void tar_end(struct buf *tar)
{
    static const char zeros[BLOCK * 2];

    buf_add(tar, zeros, sizeof(zeros));
}

/* ---- what goes in ---- */

const char *vm_workdir(struct db *d, const struct sandbox *s)
{
    return repo_wanted(d, s) ? VM_HOME "/project" : VM_HOME;
}

bool inject_has_system_prompt(struct db *d, const struct sandbox *s)
{
    size_t n = 0;
    AUTO_FREE char *text =
        doc_text(d, oid(OBJ_PROJECT, s->project), "system-prompt.md", &n);

    return text && n;
}

struct place {
    struct buf *tar;
    const char *from, *to;     /* prefix to take off, and to put before */
    const struct outfit *only; /* of skills; NULL: all */
};

/* is it of a skill that is wanted there? */
static bool wanted(const struct outfit *only, const char *rest)
{
    AUTO_FREE char *name = xmemdup0(rest, strcspn(rest, "/"));

    return !only || outfit_has(only, name);
}

static void add_doc(void *arg, const char *path, unsigned mode, const void *p,
                    size_t n)
{
    struct place *w = arg;
    AUTO_FREE char *full = NULL;
    size_t skip = strlen(w->from);

    if (strncmp(path, w->from, skip) || path[skip] != '/' ||
        !wanted(w->only, path + skip + 1))
        return;
    full = xasprintf("%s%s%s", w->to, *w->to ? "/" : "", path + skip + 1);
    tar_file(w->tar, full, mode ? mode : 0600, p, n);
}

/* the project's instructions, and what was learned so far */
static void memory_text(struct db *d, const struct sandbox *s, struct buf *b)
{
    struct oid project = oid(OBJ_PROJECT, s->project);
    size_t n = 0, m = 0;
    AUTO_FREE char *text = doc_text(d, project, "CLAUDE.md", &n);
    AUTO_FREE char *path = NULL, *learned = NULL;
    int64_t v = db_int(d, 0, "SELECT learn_active FROM project WHERE id=?",
                       "i", s->project);

    if (v) {
        path = xasprintf("learnings/versions/%lld.md", (long long)v);
        learned = doc_text(d, project, path, &m);
    }
    if (text && n)
        buf_add(b, text, n);
    if (learned && m) {
        if (b->n && b->p[b->n - 1] != '\n')
            buf_addc(b, '\n');
        buf_addf(b, "%s# Learnings\n\n", b->n ? "\n" : "");
        buf_add(b, learned, m);
    }
}

static void add_memory(struct db *d, const struct sandbox *s,
                       const struct tool *t, struct buf *tar)
{
    AUTO_BUF struct buf b = {0};
    AUTO_FREE char *to = NULL;

    if (!t->memory_file || !*t->memory_file)
        return;
    memory_text(d, s, &b);
    if (!b.n)
        return;
    to = xasprintf("%s%s", repo_wanted(d, s) ? BESIDE : "", t->memory_file);
    tar_file(tar, to, 0600, b.p, b.n);
}

/* what the agent looks for in its home, or in the repository beside the work:
 * there it waits for the clone, which never replaces a file by ours */
static void add_for_agent(struct db *d, const struct sandbox *s,
                          const char *from, const char *to,
                          const struct outfit *only, struct buf *tar)
{
    bool beside = !strncmp(to, ".claude/", 8) && repo_wanted(d, s);
    AUTO_FREE char *path = xasprintf("%s%s", beside ? BESIDE : "", to);
    struct place w = {tar, from, path, only};

    doc_each(d, oid(OBJ_PROJECT, s->project), from, add_doc, &w);
}

/* a tool that looks for skills nowhere is told where they are */
static void add_tool(struct db *d, const struct sandbox *s,
                     const struct tool *t, const struct outfit *o,
                     struct buf *tar)
{
    add_memory(d, s, t, tar);
    if (t->skills_dir)
        add_for_agent(d, s, "skills", t->skills_dir, o, tar);
    else if (o->skills)
        add_for_agent(d, s, "skills", SKILLS_DIR, o, tar);
    if (t->commands_dir)
        add_for_agent(d, s, "commands", t->commands_dir, NULL, tar);
}

/* for all tools that will work there; the last word is of its own */
static int add_tools(struct db *d, const struct sandbox *s, struct buf *tar,
                     struct err *e)
{
    struct outfit o;
    size_t n = 0;
    int r = 0;

    outfit_get(d, s, &o);
    while (o.tools[n])
        n++;
    while (r == 0 && n--) {
        struct tool *t = NULL;

        r = tool_get(d, o.tools[n], &t, e);
        if (r == 0)
            add_tool(d, s, t, &o, tar);
        else if (n) /* the step that it is of says so */
            r = 0;
        tool_free(t);
    }
    outfit_clear(&o);
    return r;
}

static int unpack(const struct e2b_target *t, const struct buf *tar,
                  struct job *j, struct err *e)
{
    static const char in[] = "exec tar -x -o -f - -C " VM_HOME;
    static const char file[] = "tar -x -o -f /tmp/.courier-inject -C " VM_HOME
                               "; r=$?; rm -f /tmp/.courier-inject; exit $r";
    bool small = tar->n <= STDIN_MAX;
    const char *argv[] = {"/bin/sh", "-c", small ? in : file, NULL};
    struct e2b_run run = {.argv = argv,
                          .stdin_data = small ? tar->p : NULL,
                          .stdin_len = small ? tar->n : 0,
                          .limit_ms = UNPACK_LIMIT_MS,
                          .max_out = 4096,
                          .cancel = j ? &j->cancel : NULL};
    struct e2b_result res = {0};
    int r = 0;

    if (!small)
        r = e2b_write(t, "/tmp/.courier-inject", tar->p, tar->n, NULL, e);
    if (r == 0)
        r = e2b_exec(t, &run, &res, e);
    if (r == 0 && res.exit_code) {
        AUTO_BUF struct buf shown = {0};

        text_printable(&shown, buf_str(&res.err), res.err.n, 0);
        r = err_set(e, EINVAL,
                    "the project's files can't be put into the VM: %s",
                    buf_str(&shown));
    }
    e2b_result_clear(&res);
    return r;
}

int inject_files(struct courier *c, const struct sandbox *s,
                 const struct e2b_target *t, struct job *j, struct err *e)
{
    struct db *d = store_reader(c->store);
    struct oid project = oid(OBJ_PROJECT, s->project);
    AUTO_BUF struct buf tar = {0};
    AUTO_FREE char *prompt = NULL;
    struct place home = {&tar, "home", "", NULL};
    size_t n = 0;
    int r = add_tools(d, s, &tar, e);

    if (r < 0)
        return r;
    doc_each(d, project, "home", add_doc, &home); /* it may replace those */
    prompt = doc_text(d, project, "system-prompt.md", &n);
    if (prompt && n)
        tar_file(&tar, ".courier/system-prompt.md", 0600, prompt, n);
    if (!tar.n)
        return 0;
    tar_end(&tar);
    r = unpack(t, &tar, j, e);
    return r;
}
