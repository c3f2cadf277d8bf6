/* partition.c -- see partition.h. */
#include "parallel/partition.h"

#include "parallel/pipeline/balance.h"
#include "program/lower/route.h"

static orth_model_dims dims_of(const orth_model_config *c)
{
    return (orth_model_dims){.layers = c->layers, .hidden = c->hidden, .heads = c->heads, .kv_heads = c->kv_heads,
                             .ffn = c->ffn, .vocab = c->vocab, .tied = c->tied};
}

static int64_t elems_of(const orth_weight *w)
{
    return w->shape.dim[0] * w->shape.dim[1];
}

/* Multiplications of one token in a layer: by each element of its matrices, and in the attention over half a sequence. */
static int64_t layer_cost(const orth_model_config *c, int64_t seq_len)
{
    int64_t sum = c->heads * c->head_dim * seq_len;
    for (orth_weight_id id = ORTH_WEIGHT_NONE + 1; id < ORTH_NUM_WEIGHTS; id++) {
        const orth_weight w = orth_weight_get(c, id);
        if (orth_section_in_layer(w.section) && w.shape.num_dims == 2 && orth_weight_present(c, id))
            sum += elems_of(&w);
    }
    return sum;
}

orth_status orth_partition_cut(orth_ctx *ctx, const orth_layout *l, const orth_model_config *c, int num_chunks, int32_t *first_layer)
{
    const orth_weight head = orth_weight_get(c, c->tied ? ORTH_WEIGHT_embed : ORTH_WEIGHT_head);
    if (l->stage_layers)
        return orth_balance_by_hand(ctx, l->stage_layers, (int)l->num_stage_layers, (int)c->layers, num_chunks, first_layer);
    if (l->even_stages)
        return orth_balance_evenly(ctx, (int)c->layers, num_chunks, first_layer);
    int64_t *cost = ORTH_NEW_ARRAY(ctx, int64_t, c->layers);
    if (!cost)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < c->layers; i++)
        cost[i] = layer_cost(c, l->seq_len);
    const orth_status s = orth_balance_layers(ctx, cost, (int)c->layers, 0, elems_of(&head), num_chunks, first_layer);
    orth_mem_free(ctx, cost);
    return s;
}

/* Gradients are summed in the order in which they are made: that of the micro-batches, in each chunk. The
 * head's are made by BI, all others by B or W. */
static orth_status backwards_ascend(orth_ctx *ctx, orth_arena *arena, const orth_schedule *s)
{
    int32_t *next = ORTH_ARENA_ARRAY(ctx, arena, int32_t, s->num_chunks + 1); /* last: the head's */
    if (!next)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < s->num_ranks; r++) {
        for (int32_t i = 0; i < s->lists[r].num_actions; i++) {
            const orth_action *a = &s->lists[r].actions[i];
            bool head = a->kind == ORTH_ACTION_BI && a->chunk == s->num_chunks - 1;
            int32_t *expected = &next[head ? s->num_chunks : a->chunk];
            if (a->kind != ORTH_ACTION_B && a->kind != ORTH_ACTION_W && !head)
                continue;
            if (a->micro_batch != *expected)
                return ORTH_FAIL(ctx, ORTH_ERR_ARG, "parallel.pipeline=%s: rank %d makes the weight gradient of "
                                 "micro-batch %d on chunk %d where %d is next: they must ascend", s->name, r,
                                 a->micro_batch, a->chunk, *expected);
            ++*expected;
        }
    }
    return ORTH_OK;
}

static orth_status make_schedule(orth_ctx *ctx, orth_partition *s, orth_schedule *out, int64_t num_micro_batches)
{
    const orth_layout *l = &s->layout;
    ORTH_TRY(orth_schedule_make(ctx, &s->arena, out, l->pipeline, (int)l->pp, (int)l->virtual_stages,
                                (int)num_micro_batches));
    ORTH_TRY(orth_schedule_check_in_order(ctx, out));
    ORTH_TRY(backwards_ascend(ctx, &s->arena, out));
    if (out->async && !orth_schedule_kind_find(l->pipeline))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "parallel.pipeline=%s: of asynchronous schedules this version runs pipedream, "
                         "not those from files", l->pipeline);
    return ORTH_OK;
}

