#include "engine/view.h"

const char *aspect_name(enum aspect a)
{
    switch (a) {
    case ASPECT_STATUS:
        return "status";
    case ASPECT_AGENT:
        return "agent";
    case ASPECT_DOCS:
        return "config";
    case ASPECT_MESSAGES:
        return "messages";
    case ASPECT_LOG:
        return "log";
    case ASPECT_SETUP:
        return "setup.log";
    case ASPECT_EVENTS:
        return "events";
    case ASPECT_ERRORS:
        return "errors";
    case ASPECT_ERROR:
        return "error";
    case ASPECT_EXPIRES:
        return "expires";
    case ASPECT_USAGE:
        return "usage";
    case ASPECT_PR:
        return "pr";
    case ASPECT_LEARN:
        return "learnings";
    case ASPECT_BRANCH:
        return "branch";
    case ASPECT_DIFF:
        return "diff";
    case ASPECT_CTL:
        return "ctl";
    case ASPECT_BOARD:
        return "board";
    case ASPECT_SALVAGE:
        return "salvage";
    case ASPECT_PROGRESS:
        return "progress";
    case ASPECT_OUT:
        return "stdout";
    case ASPECT_ERR:
        return "stderr";
    case ASPECT_HOST:
        return "local.env";
    default: /* what follows from others, and what no file shows */
        return NULL;
    }
}

/* ---- makers of what is no single column ---- */

static int view_local_env(struct courier *c, struct db *d, struct oid o,
                          struct buf *out)
{
    (void)d;
    (void)o;
    local_env(c, out);
    return 0;
}

static int view_usage(struct courier *c, struct db *d, struct oid o,
                      struct buf *out)
{
    (void)c;
    usage_table(d, o, out);
    return 0;
}

static int view_usage_jsonl(struct courier *c, struct db *d, struct oid o,
                            struct buf *out)
{
    (void)c;
    usage_records(d, o, false, out);
    return 0;
}

static int view_usage_csv(struct courier *c, struct db *d, struct oid o,
                          struct buf *out)
{
    (void)c;
    usage_records(d, o, true, out);
    return 0;
}

static int view_expires(struct courier *c, struct db *d, struct oid o,
                        struct buf *out)
{
    int64_t at =
        db_int(d, -1, "SELECT expires FROM sandbox WHERE id=?", "i", o.id);
    char when[32];

    (void)c;
    if (at < 0)
        return -ENOENT;
    if (at)
        time_rfc3339(at, when);
    if (at)
        buf_addf(out, "%s\n", when);
    return 0;
}

/* every line is a comment: writing the text back commands nothing */
static int ctl_text(struct db *d, struct oid o, enum ctl which,
                    struct buf *out)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT time,text FROM (SELECT id,time,text FROM outcome WHERE ctl=? "
        "AND object=? ORDER BY id DESC LIMIT 20) ORDER BY id",
        "ii", (int64_t)which, o.id);
    const char *help = courier_ctl_help(which);

    while (db_row(d, q)) {
        char when[32];

        time_rfc3339(col_int(q, 0), when);
        buf_addf(out, "# %s ", when);
        view_field(out, col_text(q, 1));
        buf_addc(out, '\n');
    }
    if (out->n)
        buf_adds(out, "#\n");
    while (help && *help) {
        size_t n = strcspn(help, "\n");

        buf_adds(out, *help == '#' ? "" : n ? "# " : "#");
        buf_add(out, help, n);
        buf_addc(out, '\n');
        help += n + (help[n] == '\n');
    }
    return 0;
}

/* ---- the table ---- */

enum {
    SHOWS_ALL_RUN = ASPECT_STATUS | ASPECT_DOCS | ASPECT_INFO | ASPECT_USAGE |
                    ASPECT_PR | ASPECT_LEARN | ASPECT_BRANCH | ASPECT_PROGRESS,
    SHOWS_ALL = SHOWS_ALL_RUN | ASPECT_AGENT | ASPECT_ERROR | ASPECT_EXPIRES |
                ASPECT_SALVAGE | ASPECT_QUEUE,
    OF_STEP = ASPECT_STATUS | ASPECT_PROGRESS | ASPECT_INFO | ASPECT_OUT,
};

struct shown {
    enum obj_kind kind;
    uint64_t aspects;
    const char *sql; /* one column, by the object's id; or */
    view_fn fn;      /* a maker; or */
    enum ctl ctl;    /* a control */
    bool bare;       /* no newline at the end: names for symlinks */
};

