/* keep_packed.h -- weights that are packed once for many products (memory.packed_weights). */
#ifndef ORTH_PROGRAM_KEEP_PACKED_H
#define ORTH_PROGRAM_KEEP_PACKED_H

#include "program/ir/program.h"

/* Where `linear`, or `linear_dx`, multiplies with the same weight twice or more before the weight changes, puts a
 * linear_pack, or linear_dx_pack, before the first of them, for the kernels of ctx->isa, and lets all of them read what
 * it makes. For compiled, not yet placed programs. No number changes. ORTH_ERR_NOMEM. */
orth_status orth_keep_packed(orth_ctx *ctx, orth_program *p);

#endif
