/* check_ranks.h -- what must hold of the programs of all ranks together before a byte moves.
 *
 * Rules, each refused in words that name ranks, instructions, ops and buffers:
 *  1. all members of a group agree on who is in it;
 *  2. every collective has the same members, and on each of them the same kind, type, count, blocks,
 *     reduction, place in the order, and the same thing to work on (layer, micro-batch, parameter);
 *  3. every send has its receive, and every receive its send: same type, count, micro-batch (and, of keys,
 *     layer and position), in one order per sender, receiver and group;
 *  4. run in order, all ranks reach their ends: no cycle of waits. A call in the queue of computing holds its rank until it is
 *     complete; one in another queue goes on beside it, until an event is waited for that names it (waits.h);
 *  5. each rank's program obeys orth_check and orth_check_flow (buffers, sums, events);
 *  6. each parameter is on one stage of the pipeline, or its gradient is summed once over those that hold it;
 *     the parts of tensor-parallel ranks tile it; the elements that the ranks of a shard group update are
 *     all of them on each, or tile it without gap or overlap; replicas update the same.
 *
 * Of ranks that share a program one is looked at for rules 1 to 5, each for rule 6 and for what binding to its shards changes
 * (orth_check_views). Programs are looked at one at a time and forgotten: what is kept is about 60 bytes per call.
 */
#ifndef ORTH_PROGRAM_CHECK_RANKS_H
#define ORTH_PROGRAM_CHECK_RANKS_H

#include "program/check/check_flow.h"
#include "program/lower/compile.h"

typedef struct {
    const orth_program *program;   /* compiled; placed or not */
    const orth_param_desc *params; /* [num_params], as the program was compiled for */
    int64_t num_params;
} orth_rank_program;

/* Where the programs come from. `user` is handed to all functions. */
typedef struct {
    int num_ranks;
    void *user;
    /* The lowest rank that shares the program, but for its views (passes/views.h), and the lowest whose views are the same, too.
     * NULL: all differ. */
    int (*same_as)(void *user, int rank);
    int (*twin_of)(void *user, int rank);
    /* Program of a rank, valid until the next call. */
    orth_status (*program)(orth_ctx *ctx, void *user, int rank, orth_rank_program *out);
    /* The rank's own slices of the parameters; NULL: those of its program. */
    const orth_param_desc *(*params)(void *user, int rank);
    /* Global ranks of a group of `rank` in canonical order, into ranks[num_ranks]; returns how many. 0 or 1:
     * the rank does not communicate there. */
    int (*group)(void *user, int rank, orth_group group, int *ranks);
    /* Sizes of all groups of `rank` and its positions there: where given, only one member of each group is asked for its
     * list, and the others must stand in it where they say. */
    orth_rank_groups (*groups)(void *user, int rank);
    bool checked;   /* each program has passed orth_check */
} orth_rank_source;

/* ORTH_ERR_INTERNAL with the first broken rule, ORTH_ERR_NOMEM, or what `program` returned. */
orth_status orth_check_ranks(orth_ctx *ctx, const orth_rank_source *source);

#endif
