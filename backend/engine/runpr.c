/* What the pull request of a run says. */
#include "engine/run.h"

enum { ANSWER_MAX = 20000, TITLE_MAX = 72 };

/* the first line of the prompt, cut at a word's end */
char *run_pr_title(struct db *d, int64_t run)
{
    AUTO_FREE char *prompt = doc_text(d, oid(OBJ_RUN, run), "prompt", NULL);
    const char *p = prompt ? prompt : "";
    AUTO_BUF struct buf b = {0};
    size_t n, cut;

    p += strspn(p, " \t\r\n#");
    n = strcspn(p, "\r\n");
    if (!n)
        return NULL;
    if (n > TITLE_MAX) {
        n = TITLE_MAX;
        while (n && ((unsigned char)p[n] & 0xc0) == 0x80)
            n--;
        for (cut = n; cut > n / 2 && p[cut] != ' ';)
            cut--;
        if (p[cut] == ' ')
            n = cut;
    }
    text_printable(&b, p, n, 0);
    return buf_take(&b);
}

/* a cell of a table: one line, nothing that ends it */
static void cell(struct buf *out, const char *s)
{
    AUTO_BUF struct buf b = {0};

    text_printable(&b, s, strlen(s), 0);
    buf_addc(out, ' ');
    for (s = buf_str(&b); *s; s++) {
        if (*s == '|')
            buf_addc(out, '\\');
        buf_addc(out, *s);
    }
    buf_adds(out, " |");
}

static void step_table(struct db *d, int64_t run, struct buf *out)
{
    sqlite3_stmt *q = db_query(
        d,
        "SELECT name,role,tool,model,CASE WHEN verdict<>'' THEN verdict ELSE "
        "status END,score FROM step WHERE run=? ORDER BY id",
        "i", run);

    buf_adds(out, "## Steps\n\n| step | role | tool | model | result | score "
                  "|\n|---|---|---|---|---|---|\n");
    while (db_row(d, q)) {
        buf_addc(out, '|');
        for (int i = 0; i < 6; i++)
            cell(out, col_text(q, i));
        buf_addc(out, '\n');
    }
}

static void quote(struct buf *out, const char *title, const char *text)
{
    AUTO_BUF struct buf b = {0};

    if (!text || !*text)
        return;
    text_printable(&b, text, strnlen(text, ANSWER_MAX),
                   PRINTABLE_LINES | PRINTABLE_TABS);
    if (title)
        buf_addf(out, "\n## %s\n\n", title);
    buf_addf(out, "%s\n", buf_str(&b));
}

void run_pr_body(struct db *d, int64_t run, struct buf *out)
{
    AUTO_FREE char *answer = db_text(
        d,
        "SELECT output FROM step WHERE run=? AND status='completed' AND role "
        "NOT IN('checker','reviewer','evaluator','judge') AND output<>'' "
        "ORDER BY id DESC LIMIT 1",
        "i", run);
    AUTO_FREE char *words = db_text(
        d,
        "SELECT feedback FROM step WHERE run=? AND status='completed' AND "
        "role IN('checker','reviewer','evaluator') AND feedback<>'' AND "
        "verdict<>'fail' ORDER BY id DESC LIMIT 1",
        "i", run);
    AUTO_FREE char *prompt = doc_text(d, oid(OBJ_RUN, run), "prompt", NULL);
    AUTO_FREE char *name =
        db_text(d, "SELECT name FROM run WHERE id=?", "i", run);
    AUTO_FREE char *wf =
        db_text(d, "SELECT workflow FROM run WHERE id=?", "i", run);

    quote(out, NULL, answer);
    if (out->n)
        buf_addc(out, '\n');
    step_table(d, run, out);
    quote(out, "Verdict", words);
    quote(out, "Task", prompt);
    buf_addf(out,
             "\nMade by courier in run `%s` of the workflow `%s`; cost "
             "$%.2f.\n",
             name ? name : "", wf ? wf : "",
             usage_total(d, oid(OBJ_RUN, run), 0));
}
