/* views.c -- see views.h. */
#include "program/passes/views.h"

#include "program/lower/shard.h"
#include "program/passes/place.h"

typedef struct {
    orth_program *p;
    const orth_param_desc *params;
    int32_t from, to;          /* the ranks of the axis that the program was bound to before, and is bound to now */
} binding;

/* Whether the shard of parameter `index` is another one now. Most are not: many ranks share few parameters, and a rank has nothing of most. */
static bool has_moved(const binding *x, int64_t index)
{
    const int64_t *counts = x->p->shard_counts[index];
    for (int32_t r = ORTH_MIN(x->from, x->to); counts && r <= ORTH_MAX(x->from, x->to); r++)
        if (counts[r] > 0)
            return true;
    return false;
}

/* Of the rank that the program is being bound to. */
static orth_zero_shard shard_of(const orth_program *p, int64_t index)
{
    const int64_t *counts = p->shard_counts[index];
    return (orth_zero_shard){.first = p->shard_first[index], .count = counts[p->shard], .counts = counts};
}

/* Of a buffer of parameter `index` what is in it: elements, or the scales of their moments. */
static orth_zero_shard shard_in(const binding *x, const orth_buffer *b, int64_t index)
{
    const orth_zero_shard s = shard_of(x->p, index);
    return b->bind == ORTH_BIND_SCALES ? orth_shard_scales(&x->params[index], &s) : s;
}

/* A staging buffer becomes as large as its operands, which follow. */
static void bind_buffer(const binding *x, orth_buffer *b)
{
    if (b->staging) {
        b->bytes = 0;
        return;
    }
    if (!has_moved(x, b->index))
        return;
    const orth_zero_shard s = shard_in(x, b, b->index);
    b->bytes = (size_t)s.count * (size_t)b->shard_elem;
    b->first_elem = s.first;
}

static void show_elems(orth_operand *o, int64_t first, const orth_buffer *of)
{
    o->byte_offset = (size_t)(first - of->first_elem) * orth_dtype_bytes(o->dtype);
}

/* Elements of the shard of parameter `index` before a piece of it. */
static int64_t elems_before(const binding *x, int64_t index, int32_t part)
{
    return ORTH_MIN(part * orth_param_piece_elems(&x->params[index], x->p->piece_elems), shard_of(x->p, index).count);
}

/* Scales have other columns than their parameter, and as many rows. */
static void show_piece(const binding *x, orth_operand *o, int64_t index)
{
    const orth_buffer *b = &x->p->buffers[o->buffer];
    const bool rows = o->num_dims > 1;
    const int64_t cols = rows ? orth_param_cols(&x->params[index]) : 1, width = rows ? o->dim[1] : 1;
    const int64_t first = elems_before(x, index, o->part), end = elems_before(x, index, o->part + 1);
    if (!b->staging)
        show_elems(o, (x->p->shard_first[index] + first) / cols * width, b);
    o->dim[0] = (end - first) / cols;
}

/* `index`: the parameter that the instruction is about. */
static void bind_operand(const binding *x, orth_operand *o, int64_t index)
{
    if (o->view == ORTH_VIEW_OF_OTHERS) {
        o->dim[0] = x->to > 0;
        return;
    }
    if (!has_moved(x, index))
        return;
    const orth_param_desc *param = &x->params[index];
    const orth_zero_shard in = shard_in(x, &x->p->buffers[o->buffer], index), s = orth_shard_of_type(&in, x->p->shard, o->dtype);
    orth_zero_rows rows;
    switch ((orth_view)o->view) {
    case ORTH_VIEW_SAME:
    case ORTH_VIEW_OF_OTHERS:
    case ORTH_VIEW_OF_FIRST: break;
    case ORTH_VIEW_SHARD:
        show_elems(o, s.first, &x->p->buffers[o->buffer]);
        o->dim[o->num_dims - 1] = s.count; /* a vector, or one row */
        break;
    case ORTH_VIEW_SHARD_MATRIX:
        show_elems(o, s.first, &x->p->buffers[o->buffer]);
        o->dim[0] = s.count / o->dim[1];
        break;
    case ORTH_VIEW_PIECE: show_piece(x, o, index); break;
    case ORTH_VIEW_SHARD_ROWS:
        rows = orth_zero_shard_rows(param, &s, o->part);
        show_elems(o, rows.begin * orth_param_cols(param), &x->p->buffers[o->buffer]);
        o->dim[0] = rows.count;
        break;
    case ORTH_VIEW_SUMS:
        rows = orth_zero_shard_rows(param, &s, o->part);
        o->byte_offset = (size_t)(x->p->first_sum[index] + rows.first_sum) * sizeof(double);
        o->dim[0] = rows.num_sums / o->dim[1];
        break;
    }
}

