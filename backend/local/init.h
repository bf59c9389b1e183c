/*
 * init: PID 1 of a box, and the messages between it and box.c. It makes
 * processes on request, reaps them, sends signals, connects to ports inside
 * and changes routes. It knows nothing of HTTP or of other boxes.
 *
 * The socket is a SOCK_SEQPACKET pair; when the other end closes, for
 * whatever reason, init ends and the kernel kills everything in the box. Init
 * is single-threaded and not dumpable, so nothing in the box can trace it.
 */
#ifndef LOCAL_INIT_H
#define LOCAL_INIT_H

#include <stdint.h>

enum init_op {
    INIT_SPAWN = 1, /* descriptors: the text, then those of has[] */
    INIT_SIGNAL,    /* pid, sig; group in flags */
    INIT_CONNECT,   /* port; answers a connected socket */
    INIT_DNS,       /* answers a UDP socket on 127.0.0.1:53 */
    INIT_ROUTE,     /* addr, prefix, flags: see below */
    INIT_STOP,      /* SIGSTOP to all, for hosts without a freezer */
    INIT_CONT,
};

enum {
    INIT_ROOT = 1,  /* spawn: as root */
    INIT_TTY = 2,   /* spawn: 0 is a terminal */
    INIT_GROUP = 4, /* signal */
    INIT_DEL = 8,   /* route: take away */
    INIT_HOLE = 16, /* route: to nowhere */
};

/* the text of a spawn is argc arguments, envc name=value pairs and the cwd,
 * each with its NUL */
struct init_req {
    uint32_t op, seq, flags;
    uint32_t argc, envc;
    uint8_t has[3];
    uint8_t prefix;
    int32_t pid, sig;
    uint32_t port, addr; /* addr: network order */
};

enum init_kind { INIT_READY = 1, INIT_ANSWER, INIT_EXIT };
enum init_stage { STAGE_FORK, STAGE_CWD, STAGE_EXEC, STAGE_USER };

struct init_msg {
    uint32_t kind, seq;
    int32_t result; /* pid, 0 or -errno; of INIT_READY the errno */
    int32_t stage;
    int32_t pid, status;
};

/* the ids of the box on the host's side: `root` is base, `user` base + 1000 */
enum { BOX_UID = 1000, BOX_UIDS = 65536 };

/* argv: --init SOCKET BASE PIDS FREEZER-PROCS FREEZER-STATE NET; BASE 0 means
 * that the box has one uid only, numbers of descriptors may be -1, NET 1 that
 * init is to make a network namespace */
int init_main(int argc, char **argv);

#endif
