/*
 * document: stored texts, and what exists of them in memory only: drafts
 * that are being written, scratch files of editors, names that are away for
 * a moment, texts that were refused.
 *
 * A reader sees the last good version until a new one is accepted as a
 * whole. All writers of a document share one draft; it is saved at the first
 * flush or fsync after a write, or when it is renamed into place, and is
 * dropped with its last writer. Nothing in memory is ever logged.
 *
 * What was refused stays as NAME.rejected until the next good save. Editors
 * put the old text back when a save was refused, by saving it: a text that
 * is in force already is no good save of something else, and doesn't take
 * away a reason that nobody has looked at. Some make room first: a text
 * removed just now is in force again when what comes in its place is refused.
 *
 * docname.c: what names do (create, unlink, rename); document.c: what open
 * files do; docmem.c: what is in memory.
 */
#ifndef FS_DOCUMENT_H
#define FS_DOCUMENT_H

#include "fs/fs.h"

enum doc_kind { DOC_STORED, DOC_SCRATCH, DOC_LINK };

struct docfile {
    struct docfile *next;
    struct oid o;
    char *path;
    enum doc_kind kind;
    unsigned refs;      /* open files and saves under way */
    unsigned writers;   /* of those, open for writing */
    int64_t seq;        /* place in a listing */
    bool named;         /* found by its path */
    bool gone;          /* removed while open: nothing of it is saved */
    bool fixed;         /* of a directory whose names are fixed */
    bool created;       /* not in the record yet */
    int64_t away_until; /* ms; the name is hidden till then; 0: it is there */
    bool drafting;      /* draft is what is being written */
    bool dirty;         /* and has to be saved at a flush */
    bool emptied;       /* by its open: saved at the end if nothing follows */
    struct buf draft;   /* of a scratch file its content */
    unsigned writes;    /* counts changes of the draft */
    unsigned ending;    /* saves under way whose writer has closed */
    struct late *late;  /* who looks for it meanwhile */
    unsigned mode;      /* 0: as it is */
    int64_t mtime_ns;
    char *target; /* of a DOC_LINK */
    char *aside;  /* of scratch: the document whose text it took along */
    bool has_rejected;
    bool rejected_seen; /* somebody has looked at it */
    struct buf rejected;
    int64_t rejected_ns;
    bool has_was; /* it was removed just now: what it had */
    struct buf was;
    struct courier_doc was_attr;
    int64_t was_until; /* ms */
    int64_t drop_at;   /* of scratch without open files, ms */
};

/* ---- docmem.c ---- */

struct docfile *docmem_find(struct oid o, const char *path); /* or NULL */
struct docfile *docmem_get(struct oid o, const char *path);  /* or made */
void docmem_ref(struct docfile *d);
void docmem_unref(struct docfile *d);  /* frees what holds nothing */
void docmem_settle(struct docfile *d); /* the same without a ref */
void docmem_remove(struct docfile *d); /* the name goes, open files stay */
/* the same; keep: why its text was refused may be read all the same */
void docmem_lose_name(struct docfile *d, bool keep);
/* from, or the directory from, has the name to: what is in memory of it goes
 * along, and what was there is nobody's any more */
void docmem_moved(struct oid o, const char *from, const char *to);
/* d is being written under another name and now is that document */
void docmem_lands(struct docfile *d, const struct docfile *at);
bool docmem_full(size_t more); /* is there no room for more scratch? */
void doc_reject(struct docfile *d, const struct err *e, const struct buf *b);
void doc_unreject(struct docfile *d);
/* is that the text in force, coming back after a refused one? undone: by the
 * way it was taken, whoever has looked meanwhile */
bool doc_puts_back(struct docfile *d, const struct buf *text, bool undone);
/* remembers for a moment what is removed; takes text */
void doc_removed(struct oid o, const char *path, struct buf *text,
                 const struct courier_doc *attr);
void doc_hide(struct oid o, const char *path, bool fixed);
/* it was saved: it is there and, if its text is another one, not refused */
void doc_show(struct oid o, const char *path, bool put_back);
bool doc_scratch_name(const char *name);
bool doc_secret(const char *path);
bool doc_readonly(const char *path);
bool doc_keeps_mode(const char *path); /* the x bit means something */

bool doc_hidden(struct oid o, const char *path);
bool doc_in_memory(struct oid o, const char *path);
typedef bool (*doc_memory_fn)(void *arg, int64_t seq, const char *name,
                              const struct key *k);
/* false: fn stopped */
bool doc_list_memory(struct oid o, const char *dir, int64_t after,
                     doc_memory_fn fn, void *arg);
bool doc_none_below(struct oid o, const char *dir); /* none in memory */
/* r is the row of that name, or NULL */
int doc_find(struct node *dir, const struct row *r, const char *name,
             struct key *k, char **path);
int doc_attr(struct node *n, struct handle *h, struct stat *st);

void doc_tick(int64_t now);
int doc_timeout(int64_t now); /* ms until a tick is due, or -1 */

/* ---- document.c ---- */

/* the whole text as stored; -errno */
int doc_load(struct oid o, const char *path, struct buf *out);
struct handle *doc_handle(fuse_req_t req, struct node *n, struct docfile *d,
                          struct fuse_file_info *fi);
/* a stat: who writes it sees what he has written, as his reads do */
void doc_getattr(fuse_req_t req, struct node *n, struct handle *h);
void doc_setattr(fuse_req_t req, struct node *n, struct handle *h,
                 const struct stat *st, int to_set);
/*
 * Saves, and then calls after with 0 or -errno; d gets the refusal. undone: by
 * the way it came this is what was set aside from there.
 */
typedef void (*doc_after)(void *arg, int code);
void doc_save(struct docfile *d, const struct buf *text, unsigned mode,
              bool undone, doc_after after, void *arg);

/*
 * Emptied and closed without a write: that it was the end only the release
 * says, for which no close waits. Who looks the name up meanwhile waits until
 * it is saved. true: it will be answered.
 */
bool doc_lookup_waits(fuse_req_t req, struct node *dir, const char *name);

/* ---- docname.c ---- */

void doc_create(fuse_req_t req, struct node *dir, const char *name,
                mode_t mode, struct fuse_file_info *fi);
void doc_unlink(fuse_req_t req, struct node *dir, const char *name);
void doc_rename(fuse_req_t req, struct node *from, const char *name,
                struct node *to, const char *newname);
void doc_symlink(fuse_req_t req, struct node *dir, const char *name,
                 const char *target);
void doc_mkdir(fuse_req_t req, struct node *dir, const char *name);
void doc_rmdir(fuse_req_t req, struct node *dir, const char *name);
void doc_readlink(fuse_req_t req, struct node *n);

#endif
