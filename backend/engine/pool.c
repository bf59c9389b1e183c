#include "engine/pool.h"

#include <pthread.h>

struct task {
    pool_fn fn;
    void *arg;
    struct task *next;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct task *first, **last;
    pthread_t *threads;
    int max, n, idle, waiting;
    bool stop;
};

static void *pool_thread(void *arg)
{
    struct pool *p = arg;

    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct task *t;

        while (!p->first && !p->stop) {
            p->idle++;
            pthread_cond_wait(&p->wake, &p->lock);
            p->idle--;
        }
        t = p->first;
        if (!t)
            break;
        p->first = t->next;
        if (!p->first)
            p->last = &p->first;
        p->waiting--;
        pthread_mutex_unlock(&p->lock);
        t->fn(t->arg);
        free(t);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct pool *pool_new(int threads)
{
    struct pool *p = xcalloc(1, sizeof(*p));

    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->last = &p->first;
    p->max = threads;
    p->threads = xcalloc((size_t)threads, sizeof(*p->threads));
    return p;
}

void pool_add(struct pool *p, pool_fn fn, void *arg)
{
    struct task *t = xcalloc(1, sizeof(*t));

    t->fn = fn;
    t->arg = arg;
    pthread_mutex_lock(&p->lock);
    *p->last = t;
    p->last = &t->next;
    p->waiting++;
    if (p->idle < p->waiting && p->n < p->max && !p->stop &&
        !pthread_create(&p->threads[p->n], NULL, pool_thread, p))
        p->n++;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

int pool_waiting(struct pool *p)
{
    int n;

    pthread_mutex_lock(&p->lock);
    n = p->waiting;
    pthread_mutex_unlock(&p->lock);
    return n;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n; i++)
        pthread_join(p->threads[i], NULL);
    while (p->first) { /* added when no thread could be had */
        struct task *t = p->first;

        p->first = t->next;
        t->fn(t->arg);
        free(t);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p);
}
