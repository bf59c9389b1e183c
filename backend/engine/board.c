/* What the root and a project show of all that is theirs. */
#include "engine/view.h"

#include <time.h>
#include <unistd.h>

void view_field(struct buf *out, const char *s)
{
    text_printable(out, s, strlen(s), 0);
}

/* ---- counts ---- */

static const char *const states[] = {"draft",  "creating", "running",
                                     "paused", "killed",   "error"};

static void count_states(struct db *d, struct oid o, int64_t n[6])
{
    sqlite3_stmt *q =
        o.kind == OBJ_PROJECT
            ? db_query(d,
                       "SELECT status,count(*) FROM sandbox WHERE project=? "
                       "AND trash IS NULL GROUP BY status",
                       "i", o.id)
            : db_query(d,
                       "SELECT s.status,count(*) FROM sandbox s JOIN project "
                       "p ON p.id=s.project WHERE s.trash IS NULL AND "
                       "p.trash IS NULL GROUP BY s.status",
                       "");

    memset(n, 0, 6 * sizeof(*n));
    while (db_row(d, q)) {
        for (size_t i = 0; i < ARRAY_LEN(states); i++) {
            if (!strcmp(states[i], col_text(q, 0)))
                n[i] = col_int(q, 1);
        }
    }
}

static void pair(struct buf *out, const char *key, const char *value)
{
    buf_addf(out, "%s ", key);
    view_field(out, value);
    buf_addc(out, '\n');
}

static void pair_taken(struct buf *out, const char *key, char *value)
{
    pair(out, key, value ? value : "");
    free(value);
}

/* the last thing that went wrong: of the engine, else of a command or job */
static void last_error(struct courier *c, struct db *d, struct buf *out)
{
    AUTO_FREE char *text = NULL;
    sqlite3_stmt *q;
    char when[32];

    pthread_mutex_lock(&c->lock);
    text = xstrdup(c->last_error);
    pthread_mutex_unlock(&c->lock);
    if (text) {
        pair(out, "last_error", text);
        return;
    }
    buf_adds(out, "last_error");
    q = db_query(
        d, "SELECT time,path,text FROM error ORDER BY id DESC LIMIT 1", "");
    if (db_row(d, q)) {
        time_rfc3339(col_int(q, 0), when);
        buf_addf(out, " %s %s: ", when, col_text(q, 1));
        view_field(out, col_text(q, 2));
        db_done(q);
    }
    buf_addc(out, '\n');
}

int view_root_status(struct courier *c, struct db *d, struct oid o,
                     struct buf *out)
{
    int64_t n[6];
    char when[32], *limits = local_limits(c);

    time_rfc3339(c->started_ms, when);
    buf_addf(out, "version %s\npid %d\nup_since %s\n", COURIER_VERSION,
             (int)getpid(), when);
    pair(out, "data", c->data);
    pair_taken(out, "backend", courier_backend_words(c));
    pair(out, "inotify", c->inotify ? c->inotify : "");
    pair_taken(out, "limits",
               limits && *limits ? limits
                                 : xstrdup("(the local host doesn't run)"));
    count_states(d, o, n);
    buf_adds(out, "sandboxes");
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        buf_addf(out, "%s %s %lld", i ? "," : "", states[i], (long long)n[i]);
    buf_addf(out, "\njobs %lld\n",
             (long long)db_int(d, 0, "SELECT count(*) FROM job", ""));
    last_error(c, d, out);
    return 0;
}

/* ms of the begin of this day or month in UTC */
static int64_t begin_of(bool month)
{
    time_t now = (time_t)(now_ms() / 1000);
    struct tm tm;

    gmtime_r(&now, &tm);
    tm.tm_sec = tm.tm_min = tm.tm_hour = 0;
    if (month)
        tm.tm_mday = 1;
    return (int64_t)timegm(&tm) * 1000;
}

int view_project_status(struct courier *c, struct db *d, struct oid o,
                        struct buf *out)
{
    int64_t n[6];

    (void)c;
    buf_addf(out, "active %lld\n",
             (long long)db_int(d, 0, "SELECT active FROM project WHERE id=?",
                               "i", o.id));
    count_states(d, o, n);
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        buf_addf(out, "%s %lld\n", states[i], (long long)n[i]);
    buf_addf(out, "runs %lld\n",
             (long long)db_int(d, 0,
                               "SELECT count(*) FROM run WHERE project=? AND "
                               "trash IS NULL",
                               "i", o.id));
    buf_addf(out, "cost_today %.4f\n", usage_total(d, o, begin_of(false)));
    buf_addf(out, "cost_month %.4f\n", usage_total(d, o, begin_of(true)));
    buf_addf(out, "cost_total %.4f\n", usage_total(d, o, 0));
    return 0;
}

/* ---- board ---- */

#define BOARD(where)                                                          \
    "SELECT p.name,s.name,s.status,s.agent,s.tool,s.model,"                   \
    "CASE WHEN s.running_at<>0 THEN s.running_at WHEN s.started<>0 THEN "     \
    "s.started ELSE s.created END,s.expires,s.usd,s.branch,"                  \
    "CASE s.pr_url WHEN '' THEN s.pr_status ELSE s.pr_url END,"               \
    "coalesce((SELECT r.name||'/'||t.name FROM run r JOIN step t ON "         \
    "t.run=r.id WHERE t.id=s.step AND r.id=s.run),'') "                       \
    "FROM sandbox s JOIN project p ON p.id=s.project WHERE s.trash IS NULL "  \
    "AND p.trash IS NULL AND s.status "                                       \
    "IN('creating','running','paused')" where " ORDER BY p.name,s.name"

int view_board(struct courier *c, struct db *d, struct oid o, struct buf *out)
{
    sqlite3_stmt *q = o.kind == OBJ_PROJECT
                          ? db_query(d, BOARD(" AND s.project=?"), "i", o.id)
                          : db_query(d, BOARD(""), "");

    (void)c;
    buf_adds(out, "project\tname\tstatus\tagent\ttool\tmodel\tsince\texpires\t"
                  "cost\tbranch\tpr\tstep\n");
    while (db_row(d, q)) {
        char since[32], expires[32];

        time_rfc3339(col_int(q, 6), since);
        time_rfc3339(col_int(q, 7), expires);
        for (int i = 0; i < 6; i++) {
            view_field(out, col_text(q, i));
            buf_addc(out, '\t');
        }
        buf_addf(out, "%s\t%s\t%.4f\t", since, expires, col_double(q, 8));
        view_field(out, col_text(q, 9));
        buf_addc(out, '\t');
        view_field(out, col_text(q, 10));
        buf_addc(out, '\t');
        view_field(out, col_text(q, 11));
        buf_addc(out, '\n');
    }
    return 0;
}

/* ---- errors: made printable when they were stored ---- */

int view_errors(struct courier *c, struct db *d, struct oid o, struct buf *out)
{
    sqlite3_stmt *q =
        o.kind == OBJ_PROJECT
            ? db_query(d,
                       "SELECT time,path,text,count FROM error WHERE "
                       "project=? ORDER BY id",
                       "i", o.id)
            : db_query(d, "SELECT time,path,text,count FROM error ORDER BY id",
                       "");

    (void)c;
    while (db_row(d, q)) {
        char when[32];

        time_rfc3339(col_int(q, 0), when);
        buf_addf(out, "%s\t%s\t%s", when, col_text(q, 1), col_text(q, 2));
        if (col_int(q, 3) > 1)
            buf_addf(out, " (%lld times)", (long long)col_int(q, 3));
        buf_addc(out, '\n');
    }
    return 0;
}
