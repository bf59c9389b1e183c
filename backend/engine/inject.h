/*
 * inject: what a new VM gets before its first turn. The project's home files,
 * instructions, skills and commands go into the VM's home in one archive.
 * Blocks (worker).
 */
#ifndef ENGINE_INJECT_H
#define ENGINE_INJECT_H

#include "engine/engine.h"

#define VM_HOME "/home/user"
#define VM_OWN VM_HOME "/.courier" /* ours, in the VM */
#define VM_SYSTEM_PROMPT VM_OWN "/system-prompt.md"
/* below the home: skills for a tool that looks for them nowhere */
#define SKILLS_DIR ".courier/skills"

/* the directory where the agent works; static */
const char *vm_workdir(struct db *d, const struct sandbox *s);
/* is there a system prompt to give? */
bool inject_has_system_prompt(struct db *d, const struct sandbox *s);
int inject_files(struct courier *c, const struct sandbox *s,
                 const struct e2b_target *t, struct job *j, struct err *e);

/* tar: entries appended to an archive; paths are relative */
void tar_file(struct buf *tar, const char *path, unsigned mode, const void *p,
              size_t n);
void tar_end(struct buf *tar);

#endif
