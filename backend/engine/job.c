/*
 * The queue. One dispatcher looks for rows whose turn it is and hands them to
 * workers; a worker runs one job with plain blocking calls. Rows stay as they
 * are while their job runs, so a crash begins them again.
 *
 * Of a sandbox, control jobs run one at a time, in order, but kill and purge
 * overtake. Work runs one at a time, in order, and only while no control job
 * is there. What breaks into work (kill, pause, interrupt, purge) cancels the
 * one that runs and waits for its return.
 */
#include "engine/jobs.h"

#include <sys/random.h>

enum {
    WORKERS = 16,
    KEPT = 2,       /* of them, for control */
    STARTS_MAX = 8, /* creates and clones at once */
    SIDE_MAX = 4,
    BACKOFF_MIN = 500,
    BACKOFF_MAX = 60000,
    LOOK_MS = 30000, /* looks at least that often */
};

struct verb {
    const char *name;
    job_fn run;
    void (*failed)(struct tx *tx, struct courier *c, const struct job *j,
                   const struct err *e);
    bool breaks; /* ends the work under way */
};

static const struct verb verbs[] = {
    {"start", job_start, job_start_failed, false},
    {"pause", job_pause, job_other_failed, true},
    {"resume", job_resume, job_resume_failed, false},
    {"timeout", job_timeout, job_other_failed, false},
    {"kill", job_kill, job_other_failed, true},
    {"purge", job_purge, job_other_failed, true},
    {"interrupt", job_interrupt, job_other_failed, true},
    {"turn", job_turn, job_turn_failed, false},
    {"exec", job_exec, job_exec_failed, false},
    {"push", job_push, job_other_failed, false},
    {"pr", job_pr, job_other_failed, false},
    {"learn", job_learn, job_other_failed, false},
    {"run", job_run, job_other_failed, false},
    {"input", job_input, job_other_failed, false},
};

struct running {
    struct job j; /* first */
    const struct verb *verb;
    bool taken; /* by a worker */
    struct running *next;
};

struct jobs {
    struct courier *c;
    pthread_mutex_t lock;
    pthread_cond_t look; /* for the dispatcher */
    pthread_cond_t work; /* for the workers */
    struct running *running;
    bool dirty, stop;
    int kick_pending; /* atomic: a kick comes after the commit */
    pthread_t dispatcher, workers[WORKERS];
    int n_workers;
    bool dispatching;
};

static const struct verb *verb_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    return NULL;
}

/* ---- rows ---- */

static void kick_done(void *arg, int code, const struct err *e)
{
    struct courier *c = arg;
    struct jobs *q = __atomic_load_n(&c->jobs, __ATOMIC_ACQUIRE);

    (void)code;
    (void)e;
    if (!q)
        return;
    __atomic_store_n(&q->kick_pending, 0, __ATOMIC_RELEASE);
    jobs_kick(c);
}

static int nothing(struct tx *tx, void *arg, struct err *e)
{
    (void)tx;
    (void)arg;
    (void)e;
    return 0;
}

void tx_jobs_kick(struct tx *tx, struct courier *c)
{
    struct jobs *q = __atomic_load_n(&c->jobs, __ATOMIC_ACQUIRE);

    if (!q || __atomic_exchange_n(&q->kick_pending, 1, __ATOMIC_ACQ_REL))
        return;
    store_submit(tx->store, nothing, c, kick_done, true);
}

int64_t tx_job(struct tx *tx, struct courier *c, int64_t sandbox, int64_t run,
               const char *lane, const char *verb, const char *args)
{
    db_exec(tx->db,
            "INSERT INTO job(sandbox,run,lane,verb,args,created) "
            "VALUES(?,?,?,?,?,?)",
            "iisssi", sandbox, run, lane, verb, args ? args : "", tx->now_ms);
    tx_changed(tx, root_oid(), ASPECT_STATUS); /* it counts the jobs */
    tx_jobs_kick(tx, c);
    return db_last_id(tx->db);
}

void tx_job_end(struct tx *tx, struct courier *c, int64_t job)
{
    db_exec(tx->db, "DELETE FROM job WHERE id=?", "i", job);
    if (!db_changes(tx->db))
        return;
    tx_changed(tx, root_oid(), ASPECT_STATUS);
    tx_jobs_kick(tx, c);
}

void tx_job_step(struct tx *tx, int64_t job, int step)
{
    db_exec(tx->db, "UPDATE job SET step=? WHERE id=?", "ii", (int64_t)step,
            job);
}

