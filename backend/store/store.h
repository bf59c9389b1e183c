/*
 * store: the record in one SQLite file (WAL), and the one thread that writes
 * it. It owns connections, transactions and the schema; it does not know what
 * the tables mean, but for those of change times, streams and the log of
 * errors, which it keeps for everybody.
 *
 * All writing is done by functions that the writer thread calls inside a
 * transaction, many to a commit (group commit). Each runs in a savepoint of
 * its own: one that fails leaves nothing. What a function reports as changed
 * is told after the commit, then its `done` is called. Reading is done on
 * connections that belong to the calling thread.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/base.h"
#include "courier.h"

#include <sqlite3.h>

/* ---- a connection ---- */

struct db;

/*
 * Statements are cached by the address of their text, so it must be a string
 * literal. Formats of arguments: i int64_t, s const char * (NULL is null),
 * d double, b const void * and size_t. Errors of the database are kept in the
 * connection (db_error) and make the transaction fail; so nothing here needs
 * to be checked inside a transaction, rows simply end.
 */
int db_exec(struct db *d, const char *sql, const char *fmt, ...);
int64_t db_int(struct db *d, int64_t dflt, const char *sql, const char *fmt,
               ...);
/* the first column of the first row, or NULL; owned by the caller */
char *db_text(struct db *d, const char *sql, const char *fmt, ...);
sqlite3_stmt *db_query(struct db *d, const char *sql, const char *fmt, ...);
bool db_row(struct db *d, sqlite3_stmt *s); /* false: ended, and was reset */
void db_done(sqlite3_stmt *s);              /* ends a query before its end */
int64_t db_last_id(struct db *d);
int db_changes(struct db *d);
int db_error(struct db *d); /* 0 or a negative errno; cleared by db_clear */
void db_clear(struct db *d);
/* columns; text is "" for null and borrowed until the next row */
int64_t col_int(sqlite3_stmt *s, int i);
double col_double(sqlite3_stmt *s, int i);
const char *col_text(sqlite3_stmt *s, int i);
char *col_dup(sqlite3_stmt *s, int i); /* NULL for null; owned */
bool col_null(sqlite3_stmt *s, int i);

/* ---- the store ---- */

struct store;
/* the migrations: text k brings the schema from version k to k+1; NULL-ended.
 * changed/ctx as in courier_options, called on the writer's thread. */
int store_open(const char *path, const char *const *migrations,
               courier_changed_fn changed, void *ctx, struct store **out,
               struct err *e);
/* stops the writer when its queue is empty, checkpoints, closes */
void store_close(struct store *s);
/* the calling thread's read connection */
struct db *store_reader(struct store *s);

struct tx {
    struct db *db;
    struct store *store;
    int64_t now_ms; /* of this commit */
};
/* 0 or a negative errno with words; may not block on anything else */
typedef int (*tx_fn)(struct tx *tx, void *arg, struct err *e);
typedef void (*tx_done)(void *arg, int code, const struct err *e);

/* queues fn; done (may be NULL) comes on the writer's thread after the commit.
 * lazy: the commit needn't be synced (it can be had again from elsewhere). */
void store_submit(struct store *s, tx_fn fn, void *arg, tx_done done,
                  bool lazy);
/* queues fn and waits for it; for worker threads. Never on the writer's or
 * the file system's thread. */
int store_do(struct store *s, tx_fn fn, void *arg, struct err *e);

/* ---- change times: when did an aspect of an object last change ---- */

/* o changed: the time moves on, and the change is told after the commit */
void tx_changed(struct tx *tx, struct oid o, uint64_t aspects);
/* the latest of these aspects, ns; 0 if they never changed */
int64_t store_mtime(struct db *d, struct oid o, uint64_t aspects);
/* drops times and streams of an object that is gone for good */
void tx_forget(struct tx *tx, struct oid o);

/* a savepoint inside fn: undoes what came after mark, changes included */
size_t tx_mark(struct tx *tx);
void tx_undo(struct tx *tx, size_t mark);
void tx_keep(struct tx *tx, size_t mark);

/* ---- streams ---- */

void tx_stream_add(struct tx *tx, struct oid o, enum stream s, const void *p,
                   size_t n, uint64_t aspects);
int64_t store_stream_size(struct db *d, struct oid o, enum stream s);
int store_stream_read(struct db *d, struct oid o, enum stream s, int64_t off,
                      size_t n, struct buf *out);
/* moves the stream from to another name, replacing that (rotation) */
void tx_stream_rotate(struct tx *tx, struct oid o, enum stream from,
                      enum stream to);

#endif
