/* check_calls.c -- the operands of a rank's calls. */
#include <inttypes.h>

#include "program/check/check_flow_impl.h"

orth_status flow_refuse(flow *f, int32_t i, const orth_operand *o, const char *fmt, ...)
{
    const orth_instr *n = &f->p->instrs[i];
    char rule[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(rule, sizeof rule, fmt, args);
    va_end(args);
    return ORTH_FAIL(f->ctx, ORTH_ERR_INTERNAL,
                     "rank %d, instruction %d (%s, layer %d, micro-batch %d), buffer '%s': %s", f->rank, i,
                     orth_op_name(n->op), n->layer, n->micro_batch,
                     o && o->buffer >= 0 ? f->p->buffers[o->buffer].name : "-", rule);
}

orth_status flow_check_blocks(flow *f, int32_t i, const orth_operand *block, const orth_operand *all,
                                const int64_t *counts)
{
    const orth_instr *n = &f->p->instrs[i];
    int32_t size = f->g->size[n->attr->group], me = f->g->pos[n->attr->group];
    int64_t mine = orth_operand_elems(block), before = mine * me, sum = mine * size;
    if (counts) {
        sum = before = 0;
        for (int r = 0; r < size; r++) {
            before += r < me ? counts[r] : 0;
            sum += counts[r];
        }
        if (counts[me] != mine)
            return flow_refuse(f, i, block, "%" PRId64 " elements, but the count of position %d is %" PRId64, mine,
                          me, counts[me]);
    }
    if (orth_operand_elems(all) != sum)
        return flow_refuse(f, i, all, "%" PRId64 " elements, but the blocks of the %d ranks have %" PRId64,
                      orth_operand_elems(all), size, sum);
    if (block->dtype != all->dtype)
        return flow_refuse(f, i, block, "its type is %s, that of '%s' is %s", orth_dtype_name(block->dtype),
                      f->p->buffers[all->buffer].name, orth_dtype_name(all->dtype));
    size_t at = all->byte_offset + (size_t)before * orth_dtype_bytes(all->dtype);
    if (mine > 0 && block->buffer == all->buffer && block->byte_offset != at)
        return flow_refuse(f, i, block, "the block of position %d begins at byte %zu, not %zu", me, at,
                      block->byte_offset);
    return ORTH_OK;
}

/* Elements [first, first + count) are a shard of parameter `index`, or, where nothing is sharded, all of it. */
static bool is_shard(const flow *f, int64_t index, int64_t first, int64_t count, int64_t all)
{
    const int32_t ranks = f->g->size[f->g->size[ORTH_GROUP_SHARD] > 1 ? ORTH_GROUP_SHARD : ORTH_GROUP_DP];
    const int64_t *counts = f->p->shard_counts ? f->p->shard_counts[index] : NULL;
    int64_t before = 0;
    int32_t r = 0;
    if (!counts)
        return first == 0 && count == all;
    for (; r < ranks && (before < first || counts[r] == 0); r++)
        before += counts[r];
    return r < ranks && before == first && counts[r] == count;
}

orth_status flow_check_rounded(flow *f, int32_t i)
{
    const orth_operand *in = &f->p->instrs[i].in[0], *out = &f->p->instrs[i].out[0];
    const int64_t first = (int64_t)(in->byte_offset / sizeof(float)), count = orth_operand_elems(in);
    const buffer_state *s = &f->state[out->buffer];
    if (!is_shard(f, f->p->buffers[out->buffer].index, first, count, (int64_t)(f->p->buffers[in->buffer].bytes / sizeof(float))))
        return flow_refuse(f, i, in, "elements [%" PRId64 ", %" PRId64 ") are rounded together, but are no rank's shard", first, first + count);
    if (out->byte_offset != (first == 0 ? 0 : s->rounded))
        return flow_refuse(f, i, out, "blocks begin at byte %zu, but those of the elements before end at %zu", out->byte_offset, s->rounded);
    return ORTH_OK;
}

/* Members with something of an operand, the lowest and the highest of them. */
static void owners(const int64_t *counts, int32_t size, int32_t *low, int32_t *high)
{
    *low = size;
    *high = -1;
    for (int32_t r = 0; r < size; r++) {
        *low = counts[r] > 0 ? ORTH_MIN(*low, r) : *low;
        *high = counts[r] > 0 ? r : *high;
    }
}

static orth_status check_neighbours(flow *f, int32_t i, const orth_operand *o, int num)
{
    const orth_operand *before = NULL;
    for (int k = 0; k < num; k++) {
        if (orth_operand_bytes(&o[k]) == 0)
            continue;
        if (before && (before->dtype != o[k].dtype || !orth_operands_adjoin(f->p, before, &o[k])))
            return flow_refuse(f, i, &o[k], "coalesced with '%s', but it does not follow it in memory, in one type",
                          f->p->buffers[before->buffer].name);
        before = &o[k];
    }
    return ORTH_OK;
}

orth_status flow_check_coalesced(flow *f, int32_t i)
{
    const orth_instr *n = &f->p->instrs[i];
    const int32_t size = f->g->size[n->attr->group];
    ORTH_TRY(check_neighbours(f, i, n->in, n->num_in));
    ORTH_TRY(check_neighbours(f, i, n->out, n->num_out));
    for (int32_t r = 0; n->counts && r < size; r++) {
        int64_t sum = 0;
        for (int k = 0; k < n->num_in; k++)
            sum += n->counts[(int64_t)k * size + r];
        if (sum != n->counts[(int64_t)n->num_in * size + r])
            return flow_refuse(f, i, &n->in[0], "the block of position %d has %" PRId64 " elements, those of the operands %"
                          PRId64, r, n->counts[(int64_t)n->num_in * size + r], sum);
    }
    int32_t last = -1;
    for (int k = 0; n->counts && k < n->num_in; k++) {
        int32_t low, high;
        owners(n->counts + (int64_t)k * size, size, &low, &high);
        if (low < last)
            return flow_refuse(f, i, &n->in[k], "position %d has elements of it, and position %d of a coalesced operand before",
                          low, last);
        last = ORTH_MAX(last, high);
    }
    return ORTH_OK;
}
