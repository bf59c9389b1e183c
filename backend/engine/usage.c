/*
 * What was used and what it cost. Records are kept for good: they carry the
 * names of their project, sandbox, run and step, and outlive those.
 */
#include "engine/usage.h"

#include "engine/rates.h"

#include <math.h>

double usage_price(struct db *d, const char *service, const char *model,
                   const char *unit, double quantity)
{
    size_t n = 0;
    AUTO_FREE char *doc = doc_text(d, root_oid(), "rates", &n);
    double each = doc ? rates_find(doc, n, service, model, unit) : -1;

    return each < 0 ? -1 : quantity * each;
}

static double price(struct db *d, const char *service, const char *model,
                    const char *unit, double quantity)
{
    double usd = usage_price(d, service, model, unit, quantity);

    return usd < 0 ? 0 : usd;
}

void tx_usage(struct tx *tx, int64_t sandbox, const char *service,
              const char *model, const char *unit, double quantity, double usd)
{
    int64_t project = db_int(
        tx->db, 0, "SELECT project FROM sandbox WHERE id=?", "i", sandbox);
    int64_t run;

    if (!project || (quantity <= 0 && usd <= 0))
        return;
    if (!model)
        model = "";
    if (usd < 0)
        usd = price(tx->db, service, model, unit, quantity);
    db_exec(tx->db,
            "INSERT INTO usage(time,service,model,unit,quantity,usd,project,"
            "sandbox,project_name,sandbox_name,run,step,run_name,step_name) "
            "SELECT ?,?,?,?,?,?,s.project,s.id,p.name,s.name,s.run,s.step,"
            "coalesce(r.name,''),coalesce(t.name,'') FROM sandbox s "
            "JOIN project p ON p.id=s.project LEFT JOIN run r ON r.id=s.run "
            "LEFT JOIN step t ON t.id=s.step WHERE s.id=?",
            "isssddi", tx->now_ms, service, model, unit, quantity, usd,
            sandbox);
    db_exec(tx->db, "UPDATE sandbox SET usd=usd+? WHERE id=?", "di", usd,
            sandbox);
    tx_touch(tx, project, oid(OBJ_SANDBOX, sandbox), ASPECT_USAGE);
    tx_changed(tx, oid(OBJ_PROJECT, project), ASPECT_STATUS);
    run =
        db_int(tx->db, 0, "SELECT run FROM sandbox WHERE id=?", "i", sandbox);
    if (run)
        tx_changed(tx, oid(OBJ_RUN, run), ASPECT_USAGE | ASPECT_INFO);
    tx_event(tx, project, oid(OBJ_SANDBOX, sandbox), "usage",
             json_pack("{s:s,s:s,s:s,s:f,s:f}", "service", service, "model",
                       model, "unit", unit, "quantity", quantity, "usd", usd));
}

/* of a VM interval that isn't recorded yet */
static double running_usd(struct db *d, const struct sandbox *s,
                          int64_t now_ms)
{
    if (!s->vm_since || now_ms <= s->vm_since)
        return 0;
    return price(d, s->backend, s->tool, "sandbox_seconds",
                 (double)(now_ms - s->vm_since) / 1000);
}

static double budget_of(const char *text)
{
    double budget = 0;

    return text && text_double(text, 0, 1e9, &budget) ? budget : 0;
}

char *budget_words(double usd)
{
    for (int decimals = 2; decimals < 17; decimals++) {
        AUTO_FREE char *s = xasprintf("%.*f", decimals, usd);

        if (strtod(s, NULL) == usd)
            return xstrdup(s);
    }
    return xasprintf("%.15g", usd);
}

double budget_spent(struct db *d, const struct sandbox *s, int64_t now_ms)
{
    AUTO_FREE char *text = config_value(d, s, "budget", NULL);
    double budget = budget_of(text);

    if (budget > 0 && s->usd + running_usd(d, s, now_ms) >= budget)
        return budget;
    return s->run ? budget_spent_run(d, s->run, now_ms) : 0;
}

static double vms_usd(struct db *d, int64_t run, int64_t now_ms)
{
    sqlite3_stmt *q = db_query(
        d, "SELECT id FROM sandbox WHERE run=? AND run<>0 AND vm_since<>0",
        "i", run);
    double sum = 0;

    while (db_row(d, q)) {
        struct sandbox s;

        if (sandbox_get(d, col_int(q, 0), &s) < 0)
            continue;
        sum += running_usd(d, &s, now_ms);
        sandbox_clear(&s);
    }
    return sum;
}

