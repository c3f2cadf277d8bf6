/* follow.c -- gradients on their way along their routes (route.h).
 *
 * What one stage completes is handed to the next. Where communication overlaps, a stage that communicates starts its call, and
 * the gradient waits in a queue, so that the call may take as long as computation goes on beside it. It goes on
 *  1. when the next call of its kind has been started: of one gradient (over cp), or of a bucket (bucket.c);
 *  2. buckets: when the layers of the next forward have been computed, since the head wants the memory;
 *  3. single gradients: when the backward of a micro-batch ends;
 *  4. held sums over cp: when the chunk has sent its gradient to the stage before;
 *  5. before the update, or before the first square that needs it (update.c).
 */
#include "program/lower/build.h"

#define GONE_ON ((orth_travels)0) /* of an entry of the queue that is about to be removed */
#define HELD ((orth_travels)-1)   /* of one whose call is to be started yet (orth_build_hold) */

void orth_build_park(orth_builder *b, const orth_waiting_grad *g)
{
    b->waiting[b->num_waiting++] = *g;
}

/* What was rounded for its way goes back to where it was. */
static orth_operand widen(orth_builder *b, const orth_waiting_grad *g)
{
    const bool shard = b->uses[g->use].route.stage[g->stage].extent == ORTH_EXTENT_SHARD;
    const orth_operand wide = shard ? orth_build_own_elems(b, g->source, ORTH_F32, g->use / 2)
                                    : orth_build_vector(g->source, ORTH_F32, 0, orth_build_elems(b, g->use / 2));
    const orth_op op = g->value.dtype == ORTH_Q8 ? ORTH_OP_widen_int8 : ORTH_OP_widen;
    orth_build_emit(b, op, &(orth_attr){0}, 1, &g->value, 1, &wide);
    return wide;
}

/* In fp32. */
static void go_on(orth_builder *b, const orth_waiting_grad *g)
{
    const orth_route *r = &b->uses[g->use].route;
    if (b->p->failed)
        return;
    if (g->stage < r->num && r->stage[g->stage].op == ORTH_ROUTE_WIDEN)
        orth_build_follow(b, g->use, g->stage + 1, widen(b, g));
    else
        orth_build_follow(b, g->use, g->stage, g->value);
}

/* The first that waits after such a call; -1: none. */
static int32_t first_waiting(const orth_builder *b, orth_travels travels)
{
    for (int32_t i = 0; i < b->num_waiting; i++)
        if (b->waiting[i].travels == travels)
            return i;
    return -1;
}

/* Removes what has gone on. */
static void remove_gone(orth_builder *b)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < b->num_waiting; i++)
        if (b->waiting[i].travels != GONE_ON)
            b->waiting[kept++] = b->waiting[i];
    b->num_waiting = kept;
}

/* Each is marked before it goes on: what it does then may add to the queue, or let others go on. */
void orth_build_resume(orth_builder *b, orth_travels travels)
{
    for (int32_t i; !b->p->failed && (i = first_waiting(b, travels)) >= 0;) {
        const orth_waiting_grad g = b->waiting[i];
        b->waiting[i].travels = GONE_ON;
        go_on(b, &g);
        const int32_t next = first_waiting(b, travels);
        if (travels == ORTH_TRAVELS_IN_BUCKET && (next < 0 || b->waiting[next].call != g.call))
            orth_bucket_reduce_together(b);
    }
    remove_gone(b);
}

bool orth_build_is_waiting(const orth_builder *b, int64_t index)
{
    for (int32_t i = 0; i < b->num_waiting; i++)
        if (b->waiting[i].use / 2 == index)
            return true;
    return false;
}

/* A gradient is reduced by itself. Returns whether it goes on at once. */
static bool reduce_alone(orth_builder *b, int64_t use, int32_t stage, orth_operand *value)
{
    const orth_route_stage *s = &b->uses[use].route.stage[stage];
    *value = orth_build_vector(value->buffer, ORTH_F32, 0, orth_build_elems(b, use / 2));
    orth_build_emit(b, ORTH_OP_all_reduce, &(orth_attr){.group = s->over}, 1, value, 1, value);
    orth_build_resume(b, s->travels);
    if (s->lag)
        orth_build_park(b, &(orth_waiting_grad){use, stage + 1, s->travels, ++b->calls, *value, value->buffer});
    return !s->lag;
}

/* Not where the gradient would leave the device, or shrink to a shard, that much later: one that is added up over micro-batches is whole anyway. With
 * uneven shares ranks of dp have different numbers of these, and have to reduce in the same order. */
static bool is_held(const orth_builder *b, const orth_route_stage *s, int32_t buffer)
{
    return b->holds && s->when == ORTH_MOMENT_STEP && s->over == ORTH_GROUP_CP && b->spec->num_micro_batches > 1 && !b->spec->shares && !b->p->failed &&
           b->p->buffers[buffer].copy_of == 0;
}

void orth_build_hold(orth_builder *b, bool hold)
{
    b->holds = hold;
    if (!hold)
        orth_build_resume(b, HELD);
}

/* A gradient has come as far as it comes before the update. Where it is kept elsewhere it leaves, and what is complete is squared
 * before. */
static void leave(orth_builder *b, int64_t use, const orth_route_stage *next, orth_operand value)
{
    if (b->p->failed || b->p->buffers[value.buffer].copy_of == 0)
        return;
    if (next && next->op == ORTH_ROUTE_OPTIMIZE && !b->spec->async)
        orth_build_square_early(b, use / 2, value.buffer);
    orth_far_return(b, value);
}

void orth_build_follow(orth_builder *b, int64_t use, int32_t stage, orth_operand value)
{
    const orth_route *r = &b->uses[use].route;
    for (; stage < r->num && r->stage[stage].when < ORTH_MOMENT_UPDATE && !b->p->failed; stage++) {
        switch (r->stage[stage].op) {
        case ORTH_ROUTE_TREE:
            if (!orth_build_add_leaf(b, use, stage, &value))
                return;
            break;
        case ORTH_ROUTE_REDUCE:
            if (r->stage[stage].travels != ORTH_TRAVELS_ALONE) {
                orth_bucket_reduce(b, use, stage, value);
                return;
            }
            if (is_held(b, &r->stage[stage], value.buffer)) {
                orth_build_park(b, &(orth_waiting_grad){use, stage, HELD, 0, value, value.buffer});
                return;
            }
            if (!reduce_alone(b, use, stage, &value))
                return;
            break;
        case ORTH_ROUTE_JOIN: /* the tree has added it */
            break;
        default:              /* the other use takes it */
            leave(b, use, NULL, value);
            return;
        }
    }
    leave(b, use, stage < r->num ? &r->stage[stage] : NULL, value);
}

void orth_build_end_of_gradients(orth_builder *b)
{
    const orth_bucket_item *i = b->grads.items;
    orth_build_resume(b, ORTH_TRAVELS_ALONE);
    if (b->grads.num > 0 && b->uses[i->use].route.stage[i->stage].when == ORTH_MOMENT_MICRO_BATCH)
        orth_bucket_start(b, true);
}

void orth_build_finish_gradients(orth_builder *b, bool rest)
{
    orth_bucket_start(b, true);
    if (rest)
        orth_build_resume(b, ORTH_TRAVELS_IN_BUCKET);
}
