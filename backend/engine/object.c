/*
 * Objects by name: lists, the trash, renames. An object in the trash keeps
 * its name in `name` and has the name it is listed under there in `trash`.
 */
#include "engine/engine.h"
#include "engine/repo.h"

/* ---- lists ---- */

/* rows are (id, name, kind); arguments are (owner, after) or (owner, name) */
struct list_sql {
    enum obj_kind kind;
    const char *all, *one;
};

#define STATUS_SQL(st)                                                        \
    {                                                                         \
        OBJ_SANDBOX,                                                          \
            "SELECT id,name FROM sandbox WHERE project=?1 AND id>?2 AND "     \
            "trash IS NULL AND status='" st "' ORDER BY id",                  \
            "SELECT id FROM sandbox WHERE project=?1 AND name=?2 AND trash "  \
            "IS NULL AND status='" st "'"                                     \
    }

static const struct list_sql lists[LISTS] = {
    [LIST_PROJECTS] = {OBJ_PROJECT,
                       "SELECT id,name FROM project WHERE ?1=0 AND id>?2 AND "
                       "trash IS NULL ORDER BY id",
                       "SELECT id FROM project WHERE ?1=0 AND name=?2 AND "
                       "trash IS NULL"},
    [LIST_PROJECTS_TRASH] = {OBJ_PROJECT,
                             "SELECT id,trash FROM project WHERE ?1=0 AND "
                             "id>?2 AND trash IS NOT NULL ORDER BY id",
                             "SELECT id FROM project WHERE ?1=0 AND trash=?2"},
    [LIST_SANDBOXES] = {OBJ_SANDBOX,
                        "SELECT id,name FROM sandbox WHERE project=?1 AND "
                        "id>?2 AND trash IS NULL ORDER BY id",
                        "SELECT id FROM sandbox WHERE project=?1 AND name=?2 "
                        "AND trash IS NULL"},
    [LIST_RUNS] = {OBJ_RUN,
                   "SELECT id,name FROM run WHERE project=?1 AND id>?2 AND "
                   "trash IS NULL ORDER BY id",
                   "SELECT id FROM run WHERE project=?1 AND name=?2 AND "
                   "trash IS NULL"},
    [LIST_DRAFT] = STATUS_SQL("draft"),
    [LIST_CREATING] = STATUS_SQL("creating"),
    [LIST_RUNNING] = STATUS_SQL("running"),
    [LIST_PAUSED] = STATUS_SQL("paused"),
    [LIST_KILLED] = STATUS_SQL("killed"),
    [LIST_ERROR] = STATUS_SQL("error"),
    [LIST_STEPS] = {OBJ_STEP,
                    "SELECT id,name FROM step WHERE run=?1 AND id>?2 "
                    "ORDER BY id",
                    "SELECT id FROM step WHERE run=?1 AND name=?2"},
    [LIST_EXECS] = {OBJ_EXEC,
                    "SELECT id,n FROM exec WHERE sandbox=?1 AND id>?2 "
                    "ORDER BY id",
                    "SELECT id FROM exec WHERE sandbox=?1 AND "
                    "CAST(n AS TEXT)=?2"},
};

/* the trash of a project holds sandboxes and, after them, runs: the cookies
 * of runs begin here */
enum { RUN_ROW = 1 << 30 };
#define RUN_BASE ((int64_t)RUN_ROW << 20)

static bool each(struct db *d, const char *sql, int64_t owner, int64_t after,
                 int64_t base, enum obj_kind kind, courier_list_fn fn,
                 void *arg)
{
    sqlite3_stmt *q = db_query(d, sql, "ii", owner, after);

    while (db_row(d, q)) {
        AUTO_FREE char *name = xstrdup(col_text(q, 1));
        int64_t id = col_int(q, 0);

        if (!fn(arg, base + id, name, oid(kind, id))) {
            db_done(q);
            return false;
        }
    }
    return true;
}

