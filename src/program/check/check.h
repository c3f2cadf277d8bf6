/* check.h -- what must hold of a program before a byte moves. */
#ifndef ORTH_PROGRAM_CHECK_H
#define ORTH_PROGRAM_CHECK_H

#include "kernels/signature.h"
#include "program/ir/program.h"

/* Checks, on a compiled program, placed or not:
 *   every operand lies inside its buffer, and those of computing instructions fit the signature of the op (number, types,
 *   dims: kernels/signature.h); no transient buffer is read before it is written;
 *   every parameter's gradient is written before it is read, and no gradient changes after its norm
 *   was taken or its parameter updated; nothing is added to a gradient twice; with a master for training, each parameter is updated once;
 *   if placed: buffers are used within their lives only and lie inside the arena; those that live at the
 *   same time do not overlap unless one is the other's alias, those of a chain are neighbours, and a buffer whose bytes an alias took over is
 *   not read any more;
 *   if it has queues: events order all that conflicts (happens.h).
 * ORTH_ERR_INTERNAL naming the instruction, the buffer and the rule. */
orth_status orth_check(orth_ctx *ctx, const orth_program *p);

/* Of a program that has passed orth_check and was bound to another rank since (program/passes/views.h): what binding changes. The operands of the
 * instructions that differ between ranks lie inside their buffers and fit their signatures; if placed, persistent buffers lie one behind the
 * other, before the others. of: [ORTH_NUM_OPS] signatures, which the caller has for many ranks. ORTH_ERR_INTERNAL as above. */
orth_status orth_check_views(orth_ctx *ctx, const orth_program *p, const orth_signature *of);

#endif
