/* head_norm.c -- RMSNorm of every query and key head, plainly.
 *
 * Sums over a head: 16 lanes (lane i takes d = i, i+16, ... as a chain of fma), folded as in
 * attention.h. rstd = 1 / sqrt(sum/D + eps); y = (x*rstd)*gain. Backward, with u = x*rstd and
 * g = dy*gain: dx = fma(-u, sum(g*u)/D, g)*rstd; dgain = chain fma(dy, u, .).
 */
#include <math.h>

#include "kernels/attention.h"

/* Column of head j of H + KV, query heads first. */
static int64_t head_col(const orth_attr *a, int j)
{
    return j < a->heads ? orth_attn_q_col(a, j) : orth_attn_k_col(a, j - a->heads);
}

static float load(const orth_tensor *t, int64_t i)
{
    return orth_load_f32(t->data, t->dtype, i);
}

static void copy_values(const orth_attr *a, const orth_tensor *out, const orth_tensor *in, int64_t row_at)
{
    for (int g = 0; g < a->kv_heads; g++)
        for (int d = 0; d < a->head_dim; d++) {
            int64_t at = row_at + orth_attn_v_col(a, g) + d;
            orth_store_f32(out->data, out->dtype, at, load(in, at));
        }
}

orth_status orth_ref_head_norm(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_attr *a = call->attr;
    const orth_tensor *in = &call->in[0], *out = &call->out[0];
    const int D = a->head_dim, J = a->heads + a->kv_heads;
    for (int64_t n = 0; n < in->dim[0]; n++) {
        const int64_t row_at = n * orth_attn_qkv_cols(a);
        copy_values(a, out, in, row_at);
        for (int j = 0; j < J; j++) {
            const float *gain = call->in[j < a->heads ? 1 : 2].data;
            const int64_t at = row_at + head_col(a, j);
            float lane[16] = {0};
            for (int d = 0; d < D; d++)
                lane[d % 16] = fmaf(load(in, at + d), load(in, at + d), lane[d % 16]);
            float rstd = 1.0f / sqrtf(orth_lanes_fold(lane) / (float)D + a->eps);
            ((float *)call->out[1].data)[n * J + j] = rstd;
            for (int d = 0; d < D; d++)
                orth_store_f32(out->data, out->dtype, at + d, load(in, at + d) * rstd * gain[d]);
        }
    }
    return ORTH_OK;
}

static void input_grad(const orth_op_call *call, int64_t n, int j)
{
    const orth_attr *a = call->attr;
    const orth_tensor *dout = &call->in[0], *in = &call->in[1], *dx = &call->out[0];
    const int D = a->head_dim, J = a->heads + a->kv_heads;
    const float *gain = call->in[j < a->heads ? 3 : 4].data,
                rstd = ((const float *)call->in[2].data)[n * J + j];
    const int64_t at = n * orth_attn_qkv_cols(a) + head_col(a, j);
    float lane[16] = {0};
    for (int d = 0; d < D; d++)
        lane[d % 16] = fmaf(load(dout, at + d) * gain[d], load(in, at + d) * rstd, lane[d % 16]);
    float c = orth_lanes_fold(lane) / (float)D;
    for (int d = 0; d < D; d++) {
        float u = load(in, at + d) * rstd, g = load(dout, at + d) * gain[d];
        orth_store_f32(dx->data, dx->dtype, at + d, fmaf(-u, c, g) * rstd);
    }
}

/* Element d of row `leaf` (sequence and slot) of dqgain or (kv) dkgain: chain per part, tree over parts. */
static float gain_grad(const orth_op_call *call, int64_t leaf, int d, bool kv)
{
    const orth_attr *a = call->attr;
    const int P = a->token_parts, T = a->seq_len, J = a->heads + a->kv_heads, slot = (int)(leaf % P);
    const int64_t begin = orth_fold_begin(T, P, slot), end = orth_fold_begin(T, P, slot + 1);
    float part[ORTH_MAX_PARTS] = {0};
    for (int i = 0; i < a->split.parts; i++) {
        int first, last;
        orth_head_part(a, i, kv, &first, &last);
        for (int64_t s = begin; s < end; s++)
            for (int j = first; j < last; j++) {
                const int64_t n = leaf / P * T + s, at = n * orth_attn_qkv_cols(a) + head_col(a, j) + d;
                float u = load(&call->in[1], at) * ((const float *)call->in[2].data)[n * J + j];
                part[i] = fmaf(load(&call->in[0], at), u, part[i]);
            }
    }
    for (int step = 1; step < a->split.parts; step *= 2)
        for (int i = 0; i + step < a->split.parts; i += 2 * step)
            part[i] = part[i] + part[i + step];
    return part[0];
}

orth_status orth_ref_head_norm_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_attr *a = call->attr;
    const int D = a->head_dim, J = a->heads + a->kv_heads;
    for (int64_t n = 0; n < (int64_t)a->num_seqs * a->seq_len; n++) {
        copy_values(a, &call->out[0], &call->in[0], n * orth_attn_qkv_cols(a));
        for (int j = 0; j < J; j++)
            input_grad(call, n, j);
    }
    for (int64_t leaf = 0; leaf < (int64_t)a->num_seqs * a->token_parts; leaf++)
        for (int d = 0; d < D; d++) {
            ((float *)call->out[1].data)[leaf * D + d] = gain_grad(call, leaf, d, false);
            ((float *)call->out[2].data)[leaf * D + d] = gain_grad(call, leaf, d, true);
        }
    return ORTH_OK;
}
