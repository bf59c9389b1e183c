/*
 * What time brings, and what happens to VMs without us: deadlines of VMs and
 * turns, budgets, and the provider's list against the record. The invariant:
 * every VM with our instance's id belongs to a record that wants it, or is
 * being killed. It only records and queues; jobs do the rest.
 */
#include "engine/endpoints.h"
#include "engine/turn.h"
#include "engine/vm.h"
#include "engine/usage.h"

enum {
    TICK_MS = 250,
    SECOND_MS = 1000,
    LOCAL_MS = 2000,
    CLOUD_MS = 5000, /* while VMs run; one short list */
    CLOUD_ASLEEP_MS = 15000,
    CLOUD_IDLE_MS = 60000,
    MINUTE_MS = 60000,
    KICK_MS = 200,         /* not more often than that */
    AHEAD_MAX_MS = 600000, /* of salvage_ahead */
    MOVED_MS = 4000,       /* a deadline that differs by more was moved */
};

/* ---- deadlines ---- */

struct due {
    struct courier *c;
    int64_t id;
    const char *reason;
    bool kill;
};

static int tx_due(struct tx *tx, void *arg, struct err *e)
{
    struct due *d = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, d->id, &s) < 0)
        return 0;
    if (sandbox_is(&s, "running") && !*s.ending) {
        if (d->kill)
            tx_kill(tx, d->c, s.id, d->reason, false);
        else
            tx_pause(tx, d->c, s.id, d->reason);
    }
    sandbox_clear(&s);
    return 0;
}

/* how long before its end it is to be saved and killed, ms; -1: it pauses */
static int64_t ahead_of(struct db *d, int64_t id)
{
    AUTO_FREE char *what = NULL;
    int64_t ahead, timeout;
    struct sandbox s;

    if (sandbox_get(d, id, &s) < 0)
        return -1;
    what = config_value(d, &s, "on_timeout", NULL);
    ahead = config_seconds(d, &s, "salvage_ahead", 60) * 1000;
    timeout = config_seconds(d, &s, "timeout", 900) * 1000;
    sandbox_clear(&s);
    if (what && !strcmp(what, "pause"))
        return -1;
    /* of a short life most is left to the agent */
    return ahead < timeout / 4 ? ahead : timeout / 4;
}

static void check_expiry(struct courier *c, int64_t now, bool all)
{
    struct db *d = store_reader(c->store);
    struct near {
        int64_t id, expires;
    } *v = NULL;
    size_t n = 0;
    sqlite3_stmt *q = db_query(
        d,
        "SELECT id,expires FROM sandbox WHERE status='running' AND trash IS "
        "NULL AND expires>0 AND expires<? AND ending=''",
        "i", now + AHEAD_MAX_MS);

    while (db_row(d, q)) {
        if (!all && col_int(q, 1) > now + 2 * SECOND_MS)
            continue;
        v = xrealloc(v, (n + 1) * sizeof(*v));
        v[n++] = (struct near){col_int(q, 0), col_int(q, 1)};
    }
    for (size_t i = 0; i < n; i++) {
        int64_t ahead = ahead_of(d, v[i].id);
        struct due due = {c, v[i].id, "timeout", ahead >= 0};

        if (v[i].expires - (ahead > 0 ? ahead : 0) <= now &&
            !job_there(d, v[i].id, "control", ahead >= 0 ? "kill" : "pause"))
            store_do(c->store, tx_due, &due, NULL);
    }
    free(v);
}

static int tx_overdue(struct tx *tx, void *arg, struct err *e)
{
    struct due *d = arg;

    (void)e;
    if (!job_there(tx->db, d->id, "control", "interrupt"))
        tx_job(tx, d->c, d->id, 0, "control", "interrupt", d->reason);
    return 0;
}

/* turns that have taken too long */
static void check_turns(struct courier *c, int64_t now)
{
    struct db *d = store_reader(c->store);

    for (;;) {
        struct due due = {.c = c};
        AUTO_FREE char *why = NULL;
        char limit[24];
        struct sandbox s;

        due.id = db_int(d, 0,
                        "SELECT p.sandbox FROM process p JOIN sandbox s ON "
                        "s.id=p.sandbox WHERE p.state='running' AND "
                        "p.deadline>0 AND p.deadline<=? AND p.stop='' AND "
                        "s.status='running' AND NOT EXISTS(SELECT 1 FROM job "
                        "j WHERE j.sandbox=s.id AND j.verb='interrupt') "
                        "LIMIT 1",
                        "i", now);
        if (!due.id || sandbox_get(d, due.id, &s) < 0)
            return;
        text_duration_str(config_seconds(d, &s, "turn_timeout", 0), limit);
        sandbox_clear(&s);
        why = xasprintf("turn_timeout %s reached", limit);
        due.reason = why;
        if (store_do(c->store, tx_overdue, &due, NULL) < 0)
            return;
    }
}

