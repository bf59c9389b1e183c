/* vm: finding the VM of a sandbox, what became of it, and its pauses */
#include "engine/vm.h"

#include "engine/turn.h"

enum { PAUSE_TRIES = 12 };

/* ---- looking ---- */

const char *vm_meta(const struct e2b_box *b, const char *name)
{
    for (size_t i = 0; i < b->n_meta; i++)
        if (!strcmp(b->meta[i].name, name))
            return b->meta[i].value;
    return NULL;
}

void vm_boxes_free(struct e2b_box *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        e2b_box_clear(&v[i]);
    free(v);
}

int vm_find(struct courier *c, struct e2b *x, int64_t sandbox,
            struct e2b_box **out, size_t *n, struct err *e)
{
    AUTO_FREE char *id = xasprintf("%lld", (long long)sandbox);
    size_t all = 0, keep = 0;
    int r;

    *out = NULL;
    *n = 0;
    r = e2b_list(x, META_SANDBOX, id, out, &all, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < all; i++) {
        const char *instance = vm_meta(&(*out)[i], META_INSTANCE);
        const char *box = vm_meta(&(*out)[i], META_SANDBOX);

        if (instance && box && !strcmp(instance, c->instance) &&
            !strcmp(box, id))
            (*out)[keep++] = (*out)[i];
        else
            e2b_box_clear(&(*out)[i]);
    }
    *n = keep;
    return 0;
}

int vm_explain(struct courier *c, int64_t project, const char *backend, int r,
               struct err *e)
{
    const char *level = NULL;
    char *key = NULL;

    if (r != -EACCES || strcmp(backend, "e2b") || !e)
        return r;
    if (key_get(c, store_reader(c->store), project, "e2b", &key, &level,
                NULL) < 0)
        return r;
    vault_free(key);
    return err_prefix(e, "E2B refused the key of the %s", level);
}

int64_t vm_timeout(struct courier *c, const struct sandbox *s)
{
    int64_t secs = config_seconds(store_reader(c->store), s, "timeout", 900);

    return secs > 0 ? secs : 900;
}

void vm_follow(struct courier *c, int64_t sandbox)
{
    size_t n;
    AUTO_FREE int64_t *ids =
        processes_live(store_reader(c->store), sandbox, &n);

    for (size_t i = 0; i < n; i++)
        follow_start(c, ids[i]);
}

/* ---- the record ---- */

static bool same_vm(const struct sandbox *s, const char *vm)
{
    return s->vm && vm && !strcmp(s->vm, vm);
}

/* turns that have a limit get the whole of it again: they stood still */
static void renew_deadlines(struct tx *tx, const struct sandbox *s)
{
    int64_t secs = config_seconds(tx->db, s, "turn_timeout", 0);

    if (secs > 0)
        db_exec(tx->db,
                "UPDATE process SET deadline=? WHERE sandbox=? AND "
                "state<>'ended' AND deadline<>0",
                "ii", tx->now_ms + secs * 1000, s->id);
}

void tx_vm_running(struct tx *tx, struct courier *c, int64_t sandbox,
                   const struct e2b_box *b, int64_t expires,
                   const char *reason)
{
    struct sandbox s;

    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    if (b->token)
        db_exec(tx->db, "UPDATE sandbox SET vm_token=? WHERE id=?", "si",
                b->token, sandbox);
    if (b->domain)
        db_exec(tx->db, "UPDATE sandbox SET vm_domain=? WHERE id=?", "si",
                b->domain, sandbox);
    tx_status(tx, sandbox, "running", reason);
    db_exec(tx->db, "UPDATE sandbox SET expires=? WHERE id=?", "ii", expires,
            sandbox);
    renew_deadlines(tx, &s);
    tx_touch(tx, s.project, oid(OBJ_SANDBOX, sandbox), ASPECT_EXPIRES);
    tx_job_room(tx, c);
    sandbox_clear(&s);
}

void tx_vm_paused(struct tx *tx, struct courier *c, int64_t sandbox,
                  const char *vm, const char *reason)
{
    struct sandbox s;

    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    if (same_vm(&s, vm) && sandbox_is(&s, "running")) {
        tx_status(tx, sandbox, "paused", reason);
        tx_job_room(tx, c);
    }
    sandbox_clear(&s);
}

/* of a provider's "not found": the local host adds why it ended */
static char *gone_words(const char *why)
{
    static const char mark[] = "it ended: ";
    const char *told = strstr(why, mark), *http;

    if (!told)
        return xasprintf("the VM is gone: %s",
                         strstr(why, "doesn't exist")
                             ? "it was ended from elsewhere"
                             : why);
    told += strlen(mark);
    http = strstr(told, " (HTTP ");
    return xasprintf("the VM is gone: %.*s",
                     (int)(http ? (size_t)(http - told) : strlen(told)), told);
}

void tx_vm_gone(struct tx *tx, struct courier *c, int64_t sandbox,
                const char *vm, const char *why)
{
    struct sandbox s;

    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    if (same_vm(&s, vm)) {
        AUTO_FREE char *words = gone_words(why);

        /* a kill under way gets what it wants */
        if (*s.ending) {
            tx_status(tx, sandbox, "killed", s.ending);
        } else {
            tx_sandbox_error(tx, sandbox, words);
            tx_status(tx, sandbox, "error", words);
        }
        tx_after_end(tx, c, sandbox, false);
        tx_job_room(tx, c);
    }
    sandbox_clear(&s);
}

/* ---- pause, resume, timeout ---- */

struct change {
    struct courier *c;
    struct job *j;
    const struct sandbox *s;
    struct e2b_box box;
    int64_t expires;
    const char *reason;
};