double budget_spent_run(struct db *d, int64_t run, int64_t now_ms)
{
    size_t n = 0;
    AUTO_FREE char *cfg = doc_text(d, oid(OBJ_RUN, run), "config", &n);
    AUTO_FREE char *text = cfg ? config_find(cfg, n, "budget") : NULL;
    double budget = budget_of(text);

    if (budget <= 0)
        return 0;
    return usage_total(d, oid(OBJ_RUN, run), 0) + vms_usd(d, run, now_ms) >=
                   budget
               ? budget
               : 0;
}

double usage_total(struct db *d, struct oid o, int64_t since_ms)
{
    sqlite3_stmt *q;
    double sum = 0;

    switch (o.kind) {
    case OBJ_ROOT:
        q = db_query(d, "SELECT total(usd) FROM usage WHERE time>=?", "i",
                     since_ms);
        break;
    case OBJ_PROJECT:
        q = db_query(d,
                     "SELECT total(usd) FROM usage WHERE project=? AND "
                     "time>=?",
                     "ii", o.id, since_ms);
        break;
    case OBJ_SANDBOX:
        q = db_query(d,
                     "SELECT total(usd) FROM usage WHERE sandbox=? AND "
                     "time>=?",
                     "ii", o.id, since_ms);
        break;
    case OBJ_RUN:
        q = db_query(d,
                     "SELECT total(usd) FROM usage WHERE run=? AND run<>0 AND "
                     "time>=?",
                     "ii", o.id, since_ms);
        break;
    default:
        return 0;
    }
    if (db_row(d, q)) {
        sum = col_double(q, 0);
        db_done(q);
    }
    return sum;
}

/* ---- as a table ---- */

#define SUMS(where)                                                           \
    "SELECT service,unit,sum(quantity),sum(usd) FROM usage WHERE " where      \
    " GROUP BY service,unit ORDER BY service,unit"

static sqlite3_stmt *sums(struct db *d, struct oid o)
{
    switch (o.kind) {
    case OBJ_ROOT:
        return db_query(d, SUMS("1"), "");
    case OBJ_PROJECT:
        return db_query(d, SUMS("project=?"), "i", o.id);
    case OBJ_SANDBOX:
        return db_query(d, SUMS("sandbox=?"), "i", o.id);
    case OBJ_RUN:
        return db_query(d, SUMS("run=? AND run<>0"), "i", o.id);
    default:
        return NULL;
    }
}

/* seconds with at most three decimals, counts with none */
static void quantity_str(double v, char out[32])
{
    if (fabs(v - round(v)) < 0.0005)
        snprintf(out, 32, "%.0f", v);
    else
        snprintf(out, 32, "%.3f", v);
    /* the shortest form, as the JSON has it */
    if (strchr(out, '.')) {
        size_t n = strlen(out);

        while (out[n - 1] == '0')
            out[--n] = 0;
        if (out[n - 1] == '.')
            out[n - 1] = 0;
    }
}

/* of a run: what each step and round took */
static void usage_by_step(struct db *d, int64_t run, struct buf *out)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT CASE step_name WHEN '' THEN '-' ELSE step_name END,"
        "sum(quantity*(unit='sandbox_seconds')),"
        "sum(quantity*(unit IN('input_tokens','cache_read_tokens',"
        "'cache_write_tokens'))),sum(quantity*(unit='output_tokens')),"
        "sum(usd) FROM usage WHERE run=? AND run<>0 GROUP BY step,step_name "
        "ORDER BY min(id)",
        "i", run);

    buf_addf(out, "\n%-28s %10s %10s %10s %12s\n", "step", "seconds", "in",
             "out", "usd");
    while (db_row(d, q))
        buf_addf(out, "%-28s %10.1f %10.0f %10.0f %12.4f\n", col_text(q, 0),
                 col_double(q, 1), col_double(q, 2), col_double(q, 3),
                 col_double(q, 4));
}

