#include "store/db.h"

#include "base/text.h"

enum { CACHE_SLOTS = 1024 };

struct db {
    sqlite3 *h;
    int error;
    char why[200];
    /* prepared statements, open addressing by their text; of one that was
     * needed while it was in use there are several */
    sqlite3_stmt *cache[CACHE_SLOTS];
};

int db_errno(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_CONSTRAINT:
        return -EEXIST;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return -EACCES;
    default:
        return -EIO;
    }
}

const char *db_words(int code, const char *fallback)
{
    switch (code < 0 ? -code : code) {
    case ENOSPC:
        return "the disk of the database is full";
    case EROFS:
        return "the database is read-only";
    case EBUSY:
        return "the database is locked by another program";
    case EACCES:
        return "the database can't be opened";
    default:
        return fallback;
    }
}

static void failed(struct db *d, int code)
{
    if (d->error)
        return;
    d->error = db_errno(code);
    snprintf(d->why, sizeof(d->why), "%s", sqlite3_errmsg(d->h));
    if (d->error == -EIO || d->error == -EEXIST)
        log_msg(LOG_WARN, "database: %s", d->why);
}

int db_open(const char *path, bool writable, struct db **out, struct err *e)
{
    struct db *d = xcalloc(1, sizeof(*d));
    int flags = writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                         : SQLITE_OPEN_READONLY;
    int rc = sqlite3_open_v2(path, &d->h, flags | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(d->h, 1);
        sqlite3_busy_timeout(d->h, 5000);
        rc = sqlite3_exec(d->h,
                          writable ? "PRAGMA auto_vacuum=INCREMENTAL;"
                                     "PRAGMA journal_mode=WAL;"
                                     "PRAGMA synchronous=FULL;"
                                     "PRAGMA foreign_keys=ON;"
                                     "PRAGMA journal_size_limit=4194304;"
                                     "PRAGMA wal_autocheckpoint=500;"
                                   : "PRAGMA query_only=ON;"
                                     "PRAGMA cache_size=-4000;",
                          NULL, NULL, NULL);
    }
    if (rc != SQLITE_OK) {
        int code = db_errno(rc);

        if ((rc & 0xff) == SQLITE_NOTADB || (rc & 0xff) == SQLITE_CORRUPT)
            err_set(e, EIO, "%s is damaged or no database of courier", path);
        else
            err_set(e, -code, "%s: %s", path,
                    db_words(code, sqlite3_errmsg(d->h)));
        db_close(d);
        return code;
    }
    *out = d;
    return 0;
}

void db_close(struct db *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        sqlite3_finalize(d->cache[i]);
    sqlite3_close_v2(d->h);
    free(d);
}

sqlite3 *db_handle(struct db *d)
{
    return d->h;
}

int db_script(struct db *d, const char *sql, struct err *e)
{
    int rc = sqlite3_exec(d->h, sql, NULL, NULL, NULL);

    if (rc == SQLITE_OK)
        return 0;
    return err_set(e, -db_errno(rc), "%s",
                   db_words(db_errno(rc), sqlite3_errmsg(d->h)));
}

static sqlite3_stmt *prepared(struct db *d, const char *sql)
{
    size_t at = (size_t)(text_hash(sql, strlen(sql)) % CACHE_SLOTS);

    for (size_t i = 0; i < CACHE_SLOTS; i++) {
        sqlite3_stmt **s = &d->cache[(at + i) % CACHE_SLOTS];
        int rc;

        if (*s && !sqlite3_stmt_busy(*s) && !strcmp(sqlite3_sql(*s), sql))
            return *s;
        if (*s)
            continue;
        rc = sqlite3_prepare_v3(d->h, sql, -1, SQLITE_PREPARE_PERSISTENT, s,
                                NULL);
        if (rc != SQLITE_OK) {
            failed(d, rc);
            return NULL;
        }
        return *s;
    }
    log_msg(LOG_ERR, "too many statements in use, at: %s", sql);
    failed(d, SQLITE_MISUSE);
    return NULL;
}

