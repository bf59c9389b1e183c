/*
 * The job of a run: looks at what came of its sandboxes, and decides.
 */
#include "engine/rundrive.h"

#include "engine/command.h"
#include "engine/config.h"
#include "engine/jobs.h"

/* what comes is told; this is for what was not */
enum { LOOK_MS = 20000 };

void step_set(struct drive *d, const char *status, const char *reason)
{
    AUTO_FREE char *name = NULL;
    int64_t id = num(d, "step");

    if (!id)
        return;
    db_exec(d->tx->db,
            "UPDATE step SET status=?1,reason=?2,ended=CASE ?1 WHEN 'running' "
            "THEN 0 ELSE ?3 END WHERE id=?4",
            "ssii", status, reason ? reason : "", d->tx->now_ms, id);
    name = db_text(d->tx->db, "SELECT name FROM step WHERE id=?", "i", id);
    tx_event(d->tx, d->r->project, oid(OBJ_RUN, d->r->id), "step",
             json_pack("{s:s?,s:s,s:s}", "step", name, "to", status, "reason",
                       reason ? reason : ""));
    tx_changed(d->tx, oid(OBJ_STEP, id), ASPECT_STATUS);
    tx_run_touch(d->tx, d->r->id, ASPECT_STATUS | ASPECT_NAMES);
}

/* ---- ends ---- */

bool vm_lives(struct drive *d, int64_t vm)
{
    return vm && db_int(d->tx->db, 0,
                        "SELECT status IN('creating','running','paused') AND "
                        "trash IS NULL FROM sandbox WHERE id=?",
                        "i", vm);
}

void end_vm(struct drive *d, const char *reason, const char *then)
{
    int64_t vm = num(d, "vm");

    put_word(d, "then", then);
    phase(d, "ending");
    if (vm_lives(d, vm))
        tx_kill(d->tx, d->c, vm, reason, false);
}

void drive_fail(struct drive *d, const char *reason)
{
    AUTO_FREE char *step = db_text(
        d->tx->db, "SELECT name FROM step WHERE id=?", "i", num(d, "step"));
    AUTO_FREE char *why =
        step ? xasprintf("step %s: %s", step, reason) : xstrdup(reason);

    step_set(d, "failed", reason);
    put_word(d, "why", why);
    end_vm(d, "run failed", "fail");
}

/* ---- turn ---- */

/* was it ended by somebody, rather than by time or by itself? */
static bool ended_by_hand(struct drive *d, int64_t vm)
{
    return db_int(d->tx->db, 1,
                  "SELECT trash IS NOT NULL OR status='killed' AND reason NOT "
                  "LIKE 'timeout%' AND reason NOT LIKE 'shutdown%' FROM "
                  "sandbox WHERE id=?",
                  "i", vm);
}

/* the sandbox ended under the step: once more from the last push, then not */
static void vm_died(struct drive *d)
{
    int64_t vm = num(d, "vm"), tries = num(d, "tries");
    AUTO_FREE char *why = db_text(
        d->tx->db,
        "SELECT CASE WHEN trash IS NOT NULL THEN 'it was deleted' WHEN "
        "error<>'' AND status='error' THEN error ELSE reason END FROM sandbox "
        "WHERE id=?",
        "i", vm);
    AUTO_FREE char *text =
        xasprintf("its sandbox ended: %.300s", why ? why : "it is gone");
    bool by_hand = ended_by_hand(d, vm);

    if (vm)
        put(d, "lastvm", vm);
    put(d, "vm", 0);
    if (tries > 0 || by_hand) {
        drive_fail(d, text);
        return;
    }
    put(d, "tries", why && !strncmp(why, "shutdown", 8) ? 0 : tries + 1);
    put(d, "again", 1);
    db_exec(d->tx->db, "UPDATE step SET attempt=attempt+1 WHERE id=?", "i",
            num(d, "step"));
    step_set(d, "running", text);
    phase(d, "begin");
}

