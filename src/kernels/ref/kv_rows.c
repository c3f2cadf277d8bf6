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

orth_status orth_ref_kv_blocks(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_attr *a = call->attr;
    const int64_t R = orth_attn_qkv_cols(a), D2 = 2 * a->head_dim;
    for (int64_t n = 0; n < call->in[0].dim[0]; n++) {
        const int64_t to = orth_attn_block_row(a, n / a->seq_len, n % a->seq_len);
        for (int64_t c = 0; c < a->kv_heads * D2; c++)
            ref_put(&call->out[0], to * a->kv_heads * D2 + c,
                    ref_get(&call->in[0], n * R + orth_attn_k_col(a, (int)(c / D2)) + c % D2));
    }
    return ORTH_OK;
}

orth_status orth_ref_kv_blocks_grad(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_attr *a = call->attr;
    const int64_t R = orth_attn_qkv_cols(a), D2 = 2 * a->head_dim, G = a->heads / a->kv_heads, W = R / a->kv_heads;
    for (int64_t n = 0; n < call->out[0].dim[0]; n++) {
        const int64_t from = orth_attn_block_row(a, n / a->seq_len, n % a->seq_len);
        for (int64_t c = 0; c < R; c++) {
            const int64_t g = c / W, d = c % W, head = g * G + (d - D2) / a->head_dim;
            ref_put(&call->out[0], n * R + c,
                    d < D2 ? ref_get(&call->in[1], (from * a->kv_heads + g) * D2 + d)
                           : ref_get(&call->in[0], (n * a->heads + head) * a->head_dim + d % a->head_dim) + 0.0f);
        }
    }
    return ORTH_OK;
}
