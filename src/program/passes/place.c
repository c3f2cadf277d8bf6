/* place.c -- see place.h. */
#include "program/passes/place.h"

#include "base/radix.h"
#include "program/passes/pack.h"

#define MANY_BLOCKS 4096
#define MANY_SLACK  128 /* parts of the bound */

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

/* From the first to the last instruction that names it; a call that goes on beside computing names it until it is over. */
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
    for (int32_t i = 0; i < p->num_instrs; i++)
        for (int k = 0; p->instrs[i].until > 0 && k < orth_instr_num_operands(&p->instrs[i]); k++) {
            const int32_t b = orth_instr_operand(&p->instrs[i], k)->buffer;
            if (b >= 0)
                p->buffers[b].last = ORTH_MAX(p->buffers[b].last, p->instrs[i].until - 1);
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

/* Transient buffers that exist for communicators, which are not activations: what one fills, and what no other instruction
 * reads. */
static orth_status find_communication(orth_ctx *ctx, orth_program *p)
{
    enum { WRITTEN = 1, FILLED = 2, COMPUTED = 4, SENT = 8 };
    uint8_t *use = ORTH_NEW_ARRAY(ctx, uint8_t, p->num_buffers + 1);
    for (int32_t i = 0; use && i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        const bool comm = orth_op_is_comm(n->op);
        for (int k = 0; k < n->num_in; k++)
            if (n->in[k].buffer >= 0)
                use[n->in[k].buffer] |= comm ? SENT : COMPUTED;
        for (int k = 0; k < n->num_out; k++)
            if (n->out[k].buffer >= 0)
                use[n->out[k].buffer] |= WRITTEN | (comm && !(use[n->out[k].buffer] & WRITTEN) ? FILLED : 0);
    }
    for (int32_t b = 0; use && b < p->num_buffers; b++)
        if (!p->buffers[b].persistent && (use[b] & FILLED || (use[b] & (SENT | COMPUTED)) == SENT))
            p->buffers[b].cls = ORTH_CLASS_COMM;
    orth_mem_free(ctx, use);
    return use ? ORTH_OK : ORTH_ERR_NOMEM;
}

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
            p->buffers[in].bytes != p->buffers[out].bytes || p->buffers[in].space != p->buffers[out].space)
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

/* Returns the bytes of the chain. */
static size_t put_chain(orth_program *p, int32_t head, size_t at)
{
    const size_t begin = at;
    for (int32_t b = head; b >= 0; b = p->buffers[b].next) {
        p->buffers[b].offset = at;
        at += p->buffers[b].bytes;
    }
    return aligned(at - begin);
}

/* In the order `order` blocks with lower keys come first. */
static uint64_t key_of(const orth_pack_block *b, int order)
{
    const uint64_t life = (uint64_t)(b->last - b->first) + 1;
    const double area = (double)b->bytes * (double)life;
    uint64_t bits;
    memcpy(&bits, &area, sizeof bits); /* numbers that are not negative are ordered as their bits are */
    switch (order) {
    case 0: return UINT64_MAX - b->bytes;
    case 1: return UINT64_MAX - bits;
    case 2: return UINT64_MAX - life;
    default: return (uint64_t)b->first;
    }
}

/* The most that lives at once, and *at which instruction. delta: scratch [num_instrs + 2]. */
static size_t live_peak(const orth_pack_block *items, int32_t n, int32_t num_instrs, int64_t *delta, int32_t *at)
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
        if (live > peak)
            *at = i;
        peak = ORTH_MAX(peak, live);
    }
    return (size_t)peak;
}

/* Whether a chain of transient buffers, or one alone, begins with this one and is placed in the space. */
static bool is_block(const orth_buffer *b, orth_space space)
{
    return !b->persistent && b->space == space && b->alias < 0 && b->first >= 0 && b->prev < 0;
}

void orth_place_live(const orth_program *p, orth_space space, int64_t *live)
{
    memset(live, 0, (size_t)p->num_instrs * sizeof *live);
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (is_block(&p->buffers[b], space)) {
            const int64_t bytes = (int64_t)chain_bytes(p, b);
            live[p->buffers[b].first] += bytes;
            if (p->buffers[b].last + 1 < p->num_instrs)
                live[p->buffers[b].last + 1] -= bytes;
        }
    for (int32_t i = 1; i < p->num_instrs; i++)
        live[i] += live[i - 1];
}

