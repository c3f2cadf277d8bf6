/* place.c -- see place.h. */
#include "program/passes/place.h"

#include <stdlib.h>

#include "program/passes/pack.h"

static size_t aligned(size_t bytes)
{
    return (bytes + ORTH_PLACE_ALIGN - 1) / ORTH_PLACE_ALIGN * ORTH_PLACE_ALIGN;
}

/* ---- lives ---- */

static void touch(orth_program *p, const orth_operand *o, int32_t at)
{
    if (o->buffer < 0)
        return;
    orth_buffer *b = &p->buffers[o->buffer];
    if (b->first < 0)
        b->first = at;
    b->last = at;
}

static void find_lives(orth_program *p)
{
    for (int32_t b = 0; b < p->num_buffers; b++)
        p->buffers[b].first = p->buffers[b].last = -1;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *in = &p->instrs[i];
        for (int k = 0; k < in->num_in; k++)
            touch(p, &in->in[k], i);
        for (int k = 0; k < in->num_out; k++)
            touch(p, &in->out[k], i);
    }
}

/* The buffers of a chain live as long as any of them. */
static void join_lives(orth_program *p)
{
    for (int32_t head = 0; head < p->num_buffers; head++) {
        orth_buffer *h = &p->buffers[head];
        if (h->prev >= 0 || h->next < 0)
            continue;
        int32_t first = INT32_MAX, last = -1;
        for (int32_t b = head; b >= 0; b = p->buffers[b].next) {
            first = p->buffers[b].first >= 0 ? ORTH_MIN(first, p->buffers[b].first) : first;
            last = ORTH_MAX(last, p->buffers[b].last);
        }
        for (int32_t b = head; last >= 0 && b >= 0; b = p->buffers[b].next) {
            p->buffers[b].first = first;
            p->buffers[b].last = last;
        }
    }
}

static bool covers(const orth_program *p, const orth_operand *o)
{
    const orth_buffer *b = o->buffer >= 0 ? &p->buffers[o->buffer] : NULL;
    return b && !b->persistent && b->prev < 0 && b->next < 0 && o->byte_offset == 0 &&
           orth_operand_bytes(o) == b->bytes;
}

static const enum { NONE = 0, IN0 } aliases[ORTH_NUM_OPS] = {
#define OP(name, family, in, out, vjp, flops, sum, alias, ...) [ORTH_OP_##name] = alias,
#include "kernels/ops.def"
#undef OP
};

/* Out takes over the bytes of in[0] where the op allows it and nobody reads in[0] afterwards. */
static void find_aliases(orth_program *p)
{
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (aliases[n->op] == NONE)
            continue;
        if (!covers(p, &n->in[0]) || !covers(p, &n->out[0]))
            continue;
        int32_t in = orth_buffer_root(p, n->in[0].buffer), out = n->out[0].buffer;
        if (p->buffers[in].last != i || p->buffers[out].first != i ||
            p->buffers[in].bytes != p->buffers[out].bytes)
            continue;
        p->buffers[out].alias = in;
        p->buffers[in].last = p->buffers[out].last;
    }
}

/* ---- packing ---- */

static size_t chain_bytes(const orth_program *p, int32_t head)
{
    size_t bytes = 0;
    for (int32_t b = head; b >= 0; b = p->buffers[b].next)
        bytes += p->buffers[b].bytes;
    return aligned(bytes);
}

static void put_chain(orth_program *p, int32_t head, size_t at)
{
    for (int32_t b = head; b >= 0; b = p->buffers[b].next) {
        p->buffers[b].offset = at;
        at += p->buffers[b].bytes;
    }
}

static int by_weight(const void *a, const void *b)
{
    const orth_pack_block *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static double weight_of(const orth_pack_block *it, int order)
{
    double size = (double)it->bytes, life = it->last - it->first + 1;
    switch (order) {
    case 0: return size;
    case 1: return size * life;
    case 2: return life;
    default: return -it->first;
    }
}

static size_t live_peak(const orth_pack_block *items, int32_t n, int32_t num_instrs, int64_t *delta)
{
    for (int32_t i = 0; i <= num_instrs; i++)
        delta[i] = 0;
    for (int32_t i = 0; i < n; i++) {
        delta[items[i].first] += (int64_t)items[i].bytes;
        delta[items[i].last + 1] -= (int64_t)items[i].bytes;
    }
    int64_t live = 0, peak = 0;
    for (int32_t i = 0; i <= num_instrs; i++) {
        live += delta[i];
        peak = ORTH_MAX(peak, live);
    }
    return (size_t)peak;
}

/* What is placed: the transient buffers, a chain of them as one. Returns how many. */
static int32_t list_blocks(const orth_program *p, orth_pack_block *blocks)
{
    int32_t n = 0;
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        if (!buf->persistent && buf->alias < 0 && buf->first >= 0 && buf->prev < 0)
            blocks[n++] = (orth_pack_block){.buffer = b, .first = buf->first, .last = buf->last, .bytes = chain_bytes(p, b)};
    }
    return n;
}

