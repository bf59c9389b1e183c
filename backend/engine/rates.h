/*
 * rates: the grammar of the document `rates`, and the price of a quantity.
 * Pure; it knows no record.
 *
 *     SERVICE MODEL UNIT USD [per N]
 *
 * MODEL is a name, a prefix that ends in `*`, or `*` alone; a name wins over
 * a prefix, a longer prefix over a shorter one, and the later line over an
 * equal one above it. N is a number, with k or M for thousands or millions.
 */
#ifndef ENGINE_RATES_H
#define ENGINE_RATES_H

#include "base/base.h"

/* the document of a new record */
extern const char rates_default[];
/* one line (no newline): 0, or -EINVAL with words */
int rates_line_check(const char *line, size_t n, struct err *e);
/* USD for one of this unit; -1 if there is no rate */
double rates_find(const char *doc, size_t n, const char *service,
                  const char *model, const char *unit);

#endif
