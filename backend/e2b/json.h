/*
 * json: reading what hostile or sloppy servers send. A document that strict
 * JSON refuses for its characters (lone surrogates, bad UTF-8, raw control
 * characters, numbers too large) is read with those replaced. Pure functions;
 * every getter takes NULL and things of the wrong type.
 */
#ifndef E2B_JSON_H
#define E2B_JSON_H

#include "base/base.h"
#include "e2b/e2b.h"

#include <jansson.h>

/* NULL if it can't be understood; json_decref it */
json_t *json_read(const char *p, size_t n);

/* borrowed, NULL if absent or no string */
const char *json_str(const json_t *o, const char *name);
/* a number, or a string that holds one (proto JSON's 64-bit) */
int64_t json_int(const json_t *o, const char *name, int64_t otherwise);
bool json_flag(const json_t *o, const char *name);

/* compact text, wiped and freed by the caller; takes the reference; NULL for
 * what isn't UTF-8 */
int json_encode(json_t *j, struct buf *out, struct err *e);

/* a Sandbox, SandboxDetail or ListedSandbox; -EPROTO without a proper id */
int box_from_json(const json_t *j, struct e2b_box *b, struct err *e);
/* an EntryInfo; -EPROTO if its name is none */
int entry_from_json(const json_t *j, struct e2b_entry *v, struct err *e);

#endif
