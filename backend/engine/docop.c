/* What the file system asks of documents: queries at once, changes through
 * the writer. A refused change is told in errors. */
#include "engine/docs.h"

enum op { SAVE, CHMOD, MKDIR, REMOVE, RENAME, LINK };

struct docop {
    struct courier *c;
    enum op op;
    struct oid owner;
    char *path, *to;
    void *text;
    size_t n;
    unsigned mode;
    int64_t mtime_ns; /* 0: now */
    courier_done done;
    void *arg;
};

static int link_set(struct tx *tx, struct oid project, const char *target,
                    struct err *e)
{
    AUTO_FREE char *path = xasprintf("learnings/%s", target), *stem = NULL;
    const char *name = doc_base(target);
    int64_t n = 0;
    size_t len = strlen(name);

    stem = xmemdup0(name, len > 3 ? len - 3 : 0);
    if (strncmp(target, "versions/", 9) || strchr(target + 9, '/') ||
        len < 4 || strcmp(name + len - 3, ".md") ||
        !text_int(stem, 1, INT32_MAX, &n))
        return err_set(e, EINVAL, "active points to versions/N.md");
    if (!db_int(tx->db, 0,
                "SELECT 1 FROM doc WHERE kind=? AND owner=? AND path=? AND "
                "dir=0",
                "iis", (int64_t)project.kind, project.id, path))
        return err_set(e, ENOENT, "no version %lld", (long long)n);
    db_exec(tx->db, "UPDATE project SET learn_active=? WHERE id=?", "ii", n,
            project.id);
    tx_dir_changed(tx, project, "learnings");
    tx_changed(tx, project, ASPECT_LEARN | ASPECT_DOCS);
    tx_event(tx, project.id, project, "learning",
             json_pack("{s:s}", "active", target));
    return 0;
}

static int save(struct tx *tx, struct docop *o, struct err *e)
{
    int r =
        tx_doc_save(tx, o->c, o->owner, o->path, o->text, o->n, o->mode, e);

    if (r == 0 && o->mtime_ns)
        db_exec(tx->db,
                "UPDATE doc SET mtime=? WHERE kind=? AND owner=? AND path=?",
                "iiis", o->mtime_ns, (int64_t)o->owner.kind, o->owner.id,
                o->path);
    return r;
}

static int run(struct tx *tx, void *arg, struct err *e)
{
    struct docop *o = arg;
    int r = 0;

    if (o->op == SAVE || o->op == REMOVE || o->op == RENAME)
        r = doc_state_check(tx->db, o->owner, o->path, e);
    if (o->op != SAVE && r == -EISDIR)
        r = 0;
    if (r == 0 && o->op == RENAME)
        r = doc_state_check(tx->db, o->owner, o->to, e);
    if (r < 0)
        return r;
    switch (o->op) {
    case SAVE:
        return save(tx, o, e);
    case CHMOD:
        return tx_doc_chmod(tx, o->owner, o->path, o->mode, e);
    case MKDIR:
        return tx_doc_mkdir(tx, o->owner, o->path, e);
    case REMOVE:
        return tx_doc_remove(tx, o->owner, o->path, e);
    case RENAME:
        return tx_doc_rename(tx, o->c, o->owner, o->path, o->to, e);
    case LINK:
        return link_set(tx, o->owner, o->path, e);
    }
    return err_set(e, EINVAL, "no such operation");
}

/* settings and keys may let waiting work go on */
static bool wakes(const struct docop *o)
{
    enum doc_class cl = doc_place(o->owner.kind, o->path, NULL);

    return cl == DOC_CONFIG || doc_is_sealed(cl);
}

static void over(void *arg, int code, const struct err *e)
{
    struct docop *o = arg;

    if (code < 0) {
        AUTO_FREE char *at = object_path(store_reader(o->c->store), o->owner);
        AUTO_FREE char *path =
            xasprintf("%s%s%s", at ? at : "", at && *at ? "/" : "",
                      o->op == LINK ? "learnings/active" : o->path);

        courier_error(o->c, o->owner, path, e->text);
    } else if (wakes(o) && o->c->jobs) {
        jobs_kick(o->c);
        reconcile_kick(o->c);
    }
    o->done(o->arg, code, e, NULL);
    if (o->text)
        explicit_bzero(o->text, o->n);
    free(o->text);
    free(o->path);
    free(o->to);
    free(o);
}

static void submit(struct courier *c, struct docop what, const char *path)
{
    struct docop *o = xmalloc(sizeof(*o));

    *o = what;
    o->c = c;
    o->path = xstrdup(path);
    store_submit(c->store, run, o, over, false);
}

void courier_doc_save(struct courier *c, struct oid owner, const char *path,
                      const void *p, size_t n, unsigned mode,
                      courier_done done, void *arg)
{
    submit(c,
           (struct docop){.op = SAVE,
                          .owner = owner,
                          .mode = mode,
                          .text = xmemdup0(p, n),
                          .n = n,
                          .done = done,
                          .arg = arg},
           path);
}

void courier_doc_put_back(struct courier *c, struct oid owner,
                          const char *path, const void *p, size_t n,
                          const struct courier_doc *was, courier_done done,
                          void *arg)
{
    submit(c,
           (struct docop){.op = SAVE,
                          .owner = owner,
                          .mode = was->mode,
                          .mtime_ns = was->mtime_ns,
                          .text = xmemdup0(p, n),
                          .n = n,
                          .done = done,
                          .arg = arg},
           path);
}

void courier_doc_chmod(struct courier *c, struct oid owner, const char *path,
                       unsigned mode, courier_done done, void *arg)
{
    submit(c,
           (struct docop){.op = CHMOD,
                          .owner = owner,
                          .mode = mode,
                          .done = done,
                          .arg = arg},
           path);
}

void courier_doc_mkdir(struct courier *c, struct oid owner, const char *path,
                       courier_done done, void *arg)
{
    submit(
        c,
        (struct docop){.op = MKDIR, .owner = owner, .done = done, .arg = arg},
        path);
}

void courier_doc_remove(struct courier *c, struct oid owner, const char *path,
                        courier_done done, void *arg)
{
    submit(
        c,
        (struct docop){.op = REMOVE, .owner = owner, .done = done, .arg = arg},
        path);
}

void courier_doc_rename(struct courier *c, struct oid owner, const char *from,
                        const char *to, courier_done done, void *arg)
{
    submit(c,
           (struct docop){.op = RENAME,
                          .owner = owner,
                          .to = xstrdup(to),
                          .done = done,
                          .arg = arg},
           from);
}

void courier_link_set(struct courier *c, struct oid project,
                      const char *target, courier_done done, void *arg)
{
    submit(
        c,
        (struct docop){.op = LINK, .owner = project, .done = done, .arg = arg},
        target);
}

int courier_doc_check(struct courier *c, struct oid owner, const char *path,
                      const void *p, size_t n, bool lines_only, struct err *e)
{
    return doc_text_check(c, store_reader(c->store), owner, path, p, n,
                          lines_only, e);
}

int courier_doc_may(struct courier *c, struct oid owner, const char *path,
                    struct err *e)
{
    enum doc_class cl = doc_place(owner.kind, path, NULL);

    if (cl == DOC_SKILL_TOP)
        return err_set(e, EPERM, "a skill is a directory");
    return doc_state_check(store_reader(c->store), owner, path, e);
}
