/* quantise.c -- see quantise.h. */
#include "program/ir/quantise.h"

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
    orth_quantised_value q = {0, 0};
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

/* A scale for each of attr->num_seqs sequences of attr->seq_len rows, of which ranks of `groups` have some elements. */
static orth_quantised_value quantise_tensor(orth_graph *g, orth_value x, const orth_attr *attr)
{
    if (g->failed)
        return (orth_quantised_value){0, 0};
    const int64_t B = attr->num_seqs;
    orth_value amax = temp(g, "amax.", x, ORTH_F32, B, 1);
    orth_graph_add(g, ORTH_OP_amax, attr, 1, &x, 1, &amax);
    amax = largest_of_all(g, amax, attr->sum_leaves, B);
    const orth_quantised_value q = values(g, x, ORTH_F32, B, 1);
    const orth_value in[] = {x, amax}, out[] = {q.codes, q.scales};
    orth_graph_add(g, ORTH_OP_quant_tensor, attr, 2, in, 2, out);
    return q;
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

static orth_attr tensor_attr(const orth_attr *attr, orth_float8 type, uint32_t groups)
{
    return (orth_attr){.num_seqs = attr->num_seqs, .seq_len = attr->seq_len, .sum_leaves = groups, .float8 = type,
                       .power_of_2 = orth_recipe_of(attr->recipe)->power_of_2};
}

static orth_tile_axis tiles(int64_t tile, const orth_split *split)
{
    return (orth_tile_axis){.tile = tile, .split = split};
}

/* Tiles of rows x cols elements in the parts of both splits. */
static orth_quantised_value quantise_tiles(orth_graph *g, orth_value x, orth_recipe recipe, orth_float8 type, orth_tile_axis rows, orth_tile_axis cols)
{
    const orth_recipe_row *r = orth_recipe_of(recipe);
    if (g->failed)
        return (orth_quantised_value){0, 0};
    rows.n = g->values[x].dim[0];
    cols.n = g->values[x].dim[1];
    const orth_attr attr = {.float8 = type, .power_of_2 = r->power_of_2, .tile_rows = (int32_t)rows.tile, .tile_cols = (int32_t)cols.tile,
                            .row_split = rows.split ? *rows.split : ORTH_SPLIT_WHOLE(rows.n), .col_split = cols.split ? *cols.split : ORTH_SPLIT_WHOLE(cols.n)};
    const orth_quantised_value q = values(g, x, r->scale, orth_num_tiles(&rows), orth_num_tiles(&cols));
    const orth_value out[] = {q.codes, q.scales};
    orth_graph_add(g, r->scale == ORTH_U8 ? ORTH_OP_quant_mx : ORTH_OP_quant_blocks, &attr, 1, &x, 2, out);
    return q;
}

static orth_quantised_value quantise_tokens(orth_graph *g, orth_value x, const orth_attr *attr, orth_float8 type)
{
    const orth_split tokens = {ORTH_SPLIT_TOKENS, attr->token_parts, attr->seq_len, 1, attr->num_seqs, 0, 0};
    return quantise_tiles(g, x, attr->recipe, type, tiles(orth_recipe_of(attr->recipe)->tile_k, &tokens), tiles(1, NULL));
}

/* A weight whose tiles are tile_rows x tile_cols. */
static orth_quantised_value quantise_weight(orth_graph *g, orth_value w, const orth_attr *attr, int32_t tile_rows, int32_t tile_cols)
{
    const orth_recipe_row *r = orth_recipe_of(attr->recipe);
    if (r->tile_k > 0)
        return quantise_tiles(g, w, attr->recipe, r->forward, tiles(tile_rows, &attr->split_out), tiles(tile_cols, &attr->split));
    orth_attr q = tensor_attr(attr, r->forward, if_shared(contracts_some(attr) || attr->partial));
    q.num_seqs = 1;
    q.seq_len = g->failed ? 0 : (int32_t)g->values[w].dim[0];
    return quantise_tensor(g, w, &q);
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
    const orth_attr tensor = tensor_attr(attr, r->forward, attr->sum_leaves | if_shared(contracts_some(attr)));
    return r->tile_k == 0 ? quantise_tensor(g, x, &tensor)
                          : quantise_tiles(g, x, attr->recipe, r->forward, tiles(1, NULL), tiles(r->tile_k, &attr->split));
}

orth_quantised_value orth_quantise_gradient(orth_graph *g, orth_value dy, const orth_attr *attr)
{
    const orth_recipe_row *r = orth_recipe_of(attr->recipe);
    const orth_attr tensor = tensor_attr(attr, r->backward, attr->sum_leaves | if_shared(attr->partial));
    return r->tile_k == 0 ? quantise_tensor(g, dy, &tensor)
                          : quantise_tiles(g, dy, attr->recipe, r->backward, tiles(1, NULL), tiles(r->tile_k, &attr->split_out));
}

orth_quantised_value orth_quantise_activation_tokens(orth_graph *g, orth_value x, const orth_attr *attr)
{
    return quantise_tokens(g, x, attr, orth_recipe_of(attr->recipe)->forward);
}

orth_quantised_value orth_quantise_gradient_tokens(orth_graph *g, orth_value dy, const orth_attr *attr)
{
    return quantise_tokens(g, dy, attr, orth_recipe_of(attr->recipe)->backward);
}

orth_value orth_quantised_from(const orth_graph *g, orth_value codes)
{
    return g->nodes[g->values[codes].producer].in[0];
}