static sqlite3_stmt *bind(struct db *d, const char *sql, const char *fmt,
                          va_list ap)
{
    sqlite3_stmt *s = prepared(d, sql);
    int i = 0;

    if (!s)
        return NULL;
    sqlite3_reset(s);
    for (; fmt && *fmt; fmt++) {
        const char *text;
        const void *p;
        size_t n;

        i++;
        switch (*fmt) {
        case 'i':
            sqlite3_bind_int64(s, i, va_arg(ap, int64_t));
            break;
        case 'd':
            sqlite3_bind_double(s, i, va_arg(ap, double));
            break;
        case 's':
            text = va_arg(ap, const char *);
            if (text)
                sqlite3_bind_text(s, i, text, -1, SQLITE_TRANSIENT);
            else
                sqlite3_bind_null(s, i);
            break;
        case 'b':
            p = va_arg(ap, const void *);
            n = va_arg(ap, size_t);
            sqlite3_bind_blob64(s, i, p ? p : "", n, SQLITE_TRANSIENT);
            break;
        default:
            abort();
        }
    }
    return s;
}

bool db_row(struct db *d, sqlite3_stmt *s)
{
    int rc;

    if (!s)
        return false;
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW)
        return true;
    if (rc != SQLITE_DONE)
        failed(d, rc);
    db_done(s);
    return false;
}

void db_done(sqlite3_stmt *s)
{
    if (!s)
        return;
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
}

sqlite3_stmt *db_query(struct db *d, const char *sql, const char *fmt, ...)
{
    sqlite3_stmt *s;
    va_list ap;

    va_start(ap, fmt);
    s = bind(d, sql, fmt, ap);
    va_end(ap);
    return s;
}

int db_exec(struct db *d, const char *sql, const char *fmt, ...)
{
    sqlite3_stmt *s;
    va_list ap;

    va_start(ap, fmt);
    s = bind(d, sql, fmt, ap);
    va_end(ap);
    while (db_row(d, s))
        ;
    return d->error;
}

int64_t db_int(struct db *d, int64_t dflt, const char *sql, const char *fmt,
               ...)
{
    sqlite3_stmt *s;
    va_list ap;

    va_start(ap, fmt);
    s = bind(d, sql, fmt, ap);
    va_end(ap);
    if (!db_row(d, s))
        return dflt;
    if (!col_null(s, 0))
        dflt = col_int(s, 0);
    db_done(s);
    return dflt;
}

char *db_text(struct db *d, const char *sql, const char *fmt, ...)
{
    sqlite3_stmt *s;
    char *out;
    va_list ap;

    va_start(ap, fmt);
    s = bind(d, sql, fmt, ap);
    va_end(ap);
    if (!db_row(d, s))
        return NULL;
    out = col_dup(s, 0);
    db_done(s);
    return out;
}

int64_t db_last_id(struct db *d)
{
    return sqlite3_last_insert_rowid(d->h);
}

int db_changes(struct db *d)
{
    return sqlite3_changes(d->h);
}

int db_error(struct db *d)
{
    return d->error;
}

void db_clear(struct db *d)
{
    d->error = 0;
}

int64_t col_int(sqlite3_stmt *s, int i)
{
    return sqlite3_column_int64(s, i);
}

double col_double(sqlite3_stmt *s, int i)
{
    return sqlite3_column_double(s, i);
}

const char *col_text(sqlite3_stmt *s, int i)
{
    const char *t = (const char *)sqlite3_column_text(s, i);

    return t ? t : "";
}

char *col_dup(sqlite3_stmt *s, int i)
{
    const void *p = sqlite3_column_blob(s, i);
    int n = sqlite3_column_bytes(s, i);

    if (col_null(s, i))
        return NULL;
    return xmemdup0(p ? p : "", (size_t)n);
}

bool col_null(sqlite3_stmt *s, int i)
{
    return sqlite3_column_type(s, i) == SQLITE_NULL;
}
