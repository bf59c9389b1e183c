/* Documents: places, saving, versions, lists; workflows and personas. */
#include "engine_record.h"

#include "engine/workflow.h"

static void places(void **state)
{
    (void)state;
    assert_int_equal(doc_place(OBJ_ROOT, "config", NULL), DOC_CONFIG);
    assert_int_equal(doc_place(OBJ_ROOT, "env", NULL), DOC_NONE);
    assert_int_equal(doc_place(OBJ_PROJECT, "skills/x", NULL), DOC_SKILL_TOP);
    assert_int_equal(doc_place(OBJ_PROJECT, "skills/x/a/b", NULL), DOC_SKILL);
    assert_int_equal(doc_place(OBJ_PROJECT, "home/a", NULL), DOC_HOME);
    assert_int_equal(doc_place(OBJ_PROJECT, "home/../a", NULL), DOC_NONE);
    assert_int_equal(doc_place(OBJ_PROJECT, "home//a", NULL), DOC_NONE);
    assert_int_equal(doc_place(OBJ_PROJECT, "personas/a/b", NULL), DOC_NONE);
    assert_int_equal(doc_place(OBJ_PROJECT, "personas/", NULL), DOC_NONE);
    assert_int_equal(doc_place(OBJ_PROJECT, "personas/.versions/a", NULL),
                     DOC_VERSIONS);
    assert_int_equal(doc_place(OBJ_SANDBOX, "salvage/x", NULL), DOC_SALVAGE);
}

static void saved(void **state)
{
    struct courier_doc a, b;

    (void)state;
    assert_doc(the_project(), "env", "");
    assert_int_equal(save(the_project(), "env", "A=1\nB = \"2 3\"\n"), 0);
    assert_doc(the_project(), "env", "A=1\nB = \"2 3\"\n");
    assert_int_equal(courier_doc_stat(&rec.c, the_project(), "env", &a), 0);
    assert_int_equal(save(the_project(), "env", "A=2\n"), 0);
    assert_int_equal(courier_doc_stat(&rec.c, the_project(), "env", &b), 0);
    assert_true(b.mtime_ns > a.mtime_ns);
    assert_int_equal(save(the_project(), "env", "A=2\n2B=1\n"), -EINVAL);
    assert_string_equal(last_words, "line 2: '2B' is no name of a variable");
    assert_doc(the_project(), "env", "A=2\n");
    assert_int_equal(doc_rm(the_project(), "env"), -EPERM);
    assert_int_equal(save(the_project(), "personas/a.lock", "x"), -EINVAL);
    assert_int_equal(save(the_project(), "elsewhere", "x"), -EPERM);
    assert_int_equal(save(the_project(), "commands/a", "x"), -EINVAL);
    assert_int_equal(save(the_project(), "commands/a.md", "x"), 0);
    assert_int_equal(save(the_sandbox(), "prompt", "do it"), 0);
    assert_int_equal(save(root_oid(), "rates", "e2b * sandbox_seconds x\n"),
                     -EINVAL);
    assert_int_equal(
        save(root_oid(), "tools/mine", "command = cat\nformat = text\n"), 0);
}

static void trees(void **state)
{
    (void)state;
    assert_int_equal(save(the_project(), "home/.config/x", "1"), -ENOENT);
    assert_int_equal(doc_dir(the_project(), "home/.config"), 0);
    assert_int_equal(doc_dir(the_project(), "home/.config"), -EEXIST);
    assert_int_equal(doc_dir(the_project(), "home/.config/a"), 0);
    assert_int_equal(save(the_project(), "home/.config/a/x", "one"), 0);
    assert_int_equal(doc_rm(the_project(), "home/.config"), -ENOTEMPTY);
    assert_int_equal(doc_mv(the_project(), "home/.config", "home/.config/b"),
                     -EINVAL);
    assert_int_equal(doc_mv(the_project(), "home/.config", "home/.c2"), 0);
    assert_doc(the_project(), "home/.c2/a/x", "one");
    assert_doc(the_project(), "home/.versions/.config/a/x/1", "one");
    assert_int_equal(doc_mv(the_project(), "home/.c2/a/x", "home/.c2/y"), 0);
    assert_int_equal(doc_rm(the_project(), "home/.c2/a"), 0);
    assert_int_equal(doc_dir(the_project(), "personas/dir"), -EPERM);
    assert_int_equal(doc_dir(the_project(), "skills/s"), 0);
    assert_int_equal(save(the_project(), "skills/s/SKILL.md", "text"), 0);
    assert_int_equal(save(the_project(), "skills/t", "text"), -EPERM);
}

