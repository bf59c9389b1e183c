/*
 * A sandbox's life:
 *
 *   draft -> creating -> running <-> paused -> killed
 *                 \          \          \
 *                  +----------+----------+---> error
 *
 * killed and error are ends. tx_status is the only way from one to another.
 */
#include "engine/engine.h"
#include "engine/input.h"

static const char columns[] =
    "SELECT id,project,name,trash,kind,status,reason,agent,error,config,"
    "backend,tool,model,vm,vm_token,vm_domain,session,last_turn,ending,"
    "branch,meant,base,pr_status,pr_head,learn_status,expires,vm_since,run,"
    "step,created,"
    "started,running_at,ended,usd FROM sandbox WHERE id=?";

int sandbox_get(struct db *d, int64_t id, struct sandbox *s)
{
    sqlite3_stmt *q = db_query(d, columns, "i", id);
    char **text[] = {
        &s->name,      &s->trash,     &s->kind,        &s->status,
        &s->reason,    &s->agent,     &s->error,       &s->config,
        &s->backend,   &s->tool,      &s->model,       &s->vm,
        &s->vm_token,  &s->vm_domain, &s->session,     &s->last_turn,
        &s->ending,    &s->branch,    &s->meant,       &s->base,
        &s->pr_status, &s->pr_head,   &s->learn_status};
    int i = 2;

    memset(s, 0, sizeof(*s));
    if (!db_row(d, q))
        return -ENOENT;
    s->id = col_int(q, 0);
    s->project = col_int(q, 1);
    for (size_t k = 0; k < ARRAY_LEN(text); k++)
        *text[k] = col_dup(q, i++);
    s->expires = col_int(q, i++);
    s->vm_since = col_int(q, i++);
    s->run = col_int(q, i++);
    s->step = col_int(q, i++);
    s->created = col_int(q, i++);
    s->started = col_int(q, i++);
    s->running_at = col_int(q, i++);
    s->ended = col_int(q, i++);
    s->usd = col_double(q, i++);
    db_done(q);
    return 0;
}

void sandbox_clear(struct sandbox *s)
{
    free(s->name);
    free(s->trash);
    free(s->kind);
    free(s->status);
    free(s->reason);
    free(s->agent);
    free(s->error);
    free(s->config);
    free(s->backend);
    free(s->tool);
    free(s->model);
    free(s->vm);
    if (s->vm_token)
        explicit_bzero(s->vm_token, strlen(s->vm_token));
    free(s->vm_token);
    free(s->vm_domain);
    free(s->session);
    free(s->last_turn);
    free(s->ending);
    free(s->branch);
    free(s->meant);
    free(s->base);
    free(s->pr_status);
    free(s->pr_head);
    free(s->learn_status);
    memset(s, 0, sizeof(*s));
}

bool sandbox_is(const struct sandbox *s, const char *status)
{
    return !strcmp(s->status, status);
}

/* ---- events and errors ---- */

enum { EVENTS_MAX = 64 << 20 };

static char *project_name(struct db *d, int64_t id)
{
    return db_text(d, "SELECT coalesce(trash,name) FROM project WHERE id=?",
                   "i", id);
}

static void rotate_events(struct tx *tx)
{
    db_exec(tx->db,
            "INSERT INTO meta(key,value) VALUES('events_old_ns',?) "
            "ON CONFLICT DO UPDATE SET value=excluded.value",
            "i", store_mtime(tx->db, root_oid(), ASPECT_EVENTS));
    db_exec(tx->db,
            "INSERT INTO meta(key,value) VALUES('events_series',1) "
            "ON CONFLICT DO UPDATE SET value=value+1",
            "");
    tx_stream_rotate(tx, root_oid(), STREAM_EVENTS, STREAM_EVENTS_OLD);
}