int courier_list(struct courier *c, enum list l, struct oid owner,
                 int64_t after, courier_list_fn fn, void *arg)
{
    struct db *d = store_reader(c->store);

    if (l == LIST_TRASH) {
        if (after < RUN_BASE &&
            !each(d,
                  "SELECT id,trash FROM sandbox WHERE project=?1 AND id>?2 "
                  "AND trash IS NOT NULL ORDER BY id",
                  owner.id, after, 0, OBJ_SANDBOX, fn, arg))
            return 0;
        after = after < RUN_BASE ? 0 : after - RUN_BASE;
        each(d,
             "SELECT id,trash FROM run WHERE project=?1 AND id>?2 AND trash "
             "IS NOT NULL ORDER BY id",
             owner.id, after, RUN_BASE, OBJ_RUN, fn, arg);
        return 0;
    }
    each(d, lists[l].all, owner.id, after, 0, lists[l].kind, fn, arg);
    return 0;
}

int courier_find(struct courier *c, enum list l, struct oid owner,
                 const char *name, struct oid *out)
{
    struct db *d = store_reader(c->store);
    int64_t id;

    if (l == LIST_TRASH) {
        id = db_int(d, 0, "SELECT id FROM sandbox WHERE project=? AND trash=?",
                    "is", owner.id, name);
        *out = oid(OBJ_SANDBOX, id);
        if (id)
            return 0;
        id = db_int(d, 0, "SELECT id FROM run WHERE project=? AND trash=?",
                    "is", owner.id, name);
        *out = oid(OBJ_RUN, id);
        return id ? 0 : -ENOENT;
    }
    id = db_int(d, 0, lists[l].one, "is", owner.id, name);
    *out = oid(lists[l].kind, id);
    return id ? 0 : -ENOENT;
}

static const char *where_sql(enum obj_kind k)
{
    switch (k) {
    case OBJ_PROJECT:
        return "SELECT 0,name,trash FROM project WHERE id=?";
    case OBJ_SANDBOX:
        return "SELECT project,name,trash FROM sandbox WHERE id=?";
    case OBJ_RUN:
        return "SELECT project,name,trash FROM run WHERE id=?";
    case OBJ_STEP:
        return "SELECT run,name,NULL FROM step WHERE id=?";
    case OBJ_EXEC:
        return "SELECT sandbox,n,NULL FROM exec WHERE id=?";
    default:
        return NULL;
    }
}

int64_t object_project(struct db *d, struct oid o)
{
    switch (o.kind) {
    case OBJ_PROJECT:
        return o.id;
    case OBJ_SANDBOX:
        return db_int(d, 0, "SELECT project FROM sandbox WHERE id=?", "i",
                      o.id);
    case OBJ_RUN:
        return db_int(d, 0, "SELECT project FROM run WHERE id=?", "i", o.id);
    case OBJ_STEP:
        return db_int(d, 0,
                      "SELECT project FROM run WHERE id=(SELECT run FROM step "
                      "WHERE id=?)",
                      "i", o.id);
    case OBJ_EXEC:
        return db_int(d, 0,
                      "SELECT project FROM sandbox WHERE id=(SELECT sandbox "
                      "FROM exec WHERE id=?)",
                      "i", o.id);
    default:
        return 0;
    }
}

int courier_where(struct courier *c, struct oid o, enum list *l,
                  struct oid *owner, char **name)
{
    static const struct {
        enum list live, trash;
        enum obj_kind owner;
    } at[OBJ_KINDS] = {
        [OBJ_PROJECT] = {LIST_PROJECTS, LIST_PROJECTS_TRASH, OBJ_ROOT},
        [OBJ_SANDBOX] = {LIST_SANDBOXES, LIST_TRASH, OBJ_PROJECT},
        [OBJ_RUN] = {LIST_RUNS, LIST_TRASH, OBJ_PROJECT},
        [OBJ_STEP] = {LIST_STEPS, LIST_STEPS, OBJ_RUN},
        [OBJ_EXEC] = {LIST_EXECS, LIST_EXECS, OBJ_SANDBOX},
    };
    struct db *d = store_reader(c->store);
    const char *sql = where_sql(o.kind);
    sqlite3_stmt *q = sql ? db_query(d, sql, "i", o.id) : NULL;

    if (!q || !db_row(d, q))
        return -ENOENT;
    *owner = oid(at[o.kind].owner, col_int(q, 0));
    *l = col_null(q, 2) ? at[o.kind].live : at[o.kind].trash;
    *name = xstrdup(col_text(q, col_null(q, 2) ? 1 : 2));
    db_done(q);
    return 0;
}

