/*
 * adapter: what one agent CLI is to courier: its document as a tool and its
 * grammar. One const struct a CLI, in the file of its name; parser.c feeds
 * it, tool.c shows its document.
 *
 * A grammar sees whole lines already decoded, and reports through event.h.
 * It keeps what it must remember in p->own (zeroed, own_size bytes).
 */
#ifndef AGENTS_ADAPTER_H
#define AGENTS_ADAPTER_H

#include "agents/agents.h"

#include <jansson.h>

/* what is to be done with a line, judged from how it begins */
enum head {
    HEAD_PARSE, /* keep it all and decode it */
    HEAD_SKIP,  /* nothing more of it matters: its rest isn't kept */
    HEAD_MORE,  /* can't be told yet (not when the line is whole) */
};

struct adapter {
    const char *tool;    /* name of the built-in tool */
    const char *doc;     /* its document */
    const char *service; /* as people call it: "Anthropic"; NULL: any */
    enum agent_format format;
    size_t own_size;
    /* called with the first n bytes of a line, at growing n, until it
     * decides; NULL: always HEAD_PARSE. May report. */
    enum head (*head)(struct parser *p, const char *s, size_t n, bool whole);
    /* an object, one line of stdout. NULL: the format is plain text */
    void (*line)(struct parser *p, const json_t *o);
    /* EOF: settle p->verdict from what came; NULL: nothing to do */
    void (*eof)(struct parser *p);
    /* frees what own points to, not own itself; NULL: nothing */
    void (*release)(struct parser *p);
};

extern const struct adapter claude_adapter, codex_adapter, opencode_adapter,
    pi_adapter, shell_adapter;

/* NULL-ended */
extern const struct adapter *const adapters[];

#endif
