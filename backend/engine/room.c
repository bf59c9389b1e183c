#include "engine/room.h"

#include "engine/jobs.h"
#include "engine/launch.h"

struct cleared {
    int64_t sandbox;
    const char *lines; /* of launch_clear */
    const char *what;
    int n; /* out */
};

/* the message or exec of a process, in words */
static char *left_by(struct db *d, int64_t process)
{
    int64_t n = db_int(d, 0,
                       "SELECT m.seq FROM process p JOIN message m ON "
                       "m.id=p.message WHERE p.id=?",
                       "i", process);

    if (n)
        return xasprintf("message #%lld", (long long)n);
    n = db_int(d, 0,
               "SELECT x.n FROM process p JOIN exec x ON x.id=p.exec WHERE "
               "p.id=?",
               "i", process);
    return n ? xasprintf("exec/%lld", (long long)n)
             : xstrdup("an earlier turn");
}

static int tx_cleared(struct tx *tx, void *arg, struct err *e)
{
    struct cleared *x = arg;
    long long process, n;

    (void)e;
    for (const char *p = x->lines; *p; p += strcspn(p, "\n"), p += *p != 0) {
        AUTO_FREE char *by = NULL, *words = NULL;

        if (sscanf(p, "%lld %lld", &process, &n) != 2)
            continue;
        by = left_by(tx->db, process);
        words = xasprintf("%lld processes and threads that %s left were "
                          "ended: they left no %s for the next turn",
                          n, by, x->what);
        tx_sandbox_error(tx, x->sandbox, words);
        x->n++;
    }
    return 0;
}

int room_make(struct courier *c, struct job *j, const struct e2b_target *t,
              int what)
{
    AUTO_BUF struct buf out = {0};
    struct cleared x = {.sandbox = j->sandbox,
                        .what = what == -ENOMEM ? "memory" : "room"};
    struct err e = {0};
    int r =
        launch_clear(t, c->instance, what == -ENOMEM, &out, &j->cancel, &e);

    if (r < 0)
        log_msg(LOG_INFO, "no room in the VM: %s", e.text);
    x.lines = buf_str(&out);
    if (out.n && store_do(c->store, tx_cleared, &x, &e) < 0)
        return -EIO;
    return x.n ? 0 : r < 0 ? r : -ENOENT;
}
