#include "local/proc_int.h"

#include "local/connect.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- chunks ---- */

static struct chunk *chunk_envelope(const struct buf *json)
{
    AUTO_BUF struct buf b = {0};
    struct chunk *c;

    envelope_add(&b, 0, json->p, json->n);
    c = xmalloc(sizeof(*c) + b.n);
    c->refs = 1;
    c->n = b.n;
    memcpy(c->p, b.p, b.n);
    return c;
}

static struct chunk *chunk_data(const char *name, const char *p, size_t n)
{
    AUTO_BUF struct buf b = {0};

    buf_addf(&b, "{\"event\":{\"data\":{\"%s\":\"", name);
    base64_encode(&b, p, n);
    buf_adds(&b, "\"}}}");
    return chunk_envelope(&b);
}

struct chunk *chunk_end(int wstatus)
{
    AUTO_BUF struct buf b = {0};

    if (WIFSIGNALED(wstatus)) {
        const char *d = sigdescr_np(WTERMSIG(wstatus));
        AUTO_FREE char *s =
            d ? xstrdup(d) : xasprintf("signal %d", WTERMSIG(wstatus));

        if (*s >= 'A' && *s <= 'Z')
            *s = (char)(*s - 'A' + 'a');
        buf_addf(&b,
                 "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: "
                 "%s%s\",\"error\":\"signal: %s\"}}}",
                 s, WCOREDUMP(wstatus) ? " (core dumped)" : "", s);
    } else if (WEXITSTATUS(wstatus)) {
        int c = WEXITSTATUS(wstatus);

        buf_addf(&b,
                 "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":true,"
                 "\"status\":\"exit status %d\",\"error\":\"exit status "
                 "%d\"}}}",
                 c, c, c);
    } else {
        buf_adds(&b, "{\"event\":{\"end\":{\"exited\":true,\"status\":"
                     "\"exit status 0\"}}}");
    }
    return chunk_envelope(&b);
}

void chunk_put(struct chunk *c)
{
    if (c && --c->refs == 0)
        free(c);
}

/* ---- processes ---- */

void proc_unref(struct proc *p)
{
    if (--p->refs)
        return;
    close_cleanup(&p->in_fd);
    close_cleanup(&p->src[0].fd);
    close_cleanup(&p->src[1].fd);
    pthread_mutex_destroy(&p->in_lock);
    chunk_put(p->end);
    json_decref(p->config);
    free(p->box);
    free(p->tag);
    free(p);
}

void source_arm(struct source *s)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};

    if (s->fd < 0 || s->armed)
        return;
    if (epoll_ctl(pump_epfd, EPOLL_CTL_ADD, s->fd, &ev))
        log_msg(LOG_ERR, "can't watch a pipe: %s", strerror(errno));
    else
        s->armed = true;
}

void source_disarm(struct source *s)
{
    if (s->armed)
        epoll_ctl(pump_epfd, EPOLL_CTL_DEL, s->fd, NULL);
    s->armed = false;
}

void source_close(struct source *s)
{
    if (s->fd < 0)
        return;
    source_disarm(s);
    close_cleanup(&s->fd);
    proc_unref(s->p);
}

/* ---- subscribers ---- */

void sub_push(struct sub *s, struct chunk *c)
{
    struct link *l;

    if (s->over)
        return;
    l = xcalloc(1, sizeof(*l));
    c->refs++;
    l->c = c;
    *s->tail = l;
    s->tail = &l->next;
    s->bytes += c->n;
    pthread_cond_signal(&s->more);
}

void sub_over(struct sub *s, int why)
{
    if (!s->over)
        s->over = why;
    pthread_cond_signal(&s->more);
}

struct sub *sub_new(struct proc *p)
{
    struct sub *s = xcalloc(1, sizeof(*s));
    pthread_condattr_t a;

    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&s->more, &a);
    pthread_condattr_destroy(&a);
    s->tail = &s->head;
    s->p = p;
    p->refs++;
    s->next = p->subs;
    p->subs = s;
    return s;
}

static struct chunk *pop(struct sub *s)
{
    struct link *l = s->head;
    struct chunk *c = l->c;

    s->head = l->next;
    if (!s->head)
        s->tail = &s->head;
    s->bytes -= c->n;
    free(l);
    return c;
}

/* reads on when no subscriber is behind any more */
void proc_unblock(struct proc *p)
{
    if (!p->blocked)
        return;
    for (struct sub *s = p->subs; s; s = s->next)
        if (!s->over && s->bytes > SUB_QUEUE_LOW)
            return;
    p->blocked = false;
    source_arm(&p->src[0]);
    source_arm(&p->src[1]);
    if (p->exited)
        pump_poke();
}

void source_publish(struct source *src, const char *buf, size_t n)
{
    struct proc *p = src->p;
    struct chunk *c;

    if (!p->subs || p->ended)
        return;
    c = chunk_data(src->field, buf, n);
    for (struct sub *s = p->subs; s; s = s->next) {
        sub_push(s, c);
        if (!s->over && s->bytes > SUB_QUEUE_HIGH)
            p->blocked = true;
    }
    chunk_put(c);
    if (p->blocked) {
        source_disarm(&p->src[0]);
        source_disarm(&p->src[1]);
    }
}

pid_t sub_pid(const struct sub *s)
{
    return s->p->pid;
}

int sub_next(struct sub *s, int64_t until, struct chunk **out)
{
    struct timespec ts = {until / 1000, (long)(until % 1000) * 1000000};
    int r = 0;

    *out = NULL;
    pthread_mutex_lock(&proc_lock);
    while (!s->head && !s->over && r == 0) {
        if (until)
            r = pthread_cond_timedwait(&s->more, &proc_lock, &ts);
        else
            r = pthread_cond_wait(&s->more, &proc_lock);
    }
    r = 0;
    if (s->head) {
        *out = pop(s);
        r = 1;
        proc_unblock(s->p);
    } else if (s->over) {
        r = s->over;
    }
    pthread_mutex_unlock(&proc_lock);
    return r;
}

void sub_close(struct sub *s)
{
    struct proc *p = s->p;

    pthread_mutex_lock(&proc_lock);
    for (struct sub **at = &p->subs; *at; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    while (s->head)
        chunk_put(pop(s));
    proc_unblock(p);
    proc_unref(p);
    pthread_mutex_unlock(&proc_lock);
    pthread_cond_destroy(&s->more);
    free(s);
}