static void check_budgets(struct courier *c)
{
    struct db *d = store_reader(c->store);
    int64_t *ids = NULL;
    size_t n = 0;
    sqlite3_stmt *q =
        db_query(d, "SELECT id FROM sandbox WHERE status='running'", "");

    while (db_row(d, q)) {
        ids = xrealloc(ids, (n + 1) * sizeof(*ids));
        ids[n++] = col_int(q, 0);
    }
    for (size_t i = 0; i < n; i++) {
        struct sandbox s;
        double budget;

        if (sandbox_get(d, ids[i], &s) < 0)
            continue;
        budget = budget_spent(d, &s, now_ms());
        if (budget > 0) {
            AUTO_FREE char *set = budget_words(budget);
            AUTO_FREE char *why = xasprintf("budget %s reached", set);
            struct due due = {c, s.id, why, false};

            store_do(c->store, tx_due, &due, NULL);
        }
        sandbox_clear(&s);
    }
    free(ids);
}

/* ---- the provider's list ---- */

struct known {
    int64_t id, expires;
    char *vm, *status;
    bool busy; /* a control job is at it */
    bool seen;
};
struct look {
    struct courier *c;
    int64_t id;
    const char *vm, *words;
    const struct e2b_box *box;
};

static struct known *known_rows(struct db *d, const struct endpoint_name *at,
                                size_t *n)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT id,expires,vm,status,ending<>'' OR EXISTS(SELECT 1 FROM job "
        "j WHERE j.sandbox=s.id AND j.lane='control') FROM sandbox s WHERE "
        "vm IS NOT NULL AND status IN('running','paused') AND CASE WHEN ?1 "
        "THEN backend='local' WHEN ?2<>0 THEN backend='e2b' AND project=?2 "
        "ELSE backend='e2b' AND project NOT IN(SELECT owner FROM secret "
        "WHERE kind=?3 AND path='keys/e2b') END",
        "iii", (int64_t)at->local, at->project, (int64_t)OBJ_PROJECT);
    struct known *v = NULL;

    *n = 0;
    while (db_row(d, q)) {
        v = xrealloc(v, (*n + 1) * sizeof(*v));
        v[(*n)++] = (struct known){
            .id = col_int(q, 0),
            .expires = col_int(q, 1),
            .vm = xstrdup(col_text(q, 2)),
            .status = xstrdup(col_text(q, 3)),
            .busy = col_int(q, 4) != 0,
        };
    }
    return v;
}

static int tx_look_gone(struct tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;

    (void)e;
    /* a kill under way has words of its own: where the work is */
    if (!job_there(tx->db, l->id, "control", "kill") &&
        !job_there(tx->db, l->id, "control", "purge"))
        tx_vm_gone(tx, l->c, l->id, l->vm, l->words);
    return 0;
}

static int tx_look_paused(struct tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;

    (void)e;
    if (!job_there(tx->db, l->id, "control", NULL))
        tx_vm_paused(tx, l->c, l->id, l->vm, l->words);
    return 0;
}

static int tx_look_running(struct tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, l->id, &s) < 0)
        return 0;
    if (sandbox_is(&s, "paused") && !*s.ending && s.vm &&
        !strcmp(s.vm, l->vm) && !job_there(tx->db, l->id, "control", NULL))
        tx_vm_running(tx, l->c, l->id, l->box, l->box->end_ms, l->words);
    sandbox_clear(&s);
    return 0;
}

static int tx_look_moved(struct tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, l->id, &s) < 0)
        return 0;
    if (sandbox_is(&s, "running") && !*s.ending &&
        !job_there(tx->db, l->id, "control", NULL)) {
        db_exec(tx->db, "UPDATE sandbox SET expires=? WHERE id=?", "ii",
                l->box->end_ms, l->id);
        tx_touch(tx, s.project, oid(OBJ_SANDBOX, s.id), ASPECT_EXPIRES);
    }
    sandbox_clear(&s);
    return 0;
}