struct listed {
    struct buf b;
    int64_t last;
    int stop_after;
};

static bool add(void *arg, int64_t row, const char *name,
                const struct courier_doc *d)
{
    struct listed *l = arg;

    assert_true(row > l->last);
    l->last = row;
    buf_addf(&l->b, "%s%s ", name, d->dir ? "/" : "");
    return l->stop_after-- != 1;
}

static char *list(struct oid o, const char *dir)
{
    struct listed l = {.stop_after = 0};

    assert_int_equal(courier_doc_list(&rec.c, o, dir, 0, add, &l), 0);
    return l.b.p ? l.b.p : xstrdup("");
}

static void lists(void **state)
{
    AUTO_FREE char *top = list(the_sandbox(), "");
    AUTO_FREE char *tools = list(root_oid(), "tools");
    AUTO_FREE char *learnings = list(the_project(), "learnings");
    AUTO_FREE char *none = list(the_project(), "keys");
    struct listed l = {.stop_after = 2};

    (void)state;
    assert_string_equal(top, "config prompt salvage/ ");
    assert_string_equal(tools, "claude codex opencode pi shell ");
    assert_string_equal(learnings, "pending/ approved/ rejected/ versions/ ");
    assert_string_equal(none, "");
    assert_int_equal(save(the_project(), "secrets/ONE", "x"), 0);
    assert_int_equal(save(the_project(), "secrets/TWO", "x"), 0);
    free(none);
    none = list(the_project(), "secrets");
    assert_int_equal(strlen(none), 8);
    /* a listing goes on after a row, also when that was removed */
    assert_int_equal(courier_doc_list(&rec.c, root_oid(), "tools", 0, add, &l),
                     0);
    assert_string_equal(l.b.p, "claude codex ");
    assert_int_equal(doc_rm(root_oid(), "tools/codex"), 0);
    buf_clear(&l.b);
    assert_int_equal(
        courier_doc_list(&rec.c, root_oid(), "tools", l.last, add, &l), 0);
    assert_string_equal(l.b.p, "opencode pi shell ");
    buf_free(&l.b);
}

static void versions(void **state)
{
    AUTO_FREE char *names = NULL;

    (void)state;
    assert_int_equal(save(the_project(), "workflows/w", "[step a]\n"), 0);
    assert_int_equal(save(the_project(), "workflows/w", "[step b]\n"), 0);
    assert_int_equal(save(the_project(), "workflows/w", "[step b]\n"), 0);
    assert_int_equal(save(the_project(), "workflows/w", "[step]\n"), -EINVAL);
    assert_int_equal(doc_rm(the_project(), "workflows/w"), 0);
    assert_doc(the_project(), "workflows/.versions/w/1", "[step a]\n");
    assert_doc(the_project(), "workflows/.versions/w/2", "[step b]\n");
    names = list(the_project(), "workflows/.versions/w");
    assert_int_equal(strlen(names), 4);
    assert_int_equal(save(the_project(), "workflows/.versions/w/3", "x"),
                     -EPERM);
    free(names);
    names = list(the_project(), "workflows");
    assert_string_equal(names, "single review polish ");
}

static void decisions(void **state)
{
    ANSWER(a);

    (void)state;
    assert_int_equal(save(the_project(), "learnings/pending/7.md", "x"), 0);
    assert_int_equal(doc_mv(the_project(), "learnings/pending/7.md",
                            "learnings/approved/7.md"),
                     0);
    assert_doc(the_project(), "learnings/approved/7.md", "x");
    assert_int_equal(save(the_project(), "learnings/versions/1.md", "x"),
                     -EPERM);
    courier_link_set(&rec.c, the_project(), "versions/1.md", answer_done, &a);
    assert_int_equal(answer_wait(&a), -ENOENT);
    record_sql("INSERT INTO doc(kind,owner,path,parent,text,mtime) VALUES"
               "(2,1,'learnings/versions/1.md','learnings/versions','x',1)");
    a.over = false;
    courier_link_set(&rec.c, the_project(), "versions/1.md", answer_done, &a);
    assert_int_equal(answer_wait(&a), 0);
    assert_view(the_project(), VIEW_LEARNINGS_ACTIVE, "versions/1.md");
}

