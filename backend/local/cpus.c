#include "local/cpus.h"

#include <pthread.h>

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int used[CPU_SETSIZE]; /* by how many boxes */

void cpus_take(double n, cpu_set_t *out)
{
    cpu_set_t mine;
    int want = (int)n + (n > (int)n);

    CPU_ZERO(out);
    if (sched_getaffinity(0, sizeof(mine), &mine) < 0 ||
        want >= CPU_COUNT(&mine))
        return;
    pthread_mutex_lock(&mu);
    while (want-- > 0) {
        int best = -1;

        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &mine) && !CPU_ISSET(i, out) &&
                (best < 0 || used[i] < used[best]))
                best = i;
        CPU_SET(best, out);
        used[best]++;
    }
    pthread_mutex_unlock(&mu);
}

void cpus_give(cpu_set_t *set)
{
    pthread_mutex_lock(&mu);
    for (int i = 0; i < CPU_SETSIZE; i++)
        used[i] -= CPU_ISSET(i, set) ? 1 : 0;
    pthread_mutex_unlock(&mu);
    CPU_ZERO(set);
}
