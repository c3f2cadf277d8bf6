/* stage.c -- see stage.h. */
#include "program/lower/stage.h"

bool orth_stage_mark(orth_stage *st)
{
    orth_builder *b = st->b;
    const orth_compile_spec *s = b->spec;
    if (s->recompute.kind == ORTH_RECOMPUTE_NONE || s->mode != ORTH_MODE_TRAIN)
        return true;
    const int32_t num = ORTH_MAX(s->layers[0].graph->num_forward, s->embed.graph->num_forward);
    bool *again = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, bool, num), *all = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, bool, num);
    if (!again || !all) {
        b->p->failed = true;
        return false;
    }
    orth_recompute_mark(&s->recompute, s->layers[0].graph, s->mesh.sequence_parallel, again);
    memset(all, true, (size_t)num * sizeof *all);
    st->again = again;
    st->all = all;
    return true;
}

bool orth_stage_is_one_group(const orth_stage *st)
{
    return st->again && st->b->spec->recompute.kind == ORTH_RECOMPUTE_ALL;
}

static int32_t group_of(const orth_stage *st, const orth_chunk *c, int32_t l)
{
    return st->again ? orth_recompute_group(&st->b->spec->recompute, c->num_layers, l) : -1;
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
            orth_build_forget(b, &b->spec->layers[c->first_layer + l], &m->layers[l], st->again, first < l || with_embed);
    }
}

void orth_stage_make_group(orth_stage *st, const orth_chunk *c, orth_chunk_state *m, int32_t l)
{
    orth_builder *b = st->b;
    const int32_t first = group_of(st, c, l), layer = b->layer;
    const bool with_embed = c->embed && orth_stage_is_one_group(st);
    if (first < 0 || (first == l && !with_embed) || (l + 1 < c->num_layers && group_of(st, c, l + 1) == first))
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
