/* The texts of the tree, and when they change. */
#include "engine_record.h"

#define LIVE                                                                  \
    "UPDATE sandbox SET status='running',agent='idle',tool='shell',"          \
    "model='m\tx',started=1000,running_at=2000,expires=3600000,usd=0.5,"      \
    "branch='courier/one',pr_url='http://x',pr_number=7,"                     \
    "reason='as asked'"

static void words(void **state)
{
    struct oid gone = oid(OBJ_SANDBOX, 999);
    AUTO_BUF struct buf b = {0};

    (void)state;
    assert_view(the_sandbox(), VIEW_STATUS, "draft\n");
    assert_view(the_sandbox(), VIEW_REASON, "");
    assert_view(the_sandbox(), VIEW_EXPIRES, "");
    assert_view(the_sandbox(), VIEW_PR_NUMBER, "");
    assert_view(the_sandbox(), VIEW_EXEC_LAST, "");
    assert_view(the_sandbox(), VIEW_RUN_LINK, "");
    record_sql(LIVE);
    assert_view(the_sandbox(), VIEW_STATUS, "running\n");
    assert_view(the_sandbox(), VIEW_EXPIRES, "1970-01-01T01:00:00Z\n");
    assert_view(the_sandbox(), VIEW_PR_NUMBER, "7\n");
    assert_int_equal(courier_view(&rec.c, gone, VIEW_STATUS, &b), -ENOENT);
    assert_int_equal(courier_view(&rec.c, gone, VIEW_INFO, &b), -ENOENT);
    assert_int_equal(courier_view_mtime(&rec.c, gone, VIEW_STATUS), -ENOENT);
    assert_int_equal(courier_view(&rec.c, root_oid(), VIEW_STATUS, &b),
                     -ENOENT);
    for (int v = 1; v < VIEWS; v++)
        assert_int_not_equal(courier_view_aspects((enum view)v), 0);
}

static void boards(void **state)
{
    static const char head[] = "project\tname\tstatus\tagent\ttool\tmodel\t"
                               "since\texpires\tcost\tbranch\tpr\tstep\n";
    AUTO_BUF struct buf b = {0};

    (void)state;
    assert_view(root_oid(), VIEW_ROOT_BOARD, head);
    record_sql(LIVE);
    buf_addf(&b,
             "%sweb\tone\trunning\tidle\tshell\tm\\tx\t1970-01-01T00:00:02Z\t"
             "1970-01-01T01:00:00Z\t0.5000\tcourier/one\thttp://x\t\n",
             head);
    assert_view(root_oid(), VIEW_ROOT_BOARD, b.p);
    assert_view(the_project(), VIEW_PROJECT_BOARD, b.p);
    record_sql("UPDATE sandbox SET trash='one'");
    assert_view(root_oid(), VIEW_ROOT_BOARD, head);
    /* and still all of it is there in the trash */
    assert_view(the_sandbox(), VIEW_STATUS, "running\n");
}

static void status(void **state)
{
    AUTO_BUF struct buf b = {0}, p = {0};

    (void)state;
    record_sql(LIVE);
    record_sql("UPDATE project SET active=1");
    assert_int_equal(courier_view(&rec.c, root_oid(), VIEW_ROOT_STATUS, &b),
                     0);
    assert_int_equal(strncmp(b.p, "version ", 8), 0);
    assert_non_null(strstr(b.p, "\nsandboxes draft 0, creating 0, running 1, "
                                "paused 0, killed 0, error 0\n"));
    assert_non_null(strstr(b.p, "\nlast_error\n"));
    assert_int_equal(
        courier_view(&rec.c, the_project(), VIEW_PROJECT_STATUS, &p), 0);
    assert_string_equal(p.p, "active 1\ndraft 0\ncreating 0\nrunning 1\n"
                             "paused 0\nkilled 0\nerror 0\nruns 0\n"
                             "cost_today 0.0000\ncost_month 0.0000\n"
                             "cost_total 0.0000\n");
}

static int two_errors(struct tx *tx, void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    tx_error(tx, rec.project, "projects/web/ctl", "no\tsuch\nverb");
    tx_error(tx, rec.project, "projects/web/ctl", "no\tsuch\nverb");
    return 0;
}

static void errors(void **state)
{
    AUTO_BUF struct buf b = {0};
    struct err e = {0};

    (void)state;
    assert_view(root_oid(), VIEW_ROOT_ERRORS, "");
    assert_int_equal(store_do(rec.c.store, two_errors, NULL, &e), 0);
    assert_int_equal(
        courier_view(&rec.c, the_project(), VIEW_PROJECT_ERRORS, &b), 0);
    assert_non_null(
        strstr(b.p, "Z\tprojects/web/ctl\tno\\tsuch\\nverb (2 times)\n"));
    /* a refused save is told as well */
    assert_int_equal(save(the_project(), "config", "nope = 1\n"), -EINVAL);
    record_sql("SELECT 1");
    buf_clear(&b);
    assert_int_equal(courier_view(&rec.c, root_oid(), VIEW_ROOT_ERRORS, &b),
                     0);
    assert_non_null(strstr(b.p, "\tprojects/web/config\tline 1: unknown key "
                                "'nope'\n"));
}