/* Uneven data-parallel ranks: their shares, and a schedule for each. */
static orth_status make_shares(orth_ctx *ctx, orth_partition *s)
{
    const int64_t dp = s->layout.dp;
    s->shares = ORTH_ARENA_ARRAY(ctx, &s->arena, int64_t, dp);
    s->schedules = ORTH_ARENA_ARRAY(ctx, &s->arena, orth_schedule, dp);
    if (!s->shares || !s->schedules)
        return ORTH_ERR_NOMEM;
    for (int64_t r = 0; r < dp; r++) {
        s->shares[r] = orth_layout_share(&s->layout, r);
        ORTH_TRY(make_schedule(ctx, s, &s->schedules[r], orth_layout_micro_batches(&s->layout, r)));
    }
    return ORTH_OK;
}

static orth_status make(orth_ctx *ctx, orth_partition *s, const orth_model_config *c)
{
    const orth_layout *l = &s->layout;
    orth_model_dims dims = dims_of(c);
    ORTH_TRY(orth_layout_check(ctx, l, &dims));
    orth_mesh_options mesh = {.dp = l->dp, .tp = l->tp, .pp = l->pp, .cp = l->cp,
                              .shard_group = l->shard_group, .order = l->order};
    ORTH_TRY(orth_mesh_init(ctx, &s->mesh, &mesh));
    ORTH_TRY(make_schedule(ctx, s, &s->schedule, orth_layout_micro_batches(l, 0)));
    if (orth_layout_is_uneven(l) && !s->schedule.async)
        ORTH_TRY(make_shares(ctx, s));
    s->first_layer = ORTH_ARENA_ARRAY(ctx, &s->arena, int32_t, s->schedule.num_chunks + 1);
    return s->first_layer ? orth_partition_cut(ctx, l, c, s->schedule.num_chunks, s->first_layer) : ORTH_ERR_NOMEM;
}

orth_status orth_partition_make(orth_ctx *ctx, orth_partition *out, const orth_layout *layout, const orth_model_config *c)
{
    *out = (orth_partition){.layout = *layout, .tied = c->tied, .kv_heads = (int32_t)c->kv_heads,
                         .kv_ranks = (int32_t)(layout->tp > c->kv_heads ? layout->tp / c->kv_heads : 1)};
    orth_status s = make(ctx, out, c);
    if (s != ORTH_OK)
        orth_partition_release(ctx, out);
    return s;
}

void orth_partition_release(orth_ctx *ctx, orth_partition *s)
{
    orth_arena_release(ctx, &s->arena);
}

/* Ranks that hold different parts of the gradient: other stages, other shards of tensors, and, where
 * ZeRO shards it, other data-parallel ranks. */
static orth_axes norm_axes(const orth_partition *s)
{
    return ORTH_AXES_PP | ORTH_AXES_TP | (orth_layout_deals_state(&s->layout) ? ORTH_AXES_SHARD : 0);
}

/* Ranks of a cp group that trade heads against tokens: as many as have whole key heads for it; they lie side by
 * side, so that together they hold token slots side by side. */
static int cp_heads(const orth_partition *s)
{
    const orth_layout *l = &s->layout;
    return l->cp_kind == ORTH_CP_ALL_TO_ALL ? (int)ORTH_MIN(l->cp, ORTH_MAX(s->kv_heads / l->tp, 1)) : 1;
}

/* A group: ranks along these axes in mesh order, or some of one axis. */
typedef struct {
    int n, pos;          /* n 0: there is none */
    orth_axes axes;      /* 0: members are at `first`, first + step, ... on `axis` */
    orth_axis axis;
    int first, step;
} group_shape;

static group_shape on_axis(const orth_partition *s, int rank, orth_axis axis, int first, int step, int n)
{
    return (group_shape){.n = n, .axis = axis, .first = first, .step = step,
                         .pos = step ? (orth_mesh_coord(&s->mesh, rank, axis) - first) / step : 0};
}

