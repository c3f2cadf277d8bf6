/* check_flow.h -- what one rank's program must do with sums over ranks, whatever its peers do.
 *
 * A value may be a part of a sum over a group of ranks: the gradient that one data-parallel rank made, the
 * product of one tensor-parallel rank's columns. Ops begin such sums, adding keeps them, all_reduce and
 * reduce_scatter complete them; other ops want them complete. Followed through the program, this says for
 * each gradient whether it was reduced once over every group that shares its work, and for each parameter
 * that ZeRO updates piece by piece whether all pieces were gathered.
 *
 * Rules, each refused as "rank R, instruction I (op, layer L, micro-batch M), buffer 'B': ..."
 *  1. a partial sum is reduced exactly once over each group that it is partial on, innermost group first (TP, KV, CP, DP or
 *     SHARD, REPLICATE, NORM), before any op other than an addition reads it; the addends of an addition are complete over
 *     the same groups;
 *  2. operands of a collective fit its counts: this rank's block, and all blocks; in place, the block lies
 *     where its rank's turn is; a group that is called has other members, a peer is one of them;
 *  3. the optimizer's operands are the same elements of gradient, moments and parameter;
 *  4. a parameter of which a piece was updated is gathered before the step ends;
 *  5. coalesced operands are neighbours in memory, in the order of ranks: the call's blocks are those of its operands;
 *  6. a gradient that is reduced in int8 was rounded as a whole: each rank's shard by itself, into blocks behind those of the ranks before.
 * That nothing touches the operands of a call under way is a matter of events: happens.h.
 */
#ifndef ORTH_PROGRAM_CHECK_FLOW_H
#define ORTH_PROGRAM_CHECK_FLOW_H

#include "program/ir/program.h"

/* Groups of this rank. size <= 1: it has none. */
typedef struct {
    int32_t size[ORTH_NUM_GROUPS], pos[ORTH_NUM_GROUPS];
} orth_rank_groups;

/* `rank` is for messages. The program has passed orth_check. ORTH_ERR_INTERNAL, ORTH_ERR_NOMEM. */
orth_status orth_check_flow(orth_ctx *ctx, const orth_program *p, int rank, const orth_rank_groups *groups);

#endif
