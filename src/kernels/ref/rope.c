/* rope.c -- rotary positions, plainly. y_i = fma(-x_j, sin, x_i*cos), y_j = fma(x_i, sin, x_j*cos), j = i +
 * D/2. */
#include <math.h>

#include "kernels/attention.h"

orth_status orth_ref_rope(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_attr *a = call->attr;
    const orth_tensor *in = &call->in[0], *out = &call->out[0];
    const int32_t *pos = call->in[1].data;
    const int D = a->head_dim, half = D / 2;
    const int64_t R = orth_attn_qkv_cols(a);
    for (int64_t n = 0; n < in->dim[0]; n++) {
        const float *row = (const float *)call->in[2].data + pos[n] * (int64_t)D;
        if (in->data != out->data)
            for (int64_t c = 0; c < R; c++)
                orth_store_f32(out->data, out->dtype, n * R + c,
                               orth_load_f32(in->data, in->dtype, n * R + c));
        for (int h = 0; h < a->heads + a->kv_heads; h++) {
            int64_t at = n * R + (h < a->heads ? orth_attn_q_col(a, h) : orth_attn_k_col(a, h - a->heads));
            for (int i = 0; i < half; i++) {
                float x = orth_load_f32(in->data, in->dtype, at + i), c = row[i];
                float y = orth_load_f32(in->data, in->dtype, at + half + i),
                      s = a->inverse ? -row[half + i] : row[half + i];
                orth_store_f32(out->data, out->dtype, at + i, fmaf(-y, s, x * c));
                orth_store_f32(out->data, out->dtype, at + half + i, fmaf(x, s, y * c));
            }
        }
    }
    return ORTH_OK;
}
