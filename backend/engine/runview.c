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
    workflow_parse(col_text(q, 1), strlen(col_text(q, 1)), false, &f->w, NULL);
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
        const struct wf_step *s = at < f.w.n_steps ? &f.w.steps[at] : NULL;

        buf_addf(out, "step %lld/%lld ", (long long)f.pos, (long long)total);
        view_field(out, f.role && *f.role ? f.role : s ? s->name : f.name);
        if (s && s->loop >= 0)
            buf_addf(out, ", round %lld/%d", (long long)f.round,
                     f.w.loops[s->loop].max);
        buf_addf(out, ", %d %%\n", percent(&f, total));
    }
    far_clear(&f);
    return 0;
}

/* ---- timeline.svg ---- */

enum { LEFT = 190, WIDTH = 600, ROW = 24, TOP = 34, LEGEND = 34 };

static const char style[] =
    "<style>\n"
    "svg { background: #ffffff; font: 12px sans-serif }\n"
    "text { fill: #222222 } .dim { fill: #666666 }\n"
    ".line { stroke: #dddddd } .waits { fill: #d8d8d8 }\n"
    ".completed { fill: #2e8b57 } .running { fill: #2f6fb3 }\n"
    ".failed { fill: #c0392b } .cancelled, .pending { fill: #8a8a8a }\n"
    ".paused { fill: #d9a520 }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "svg { background: #1b1b1b } text { fill: #dddddd }\n"
    ".dim { fill: #9a9a9a } .line { stroke: #3a3a3a }\n"
    ".waits { fill: #4a4a4a } .completed { fill: #4cb782 }\n"
    ".running { fill: #5b9bd5 } .failed { fill: #e06c5f }\n"
    "}\n</style>\n";

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
        else if (*p == '"')
            buf_adds(out, "&quot;");
        else
            buf_addc(out, *p);
    }
}

/* a time scale: ms to points; the clock is not looked at, so that the picture
 * changes only when something happens */
struct scale {
    int64_t from, to, rows;
};

static int64_t at(const struct scale *s, int64_t ms)
{
    if (ms < s->from)
        ms = s->from;
    if (!ms || ms > s->to)
        ms = s->to;
    return LEFT + (ms - s->from) * WIDTH / (s->to - s->from);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void scale_get(struct db *d, int64_t run, struct scale *s)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT min(t.started),max(max(t.started,t.ended)),count(*),"
        "(SELECT max(max(m.started,m.ended)) FROM message m JOIN sandbox s ON "
        "s.id=m.sandbox WHERE s.run=?1),(SELECT max(max(started,ended)) FROM "
        "pause WHERE run=?1) FROM step t WHERE run=?1",
        "i", run);

    memset(s, 0, sizeof(*s));
    if (db_row(d, q)) {
        s->from = col_int(q, 0);
        s->to = later(col_int(q, 1), later(col_int(q, 3), col_int(q, 4)));
        s->rows = col_int(q, 2);
        db_done(q);
    }
    if (s->to <= s->from)
        s->to = s->from + 1000;
}

static void bar(struct buf *out, const struct scale *s, int64_t y,
                int64_t from, int64_t to, const char *class)
{
    int64_t x = at(s, from), end = at(s, to ? to : s->to);

    buf_addf(out,
             "<rect class=\"%s\" x=\"%lld\" y=\"%lld\" width=\"%lld\" "
             "height=\"%d\"/>\n",
             class, (long long)x, (long long)(y + 4),
             (long long)(end - x > 1 ? end - x : 1), ROW - 8);
}

struct span {
    int64_t from, to; /* to 0: not ended */
};

struct spans {
    struct span *v;
    size_t n;
};

static struct spans spans_of(struct db *d, sqlite3_stmt *q)
{
    struct spans s = {0};

    while (db_row(d, q)) {
        s.v = xrealloc(s.v, (s.n + 1) * sizeof(*s.v));
        s.v[s.n++] = (struct span){col_int(q, 0), col_int(q, 1)};
    }
    return s;
}

/* when the agents of the run were at work */
static struct spans work_of(struct db *d, int64_t run)
{
    return spans_of(
        d, db_query(d,
                    "SELECT m.started,m.ended FROM message m JOIN sandbox s "
                    "ON s.id=m.sandbox WHERE s.run=? AND s.run<>0 AND "
                    "m.started<>0 ORDER BY m.started",
                    "i", run));
}

/* when it stood still */
static struct spans pauses_of(struct db *d, int64_t run)
{
    return spans_of(
        d,
        db_query(d, "SELECT started,ended FROM pause WHERE run=? ORDER BY id",
                 "i", run));
}