int courier_times(struct courier *c, struct oid o, int64_t *created_ns,
                  int64_t *names_ns)
{
    struct db *d = store_reader(c->store);
    int64_t created = 0;

    switch (o.kind) {
    case OBJ_PROJECT:
        created =
            db_int(d, 0, "SELECT created FROM project WHERE id=?", "i", o.id);
        break;
    case OBJ_SANDBOX:
        created =
            db_int(d, 0, "SELECT created FROM sandbox WHERE id=?", "i", o.id);
        break;
    case OBJ_RUN:
        created =
            db_int(d, 0, "SELECT created FROM run WHERE id=?", "i", o.id);
        break;
    case OBJ_STEP:
        created =
            db_int(d, 0, "SELECT created FROM step WHERE id=?", "i", o.id);
        break;
    case OBJ_EXEC:
        created =
            db_int(d, 0, "SELECT created FROM exec WHERE id=?", "i", o.id);
        break;
    default:
        created =
            db_int(d, 0, "SELECT value FROM meta WHERE key='created'", "");
        break;
    }
    if (!created)
        return -ENOENT;
    *created_ns = created * 1000000;
    *names_ns = store_mtime(d, o, ASPECT_NAMES);
    if (*names_ns < *created_ns)
        *names_ns = *created_ns;
    return 0;
}

/* ---- streams ---- */

static int alive(struct db *d, struct oid o)
{
    if (o.kind == OBJ_SANDBOX)
        return db_int(d, 0, "SELECT 1 FROM sandbox WHERE id=?", "i", o.id)
                   ? 0
                   : -ENOENT;
    if (o.kind == OBJ_EXEC)
        return db_int(d, 0, "SELECT 1 FROM exec WHERE id=?", "i", o.id)
                   ? 0
                   : -ENOENT;
    if (o.kind == OBJ_RUN)
        return db_int(d, 0, "SELECT 1 FROM run WHERE id=?", "i", o.id)
                   ? 0
                   : -ENOENT;
    if (o.kind == OBJ_PROJECT)
        return db_int(d, 0, "SELECT 1 FROM project WHERE id=?", "i", o.id)
                   ? 0
                   : -ENOENT;
    return 0;
}

uint64_t courier_stream_aspects(enum stream s)
{
    static const uint64_t of[STREAMS] = {
        [STREAM_EVENTS] = ASPECT_EVENTS,
        [STREAM_MESSAGES] = ASPECT_MESSAGES,
        [STREAM_MESSAGES_JSONL] = ASPECT_MESSAGES,
        [STREAM_LOG] = ASPECT_LOG,
        [STREAM_SETUP] = ASPECT_SETUP,
        [STREAM_OUT] = ASPECT_OUT,
        [STREAM_ERR] = ASPECT_ERR,
        [STREAM_EVENTS_OLD] = ASPECT_EVENTS,
    };

    return of[s];
}

int64_t courier_events_series(struct courier *c)
{
    return db_int(store_reader(c->store), 0,
                  "SELECT value FROM meta WHERE key='events_series'", "");
}

/* as long as nothing is added to a stream its time stays: the old events'
 * doesn't move with the new ones' */
static int64_t stream_mtime(struct db *d, struct oid o, enum stream s)
{
    if (s == STREAM_EVENTS_OLD)
        return db_int(d, 0, "SELECT value FROM meta WHERE key='events_old_ns'",
                      "");
    return store_mtime(d, o, courier_stream_aspects(s));
}

int courier_stream_stat(struct courier *c, struct oid o, enum stream s,
                        int64_t *size, int64_t *mtime_ns)
{
    struct db *d = store_reader(c->store);
    int64_t created, names;
    int r = alive(d, o);

    if (r < 0)
        return r;
    *size = store_stream_size(d, o, s);
    *mtime_ns = stream_mtime(d, o, s);
    if (!*mtime_ns && !courier_times(c, o, &created, &names))
        *mtime_ns = created;
    return 0;
}

int courier_stream_read(struct courier *c, struct oid o, enum stream s,
                        int64_t off, size_t n, struct buf *out)
{
    return store_stream_read(store_reader(c->store), o, s, off, n, out);
}