void tx_job_room(struct tx *tx, struct courier *c)
{
    db_exec(tx->db,
            "UPDATE job SET not_before=0 WHERE id=(SELECT min(id) FROM job "
            "WHERE verb='start' AND not_before>?)",
            "i", tx->now_ms);
    if (db_changes(tx->db))
        tx_jobs_kick(tx, c);
}

void tx_job_look(struct tx *tx, struct courier *c)
{
    db_exec(tx->db,
            "UPDATE job SET not_before=0 WHERE verb='start' AND not_before>?",
            "i", tx->now_ms);
    if (db_changes(tx->db))
        tx_jobs_kick(tx, c);
}

bool job_there(struct db *d, int64_t sandbox, const char *lane,
               const char *verb)
{
    return db_int(d, 0,
                  "SELECT 1 FROM job WHERE sandbox=?1 AND (?2 IS NULL OR "
                  "lane=?2) AND (?3 IS NULL OR verb=?3) LIMIT 1",
                  "iss", sandbox, lane, verb) != 0;
}

bool job_transient(int r)
{
    switch (-r) {
    case EAGAIN:
    case EBUSY:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ETIMEDOUT:
    case EINPROGRESS:
    case EPROTO:
    case EIO: /* the other side's own fault: a 500 */
        return true;
    default:
        return false;
    }
}

bool job_cancelled(const struct job *j)
{
    return __atomic_load_n(&j->cancel.flag, __ATOMIC_RELAXED) != 0;
}

int job_again(const struct job *j, int r, int max)
{
    return job_transient(r) && j->attempt < max ? -EAGAIN : r;
}

/* ---- the dispatcher ---- */

static bool breaks(const char *verb)
{
    const struct verb *v = verb_find(verb);

    return v && v->breaks;
}

/* may this one begin beside what runs? Cancels what stands in its way */
static bool may_begin(struct jobs *q, int64_t id, int64_t sandbox, int64_t run,
                      const char *lane, const char *verb, const char *args)
{
    bool control = !strcmp(lane, "control"), ends = false, may = true;
    bool now = strstr(args, "\"now\":true") || strstr(args, "\"now\": true");
    int total = 0, starts = 0, side = 0;

    if (control)
        ends = !strcmp(verb, "kill") || !strcmp(verb, "purge");
    for (struct running *r = q->running; r; r = r->next) {
        bool other_control = !strcmp(r->j.lane, "control");

        if (r->j.id == id) {
            /* a kill that runs is wanted without more ado */
            if (ends && now && strcmp(r->j.args, args))
                e2b_cancel(&r->j.cancel);
            return false;
        }
        starts += !strcmp(r->j.verb, "start");
        side += !strcmp(r->j.lane, "side");
        total += !other_control || !strcmp(r->j.verb, "start");
        if (!strcmp(lane, "run") && r->j.run == run &&
            !strcmp(r->j.lane, "run"))
            may = false;
        if (!sandbox || r->j.sandbox != sandbox || !strcmp(lane, "side") ||
            !strcmp(r->j.lane, "side") || !strcmp(r->j.lane, "run"))
            continue;
        if (other_control) {
            if (ends)
                e2b_cancel(&r->j.cancel);
            may = false;
        } else if (!control) {
            may = false;
        } else if (breaks(verb)) {
            e2b_cancel(&r->j.cancel);
            may = false;
        }
    }
    if (!strcmp(verb, "start"))
        return may && starts < STARTS_MAX && total < WORKERS - KEPT;
    if (control)
        return may;
    if (!strcmp(lane, "side") && side >= SIDE_MAX && strcmp(verb, "input"))
        return false;
    return may && total < WORKERS - KEPT;
}

static void begin(struct jobs *q, sqlite3_stmt *row)
{
    struct running *r = xcalloc(1, sizeof(*r)), **end = &q->running;

    r->j.id = col_int(row, 0);
    r->j.sandbox = col_int(row, 1);
    r->j.run = col_int(row, 2);
    r->j.lane = xstrdup(col_text(row, 3));
    r->j.verb = xstrdup(col_text(row, 4));
    r->j.args = xstrdup(col_text(row, 5));
    r->j.step = (int)col_int(row, 6);
    r->j.attempt = (int)col_int(row, 7);
    r->verb = verb_find(r->j.verb);
    while (*end)
        end = &(*end)->next;
    *end = r;
    pthread_cond_signal(&q->work);
}

static int in_hand(struct jobs *q)
{
    int n = 0;

    for (struct running *r = q->running; r; r = r->next)
        n++;
    return n;
}

/* under the lock: what is read here was committed, and what a worker ended
 * is either gone from the table or still in the list */