#define COLUMN(t, c) "SELECT " c " FROM " t " WHERE id=?"
#define OF_SANDBOX(a, c)                                                      \
    {                                                                         \
        .kind = OBJ_SANDBOX, .aspects = a, .sql = COLUMN("sandbox", c)        \
    }
#define OF_RUN(a, c)                                                          \
    {                                                                         \
        .kind = OBJ_RUN, .aspects = a, .sql = COLUMN("run", c)                \
    }
#define OF_A_STEP(c)                                                          \
    {                                                                         \
        .kind = OBJ_STEP, .aspects = OF_STEP, .sql = COLUMN("step", c)        \
    }
#define MADE(k, a, f)                                                         \
    {                                                                         \
        .kind = k, .aspects = a, .fn = f                                      \
    }
#define CONTROL(k, w)                                                         \
    {                                                                         \
        .kind = k, .aspects = ASPECT_CTL, .ctl = w                            \
    }

static const struct shown shown[VIEWS] = {
    [VIEW_ROOT_STATUS] = MADE(
        OBJ_ROOT, ASPECT_STATUS | ASPECT_ERRORS | ASPECT_HOST | ASPECT_DOCS,
        view_root_status),
    [VIEW_LOCAL_ENV] = MADE(OBJ_ROOT, ASPECT_HOST, view_local_env),
    [VIEW_ROOT_BOARD] = MADE(OBJ_ROOT, ASPECT_BOARD, view_board),
    [VIEW_ROOT_ERRORS] = MADE(OBJ_ROOT, ASPECT_ERRORS, view_errors),
    [VIEW_ROOT_USAGE] = MADE(OBJ_ROOT, ASPECT_USAGE, view_usage),
    [VIEW_ROOT_USAGE_JSONL] = MADE(OBJ_ROOT, ASPECT_USAGE, view_usage_jsonl),
    [VIEW_ROOT_USAGE_CSV] = MADE(OBJ_ROOT, ASPECT_USAGE, view_usage_csv),
    [VIEW_ROOT_CTL] = CONTROL(OBJ_ROOT, CTL_ROOT),

    [VIEW_PROJECT_STATUS] =
        MADE(OBJ_PROJECT, ASPECT_STATUS | ASPECT_USAGE | ASPECT_NAMES,
             view_project_status),
    [VIEW_PROJECT_BOARD] = MADE(OBJ_PROJECT, ASPECT_BOARD, view_board),
    [VIEW_PROJECT_ERRORS] = MADE(OBJ_PROJECT, ASPECT_ERRORS, view_errors),
    [VIEW_PROJECT_USAGE] = MADE(OBJ_PROJECT, ASPECT_USAGE, view_usage),
    [VIEW_PROJECT_USAGE_JSONL] =
        MADE(OBJ_PROJECT, ASPECT_USAGE, view_usage_jsonl),
    [VIEW_PROJECT_USAGE_CSV] = MADE(OBJ_PROJECT, ASPECT_USAGE, view_usage_csv),
    [VIEW_PROJECT_CTL] = CONTROL(OBJ_PROJECT, CTL_PROJECT),
    [VIEW_SANDBOXES_CTL] = CONTROL(OBJ_PROJECT, CTL_SANDBOXES),
    [VIEW_RUNS_CTL] = CONTROL(OBJ_PROJECT, CTL_RUNS),
    [VIEW_LEARNINGS_CTL] = CONTROL(OBJ_PROJECT, CTL_LEARNINGS),
    [VIEW_LEARNINGS_ACTIVE] = {.kind = OBJ_PROJECT,
                               .aspects = ASPECT_LEARN,
                               .sql = COLUMN("project",
                                             "CASE learn_active WHEN 0 THEN "
                                             "'' ELSE 'versions/'||"
                                             "learn_active||'.md' END"),
                               .bare = true},
    [VIEW_ATTEMPTS] =
        MADE(OBJ_PROJECT,
             ASPECT_NAMES | ASPECT_STATUS | ASPECT_USAGE | ASPECT_BOARD,
             view_attempts),

    [VIEW_STATUS] = OF_SANDBOX(ASPECT_STATUS, "status"),
    [VIEW_REASON] = OF_SANDBOX(ASPECT_STATUS, "reason"),
    [VIEW_AGENT] = OF_SANDBOX(ASPECT_AGENT, "agent"),
    [VIEW_CTL] = CONTROL(OBJ_SANDBOX, CTL_SANDBOX),
    [VIEW_ERROR] = OF_SANDBOX(ASPECT_ERROR, "error"),
    [VIEW_EXPIRES] = MADE(OBJ_SANDBOX, ASPECT_EXPIRES, view_expires),
    [VIEW_INFO] = MADE(OBJ_SANDBOX, SHOWS_ALL, view_info),
    [VIEW_USAGE] = MADE(OBJ_SANDBOX, ASPECT_USAGE, view_usage),
    [VIEW_USAGE_JSONL] = MADE(OBJ_SANDBOX, ASPECT_USAGE, view_usage_jsonl),
    [VIEW_USAGE_CSV] = MADE(OBJ_SANDBOX, ASPECT_USAGE, view_usage_csv),
    [VIEW_BRANCH] = OF_SANDBOX(ASPECT_BRANCH, "branch"),
    [VIEW_DIFF] = OF_SANDBOX(ASPECT_DIFF, "diff"),
    [VIEW_PR_URL] = OF_SANDBOX(ASPECT_PR, "pr_url"),
    [VIEW_PR_NUMBER] =
        OF_SANDBOX(ASPECT_PR, "CASE pr_number WHEN 0 THEN '' ELSE "
                              "pr_number END"),
    [VIEW_PR_STATUS] = OF_SANDBOX(ASPECT_PR, "pr_status"),
    [VIEW_PR_TITLE] = OF_SANDBOX(ASPECT_PR, "pr_title"),
    [VIEW_PR_CHECKS] = OF_SANDBOX(ASPECT_PR, "pr_checks"),
    [VIEW_PR_REASON] = OF_SANDBOX(ASPECT_PR, "pr_reason"),
    [VIEW_LEARNINGS] = OF_SANDBOX(ASPECT_LEARN, "learnings"),
    [VIEW_LEARNINGS_STATUS] = OF_SANDBOX(ASPECT_LEARN, "learn_status"),
    [VIEW_RUN_LINK] = {.kind = OBJ_SANDBOX,
                       .aspects = ASPECT_INFO,
                       .sql = "SELECT coalesce((SELECT name FROM run WHERE "
                              "run.id=sandbox.run AND trash IS NULL),'') "
                              "FROM sandbox WHERE id=?",
                       .bare = true},

    [VIEW_RUN_STATUS] = OF_RUN(ASPECT_STATUS, "status"),
    [VIEW_RUN_REASON] = OF_RUN(ASPECT_STATUS, "reason"),
    [VIEW_RUN_CTL] = CONTROL(OBJ_RUN, CTL_RUN),
    [VIEW_RUN_INFO] = MADE(OBJ_RUN, SHOWS_ALL_RUN, view_run_info),
    [VIEW_RUN_USAGE] = MADE(OBJ_RUN, ASPECT_USAGE, view_usage),
    [VIEW_RUN_PR_URL] = OF_RUN(ASPECT_PR, "pr_url"),
    [VIEW_RUN_PR_NUMBER] =
        OF_RUN(ASPECT_PR, "CASE pr_number WHEN 0 THEN '' ELSE "
                          "pr_number END"),
    [VIEW_RUN_PR_STATUS] = OF_RUN(ASPECT_PR, "pr_status"),
    [VIEW_RUN_PR_TITLE] = OF_RUN(ASPECT_PR, "pr_title"),
    [VIEW_RUN_PR_CHECKS] = OF_RUN(ASPECT_PR, "pr_checks"),
    [VIEW_RUN_PR_REASON] = OF_RUN(ASPECT_PR, "pr_reason"),
    [VIEW_RUN_LEARNINGS] = MADE(OBJ_RUN, ASPECT_LEARN, view_run_learnings),
    [VIEW_RUN_PROGRESS] =
        MADE(OBJ_RUN, ASPECT_PROGRESS | ASPECT_STATUS, view_run_progress),
    [VIEW_RUN_TIMELINE] =
        MADE(OBJ_RUN, ASPECT_PROGRESS | ASPECT_STATUS, view_run_timeline),

    [VIEW_STEP_STATUS] = OF_A_STEP("status"),
    [VIEW_STEP_PROMPT] = OF_A_STEP("prompt"),
    [VIEW_STEP_OUTPUT] = OF_A_STEP("output"),
    [VIEW_STEP_VERDICT] = OF_A_STEP("verdict"),
    [VIEW_STEP_FEEDBACK] = OF_A_STEP("feedback"),
    [VIEW_STEP_SCORE] = OF_A_STEP("score"),
    [VIEW_STEP_SANDBOX] = {.kind = OBJ_STEP,
                           .aspects = OF_STEP,
                           .sql = "SELECT coalesce((SELECT name FROM sandbox "
                                  "WHERE sandbox.id=step.sandbox AND trash "
                                  "IS NULL),'') FROM step WHERE id=?",
                           .bare = true},

    [VIEW_EXEC_CMD] = {.kind = OBJ_EXEC,
                       .aspects = ASPECT_STATUS,
                       .sql = COLUMN("exec", "cmd")},
    [VIEW_EXEC_STATUS] = {.kind = OBJ_EXEC,
                          .aspects = ASPECT_STATUS,
                          .sql =
                              COLUMN("exec", "CASE status WHEN 'exited' THEN "
                                             "status ELSE 'running' END")},
    [VIEW_EXEC_EXIT] = {.kind = OBJ_EXEC,
                        .aspects = ASPECT_STATUS,
                        .sql = COLUMN("exec", "exit")},
    [VIEW_EXEC_LAST] = {.kind = OBJ_SANDBOX,
                        .aspects = ASPECT_NAMES | ASPECT_INFO,
                        .sql = "SELECT coalesce((SELECT max(n) FROM exec "
                               "WHERE sandbox=s.id),'') FROM sandbox s WHERE "
                               "s.id=?",
                        .bare = true},
};