bool courier_stream_ended(struct courier *c, struct oid o, enum stream s)
{
    struct db *d = store_reader(c->store);

    (void)s;
    switch (o.kind) {
    case OBJ_SANDBOX:
        return db_int(d, 1,
                      "SELECT status IN('killed','error') OR trash IS NOT "
                      "NULL FROM sandbox WHERE id=?",
                      "i", o.id);
    case OBJ_RUN:
        return db_int(d, 1,
                      "SELECT status IN('completed','failed','cancelled') "
                      "FROM run WHERE id=?",
                      "i", o.id);
    case OBJ_EXEC:
        return db_int(d, 1, "SELECT status='exited' FROM exec WHERE id=?", "i",
                      o.id);
    default:
        return alive(d, o) < 0;
    }
}

/* ---- making ---- */

static int tx_project_new(struct tx *tx, const char *name, struct err *e)
{
    int64_t id;
    int r = text_name_check(name, e);

    if (r < 0)
        return r;
    if (!strcmp(name, "ctl"))
        return err_set(e, EINVAL, "'ctl' is the name of a control file");
    if (db_int(tx->db, 0,
               "SELECT 1 FROM project WHERE name=? AND trash IS NULL", "s",
               name))
        return err_set(e, EEXIST, "project '%s' is there already", name);
    db_exec(tx->db, "INSERT INTO project(name,created) VALUES(?,?)", "si",
            name, tx->now_ms);
    id = db_last_id(tx->db);
    tx_docs_seed_project(tx, id);
    tx_event(tx, id, oid(OBJ_PROJECT, id), "created", NULL);
    tx_changed(tx, oid(OBJ_PROJECT, id),
               ASPECT_STATUS | ASPECT_BOARD | ASPECT_NAMES);
    tx_changed(tx, root_oid(), ASPECT_NAMES | ASPECT_STATUS);
    return 0;
}

/* words that are easy to say and to tell apart, for sandboxes without one */
static void made_up(struct tx *tx, int64_t project, char out[64])
{
    static const char *const how[] = {"calm",  "brisk", "quiet", "bold",
                                      "sunny", "keen",  "merry", "swift",
                                      "amber", "lucid", "tidy",  "vivid",
                                      "warm",  "noble", "plain", "sharp"};
    static const char *const who[] = {"otter",  "heron", "lynx",   "finch",
                                      "badger", "crane", "marten", "wren",
                                      "ibex",   "raven", "tapir",  "gecko",
                                      "bison",  "stork", "mole",   "seal"};
    uint64_t h = (uint64_t)tx->now_ms * 2654435761u;
    int64_t n = db_int(
        tx->db, 0, "SELECT seq FROM sqlite_sequence WHERE name='sandbox'", "");

    for (;; n++) {
        snprintf(out, 64, "%s-%s-%lld", how[(h + (uint64_t)n) % 16],
                 who[(h >> 8) % 16], (long long)n + 1);
        if (!db_int(tx->db, 0,
                    "SELECT 1 FROM sandbox WHERE project=? AND name=? AND "
                    "trash IS NULL",
                    "is", project, out))
            return;
    }
}

int tx_sandbox_new(struct tx *tx, int64_t project, const char *name,
                   int64_t *id, char **made, struct err *e)
{
    char own[64];
    int r;

    if (!db_int(tx->db, 0,
                "SELECT 1 FROM project WHERE id=? AND trash IS NULL", "i",
                project))
        return err_set(e, ENOENT, "that project is not there any more");
    if (!name) {
        made_up(tx, project, own);
        name = own;
    }
    r = text_name_check(name, e);
    if (r < 0)
        return r;
    if (!strcmp(name, "ctl"))
        return err_set(e, EINVAL, "'ctl' is the name of the control file");
    if (db_int(tx->db, 0,
               "SELECT 1 FROM sandbox WHERE project=? AND name=? AND trash IS "
               "NULL",
               "is", project, name))
        return err_set(e, EEXIST, "sandbox '%s' is there already", name);
    db_exec(tx->db,
            "INSERT INTO sandbox(project,name,status,created) "
            "VALUES(?,?,'draft',?)",
            "isi", project, name, tx->now_ms);
    *id = db_last_id(tx->db);
    *made = xstrdup(name);
    tx_event(tx, project, oid(OBJ_SANDBOX, *id), "created", NULL);
    tx_touch(tx, project, oid(OBJ_SANDBOX, *id), ASPECT_STATUS | ASPECT_NAMES);
    tx_changed(tx, oid(OBJ_PROJECT, project), ASPECT_NAMES);
    return 0;
}