void tx_event(struct tx *tx, int64_t project, struct oid o, const char *event,
              json_t *extra)
{
    AUTO_FREE char *pname = NULL, *name = NULL, *text = NULL;
    int64_t seq =
        db_int(tx->db, 0, "SELECT value FROM meta WHERE key='seq'", "") + 1;
    json_t *j = json_object();
    char when[32];
    size_t n;

    db_exec(tx->db,
            "INSERT INTO meta(key,value) VALUES('seq',?) ON CONFLICT DO "
            "UPDATE SET value=excluded.value",
            "i", seq);
    time_rfc3339(tx->now_ms, when);
    json_object_set_new(j, "seq", json_integer(seq));
    json_object_set_new(j, "time", json_string(when));
    if (project && (pname = project_name(tx->db, project)))
        json_object_set_new(j, "project", json_string(pname));
    if (o.kind == OBJ_SANDBOX)
        name =
            db_text(tx->db, "SELECT name FROM sandbox WHERE id=?", "i", o.id);
    else if (o.kind == OBJ_RUN)
        name = db_text(tx->db, "SELECT name FROM run WHERE id=?", "i", o.id);
    if (name)
        json_object_set_new(j, o.kind == OBJ_RUN ? "run" : "sandbox",
                            json_string(name));
    json_object_set_new(j, "event", json_string(event));
    if (extra) {
        json_object_update_missing(j, extra);
        json_decref(extra);
    }
    text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(j);
    if (!text)
        return;
    n = strlen(text);
    text = xrealloc(text, n + 2);
    text[n++] = '\n';
    if (store_stream_size(tx->db, root_oid(), STREAM_EVENTS) > EVENTS_MAX)
        rotate_events(tx);
    tx_stream_add(tx, root_oid(), STREAM_EVENTS, text, n, ASPECT_EVENTS);
    if (project)
        tx_stream_add(tx, oid(OBJ_PROJECT, project), STREAM_EVENTS, text, n,
                      ASPECT_EVENTS);
    if (o.kind == OBJ_SANDBOX || o.kind == OBJ_RUN)
        tx_stream_add(tx, o, STREAM_EVENTS, text, n, ASPECT_EVENTS);
    if (o.kind == OBJ_SANDBOX) {
        int64_t run =
            db_int(tx->db, 0, "SELECT run FROM sandbox WHERE id=?", "i", o.id);

        if (run && db_int(tx->db, 0, "SELECT 1 FROM run WHERE id=?", "i", run))
            tx_stream_add(tx, oid(OBJ_RUN, run), STREAM_EVENTS, text, n,
                          ASPECT_EVENTS);
    }
}

void tx_error(struct tx *tx, int64_t project, const char *path,
              const char *text)
{
    AUTO_BUF struct buf p = {0}, t = {0};

    text_printable(&p, path, strlen(path), 0);
    text_printable(&t, text, strlen(text), 0);
    db_exec(tx->db,
            "UPDATE error SET count=count+1 WHERE id=(SELECT id FROM error "
            "WHERE path=? AND text=? AND time>? ORDER BY id DESC LIMIT 1)",
            "ssi", buf_str(&p), buf_str(&t), tx->now_ms - 60000);
    if (!db_changes(tx->db)) {
        db_exec(tx->db,
                "INSERT INTO error(time,project,path,text) VALUES(?,?,?,?)",
                "iiss", tx->now_ms, project, buf_str(&p), buf_str(&t));
        db_exec(
            tx->db,
            "DELETE FROM error WHERE id<=(SELECT max(id) FROM error)-10000",
            "");
    }
    db_exec(tx->db,
            "INSERT INTO meta(key,value) VALUES('last_error',?) ON CONFLICT "
            "DO UPDATE SET value=excluded.value",
            "s", buf_str(&t));
    tx_changed(tx, root_oid(), ASPECT_ERRORS | ASPECT_STATUS);
    if (project)
        tx_changed(tx, oid(OBJ_PROJECT, project), ASPECT_ERRORS);
}

