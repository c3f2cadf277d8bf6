/* frozen.c -- see frozen.h. */
#include "program/lower/frozen.h"

static bool trains(const orth_compile_spec *s, const orth_block *block)
{
    for (int32_t i = 0; i < block->graph->num_params; i++)
        if (!s->params[block->param_index[i]].frozen)
            return true;
    return false;
}

/* Marks what the gradients of trained parameters need, walking back. passes: the gradient of the input is needed, too. */
static orth_status mark_nodes(orth_ctx *ctx, orth_arena *arena, const orth_compile_spec *s, orth_block *block, bool passes)
{
    const orth_graph *g = block->graph;
    bool *dead = ORTH_ARENA_ARRAY(ctx, arena, bool, g->num_nodes), *needed = ORTH_NEW_ARRAY(ctx, bool, g->num_values);
    if (!dead || !needed) {
        orth_mem_free(ctx, needed);
        return ORTH_ERR_NOMEM;
    }
    if (passes && g->input_grad != ORTH_NO_VALUE)
        needed[g->input_grad] = true;
    for (int32_t i = g->num_nodes - 1; i >= g->num_forward; i--) {
        const orth_node *n = &g->nodes[i];
        bool live = n->param >= 0 && !s->params[block->param_index[n->param]].frozen;
        for (int k = 0; k < n->num_out; k++)
            live = live || (n->out[k] != ORTH_NO_VALUE && needed[n->out[k]]);
        for (int k = 0; live && k < n->num_in; k++)
            if (n->in[k] != ORTH_NO_VALUE)
                needed[n->in[k]] = true;
        dead[i] = !live;
    }
    orth_mem_free(ctx, needed);
    block->dead = dead;
    return ORTH_OK;
}

/* *before: whether a block in front of this one is trained; then, whether one up to this is. */
static orth_status mark_block(orth_ctx *ctx, orth_arena *arena, const orth_compile_spec *s, orth_block *block, bool *before)
{
    ORTH_TRY(mark_nodes(ctx, arena, s, block, *before));
    *before = *before || trains(s, block);
    block->idle = !*before;
    return ORTH_OK;
}

orth_status orth_frozen_mark(orth_ctx *ctx, orth_arena *arena, orth_compile_spec *spec)
{
    bool any = false, before = false;
    for (int64_t i = 0; i < spec->num_params; i++)
        any = any || spec->params[i].frozen;
    if (!any || spec->mode != ORTH_MODE_TRAIN)
        return ORTH_OK;
    orth_block *layers = ORTH_ARENA_ARRAY(ctx, arena, orth_block, spec->num_layers);
    if (!layers)
        return ORTH_ERR_NOMEM;
    memcpy(layers, spec->layers, (size_t)spec->num_layers * sizeof *layers);
    ORTH_TRY(mark_block(ctx, arena, spec, &spec->embed, &before));
    for (int32_t l = 0; l < spec->num_layers; l++)
        ORTH_TRY(mark_block(ctx, arena, spec, &layers[l], &before));
    ORTH_TRY(mark_block(ctx, arena, spec, &spec->final, &before));
    spec->layers = layers;
    return mark_block(ctx, arena, spec, &spec->head, &before);
}

bool orth_frozen_passes(const orth_compile_spec *spec, int32_t layer)
{
    return !(layer < 0 ? &spec->embed : &spec->layers[layer])->idle;
}
