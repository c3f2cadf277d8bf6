/* interleaved.c -- 1F1B over v chunks per rank; chunk c is on rank c % p, so data goes round v times.
 *
 * Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
 * arXiv:2104.04473, section 2.2. Micro-batches go in rounds of p: p of them through the rank's first chunk,
 * the same p through its second, ...; backwards likewise from its last chunk. So m is a multiple of p.
 * Bubble: (p-1)*(t_F + t_B) of one chunk, 1/v of 1F1B's, for v times the messages.
 * In flight on rank r: min(m*v, 2*(p-r-1) + (v-1)*p + 1) chunks of 1/v stage. (Megatron runs all forwards
 * first when m = p; here the same count holds then too.)
 */
#include "parallel/pipeline/emit.h"

/* The k-th forward of a rank, or the k-th backward. */
static void emit_nth(orth_emitter *e, int rank, orth_action_kind kind, int k)
{
    const int p = e->num_ranks, v = e->num_virtual;
    const int round = k / (p * v), turn = k / p % v;
    const int local = kind == ORTH_ACTION_F ? turn : v - 1 - turn;
    orth_emit(e, rank, kind, local * p + rank, round * p + k % p);
}

orth_status orth_emit_interleaved(orth_ctx *ctx, orth_emitter *e)
{
    (void)ctx;
    const int p = e->num_ranks, v = e->num_virtual, total = v * e->num_micro_batches;
    for (int r = 0; r < p; r++) {
        const int ahead = ORTH_MIN(total, 2 * (p - r - 1) + (v - 1) * p);
        for (int k = 0; k < ahead; k++)
            emit_nth(e, r, ORTH_ACTION_F, k);
        for (int k = 0; k < total; k++) {
            if (k + ahead < total)
                emit_nth(e, r, ORTH_ACTION_F, k + ahead);
            emit_nth(e, r, ORTH_ACTION_B, k);
        }
    }
    return ORTH_OK;
}
