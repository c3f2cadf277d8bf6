/* heads_split.c -- groups of columns become blocks of rows, one for each rank, and back. Letters: see ops.def. */
#include "kernels/op.h"
#include "kernels/ref/ref.h"

/* Row of the split form that columns [r*W, +W) of row n are. */
static int64_t split_row(const orth_attr *a, int64_t c, int64_t n, int64_t r)
{
    return (n / a->seq_len * c + r) * a->seq_len + n % a->seq_len;
}

static orth_status move(const orth_op_call *call, const orth_tensor *wide, const orth_tensor *split, bool join)
{
    const int64_t W = split->dim[1], c = wide->dim[1] / W;
    for (int64_t n = 0; n < wide->dim[0]; n++)
        for (int64_t i = 0; i < c * W; i++) {
            const int64_t at = split_row(call->attr, c, n, i / W) * W + i % W;
            if (join)
                ref_put(wide, n * c * W + i, ref_get(split, at));
            else
                ref_put(split, at, ref_get(wide, n * c * W + i));
        }
    return ORTH_OK;
}

orth_status orth_ref_heads_split(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    return move(call, &call->in[0], &call->out[0], false);
}

orth_status orth_ref_heads_join(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    return move(call, &call->out[0], &call->in[0], true);
}
