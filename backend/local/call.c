#include "local/box_int.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_SECONDS = 30 };

static int send_request(struct box *b, const struct init_req *req,
                        const int *fds, int nfds)
{
    struct iovec v = {(void *)req, sizeof(*req)};
    union {
        char room[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } c = {0};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};

    if (nfds) {
        size_t n = (size_t)nfds * sizeof(int);
        struct cmsghdr *cm;

        h.msg_control = c.room;
        h.msg_controllen = CMSG_SPACE(n);
        cm = CMSG_FIRSTHDR(&h);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(n);
        memcpy(CMSG_DATA(cm), fds, n);
    }
    while (sendmsg(b->j.sock, &h, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            return errno == EPIPE || errno == ECONNRESET ? -ESHUTDOWN : -errno;
    return 0;
}

static void forget(struct box *b, struct pending *p)
{
    struct pending **at = &b->pending;

    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
}

int call_init(struct box *b, struct init_req *req, const int *fds, int nfds,
              const struct box_spawn *spawn, int *stage, int *fd)
{
    struct pending p = {.spawn = spawn, .fd = -1};
    struct timespec until;
    int rc;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ANSWER_SECONDS;
    pthread_mutex_lock(&b->call_mu);
    p.seq = req->seq = ++b->seq;
    p.next = b->pending;
    b->pending = &p;
    rc = b->dead ? -ESHUTDOWN : 0;
    pthread_mutex_unlock(&b->call_mu);
    if (!rc)
        rc = send_request(b, req, fds, nfds);
    pthread_mutex_lock(&b->call_mu);
    while (!rc && !p.done)
        if (pthread_cond_timedwait(&b->call_cond, &b->call_mu, &until))
            rc = p.done ? 0 : -ETIMEDOUT;
    forget(b, &p);
    pthread_mutex_unlock(&b->call_mu);
    if (stage)
        *stage = p.stage;
    if (fd)
        *fd = p.fd;
    else
        close_cleanup(&p.fd);
    return rc ? rc : p.result;
}

/* ---- what init says ---- */

static void proc_add(struct box *b, pid_t pid, const struct box_spawn *s)
{
    b->procs = xrealloc(b->procs, (b->nprocs + 1) * sizeof(*b->procs));
    b->procs[b->nprocs++] = (struct proc){pid, s->exited, s->arg};
}

static void on_answer(struct box *b, const struct init_msg *m, int fd)
{
    struct pending *p;

    pthread_mutex_lock(&b->call_mu);
    for (p = b->pending; p && p->seq != m->seq; p = p->next)
        ;
    if (p) {
        p->result = m->result;
        p->stage = m->stage;
        p->fd = fd;
        p->done = true;
        if (p->spawn && m->result > 0)
            proc_add(b, m->result, p->spawn);
        pthread_cond_broadcast(&b->call_cond);
    }
    pthread_mutex_unlock(&b->call_mu);
    if (!p) {
        close_cleanup(&fd);
        if (m->result > 1) { /* a process nobody waits for any more */
            struct init_req kill_it = {.op = INIT_SIGNAL,
                                       .sig = SIGKILL,
                                       .pid = m->result,
                                       .flags = INIT_GROUP};

            send_request(b, &kill_it, NULL, 0);
        }
    }
}

static void on_exit_of(struct box *b, const struct init_msg *m)
{
    struct proc found = {0};

    pthread_mutex_lock(&b->call_mu);
    for (size_t i = 0; i < b->nprocs; i++)
        if (b->procs[i].pid == m->pid) {
            found = b->procs[i];
            b->procs[i] = b->procs[--b->nprocs];
            break;
        }
    pthread_mutex_unlock(&b->call_mu);
    if (found.exited)
        found.exited(found.arg, m->status);
}

void call_loop(struct box *b)
{
    for (;;) {
        struct init_msg m = {0};
        struct iovec v = {&m, sizeof(m)};
        union {
            char room[CMSG_SPACE(sizeof(int)) + 64];
            struct cmsghdr align;
        } c;
        struct msghdr h = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = c.room,
                           .msg_controllen = sizeof(c.room)};
        ssize_t n = recvmsg(b->j.sock, &h, MSG_CMSG_CLOEXEC);
        int fd = -1;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        for (struct cmsghdr *cm = CMSG_FIRSTHDR(&h); cm;
             cm = CMSG_NXTHDR(&h, cm))
            if (cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS)
                memcpy(&fd, CMSG_DATA(cm), sizeof(int));
        if (m.kind == INIT_ANSWER)
            on_answer(b, &m, fd);
        else if (m.kind == INIT_EXIT)
            on_exit_of(b, &m);
    }
}

void call_end(struct box *b)
{
    struct proc *procs;
    size_t n;

    pthread_mutex_lock(&b->call_mu);
    b->dead = true;
    for (struct pending *p = b->pending; p; p = p->next)
        if (!p->done) {
            p->result = -ESHUTDOWN;
            p->done = true;
        }
    pthread_cond_broadcast(&b->call_cond);
    procs = b->procs;
    n = b->nprocs;
    b->procs = NULL;
    b->nprocs = 0;
    pthread_mutex_unlock(&b->call_mu);
    for (size_t i = 0; i < n; i++)
        if (procs[i].exited)
            procs[i].exited(procs[i].arg, -1);
    free(procs);
}

/* ---- for the data plane ---- */

static void strings(struct buf *b, char *const *v, uint32_t *count)
{
    for (*count = 0; v && v[*count]; (*count)++)
        buf_add(b, v[*count], strlen(v[*count]) + 1);
}

static int spawn_words(const struct box_spawn *s, const char *cwd, int stage,
                       int rc, struct err *e)
{
    AUTO_BUF struct buf name = {0};

    text_printable(&name, s->argv[0], strlen(s->argv[0]), 0);
    if (rc == -ESHUTDOWN)
        return err_set(e, -rc, "the sandbox has ended");
    if (stage == STAGE_CWD && rc == -ENOENT)
        return err_set(e, -rc, "cwd '%s' does not exist", cwd);
    if (stage == STAGE_CWD)
        return err_set(e, -rc, "cwd '%s': %s", cwd, strerror(-rc));
    if (stage == STAGE_EXEC)
        return err_set(e, -rc, "%s: %s", buf_str(&name), strerror(-rc));
    return err_set(e, -rc, "no process: %s", strerror(-rc));
}

int box_spawn(struct box *b, const struct box_spawn *s, struct err *e)
{
    const char *cwd = s->cwd && *s->cwd ? s->cwd : "/home/user";
    struct init_req req = {.op = INIT_SPAWN};
    const int io[3] = {s->in, s->out, s->err};
    AUTO_CLOSE int text = memfd_create("spawn", MFD_CLOEXEC);
    AUTO_BUF struct buf all = {0};
    int fds[4], nfds = 0, stage = STAGE_FORK, rc;

    if (text < 0)
        return err_set(e, errno, "no process: %s", strerror(errno));
    strings(&all, s->argv, &req.argc);
    strings(&all, s->env, &req.envc);
    buf_add(&all, cwd, strlen(cwd) + 1);
    if (!req.argc || fd_write_all(text, all.p, all.n) < 0)
        return err_set(e, EINVAL, "no process: nothing to run");
    req.flags = (s->as_root ? INIT_ROOT : 0) | (s->tty ? INIT_TTY : 0);
    fds[nfds++] = text;
    for (int i = 0; i < 3; i++)
        if (io[i] >= 0) {
            req.has[i] = 1;
            fds[nfds++] = io[i];
        }
    rc = call_init(b, &req, fds, nfds, s, &stage, NULL);
    return rc < 0 ? spawn_words(s, cwd, stage, rc, e) : rc;
}

int box_signal(struct box *b, pid_t pid, int sig, bool group)
{
    struct init_req req = {.op = INIT_SIGNAL,
                           .pid = pid,
                           .sig = sig,
                           .flags = group ? INIT_GROUP : 0};

    return call_init(b, &req, NULL, 0, NULL, NULL, NULL);
}

int box_dial(struct box *b, int port)
{
    struct init_req req = {.op = INIT_CONNECT, .port = (uint32_t)port};
    int fd, rc = call_init(b, &req, NULL, 0, NULL, NULL, &fd);

    return rc < 0 ? rc : fd < 0 ? -EIO : fd;
}

int box_dns_socket(struct box *b)
{
    struct init_req req = {.op = INIT_DNS};
    int fd, rc = call_init(b, &req, NULL, 0, NULL, NULL, &fd);

    return rc < 0 ? rc : fd < 0 ? -EIO : fd;
}

int box_route(struct box *b, uint32_t addr, int prefix, uint32_t flags)
{
    struct init_req req = {.op = INIT_ROUTE,
                           .addr = addr,
                           .flags = flags,
                           .prefix = (uint8_t)prefix};

    return call_init(b, &req, NULL, 0, NULL, NULL, NULL);
}