/* The parameter that an operand with a view of the rank's own is about. A staging buffer has all by turns: then that of the update,
 * or of the other side of a copy. */
static int64_t param_of(const orth_program *p, const orth_instr *n, const orth_operand *o)
{
    if (!p->buffers[o->buffer].staging)
        return p->buffers[o->view == ORTH_VIEW_SUMS ? n->in[0].buffer : o->buffer].index;
    if (orth_op_family_of(n->op) == ORTH_OPS_OPTIMIZER)
        return n->attr->place.param;
    return p->buffers[(o == n->in ? n->out : n->in)->buffer].index;
}

static bool is_shard(const orth_operand *o)
{
    return o->view == ORTH_VIEW_SHARD || o->view == ORTH_VIEW_SHARD_MATRIX;
}

/* Whether the attributes of an update say where its elements begin. */
static bool says_place(const orth_instr *n)
{
    return orth_op_family_of(n->op) == ORTH_OPS_OPTIMIZER && (n->out[0].view == ORTH_VIEW_PIECE || (n->attr->stochastic && is_shard(&n->out[0])));
}

/* Where the elements begin that an update is about. Its attributes are its own (list_own, copy_bound). */
static void bind_place(const binding *x, orth_instr *n)
{
    if (!has_moved(x, n->attr->place.param))
        return;
    const int64_t index = n->attr->place.param, before = is_shard(&n->out[0]) ? 0 : elems_before(x, index, n->attr->piece);
    ((orth_attr *)n->attr)->place.first = x->p->shard_first[index] + before;
}

static void bind_instr(const binding *x, orth_instr *n)
{
    if (says_place(n))
        bind_place(x, n);
    for (int k = 0; k < n->num_in + n->num_out; k++) {
        orth_operand *o = k < n->num_in ? &n->in[k] : &n->out[k - n->num_in];
        if (o->view != ORTH_VIEW_SAME)
            bind_operand(x, o, param_of(x->p, n, o));
        if (o->buffer >= 0 && x->p->buffers[o->buffer].staging)
            x->p->buffers[o->buffer].bytes = ORTH_MAX(x->p->buffers[o->buffer].bytes, orth_operand_bytes(o));
    }
}

static bool is_own(const orth_program *p, const orth_instr *n)
{
    bool own = n->counts != NULL;
    for (int k = 0; k < n->num_in + n->num_out; k++) {
        const orth_operand *o = orth_instr_operand(n, k);
        own = own || o->view != ORTH_VIEW_SAME || (o->buffer >= 0 && p->buffers[o->buffer].staging);
    }
    return own;
}

static orth_status list_own(orth_ctx *ctx, orth_program *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->num_instrs; i++)
        n += is_own(p, &p->instrs[i]);
    p->own = ORTH_ARENA_ARRAY(ctx, &p->arena, int32_t, n + 1);
    p->own_buffers = ORTH_ARENA_ARRAY(ctx, &p->arena, int32_t, p->num_buffers + 1);
    if (!p->own || !p->own_buffers)
        return ORTH_ERR_NOMEM;
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (p->buffers[b].shard_elem || p->buffers[b].staging)
            p->own_buffers[p->num_own_buffers++] = b;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        if (!is_own(p, &p->instrs[i]))
            continue;
        p->own[p->num_own++] = i;
        if (says_place(&p->instrs[i]) && !orth_program_own_attr(p, &p->instrs[i]))
            return ORTH_ERR_NOMEM;
    }
    return ORTH_OK;
}

