/*
 * vm: what vm.c and end.c share: a sandbox's VM at the provider, and the
 * small transactions that record what became of it.
 */
#ifndef ENGINE_VM_H
#define ENGINE_VM_H

#include "engine/jobs.h"

#define META_INSTANCE "courier_instance"
#define META_SANDBOX "courier_sandbox"

const char *vm_meta(const struct e2b_box *b, const char *name); /* or NULL */
void vm_boxes_free(struct e2b_box *v, size_t n);
/* the VMs of our record that belong to a sandbox */
int vm_find(struct courier *c, struct e2b *x, int64_t sandbox,
            struct e2b_box **out, size_t *n, struct err *e);
/* words of a provider's refusal, with the level of the key */
int vm_explain(struct courier *c, int64_t project, const char *backend, int r,
               struct err *e);

/* the VM was found paused, or was resumed by others; writer's thread. vm is
 * what was looked at: nothing happens if the record has another by now */
void tx_vm_paused(struct tx *tx, struct courier *c, int64_t sandbox,
                  const char *vm, const char *reason);
void tx_vm_gone(struct tx *tx, struct courier *c, int64_t sandbox,
                const char *vm, const char *why);
void tx_vm_running(struct tx *tx, struct courier *c, int64_t sandbox,
                   const struct e2b_box *b, int64_t expires,
                   const char *reason);
/* follows all processes of a sandbox again; after the commit */
void vm_follow(struct courier *c, int64_t sandbox);
/* seconds from now for a VM of this sandbox */
int64_t vm_timeout(struct courier *c, const struct sandbox *s);

#endif
