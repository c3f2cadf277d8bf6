/* layer.c -- see layer.h. */
#include "model/layer.h"

#include <math.h>

orth_attr orth_layer_attr(const orth_layer_builder *b)
{
    const orth_model_config *c = b->c;
    return (orth_attr){
        .num_seqs = b->s->num_seqs, .seq_len = b->s->seq_len,
        .token_parts = b->s->mode == ORTH_MODE_DECODE ? 1 : b->s->parts,
        .heads = (int32_t)c->heads, .kv_heads = (int32_t)c->kv_heads, .head_dim = (int32_t)c->head_dim,
        .norm = c->family == ORTH_FAMILY_GPT2 ? ORTH_NORM_LAYER : ORTH_NORM_RMS,
        .eps = (float)c->norm_eps, .scale = (float)(1.0 / sqrt((double)c->head_dim)),
        .dropout = b->s->mode == ORTH_MODE_TRAIN ? (float)c->dropout : 0.0f,
    };
}

orth_split orth_layer_split(const orth_layer_builder *b, int64_t units, int64_t unit)
{
    return (orth_split){ORTH_SPLIT_EVEN, b->s->parts, units, unit, 1};
}

/* "attn.qkv" + ".weight", in the graph's arena. */
static const char *join(orth_layer_builder *b, const char *name, const char *suffix)
{
    const char *s = orth_arena_printf(b->g->ctx, &b->g->arena, "%s.%s", name, suffix);
    if (!s)
        b->g->failed = true;
    return s ? s : "";
}

orth_normed orth_layer_norm(orth_layer_builder *b, const char *name, orth_value x, orth_value res)
{
    int64_t C = b->c->hidden;
    bool layer_norm = b->c->family == ORTH_FAMILY_GPT2, joins = res != ORTH_NO_VALUE;
    orth_attr attr = orth_layer_attr(b);
    orth_value gain = orth_graph_param(b->g, join(b, name, "gain"), ORTH_F32, C, 0);
    orth_value shift = layer_norm ? orth_graph_param(b->g, join(b, name, "shift"), ORTH_F32, C, 0)
                                  : ORTH_NO_VALUE;
    orth_value y = orth_graph_temp(b->g, name, b->s->compute, b->N, C);
    orth_value sum = joins ? orth_graph_temp(b->g, "residual", b->s->compute, b->N, C) : ORTH_NO_VALUE;
    orth_value stats = orth_graph_temp(b->g, join(b, name, "stats"), ORTH_F32, b->N, 2);
    const orth_value in[] = {x, res, gain, shift}, out[] = {y, sum, stats};
    orth_graph_add(b->g, ORTH_OP_norm, &attr, 4, in, 3, out);
    return (orth_normed){y, joins ? sum : x};
}

orth_value orth_layer_linear(orth_layer_builder *b, const char *name, bool bias, orth_value x, int64_t K,
                             int64_t O, orth_act act, orth_split in_split, orth_split out_split)
{
    orth_attr attr = orth_layer_attr(b);
    attr.act = act;
    attr.split = in_split;
    attr.split_out = out_split;
    orth_value w = orth_graph_param(b->g, join(b, name, "weight"), b->s->compute, O, K);
    orth_value bv = bias ? orth_graph_param(b->g, join(b, name, "bias"), ORTH_F32, O, 0) : ORTH_NO_VALUE;
    orth_value y = orth_graph_temp(b->g, name, b->s->compute, b->N, O);
    bool saves_pre = act != ORTH_ACT_NONE && b->s->mode == ORTH_MODE_TRAIN;
    orth_value pre = saves_pre ? orth_graph_temp(b->g, join(b, name, "pre"), b->s->compute, b->N, O)
                               : ORTH_NO_VALUE;
    const orth_value in[] = {x, w, bv}, out[] = {y, pre};
    orth_graph_add(b->g, ORTH_OP_linear, &attr, 3, in, 2, out);
    return y;
}

static orth_value head_norm(orth_layer_builder *b, orth_value qkv, int64_t R)
{
    orth_attr attr = orth_layer_attr(b);
    int64_t D = b->c->head_dim;
    orth_value q = orth_graph_param(b->g, "attn.q_norm.gain", ORTH_F32, D, 0);
    orth_value k = orth_graph_param(b->g, "attn.k_norm.gain", ORTH_F32, D, 0);
    orth_value y = orth_graph_temp(b->g, "qk_norm", b->s->compute, b->N, R);
    orth_value stats = orth_graph_temp(b->g, "qk_norm.stats", ORTH_F32, b->N, b->c->heads + b->c->kv_heads);
    const orth_value in[] = {qkv, q, k}, out[] = {y, stats};
    orth_graph_add(b->g, ORTH_OP_head_norm, &attr, 3, in, 2, out);
    return y;
}

