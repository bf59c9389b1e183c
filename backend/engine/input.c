#include "engine/input.h"

#include "engine/jobs.h"
#include "engine/launch.h"

enum {
    ALONE_MS = 10000,      /* so long a command waits for its first writer */
    WAITING_MAX = 8 << 20, /* bytes that the VM hasn't got; then writes wait */
    PIECE_MAX = 1 << 20,
    GIVE_LIMIT_MS = 30000,
    FULL_MS = 1000, /* until a command that is slow is given more */
    PAUSED_MS = 60000,
};

/* ---- what the record says ---- */

/* -EHOSTDOWN, -EBUSY, -ENOENT; 1: it has not begun yet */
static int state_of(struct db *d, int64_t exec, struct err *e)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT x.status='exited',s.status='running',EXISTS(SELECT 1 FROM "
        "process p WHERE p.sandbox=x.sandbox AND p.exec=x.id AND "
        "p.state='running') FROM exec x JOIN sandbox s ON s.id=x.sandbox "
        "WHERE x.id=?",
        "i", exec);
    int r;

    if (!db_row(d, q))
        return err_set(e, ENOENT, "that command is not there any more");
    if (col_int(q, 0))
        r = err_set(e, EBUSY, "the command has exited");
    else if (!col_int(q, 1))
        r = err_set(e, EHOSTDOWN, "the VM does not run");
    else
        r = !col_int(q, 2);
    db_done(q);
    return r;
}

static char *input_of(struct db *d, int64_t exec)
{
    char *s = db_text(d, "SELECT input FROM exec WHERE id=?", "i", exec);

    return s ? s : xstrdup("end");
}

static int may_write(struct db *d, int64_t exec, struct err *e)
{
    int r = state_of(d, exec, e);

    if (r >= 0 && db_int(d, 0, "SELECT waiting FROM exec WHERE id=?", "i",
                         exec) >= WAITING_MAX)
        return err_set(e, EAGAIN, "it has not read what came before");
    return r < 0 ? r : 0;
}

int courier_input_may(struct courier *c, struct oid exec, struct err *e)
{
    return may_write(store_reader(c->store), exec.id, e);
}

/* ---- the job ---- */

static int64_t job_of(struct tx *tx, int64_t exec)
{
    AUTO_FREE char *arg = xasprintf("%lld", (long long)exec);

    return db_int(tx->db, 0,
                  "SELECT j.id FROM exec x JOIN job j ON "
                  "j.sandbox=x.sandbox WHERE x.id=? AND j.verb='input' AND "
                  "j.args=?",
                  "is", exec, arg);
}

/* has it looked at, in so many ms */
static void look(struct tx *tx, struct courier *c, int64_t exec, int64_t ms)
{
    AUTO_FREE char *arg = xasprintf("%lld", (long long)exec);
    int64_t job = job_of(tx, exec);

    if (!job)
        job = tx_job(tx, c,
                     db_int(tx->db, 0, "SELECT sandbox FROM exec WHERE id=?",
                            "i", exec),
                     0, "side", "input", arg);
    else
        tx_jobs_kick(tx, c);
    db_exec(tx->db, "UPDATE job SET not_before=? WHERE id=?", "ii",
            ms ? tx->now_ms + ms : 0, job);
}

void tx_input_begun(struct tx *tx, struct courier *c, int64_t exec)
{
    AUTO_FREE char *input = input_of(tx->db, exec);
    bool there = db_int(tx->db, 0, "SELECT waiting FROM exec WHERE id=?", "i",
                        exec) != 0;

    if (there || !strcmp(input, "end"))
        look(tx, c, exec, 0);
    else if (!*input)
        look(tx, c, exec, ALONE_MS);
}

static void forget(struct tx *tx, int64_t exec)
{
    db_exec(tx->db, "DELETE FROM input WHERE exec=?", "i", exec);
    db_exec(tx->db, "UPDATE exec SET waiting=0 WHERE id=?", "i", exec);
}

void tx_input_exited(struct tx *tx, struct courier *c, int64_t exec)
{
    int64_t job = job_of(tx, exec);

    forget(tx, exec);
    if (job && c)
        tx_job_end(tx, c, job);
    else if (job)
        db_exec(tx->db, "DELETE FROM job WHERE id=?", "i", job);
}

void tx_input_resumed(struct tx *tx, int64_t sandbox)
{
    db_exec(tx->db,
            "UPDATE job SET not_before=0 WHERE sandbox=? AND verb='input' "
            "AND attempt>0",
            "i", sandbox);
}

/* ---- open, write, close ---- */

struct change {
    struct courier *c;
    int64_t exec;
    bool keeps;
    enum input_close how;
    struct buf data;
    courier_done done;
    void *arg;
};

static struct change *change_new(struct courier *c, struct oid exec,
                                 courier_done done, void *arg)
{
    struct change *g = xcalloc(1, sizeof(*g));

    g->c = c;
    g->exec = exec.id;
    g->done = done;
    g->arg = arg;
    return g;
}

