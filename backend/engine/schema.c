#include "engine/engine.h"

/*
 * The record. Times are ms since 1970, 0 is "not yet". Each text is one
 * migration; a text that was released is never changed. docs/schema.md tells
 * what the tables mean to somebody who reads them with sqlite3 -readonly.
 */
static const char schema_1[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE project("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " name TEXT NOT NULL,"
    " trash TEXT," /* its name in the trash; NULL: live */
    " created INTEGER NOT NULL,"
    " active INTEGER NOT NULL DEFAULT 0 CHECK(active>=0),"
    " learn_active INTEGER NOT NULL DEFAULT 0);" /* version, 0: none */
    "CREATE UNIQUE INDEX project_live ON project(name) WHERE trash IS NULL;"
    "CREATE UNIQUE INDEX project_trash ON project(trash);"
    "CREATE TABLE sandbox("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " project INTEGER NOT NULL REFERENCES project(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL,"
    " trash TEXT,"
    " kind TEXT NOT NULL DEFAULT 'standalone'"
    "  CHECK(kind IN('standalone','run','issue')),"
    " status TEXT NOT NULL CHECK(status IN"
    "  ('draft','creating','running','paused','killed','error')),"
    " reason TEXT NOT NULL DEFAULT '',"
    " agent TEXT NOT NULL DEFAULT 'none' CHECK(agent IN"
    "  ('none','starting','working','idle','failed')),"
    " error TEXT NOT NULL DEFAULT '',"
    " config TEXT," /* effective settings as JSON, from its start on */
    " backend TEXT NOT NULL DEFAULT '',"
    " tool TEXT NOT NULL DEFAULT '',"
    " model TEXT NOT NULL DEFAULT '',"
    " vm TEXT, vm_token TEXT, vm_domain TEXT," /* at the provider */
    " vm_since INTEGER NOT NULL DEFAULT 0,"    /* running (billed) since */
    " expires INTEGER NOT NULL DEFAULT 0,"
    " session TEXT,"                        /* of the agent's conversation */
    " next_seq INTEGER NOT NULL DEFAULT 1," /* number of the next message */
    " last_turn TEXT NOT NULL DEFAULT ''"   /* completed, failed */
    "  CHECK(last_turn IN('','completed','failed')),"
    " ending TEXT NOT NULL DEFAULT ''," /* why a kill or pause is under way */
    " branch TEXT NOT NULL DEFAULT '', base TEXT NOT NULL DEFAULT '',"
    " pr_url TEXT NOT NULL DEFAULT '', pr_number INTEGER NOT NULL DEFAULT 0,"
    " pr_status TEXT NOT NULL DEFAULT '', pr_title TEXT NOT NULL DEFAULT '',"
    " pr_reason TEXT NOT NULL DEFAULT '',"
    " learn_status TEXT NOT NULL DEFAULT '',"
    " learn_reason TEXT NOT NULL DEFAULT '',"
    " learnings TEXT NOT NULL DEFAULT '',"
    " diff BLOB,"
    " run INTEGER NOT NULL DEFAULT 0, step INTEGER NOT NULL DEFAULT 0,"
    " usd REAL NOT NULL DEFAULT 0,"
    " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0,"
    " running_at INTEGER NOT NULL DEFAULT 0,"
    " ended INTEGER NOT NULL DEFAULT 0);"
    "CREATE UNIQUE INDEX sandbox_live ON sandbox(project,name)"
    " WHERE trash IS NULL;"
    "CREATE UNIQUE INDEX sandbox_trash ON sandbox(project,trash);"
    "CREATE INDEX sandbox_status ON sandbox(status,project)"
    " WHERE trash IS NULL;"
    "CREATE INDEX sandbox_vm ON sandbox(vm) WHERE vm IS NOT NULL;"
    "CREATE INDEX sandbox_run ON sandbox(run) WHERE run<>0;"
    /* a message to a sandbox and the turn that answers it */
    "CREATE TABLE message("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " sandbox INTEGER NOT NULL REFERENCES sandbox(id) ON DELETE CASCADE,"
    " state TEXT NOT NULL CHECK(state IN"
    "  ('open','queued','working','completed','failed','dropped')),"
    " text BLOB NOT NULL,"
    " first INTEGER NOT NULL DEFAULT 0," /* the prompt */
    " seq INTEGER NOT NULL DEFAULT 0,"   /* its number, once delivered */
    " answer INTEGER NOT NULL DEFAULT 0,"
    " error TEXT NOT NULL DEFAULT '',"
    " result TEXT NOT NULL DEFAULT ''," /* the answer's joined text */
    " tools TEXT NOT NULL DEFAULT '[]',"
    " input INTEGER NOT NULL DEFAULT 0, output INTEGER NOT NULL DEFAULT 0,"
    " cache_read INTEGER NOT NULL DEFAULT 0,"
    " cache_write INTEGER NOT NULL DEFAULT 0,"
    " usd REAL NOT NULL DEFAULT 0,"
    " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0,"
    " ended INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX message_sandbox ON message(sandbox,state);"
    /* a detached process in a VM whose output is followed: a turn, an exec */
    "CREATE TABLE process("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " sandbox INTEGER NOT NULL REFERENCES sandbox(id) ON DELETE CASCADE,"
    " job INTEGER NOT NULL DEFAULT 0,"
    " message INTEGER NOT NULL DEFAULT 0, exec INTEGER NOT NULL DEFAULT 0,"
    " state TEXT NOT NULL CHECK(state IN('starting','running','ended')),"
    " stop TEXT NOT NULL DEFAULT ''," /* why it is being ended */
    " off_out INTEGER NOT NULL DEFAULT 0,"
    " off_err INTEGER NOT NULL DEFAULT 0,"
    " deadline INTEGER NOT NULL DEFAULT 0,"
    " started INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX process_live ON process(sandbox) WHERE state<>'ended';"
    "CREATE TABLE exec("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " sandbox INTEGER NOT NULL REFERENCES sandbox(id) ON DELETE CASCADE,"
    " n INTEGER NOT NULL,"
    " cmd TEXT NOT NULL,"
    " status TEXT NOT NULL CHECK(status IN('queued','running','exited')),"
    " exit TEXT NOT NULL DEFAULT '',"
    " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0,"
    " ended INTEGER NOT NULL DEFAULT 0,"
    " UNIQUE(sandbox,n));"
    /* what is to be done: two lanes a sandbox (run: lane 'run') */
    "CREATE TABLE job("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " sandbox INTEGER NOT NULL DEFAULT 0,"
    " run INTEGER NOT NULL DEFAULT 0,"
    " lane TEXT NOT NULL CHECK(lane IN('control','work','side','run')),"
    " verb TEXT NOT NULL,"
    " args TEXT NOT NULL DEFAULT '',"
    " state TEXT NOT NULL DEFAULT 'queued'"
    "  CHECK(state IN('queued','waiting')),"
    " step INTEGER NOT NULL DEFAULT 0," /* steps done, as the verb counts */
    " attempt INTEGER NOT NULL DEFAULT 0,"
    " not_before INTEGER NOT NULL DEFAULT 0,"
    " created INTEGER NOT NULL);"
    "CREATE INDEX job_sandbox ON job(sandbox,lane,id);"
    /* outcomes of commands, for reading a ctl; the last few of each */
    "CREATE TABLE outcome("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " ctl INTEGER NOT NULL, object INTEGER NOT NULL,"
    " time INTEGER NOT NULL, text TEXT NOT NULL);"
    "CREATE INDEX outcome_ctl ON outcome(ctl,object,id);"
    "CREATE TABLE token("
    " ctl INTEGER NOT NULL, object INTEGER NOT NULL, token TEXT NOT NULL,"
    " hash INTEGER NOT NULL, PRIMARY KEY(ctl,object,token)) WITHOUT ROWID;"
    /* bodies (<<) under way */
    "CREATE TABLE body("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " ctl INTEGER NOT NULL, object INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " line TEXT NOT NULL, made INTEGER NOT NULL DEFAULT 0,"
    " text BLOB);" /* NULL: nothing durable yet */
    "CREATE TABLE doc("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " kind INTEGER NOT NULL, owner INTEGER NOT NULL,"
    " path TEXT NOT NULL, parent TEXT NOT NULL,"
    " dir INTEGER NOT NULL DEFAULT 0,"
    " mode INTEGER NOT NULL DEFAULT 384,"
    " text BLOB, mtime INTEGER NOT NULL," /* ns */
    " version INTEGER NOT NULL DEFAULT 1,"
    " UNIQUE(kind,owner,path));"
    "CREATE INDEX doc_parent ON doc(kind,owner,parent,id);"
    "CREATE TABLE doc_version("
    " kind INTEGER NOT NULL, owner INTEGER NOT NULL, path TEXT NOT NULL,"
    " n INTEGER NOT NULL, text BLOB, time INTEGER NOT NULL,"
    " PRIMARY KEY(kind,owner,path,n)) WITHOUT ROWID;"
    /* keys and secrets: path is keys/NAME or secrets/NAME */
    "CREATE TABLE secret("
    " kind INTEGER NOT NULL, owner INTEGER NOT NULL, path TEXT NOT NULL,"
    " sealed BLOB NOT NULL, hint TEXT NOT NULL, mtime INTEGER NOT NULL,"
    " refused TEXT NOT NULL DEFAULT ''," /* the provider's word on it */
    " PRIMARY KEY(kind,owner,path)) WITHOUT ROWID;"
    "CREATE TABLE error("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " time INTEGER NOT NULL, project INTEGER NOT NULL DEFAULT 0,"
    " path TEXT NOT NULL, text TEXT NOT NULL,"
    " count INTEGER NOT NULL DEFAULT 1);"
    "CREATE TABLE usage("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " time INTEGER NOT NULL, service TEXT NOT NULL, model TEXT NOT NULL,"
    " unit TEXT NOT NULL, quantity REAL NOT NULL, usd REAL NOT NULL,"
    " project INTEGER NOT NULL, sandbox INTEGER NOT NULL,"
    " project_name TEXT NOT NULL, sandbox_name TEXT NOT NULL,"
    " run_name TEXT NOT NULL DEFAULT '', step_name TEXT NOT NULL DEFAULT '',"
    " run INTEGER NOT NULL DEFAULT 0, step INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX usage_sandbox ON usage(sandbox);"
    "CREATE INDEX usage_project ON usage(project,time,usd);"
    "CREATE INDEX usage_run ON usage(run) WHERE run<>0;"
    "CREATE TABLE run("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " project INTEGER NOT NULL REFERENCES project(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, trash TEXT,"
    " status TEXT NOT NULL CHECK(status IN"
    "  ('pending','running','paused','completed','failed','cancelled')),"
    " reason TEXT NOT NULL DEFAULT '',"
    " workflow TEXT NOT NULL, text TEXT NOT NULL," /* the version it began with
                                                    */
    " config TEXT NOT NULL DEFAULT ''," /* overrides, key = value lines */
    " want TEXT NOT NULL DEFAULT '',"   /* cancel, pause, stop */
    " branch TEXT NOT NULL DEFAULT '', base TEXT NOT NULL DEFAULT '',"
    " state TEXT NOT NULL DEFAULT ''," /* where it is, JSON of the runner */
    " pr_url TEXT NOT NULL DEFAULT '', pr_number INTEGER NOT NULL DEFAULT 0,"
    " pr_status TEXT NOT NULL DEFAULT '', pr_title TEXT NOT NULL DEFAULT '',"
    " pr_reason TEXT NOT NULL DEFAULT '',"
    " grp TEXT NOT NULL DEFAULT ''," /* parallel attempts */
    " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0,"
    " ended INTEGER NOT NULL DEFAULT 0);"
    "CREATE UNIQUE INDEX run_live ON run(project,name) WHERE trash IS NULL;"
    "CREATE UNIQUE INDEX run_trash ON run(project,trash);"
    "CREATE TABLE step("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL," /* 01-design.2 */
    " pos INTEGER NOT NULL, round INTEGER NOT NULL DEFAULT 1,"
    " role TEXT NOT NULL DEFAULT '',"
    " status TEXT NOT NULL CHECK(status IN"
    "  ('pending','running','completed','failed','cancelled')),"
    " prompt TEXT NOT NULL DEFAULT '', output TEXT NOT NULL DEFAULT '',"
    " verdict TEXT NOT NULL DEFAULT '', feedback TEXT NOT NULL DEFAULT '',"
    " score TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',"
    " sandbox INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0,"
    " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0,"
    " ended INTEGER NOT NULL DEFAULT 0,"
    " UNIQUE(run,name));";

/* where a sandbox's work went when its branch was refused */
static const char schema_2[] =
    "ALTER TABLE sandbox ADD COLUMN"
    " meant TEXT NOT NULL DEFAULT '';" /* the branch that was refused */
    "ALTER TABLE sandbox ADD COLUMN"
    " pr_head TEXT NOT NULL DEFAULT '';"; /* whose request it is */

/* what a VM really has, as the provider says; 0: it didn't say */
static const char schema_3[] =
    "ALTER TABLE sandbox ADD COLUMN vm_cpu INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandbox ADD COLUMN vm_memory INTEGER NOT NULL DEFAULT 0;";

/* what did a step, whatever its sandbox does later; when a run stood still */
static const char schema_4[] =
    "ALTER TABLE step ADD COLUMN tool TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE step ADD COLUMN model TEXT NOT NULL DEFAULT '';"
    "UPDATE step SET (tool,model)=(SELECT tool,model FROM sandbox WHERE "
    "id=step.sandbox) WHERE sandbox IN(SELECT id FROM sandbox);"
    "CREATE TABLE pause("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    " started INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX pause_run ON pause(run);";

/* what the forge's checks say of a pull request's newest commit */
static const char schema_5[] =
    "ALTER TABLE sandbox ADD COLUMN pr_checks TEXT NOT NULL DEFAULT ''"
    " CHECK(pr_checks IN('','pending','passed','failed'));"
    "ALTER TABLE sandbox ADD COLUMN"
    " pr_checks_words TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE run ADD COLUMN pr_checks TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE run ADD COLUMN pr_checks_words TEXT NOT NULL DEFAULT '';";

/* what was begun before has no stdin */
static const char schema_6[] =
    "ALTER TABLE exec ADD COLUMN input TEXT NOT NULL DEFAULT ''"
    " CHECK(input IN('','open','kept','end'));"
    "ALTER TABLE exec ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE exec ADD COLUMN given INTEGER NOT NULL DEFAULT 0;"
    "UPDATE exec SET input='end';"
    /* its bytes that are not in the VM yet: `waiting` of them; those up to
     * the row `given` have been sent */
    "CREATE TABLE input("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " exec INTEGER NOT NULL REFERENCES exec(id) ON DELETE CASCADE,"
    " bytes BLOB NOT NULL);"
    "CREATE INDEX input_exec ON input(exec,id);";

const char *const engine_migrations[] = {
    schema_1, schema_2, schema_3, schema_4, schema_5, schema_6, NULL};
