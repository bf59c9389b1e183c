/*
 * Thousands of random commands against a real store, with nobody behind it
 * but a player who does what jobs would do, or lets them fail. After each:
 * a project's `active` is the number of its running sandboxes, and what has
 * ended has nothing left to do. The same with a process that is killed in
 * the middle, again and again.
 */
#include "engine_record.h"

#include "engine/command.h"
#include "engine/jobs.h"
#include "engine/vm.h"

#include <signal.h>
#include <sys/wait.h>

enum { COMMANDS = 1500, CRASHES = 8, NAMES = 6 };

static uint32_t dice_state = 1;
static int accepted, most_active; /* so that it can't be about nothing */

static uint32_t dice(uint32_t n)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 17;
    dice_state ^= dice_state << 5;
    return dice_state % n;
}

static const char *name(void)
{
    static const char *const names[NAMES] = {"a", "b", "c", "d", "e", "a.2"};

    return names[dice(NAMES)];
}

/* ---- what must always be so ---- */

static void assert_none(struct db *d, const char *what, const char *sql)
{
    AUTO_FREE char *got = db_text(d, sql, "");

    if (got)
        fail_msg("%s: %s", what, got);
}

static void check(void)
{
    struct db *d = reader();
    int active;

    assert_none(d, "active is another than counted",
                "SELECT p.name||': '||p.active||', '||(SELECT count(*) FROM "
                "sandbox s WHERE s.project=p.id AND s.status='running' AND "
                "s.trash IS NULL) FROM project p WHERE p.active<>(SELECT "
                "count(*) FROM sandbox s WHERE s.project=p.id AND "
                "s.status='running' AND s.trash IS NULL)");
    active = (int)db_int(d, 0, "SELECT max(active) FROM project", "");
    most_active = active > most_active ? active : most_active;
    assert_none(d, "one that has ended has messages queued",
                "SELECT s.name FROM sandbox s JOIN message m ON "
                "m.sandbox=s.id WHERE s.status IN('killed','error') AND "
                "m.state IN('queued','working')");
    assert_none(d, "one that has ended has work",
                "SELECT s.name||' '||j.verb FROM sandbox s JOIN job j ON "
                "j.sandbox=s.id WHERE s.status IN('killed','error') AND "
                "j.lane='work'");
    assert_none(d, "a job of nobody",
                "SELECT verb FROM job j WHERE sandbox<>0 AND NOT "
                "EXISTS(SELECT 1 FROM sandbox s WHERE s.id=j.sandbox)");
    assert_none(d, "a draft with a VM or work",
                "SELECT s.name FROM sandbox s WHERE s.status='draft' AND "
                "(s.vm IS NOT NULL OR EXISTS(SELECT 1 FROM job j WHERE "
                "j.sandbox=s.id))");
    assert_none(d, "a running one in the trash",
                "SELECT name FROM sandbox WHERE trash IS NOT NULL AND status "
                "IN('creating','running')");
    assert_none(d, "a creating one without a start",
                "SELECT s.name FROM sandbox s WHERE s.status='creating' AND "
                "NOT EXISTS(SELECT 1 FROM job j WHERE j.sandbox=s.id AND "
                "j.verb IN('start','kill'))");
    assert_none(d, "two of one name",
                "SELECT name FROM sandbox WHERE trash IS NULL GROUP BY "
                "project,name HAVING count(*)>1");
    assert_none(d, "two of one name in the trash",
                "SELECT trash FROM sandbox WHERE trash IS NOT NULL GROUP BY "
                "project,trash HAVING count(*)>1");
    db_clear(d);
}

/* ---- commands ---- */

static void command(struct oid o, enum ctl which, const char *line)
{
    ANSWER(a);

    courier_command(&rec.c, o, which, line, strlen(line), NULL, answer_done,
                    &a);
    answer_wait(&a);
    switch (-a.code) {
    case 0:
    case EBUSY:
    case ENOENT:
    case EEXIST:
    case EINVAL:
    case EPERM:
        break;
    default:
        fail_msg("%s: %d %s", line, a.code, a.e.text);
    }
    if (a.code)
        assert_true(a.e.text[0]);
    else
        accepted++;
}