static void change_done(void *arg, int code, const struct err *e)
{
    struct change *g = arg;

    if (g->done)
        g->done(g->arg, code, e, NULL);
    buf_wipe(&g->data);
    free(g);
}

static int open_fn(struct tx *tx, void *arg, struct err *e)
{
    struct change *g = arg;
    AUTO_FREE char *input = input_of(tx->db, g->exec);
    int r = state_of(tx->db, g->exec, e);

    if (r < 0)
        return r;
    if (!strcmp(input, "end"))
        return err_set(e, EBUSY, "its input has ended");
    db_exec(tx->db,
            "UPDATE exec SET input=CASE WHEN ? AND input<>'open' THEN 'kept' "
            "ELSE 'open' END WHERE id=?",
            "ii", (int64_t)g->keeps, g->exec);
    return 0;
}

void courier_input_open(struct courier *c, struct oid exec, bool keeps,
                        courier_done done, void *arg)
{
    struct change *g = change_new(c, exec, done, arg);

    g->keeps = keeps;
    store_submit(c->store, open_fn, g, change_done, true);
}

static int write_fn(struct tx *tx, void *arg, struct err *e)
{
    struct change *g = arg;
    int r = may_write(tx->db, g->exec, e);

    if (r < 0)
        return r;
    db_exec(tx->db, "INSERT INTO input(exec,bytes) VALUES(?,?)", "ib", g->exec,
            g->data.p, g->data.n);
    db_exec(tx->db, "UPDATE exec SET waiting=waiting+? WHERE id=?", "ii",
            (int64_t)g->data.n, g->exec);
    if (state_of(tx->db, g->exec, NULL) == 0)
        look(tx, g->c, g->exec, 0);
    return 0;
}

void courier_input_write(struct courier *c, struct oid exec, const void *p,
                         size_t n, courier_done done, void *arg)
{
    struct change *g = change_new(c, exec, done, arg);

    buf_add(&g->data, p, n);
    store_submit(c->store, write_fn, g, change_done, true);
}

static int sync_fn(struct tx *tx, void *arg, struct err *e)
{
    (void)tx;
    (void)arg;
    (void)e;
    return 0;
}

void courier_input_sync(struct courier *c, courier_done done, void *arg)
{
    store_submit(c->store, sync_fn, change_new(c, root_oid(), done, arg),
                 change_done, false);
}

static void tx_close(struct tx *tx, struct courier *c, int64_t exec,
                     enum input_close how)
{
    static const char *const to[] = {
        [INPUT_END] = "end", [INPUT_KEEP] = "kept", [INPUT_NOTHING] = ""};
    bool begun = state_of(tx->db, exec, NULL) != 1;

    db_exec(tx->db,
            "UPDATE exec SET input=?1 WHERE id=?2 AND status<>'exited' AND "
            "(input='open' OR ?1='end')",
            "si", to[how], exec);
    if (db_changes(tx->db) && how != INPUT_KEEP && begun)
        look(tx, c, exec, how == INPUT_END ? 0 : ALONE_MS);
}

static int close_fn(struct tx *tx, void *arg, struct err *e)
{
    struct change *g = arg;

    (void)e;
    tx_close(tx, g->c, g->exec, g->how);
    return 0;
}

void courier_input_close(struct courier *c, struct oid exec,
                         enum input_close how)
{
    struct change *g = change_new(c, exec, NULL, NULL);

    g->how = how;
    store_submit(c->store, close_fn, g, change_done, false);
}

static const char left_open[] = "SELECT id FROM exec WHERE input='open' AND "
                                "status<>'exited' LIMIT 1";

static int resume_fn(struct tx *tx, void *arg, struct err *e)
{
    int64_t exec;

    (void)e;
    while ((exec = db_int(tx->db, 0, left_open, "")))
        tx_close(tx, arg, exec, INPUT_END);
    return 0;
}

void inputs_resume(struct courier *c)
{
    if (db_int(store_reader(c->store), 0, left_open, ""))
        store_do(c->store, resume_fn, c, NULL);
}

/* ---- bringing it there ---- */

/* the next piece. Its rows are settled before it goes, so that it is the same
 * when it goes again after a crash; its name is that of the last of them */
struct piece {
    struct courier *c;
    struct job *j;
    int64_t exec, process;
    int64_t gone; /* the piece before has arrived */
    struct buf bytes;
    char name[24];
    bool over; /* out: nothing is left to be done */
};

