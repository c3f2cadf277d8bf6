/* bucket.c -- gradients that are reduced by one collective, and parameters that are gathered by one.
 *
 * The tensors of a bucket are neighbours in memory, in the order of the registry. ZeRO deals parameters out in that
 * order, too, so that the pieces of a rank are neighbours, and the bucket is one call with a block for each rank.
 *
 * A gradient joins the open bucket when it comes to a stage of its route that reduces in buckets; the bucket is reduced when it
 * is full. What is reduced goes on along its route later, where communication overlaps (follow.c).
 */
#include "program/ir/comm_call.h"
#include "program/lower/build.h"
#include "tensor/q8.h"

/* ---- buckets ---- */

static int32_t place_of(const orth_bucket *k, const orth_bucket_item *item)
{
    int32_t at = k->num;
    while (at > 0 && k->items[at - 1].use > item->use)
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

static bool gathers(const orth_bucket *k)
{
    return orth_op_comm_kind(k->op, true) == ORTH_COMM_ALL_GATHER;
}

/* Else every rank has all of it. */
static bool has_blocks(const orth_bucket *k)
{
    return orth_op_comm_kind(k->op, true) != ORTH_COMM_ALL_REDUCE;
}

/* Tied embeddings are dealt out by themselves, and twice in one bucket would not be in order. */
bool orth_bucket_fits(const orth_builder *b, const orth_bucket *k, const orth_bucket_item *item)
{
    int32_t at = place_of(k, item);
    if (!has_blocks(k)) /* whose order could be wrong */
        return true;
    return (at == 0 || dealt_in_order(b, k->items[at - 1].use / 2, item->use / 2)) &&
           (at == k->num || dealt_in_order(b, item->use / 2, k->items[at].use / 2));
}

void orth_bucket_add(orth_bucket *k, const orth_bucket_item *item)
{
    int32_t at = place_of(k, item);
    memmove(k->items + at + 1, k->items + at, (size_t)(k->num - at) * sizeof *k->items);
    k->items[at] = *item;
    k->num++;
    k->bytes += (int64_t)orth_operand_bytes(gathers(k) ? &item->out : &item->in);
}

/* Neighbours from now on, if they were not before: parameters are from the beginning (build.c). outputs: what comes out of the call,
 * else what goes in. */
static void chain(orth_builder *b, const orth_bucket *k, bool outputs)
{
    int32_t *all = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, int32_t, k->num);
    b->p->failed = b->p->failed || !all;
    for (int32_t i = 0; all && i < k->num; i++)
        all[i] = outputs ? k->items[i].out.buffer : k->items[i].in.buffer;
    if (!b->p->failed && b->p->buffers[all[0]].prev < 0 && b->p->buffers[all[0]].next < 0)
        orth_program_chain(b->p, all, k->num);
}

