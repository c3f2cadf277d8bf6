/* layer.c -- see layer.h. */
#include "model/layer.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/attention.h"
#include "program/ir/quantise.h"

orth_layer_builder orth_layer_begin(const orth_model_config *c, const orth_model_shape *s)
{
    orth_layer_builder b = {.c = c, .s = s, .tp = ORTH_MAX(s->mesh.size[ORTH_GROUP_TP], 1)};
    b.kv_ranks = ORTH_MAX(b.tp / (int32_t)c->kv_heads, 1);
    b.sp = s->mesh.sequence_parallel && b.tp > 1;
    b.cp = ORTH_MAX(s->mesh.size[ORTH_GROUP_CP], 1);
    b.seq_len = s->seq_len / b.cp;
    b.token_parts = s->mode == ORTH_MODE_DECODE ? 1 : s->parts / b.cp;
    b.N = (int64_t)s->num_seqs * b.seq_len;
    b.outside = b.sp ? b.N / b.tp : b.N;
    return b;
}

static float train_rate(const orth_layer_builder *b, double rate)
{
    return b->s->mode == ORTH_MODE_TRAIN ? (float)rate : 0.0f;
}

orth_attr orth_layer_attr_inside(const orth_layer_builder *b)
{
    const orth_model_config *c = b->c;
    int32_t heads = (int32_t)c->heads / b->tp;
    int head_parts = orth_attn_head_parts(c->heads, c->kv_heads, b->s->parts);
    return (orth_attr){
        .num_seqs = b->s->num_seqs, .seq_len = b->seq_len, .token_parts = b->token_parts,
        .sum_leaves = b->cp > 1 ? 1u << ORTH_GROUP_CP : 0,
        .heads = heads, .kv_heads = ORTH_MAX((int32_t)c->kv_heads / b->tp, 1), .head_dim = (int32_t)c->head_dim,
        .head_parts = ORTH_MAX(head_parts / b->kv_ranks, 1), .shares_kv = b->kv_ranks > 1,
        .first_head = heads * b->s->mesh.pos[ORTH_GROUP_TP],
        .norm = c->family == ORTH_FAMILY_GPT2 ? ORTH_NORM_LAYER : ORTH_NORM_RMS,
        .eps = (float)c->norm_eps, .scale = (float)(1.0 / sqrt((double)c->head_dim)),
    };
}

orth_attr orth_layer_attr_outside(const orth_layer_builder *b)
{
    orth_attr attr = orth_layer_attr_inside(b);
    if (b->sp) {
        attr.seq_len /= b->tp;
        attr.token_parts /= b->tp;
        attr.sum_leaves |= 1u << ORTH_GROUP_TP;
    }
    return attr;
}

orth_param_desc orth_layer_weight(const orth_layer_builder *b, orth_weight_id id)
{
    return orth_weight_here(b->c, b->s, id);
}

orth_value orth_layer_param(orth_layer_builder *b, orth_weight_id id)
{
    if (!orth_weight_present(b->c, id))
        return ORTH_NO_VALUE;
    const orth_param_desc w = orth_layer_weight(b, id);
    return orth_graph_param(b->g, id, orth_weight_get(b->c, id).name, w.matrix ? b->s->compute : ORTH_F32, w.num_dims, w.dim);
}

/* The parameter of a weight that the layer cannot do without. */
static orth_value required(orth_layer_builder *b, orth_weight_id id)
{
    assert(orth_weight_present(b->c, id));
    return orth_layer_param(b, id);
}

/* "attn.qkv" of "attn.qkv.weight", and what follows it, in the graph's arena. */
static const char *derived_name(orth_layer_builder *b, orth_weight_id id, const char *suffix)
{
    const char *name = orth_weight_get(b->c, id).name, *end = strrchr(name, '.');
    const char *s = orth_arena_printf(b->g->ctx, &b->g->arena, "%.*s%s", (int)(end - name), name, suffix);
    if (!s)
        b->g->failed = ORTH_ERR_NOMEM;
    return s ? s : "";
}

