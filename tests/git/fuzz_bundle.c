/* fuzzer (libFuzzer): a bundle's header and pack, up to the indexer */
#include <fcntl.h>
#include <unistd.h>

#include "git/git.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static char path[64];
    struct err e;
    int fd;

    if (!*path) {
        git_init();
        snprintf(path, sizeof(path), "/dev/shm/fuzz-bundle-%d", getpid());
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && !fd_write_all(fd, p, n))
        git_bundle_verify(path, &e);
    close(fd);
    unlink(path);
    return 0;
}
