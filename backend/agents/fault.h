/*
 * fault: what went wrong, told from a status, a code word and a sentence of
 * a model's service or of a CLI. Pure functions, any thread.
 */
#ifndef AGENTS_FAULT_H
#define AGENTS_FAULT_H

#include "agents/agents.h"

struct fault {
    int kind;        /* AGENT_FAULT_... */
    char words[100]; /* "invalid Anthropic key"; "" with AGENT_FAULT_NONE */
};

/* service NULL: not known. status 0, code and text NULL: not told. What
 * isn't recognised is AGENT_FAULT_OTHER with the words "failed". */
void fault_tell(struct fault *f, const char *service, int status,
                const char *code, const char *text);
/* whom a URL or a word belongs to: "Anthropic", "OpenAI", ... or NULL */
const char *fault_service(const char *url);
/* a status in words like "401 Unauthorized" or "last status: 429", or 0 */
int fault_status(const char *text);
/* appends the text with all that looks like a key as **** */
void fault_mask(struct buf *out, const char *text);

#endif
