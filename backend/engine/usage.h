/*
 * usage: what usage.c offers to its neighbours beyond engine.h: budgets.
 * Reads the record; any thread, never blocks on more than that.
 */
#ifndef ENGINE_USAGE_H
#define ENGINE_USAGE_H

#include "engine/engine.h"

/* USD of the sandbox's budget if it is used up, with what its VM has cost
 * since it runs; else 0 */
double budget_spent(struct db *d, const struct sandbox *s, int64_t now_ms);
/* of a run that has a budget of its own: of all its sandboxes together */
double budget_spent_run(struct db *d, int64_t run, int64_t now_ms);
/* USD by the rates, or -1: they have no price for it */
double usage_price(struct db *d, const char *service, const char *model,
                   const char *unit, double quantity);
/* a budget as it was set, with two decimals at least; owned */
char *budget_words(double usd);

#endif