static void dispatch(struct jobs *q)
{
    struct db *d = store_reader(q->c->store);
    sqlite3_stmt *row = db_query(
        d,
        "SELECT id,sandbox,run,lane,verb,args,step,attempt FROM job j WHERE "
        "state='queued' AND (not_before<=?1 OR verb IN('kill','purge') AND "
        "attempt=0) AND CASE lane "
        "WHEN 'control' THEN verb IN('kill','purge') OR NOT EXISTS(SELECT 1 "
        " FROM job k WHERE k.sandbox=j.sandbox AND k.lane='control' AND "
        " (k.id<j.id OR k.verb IN('kill','purge'))) "
        "WHEN 'work' THEN NOT EXISTS(SELECT 1 FROM job k WHERE "
        " k.sandbox=j.sandbox AND k.lane='work' AND k.id<j.id) AND NOT "
        " EXISTS(SELECT 1 FROM job k WHERE k.sandbox=j.sandbox AND "
        " k.lane='control') AND EXISTS(SELECT 1 FROM sandbox s WHERE "
        " s.id=j.sandbox AND s.status NOT IN('draft','creating','paused')) "
        "WHEN 'run' THEN NOT EXISTS(SELECT 1 FROM job k WHERE k.run=j.run AND "
        " k.sandbox=j.sandbox AND k.lane='run' AND k.id<j.id) "
        "ELSE 1 END ORDER BY lane<>'control',id",
        "i", now_ms());
    int room = WORKERS - in_hand(q);

    while (room > 0 && db_row(d, row)) {
        if (!may_begin(q, col_int(row, 0), col_int(row, 1), col_int(row, 2),
                       col_text(row, 3), col_text(row, 4), col_text(row, 5)))
            continue;
        begin(q, row);
        room--;
    }
    db_done(row);
    db_clear(d);
}

static int64_t next_look(struct jobs *q)
{
    int64_t now = now_ms();
    int64_t at = db_int(store_reader(q->c->store), 0,
                        "SELECT min(not_before) FROM job WHERE "
                        "state='queued' AND not_before>?",
                        "i", now);

    return at && at < now + LOOK_MS ? at : now + LOOK_MS;
}

