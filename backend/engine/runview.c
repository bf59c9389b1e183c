/* How far a run is, as a line, as a picture, and beside its like. */
#include "engine/view.h"
#include "engine/workflow.h"

/* the workflow that it began with, and the step it is at */
struct far {
    struct workflow w;
    char *status, *name, *role, *step_status;
    int64_t pos, round;
};

static void far_clear(struct far *f)
{
    workflow_clear(&f->w);
    free(f->status);
    free(f->name);
    free(f->role);
    free(f->step_status);
}

static int far_get(struct db *d, int64_t run, struct far *f)
{
    sqlite3_stmt *q =
        db_query(d, "SELECT status,text FROM run WHERE id=?", "i", run);

    memset(f, 0, sizeof(*f));
    if (!db_row(d, q))
        return -ENOENT;
    f->status = col_dup(q, 0);
    workflow_parse(col_text(q, 1), strlen(col_text(q, 1)), false, &f->w,
                   NULL);
    db_done(q);
    q = db_query(d,
                 "SELECT name,role,status,pos,round FROM step WHERE run=? "
                 "ORDER BY CASE status WHEN 'pending' THEN 1 ELSE 0 END,"
                 "id DESC LIMIT 1",
                 "i", run);
    if (!db_row(d, q))
        return 0;
    f->name = col_dup(q, 0);
    f->role = col_dup(q, 1);
    f->step_status = col_dup(q, 2);
    f->pos = col_int(q, 3) + 1; /* the record counts from 0 */
    f->round = col_int(q, 4);
    db_done(q);
    return 0;
}

/* in hundredths: steps done, of all; a loop counts once */
static int percent(const struct far *f, int64_t total)
{
    int64_t done = f->pos > 0 ? f->pos - 1 : 0;

    if (!strcmp(f->status, "completed"))
        return 100;
    if (!total || !f->name)
        return 0;
    if (!strcmp(f->step_status, "completed"))
        done++;
    return (int)(done * 100 / total);
}

int view_run_progress(struct courier *c, struct db *d, struct oid o,
                      struct buf *out)
{
    struct far f;
    int64_t total;
    int r = far_get(d, o.id, &f);

    (void)c;
    if (r < 0)
        return r;
    total = (int64_t)f.w.n_steps > f.pos ? (int64_t)f.w.n_steps : f.pos;
    if (!f.name) {
        buf_addf(out, "step 0/%lld, %s, %d %%\n", (long long)total, f.status,
                 percent(&f, total));
    } else {
        size_t at = f.pos > 0 ? (size_t)(f.pos - 1) : 0;
        const struct wf_step *s =
            at < f.w.n_steps ? &f.w.steps[at] : NULL;

        buf_addf(out, "step %lld/%lld ", (long long)f.pos, (long long)total);
        view_field(out, f.role && *f.role ? f.role
                        : s               ? s->name
                                          : f.name);
        if (s && s->loop >= 0)
            buf_addf(out, ", round %lld/%d", (long long)f.round,
                     f.w.loops[s->loop].max);
        buf_addf(out, ", %d %%\n", percent(&f, total));
    }
    far_clear(&f);
    return 0;
}

/* ---- timeline.svg ---- */

enum { LEFT = 180, WIDTH = 600, ROW = 24, TOP = 30 };

static void xml(struct buf *out, const char *s)
{
    AUTO_BUF struct buf b = {0};

    text_printable(&b, s, strlen(s), 0);
    for (const char *p = buf_str(&b); *p; p++) {
        if (*p == '<')
            buf_adds(out, "&lt;");
        else if (*p == '>')
            buf_adds(out, "&gt;");
        else if (*p == '&')
            buf_adds(out, "&amp;");
        else
            buf_addc(out, *p);
    }
}

static const char *colour(const char *status)
{
    if (!strcmp(status, "completed"))
        return "#3a8f5c";
    if (!strcmp(status, "failed"))
        return "#c0392b";
    if (!strcmp(status, "running"))
        return "#2f6fb3";
    return "#999999";
}

