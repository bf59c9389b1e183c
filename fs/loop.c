#include "fs/loop.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "fs/document.h"
#include "fs/files.h"
#include "fs/touch.h"

/* requests in a row before the inbox is looked at again */
enum { BURST = 32 };
/* how long the end waits for commands under way, ms */
static const int64_t end_ms = 3000;
/* and for who commanded it to close his file */
static const int64_t close_ms = 500;

static int signal_fd = -1;
static struct fuse_buf request;
static int64_t end_at; /* 0: nobody asked */

int loop_init(struct err *e)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0)
        return err_set(e, errno, "signalfd: %s", strerror(errno));
    return notify_start();
}

static void begin_end(void *unused)
{
    (void)unused;
    if (end_at)
        return;
    log_msg(LOG_INFO, "ending");
    end_at = mono_ms() + end_ms;
    fs.ending = true;
    park_end_all(ESHUTDOWN);
    input_end_all(ESHUTDOWN);
}

void loop_end(void *unused)
{
    notify_post(begin_end, unused);
}

static void serve_requests(void)
{
    for (int i = 0; i < BURST && !fuse_session_exited(fs.se); i++) {
        int r = fuse_session_receive_buf(fs.se, &request);

        if (r == -EINTR)
            continue;
        if (r <= 0)
            return;
        fuse_session_process_buf(fs.se, &request);
    }
}

static void take_signals(void)
{
    struct signalfd_siginfo si;

    while (read(signal_fd, &si, sizeof(si)) == sizeof(si))
        begin_end(NULL);
}

static int shorter(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static int timeout_ms(void)
{
    int ms = shorter(shorter(doc_timeout(now_ms()), touch_timeout()),
                     vm_attrs_timeout());

    return end_at ? shorter(ms, 50) : ms;
}

/* the commands under way are answered first, for a while */
static bool may_end(void)
{
    int64_t now = mono_ms();

    if (!end_at || now >= end_at)
        return end_at != 0;
    return notify_idle() &&
           (!fs.commanders || now >= end_at - end_ms + close_ms);
}

void loop_run(void)
{
    struct pollfd fds[3] = {
        {.fd = fuse_session_fd(fs.se), .events = POLLIN},
        {.fd = notify_fd(), .events = POLLIN},
        {.fd = signal_fd, .events = POLLIN},
    };
    int flags = fcntl(fds[0].fd, F_GETFL);

    fcntl(fds[0].fd, F_SETFL, flags | O_NONBLOCK);
    while (!fuse_session_exited(fs.se) && !may_end()) {
        if (poll(fds, 3, timeout_ms()) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            serve_requests();
        notify_drain();
        take_signals();
        doc_tick(now_ms());
        touch_run();
        vm_attrs_tick();
    }
    free(request.mem);
    request.mem = NULL;
}
