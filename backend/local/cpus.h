/*
 * cpus: which processors a box is put on where no control group limits its
 * time: as many as it may have, those that the fewest other boxes are on. A
 * program can go elsewhere if it wants to; none does by itself. Any thread;
 * nothing blocks.
 */
#ifndef LOCAL_CPUS_H
#define LOCAL_CPUS_H

#include <sched.h>

/* n processors, rounded up; an empty set when that is all there are */
void cpus_take(double n, cpu_set_t *out);
void cpus_give(cpu_set_t *set); /* empties it */

#endif
