#include "fs/tree.h"

#include <sys/stat.h>

#include "base/text.h"

#define LISTED ROW_LASTING

#define VIEW(p, n, v, h)                                                      \
    {                                                                         \
        .parent = p, .name = n, .kind = K_VIEW, .what = v, .flags = LISTED,   \
        .help = h                                                             \
    }
#define STREAM(p, n, s, h)                                                    \
    {                                                                         \
        .parent = p, .name = n, .kind = K_STREAM, .what = s, .flags = LISTED, \
        .help = h                                                             \
    }
#define ROTATED(n, s, h)                                                      \
    {                                                                         \
        .parent = R_ROOT, .name = n, .kind = K_STREAM, .what = s,             \
        .flags = ROW_ROTATED, .help = h                                       \
    }
#define FOLLOW(p, n, s)                                                       \
    {                                                                         \
        .parent = p, .name = n, .kind = K_FOLLOW, .what = s, .flags = LISTED  \
    }
#define WAIT(p, n, w, h)                                                      \
    {                                                                         \
        .parent = p, .name = n, .kind = K_WAIT, .what = w, .flags = LISTED,   \
        .help = h                                                             \
    }
#define CHANGE(p)                                                             \
    {                                                                         \
        .parent = p, .name = "change", .kind = K_CHANGE, .flags = LISTED,     \
        .help = "each read: the name of the next thing that changed"          \
    }
#define CONTROL(p, n, c, v, h)                                                \
    {                                                                         \
        .parent = p, .name = n, .kind = K_CONTROL, .what = c, .shows = v,     \
        .flags = LISTED, .help = h                                            \
    }
#define DOC(p, n, h)                                                          \
    {                                                                         \
        .parent = p, .name = n, .kind = K_DOC, .path = n, .help = h           \
    }
#define DOCDIR(p, n, d, f, h)                                                 \
    {                                                                         \
        .parent = p, .name = n, .kind = K_DOCDIR, .path = d,                  \
        .flags = ROW_LASTING | (f), .help = h                                 \
    }
#define LINK(p, n, v, t, f, h)                                                \
    {                                                                         \
        .parent = p, .name = n, .kind = K_LINK, .what = v, .path = t,         \
        .flags = f, .help = h                                                 \
    }
#define LATER(p, n, h)                                                        \
    {                                                                         \
        .parent = p, .name = n, .kind = K_DIR, .flags = ROW_LATER, .help = h  \
    }
#define STATUS(n, l)                                                          \
    {                                                                         \
        .parent = R_BYSTATUS, .name = n, .kind = K_LINKS, .what = l,          \
        .flags = LISTED                                                       \
    }

