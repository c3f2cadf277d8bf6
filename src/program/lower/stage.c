/* stage.c -- see stage.h. */
#include "program/lower/stage.h"

/* Layers for which one policy holds share their marks. */
static void mark_layers(const orth_stage *st, int32_t num)
{
    const orth_compile_spec *s = st->b->spec;
    const bool differ = s->recompute.kind == ORTH_RECOMPUTE_CHOSEN;
    for (int32_t l = 0; l < s->num_layers && !st->b->p->failed; l++) {
        bool *marks = l == 0 || differ ? ORTH_ARENA_ARRAY(st->b->ctx, &st->b->p->arena, bool, num) : NULL;
        if (marks)
            orth_recompute_mark(&s->recompute, l, s->layers[l].graph, s->mesh.sequence_parallel, marks);
        st->again[l] = marks || differ ? marks : st->again[0];
        st->b->p->failed = st->b->p->failed || !st->again[l];
    }
}

bool orth_stage_mark(orth_stage *st)
{
    orth_builder *b = st->b;
    const orth_compile_spec *s = b->spec;
    if (s->recompute.kind == ORTH_RECOMPUTE_NONE || s->mode != ORTH_MODE_TRAIN)
        return true;
    const int32_t num = ORTH_MAX(s->layers[0].graph->num_forward, s->embed.graph->num_forward);
    bool *all = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, bool, num);
    st->again = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, const bool *, s->num_layers);
    b->p->failed = b->p->failed || !st->again || !all;
    if (b->p->failed)
        return false;
    memset(all, true, (size_t)num * sizeof *all);
    st->all = all;
    mark_layers(st, num);
    return !b->p->failed;
}

bool orth_stage_is_one_group(const orth_stage *st)
{
    return st->again && st->b->spec->recompute.kind == ORTH_RECOMPUTE_ALL;
}

/* First layer of the group with which layer l of the chunk is made again; -1: it is not. Layers without a backward are not. */
static int32_t group_of(const orth_stage *st, const orth_chunk *c, int32_t l)
{
    const orth_compile_spec *s = st->b->spec;
    if (!st->again || (s->layers[c->first_layer + l].idle && !orth_stage_is_one_group(st)))
        return -1;
    int32_t first = orth_recompute_group(&s->recompute, c->first_layer, c->num_layers, l);
    while (first >= 0 && s->layers[c->first_layer + first].idle && !orth_stage_is_one_group(st))
        first++;
    return first;
}

static bool splits_inputs(const orth_stage *st)
{
    const orth_compile_spec *s = st->b->spec;
    return st->again && s->recompute.split_input && orth_build_size(st->b, ORTH_GROUP_TP) > 1 && !s->mesh.sequence_parallel;
}

static int64_t elems_of(orth_operand x)
{
    return x.dim[0] * x.dim[1];
}

/* The input dies with the forward of its layer, so its part is copied before that. */
void orth_stage_keep_part(orth_stage *st, const orth_chunk *c, orth_chunk_state *m, int32_t l, orth_operand x)
{
    orth_builder *b = st->b;
    const int64_t n = elems_of(x) / orth_build_size(b, ORTH_GROUP_TP);
    if (!splits_inputs(st) || group_of(st, c, l) != l)
        return;
    if (!m->parts)
        m->parts = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, orth_operand, c->num_layers);
    b->p->failed = b->p->failed || !m->parts;
    if (b->p->failed)
        return;
    orth_operand mine = orth_build_vector(x.buffer, x.dtype, n * b->spec->mesh.pos[ORTH_GROUP_TP], n);
    mine.byte_offset += x.byte_offset;
    m->parts[l] = orth_build_temp(b, "layer_in.part", mine);
    orth_build_emit(b, ORTH_OP_copy, &(orth_attr){0}, 1, &mine, 1, &m->parts[l]);
}

static void gather_input(orth_stage *st, const orth_chunk *c, orth_chunk_state *m, int32_t first)
{
    orth_builder *b = st->b;
    const orth_graph *g = b->spec->layers[c->first_layer + first].graph;
    const orth_value_info *info = &g->values[g->input];
    const orth_operand x = orth_build_temp(b, "layer_in.gathered", orth_operand_of(-1, info->dtype, info->num_dims, info->dim));
    const orth_operand all = orth_build_vector(x.buffer, x.dtype, 0, elems_of(x));
    orth_build_emit(b, ORTH_OP_all_gather, &(orth_attr){.group = ORTH_GROUP_TP}, 1, &m->parts[first], 1, &all);
    m->layers[first].of[g->input] = x;
}

void orth_stage_forget(orth_stage *st, const orth_chunk *c, orth_chunk_state *m)
{
    orth_builder *b = st->b;
    const bool with_embed = c->embed && orth_stage_is_one_group(st);
    if (with_embed)
        orth_build_forget(b, &b->spec->embed, &m->embed, st->all, false);
    for (int32_t l = 0; l < c->num_layers && !b->p->failed; l++) {
        const int32_t first = group_of(st, c, l);
        if (first >= 0)
            orth_build_forget(b, &b->spec->layers[c->first_layer + l], &m->layers[l], st->again[c->first_layer + l], first < l || with_embed || m->parts);
    }
}

void orth_stage_make_group(orth_stage *st, const orth_chunk *c, orth_chunk_state *m, int32_t l)
{
    orth_builder *b = st->b;
    const int32_t first = group_of(st, c, l), layer = b->layer;
    const bool with_embed = c->embed && orth_stage_is_one_group(st);
    if (first < 0 || (l + 1 < c->num_layers && group_of(st, c, l + 1) == first) || b->p->failed)
        return;
    if (m->parts)
        gather_input(st, c, m, first);
    if (first == l && !with_embed)
        return;
    orth_operand x = m->layers[first].of[b->spec->layers[c->first_layer + first].graph->input];
    if (with_embed) {
        b->layer = -1;
        x = orth_build_again(b, &b->spec->embed, &m->embed, orth_operand_absent);
    }
    for (int32_t i = first; i < l && !b->p->failed; i++) {
        b->layer = c->first_layer + i;
        x = orth_build_again(b, &b->spec->layers[b->layer], &m->layers[i], x);
    }
    const orth_graph *g = b->spec->layers[c->first_layer + l].graph;
    if (!b->p->failed)
        m->layers[l].of[g->input] = x;
    b->layer = layer;
}

void orth_stage_make_final(orth_stage *st, const orth_chunk *c, orth_chunk_state *m)
{
    orth_builder *b = st->b;
    const int32_t last = c->num_layers - 1, layer = b->layer;
    orth_stage_make_group(st, c, m, last);
    b->layer = c->first_layer + last;
    const orth_block *block = &b->spec->layers[b->layer];
    orth_operand x = b->p->failed ? orth_operand_absent
                                  : orth_build_again(b, block, &m->layers[last], m->layers[last].of[block->graph->input]);
    b->layer = layer;
    m->normed = orth_build_forward(b, &b->spec->final, &m->final, x);
}
