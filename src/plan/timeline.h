/* timeline.h -- when the instructions of a step ran: as a trace for Perfetto, and what it says of the pipeline.
 *
 * A clock (program.h) is that of orth_executor_clock (measured) or of orth_simulate_step (planned): both give
 * the same file. A rank is a process of the viewer; its rows are the actions of the schedule, computing, one for each group
 * with calls in the queue of computing, and one for each other queue. A call lasts from where its rank makes it to where it is
 * complete (measured: is known to be), or in other queues from the end of the one before: waiting for others is part of it.
 * A counter shows the bytes of each class that live in the rank's arenas.
 */
#ifndef ORTH_PLAN_TIMELINE_H
#define ORTH_PLAN_TIMELINE_H

#include "base/trace.h"
#include "parallel/pipeline/simulate.h"
#include "program/ir/program.h"

/* When each action of a rank's list computed, in seconds after `origin` (of the clock): from its first computing
 * instruction to the end of its last; receiving its input and sending its result are no part of it, nor are calls
 * in other queues. start = end = 0 for an action without instructions (a weight gradient that was made with the
 * input's). spans [num_actions]. */
void orth_timeline_actions(const orth_program *p, const int64_t *clock, int64_t origin, orth_span *spans,
                           int32_t num_actions);

/* Adds a rank: its actions, which the program was compiled from, and its instructions. `name` is that of the process
 * ("rank 3 (dp 1, pp 1)"). Failures are noted in the trace. */
void orth_timeline_add(orth_ctx *ctx, orth_trace *t, int rank, const char *name, const orth_program *p, bool on_devices,
                       const orth_action_list *list, const orth_span *spans, const int64_t *clock, int64_t origin);

/* Idle time of a pipeline from the first action of any rank to the last, as a share: as it was, and as the schedule
 * would have it with the same time for each action and messages that take none. What lies between is what
 * communication costs. With `pipedream`, the update within a backward delays the next action there, but need not in
 * the run. spans [num_ranks][num_actions of its list]. ORTH_ERR_NOMEM. */
typedef struct {
    double seconds;      /* first start to last end */
    double idle_share;
    double replayed;
} orth_bubble;
orth_status orth_timeline_bubble(orth_ctx *ctx, const orth_schedule *s, const orth_span *const *spans, orth_bubble *out);

#endif
