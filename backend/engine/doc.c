/*
 * Documents: what is stored, and how it changes. Texts are rows of `doc`;
 * directories are rows too, but for those that are always there, which have a
 * row only to keep the time of their last change. Accepted texts of personas,
 * workflows and the like are kept in `doc_version` for good.
 */
#include "engine/docs.h"
#include "engine/jobs.h"

int64_t courier_doc_limit(const char *path)
{
    bool big = !strncmp(path, "skills/", 7) || !strncmp(path, "home/", 5);

    return big ? 16 << 20 : 1 << 20;
}

/* ---- texts ---- */

static char *take_blob(struct db *d, sqlite3_stmt *q, size_t *n)
{
    char *text;

    if (n)
        *n = 0;
    if (!db_row(d, q))
        return NULL;
    if (n)
        *n = (size_t)sqlite3_column_bytes(q, 0);
    text = xmemdup0(sqlite3_column_blob(q, 0),
                    (size_t)sqlite3_column_bytes(q, 0));
    db_done(q);
    return text;
}

char *doc_text(struct db *d, struct oid owner, const char *path, size_t *n)
{
    char *text = take_blob(
        d,
        db_query(d,
                 "SELECT text FROM doc WHERE kind=? AND owner=? AND path=? "
                 "AND dir=0",
                 "iis", (int64_t)owner.kind, owner.id, path),
        n);

    if (!text && owner.kind == OBJ_RUN && !strcmp(path, "config"))
        text = take_blob(
            d, db_query(d, "SELECT config FROM run WHERE id=?", "i", owner.id),
            n);
    return text;
}

void doc_each(struct db *d, struct oid owner, const char *dir, doc_each_fn fn,
              void *arg)
{
    sqlite3_stmt *q =
        db_query(d,
                 "SELECT path,mode,text FROM doc WHERE kind=?1 AND owner=?2 "
                 "AND dir=0 AND path>?3||'/' AND path<?3||'0' ORDER BY path",
                 "iis", (int64_t)owner.kind, owner.id, dir);

    while (db_row(d, q)) {
        const void *p = sqlite3_column_blob(q, 2);

        fn(arg, col_text(q, 0), (unsigned)col_int(q, 1), p ? p : "",
           (size_t)sqlite3_column_bytes(q, 2));
    }
}

int tool_get(struct db *d, const char *name, struct tool **out, struct err *e)
{
    AUTO_FREE char *path = xasprintf("tools/%s", name), *text = NULL;
    size_t n = 0;

    *out = NULL;
    text = doc_text(d, root_oid(), path, &n);
    if (!text)
        return err_set(e, ENOENT, "no tool '%.60s' in tools/", name);
    return tool_parse(name, text, n, out, e);
}

/* ---- changes ---- */

struct row {
    int64_t id, mtime;
    bool dir;
};

static bool find_row(struct db *d, struct oid owner, const char *path,
                     struct row *out)
{
    sqlite3_stmt *q = db_query(
        d, "SELECT id,mtime,dir FROM doc WHERE kind=? AND owner=? AND path=?",
        "iis", (int64_t)owner.kind, owner.id, path);

    if (!db_row(d, q))
        return false;
    *out = (struct row){col_int(q, 0), col_int(q, 1), col_int(q, 2) != 0};
    db_done(q);
    return true;
}

/* is there such a directory? */
static bool is_dir(struct db *d, struct oid owner, const char *path)
{
    struct row r;

    if (doc_place(owner.kind, path, NULL) == DOC_DIR)
        return true;
    return find_row(d, owner, path, &r) && r.dir;
}

void tx_dir_changed(struct tx *tx, struct oid owner, const char *dir)
{
    AUTO_FREE char *parent = doc_parent(dir);

    if (!*dir)
        return;
    db_exec(tx->db,
            "INSERT INTO doc(kind,owner,path,parent,dir,mode,mtime) "
            "VALUES(?,?,?,?,1,448,?) ON CONFLICT DO UPDATE SET "
            "mtime=max(excluded.mtime,mtime+1)",
            "iissi", (int64_t)owner.kind, owner.id, dir, parent, now_ns());
}