/* somebody or a budget paused its sandbox: the run stands still, too */
static void stands_still(struct drive *d)
{
    AUTO_FREE char *why = db_text(
        d->tx->db,
        "SELECT reason FROM sandbox s WHERE id=? AND status='paused' AND NOT "
        "EXISTS(SELECT 1 FROM job WHERE sandbox=s.id AND verb='resume')",
        "i", num(d, "vm"));

    if (why && strcmp(d->r->status, "paused"))
        tx_run_status(d->tx, d->r->id, "paused", why);
}

static bool being_ended(struct drive *d)
{
    return db_int(d->tx->db, 0, "SELECT ending<>'' FROM sandbox WHERE id=?",
                  "i", num(d, "vm"));
}

/* true: there is something new to look at */
static bool turn(struct drive *d)
{
    sqlite3_stmt *q = db_query(
        d->tx->db, "SELECT state,result,error FROM message WHERE id=?", "i",
        num(d, "msg"));
    AUTO_FREE char *state = NULL, *result = NULL, *error = NULL;

    if (!db_row(d->tx->db, q)) {
        vm_died(d);
        return true;
    }
    state = xstrdup(col_text(q, 0));
    result = xstrdup(col_text(q, 1));
    error = xstrdup(col_text(q, 2));
    db_done(q);
    if (!strcmp(state, "completed")) {
        step_answered(d, result, NULL);
        return true;
    }
    if (!vm_lives(d, num(d, "vm"))) {
        vm_died(d);
        return true;
    }
    if (being_ended(d))
        return false; /* why comes with its end */
    if (!strcmp(state, "failed")) {
        if (exit_judges(d) && !strncmp(error, "exited ", 7))
            step_answered(d, result, error);
        else
            drive_fail(d, *error ? error : "the agent failed");
        return true;
    }
    stands_still(d);
    return false;
}

/* ---- the end ---- */

static void run_ends(struct drive *d, const char *status, const char *why)
{
    tx_run_status(d->tx, d->r->id, status, why);
    d->over = true;
    tell_group(d);
}

/* what its sandbox found out about the repository */
static void learn_names(struct drive *d, int64_t vm)
{
    db_exec(d->tx->db,
            "UPDATE run SET base=(SELECT base FROM sandbox WHERE id=?) WHERE "
            "id=? AND base=''",
            "ii", vm, d->r->id);
}

static bool ending(struct drive *d)
{
    int64_t vm = num(d, "vm");

    if (vm_lives(d, vm)) {
        struct sandbox s;

        /* an end that was refused or lost is asked for again */
        if (sandbox_get(d->tx->db, vm, &s) == 0) {
            if (!*s.ending)
                tx_kill(d->tx, d->c, s.id, "run ended", false);
            sandbox_clear(&s);
        }
        return false;
    }
    if (vm) {
        put(d, "lastvm", vm);
        learn_names(d, vm);
    }
    put(d, "vm", 0);
    if (!strcmp(word(d, "then"), "fail")) {
        run_ends(d, "failed", word(d, "why"));
    } else if (!strcmp(word(d, "then"), "cancel")) {
        step_set(d, "cancelled", word(d, "why"));
        run_ends(d, "cancelled", word(d, "why"));
    } else {
        phase(d, word(d, "then"));
    }
    return true;
}

/* the run's own setting counts: its sandboxes have pr = off */
static bool pr_wanted(struct drive *d, const struct sandbox *s)
{
    AUTO_FREE char *repo = config_value(d->tx->db, s, "repo", NULL);
    AUTO_FREE char *pr = run_pr_setting(d->tx->db, d->r->id);

    return repo && *repo && strcmp(pr, "off");
}

static void pr_state(struct drive *d, int64_t vm, const char *status,
                     const char *reason)
{
    db_exec(d->tx->db, "UPDATE sandbox SET pr_status=?,pr_reason=? WHERE id=?",
            "ssi", status, reason, vm);
    db_exec(d->tx->db, "UPDATE run SET pr_status=?,pr_reason=? WHERE id=?",
            "ssi", status, reason, d->r->id);
    tx_run_touch(d->tx, d->r->id, ASPECT_PR);
}

