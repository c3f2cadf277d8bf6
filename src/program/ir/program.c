/* program.c -- see program.h. */
#include "program/ir/program.h"

#include <stdlib.h>
#include <xxhash.h>

const orth_operand orth_operand_absent = {.buffer = -1, .num_dims = 1, .dim = {0, 1, 1, 1}};

static const char *const class_names[ORTH_NUM_CLASSES] = {"params", "grads", "optimizer", "activations",
                                                          "comm", "workspace"};

const char *orth_class_name(orth_class c)
{
    return class_names[c];
}

const char *orth_space_name(orth_space s)
{
    static const char *const names[ORTH_NUM_SPACES] = {"host", "device", "file"};
    return names[s];
}

size_t orth_program_bytes(const orth_program *p)
{
    size_t sum = 0;
    for (int s = 0; s < ORTH_SPACE_FILE; s++)
        sum += p->space_bytes[s];
    return sum;
}

void orth_program_init(orth_ctx *ctx, orth_program *p)
{
    *p = (orth_program){.ctx = ctx, .workspace = -1, .num_updates = 1};
}

void orth_program_release(orth_program *p)
{
    if (!p->borrows) {
        orth_mem_free(p->ctx, p->buffers);
        orth_mem_free(p->ctx, p->instrs);
    }
    orth_arena_release(p->ctx, &p->arena);
    p->buffers = NULL;
    p->instrs = NULL;
}

/* Room for one more; false, and the program has failed, where there is none. */
static bool grow(orth_program *p, void **array, int32_t *cap, int32_t num, size_t elem)
{
    p->failed = p->failed || !orth_mem_grow(p->ctx, array, cap, num, elem);
    return !p->failed;
}

int32_t orth_program_add_buffer(orth_program *p, const orth_buffer *b)
{
    if (!grow(p, (void **)&p->buffers, &p->cap_buffers, p->num_buffers, sizeof *p->buffers))
        return 0;
    p->buffers[p->num_buffers] = *b;
    orth_buffer *added = &p->buffers[p->num_buffers];
    added->space = p->space;
    added->alias = added->prev = added->next = -1;
    return p->num_buffers++;
}

/* ---- attributes: most instructions are of the same few nodes, for other layers and micro-batches ---- */

/* Where the attributes are in the table, or may be put: there is a free place. */
static const orth_attr **place_of_attr(const orth_program *p, const orth_attr *attr)
{
    const uint64_t mask = (uint64_t)p->cap_attrs - 1;
    uint64_t at = XXH3_64bits(attr, sizeof *attr) & mask;
    while (p->attrs[at] && memcmp(p->attrs[at], attr, sizeof *attr) != 0)
        at = (at + 1) & mask;
    return &p->attrs[at];
}

static bool grow_attrs(orth_program *p)
{
    const orth_attr **old = p->attrs;
    const int32_t num = p->cap_attrs;
    p->cap_attrs = num ? 2 * num : 64;
    p->attrs = ORTH_ARENA_ARRAY(p->ctx, &p->arena, const orth_attr *, p->cap_attrs);
    for (int32_t i = 0; p->attrs && i < num; i++)
        if (old[i])
            *place_of_attr(p, old[i]) = old[i];
    return p->attrs != NULL;
}

static const orth_attr *share_attr(orth_program *p, const orth_attr *attr)
{
    if (2 * p->num_attrs >= p->cap_attrs && !grow_attrs(p))
        return NULL;
    const orth_attr **place = place_of_attr(p, attr);
    orth_attr *own = *place ? NULL : ORTH_ARENA_ARRAY(p->ctx, &p->arena, orth_attr, 1);
    if (own) {
        memcpy(own, attr, sizeof *own); /* padding, too */
        *place = own;
        p->num_attrs++;
    }
    return *place;
}

orth_attr *orth_program_own_attr(orth_program *p, orth_instr *n)
{
    orth_attr *own = ORTH_ARENA_ARRAY(p->ctx, &p->arena, orth_attr, 1);
    p->failed = p->failed || !own;
    if (!own)
        return NULL;
    *own = *n->attr;
    n->attr = own;
    return own;
}

/* ---- buffers and instructions ---- */

orth_instr *orth_program_add_instr(orth_program *p, orth_op op, const orth_attr *attr, int num_in,
                                   const orth_operand *in, int num_out, const orth_operand *out)
{
    if (!grow(p, (void **)&p->instrs, &p->cap_instrs, p->num_instrs, sizeof *p->instrs))
        return NULL;
    orth_operand *copy = ORTH_ARENA_ARRAY(p->ctx, &p->arena, orth_operand, num_in + num_out);
    const orth_attr of_op = orth_attr_for(op, attr), *shared = share_attr(p, &of_op);
    if (!copy || !shared) {
        p->failed = true;
        return NULL;
    }
    orth_instr *i = &p->instrs[p->num_instrs++];
    *i = (orth_instr){.op = op, .attr = shared, .in = copy, .out = copy + num_in, .num_in = num_in,
                      .num_out = num_out, .layer = -1, .micro_batch = -1, .action = -1, .block = ORTH_BLOCK_NONE, .node = -1};
    if (num_in > 0) /* of none there is no array either */
        memcpy(i->in, in, (size_t)num_in * sizeof *in);
    if (num_out > 0)
        memcpy(i->out, out, (size_t)num_out * sizeof *out);
    return i;
}

orth_instr *orth_program_append(orth_program *p, const orth_instr *n)
{
    if (!grow(p, (void **)&p->instrs, &p->cap_instrs, p->num_instrs, sizeof *p->instrs))
        return NULL;
    p->instrs[p->num_instrs] = *n;
    return &p->instrs[p->num_instrs++];
}