/* ---- the trash ---- */

/* the tables of what can be in a trash, by kind */
static const struct {
    const char *what;
    const char *row;     /* project, name, trash, may it be deleted */
    const char *taken;   /* is this trash name taken? */
    const char *set;     /* trash = ? */
    const char *live;    /* is this live name taken? */
    const char *restore; /* name = ?, trash NULL */
    const char *del;
} kinds[OBJ_KINDS] = {
    [OBJ_PROJECT] = {"project",
                     "SELECT 0,name,trash,NOT EXISTS(SELECT 1 FROM sandbox "
                     "WHERE project=p.id AND (status IN('creating','running') "
                     "OR status='paused' AND trash IS NULL)) AND NOT "
                     "EXISTS(SELECT 1 FROM run WHERE project=p.id AND status "
                     "IN('pending','running','paused')) FROM project p WHERE "
                     "id=?",
                     "SELECT 1 FROM project WHERE ?1=0 AND trash=?2",
                     "UPDATE project SET trash=? WHERE id=?",
                     "SELECT 1 FROM project WHERE ?1=0 AND name=?2 AND trash "
                     "IS NULL",
                     "UPDATE project SET name=?,trash=NULL WHERE id=?",
                     "DELETE FROM project WHERE id=?"},
    [OBJ_SANDBOX] = {"sandbox",
                     "SELECT project,name,trash,status NOT "
                     "IN('creating','running') FROM sandbox WHERE id=?",
                     "SELECT 1 FROM sandbox WHERE project=?1 AND trash=?2 "
                     "UNION ALL SELECT 1 FROM run WHERE project=?1 AND "
                     "trash=?2",
                     "UPDATE sandbox SET trash=? WHERE id=?",
                     "SELECT 1 FROM sandbox WHERE project=?1 AND name=?2 AND "
                     "trash IS NULL",
                     "UPDATE sandbox SET name=?,trash=NULL WHERE id=?",
                     "DELETE FROM sandbox WHERE id=?"},
    [OBJ_RUN] = {"run",
                 "SELECT project,name,trash,status "
                 "IN('completed','failed','cancelled') FROM run WHERE id=?",
                 "SELECT 1 FROM run WHERE project=?1 AND trash=?2 UNION ALL "
                 "SELECT 1 FROM sandbox WHERE project=?1 AND trash=?2",
                 "UPDATE run SET trash=? WHERE id=?",
                 "SELECT 1 FROM run WHERE project=?1 AND name=?2 AND trash IS "
                 "NULL",
                 "UPDATE run SET name=?,trash=NULL WHERE id=?",
                 "DELETE FROM run WHERE id=?"},
};

struct thing {
    int64_t project;
    char *name, *trash;
    bool free_;
};

static void thing_clear(struct thing *t)
{
    free(t->name);
    free(t->trash);
}

static int thing_get(struct tx *tx, struct oid o, struct thing *t,
                     struct err *e)
{
    sqlite3_stmt *q = db_query(tx->db, kinds[o.kind].row, "i", o.id);

    memset(t, 0, sizeof(*t));
    if (!db_row(tx->db, q))
        return err_set(e, ENOENT, "it is not there any more");
    t->project = col_int(q, 0);
    t->name = col_dup(q, 1);
    t->trash = col_dup(q, 2);
    t->free_ = col_int(q, 3);
    db_done(q);
    return 0;
}

static void moved(struct tx *tx, struct oid o, int64_t project,
                  const char *event)
{
    struct oid owner = project ? oid(OBJ_PROJECT, project) : root_oid();

    tx_event(tx, project ? project : o.id, o, event, NULL);
    tx_touch(tx, project, o, ASPECT_STATUS | ASPECT_NAMES);
    tx_changed(tx, owner, ASPECT_NAMES | ASPECT_STATUS | ASPECT_BOARD);
    tx_changed(tx, root_oid(), ASPECT_STATUS | ASPECT_BOARD);
}

static int at_work(struct tx *tx, struct oid o, const char *name,
                   struct err *e)
{
    if (o.kind == OBJ_PROJECT)
        return err_set(e, EBUSY, "project '%s' has live sandboxes or runs",
                       name);
    if (o.kind == OBJ_SANDBOX &&
        db_int(tx->db, 0, "SELECT ending<>'' FROM sandbox WHERE id=?", "i",
               o.id))
        return err_set(e, EBUSY,
                       "'%s' is being ended: `cat wait/ended` returns then",
                       name);
    return err_set(e, EBUSY, "'%s' is at work: end or pause it first", name);
}