static int64_t *counts_of(orth_builder *b, const orth_bucket *k)
{
    int32_t ranks = orth_build_size(b, ORTH_GROUP_SHARD);
    int64_t *counts = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, int64_t, (int64_t)(k->num + 1) * ranks);
    b->p->failed = b->p->failed || !counts;
    for (int32_t i = 0; counts && i < k->num; i++) {
        const int64_t *of = b->shards[k->items[i].use / 2].counts, each = orth_dtype_numbers(k->items[i].in.dtype);
        for (int32_t r = 0; r < ranks; r++) {
            counts[(int64_t)i * ranks + r] = orth_div_up(of[r], each);
            counts[(int64_t)k->num * ranks + r] += orth_div_up(of[r], each);
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
    /* A gather fills buffers of their own. What comes out of a reduction lies in what went in. */
    chain(b, k, gathers(k));
    chain(b, k, false);
    int64_t *counts = has_blocks(k) ? counts_of(b, k) : NULL;
    orth_instr *n = orth_build_emit(b, k->op, &(orth_attr){.group = k->group}, k->num, in, k->num, out);
    if (n) {
        n->counts = counts;
        n->coalesced = k->num > 1;
    }
    for (int32_t i = 0; b->phase == ORTH_PHASE_UPDATE && gathers(k) && i < k->num; i++)
        orth_far_return(b, out[i]);
    k->num = 0;
    k->bytes = 0;
}

void orth_bucket_emit_gathers(orth_builder *b)
{
    for (int k = 0; k < ORTH_COUNT(b->gathers); k++)
        orth_bucket_emit(b, &b->gathers[k]);
}

/* ---- gradients ---- */

/* Calls whose gradients wait, and these gradients. */
static int count_waiting(const orth_builder *b, int32_t *num)
{
    int calls = 0;
    int32_t last = 0;
    *num = 0;
    for (int32_t i = 0; i < b->num_waiting; i++) {
        if (b->waiting[i].travels != ORTH_TRAVELS_IN_BUCKET)
            continue;
        calls += b->waiting[i].call != last;
        last = b->waiting[i].call;
        ++*num;
    }
    return calls;
}

void orth_bucket_start(orth_builder *b, bool crowded)
{
    const int32_t num = b->grads.num;
    int32_t waiting;
    orth_bucket_emit(b, &b->grads);
    if (b->p->failed || num == 0)
        return;
    const int calls = count_waiting(b, &waiting);
    /* Crowded: nothing was computed since the bucket before was started, so to wait for that would hold up this rank. It is put off
     * as long as there is room for what waits. */
    if (!crowded || calls == ORTH_MAX_OPEN_BUCKETS || waiting + num > 2 * b->spec->num_params)
        orth_build_resume(b, ORTH_TRAVELS_IN_BUCKET);
    b->calls++;
    bool lag = false;
    for (int32_t i = 0; i < num; i++) {
        const orth_bucket_item *item = &b->grads.items[i];
        lag = b->uses[item->use].route.stage[item->stage].lag;
        orth_build_park(b, &(orth_waiting_grad){item->use, item->stage + 1, ORTH_TRAVELS_IN_BUCKET, b->calls, item->out, item->source});
    }
    if (!lag)
        orth_build_resume(b, ORTH_TRAVELS_IN_BUCKET);
}

/* The sums of shard groups, whose sequences are a branch of the tree, over the replicas. The update is all that comes then. */
void orth_bucket_reduce_together(orth_builder *b)
{
    const int32_t num = b->together.num;
    orth_bucket_emit(b, &b->together);
    for (int32_t i = 0; i < num; i++) {
        const orth_bucket_item *item = &b->together.items[i];
        orth_build_follow(b, item->use, item->stage + 1, item->out);
    }
}

/* `value` rounded to `sent`, in parts of counts[num] elements. */
static void round_parts(orth_builder *b, orth_operand value, orth_operand sent, const int64_t *counts, int32_t num)
{
    const orth_op op = sent.dtype == ORTH_Q8 ? ORTH_OP_cast_int8 : ORTH_OP_cast;
    int64_t from = 0, to = 0;
    for (int32_t r = 0; r < num; r++) {
        const int64_t elems = orth_div_up(counts[r], orth_dtype_numbers(sent.dtype));
        const orth_operand in = orth_build_vector(value.buffer, ORTH_F32, from, counts[r]);
        const orth_operand out = orth_build_vector(sent.buffer, sent.dtype, to, elems);
        if (elems > 0)
            orth_build_emit(b, op, &(orth_attr){0}, 1, &in, 1, &out);
        from += counts[r];
        to += elems;
    }
}

/* What travels of a gradient: itself, or itself rounded. Of int8 each rank's shard has blocks of its own. */
static orth_operand sent_of(orth_builder *b, int64_t use, orth_operand value, bool shard)
{
    const orth_dtype type = b->spec->comm.reduce;
    const bool apart = shard && type == ORTH_Q8;
    const int64_t *counts = apart ? b->shards[use / 2].counts : value.dim;
    const int32_t num = apart ? orth_build_size(b, ORTH_GROUP_SHARD) : 1;
    int64_t elems = 0;
    if (type == ORTH_F32)
        return value;
    for (int32_t r = 0; r < num; r++)
        elems += orth_div_up(counts[r], orth_dtype_numbers(type));
    const orth_operand sent = orth_build_part(b, use, type, elems);
    round_parts(b, value, sent, counts, num);
    return sent;
}

void orth_bucket_reduce(orth_builder *b, int64_t use, int32_t stage, orth_operand value)
{
    const orth_route_stage *s = &b->uses[use].route.stage[stage];
    if (s->travels == ORTH_TRAVELS_TOGETHER) {
        b->together.group = s->over;
        orth_bucket_add(&b->together, &(orth_bucket_item){use, stage, value, value, value.buffer});
        return;
    }
    const bool shard = s->extent == ORTH_EXTENT_SHARD;
    const orth_operand whole = sent_of(b, use, orth_build_vector(value.buffer, ORTH_F32, 0, orth_build_elems(b, use / 2)), shard);
    const orth_bucket_item item = {use, stage, whole, shard ? orth_build_own_elems(b, whole.buffer, whole.dtype, use / 2) : whole, value.buffer};
    b->grads.op = shard ? ORTH_OP_reduce_scatter : ORTH_OP_all_reduce;
    bool same_group = b->grads.num == 0 || b->grads.group == s->over;
    bool fits = same_group && orth_bucket_fits(b, &b->grads, &item);
    if (!fits)
        orth_bucket_start(b, false);
    b->grads.group = s->over;
    orth_bucket_add(&b->grads, &item);
    if (b->grads.bytes >= b->spec->comm.bucket_bytes)
        orth_bucket_start(b, !fits);
}
