/* attention_full.c -- the materialised attention, for comparison: a row of scores at a time.
 *
 * Same bits as the reference in fp32 and bf16. One task per (row, head), plain loops.
 */
#include <math.h>

#include "base/pool.h"
#include "kernels/attention.h"
#include "kernels/mathf.h"

static void full_task(void *arg, int64_t n, int worker)
{
    const orth_op_call *call = arg;
    const orth_attr *a = call->attr;
    const int D = a->head_dim, H = a->heads, T = a->seq_len;
    const orth_tensor *qkv = &call->in[0];
    const int32_t *doc = call->in[1].data, *seq = call->in[2].data;
    const int64_t R = orth_attn_qkv_cols(a), b = n / T, pos = orth_fold_pos(T, a->token_parts, n % T);
    const int64_t first = doc ? doc[n] : 0;
    float *p = (float *)call->workspace + (int64_t)worker * (T + D), *o = p + T;
    for (int h = 0; h < H; h++) {
        const int g = h / (H / a->kv_heads);
        const int64_t q = n * R + orth_attn_q_col(a, h);
        float m = -INFINITY, l = 0.0f;
        for (int64_t k = first; k <= pos; k++) {
            int64_t at = (b * T + orth_fold_row(T, a->token_parts, k)) * R + orth_attn_k_col(a, g);
            float s = 0.0f;
            for (int d = 0; d < D; d++)
                s = fmaf(orth_load_f32(qkv->data, qkv->dtype, q + d),
                         orth_load_f32(qkv->data, qkv->dtype, at + d), s);
            p[k] = s * a->scale;
            m = ORTH_MAX(m, p[k]);
        }
        for (int64_t k = first; k <= pos; k++)
            l += p[k] = orth_expf(p[k] - m);
        memset(o, 0, (size_t)D * sizeof *o);
        for (int64_t k = first; k <= pos; k++) {
            int64_t at = (b * T + orth_fold_row(T, a->token_parts, k)) * R + orth_attn_v_col(a, g);
            float weight = p[k] / l, factor[4];
            if (a->dropout > 0) {
                orth_attn_drop drop = orth_attn_drop_row(a, call->in[3].data, h, seq ? seq[b] : (int32_t)b,
                                                         pos);
                orth_attn_drop_keys(&drop, k / 4 * 4, factor);
                weight *= factor[k % 4];
            }
            for (int d = 0; d < D; d++)
                o[d] = fmaf(weight, orth_load_f32(qkv->data, qkv->dtype, at + d), o[d]);
        }
        for (int d = 0; d < D; d++)
            orth_store_f32(call->out[0].data, qkv->dtype, (n * H + h) * D + d, o[d]);
        ((float *)call->out[1].data)[n * H + h] = m + orth_logf(l);
    }
}

orth_status orth_cpu_attention_full(orth_ctx *ctx, const orth_op_call *call)
{
    orth_pool_run(ctx->pool, (int64_t)call->attr->num_seqs * call->attr->seq_len, full_task, (void *)call);
    return ORTH_OK;
}

size_t orth_workspace_attention_full(const orth_op_call *call, int num_threads, orth_isa isa)
{
    (void)isa;
    return (size_t)num_threads * (size_t)(call->attr->seq_len + call->attr->head_dim) * sizeof(float);
}
