/* route.c -- see route.h. */
#include "program/lower/route.h"

#include <assert.h>

#include "program/lower/shard.h"

/* What of the layout a route depends on. */
typedef struct {
    const orth_compile_spec *spec;
    int32_t dp, cp, shard, replicate, embed; /* ranks of the groups */
    bool sharded;          /* this rank updates a shard of each weight */
    bool at_once;          /* ZeRO 2 and 3: gradients of each micro-batch are reduced by themselves */
    bool uneven;           /* a rank's share is no single node of the tree; without a tree (fast mode) any share is one sum */
    int64_t num_micros;    /* micro-batches that an update sums */
} layout;

static int32_t size_of(const orth_place_in_mesh *mesh, orth_group g)
{
    return ORTH_MAX(mesh->size[g], 1);
}

bool orth_route_is_sharded(int64_t zero, int64_t ranks)
{
    return zero > 0 && ranks > 1;
}

bool orth_route_takes_turns(int64_t zero, int64_t ranks)
{
    return zero >= 2 && ranks > 1;
}

static layout layout_of(const orth_compile_spec *s)
{
    const orth_place_in_mesh *mesh = &s->mesh;
    const bool train = s->mode == ORTH_MODE_TRAIN;
    const int32_t shard = size_of(mesh, ORTH_GROUP_SHARD);
    return (layout){.spec = s,
                    .dp = size_of(mesh, ORTH_GROUP_DP), .cp = size_of(mesh, ORTH_GROUP_CP), .shard = shard,
                    .replicate = size_of(mesh, ORTH_GROUP_REPLICATE), .embed = size_of(mesh, ORTH_GROUP_EMBED),
                    .sharded = orth_route_is_sharded(mesh->zero, shard),
                    .at_once = train && orth_route_takes_turns(mesh->zero, shard), .uneven = train && s->shares && !mesh->fast,
                    .num_micros = s->async ? 1 : s->num_micro_batches};
}

bool orth_route_is_tied(const orth_compile_spec *spec)
{
    return spec->head.param_index[0] == spec->embed.param_index[0];
}

/* Where shards have replicas, dp consists of two axes, and shards are over one of them. */
static orth_group shard_group(const layout *l)
{
    return l->replicate > 1 ? ORTH_GROUP_SHARD : ORTH_GROUP_DP;
}

/* The first group over which parts of a gradient are summed when its tree is complete. A rule of its own, as experts will
 * have it, is a case of its own. */
static orth_group first_group(const layout *l, orth_reduce_rule rule)
{
    switch (rule) {
    case ORTH_REDUCE_DENSE:
        return l->shard > 1 ? shard_group(l) : ORTH_GROUP_REPLICATE;
    }
    return ORTH_GROUP_DP; /* orth_compile has refused what is no rule */
}

static orth_route_stage *add(orth_route *r, orth_moment when, orth_route_op op, orth_group over, orth_extent extent)
{
    assert(r->num < ORTH_ROUTE_MAX);
    r->stage[r->num] = (orth_route_stage){.when = when, .op = op, .over = over, .extent = extent,
                                          .travels = ORTH_TRAVELS_ALONE};
    return &r->stage[r->num++];
}

static void add_tree(orth_route *r, orth_moment when, orth_extent extent, orth_keep keep, int64_t leaves, int64_t per_sequence, bool running)
{
    orth_route_stage *s = add(r, when, ORTH_ROUTE_TREE, ORTH_NUM_GROUPS, extent);
    s->keep = keep;
    s->leaves = leaves;
    s->per_sequence = per_sequence;
    s->running = running;
}

static void add_reduce(orth_route *r, orth_moment when, orth_group over, orth_extent extent, orth_travels travels, bool lag)
{
    orth_route_stage *s = add(r, when, ORTH_ROUTE_REDUCE, over, extent);
    s->travels = travels;
    s->lag = lag;
}

/* Whether the gradient of a weight of the layers is made in chunks of rows (chunks.c). */
static bool is_chunked(const orth_compile_spec *s, int64_t index)
{
    for (int32_t l = 0; s->chunk_rows > 0 && l < s->num_layers; l++) {
        const orth_graph *g = s->layers[l].graph;
        for (int32_t i = g->num_forward; i < g->num_nodes; i++)
            if (g->nodes[i].chunked && g->nodes[i].param >= 0 && s->layers[l].param_index[g->nodes[i].param] == index)
                return true;
    }
    return false;
}

/* Leaves of a sequence, where nothing sums them before the tree over sequences: the head, and chunks of the feed-forward, make
 * gradients in parts of one. */
static int64_t parts_of_sequence(const orth_compile_spec *s, int64_t index, bool second)
{
    if (is_chunked(s, index))
        return s->chunk_parts;
    return index == s->head.param_index[0] && second == orth_route_is_tied(s) ? s->head_leaves : 1;
}

/* Sequences of the dp ranks before this one. */
static int64_t first_sequence(const orth_compile_spec *s)
{
    int64_t first = 0;
    for (int32_t r = 0; s->shares && r < s->mesh.pos[ORTH_GROUP_DP]; r++)
        first += s->shares[r];
    return first;
}

