/*
 * vault: encrypts keys and secrets for the record (libsodium,
 * XChaCha20-Poly1305). It owns the master key and nothing else: where the
 * sealed bytes are kept is the caller's matter.
 *
 * The master key is in a file of its own (0600, 32 random bytes, made at the
 * first start, outside the database), or comes from a passphrase through
 * Argon2id (its salt in that file). In memory it is locked and not dumped.
 */
#ifndef VAULT_VAULT_H
#define VAULT_VAULT_H

#include "base/base.h"

struct vault;
/* path: the key file. passphrase NULL: a plain key file, made if missing.
 * -EACCES: wrong passphrase, or the file is readable by others; -EINVAL: the
 * file is damaged. */
int vault_open(const char *path, const char *passphrase, struct vault **out,
               struct err *e);
void vault_close(struct vault *v);

/* binds the sealed bytes to label (e.g. "key/project 3/anthropic"): they open
 * under no other. sealed = nonce and ciphertext, appended to out. */
int vault_seal(struct vault *v, const char *label, const void *p, size_t n,
               struct buf *out, struct err *e);
/* plain is allocated in locked memory, free with vault_free; -EBADMSG if it
 * was changed or another key sealed it */
int vault_unseal(struct vault *v, const char *label, const void *p, size_t n,
                 char **plain, size_t *len, struct err *e);
void vault_free(char *plain); /* wipes; NULL is allowed */
/* copy into locked memory */
char *vault_dup(const char *s, size_t n);

/*
 * Rotation: makes a new master key beside the old one; the caller opens with
 * the old and seals with the new one what it has, in one transaction, then
 * commits (the new file replaces the old) or drops it.
 */
int vault_rotate_begin(struct vault *v, const char *passphrase,
                       struct vault **fresh, struct err *e);
int vault_rotate_commit(struct vault *v, struct vault *fresh, struct err *e);

/* "****abcd", or "****" below 12 characters */
void vault_hint(const char *plain, size_t n, char out[16]);

#endif
