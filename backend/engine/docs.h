/*
 * docs: where documents may stand and what each is. The table of places
 * (docplace.c) says it by kind of owner and path; doccheck.c has the grammars,
 * doc.c keeps the texts, docop.c is what the file system calls, seed.c what a
 * new record and a new project have.
 */
#ifndef ENGINE_DOCS_H
#define ENGINE_DOCS_H

#include "engine/engine.h"

enum doc_class {
    DOC_NONE, /* no document belongs there */
    DOC_DIR,  /* a directory that is always there */
    DOC_CONFIG,
    DOC_RATES,
    DOC_TOOL,
    DOC_ENV,
    DOC_TEXT, /* any text: CLAUDE.md, system-prompt.md */
    DOC_PROMPT,
    DOC_PERSONA,
    DOC_WORKFLOW,
    DOC_COMMAND,
    DOC_SKILL_TOP, /* skills/NAME: a directory */
    DOC_SKILL,     /* below it */
    DOC_HOME,
    DOC_LEARNING,
    DOC_LEARNING_VERSION,
    DOC_KEY,
    DOC_SECRET,
    DOC_SALVAGE,
    DOC_VERSIONS, /* TOP/.versions/...: unlisted, read-only */
};

struct doc_place {
    enum obj_kind kind;
    const char *path; /* `*` is one name, `**` at the end one or more */
    enum doc_class cl;
    bool fixed; /* always there, "" until it is written */
};
extern const struct doc_place doc_places[]; /* path NULL at the end */

enum { DOC_PATH_MAX = 4000 }; /* bytes, below the owner */
/* DOC_NONE if nothing belongs there. *fixed may be NULL */
enum doc_class doc_place(enum obj_kind kind, const char *path, bool *fixed);
/* is the name right for its place? -EINVAL with words; -EPERM: no place */
int doc_name_check(enum obj_kind kind, const char *path, struct err *e);
bool doc_is_tree(enum doc_class cl);      /* may hold directories: skills.. */
bool doc_is_versioned(enum doc_class cl); /* earlier texts are kept */
bool doc_is_sealed(enum doc_class cl);    /* keys, secrets */
bool doc_is_removable(enum doc_class cl);
/* the directory part, "" for the top; owned */
char *doc_parent(const char *path);
const char *doc_base(const char *path); /* after the last '/' */
/* path of the document that TOP/.versions/REST speaks of; owned */
char *doc_unversion(const char *path);

/*
 * Judges a text for its place; lines_only as in courier_doc_check. -EINVAL
 * with "line N: ...", -EBUSY for settings that can't change any more.
 */
int doc_text_check(const struct courier *c, struct db *d, struct oid owner,
                   const char *path, const char *p, size_t n, bool lines_only,
                   struct err *e);
/* may the user write it in this state? -EBUSY, -EPERM, -EINVAL */
int doc_state_check(struct db *d, struct oid owner, const char *path,
                    struct err *e);

/* puts a text there with no check and no event: what a record begins with */
void tx_doc_seed(struct tx *tx, struct oid owner, const char *path,
                 const char *text);
int tx_doc_remove(struct tx *tx, struct oid owner, const char *path,
                  struct err *e);
int tx_doc_mkdir(struct tx *tx, struct oid owner, const char *path,
                 struct err *e);
int tx_doc_rename(struct tx *tx, struct courier *c, struct oid owner,
                  const char *from, const char *to, struct err *e);
int tx_doc_chmod(struct tx *tx, struct oid owner, const char *path,
                 unsigned mode, struct err *e);
/* a directory listed something else from now on */
void tx_dir_changed(struct tx *tx, struct oid owner, const char *dir);
/* a document changed: times, events */
void tx_doc_told(struct tx *tx, struct oid owner, const char *path,
                 bool names);

#endif