char *object_path(struct db *d, struct oid o)
{
    switch (o.kind) {
    case OBJ_PROJECT:
        return db_text(d,
                       "SELECT CASE WHEN trash IS NULL THEN 'projects/'||name "
                       "ELSE 'trash/'||trash END FROM project WHERE id=?",
                       "i", o.id);
    case OBJ_SANDBOX:
        return db_text(d,
                       "SELECT 'projects/'||p.name||CASE WHEN s.trash IS NULL "
                       "THEN '/sandboxes/'||s.name ELSE '/trash/'||s.trash "
                       "END FROM sandbox s JOIN project p ON p.id=s.project "
                       "WHERE s.id=?",
                       "i", o.id);
    case OBJ_RUN:
        return db_text(d,
                       "SELECT 'projects/'||p.name||CASE WHEN r.trash IS NULL "
                       "THEN '/runs/'||r.name ELSE '/trash/'||r.trash END "
                       "FROM run r JOIN project p ON p.id=r.project "
                       "WHERE r.id=?",
                       "i", o.id);
    default:
        return xstrdup("");
    }
}

void tx_touch(struct tx *tx, int64_t project, struct oid o, uint64_t aspects)
{
    uint64_t up = 0;

    if (aspects & (ASPECT_STATUS | ASPECT_NAMES))
        up |= ASPECT_STATUS | ASPECT_BOARD;
    if (aspects & (ASPECT_AGENT | ASPECT_EXPIRES | ASPECT_BRANCH | ASPECT_PR |
                   ASPECT_DOCS))
        up |= ASPECT_BOARD;
    if (aspects & ASPECT_USAGE)
        up |= ASPECT_USAGE | ASPECT_STATUS | ASPECT_BOARD;
    tx_changed(tx, o, aspects | ASPECT_INFO);
    if (!up)
        return;
    if (project)
        tx_changed(tx, oid(OBJ_PROJECT, project), up);
    tx_changed(tx, root_oid(), up);
}

/* ---- transitions ---- */

static bool ended(const char *status)
{
    return !strcmp(status, "killed") || !strcmp(status, "error");
}

/* ---- the transcript ---- */

void tx_transcript(struct tx *tx, int64_t sandbox, const void *p, size_t n)
{
    int64_t run =
        db_int(tx->db, 0, "SELECT run FROM sandbox WHERE id=?", "i", sandbox);

    tx_stream_add(tx, oid(OBJ_SANDBOX, sandbox), STREAM_MESSAGES, p, n,
                  ASPECT_MESSAGES);
    if (run && db_int(tx->db, 0, "SELECT 1 FROM run WHERE id=?", "i", run))
        tx_stream_add(tx, oid(OBJ_RUN, run), STREAM_MESSAGES, p, n,
                      ASPECT_MESSAGES);
}

/* messages that nobody will answer: told in the transcript, each of them */
static void drop_queue(struct tx *tx, const struct sandbox *s)
{
    for (;;) {
        sqlite3_stmt *q = db_query(
            tx->db,
            "SELECT id,text FROM message WHERE sandbox=? AND state='queued' "
            "ORDER BY id LIMIT 1",
            "i", s->id);
        AUTO_BUF struct buf b = {0}, text = {0};
        int64_t id, seq;
        json_t *line;
        char when[32];
        char *dump;

        if (!db_row(tx->db, q))
            break;
        id = col_int(q, 0);
        buf_add(&text, sqlite3_column_blob(q, 1),
                (size_t)sqlite3_column_bytes(q, 1));
        db_done(q);
        seq = db_int(tx->db, 1, "SELECT next_seq FROM sandbox WHERE id=?", "i",
                     s->id);
        time_rfc3339(tx->now_ms, when);
        transcript_user(&b, tx->now_ms, seq, buf_str(&text), text.n);
        buf_addf(&b, "── %s  #%lld error  not delivered: sandbox ended\n\n",
                 when, (long long)seq);
        tx_transcript(tx, s->id, b.p, b.n);
        buf_clear(&b);
        text_printable(&b, buf_str(&text), text.n,
                       PRINTABLE_LINES | PRINTABLE_TABS);
        line = json_pack(
            "{s:I,s:s,s:s%,s:s,s:s,s:n,s:s}", "seq", (json_int_t)seq, "role",
            "user", "content", buf_str(&b), b.n, "status", "error", "error",
            "not delivered: sandbox ended", "started", "completed", when);
        dump = line ? json_dumps(line, JSON_COMPACT) : NULL;
        if (dump) {
            AUTO_FREE char *full = xasprintf("%s\n", dump);

            tx_stream_add(tx, oid(OBJ_SANDBOX, s->id), STREAM_MESSAGES_JSONL,
                          full, strlen(full), ASPECT_MESSAGES);
        }
        free(dump);
        json_decref(line);
        db_exec(tx->db,
                "UPDATE message SET state='dropped',seq=?,ended=?,"
                "error='not delivered: sandbox ended' WHERE id=?",
                "iii", seq, tx->now_ms, id);
        db_exec(tx->db, "UPDATE sandbox SET next_seq=? WHERE id=?", "ii",
                seq + 1, s->id);
    }
}

