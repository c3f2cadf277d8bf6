/* check_shapes.c -- each operand is a view inside its buffer, and each instruction fits the signature of its op: what kernels
 * and communicators rely on. How blocks go with the number of ranks: check_flow.c, which knows it. */
#include "program/check/check_shapes.h"

#include <inttypes.h>

#include "program/ir/instr_memo.h"

typedef struct {
    orth_ctx *ctx;
    const orth_program *p;
    const orth_signature *of; /* [ORTH_NUM_OPS] */
    int32_t at;               /* instruction */
    orth_instr_memo fit;      /* computing instructions that fit their signatures */
} shapes;

static orth_status refuse(const shapes *s, const char *why)
{
    const orth_instr *n = &s->p->instrs[s->at];
    return ORTH_FAIL(s->ctx, ORTH_ERR_INTERNAL, "instruction %d (%s, layer %d, micro-batch %d): %s", s->at,
                     orth_op_name(n->op), n->layer, n->micro_batch, why);
}

/* Elements of a view; -1: a dim is negative, or there are more than any buffer has. */
static int64_t elems_of(const orth_operand *o)
{
    int64_t n = 1;
    if (o->num_dims < 0 || o->num_dims > ORTH_MAX_DIMS)
        return -1;
    for (int i = 0; i < o->num_dims; i++)
        if (o->dim[i] < 0 || __builtin_mul_overflow(n, o->dim[i], &n))
            return -1;
    return n;
}

static orth_status check_view(const shapes *s, const orth_operand *o)
{
    char why[160];
    if (o->buffer == -1)
        return ORTH_OK;
    if (o->buffer < 0 || o->buffer >= s->p->num_buffers) {
        snprintf(why, sizeof why, "buffer %d is not in [0, %d)", o->buffer, s->p->num_buffers);
        return refuse(s, why);
    }
    const orth_buffer *b = &s->p->buffers[o->buffer];
    const int64_t n = elems_of(o), size = (int64_t)orth_dtype_bytes(o->dtype);
    const bool inside = n >= 0 && o->byte_offset <= b->bytes && n <= (int64_t)(b->bytes - o->byte_offset) / size;
    if (!inside) {
        snprintf(why, sizeof why, "buffer '%.60s': the operand reaches past the end (%" PRId64 " elements at byte %zu of %zu)",
                 b->name, n, o->byte_offset, b->bytes);
        return refuse(s, why);
    }
    if (o->byte_offset % (size_t)size) {
        snprintf(why, sizeof why, "buffer '%.60s': the operand begins at byte %zu, within an element of %" PRId64 " bytes",
                 b->name, o->byte_offset, size);
        return refuse(s, why);
    }
    return ORTH_OK;
}

static orth_tensor shape_of(const orth_operand *o)
{
    orth_tensor t = orth_operand_tensor(o);
    if (o->buffer < 0)
        t.num_dims = 0;
    return t;
}

static orth_status check_signature(shapes *s, const orth_instr *n)
{
    orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    char why[256];
    bool known;
    orth_instr_memo_find(&s->fit, n, &known);
    if (known)
        return ORTH_OK;
    for (int k = 0; k < n->num_in && k < ORTH_OP_MAX_IN; k++)
        in[k] = shape_of(&n->in[k]);
    for (int k = 0; k < n->num_out && k < ORTH_OP_MAX_OUT; k++)
        out[k] = shape_of(&n->out[k]);
    return orth_signature_fits(&s->of[n->op], n->attr, in, n->num_in, out, n->num_out, why, sizeof why) ? ORTH_OK
                                                                                                    : refuse(s, why);
}

/* Each operand of a call is held against the signature by itself, an input with its output. Those that a rank does not have
 * (a piece that another updates) are left out. */
static orth_status check_comm(const shapes *s, const orth_instr *n)
{
    const orth_signature *of = &s->of[n->op];
    char why[256];
    if ((of->num_in && of->num_out && n->num_in != n->num_out) || (!of->num_in && n->num_in) || (!of->num_out && n->num_out)) {
        snprintf(why, sizeof why, "%d inputs and %d outputs do not go together", n->num_in, n->num_out);
        return refuse(s, why);
    }
    for (int k = 0; k < ORTH_MAX(n->num_in, n->num_out); k++) {
        const orth_tensor in = k < n->num_in ? shape_of(&n->in[k]) : (orth_tensor){0};
        const orth_tensor out = k < n->num_out ? shape_of(&n->out[k]) : (orth_tensor){0};
        const bool absent = (of->num_in && in.num_dims == 0) || (of->num_out && out.num_dims == 0);
        if (!absent && !orth_signature_fits(of, n->attr, &in, of->num_in, &out, of->num_out, why, sizeof why))
            return refuse(s, why);
    }
    return ORTH_OK;
}

