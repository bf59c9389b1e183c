/*
 * agents: the command-line agents that courier can run, one file each, and
 * the parsers of what they print. It knows command lines, files, stream
 * grammars; it does no I/O, knows no sandbox, no record, no clock.
 *
 * A tool is a document of `key = value` lines (the built-in ones too), so a
 * user can change one or add one. Pure functions, any thread.
 */
#ifndef AGENTS_AGENTS_H
#define AGENTS_AGENTS_H

#include "base/base.h"

/* ---- tools ---- */

enum agent_format {
    FORMAT_TEXT, /* stdout is the answer; the exit code decides */
    FORMAT_CLAUDE,
    FORMAT_CODEX,
    FORMAT_OPENCODE,
    FORMAT_PI,
};

struct tool {
    char *name;
    char *command;   /* for sh -c; {model} {thinking} {system_prompt_file}
                        {session} stand for shell-quoted words */
    char *continue_; /* how a conversation goes on; NULL: command */
    enum agent_format format;
    char *template_id; /* NULL: "base" */
    char *model, *thinking;
    char *keys;         /* "anthropic|anthropic_token": alternatives by |,
                           several needs by blank or comma; NULL: none */
    char *memory_file;  /* CLAUDE.md, AGENTS.md; NULL: none */
    char *skills_dir;   /* below home, e.g. .claude/skills; NULL: none */
    char *commands_dir; /* e.g. .claude/commands; NULL: none */
    char *env;          /* further NAME=value pairs, blank separated, quoted
                           as a shell's words */
    char *service;      /* whom the tokens are paid to: anthropic, openai,
                           openrouter, local (shell) */
    char *efforts;      /* the words for {thinking} that the CLI knows, weakest
                           first; "max" is the last of them; NULL: any */
};

/* names of the built-in tools, NULL-ended: claude codex opencode pi shell */
const char *const *tool_names(void);
/* the built-in tool's document as text, or NULL: what tools/NAME shows */
const char *tool_builtin(const char *name);
/* parses a document; -EINVAL with line number in words. Keys left out come
 * from the built-in tool of that name, if there is one. */
int tool_parse(const char *name, const char *doc, size_t n, struct tool **out,
               struct err *e);
void tool_free(struct tool *t);

/*
 * The command line of one turn for `sh -c` in the working directory. The
 * prompt comes on stdin. session NULL or "": the first turn. Unset {model}
 * and the like vanish together with the [...] around them; see tool.c.
 * model and thinking NULL or "": the tool's. thinking may be a list of
 * model:effort pairs. The engine sets COURIER_TURN_DIR in the environment: a
 * directory of the turn's own, outside the working directory.
 */
char *tool_command(const struct tool *t, const char *session,
                   const char *model, const char *thinking,
                   const char *system_prompt_file);

/* ---- what an agent prints, as events ---- */

enum agent_event_kind {
    AGENT_SESSION,     /* text: the session id; model if told */
    AGENT_TEXT,        /* text: a piece of the answer, as it comes */
    AGENT_TEXT_END,    /* a block of text is complete */
    AGENT_RETRACT,     /* the text since the last completed block, or of the
                          message under way, is taken back; new text follows */
    AGENT_TOOL,        /* name, text: one-line summary, id */
    AGENT_TOOL_RESULT, /* id, ok, text: short summary */
    AGENT_THINKING,    /* text */
    AGENT_NOTE,        /* text: a warning, or "overloaded, retrying 3/10" */
    AGENT_USAGE, /* the usage so far in this turn, absolute, not a delta */
    AGENT_ERROR, /* text: class in words, e.g. "invalid Anthropic key";
                    detail: what the service said */
    AGENT_END,   /* ok: what the stream says of the turn; text: error */
};

struct agent_usage {
    int64_t input, output, cache_read, cache_write; /* tokens; input without
                                                       the cached ones */
    double usd;                                     /* < 0: not told */
};

struct agent_event {
    enum agent_event_kind kind;
    const char *text; /* all borrowed, valid during the callback; may be NULL;
                         raw (not made printable); n bytes, NUL-terminated */
    size_t n;
    const char *name, *id, *model, *detail;
    bool ok;
    enum {
        AGENT_FAULT_NONE,
        AGENT_FAULT_KEY,    /* missing or refused */
        AGENT_FAULT_CREDIT, /* no credit, quota */
        AGENT_FAULT_RATE,   /* rate limit, overloaded */
        AGENT_FAULT_MODEL,  /* no such model */
        AGENT_FAULT_NETWORK,
        AGENT_FAULT_SESSION, /* no such session to continue */
        AGENT_FAULT_USAGE,   /* wrong flags */
        AGENT_FAULT_OTHER,
    } fault;
    struct agent_usage usage;
};

typedef void (*agent_event_fn)(void *arg, const struct agent_event *ev);

/*
 * A parser is fed stdout and stderr of one turn as they come, in pieces of
 * any size (a line may be 20 MB; memory is bounded, see parser.c), and is
 * told the end. What it reports depends on the bytes alone, not on how they
 * were cut: the joined AGENT_TEXT pieces are the same for every split.
 */
struct parser;
struct parser *parser_new(enum agent_format f, agent_event_fn fn, void *arg);
void parser_out(struct parser *p, const char *data, size_t n); /* stdout */
void parser_err(struct parser *p, const char *data, size_t n); /* stderr */
/*
 * What the earlier turns of this conversation used, summed (a turn cut short
 * may be left out). Before the first byte. codex counts a whole conversation,
 * so this is subtracted; the other grammars don't need it.
 */
void parser_before(struct parser *p, const struct agent_usage *earlier);
/*
 * The CLI has ended. exit_code 0-255, or 128+signal with signaled. Reports
 * what is left, then exactly one AGENT_END. For FORMAT_TEXT the code alone
 * decides; for the others the stream does, and a stream with no end is an
 * error that names the code or signal.
 */
void parser_end(struct parser *p, int exit_code, bool signaled);
void parser_free(struct parser *p);

/* the last fenced code block of a text (``` or ~~~), or NULL; owned by the
 * caller. lang NULL: any. Used for verdicts and learnings. */
char *agent_last_block(const char *text, size_t n);

#endif
