#include "local/proc.h"

#include "local/boxfs.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

int pty_resize(int fd, unsigned short cols, unsigned short rows)
{
    struct winsize w = {.ws_col = cols, .ws_row = rows};

    return ioctl(fd, TIOCSWINSZ, &w) ? -errno : 0;
}

/* of the box's own devpts, so that its name is valid in there */
static int master_open(struct boxfs *f)
{
    int fd = boxfs_open(f, "/dev/pts/ptmx", O_RDWR, 0);

    if (fd < 0)
        fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int pty_open(struct box *b, bool as_root, unsigned short cols,
             unsigned short rows, int *master, int *slave)
{
    struct boxfs f;
    int locked = 0, e = 0;

    *master = *slave = -1;
    boxfs_enter(&f, b, as_root);
    *master = master_open(&f);
    if (*master < 0) {
        e = *master;
    } else if (ioctl(*master, TIOCSPTLCK, &locked)) {
        e = -errno;
    } else {
        *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (*slave < 0)
            e = -errno;
    }
    boxfs_leave(&f);
    if (!e && (cols || rows))
        e = pty_resize(*master, cols, rows);
    if (!e && fcntl(*master, F_SETFL, O_NONBLOCK))
        e = -errno;
    if (e) {
        close_cleanup(master);
        close_cleanup(slave);
    }
    return e;
}