static const struct row table[] = {
    [R_ROOT] = {.kind = K_OBJECT, .flags = ROW_HOLDS, .help = "the fleet"},
    [R_PROJECTS] = {R_ROOT, "projects", K_LIST, LIST_PROJECTS, .flags = LISTED,
                    .help = "mkdir makes a project, rmdir moves it to the "
                            "trash"},
    [R_PROJECTS_TRASH] =
        {R_ROOT, "trash", K_LIST, LIST_PROJECTS_TRASH, .flags = LISTED,
         .help = "deleted projects: mv back restores, rmdir is final"},
    [R_PROJECT] = {R_PROJECTS, NULL, K_OBJECT, .flags = ROW_HOLDS,
                   .help = "a project"},
    [R_SANDBOXES] = {R_PROJECT, "sandboxes", K_LIST, LIST_SANDBOXES,
                     .flags = LISTED,
                     .help =
                         "mkdir makes a draft, rmdir moves it to the trash"},
    [R_BYSTATUS] = {R_PROJECT, "by-status", K_DIR, .flags = LISTED,
                    .help = "symlinks to the sandboxes in each state"},
    [R_RUNS] = {R_PROJECT, "runs", K_LIST, LIST_RUNS, .flags = LISTED,
                .help = "workflows under way and done"},
    [R_LEARNINGS] = {R_PROJECT, "learnings", K_DIR, .path = "learnings",
                     .flags = LISTED | ROW_HOLDS,
                     .help = "what agents learned; mv decides on it"},
    [R_TRASH] = {R_PROJECT, "trash", K_LIST, LIST_TRASH, .flags = LISTED,
                 .help = "deleted sandboxes and runs: mv back, or rmdir"},
    [R_SANDBOX] = {R_SANDBOXES, NULL, K_OBJECT, .flags = ROW_HOLDS,
                   .help = "a sandbox"},
    [R_SANDBOX_PR] = {R_SANDBOX, "pr", K_DIR, .flags = LISTED,
                      .help = "its pull request"},
    [R_EXECS] = {R_SANDBOX, "exec", K_LIST, LIST_EXECS, .flags = LISTED,
                 .help = "commands run in the VM by `exec`"},
    [R_SANDBOX_WAIT] = {R_SANDBOX, "wait", K_DIR,
                        .flags = ROW_UNLISTED | ROW_LASTING,
                        .help = "a read returns when it is so"},
    [R_SANDBOX_FOLLOW] = {R_SANDBOX, "follow", K_DIR,
                          .flags = ROW_UNLISTED | ROW_LASTING,
                          .help = "messages, log, events whose reads wait "
                                  "for more"},
    [R_EXEC] = {R_EXECS, NULL, K_OBJECT, .help = "one command"},
    [R_EXEC_WAIT] = {R_EXEC, "wait", K_DIR,
                     .flags = ROW_UNLISTED | ROW_LASTING,
                     .help = "a read returns when it is so"},
    [R_RUN] = {R_RUNS, NULL, K_OBJECT, .flags = ROW_HOLDS,
               .help = "a run of a workflow"},
    [R_RUN_PR] = {R_RUN, "pr", K_DIR, .flags = LISTED,
                  .help = "its pull request"},
    [R_STEPS] = {R_RUN, "steps", K_LIST, LIST_STEPS, .flags = LISTED,
                 .help = "its steps, round by round"},
    [R_RUN_WAIT] = {R_RUN, "wait", K_DIR, .flags = ROW_UNLISTED | ROW_LASTING,
                    .help = "a read returns when it is so"},
    [R_RUN_FOLLOW] = {R_RUN, "follow", K_DIR,
                      .flags = ROW_UNLISTED | ROW_LASTING,
                      .help = "messages, events whose reads wait for more"},
    [R_STEP] = {R_STEPS, NULL, K_OBJECT, .help = "one step"},
    [R_DOCFILE] = {.kind = K_DOC},
    [R_DOCSUB] = {.kind = K_DOCDIR},
    [R_DOCLINK] = {.kind = K_DOCLINK},
    [R_REJECTED] = {.kind = K_REJECTED},
    [R_MEMBER] = {.kind = K_MEMBER, .path = "../../sandboxes/%s"},
    [R_VMSUB] = {.kind = K_VMDIR},
    [R_VMFILE] = {.kind = K_VMFILE},
    [R_VMLINK] = {.kind = K_VMLINK},
    [R_NAMED] = {.parent = R_ROOT,
                 .name = "README",
                 .kind = K_README,
                 .flags = LISTED,
                 .help = "this manual"},

    /* the root */
    VIEW(R_ROOT, "status", VIEW_ROOT_STATUS,
         "version, pid, backend, what lives, jobs, last error"),
    VIEW(R_ROOT, "local.env", VIEW_LOCAL_ENV,
         "the local host's address and key, for E2B's SDK"),
    VIEW(R_ROOT, "board", VIEW_ROOT_BOARD,
         "a table of all live sandboxes, tab-separated"),
    ROTATED("events", STREAM_EVENTS, "every change, a JSON object a line"),
    ROTATED("events.1", STREAM_EVENTS_OLD,
            "the older ones, once those have 64 MiB"),
    VIEW(R_ROOT, "errors", VIEW_ROOT_ERRORS,
         "every refused write and failed job, newest last"),
    VIEW(R_ROOT, "usage", VIEW_ROOT_USAGE, "what was used, and its cost"),
    VIEW(R_ROOT, "usage.jsonl", VIEW_ROOT_USAGE_JSONL,
         "the same, a record a line"),
    VIEW(R_ROOT, "usage.csv", VIEW_ROOT_USAGE_CSV,
         "the same, a record a line"),
    CONTROL(R_ROOT, "ctl", CTL_ROOT, VIEW_ROOT_CTL, "killall, shutdown [all]"),
    DOC(R_ROOT, "config", "settings for all projects"),
    DOC(R_ROOT, "rates", "prices in USD, by service and model"),
    DOCDIR(R_ROOT, "keys", "keys", 0,
           "API keys: write to set, reads as ****abcd, rm deletes"),
    DOCDIR(R_ROOT, "tools", "tools", 0, "the agent CLIs that can be used"),
    LATER(R_ROOT, "templates", "E2B templates and builds"),

    /* a project */
    DOC(R_PROJECT, "config", "repository, branch, defaults for its sandboxes"),
    VIEW(R_PROJECT, "status", VIEW_PROJECT_STATUS,
         "active, the number in each state, runs, cost"),
    VIEW(R_PROJECT, "board", VIEW_PROJECT_BOARD,
         "a table of its live sandboxes"),
    STREAM(R_PROJECT, "events", STREAM_EVENTS, "every change in it"),
    VIEW(R_PROJECT, "errors", VIEW_PROJECT_ERRORS,
         "refused writes and failed jobs in it"),
    VIEW(R_PROJECT, "usage", VIEW_PROJECT_USAGE,
         "what was used, and its cost"),
    VIEW(R_PROJECT, "usage.jsonl", VIEW_PROJECT_USAGE_JSONL,
         "the same, a record a line"),
    VIEW(R_PROJECT, "usage.csv", VIEW_PROJECT_USAGE_CSV,
         "the same, a record a line"),
    CONTROL(R_PROJECT, "ctl", CTL_PROJECT, VIEW_PROJECT_CTL, "killall"),
    DOC(R_PROJECT, "system-prompt.md",
        "added to the system prompt of every agent"),
    DOC(R_PROJECT, "CLAUDE.md", "instructions put into every new sandbox"),
    DOC(R_PROJECT, "env", "NAME=value lines for every new sandbox"),
    DOCDIR(R_PROJECT, "secrets", "secrets", 0,
           "like env, a file each; can't be read again"),
    DOCDIR(R_PROJECT, "keys", "keys", 0,
           "API keys of this project; they win over the user's"),
    DOCDIR(R_PROJECT, "personas", "personas", 0,
           "who does a step: tool, model, instructions"),
    DOCDIR(R_PROJECT, "workflows", "workflows", 0,
           "what a run does: steps and loops"),
    DOCDIR(R_PROJECT, "skills", "skills", 0, "skills put into the VM"),
    DOCDIR(R_PROJECT, "commands", "commands", 0, "commands put into the VM"),
    DOCDIR(R_PROJECT, "home", "home", 0,
           "files copied into the home of every new VM"),
    LATER(R_PROJECT, "issues", "issue sessions"),
    CONTROL(R_SANDBOXES, "ctl", CTL_SANDBOXES, VIEW_SANDBOXES_CTL,
            "create NAME [key=value]... [prompt=TEXT], kill, ..."),
    CONTROL(R_RUNS, "ctl", CTL_RUNS, VIEW_RUNS_CTL,
            "create workflow=W [name=N] [key=value]... [prompt=]"),
    VIEW(R_RUNS, "attempts", VIEW_ATTEMPTS,
         "runs made together (n=3), side by side"),
    STATUS("draft", LIST_DRAFT),
    STATUS("creating", LIST_CREATING),
    STATUS("running", LIST_RUNNING),
    STATUS("paused", LIST_PAUSED),
    STATUS("killed", LIST_KILLED),
    STATUS("error", LIST_ERROR),
    CONTROL(R_LEARNINGS, "ctl", CTL_LEARNINGS, VIEW_LEARNINGS_CTL, "compile"),
    LINK(R_LEARNINGS, "active", VIEW_LEARNINGS_ACTIVE, "%s", ROW_IF_SET,
         "the version that new sandboxes get"),
    DOCDIR(R_LEARNINGS, "pending", "learnings/pending", 0, "to be decided"),
    DOCDIR(R_LEARNINGS, "approved", "learnings/approved", 0, "taken"),
    DOCDIR(R_LEARNINGS, "rejected", "learnings/rejected", 0, "not taken"),
    DOCDIR(R_LEARNINGS, "versions", "learnings/versions", ROW_READONLY,
           "compiled from those approved"),

    /* a sandbox */
    VIEW(R_SANDBOX, "status", VIEW_STATUS,
         "draft, creating, running, paused, killed or error"),
    VIEW(R_SANDBOX, "reason", VIEW_REASON, "why, one line"),
    VIEW(R_SANDBOX, "agent", VIEW_AGENT,
         "what it does: none, starting, working, idle or failed"),
    CONTROL(R_SANDBOX, "ctl", CTL_SANDBOX, VIEW_CTL,
            "start, message, interrupt, pause, kill, ..."),
    DOC(R_SANDBOX, "config", "its own settings"),
    DOC(R_SANDBOX, "prompt", "the first prompt"),
    {R_SANDBOX, "message", K_MESSAGE, CTL_MESSAGE, .flags = LISTED,
     .help = "write here: from open to close is one message"},
    STREAM(R_SANDBOX, "messages", STREAM_MESSAGES,
           "the conversation, growing as the agent speaks"),
    STREAM(R_SANDBOX, "messages.jsonl", STREAM_MESSAGES_JSONL,
           "the same, a JSON object a message"),
    STREAM(R_SANDBOX, "log", STREAM_LOG, "the raw output of the agent"),
    STREAM(R_SANDBOX, "setup.log", STREAM_SETUP,
           "clone, set-up commands, saving of the work"),
    STREAM(R_SANDBOX, "events", STREAM_EVENTS, "every change of it"),
    VIEW(R_SANDBOX, "error", VIEW_ERROR, "the last error in words"),
    CONTROL(R_SANDBOX, "expires", CTL_EXPIRES, VIEW_EXPIRES,
            "when the VM times out; write or touch -d moves it"),
    VIEW(R_SANDBOX, "info.json", VIEW_INFO, "the whole record"),
    VIEW(R_SANDBOX, "usage", VIEW_USAGE, "seconds, tokens, cost"),
    VIEW(R_SANDBOX, "usage.jsonl", VIEW_USAGE_JSONL,
         "the same, a record a line"),
    VIEW(R_SANDBOX, "usage.csv", VIEW_USAGE_CSV, "the same, a record a line"),
    VIEW(R_SANDBOX, "branch", VIEW_BRANCH, "the branch where its work is"),
    VIEW(R_SANDBOX, "diff", VIEW_DIFF, "its changes, as of the last save"),
    VIEW(R_SANDBOX, "pr_url", VIEW_PR_URL, "the same as pr/url"),
    VIEW(R_SANDBOX_PR, "url", VIEW_PR_URL, "its address"),
    VIEW(R_SANDBOX_PR, "number", VIEW_PR_NUMBER, "its number"),
    VIEW(R_SANDBOX_PR, "status", VIEW_PR_STATUS,
         "creating, created, failed, skipped, merged or empty"),
    VIEW(R_SANDBOX_PR, "title", VIEW_PR_TITLE, "its title"),
    VIEW(R_SANDBOX_PR, "checks", VIEW_PR_CHECKS,
         "of its last commit: pending, passed, failed or empty"),
    VIEW(R_SANDBOX_PR, "reason", VIEW_PR_REASON,
         "why it was skipped or failed"),
    VIEW(R_SANDBOX, "learnings", VIEW_LEARNINGS, "what was learned from it"),
    VIEW(R_SANDBOX, "learnings_status", VIEW_LEARNINGS_STATUS,
         "pending, running, completed, skipped, error or empty"),
    DOCDIR(R_SANDBOX, "salvage", "salvage", ROW_READONLY,
           "its work, where that could not be pushed"),
    {R_SANDBOX, ".files", K_VMDIR, .path = "",
     .flags = ROW_UNLISTED | ROW_LASTING,
     .help = "the agent's home in the running VM"},
    LINK(R_SANDBOX, "files", 0, ".files", 0, "leads to .files"),
    LINK(R_SANDBOX, "run", VIEW_RUN_LINK, "../../runs/%s", ROW_IF_SET,
         "the run it belongs to"),
    LINK(R_EXECS, "last", VIEW_EXEC_LAST, "%s", ROW_IF_SET, "the newest"),
    WAIT(R_SANDBOX_WAIT, "running", WAIT_RUNNING, "it runs"),
    WAIT(R_SANDBOX_WAIT, "paused", WAIT_PAUSED, "it is paused"),
    WAIT(R_SANDBOX_WAIT, "ended", WAIT_ENDED, "it has ended"),
    WAIT(R_SANDBOX_WAIT, "idle", WAIT_IDLE,
         "it runs and no message is queued or under way"),
    WAIT(R_SANDBOX_WAIT, "done", WAIT_DONE, "as idle, also after the end"),
    WAIT(R_SANDBOX_WAIT, "ok", WAIT_OK, "as done; fails if the turn failed"),
    WAIT(R_SANDBOX_WAIT, "pr", WAIT_PR, "the pull request is final"),
    WAIT(R_SANDBOX_WAIT, "learned", WAIT_LEARNED, "the learning is final"),
    CHANGE(R_SANDBOX_WAIT),
    FOLLOW(R_SANDBOX_FOLLOW, "messages", STREAM_MESSAGES),
    FOLLOW(R_SANDBOX_FOLLOW, "log", STREAM_LOG),
    FOLLOW(R_SANDBOX_FOLLOW, "events", STREAM_EVENTS),

    /* an exec */
    VIEW(R_EXEC, "cmd", VIEW_EXEC_CMD, "the command"),
    VIEW(R_EXEC, "status", VIEW_EXEC_STATUS, "running or exited"),
    {R_EXEC, "stdin", K_INPUT, .flags = LISTED,
     .help = "its input: the last close ends it, unless by >>"},
    STREAM(R_EXEC, "stdout", STREAM_OUT, "its output"),
    STREAM(R_EXEC, "stderr", STREAM_ERR, "its error output"),
    VIEW(R_EXEC, "exit", VIEW_EXEC_EXIT, "its exit code"),
    WAIT(R_EXEC_WAIT, "exited", WAIT_EXITED, "it has exited"),

    /* a run */
    VIEW(R_RUN, "status", VIEW_RUN_STATUS,
         "pending, running, paused, completed, failed, ..."),
    VIEW(R_RUN, "reason", VIEW_RUN_REASON, "why, one line"),
    CONTROL(R_RUN, "ctl", CTL_RUN, VIEW_RUN_CTL,
            "cancel, pause, resume, restart, stop, ..."),
    DOC(R_RUN, "config", "its own settings"),
    DOC(R_RUN, "prompt", "what it is to do"),
    VIEW(R_RUN, "info.json", VIEW_RUN_INFO, "the whole record"),
    STREAM(R_RUN, "events", STREAM_EVENTS, "every change of it"),
    STREAM(R_RUN, "messages", STREAM_MESSAGES, "all steps in order"),
    VIEW(R_RUN, "usage", VIEW_RUN_USAGE, "seconds, tokens, cost"),
    VIEW(R_RUN, "pr_url", VIEW_RUN_PR_URL, "the same as pr/url"),
    VIEW(R_RUN_PR, "url", VIEW_RUN_PR_URL, "its address"),
    VIEW(R_RUN_PR, "number", VIEW_RUN_PR_NUMBER, "its number"),
    VIEW(R_RUN_PR, "status", VIEW_RUN_PR_STATUS,
         "creating, created, failed, skipped, merged or empty"),
    VIEW(R_RUN_PR, "title", VIEW_RUN_PR_TITLE, "its title"),
    VIEW(R_RUN_PR, "checks", VIEW_RUN_PR_CHECKS,
         "of its last commit: pending, passed, failed or empty"),
    VIEW(R_RUN_PR, "reason", VIEW_RUN_PR_REASON,
         "why it was skipped or failed"),
    VIEW(R_RUN, "learnings", VIEW_RUN_LEARNINGS, "what was learned from it"),
    VIEW(R_RUN, "progress", VIEW_RUN_PROGRESS, "how far it is, one line"),
    VIEW(R_RUN, "timeline.svg", VIEW_RUN_TIMELINE,
         "steps and rounds over time"),
    WAIT(R_RUN_WAIT, "done", WAIT_DONE, "it has ended"),
    WAIT(R_RUN_WAIT, "ok", WAIT_OK, "as done; fails unless completed"),
    CHANGE(R_RUN_WAIT),
    FOLLOW(R_RUN_FOLLOW, "messages", STREAM_MESSAGES),
    FOLLOW(R_RUN_FOLLOW, "events", STREAM_EVENTS),

    /* a step */
    VIEW(R_STEP, "status", VIEW_STEP_STATUS, "as of a run"),
    VIEW(R_STEP, "prompt", VIEW_STEP_PROMPT, "what it was asked"),
    VIEW(R_STEP, "output", VIEW_STEP_OUTPUT, "what came of it"),
    VIEW(R_STEP, "verdict", VIEW_STEP_VERDICT, "pass or fail"),
    VIEW(R_STEP, "feedback", VIEW_STEP_FEEDBACK, "what to do better"),
    VIEW(R_STEP, "score", VIEW_STEP_SCORE, "a number"),
    LINK(R_STEP, "sandbox", VIEW_STEP_SANDBOX, "../../../../sandboxes/%s",
         ROW_IF_SET, "where it ran"),
};