orth_normed orth_layer_norm(orth_layer_builder *b, orth_weight_id gain_id, orth_weight_id shift_id, orth_value x, orth_value res)
{
    int64_t C = b->c->hidden;
    bool joins = res != ORTH_NO_VALUE;
    orth_attr attr = orth_layer_attr_outside(b);
    orth_value gain = required(b, gain_id), shift = orth_layer_param(b, shift_id);
    orth_value y = orth_graph_temp(b->g, derived_name(b, gain_id, ""), b->s->compute, b->outside, C);
    orth_value sum = joins ? orth_graph_temp(b->g, "residual", b->s->compute, b->outside, C) : ORTH_NO_VALUE;
    orth_value stats = orth_graph_temp(b->g, derived_name(b, gain_id, ".stats"), ORTH_F32, b->outside, 2);
    const orth_value in[] = {x, res, gain, shift}, out[] = {y, sum, stats};
    orth_graph_add(b->g, ORTH_OP_norm, &attr, 4, in, 3, out);
    return (orth_normed){y, joins ? sum : x};
}

orth_value orth_layer_enter(orth_layer_builder *b, orth_value x)
{
    if (b->tp == 1)
        return x;
    orth_attr attr = orth_layer_attr_inside(b);
    orth_value y = orth_graph_temp(b->g, "entered", b->s->compute, b->N, b->c->hidden);
    orth_graph_add(b->g, ORTH_OP_enter, &attr, 1, &x, 1, &y);
    return y;
}

/* The product of one of a layer's weights: node `linear`, or the operands quantised and `qlinear`. in: x, w, bias; out: y, pre. */
static void add_product(orth_layer_builder *b, orth_attr attr, const orth_value in[3], const orth_value out[2])
{
    if (b->s->products == ORTH_RECIPE_none || b->s->mode == ORTH_MODE_DECODE) {
        orth_graph_add(b->g, ORTH_OP_linear, &attr, 3, in, 2, out);
        return;
    }
    assert(b->num_products < ORTH_PRODUCTS_PER_LAYER);
    attr.recipe = b->s->products;
    attr.product = b->num_products++;
    const orth_quantised_value x = orth_quantise_activation(b->g, in[0], &attr), w = orth_quantise_weight(b->g, in[1], &attr);
    const orth_value q[] = {x.codes, w.codes, x.scales, w.scales, x.amax, w.amax, in[2]};
    orth_graph_add(b->g, ORTH_OP_qlinear, &attr, 7, q, 2, out);
}

orth_value orth_layer_column(orth_layer_builder *b, orth_weight_id weight, orth_weight_id bias, orth_value x, orth_act act)
{
    const orth_param_desc d = orth_layer_weight(b, weight);
    int64_t O = d.dim[0];
    orth_attr attr = orth_layer_attr_inside(b);
    assert(d.split_dim == 0);
    attr.act = act;
    attr.split = ORTH_SPLIT_WHOLE(d.dim[1]);
    attr.split_out = orth_param_split_here(&d);
    attr.replica_rows = d.replica_rows;
    attr.partial = b->tp > 1;
    orth_value w = required(b, weight), bv = orth_layer_param(b, bias);
    orth_value y = orth_graph_temp(b->g, derived_name(b, weight, ""), b->s->compute, b->N, O);
    bool saves_pre = act != ORTH_ACT_NONE && b->s->mode == ORTH_MODE_TRAIN;
    orth_value pre = saves_pre ? orth_graph_temp(b->g, derived_name(b, weight, ".pre"), b->s->compute, b->N, O)
                               : ORTH_NO_VALUE;
    const orth_value in[] = {x, w, bv}, out[] = {y, pre};
    add_product(b, attr, in, out);
    return y;
}

