/*
 * engine: where decisions live. What the record means, who may do what when,
 * what follows from what. It is the only caller of the leaves (store, e2b,
 * agents, git, vault).
 *
 *   open.c      life of the daemon's backend, threads, the environment
 *   schema.c    the tables
 *   object.c    projects, sandboxes, runs: names, lists, trash, rename
 *   state.c     THE transition function of a sandbox's status, counts, events
 *   command.c   ctl: grammar, verbs, tokens, outcomes, bodies
 *   verbs.c     what each verb does to a sandbox
 *   config.c    keys of `config`, effective settings
 *   doc.c       documents; doccheck.c their grammars
 *   keys.c      keys and secrets
 *   view.c      the texts shown; usage.c costs; wait.c
 *   job.c       the queue of jobs and the workers
 *   vmstart.c   the job that makes a VM
 *   vm.c        jobs that pause, resume it; endpoint.c where VMs live
 *   turn.c      jobs that run a turn or an exec; follow.c their output
 *   reconcile.c deadlines, the provider's list
 *   files.c     .files; input.c the stdin of an exec
 *   transcript.c how a conversation is written down
 *   salvage.c pr.c learn.c    work saved, offered, learned from
 *   prlook.c    an offer followed until it is merged
 *   run*.c      workflows: run.h says which is what
 *
 * Functions named tx_* run on the writer's thread, inside a transaction, and
 * decide; functions named job_* run on workers, may block, and change the
 * record only through store_do. Queries run on whatever thread has a reader.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "agents/agents.h"
#include "base/base.h"
#include "base/text.h"
#include "courier.h"
#include "e2b/e2b.h"
#include "engine/transcript.h"
#include "git/git.h"
#include "store/store.h"
#include "vault/vault.h"

#include <jansson.h>
#include <pthread.h>

extern const char *const engine_migrations[];

struct jobs;      /* job.c */
struct endpoints; /* endpoint.c */
struct follows;   /* follow.c */

struct courier {
    struct store *store;
    struct vault *vault;
    char *data, *backend, *self_dir, *mount, *mounted_by;
    char *instance; /* random id of this record, in every VM's metadata */
    char *inotify;
    int64_t started_ms;
    struct jobs *jobs;
    struct endpoints *endpoints;
    struct follows *follows;
    struct e2b_pump *pump;
    pthread_t reconciler;
    pthread_mutex_t lock;   /* guards what stands below */
    pthread_cond_t wake;    /* of the reconciler */
    bool stopping, kick[2]; /* kick: the cloud's look, the local host's */
    char *last_error;
    void (*shutdown)(void *ctx);
    void *shutdown_ctx;
    /* variables of the environment: used where no key is stored */
    char *env_keys[16]; /* in locked memory; see keys.c */
};

static inline struct oid root_oid(void)
{
    return (struct oid){OBJ_ROOT, 0};
}
static inline struct oid oid(enum obj_kind kind, int64_t id)
{
    return (struct oid){kind, id};
}

/* ---- state.c: what a sandbox is, and every change of it ---- */

/* a row of the table; free with sandbox_clear. Strings are never NULL but
 * for vm, vm_token, vm_domain, session, trash, config */
struct sandbox {
    int64_t id, project;
    char *name, *trash, *kind, *status, *reason, *agent, *error, *config;
    char *backend, *tool, *model, *vm, *vm_token, *vm_domain, *session;
    char *last_turn, *ending, *branch, *meant, *base, *pr_status, *pr_head;
    char *learn_status;
    int64_t expires, vm_since, run, step, created, started, running_at, ended;
    double usd;
};
/* 0 or -ENOENT */
int sandbox_get(struct db *d, int64_t id, struct sandbox *out);
void sandbox_clear(struct sandbox *s);
bool sandbox_is(const struct sandbox *s, const char *status);

/*
 * The one function that changes a status: the row, `active` of the project,
 * times, the event, usage of the VM interval that ends, and what a state
 * implies (an ended one has no VM, its queue is dropped). No-op if it is so.
 */
void tx_status(struct tx *tx, int64_t id, const char *to, const char *reason);
void tx_agent(struct tx *tx, int64_t id, const char *agent,
              const char *reason);