const struct row *row_get(enum row_id id)
{
    return &table[id];
}

int row_index(const struct row *r)
{
    return (int)(r - table);
}

int row_count(void)
{
    return (int)ARRAY_LEN(table);
}

const struct row *row_at(int index)
{
    return &table[index];
}

const struct row *row_child(const struct row *parent, const char *name)
{
    enum row_id id = (enum row_id)row_index(parent);

    for (size_t i = R_ROOT + 1; i < ARRAY_LEN(table); i++)
        if (table[i].parent == id && table[i].name &&
            !strcmp(table[i].name, name))
            return table[i].flags & ROW_LATER ? NULL : &table[i];
    return NULL;
}

const struct row *row_of_object(enum obj_kind k)
{
    static const enum row_id rows[OBJ_KINDS] = {
        [OBJ_ROOT] = R_ROOT,       [OBJ_PROJECT] = R_PROJECT,
        [OBJ_SANDBOX] = R_SANDBOX, [OBJ_RUN] = R_RUN,
        [OBJ_STEP] = R_STEP,       [OBJ_EXEC] = R_EXEC,
    };

    return k > 0 && k < OBJ_KINDS ? &table[rows[k]] : NULL;
}

bool row_is_dir(const struct row *r)
{
    return r->kind <= K_VMDIR;
}

