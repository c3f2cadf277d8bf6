/* attention.c -- attention, plainly: one query row at a time, as attention.h defines it. */
#include "kernels/attention.h"

#include <float.h>
#include <math.h>

#include "kernels/mathf.h"

#define MAX_D 1024 /* the reference keeps rows on the stack */
#define KB ORTH_ATTN_BLOCK

/* One query row and the keys it sees. */
typedef struct {
    const orth_attr *attr;
    orth_dtype type;
    const void *q;               /* element q_at + d */
    int64_t q_at;
    const void *k, *v;           /* element of key position p: at + row(p)*stride + d */
    int64_t k_at, v_at, kv_stride;
    int parts;                   /* fold slots of the key rows; 1: row = position */
    int64_t len;                 /* keys of the sequence (what folding needs) */
    int64_t pos, first;          /* position of the row, first visible key */
    orth_attn_drop drop;         /* rate 0: none */
} query;

static float product(const query *x, int64_t key)
{
    int64_t at = x->k_at + orth_fold_row(x->len, x->parts, key) * x->kv_stride;
    float s = 0.0f;
    for (int d = 0; d < x->attr->head_dim; d++)
        s = fmaf(orth_load_f32(x->q, x->type, x->q_at + d), orth_load_f32(x->k, x->type, at + d), s);
    return s;
}

static float score(const query *x, int64_t key)
{
    return product(x, key) * x->attr->scale;
}

static float drop_factor(const query *x, int64_t key)
{
    float f[4] = {1, 1, 1, 1};
    if (x->drop.rate > 0)
        orth_attn_drop_keys(&x->drop, key / 4 * 4, f);
    return f[key % 4];
}

static void add_value(const query *x, float *o, float weight, int64_t key)
{
    int64_t at = x->v_at + orth_fold_row(x->len, x->parts, key) * x->kv_stride;
    for (int d = 0; d < x->attr->head_dim; d++)
        o[d] = fmaf(weight, orth_load_f32(x->v, x->type, at + d), o[d]);
}

/* What one row carries from key block to key block. */
typedef struct {
    float m, l;
} running;

/* Takes in the key blocks within positions [begin, end), multiples of KB, of which the row sees something. */
static void visit(const query *x, int64_t begin, int64_t end, running *run, float *o)
{
    const int D = x->attr->head_dim;
    const float c = x->attr->scale * ORTH_LOG2E;
    float m = run->m, l = run->l;
    for (int64_t k0 = ORTH_MAX(x->first / KB * KB, begin); k0 <= x->pos && k0 < end; k0 += KB) {
        int lo = (int)ORTH_MAX(x->first - k0, 0), hi = (int)ORTH_MIN(x->pos - k0 + 1, KB);
        float e[KB] = {0}, lane[16] = {0}, top = -INFINITY;
        for (int k = lo; k < hi; k++) {
            e[k] = product(x, k0 + k);
            top = ORTH_MAX(top, e[k] * c);
        }
        const float old = m;
        m = top > old + ORTH_ATTN_SLACK ? top : old;
        const float a = old == -INFINITY ? 1.0f : orth_exp2f(old - m);
        for (int d = 0; d < D; d++)
            o[d] *= a;
        for (int k = lo; k < hi; k++) {
            e[k] = orth_exp2f(fmaf(e[k], c, -m));
            add_value(x, o, x->drop.rate > 0 ? e[k] * drop_factor(x, k0 + k) : e[k], k0 + k);
        }
        for (int k = 0; k < KB; k++)
            lane[k % 16] += e[k];
        l = fmaf(l, a, orth_lanes_fold(lane));
    }
    *run = (running){m, l};
}

static float end(const running *run, float *o, int D)
{
    for (int d = 0; d < D; d++)
        o[d] = o[d] / run->l + 0.0f;
    return fmaf(run->m, ORTH_LN2, orth_logf(run->l));
}