/* ---- what was found before ---- */

struct orth_place_found {
    orth_pack_block *blocks; /* [n] in the order of their buffers, with offsets */
    int32_t n;
    size_t height;
};

static bool same_lives(const orth_pack_block *a, const orth_pack_block *b, int32_t n)
{
    int32_t i = 0;
    while (i < n && a[i].first == b[i].first && a[i].last == b[i].last && a[i].bytes == b[i].bytes)
        i++;
    return i == n;
}

/* The order of buffers settles ties, so equal sizes and lives in that order have equal offsets. */
static const orth_place_found *recall(const orth_place_memory *m, const orth_pack_block *blocks, int32_t n)
{
    for (int64_t i = m ? m->num - 1 : -1; i >= 0 && i >= m->num - ORTH_PLACE_MEMORY; i--) {
        const orth_place_found *f = &m->found[i % ORTH_PLACE_MEMORY];
        if (f->n == n && same_lives(f->blocks, blocks, n))
            return f;
    }
    return NULL;
}

static orth_status remember(orth_ctx *ctx, orth_place_memory *m, const orth_program *p, int32_t n, size_t height)
{
    if (!m->found)
        m->found = ORTH_NEW_ARRAY(ctx, orth_place_found, ORTH_PLACE_MEMORY);
    orth_pack_block *blocks = m->found ? ORTH_NEW_ARRAY(ctx, orth_pack_block, n + 1) : NULL;
    if (!blocks)
        return ORTH_ERR_NOMEM;
    list_blocks(p, blocks);
    for (int32_t i = 0; i < n; i++)
        blocks[i].offset = p->buffers[blocks[i].buffer].offset;
    orth_place_found *f = &m->found[m->num++ % ORTH_PLACE_MEMORY];
    orth_mem_free(ctx, f->blocks);
    *f = (orth_place_found){blocks, n, height};
    return ORTH_OK;
}

void orth_place_forget(orth_ctx *ctx, orth_place_memory *m)
{
    for (int i = 0; m->found && i < ORTH_PLACE_MEMORY; i++)
        orth_mem_free(ctx, m->found[i].blocks);
    orth_mem_free(ctx, m->found);
    *m = (orth_place_memory){0};
}

/* ---- the best of several orders ---- */

static void put_blocks(orth_program *p, const orth_pack_block *to, const orth_pack_block *from, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        put_chain(p, to[i].buffer, from[i].offset);
}

static orth_status try_orders(orth_ctx *ctx, orth_program *p, orth_pack_block *blocks, int32_t n, size_t bound, size_t *best)
{
    size_t height;
    *best = SIZE_MAX;
    for (int order = 0; order < 4 && *best > bound; order++) {
        for (int32_t i = 0; i < n; i++)
            blocks[i].weight = weight_of(&blocks[i], order);
        qsort(blocks, (size_t)n, sizeof *blocks, by_weight);
        ORTH_TRY(orth_pack(ctx, blocks, n, p->num_instrs, &height));
        if (height < *best)
            put_blocks(p, blocks, blocks, n);
        *best = ORTH_MIN(*best, height);
    }
    return ORTH_OK;
}

/* Offsets of the transient buffers from the start of their region; its height, and what no placement can go below. */
static orth_status pack_transients(orth_ctx *ctx, orth_program *p, orth_place_memory *m, size_t *out_height, size_t *out_bound)
{
    orth_pack_block *blocks = ORTH_NEW_ARRAY(ctx, orth_pack_block, p->num_buffers + 1);
    int64_t *delta = ORTH_NEW_ARRAY(ctx, int64_t, p->num_instrs + 2);
    orth_status status = blocks && delta ? ORTH_OK : ORTH_ERR_NOMEM;
    const int32_t n = status == ORTH_OK ? list_blocks(p, blocks) : 0;
    const orth_place_found *known = status == ORTH_OK ? recall(m, blocks, n) : NULL;
    if (status == ORTH_OK)
        *out_bound = live_peak(blocks, n, p->num_instrs, delta);
    if (known) {
        put_blocks(p, blocks, known->blocks, n);
        *out_height = known->height;
    } else if (status == ORTH_OK) {
        status = try_orders(ctx, p, blocks, n, *out_bound, out_height);
        if (status == ORTH_OK && m)
            status = remember(ctx, m, p, n, *out_height);
    }
    orth_mem_free(ctx, blocks);
    orth_mem_free(ctx, delta);
    return status;
}

