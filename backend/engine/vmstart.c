/*
 * vmstart: how a sandbox gets its VM. Making one is the dangerous step: it
 * bills. The sandbox's id goes into its metadata, so after an unclear answer,
 * a crash or a kill that overtook, the VM is found by that and adopted or
 * ended.
 */
#include "engine/inject.h"
#include "engine/vm.h"

enum {
    CREATE_LIMIT_MS = 90000,
    START_TRIES = 20,
    ROOM_LOOK_MS = 15000,
};

/* steps of a start that are done */
enum { STEP_NONE, STEP_CREATING, STEP_MADE, STEP_INJECTED, STEP_REPO };

/* ---- making it ---- */

struct start {
    struct courier *c;
    struct job *j;
    struct e2b_box box;
    int64_t expires, max;
    const char *words;
    bool wanted; /* out */
};

/* is there room for one more? If so, it is taken, and from here on a VM may
 * be there */
static int tx_claim(struct tx *tx, void *arg, struct err *e)
{
    struct start *st = arg;
    int64_t used;

    (void)e;
    st->wanted = true;
    if (st->j->step >= STEP_CREATING)
        return 0;
    if (st->max > 0) {
        used = db_int(tx->db, 0,
                      "SELECT (SELECT count(*) FROM sandbox WHERE "
                      "status='running')+(SELECT count(*) FROM job j JOIN "
                      "sandbox s ON s.id=j.sandbox WHERE j.verb='start' AND "
                      "j.step>0 AND s.status='creating')",
                      "");
        if (used >= st->max) {
            st->wanted = false;
            return 0;
        }
    }
    tx_job_step(tx, st->j->id, STEP_CREATING);
    return 0;
}

static int tx_waiting(struct tx *tx, void *arg, struct err *e)
{
    struct start *st = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, st->j->sandbox, &s) < 0)
        return 0;
    if (sandbox_is(&s, "creating"))
        tx_status(tx, s.id, "creating", st->words);
    sandbox_clear(&s);
    return 0;
}

static void tell_waiting(struct courier *c, struct job *j, const char *why)
{
    AUTO_FREE char *words = xasprintf("waiting: %s", why);
    struct start st = {.c = c, .j = j, .words = words};

    store_do(c->store, tx_waiting, &st, NULL);
}

static int tx_made(struct tx *tx, void *arg, struct err *e)
{
    struct start *st = arg;
    struct sandbox s;

    (void)e;
    st->wanted = false;
    if (sandbox_get(tx->db, st->j->sandbox, &s) < 0)
        return 0;
    if (sandbox_is(&s, "creating") && !*s.ending) {
        st->wanted = true;
        db_exec(tx->db,
                "UPDATE sandbox SET vm=?,vm_token=?,vm_domain=?,expires=?,"
                "reason='setting up' WHERE id=?",
                "sssii", st->box.id, st->box.token, st->box.domain,
                st->expires, s.id);
        tx_job_step(tx, st->j->id, STEP_MADE);
        tx_touch(tx, s.project, oid(OBJ_SANDBOX, s.id),
                 ASPECT_EXPIRES | ASPECT_STATUS);
    }
    sandbox_clear(&s);
    return 0;
}

static int64_t max_active(struct db *d)
{
    size_t n = 0;
    AUTO_FREE char *text = doc_text(d, root_oid(), "config", &n);
    AUTO_FREE char *value = text ? config_find(text, n, "max_active") : NULL;
    int64_t v = 0;

    if (!value || !text_int(value, 0, 1000000, &v))
        return 0;
    return v;
}

struct spec {
    struct e2b_pair meta[8];
    size_t n;
    char *id, *memory, *cpu, *network, *bind;
    char *allow_out[65]; /* NULL-ended */
};

static void spec_meta(struct spec *sp, const char *name, const char *value)
{
    if (value && *value)
        sp->meta[sp->n++] = (struct e2b_pair){name, value};
}

static char *bind_json(struct db *d, const struct sandbox *s)
{
    AUTO_FREE char *repo = config_value(d, s, "repo", NULL), *common = NULL;
    json_t *a;
    char *out;

    if (!repo || !*repo || !git_is_path(repo))
        return NULL;
    a = json_array();
    json_array_append_new(a, json_string(git_path(repo)));
    common = git_common_dir(repo);
    if (common)
        json_array_append_new(a, json_string(common));
    out = json_dumps(a, JSON_COMPACT);
    json_decref(a);
    return out;
}