orth_value orth_layer_row(orth_layer_builder *b, orth_weight_id weight, orth_weight_id bias, orth_value x)
{
    const orth_param_desc d = orth_layer_weight(b, weight);
    int64_t C = d.dim[0];
    orth_attr attr = orth_layer_attr_inside(b), outside = orth_layer_attr_outside(b);
    assert(d.split_dim == 1);
    attr.split = orth_param_split_here(&d);
    attr.split_out = ORTH_SPLIT_WHOLE(C);
    orth_value w = required(b, weight), bv = orth_layer_param(b, bias);
    orth_value y = orth_graph_temp(b->g, derived_name(b, weight, ""), b->s->compute, b->outside, C);
    if (b->tp == 1) {
        const orth_value in[] = {x, w, bv}, out[] = {y, ORTH_NO_VALUE};
        add_product(b, attr, in, out);
        return y;
    }
    orth_value v = orth_graph_temp(b->g, derived_name(b, weight, ".part"), ORTH_F32, b->N, C);
    orth_value sum = orth_graph_temp(b->g, derived_name(b, weight, ".sum"), ORTH_F32, b->outside, C);
    const orth_value in[] = {x, w, ORTH_NO_VALUE}, out[] = {v, ORTH_NO_VALUE}, finish[] = {sum, bv};
    add_product(b, attr, in, out);
    orth_graph_add(b->g, ORTH_OP_leave, &attr, 1, &v, 1, &sum);
    orth_graph_add(b->g, ORTH_OP_round_bias, &outside, 2, finish, 1, &y);
    return y;
}

void orth_layer_in_chunks(orth_layer_builder *b, int32_t first)
{
    const bool wanted = b->s->ffn_chunk_rows > 0 && b->s->mode != ORTH_MODE_DECODE && !b->g->failed;
    for (int32_t i = first; wanted && i < b->g->num_nodes; i++)
        b->g->nodes[i].chunked = b->g->nodes[i].op == ORTH_OP_linear || b->g->nodes[i].op == ORTH_OP_swiglu;
}

static orth_value head_norm(orth_layer_builder *b, orth_value qkv, int64_t R)
{
    const orth_param_desc out = orth_layer_weight(b, ORTH_WEIGHT_attn_out); /* its columns are the heads */
    orth_attr attr = orth_layer_attr_inside(b);
    attr.split = orth_param_split_here(&out);
    attr.split.unit = 1;
    attr.replica_rows = orth_layer_weight(b, ORTH_WEIGHT_qkv).replica_rows;
    attr.partial = b->tp > 1; /* one gain for all heads, and each rank has some of them */
    orth_value q = required(b, ORTH_WEIGHT_q_norm_gain), k = required(b, ORTH_WEIGHT_k_norm_gain);
    orth_value y = orth_graph_temp(b->g, "qk_norm", b->s->compute, b->N, R);
    orth_value stats = orth_graph_temp(b->g, "qk_norm.stats", ORTH_F32, b->N, attr.heads + attr.kv_heads);
    const orth_value in[] = {qkv, q, k}, results[] = {y, stats};
    orth_graph_add(b->g, ORTH_OP_head_norm, &attr, 3, in, 2, results);
    return y;
}

static orth_value rotate(orth_layer_builder *b, orth_value qkv, int64_t R)
{
    orth_attr attr = orth_layer_attr_inside(b);
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
    orth_attr attr = orth_layer_attr_inside(b);
    attr.full = b->s->attention_full;
    orth_value o = orth_graph_temp(b->g, "attention", b->s->compute, b->N, attr.heads * c->head_dim);
    const orth_value in[] = {qkv, orth_graph_data(b->g, ORTH_DATA_PAST, ORTH_I32, B, 0, 0),
                             orth_graph_data(b->g, ORTH_DATA_CACHE_K, b->s->compute, B, S, W),
                             orth_graph_data(b->g, ORTH_DATA_CACHE_V, b->s->compute, B, S, W)};
    orth_graph_add(b->g, ORTH_OP_attention_cached, &attr, 4, in, 1, &o);
    return o;
}

/* How attention sees tokens that are on other ranks: `heads` ranks first trade heads against tokens (all-to-all); of
 * `tokens` ranks each then has a part of the tokens, and they gather keys and values. heads * tokens = cp. */
typedef struct {
    int32_t heads, tokens;
    orth_group trade, gather;
} token_exchange;

static token_exchange exchange_of(const orth_layer_builder *b)
{
    token_exchange x = {.heads = ORTH_MAX(b->s->mesh.cp_heads, 1), .trade = ORTH_GROUP_CP, .gather = ORTH_GROUP_CP};
    x.tokens = b->cp / x.heads;
    if (x.heads > 1 && x.tokens > 1) {
        x.trade = ORTH_GROUP_CP_HEADS;
        x.gather = ORTH_GROUP_CP_TOKENS;
    }
    return x;
}

