/*
 * untar: reads an archive that a program in a VM made, which is hostile. It
 * copies nothing and writes no file. Pure.
 */
#ifndef ENGINE_UNTAR_H
#define ENGINE_UNTAR_H

#include "base/base.h"

struct untar {
    const char *p, *end; /* what is left to be read; borrowed */
    char *name;          /* that a long-name entry gave the next one */
};
void untar_begin(struct untar *u, const char *p, size_t n);
void untar_end(struct untar *u);

/*
 * The next regular file: 1, its name (owned by u until the next call) and its
 * bytes (borrowed). 0 at the end, -EPROTO for what is no archive or is cut
 * off. What isn't a regular file is passed over.
 */
int untar_next(struct untar *u, const char **name, const char **p, size_t *n);

#endif
