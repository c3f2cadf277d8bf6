/* pipedream.c -- asynchronous 1F1B: every micro-batch is a step of the optimizer, and nothing waits.
 *
 * Source: Harlap et al., "PipeDream", arXiv:1806.03377 (weight stashing, no vertical sync).
 * The lists are those of 1F1B; what differs is that rank r updates its weights after each backward. Forward
 * of micro-batch i on rank r uses version max(0, i - (p-r-1)), and so does its backward, from the stash.
 * Versions held: p - r (fewer when m < 2*(p-r-1)). Bubble: (p-1)*(t_F + t_B), but once for the m micro-batches
 * of the schedule (fill and drain), which may be as many as lie between two checkpoints.
 */
#include "parallel/pipeline/emit.h"

orth_status orth_emit_pipedream(orth_ctx *ctx, orth_emitter *e)
{
    return orth_emit_1f1b(ctx, e); /* orth_schedule_make fills in the versions */
}
