/*
 * config: the keys of `config`, beyond what engine.h tells. A table of keys
 * with their levels and checks; it knows grammar and ranges, not who may set
 * what when (doc.c) and not the effective values (effective.c).
 */
#ifndef ENGINE_CONFIG_H
#define ENGINE_CONFIG_H

#include "engine/engine.h"

struct config_key {
    const char *name;
    int levels;       /* CONFIG_* */
    bool late;        /* may change after the start */
    const char *dflt; /* "" if there is none */
    int (*check)(const struct config_key *k, const char *value, struct err *e);
    const char *words; /* the values, or the range, in words */
    int64_t min, max;
    const char *help; /* what it is for */
};
/* NULL-named at the end */
const struct config_key *config_keys(void);
const struct config_key *config_key_find(const char *key);

/*
 * Text that was refused, for an error: printable, at most 40 characters, with
 * what looks like a key blanked.
 */
void text_refused(const char *s, char out[160]);

/*
 * The real path of a directory that is to be shown in local sandboxes; it
 * never looks at anything below avoid (the mount: the caller may be the
 * thread that serves it). 0, -ENOENT, -ENOTDIR, -EDEADLK (leads into avoid).
 */
int path_real(const char *path, const char *avoid, struct buf *out);
/* local_bind, local_path: every directory is there, none covers the data
 * directory or the mount */
int config_paths_check(const struct courier *c, const char *list,
                       struct err *e);

/*
 * The texts of `config` that hold, the nearest first. The value of the first
 * of keys (NULL-ended) that one of them has; one that speaks of a tool's model
 * and the like, and means another tool than the one that counts, is passed
 * over. NULL, or owned and *at: whose it is.
 */
struct config_level {
    const char *name; /* "sandbox", "project", ...; static */
    char *text;       /* NULL: none; owned by who made it */
    size_t n;
};
char *config_pick(const struct config_level *v, size_t n,
                  const char *const *keys, size_t *at);
/* the project's and the root's; texts owned by the caller */
size_t config_levels_above(struct db *d, int64_t project,
                           struct config_level v[2]);
/* where none is named */
char *config_default_tool(struct db *d, int64_t project);

/* the tool of that name exists: -EINVAL "no tool 'x' in tools/" */
int config_tool_check(struct db *d, const char *tool, struct err *e);
/* "high", or pairs "model:effort": the effort for this model, "" if none */
char *config_thinking(const char *value, const char *model);

#endif
