/* What a new record and a new project have: tools, rates, personas,
 * workflows. All of it can be edited and removed. */
#include "engine/docs.h"
#include "engine/rates.h"

struct seed {
    const char *path, *text;
};

/* shared endings, so that answers can be read by a program */
#define VERDICT                                                               \
    "  End your answer with a fenced block of the language json:\n"           \
    "  {\"verdict\": \"pass\" or \"fail\", \"feedback\": \"what is to "       \
    "be changed, or empty\"}\n"
#define SCORE                                                                 \
    "  End your answer with a fenced block of the language json:\n"           \
    "  {\"score\": a number from 0 to 100, \"feedback\": \"why\"}\n"
#define CHOICE                                                                \
    "  End your answer with a fenced block of the language json:\n"           \
    "  {\"choice\": the name of the attempt, \"feedback\": \"why\"}\n"

static const struct seed personas[] = {
    {"personas/designer",
     "description = Builds what was asked for\n"
     "role = designer\n"
     "instructions = Read the code around the task before you change it, and "
     "keep to its style.\n"
     "  Do the whole task; add or adapt tests for what you change.\n"
     "  Before you finish, run the type checks, linters and tests that the "
     "project has, and repair what they find.\n"
     "  If there is feedback from a checker, deal with every point of it.\n"
     "  Commit your work with messages that say why.\n"},
    {"personas/checker",
     "description = Judges the work, strictly\n"
     "role = checker\n"
     "instructions = Judge the work so far against the task. Don't change "
     "any file.\n"
     "  Read the diff, run the tests and checks, and try what a user would "
     "try.\n"
     "  Look for what is missing, wrong, unsafe or needlessly complicated. "
     "Pass only what you would merge.\n" VERDICT},
    {"personas/optimizer",
     "description = Makes good work better\n"
     "role = optimizer\n"
     "instructions = The work does what it should. Make it simpler, clearer "
     "and faster without changing what it does.\n"
     "  Remove what isn't needed, name things well, and leave the tests "
     "green. Commit.\n"},
    {"personas/prompter",
     "description = Turns a wish into a task\n"
     "role = prompter\n"
     "instructions = Rewrite the request as a precise task for an engineer "
     "who sees this repository for the first time.\n"
     "  Name the files and functions concerned, the expected behaviour, "
     "limits, and how to tell that it is done.\n"
     "  Don't change any file. Answer with the task only.\n"},
    {"personas/investigator",
     "description = Finds out how things are\n"
     "role = investigator\n"
     "instructions = Find out what the task needs to know: where the code "
     "is, how it works, why it fails.\n"
     "  Don't change any file. Answer with facts, each with the file and "
     "line it comes from, and say what you could not find.\n"},
    {"personas/planner",
     "description = Plans the way there\n"
     "role = planner\n"
     "instructions = Make a plan for the task: steps in order, the files of "
     "each, risks, and how each is tested.\n"
     "  Don't change any file. Prefer the smallest plan that does it all.\n"},
    {"personas/deep-dive",
     "description = Understands one thing completely\n"
     "role = deep-dive\n"
     "instructions = Study the part of the system that the task is about "
     "until you can explain every line of it.\n"
     "  Write down how it works, its invariants, its weak spots and what "
     "depends on it. Don't change any file.\n"},
    {"personas/reviewer",
     "description = Reviews a change as a colleague would\n"
     "role = reviewer\n"
     "instructions = Review the change on this branch: correctness, errors, "
     "security, tests, clarity.\n"
     "  Give each finding with file, line, its weight and a way to repair "
     "it. Don't change any file.\n" VERDICT},
    {"personas/evaluator",
     "description = Scores the result\n"
     "role = evaluator\n"
     "instructions = Score the result of the task: does it do what was "
     "asked, how good is the code, how well is it tested?\n"
     "  Don't change any file.\n" SCORE},
    {"personas/judge",
     "description = Chooses between attempts\n"
     "role = judge\n"
     "instructions = Several attempts at the same task are given. Compare "
     "them and choose the one to merge.\n"
     "  Say in one paragraph why. Don't change any file.\n" CHOICE},
    {"personas/answerer",
     "description = Answers open questions\n"
     "role = answerer\n"
     "instructions = Answer each question from the code, its history and its "
     "documents.\n"
     "  Say how sure you are, and what you assumed. Don't change any "
     "file.\n"},
};

static const struct seed workflows[] = {
    {"workflows/single", "description = one agent does the task\n"
                         "\n"
                         "[step design]\n"
                         "persona = designer\n"},
    {"workflows/review",
     "description = designed, then checked until it passes\n"
     "\n"
     "[step design]\n"
     "persona = designer\n"
     "loop = review\n"
     "\n"
     "[step check]\n"
     "persona = checker\n"
     "loop = review\n"
     "\n"
     "[loop review]\n"
     "max = 3\n"
     "on_max = fail\n"},
    {"workflows/polish",
     "description = planned, designed and checked, then made simpler\n"
     "\n"
     "[step plan]\n"
     "persona = planner\n"
     "\n"
     "[step design]\n"
     "persona = designer\n"
     "loop = review\n"
     "\n"
     "[step check]\n"
     "persona = checker\n"
     "loop = review\n"
     "\n"
     "[step optimize]\n"
     "persona = optimizer\n"
     "\n"
     "[step evaluate]\n"
     "persona = evaluator\n"
     "\n"
     "[loop review]\n"
     "max = 3\n"
     "on_max = continue\n"},
};

void tx_docs_seed_project(struct tx *tx, int64_t project)
{
    struct oid o = oid(OBJ_PROJECT, project);

    for (size_t i = 0; i < ARRAY_LEN(personas); i++)
        tx_doc_seed(tx, o, personas[i].path, personas[i].text);
    for (size_t i = 0; i < ARRAY_LEN(workflows); i++)
        tx_doc_seed(tx, o, workflows[i].path, workflows[i].text);
}

/* once in the life of a record: what was removed stays removed */
void tx_docs_seed_root(struct tx *tx)
{
    if (db_int(tx->db, 0, "SELECT 1 FROM meta WHERE key='seeded'", ""))
        return;
    db_exec(tx->db, "INSERT INTO meta(key,value) VALUES('seeded',1)", "");
    for (const char *const *name = tool_names(); *name; name++) {
        AUTO_FREE char *path = xasprintf("tools/%s", *name);
        const char *text = tool_builtin(*name);

        if (text)
            tx_doc_seed(tx, root_oid(), path, text);
    }
    tx_doc_seed(tx, root_oid(), "rates", rates_default);
}