static void controls(void **state)
{
    static const struct {
        enum view v;
        struct oid o;
    } all[] = {{VIEW_ROOT_CTL, {OBJ_ROOT, 0}},
               {VIEW_SANDBOXES_CTL, {OBJ_PROJECT, 1}},
               {VIEW_CTL, {OBJ_SANDBOX, 1}}};

    (void)state;
    record_sql("INSERT INTO outcome(ctl,object,time,text) VALUES"
               "(4,1,1000,'error kill: it''s a draft')");
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        AUTO_BUF struct buf b = {0};

        assert_int_equal(courier_view(&rec.c, all[i].o, all[i].v, &b), 0);
        assert_true(b.n > 0);
        for (char *s = b.p; *s; s = strchr(s, '\n') + 1)
            assert_int_equal(*s, '#');
        if (all[i].v == VIEW_CTL)
            assert_non_null(strstr(b.p, "# 1970-01-01T00:00:01Z error kill: "
                                        "it's a draft\n#\n# "));
    }
}

static void info(void **state)
{
    AUTO_BUF struct buf b = {0};
    json_t *all, *j;
    int64_t before = courier_view_mtime(&rec.c, the_sandbox(), VIEW_INFO);

    (void)state;
    record_sql(LIVE);
    assert_int_equal(save(the_project(), "config", "cpu = 4\n"), 0);
    assert_true(courier_view_mtime(&rec.c, the_sandbox(), VIEW_INFO) > before);
    assert_int_equal(courier_view(&rec.c, the_sandbox(), VIEW_INFO, &b), 0);
    all = json_loads(b.p, 0, NULL);
    assert_non_null(all);
    assert_string_equal(json_string_value(json_object_get(all, "kind")),
                        "standalone");
    j = json_object_get(json_object_get(all, "config"), "cpu");
    assert_string_equal(json_string_value(json_object_get(j, "value")), "4");
    assert_string_equal(json_string_value(json_object_get(j, "from")),
                        "project");
    json_decref(all);
    assert_non_null(strstr(b.p, "\"provider_id\": null"));
}

static void times(void **state)
{
    int64_t at = courier_view_mtime(&rec.c, the_sandbox(), VIEW_STATUS);

    (void)state;
    assert_true(at > 0);
    assert_int_equal(save(the_sandbox(), "config", "cpu = 4\n"), 0);
    assert_int_equal(courier_view_mtime(&rec.c, the_sandbox(), VIEW_STATUS),
                     at);
    assert_true(courier_view_mtime(&rec.c, the_sandbox(), VIEW_INFO) > at);
}

static void runs(void **state)
{
    struct oid run = oid(OBJ_RUN, 1);

    (void)state;
    record_sql("INSERT INTO run(project,name,status,workflow,text,created) "
               "VALUES(1,'r','running','w','[step design]"
               "\n"
               "loop = l\n[step check]\nloop = l\n[step end]\n[loop l]\n"
               "max = 3\n',1)");
    assert_view(run, VIEW_RUN_PROGRESS, "step 0/3, running, 0 %\n");
    record_sql("INSERT INTO step(run,name,pos,round,role,status,created,"
               "started) VALUES(1,'02-check.2',1,2,'checker','running',1,"
               "1000)");
    assert_view(run, VIEW_RUN_PROGRESS, "step 2/3 checker, round 2/3, 33 %\n");
    record_sql("UPDATE step SET status='completed',ended=3000,prompt='p'");
    assert_view(run, VIEW_RUN_PROGRESS, "step 2/3 checker, round 2/3, 66 %\n");
    assert_view(oid(OBJ_STEP, 1), VIEW_STEP_PROMPT, "p\n");
    assert_view(oid(OBJ_STEP, 1), VIEW_STEP_SANDBOX, "");
    record_sql("UPDATE sandbox SET run=1,step=1");
    assert_view(the_sandbox(), VIEW_RUN_LINK, "r");
    {
        AUTO_BUF struct buf svg = {0}, json = {0};

        assert_int_equal(courier_view(&rec.c, run, VIEW_RUN_TIMELINE, &svg),
                         0);
        assert_non_null(strstr(svg.p, "02-check.2"));
        assert_int_equal(courier_view(&rec.c, run, VIEW_RUN_INFO, &json), 0);
        assert_non_null(strstr(json.p, "\"workflow\": \"w\""));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(words, record_open, record_close),
        cmocka_unit_test_setup_teardown(boards, record_open, record_close),
        cmocka_unit_test_setup_teardown(status, record_open, record_close),
        cmocka_unit_test_setup_teardown(errors, record_open, record_close),
        cmocka_unit_test_setup_teardown(controls, record_open, record_close),
        cmocka_unit_test_setup_teardown(info, record_open, record_close),
        cmocka_unit_test_setup_teardown(times, record_open, record_close),
        cmocka_unit_test_setup_teardown(runs, record_open, record_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
