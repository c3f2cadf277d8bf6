/* attention_bwd.c -- gradients of attention, plainly, as attention.h defines them.
 *
 * Probabilities are made again for every use, so that nothing but a few rows is kept.
 */
#include <math.h>

#include "kernels/attention.h"
#include "kernels/mathf.h"

#define MAX_D 1024
#define MAX_LEVELS 8 /* of the tree over at most ORTH_MAX_PARTS parts */

typedef struct {
    const orth_attr *a;
    orth_dtype type;
    const void *dout, *qkv, *o;
    const float *lse;
    const int32_t *doc, *seq;
    const orth_step_values *step;
    void *dqkv;
    int64_t R;
} problem;

static float delta_of(const problem *x, int64_t n, int h)
{
    const int D = x->a->head_dim;
    float lane[16] = {0};
    int64_t at = (n * x->a->heads + h) * D;
    for (int d = 0; d < D; d++)
        lane[d % 16] = fmaf(orth_load_f32(x->dout, x->type, at + d), orth_load_f32(x->o, x->type, at + d),
                            lane[d % 16]);
    return orth_fold16(lane);
}

/* Gradient ds of the score of (query row n, key at key_pos), and *p, the dropped probability. */
static float score_grad(const problem *x, int64_t n, int h, int64_t key_pos, float delta, float *p)
{
    const orth_attr *a = x->a;
    const int D = a->head_dim, T = a->seq_len, g = h / (a->heads / a->kv_heads);
    int64_t b = n / T, key = (b * T + orth_fold_row(T, a->token_parts, key_pos)) * x->R;
    float s = 0.0f, dp = 0.0f;
    for (int d = 0; d < D; d++) {
        s = fmaf(orth_load_f32(x->qkv, x->type, n * x->R + orth_attn_q_col(a, h) + d),
                 orth_load_f32(x->qkv, x->type, key + orth_attn_k_col(a, g) + d), s);
        dp = fmaf(orth_load_f32(x->dout, x->type, (n * a->heads + h) * D + d),
                  orth_load_f32(x->qkv, x->type, key + orth_attn_v_col(a, g) + d), dp);
    }
    float prob = orth_expf(fmaf(s, a->scale, -x->lse[n * a->heads + h]));
    float factor[4] = {1, 1, 1, 1};
    if (a->dropout > 0) {
        orth_attn_drop drop = orth_attn_drop_row(a, x->step, h, x->seq ? x->seq[b] : (int32_t)b,
                                                 orth_fold_pos(T, a->token_parts, n % T));
        orth_attn_drop_keys(&drop, key_pos / 4 * 4, factor);
        dp *= factor[key_pos % 4];
    }
    *p = prob * factor[key_pos % 4];
    return (prob * (dp - delta)) * a->scale;
}

static void store_row(const problem *x, int64_t at, const float *v)
{
    for (int d = 0; d < x->a->head_dim; d++)
        orth_store_f32(x->dqkv, x->type, at + d, v[d] + 0.0f);
}

static void query_grad(const problem *x, int64_t n, int h)
{
    const orth_attr *a = x->a;
    const int D = a->head_dim, T = a->seq_len;
    int64_t b = n / T, pos = orth_fold_pos(T, a->token_parts, n % T);
    float dq[MAX_D] = {0}, delta = delta_of(x, n, h), p;
    for (int64_t k = x->doc ? x->doc[n] : 0; k <= pos; k++) {
        float ds = score_grad(x, n, h, k, delta, &p);
        int64_t at = (b * T + orth_fold_row(T, a->token_parts, k)) * x->R +
                     orth_attn_k_col(a, h / (a->heads / a->kv_heads));
        for (int d = 0; d < D; d++)
            dq[d] = fmaf(ds, orth_load_f32(x->qkv, x->type, at + d), dq[d]);
    }
    store_row(x, n * x->R + orth_attn_q_col(a, h), dq);
}

/* Continues the chain with the queries of one part of sequence b, head h, in ascending position. */
static void key_chain(const problem *x, int64_t b, int h, int64_t key_pos, int slot, float *dk, float *dv)
{
    const orth_attr *a = x->a;
    const int D = a->head_dim, T = a->seq_len;
    int64_t begin = orth_fold_begin(T, a->token_parts, slot),
            end = orth_fold_begin(T, a->token_parts, slot + 1);
    for (int64_t r = begin; r < end; r++) {
        int64_t n = b * T + r;
        if (orth_fold_pos(T, a->token_parts, r) < key_pos || (x->doc && x->doc[n] > key_pos))
            continue;
        float p, ds = score_grad(x, n, h, key_pos, delta_of(x, n, h), &p);
        for (int d = 0; d < D; d++) {
            dk[d] = fmaf(ds, orth_load_f32(x->qkv, x->type, n * x->R + orth_attn_q_col(a, h) + d), dk[d]);
            dv[d] = fmaf(p, orth_load_f32(x->dout, x->type, (n * a->heads + h) * D + d), dv[d]);
        }
    }
}

static void add_to(float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        a[i] = a[i] + b[i];
}

/* The aligned tree over parts as a binary counter (tensor/parts.h); a leaf takes all heads of the group. */
static void key_grad(const problem *x, int64_t b, int g, int64_t key_pos)
{
    const orth_attr *a = x->a;
    const int D = a->head_dim, G = a->heads / a->kv_heads;
    float stack[MAX_LEVELS][2][MAX_D];
    int top = 0;
    for (int slot = 0; slot < a->token_parts; slot++) {
        memset(stack[top], 0, sizeof stack[top]);
        for (int h = g * G; h < (g + 1) * G; h++)
            key_chain(x, b, h, key_pos, slot, stack[top][0], stack[top][1]);
        top++;
        for (int done = slot + 1; done % 2 == 0; done /= 2, top--)
            for (int i = 0; i < 2; i++)
                add_to(stack[top - 2][i], stack[top - 1][i], D);
    }
    for (; top > 1; top--)
        for (int i = 0; i < 2; i++)
            add_to(stack[top - 2][i], stack[top - 1][i], D);
    int64_t row = (b * a->seq_len + orth_fold_row(a->seq_len, a->token_parts, key_pos)) * x->R;
    store_row(x, row + orth_attn_k_col(a, g), stack[0][0]);
    store_row(x, row + orth_attn_v_col(a, g), stack[0][1]);
}

orth_status orth_ref_attention_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attr *a = call->attr;
    problem x = {a,
                 call->in[1].dtype,
                 call->in[0].data,
                 call->in[1].data,
                 call->in[2].data,
                 call->in[3].data,
                 call->in[4].data,
                 call->in[5].data,
                 call->in[6].data,
                 call->out[0].data,
                 orth_attn_qkv_cols(a)};
    if (a->head_dim > MAX_D)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "head_dim=%d exceeds %d of the reference", a->head_dim, MAX_D);
    for (int64_t b = 0; b < a->num_seqs; b++)
        for (int64_t pos = 0; pos < a->seq_len; pos++) {
            for (int h = 0; h < a->heads; h++)
                query_grad(&x, b * a->seq_len + pos, h);
            for (int g = 0; g < a->kv_heads; g++)
                key_grad(&x, b, g, pos);
        }
    return ORTH_OK;
}