static void finish(struct drive *d)
{
    int64_t vm = num(d, "vm") ? num(d, "vm") : num(d, "lastvm");
    const char *choice = word(d, "choice");
    struct sandbox s;

    if (vm_lives(d, num(d, "vm"))) {
        end_vm(d, "run completed", "finish");
        return;
    }
    phase(d, "pr");
    if (!vm || sandbox_get(d->tx->db, vm, &s) < 0)
        return;
    if (!pr_wanted(d, &s)) {
        sandbox_clear(&s);
        return;
    }
    sandbox_clear(&s);
    if (*choice && *d->r->grp && strcmp(choice, d->r->name)) {
        AUTO_FREE char *why = xasprintf("the judge chose %s", choice);

        pr_state(d, vm, "skipped", why);
        return;
    }
    pr_state(d, vm, "creating", "");
    tx_job(d->tx, d->c, vm, 0, "side", "pr", "");
    put(d, "prvm", vm);
}

static bool pr(struct drive *d)
{
    int64_t vm = num(d, "prvm");
    AUTO_FREE char *why = NULL;

    if (vm) {
        AUTO_FREE char *st = db_text(
            d->tx->db, "SELECT pr_status FROM sandbox WHERE id=?", "i", vm);

        if (st && !strcmp(st, "creating"))
            return false;
        db_exec(d->tx->db,
                "UPDATE run SET (pr_url,pr_number,pr_status,pr_title,"
                "pr_reason)=(SELECT pr_url,pr_number,pr_status,pr_title,"
                "pr_reason FROM sandbox WHERE id=?) WHERE id=?",
                "ii", vm, d->r->id);
        tx_run_touch(d->tx, d->r->id, ASPECT_PR);
    }
    if (*word(d, "choice"))
        why = xasprintf("all steps completed; the judge chose %s",
                        word(d, "choice"));
    run_ends(d, "completed", why ? why : "all steps completed");
    return true;
}

/* ---- control ---- */

static void wanted(struct drive *d, const char *status, const char *reason)
{
    db_exec(d->tx->db, "UPDATE run SET want='' WHERE id=?", "i", d->r->id);
    tx_run_status(d->tx, d->r->id, status, reason);
    free(d->r->status);
    d->r->status = xstrdup(status);
    *d->r->want = 0;
}

static bool is_status(struct drive *d, int64_t vm, const char *status)
{
    return db_int(d->tx->db, 0, "SELECT status=? FROM sandbox WHERE id=?",
                  "si", status, vm);
}

/* the VM first, then the run; one that is being made or ended, later */
static void pause_run(struct drive *d)
{
    int64_t vm = num(d, "vm");

    if (is_status(d, vm, "running") && !being_ended(d))
        tx_pause(d->tx, d->c, vm, "run paused");
    if (!vm_lives(d, vm) || is_status(d, vm, "paused"))
        wanted(d, "paused", "paused by user");
}

static void wake_vm(struct drive *d)
{
    int64_t vm = num(d, "vm");

    if (vm_lives(d, vm) && !job_there(d->tx->db, vm, "control", "resume"))
        tx_job(d->tx, d->c, vm, 0, "control", "resume", "");
}

static void end_by_user(struct drive *d, const char *why, const char *reason)
{
    if (!strcmp(word(d, "then"), "cancel") &&
        !strcmp(word(d, "phase"), "ending"))
        return; /* it is under way */
    if (strcmp(word(d, "phase"), "turn") && !num(d, "again"))
        put(d, "step", 0); /* the last one is done */
    put_word(d, "why", why);
    end_vm(d, reason, "cancel");
    if (!strcmp(d->r->status, "paused") || !strcmp(d->r->status, "pending")) {
        tx_run_status(d->tx, d->r->id, "running", "being cancelled");
        free(d->r->status);
        d->r->status = xstrdup("running");
    }
}

/* paused, and its sandbox was woken by its own ctl: it goes on */
static bool woken(struct drive *d)
{
    return !strcmp(word(d, "phase"), "turn") &&
           is_status(d, num(d, "vm"), "running") && !being_ended(d) &&
           !job_there(d->tx->db, num(d, "vm"), "control", "pause");
}

