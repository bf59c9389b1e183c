/*
 * keys: what keys.c offers to its neighbours beyond engine.h. Keys and secrets
 * are sealed in the table `secret`; the hint alone is ever shown.
 */
#ifndef ENGINE_KEYS_H
#define ENGINE_KEYS_H

#include "engine/engine.h"

bool key_is_name(const char *name); /* e2b, anthropic, ... */
/* is there a key of that name at any level? For places with no courier at
 * hand: of the environment it knows what keys_env_init saw */
bool key_known(struct db *d, int64_t project, const char *name);
/*
 * Are the keys that a tool needs there (or set by the project's env or
 * secrets)? 0, or -EACCES with words that say which and where to put it.
 */
int keys_need(struct db *d, int64_t project, const struct tool *t,
              struct err *e);
/* opens every key with one vault and seals it with another */
int tx_keys_reseal(struct tx *tx, struct vault *old, struct vault *fresh,
                   struct err *e);

#endif
