/*
 * cgroup: the control groups of boxes, version 1 or 2, where they are
 * writable. Owns the directories it makes; knows nothing of boxes but an id.
 * Each part (memory, cpu, pids, freezer) may be missing by itself; then the
 * box does without, or has a watchdog (see guard.c).
 *
 * cgroup_init is called once, before any thread; the rest on any thread, one
 * group on one thread at a time. Nothing blocks, but for cgroup_remove and
 * cgroup_freeze, milliseconds.
 */
#ifndef LOCAL_CGROUP_H
#define LOCAL_CGROUP_H

#include "base/base.h"

enum { CG_MEMORY, CG_CPU, CG_PIDS, CG_FREEZER, CG_CPUACCT, CG_PARTS };

struct cgroup {
    char *dir[CG_PARTS];              /* NULL: without */
    int join[CG_PARTS];               /* writing "0" there joins; -1 */
    int freezer_procs, freezer_state; /* -1 without a freezer */
};

/* tag tells our groups from those of another host process; what an earlier
 * one with this tag left is killed and removed */
void cgroup_init(const char *tag);
/* "cgroup v1", "cgroup v2" or NULL */
const char *cgroup_kind(int part);

/* makes what can be made; g is valid in any case */
void cgroup_make(struct cgroup *g, const char *id, int64_t mem_bytes,
                 double cpus, int pids);
/* only write(2): may be called between fork and exec; the freezer is joined
 * by the processes of the box themselves */
void cgroup_join(const struct cgroup *g);
int cgroup_freeze(struct cgroup *g, bool on);
int64_t cgroup_memory(const struct cgroup *g); /* bytes in use, or -1 */
int64_t cgroup_cache(const struct cgroup *g);
int64_t cgroup_cpu_us(const struct cgroup *g); /* used so far, or -1 */
int cgroup_ooms(const struct cgroup *g);       /* processes killed, or 0 */
/* kills what is in it and removes it; may be called twice. The descriptors
 * stay until cgroup_close, as another thread may be thawing with them */
void cgroup_remove(struct cgroup *g);
void cgroup_close(struct cgroup *g);
/* no group, no descriptors */
void cgroup_none(struct cgroup *g);

#endif
