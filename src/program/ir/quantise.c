/* quantise.c -- see quantise.h. */
#include "program/ir/quantise.h"

#define SIGNS 0xd7e8u /* bit i: token i of a run is negated before the transform; get_wgrad_sign_vector of TransformerEngine */

static orth_value temp(orth_graph *g, const char *prefix, orth_value of, orth_dtype dtype, int64_t rows, int64_t cols)
{
    if (g->failed)
        return 0;
    const char *name = orth_arena_printf(g->ctx, &g->arena, "%s%s", prefix, g->values[of].name);
    if (!name)
        g->failed = ORTH_ERR_NOMEM;
    return orth_graph_temp(g, name ? name : "", dtype, rows, cols);
}

/* Codes of x, and rows x cols scales. */
static orth_quantised_value values(orth_graph *g, orth_value x, orth_dtype scale, int64_t rows, int64_t cols)
{
    orth_quantised_value q = {0, 0, ORTH_NO_VALUE};
    if (g->failed)
        return q;
    q.codes = temp(g, "q.", x, ORTH_U8, g->values[x].dim[0], g->values[x].dim[1]);
    q.scales = temp(g, "scale.", x, scale, rows, cols);
    return q;
}

/* Completes the maxima over ranks, innermost group first. */
static orth_value largest_of_all(orth_graph *g, orth_value amax, uint32_t groups, int64_t B)
{
    for (int group = 0; group < ORTH_NUM_GROUPS; group++) {
        if (!(groups >> group & 1))
            continue;
        orth_value whole = temp(g, "all.", amax, ORTH_F32, B, 1);
        orth_graph_add(g, ORTH_OP_all_reduce, &(orth_attr){.group = (orth_group)group, .maximum = true}, 1, &amax, 1, &whole);
        amax = whole;
    }
    return amax;
}

/* Of each of attr->num_seqs sequences of attr->seq_len rows, of which ranks of attr->sum_leaves have some elements. */
static orth_value largest_of_tensors(orth_graph *g, orth_value x, const orth_attr *attr)
{
    orth_value amax = temp(g, "amax.", x, ORTH_F32, attr->num_seqs, 1);
    orth_graph_add(g, ORTH_OP_amax, attr, 1, &x, 1, &amax);
    return largest_of_all(g, amax, attr->sum_leaves, attr->num_seqs);
}

/* A scale for each of them. */
static orth_quantised_value quantise_tensor(orth_graph *g, orth_value x, const orth_attr *attr)
{
    const orth_value amax = largest_of_tensors(g, x, attr);
    const orth_quantised_value q = values(g, x, ORTH_F32, attr->num_seqs, 1);
    const orth_value in[] = {x, amax}, out[] = {q.codes, q.scales};
    orth_graph_add(g, ORTH_OP_quant_tensor, attr, 2, in, 2, out);
    return q;
}

/* By the scales of the steps before. */
static orth_quantised_value quantise_delayed(orth_graph *g, orth_value x, const orth_attr *attr)
{
    const orth_quantised_value q = values(g, x, ORTH_F32, attr->num_seqs, 1);
    const orth_value in[] = {x, orth_graph_data(g, ORTH_DATA_FP8_SCALES, ORTH_F32, ORTH_DELAYED_ROWS, 0, 0)};
    const orth_value out[] = {q.codes, q.scales, orth_graph_data(g, ORTH_DATA_FP8_AMAX, ORTH_F32, ORTH_DELAYED_ROWS, 0, 0)};
    orth_graph_add(g, ORTH_OP_quant_delayed, attr, 2, in, 3, out);
    return q;
}

/* One scale for each tensor. */
static orth_quantised_value quantise_whole(orth_graph *g, orth_value x, orth_recipe recipe, const orth_attr *attr)
{
    return orth_recipe_of(recipe)->delayed ? quantise_delayed(g, x, attr) : quantise_tensor(g, x, attr);
}

static uint32_t if_shared(bool shared)
{
    return shared ? 1u << ORTH_GROUP_TP : 0;
}