/* what was wanted comes first; false: nothing else is to be done now */
static bool control(struct drive *d)
{
    const char *want = d->r->want, *p = word(d, "phase");
    bool paused = !strcmp(d->r->status, "paused");
    bool last = !strcmp(p, "pr"); /* all is done but for the request */
    bool under_way = !strcmp(p, "turn");

    if (!strcmp(want, "cancel") && !last) {
        end_by_user(d, "cancelled by user", "run cancelled");
    } else if (!strcmp(want, "killall") && !last) {
        end_by_user(d, "killall", "killall");
    } else if (!strcmp(want, "stop") && paused) {
        wake_vm(d); /* the turn is to be finished */
        tx_run_status(d->tx, d->r->id, "running", "to be stopped");
    } else if (!strcmp(want, "pause") && !paused) {
        pause_run(d);
        return false;
    } else if (!strcmp(want, "shutdown")) {
        wanted(d, "paused", "shutdown");
        return false;
    } else if (!strcmp(want, "resume")) {
        wake_vm(d);
        wanted(d, "running", "resumed by user");
    } else if (paused && under_way && ended_by_hand(d, num(d, "vm"))) {
        wanted(d, "running", "its sandbox has ended");
    } else if (paused) {
        if (!woken(d))
            return false;
        wanted(d, "running", "its sandbox was resumed");
    }
    return true;
}

/* between two steps */
static void stop_here(struct drive *d)
{
    AUTO_FREE char *after = db_text(
        d->tx->db, "SELECT name FROM step WHERE id=? AND status='completed'",
        "i", num(d, "step"));
    AUTO_FREE char *why =
        after ? xasprintf("stopped by user after step %s", after)
              : xstrdup("stopped by user");

    end_by_user(d, why, "run stopped");
}

static void drive(struct drive *d)
{
    if (!control(d))
        return;
    if (!strcmp(d->r->status, "pending"))
        tx_run_status(d->tx, d->r->id, "running", "");
    for (int guard = 0; guard < 50 && !d->over; guard++) {
        const char *p = word(d, "phase");
        bool more = true, first = !*p || !strcmp(p, "begin");

        if (first && !strcmp(d->r->want, "stop"))
            stop_here(d);
        else if (first)
            more = step_begin(d);
        else if (!strcmp(p, "turn"))
            more = turn(d);
        else if (!strcmp(p, "ending"))
            more = ending(d);
        else if (!strcmp(p, "finish"))
            finish(d);
        else
            more = pr(d);
        if (!more)
            return;
    }
}

struct call {
    struct courier *c;
    struct job *j;
    bool over;
};

static void save(struct drive *d)
{
    AUTO_FREE char *dump = json_dumps(d->st, JSON_COMPACT);

    if (!dump || !strcmp(dump, d->r->state))
        return;
    db_exec(d->tx->db, "UPDATE run SET state=? WHERE id=?", "si", dump,
            d->r->id);
    tx_run_touch(d->tx, d->r->id, ASPECT_PROGRESS);
}

static int drive_fn(struct tx *tx, void *arg, struct err *e)
{
    struct call *k = arg;
    struct run r;
    struct drive d = {.tx = tx, .c = k->c, .r = &r};
    int rc = run_get(tx->db, k->j->run, &r, e);

    if (rc == 0 && !run_ended(r.status)) {
        d.st = json_loads(*r.state ? r.state : "{\"round\":1}", 0, NULL);
        if (!d.st)
            d.st = json_pack("{s:i}", "round", 1);
        drive(&d);
        save(&d);
        json_decref(d.st);
        k->over = d.over;
    } else {
        if (rc == -EINVAL)
            tx_run_status(tx, k->j->run, "failed", e->text);
        k->over = true;
    }
    run_clear(&r);
    /* with the end, so that a restart has a job of its own */
    if (k->over)
        tx_job_end(tx, k->c, k->j->id);
    return 0;
}

int job_run(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct call k = {.c = c, .j = j};

    *delay_ms = LOOK_MS;
    /* a disk that is full, say: a run has no other end than its own */
    if (store_do(c->store, drive_fn, &k, e) < 0)
        return -EAGAIN;
    jobs_kick(c); /* what it queued */
    return k.over ? 0 : -EAGAIN;
}
