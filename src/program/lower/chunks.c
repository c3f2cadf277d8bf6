/* chunks.c -- the feed-forward part of a layer a chunk of rows at a time (orth_build_chunks of build.h).
 *
 *     in the forward    for each chunk:  up, [activation], down into its rows of the output
 *     in the backward   for each chunk:  up, [activation] again; the gradients of the inputs of down, [activation], up, and what
 *                                        this chunk adds to the gradients of both weights
 *
 * What lies between (graph.h, chunked) lives while its chunk is computed, and is not kept for the backward. Products compute rows
 * independently of each other, so no value changes. A gradient of a weight is a sum over tokens: the chunks are runs of
 * canonical token parts in ascending order, which the tree on its route adds as one product would have (route.c,
 * parts_of_sequence). Source: the row-wise ("mini-sequence") computation of Luo et al., arXiv:2407.15892.
 */
#include "program/lower/build.h"

typedef struct {
    orth_builder *b;
    const orth_block *block;
    orth_block_env *env;        /* of all rows */
    orth_block_env part;        /* of a chunk */
    orth_leaves leaves;         /* of a chunk */
    bool backward;
} chunking;

/* In the backward what a chunk needs of the forward is made again; the last product only makes the output. */
static bool takes_part(const chunking *x, int32_t node)
{
    const orth_graph *g = x->block->graph;
    const orth_node *n = &g->nodes[node];
    if (!n->chunked || (node >= g->num_forward && !x->backward) || (x->block->dead && x->block->dead[node]))
        return false;
    return node >= g->num_forward || !x->backward || g->values[n->out[0]].chunked;
}

static bool is_parameter(const orth_graph *g, orth_value v)
{
    return g->values[v].kind == ORTH_VALUE_PARAM;
}

/* Values of all rows exist before the chunks: what is read is made again if it was forgotten, what is written has a buffer. */
static void prepare(chunking *x, const orth_node *n)
{
    const orth_graph *g = x->block->graph;
    for (int k = 0; k < n->num_in; k++)
        if (n->in[k] != ORTH_NO_VALUE && !g->values[n->in[k]].chunked)
            orth_build_read(x->b, x->block, x->env, n->in[k]);
    for (int k = 0; k < n->num_out && n->param < 0; k++)
        if (n->out[k] != ORTH_NO_VALUE && !g->values[n->out[k]].chunked)
            orth_build_make(x->b, x->block, x->env, n->out[k]);
}

static void take_rows(chunking *x, orth_value v, int64_t row0)
{
    const orth_graph *g = x->block->graph;
    const orth_value_info *info = v == ORTH_NO_VALUE ? NULL : &g->values[v];
    const int64_t rows = x->b->spec->chunk_rows;
    if (!info || x->part.of[v].buffer >= 0)
        return;
    if (info->chunked) {
        orth_operand like = orth_operand_of(-1, info->dtype, info->num_dims, info->dim);
        like.dim[0] = rows;
        x->part.of[v] = orth_build_temp(x->b, info->name, like);
    } else {
        x->part.of[v] = is_parameter(g, v) ? x->env->of[v] : orth_operand_rows(x->env->of[v], row0, row0 + rows);
    }
}

static void compute_chunk(chunking *x, int64_t row0)
{
    const orth_graph *g = x->block->graph;
    const bool recomputed = x->b->recomputed;
    for (orth_value v = 0; v < g->num_values; v++)
        x->part.of[v].buffer = -2;
    for (int32_t i = 0; i < g->num_nodes && !x->b->p->failed; i++) {
        const orth_node *n = &g->nodes[i];
        if (!takes_part(x, i))
            continue;
        for (int k = 0; k < n->num_in; k++)
            take_rows(x, n->in[k], row0);
        for (int k = 0; k < n->num_out && n->param < 0; k++)
            take_rows(x, n->out[k], row0);
        x->b->recomputed = recomputed || (x->backward && i < g->num_forward);
        orth_build_node(x->b, x->block, &x->part, i, &x->leaves);
        x->b->recomputed = recomputed;
    }
}

/* Within a sequence the leaves of a chunk are canonical token parts, else sequences. */
static orth_leaves leaves_of(const orth_compile_spec *s)
{
    const int64_t rows = s->seq_len / s->chunk_parts;
    return (orth_leaves){.num = s->chunk_rows / rows, .rows = rows, .chunk = s->chunk_parts > 1, .row0 = -1};
}

/* A backward whose nodes are all dead needs nothing of the forward. */
static bool makes_something(const chunking *x)
{
    bool any = !x->backward;
    for (int32_t i = x->block->graph->num_forward; i < x->block->graph->num_nodes && !any; i++)
        any = takes_part(x, i);
    return any;
}

void orth_build_chunks(orth_builder *b, const orth_block *block, orth_block_env *env, bool backward)
{
    const orth_graph *g = block->graph;
    const int64_t rows = (int64_t)b->spec->num_seqs * b->spec->seq_len;
    const orth_block_kind from_block = b->block;
    const int32_t from_node = b->node;
    chunking x = {.b = b, .block = block, .env = env, .leaves = leaves_of(b->spec), .backward = backward};
    if (!makes_something(&x))
        return;
    x.part.of = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, orth_operand, g->num_values);
    b->p->failed = b->p->failed || !x.part.of;
    for (int32_t i = 0; i < g->num_nodes && !b->p->failed; i++)
        if (takes_part(&x, i))
            prepare(&x, &g->nodes[i]);
    for (int64_t row0 = 0; row0 < rows && !b->p->failed; row0 += b->spec->chunk_rows)
        compute_chunk(&x, row0);
    orth_build_from_node(b, from_block, from_node);
}
