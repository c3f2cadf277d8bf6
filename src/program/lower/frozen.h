/* frozen.h -- which part of the backward pass is there for frozen parameters only.
 *
 * A frozen parameter has no gradient, so the node that would make it is dead, and so is each backward node whose results are read
 * by dead nodes only. Blocks in front of the first parameter that is trained have no backward at all, and the block of that
 * parameter makes no gradient of its input. Nobody lists activations by hand: those that no live node reads are not kept.
 * Where nothing is frozen, no node is dead.
 */
#ifndef ORTH_PROGRAM_FROZEN_H
#define ORTH_PROGRAM_FROZEN_H

#include "program/lower/compile.h"

/* Sets `dead` and `idle` of the blocks of a program that trains; spec->layers becomes a copy in `arena`. ORTH_ERR_NOMEM. */
orth_status orth_frozen_mark(orth_ctx *ctx, orth_arena *arena, orth_compile_spec *spec);

/* Whether there is a gradient to hand to the block that ends with this layer; layer -1: to the embedding. */
bool orth_frozen_passes(const orth_compile_spec *spec, int32_t layer);

#endif