int tx_delete(struct tx *tx, struct oid o, struct err *e)
{
    AUTO_FREE char *name = NULL;
    struct thing t;
    int r = thing_get(tx, o, &t, e);

    if (r < 0)
        return r;
    if (!t.trash && !t.free_)
        r = at_work(tx, o, t.name, e);
    if (r < 0 || t.trash) {
        thing_clear(&t);
        return r;
    }
    name = xstrdup(t.name);
    for (int i = 2;
         db_int(tx->db, 0, kinds[o.kind].taken, "is", t.project, name); i++) {
        free(name);
        name = xasprintf("%s.%d", t.name, i);
    }
    db_exec(tx->db, kinds[o.kind].set, "si", name, o.id);
    moved(tx, o, t.project, "deleted");
    if (o.kind == OBJ_SANDBOX)
        tx_run_look(tx, NULL, o.id);
    thing_clear(&t);
    return 0;
}

int tx_restore(struct tx *tx, struct oid o, const char *name, struct err *e)
{
    struct thing t;
    int r = thing_get(tx, o, &t, e);

    if (r < 0)
        return r;
    if (!name)
        name = t.name;
    if (!t.trash)
        r = err_set(e, EBUSY, "'%s' is not in the trash", t.name);
    else if ((r = text_name_check(name, e)) == 0 &&
             db_int(tx->db, 0, kinds[o.kind].live, "is", t.project, name))
        r = err_set(e, EEXIST, "%s '%s' is there already", kinds[o.kind].what,
                    name);
    if (r == 0) {
        db_exec(tx->db, kinds[o.kind].restore, "si", name, o.id);
        moved(tx, o, t.project, "restored");
    }
    thing_clear(&t);
    return r;
}

int tx_rename(struct tx *tx, struct oid o, const char *name, struct err *e)
{
    struct thing t;
    int r = thing_get(tx, o, &t, e);

    if (r < 0)
        return r;
    r = text_name_check(name, e);
    if (r == 0 && t.trash &&
        db_int(tx->db, 0, kinds[o.kind].taken, "is", t.project, name))
        r = err_set(e, EEXIST, "'%s' is in the trash already", name);
    if (r == 0 && !t.trash &&
        db_int(tx->db, 0, kinds[o.kind].live, "is", t.project, name))
        r = err_set(e, EEXIST, "%s '%s' is there already", kinds[o.kind].what,
                    name);
    if (r == 0) {
        db_exec(tx->db, t.trash ? kinds[o.kind].set : kinds[o.kind].restore,
                "si", name, o.id);
        moved(tx, o, t.project, "renamed");
    }
    thing_clear(&t);
    return r;
}

static void forget_children(struct tx *tx, const char *sql, int64_t id,
                            enum obj_kind kind)
{
    sqlite3_stmt *q = db_query(tx->db, sql, "i", id);
    int64_t *ids = NULL;
    size_t n = 0;

    while (db_row(tx->db, q)) {
        ids = xrealloc(ids, (n + 1) * sizeof(*ids));
        ids[n++] = col_int(q, 0);
    }
    for (size_t i = 0; i < n; i++) {
        if (kind == OBJ_EXEC || kind == OBJ_STEP)
            tx_forget(tx, oid(kind, ids[i]));
        else
            tx_purge_row(tx, oid(kind, ids[i]));
    }
    free(ids);
}