static void spec_fill(struct spec *sp, struct courier *c,
                      const struct sandbox *s, struct e2b_create *cr)
{
    struct db *d = store_reader(c->store);
    bool local = !strcmp(s->backend, "local");
    const char *allow = NULL;

    memset(sp, 0, sizeof(*sp));
    sp->id = xasprintf("%lld", (long long)s->id);
    spec_meta(sp, META_INSTANCE, c->instance);
    spec_meta(sp, META_SANDBOX, sp->id);
    sp->network = config_value(d, s, "network", NULL);
    cr->internet = !sp->network || strcmp(sp->network, "off");
    if (sp->network && !strncmp(sp->network, "allow=", 6)) {
        allow = sp->network + 6;
        for (int k = 0; k + 1 < (int)ARRAY_LEN(sp->allow_out); k++) {
            sp->allow_out[k] = config_list_item(allow, k);
            if (!sp->allow_out[k])
                break;
        }
        cr->allow_out = (const char *const *)sp->allow_out;
    }
    if (local) {
        sp->memory = config_value(d, s, "memory", NULL);
        sp->cpu = config_value(d, s, "cpu", NULL);
        sp->bind = bind_json(d, s);
        spec_meta(sp, "courier.memory", sp->memory);
        spec_meta(sp, "courier.cpu", sp->cpu);
        spec_meta(sp, "courier.bind", sp->bind);
        if (allow)
            spec_meta(sp, "courier.allow", allow);
        else
            spec_meta(sp, "courier.network", sp->network);
    }
    cr->metadata = sp->meta;
    cr->n_metadata = sp->n;
}

static void spec_free(struct spec *sp)
{
    free(sp->id);
    free(sp->memory);
    free(sp->cpu);
    free(sp->network);
    free(sp->bind);
    for (char **p = sp->allow_out; *p; p++)
        free(*p);
}

static char *template_of(struct db *d, const struct sandbox *s)
{
    char *name = config_value(d, s, "template", NULL);
    struct tool *t = NULL;

    if (name && *name)
        return name;
    free(name);
    name = NULL;
    if (tool_get(d, s->tool, &t, NULL) == 0) {
        name = xstrdup(t->template_id);
        tool_free(t);
    }
    if (name && *name)
        return name;
    free(name);
    return xstrdup("base");
}

/* one that is there already: of a start that was cut short. Others of the
 * same sandbox can only be left-overs */
static int adopt(struct courier *c, struct job *j, struct e2b *x,
                 struct e2b_box *out, struct err *e)
{
    struct e2b_box *v;
    size_t n;
    int r = vm_find(c, x, j->sandbox, &v, &n, e);

    if (r < 0)
        return r;
    r = n ? 1 : 0;
    for (size_t i = 1; i < n; i++)
        e2b_kill(x, v[i].id, NULL);
    if (n) {
        AUTO_FREE char *id = xstrdup(v[0].id);

        /* the list has no token: connecting gives it */
        r = e2b_connect(x, id, 60, out, e);
        if (r == -ENOENT)
            r = 0;
        else if (r == 0)
            r = 1;
    }
    vm_boxes_free(v, n);
    return r;
}

static int create(struct courier *c, struct job *j, const struct sandbox *s,
                  struct e2b *x, int64_t secs, struct e2b_box *out,
                  struct err *e)
{
    AUTO_FREE char *template = template_of(store_reader(c->store), s);
    struct e2b_create cr = {
        .template_id = strcmp(s->backend, "local") ? template : "base",
        .timeout = (int)secs,
        .auto_pause = true,
    };
    struct spec sp;
    int r;

    spec_fill(&sp, c, s, &cr);
    r = e2b_create(x, &cr, CREATE_LIMIT_MS, &j->cancel, out, e);
    spec_free(&sp);
    return r;
}

static int tx_step(struct tx *tx, void *arg, struct err *e)
{
    struct job *j = arg;

    (void)e;
    tx_job_step(tx, j->id, j->step);
    return 0;
}

static int step_done(struct courier *c, struct job *j, int step, struct err *e)
{
    j->step = step;
    return store_do(c->store, tx_step, j, e);
}

/* 0: there is a VM and the record knows it */
static int make_vm(struct courier *c, struct job *j, const struct sandbox *s,
                   struct e2b *x, struct err *e)
{
    int64_t secs = vm_timeout(c, s);
    struct start st = {.c = c, .j = j};
    bool first = j->step < STEP_CREATING;
    int r = 0;