static group_shape cp_subgroup(const orth_partition *s, int rank, orth_group group)
{
    const int heads = cp_heads(s), tokens = (int)s->layout.cp / heads;
    const int pos = orth_mesh_group_pos(&s->mesh, rank, ORTH_AXES_CP);
    if (heads == 1 || tokens == 1)
        return (group_shape){0};
    return group == ORTH_GROUP_CP_HEADS ? on_axis(s, rank, ORTH_AXIS_CP, pos - pos % heads, 1, heads)
                                        : on_axis(s, rank, ORTH_AXIS_CP, pos % heads, heads, tokens);
}

/* The stages that hold tied embeddings. */
static group_shape embed_group(const orth_partition *s, int rank)
{
    const int first = s->schedule.chunk_rank[0], last = s->schedule.chunk_rank[s->schedule.num_chunks - 1];
    const int mine = orth_mesh_coord(&s->mesh, rank, ORTH_AXIS_PP);
    if (!s->tied || first == last || (mine != first && mine != last))
        return (group_shape){0};
    return on_axis(s, rank, ORTH_AXIS_PP, first, last - first, 2);
}

static group_shape shape_of(const orth_partition *s, int rank, orth_group group)
{
    static const orth_axes axes[ORTH_NUM_GROUPS] = {
        [ORTH_GROUP_TP] = ORTH_AXES_TP, [ORTH_GROUP_CP] = ORTH_AXES_CP, [ORTH_GROUP_DP] = ORTH_AXES_DP,
        [ORTH_GROUP_SHARD] = ORTH_AXES_SHARD, [ORTH_GROUP_REPLICATE] = ORTH_AXES_REPLICATE,
        [ORTH_GROUP_PP] = ORTH_AXES_PP, [ORTH_GROUP_PP_BACK] = ORTH_AXES_PP,
    };
    const orth_mesh *m = &s->mesh;
    const bool replicated = m->size[ORTH_AXIS_REPLICATE] > 1;
    if (group == ORTH_GROUP_EMBED)
        return embed_group(s, rank);
    if (group == ORTH_GROUP_KV) {
        const int pos = orth_mesh_coord(m, rank, ORTH_AXIS_TP);
        return on_axis(s, rank, ORTH_AXIS_TP, pos - pos % s->kv_ranks, 1, s->kv_ranks);
    }
    if (group == ORTH_GROUP_CP_HEADS || group == ORTH_GROUP_CP_TOKENS)
        return cp_subgroup(s, rank, group);
    if ((group == ORTH_GROUP_DP && replicated) || (group == ORTH_GROUP_SHARD && !replicated))
        return (group_shape){0};
    const orth_axes of = group == ORTH_GROUP_NORM ? norm_axes(s) : axes[group];
    return (group_shape){.n = orth_mesh_group_size(m, of), .pos = orth_mesh_group_pos(m, rank, of), .axes = of};
}

int orth_partition_group(const orth_partition *s, int rank, orth_group group, int *ranks)
{
    const group_shape g = shape_of(s, rank, group);
    if (g.axes)
        orth_mesh_group(&s->mesh, rank, g.axes, ranks);
    for (int i = 0; !g.axes && i < g.n; i++)
        ranks[i] = orth_mesh_moved(&s->mesh, rank, g.axis, g.first + i * g.step);
    return g.n;
}

orth_rank_groups orth_partition_groups(const orth_partition *s, int rank)
{
    orth_rank_groups out = {.size = {0}};
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        const group_shape x = shape_of(s, rank, (orth_group)g);
        out.size[g] = x.n;
        out.pos[g] = x.pos;
    }
    return out;
}

