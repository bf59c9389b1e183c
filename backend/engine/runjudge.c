/* What an answer means for the run: verdicts, rounds, the choice. */
#include "engine/rundrive.h"

enum { LAST_LINES = 40, LAST_MAX = 8 * 1024 /* of a script that failed */ };

/* ---- parallel attempts ---- */

void tell_group(struct drive *d)
{
    if (!*d->r->grp)
        return;
    db_exec(d->tx->db,
            "UPDATE job SET step=step+1,not_before=0 WHERE lane='run' AND run "
            "IN(SELECT id FROM run WHERE project=? AND grp=? AND id<>?)",
            "isi", d->r->project, d->r->grp, d->r->id);
    tx_jobs_kick(d->tx, d->c);
}

static char *chosen(struct drive *d)
{
    return db_text(d->tx->db,
                   "SELECT verdict FROM step WHERE role='judge' AND "
                   "status='completed' AND run IN(SELECT id FROM run WHERE "
                   "project=? AND grp=? AND trash IS NULL) ORDER BY id DESC "
                   "LIMIT 1",
                   "is", d->r->project, d->r->grp);
}

static bool is_attempt(struct drive *d, const char *name)
{
    return db_int(d->tx->db, 0,
                  "SELECT 1 FROM run WHERE project=? AND grp=? AND name=? AND "
                  "trash IS NULL",
                  "iss", d->r->project, d->r->grp, name);
}

enum judging judge_turn(struct drive *d)
{
    AUTO_FREE char *choice = num(d, "anew") ? NULL : chosen(d);
    int64_t first;

    if (choice) {
        put_word(d, "choice", is_attempt(d, choice) ? choice : "");
        return JUDGE_PAST;
    }
    if (!num(d, "at_judge")) {
        put(d, "at_judge", 1);
        tell_group(d);
    }
    if (db_int(d->tx->db, 0,
               "SELECT 1 FROM run WHERE project=? AND grp=? AND id<>? AND "
               "trash IS NULL AND status IN('pending','running','paused') AND "
               "coalesce(json_extract(nullif(state,''),'$.at_judge'),0)=0",
               "isi", d->r->project, d->r->grp, d->r->id))
        return JUDGE_WAIT;
    first = db_int(d->tx->db, 0,
                   "SELECT min(id) FROM run WHERE project=? AND grp=? AND "
                   "trash IS NULL AND status='running'",
                   "is", d->r->project, d->r->grp);
    return first == d->r->id || num(d, "anew") ? JUDGE_ASK : JUDGE_WAIT;
}

/* ---- where to go ---- */

static void give_up(struct drive *d, const char *why)
{
    put_word(d, "why", why);
    put(d, "step", 0); /* the steps themselves did their work */
    end_vm(d, "run failed", "fail");
}

/* the last step of a round; false: there is another round, or an end */
static bool round_ends(struct drive *d, const struct wf_loop *loop)
{
    bool again = num(d, "unhappy") && num(d, "round") < loop->max;
    AUTO_FREE char *fresh = xstrdup(word(d, "fresh"));

    put_word(d, "feedback", fresh);
    put_word(d, "fresh", "");
    if (again) {
        put(d, "round", num(d, "round") + 1);
        put(d, "unhappy", 0);
        put(d, "pos", loop->first);
        phase(d, "begin");
        return false;
    }
    if (num(d, "unhappy") && !loop->continue_) {
        AUTO_FREE char *why =
            xasprintf("loop %.40s: not passed after %d round%s", loop->name,
                      loop->max, loop->max == 1 ? "" : "s");

        put(d, "spent", 1);
        give_up(d, why);
        return false;
    }
    put(d, "round", 1);
    put(d, "unhappy", 0);
    return true;
}

static void go_on(struct drive *d)
{
    const struct wf_loop *loop = loop_of(d);
    int64_t pos = num(d, "pos");

    if (loop && pos == loop->last) {
        if (!round_ends(d, loop))
            return;
    } else if (!loop && num(d, "unhappy")) {
        AUTO_FREE char *why =
            xasprintf("step %.60s: the verdict is fail", step_at(d)->name);

        give_up(d, why);
        return;
    }
    put(d, "pos", pos + 1);
    phase(d, pos + 1 < (int64_t)d->r->wf.n_steps ? "begin" : "finish");
}