    if (!first)
        r = adopt(c, j, x, &st.box, e);
    if (r == 0) {
        r = create(c, j, s, x, secs, &st.box, e);
        if (r == -EHOSTUNREACH && first) {
            step_done(c, j, STEP_NONE, NULL); /* none can have been made */
            j->step = STEP_NONE;
        } else if (r == -EINPROGRESS) {
            r = adopt(c, j, x, &st.box, e);
            if (r == 0)
                r = err_set(e, EAGAIN, "the provider's answer got lost");
        } else if (r == 0) {
            r = 1;
        }
    } else if (r == 1) {
        e2b_timeout(x, st.box.id, (int)secs, NULL);
    }
    if (r < 0)
        return r;
    st.expires = now_ms() + secs * 1000;
    r = store_do(c->store, tx_made, &st, e);
    if (r < 0 || !st.wanted || job_cancelled(j)) {
        e2b_kill(x, st.box.id, NULL);
        r = r < 0 ? r : err_set(e, ECANCELED, "not wanted any more");
    }
    e2b_box_clear(&st.box);
    return r;
}

/* ---- setting it up ---- */

static int tx_size(struct tx *tx, void *arg, struct err *e)
{
    struct start *st = arg;
    int64_t id = st->j->sandbox;

    (void)e;
    db_exec(tx->db, "UPDATE sandbox SET vm_cpu=?,vm_memory=? WHERE id=?",
            "iii", (int64_t)st->box.cpu, (int64_t)st->box.memory_mb, id);
    tx_changed(tx, oid(OBJ_SANDBOX, id), ASPECT_STATUS);
    return 0;
}

/* what the provider gave: at E2B the template decides. Nothing fails if it
 * doesn't tell */
static void learn_size(struct courier *c, struct job *j,
                       const struct e2b_target *t)
{
    struct start st = {.c = c, .j = j};

    if (e2b_get(t->x, t->id, &st.box, NULL) == 0)
        store_do(c->store, tx_size, &st, NULL);
    e2b_box_clear(&st.box);
}

/* what was asked for and not given */
static void tell_size(struct db *d, const struct sandbox *s, const char *key,
                      int64_t given, const char *what, struct buf *out)
{
    const char *from = "default";
    AUTO_FREE char *v = config_value(d, s, key, &from);
    int64_t asked = 0;

    if (!strcmp(from, "default") || given <= 0 ||
        !text_int(v, 1, INT32_MAX, &asked) || asked == given)
        return;
    buf_addf(out, "%s%lld %s instead of %lld", out->n ? ", " : "",
             (long long)given, what, (long long)asked);
}

static char *started_words(struct db *d, const struct sandbox *s)
{
    int64_t cpu =
        db_int(d, 0, "SELECT vm_cpu FROM sandbox WHERE id=?", "i", s->id);
    int64_t memory =
        db_int(d, 0, "SELECT vm_memory FROM sandbox WHERE id=?", "i", s->id);
    AUTO_BUF struct buf b = {0};

    tell_size(d, s, "cpu", cpu, "CPUs", &b);
    tell_size(d, s, "memory", memory, "MiB of memory", &b);
    return b.n ? xasprintf("started; the template gives %s", buf_str(&b))
               : xstrdup("started");
}

static int tx_up(struct tx *tx, void *arg, struct err *e)
{
    struct start *st = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, st->j->sandbox, &s) < 0)
        return 0;
    if (sandbox_is(&s, "creating") && s.vm) {
        AUTO_FREE char *ending = xstrdup(s.ending);
        AUTO_FREE char *words = started_words(tx->db, &s);

        tx_status(tx, s.id, "running", words);
        db_exec(tx->db, "UPDATE sandbox SET ending=? WHERE id=?", "si", ending,
                s.id);
        if (!db_int(tx->db, 0,
                    "SELECT 1 FROM message WHERE sandbox=? AND "
                    "state='queued' LIMIT 1",
                    "i", s.id))
            tx_agent(tx, s.id, "idle", NULL);
        tx_job_end(tx, st->c, st->j->id);
    }
    sandbox_clear(&s);
    return 0;
}

static int set_up(struct courier *c, struct job *j, struct err *e)
{
    struct db *d = store_reader(c->store);
    struct start st = {.c = c, .j = j};
    struct e2b_target t;
    struct sandbox s;
    int r;

    if (sandbox_get(d, j->sandbox, &s) < 0 || !s.vm) {
        sandbox_clear(&s);
        return err_set(e, ECANCELED, "not wanted any more");
    }
    r = sandbox_target(c, &s, &t, e);
    if (r == 0 && j->step < STEP_INJECTED) {
        learn_size(c, j, &t);
        r = inject_files(c, &s, &t, j, e);
        if (r == 0)
            r = step_done(c, j, STEP_INJECTED, e);
    }
    if (r == 0 && j->step < STEP_REPO) {
        r = repo_setup(c, &s, &t, j, e);
        if (r == 0)
            r = step_done(c, j, STEP_REPO, e);
    }
    if (r == 0)
        r = store_do(c->store, tx_up, &st, e);
    if (t.x)
        endpoint_put(c, t.x);
    sandbox_clear(&s);
    return r;
}

