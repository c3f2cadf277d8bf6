/* far.c -- parameters and gradients that are kept in the host's memory or in a file (memory.offload_params, offload_gradients).
 *
 *     copy in    w 1 | w 2          | w 3          |            w: what kernels read of a block comes, before its turn (passes/fetch.h)
 *     compute        | block 1      | block 2      | ...
 *     copy out                      | g 1          | g 2        g: a gradient goes back
 *
 * Kernels and communicators work on copies: transient buffers in their own space, each of a range of a far buffer. A copy is brought
 * before its use and dies after it. What is changed in it goes back; check.c holds programs to
 * that. Between a file and a device a copy passes through a transient buffer of the host's memory.
 *
 * A transient buffer is as large as the shard that is copied to it, so that ranks with other shards have programs of their own
 * (parallel/classes.c): what shares its bytes is another instruction on each.
 *
 * A gradient that grows over micro-batches is brought, added to by the product that makes the next part, and returned. So sums have
 * the operands of a program without offload, in the same order. What is still on its way back when it is wanted again (the head's, chunk
 * by chunk) stays.
 *
 * Source: Rajbhandari et al., "ZeRO-Infinity", arXiv:2104.07857; Ren et al., "ZeRO-Offload", arXiv:2101.06840.
 */
#include "program/lower/build.h"

void orth_far_put(orth_builder *b, int32_t buffer, orth_tier tier)
{
    if (!b->p->failed && tier != ORTH_TIER_NONE)
        b->p->buffers[buffer].space = orth_tier_space(tier);
}

bool orth_is_far(const orth_builder *b, int32_t buffer)
{
    return !b->p->failed && buffer >= 0 && b->p->buffers[buffer].space != b->p->space;
}

/* A copy in `space` of the elements of operand o, which are in a far buffer, or in another copy of it. */
static orth_operand add_copy(orth_builder *b, orth_operand o, orth_space space)
{
    const orth_buffer *from = &b->p->buffers[o.buffer];
    const int32_t far = from->copy_of > 0 ? from->copy_of - 1 : o.buffer;
    const orth_buffer buffer = {
        .name = orth_arena_printf(b->ctx, &b->p->arena, "%s.%s", space == ORTH_SPACE_HOST ? "by" : "near", b->p->buffers[far].name),
        .bytes = orth_operand_bytes(&o), .cls = from->cls, .dtype = from->dtype, .index = from->index, .copy_of = far + 1,
        .first_elem = from->first_elem + (int64_t)(o.byte_offset / orth_dtype_bytes(o.dtype)), .copy_at = from->copy_at + (int64_t)o.byte_offset};
    o.buffer = orth_program_add_buffer(b->p, &buffer);
    o.byte_offset = 0;
    if (!b->p->failed)
        b->p->buffers[o.buffer].space = space;
    return o;
}

static bool is_in_file(const orth_builder *b, int32_t buffer)
{
    return !b->p->failed && b->p->buffers[buffer].space == ORTH_SPACE_FILE;
}

static int32_t start_copy(orth_builder *b, orth_operand from, orth_operand to)
{
    return orth_build_start(b, ORTH_OP_copy, &(orth_attr){0}, 1, &from, 1, &to);
}

orth_operand orth_far_room(orth_builder *b, orth_operand o)
{
    return orth_is_far(b, o.buffer) ? add_copy(b, o, b->p->space) : o;
}

void orth_far_bring_to(orth_builder *b, orth_operand o, orth_operand near)
{
    int32_t by = -1;
    if (!orth_is_far(b, o.buffer))
        return;
    if (is_in_file(b, o.buffer)) {
        const orth_operand between = add_copy(b, o, ORTH_SPACE_HOST);
        by = start_copy(b, o, between);
        o = between;
    }
    const int32_t call = start_copy(b, o, near);
    orth_build_until_here(b, by);
    orth_build_until_here(b, call);
}

/* The copy of the operand that is on its way back; buffer -1: none. */
static orth_operand find_returning(const orth_builder *b, orth_operand o)
{
    for (int32_t k = b->num_stores - 1; k >= 0 && !b->p->failed; k--) {
        const orth_operand *near = &b->stores[k].near;
        const orth_buffer *copy = &b->p->buffers[near->buffer];
        if (copy->copy_of != o.buffer + 1)
            continue;
        if (copy->copy_at + (int64_t)near->byte_offset != (int64_t)o.byte_offset || orth_operand_bytes(near) != orth_operand_bytes(&o))
            break; /* a part of it */
        o.buffer = near->buffer;
        o.byte_offset = near->byte_offset;
        return o;
    }
    return orth_operand_absent;
}

