/*
 * The end of a sandbox: its agent is stopped, its work saved, its VM
 * destroyed, in this order; each part can be done again. Nothing that fails
 * before the VM's end keeps it alive.
 */
#include "engine/endpoints.h"
#include "engine/launch.h"
#include "engine/repo.h"
#include "engine/turn.h"
#include "engine/vm.h"

enum { KILL_TRIES = 1000, SALVAGE_S = 600, STOP_MS = 3000 };

struct ending {
    struct courier *c;
    struct job *j;
    struct sandbox s;
    char *reason;
    const char *trouble; /* why the VM could not be ended yet */
    bool now, salvaged;
    bool orphan;      /* there may be a VM that the record doesn't know */
    struct buf words; /* how the salvage went */
};

static void read_args(struct ending *n)
{
    json_t *j = json_loads(n->j->args, 0, NULL);
    const char *reason = json_string_value(json_object_get(j, "reason"));
    const char *words = json_string_value(json_object_get(j, "words"));

    n->reason = xstrdup(reason ? reason : "killed by user");
    n->now = json_is_true(json_object_get(j, "now"));
    /* of a salvage before a try that failed later */
    n->salvaged = json_is_true(json_object_get(j, "salvaged"));
    if (words)
        buf_adds(&n->words, words);
    json_decref(j);
}

static int tx_remember(struct tx *tx, void *arg, struct err *e)
{
    struct ending *n = arg;
    AUTO_FREE char *args =
        db_text(tx->db, "SELECT args FROM job WHERE id=?", "i", n->j->id);
    json_t *j = json_loads(args ? args : "", 0, NULL);

    (void)e;
    if (j && !json_is_true(json_object_get(j, "now"))) {
        json_object_set_new(j, "salvaged", json_true());
        json_object_set_new(j, "words", json_string(buf_str(&n->words)));
        free(args);
        args = json_dumps(j, JSON_COMPACT);
        db_exec(tx->db, "UPDATE job SET args=? WHERE id=?", "si", args,
                n->j->id);
    }
    json_decref(j);
    return 0;
}

static void ending_free(struct ending *n)
{
    sandbox_clear(&n->s);
    free(n->reason);
    buf_free(&n->words);
}

/* ---- the agent ---- */

static int tx_mark_stop(struct tx *tx, void *arg, struct err *e)
{
    struct ending *n = arg;

    (void)e;
    db_exec(tx->db,
            "UPDATE process SET stop=? WHERE sandbox=? AND state<>'ended' "
            "AND stop=''",
            "si", n->reason, n->s.id);
    return 0;
}

/* what it was doing ends as an error that says why; its output is kept */
static void stop_agent(struct ending *n, const struct e2b_target *t)
{
    struct db *d = store_reader(n->c->store);
    size_t count;
    AUTO_FREE int64_t *ids = processes_live(d, n->s.id, &count);
    int64_t until;

    if (!count)
        return;
    store_do(n->c->store, tx_mark_stop, n, NULL);
    for (size_t i = 0; i < count && !job_cancelled(n->j); i++)
        launch_kill(t, n->c->instance, ids[i], &n->j->cancel, NULL);
    if (!sandbox_is(&n->s, "running"))
        return; /* nobody follows in a paused one */
    until = mono_ms() + STOP_MS;
    while (mono_ms() < until && !job_cancelled(n->j) &&
           db_int(d, 0,
                  "SELECT 1 FROM process WHERE sandbox=? AND state='running'",
                  "i", n->s.id))
        sleep_ms(10);
}

/* ---- the work ---- */

static int save_work(struct ending *n, struct err *e)
{
    struct e2b_target t;
    int r = sandbox_target(n->c, &n->s, &t, e);

    if (r < 0)
        return 0; /* there is nothing to save from */
    if (sandbox_is(&n->s, "paused")) {
        struct e2b_box b = {0};

        r = e2b_connect(t.x, t.id, SALVAGE_S, &b, e);
        if (r == 0 && b.token && n->s.vm_token &&
            strcmp(b.token, n->s.vm_token)) {
            free(n->s.vm_token);
            n->s.vm_token = xstrdup(b.token);
            t.token = n->s.vm_token;
        }
        e2b_box_clear(&b);
        if (r < 0 && r != -ENOENT && job_transient(r) && n->j->attempt < 4) {
            endpoint_put(n->c, t.x);
            return -EAGAIN;
        }
    } else {
        struct e2b_box b = {0};

        /* the deadline shall not come in between; and if it has, it is
         * paused now, and this resumes it */
        if (e2b_connect(t.x, t.id, SALVAGE_S, &b, NULL) == -ENOENT)
            r = -ENOENT;
        e2b_box_clear(&b);
    }
    if (r == 0) {
        AUTO_BUF struct buf words = {0};

        stop_agent(n, &t);
        r = salvage_run(n->c, &n->s, n->j, &words, e);
        if (r == 0) {
            buf_clear(&n->words);
            buf_adds(&n->words, buf_str(&words));
            n->salvaged = true;
            store_do(n->c->store, tx_remember, n, NULL);
        }
    }
    endpoint_put(n->c, t.x);
    return job_cancelled(n->j) ? err_set(e, ECANCELED, "to be killed now") : 0;
}

/* ---- the VM ---- */