/* a start that failed for good leaves no VM */
static void undo(struct courier *c, struct job *j)
{
    struct e2b_box *v = NULL;
    struct e2b *x = NULL;
    struct sandbox s;
    size_t n = 0;

    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return;
    if (s.vm || db_int(store_reader(c->store), 0,
                       "SELECT step FROM job WHERE id=?", "i", j->id))
        endpoint_get(c, s.project, s.backend, &x, NULL);
    if (x && vm_find(c, x, s.id, &v, &n, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            e2b_kill(x, v[i].id, NULL);
    vm_boxes_free(v, n);
    if (x)
        endpoint_put(c, x);
    sandbox_clear(&s);
}

static int start_steps(struct courier *c, struct job *j,
                       const struct sandbox *s, int *delay_ms, struct err *e)
{
    struct start st = {.c = c, .j = j};
    struct e2b *x = NULL;
    int r = 0;

    if (!s->vm) {
        st.max = max_active(store_reader(c->store));
        r = store_do(c->store, tx_claim, &st, e);
        if (r < 0)
            return r;
        if (!st.wanted) {
            AUTO_FREE char *why =
                xasprintf("max_active %lld reached", (long long)st.max);

            tell_waiting(c, j, why);
            *delay_ms = ROOM_LOOK_MS;
            return err_set(e, EAGAIN, "%s", why);
        }
        r = endpoint_get(c, s->project, s->backend, &x, e);
        if (r == 0) {
            r = make_vm(c, j, s, x, e);
            endpoint_put(c, x);
        }
        if (r == 0)
            j->step = STEP_MADE;
    }
    if (r == 0)
        r = set_up(c, j, e);
    return r;
}

static void resume_quietly(struct e2b *x, const char *id, int64_t secs)
{
    struct e2b_box b = {0};

    e2b_connect(x, id, (int)secs, &b, NULL);
    e2b_box_clear(&b);
}

/* nothing answers in it while it is set up: is it gone, or did its deadline
 * pass in between? */
static int look_after(struct courier *c, struct job *j, int r, struct err *e)
{
    struct e2b_box b = {0};
    struct e2b_target t;
    struct sandbox s;
    struct err why;

    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0 || !s.vm) {
        sandbox_clear(&s);
        return r;
    }
    if (sandbox_target(c, &s, &t, &why) < 0) {
        if (!strcmp(s.backend, "local"))
            r = err_set(e, ENODEV,
                        "the local host ended while the VM was set up");
    } else {
        int got = e2b_get(t.x, t.id, &b, &why);

        if (got == -ENOENT)
            r = err_set(e, ENODEV, "the VM is gone while it was set up");
        else if (got == 0 && b.state == E2B_PAUSED)
            resume_quietly(t.x, t.id, vm_timeout(c, &s));
        endpoint_put(c, t.x);
    }
    e2b_box_clear(&b);
    sandbox_clear(&s);
    return r;
}

int job_start(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct sandbox s;
    int r;

    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    if (!sandbox_is(&s, "creating")) {
        sandbox_clear(&s);
        return 0;
    }
    r = start_steps(c, j, &s, delay_ms, e);
    if ((r == -ENOENT || r == -EHOSTDOWN) && !job_cancelled(j))
        r = look_after(c, j, r, e);
    r = vm_explain(c, s.project, s.backend, r, e);
    if (r == -EAGAIN && !*delay_ms) {
        /* the provider has no room, or not now */
        tell_waiting(c, j, e->text);
    } else if (r < 0 && r != -EAGAIN && !job_cancelled(j)) {
        r = job_again(j, r, START_TRIES);
        if (r == -EAGAIN)
            tell_waiting(c, j, e->text);
    }
    if (r < 0 && r != -EAGAIN && !job_cancelled(j))
        undo(c, j);
    sandbox_clear(&s);
    return r;
}

void job_start_failed(struct tx *tx, struct courier *c, const struct job *j,
                      const struct err *e)
{
    struct sandbox s;

    if (sandbox_get(tx->db, j->sandbox, &s) < 0)
        return;
    if (sandbox_is(&s, "creating")) {
        tx_sandbox_error(tx, j->sandbox, e->text);
        tx_status(tx, j->sandbox, "error", e->text);
        tx_after_end(tx, c, j->sandbox, false);
        tx_job_room(tx, c);
    }
    sandbox_clear(&s);
}