bool orth_program_own_operands(orth_program *p, orth_instr *n)
{
    const int num = orth_instr_num_operands(n);
    orth_operand *own = ORTH_ARENA_ARRAY(p->ctx, &p->arena, orth_operand, num);
    if (!own) {
        p->failed = true;
        return false;
    }
    for (int k = 0; k < num; k++)
        own[k] = *orth_instr_operand(n, k);
    n->in = own;
    n->out = own + n->num_in;
    return true;
}

void orth_instr_tag_as(orth_instr *n, const orth_instr *like)
{
    n->phase = like->phase;
    n->layer = like->layer;
    n->micro_batch = like->micro_batch;
    n->action = like->action;
    n->block = like->block;
    n->node = like->node;
    n->recomputed = like->recomputed;
}

void orth_program_chain(orth_program *p, const int32_t *buffers, int n)
{
    for (int k = 1; k < n && !p->failed; k++) {
        p->buffers[buffers[k - 1]].next = buffers[k];
        p->buffers[buffers[k]].prev = buffers[k - 1];
    }
}

orth_status orth_program_done(orth_program *p)
{
    return p->failed ? ORTH_ERR_NOMEM : ORTH_OK;
}

void orth_queue_name(const orth_queue *q, char *text, size_t size)
{
    static const char *const kinds[] = {"compute", "copy in", "copy out", "file", "host"};
    if (q->kind < ORTH_QUEUE_COLLECTIVE)
        snprintf(text, size, "%s", kinds[q->kind]);
    else if (q->kind == ORTH_QUEUE_COLLECTIVE)
        snprintf(text, size, "%s", orth_group_name(q->group));
    else
        snprintf(text, size, "%s %s %d", orth_group_name(q->group), q->kind == ORTH_QUEUE_SEND ? "to" : "from", (int)q->peer);
}

struct orth_bound {
    int64_t index;
    orth_bind bind;
    int32_t buffer;
};

static int by_name(const void *a, const void *b)
{
    const struct orth_bound *x = a, *y = b;
    if (x->bind != y->bind)
        return x->bind < y->bind ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

void orth_program_index(orth_program *p)
{
    int32_t n = 0;
    for (int32_t b = 0; b < p->num_buffers; b++)
        n += p->buffers[b].bind != ORTH_BIND_NONE;
    p->bound = ORTH_ARENA_ARRAY(p->ctx, &p->arena, struct orth_bound, n + 1);
    p->failed = p->failed || !p->bound;
    for (int32_t b = 0; p->bound && b < p->num_buffers; b++)
        if (p->buffers[b].bind != ORTH_BIND_NONE)
            p->bound[p->num_bound++] = (struct orth_bound){p->buffers[b].index, p->buffers[b].bind, b};
    if (p->bound)
        qsort(p->bound, (size_t)n, sizeof *p->bound, by_name);
}

int32_t orth_program_find(const orth_program *p, orth_bind bind, int64_t index)
{
    if (p->bound) {
        const struct orth_bound name = {.index = index, .bind = bind};
        const struct orth_bound *found = bsearch(&name, p->bound, (size_t)p->num_bound, sizeof *p->bound, by_name);
        return found ? found->buffer : -1;
    }
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (p->buffers[b].bind == bind && p->buffers[b].index == index)
            return b;
    return -1;
}

orth_updated orth_instr_updates(const orth_program *p, const orth_instr *n)
{
    const orth_operand *o = &n->out[0];
    const orth_buffer *b = &p->buffers[o->buffer];
    const int64_t count = orth_operand_elems(o);
    if (b->staging)
        return (orth_updated){n->attr->place.param, n->attr->place.first, count};
    return (orth_updated){b->index, b->first_elem + (int64_t)(o->byte_offset / orth_dtype_bytes(o->dtype)), count};
}

orth_operand orth_operand_of(int32_t buffer, orth_dtype dtype, int num_dims, const int64_t *dim)
{
    orth_operand o = {.buffer = buffer, .num_dims = num_dims, .dtype = dtype, .dim = {1, 1, 1, 1}};
    for (int i = 0; i < num_dims; i++)
        o.dim[i] = dim[i];
    return o;
}

orth_operand orth_operand_rows(orth_operand o, int64_t begin, int64_t end)
{
    int64_t row = 1;
    for (int i = 1; i < o.num_dims; i++)
        row *= o.dim[i];
    o.byte_offset += (size_t)(begin * row) * orth_dtype_bytes(o.dtype);
    o.dim[0] = end - begin;
    return o;
}

bool orth_operands_adjoin(const orth_program *p, const orth_operand *a, const orth_operand *b)
{
    size_t end = a->byte_offset + orth_operand_bytes(a);
    if (a->buffer == b->buffer)
        return end == b->byte_offset;
    int32_t next = p->buffers[a->buffer].next;
    while (next >= 0 && next != b->buffer && p->buffers[next].bytes == 0)
        next = p->buffers[next].next;
    return end == p->buffers[a->buffer].bytes && b->byte_offset == 0 && next == b->buffer;
}

bool orth_operands_overlap(const orth_operand *a, const orth_operand *b)
{
    if (a->buffer < 0 || a->buffer != b->buffer)
        return false;
    if (a->view != ORTH_VIEW_SAME || b->view != ORTH_VIEW_SAME)
        return true;
    size_t n = orth_operand_bytes(a), m = orth_operand_bytes(b);
    return n && m && a->byte_offset < b->byte_offset + m &&
           b->byte_offset < a->byte_offset + n;
}

orth_tensor orth_operand_tensor(const orth_operand *o)
{
    orth_tensor t = {.dtype = o->dtype, .num_dims = o->num_dims};
    memcpy(t.dim, o->dim, sizeof t.dim);
    return t;
}