void tx_purge_row(struct tx *tx, struct oid o)
{
    struct thing t;

    if (thing_get(tx, o, &t, NULL) < 0)
        return;
    if (o.kind == OBJ_PROJECT) {
        forget_children(tx, "SELECT id FROM sandbox WHERE project=?", o.id,
                        OBJ_SANDBOX);
        forget_children(tx, "SELECT id FROM run WHERE project=?", o.id,
                        OBJ_RUN);
    } else if (o.kind == OBJ_SANDBOX) {
        forget_children(tx, "SELECT id FROM exec WHERE sandbox=?", o.id,
                        OBJ_EXEC);
        db_exec(tx->db, "DELETE FROM job WHERE sandbox=?", "i", o.id);
        tx_salvage_forget(tx, o.id);
    } else {
        forget_children(tx, "SELECT id FROM step WHERE run=?", o.id, OBJ_STEP);
        db_exec(tx->db, "DELETE FROM job WHERE run=?", "i", o.id);
    }
    moved(tx, o, t.project, "purged");
    db_exec(tx->db, "DELETE FROM doc WHERE kind=? AND owner=?", "ii",
            (int64_t)o.kind, o.id);
    db_exec(tx->db, "DELETE FROM doc_version WHERE kind=? AND owner=?", "ii",
            (int64_t)o.kind, o.id);
    db_exec(tx->db, "DELETE FROM secret WHERE kind=? AND owner=?", "ii",
            (int64_t)o.kind, o.id);
    db_exec(tx->db, kinds[o.kind].del, "i", o.id);
    tx_forget(tx, o);
    thing_clear(&t);
}

int tx_purge(struct tx *tx, struct courier *c, struct oid o, bool now,
             struct err *e)
{
    struct thing t;
    int r = thing_get(tx, o, &t, e);

    (void)c;
    if (r < 0)
        return r;
    if (!t.trash)
        r = err_set(e, EBUSY, "'%s' is not in the trash: delete it first",
                    t.name);
    else if (!t.free_)
        r = err_set(e, EBUSY, "'%s' still has sandboxes at work", t.name);
    thing_clear(&t);
    if (r < 0)
        return r;
    if (o.kind == OBJ_SANDBOX &&
        db_int(tx->db, 0, "SELECT status='paused' FROM sandbox WHERE id=?",
               "i", o.id)) {
        /* it still has a VM, and perhaps work in it */
        if (!job_there(tx->db, o.id, "control", "purge"))
            tx_job(tx, c, o.id, 0, "control", "purge",
                   now ? "{\"now\":true}" : "{}");
        return 0;
    }
    if (o.kind == OBJ_PROJECT &&
        db_int(tx->db, 0,
               "SELECT 1 FROM sandbox WHERE project=? AND status='paused'",
               "i", o.id))
        return err_set(e, EBUSY,
                       "a paused sandbox in its trash still has a VM: "
                       "restore the project and purge that first");
    tx_purge_row(tx, o);
    return 0;
}

/* ---- the file system's calls ---- */

struct move {
    struct courier *c;
    enum list from, to;
    struct oid o, owner;
    char *name;
    courier_done done;
    void *arg;
};

static void move_over(void *arg, int code, const struct err *e)
{
    struct move *m = arg;

    m->done(m->arg, code, e, m->name);
    jobs_kick(m->c);
    free(m->name);
    free(m);
}

/* a refusal is told in errors, too: of an object, or of a new name in the
 * list of its owner */
struct refusal {
    struct oid o;
    enum list list;
    char *name;
    struct err e;
};

static int refusal_fn(struct tx *tx, void *arg, struct err *e)
{
    struct refusal *r = arg;
    AUTO_FREE char *at = object_path(tx->db, r->o);
    AUTO_FREE char *path = NULL;

    (void)e;
    if (r->name)
        path = xasprintf("%s%s%s", at,
                         r->list == LIST_PROJECTS    ? "projects/"
                         : r->list == LIST_SANDBOXES ? "/sandboxes/"
                                                     : "/",
                         r->name);
    tx_error(tx, object_project(tx->db, r->o), path ? path : at, r->e.text);
    return 0;
}

static void refusal_done(void *arg, int code, const struct err *e)
{
    struct refusal *r = arg;

    (void)code;
    (void)e;
    free(r->name);
    free(r);
}

/* on the writer's thread, after the commit in which it was refused */
static void tell_refusal(const struct move *m, const struct err *e)
{
    struct refusal *r = xcalloc(1, sizeof(*r));

    *r = (struct refusal){.o = m->o, .list = m->from, .e = *e};
    if (!m->o.kind) {
        r->o = m->owner;
        r->name = xstrdup(m->name);
    }
    store_submit(m->c->store, refusal_fn, r, refusal_done, true);
}

static void move_told(void *arg, int code, const struct err *e)
{
    struct move *m = arg;

    if (code < 0)
        tell_refusal(m, e);
    move_over(arg, code, e);
}