/* o[0 .. head_dim) of one row by the online softmax; returns its lse. */
static float attend(const query *x, float *o)
{
    running run = {-INFINITY, 0.0f};
    for (int d = 0; d < x->attr->head_dim; d++)
        o[d] = 0.0f;
    visit(x, 0, x->pos + 1, &run, o);
    return end(&run, o, x->attr->head_dim);
}

/* The same mathematics with the softmax over the whole row, keys ascending. Scores are made again
 * instead of kept: the reference owns no memory. */
static float attend_full(const query *x, float *o)
{
    const int D = x->attr->head_dim;
    float m = -INFINITY, l = 0.0f;
    for (int64_t k = x->first; k <= x->pos; k++)
        m = ORTH_MAX(m, score(x, k));
    for (int64_t k = x->first; k <= x->pos; k++)
        l += orth_expf(score(x, k) - m);
    for (int d = 0; d < D; d++)
        o[d] = 0.0f;
    for (int64_t k = x->first; k <= x->pos; k++) {
        float p = orth_expf(score(x, k) - m) / l;
        add_value(x, o, x->drop.rate > 0 ? p * drop_factor(x, k) : p, k);
    }
    return m + orth_logf(l);
}

/* kv: what keys and values lie in; rest: doc, seq, step. */
static orth_status run(orth_ctx *ctx, const orth_op_call *call, const orth_attn_place *l, const orth_tensor *kv,
                       const orth_tensor *rest, float (*fn)(const query *, float *))
{
    const orth_attr *a = call->attr;
    const int D = a->head_dim, H = a->heads;
    const orth_tensor *qkv = &call->in[0], *o = &call->out[0];
    const int32_t *doc = rest[0].data, *seq = rest[1].data;
    const int64_t R = orth_attn_qkv_cols(a);
    if (D > MAX_D)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "head_dim=%d exceeds %d of the reference", D, MAX_D);
    for (int64_t n = 0; n < a->num_seqs * l->rows; n++) {
        int64_t b = n / l->rows, pos = orth_attn_pos(l, n % l->rows);
        for (int h = 0; h < H; h++) {
            const int64_t at = b * l->len * l->kv_stride + h / (H / a->kv_heads) * l->kv_step;
            query x = {.attr = a, .type = qkv->dtype, .q = qkv->data, .q_at = n * R + orth_attn_q_col(a, h),
                       .k = kv->data, .v = kv->data, .k_at = at, .v_at = at + D, .kv_stride = l->kv_stride,
                       .parts = l->parts, .len = l->len, .pos = pos, .first = doc ? doc[n] : 0};
            if (a->dropout > 0)
                x.drop = orth_attn_drop_row(a, rest[2].data, h, seq ? seq[b] : (int32_t)b, pos);
            float row[MAX_D];
            ((float *)call->out[1].data)[n * H + h] = fn(&x, row);
            for (int d = 0; d < D; d++)
                orth_store_f32(o->data, o->dtype, (n * H + h) * D + d, row[d]);
        }
    }
    return ORTH_OK;
}

orth_status orth_ref_attention(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attn_place l = orth_attn_whole(call->attr);
    return run(ctx, call, &l, &call->in[0], call->in + 1, attend);
}

orth_status orth_ref_attention_part(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attn_place l = orth_attn_part(call->attr);
    return run(ctx, call, &l, &call->in[1], call->in + 2, attend);
}