static const struct shown *find(enum view v)
{
    return v > 0 && v < VIEWS && shown[v].kind ? &shown[v] : NULL;
}

uint64_t courier_view_aspects(enum view v)
{
    const struct shown *s = find(v);

    return s ? s->aspects : 0;
}

/* ---- asking ---- */

static int column(struct db *d, const struct shown *s, int64_t id,
                  struct buf *out)
{
    sqlite3_stmt *q = db_query(d, s->sql, "i", id);
    const char *p;
    size_t n;

    if (!db_row(d, q))
        return -ENOENT;
    p = sqlite3_column_blob(q, 0);
    n = (size_t)sqlite3_column_bytes(q, 0);
    /* some of it came from a VM; what was made printable stays as it is */
    if (n)
        text_printable(out, p, n, PRINTABLE_LINES | PRINTABLE_TABS);
    db_done(q);
    if (out->n && !s->bare && out->p[out->n - 1] != '\n')
        buf_addc(out, '\n');
    return 0;
}

static int64_t created_ns(struct courier *c, struct oid o)
{
    int64_t created = 0, names = 0;
    int r = courier_times(c, o, &created, &names);

    return r < 0 ? r : created;
}

int courier_view(struct courier *c, struct oid o, enum view v, struct buf *out)
{
    const struct shown *s = find(v);
    struct db *d = store_reader(c->store);
    AUTO_BUF struct buf text = {0};
    int r;

    if (!s || s->kind != o.kind)
        return -ENOENT;
    if (s->sql)
        r = column(d, s, o.id, &text);
    else if (created_ns(c, o) < 0)
        r = -ENOENT;
    else if (s->ctl)
        r = ctl_text(d, o, s->ctl, &text);
    else
        r = s->fn(c, d, o, &text);
    if (r == 0)
        buf_add(out, buf_str(&text), text.n);
    return r;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t courier_view_mtime(struct courier *c, struct oid o, enum view v)
{
    const struct shown *s = find(v);
    struct db *d = store_reader(c->store);
    int64_t at;

    if (!s || s->kind != o.kind)
        return -ENOENT;
    at = created_ns(c, o);
    if (at < 0)
        return at;
    at = later(at, store_mtime(d, o, s->aspects));
    if (v == VIEW_ROOT_STATUS || v == VIEW_LOCAL_ENV)
        at = later(at, c->started_ms * 1000000);
    if (v == VIEW_INFO || v == VIEW_RUN_INFO) {
        /* the settings above it show in it */
        int64_t project =
            v == VIEW_INFO
                ? db_int(d, 0, "SELECT project FROM sandbox WHERE id=?", "i",
                         o.id)
                : db_int(d, 0, "SELECT project FROM run WHERE id=?", "i",
                         o.id);

        at = later(at, store_mtime(d, root_oid(), ASPECT_DOCS));
        at = later(at, store_mtime(d, oid(OBJ_PROJECT, project), ASPECT_DOCS));
    }
    return at;
}