/* the VM ran from vm_since to now: that is what it cost */
static void bill_interval(struct tx *tx, const struct sandbox *s)
{
    double secs = (double)(tx->now_ms - s->vm_since) / 1000.0;

    if (!s->vm_since)
        return;
    db_exec(tx->db, "UPDATE sandbox SET vm_since=0 WHERE id=?", "i", s->id);
    tx_usage(tx, s->id, s->backend, s->tool, "sandbox_seconds",
             secs > 0 ? secs : 0, -1);
}

void tx_bill(struct tx *tx, int64_t sandbox)
{
    struct sandbox s;

    if (sandbox_get(tx->db, sandbox, &s) < 0)
        return;
    if (s.vm_since) {
        bill_interval(tx, &s);
        db_exec(tx->db, "UPDATE sandbox SET vm_since=? WHERE id=?", "ii",
                tx->now_ms, sandbox);
    }
    sandbox_clear(&s);
}

/* those that had not begun */
static void drop_execs(struct tx *tx, int64_t sandbox)
{
    int64_t id;

    while ((id = db_int(tx->db, 0,
                        "SELECT id FROM exec WHERE sandbox=? AND "
                        "status<>'exited' LIMIT 1",
                        "i", sandbox))) {
        db_exec(tx->db,
                "UPDATE exec SET status='exited',ended=?,exit='killed' WHERE "
                "id=?",
                "ii", tx->now_ms, id);
        tx_input_exited(tx, NULL, id);
        tx_changed(tx, oid(OBJ_EXEC, id), ASPECT_STATUS | ASPECT_INFO);
    }
}

static void end_of(struct tx *tx, const struct sandbox *s)
{
    struct oid o = oid(OBJ_SANDBOX, s->id);

    db_exec(tx->db,
            "UPDATE sandbox SET ended=?,expires=0,ending='',vm=NULL,"
            "vm_token=NULL WHERE id=?",
            "ii", tx->now_ms, s->id);
    db_exec(tx->db,
            "DELETE FROM job WHERE sandbox=? AND lane IN('work','control')",
            "i", s->id);
    turn_abandon(tx, s->id, "sandbox ended");
    drop_queue(tx, s);
    drop_execs(tx, s->id);
    tx_agent(tx, s->id, !strcmp(s->agent, "failed") ? "failed" : "none", NULL);
    tx_changed(tx, o,
               ASPECT_EXPIRES | ASPECT_QUEUE | ASPECT_MESSAGES | ASPECT_LOG |
                   ASPECT_EVENTS);
}