/* `attr` inside attention: fewer heads and more tokens after a trade. */
static orth_attr attr_attention(const orth_layer_builder *b, const token_exchange *x)
{
    orth_attr attr = orth_layer_attr_inside(b);
    attr.heads /= x->heads;
    attr.kv_heads /= x->heads;
    attr.seq_len *= x->heads;
    attr.token_parts *= x->heads;
    attr.first_head += attr.heads * (b->s->mesh.pos[ORTH_GROUP_CP] % x->heads);
    return attr;
}

/* Fused rows of this rank's tokens and all its heads become rows of more tokens and some of the heads. */
static orth_value trade_heads(orth_layer_builder *b, const token_exchange *x, orth_value qkv, int64_t width)
{
    const orth_attr attr = orth_layer_attr_inside(b), over = {.group = x->trade};
    orth_value split = orth_graph_temp(b->g, "qkv.split", b->s->compute, b->N * x->heads, width);
    orth_value out = orth_graph_temp(b->g, "qkv.heads", b->s->compute, b->N * x->heads, width);
    orth_graph_add(b->g, ORTH_OP_heads_split, &attr, 1, &qkv, 1, &split);
    orth_graph_add(b->g, ORTH_OP_all_to_all, &over, 1, &split, 1, &out);
    return out;
}

/* The way back, for attention's output. */
static orth_value trade_tokens(orth_layer_builder *b, const token_exchange *x, orth_value o, int64_t width)
{
    const orth_attr attr = orth_layer_attr_inside(b), over = {.group = x->trade};
    orth_value split = orth_graph_temp(b->g, "attention.split", b->s->compute, b->N * x->heads, width);
    orth_value out = orth_graph_temp(b->g, "attention.mine", b->s->compute, b->N, width * x->heads);
    orth_graph_add(b->g, ORTH_OP_all_to_all, &over, 1, &o, 1, &split);
    orth_graph_add(b->g, ORTH_OP_heads_join, &attr, 1, &split, 1, &out);
    return out;
}

/* Keys and values of all tokens of the sequences, from the ranks that hold them. */
static orth_value gather_keys(orth_layer_builder *b, const token_exchange *x, const orth_attr *attr, orth_value qkv)
{
    const orth_attr over = {.group = x->gather};
    int64_t width = 2 * (int64_t)attr->kv_heads * attr->head_dim, rows = b->N * x->heads;
    orth_value mine = orth_graph_temp(b->g, "kv.mine", b->s->compute, rows, width);
    orth_value kv = orth_graph_temp(b->g, "kv", b->s->compute, rows * x->tokens, width);
    orth_graph_add(b->g, ORTH_OP_kv_pack, attr, 1, &qkv, 1, &mine);
    orth_graph_add(b->g, ORTH_OP_gather_rows, &over, 1, &mine, 1, &kv);
    return kv;
}

/* First visible positions of the queries of attention. */
static orth_value document_starts(orth_layer_builder *b, const token_exchange *x)
{
    if (!b->s->doc_mask)
        return ORTH_NO_VALUE;
    orth_value doc = orth_graph_data(b->g, ORTH_DATA_DOC_STARTS, ORTH_I32, b->N, 0, 0);
    if (x->heads == 1)
        return doc;
    const orth_attr over = {.group = x->trade};
    orth_value all = orth_graph_temp(b->g, "doc_starts.all", ORTH_I32, b->N * x->heads, 0);
    orth_graph_add(b->g, ORTH_OP_gather_rows, &over, 1, &doc, 1, &all);
    return all;
}

/* Which slots of the whole sequence the queries of attention are. */
static void place_queries(const orth_layer_builder *b, const token_exchange *x, orth_attr *attr)
{
    attr->full_len = b->s->seq_len;
    attr->slot_count = attr->token_parts;
    attr->slot_begin = attr->slot_count * (b->s->mesh.pos[ORTH_GROUP_CP] / x->heads);
    attr->token_parts = b->s->parts;
    attr->group = x->gather;
}

