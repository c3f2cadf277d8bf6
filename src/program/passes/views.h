/* views.h -- ranks that share a program, though each has its own shard of the parameters (ZeRO).
 *
 * The ranks of a shard axis have the same instructions on the same buffers. Only persistent buffers that hold shards, or pieces
 * of them, have other sizes, and only the operands with a `view` (ir/program.h) show other elements. What they show follows
 * from the shards alone, so that a program can be bound to any rank of the axis: it then is, to the byte, what compiling for
 * that rank would have made (tests/test_classes.c).
 */
#ifndef ORTH_PROGRAM_VIEWS_H
#define ORTH_PROGRAM_VIEWS_H

#include "program/lower/compile.h"

/* Lists the instructions that differ between ranks (orth_program.own), and binds a program that was compiled with these
 * parameters to rank `shard` of the shard axis, and places its persistent buffers again if it is placed. Nothing to do where
 * nothing is sharded, or where it is bound to that rank. ORTH_ERR_NOMEM. */
orth_status orth_program_bind(orth_ctx *ctx, orth_program *p, const orth_param_desc *params, int64_t num_params, int32_t shard);

/* The program of a rank as it shares it: *out is `of`, which was bound before, bound to rank `shard` of the shard axis. `of` is
 * only read, so that threads may do this at once, and outlives *out. Where nothing is sharded they have all in common; else
 * *out has copies of what binding changes: the list of buffers, that of instructions, and the operands of those that differ
 * between ranks. ORTH_ERR_NOMEM; then there is nothing to release. */
orth_status orth_program_share(orth_ctx *ctx, const orth_program *of, const orth_param_desc *params, int64_t num_params, int32_t shard,
                               orth_program *out);

#endif