static void *dispatcher(void *arg)
{
    struct jobs *q = arg;

    pthread_mutex_lock(&q->lock);
    while (!q->stop) {
        int64_t at;

        q->dirty = false;
        dispatch(q);
        at = next_look(q);
        while (!q->stop && !q->dirty && now_ms() < at) {
            struct timespec ts = {at / 1000, at % 1000 * 1000000};

            pthread_cond_timedwait(&q->look, &q->lock, &ts);
        }
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* ---- the workers ---- */

static int64_t backoff(int attempt)
{
    int64_t cap = BACKOFF_MIN;
    uint32_t dice = 0;

    while (attempt-- > 0 && cap < BACKOFF_MAX)
        cap *= 2;
    if (cap > BACKOFF_MAX)
        cap = BACKOFF_MAX;
    if (getrandom(&dice, sizeof(dice), 0) < 0)
        dice = (uint32_t)now_ns();
    return BACKOFF_MIN / 5 + dice % cap;
}

struct outcome {
    struct courier *c;
    struct running *r;
    int code, delay_ms;
    struct err e;
    bool stopping;
};

static int tx_outcome(struct tx *tx, void *arg, struct err *e)
{
    struct outcome *o = arg;
    struct job *j = &o->r->j;

    (void)e;
    if (o->code == 1) {
        db_exec(tx->db, "UPDATE job SET state='waiting' WHERE id=?", "i",
                j->id);
        return 0;
    }
    if (o->code == -EAGAIN) {
        /* a run's job counts in `step` what came for it, one that learns in
         * `attempt`: if something came since it looked, it looks again */
        db_exec(tx->db,
                "UPDATE job SET attempt=attempt+1,not_before=CASE WHEN "
                "lane='run' AND step<>? OR verb='learn' AND attempt<>? THEN 0 "
                "ELSE ? END WHERE id=?",
                "iiii", (int64_t)j->step, (int64_t)j->attempt,
                tx->now_ms +
                    (o->delay_ms > 0 ? o->delay_ms : backoff(j->attempt)),
                j->id);
        return 0;
    }
    if (o->code == -ECANCELED && strcmp(j->lane, "control")) {
        db_exec(tx->db, "UPDATE job SET not_before=0 WHERE id=?", "i", j->id);
        return 0;
    }
    /* what a kill has overtaken goes with it, and tells it how far it came;
     * a kill that is to be quick now begins again */
    if (o->code == -ECANCELED)
        return 0;
    if (o->code < 0) {
        if (o->r->verb)
            o->r->verb->failed(tx, o->c, j, &o->e);
        else
            job_other_failed(tx, o->c, j, &o->e);
    }
    tx_job_end(tx, o->c, j->id);
    return 0;
}

static void run_one(struct jobs *q, struct running *r)
{
    struct outcome o = {.c = q->c, .r = r};
    struct err e;

    if (r->verb && r->verb->run)
        o.code = r->verb->run(q->c, &r->j, &o.delay_ms, &o.e);
    else
        o.code = err_set(&o.e, ENOTSUP, "%s can't be done by this version",
                         r->j.verb);
    if (o.code < 0 && job_cancelled(&r->j))
        o.code = -ECANCELED;
    pthread_mutex_lock(&q->lock);
    o.stopping = q->stop;
    pthread_mutex_unlock(&q->lock);
    if (o.code < 0 && o.stopping)
        return; /* the next start goes on with it */
    if (o.code < 0)
        log_msg(o.code == -EAGAIN || o.code == -ECANCELED ? LOG_DEBUG
                                                          : LOG_INFO,
                "job %lld %s of sandbox %lld: %s", (long long)r->j.id,
                r->j.verb, (long long)r->j.sandbox, o.e.text);
    if (store_do(q->c->store, tx_outcome, &o, &e) < 0) {
        log_msg(LOG_ERR, "job %lld: %s", (long long)r->j.id, e.text);
        sleep_ms(1000); /* the disk is full, say; it is begun again */
    }
}

static void running_free(struct running *r)
{
    free(r->j.lane);
    free(r->j.verb);
    free(r->j.args);
    free(r);
}

static void *worker(void *arg)
{
    struct jobs *q = arg;

    pthread_mutex_lock(&q->lock);
    for (;;) {
        struct running *r = q->running, **at;

        while (r && r->taken)
            r = r->next;
        if (!r) {
            if (q->stop)
                break;
            pthread_cond_wait(&q->work, &q->lock);
            continue;
        }
        r->taken = true;
        if (!q->stop) {
            pthread_mutex_unlock(&q->lock);
            run_one(q, r);
            pthread_mutex_lock(&q->lock);
        }
        for (at = &q->running; *at != r;)
            at = &(*at)->next;
        *at = r->next;
        running_free(r);
        q->dirty = true;
        pthread_cond_signal(&q->look);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* ---- from outside ---- */

void job_cancel_work(struct courier *c, int64_t sandbox)
{
    struct jobs *q = __atomic_load_n(&c->jobs, __ATOMIC_ACQUIRE);

    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    for (struct running *r = q->running; r; r = r->next)
        if (r->j.sandbox == sandbox && !strcmp(r->j.lane, "work"))
            e2b_cancel(&r->j.cancel);
    q->dirty = true;
    pthread_cond_signal(&q->look);
    pthread_mutex_unlock(&q->lock);
}

void jobs_kick(struct courier *c)
{
    struct jobs *q = __atomic_load_n(&c->jobs, __ATOMIC_ACQUIRE);

    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->dirty = true;
    pthread_cond_signal(&q->look);
    pthread_mutex_unlock(&q->lock);
}

int jobs_open(struct courier *c, struct err *e)
{
    struct jobs *q = xcalloc(1, sizeof(*q));

    q->c = c;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->look, NULL);
    pthread_cond_init(&q->work, NULL);
    __atomic_store_n(&c->jobs, q, __ATOMIC_RELEASE);
    while (q->n_workers < WORKERS) {
        if (pthread_create(&q->workers[q->n_workers], NULL, worker, q))
            break;
        q->n_workers++;
    }
    q->dispatching = !pthread_create(&q->dispatcher, NULL, dispatcher, q);
    if (q->n_workers < WORKERS || !q->dispatching) {
        jobs_stop(c);
        return err_set(e, EAGAIN, "no threads for the jobs");
    }
    return 0;
}

void jobs_stop(struct courier *c)
{
    struct jobs *q = c->jobs;

    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    for (struct running *r = q->running; r; r = r->next)
        e2b_cancel(&r->j.cancel);
    pthread_cond_broadcast(&q->look);
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    e2b_stop(); /* a provider that doesn't answer holds up nothing */
    if (q->dispatching)
        pthread_join(q->dispatcher, NULL);
    for (int i = 0; i < q->n_workers; i++)
        pthread_join(q->workers[i], NULL);
    __atomic_store_n(&c->jobs, NULL, __ATOMIC_RELEASE);
    /* a kick that was on its way has arrived after this */
    if (c->store)
        store_do(c->store, nothing, NULL, NULL);
    pthread_cond_destroy(&q->look);
    pthread_cond_destroy(&q->work);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
