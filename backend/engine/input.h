/*
 * input: the stdin of an exec. What is written is kept in the record until
 * the VM has it; the job `input` brings it there, piece by piece, each once.
 * What the record knows of it besides is exec.input:
 *
 *   ''    nobody has had it open; ends by itself some seconds after the begin
 *   open  somebody has it open, and his close is the end
 *   kept  somebody appends (>>): it goes on until somebody ends it
 *   end   nothing more is taken
 */
#ifndef ENGINE_INPUT_H
#define ENGINE_INPUT_H

#include "engine/engine.h"

/* in the transaction of what happened */
void tx_input_begun(struct tx *tx, struct courier *c, int64_t exec);
void tx_input_exited(struct tx *tx, struct courier *c, int64_t exec);
void tx_input_resumed(struct tx *tx, int64_t sandbox);

/* whoever had one open when the daemon died has lost it */
void inputs_resume(struct courier *c);

#endif
