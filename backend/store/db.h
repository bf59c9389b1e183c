/* db: what store.c needs of a connection beyond store.h */
#ifndef STORE_DB_H
#define STORE_DB_H

#include "store/store.h"

/* opens with courier's pragmas; writable or read-only */
int db_open(const char *path, bool writable, struct db **out, struct err *e);
void db_close(struct db *d);
sqlite3 *db_handle(struct db *d);
int db_errno(int sqlite_code); /* negative errno */
const char *db_words(int code, const char *fallback);
/* a script of several statements */
int db_script(struct db *d, const char *sql, struct err *e);

#endif