bool row_is_link(const struct row *r)
{
    return r->kind >= K_LINK;
}

unsigned row_mode(const struct row *r)
{
    if (row_is_dir(r))
        return S_IFDIR | 0700;
    if (row_is_link(r))
        return S_IFLNK | 0777;
    switch (r->kind) {
    case K_CONTROL:
    case K_MESSAGE:
    case K_INPUT:
    case K_DOC:
    case K_VMFILE:
        return S_IFREG | 0600;
    default:
        return S_IFREG | 0400;
    }
}

/* ---- README ---- */

/* %s is the mount point */
static const char intro[] =
    "courier: a fleet of coding agents in sandboxes, as files\n"
    "\n"
    "Try this:\n"
    "\n"
    "    P=%s/projects/web\n"
    "    mkdir $P                                # a project\n"
    "    echo 'create one tool=shell' > $P/sandboxes/ctl\n"
    "    cat $P/sandboxes/one/wait/running       # until it runs\n"
    "    echo 'uname -a' > $P/sandboxes/one/message\n"
    "    cat $P/sandboxes/one/wait/done          # until it has answered\n"
    "    cat $P/sandboxes/one/messages\n"
    "    echo kill > $P/sandboxes/one/ctl\n"
    "    cat $P/sandboxes/one/wait/ended         # until its work is saved\n"
    "    rmdir $P/sandboxes/one                  # into $P/trash\n"
    "\n"
    "The tool shell takes a message as a script. The tools claude, codex,\n"
    "opencode and pi take it in plain words; they need a key (write it to\n"
    "keys/anthropic, keys/openai or keys/openrouter) and their program in\n"
    "the sandbox. `repo = URL` in $P/config gives each new sandbox a clone,\n"
    "and takes its work back as a branch.\n"
    "\n"
    "A sandbox ends by itself, its work saved, when its `timeout` is over:\n"
    "15 minutes if not set. A draft is a sandbox that is not started yet:\n"
    "edit its config and prompt, then `echo start > ctl`.\n"
    "\n"
    "The kinds of files:\n"
    "\n"
    "  view   can only be read; is made from the record, never waits\n"
    "  doc    a text that you edit. One that is refused is kept as\n"
    "         NAME.rejected, below the reason; the texts before are\n"
    "         DIR/.versions/NAME/1, 2, ...\n"
    "  ctl    each line that you write is a command. Reading it tells how\n"
    "         the last ones went, and which there are\n"
    "  waits  a read returns when it is so, and fails when it can't be\n"
    "\n"
    "Whatever is refused is also told in `errors`. wait/, follow/, .files/\n"
    "and .versions/ are there but not listed, so that `grep -r` and `find`\n"
    "stay out of them.\n"
    "\n"
    "More: man courierfs, man 5 courier, and the docs beside the source.\n";

