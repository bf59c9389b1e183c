/*
 * files: what /files needs besides the files: signatures, ranges, dates and
 * types. Pure functions, on any thread.
 */
#ifndef LOCAL_FILES_H
#define LOCAL_FILES_H

#include "base/base.h"

#include <time.h>

/* "v1_..." of a path ("" if absent), "read" or "write", user ("" if absent)
 * and token; expiry in unix seconds as it was written, NULL if none */
void file_signature(const char *path, const char *operation, const char *user,
                    const char *token, const char *expiry, char out[64]);

enum range { RANGE_ALL, RANGE_PART, RANGE_BAD };
/* a Range header (or NULL) for a body of size bytes; several ranges count as
 * none. *to is inclusive */
enum range file_range(const char *h, int64_t size, int64_t *from, int64_t *to);

void http_date(time_t t, char out[32]);
bool http_date_parse(const char *s, time_t *out);
/* by the name's extension, else by the first bytes */
const char *file_type(const char *name, const char *p, size_t n);

#endif
