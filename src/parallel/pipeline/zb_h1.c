/* zb_h1.c -- 1F1B whose weight gradients wait, on rank r for r micro-batches, and then fill the bubble.
 *
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 2.
 * Bubble: (p-1)*(t_F + t_BI - t_W) for m >= p and t_W <= t_F, t_BI.
 * In flight: min(m, p) on every rank, counted until W. 1F1B holds that on its first rank and less on the
 * others (p - r): the largest of all ranks, which decides what fits, is the same.
 */
#include "parallel/pipeline/emit.h"

orth_status orth_emit_zb_h1(orth_ctx *ctx, orth_emitter *e)
{
    (void)ctx;
    const int p = e->num_ranks, m = e->num_micro_batches;
    for (int r = 0; r < p; r++) {
        const int ahead = ORTH_MIN(m, p - r);
        int w = 0; /* weight gradients done */
        for (int i = 0; i < ahead; i++)
            orth_emit(e, r, ORTH_ACTION_F, r, i);
        for (int i = 0; i < m; i++) {
            orth_emit(e, r, ORTH_ACTION_BI, r, i);
            if (i >= r)
                orth_emit(e, r, ORTH_ACTION_W, r, w++);
            if (i + ahead < m)
                orth_emit(e, r, ORTH_ACTION_F, r, i + ahead);
        }
        while (w < m)
            orth_emit(e, r, ORTH_ACTION_W, r, w++);
    }
    return ORTH_OK;
}