/* Ranks of tensor parallelism have some columns of x, or of dy, and rows of w: those with the other one whole. */
static bool contracts_some(const orth_attr *attr)
{
    return attr->split.of > attr->split.parts;
}

/* In the order of their rows of delayed scales. */
typedef enum { ACTIVATION = 0, WEIGHT, GRADIENT } tensor;

/* What quantisers know of x, of which the ranks of `groups` have some elements. */
static orth_attr tensor_attr(const orth_attr *attr, tensor what, uint32_t groups)
{
    const orth_recipe_row *r = orth_recipe_of(attr->recipe);
    const orth_float8 type = what == GRADIENT ? r->backward : r->forward;
    return (orth_attr){.num_seqs = attr->num_seqs, .seq_len = attr->seq_len, .sum_leaves = groups, .float8 = type,
                       .power_of_2 = r->power_of_2, .row = ORTH_PRODUCT_TENSORS * attr->product + what};
}

static orth_attr activation_attr(const orth_attr *attr)
{
    return tensor_attr(attr, ACTIVATION, attr->sum_leaves | if_shared(contracts_some(attr)));
}

/* by_tokens: to be contracted so. What is rounded at random has a number in its layer. */
static orth_attr gradient_attr(const orth_attr *attr, bool by_tokens)
{
    orth_attr a = tensor_attr(attr, GRADIENT, attr->sum_leaves | if_shared(attr->partial));
    orth_split whole = attr->split_out;
    if (whole.of > 0)
        whole.parts = whole.of;
    whole.first = whole.of = 0;
    a.first_col = orth_split_bound(&whole, attr->split_out.first);
    a.use = 2 * attr->product + by_tokens;
    return a;
}

static orth_tile_axis tiles(int64_t tile, const orth_split *split)
{
    return (orth_tile_axis){.tile = tile, .split = split};
}

/* Scales of tiles under those of tensors. */
static orth_quantised_value quantise_two_levels(orth_graph *g, orth_value x, const orth_attr *attr, orth_quantised_value q, bool at_random)
{
    q.amax = largest_of_tensors(g, x, attr);
    const int64_t N = (int64_t)attr->num_seqs * attr->seq_len;
    const orth_value in[] = {x, q.amax, at_random ? orth_graph_data(g, ORTH_DATA_SEQ, ORTH_I32, attr->num_seqs, 0, 0) : ORTH_NO_VALUE,
                             at_random ? orth_graph_data(g, ORTH_DATA_POSITIONS, ORTH_I32, N, 0, 0) : ORTH_NO_VALUE,
                             orth_graph_data(g, ORTH_DATA_STEP, ORTH_U8, sizeof(orth_step_values), 0, 0)};
    const orth_value out[] = {q.codes, q.scales};
    orth_graph_add(g, ORTH_OP_quant_nvfp4, attr, 5, in, 2, out);
    return q;
}

/* Tiles of rows x cols elements in the parts of both splits. */
static orth_quantised_value quantise_tiles(orth_graph *g, orth_value x, orth_scale scale, orth_attr attr, orth_tile_axis rows, orth_tile_axis cols,
                                           bool at_random)
{
    if (g->failed)
        return (orth_quantised_value){0, 0, ORTH_NO_VALUE};
    rows.n = g->values[x].dim[0];
    cols.n = g->values[x].dim[1];
    attr.tile_rows = (int32_t)rows.tile;
    attr.tile_cols = (int32_t)cols.tile;
    attr.row_split = rows.split ? *rows.split : ORTH_SPLIT_WHOLE(rows.n);
    attr.col_split = cols.split ? *cols.split : ORTH_SPLIT_WHOLE(cols.n);
    const orth_quantised_value q = values(g, x, orth_scale_dtype(scale), orth_num_tiles(&rows), orth_num_tiles(&cols));
    if (scale == ORTH_SCALE_E4M3)
        return quantise_two_levels(g, x, &attr, q, at_random);
    const orth_value out[] = {q.codes, q.scales};
    orth_graph_add(g, scale == ORTH_SCALE_E8M0 ? ORTH_OP_quant_mx : ORTH_OP_quant_blocks, &attr, 1, &x, 2, out);
    return q;
}