orth_status orth_ref_attention_block(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attr *a = call->attr;
    const orth_attn_place l = orth_attn_part(a);
    const int D = a->head_dim, H = a->heads;
    const orth_tensor *qkv = &call->in[0], *kv = &call->in[1];
    const int32_t *doc = call->in[2].data, *seq = call->in[3].data;
    if (D > MAX_D)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "head_dim=%d exceeds %d of the reference", D, MAX_D);
    for (int64_t i = 0; i < a->num_seqs * l.rows * H; i++) {
        const int64_t n = i / H, b = n / l.rows, pos = orth_attn_pos(&l, n % l.rows);
        const int h = (int)(i % H);
        const int64_t at = (b * a->num_keys - a->key_begin) * l.kv_stride + h / (H / a->kv_heads) * l.kv_step;
        query x = {.attr = a, .type = qkv->dtype, .q = qkv->data,
                   .q_at = n * orth_attn_qkv_cols(a) + orth_attn_q_col(a, h), .k = kv->data, .v = kv->data, .k_at = at,
                   .v_at = at + D, .kv_stride = l.kv_stride, .parts = 1, .len = l.len, .pos = pos,
                   .first = doc ? doc[n] : 0};
        if (a->dropout > 0)
            x.drop = orth_attn_drop_row(a, call->in[4].data, h, seq ? seq[b] : (int32_t)b, pos);
        float *o = (float *)call->out[0].data + i * D, *ml = (float *)call->out[1].data + 2 * i;
        running run = {-FLT_MAX, 0.0f};
        if (call->in[5].data) {
            memmove(o, (const float *)call->in[5].data + i * D, (size_t)D * sizeof *o);
            run = (running){((const float *)call->in[6].data)[2 * i], ((const float *)call->in[6].data)[2 * i + 1]};
        } else {
            memset(o, 0, (size_t)D * sizeof *o);
        }
        visit(&x, a->key_begin, a->key_begin + a->num_keys, &run, o);
        ml[0] = run.m;
        ml[1] = run.l;
    }
    return ORTH_OK;
}

orth_status orth_ref_attention_end(orth_ctx *ctx, const orth_op_call *call)
{
    const int D = call->attr->head_dim;
    if (D > MAX_D)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "head_dim=%d exceeds %d of the reference", D, MAX_D);
    for (int64_t i = 0; i < call->out[0].dim[0] * call->attr->heads; i++) {
        const float *ml = (const float *)call->in[1].data + 2 * i;
        const running run = {ml[0], ml[1]};
        float row[MAX_D];
        memcpy(row, (const float *)call->in[0].data + i * D, (size_t)D * sizeof *row);
        ((float *)call->out[1].data)[i] = end(&run, row, D);
        for (int d = 0; d < D; d++)
            orth_store_f32(call->out[0].data, call->out[0].dtype, i * D + d, row[d]);
    }
    return ORTH_OK;
}

orth_status orth_ref_attention_full(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attn_place l = orth_attn_whole(call->attr);
    return run(ctx, call, &l, &call->in[0], call->in + 1, attend_full);
}

orth_status orth_ref_attention_cached(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attr *a = call->attr;
    const int D = a->head_dim, H = a->heads, KV = a->kv_heads;
    const orth_tensor *qkv = &call->in[0], *o = &call->out[0];
    const int32_t *past = call->in[1].data;
    const int64_t R = orth_attn_qkv_cols(a), S = call->in[2].dim[1], n = qkv->dim[0] / call->in[2].dim[0];
    if (D > MAX_D)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "head_dim=%d exceeds %d of the reference", D, MAX_D);
    for (int64_t row = 0; row < qkv->dim[0]; row++) {
        const int64_t b = row / n, pos = past[b] + row % n;
        for (int64_t c = 0; c < (int64_t)KV * D; c++)
            for (int kv = 0; kv < 2; kv++) {
                int64_t from = row * R + orth_attn_k_col(a, (int)(c / D)) + kv * D + c % D;
                orth_store_f32(call->in[2 + kv].data, qkv->dtype, (b * S + pos) * KV * D + c,
                               orth_load_f32(qkv->data, qkv->dtype, from));
            }
        for (int h = 0; h < H; h++) {
            int64_t at = b * S * KV * D + h / (H / KV) * D;
            query x = {.attr = a, .type = qkv->dtype, .q = qkv->data, .q_at = row * R + orth_attn_q_col(a, h),
                       .k = call->in[2].data, .v = call->in[3].data, .k_at = at, .v_at = at,
                       .kv_stride = (int64_t)KV * D, .parts = 1, .len = S, .pos = pos};
            float out[MAX_D];
            if (a->full)
                attend_full(&x, out);
            else
                attend(&x, out);
            for (int d = 0; d < D; d++)
                orth_store_f32(o->data, o->dtype, (row * H + h) * D + d, out[d]);
        }
    }
    return ORTH_OK;
}
