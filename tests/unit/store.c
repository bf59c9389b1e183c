/* The store: transactions, savepoints, change times, streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "store/store.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *const tables[] = {
    "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT UNIQUE);", NULL};

static char dir[64], path[96];
static struct courier_change seen[64];
static size_t n_seen;

static void changed(void *ctx, const struct courier_change *c, size_t n)
{
    (void)ctx;
    for (size_t i = 0; i < n && n_seen < ARRAY_LEN(seen); i++)
        seen[n_seen++] = c[i];
}

static int setup(void **state)
{
    static struct store *s;
    struct err e;

    snprintf(dir, sizeof(dir), "/var/tmp/courier-unit.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/t.db", dir);
    n_seen = 0;
    if (store_open(path, tables, changed, NULL, &s, &e) < 0)
        fail_msg("%s", e.text);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    static const char *const end[] = {"", "-wal", "-shm"};
    char f[128];

    store_close(*state);
    for (size_t i = 0; i < ARRAY_LEN(end); i++) {
        snprintf(f, sizeof(f), "%s%s", path, end[i]);
        unlink(f);
    }
    return rmdir(dir);
}

static int insert(struct tx *tx, void *arg, struct err *e)
{
    (void)e;
    db_exec(tx->db, "INSERT INTO t(v) VALUES(?)", "s", (const char *)arg);
    tx_changed(tx, (struct oid){OBJ_PROJECT, 7}, ASPECT_STATUS);
    return 0;
}

static int insert_then_refuse(struct tx *tx, void *arg, struct err *e)
{
    insert(tx, arg, e);
    return err_set(e, EBUSY, "no");
}

static int insert_inner(struct tx *tx, void *arg, struct err *e)
{
    size_t mark = tx_mark(tx);

    (void)e;
    insert(tx, arg, e);
    tx_undo(tx, mark);
    db_exec(tx->db, "INSERT INTO t(v) VALUES('outer')", "");
    return 0;
}

static int64_t count(struct store *s)
{
    return db_int(store_reader(s), -1, "SELECT count(*) FROM t", "");
}

static void test_commit_and_refusal(void **state)
{
    struct store *s = *state;
    char a[] = "a", b[] = "b";
    struct err e;

    assert_int_equal(store_do(s, insert, a, &e), 0);
    assert_int_equal(count(s), 1);
    assert_int_equal(n_seen, 1);
    assert_int_equal(store_do(s, insert_then_refuse, b, &e), -EBUSY);
    assert_string_equal(e.text, "no");
    assert_int_equal(count(s), 1);
    assert_int_equal(n_seen, 1); /* nothing changed, nothing told */
    /* a constraint that fails is a refusal too */
    assert_true(store_do(s, insert, a, &e) < 0);
    assert_int_equal(count(s), 1);
    assert_int_equal(store_do(s, insert, b, &e), 0);
    assert_int_equal(count(s), 2);
}

static void test_savepoint(void **state)
{
    struct store *s = *state;
    char a[] = "a";
    struct err e;

    assert_int_equal(store_do(s, insert_inner, a, &e), 0);
    assert_int_equal(count(s), 1);
    assert_int_equal(n_seen, 0);
}

static void test_times_grow(void **state)
{
    struct store *s = *state;
    struct oid o = {OBJ_PROJECT, 7};
    int64_t last = 0;
    char v[2] = "0";
    struct err e;

    for (int i = 0; i < 50; i++) {
        int64_t t;

        v[0] = (char)('A' + i);
        assert_int_equal(store_do(s, insert, v, &e), 0);
        t = store_mtime(store_reader(s), o, ASPECT_STATUS);
        assert_true(t > last);
        last = t;
    }
    assert_int_equal(store_mtime(store_reader(s), o, ASPECT_LOG), 0);
}

struct piece {
    const char *p;
    size_t n;
};

static int add(struct tx *tx, void *arg, struct err *e)
{
    struct piece *p = arg;

    (void)e;
    tx_stream_add(tx, (struct oid){OBJ_SANDBOX, 1}, STREAM_LOG, p->p, p->n,
                  ASPECT_LOG);
    return 0;
}

static void test_streams(void **state)
{
    struct store *s = *state;
    struct oid o = {OBJ_SANDBOX, 1};
    AUTO_BUF struct buf all = {0}, got = {0};
    unsigned seed = 1;
    struct err e;

    for (int i = 0; i < 300; i++) {
        char part[997];
        struct piece p = {part, (size_t)(seed % sizeof(part))};

        for (size_t k = 0; k < p.n; k++)
            part[k] = (char)(seed + k * 31); /* NULs and all */
        buf_add(&all, part, p.n);
        assert_int_equal(store_do(s, add, &p, &e), 0);
        seed = seed * 1103515245u + 12345u;
    }
    assert_int_equal(store_stream_size(store_reader(s), o, STREAM_LOG), all.n);
    for (size_t off = 0; off < all.n + 10; off += 4999) {
        size_t want = off >= all.n ? 0 : all.n - off;

        if (want > 20000)
            want = 20000;
        buf_clear(&got);
        assert_int_equal(store_stream_read(store_reader(s), o, STREAM_LOG,
                                           (int64_t)off, 20000, &got),
                         0);
        assert_int_equal(got.n, want);
        if (want)
            assert_memory_equal(got.p, all.p + off, want);
    }
}

static void test_newer_version(void **state)
{
    struct store *s = *state, *again;
    static const char *const none[] = {NULL};
    struct err e;

    store_close(s);
    assert_int_equal(store_open(path, none, NULL, NULL, &again, &e), -EPROTO);
    assert_non_null(strstr(e.text, "newer version"));
    assert_int_equal(store_open(path, tables, NULL, NULL, &again, &e), 0);
    *state = again;
}

/* a statement is known by what it says, not by where that stands; and may be
 * begun again while it is in use further up */
static void test_statements(void **state)
{
    struct db *d = store_reader(*state);
    char sql[64];
    int rows = 0;

    for (int i = 0; i < 3000; i++) {
        snprintf(sql, sizeof(sql), "SELECT %d", i % 700);
        assert_int_equal(db_int(d, -1, sql, ""), i % 700);
    }
    for (int i = 0; i < 3; i++) {
        sqlite3_stmt *q = db_query(d, "SELECT 1 UNION SELECT 2", "");

        while (db_row(d, q)) {
            assert_int_equal(db_int(d, -1, "SELECT 1 UNION SELECT 2", ""), 1);
            rows++;
        }
    }
    assert_int_equal(rows, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commit_and_refusal, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_savepoint, setup, teardown),
        cmocka_unit_test_setup_teardown(test_times_grow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_streams, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_statements, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
