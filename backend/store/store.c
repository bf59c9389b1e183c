#include "store/db.h"

#include <pthread.h>

#include "base/text.h"

enum {
    GROUP_MAX = 256,    /* functions to a commit */
    CHUNK = 16 * 1024,  /* bytes of a stream to a row */
    WAL_MAX = 16 << 20, /* above it the log is emptied when it can be */
};

struct item {
    tx_fn fn;
    void *arg;
    tx_done done;
    bool lazy;
    struct item *next;
    int code;
    struct err e;
};

struct reader {
    struct store *store;
    struct db *db;
};

struct store {
    char *path;
    struct db *w;
    courier_changed_fn changed;
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the queue and stop */
    pthread_cond_t wake;
    struct item *first, **last;
    bool stop, running;
    pthread_key_t key; /* struct reader of each thread */
    /* of the commit under way, writer's thread only */
    struct courier_change *chg;
    size_t n_chg, cap_chg;
    int64_t last_ns;
    bool lazy; /* synchronous is NORMAL now */
};

static void reader_free(void *p)
{
    struct reader *r = p;

    db_close(r->db);
    free(r);
}

struct db *store_reader(struct store *s)
{
    struct reader *r = pthread_getspecific(s->key);
    struct err e;

    if (r)
        return r->db;
    r = xcalloc(1, sizeof(*r));
    if (db_open(s->path, false, &r->db, &e) < 0) {
        log_msg(LOG_ERR, "%s", e.text);
        abort(); /* the file was there a moment ago */
    }
    pthread_setspecific(s->key, r);
    return r->db;
}

/* ---- changes ---- */

static int64_t next_ns(struct store *s)
{
    int64_t ns = now_ns();

    if (ns <= s->last_ns)
        ns = s->last_ns + 1;
    s->last_ns = ns;
    return ns;
}

void tx_changed(struct tx *tx, struct oid o, uint64_t aspects)
{
    struct store *s = tx->store;

    for (size_t i = 0; i < s->n_chg; i++) {
        struct courier_change *c = &s->chg[i];

        if (c->o.kind == o.kind && c->o.id == o.id &&
            (c->aspects & aspects) == aspects)
            return;
    }
    if (s->n_chg == s->cap_chg) {
        s->cap_chg = s->cap_chg * 2 + 64;
        s->chg = xrealloc(s->chg, s->cap_chg * sizeof(*s->chg));
    }
    s->chg[s->n_chg++] = (struct courier_change){o, aspects};
}

/* writes the times of all changes of this commit, one row an aspect */
static void write_times(struct store *s)
{
    for (size_t i = 0; i < s->n_chg; i++) {
        struct courier_change *c = &s->chg[i];

        for (int bit = 0; bit < 32; bit++) {
            if (!(c->aspects >> bit & 1))
                continue;
            db_exec(s->w,
                    "INSERT INTO mtime(kind,id,aspect,ns) VALUES(?,?,?,?) "
                    "ON CONFLICT DO UPDATE SET ns=excluded.ns",
                    "iiii", (int64_t)c->o.kind, c->o.id, (int64_t)bit,
                    next_ns(s));
        }
    }
}

int64_t store_mtime(struct db *d, struct oid o, uint64_t aspects)
{
    sqlite3_stmt *q =
        db_query(d, "SELECT aspect,ns FROM mtime WHERE kind=? AND id=?", "ii",
                 (int64_t)o.kind, o.id);
    int64_t best = 0;

    while (db_row(d, q)) {
        if (aspects >> col_int(q, 0) & 1 && col_int(q, 1) > best)
            best = col_int(q, 1);
    }
    return best;
}

void tx_forget(struct tx *tx, struct oid o)
{
    db_exec(tx->db,
            "DELETE FROM chunk WHERE stream IN "
            "(SELECT rowid FROM stream WHERE kind=? AND id=?)",
            "ii", (int64_t)o.kind, o.id);
    db_exec(tx->db, "DELETE FROM stream WHERE kind=? AND id=?", "ii",
            (int64_t)o.kind, o.id);
    db_exec(tx->db, "DELETE FROM mtime WHERE kind=? AND id=?", "ii",
            (int64_t)o.kind, o.id);
    tx_changed(tx, o, ASPECT_GONE);
}

/* ---- savepoints ---- */

size_t tx_mark(struct tx *tx)
{
    db_exec(tx->db, "SAVEPOINT inner", "");
    return tx->store->n_chg;
}