void tx_doc_told(struct tx *tx, struct oid owner, const char *path, bool names)
{
    int64_t project = object_project(tx->db, owner);
    enum doc_class cl = doc_place(owner.kind, path, NULL);
    AUTO_FREE char *parent = doc_parent(path);

    if (names)
        tx_dir_changed(tx, owner, parent);
    if (owner.kind == OBJ_SANDBOX || owner.kind == OBJ_RUN)
        tx_touch(tx, project, owner, ASPECT_DOCS);
    else
        tx_changed(tx, owner, ASPECT_DOCS | (names ? ASPECT_NAMES : 0));
    if (cl == DOC_CONFIG || cl == DOC_ENV || cl == DOC_RATES ||
        cl == DOC_TOOL || doc_is_sealed(cl))
        tx_event(tx, project, owner, "config",
                 json_pack("{s:s}", "document", path));
    if (cl == DOC_LEARNING || cl == DOC_LEARNING_VERSION)
        tx_changed(tx, owner, ASPECT_LEARN);
}

static void add_version(struct tx *tx, struct oid owner, const char *path,
                        const void *p, size_t n)
{
    int64_t last = db_int(tx->db, 0,
                          "SELECT max(n) FROM doc_version WHERE kind=? AND "
                          "owner=? AND path=?",
                          "iis", (int64_t)owner.kind, owner.id, path);

    if (last &&
        db_int(tx->db, 0,
               "SELECT text=? FROM doc_version WHERE kind=? AND "
               "owner=? AND path=? AND n=?",
               "biisi", p, n, (int64_t)owner.kind, owner.id, path, last))
        return;
    db_exec(tx->db,
            "INSERT INTO doc_version(kind,owner,path,n,text,time) "
            "VALUES(?,?,?,?,?,?)",
            "iisibi", (int64_t)owner.kind, owner.id, path, last + 1, p, n,
            tx->now_ms);
    db_exec(tx->db,
            "UPDATE doc SET version=? WHERE kind=? AND owner=? AND path=?",
            "iiis", last + 1, (int64_t)owner.kind, owner.id, path);
}

static void put(struct tx *tx, struct oid owner, const char *path,
                const void *p, size_t n, unsigned mode)
{
    AUTO_FREE char *parent = doc_parent(path);

    db_exec(tx->db,
            "INSERT INTO doc(kind,owner,path,parent,mode,text,mtime) "
            "VALUES(?1,?2,?3,?4,CASE ?5 WHEN 0 THEN 384 ELSE ?5 END,?6,?7) "
            "ON CONFLICT DO UPDATE SET text=excluded.text,"
            "mode=CASE ?5 WHEN 0 THEN mode ELSE ?5 END,"
            "mtime=max(excluded.mtime,mtime+1)",
            "iissibi", (int64_t)owner.kind, owner.id, path, parent,
            (int64_t)mode, p, n, now_ns());
}

/* 0600, or 0700 where the x bit is kept; 0 stays 0 */
static unsigned kept_mode(enum doc_class cl, unsigned mode)
{
    if (!mode)
        return 0;
    return doc_is_tree(cl) && mode & 0100 ? 0700 : 0600;
}

int tx_doc_save(struct tx *tx, struct courier *c, struct oid owner,
                const char *path, const void *p, size_t n, unsigned mode,
                struct err *e)
{
    enum doc_class cl = doc_place(owner.kind, path, NULL);
    AUTO_FREE char *parent = doc_parent(path);
    struct row was;
    bool there = find_row(tx->db, owner, path, &was);
    int r = doc_name_check(owner.kind, path, e);

    if (r < 0)
        return r;
    if (cl == DOC_SKILL_TOP)
        return err_set(e, EPERM, "a skill is a directory");
    if (cl == DOC_DIR || (there && was.dir))
        return err_set(e, EISDIR, "%.200s is a directory", path);
    if (!is_dir(tx->db, owner, parent))
        return err_set(e, ENOENT, "no directory %.200s", parent);
    r = doc_text_check(c, tx->db, owner, path, p, n, false, e);
    if (r < 0)
        return r;
    if (doc_is_sealed(cl)) {
        there = db_int(tx->db, 0,
                       "SELECT 1 FROM secret WHERE kind=? AND owner=? AND "
                       "path=?",
                       "iis", (int64_t)owner.kind, owner.id, path);
        r = tx_key_set(tx, c, owner, path, p, n, e);
    } else {
        put(tx, owner, path, p, n, kept_mode(cl, mode));
    }
    if (r < 0)
        return r;
    if (doc_is_versioned(cl))
        add_version(tx, owner, path, p, n);
    tx_doc_told(tx, owner, path, !there);
    if (owner.kind == OBJ_ROOT && cl == DOC_CONFIG)
        tx_job_look(tx, c); /* max_active may be another */
    return 0;
}