/* The sums that this rank makes by itself, and those over cp. Context parallelism: ranks have parts of each sequence, the
 * innermost nodes of the tree, so that each sequence is summed over cp before it joins the next tree. ZeRO 2 and 3: the
 * micro-batches of all ranks together are neighbours, so that each micro-batch is a node that is reduced by itself. */
static void add_own_sums(const layout *l, orth_route *r, int64_t parts, bool over_cp)
{
    const orth_compile_spec *s = l->spec;
    int64_t per_sequence = parts;
    if (over_cp && !s->mesh.fast) {
        add_tree(r, ORTH_MOMENT_SEQUENCE, ORTH_EXTENT_WHOLE, ORTH_KEEP_TRANSIENT, parts, parts, false);
        add_reduce(r, ORTH_MOMENT_SEQUENCE, ORTH_GROUP_CP, ORTH_EXTENT_WHOLE, ORTH_TRAVELS_ALONE, s->comm.overlap);
        per_sequence = 1;
    }
    const int64_t per_micro = per_sequence * s->num_seqs;
    if (l->at_once) {
        add_tree(r, ORTH_MOMENT_MICRO_BATCH, ORTH_EXTENT_WHOLE, ORTH_KEEP_TRANSIENT, per_micro, per_sequence, s->mesh.fast);
        return;
    }
    add_tree(r, ORTH_MOMENT_STEP, ORTH_EXTENT_WHOLE, ORTH_KEEP_PERSISTENT, l->uneven ? 0 : l->num_micros * per_micro, per_sequence,
             s->mesh.fast);
    r->stage[r->num - 1].first_leaf = l->uneven ? first_sequence(s) * per_sequence : 0;
}

/* Equal shares: what a rank has summed is one node of the tree, and groups of ranks are the next ones. */
static void add_reductions(const layout *l, orth_route *r, orth_reduce_rule rule)
{
    const orth_moment when = l->at_once ? ORTH_MOMENT_MICRO_BATCH : ORTH_MOMENT_STEP;
    const orth_extent extent = l->sharded ? ORTH_EXTENT_SHARD : ORTH_EXTENT_WHOLE;
    if (l->dp == 1)
        return;
    add_reduce(r, when, first_group(l, rule), extent, ORTH_TRAVELS_IN_BUCKET, l->spec->comm.overlap);
    if (l->spec->comm.reduce != ORTH_F32) /* bucket.c rounds it before */
        add(r, when, ORTH_ROUTE_WIDEN, ORTH_NUM_GROUPS, extent);
    if (l->at_once)
        add_tree(r, ORTH_MOMENT_STEP, extent, ORTH_KEEP_PERSISTENT, l->num_micros, 0, l->spec->mesh.fast);
    if (l->shard > 1 && l->replicate > 1)
        add_reduce(r, ORTH_MOMENT_STEP, ORTH_GROUP_REPLICATE, extent, ORTH_TRAVELS_TOGETHER, false);
}

/* Uneven shares: a rank has several nodes. */
static void add_exchange(const layout *l, orth_route *r)
{
    add(r, ORTH_MOMENT_UPDATE, ORTH_ROUTE_EXCHANGE, ORTH_GROUP_DP, l->sharded ? ORTH_EXTENT_SHARD : ORTH_EXTENT_SLICE);
    if (!l->sharded)
        add(r, ORTH_MOMENT_UPDATE, ORTH_ROUTE_GATHER, ORTH_GROUP_DP, ORTH_EXTENT_WHOLE);
}

bool orth_route_gathers_for_use(const orth_compile_spec *spec, int64_t index)
{
    const orth_place_in_mesh *mesh = &spec->mesh;
    return mesh->zero == 3 && size_of(mesh, ORTH_GROUP_SHARD) > 1 && orth_param_elems_here(&spec->params[index]) > mesh->keep_whole;
}

bool orth_route_keeps_shard(const orth_route *r)
{
    for (int i = 0; i < r->num; i++)
        if (r->stage[i].op == ORTH_ROUTE_OPTIMIZE || r->stage[i].op == ORTH_ROUTE_REST)
            return r->stage[i].extent == ORTH_EXTENT_SHARD;
    return false;
}

/* Of a weight with two uses, the route of one that the rank has. */
static void add_rest(const layout *l, orth_route *r, int64_t index)
{
    const bool gathered = orth_route_gathers_for_use(l->spec, index);
    add(r, ORTH_MOMENT_USE, ORTH_ROUTE_REST, ORTH_NUM_GROUPS, gathered ? ORTH_EXTENT_SHARD : ORTH_EXTENT_WHOLE);
    if (gathered)
        add(r, ORTH_MOMENT_USE, ORTH_ROUTE_GATHER_WEIGHT, shard_group(l), ORTH_EXTENT_WHOLE)->travels = ORTH_TRAVELS_IN_BUCKET;
}

