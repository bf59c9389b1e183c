/* object: mkdir, rmdir and mv of projects, sandboxes and runs */
#include "fs/fs.h"

#include <sys/stat.h>

void reply_when_done(int code, const struct err *e, const char *made,
                     void *req)
{
    (void)e;
    (void)made;
    reply_code(req, code);
}

struct making {
    fuse_req_t req;
    struct node *dir;
    char *name;
};

static void made_dir(int code, const struct err *e, const char *made,
                     void *arg)
{
    struct making *m = arg;

    (void)e;
    (void)made;
    if (code)
        reply_code(m->req, code);
    else
        reply_entry_of(m->req, m->dir, m->name);
    node_unref(m->dir);
    free(m->name);
    free(m);
}

void *entry_call(fuse_req_t req, struct node *dir, const char *name)
{
    struct making *m = xcalloc(1, sizeof(*m));

    m->req = req;
    m->dir = dir;
    m->name = xstrdup(name);
    node_ref(dir);
    return call_new(made_dir, m);
}

void object_mkdir(fuse_req_t req, struct node *dir, const char *name)
{
    if (dir->row->what != LIST_PROJECTS && dir->row->what != LIST_SANDBOXES) {
        refuse_name(req, dir, name, -EPERM,
                    "nothing can be made here by mkdir");
        return;
    }
    courier_mkdir(fs.c, (enum list)dir->row->what, dir->o, name, call_done,
                  entry_call(req, dir, name));
}

void object_rmdir(fuse_req_t req, struct node *dir, const char *name)
{
    enum list l = (enum list)dir->row->what;
    struct oid o;
    int r;

    if (dir->row->kind != K_LIST) {
        refuse_name(req, dir, name, -EPERM, "that can't be removed");
        return;
    }
    r = courier_find(fs.c, l, dir->o, name, &o);
    if (r) {
        fuse_reply_err(req, row_child(dir->row, name) ? ENOTDIR : -r);
        return;
    }
    courier_rmdir(fs.c, l, o, call_done, call_new(reply_when_done, req));
}

void object_rename(fuse_req_t req, struct node *from, const char *name,
                   struct node *to, const char *newname)
{
    enum list l = (enum list)from->row->what;
    struct oid o;
    int r;

    r = courier_find(fs.c, l, from->o, name, &o);
    if (r && row_child(from->row, name)) {
        refuse_name(req, from, name, -EPERM, "that can't be renamed");
        return;
    }
    if (r) {
        fuse_reply_err(req, -r);
        return;
    }
    courier_rename(fs.c, o, l, (enum list)to->row->what, to->o, newname,
                   call_done, call_new(reply_when_done, req));
}
