/* attention_bwd.c -- gradients of attention, plainly, as attention.h defines them.
 *
 * Probabilities are made again for every use, so that nothing but a few rows is kept.
 */
#include <math.h>

#include "kernels/attention.h"
#include "kernels/mathf.h"

#define MAX_D 1024

typedef struct {
    const orth_attr *a;
    orth_dtype type;
    orth_attn_place l;
    const void *dout, *qkv, *kv, *o;
    const float *lse;
    const int32_t *doc, *seq;
    const orth_step_values *step;
    void *dqkv, *dkv;            /* dkv: of type kv_type, placed as kv */
    orth_dtype kv_type;
    int64_t R;
    int64_t key_begin, key_end;  /* positions of the keys */
    int64_t kv_rows;             /* of a sequence in kv */
    float *dq;                   /* carried from block to block instead of dqkv; NULL: all keys are here */
    const float *dq_before;      /* NULL: dq begins */
} problem;

/* Element of k_g of the token at a position; v_g follows. */
static int64_t key_at(const problem *x, int64_t b, int g, int64_t pos)
{
    const int64_t row = x->dq ? pos - x->key_begin : orth_fold_row(x->l.len, x->l.parts, pos);
    return (b * x->kv_rows + row) * x->l.kv_stride + g * x->l.kv_step;
}

static float delta_of(const problem *x, int64_t n, int h)
{
    const int D = x->a->head_dim;
    float lane[16] = {0};
    int64_t at = (n * x->a->heads + h) * D;
    for (int d = 0; d < D; d++)
        lane[d % 16] = fmaf(orth_load_f32(x->dout, x->type, at + d), orth_load_f32(x->o, x->type, at + d),
                            lane[d % 16]);
    return orth_lanes_fold(lane);
}

/* Gradient ds of the score of (query row n, key at key_pos), and *p, the dropped probability. */
static float score_grad(const problem *x, int64_t n, int h, int64_t key_pos, float delta, float *p)
{
    const orth_attr *a = x->a;
    const int D = a->head_dim, g = h / (a->heads / a->kv_heads);
    int64_t b = n / x->l.rows, key = key_at(x, b, g, key_pos);
    float s = 0.0f, dp = 0.0f;
    for (int d = 0; d < D; d++) {
        s = fmaf(orth_load_f32(x->qkv, x->type, n * x->R + orth_attn_q_col(a, h) + d),
                 orth_load_f32(x->kv, x->type, key + d), s);
        dp = fmaf(orth_load_f32(x->dout, x->type, (n * a->heads + h) * D + d),
                  orth_load_f32(x->kv, x->type, key + D + d), dp);
    }
    float prob = orth_exp2f(fmaf(s, a->scale * ORTH_LOG2E, -(x->lse[n * a->heads + h] * ORTH_LOG2E)));
    float factor[4] = {1, 1, 1, 1};
    if (a->dropout > 0) {
        orth_attn_drop drop = orth_attn_drop_row(a, x->step, h, x->seq ? x->seq[b] : (int32_t)b,
                                                 orth_attn_pos(&x->l, n % x->l.rows));
        orth_attn_drop_keys(&drop, key_pos / 4 * 4, factor);
        dp *= factor[key_pos % 4];
    }
    *p = prob * factor[key_pos % 4];
    return prob * fmaf(dp, a->scale, -(delta * a->scale));
}

static void store_row(const problem *x, void *to, orth_dtype type, int64_t at, const float *v)
{
    for (int d = 0; d < x->a->head_dim; d++)
        orth_store_f32(to, type, at + d, v[d] + 0.0f);
}

static void query_grad(const problem *x, int64_t n, int h)
{
    const orth_attr *a = x->a;
    const int D = a->head_dim;
    int64_t b = n / x->l.rows, pos = orth_attn_pos(&x->l, n % x->l.rows);
    float dq[MAX_D] = {0}, delta = delta_of(x, n, h), p;
    if (x->dq_before)
        memcpy(dq, x->dq_before + (n * a->heads + h) * D, (size_t)D * sizeof *dq);
    for (int64_t k = ORTH_MAX(x->doc ? x->doc[n] : 0, x->key_begin); k <= pos && k < x->key_end; k++) {
        float ds = score_grad(x, n, h, k, delta, &p);
        int64_t at = key_at(x, b, h / (a->heads / a->kv_heads), k);
        for (int d = 0; d < D; d++)
            dq[d] = fmaf(ds, orth_load_f32(x->kv, x->type, at + d), dq[d]);
    }
    if (x->dq)
        memcpy(x->dq + (n * a->heads + h) * D, dq, (size_t)D * sizeof *dq);
    else
        store_row(x, x->dqkv, x->type, n * x->R + orth_attn_q_col(a, h), dq);
}

