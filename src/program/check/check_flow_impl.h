/* check_flow_impl.h -- what the files of check_flow share. */
#ifndef ORTH_PROGRAM_CHECK_FLOW_IMPL_H
#define ORTH_PROGRAM_CHECK_FLOW_IMPL_H

#include "program/check/check_flow.h"

/* Sets of groups over which a value is one rank's part of a sum; or old elements beside updated ones. */
typedef uint32_t parts_of;
#define STALE (1u << ORTH_NUM_GROUPS)
#define SPENT (1u << (ORTH_NUM_GROUPS + 1)) /* a node of a sum that was added to another */
#define BIT(group) (1u << (group))

/* What is known of a buffer: [begin, end) is `inside`, the rest `outside`. One range is enough: what is
 * completed piece by piece is completed in order. */
typedef struct {
    bool known;
    size_t begin, end;
    parts_of inside, outside;
    int64_t param, first, count; /* of a staging buffer: which elements of which parameter it has, */
    bool scales;                 /* or, counted likewise, which scales of its moments */
    size_t rounded; /* of blocks of int8: bytes that are written, shard after shard */
    int32_t nodes; /* that were added up in it, where it travels over DP; 0: its own */
} buffer_state;

typedef struct {
    orth_ctx *ctx;
    const orth_program *p;
    int rank;
    const orth_rank_groups *g;
    buffer_state *state; /* [num_buffers] */
} flow;

orth_status flow_refuse(flow *f, int32_t i, const orth_operand *o, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- check_calls.c ---- */

/* The block of this rank, all blocks, and where the one lies in the other. */
orth_status flow_check_blocks(flow *f, int32_t i, const orth_operand *block, const orth_operand *all,
                              const int64_t *counts);
/* A gradient is rounded to int8, or a shard of it. */
orth_status flow_check_rounded(flow *f, int32_t i);
/* Joined operands are one call: its blocks are one after the other, and so are those of its operands. */
orth_status flow_check_coalesced(flow *f, int32_t i);

#endif