static const char *kind_word(const struct row *r)
{
    if (row_is_dir(r))
        return "dir";
    if (row_is_link(r))
        return "link";
    switch (r->kind) {
    case K_CONTROL:
    case K_MESSAGE:
        return "ctl";
    case K_INPUT:
        return "takes";
    case K_DOC:
        return "doc";
    case K_WAIT:
    case K_CHANGE:
    case K_FOLLOW:
        return "waits";
    default:
        return "view";
    }
}

static void readme_rows(struct buf *out, const struct row *parent, int depth)
{
    enum row_id id = (enum row_id)row_index(parent);

    for (size_t i = R_ROOT + 1; i < ARRAY_LEN(table); i++) {
        const struct row *r = &table[i];

        if (r->parent != id || !r->name || r->flags & ROW_LATER)
            continue;
        buf_addf(out, "  %*s%-*s %s", depth * 2, "", 17 - depth * 2, r->name,
                 kind_word(r));
        if (r->help)
            buf_addf(out, "%*s%s", 6 - (int)strlen(kind_word(r)), "", r->help);
        buf_addc(out, '\n');
        if (row_is_dir(r))
            readme_rows(out, r, depth + 1);
    }
}

/* `usage  help`, the help on a line of its own where they are long */
static void readme_command(struct buf *out, const char *p, size_t n)
{
    const char *gap = memmem(p, n, "  ", 2);

    if (n > 76 && gap)
        buf_addf(out, "  %.*s\n%23s%.*s\n", (int)(gap - p), p, "",
                 (int)(n - (size_t)(gap - p) - 2), gap + 2);
    else
        buf_addf(out, "  %.*s\n", (int)n, p);
}