/* may there be a VM that the record doesn't know? */
static bool may_have_been_made(struct ending *n)
{
    return db_int(store_reader(n->c->store), 0,
                  "SELECT step FROM job WHERE sandbox=? AND verb='start'", "i",
                  n->s.id) != 0;
}

static int destroy_vm(struct ending *n, struct err *e)
{
    bool local = !strcmp(n->s.backend, "local");
    struct e2b_box *v = NULL;
    struct e2b *x = NULL;
    size_t count = 0;
    int r;

    if (!n->s.vm && !n->orphan)
        return 0;
    r = local ? endpoint_local_running(n->c, &x, e)
              : endpoint_get(n->c, n->s.project, n->s.backend, &x, e);
    if (r == -ENOENT)
        return 0; /* with the host, its VMs are gone */
    if (r == -EACCES && !n->s.vm)
        return 0; /* without a key none was made */
    if (r < 0)
        return r;
    if (n->s.vm)
        r = e2b_kill(x, n->s.vm, e);
    /* one that a start has made, and the record doesn't know */
    if (r == 0 && !n->s.running_at) {
        r = vm_find(n->c, x, n->s.id, &v, &count, e);
        for (size_t i = 0; i < count && r == 0; i++)
            r = e2b_kill(x, v[i].id, e);
        vm_boxes_free(v, count);
    }
    endpoint_put(n->c, x);
    return r;
}

static int tx_ending_words(struct tx *tx, void *arg, struct err *e)
{
    struct ending *n = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, n->s.id, &s) == 0) {
        AUTO_FREE char *words = xasprintf("being killed: %s", n->trouble);

        tx_status(tx, s.id, s.status, words);
        sandbox_clear(&s);
    }
    return 0;
}

static int destroy(struct ending *n, struct err *e)
{
    int r = destroy_vm(n, e);

    if (r < 0) {
        n->trouble = e->text;
        store_do(n->c->store, tx_ending_words, n, NULL);
    }
    return r;
}

/* ---- jobs ---- */

static int tx_killed(struct tx *tx, void *arg, struct err *e)
{
    struct ending *n = arg;
    AUTO_BUF struct buf reason = {0};
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, n->s.id, &s) < 0)
        return 0;
    buf_adds(&reason, n->reason);
    if (n->words.n)
        buf_addf(&reason, "; %s", n->words.p);
    if (!sandbox_is(&s, "killed") && !sandbox_is(&s, "error")) {
        tx_status(tx, s.id, "killed", buf_str(&reason));
        tx_after_end(tx, n->c, s.id, n->salvaged);
        tx_job_room(tx, n->c);
    }
    tx_job_end(tx, n->c, n->j->id);
    sandbox_clear(&s);
    return 0;
}

static bool lives(const struct sandbox *s)
{
    return sandbox_is(s, "creating") || sandbox_is(s, "running") ||
           sandbox_is(s, "paused");
}

static int end_it(struct ending *n, struct err *e)
{
    int r = 0;

    if (!n->now && n->s.vm && !sandbox_is(&n->s, "creating"))
        r = save_work(n, e);
    if (r == 0)
        r = destroy(n, e);
    if (r == 0)
        follow_stop(n->c, n->s.id);
    return r;
}

int job_kill(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct ending n = {.c = c, .j = j};
    int r = 0;

    if (sandbox_get(store_reader(c->store), j->sandbox, &n.s) < 0)
        return 0;
    read_args(&n);
    if (lives(&n.s) && !n.s.vm) {
        /* nobody has seen a VM. Should there be one, it belongs to no living
         * record from now on: it is ended here, or by the reconciler */
        n.orphan = may_have_been_made(&n);
        r = store_do(c->store, tx_killed, &n, e);
        if (r == 0 && n.orphan && destroy_vm(&n, NULL) < 0)
            reconcile_kick(c);
    } else if (lives(&n.s)) {
        r = end_it(&n, e);
        if (r == 0)
            r = store_do(c->store, tx_killed, &n, e);
        if (r == 0 && !n.s.running_at)
            reconcile_kick(c);
    }
    r = vm_explain(c, n.s.project, n.s.backend, r, e);
    if (r < 0 && r != -ECANCELED) {
        /* a VM that can't be ended is tried for as long as it takes */
        if (!job_transient(r))
            *delay_ms = 30000;
        r = j->attempt < KILL_TRIES ? -EAGAIN : r;
    }
    ending_free(&n);
    return r;
}

static int tx_purged(struct tx *tx, void *arg, struct err *e)
{
    struct ending *n = arg;
    int r = tx_killed(tx, n, e);

    tx_purge_row(tx, oid(OBJ_SANDBOX, n->s.id));
    return r;
}

int job_purge(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct ending n = {.c = c, .j = j};
    bool kept = false;
    int r = 0;

    if (sandbox_get(store_reader(c->store), j->sandbox, &n.s) < 0)
        return 0;
    read_args(&n);
    if (lives(&n.s)) {
        r = end_it(&n, e);
        kept = !n.now && salvage_any(c, n.s.id);
    }
    if (kept) {
        free(n.reason);
        n.reason = xstrdup("not purged yet");
    }
    /* what came home as files only is there to be fetched first */
    if (r == 0)
        r = store_do(c->store, kept ? tx_killed : tx_purged, &n, e);
    if (r < 0 && r != -ECANCELED) {
        if (!job_transient(r))
            *delay_ms = 30000;
        r = -EAGAIN;
    }
    ending_free(&n);
    return r;
}