/* What is placed in a space: its transient buffers, a chain of them as one. Returns how many. */
static int32_t list_blocks(const orth_program *p, orth_space space, orth_pack_block *blocks)
{
    int32_t n = 0;
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        if (is_block(buf, space))
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

static orth_status remember(orth_ctx *ctx, orth_place_memory *m, const orth_program *p, orth_space space, int32_t n,
                            size_t height)
{
    if (!m->found)
        m->found = ORTH_NEW_ARRAY(ctx, orth_place_found, ORTH_PLACE_MEMORY);
    orth_pack_block *blocks = m->found ? ORTH_NEW_ARRAY(ctx, orth_pack_block, n + 1) : NULL;
    if (!blocks)
        return ORTH_ERR_NOMEM;
    list_blocks(p, space, blocks);
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

/* The order of blocks settles ties. */
static void sort_blocks(const orth_pack_block *blocks, int32_t n, int order, orth_keyed *keys, orth_keyed *room, orth_pack_block *sorted)
{
    for (int32_t i = 0; i < n; i++)
        keys[i] = (orth_keyed){key_of(&blocks[i], order), i};
    const orth_keyed *by_key = orth_radix_sort(keys, room, n);
    for (int32_t i = 0; i < n; i++)
        sorted[i] = blocks[by_key[i].value];
}

/* With many blocks an order takes milliseconds, and the first one is seldom beaten by much. */
static orth_status try_orders(orth_ctx *ctx, orth_program *p, const orth_pack_block *blocks, int32_t n, size_t bound, size_t *best)
{
    const size_t enough = bound + (n >= MANY_BLOCKS ? bound / MANY_SLACK : 0);
    orth_keyed *keys = ORTH_NEW_ARRAY(ctx, orth_keyed, 2 * (int64_t)n + 1);
    orth_pack_block *sorted = ORTH_NEW_ARRAY(ctx, orth_pack_block, n + 1);
    orth_status s = keys && sorted ? ORTH_OK : ORTH_ERR_NOMEM;
    size_t height;
    *best = SIZE_MAX;
    for (int order = 0; s == ORTH_OK && order < 4 && *best > enough; order++) {
        sort_blocks(blocks, n, order, keys, keys + n, sorted);
        s = orth_pack(ctx, sorted, n, p->num_instrs, *best, &height);
        if (s == ORTH_OK && height < *best) {
            put_blocks(p, sorted, sorted, n);
            *best = height;
        }
    }
    orth_mem_free(ctx, keys);
    orth_mem_free(ctx, sorted);
    return s;
}

/* Bytes of each class that live while instruction `at` runs, with what aligns them; a chain has the class of its first buffer. The
 * rest of the region of `height`, gaps that packing leaves, counts as activations. */
static void classify(orth_program *p, orth_space space, const orth_pack_block *blocks, int32_t n, int32_t at, size_t height)
{
    size_t *of = p->transient_class[space], sum = 0;
    memset(of, 0, sizeof p->transient_class[space]);
    for (int32_t i = 0; i < n; i++) {
        if (blocks[i].first > at || blocks[i].last < at)
            continue;
        of[p->buffers[blocks[i].buffer].cls] += blocks[i].bytes;
        sum += blocks[i].bytes;
    }
    of[ORTH_CLASS_ACTIVATIONS] += height - sum;
    p->transient_bytes[space] = height;
    p->peak_instr[space] = at;
    p->peak_bytes[space] = sum;
}

/* Offsets of the transient buffers of a space from the start of their region, its bytes, and what no placement can go below. */
static orth_status pack_transients(orth_ctx *ctx, orth_program *p, orth_space space, orth_place_memory *m, size_t *out_bound)
{
    int32_t peak_at = 0;
    size_t height = 0;
    orth_pack_block *blocks = ORTH_NEW_ARRAY(ctx, orth_pack_block, p->num_buffers + 1);
    int64_t *delta = ORTH_NEW_ARRAY(ctx, int64_t, p->num_instrs + 2);
    orth_status status = blocks && delta ? ORTH_OK : ORTH_ERR_NOMEM;
    const int32_t n = status == ORTH_OK ? list_blocks(p, space, blocks) : 0;
    const orth_place_found *known = status == ORTH_OK ? recall(m, blocks, n) : NULL;
    if (status == ORTH_OK)
        *out_bound = live_peak(blocks, n, p->num_instrs, delta, &peak_at);
    if (known) {
        put_blocks(p, blocks, known->blocks, n);
        height = known->height;
    } else if (status == ORTH_OK) {
        status = try_orders(ctx, p, blocks, n, *out_bound, &height);
        if (status == ORTH_OK && m)
            status = remember(ctx, m, p, space, n, height);
    }
    if (status == ORTH_OK)
        classify(p, space, blocks, n, peak_at, height);
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
        orth_op_call call = {.in = in, .out = out, .num_in = n->num_in, .num_out = n->num_out, .attr = n->attr};
        most = ORTH_MAX(most, orth_op_workspace_bytes(n->op, &call, num_threads, isa));
    }
    orth_buffer b = {.name = "workspace", .bytes = most, .cls = ORTH_CLASS_WORKSPACE, .persistent = true};
    p->workspace = orth_program_add_buffer(p, &b);
}

static int sort_of(const orth_buffer *b)
{
    return (int)b->space * ORTH_NUM_CLASSES + (int)b->cls;
}

static bool begins_persistent(const orth_buffer *b)
{
    return b->persistent && !b->external && b->prev < 0;
}

/* The persistent buffers, of chains the first ones, space by space and class by class. */
static void list_persistent(orth_program *p)
{
    int32_t at[ORTH_NUM_SPACES * ORTH_NUM_CLASSES + 1] = {0};
    for (int32_t b = 0; b < p->num_buffers; b++)
        at[sort_of(&p->buffers[b]) + 1] += begins_persistent(&p->buffers[b]);
    for (int k = 0; k < ORTH_NUM_SPACES * ORTH_NUM_CLASSES; k++)
        at[k + 1] += at[k];
    p->num_persistent = at[ORTH_NUM_SPACES * ORTH_NUM_CLASSES];
    p->persistent = ORTH_ARENA_ARRAY(p->ctx, &p->arena, int32_t, p->num_persistent + 1);
    p->failed = p->failed || !p->persistent;
    for (int32_t b = 0; b < p->num_buffers && !p->failed; b++)
        if (begins_persistent(&p->buffers[b]))
            p->persistent[at[sort_of(&p->buffers[b])]++] = b;
}

/* Their offsets in the arenas of their spaces, what each class has there, and where they end. */
static void put_persistent(orth_program *p, size_t end[ORTH_NUM_SPACES])
{
    memset(p->persistent_bytes, 0, sizeof p->persistent_bytes);
    memset(end, 0, ORTH_NUM_SPACES * sizeof *end);
    for (int32_t i = 0; i < p->num_persistent; i++) {
        const orth_buffer *b = &p->buffers[p->persistent[i]];
        const size_t bytes = put_chain(p, p->persistent[i], end[b->space]);
        p->persistent_bytes[b->space][b->cls] += bytes;
        end[b->space] += bytes;
    }
}

/* The region of transient buffers, at `at`, where the persistent ones end. */
static orth_status place_space(orth_ctx *ctx, orth_program *p, orth_space space, size_t at, orth_place_memory *m)
{
    size_t bound = 0;
    ORTH_TRY(pack_transients(ctx, p, space, m, &bound));
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        p->class_bytes[space][c] = p->persistent_bytes[space][c] + p->transient_class[space][c];
    p->transient_offset[space] = at;
    p->space_bytes[space] = at + p->transient_bytes[space];
    p->lower_bound += space == ORTH_SPACE_FILE ? 0 : at + bound;
    return ORTH_OK;
}

orth_status orth_place(orth_ctx *ctx, orth_program *p, int num_threads, orth_isa isa, orth_place_memory *m)
{
    size_t persistent[ORTH_NUM_SPACES];
    add_workspace(p, num_threads, isa);
    list_persistent(p);
    orth_program_index(p);
    ORTH_TRY(orth_program_done(p));
    find_lives(p);
    join_lives(p);
    ORTH_TRY(find_communication(ctx, p));
    find_aliases(p);
    p->lower_bound = 0;
    put_persistent(p, persistent);
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        ORTH_TRY(place_space(ctx, p, (orth_space)s, persistent[s], m));
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (p->buffers[b].alias >= 0)
            p->buffers[b].offset = p->buffers[orth_buffer_root(p, b)].offset;
    p->placed = true;
    return ORTH_OK;
}

void orth_place_again(orth_program *p)
{
    size_t before[ORTH_NUM_SPACES][ORTH_NUM_CLASSES], end[ORTH_NUM_SPACES];
    memcpy(before, p->persistent_bytes, sizeof before);
    put_persistent(p, end);
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        const size_t more = end[s] - p->transient_offset[s]; /* or less: modulo SIZE_MAX + 1 */
        for (int c = 0; c < ORTH_NUM_CLASSES; c++)
            p->class_bytes[s][c] += p->persistent_bytes[s][c] - before[s][c];
        p->transient_offset[s] = end[s];
        p->lower_bound += s == ORTH_SPACE_FILE ? 0 : more;
        p->space_bytes[s] += more;
    }
}

void orth_place_reserve(orth_program *p, const orth_program *guest)
{
    size_t persistent = 0;
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        const size_t bytes = guest->space_bytes[s], own = p->transient_bytes[s];
        persistent += s == ORTH_SPACE_FILE ? 0 : p->transient_offset[s];
        if (bytes <= own)
            continue;
        p->class_bytes[s][ORTH_CLASS_ACTIVATIONS] += bytes - own;
        p->transient_class[s][ORTH_CLASS_ACTIVATIONS] += bytes - own;
        p->space_bytes[s] += bytes - own;
        p->transient_bytes[s] = bytes;
    }
    p->lower_bound = ORTH_MAX(p->lower_bound, persistent + guest->lower_bound);
}
