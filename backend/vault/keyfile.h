/*
 * The master key's file: its format, how it is made, read and replaced. It
 * encrypts nothing. A file is 96 bytes: magic, kind, then the key itself or
 * the salt and cost of Argon2id, then a check value by which a damaged file
 * or a wrong passphrase is told at once.
 *
 * Blocking (Argon2id takes some 100 ms); any thread.
 */
#ifndef VAULT_KEYFILE_H
#define VAULT_KEYFILE_H

#include "base/base.h"

enum { VAULT_KEY_BYTES = 32 };

/* key is the caller's locked memory of VAULT_KEY_BYTES */
int keyfile_read(const char *path, const char *passphrase, unsigned char *key,
                 struct err *e);
/* makes the file with a new key; -EEXIST if there is one */
int keyfile_make(const char *path, const char *passphrase, unsigned char *key,
                 struct err *e);
/* from replaces to, on disk when this returns */
int keyfile_replace(const char *from, const char *to, struct err *e);

#endif