void usage_table(struct db *d, struct oid o, struct buf *out)
{
    sqlite3_stmt *q = sums(d, o);
    double total = 0;

    buf_addf(out, "%-12s %-20s %14s %12s\n", "service", "unit", "quantity",
             "usd");
    while (db_row(d, q)) {
        char quantity[32];

        quantity_str(col_double(q, 2), quantity);
        buf_addf(out, "%-12s %-20s %14s %12.4f\n", col_text(q, 0),
                 col_text(q, 1), quantity, col_double(q, 3));
        total += col_double(q, 3);
    }
    buf_addf(out, "%-12s %-20s %14s %12.4f\n", "total", "", "", total);
    if (o.kind == OBJ_RUN)
        usage_by_step(d, o.id, out);
}

/* ---- as records ---- */

#define RECORDS(where)                                                        \
    "SELECT time,service,model,unit,quantity,usd,project_name,sandbox_name,"  \
    "run_name,step_name FROM usage WHERE " where " ORDER BY id"

static sqlite3_stmt *records(struct db *d, struct oid o)
{
    switch (o.kind) {
    case OBJ_ROOT:
        return db_query(d, RECORDS("1"), "");
    case OBJ_PROJECT:
        return db_query(d, RECORDS("project=?"), "i", o.id);
    case OBJ_SANDBOX:
        return db_query(d, RECORDS("sandbox=?"), "i", o.id);
    case OBJ_RUN:
        return db_query(d, RECORDS("run=? AND run<>0"), "i", o.id);
    default:
        return NULL;
    }
}

static const char *const columns[] = {
    "time", "service", "model",   "unit", "quantity",
    "usd",  "project", "sandbox", "run",  "step",
};

/* nothing in it that JSON or CSV would have to quote */
static bool plain(const char *s)
{
    for (; *s; s++) {
        if (*s < 0x21 || *s > 0x7e || strchr("\",\\", *s))
            return false;
    }
    return true;
}

static void csv_field(struct buf *out, const char *s)
{
    AUTO_BUF struct buf shown = {0};

    if (plain(s)) {
        buf_adds(out, s);
        return;
    }
    text_printable(&shown, s, strlen(s), 0);
    buf_addc(out, '"');
    for (s = buf_str(&shown); *s; s++) {
        if (*s == '"')
            buf_addc(out, '"');
        buf_addc(out, *s);
    }
    buf_addc(out, '"');
}

static void json_field(struct buf *out, const char *s)
{
    AUTO_BUF struct buf shown = {0};

    buf_addc(out, '"');
    if (!plain(s)) {
        text_printable(&shown, s, strlen(s), 0);
        s = buf_str(&shown);
    }
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            buf_addc(out, '\\');
        buf_addc(out, *s);
    }
    buf_addc(out, '"');
}

static void number(struct buf *out, int column, double v)
{
    char quantity[32];

    if (column == 4) {
        quantity_str(v, quantity);
        buf_adds(out, quantity);
    } else {
        buf_addf(out, "%.6f", v);
    }
}

static void csv_row(sqlite3_stmt *q, const char *when, struct buf *out)
{
    buf_adds(out, when);
    for (int i = 1; i < (int)ARRAY_LEN(columns); i++) {
        buf_addc(out, ',');
        if (i == 4 || i == 5)
            number(out, i, col_double(q, i));
        else
            csv_field(out, col_text(q, i));
    }
    buf_addc(out, '\n');
}

static void json_row(sqlite3_stmt *q, const char *when, struct buf *out)
{
    buf_addf(out, "{\"time\":\"%s\"", when);
    for (int i = 1; i < (int)ARRAY_LEN(columns); i++) {
        buf_adds(out, ",\"");
        buf_adds(out, columns[i]);
        buf_adds(out, "\":");
        if (i == 4 || i == 5)
            number(out, i, col_double(q, i));
        else
            json_field(out, col_text(q, i));
    }
    buf_adds(out, "}\n");
}

void usage_records(struct db *d, struct oid o, bool csv, struct buf *out)
{
    sqlite3_stmt *q = records(d, o);
    int64_t second = -1;
    char when[32] = "";

    for (size_t i = 0; csv && i < ARRAY_LEN(columns); i++)
        buf_addf(out, "%s%s", i ? "," : "", columns[i]);
    if (csv)
        buf_addc(out, '\n');
    while (db_row(d, q)) {
        if (col_int(q, 0) / 1000 != second)
            time_rfc3339(col_int(q, 0), when);
        second = col_int(q, 0) / 1000;
        if (csv)
            csv_row(q, when, out);
        else
            json_row(q, when, out);
    }
}