static int mkdir_fn(struct tx *tx, void *arg, struct err *e)
{
    struct move *m = arg;
    AUTO_FREE char *made = NULL;
    int64_t id;

    if (m->from == LIST_PROJECTS)
        return tx_project_new(tx, m->name, e);
    if (m->from == LIST_SANDBOXES)
        return tx_sandbox_new(tx, m->owner.id, m->name, &id, &made, e);
    return err_set(e, EPERM, "no directory can be made here");
}

void courier_mkdir(struct courier *c, enum list l, struct oid owner,
                   const char *name, courier_done done, void *arg)
{
    struct move *m = xcalloc(1, sizeof(*m));

    *m = (struct move){.c = c,
                       .from = l,
                       .owner = owner,
                       .done = done,
                       .arg = arg,
                       .name = xstrdup(name)};
    store_submit(c->store, mkdir_fn, m, move_told, false);
}

static int rmdir_fn(struct tx *tx, void *arg, struct err *e)
{
    struct move *m = arg;

    if (m->o.kind != OBJ_PROJECT && m->o.kind != OBJ_SANDBOX &&
        m->o.kind != OBJ_RUN)
        return err_set(e, EPERM, "that can't be removed");
    if (m->from == LIST_TRASH || m->from == LIST_PROJECTS_TRASH)
        return tx_purge(tx, m->c, m->o, false, e);
    return tx_delete(tx, m->o, e);
}

void courier_rmdir(struct courier *c, enum list l, struct oid o,
                   courier_done done, void *arg)
{
    struct move *m = xcalloc(1, sizeof(*m));

    *m = (struct move){.c = c, .from = l, .o = o, .done = done, .arg = arg};
    store_submit(c->store, rmdir_fn, m, move_told, false);
}

static bool is_trash(enum list l)
{
    return l == LIST_TRASH || l == LIST_PROJECTS_TRASH;
}

static int rename_fn(struct tx *tx, void *arg, struct err *e)
{
    struct move *m = arg;
    enum list home = m->o.kind == OBJ_PROJECT   ? LIST_PROJECTS
                     : m->o.kind == OBJ_SANDBOX ? LIST_SANDBOXES
                                                : LIST_RUNS;
    struct thing t;
    int r;

    if (m->o.kind != OBJ_PROJECT && m->o.kind != OBJ_SANDBOX &&
        m->o.kind != OBJ_RUN)
        return err_set(e, EPERM, "that can't be renamed");
    r = thing_get(tx, m->o, &t, e);
    if (r < 0)
        return r;
    if (t.project != (m->owner.kind == OBJ_PROJECT ? m->owner.id : 0))
        r = err_set(e, EPERM, "nothing moves from one project to another");
    else if (m->to != home && !is_trash(m->to))
        r = err_set(e, EPERM, "a %s can't be moved there",
                    kinds[m->o.kind].what);
    if (r < 0)
        ;
    else if (is_trash(m->from) == is_trash(m->to))
        r = tx_rename(tx, m->o, m->name, e);
    else if (is_trash(m->from))
        r = tx_restore(tx, m->o, m->name, e);
    else
        r = tx_delete(tx, m->o, e);
    thing_clear(&t);
    return r;
}

void courier_rename(struct courier *c, struct oid o, enum list from,
                    enum list to, struct oid to_owner, const char *name,
                    courier_done done, void *arg)
{
    struct move *m = xcalloc(1, sizeof(*m));

    *m = (struct move){.c = c,
                       .from = from,
                       .to = to,
                       .o = o,
                       .owner = to_owner,
                       .name = xstrdup(name),
                       .done = done,
                       .arg = arg};
    store_submit(c->store, rename_fn, m, move_told, false);
}

struct told {
    struct oid o;
    char *path, *text;
};

static int told_fn(struct tx *tx, void *arg, struct err *e)
{
    struct told *t = arg;

    (void)e;
    tx_error(tx, object_project(tx->db, t->o), t->path, t->text);
    return 0;
}

static void told_done(void *arg, int code, const struct err *e)
{
    struct told *t = arg;

    (void)code;
    (void)e;
    free(t->path);
    free(t->text);
    free(t);
}

void courier_error(struct courier *c, struct oid o, const char *path,
                   const char *text)
{
    struct told *t = xcalloc(1, sizeof(*t));

    *t = (struct told){o, xstrdup(path), xstrdup(text)};
    store_submit(c->store, told_fn, t, told_done, true);
}
