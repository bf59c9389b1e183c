/*
 * A record in a temporary directory with no threads but the writer: a struct
 * courier with store and vault only, one project and its draft sandboxes.
 */
#ifndef ENGINE_RECORD_H
#define ENGINE_RECORD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/docs.h"
#include "engine/engine.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

struct record {
    struct courier c;
    char dir[64];
    int64_t project, sandbox;
};

static struct record rec;

static inline int record_seed(struct tx *tx, void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    db_exec(tx->db, "INSERT OR REPLACE INTO meta VALUES('created',?)", "i",
            tx->now_ms);
    tx_docs_seed_root(tx);
    db_exec(tx->db, "INSERT INTO project(name,created) VALUES('web',?)", "i",
            tx->now_ms);
    rec.project = db_last_id(tx->db);
    tx_docs_seed_project(tx, rec.project);
    db_exec(tx->db,
            "INSERT INTO sandbox(project,name,status,created) "
            "VALUES(?,'one','draft',?)",
            "ii", rec.project, tx->now_ms);
    rec.sandbox = db_last_id(tx->db);
    return 0;
}

static inline int record_open(void **state)
{
    AUTO_FREE char *db = NULL, *key = NULL;
    struct err e = {0};

    (void)state;
    memset(&rec, 0, sizeof(rec));
    snprintf(rec.dir, sizeof(rec.dir), "/tmp/courier-unit-XXXXXX");
    assert_non_null(mkdtemp(rec.dir));
    db = xasprintf("%s/courier.db", rec.dir);
    key = xasprintf("%s/key", rec.dir);
    pthread_mutex_init(&rec.c.lock, NULL);
    rec.c.data = rec.dir;
    rec.c.mount = (char *)"/nowhere/courier";
    rec.c.backend = (char *)"local";
    rec.c.started_ms = 1000;
    assert_int_equal(
        store_open(db, engine_migrations, NULL, NULL, &rec.c.store, &e), 0);
    assert_int_equal(vault_open(key, NULL, &rec.c.vault, &e), 0);
    assert_int_equal(store_do(rec.c.store, record_seed, NULL, &e), 0);
    return 0;
}

static inline int record_drop(const char *path, const struct stat *st,
                              int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline int record_close(void **state)
{
    (void)state;
    store_close(rec.c.store);
    vault_close(rec.c.vault);
    keys_env_wipe(&rec.c);
    pthread_mutex_destroy(&rec.c.lock);
    return nftw(rec.dir, record_drop, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct db *reader(void)
{
    return store_reader(rec.c.store);
}

static inline struct oid the_project(void)
{
    return oid(OBJ_PROJECT, rec.project);
}

static inline struct oid the_sandbox(void)
{
    return oid(OBJ_SANDBOX, rec.sandbox);
}

/* ---- one statement as a transaction ---- */

static inline int record_sql_fn(struct tx *tx, void *arg, struct err *e)
{
    (void)e;
    db_exec(tx->db, arg, "");
    return 0;
}

static inline void record_sql(const char *sql)
{
    struct err e;

    assert_int_equal(
        store_do(rec.c.store, record_sql_fn, (void *)(uintptr_t)sql, &e), 0);
}

/* ---- commands, waited for ---- */

struct answer {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool over;
    int code;
    struct err e;
};

static inline void answer_done(void *arg, int code, const struct err *e,
                               const char *made)
{
    struct answer *a = arg;

    (void)made;
    pthread_mutex_lock(&a->lock);
    a->over = true;
    a->code = code;
    if (code < 0)
        a->e = *e;
    pthread_cond_signal(&a->cond);
    pthread_mutex_unlock(&a->lock);
}

static inline int answer_wait(struct answer *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->over)
        pthread_cond_wait(&a->cond, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return a->code;
}

static char last_words[600];

#define ANSWER(name)                                                          \
    struct answer name = {.lock = PTHREAD_MUTEX_INITIALIZER,                  \
                          .cond = PTHREAD_COND_INITIALIZER}

static inline int save(struct oid o, const char *path, const char *text)
{
    ANSWER(a);

    courier_doc_save(&rec.c, o, path, text, strlen(text), 0, answer_done, &a);
    answer_wait(&a);
    snprintf(last_words, sizeof(last_words), "%s", a.e.text);
    return a.code;
}

static inline int doc_rm(struct oid o, const char *path)
{
    ANSWER(a);

    courier_doc_remove(&rec.c, o, path, answer_done, &a);
    return answer_wait(&a);
}

static inline int doc_mv(struct oid o, const char *from, const char *to)
{
    ANSWER(a);

    courier_doc_rename(&rec.c, o, from, to, answer_done, &a);
    return answer_wait(&a);
}

static inline int doc_dir(struct oid o, const char *path)
{
    ANSWER(a);

    courier_doc_mkdir(&rec.c, o, path, answer_done, &a);
    return answer_wait(&a);
}

/* the whole of a document as the file system reads it; "?" if there is none */
static inline char *shown_doc(struct oid o, const char *path)
{
    struct buf b = {0};

    if (courier_doc_read(&rec.c, o, path, 0, 1 << 20, &b) < 0) {
        buf_free(&b);
        return xstrdup("?");
    }
    return buf_take(&b);
}

static inline void assert_doc(struct oid o, const char *path, const char *text)
{
    AUTO_FREE char *got = shown_doc(o, path);
    struct courier_doc st;

    assert_string_equal(got, text);
    assert_int_equal(courier_doc_stat(&rec.c, o, path, &st), 0);
    assert_int_equal(st.size, strlen(text));
}

static inline void assert_view(struct oid o, enum view v, const char *text)
{
    AUTO_BUF struct buf b = {0};

    assert_int_equal(courier_view(&rec.c, o, v, &b), 0);
    assert_string_equal(buf_str(&b), text);
}

#endif
