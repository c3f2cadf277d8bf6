/* kv_rows.c -- keys and values between fused rows and rows of their own, plainly. Letters: see ops.def. */
#include "kernels/attention.h"
#include "kernels/ref/ref.h"

orth_status orth_ref_kv_pack(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_attr *a = call->attr;
    const int64_t R = orth_attn_qkv_cols(a), D2 = 2 * a->head_dim;
    for (int64_t n = 0; n < call->in[0].dim[0]; n++)
        for (int g = 0; g < a->kv_heads; g++)
            for (int64_t d = 0; d < D2; d++)
                ref_put(&call->out[0], (n * a->kv_heads + g) * D2 + d,
                        ref_get(&call->in[0], n * R + orth_attn_k_col(a, g) + d));
    return ORTH_OK;
}

orth_status orth_ref_kv_unpack_grad(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_attr *a = call->attr;
    const int64_t R = orth_attn_qkv_cols(a), D2 = 2 * a->head_dim;
    for (int64_t n = 0; n < call->in[0].dim[0]; n++)
        for (int64_t c = 0; c < R; c++) {
            const int64_t g = c / (R / a->kv_heads), d = c % (R / a->kv_heads);
            ref_put(&call->out[0], n * R + c,
                    d < D2 ? ref_get(&call->in[1], (n * a->kv_heads + g) * D2 + d)
                           : ref_get(&call->in[0], n * R + c));
        }
    return ORTH_OK;
}
