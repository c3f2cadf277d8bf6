/* naive.c -- one micro-batch goes all the way through and back before the next begins.
 *
 * No rank has to wait for a turn: rank 0 begins i + 1 only when the gradient of i is back.
 * Bubble: m*(p-1)*(t_F + t_B): all ranks but one are idle at any time. In flight: 1.
 */
#include "parallel/pipeline/emit.h"

orth_status orth_emit_naive(orth_ctx *ctx, orth_emitter *e)
{
    (void)ctx;
    for (int r = 0; r < e->num_ranks; r++) {
        for (int i = 0; i < e->num_micro_batches; i++) {
            orth_emit(e, r, ORTH_ACTION_F, r, i);
            orth_emit(e, r, ORTH_ACTION_B, r, i);
        }
    }
    return ORTH_OK;
}
