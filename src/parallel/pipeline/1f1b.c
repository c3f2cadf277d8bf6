/* 1f1b.c -- one forward, one backward in turn, after just enough forwards to fill the pipeline behind.
 *
 * Source: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training",
 * arXiv:2006.09503 (PipeDream-Flush).
 * Bubble: (p-1)*(t_F + t_B), as GPipe. In flight on rank r: min(m, p - r).
 */
#include "parallel/pipeline/emit.h"

orth_status orth_emit_1f1b(orth_ctx *ctx, orth_emitter *e)
{
    (void)ctx;
    const int p = e->num_ranks, m = e->num_micro_batches;
    for (int r = 0; r < p; r++) {
        const int ahead = ORTH_MIN(m, p - r - 1); /* forwards before the first pair */
        for (int i = 0; i < ahead; i++)
            orth_emit(e, r, ORTH_ACTION_F, r, i);
        for (int i = 0; i < m; i++) {
            if (i + ahead < m)
                orth_emit(e, r, ORTH_ACTION_F, r, i + ahead);
            orth_emit(e, r, ORTH_ACTION_B, r, i);
        }
    }
    return ORTH_OK;
}
