/* The table of the tree: names, links, README. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fs/document.h"
#include "fs/files.h"
#include "fs/tree.h"

static void names_are_unique(void **state)
{
    (void)state;
    for (int i = 1; i < row_count(); i++) {
        const struct row *r = row_at(i);

        if (!r->name || r->flags & ROW_LATER)
            continue;
        assert_ptr_equal(row_child(row_get(r->parent), r->name), r);
        assert_true(row_is_dir(row_get(r->parent)));
    }
}

static void rows_are_whole(void **state)
{
    (void)state;
    for (int i = 1; i < row_count(); i++) {
        const struct row *r = row_at(i);

        assert_true(r->kind > 0);
        if (r->kind == K_DOCDIR && r->name)
            assert_non_null(r->path);
        if (r->kind == K_VIEW)
            assert_in_range(r->what, 1, VIEWS - 1);
        if (r->kind == K_STREAM || r->kind == K_FOLLOW)
            assert_in_range(r->what, 1, STREAMS - 1);
        if (r->kind == K_WAIT)
            assert_in_range(r->what, 1, WAITS - 1);
    }
    for (int k = OBJ_ROOT; k < OBJ_KINDS; k++)
        assert_int_equal(row_of_object((enum obj_kind)k)->kind, K_OBJECT);
}

static void what_is_not_built_is_not_there(void **state)
{
    (void)state;
    assert_null(row_child(row_get(R_ROOT), "templates"));
    assert_null(row_child(row_get(R_PROJECT), "issues"));
    assert_null(row_child(row_get(R_SANDBOX), "nothing"));
}

static void readme_names_every_file(void **state)
{
    AUTO_BUF struct buf b = {0};

    (void)state;
    tree_readme(&b, "/mnt/a b", "somebody");
    for (int i = 1; i < row_count(); i++) {
        const struct row *r = row_at(i);

        if (r->name && !(r->flags & ROW_LATER))
            assert_non_null(strstr(b.p, r->name));
    }
    assert_null(strstr(b.p, "templates"));
    assert_non_null(strstr(b.p, "somebody"));
    assert_non_null(strstr(b.p, "P='/mnt/a b'/projects/web\n"));
}

static void modes(void **state)
{
    (void)state;
    assert_int_equal(row_mode(row_child(row_get(R_SANDBOX), "status")) & 0777,
                     0400);
    assert_int_equal(row_mode(row_child(row_get(R_SANDBOX), "ctl")) & 0777,
                     0600);
    assert_int_equal(row_mode(row_get(R_PROJECTS)) & 0777, 0700);
}

static void scratch_names(void **state)
{
    static const char *const yes[] = {
        "4913",      "config~",     ".config.swp",    ".#config", "#config#",
        "sedAbC123", "config.lock", ".prompt.Xa3b9Z", "x.tmp",    "x.bak",
    };
    static const char *const no[] = {
        "config", "designer", "sed", "seddling", ".gitconfig", "4914", "x.md",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(yes); i++)
        assert_true(doc_scratch_name(yes[i]));
    for (size_t i = 0; i < ARRAY_LEN(no); i++)
        assert_false(doc_scratch_name(no[i]));
}

static void check_link(const char *path, const char *target, const char *want)
{
    AUTO_BUF struct buf b = {0};

    vm_link_text(path, target, &b);
    assert_string_equal(buf_str(&b), want);
}

static void links_never_lead_out(void **state)
{
    (void)state;
    check_link("l", "a", "a");
    check_link("l", "./a//b/.", "a/b");
    check_link("l", "..", "(outside)");
    check_link("l", "../x", "(outside)");
    check_link("l", "/etc/passwd", "(outside)");
    check_link("l", "/home/user", ".");
    check_link("l", "/home/user/", ".");
    check_link("l", "/home/user/a/b", "a/b");
    check_link("l", "/home/user/../x", "(outside)");
    check_link("l", "/home/users/x", "(outside)");
    check_link("l", "a/../../x", "(outside)");
    check_link("x/y/l", "../../a", "../../a");
    check_link("x/y/l", "..", "..");
    check_link("x/y/l", "../../../a", "(outside)");
    check_link("x/y/l", "/home/user/a", "../../a");
    check_link("x/y/l", "/home/user", "../..");
    check_link("x/y/l", "/", "(outside)");
    check_link("x/l", "/home/user/x/a", "a");
    check_link("x/y/l", "/home/user/x/z/a", "../z/a");
    check_link("x/y/l", "/home/user/x", "../../x");
    check_link("x/l", "/home/user/x/l", "(outside)");
    check_link("x/y/l", "a/../z", "(outside)");
    check_link("l", "", ".");
    check_link("l", NULL, ".");
}

static void numbers_last(void **state)
{
    struct key a = {.row = row_child(row_get(R_SANDBOX), "status"),
                    .o = {OBJ_SANDBOX, 7}};
    struct key b = a, doc = {.row = row_get(R_DOCFILE),
                             .o = {OBJ_PROJECT, 1},
                             .path = "home/x"};
    uint64_t ino = node_ino_of(&a);
    struct node *n;

    (void)state;
    b.o.id = 8;
    assert_int_not_equal(ino, node_ino_of(&b));
    b = a;
    b.trash = true;
    assert_int_not_equal(ino, node_ino_of(&b));
    n = node_get(&a);
    assert_int_equal(n->ino, ino);
    assert_ptr_equal(node_get(&a), n);
    n->nlookup = 2;
    node_forget(n, 2);
    assert_null(node_find(ino));
    assert_int_equal(node_ino_of(&a), ino);
    n = node_get(&doc);
    n->nlookup = 1;
    node_moved(doc.o, K_DOCDIR, "home", "skills");
    assert_string_equal(n->path, "skills/x");
    node_forget(n, 1);
}

static void documents_in_memory(void **state)
{
    struct oid o = {OBJ_PROJECT, 3};
    struct err e = {.code = EINVAL, .text = "line 1: no"};
    struct buf text = {.p = (char *)(uintptr_t) "secret", .n = 6, .cap = 7};
    struct docfile *d = docmem_get(o, "config");

    (void)state;
    assert_ptr_equal(docmem_find(o, "config"), d);
    doc_reject(d, &e, &text);
    assert_non_null(strstr(d->rejected.p, "# line 1: no\nsecret"));
    doc_show(o, "config", false);
    assert_null(docmem_find(o, "config"));
    d = docmem_get(o, "keys/openai");
    doc_reject(d, &e, &text);
    assert_null(strstr(d->rejected.p, "secret"));
    doc_show(o, "keys/openai", false);
    doc_hide(o, "prompt", true);
    assert_true(doc_hidden(o, "prompt"));
    assert_in_range(doc_timeout(now_ms()), 1, 2000);
    doc_tick(now_ms() + 3000);
    assert_false(doc_hidden(o, "prompt"));
    assert_null(docmem_find(o, "prompt"));
    assert_int_equal(doc_timeout(now_ms()), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(rows_are_whole),
        cmocka_unit_test(what_is_not_built_is_not_there),
        cmocka_unit_test(readme_names_every_file),
        cmocka_unit_test(modes),
        cmocka_unit_test(scratch_names),
        cmocka_unit_test(links_never_lead_out),
        cmocka_unit_test(numbers_last),
        cmocka_unit_test(documents_in_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
