/* gather.c -- what the nodes of a block read of its parameters, where kernels work: copies of what is elsewhere (far.c), and under
 * ZeRO 3 whole parameters in transient buffers, gathered in one collective for each of their types.
 *
 * What is gathered together is a unit (comm_policy.h). Its buffers, b->gathered, are those that nodes read until another unit is
 * opened or the action ends; they live as long as something reads them. What is gathered to stay (reshard_after_forward: false) is
 * gathered once in a step.
 */
#include "program/lower/build.h"

/* ---- units ---- */

/* Elements of the block's parameters that are gathered for each use. */
static int64_t gathered_elems(const orth_builder *b, const orth_block *block)
{
    int64_t n = 0;
    for (int32_t i = 0; i < block->graph->num_params; i++)
        n += orth_build_is_gathered(b, block->param_index[i]) ? orth_build_elems(b, block->param_index[i]) : 0;
    return n;
}

static const orth_chunk *chunk_of(const orth_compile_spec *s, int32_t layer)
{
    const orth_chunk *c = s->chunks;
    while (layer < c->first_layer || layer >= c->first_layer + c->num_layers)
        c++;
    return c;
}

static orth_unit unit_of_layer(const orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    const bool by_elems = s->comm.unit == ORTH_UNIT_ELEMS;
    if (!by_elems && s->comm.unit != ORTH_UNIT_LAYERS)
        return (orth_unit){&s->layers[b->layer], 1};
    const orth_chunk *c = chunk_of(s, b->layer);
    int32_t first = c->first_layer, end = first;
    while (end <= b->layer) {
        int64_t size = 0;
        for (first = end; end < c->first_layer + c->num_layers && size < s->comm.unit_size; end++)
            size += by_elems ? gathered_elems(b, &s->layers[end]) : 1;
    }
    return (orth_unit){&s->layers[first], end - first};
}

static orth_unit unit_of(const orth_builder *b, const orth_block *block)
{
    return block->kind == ORTH_BLOCK_LAYER ? unit_of_layer(b) : (orth_unit){block, 1};
}

static bool is_in_halves(const orth_builder *b, const orth_block *block)
{
    return b->spec->comm.unit == ORTH_UNIT_HALF && block->kind == ORTH_BLOCK_LAYER;
}

/* ---- gathering ---- */

static void gather_param(orth_builder *b, int64_t index)
{
    if (!orth_build_is_gathered(b, index) || b->gathered[index] >= 0)
        return;
    const orth_operand shard = orth_build_param(b, index), whole = orth_build_temp(b, "gathered", shard);
    orth_bucket *k = orth_build_gathers(b, index, shard.dtype);
    const orth_bucket_item item = {.use = 2 * index,
                                   .in = orth_far_bring(b, orth_build_own_elems(b, shard.buffer, shard.dtype, index)),
                                   .out = orth_build_vector(whole.buffer, shard.dtype, 0, orth_build_elems(b, index))};
    b->gathered[index] = whole.buffer;
    if (!orth_bucket_fits(b, k, &item))
        orth_bucket_emit(b, k);
    k->group = orth_route_find(orth_build_route(b, index), ORTH_ROUTE_GATHER_WEIGHT)->over;
    orth_bucket_add(k, &item);
}

void orth_gather_close(orth_builder *b)
{
    for (int32_t k = 0; k < b->open.num && !b->spec->comm.keep_gathered; k++)
        for (int32_t i = 0; i < b->open.blocks[k].graph->num_params; i++)
            b->gathered[b->open.blocks[k].param_index[i]] = -1;
    b->open.num = 0;
}

/* A unit of one block is gathered anew for each use. */
static void open_unit(orth_builder *b, const orth_block *block)
{
    const orth_unit u = unit_of(b, block);
    if (b->open.num > 1 && b->open.blocks == u.blocks)
        return;
    orth_gather_close(b);
    b->open = u;
    if (is_in_halves(b, block))
        return;
    for (int32_t k = 0; k < u.num; k++)
        for (int32_t i = 0; i < u.blocks[k].graph->num_params; i++)
            gather_param(b, u.blocks[k].param_index[i]);
    orth_bucket_emit_gathers(b);
}

static orth_operand whole_of(const orth_builder *b, int64_t index)
{
    orth_operand whole = orth_build_param(b, index);
    whole.buffer = b->gathered[index];
    return whole;
}