/* as much of the spans as lies within from and to (0: not ended) */
static void bars(struct buf *out, const struct scale *s, int64_t y,
                 const struct spans *v, int64_t from, int64_t to,
                 const char *class)
{
    for (size_t i = 0; i < v->n; i++) {
        int64_t begin = later(v->v[i].from, from), end = v->v[i].to;

        if ((end && end <= from) || (to && begin >= to))
            continue;
        if (to && (!end || end > to))
            end = to;
        bar(out, s, y, begin, end, class);
    }
}

static void step_row(struct buf *out, const struct scale *s, sqlite3_stmt *q,
                     const struct spans *work, const struct spans *pauses,
                     int64_t y)
{
    int64_t from = col_int(q, 3), to = col_int(q, 4);

    buf_addf(out, "<g><title>");
    xml(out, col_text(q, 1));
    buf_addf(out, ", %s", col_text(q, 2));
    if (to)
        buf_addf(out, ", %.1f s", (double)(to - from) / 1000.0);
    if (*col_text(q, 5)) {
        buf_adds(out, ", ");
        xml(out, col_text(q, 5));
    }
    buf_addf(out, "</title>\n<text x=\"8\" y=\"%lld\">",
             (long long)(y + ROW - 8));
    xml(out, col_text(q, 0));
    buf_adds(out, "</text>\n");
    bar(out, s, y, from, to, "waits");
    bars(out, s, y, work, from, to, col_text(q, 2));
    bars(out, s, y, pauses, from, to, "paused");
    if (*col_text(q, 5)) {
        buf_addf(out, "<text class=\"dim\" x=\"%d\" y=\"%lld\">",
                 LEFT + WIDTH + 8, (long long)(y + ROW - 8));
        xml(out, col_text(q, 5));
        buf_adds(out, "</text>\n");
    }
    buf_adds(out, "</g>\n");
}

static void svg_head(struct buf *out, const struct scale *s)
{
    long long height = TOP + s->rows * ROW + LEGEND;
    char first[32], last[32];

    time_rfc3339(s->from, first);
    time_rfc3339(s->to, last);
    buf_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
             "height=\"%lld\" viewBox=\"0 0 %d %lld\">\n%s",
             LEFT + WIDTH + 80, height, LEFT + WIDTH + 80, height, style);
    if (!s->rows)
        return;
    buf_addf(out,
             "<text class=\"dim\" x=\"%d\" y=\"18\">%s</text>\n"
             "<text class=\"dim\" x=\"%d\" y=\"18\" "
             "text-anchor=\"end\">%s</text>\n",
             LEFT, first, LEFT + WIDTH, last);
    for (int i = 0; i <= 4; i++)
        buf_addf(out,
                 "<line class=\"line\" x1=\"%d\" x2=\"%d\" y1=\"%d\" "
                 "y2=\"%lld\"/>\n",
                 LEFT + i * WIDTH / 4, LEFT + i * WIDTH / 4, TOP - 8,
                 height - LEGEND + 4);
}

static void svg_legend(struct buf *out, int64_t y)
{
    static const char *const words[] = {"waits",  "running", "completed",
                                        "failed", "paused",  NULL};
    static const char *const shown[] = {"waiting", "working", "completed",
                                        "failed", "paused"};

    for (int i = 0; words[i]; i++)
        buf_addf(out,
                 "<rect class=\"%s\" x=\"%d\" y=\"%lld\" width=\"12\" "
                 "height=\"12\"/><text class=\"dim\" x=\"%d\" "
                 "y=\"%lld\">%s</text>\n",
                 words[i], LEFT + i * 110, (long long)(y + 10),
                 LEFT + i * 110 + 18, (long long)(y + 20), shown[i]);
}

int view_run_timeline(struct courier *c, struct db *d, struct oid o,
                      struct buf *out)
{
    struct spans work = work_of(d, o.id), pauses = pauses_of(d, o.id);
    struct scale s;
    int64_t y = TOP;
    sqlite3_stmt *q;

    (void)c;
    scale_get(d, o.id, &s);
    svg_head(out, &s);
    q = db_query(d,
                 "SELECT name,role,status,started,ended,CASE WHEN score<>'' "
                 "THEN score ELSE verdict END FROM step WHERE run=? ORDER BY "
                 "id",
                 "i", o.id);
    while (db_row(d, q)) {
        step_row(out, &s, q, &work, &pauses, y);
        y += ROW;
    }
    free(work.v);
    free(pauses.v);
    svg_legend(out, y);
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
