/* check_shapes.h -- views inside their buffers, and operands that fit the signatures of ops.def. */
#ifndef ORTH_PROGRAM_CHECK_SHAPES_H
#define ORTH_PROGRAM_CHECK_SHAPES_H

#include "kernels/signature.h"
#include "program/ir/program.h"

/* of [ORTH_NUM_OPS]. Part of orth_check (check.h), and first in it: the other checks read buffers without looking whether they exist.
 * ORTH_ERR_INTERNAL names the instruction, the operand, and both values. */
orth_status orth_check_shapes(orth_ctx *ctx, const orth_program *p, const orth_signature *of);
/* The same of the instructions that differ between ranks (program.own). */
orth_status orth_check_own_shapes(orth_ctx *ctx, const orth_program *p, const orth_signature *of);

#endif
