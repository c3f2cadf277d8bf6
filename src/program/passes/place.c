/* place.c -- see place.h. */
#include "program/passes/place.h"

#include <stdlib.h>

#define SLICE_INSTRS 64             /* of a step, that share a list of what lives in them */
#define MAX_SLICES 32               /* lists that one buffer is in */

static size_t aligned(size_t bytes)
{
    return (bytes + ORTH_PLACE_ALIGN - 1) / ORTH_PLACE_ALIGN * ORTH_PLACE_ALIGN;
}

static int32_t root_of(const orth_program *p, int32_t buffer)
{
    while (p->buffers[buffer].alias >= 0)
        buffer = p->buffers[buffer].alias;
    return buffer;
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

/* Out takes over the bytes of in[0] where the op allows it and nobody reads in[0] afterwards. */
static void find_aliases(orth_program *p)
{
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op != ORTH_OP_rope && n->op != ORTH_OP_add && n->op != ORTH_OP_dropout)
            continue;
        if (!covers(p, &n->in[0]) || !covers(p, &n->out[0]))
            continue;
        int32_t in = root_of(p, n->in[0].buffer), out = n->out[0].buffer;
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

typedef struct {
    int32_t buffer, first, last;
    size_t bytes, offset;
    double weight;   /* placed in descending order of this */
} item;

static int by_weight(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* The placed items by time, so that one is compared with those of its time only: a step may have millions. Each
 * *slice* of the program's time lists what lives in it; what lives through many slices is in one list of its own. */
typedef struct {
    int32_t num_slices;
    int32_t *head;                  /* [num_slices + 1], the last of the long lives: an entry, or -1 */
    int32_t *item, *next;           /* [num] entries */
    int32_t num;
    item *items;
    item **found;                   /* room for as many as there will be entries */
} calendar;

static int32_t slice_of(int32_t at)
{
    return at / SLICE_INSTRS;
}

static bool is_long(const item *it)
{
    return slice_of(it->last) - slice_of(it->first) >= MAX_SLICES;
}

static void add_entry(calendar *c, int32_t list, int32_t index)
{
    c->item[c->num] = index;
    c->next[c->num] = c->head[list];
    c->head[list] = c->num++;
}

static void enter(calendar *c, int32_t index)
{
    const item *it = &c->items[index];
    if (is_long(it)) {
        add_entry(c, c->num_slices, index);
        return;
    }
    for (int32_t s = slice_of(it->first); s <= slice_of(it->last); s++)
        add_entry(c, s, index);
}

static int by_offset(const void *a, const void *b)
{
    const item *x = *(item *const *)a, *y = *(item *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void find_in_list(const calendar *c, int32_t list, const item *it, int32_t *num)
{
    for (int32_t e = c->head[list]; e >= 0; e = c->next[e]) {
        item *o = &c->items[c->item[e]];
        if (o->last >= it->first && o->first <= it->last)
            c->found[(*num)++] = o;
    }
}

/* The placed ones that live at some time of `it`, by offset, some more than once; returns how many. */
static int32_t find_neighbours(const calendar *c, const item *it)
{
    int32_t num = 0;
    for (int32_t s = slice_of(it->first); s <= slice_of(it->last); s++)
        find_in_list(c, s, it, &num);
    find_in_list(c, c->num_slices, it, &num);
    qsort(c->found, (size_t)num, sizeof *c->found, by_offset);
    return num;
}

/* Places items in their order, each at the lowest gap that is free during its life. Returns the height. */
static size_t pack(calendar *c, int32_t n)
{
    size_t height = 0;
    c->num = 0;
    for (int32_t s = 0; s <= c->num_slices; s++)
        c->head[s] = -1;
    for (int32_t i = 0; i < n; i++) {
        size_t at = 0;
        item *it = &c->items[i];
        const int32_t num = find_neighbours(c, it);
        for (int32_t k = 0; k < num && c->found[k]->offset < at + it->bytes; k++)
            at = ORTH_MAX(at, c->found[k]->offset + c->found[k]->bytes);
        it->offset = at;
        height = ORTH_MAX(height, at + it->bytes);
        enter(c, i);
    }
    return height;
}

static orth_status calendar_open(orth_ctx *ctx, calendar *c, item *items, int32_t n, int32_t num_instrs)
{
    int64_t room = 1;
    for (int32_t i = 0; i < n; i++)
        room += is_long(&items[i]) ? 1 : slice_of(items[i].last) - slice_of(items[i].first) + 1;
    *c = (calendar){.items = items, .num_slices = slice_of(num_instrs) + 1};
    c->head = ORTH_NEW_ARRAY(ctx, int32_t, c->num_slices + 1);
    c->item = ORTH_NEW_ARRAY(ctx, int32_t, room);
    c->next = ORTH_NEW_ARRAY(ctx, int32_t, room);
    c->found = ORTH_NEW_ARRAY(ctx, item *, room);
    return c->head && c->item && c->next && c->found ? ORTH_OK : ORTH_ERR_NOMEM;
}

static void calendar_close(orth_ctx *ctx, calendar *c)
{
    orth_mem_free(ctx, c->head);
    orth_mem_free(ctx, c->item);
    orth_mem_free(ctx, c->next);
    orth_mem_free(ctx, c->found);
}

static double weight_of(const item *it, int order)
{
    double size = (double)it->bytes, life = it->last - it->first + 1;
    switch (order) {
    case 0: return size;
    case 1: return size * life;
    case 2: return life;
    default: return -it->first;
    }
}

static size_t live_peak(const item *items, int32_t n, int32_t num_instrs, int64_t *delta)
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

/* Offsets of the transient buffers from the start of their region; returns its height. */
static orth_status pack_transients(orth_ctx *ctx, orth_program *p, size_t *out_height, size_t *out_bound)
{
    item *items = ORTH_NEW_ARRAY(ctx, item, p->num_buffers + 1);
    calendar c = {0};
    int64_t *delta = ORTH_NEW_ARRAY(ctx, int64_t, p->num_instrs + 2);
    orth_status status = items && delta ? ORTH_OK : ORTH_ERR_NOMEM;
    int32_t n = 0;
    for (int32_t b = 0; status == ORTH_OK && b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        if (!buf->persistent && buf->alias < 0 && buf->first >= 0 && buf->prev < 0)
            items[n++] = (item){.buffer = b, .first = buf->first, .last = buf->last, .bytes = chain_bytes(p, b)};
    }
    size_t best = SIZE_MAX;
    if (status == ORTH_OK)
        status = calendar_open(ctx, &c, items, n, p->num_instrs);
    if (status == ORTH_OK)
        *out_bound = live_peak(items, n, p->num_instrs, delta);
    for (int order = 0; status == ORTH_OK && order < 4 && best > *out_bound; order++) {
        for (int32_t i = 0; i < n; i++)
            items[i].weight = weight_of(&items[i], order);
        qsort(items, (size_t)n, sizeof *items, by_weight);
        size_t height = pack(&c, n);
        if (height >= best)
            continue;
        best = height;
        for (int32_t i = 0; i < n; i++)
            put_chain(p, items[i].buffer, items[i].offset);
    }
    *out_height = best;
    orth_mem_free(ctx, items);
    calendar_close(ctx, &c);
    orth_mem_free(ctx, delta);
    return status;
}

static void add_workspace(orth_program *p, int num_threads, orth_isa isa)
{
    size_t most = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
        if (n->op >= ORTH_FIRST_COMM_OP)
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

orth_status orth_place(orth_ctx *ctx, orth_program *p, int num_threads, orth_isa isa)
{
    add_workspace(p, num_threads, isa);
    ORTH_TRY(orth_program_done(p));
    find_lives(p);
    join_lives(p);
    find_aliases(p);
    size_t height, bound, at = 0;
    ORTH_TRY(pack_transients(ctx, p, &height, &bound));
    for (int c = 0; c < ORTH_NUM_CLASSES; c++) {
        size_t begin = at;
        for (int32_t b = 0; b < p->num_buffers; b++) {
            orth_buffer *buf = &p->buffers[b];
            if (!buf->persistent || buf->external || (int)buf->cls != c || buf->prev >= 0)
                continue;
            put_chain(p, b, at);
            at += chain_bytes(p, b);
        }
        p->class_bytes[c] = at - begin;
    }
    p->lower_bound = at + bound;
    p->transient_offset = at;
    p->transient_bytes = height;
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (!p->buffers[b].persistent && p->buffers[b].alias < 0)
            p->buffers[b].offset += at;
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (p->buffers[b].alias >= 0)
            p->buffers[b].offset = p->buffers[root_of(p, b)].offset;
    p->class_bytes[ORTH_CLASS_ACTIVATIONS] += height;
    p->space_bytes[ORTH_SPACE_HOST] = at + height;
    return ORTH_OK;
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
