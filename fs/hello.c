#include "fs/hello.h"

#include <linux/fuse.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* FUSE_DIRECT_IO_ALLOW_MMAP, bit 36: of the upper half of the flags */
static const uint32_t allow_mmap = 1u << 4;

/* the kernel's hello, if it can do that and was not answered yet */
static _Atomic uint64_t hello;

static void heard(const void *p, size_t n)
{
    struct fuse_in_header head;
    struct fuse_init_in in = {0};

    if (n < sizeof(head))
        return;
    memcpy(&head, p, sizeof(head));
    if (head.opcode != FUSE_INIT)
        return;
    n -= sizeof(head);
    memcpy(&in, (const char *)p + sizeof(head),
           n < sizeof(in) ? n : sizeof(in));
    if (in.flags & FUSE_INIT_EXT && in.flags2 & allow_mmap)
        hello = head.unique;
}

static ssize_t hear(int fd, void *p, size_t size, void *unused)
{
    ssize_t n = read(fd, p, size);

    (void)unused;
    if (n > 0)
        heard(p, (size_t)n);
    return n;
}

static ssize_t say(int fd, struct iovec *iov, int count, void *unused)
{
    const struct fuse_out_header *head = iov->iov_base;
    struct fuse_init_out *out;

    (void)unused;
    if (hello && head->unique == hello) {
        hello = 0;
        if (!head->error && count == 2 && iov[1].iov_len >= sizeof(*out)) {
            out = iov[1].iov_base;
            out->flags |= FUSE_INIT_EXT;
            out->flags2 |= allow_mmap;
        }
    }
    return writev(fd, iov, count);
}

int hello_prepare(struct fuse_session *se)
{
    static const struct fuse_custom_io io = {.writev = say, .read = hear};

    return fuse_session_custom_io(se, &io, fuse_session_fd(se));
}