int tx_doc_put(struct tx *tx, struct oid owner, const char *path,
               const void *p, size_t n, struct err *e)
{
    enum doc_class cl = doc_place(owner.kind, path, NULL);
    struct row was;
    bool there = find_row(tx->db, owner, path, &was);

    if (cl == DOC_NONE || cl == DOC_DIR || cl == DOC_VERSIONS ||
        doc_is_sealed(cl) || (there && was.dir))
        return err_set(e, EINVAL, "no document belongs at %.200s", path);
    put(tx, owner, path, p, n, 0);
    if (doc_is_versioned(cl))
        add_version(tx, owner, path, p, n);
    tx_doc_told(tx, owner, path, !there);
    return 0;
}

void tx_doc_seed(struct tx *tx, struct oid owner, const char *path,
                 const char *text)
{
    put(tx, owner, path, text, strlen(text), 0);
    if (doc_is_versioned(doc_place(owner.kind, path, NULL)))
        add_version(tx, owner, path, text, strlen(text));
}

int tx_doc_chmod(struct tx *tx, struct oid owner, const char *path,
                 unsigned mode, struct err *e)
{
    enum doc_class cl = doc_place(owner.kind, path, NULL);
    struct row was;

    if (cl == DOC_NONE)
        return err_set(e, ENOENT, "no such document");
    if (!doc_is_tree(cl) || !find_row(tx->db, owner, path, &was) || was.dir)
        return 0;
    db_exec(tx->db, "UPDATE doc SET mode=? WHERE id=?", "ii",
            (int64_t)kept_mode(cl, mode | 0600), was.id);
    tx_doc_told(tx, owner, path, false);
    return 0;
}

int tx_doc_mkdir(struct tx *tx, struct oid owner, const char *path,
                 struct err *e)
{
    enum doc_class cl = doc_place(owner.kind, path, NULL);
    AUTO_FREE char *parent = doc_parent(path);
    struct row was;
    int r;

    if (cl == DOC_DIR || find_row(tx->db, owner, path, &was))
        return err_set(e, EEXIST, "%.200s is there already", path);
    if (cl != DOC_NONE && !doc_is_tree(cl))
        return err_set(e, EPERM, "no directory can be made there");
    r = doc_name_check(owner.kind, path, e);
    if (r < 0)
        return r;
    if (!is_dir(tx->db, owner, parent))
        return err_set(e, ENOENT, "no directory %.200s", parent);
    tx_dir_changed(tx, owner, path);
    tx_doc_told(tx, owner, path, true);
    return 0;
}

static bool has_children(struct db *d, struct oid owner, const char *dir)
{
    return db_int(d, 0,
                  "SELECT 1 FROM doc WHERE kind=? AND owner=? AND parent=? "
                  "LIMIT 1",
                  "iis", (int64_t)owner.kind, owner.id, dir) != 0;
}

static int remove_sealed(struct tx *tx, struct oid owner, const char *path,
                         struct err *e)
{
    db_exec(tx->db, "DELETE FROM secret WHERE kind=? AND owner=? AND path=?",
            "iis", (int64_t)owner.kind, owner.id, path);
    if (!db_changes(tx->db))
        return err_set(e, ENOENT, "%.200s is not set", path);
    tx_doc_told(tx, owner, path, true);
    return 0;
}

int tx_doc_remove(struct tx *tx, struct oid owner, const char *path,
                  struct err *e)
{
    bool fixed;
    enum doc_class cl = doc_place(owner.kind, path, &fixed);
    struct row was;

    if (cl == DOC_NONE)
        return err_set(e, ENOENT, "no such document");
    if (doc_is_sealed(cl))
        return remove_sealed(tx, owner, path, e);
    if (fixed || !doc_is_removable(cl))
        return err_set(e, EPERM, "%.200s can't be removed", path);
    if (!find_row(tx->db, owner, path, &was))
        return err_set(e, ENOENT, "no such document");
    if (was.dir && has_children(tx->db, owner, path))
        return err_set(e, ENOTEMPTY, "%.200s is not empty", path);
    db_exec(tx->db, "DELETE FROM doc WHERE id=?", "i", was.id);
    tx_doc_told(tx, owner, path, true);
    return 0;
}