/* Continues the chain with the queries of one part of sequence b, head h, in ascending position. */
static void key_chain(const problem *x, int64_t b, int h, int64_t key_pos, int slot, float *dk, float *dv)
{
    const orth_attr *a = x->a;
    const int D = a->head_dim;
    const int64_t begin = orth_fold_begin(x->l.len, x->l.parts, slot) - x->l.first_row;
    const int64_t end = orth_fold_begin(x->l.len, x->l.parts, slot + 1) - x->l.first_row;
    for (int64_t r = begin; r < end; r++) {
        int64_t n = b * x->l.rows + r;
        if (orth_attn_pos(&x->l, r) < key_pos || (x->doc && x->doc[n] > key_pos))
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

/* The aligned tree over the leaves of slots [begin, end) as a binary counter (tensor/parts.h), into section
 * `section` of dkv. */
static void key_grad(const problem *x, int64_t b, int g, int64_t key_pos, int begin, int end, int section)
{
    const orth_attr *a = x->a;
    const int D = a->head_dim, leaf_heads = orth_attn_leaf_heads(a), per_slot = a->heads / a->kv_heads / leaf_heads;
    float stack[ORTH_MAX_LEVELS][2][MAX_D];
    int top = 0;
    for (int leaf = 0; leaf < (end - begin) * per_slot; leaf++) {
        const int first = (g * per_slot + leaf % per_slot) * leaf_heads;
        memset(stack[top], 0, sizeof stack[top]);
        for (int h = first; h < first + leaf_heads; h++)
            key_chain(x, b, h, key_pos, begin + leaf / per_slot, stack[top][0], stack[top][1]);
        top++;
        for (int done = leaf + 1; done % 2 == 0; done /= 2, top--)
            for (int i = 0; i < 2; i++)
                add_to(stack[top - 2][i], stack[top - 1][i], D);
    }
    for (; top > 1; top--)
        for (int i = 0; i < 2; i++)
            add_to(stack[top - 2][i], stack[top - 1][i], D);
    const int64_t at = section * a->num_seqs * x->kv_rows * x->l.kv_stride + key_at(x, b, g, key_pos);
    store_row(x, x->dkv, x->kv_type, at, stack[0][0]);
    store_row(x, x->dkv, x->kv_type, at + D, stack[0][1]);
}

static void key_grads(const problem *x, int64_t b, int g, int64_t key_pos)
{
    const int begin = x->l.slot_begin, end = x->l.slot_end;
    if (!x->a->shares_kv)
        key_grad(x, b, g, key_pos, begin, end, 0);
    for (int slot = begin; x->a->shares_kv && slot < end; slot++)
        key_grad(x, b, g, key_pos, slot, slot + 1, slot - begin);
}

static orth_status run(orth_ctx *ctx, problem *x)
{
    const orth_attr *a = x->a;
    if (x->key_end == 0)
        x->key_end = x->kv_rows = x->l.len;
    if (a->head_dim > MAX_D)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "head_dim=%d exceeds %d of the reference", a->head_dim, MAX_D);
    for (int64_t n = 0; n < a->num_seqs * x->l.rows; n++)
        for (int h = 0; h < a->heads; h++)
            query_grad(x, n, h);
    for (int64_t b = 0; b < a->num_seqs; b++)
        for (int64_t pos = x->key_begin; pos < x->key_end; pos++)
            for (int g = 0; g < a->kv_heads; g++)
                key_grads(x, b, g, pos);
    return ORTH_OK;
}

orth_status orth_ref_attention_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *in = call->in, *dqkv = &call->out[0];
    problem x = {.a = call->attr, .type = in[1].dtype, .l = orth_attn_whole(call->attr), .dout = in[0].data,
                 .qkv = in[1].data, .kv = in[1].data, .o = in[2].data, .lse = in[3].data, .doc = in[4].data,
                 .seq = in[5].data, .step = in[6].data, .dqkv = dqkv->data, .dkv = dqkv->data,
                 .kv_type = dqkv->dtype, .R = orth_attn_qkv_cols(call->attr)};
    return run(ctx, &x);
}

orth_status orth_ref_attention_part_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *in = call->in;
    problem x = {.a = call->attr, .type = in[1].dtype, .l = orth_attn_part(call->attr), .dout = in[0].data,
                 .qkv = in[1].data, .kv = in[2].data, .o = in[3].data, .lse = in[4].data, .doc = in[5].data,
                 .seq = in[6].data, .step = in[7].data, .dqkv = call->out[0].data, .dkv = call->out[1].data,
                 .kv_type = ORTH_F32, .R = orth_attn_qkv_cols(call->attr)};
    return run(ctx, &x);
}

orth_status orth_ref_attention_block_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *in = call->in;
    const orth_attr *a = call->attr;
    problem x = {.a = a, .type = in[1].dtype, .l = orth_attn_part(a), .dout = in[0].data, .qkv = in[1].data,
                 .kv = in[2].data, .o = in[3].data, .lse = in[4].data, .doc = in[5].data, .seq = in[6].data,
                 .step = in[7].data, .dkv = call->out[1].data, .kv_type = ORTH_F32, .R = orth_attn_qkv_cols(a),
                 .key_begin = a->key_begin, .key_end = a->key_begin + a->num_keys, .kv_rows = a->num_keys,
                 .dq = call->out[0].data, .dq_before = in[8].data};
    if (x.kv)
        return run(ctx, &x);
    orth_attn_carry(call, 8, 0);
    if (!x.dq_before)
        memset(x.dq, 0, orth_tensor_bytes(&call->out[0]));
    memset(x.dkv, 0, orth_tensor_bytes(&call->out[1]));
    return ORTH_OK;
}