void tx_undo(struct tx *tx, size_t mark)
{
    int error = db_error(tx->db);

    db_clear(tx->db);
    db_exec(tx->db, "ROLLBACK TO inner", "");
    db_exec(tx->db, "RELEASE inner", "");
    /* a constraint that failed is undone by this; a broken disk is not */
    if (error && error != -EEXIST && !db_error(tx->db))
        log_msg(LOG_WARN, "undone after a database error (%d)", -error);
    tx->store->n_chg = mark;
}

void tx_keep(struct tx *tx, size_t mark)
{
    (void)mark;
    db_exec(tx->db, "RELEASE inner", "");
}

/* ---- streams ---- */

static int64_t stream_id(struct db *d, struct oid o, enum stream st,
                         int64_t *size)
{
    sqlite3_stmt *q = db_query(
        d, "SELECT rowid,size FROM stream WHERE kind=? AND id=? AND name=?",
        "iii", (int64_t)o.kind, o.id, (int64_t)st);
    int64_t id = 0;

    *size = 0;
    if (db_row(d, q)) {
        id = col_int(q, 0);
        *size = col_int(q, 1);
        db_done(q);
    }
    return id;
}

void tx_stream_add(struct tx *tx, struct oid o, enum stream st, const void *p,
                   size_t n, uint64_t aspects)
{
    const char *c = p;
    int64_t size, id = stream_id(tx->db, o, st, &size);

    if (!n)
        return;
    if (!id) {
        db_exec(tx->db,
                "INSERT INTO stream(kind,id,name,size) VALUES(?,?,?,0)", "iii",
                (int64_t)o.kind, o.id, (int64_t)st);
        id = db_last_id(tx->db);
    }
    while (n) {
        /* the last chunk is filled up first, so that many small additions
         * don't make many small rows */
        size_t part = CHUNK - (size_t)(size % CHUNK);

        if (part > n)
            part = n;
        if (size % CHUNK)
            db_exec(tx->db,
                    "UPDATE chunk SET data=CAST(data||? AS BLOB) "
                    "WHERE stream=? AND off=?",
                    "bii", c, part, id, size - size % CHUNK);
        else
            db_exec(tx->db, "INSERT INTO chunk(stream,off,data) VALUES(?,?,?)",
                    "iib", id, size, c, part);
        size += (int64_t)part;
        c += part;
        n -= part;
    }
    db_exec(tx->db, "UPDATE stream SET size=? WHERE rowid=?", "ii", size, id);
    tx_changed(tx, o, aspects);
}

int64_t store_stream_size(struct db *d, struct oid o, enum stream st)
{
    int64_t size;

    stream_id(d, o, st, &size);
    return size;
}

int store_stream_read(struct db *d, struct oid o, enum stream st, int64_t off,
                      size_t n, struct buf *out)
{
    int64_t size, id = stream_id(d, o, st, &size);
    sqlite3_stmt *q;

    if (!id || off >= size || !n)
        return 0;
    q = db_query(d,
                 "SELECT off,data FROM chunk WHERE stream=? AND off>=? "
                 "AND off<? ORDER BY off",
                 "iii", id, off - off % CHUNK, off + (int64_t)n);
    while (n && db_row(d, q)) {
        int64_t at = col_int(q, 0);
        const char *p = sqlite3_column_blob(q, 1);
        size_t len = (size_t)sqlite3_column_bytes(q, 1);
        size_t skip = off > at ? (size_t)(off - at) : 0;
        size_t take;

        if (skip >= len)
            break;
        take = len - skip < n ? len - skip : n;
        buf_add(out, p + skip, take);
        off += (int64_t)take;
        n -= take;
    }
    db_done(q);
    return db_error(d);
}

void tx_stream_rotate(struct tx *tx, struct oid o, enum stream from,
                      enum stream to)
{
    db_exec(tx->db,
            "DELETE FROM chunk WHERE stream IN (SELECT rowid FROM stream "
            "WHERE kind=? AND id=? AND name=?)",
            "iii", (int64_t)o.kind, o.id, (int64_t)to);
    db_exec(tx->db, "DELETE FROM stream WHERE kind=? AND id=? AND name=?",
            "iii", (int64_t)o.kind, o.id, (int64_t)to);
    db_exec(tx->db,
            "UPDATE stream SET name=? WHERE kind=? AND id=? AND name=?",
            "iiii", (int64_t)to, (int64_t)o.kind, o.id, (int64_t)from);
    tx_changed(tx, o, ASPECT_EVENTS);
}

/* ---- the writer ---- */