static orth_value attend(orth_layer_builder *b, orth_value qkv)
{
    const token_exchange x = exchange_of(b);
    orth_attr attr = attr_attention(b, &x);
    attr.site = ORTH_SITE_ATTENTION;
    attr.dropout = train_rate(b, b->c->attn_dropout);
    bool drops = attr.dropout > 0, ring = b->cp > 1 && b->s->mesh.cp_ring;
    if (x.heads > 1)
        qkv = trade_heads(b, &x, qkv, orth_attn_qkv_cols(&attr));
    orth_value kv = x.tokens > 1 && !ring ? gather_keys(b, &x, &attr, qkv) : ORTH_NO_VALUE;
    int64_t rows = b->N * x.heads, width = (int64_t)attr.heads * attr.head_dim;
    orth_value o = orth_graph_temp(b->g, "attention", b->s->compute, rows, width);
    orth_value lse = orth_graph_temp(b->g, "attention.lse", ORTH_F32, rows, attr.heads);
    const orth_value in[] = {
        qkv, kv, document_starts(b, &x),
        drops ? orth_graph_data(b->g, ORTH_DATA_SEQ, ORTH_I32, b->s->num_seqs, 0, 0) : ORTH_NO_VALUE,
        orth_graph_data(b->g, ORTH_DATA_STEP, ORTH_U8, sizeof(orth_step_values), 0, 0),
    };
    const orth_value whole[] = {qkv, in[2], in[3], in[4]}, out[] = {o, lse};
    if (x.tokens > 1 || attr.shares_kv)
        place_queries(b, &x, &attr);
    if (ring) {
        orth_graph_add(b->g, ORTH_OP_ring_attention, &attr, 4, whole, 2, out);
    } else if (x.tokens > 1) {
        orth_graph_add(b->g, ORTH_OP_attention_part, &attr, 5, in, 2, out);
    } else {
        orth_graph_add(b->g, b->s->attention_full ? ORTH_OP_attention_full : ORTH_OP_attention, &attr, 4, whole, 2, out);
    }
    return x.heads > 1 ? trade_tokens(b, &x, o, width) : o;
}

orth_value orth_layer_attention(orth_layer_builder *b, orth_value x)
{
    const orth_model_config *c = b->c;
    int64_t R = orth_layer_weight(b, ORTH_WEIGHT_qkv).dim[0];
    orth_value qkv = orth_layer_column(b, ORTH_WEIGHT_qkv, ORTH_WEIGHT_qkv_bias, orth_layer_enter(b, x), ORTH_ACT_NONE);
    if (c->qk_norm)
        qkv = head_norm(b, qkv, R);
    if (c->family != ORTH_FAMILY_GPT2)
        qkv = rotate(b, qkv, R);
    orth_value o = b->s->mode == ORTH_MODE_DECODE ? attend_cached(b, qkv) : attend(b, qkv);
    return orth_layer_row(b, ORTH_WEIGHT_attn_out, ORTH_WEIGHT_attn_out_bias, o);
}

orth_value orth_layer_dropout(orth_layer_builder *b, orth_value x, int32_t site)
{
    orth_attr attr = orth_layer_attr_outside(b);
    attr.dropout = train_rate(b, site == ORTH_SITE_EMBED ? b->c->embed_dropout : b->c->dropout);
    if (attr.dropout <= 0)
        return x;
    attr.site = site;
    orth_value y = orth_graph_temp(b->g, "dropout", b->s->compute, b->outside, b->c->hidden);
    const orth_value in[] = {x, orth_graph_data(b->g, ORTH_DATA_SEQ, ORTH_I32, b->s->num_seqs, 0, 0),
                             orth_graph_data(b->g, b->sp ? ORTH_DATA_POSITIONS_SP : ORTH_DATA_POSITIONS, ORTH_I32,
                                             b->outside, 0, 0),
                             orth_graph_data(b->g, ORTH_DATA_STEP, ORTH_U8, sizeof(orth_step_values), 0, 0)};
    orth_graph_add(b->g, ORTH_OP_dropout, &attr, 4, in, 1, &y);
    return y;
}

orth_value orth_layer_add(orth_layer_builder *b, orth_value a, orth_value c)
{
    orth_attr attr = orth_layer_attr_outside(b);
    orth_value y = orth_graph_temp(b->g, "block_out", b->s->compute, b->outside, b->c->hidden);
    const orth_value in[] = {a, c};
    orth_graph_add(b->g, ORTH_OP_add, &attr, 2, in, 1, &y);
    return y;
}