/* ---- what a block reads ---- */

/* Whether nodes from `first` on, or those that are made again for them, read a value. */
static bool is_read(const orth_block *block, const orth_block_env *env, orth_value v, int32_t first)
{
    const orth_graph *g = block->graph;
    for (int32_t i = 0; i < g->num_nodes; i++) {
        const bool again = i < g->num_forward && ((env->again && env->again[i]) || g->nodes[i].chunked);
        for (int k = 0; k < g->nodes[i].num_in; k++)
            if (g->nodes[i].in[k] == v && (i >= first || again))
                return true;
    }
    return false;
}

void orth_gather_block(orth_builder *b, const orth_block *block, orth_block_env *env, int32_t first)
{
    const orth_operand unread = {.buffer = -2};
    bool any = false;
    for (orth_value v = 0; v < block->graph->num_values; v++) {
        const orth_value_info *info = &block->graph->values[v];
        const int64_t index = info->kind == ORTH_VALUE_PARAM ? block->param_index[info->slot] : -1;
        if (index >= 0 && orth_build_is_gathered(b, index))
            any = true;
        else if (index >= 0 && orth_is_far(b, b->copy[index]))
            env->of[v] = is_read(block, env, v, first) ? orth_far_bring(b, orth_build_param(b, index)) : unread;
    }
    if (!any || b->p->failed)
        return;
    open_unit(b, block);
    for (orth_value v = 0; v < block->graph->num_values && !b->p->failed; v++) {
        const orth_value_info *info = &block->graph->values[v];
        const int64_t index = info->kind == ORTH_VALUE_PARAM ? block->param_index[info->slot] : -1;
        if (index >= 0 && orth_build_is_gathered(b, index))
            env->of[v] = is_in_halves(b, block) ? unread : whole_of(b, index);
    }
}

orth_operand orth_gather_read(orth_builder *b, const orth_block *block, int64_t index)
{
    const orth_block_kind from_block = b->block;
    const int32_t from_node = b->node;
    const bool recomputed = b->recomputed;
    if (!is_in_halves(b, block) || !orth_build_is_gathered(b, index))
        return orth_build_param(b, index);
    /* The gathers belong to no node, and are not repeated work: they are made for the backward as for the forward. */
    orth_build_from_node(b, ORTH_BLOCK_NONE, -1);
    b->recomputed = false;
    for (int32_t i = 0; i < block->graph->num_params; i++)
        if (b->spec->params[block->param_index[i]].feed_forward == b->spec->params[index].feed_forward)
            gather_param(b, block->param_index[i]);
    orth_bucket_emit_gathers(b);
    orth_build_from_node(b, from_block, from_node);
    b->recomputed = recomputed;
    return whole_of(b, index);
}

/* ---- what stays whole ---- */

/* Whether the action at hand is the backward that follows the forward of its micro-batch. */
static bool follows_forward(const orth_builder *b)
{
    const orth_action *a = b->action > 0 ? &b->spec->actions[b->action - 1] : NULL;
    return b->phase == ORTH_PHASE_BACKWARD && b->spec->num_chunks == 1 &&
           (b->action < 0 || (a && a->kind == ORTH_ACTION_F && a->micro_batch == b->micro_batch));
}

bool orth_gather_is_still_whole(const orth_builder *b, const orth_block *block)
{
    const orth_compile_spec *s = b->spec;
    const orth_chunk *c = &s->chunks[0];
    if (s->comm.reuse_elems == 0 || block->kind != ORTH_BLOCK_LAYER || !follows_forward(b))
        return false;
    const orth_unit u = unit_of_layer(b);
    int64_t own = 0, behind = 0;
    for (int32_t k = 0; k < u.num; k++)
        own += gathered_elems(b, &u.blocks[k]);
    for (const orth_block *l = u.blocks + u.num; l < s->layers + c->first_layer + c->num_layers; l++)
        behind += gathered_elems(b, l);
    /* The layers behind come twice before this one's backward: in their forward and in their backward. */
    const int64_t between = 2 * behind + (c->head ? gathered_elems(b, &s->final) + gathered_elems(b, &s->head) : 0);
    return between <= s->comm.reuse_elems && (s->comm.live_elems == 0 || own + behind <= s->comm.live_elems);
}