static void add_workspace(orth_program *p, int num_threads, orth_isa isa)
{
    size_t most = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
        if (orth_op_is_comm(n->op))
            continue;
        for (int k = 0; k < n->num_in; k++)
            in[k] = orth_operand_tensor(&n->in[k]);
        for (int k = 0; k < n->num_out; k++)
            out[k] = orth_operand_tensor(&n->out[k]);
        orth_op_call call = {.in = in, .out = out, .num_in = n->num_in, .num_out = n->num_out, .attr = &n->attr};
        most = ORTH_MAX(most, orth_op_workspace_bytes(n->op, &call, num_threads, isa));
    }
    orth_buffer b = {.name = "workspace", .bytes = most, .cls = ORTH_CLASS_WORKSPACE, .persistent = true};
    p->workspace = orth_program_add_buffer(p, &b);
}

/* The persistent buffers, of chains the first ones, class by class. */
static void list_persistent(orth_program *p)
{
    p->num_persistent = 0;
    p->persistent = ORTH_ARENA_ARRAY(p->ctx, &p->arena, int32_t, p->num_buffers);
    p->failed = p->failed || !p->persistent;
    for (int c = 0; c < ORTH_NUM_CLASSES && !p->failed; c++)
        for (int32_t b = 0; b < p->num_buffers; b++) {
            const orth_buffer *buf = &p->buffers[b];
            if (buf->persistent && !buf->external && (int)buf->cls == c && buf->prev < 0)
                p->persistent[p->num_persistent++] = b;
        }
}

/* Their offsets, and what each class has. Returns the sum. */
static size_t put_persistent(orth_program *p)
{
    size_t at = 0;
    memset(p->persistent_bytes, 0, sizeof p->persistent_bytes);
    for (int32_t i = 0; i < p->num_persistent; i++) {
        const int32_t b = p->persistent[i];
        const size_t bytes = chain_bytes(p, b);
        put_chain(p, b, at);
        p->persistent_bytes[p->buffers[b].cls] += bytes;
        at += bytes;
    }
    return at;
}

orth_status orth_place(orth_ctx *ctx, orth_program *p, int num_threads, orth_isa isa, orth_place_memory *m)
{
    add_workspace(p, num_threads, isa);
    list_persistent(p);
    orth_program_index(p);
    ORTH_TRY(orth_program_done(p));
    find_lives(p);
    join_lives(p);
    find_aliases(p);
    size_t height, bound;
    ORTH_TRY(pack_transients(ctx, p, m, &height, &bound));
    const size_t at = put_persistent(p);
    memcpy(p->class_bytes, p->persistent_bytes, sizeof p->class_bytes);
    p->lower_bound = at + bound;
    p->transient_offset = at;
    p->transient_bytes = height;
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (!p->buffers[b].persistent && p->buffers[b].alias < 0)
            p->buffers[b].offset += at;
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (p->buffers[b].alias >= 0)
            p->buffers[b].offset = p->buffers[orth_buffer_root(p, b)].offset;
    p->class_bytes[ORTH_CLASS_ACTIVATIONS] += height;
    p->space_bytes[ORTH_SPACE_HOST] = at + height;
    return ORTH_OK;
}

void orth_place_again(orth_program *p)
{
    size_t before[ORTH_NUM_CLASSES];
    memcpy(before, p->persistent_bytes, sizeof before);
    const size_t more = put_persistent(p) - p->transient_offset; /* or less: modulo SIZE_MAX + 1 */
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        p->class_bytes[c] += p->persistent_bytes[c] - before[c];
    for (int32_t b = 0; more && b < p->num_buffers; b++)
        if (!p->buffers[b].persistent)
            p->buffers[b].offset += more;
    p->transient_offset += more;
    p->lower_bound += more;
    p->space_bytes[ORTH_SPACE_HOST] += more;
}

void orth_place_reserve(orth_program *p, const orth_program *guest)
{
    const size_t bytes = guest->space_bytes[ORTH_SPACE_HOST];
    p->lower_bound = ORTH_MAX(p->lower_bound, p->transient_offset + guest->lower_bound);
    if (bytes <= p->transient_bytes)
        return;
    p->class_bytes[ORTH_CLASS_ACTIVATIONS] += bytes - p->transient_bytes;
    p->space_bytes[ORTH_SPACE_HOST] += bytes - p->transient_bytes;
    p->transient_bytes = bytes;
}