static void place(const orth_partition *s, int rank, orth_place_in_mesh *p)
{
    const orth_mesh *m = &s->mesh;
    static const struct {
        orth_group group;
        orth_axes axes;
    } simple[] = {{ORTH_GROUP_TP, ORTH_AXES_TP}, {ORTH_GROUP_CP, ORTH_AXES_CP}, {ORTH_GROUP_DP, ORTH_AXES_DP},
                  {ORTH_GROUP_SHARD, ORTH_AXES_SHARD}, {ORTH_GROUP_REPLICATE, ORTH_AXES_REPLICATE},
                  {ORTH_GROUP_PP, ORTH_AXES_PP}};
    *p = (orth_place_in_mesh){.zero = s->layout.owner ? 1 : (int32_t)s->layout.zero, .owner = s->layout.owner,
                              .keep_whole = s->layout.keep_whole, .whole_layers = s->layout.whole_layers,
                              .sequence_parallel = s->layout.sequence_parallel, .cp_heads = cp_heads(s),
                              .cp_ring = s->layout.cp_kind == ORTH_CP_RING, .fast = !s->layout.reproducible};
    for (int i = 0; i < ORTH_COUNT(simple); i++) {
        p->size[simple[i].group] = orth_mesh_group_size(m, simple[i].axes);
        p->pos[simple[i].group] = orth_mesh_group_pos(m, rank, simple[i].axes);
    }
    p->size[ORTH_GROUP_KV] = s->kv_ranks;
    p->pos[ORTH_GROUP_KV] = p->pos[ORTH_GROUP_TP] % s->kv_ranks;
    p->size[ORTH_GROUP_NORM] = orth_mesh_group_size(m, norm_axes(s));
    int first = s->schedule.chunk_rank[0], last = s->schedule.chunk_rank[s->schedule.num_chunks - 1];
    int mine = p->pos[ORTH_GROUP_PP];
    p->size[ORTH_GROUP_EMBED] = s->tied && first != last && (mine == first || mine == last) ? 2 : 1;
}

static int dp_pos(const orth_partition *s, int rank)
{
    return orth_mesh_group_pos(&s->mesh, rank, ORTH_AXES_DP);
}

void orth_partition_shape(const orth_partition *s, int rank, orth_model_shape *shape, orth_chunk *chunks)
{
    const orth_schedule *sch = s->shares ? &s->schedules[dp_pos(s, rank)] : &s->schedule;
    place(s, rank, &shape->mesh);
    int stage = shape->mesh.pos[ORTH_GROUP_PP], n = 0;
    for (int32_t c = 0; c < sch->num_chunks; c++) {
        if (sch->chunk_rank[c] != stage)
            continue;
        bool first = c == 0, last = c == sch->num_chunks - 1;
        chunks[n++] = (orth_chunk){.chunk = c, .first_layer = s->first_layer[c],
                                   .num_layers = s->first_layer[c + 1] - s->first_layer[c], .embed = first,
                                   .head = last, .prev = first ? -1 : sch->chunk_rank[c - 1],
                                   .next = last ? -1 : sch->chunk_rank[c + 1]};
    }
    shape->chunks = chunks;
    shape->num_chunks = n;
    shape->actions = sch->lists[stage].actions;
    shape->num_actions = sch->lists[stage].num_actions;
    shape->async = sch->async;
    shape->num_seqs = (int32_t)s->layout.micro_batch;
    shape->num_micro_batches = sch->num_micro_batches;
    shape->shares = s->shares;
}

int64_t orth_partition_sequence(const orth_partition *s, int rank, int64_t first, int64_t i)
{
    int64_t B = s->layout.micro_batch, shards = s->mesh.size[ORTH_AXIS_SHARD];
    int64_t shard = orth_mesh_coord(&s->mesh, rank, ORTH_AXIS_SHARD), me = dp_pos(s, rank);
    const bool turns = orth_route_takes_turns(s->layout.zero, shards);
    int64_t before = turns ? me - shard : me; /* ranks whose shares come first */
    for (int64_t r = 0; r < before; r++)
        first += orth_layout_share(&s->layout, r);
    return turns ? first + (i / B * shards + shard) * B + i % B : first + i;
}

int orth_partition_update_runs(const orth_partition *s)
{
    return s->schedule.async ? (int)s->layout.dp : 1;
}

void orth_partition_update_run(const orth_partition *s, int64_t first, int update, int i, int64_t *begin, int64_t *count)
{
    const int64_t B = s->layout.micro_batch;
    *begin = s->schedule.async ? first + (i * s->schedule.num_micro_batches + update) * B : first;
    *count = s->schedule.async ? B : s->layout.global_batch;
}
