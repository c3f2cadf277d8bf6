/* classes.c -- see classes.h. What makes programs differ is looked for in what they are compiled from. */
#include "parallel/classes.h"

#include <string.h>

#include "program/lower/shard.h"

/* Pieces of one shape in one order: shards and sums of squares are made of them. */
static bool params_are_alike(const orth_param_desc *a, const orth_param_desc *b)
{
    if (a->num_dims != b->num_dims || memcmp(a->dim, b->dim, sizeof a->dim) != 0 || a->split_dim != b->split_dim ||
        a->num_parts != b->num_parts || a->replica_rows != b->replica_rows || a->whole_cols != b->whole_cols)
        return false;
    for (int32_t q = 0; q < orth_param_row_parts(a); q++) {
        int64_t x[2], y[2];
        orth_param_row_part(a, q, &x[0], &x[1]);
        orth_param_row_part(b, q, &y[0], &y[1]);
        if (x[0] != y[0] || x[1] != y[1])
            return false;
    }
    return true;
}

static bool graphs_are_alike(const orth_graph *a, const orth_graph *b)
{
    if (a->num_nodes != b->num_nodes || a->num_values != b->num_values)
        return false;
    for (int32_t i = 0; i < a->num_nodes; i++) {
        const orth_node *x = &a->nodes[i], *y = &b->nodes[i];
        if (x->op != y->op || x->num_in != y->num_in || memcmp(x->in, y->in, (size_t)x->num_in * sizeof *x->in) != 0)
            return false;
    }
    for (int32_t v = 0; v < a->num_values; v++) {
        const orth_value_info *x = &a->values[v], *y = &b->values[v];
        if (x->kind != y->kind || x->dtype != y->dtype || x->num_dims != y->num_dims ||
            memcmp(x->dim, y->dim, (size_t)x->num_dims * sizeof *x->dim) != 0)
            return false;
    }
    return true;
}

static bool blocks_are_alike(const orth_model_blocks *a, const orth_model_blocks *b)
{
    const orth_graph *const x[] = {&a->embed, &a->layer, &a->final, &a->head};
    const orth_graph *const y[] = {&b->embed, &b->layer, &b->final, &b->head};
    for (int i = 0; i < ORTH_COUNT(x); i++)
        if (!graphs_are_alike(x[i], y[i]))
            return false;
    for (int64_t i = 0; i < a->spec.num_params; i++)
        if (!params_are_alike(&a->spec.params[i], &b->spec.params[i]))
            return false;
    return true;
}

static orth_status build_at(orth_ctx *ctx, orth_classes *c, const orth_model_config *model, const orth_model_shape *shape, int tp)
{
    orth_model_shape s = *shape;
    orth_chunk *chunks = ORTH_ARENA_ARRAY(ctx, &c->arena, orth_chunk, c->partition->schedule.num_chunks);
    if (!chunks)
        return ORTH_ERR_NOMEM;
    orth_partition_shape(c->partition, orth_mesh_moved(&c->partition->mesh, 0, ORTH_AXIS_TP, tp), &s, chunks);
    ORTH_TRY(orth_model_blocks_build(ctx, model, &s, &c->blocks[tp]));
    c->num_blocks++;
    return ORTH_OK;
}

/* Each is compared with those before that are the first of their kind. */
static orth_status sort_positions(orth_ctx *ctx, orth_classes *c, const orth_model_config *model, const orth_model_shape *shape)
{
    const int tp = c->partition->mesh.size[ORTH_AXIS_TP];
    for (int t = 0; t < tp; t++) {
        int like = 0;
        ORTH_TRY(build_at(ctx, c, model, shape, t));
        while (like < t && (c->of_tp[like] != like || !blocks_are_alike(&c->blocks[like], &c->blocks[t])))
            like++;
        c->of_tp[t] = like;
    }
    return ORTH_OK;
}

orth_status orth_classes_make(orth_ctx *ctx, orth_classes *out, const orth_partition *partition, const orth_model_config *model,
                              const orth_model_shape *shape)
{
    const int tp = partition->mesh.size[ORTH_AXIS_TP];
    const bool far = shape->offload.params != ORTH_TIER_NONE || shape->offload.gradients != ORTH_TIER_NONE;
    *out = (orth_classes){.partition = partition, .own_shards = far && orth_layout_deals_state(&partition->layout)};
    out->of_tp = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, tp);
    out->blocks = ORTH_ARENA_ARRAY(ctx, &out->arena, orth_model_blocks, tp);
    const orth_status s = out->of_tp && out->blocks ? sort_positions(ctx, out, model, shape) : ORTH_ERR_NOMEM;
    if (s != ORTH_OK)
        orth_classes_release(ctx, out);
    return s;
}

void orth_classes_release(orth_ctx *ctx, orth_classes *c)
{
    for (int t = 0; t < c->num_blocks; t++)
        orth_model_blocks_release(&c->blocks[t]);
    c->num_blocks = 0;
    orth_arena_release(ctx, &c->arena);
}

/* Of uneven shares: the first data-parallel rank with as many sequences. In reproducible mode, where nodes of the tree over sequences depend on where a
 * share begins, each is like no other; and of replicas of shards those that call each other would count by programs of different shards. */
static int first_of_share(const orth_partition *s, int rank)
{
    int d = 0;
    if (s->layout.reproducible || (orth_layout_deals_state(&s->layout) && s->mesh.size[ORTH_AXIS_REPLICATE] > 1))
        return rank;
    while (s->shares[d] != s->shares[orth_mesh_group_pos(&s->mesh, rank, ORTH_AXES_DP)])
        d++;
    return orth_mesh_group_member(&s->mesh, rank, ORTH_AXES_DP, d);
}

int orth_classes_twin(const orth_classes *c, int rank)
{
    const orth_partition *s = c->partition;
    if (s->shares && !orth_layout_deals_state(&s->layout))
        rank = first_of_share(s, rank);
    else if (!s->shares)
        rank = orth_mesh_group_member(&s->mesh, rank, orth_layout_deals_state(&s->layout) ? ORTH_AXES_REPLICATE : ORTH_AXES_DP, 0);
    if (s->layout.cp_kind != ORTH_CP_RING) /* whose instructions are in another order at each position */
        rank = orth_mesh_moved(&s->mesh, rank, ORTH_AXIS_CP, 0);
    return orth_mesh_moved(&s->mesh, rank, ORTH_AXIS_TP, c->of_tp[orth_mesh_coord(&s->mesh, rank, ORTH_AXIS_TP)]);
}

int orth_classes_of(const orth_classes *c, int rank)
{
    return orth_classes_program(c, orth_classes_twin(c, rank));
}

int orth_classes_program(const orth_classes *c, int rank)
{
    const orth_partition *s = c->partition;
    if (c->own_shards)
        return rank;
    return s->shares ? first_of_share(s, rank) : orth_mesh_group_member(&s->mesh, rank, ORTH_AXES_DP, 0);
}

const orth_param_desc *orth_classes_params(const orth_classes *c, int rank)
{
    return c->blocks[orth_mesh_coord(&c->partition->mesh, rank, ORTH_AXIS_TP)].spec.params;
}