/* ---- verdicts ---- */

/* what checkers of one round ask for adds up */
static void add_feedback(struct drive *d, const char *text)
{
    AUTO_FREE char *all = *word(d, "fresh")
                              ? xasprintf("%s\n\n%s", word(d, "fresh"), text)
                              : xstrdup(text);

    put_word(d, "fresh", all);
}

bool exit_judges(struct drive *d)
{
    return db_int(d->tx->db, 0,
                  "SELECT 1 FROM step WHERE id=? AND tool='shell' AND role "
                  "IN('checker','reviewer')",
                  "i", num(d, "step"));
}

/* the last lines of a script's output, below how it ended */
static char *last_lines(const char *exited, const char *output)
{
    const char *end = output + strlen(output), *p = end;
    AUTO_BUF struct buf b = {0};

    for (int n = 0; p > output && end - p < LAST_MAX; p--)
        if (p[-1] == '\n' && ++n == LAST_LINES)
            break;
    while (((unsigned char)*p & 0xc0) == 0x80)
        p++;
    buf_addf(&b, "%s%s", exited, *p ? "\n" : "");
    text_printable(&b, p, (size_t)(end - p), PRINTABLE_LINES | PRINTABLE_TABS);
    return buf_take(&b);
}

/* of a script that says nothing of it the exit code is the verdict; one that
 * failed hasn't passed, whatever it printed */
static void judge_exit(struct verdict *v, const char *answer,
                       const char *exited)
{
    if (exited ? v->ok && !v->pass : v->ok)
        return;
    verdict_clear(v);
    v->ok = true;
    v->pass = !exited;
    if (exited)
        v->feedback = last_lines(exited, answer);
}

/* the answer of a step that judges; false: it is asked once more */
static bool judge(struct drive *d, const char *role, const char *answer,
                  const char *exited)
{
    bool checks = !strcmp(role, "checker") || !strcmp(role, "reviewer");
    AUTO_FREE char *why = NULL;
    const char *feedback;
    struct verdict v;

    verdict_read(role, answer, &v);
    if (exit_judges(d))
        judge_exit(&v, answer, exited);
    if (v.ok && v.choice && *d->r->grp && !is_attempt(d, v.choice)) {
        v.ok = v.pass = false;
        v.why = "the choice is the name of none of the attempts";
    }
    if (!v.ok && !num(d, "asked")) {
        verdict_clear(&v);
        step_ask_again(d, role);
        return false;
    }
    if (!v.ok)
        why = xasprintf("no verdict: %s", v.why);
    feedback = why ? why : v.feedback ? v.feedback : "";
    if (checks && !v.pass) {
        put(d, "unhappy", 1);
        add_feedback(d, feedback);
    }
    db_exec(d->tx->db,
            "UPDATE step SET verdict=?,feedback=?,score=? WHERE id=?", "sssi",
            !v.pass    ? "fail"
            : v.choice ? v.choice
            : v.score  ? ""
                       : "pass",
            feedback, v.score ? v.score : "", num(d, "step"));
    if (v.ok && v.choice)
        put_word(d, "choice", v.choice);
    verdict_clear(&v);
    return true;
}

void step_answered(struct drive *d, const char *answer, const char *exited)
{
    AUTO_FREE char *session =
        db_text(d->tx->db, "SELECT session FROM sandbox WHERE id=?", "i",
                num(d, "vm"));
    AUTO_FREE char *role = db_text(
        d->tx->db, "SELECT role FROM step WHERE id=?", "i", num(d, "step"));
    bool judges = role_judges(role);

    json_object_set_new(json_object_get(d->st, "sessions"), step_at(d)->name,
                        json_string(session ? session : ""));
    if (!num(d, "asked")) {
        db_exec(d->tx->db, "UPDATE step SET output=? WHERE id=?", "si", answer,
                num(d, "step"));
        tx_changed(d->tx, oid(OBJ_STEP, num(d, "step")), ASPECT_OUT);
    }
    if (judges && !judge(d, role, answer, exited))
        return;
    step_set(d, "completed", NULL);
    if (judges && !strcmp(role, "judge")) {
        put(d, "anew", 0);
        tell_group(d);
    }
    go_on(d);
}