/* ---- renames ---- */

static int64_t longest_below(struct db *d, struct oid owner, const char *dir)
{
    return db_int(d, 0,
                  "SELECT max(length(CAST(path AS BLOB))) FROM doc WHERE "
                  "kind=?1 AND owner=?2 AND path>?3||'/' AND path<?3||'0'",
                  "iis", (int64_t)owner.kind, owner.id, dir);
}

static int rename_dir(struct tx *tx, struct oid owner, const char *from,
                      const char *to, struct err *e)
{
    AUTO_FREE char *parent = doc_parent(to);
    size_t n = strlen(from);
    struct row was;

    if (!doc_is_tree(doc_place(owner.kind, to, NULL)))
        return err_set(e, EPERM, "no directory can be there");
    if (!strncmp(to, from, n) && to[n] == '/')
        return err_set(e, EINVAL, "a directory can't move into itself");
    if (find_row(tx->db, owner, to, &was)) {
        if (!was.dir)
            return err_set(e, ENOTDIR, "%.200s is no directory", to);
        if (has_children(tx->db, owner, to))
            return err_set(e, ENOTEMPTY, "%.200s is not empty", to);
        db_exec(tx->db, "DELETE FROM doc WHERE id=?", "i", was.id);
    }
    if (longest_below(tx->db, owner, from) - (int64_t)n + (int64_t)strlen(to) >
        DOC_PATH_MAX)
        return err_set(e, ENAMETOOLONG,
                       "a path below it would be too long there");
    db_exec(tx->db,
            "UPDATE doc SET path=?1||substr(path,length(?2)+1),"
            "parent=?1||substr(parent,length(?2)+1) "
            "WHERE kind=?3 AND owner=?4 AND path>?2||'/' AND path<?2||'0'",
            "ssii", to, from, (int64_t)owner.kind, owner.id);
    db_exec(tx->db,
            "UPDATE doc SET path=?,parent=? WHERE kind=? AND owner=? AND "
            "path=?",
            "ssiis", to, parent, (int64_t)owner.kind, owner.id, from);
    tx_doc_told(tx, owner, from, true);
    tx_doc_told(tx, owner, to, true);
    return 0;
}

/* mv between pending, approved and rejected is the decision on a learning */
static void decided(struct tx *tx, struct oid owner, const char *from,
                    const char *to)
{
    AUTO_FREE char *a = doc_parent(from), *b = doc_parent(to);

    if (strcmp(a, b))
        tx_event(tx, owner.id, owner, "learning",
                 json_pack("{s:s,s:s,s:s}", "id", doc_base(to), "from",
                           doc_base(a), "to", doc_base(b)));
}

int tx_doc_rename(struct tx *tx, struct courier *c, struct oid owner,
                  const char *from, const char *to, struct err *e)
{
    bool fixed;
    enum doc_class cl = doc_place(owner.kind, from, &fixed);
    AUTO_FREE char *text = NULL, *parent = doc_parent(to);
    struct row was;
    size_t n = 0;
    int r;

    if (doc_is_sealed(cl) || fixed || !doc_is_removable(cl))
        return err_set(e, EPERM, "%.200s can't be renamed", from);
    if (!find_row(tx->db, owner, from, &was))
        return err_set(e, ENOENT, "no such document");
    r = doc_name_check(owner.kind, to, e);
    if (r < 0 || !strcmp(from, to))
        return r;
    if (!is_dir(tx->db, owner, parent))
        return err_set(e, ENOENT, "no directory %.200s", parent);
    if (was.dir)
        return rename_dir(tx, owner, from, to, e);
    text = doc_text(tx->db, owner, from, &n);
    r = tx_doc_save(tx, c, owner, to, text, n,
                    (unsigned)db_int(tx->db, 0,
                                     "SELECT mode FROM doc WHERE id=?", "i",
                                     was.id),
                    e);
    if (r == 0)
        r = tx_doc_remove(tx, owner, from, e);
    if (r == 0 && cl == DOC_LEARNING &&
        doc_place(owner.kind, to, NULL) == DOC_LEARNING)
        decided(tx, owner, from, to);
    return r;
}
