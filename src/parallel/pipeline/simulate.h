/* simulate.h -- a schedule in time: when every action begins and ends, given what each chunk costs.
 *
 * Model: a rank does its actions in list order, one at a time, each as soon as the rank is free and its
 * input is there. A message leaves when the action that makes it ends, arrives after the given latency,
 * keeps no rank busy and waits for no other message.
 */
#ifndef ORTH_PARALLEL_PIPELINE_SIMULATE_H
#define ORTH_PARALLEL_PIPELINE_SIMULATE_H

#include "parallel/pipeline/action.h"

/* Times of one chunk, one micro-batch, in any one unit. */
typedef struct {
    double time[ORTH_NUM_ACTION_KINDS]; /* F, B, BI, W; B need not be BI + W */
    double send_forward;          /* latency of its output to the next chunk, if that is on another rank */
    double send_backward;         /* latency of its input gradient to the chunk before, likewise */
} orth_chunk_times;

typedef struct {
    double start, end;
} orth_span;

typedef struct {
    double busy;                  /* sum of its actions */
    double idle;                  /* makespan - busy */
    double first, last;           /* start of its first action, end of its last */
    int32_t peak_in_flight;       /* (chunk, micro-batch) pairs, as in orth_schedule_peak_in_flight */
    int32_t peak_versions;
    const orth_span *spans;       /* [num_actions] of its list */
} orth_rank_sim;

typedef struct {
    double makespan;
    double ideal;                 /* largest busy time of a rank: what no schedule of the same split beats */
    double bubble;                /* makespan - ideal: the bubble time of the formulas */
    double idle_share;            /* mean over ranks of idle / makespan: (p-1)/(m+p-1) of GPipe, 1F1B */
    /* The largest of (last - first) - busy: what is left when a rank need not wait for the others before its
     * next step (no global norm), as zero-bubble papers count. */
    double inner_bubble;
    int32_t num_ranks;
    const orth_rank_sim *ranks;   /* [num_ranks] */
} orth_sim;

/* times [num_chunks]. The schedule has passed its check. Results live in `arena`. ORTH_ERR_NOMEM;
 * ORTH_ERR_INTERNAL if the lists cannot be executed. */
orth_status orth_schedule_simulate(orth_ctx *ctx, orth_arena *arena, const orth_schedule *s,
                                   const orth_chunk_times *times, orth_sim *out);

/* The same, each action taking its own time: durations[rank][action] in list order; messages take none. What a
 * measured step would have taken if its ranks had waited for nothing but each other's actions. */
orth_status orth_schedule_replay(orth_ctx *ctx, orth_arena *arena, const orth_schedule *s,
                                 const double *const *durations, orth_sim *out);

#endif