static void compare(struct courier *c, struct known *k,
                    const struct e2b_box *b)
{
    struct look l = {.c = c, .id = k->id, .vm = k->vm, .box = b};
    int64_t off = b->end_ms - k->expires;
    bool runs = !strcmp(k->status, "running");

    if (k->busy)
        return;
    if (b->state == E2B_PAUSED && runs) {
        int64_t ahead;

        if (k->expires && k->expires <= now_ms() + SECOND_MS) {
            /* its deadline: to be killed, or paused as was wished */
            ahead = ahead_of(store_reader(c->store), k->id);
            if (ahead >= 0)
                return; /* check_expiry has seen it, too */
            l.words = "timeout";
        } else {
            l.words = "paused from elsewhere";
        }
        follow_stop(c, k->id);
        store_do(c->store, tx_look_paused, &l, NULL);
        jobs_kick(c);
    } else if (b->state == E2B_RUNNING && !runs) {
        l.words = "resumed from elsewhere";
        store_do(c->store, tx_look_running, &l, NULL);
        vm_follow(c, k->id);
        jobs_kick(c);
    } else if (runs && b->end_ms && (off > MOVED_MS || off < -MOVED_MS)) {
        store_do(c->store, tx_look_moved, &l, NULL);
    }
}

/* not in the list: is it gone indeed, and what does the provider say? */
static void missing(struct courier *c, struct e2b *x, struct known *k)
{
    struct look l = {.c = c, .id = k->id, .vm = k->vm};
    struct e2b_box b = {0};
    struct err e = {0};
    int r = e2b_get(x, k->vm, &b, &e);

    if (r == 0) {
        compare(c, k, &b);
        e2b_box_clear(&b);
    } else if (r == -ENOENT) {
        follow_stop(c, k->id);
        l.words = e.text;
        store_do(c->store, tx_look_gone, &l, NULL);
        jobs_kick(c);
    }
}

/* does a record want this VM? */
static bool wanted(struct courier *c, const struct e2b_box *b)
{
    struct db *d = store_reader(c->store);
    const char *meta = vm_meta(b, META_SANDBOX);
    struct sandbox s;
    int64_t id;
    bool yes;

    if (!meta || !text_int(meta, 1, INT64_MAX, &id) ||
        sandbox_get(d, id, &s) < 0)
        return false;
    if (s.vm)
        yes = !strcmp(s.vm, b->id);
    else
        yes =
            sandbox_is(&s, "creating") && job_there(d, id, "control", "start");
    sandbox_clear(&s);
    return yes;
}

static void sweep_list(struct courier *c, struct e2b *x, struct known *v,
                       size_t n, struct e2b_box *boxes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *instance = vm_meta(&boxes[i], META_INSTANCE);
        bool found = false;

        if (!instance || strcmp(instance, c->instance))
            continue;
        for (size_t k = 0; k < n && !found; k++) {
            if (strcmp(v[k].vm, boxes[i].id))
                continue;
            found = v[k].seen = true;
            compare(c, &v[k], &boxes[i]);
        }
        if (!found && !wanted(c, &boxes[i])) {
            log_msg(LOG_INFO, "VM %s belongs to nobody: killed", boxes[i].id);
            e2b_kill(x, boxes[i].id, NULL);
        }
    }
    for (size_t k = 0; k < n; k++)
        if (!v[k].seen)
            missing(c, x, &v[k]);
}

static void all_gone(struct courier *c, struct known *v, size_t n,
                     const char *words)
{
    for (size_t k = 0; k < n; k++) {
        struct look l = {.c = c, .id = v[k].id, .vm = v[k].vm, .words = words};

        follow_stop(c, v[k].id);
        store_do(c->store, tx_look_gone, &l, NULL);
        jobs_kick(c);
    }
}

/* false: the provider could not be asked */
static bool look_at(struct courier *c, const struct endpoint_name *at)
{
    struct err e = {0};
    struct e2b_box *boxes = NULL;
    struct e2b *x = NULL;
    size_t n = 0, count = 0;
    struct known *v = known_rows(store_reader(c->store), at, &n);
    int r = at->local ? endpoint_local_running(c, &x, &e)
                      : endpoint_get(c, at->project, "e2b", &x, &e);

    if (r == 0) {
        r = e2b_list(x, META_INSTANCE, c->instance, &boxes, &count, &e);
        if (r == 0)
            sweep_list(c, x, v, n, boxes, count);
        vm_boxes_free(boxes, count);
        endpoint_put(c, x);
    } else if (r == -ENOENT && at->local) {
        all_gone(c, v, n, "the local host has ended");
        r = 0;
    }
    if (r < 0)
        log_msg(LOG_DEBUG, "the list of VMs: %s", e.text);
    for (size_t k = 0; k < n; k++) {
        free(v[k].vm);
        free(v[k].status);
    }
    free(v);
    return r == 0;
}

