/* action.h -- a pipeline schedule as data: what each rank does, in order.
 *
 * The model is cut into chunks, numbered in model order over the whole pipeline; every chunk lives on
 * one rank. A schedule lists, for each rank, the forward and backward actions of its chunks. What is
 * sent, how long activations live, which weights are stashed and how large the bubble is all follow from
 * these lists:
 *   - F of chunk c sends its output to the rank of c + 1 (nothing is sent when that is the same rank);
 *   - B (or BI) of chunk c sends the gradient of its input to the rank of c - 1;
 *   - what F of (chunk, micro-batch) saves lives until its B, or until its W where the backward is split.
 *
 * Vocabulary: p ranks, v chunks per rank, m micro-batches; forward, B = BI + W.
 */
#ifndef ORTH_PARALLEL_PIPELINE_ACTION_H
#define ORTH_PARALLEL_PIPELINE_ACTION_H

#include "base/arena.h"
#include "program/ir/action.h"

/* 'F', 'B', 'I', 'W': in files and drawings. */
char orth_action_letter(orth_action_kind kind);
/* "forward", "backward", "input gradient", "weight gradient": in messages. */
const char *orth_action_name(orth_action_kind kind);

typedef struct {
    const orth_action *actions;
    int32_t num_actions;
} orth_action_list;

/* Lives in the arena it was made in. */
typedef struct {
    const char *name;             /* as in parallel.pipeline */
    int32_t num_ranks, num_chunks, num_micro_batches;
    const int32_t *chunk_rank;    /* [num_chunks] the rank that holds it */
    const orth_action_list *lists; /* [num_ranks] */
    /* PipeDream: each micro-batch is a step of the optimizer of its own. A chunk's weights are updated
     * right after each of its backwards, so that update i + 1 follows micro-batch i; backward of a
     * micro-batch uses the weights its forward used, which are kept (stashed) until then. */
    bool async;
    bool split;                   /* has BI and W instead of B */
} orth_schedule;

/* Most (chunk, micro-batch) pairs of `rank` that are in flight at once: from F until the end of B, or of
 * W (a split backward needs the saved inputs for both). Pairs, so chunks of 1/v of a stage. */
int orth_schedule_peak_in_flight(const orth_schedule *s, int rank);

/* Most copies of a chunk's weights that `rank` holds at once, the newest included: 1 unless async. */
int orth_schedule_peak_versions(const orth_schedule *s, int rank);

#endif