static int32_t value_of(const orth_program *p, int32_t buffer)
{
    return p->buffers[buffer].of > 0 ? p->buffers[buffer].of - 1 : buffer;
}

/* A copy between spaces is from or to the host's memory; none is within a file. What leaves its space comes back as it was. */
static orth_status check_copy(const shapes *s, const orth_instr *n)
{
    const orth_buffer *from = &s->p->buffers[n->in[0].buffer], *to = &s->p->buffers[n->out[0].buffer];
    const bool host = from->space == ORTH_SPACE_HOST || to->space == ORTH_SPACE_HOST;
    char why[224];
    if ((from->of > 0 || to->of > 0) && (value_of(s->p, n->in[0].buffer) != value_of(s->p, n->out[0].buffer) ||
                                         orth_operand_bytes(&n->in[0]) != from->bytes || orth_operand_bytes(&n->out[0]) != to->bytes)) {
        snprintf(why, sizeof why, "'%.60s' is copied to '%.60s', which is to have the value of another buffer, or only in part", from->name, to->name);
        return refuse(s, why);
    }
    if (host || (from->space == to->space && from->space != ORTH_SPACE_FILE))
        return ORTH_OK;
    snprintf(why, sizeof why, "from '%.60s' in %s memory to '%.60s' in %s memory: bytes go through the host's memory", from->name,
             orth_space_name(from->space), to->name, orth_space_name(to->space));
    return refuse(s, why);
}

/* Only `copy` moves bytes between memory spaces, and nothing else works in a file. */
static orth_status check_spaces(const shapes *s, const orth_instr *n)
{
    const orth_buffer *first = NULL;
    const bool copies = n->op == ORTH_OP_copy;
    if (copies && n->in[0].buffer >= 0 && n->out[0].buffer >= 0)
        return check_copy(s, n);
    for (int k = 0; k < n->num_in + n->num_out && !copies; k++) {
        const orth_operand *o = k < n->num_in ? &n->in[k] : &n->out[k - n->num_in];
        const orth_buffer *b = o->buffer < 0 ? first : &s->p->buffers[o->buffer];
        first = first ? first : b;
        if (!b || (b->space == first->space && b->space != ORTH_SPACE_FILE))
            continue;
        char why[192];
        snprintf(why, sizeof why, "buffer '%.60s' is in %s memory and '%.60s' in %s memory: only copy moves between them",
                 first->name, orth_space_name(first->space), b->name, orth_space_name(b->space));
        return refuse(s, why);
    }
    return ORTH_OK;
}

static orth_status check_instr(shapes *s)
{
    const orth_instr *n = &s->p->instrs[s->at];
    for (int k = 0; k < n->num_in + n->num_out; k++)
        ORTH_TRY(check_view(s, k < n->num_in ? &n->in[k] : &n->out[k - n->num_in]));
    ORTH_TRY(check_spaces(s, n));
    return orth_op_is_comm(n->op) ? check_comm(s, n) : check_signature(s, n);
}

static orth_status check_all(shapes *s)
{
    for (s->at = 0; s->at < s->p->num_instrs; s->at++)
        ORTH_TRY(check_instr(s));
    return ORTH_OK;
}

orth_status orth_check_shapes(orth_ctx *ctx, const orth_program *p, const orth_signature *of)
{
    return check_all(&(shapes){.ctx = ctx, .p = p, .of = of});
}

orth_status orth_check_own_shapes(orth_ctx *ctx, const orth_program *p, const orth_signature *of)
{
    shapes s = {.ctx = ctx, .p = p, .of = of};
    for (int32_t k = 0; k < p->num_own; k++) {
        s.at = p->own[k];
        ORTH_TRY(check_instr(&s));
    }
    return ORTH_OK;
}