orth_operand orth_far_bring(orth_builder *b, orth_operand o)
{
    const orth_operand there = find_returning(b, o);
    if (there.buffer >= 0)
        return there;
    const orth_operand near = orth_far_room(b, o);
    orth_far_bring_to(b, o, near);
    return near;
}

static void end_oldest(orth_builder *b)
{
    for (int k = 0; k < 2; k++)
        orth_build_until_here(b, b->stores[0].call[k]);
    b->num_stores--;
    memmove(b->stores, b->stores + 1, (size_t)b->num_stores * sizeof *b->stores);
}

void orth_far_return(orth_builder *b, orth_operand near)
{
    const int32_t far = b->p->failed || near.buffer < 0 ? -1 : b->p->buffers[near.buffer].copy_of - 1;
    const orth_operand back = near;
    int32_t by = -1;
    if (far < 0)
        return;
    if (b->num_stores == ORTH_MAX_PENDING_STORES)
        end_oldest(b);
    orth_operand to = near;
    to.buffer = far;
    to.byte_offset += (size_t)b->p->buffers[near.buffer].copy_at;
    if (is_in_file(b, far)) {
        const orth_operand between = add_copy(b, near, ORTH_SPACE_HOST);
        by = start_copy(b, near, between);
        near = between;
    }
    const int32_t call = start_copy(b, near, to);
    b->stores[b->num_stores++] = (orth_store){back, {by, call}};
}

void orth_far_end_returns(orth_builder *b)
{
    while (b->num_stores > 0)
        end_oldest(b);
}

/* ---- room ---- */

typedef struct {
    size_t begin, end;      /* begin >= end: nothing */
} range;

/* What instructions are given of each buffer. */
static void find_given(orth_program *p, range *given)
{
    for (int32_t i = 0; i < p->num_buffers; i++)
        given[i] = (range){SIZE_MAX, 0};
    for (int32_t i = 0; i < p->num_instrs; i++)
        for (int k = 0; k < orth_instr_num_operands(&p->instrs[i]); k++) {
            const orth_operand *o = orth_instr_operand(&p->instrs[i], k);
            const size_t bytes = orth_operand_bytes(o);
            if (o->buffer < 0 || bytes == 0)
                continue;
            given[o->buffer].begin = ORTH_MIN(given[o->buffer].begin, o->byte_offset);
            given[o->buffer].end = ORTH_MAX(given[o->buffer].end, o->byte_offset + bytes);
        }
}

/* Whether a buffer is to lose its bytes outside of `given`. Those that hold a shard have their size from it (views.h). */
static bool fit(const orth_builder *b, int32_t i, range *given)
{
    const orth_buffer *x = &b->p->buffers[i];
    if (x->cls != ORTH_CLASS_GRADS || !x->persistent || x->space == b->p->space || x->shard_elem)
        return false;
    if (given->begin >= given->end)
        *given = (range){0, 0};
    return given->begin > 0 || given->end < x->bytes;
}

/* A sum over the batch that was complete at once was reduced before it left: of a far gradient only the shard is ever there, of other
 * owners' none. */
void orth_far_fit(orth_builder *b)
{
    orth_program *p = b->p;
    range *given = p->failed ? NULL : ORTH_NEW_ARRAY(b->ctx, range, p->num_buffers + 1);
    p->failed = !given;
    if (p->failed)
        return;
    find_given(p, given);
    for (int32_t i = 0; i < p->num_buffers; i++) {
        orth_buffer *x = &p->buffers[i];
        if (!fit(b, i, &given[i])) {
            given[i].begin = 0;
            continue;
        }
        x->first_elem += (int64_t)(given[i].begin / sizeof(float));
        x->bytes = given[i].end - given[i].begin;
    }
    for (int32_t i = 0; i < p->num_buffers; i++)
        if (p->buffers[i].copy_of > 0)
            p->buffers[i].copy_at -= (int64_t)given[p->buffers[i].copy_of - 1].begin;
    for (int32_t i = 0; i < p->num_instrs; i++)
        for (int k = 0; k < orth_instr_num_operands(&p->instrs[i]); k++) {
            orth_operand *o = k < p->instrs[i].num_in ? &p->instrs[i].in[k] : &p->instrs[i].out[k - p->instrs[i].num_in];
            if (o->buffer >= 0) /* one without elements may have been anywhere */
                o->byte_offset = ORTH_MIN(o->byte_offset - ORTH_MIN(o->byte_offset, given[o->buffer].begin), p->buffers[o->buffer].bytes);
        }
    orth_mem_free(b->ctx, given);
}