/* adds to the conversation for people, and to that of its run */
void tx_transcript(struct tx *tx, int64_t sandbox, const void *p, size_t n);
/* what its VM used so far is told now, under the step it did that for */
void tx_bill(struct tx *tx, int64_t sandbox);
/* sets the last error in words, and tells it in errors */
void tx_sandbox_error(struct tx *tx, int64_t id, const char *text);
/* an event to root, project and object; extra may be NULL, is taken */
void tx_event(struct tx *tx, int64_t project, struct oid o, const char *event,
              json_t *extra);
/* the tree below the mount of an object, e.g. projects/web/sandboxes/one;
 * owned by the caller */
char *object_path(struct db *d, struct oid o);
/* the project it is, or belongs to; 0: none */
int64_t object_project(struct db *d, struct oid o);
/* a line of errors: repeats within a minute are folded */
void tx_error(struct tx *tx, int64_t project, const char *path,
              const char *text);
/* o changed in what board and project status show, too */
void tx_touch(struct tx *tx, int64_t project, struct oid o, uint64_t aspects);

/* ---- turn.c, in the transaction of an end ---- */

/* turns under way in this sandbox end as `error WHY` in the transcript; their
 * process rows end too */
void turn_abandon(struct tx *tx, int64_t sandbox, const char *why);

/* ---- object.c ---- */

/* makes the row of a draft; name NULL: made up. 0 and *id, or -EEXIST,
 * -EINVAL. *made: its name, owned by the caller */
int tx_sandbox_new(struct tx *tx, int64_t project, const char *name,
                   int64_t *id, char **made, struct err *e);
/* to the trash, back, and gone; the state must allow it (checked) */
int tx_delete(struct tx *tx, struct oid o, struct err *e);
int tx_restore(struct tx *tx, struct oid o, const char *name, struct err *e);
int tx_purge(struct tx *tx, struct courier *c, struct oid o, bool now,
             struct err *e);
void tx_purge_row(struct tx *tx, struct oid o); /* the row and all of it */
int tx_rename(struct tx *tx, struct oid o, const char *name, struct err *e);

/* ---- config.c ---- */

enum { CONFIG_ROOT = 1, CONFIG_PROJECT = 2, CONFIG_SANDBOX = 4 };
/* is this a key at that level and is the value right? -EINVAL with words */
int config_check(const char *key, const char *value, int level, struct err *e);
bool config_is_key(const char *key, int level);
/* may this key still be changed after start? */
bool config_is_late(const char *key);
/* the last value of key in a config text, NULL if it has none; owned */
char *config_find(const char *text, size_t n, const char *key);
/* text with key set to value: the line is replaced or added, the rest stays */
void config_set(struct buf *text, const char *key, const char *value);
/*
 * The effective value: the sandbox's own (or, from its start on, the frozen
 * one), else project's, root's, default; "" if there is none. *from (may be
 * NULL): "sandbox", "project", "root", "default", "tool". Owned by the caller.
 */
char *config_value(struct db *d, const struct sandbox *s, const char *key,
                   const char **from);
/* all of them as JSON {"key":{"value":..,"from":..}}; for info.json */
json_t *config_effective(struct db *d, const struct sandbox *s);
/* at start: freezes the effective config into the row (tool, model, backend,
 * branch name). -EINVAL e.g. unknown tool; -EACCES no key for the tool */
int tx_config_freeze(struct tx *tx, struct courier *c, int64_t sandbox,
                     struct err *e);
int64_t config_seconds(struct db *d, const struct sandbox *s, const char *key,
                       int64_t dflt); /* a duration */
/* one place's own value (kind ROOT, PROJECT, SANDBOX, RUN), then those above
 * it; "" if there is none. Owned by the caller */
char *config_of(struct db *d, struct oid o, const char *key);
/* the k-th directory of a list like local_bind, NULL at the end; owned */
char *config_list_item(const char *list, int k);

/* ---- doc.c ---- */

/* the text of a document, NULL if there is none; owned, *n may be NULL */
char *doc_text(struct db *d, struct oid owner, const char *path, size_t *n);
/* saves with its check; for commands. mode 0 keeps it */
int tx_doc_save(struct tx *tx, struct courier *c, struct oid owner,
                const char *path, const void *p, size_t n, unsigned mode,
                struct err *e);
/* the same without checks of who may: for what courier itself writes
 * (learnings, versions) */