static void take_rows(struct tx *tx, struct piece *p)
{
    int64_t given =
        db_int(tx->db, 0, "SELECT given FROM exec WHERE id=?", "i", p->exec);
    bool again =
        db_int(tx->db, 0, "SELECT 1 FROM input WHERE exec=? AND id<=? LIMIT 1",
               "ii", p->exec, given) != 0;
    sqlite3_stmt *q = db_query(
        tx->db,
        "SELECT id,bytes FROM input WHERE exec=?1 AND (NOT ?2 OR id<=?3) "
        "ORDER BY id",
        "iii", p->exec, (int64_t)again, given);
    int64_t last = 0;

    while (db_row(tx->db, q)) {
        size_t n = (size_t)sqlite3_column_bytes(q, 1);

        if (p->bytes.n && p->bytes.n + n > PIECE_MAX && !again) {
            db_done(q);
            break;
        }
        buf_add(&p->bytes, sqlite3_column_blob(q, 1), n);
        last = col_int(q, 0);
    }
    db_exec(tx->db, "UPDATE exec SET given=? WHERE id=?", "ii", last, p->exec);
    (void)snprintf(p->name, sizeof(p->name), "%lld", (long long)last);
}

static void drop_rows(struct tx *tx, int64_t exec, int64_t upto)
{
    db_exec(tx->db,
            "UPDATE exec SET waiting=waiting-(SELECT coalesce(sum(length("
            "bytes)),0) FROM input WHERE exec=?1 AND id<=?2) WHERE id=?1",
            "ii", exec, upto);
    db_exec(tx->db, "DELETE FROM input WHERE exec=? AND id<=?", "ii", exec,
            upto);
    tx_changed(tx, oid(OBJ_EXEC, exec), ASPECT_QUEUE); /* there is room */
}

static int tx_piece(struct tx *tx, void *arg, struct err *e)
{
    struct piece *p = arg;
    AUTO_FREE char *input = input_of(tx->db, p->exec);
    int r = state_of(tx->db, p->exec, e);

    if (p->gone)
        drop_rows(tx, p->exec, p->gone);
    if (r == -EHOSTDOWN)
        return p->gone ? 0 : r;
    p->process = db_int(tx->db, 0,
                        "SELECT p.id FROM exec x JOIN process p ON "
                        "p.sandbox=x.sandbox AND p.exec=x.id AND "
                        "p.state='running' WHERE x.id=?",
                        "i", p->exec);
    if (r == 0 && db_int(tx->db, 0, "SELECT 1 FROM input WHERE exec=? LIMIT 1",
                         "i", p->exec)) {
        take_rows(tx, p);
    } else if (r == 0 && (!*input || !strcmp(input, "end"))) {
        db_exec(tx->db, "UPDATE exec SET input='end' WHERE id=?", "i",
                p->exec);
        memcpy(p->name, "end", 4);
    } else {
        p->over = true;
        tx_job_end(tx, p->c, p->j->id);
    }
    return 0;
}

static int give(struct piece *p, const struct sandbox *s, struct err *e)
{
    struct launch_give g = {.dir = ""};
    struct e2b_result res = {0};
    struct e2b_target t;
    struct e2b_run run;
    int r = sandbox_target(p->c, s, &t, e);

    if (r < 0)
        return r;
    launch_give(&g, p->process, p->name, buf_str(&p->bytes), p->bytes.n, &run);
    run.limit_ms = GIVE_LIMIT_MS;
    run.cancel = &p->j->cancel;
    r = e2b_exec(&t, &run, &res, e);
    if (r == 0)
        r = res.exit_code;
    e2b_result_clear(&res);
    buf_wipe(&g.coded);
    endpoint_put(p->c, t.x);
    return r;
}

/* 0: on to the next; 1: there is no next */
static int bring(struct piece *p, const struct sandbox *s, int *delay_ms,
                 struct err *e)
{
    int r = store_do(p->c->store, tx_piece, p, e);

    if (r == -EHOSTDOWN) { /* a resume has it looked at at once */
        *delay_ms = PAUSED_MS;
        return -EAGAIN;
    }
    if (r < 0 || p->over)
        return r < 0 ? r : 1;
    p->gone = 0;
    if (!*p->name) /* it was paused just now */
        return 0;
    r = give(p, s, e);
    switch (r) {
    case GIVEN:
        if (!strcmp(p->name, "end"))
            return 1;
        p->gone = strtoll(p->name, NULL, 10);
        return 0;
    case GIVEN_FULL:
        *delay_ms = FULL_MS;
        return err_set(e, EAGAIN, "the command does not read its input");
    case GIVEN_EXITED:
    case GIVEN_ENDED:
        return 1;
    default:
        return r < 0
                   ? r
                   : err_set(e, EPROTO,
                             "bringing input into the VM failed (exit %d)", r);
    }
}

int job_input(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct piece p = {.c = c, .j = j, .exec = strtoll(j->args, NULL, 10)};
    struct sandbox s;
    int r = 0;

    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    while (r == 0) {
        buf_clear(&p.bytes);
        *p.name = 0;
        r = bring(&p, &s, delay_ms, e);
    }
    buf_wipe(&p.bytes);
    sandbox_clear(&s);
    if (r == 1)
        return 0;
    return job_transient(r) ? -EAGAIN : r; /* for as long as it runs */
}