/* from the first start to the last thing known; the clock is not looked at */
static void span(struct db *d, int64_t run, int64_t *from, int64_t *to,
                 int64_t *rows)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT min(started),max(max(started,ended)),count(*) FROM step WHERE "
        "run=? AND started<>0",
        "i", run);

    *from = *to = *rows = 0;
    if (db_row(d, q)) {
        *from = col_int(q, 0);
        *to = col_int(q, 1);
        *rows = col_int(q, 2);
        db_done(q);
    }
    if (*to <= *from)
        *to = *from + 1000;
}

int view_run_timeline(struct courier *c, struct db *d, struct oid o,
                      struct buf *out)
{
    int64_t from, to, rows, at = TOP;
    sqlite3_stmt *q;
    char first[32], last[32];

    (void)c;
    span(d, o.id, &from, &to, &rows);
    time_rfc3339(from, first);
    time_rfc3339(to, last);
    buf_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
             "height=\"%lld\" font-family=\"sans-serif\" font-size=\"12\">\n"
             "<text x=\"%d\" y=\"16\">%s</text>\n"
             "<text x=\"%d\" y=\"16\" text-anchor=\"end\">%s</text>\n",
             LEFT + WIDTH + 20, (long long)(TOP + rows * ROW + 10), LEFT,
             rows ? first : "", LEFT + WIDTH, rows ? last : "");
    q = db_query(d,
                 "SELECT name,role,status,started,ended FROM step WHERE run=? "
                 "AND started<>0 ORDER BY started,id",
                 "i", o.id);
    while (db_row(d, q)) {
        int64_t end = col_int(q, 4) ? col_int(q, 4) : to;
        int64_t x = (col_int(q, 3) - from) * WIDTH / (to - from);
        int64_t w = (end - col_int(q, 3)) * WIDTH / (to - from);

        buf_addf(out, "<text x=\"8\" y=\"%lld\">", (long long)(at + 15));
        xml(out, col_text(q, 0));
        buf_addf(out,
                 "</text>\n<rect x=\"%lld\" y=\"%lld\" width=\"%lld\" "
                 "height=\"%d\" fill=\"%s\"><title>",
                 (long long)(LEFT + x), (long long)(at + 3),
                 (long long)(w > 2 ? w : 2), ROW - 6, colour(col_text(q, 2)));
        xml(out, col_text(q, 1));
        buf_adds(out, " ");
        xml(out, col_text(q, 2));
        buf_adds(out, "</title></rect>\n");
        at += ROW;
    }
    buf_adds(out, "</svg>\n");
    return 0;
}

/* ---- of its sandboxes, and beside its like ---- */

int view_run_learnings(struct courier *c, struct db *d, struct oid o,
                       struct buf *out)
{
    sqlite3_stmt *q =
        db_query(d,
                 "SELECT learnings FROM sandbox WHERE run=? AND run<>0 AND "
                 "learnings<>'' ORDER BY id",
                 "i", o.id);

    (void)c;
    while (db_row(d, q)) {
        buf_adds(out, col_text(q, 0));
        if (out->n && out->p[out->n - 1] != '\n')
            buf_addc(out, '\n');
    }
    return 0;
}

int view_attempts(struct courier *c, struct db *d, struct oid o,
                  struct buf *out)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT r.grp,r.name,r.status,coalesce((SELECT score FROM step WHERE "
        "run=r.id AND score<>'' ORDER BY id DESC LIMIT 1),''),r.branch,"
        "r.pr_url,(SELECT total(usd) FROM usage WHERE run=r.id AND run<>0) "
        "FROM run r WHERE r.project=? AND r.trash IS NULL AND r.grp<>'' "
        "ORDER BY r.grp,r.id",
        "i", o.id);

    (void)c;
    buf_adds(out, "attempts\trun\tstatus\tscore\tbranch\tpr\tcost\n");
    while (db_row(d, q)) {
        for (int i = 0; i < 6; i++) {
            view_field(out, col_text(q, i));
            buf_addc(out, '\t');
        }
        buf_addf(out, "%.4f\n", col_double(q, 6));
    }
    return 0;
}