static void run_item(struct store *s, struct item *it, int64_t now)
{
    struct tx tx = {s->w, s, now};
    size_t mark = s->n_chg;

    db_exec(s->w, "SAVEPOINT item", "");
    if (!db_error(s->w))
        it->code = it->fn(&tx, it->arg, &it->e);
    if (db_error(s->w)) {
        int code = db_error(s->w);

        it->code = err_set(&it->e, -code, "%s",
                           db_words(code, "the database refused it"));
    }
    if (it->code < 0) {
        db_clear(s->w);
        db_exec(s->w, "ROLLBACK TO item", "");
        s->n_chg = mark;
    }
    db_exec(s->w, "RELEASE item", "");
    if (it->code < 0)
        db_clear(s->w);
}

static void fail_all(struct item *list, int code)
{
    for (struct item *it = list; it; it = it->next) {
        if (it->code < 0)
            continue;
        it->code = err_set(&it->e, -code, "%s",
                           db_words(code, "the database refused it"));
    }
}

static void commit(struct store *s, struct item *list, bool lazy)
{
    int64_t now = now_ms();

    s->n_chg = 0;
    db_clear(s->w);
    if (lazy != s->lazy) /* takes effect when compiled, so never cached */
        db_script(s->w,
                  lazy ? "PRAGMA synchronous=NORMAL"
                       : "PRAGMA synchronous=FULL",
                  NULL);
    s->lazy = lazy;
    db_exec(s->w, "BEGIN IMMEDIATE", "");
    if (!db_error(s->w)) {
        for (struct item *it = list; it; it = it->next)
            run_item(s, it, now);
        write_times(s);
        if (!db_error(s->w))
            db_exec(s->w, "COMMIT", "");
    }
    if (db_error(s->w)) {
        int code = db_error(s->w);

        db_clear(s->w);
        if (!sqlite3_get_autocommit(db_handle(s->w)))
            db_exec(s->w, "ROLLBACK", "");
        db_clear(s->w);
        s->n_chg = 0;
        fail_all(list, code);
    }
    if (s->n_chg && s->changed)
        s->changed(s->ctx, s->chg, s->n_chg);
    while (list) {
        struct item *next = list->next;
        tx_done done = list->done;

        /* a waiter of store_do owns its item, and may go on at once */
        if (done)
            done(list->arg, list->code, &list->e);
        free(list);
        list = next;
    }
}