int tx_doc_put(struct tx *tx, struct oid owner, const char *path,
               const void *p, size_t n, struct err *e);
/* what a new project, and a new record, has */
void tx_docs_seed_project(struct tx *tx, int64_t project);
void tx_docs_seed_root(struct tx *tx);
/* all files below dir of an owner, in order of path (for injection) */
typedef void (*doc_each_fn)(void *arg, const char *path, unsigned mode,
                            const void *p, size_t n);
void doc_each(struct db *d, struct oid owner, const char *dir, doc_each_fn fn,
              void *arg);
/* the tool of that name: tools/NAME of the record; -ENOENT, -EINVAL */
int tool_get(struct db *d, const char *name, struct tool **out, struct err *e);

/* ---- keys.c ---- */

/* reads the environment's keys and wipes them there; before threads */
void keys_env_init(struct courier *c);
void keys_env_wipe(struct courier *c); /* at the close: our copies, too */
/* E2B_DOMAIN, E2B_API_URL, E2B_SANDBOX_URL, GITHUB_API_URL as they were at
 * the start, or NULL; borrowed */
const char *keys_env_setting(struct courier *c, const char *name);
/*
 * The key `name` (e2b, anthropic, ...) for a project (0: none): the project's,
 * the user's, the environment's. Plain text in locked memory, free with
 * vault_free; *level: "project", "user", "environment" (static). -ENOENT,
 * or -EACCES if it can't be opened.
 */
int key_get(struct courier *c, struct db *d, int64_t project, const char *name,
            char **plain, const char **level, struct err *e);
bool key_there(struct courier *c, struct db *d, int64_t project,
               const char *name);
int tx_key_set(struct tx *tx, struct courier *c, struct oid owner,
               const char *path, const void *p, size_t n, struct err *e);
/* NAME=value of env, secrets and provider keys that the tool needs: for the
 * environment of an agent. Wipe with buf_wipe. One a line, as NAME='value'
 * quoted for sh. -EACCES in words when a needed key is missing. */
int env_script(struct courier *c, struct db *d, const struct sandbox *s,
               const struct tool *t, struct buf *out, struct err *e);

/* ---- command.c ---- */

/* a command line, taken apart */
struct args {
    char **words;     /* all, NULL-ended; [0] is the verb */
    char *line;       /* owned; what rest points into */
    const char *rest; /* after the verb, as it stands (message, exec) */
    const char *body; /* or NULL; borrowed */
    size_t body_n;
    char *token; /* id=..., taken off; or NULL */
    bool body_follows;
};
/* the value of key=, or NULL; the k-th plain word after the verb, or NULL */
const char *args_value(const struct args *a, const char *key);
const char *args_word(const struct args *a, int k);

/* ---- verbs.c: commands to one sandbox; o is the sandbox ---- */

int tx_sandbox_verb(struct tx *tx, struct courier *c, int64_t id,
                    const struct args *a, struct err *e);
int tx_create(struct tx *tx, struct courier *c, int64_t project,
              const struct args *a, bool body_follows, int64_t *id,
              char **made, struct err *e);
int tx_start(struct tx *tx, struct courier *c, int64_t id, struct err *e);
/* state is 'queued' or 'open' (a body under way); *msg may be NULL */
int tx_message(struct tx *tx, struct courier *c, int64_t id, const void *p,
               size_t n, const char *state, int64_t *msg, struct err *e);
/* may a message be taken now? -EBUSY, -EPERM */
int message_may(struct db *d, int64_t id, struct err *e);
/* begins to end it: a kill job; reason as shown later. now: no salvage */
void tx_kill(struct tx *tx, struct courier *c, int64_t id, const char *reason,
             bool now);
void tx_pause(struct tx *tx, struct courier *c, int64_t id,
              const char *reason);

/* ---- job.c ---- */

struct job {
    int64_t id, sandbox, run;
    char *lane, *verb, *args;
    int step, attempt;
    struct e2b_cancel cancel; /* set when control overtakes this work */
};
/* what a job's function returns: 0 done; 1 waiting (something else calls
 * tx_job_end); -EAGAIN try again later (*delay_ms); other negative: failed
 * for good, tx_job_failed of its verb is called */
typedef int (*job_fn)(struct courier *c, struct job *j, int *delay_ms,
                      struct err *e);