void tx_status(struct tx *tx, int64_t id, const char *to, const char *reason)
{
    AUTO_BUF struct buf why = {0};
    struct sandbox s;
    bool was, is;

    if (sandbox_get(tx->db, id, &s) < 0)
        return;
    if (!reason)
        reason = "";
    text_printable(&why, reason, strlen(reason), 0);
    if (!strcmp(s.status, to)) {
        if (strcmp(s.reason, buf_str(&why))) {
            db_exec(tx->db, "UPDATE sandbox SET reason=? WHERE id=?", "si",
                    buf_str(&why), id);
            tx_touch(tx, s.project, oid(OBJ_SANDBOX, id), ASPECT_STATUS);
        }
        sandbox_clear(&s);
        return;
    }
    was = sandbox_is(&s, "running") && !s.trash;
    is = !strcmp(to, "running") && !s.trash;
    db_exec(tx->db, "UPDATE sandbox SET status=?,reason=? WHERE id=?", "ssi",
            to, buf_str(&why), id);
    if (was != is)
        db_exec(tx->db, "UPDATE project SET active=active+? WHERE id=?", "ii",
                (int64_t)(is ? 1 : -1), s.project);
    tx_event(tx, s.project, oid(OBJ_SANDBOX, id), "status",
             json_pack("{s:s,s:s,s:s}", "from", s.status, "to", to, "reason",
                       buf_str(&why)));
    if (!strcmp(to, "creating"))
        db_exec(tx->db, "UPDATE sandbox SET started=? WHERE id=?", "ii",
                tx->now_ms, id);
    if (!strcmp(to, "running")) {
        db_exec(tx->db,
                "UPDATE sandbox SET vm_since=?,running_at=CASE running_at "
                "WHEN 0 THEN ? ELSE running_at END,ending='' WHERE id=?",
                "iii", tx->now_ms, tx->now_ms, id);
        tx_input_resumed(tx, id);
    } else {
        bill_interval(tx, &s);
    }
    if (!strcmp(to, "paused"))
        db_exec(tx->db, "UPDATE sandbox SET ending='',expires=0 WHERE id=?",
                "i", id);
    if (ended(to))
        end_of(tx, &s);
    tx_run_look(tx, NULL, id);
    tx_touch(tx, s.project, oid(OBJ_SANDBOX, id),
             ASPECT_STATUS | ASPECT_EXPIRES | ASPECT_QUEUE | ASPECT_CTL);
    tx_changed(tx, oid(OBJ_PROJECT, s.project), ASPECT_NAMES);
    sandbox_clear(&s);
}

void tx_agent(struct tx *tx, int64_t id, const char *agent, const char *reason)
{
    struct sandbox s;

    if (sandbox_get(tx->db, id, &s) < 0)
        return;
    if (strcmp(s.agent, agent)) {
        db_exec(tx->db, "UPDATE sandbox SET agent=? WHERE id=?", "si", agent,
                id);
        tx_event(tx, s.project, oid(OBJ_SANDBOX, id), "agent",
                 json_pack("{s:s,s:s}", "from", s.agent, "to", agent));
        if (s.run) /* its timeline shows when it works */
            tx_changed(tx, oid(OBJ_RUN, s.run), ASPECT_PROGRESS);
        tx_touch(tx, s.project, oid(OBJ_SANDBOX, id),
                 ASPECT_AGENT | ASPECT_QUEUE);
    }
    if (reason && *reason && sandbox_is(&s, "running"))
        tx_status(tx, id, s.status, reason);
    sandbox_clear(&s);
}

void tx_sandbox_error(struct tx *tx, int64_t id, const char *text)
{
    AUTO_FREE char *path = object_path(tx->db, oid(OBJ_SANDBOX, id));
    AUTO_BUF struct buf b = {0};
    struct sandbox s;

    if (sandbox_get(tx->db, id, &s) < 0)
        return;
    text_printable(&b, text, strlen(text), PRINTABLE_LINES | PRINTABLE_TABS);
    db_exec(tx->db, "UPDATE sandbox SET error=? WHERE id=?", "si", buf_str(&b),
            id);
    tx_touch(tx, s.project, oid(OBJ_SANDBOX, id), ASPECT_ERROR);
    tx_error(tx, s.project, path ? path : "", text);
    sandbox_clear(&s);
}
