/* check_ranks_impl.h -- what the files of check_ranks share.
 *
 *   source --digest--> events, holdings --match--> --waits--> --cover--> accepted
 */
#ifndef ORTH_PROGRAM_CHECK_RANKS_IMPL_H
#define ORTH_PROGRAM_CHECK_RANKS_IMPL_H

#include "kernels/signature.h"
#include "program/check/check_flow.h"
#include "program/check/check_ranks.h"
#include "program/ir/comm_call.h"
#include "program/check/waits.h"

/* A call of one rank. */
typedef struct {
    int32_t instr;
    int32_t peer;
    int32_t layer, micro_batch, to_come; /* micro-batches behind that one; -1: none of one */
    int32_t operand;
    uint8_t op, group, kind, dtype, reduce;
    int64_t count;
    uint64_t blocks; /* hash of the counts; 0: equal ones */
    uint64_t what;   /* hash of what it works on */
} rank_event;

/* What a rank has of a parameter. */
typedef struct {
    int32_t index;
    int32_t update;                           /* instruction; -1: none */
    int64_t first, count;                     /* elements that it updates */
    int64_t elems;                            /* of the parameter, after tensor parallelism */
    int32_t embed_sums;                       /* times its gradient is summed over EMBED */
} holding;

/* Of one program and its views; twins share it, and ranks of one class the events. */
typedef struct {
    const rank_event *events;
    orth_wait_list waits; /* the same calls, and who waits for them */
    holding *holdings; /* ascending index */
    int32_t num_events, num_holdings;
    bool trains;
    bool messages_on[ORTH_NUM_GROUPS];
} digest;

typedef struct {
    orth_ctx *ctx;
    const orth_rank_source *source;
    int num_ranks;
    orth_arena arena;
    digest **digests; /* [num_ranks] */
    orth_instances instances;
    orth_signature of[ORTH_NUM_OPS];
} rank_check;

static inline bool event_is_message(const rank_event *e)
{
    return orth_op_is_message(e->op);
}

/* "rank 3, instruction 17 (all_gather of 40 fp32 on dp, layer 2, micro-batch 0), buffer 'x'" into out. Builds
 * the program again if need be. */
void rank_describe(rank_check *k, int rank, const rank_event *e, char *out, size_t size);
/* Name of a parameter, into out. */
void rank_param_name(rank_check *k, int rank, int32_t index, char *out, size_t size);
/* near: where it is likely to stand among the rank's. */
const holding *rank_holding(const rank_check *k, int rank, int32_t index, int32_t near);

/* Whether the members of a and b have the same programs but for their views, position by position. */
bool rank_same_members(const rank_check *k, const orth_instance *a, const orth_instance *b);
orth_status rank_digest(rank_check *k, int rank, digest *out);
/* Of a rank that has the program of `like` with other views. */
orth_status rank_digest_views(rank_check *k, int rank, const digest *like, digest *out);
orth_status rank_check_match(rank_check *k);
orth_status rank_check_waits(rank_check *k);
orth_status rank_check_cover(rank_check *k);

#endif
