/*
 * node: what the kernel knows of the tree. A node is one file or directory
 * that it has looked up: the row of the table, the object it belongs to and,
 * where the row alone does not name it, the path below that object. Nodes of
 * one object hang together, with the reads that wait for that object and the
 * open files somebody polls, so that a change finds what it concerns.
 *
 * Inode numbers are a hash of (row, object, path): the same in a listing, in
 * a stat, after a forget and after a restart.
 *
 * On the loop's thread only; nothing blocks.
 */
#ifndef FS_NODE_H
#define FS_NODE_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "fs/tree.h"

struct object;
struct handle;
struct park;

struct node {
    uint64_t ino;
    const struct row *row;
    struct oid o;
    char *path;       /* of documents and below .files; NULL else */
    bool trash;       /* seen below a trash/: another directory there, since
                         the kernel allows a directory one place only */
    uint64_t nlookup; /* what the kernel holds */
    unsigned refs;    /* what we hold */
    struct object *obj;
    struct node *hash_next;
    struct node *obj_next, *obj_prev;
    int64_t sized_at, size;      /* of a view: as of which change, how long */
    int64_t seen_at, touched_at; /* ms, for inotify */
    bool touch_due;
    /* of what is in a VM: when it was asked, and what it said; when its name
     * was there; when we wrote it, and so know its size */
    int64_t vm_at, vm_mtime;
    int64_t vm_named_at, vm_sized_at;
    unsigned vm_mode;
    char *vm_target;
};

struct object {
    struct oid o;
    struct node *nodes;
    struct park *parks;
    struct handle *polled;
    unsigned refs; /* nodes, parks and handles */
    struct object *next;
};

/* what a file is, before there is a node of it */
struct key {
    const struct row *row;
    struct oid o;
    const char *path; /* borrowed, NULL for none */
    bool trash;
};

void node_init(void);
uint64_t node_ino_of(const struct key *k);
struct node *node_get(const struct key *k); /* found or made */
struct node *node_find(uint64_t ino);       /* NULL if the kernel errs */
void node_ref(struct node *n);
void node_unref(struct node *n);
/* what has that path, or is below it, now has another: the kernel goes on
 * with the numbers it knows */
void node_moved(struct oid o, enum kind dir, const char *from, const char *to);
void node_each(void (*fn)(struct node *n, int arg), int arg);
void node_forget(struct node *n, uint64_t nlookup);
/* every node of an object that is known, or NULL */
struct object *object_find(struct oid o);
struct object *object_get(struct oid o); /* found or made; takes a ref */
void object_unref(struct object *obj);

bool oid_same(struct oid a, struct oid b);
/* "projects/web/sandboxes/one/ctl": for messages; owned by the caller */
char *node_words(const struct node *n);
char *object_words(struct oid o);

#endif