static int tx_paused(struct tx *tx, void *arg, struct err *e)
{
    struct change *ch = arg;

    (void)e;
    tx_vm_paused(tx, ch->c, ch->s->id, ch->s->vm, ch->reason);
    tx_job_end(tx, ch->c, ch->j->id);
    return 0;
}

static int tx_gone(struct tx *tx, void *arg, struct err *e)
{
    struct change *ch = arg;

    (void)e;
    tx_vm_gone(tx, ch->c, ch->s->id, ch->s->vm, ch->reason);
    return 0;
}

static int record_gone(struct courier *c, struct job *j,
                       const struct sandbox *s, const char *words,
                       struct err *e)
{
    struct change ch = {.c = c, .j = j, .s = s, .reason = words};

    follow_stop(c, s->id);
    return store_do(c->store, tx_gone, &ch, e);
}

int job_pause(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct sandbox s;
    struct change ch = {.c = c, .j = j, .s = &s};
    AUTO_BUF struct buf reason = {0};
    struct e2b_target t;
    int r;

    (void)delay_ms;
    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    if (!sandbox_is(&s, "running")) {
        sandbox_clear(&s);
        return 0;
    }
    buf_adds(&reason, *j->args ? j->args : "paused by user");
    r = sandbox_target(c, &s, &t, e);
    if (r == 0) {
        /* nobody may look at it for long */
        if (!strncmp(j->args, "budget ", 7))
            salvage_run(c, &s, j, &reason, NULL);
        r = e2b_pause(t.x, t.id, e);
        endpoint_put(c, t.x);
    }
    ch.reason = buf_str(&reason);
    if (r == -ENOENT) {
        r = record_gone(c, j, &s, e->text, e);
    } else if (r == 0) {
        follow_stop(c, s.id);
        r = store_do(c->store, tx_paused, &ch, e);
    }
    if (r == -EHOSTDOWN)
        reconcile_kick(c);
    r = job_again(j, vm_explain(c, s.project, s.backend, r, e), PAUSE_TRIES);
    sandbox_clear(&s);
    return r;
}

static int tx_resumed(struct tx *tx, void *arg, struct err *e)
{
    struct change *ch = arg;
    struct sandbox s;

    (void)e;
    if (sandbox_get(tx->db, ch->s->id, &s) < 0)
        return 0;
    if (sandbox_is(&s, "paused") && same_vm(&s, ch->s->vm)) {
        tx_vm_running(tx, ch->c, s.id, &ch->box, ch->expires, "resumed");
        tx_job_end(tx, ch->c, ch->j->id);
    }
    sandbox_clear(&s);
    return 0;
}

int job_resume(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    struct sandbox s;
    struct change ch = {.c = c, .j = j, .s = &s};
    struct e2b_target t;
    int64_t secs;
    int r;

    (void)delay_ms;
    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    if (!sandbox_is(&s, "paused")) {
        sandbox_clear(&s);
        return 0;
    }
    secs = vm_timeout(c, &s);
    r = sandbox_target(c, &s, &t, e);
    if (r == 0) {
        ch.expires = now_ms() + secs * 1000;
        r = e2b_connect(t.x, t.id, (int)secs, &ch.box, e);
        endpoint_put(c, t.x);
    }
    if (r == 0) {
        r = store_do(c->store, tx_resumed, &ch, e);
        if (r == 0)
            vm_follow(c, s.id);
        reconcile_kick(c);
    } else if (r == -ENOENT) {
        r = record_gone(c, j, &s, e->text, e);
    } else if (r == -EHOSTDOWN && !strcmp(s.backend, "local")) {
        reconcile_kick(c);
    }
    e2b_box_clear(&ch.box);
    r = job_again(j, vm_explain(c, s.project, s.backend, r, e), PAUSE_TRIES);
    sandbox_clear(&s);
    return r;
}

void job_resume_failed(struct tx *tx, struct courier *c, const struct job *j,
                       const struct err *e)
{
    struct sandbox s;

    (void)c;
    if (sandbox_get(tx->db, j->sandbox, &s) < 0)
        return;
    tx_sandbox_error(tx, j->sandbox, e->text);
    if (sandbox_is(&s, "paused")) {
        AUTO_FREE char *why = xasprintf("could not be resumed: %s", e->text);

        tx_status(tx, j->sandbox, "paused", why);
    }
    sandbox_clear(&s);
}

/* args: the time it is to expire, ms. The record has it already */
int job_timeout(struct courier *c, struct job *j, int *delay_ms, struct err *e)
{
    int64_t at = strtoll(j->args, NULL, 10), secs;
    struct e2b_target t;
    struct sandbox s;
    int r;

    (void)delay_ms;
    if (sandbox_get(store_reader(c->store), j->sandbox, &s) < 0)
        return 0;
    if (!sandbox_is(&s, "running")) {
        sandbox_clear(&s);
        return 0;
    }
    secs = (at - now_ms() + 999) / 1000;
    r = sandbox_target(c, &s, &t, e);
    if (r == 0) {
        r = e2b_timeout(t.x, t.id, (int)(secs > 1 ? secs : 1), e);
        endpoint_put(c, t.x);
    }
    if (r == -ENOENT || r == -EHOSTDOWN) {
        reconcile_kick(c);
        r = 0;
    }
    r = job_again(j, vm_explain(c, s.project, s.backend, r, e), PAUSE_TRIES);
    sandbox_clear(&s);
    return r;
}

void job_other_failed(struct tx *tx, struct courier *c, const struct job *j,
                      const struct err *e)
{
    (void)c;
    if (j->sandbox)
        tx_sandbox_error(tx, j->sandbox, e->text);
    else
        tx_error(tx, 0, j->verb, e->text);
}
