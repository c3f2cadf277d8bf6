/* gpipe.c -- all forwards, then all backwards.
 *
 * Source: Huang et al., "GPipe", arXiv:1811.06965. Bubble: (p-1)*(t_F + t_B). In flight: m.
 * Backwards go in the order of the micro-batches, in which their gradients are summed.
 */
#include "parallel/pipeline/emit.h"

orth_status orth_emit_gpipe(orth_ctx *ctx, orth_emitter *e)
{
    (void)ctx;
    for (int r = 0; r < e->num_ranks; r++) {
        for (int i = 0; i < e->num_micro_batches; i++)
            orth_emit(e, r, ORTH_ACTION_F, r, i);
        for (int i = 0; i < e->num_micro_batches; i++)
            orth_emit(e, r, ORTH_ACTION_B, r, i);
    }
    return ORTH_OK;
}