/* What is the same on all ranks, and where the shards of the rank that the program was compiled for begin. */
static orth_status find_shards(orth_ctx *ctx, orth_program *p, const orth_param_desc *params, int64_t num_params)
{
    p->shard_first = ORTH_ARENA_ARRAY(ctx, &p->arena, int64_t, num_params + 1);
    p->first_sum = ORTH_ARENA_ARRAY(ctx, &p->arena, int64_t, num_params + 1);
    if (!p->shard_first || !p->first_sum)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < num_params; i++) {
        for (int32_t r = 0; p->shard_counts[i] && r < p->shard; r++)
            p->shard_first[i] += p->shard_counts[i][r];
        p->first_sum[i + 1] = p->first_sum[i] + orth_param_num_sums(&params[i]);
    }
    return ORTH_OK;
}

/* Shards lie one behind the other: from those of one rank to those of another. */
static void move_shards(const binding *x, int64_t num_params)
{
    for (int64_t i = 0; i < num_params; i++) {
        for (int32_t r = x->from; x->p->shard_counts[i] && r < x->to; r++)
            x->p->shard_first[i] += x->p->shard_counts[i][r];
        for (int32_t r = x->to; x->p->shard_counts[i] && r < x->from; r++)
            x->p->shard_first[i] -= x->p->shard_counts[i][r];
    }
    x->p->shard = x->to;
}

static void bind(const binding *x)
{
    orth_program *p = x->p;
    for (int32_t i = 0; i < p->num_own_buffers; i++)
        bind_buffer(x, &p->buffers[p->own_buffers[i]]);
    for (int32_t i = 0; i < p->num_own; i++)
        bind_instr(x, &p->instrs[p->own[i]]);
    if (p->placed)
        orth_place_again(p);
}

orth_status orth_program_bind(orth_ctx *ctx, orth_program *p, const orth_param_desc *params, int64_t num_params, int32_t shard)
{
    if (!p->own)
        ORTH_TRY(list_own(ctx, p));
    if (!p->shard_counts || p->shard == shard)
        return ORTH_OK;
    if (!p->shard_first)
        ORTH_TRY(find_shards(ctx, p, params, num_params));
    const binding x = {p, params, p->shard, shard};
    move_shards(&x, num_params);
    bind(&x);
    return ORTH_OK;
}

/* ---- one program for several ranks ---- */

/* What orth_program_bind writes, and no more. */
static orth_status copy_bound(orth_ctx *ctx, const orth_program *of, int64_t num_params, orth_program *p)
{
    p->borrows = false;
    p->buffers = ORTH_NEW_ARRAY(ctx, orth_buffer, of->num_buffers);
    p->instrs = ORTH_NEW_ARRAY(ctx, orth_instr, of->num_instrs);
    if (!p->buffers || !p->instrs)
        return ORTH_ERR_NOMEM;
    p->cap_buffers = p->num_buffers;
    p->cap_instrs = p->num_instrs;
    memcpy(p->buffers, of->buffers, (size_t)of->num_buffers * sizeof *p->buffers);
    memcpy(p->instrs, of->instrs, (size_t)of->num_instrs * sizeof *p->instrs);
    for (int32_t i = 0; i < p->num_own; i++) {
        orth_instr *n = &p->instrs[p->own[i]];
        if (!orth_program_own_operands(p, n) || (says_place(n) && !orth_program_own_attr(p, n)))
            return ORTH_ERR_NOMEM;
    }
    if (!of->shard_first)
        return ORTH_OK;
    p->shard_first = ORTH_ARENA_ARRAY(ctx, &p->arena, int64_t, num_params + 1);
    if (!p->shard_first)
        return ORTH_ERR_NOMEM;
    memcpy(p->shard_first, of->shard_first, (size_t)num_params * sizeof *p->shard_first);
    return ORTH_OK;
}

orth_status orth_program_share(orth_ctx *ctx, const orth_program *of, const orth_param_desc *params, int64_t num_params, int32_t shard,
                               orth_program *out)
{
    *out = *of;
    out->ctx = ctx;
    out->arena = (orth_arena){0};
    out->borrows = true;
    if (!of->shard_counts)
        return ORTH_OK;
    orth_status s = copy_bound(ctx, of, num_params, out);
    if (s == ORTH_OK)
        s = orth_program_bind(ctx, out, params, num_params, shard);
    if (s != ORTH_OK)
        orth_program_release(out);
    return s;
}
