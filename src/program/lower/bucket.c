/* bucket.c -- gradients that are reduced by one collective, and parameters that are gathered by one.
 *
 * The tensors of a bucket are neighbours in memory, in the order of the registry. ZeRO deals parameters out in that
 * order, too, so that the pieces of a rank are neighbours, and the bucket is one call with a block for each rank.
 *
 * A gradient joins the open bucket when the last instruction that adds to it has been emitted; the bucket is reduced over
 * the shard group when it is full. What comes of it is then summed over the replicas of the shards, if there are
 * any. ZeRO 2 and 3: so it goes in every micro-batch, and this rank's pieces join the sums over the step. Where
 * communication overlaps, all that follows the reduction waits until the next bucket has been started, so that it
 * may take as long as that one takes to compute; after the last bucket of a micro-batch until the layers of the next
 * forward have been computed, after that of a step until the squares of the other gradients have.
 */
#include "program/lower/build.h"

bool orth_build_reduces_at_once(const orth_builder *b)
{
    return b->spec->mesh.zero >= 2 && b->shards;
}

/* ---- buckets ---- */

static int64_t order_of(const orth_bucket_item *i)
{
    return 2 * i->index + i->second_use;
}

static int32_t place_of(const orth_bucket *k, const orth_bucket_item *item)
{
    int32_t at = k->num;
    while (at > 0 && order_of(&k->items[at - 1]) > order_of(item))
        at--;
    return at;
}

/* The last rank with a piece of x comes no later than the first with one of y. */
static bool dealt_in_order(const orth_builder *b, int64_t x, int64_t y)
{
    int32_t ranks = orth_build_size(b, ORTH_GROUP_SHARD), last = ranks - 1, first = 0;
    while (last > 0 && b->shards[x].counts[last] == 0)
        last--;
    while (first < ranks - 1 && b->shards[y].counts[first] == 0)
        first++;
    return last <= first;
}

/* Tied embeddings are dealt out by themselves, and twice in one bucket would not be in order. */
bool orth_bucket_fits(const orth_builder *b, const orth_bucket *k, const orth_bucket_item *item)
{
    int32_t at = place_of(k, item);
    if (k->op == ORTH_OP_all_reduce)
        return true;
    return (at == 0 || dealt_in_order(b, k->items[at - 1].index, item->index)) &&
           (at == k->num || dealt_in_order(b, item->index, k->items[at].index));
}

void orth_bucket_add(orth_bucket *k, const orth_bucket_item *item)
{
    int32_t at = place_of(k, item);
    memmove(k->items + at + 1, k->items + at, (size_t)(k->num - at) * sizeof *k->items);
    k->items[at] = *item;
    k->num++;
    k->bytes += (int64_t)orth_operand_bytes(k->op == ORTH_OP_all_gather ? &item->out : &item->in);
}

/* Neighbours from now on, if they were not before: parameters are from the beginning (build.c). */
static void chain(orth_builder *b, const orth_bucket *k)
{
    int32_t *whole = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, int32_t, k->num);
    b->p->failed = b->p->failed || !whole;
    for (int32_t i = 0; whole && i < k->num; i++)
        whole[i] = k->op == ORTH_OP_all_gather ? k->items[i].out.buffer : k->items[i].in.buffer;
    if (!b->p->failed && b->p->buffers[whole[0]].prev < 0 && b->p->buffers[whole[0]].next < 0)
        orth_program_chain(b->p, whole, k->num);
}

static int64_t *counts_of(orth_builder *b, const orth_bucket *k)
{
    int32_t ranks = orth_build_size(b, ORTH_GROUP_SHARD);
    int64_t *counts = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, int64_t, (int64_t)(k->num + 1) * ranks);
    b->p->failed = b->p->failed || !counts;
    for (int32_t i = 0; counts && i < k->num; i++) {
        for (int32_t r = 0; r < ranks; r++) {
            counts[(int64_t)i * ranks + r] = b->shards[k->items[i].index].counts[r];
            counts[(int64_t)k->num * ranks + r] += b->shards[k->items[i].index].counts[r];
        }
    }
    return counts;
}

void orth_bucket_emit(orth_builder *b, orth_bucket *k)
{
    if (k->num == 0)
        return;
    orth_operand *in = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, orth_operand, 2 * (int64_t)k->num);
    b->p->failed = b->p->failed || !in;
    if (b->p->failed)
        return;
    orth_operand *out = in + k->num;
    for (int32_t i = 0; i < k->num; i++) {
        in[i] = k->items[i].in;
        out[i] = k->items[i].out;
    }
    chain(b, k);
    int64_t *counts = k->op == ORTH_OP_all_reduce ? NULL : counts_of(b, k);
    orth_instr *n = orth_build_emit(b, k->op, &(orth_attr){.group = k->group}, k->num, in, k->num, out);
    if (n) {
        n->counts = counts;
        n->joined = k->num > 1;
    }
    k->num = 0;
    k->bytes = 0;
}

