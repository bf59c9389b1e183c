/*
 * output: what the bytes of a process become. It parses as they come, and
 * keeps what is to be written in a batch, with the offsets that the batch
 * leads to; a commit takes the batch whole or not at all. Its state follows
 * from the bytes alone, so after a restart it is had again by feeding the
 * same bytes in replay.
 *
 * One thread at a time; it doesn't block. The tx_ functions: writer's thread.
 */
#ifndef ENGINE_OUTPUT_H
#define ENGINE_OUTPUT_H

#include "engine/turn.h"

struct output;
/* NULL if the record lacks what it needs */
struct output *output_open(struct courier *c, const struct process *p);
void output_free(struct output *o);
/* bytes that are committed already: events are dropped */
void output_replay(struct output *o, int fd, const char *p, size_t n);
void output_feed(struct output *o, int fd, const char *p, size_t n);
/* the process has ended; lost: nobody knows how */
void output_end(struct output *o, int code, bool signaled, bool lost);

/* what was fed and not yet taken, NULL if nothing */
struct batch;
struct batch *output_take(struct output *o);
bool batch_is_end(const struct batch *b);
void batch_free(struct batch *b);
/* 0, or -ESTALE: the record stands elsewhere, or the process has ended */
int tx_batch(struct tx *tx, struct courier *c, struct batch *b, struct err *e);

#endif
