/*
 * The queue: who may begin when, what a kill overtakes, what happens to a job
 * that fails. The jobs are real ones, on a record whose VMs are nowhere.
 */
#include "engine_record.h"

#include "engine/jobs.h"

static int64_t last_job;

struct want {
    const char *lane, *verb, *args;
    int64_t sandbox;
};

static int add_fn(struct tx *tx, void *arg, struct err *e)
{
    struct want *w = arg;

    (void)e;
    last_job = tx_job(tx, &rec.c, w->sandbox, 0, w->lane, w->verb, w->args);
    return 0;
}

static int64_t add(const char *lane, const char *verb, const char *args)
{
    struct want w = {lane, verb, args, rec.sandbox};

    assert_int_equal(store_do(rec.c.store, add_fn, &w, NULL), 0);
    return last_job;
}

static bool there(int64_t job)
{
    return db_int(reader(), 0, "SELECT 1 FROM job WHERE id=?", "i", job) != 0;
}

static bool goes(int64_t job)
{
    for (int i = 0; i < 400 && there(job); i++)
        sleep_ms(5);
    return !there(job);
}

static void set(const char *status)
{
    AUTO_FREE char *sql = xasprintf(
        "UPDATE sandbox SET status='%s',backend='local',tool='shell',"
        "vm=CASE WHEN '%s' IN('running','paused') THEN 'vm1' END",
        status, status);

    record_sql(sql);
}

static int setup(void **state)
{
    struct err e;

    record_open(state);
    rec.c.instance = (char *)"abc";
    rec.c.self_dir = (char *)"/nowhere";
    pthread_cond_init(&rec.c.wake, NULL);
    assert_int_equal(endpoints_open(&rec.c, &e), 0);
    return 0;
}

static int teardown(void **state)
{
    jobs_stop(&rec.c);
    endpoints_close(&rec.c);
    pthread_cond_destroy(&rec.c.wake);
    return record_close(state);
}

static void open_jobs(void)
{
    struct err e;

    assert_int_equal(jobs_open(&rec.c, &e), 0);
}

/* what was queued before a start is done after it */
static void resumed_at_start(void **state)
{
    int64_t j;

    (void)state;
    set("killed");
    j = add("control", "timeout", "1");
    sleep_ms(20);
    assert_true(there(j));
    open_jobs();
    assert_true(goes(j));
}

static void work_waits(void **state)
{
    int64_t turn;

    (void)state;
    open_jobs();
    set("paused");
    turn = add("work", "turn", "77");
    sleep_ms(60);
    assert_true(there(turn)); /* the VM is paused */
    set("running");
    jobs_kick(&rec.c);
    assert_true(goes(turn)); /* there is no such message */
}

static void control_keeps_work_back(void **state)
{
    int64_t kept, work;

    (void)state;
    set("running");
    /* one that isn't due: it keeps its lane, and work waits for it */
    kept = add("control", "timeout", "1");
    record_sql("UPDATE job SET not_before=9999999999999");
    work = add("work", "turn", "77");
    open_jobs();
    sleep_ms(60);
    assert_true(there(kept));
    assert_true(there(work));
    record_sql("DELETE FROM job WHERE verb='timeout'");
    jobs_kick(&rec.c);
    assert_true(goes(work));
}

static void kill_overtakes(void **state)
{
    AUTO_FREE char *status = NULL, *reason = NULL;
    int64_t kept, end;

    (void)state;
    set("creating");
    kept = add("control", "start", "");
    record_sql("UPDATE job SET not_before=9999999999999");
    end = add("control", "kill", "{\"reason\":\"killed by user\"}");
    open_jobs();
    assert_true(goes(end));
    assert_false(there(kept));
    status = db_text(reader(), "SELECT status FROM sandbox WHERE id=?", "i",
                     rec.sandbox);
    reason = db_text(reader(), "SELECT reason FROM sandbox WHERE id=?", "i",
                     rec.sandbox);
    assert_string_equal(status, "killed");
    assert_string_equal(reason, "killed by user");
}

static void unknown_verb(void **state)
{
    AUTO_FREE char *error = NULL;
    int64_t j;

    (void)state;
    open_jobs();
    set("running");
    j = add("side", "juggle", "");
    assert_true(goes(j));
    error = db_text(reader(), "SELECT error FROM sandbox WHERE id=?", "i",
                    rec.sandbox);
    assert_string_equal(error, "juggle can't be done by this version");
}

/* no VM can be had: the start says why, and is tried again or given up */
static void start_without_host(void **state)
{
    AUTO_FREE char *status = NULL, *error = NULL;
    int64_t j;

    (void)state;
    setenv("PATH", "/nowhere", 1);
    set("creating");
    open_jobs();
    j = add("control", "start", "");
    assert_true(goes(j));
    status = db_text(reader(), "SELECT status FROM sandbox WHERE id=?", "i",
                     rec.sandbox);
    error = db_text(reader(), "SELECT error FROM sandbox WHERE id=?", "i",
                    rec.sandbox);
    assert_string_equal(status, "error");
    assert_non_null(strstr(error, "courier-sandboxd"));
}

static void backs_off(void **state)
{
    int64_t j;

    (void)state;
    open_jobs();
    set("running"); /* its VM is on a host that doesn't run */
    j = add("work", "exec", "5");
    record_sql("INSERT INTO exec(id,sandbox,n,cmd,status,created) "
               "VALUES(5,1,1,'true','queued',1)");
    jobs_kick(&rec.c);
    for (int i = 0; i < 400; i++) {
        if (db_int(reader(), 0, "SELECT attempt FROM job WHERE id=?", "i", j))
            break;
        sleep_ms(5);
    }
    assert_true(there(j));
    assert_true(db_int(reader(), 0, "SELECT not_before FROM job WHERE id=?",
                       "i", j) > now_ms() - 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(resumed_at_start, setup, teardown),
        cmocka_unit_test_setup_teardown(work_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(control_keeps_work_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(kill_overtakes, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_verb, setup, teardown),
        cmocka_unit_test_setup_teardown(start_without_host, setup, teardown),
        cmocka_unit_test_setup_teardown(backs_off, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
