/*
 * event: how the grammars report. It keeps the text of the block under way,
 * so that a whole message after its pieces isn't told twice, and a cut one
 * is taken back; joins surrogate pairs that were cut between two pieces;
 * drops repeated notes; keeps keys out of errors.
 *
 * Internal to backend/agents. One parser is used by one thread at a time.
 */
#ifndef AGENTS_EVENT_H
#define AGENTS_EVENT_H

#include "agents/adapter.h"
#include "agents/fault.h"
#include "base/text.h"

enum { CLOSED_MAX = 32, ERR_TAIL = 4096, SUMMARY_MAX = 200 };

/* what the stream says of the turn so far */
enum verdict { VERDICT_NONE, VERDICT_OK, VERDICT_FAILED };

/* bytes up to the next newline, see parser.c */
struct line {
    struct buf held;
    size_t look_at; /* the head is asked again at this length */
    bool keep, skip, huge;
};

struct parser {
    const struct adapter *a;
    agent_event_fn fn;
    void *arg;
    void *own;
    struct line out, err;

    /* the block of text under way, as reported; the message it is of */
    struct buf open;
    char *open_id;
    uint32_t high; /* the first half of a surrogate pair, or 0 */
    bool lone;     /* this line has halves of pairs, see stream.c */
    /* blocks already reported whole, of message closed_id */
    uint64_t closed[CLOSED_MAX];
    size_t closed_n;
    char *closed_id;

    struct agent_usage earlier, usage, told;
    bool usage_told, text_told;

    enum verdict verdict;
    struct fault fault;
    char *error; /* what the service said; with VERDICT_FAILED */
    char *error_told;

    char *cwd, *session, *model, *note;
    struct buf err_tail; /* the last lines of stderr */
};

/* the first of them that says something makes AGENT_SESSION; later ones
 * only if something new is told. NULL: not known. */
void say_session(struct parser *p, const char *id, const char *model);

/* a piece of text of message id (may be NULL) */
void say_piece(struct parser *p, const char *id, const json_t *s);
/* a whole block: what pieces have told of it isn't told again */
void say_whole(struct parser *p, const char *id, const json_t *s);
/* the block under way is complete as it is */
void say_close(struct parser *p, const char *id);
/* the block under way is taken back */
void say_retract(struct parser *p);

void say_thinking(struct parser *p, const json_t *s);
void say_tool(struct parser *p, const char *name, const char *id,
              const json_t *input);
/* with the summary already made */
void say_tool_words(struct parser *p, const char *name, const char *id,
                    const char *words);
/* out: a string, or an array of objects with text */
void say_result(struct parser *p, const char *id, bool ok, const json_t *out);
void say_note(struct parser *p, const char *fmt, ...) PRINTF(2, 3);
/* "rate limited, retrying 3/10"; max 0: "retrying" alone */
void say_retry(struct parser *p, const struct fault *f, int64_t n,
               int64_t max);
/* p->usage, if it has changed */
void say_usage(struct parser *p);

/* the turn went well, so far */
void verdict_ok(struct parser *p);
/* nothing is known again: the turn goes on */
void verdict_none(struct parser *p);
/* it failed: tells AGENT_ERROR unless it was just told; detail borrowed */
void verdict_failed(struct parser *p, const struct fault *f,
                    const char *detail);

/* ---- stream.c ---- */

/* one line as an object, or NULL. Malformed UTF-8 becomes U+FFFD; a lone
 * surrogate \uD83D becomes U+10D83D, and *lone is set. Owned by the caller. */
json_t *stream_line(const char *s, size_t n, bool *lone);
/* the string at key, or NULL; borrowed */
const char *stream_str(const json_t *o, const char *key);
/* a number, or 0 */
int64_t stream_num(const json_t *o, const char *key);
double stream_real(const json_t *o, const char *key, double otherwise);
bool stream_is(const json_t *o, const char *key, const char *value);

/* one line of at most SUMMARY_MAX bytes: white space runs become one blank */
void summary_line(struct buf *out, const char *s, size_t n);
/* what a tool is asked to do, for people; cwd may be NULL */
void summary_tool(struct buf *out, const json_t *input, const char *cwd);

#endif