static void readme_commands(struct buf *out)
{
    static const struct {
        enum ctl ctl;
        const char *title;
    } ctls[] = {
        {CTL_SANDBOXES, "Commands: projects/NAME/sandboxes/ctl"},
        {CTL_SANDBOX, "Commands: projects/NAME/sandboxes/NAME/ctl"},
        {CTL_RUNS, "Commands: projects/NAME/runs/ctl"},
        {CTL_RUN, "Commands: projects/NAME/runs/NAME/ctl"},
    };

    for (size_t i = 0; i < ARRAY_LEN(ctls); i++) {
        const char *p = courier_ctl_help(ctls[i].ctl);

        buf_addf(out, "\n%s\n\n", ctls[i].title);
        while (*p) {
            size_t n = strcspn(p, "\n");

            readme_command(out, p, n);
            p += n + (p[n] != 0);
        }
    }
}

void tree_readme(struct buf *out, const char *mount, const char *mounted_by)
{
    static const struct {
        enum row_id id;
        const char *title;
    } parts[] = {
        {R_ROOT, "The root"},
        {R_PROJECT, "A project: projects/NAME/"},
        {R_SANDBOX, "A sandbox: projects/NAME/sandboxes/NAME/"},
        {R_EXEC, "A command in it: exec/N/"},
        {R_RUN, "A run: projects/NAME/runs/NAME/"},
        {R_STEP, "A step: steps/NN-NAME/"},
    };
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    AUTO_BUF struct buf at = {0};

    if (!mount)
        buf_adds(&at, "/courier");
    else if (mount[strspn(mount, plain)])
        text_shell_quote(&at, mount);
    else
        buf_adds(&at, mount);
    buf_addf(out, intro, at.p);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_addf(out, "\n%s\n\n", parts[i].title);
        readme_rows(out, row_get(parts[i].id), 0);
    }
    readme_commands(out);
    buf_adds(out,
             "\nSettings: config of the root, a project, a sandbox\n\n"
             "  `key = value` lines; the sandbox's own win, then the "
             "project's. Those with *\n  may change after the start.\n\n");
    courier_settings_help(out);
    if (mounted_by && *mounted_by)
        buf_addf(out, "\nMounted by %s. courier %s\n", mounted_by,
                 COURIER_VERSION);
}