/* ---- gradients ---- */

/* The sums of shard groups, whose sequences are a branch of the tree, over the replicas. */
static void reduce_over_replicas(orth_builder *b, bool at_once, orth_bucket_item *items, int32_t num)
{
    orth_bucket k = {.op = ORTH_OP_all_reduce, .group = ORTH_GROUP_REPLICATE, .items = items, .num = num};
    size_t bytes = 0;
    for (int32_t i = 0; i < k.num; i++) {
        orth_bucket_item *r = &k.items[i];
        if (at_once)
            r->out = orth_build_vector(b->uses[2 * r->index + r->second_use].step.slot[0], ORTH_F32, 0,
                                       b->shards[r->index].count);
        r->in = r->out;
        bytes += orth_operand_bytes(&r->out);
    }
    if (bytes > 0)
        orth_bucket_emit(b, &k);
}

/* What a reduced bucket is for. */
static void follow_up(orth_builder *b, orth_bucket_item *items, int32_t num)
{
    bool at_once = orth_build_reduces_at_once(b), last = false;
    bool replicas = orth_build_size(b, ORTH_GROUP_SHARD) > 1 && orth_build_size(b, ORTH_GROUP_REPLICATE) > 1;
    for (int32_t i = 0; i < num && !b->p->failed; i++) {
        const orth_bucket_item *r = &items[i];
        last = last || r->last;
        if (at_once)
            orth_build_join(b, r->index, r->second_use, r->last, r->out);
    }
    if (replicas && last && !b->p->failed)
        reduce_over_replicas(b, at_once, items, num);
}

void orth_build_follow_up(orth_builder *b)
{
    for (int k = 0; k < b->num_open; k++)
        follow_up(b, b->reduced + b->open[k], (k + 1 < b->num_open ? b->open[k + 1] : b->num_reduced) - b->open[k]);
    b->num_reduced = b->num_open = 0;
}

/* crowded: nothing is computed between this bucket and the one before, which need not be complete yet. */
static void reduce_bucket(orth_builder *b, bool crowded)
{
    int32_t num = b->grads.num;
    orth_bucket_emit(b, &b->grads);
    if (b->p->failed || num == 0)
        return;
    if (!crowded || b->num_open == ORTH_MAX_OPEN_BUCKETS || b->num_reduced + num > 2 * b->spec->num_params)
        orth_build_follow_up(b);
    b->open[b->num_open++] = b->num_reduced;
    memcpy(b->reduced + b->num_reduced, b->grads.items, (size_t)num * sizeof *b->reduced);
    b->num_reduced += num;
    if (!b->spec->comm.overlap)
        orth_build_follow_up(b);
}

void orth_build_reduce_open(orth_builder *b)
{
    reduce_bucket(b, true);
}

/* The group over which the gradient of a parameter is summed here: that of the shards where there are any. */
static orth_group group_of(const orth_builder *b, orth_reduce_rule rule)
{
    switch (rule) {
    case ORTH_REDUCE_DENSE:
        return orth_build_size(b, ORTH_GROUP_SHARD) > 1 ? orth_build_shard_group(b) : ORTH_GROUP_REPLICATE;
    }
    return ORTH_GROUP_DP; /* orth_compile has refused what is no rule */
}

void orth_build_reduce(orth_builder *b, int64_t index, bool second_use, int32_t buffer, bool last)
{
    orth_operand whole = orth_build_vector(buffer, ORTH_F32, 0, orth_build_elems(b, index));
    orth_bucket_item item = {index, second_use, last, whole, whole};
    orth_group group = group_of(b, b->spec->params[index].reduce);
    if (b->shards)
        item.out = orth_build_vector(buffer, ORTH_F32, b->shards[index].first, b->shards[index].count);
    b->grads.op = b->shards ? ORTH_OP_reduce_scatter : ORTH_OP_all_reduce;
    bool same_group = b->grads.num == 0 || b->grads.group == group;
    bool fits = same_group && orth_bucket_fits(b, &b->grads, &item);
    if (!fits)
        reduce_bucket(b, false);
    b->grads.group = group;
    orth_bucket_add(&b->grads, &item);
    if (b->grads.bytes >= b->spec->comm.bucket_bytes)
        reduce_bucket(b, !fits);
}

void orth_build_reduce_rest(orth_builder *b)
{
    orth_build_reduce_open(b);
    orth_build_follow_up(b);
}