static void add_update(const layout *l, orth_route *r, int64_t index)
{
    const bool for_each_use = orth_route_gathers_for_use(l->spec, index);
    add(r, ORTH_MOMENT_UPDATE, ORTH_ROUTE_OPTIMIZE, ORTH_NUM_GROUPS, l->sharded ? ORTH_EXTENT_SHARD : ORTH_EXTENT_WHOLE);
    if (l->sharded)
        add(r, for_each_use ? ORTH_MOMENT_USE : ORTH_MOMENT_UPDATE, ORTH_ROUTE_GATHER_WEIGHT, shard_group(l), ORTH_EXTENT_WHOLE)
            ->travels = ORTH_TRAVELS_IN_BUCKET;
}

/* The uses of the tied weight that are on this rank: embedding, head. */
static void find_uses(const orth_compile_spec *s, bool here[2])
{
    here[0] = here[1] = !s->chunks;
    for (int32_t c = 0; c < s->num_chunks; c++) {
        here[0] = here[0] || s->chunks[c].embed;
        here[1] = here[1] || s->chunks[c].head;
    }
}

void orth_route_make(const orth_compile_spec *spec, int64_t index, bool second, orth_route *out)
{
    const layout l = layout_of(spec);
    const orth_param_desc *w = &spec->params[index];
    const bool tied = orth_route_is_tied(spec) && index == spec->embed.param_index[0];
    bool here[2] = {true, false};
    *out = (orth_route){.num = 0};
    if (tied)
        find_uses(spec, here);
    if (!here[second])
        return;
    if (w->frozen) {
        if (!second || !here[0])
            add_rest(&l, out, index);
        return;
    }
    /* Alone in dp, the first use takes the finished sum of the second as the last addend of its own. */
    const bool both = here[0] && here[1], join_in_tree = both && l.dp == 1, over_cp = w->leaf == ORTH_LEAF_TOKENS && l.cp > 1;
    add_own_sums(&l, out, parts_of_sequence(spec, index, second), over_cp);
    if (join_in_tree)
        add(out, ORTH_MOMENT_STEP, second ? ORTH_ROUTE_GIVE : ORTH_ROUTE_JOIN, ORTH_NUM_GROUPS, ORTH_EXTENT_WHOLE);
    if (join_in_tree && second)
        return;
    if (over_cp && spec->mesh.fast) /* the tokens of all sequences were added up first */
        add_reduce(out, l.at_once ? ORTH_MOMENT_MICRO_BATCH : ORTH_MOMENT_STEP, ORTH_GROUP_CP,
                   ORTH_EXTENT_WHOLE, ORTH_TRAVELS_ALONE, false);
    if (l.uneven)
        add_exchange(&l, out);
    else
        add_reductions(&l, out, w->reduce);
    const orth_extent extent = l.sharded ? ORTH_EXTENT_SHARD : ORTH_EXTENT_WHOLE;
    if (both && !join_in_tree)
        add(out, ORTH_MOMENT_UPDATE, second ? ORTH_ROUTE_GIVE : ORTH_ROUTE_JOIN, ORTH_NUM_GROUPS, extent);
    else if (tied && !both && l.embed > 1)
        add(out, ORTH_MOMENT_UPDATE, ORTH_ROUTE_JOIN, ORTH_GROUP_EMBED, extent);
    if (!both || !second)
        add_update(&l, out, index);
}

void orth_route_make_loss(const orth_compile_spec *spec, orth_route *out)
{
    const layout l = layout_of(spec);
    const bool train = spec->mode == ORTH_MODE_TRAIN;
    const orth_moment first = l.at_once ? ORTH_MOMENT_MICRO_BATCH : ORTH_MOMENT_STEP;
    *out = (orth_route){.num = 0};
    if (l.cp > 1) /* each rank has the tokens that are its own */
        add_reduce(out, ORTH_MOMENT_SEQUENCE, ORTH_GROUP_CP, ORTH_EXTENT_WHOLE, ORTH_TRAVELS_ALONE, false);
    if (l.uneven)
        add(out, ORTH_MOMENT_SEQUENCE, ORTH_ROUTE_GATHER, ORTH_GROUP_DP, ORTH_EXTENT_WHOLE);
    add_tree(out, first, ORTH_EXTENT_WHOLE, ORTH_KEEP_TRANSIENT, 0, 1, false);
    if (!train || l.uneven)
        return;
    if (l.shard > 1)
        add_reduce(out, first, shard_group(&l), ORTH_EXTENT_WHOLE, ORTH_TRAVELS_ALONE, false);
    if (l.at_once)
        add_tree(out, ORTH_MOMENT_STEP, ORTH_EXTENT_WHOLE, ORTH_KEEP_TRANSIENT, 0, 0, false);
    if (l.replicate > 1)
        add_reduce(out, ORTH_MOMENT_STEP, ORTH_GROUP_REPLICATE, ORTH_EXTENT_WHOLE, ORTH_TRAVELS_ALONE, false);
}

const orth_route_stage *orth_route_find(const orth_route *r, orth_route_op op)
{
    for (int i = 0; i < r->num; i++)
        if (r->stage[i].op == op)
            return &r->stage[i];
    return NULL;
}