static bool find(const char *n, struct oid *o)
{
    return courier_find(&rec.c, LIST_SANDBOXES, the_project(), n, o) == 0 ||
           courier_find(&rec.c, LIST_TRASH, the_project(), n, o) == 0;
}

static void sandbox_command(void)
{
    static const char *const lines[] = {
        "start",
        "message echo hi",
        "message id=t echo once",
        "interrupt",
        "interrupt all",
        "pause",
        "resume",
        "timeout 10m",
        "kill",
        "kill now",
        "learn",
        "exec true",
        "delete",
        "restore",
        "purge",
        "purge now",
        "push",
        "nonsense",
        "timeout 9h",
        "delete",
        "start",
    };
    struct oid o;

    if (find(name(), &o))
        command(o, CTL_SANDBOX, lines[dice(ARRAY_LEN(lines))]);
}

static void project_command(void)
{
    static const char *const verbs[] = {
        "create", "create", "create", "start",   "kill",
        "pause",  "resume", "delete", "restore", "purge"};
    const char *verb = verbs[dice(ARRAY_LEN(verbs))];
    AUTO_FREE char *line = NULL;

    if (!strcmp(verb, "create"))
        line = xasprintf("create %s tool=shell%s", name(),
                         dice(2) ? " prompt='echo 1'" : "");
    else
        line = xasprintf("%s %s %s", verb, name(), name());
    command(the_project(), CTL_SANDBOXES, dice(60) ? line : "killall");
}

static void name_operation(void)
{
    struct oid o;
    ANSWER(a);

    if (dice(2)) {
        courier_mkdir(&rec.c, LIST_SANDBOXES, the_project(), name(),
                      answer_done, &a);
    } else if (!find(name(), &o)) {
        return;
    } else {
        struct oid owner;
        enum list l;
        AUTO_FREE char *at = NULL;

        assert_int_equal(courier_where(&rec.c, o, &l, &owner, &at), 0);
        if (dice(2))
            courier_rmdir(&rec.c, l, o, answer_done, &a);
        else
            courier_rename(&rec.c, o, l, dice(2) ? LIST_TRASH : LIST_SANDBOXES,
                           owner, name(), answer_done, &a);
    }
    answer_wait(&a);
}

static void body(void)
{
    struct oid o;
    int64_t id = 0;
    ANSWER(a);
    ANSWER(b);
    ANSWER(c);
    bool make = dice(2);
    AUTO_FREE char *line = make ? xasprintf("create %s tool=shell <<", name())
                                : xstrdup("message <<");

    if (make)
        o = the_project();
    else if (!find(name(), &o))
        return;
    courier_body_begin(&rec.c, o, make ? CTL_SANDBOXES : CTL_SANDBOX, line,
                       strlen(line), &id, answer_done, &a);
    if (answer_wait(&a) || !dice(4))
        return; /* its writer has died; the next start clears it */
    if (dice(8)) {
        courier_body_put(&rec.c, id, "echo", 4, answer_done, &b);
        answer_wait(&b);
    }
    if (dice(3))
        sandbox_command();
    courier_body_end(&rec.c, id, !dice(5), answer_done, &c);
    answer_wait(&c);
}

/* ---- the player of jobs ---- */

static void play_start(struct tx *tx, int64_t sandbox)
{
    AUTO_FREE char *st =
        db_text(tx->db, "SELECT status FROM sandbox WHERE id=?", "i", sandbox);

    if (strcmp(st, "creating"))
        return;
    if (dice(6)) {
        db_exec(tx->db, "UPDATE sandbox SET vm='vm',expires=1 WHERE id=?", "i",
                sandbox);
        tx_status(tx, sandbox, "running", "started");
    } else {
        tx_status(tx, sandbox, "error", "no room");
    }
}