static orth_value rotate(orth_layer_builder *b, orth_value qkv, int64_t R)
{
    orth_attr attr = orth_layer_attr(b);
    int64_t rows = b->s->mode == ORTH_MODE_DECODE ? b->s->cache_rows : b->s->seq_len;
    orth_value y = orth_graph_temp(b->g, "rotated", b->s->compute, b->N, R);
    const orth_value in[] = {qkv, orth_graph_data(b->g, ORTH_DATA_POSITIONS, ORTH_I32, b->N, 0, 0),
                             orth_graph_data(b->g, ORTH_DATA_ROPE_TABLE, ORTH_F32, rows, b->c->head_dim, 0)};
    orth_graph_add(b->g, ORTH_OP_rope, &attr, 3, in, 1, &y);
    return y;
}

static orth_value attend_cached(orth_layer_builder *b, orth_value qkv)
{
    const orth_model_config *c = b->c;
    int64_t B = b->s->num_seqs, S = b->s->cache_rows, W = c->kv_heads * c->head_dim;
    orth_attr attr = orth_layer_attr(b);
    orth_value o = orth_graph_temp(b->g, "attention", b->s->compute, b->N, c->heads * c->head_dim);
    const orth_value in[] = {qkv, orth_graph_data(b->g, ORTH_DATA_PAST, ORTH_I32, B, 0, 0),
                             orth_graph_data(b->g, ORTH_DATA_CACHE_K, b->s->compute, B, S, W),
                             orth_graph_data(b->g, ORTH_DATA_CACHE_V, b->s->compute, B, S, W)};
    orth_graph_add(b->g, ORTH_OP_attention_cached, &attr, 4, in, 1, &o);
    return o;
}

static orth_value attend(orth_layer_builder *b, orth_value qkv)
{
    const orth_model_config *c = b->c;
    orth_attr attr = orth_layer_attr(b);
    attr.site = 3;
    bool drops = attr.dropout > 0;
    orth_value o = orth_graph_temp(b->g, "attention", b->s->compute, b->N, c->heads * c->head_dim);
    orth_value lse = orth_graph_temp(b->g, "attention.lse", ORTH_F32, b->N, c->heads);
    const orth_value in[] = {
        qkv,
        b->s->doc_mask ? orth_graph_data(b->g, ORTH_DATA_DOC_STARTS, ORTH_I32, b->N, 0, 0) : ORTH_NO_VALUE,
        drops ? orth_graph_data(b->g, ORTH_DATA_SEQ, ORTH_I32, b->s->num_seqs, 0, 0) : ORTH_NO_VALUE,
        orth_graph_data(b->g, ORTH_DATA_STEP, ORTH_U8, sizeof(orth_step_values), 0, 0),
    };
    const orth_value out[] = {o, lse};
    orth_graph_add(b->g, b->s->attention_full ? ORTH_OP_attention_full : ORTH_OP_attention, &attr, 4, in, 2, out);
    return o;
}

orth_value orth_layer_attention(orth_layer_builder *b, orth_value x)
{
    const orth_model_config *c = b->c;
    int64_t D = c->head_dim, G = c->heads / c->kv_heads, R = (c->heads + 2 * c->kv_heads) * D;
    orth_split qkv_rows = {ORTH_SPLIT_QKV, b->s->parts, c->heads, D, G};
    orth_value qkv = orth_layer_linear(b, "attn.qkv", c->qkv_bias, x, c->hidden, R, ORTH_ACT_NONE,
                                       ORTH_SPLIT_WHOLE(c->hidden), qkv_rows);
    if (c->qk_norm)
        qkv = head_norm(b, qkv, R);
    if (c->family != ORTH_FAMILY_GPT2)
        qkv = rotate(b, qkv, R);
    orth_value o = b->s->mode == ORTH_MODE_DECODE ? attend_cached(b, qkv) : attend(b, qkv);
    return orth_layer_linear(b, "attn.out", c->out_bias, o, c->heads * D, c->hidden, ORTH_ACT_NONE,
                             orth_layer_split(b, c->heads, D), ORTH_SPLIT_WHOLE(c->hidden));
}

orth_value orth_layer_dropout(orth_layer_builder *b, orth_value x, int32_t site)
{
    orth_attr attr = orth_layer_attr(b);
    if (attr.dropout <= 0)
        return x;
    attr.site = site;
    orth_value y = orth_graph_temp(b->g, "dropout", b->s->compute, b->N, b->c->hidden);
    const orth_value in[] = {x, orth_graph_data(b->g, ORTH_DATA_SEQ, ORTH_I32, b->s->num_seqs, 0, 0),
                             orth_graph_data(b->g, ORTH_DATA_POSITIONS, ORTH_I32, b->N, 0, 0),
                             orth_graph_data(b->g, ORTH_DATA_STEP, ORTH_U8, sizeof(orth_step_values), 0, 0)};
    orth_graph_add(b->g, ORTH_OP_dropout, &attr, 4, in, 1, &y);
    return y;
}

orth_value orth_layer_add(orth_layer_builder *b, orth_value a, orth_value c)
{
    orth_attr attr = orth_layer_attr(b);
    orth_value y = orth_graph_temp(b->g, "block_out", b->s->compute, b->N, b->c->hidden);
    const orth_value in[] = {a, c};
    orth_graph_add(b->g, ORTH_OP_add, &attr, 2, in, 1, &y);
    return y;
}