static orth_quantised_value quantise_tokens(orth_graph *g, orth_value x, const orth_attr *product, orth_attr attr, bool at_random)
{
    const orth_recipe_row *r = orth_recipe_of(product->recipe);
    const orth_split tokens = {ORTH_SPLIT_TOKENS, product->token_parts, product->seq_len, 1, product->num_seqs, 0, 0};
    if (r->at_random && !g->failed) {
        attr.signs = SIGNS;
        const orth_value y = temp(g, "hadamard.", x, g->values[x].dtype, g->values[x].dim[0], g->values[x].dim[1]);
        orth_graph_add(g, ORTH_OP_hadamard, &attr, 1, &x, 1, &y);
        x = y;
    }
    return quantise_tiles(g, x, r->scale, attr, tiles(r->tile_k, &tokens), tiles(1, NULL), at_random);
}

/* A weight whose tiles are tile_rows x tile_cols. */
static orth_quantised_value quantise_weight(orth_graph *g, orth_value w, const orth_attr *attr, int32_t tile_rows, int32_t tile_cols)
{
    const orth_recipe_row *r = orth_recipe_of(attr->recipe);
    orth_attr a = tensor_attr(attr, WEIGHT, if_shared(contracts_some(attr) || attr->partial));
    a.num_seqs = 1;
    a.seq_len = g->failed ? 0 : (int32_t)g->values[w].dim[0];
    return r->tile_k == 0 ? quantise_whole(g, w, attr->recipe, &a)
                          : quantise_tiles(g, w, r->scale, a, tiles(tile_rows, &attr->split_out), tiles(tile_cols, &attr->split), false);
}

orth_quantised_value orth_quantise_weight(orth_graph *g, orth_value w, const orth_attr *attr)
{
    const orth_recipe_row *r = orth_recipe_of(attr->recipe);
    return quantise_weight(g, w, attr, r->tile_w, r->tile_k);
}

orth_quantised_value orth_quantise_weight_back(orth_graph *g, orth_value w, const orth_attr *attr)
{
    const orth_recipe_row *r = orth_recipe_of(attr->recipe);
    return quantise_weight(g, w, attr, r->tile_k, r->tile_w);
}

orth_quantised_value orth_quantise_activation(orth_graph *g, orth_value x, const orth_attr *attr)
{
    const orth_recipe_row *r = orth_recipe_of(attr->recipe);
    const orth_attr a = activation_attr(attr);
    return r->tile_k == 0 ? quantise_whole(g, x, attr->recipe, &a) : quantise_tiles(g, x, r->scale, a, tiles(1, NULL), tiles(r->tile_k, &attr->split), false);
}

orth_quantised_value orth_quantise_gradient(orth_graph *g, orth_value dy, const orth_attr *attr)
{
    const orth_recipe_row *r = orth_recipe_of(attr->recipe);
    const orth_attr a = gradient_attr(attr, false);
    return r->tile_k == 0 ? quantise_whole(g, dy, attr->recipe, &a)
                          : quantise_tiles(g, dy, r->scale, a, tiles(1, NULL), tiles(r->tile_k, &attr->split_out), r->at_random);
}

orth_quantised_value orth_quantise_activation_tokens(orth_graph *g, orth_value x, const orth_attr *attr)
{
    return quantise_tokens(g, x, attr, activation_attr(attr), false);
}

orth_quantised_value orth_quantise_gradient_tokens(orth_graph *g, orth_value dy, const orth_attr *attr)
{
    return quantise_tokens(g, dy, attr, gradient_attr(attr, true), orth_recipe_of(attr->recipe)->at_random);
}

orth_value orth_quantised_from(const orth_graph *g, orth_value codes)
{
    return g->nodes[g->values[codes].producer].in[0];
}
