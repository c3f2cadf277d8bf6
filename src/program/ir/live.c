/* live.c -- see live.h. */
#include "program/ir/live.h"

#include <stdlib.h>

/* As placement aligns chains; the buffers in a chain follow each other without a gap. */
static size_t padded_bytes(const orth_buffer *b)
{
    const size_t end = b->offset + b->bytes;
    return (b->next >= 0 ? end : (size_t)orth_round_up((int64_t)end, ORTH_PLACE_ALIGN)) - b->offset;
}

static bool has_place(const orth_buffer *b, orth_space space)
{
    return b->space == space && b->alias < 0 && !b->external;
}

static orth_class class_of_chain(const orth_program *p, int32_t buffer)
{
    while (p->buffers[buffer].prev >= 0)
        buffer = p->buffers[buffer].prev;
    return p->buffers[buffer].cls;
}

orth_status orth_live_over_step(orth_ctx *ctx, const orth_program *p, orth_space space, orth_live_bytes **out)
{
    orth_live_bytes *live = ORTH_NEW_ARRAY(ctx, orth_live_bytes, p->num_instrs + 1), sum = {{0}};
    if (!live)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < p->num_buffers; i++) {
        const orth_buffer *b = &p->buffers[i];
        if (!has_place(b, space) || b->persistent || b->first < 0)
            continue;
        const orth_class c = class_of_chain(p, i);
        live[b->first].of[c] += padded_bytes(b);
        live[b->last + 1].of[c] -= padded_bytes(b); /* modulo the word: the sums below come out right */
    }
    for (int32_t i = 0; i < p->num_instrs; i++)
        for (int c = 0; c < ORTH_NUM_CLASSES; c++)
            live[i].of[c] = sum.of[c] += live[i].of[c];
    *out = live;
    return ORTH_OK;
}

size_t orth_live_sum(const orth_live_bytes *b)
{
    size_t sum = 0;
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        sum += b->of[c];
    return sum;
}

static int largest_first(const void *a, const void *b)
{
    const orth_live_buffer *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

orth_status orth_live_during(orth_ctx *ctx, const orth_program *p, orth_space space, int32_t at, orth_live_buffer **out, int32_t *num)
{
    orth_live_buffer *live = ORTH_NEW_ARRAY(ctx, orth_live_buffer, p->num_buffers + 1);
    int32_t n = 0;
    if (!live)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < p->num_buffers; i++) {
        const orth_buffer *b = &p->buffers[i];
        if (has_place(b, space) && b->bytes > 0 && (b->persistent || (b->first >= 0 && b->first <= at && at <= b->last)))
            live[n++] = (orth_live_buffer){.buffer = i, .bytes = padded_bytes(b), .made_by = b->persistent ? -1 : b->first};
    }
    qsort(live, (size_t)n, sizeof *live, largest_first);
    *out = live;
    *num = n;
    return ORTH_OK;
}
