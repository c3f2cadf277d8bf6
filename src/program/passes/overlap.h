/* overlap.h -- the pass that lets communication go on beside computing.
 *
 *     blocking    gather A | A | gather B | B | ...     | reduce | norm
 *     overlapped  gather A, B | A | gather C | B | ... | reduce | ... | norm
 *
 * A collective of a compiled program moves to behind the last instruction before it that touches what it works on, or
 * that its group makes, in the same phase of the same micro-batch. From there it goes on beside computing, until before the
 * first instruction after it that touches what it works on (orth_instr.until, which placement sees). Where nothing is computed
 * between the two, it blocks where it stands. Gathers of parameters that a block is about to use (ZeRO 3) move some blocks
 * ahead. Nothing else moves: the same calls, in the same order on all members of a group, give the same bits. Who waits for
 * them is derived later (order.h). What there is to compute meanwhile follows from the order of the program: delay_products.c,
 * bucket.c, accumulate.c.
 */
#ifndef ORTH_PROGRAM_OVERLAP_H
#define ORTH_PROGRAM_OVERLAP_H

#include "program/ir/comm_policy.h"
#include "program/ir/program.h"

/* Before orth_place. ORTH_ERR_NOMEM. */
orth_status orth_overlap(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy);

#endif
