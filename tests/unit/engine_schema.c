/* The record's schema: what an older courier wrote is a newer one's, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/engine.h"

#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 32 };

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/courier-unit-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

static struct store *open_up_to(const char *name, int n)
{
    AUTO_FREE char *path = xasprintf("%s/%s", dir, name);
    const char *some[MOST + 1] = {NULL};
    struct store *s = NULL;
    struct err e;

    for (int i = 0; i < n; i++)
        some[i] = engine_migrations[i];
    if (store_open(path, some, NULL, NULL, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

static void end(struct store *s, const char *name)
{
    static const char *const part[] = {"", "-wal", "-shm"};

    store_close(s);
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        AUTO_FREE char *f = xasprintf("%s/%s%s", dir, name, part[i]);

        unlink(f);
    }
}

static int versions(void)
{
    int n = 0;

    while (engine_migrations[n])
        n++;
    assert_in_range(n, 1, MOST);
    return n;
}

/* every table with its columns, in the order of their names */
static char *shape(struct store *s)
{
    return db_text(store_reader(s),
                   "SELECT group_concat(w,char(10)) FROM (SELECT "
                   "t.name||'.'||c.name||' '||c.type||' '||c.\"notnull\"||"
                   "' '||coalesce(c.dflt_value,'') AS w FROM sqlite_master t,"
                   "pragma_table_info(t.name) c WHERE t.type='table' "
                   "ORDER BY t.name,c.name)",
                   "");
}

static int fill(struct tx *tx, void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    db_exec(tx->db, "INSERT INTO project(name,created) VALUES('web',1)", "");
    db_exec(tx->db,
            "INSERT INTO sandbox(project,name,status,created) "
            "VALUES(?,'one','draft',1)",
            "i", db_last_id(tx->db));
    return 0;
}

static void each_version_opens(void **state)
{
    int all = versions();
    struct store *fresh = open_up_to("fresh.db", all);
    AUTO_FREE char *want = shape(fresh);

    (void)state;
    assert_true(strlen(want) > 1000);
    end(fresh, "fresh.db");
    for (int n = 1; n <= all; n++) {
        struct store *s = open_up_to("old.db", n);
        AUTO_FREE char *got = NULL, *name = NULL;
        struct err e;

        assert_int_equal(store_do(s, fill, NULL, &e), 0);
        store_close(s);
        s = open_up_to("old.db", all);
        got = shape(s);
        assert_string_equal(got, want);
        assert_int_equal(db_int(store_reader(s), 0, "PRAGMA user_version", ""),
                         all);
        name = db_text(store_reader(s),
                       "SELECT s.name||' in '||p.name FROM sandbox s JOIN "
                       "project p ON p.id=s.project",
                       "");
        assert_string_equal(name, "one in web");
        end(s, "old.db");
    }
}

static void a_newer_one_is_refused(void **state)
{
    AUTO_FREE char *path = xasprintf("%s/new.db", dir);
    const char *some[MOST + 1] = {NULL};
    int all = versions();
    struct store *s;
    struct err e;
    int r;

    (void)state;
    memcpy(some, engine_migrations, (size_t)all * sizeof(*some));
    some[all] = "CREATE TABLE later(x);";
    assert_int_equal(store_open(path, some, NULL, NULL, &s, &e), 0);
    store_close(s);
    r = store_open(path, engine_migrations, NULL, NULL, &s, &e);
    assert_true(r < 0);
    assert_non_null(strstr(e.text, "newer"));
    end(NULL, "new.db");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_version_opens),
        cmocka_unit_test(a_newer_one_is_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