static void play(struct tx *tx, int64_t job, int64_t sandbox, const char *verb)
{
    AUTO_FREE char *st =
        db_text(tx->db, "SELECT status FROM sandbox WHERE id=?", "i", sandbox);

    if (st && !strcmp(verb, "start"))
        play_start(tx, sandbox);
    else if (st && !strcmp(verb, "pause") && !strcmp(st, "running"))
        tx_vm_paused(tx, &rec.c, sandbox, "vm", "paused by user");
    else if (st && !strcmp(verb, "resume") && !strcmp(st, "paused"))
        tx_status(tx, sandbox, "running", "resumed");
    else if (st && !strcmp(verb, "kill") && strcmp(st, "error"))
        tx_status(tx, sandbox, "killed", "killed by user");
    else if (st && !strcmp(verb, "turn"))
        db_exec(
            tx->db,
            "UPDATE message SET state='completed' WHERE id=(SELECT min(id) "
            "FROM message WHERE sandbox=? AND state='queued')",
            "i", sandbox);
    else if (st && !strcmp(verb, "purge")) {
        tx_status(tx, sandbox, "killed", "purged");
        tx_purge_row(tx, oid(OBJ_SANDBOX, sandbox));
    }
    tx_job_end(tx, &rec.c, job);
}

static int play_one(struct tx *tx, void *arg, struct err *e)
{
    AUTO_FREE char *verb = NULL;
    int64_t job, sandbox;
    sqlite3_stmt *q = db_query(
        tx->db,
        "SELECT id,sandbox,verb FROM job j WHERE lane='side' OR NOT "
        "EXISTS(SELECT 1 FROM job k WHERE k.sandbox=j.sandbox AND "
        "k.lane='control' AND (k.id<j.id OR j.lane='work')) AND (lane<>'work' "
        "OR (SELECT status FROM sandbox s WHERE s.id=j.sandbox)='running') "
        "ORDER BY id",
        "");

    (void)arg;
    (void)e;
    if (!db_row(tx->db, q))
        return 0;
    job = col_int(q, 0);
    sandbox = col_int(q, 1);
    verb = col_dup(q, 2);
    db_done(q);
    play(tx, job, sandbox, verb);
    return 0;
}

/* the VM went away by itself */
static int lose_one(struct tx *tx, void *arg, struct err *e)
{
    int64_t id = db_int(tx->db, 0,
                        "SELECT id FROM sandbox WHERE status='running' OR "
                        "status='paused' LIMIT 1",
                        "");

    (void)arg;
    (void)e;
    if (id)
        tx_vm_gone(tx, &rec.c, id, "vm", "it is gone");
    return 0;
}

static void step(void)
{
    struct err e;

    switch (dice(12)) {
    case 0:
    case 1:
    case 2:
        sandbox_command();
        break;
    case 3:
    case 4:
        project_command();
        break;
    case 5:
        name_operation();
        break;
    case 6:
        body();
        break;
    case 7:
        if (!dice(10))
            assert_int_equal(store_do(rec.c.store, lose_one, NULL, &e), 0);
        break;
    default:
        assert_int_equal(store_do(rec.c.store, play_one, NULL, &e), 0);
    }
}

static void commands(void **state)
{
    (void)state;
    dice_state = 20261129;
    for (int i = 0; i < COMMANDS; i++) {
        step();
        check();
    }
    assert_true(accepted > COMMANDS / 10);
    assert_true(most_active > 1);
}

/* ---- the same, killed ---- */

static void reopen(void)
{
    AUTO_FREE char *db = xasprintf("%s/courier.db", rec.dir);
    struct err e;

    assert_int_equal(
        store_open(db, engine_migrations, NULL, NULL, &rec.c.store, &e), 0);
}

static void crashes(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < CRASHES; k++) {
        int status;
        pid_t child;

        store_close(rec.c.store);
        rec.c.store = NULL;
        dice_state = 7 + k * 7919;
        child = fork();
        assert_true(child >= 0);
        if (!child) {
            reopen();
            for (;;)
                step();
        }
        sleep_ms(20 + (int)dice(120));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        reopen();
        bodies_resume(&rec.c);
        check();
        for (int i = 0; i < 20; i++) {
            step();
            check();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(commands, record_open, record_close),
        cmocka_unit_test_setup_teardown(crashes, record_open, record_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