static void tidy(struct store *s)
{
    int log = 0, done = 0;

    sqlite3_wal_checkpoint_v2(db_handle(s->w), NULL, SQLITE_CHECKPOINT_PASSIVE,
                              &log, &done);
    if (log > WAL_MAX / 4096 && log == done)
        sqlite3_wal_checkpoint_v2(db_handle(s->w), NULL,
                                  SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    db_exec(s->w, "PRAGMA incremental_vacuum(200)", "");
    db_clear(s->w);
}

static struct item *take_group(struct store *s, bool *lazy)
{
    struct item *list = s->first, **end = &list;
    int n = 0;

    *lazy = true;
    while (*end && n < GROUP_MAX) {
        *lazy = *lazy && (*end)->lazy;
        end = &(*end)->next;
        n++;
    }
    s->first = *end;
    if (!s->first)
        s->last = &s->first;
    *end = NULL;
    return list;
}

static void *writer(void *arg)
{
    struct store *s = arg;
    int64_t tidied = mono_ms();

    for (;;) {
        struct item *list;
        bool lazy;

        pthread_mutex_lock(&s->lock);
        while (!s->first && !s->stop) {
            struct timespec ts;

            clock_gettime(CLOCK_REALTIME, &ts);
            ts.tv_sec += 30;
            pthread_cond_timedwait(&s->wake, &s->lock, &ts);
            if (mono_ms() - tidied > 30000)
                break;
        }
        if (!s->first && s->stop) {
            pthread_mutex_unlock(&s->lock);
            return NULL;
        }
        list = take_group(s, &lazy);
        pthread_mutex_unlock(&s->lock);
        if (list)
            commit(s, list, lazy);
        if (mono_ms() - tidied > 30000) {
            tidy(s);
            tidied = mono_ms();
        }
    }
}

void store_submit(struct store *s, tx_fn fn, void *arg, tx_done done,
                  bool lazy)
{
    struct item *it = xcalloc(1, sizeof(*it));

    it->fn = fn;
    it->arg = arg;
    it->done = done;
    it->lazy = lazy;
    pthread_mutex_lock(&s->lock);
    *s->last = it;
    s->last = &it->next;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

struct waiter {
    tx_fn fn;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool over;
    int code;
    struct err e;
};

static int waiter_fn(struct tx *tx, void *arg, struct err *e)
{
    struct waiter *w = arg;

    return w->fn(tx, w->arg, e);
}

static void waiter_done(void *arg, int code, const struct err *e)
{
    struct waiter *w = arg;

    pthread_mutex_lock(&w->lock);
    w->over = true;
    w->code = code;
    w->e = *e;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

int store_do(struct store *s, tx_fn fn, void *arg, struct err *e)
{
    struct waiter w = {.fn = fn, .arg = arg};

    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.cond, NULL);
    store_submit(s, waiter_fn, &w, waiter_done, false);
    pthread_mutex_lock(&w.lock);
    while (!w.over)
        pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
    pthread_cond_destroy(&w.cond);
    pthread_mutex_destroy(&w.lock);
    if (w.code < 0 && e)
        *e = w.e;
    return w.code;
}

/* ---- opening ---- */

static const char own_tables[] =
    "CREATE TABLE mtime(kind INTEGER,id INTEGER,aspect INTEGER,ns INTEGER,"
    "PRIMARY KEY(kind,id,aspect)) WITHOUT ROWID;"
    "CREATE TABLE stream(kind INTEGER,id INTEGER,name INTEGER,size INTEGER,"
    "UNIQUE(kind,id,name));"
    "CREATE TABLE chunk(stream INTEGER,off INTEGER,data BLOB,"
    "PRIMARY KEY(stream,off)) WITHOUT ROWID;";

static int migrate(struct store *s, const char *const *migrations,
                   struct err *e)
{
    int64_t have = db_int(s->w, 0, "PRAGMA user_version", "");
    int64_t want = 0;
    int r = 0;

    while (migrations[want])
        want++;
    if (have > want)
        return err_set(e, EPROTO,
                       "the database is from a newer version of courier "
                       "(schema %lld, this one knows %lld)",
                       (long long)have, (long long)want);
    if (have == want)
        return 0;
    r = db_script(s->w, "BEGIN IMMEDIATE", e);
    if (!r && have == 0)
        r = db_script(s->w, own_tables, e);
    for (; !r && have < want; have++)
        r = db_script(s->w, migrations[have], e);
    if (!r) {
        AUTO_FREE char *sql =
            xasprintf("PRAGMA user_version=%lld", (long long)want);

        r = db_script(s->w, sql, e);
    }
    if (!r)
        r = db_script(s->w, "COMMIT", e);
    if (r)
        db_script(s->w, "ROLLBACK", NULL);
    return r;
}

static int check(struct store *s, struct err *e)
{
    AUTO_FREE char *ok = db_text(s->w, "PRAGMA quick_check(1)", "");

    if (db_error(s->w) == -EIO || (ok && strcmp(ok, "ok")))
        return err_set(e, EIO, "the database %s is damaged: %s", s->path,
                       ok ? ok : "it can't be read");
    if (db_error(s->w))
        return err_set(e, -db_error(s->w), "%s: %s", s->path,
                       db_words(db_error(s->w), "can't be read"));
    return 0;
}

int store_open(const char *path, const char *const *migrations,
               courier_changed_fn changed, void *ctx, struct store **out,
               struct err *e)
{
    struct store *s = xcalloc(1, sizeof(*s));
    int r;

    s->path = xstrdup(path);
    s->changed = changed;
    s->ctx = ctx;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_key_create(&s->key, reader_free);
    r = db_open(path, true, &s->w, e);
    if (!r && sqlite3_db_readonly(db_handle(s->w), "main"))
        r = err_set(e, EROFS, "the database %s is read-only", path);
    if (!r)
        r = check(s, e);
    if (!r)
        r = migrate(s, migrations, e);
    if (!r)
        s->last_ns = db_int(s->w, 0, "SELECT max(ns) FROM mtime", "");
    if (!r && pthread_create(&s->thread, NULL, writer, s))
        r = err_set(e, EAGAIN, "no thread for the database");
    if (r) {
        store_close(s);
        return r;
    }
    s->running = true;
    *out = s;
    return 0;
}

void store_close(struct store *s)
{
    struct reader *r;

    if (!s)
        return;
    if (s->running) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    r = pthread_getspecific(s->key);
    if (r) {
        pthread_setspecific(s->key, NULL);
        reader_free(r);
    }
    pthread_key_delete(s->key);
    db_close(s->w);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->chg);
    free(s->path);
    free(s);
}
