/* overlap.h -- the pass that lets communication go on beside computing.
 *
 *     blocking    gather A | A | gather B | B | ...     | reduce | norm
 *     overlapped  start A, B | wait A | A | start C | wait B | B | ... | start reduce | ... | wait | norm
 *
 * A collective of a compiled program is started behind the last instruction before it that touches what it works on, or
 * that its group makes, in the same phase of the same micro-batch; and waited for before the first one after it that
 * touches that. Where nothing is computed between the two, it blocks where it stands. Gathers of parameters that a block is
 * about to use (ZeRO 3) are started some blocks earlier. Nothing else moves: the same calls, in the same order on all
 * members of a group, give the same bits; buffers live until the wait, which placement sees. What there is to compute
 * meanwhile follows from the order of the program: delay_products.c, bucket.c, accumulate.c.
 */
#ifndef ORTH_PROGRAM_OVERLAP_H
#define ORTH_PROGRAM_OVERLAP_H

#include "program/ir/comm_policy.h"
#include "program/ir/program.h"

/* Before orth_place. ORTH_ERR_NOMEM. */
orth_status orth_overlap(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy);

#endif