int64_t tx_job(struct tx *tx, struct courier *c, int64_t sandbox, int64_t run,
               const char *lane, const char *verb, const char *args);
void tx_job_end(struct tx *tx, struct courier *c, int64_t job);
void tx_job_step(struct tx *tx, int64_t job, int step);
/* ends the work under way in a sandbox, as control does when it overtakes;
 * after the commit. Threads: writer */
void job_cancel_work(struct courier *c, int64_t sandbox);
/* looks for something to do; any thread */
void jobs_kick(struct courier *c);
/* the same, once this transaction is there to be seen */
void tx_jobs_kick(struct tx *tx, struct courier *c);
int jobs_open(struct courier *c, struct err *e);
void jobs_stop(struct courier *c);
/* is there a job of that lane/verb (NULL: any)? */
bool job_there(struct db *d, int64_t sandbox, const char *lane,
               const char *verb);

/* ---- endpoint.c ---- */

/*
 * The endpoint where a sandbox's VM is or will be (by its frozen backend);
 * the local host is started if needed. Borrowed until endpoint_put. Blocks.
 * -EACCES no key; -EHOSTUNREACH the host can't be started.
 */
int endpoint_get(struct courier *c, int64_t project, const char *backend,
                 struct e2b **out, struct err *e);
void endpoint_put(struct courier *c, struct e2b *x);
/* fills t from the row; strings borrowed from s */
int sandbox_target(struct courier *c, const struct sandbox *s,
                   struct e2b_target *t, struct err *e);
/* "e2b" or "local" for a project when `auto` is asked for */
const char *backend_auto(struct courier *c, struct db *d, int64_t project);
/* local.env: empty while no local host runs. Reads a file only. */
void local_env(struct courier *c, struct buf *out);
char *local_limits(struct courier *c); /* words for status; owned */
int endpoints_open(struct courier *c, struct err *e);
void endpoints_close(struct courier *c);

/* ---- follow.c ---- */

int follows_open(struct courier *c, struct err *e);
void follows_close(struct courier *c);
/* (re)begins to follow a process row; any thread, after the commit */
void follow_start(struct courier *c, int64_t process);
/* stops following all of a sandbox (paused, ended); any thread */
void follow_stop(struct courier *c, int64_t sandbox);

/* ---- reconcile.c ---- */

int reconcile_open(struct courier *c, struct err *e);
void reconcile_close(struct courier *c);
/* look at this now: something said "gone", a deadline moved; any thread */
void reconcile_kick(struct courier *c);

/* ---- usage.c ---- */

/* a record of use at the rate in force; usd < 0: by the rates */
void tx_usage(struct tx *tx, int64_t sandbox, const char *service,
              const char *model, const char *unit, double quantity,
              double usd);
/* the tables; o is root, project, sandbox or run */
void usage_table(struct db *d, struct oid o, struct buf *out);
void usage_records(struct db *d, struct oid o, bool csv, struct buf *out);
double usage_total(struct db *d, struct oid o, int64_t since_ms);

/* ---- later parts hook in here ---- */

/* salvage.c: saves the work before an end; blocks (worker). Words of how it
 * went are appended to reason. Never fails the kill; -ECANCELED when a kill
 * now overtakes it. */
int salvage_run(struct courier *c, struct sandbox *s, struct job *j,
                struct buf *reason, struct err *e);
/* clone and setup at start, sync after a turn; 0, or an error for `error` */
int repo_setup(struct courier *c, struct sandbox *s,
               const struct e2b_target *t, struct job *j, struct err *e);
bool repo_wanted(struct db *d, const struct sandbox *s);
/* learn.c: queues the extraction where the config asks for it */
void tx_learn_after_end(struct tx *tx, struct courier *c,
                        const struct sandbox *s);
/* after an end: PR and learning jobs. Writer's thread */
void tx_after_end(struct tx *tx, struct courier *c, int64_t sandbox,
                  bool salvaged);
/* run.c: something has come to a sandbox that the job of its run, or one
 * that learns by it, waits for. c NULL: the caller has the jobs looked at */
void tx_run_look(struct tx *tx, struct courier *c, int64_t sandbox);
/* after a turn that completed or failed. Writer's thread */
void tx_after_turn(struct tx *tx, struct courier *c, int64_t sandbox,
                   int64_t message, bool ok);

#endif
