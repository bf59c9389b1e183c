/*
 * minfs: the least that shows what courier shows: DIR/sNNNNN/status with one
 * line. What it takes is what FUSE takes, the rest is courier's own.
 *
 *   minfs COUNT MOUNTPOINT [SECONDS]     in the foreground, until unmounted
 *
 * SECONDS: how long the kernel may believe names and attributes (1, as in
 * libfuse's examples).
 */
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* inode 1 is the root, 2k the k-th directory (from 1), 2k+1 its status */
static unsigned long count;
static double believe = 1;
static const char text[] = "draft\n";

static int fill(fuse_ino_t ino, struct stat *st)
{
    memset(st, 0, sizeof(*st));
    if (ino > 2 * count + 1)
        return -1;
    st->st_ino = ino;
    st->st_nlink = 1;
    st->st_mode = S_IFREG | 0400;
    st->st_size = sizeof(text) - 1;
    if (ino == 1 || ino % 2 == 0) {
        st->st_mode = S_IFDIR | 0700;
        st->st_size = 0;
    }
    return 0;
}

static void ll_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {.attr_timeout = believe,
                                 .entry_timeout = believe};
    char *end;
    unsigned long k;

    if (parent == 1 && *name == 's') {
        k = strtoul(name + 1, &end, 10);
        e.ino = *end || !k || k > count ? 0 : 2 * k;
    } else if (parent % 2 == 0 && !strcmp(name, "status")) {
        e.ino = parent + 1;
    }
    if (!e.ino || fill(e.ino, &e.attr))
        fuse_reply_err(req, ENOENT);
    else
        fuse_reply_entry(req, &e);
}

static void ll_getattr(fuse_req_t req, fuse_ino_t ino,
                       struct fuse_file_info *fi)
{
    struct stat st;

    (void)fi;
    if (fill(ino, &st))
        fuse_reply_err(req, ENOENT);
    else
        fuse_reply_attr(req, &st, believe);
}

static void ll_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    unsigned long n = ino == 1 ? count : 1;
    char *buf = malloc(size);
    size_t used = 0;

    (void)fi;
    for (unsigned long k = (unsigned long)off + 1; k <= n && buf; k++) {
        char name[32];
        struct stat st;
        size_t len;

        snprintf(name, sizeof(name), "s%05lu", k);
        fill(ino == 1 ? 2 * k : ino + 1, &st);
        len = fuse_add_direntry(req, buf + used, size - used,
                                ino == 1 ? name : "status", &st, (off_t)k);
        if (len > size - used)
            break;
        used += len;
    }
    fuse_reply_buf(req, buf, used);
    free(buf);
}

static void ll_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fuse_reply_open(req, fi);
}

static void ll_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    size_t n = sizeof(text) - 1;

    (void)ino;
    (void)fi;
    if ((size_t)off >= n)
        fuse_reply_buf(req, NULL, 0);
    else
        fuse_reply_buf(req, text + off,
                       n - (size_t)off < size ? n - (size_t)off : size);
}

static const struct fuse_lowlevel_ops ops = {
    .lookup = ll_lookup,
    .getattr = ll_getattr,
    .readdir = ll_readdir,
    .open = ll_open,
    .read = ll_read,
};

int main(int argc, char **argv)
{
    char *words[] = {argv[0], "-o", "fsname=minfs,default_permissions", NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, words);
    struct fuse_session *se;

    if (argc != 3 && argc != 4)
        return 2;
    if (argc == 4)
        believe = strtod(argv[3], NULL);
    count = strtoul(argv[1], NULL, 10);
    se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
    if (!se || fuse_set_signal_handlers(se) || fuse_session_mount(se, argv[2]))
        return 1;
    fuse_session_loop(se);
    fuse_session_unmount(se);
    fuse_remove_signal_handlers(se);
    fuse_session_destroy(se);
    return 0;
}