static bool look_around(struct courier *c, bool local)
{
    size_t n;
    AUTO_FREE struct endpoint_name *v = endpoints_known(c, &n);
    bool ok = true;

    for (size_t i = 0; i < n; i++)
        if (v[i].local == local)
            ok = look_at(c, &v[i]) && ok;
    return ok;
}

/* ---- the threads ---- */

/* how often E2B is asked: its list is the only word of a VM that ends, sleeps
 * or wakes while nothing is read from it */
static int64_t cloud_pause(struct courier *c)
{
    struct db *d = store_reader(c->store);
    int64_t live = db_int(d, 0,
                          "SELECT max(status<>'paused')+1 FROM sandbox WHERE "
                          "backend='e2b' AND status IN('creating','running',"
                          "'paused')",
                          "");

    return live == 2 ? CLOUD_MS : live == 1 ? CLOUD_ASLEEP_MS : CLOUD_IDLE_MS;
}

static bool any_status(struct courier *c, const char *a, const char *b)
{
    return db_int(store_reader(c->store), 0,
                  "SELECT 1 FROM sandbox WHERE status IN(?,?) AND trash IS "
                  "NULL LIMIT 1",
                  "ss", a, b) != 0;
}

/* false: all ends. kick: NULL, or to be woken by, and taken */
static bool pause_for(struct courier *c, int64_t ms, bool *kick)
{
    int64_t until = now_ms() + ms;
    struct timespec ts = {until / 1000, until % 1000 * 1000000};
    bool stop;

    pthread_mutex_lock(&c->lock);
    while (!c->stopping && !(kick && *kick) && now_ms() < until)
        pthread_cond_timedwait(&c->wake, &c->lock, &ts);
    stop = c->stopping;
    pthread_mutex_unlock(&c->lock);
    return !stop;
}

static bool take_kick(struct courier *c, bool *kick)
{
    bool was;

    pthread_mutex_lock(&c->lock);
    was = *kick;
    *kick = false;
    pthread_mutex_unlock(&c->lock);
    return was;
}

static void *look_local(void *arg)
{
    struct courier *c = arg;

    do {
        take_kick(c, &c->kick[1]);
        endpoint_local_look(c);
        look_around(c, true);
    } while (pause_for(c, KICK_MS, NULL) &&
             pause_for(c, LOCAL_MS, &c->kick[1]));
    return NULL;
}

static void *look_cloud(void *arg)
{
    struct courier *c = arg;
    int64_t done = -CLOUD_IDLE_MS;

    do {
        if (take_kick(c, &c->kick[0]))
            done = -CLOUD_IDLE_MS;
        if (mono_ms() >= done + cloud_pause(c))
            done = look_around(c, false) ? mono_ms() : -CLOUD_IDLE_MS;
    } while (pause_for(c, KICK_MS, NULL) &&
             pause_for(c, CLOUD_MS, &c->kick[0]));
    return NULL;
}

/* the deadlines: nothing that asks a provider, whose answer may take long */
static void *reconciler(void *arg)
{
    struct courier *c = arg;
    int64_t minute_at = 0, second_at = 0;
    pthread_t local, cloud;
    bool live, has_local, has_cloud;

    has_local = !pthread_create(&local, NULL, look_local, c);
    has_cloud = !pthread_create(&cloud, NULL, look_cloud, c);
    if (!has_local || !has_cloud)
        log_msg(LOG_ERR, "no thread to look at the providers' lists");
    do {
        int64_t now = mono_ms();

        live = any_status(c, "running", "creating");
        if (live) {
            check_expiry(c, now_ms(), now >= second_at);
            check_turns(c, now_ms());
        }
        if (now >= second_at)
            second_at = now + SECOND_MS;
        if (now >= minute_at) {
            minute_at = now + MINUTE_MS;
            check_budgets(c);
        }
    } while (pause_for(c, live ? TICK_MS : LOCAL_MS, NULL));
    if (has_local)
        pthread_join(local, NULL);
    if (has_cloud)
        pthread_join(cloud, NULL);
    return NULL;
}

void reconcile_kick(struct courier *c)
{
    pthread_mutex_lock(&c->lock);
    c->kick[0] = c->kick[1] = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

int reconcile_open(struct courier *c, struct err *e)
{
    if (pthread_create(&c->reconciler, NULL, reconciler, c))
        return err_set(e, EAGAIN, "no thread for the reconciler");
    return 0;
}

void reconcile_close(struct courier *c)
{
    if (!c->reconciler)
        return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->reconciler, NULL);
    c->reconciler = 0;
}