static void salvage(void **state)
{
    AUTO_FREE char *dir = xasprintf("%s/salvage", rec.dir);
    AUTO_FREE char *own = xasprintf("%s/%d", dir, (int)rec.sandbox);
    AUTO_FREE char *file = xasprintf("%s/worktree.patch", own);
    AUTO_FREE char *names = NULL;
    FILE *f;

    (void)state;
    assert_int_equal(mkdir(dir, 0700) | mkdir(own, 0700), 0);
    f = fopen(file, "w");
    assert_non_null(f);
    fputs("patch\n", f);
    fclose(f);
    names = list(the_sandbox(), "salvage");
    assert_string_equal(names, "worktree.patch ");
    assert_doc(the_sandbox(), "salvage/worktree.patch", "patch\n");
    assert_int_equal(save(the_sandbox(), "salvage/worktree.patch", "x"),
                     -EPERM);
}

static int parse(const char *text, struct workflow *w, struct err *e)
{
    return workflow_parse(text, strlen(text), false, w, e);
}

static void workflows(void **state)
{
    static const char text[] =
        "description = design and\n  review\n"
        "[step design]\npersona = designer\nloop = review\n"
        "[step check]\nrole = checker\ntool = claude\n"
        "instructions = Run the tests.\n\n  Be strict.\nloop = review\n"
        "[loop review]\nmax = 5\non_max = continue\n";
    struct workflow w;
    struct err e = {0};

    (void)state;
    assert_int_equal(parse(text, &w, &e), 0);
    assert_string_equal(w.description, "design and review");
    assert_int_equal(w.n_steps, 2);
    assert_string_equal(w.steps[1].part.instructions,
                        "Run the tests.\n\nBe strict.");
    assert_int_equal(w.steps[1].loop, 0);
    assert_int_equal(w.loops[0].max, 5);
    assert_true(w.loops[0].continue_);
    workflow_clear(&w);
    assert_int_equal(parse("", NULL, &e), -EINVAL);
    assert_int_equal(parse("[step a]\nloop = x\n", NULL, &e), -EINVAL);
    assert_string_equal(e.text, "line 1: there is no [loop x]");
    assert_int_equal(parse("[step a]\n\nrole = king\n", NULL, &e), -EINVAL);
    assert_string_equal(e.text, "line 3: unknown role 'king'");
    assert_int_equal(parse("[step a]\n[step a]\n", NULL, &e), -EINVAL);
    assert_int_equal(parse("[step a]\n[loop l]\n", NULL, &e), -EINVAL);
    assert_int_equal(parse("[step a]\nloop = l\n[step b]\n[step c]\n"
                           "loop = l\n[loop l]\n",
                           NULL, &e),
                     -EINVAL);
    assert_int_equal(parse("role = checker\n", NULL, &e), -EINVAL);
    assert_int_equal(
        workflow_parse("[step a]\nloop = x\nro", 20, true, NULL, &e), 0);
}

static void seeds_are_right(void **state)
{
    static const char *const dirs[] = {"personas", "workflows"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        sqlite3_stmt *q = db_query(
            reader(),
            "SELECT path,text FROM doc WHERE kind=2 AND parent=? AND dir=0",
            "s", dirs[i]);
        struct err e = {0};

        while (db_row(reader(), q)) {
            AUTO_FREE char *path = col_dup(q, 0), *text = col_dup(q, 1);

            if (courier_doc_check(&rec.c, the_project(), path, text,
                                  strlen(text), false, &e) < 0)
                fail_msg("%s: %s", path, e.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(workflows),
        cmocka_unit_test_setup_teardown(saved, record_open, record_close),
        cmocka_unit_test_setup_teardown(trees, record_open, record_close),
        cmocka_unit_test_setup_teardown(lists, record_open, record_close),
        cmocka_unit_test_setup_teardown(versions, record_open, record_close),
        cmocka_unit_test_setup_teardown(decisions, record_open, record_close),
        cmocka_unit_test_setup_teardown(salvage, record_open, record_close),
        cmocka_unit_test_setup_teardown(seeds_are_right, record_open,
                                        record_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
