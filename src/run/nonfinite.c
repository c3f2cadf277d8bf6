/* nonfinite.c -- instructions in words, and which of them made the first infinity or NaN of a step. */
#include <inttypes.h>
#include <math.h>

#include "program/ir/comm_call.h"
#include "run/executor_impl.h"

static void put_place(const orth_instr *n, char *text, size_t size)
{
    static const char *const phases[] = {"forward", "backward", "update"};
    char layer[32] = "", batch[32] = "";
    if (n->layer >= 0)
        snprintf(layer, sizeof layer, " of layer %d", n->layer);
    if (n->micro_batch >= 0)
        snprintf(batch, sizeof batch, ", micro-batch %d", n->micro_batch);
    snprintf(text, size, "%s%s%s", phases[n->phase], layer, batch);
}

/* The operand that a message is best found by: what is computed, or sent. */
static const orth_operand *told_operand(const orth_instr *n)
{
    const orth_comm_kind call = orth_op_comm_kind(n->op, true);
    const bool sends = call == ORTH_COMM_SEND || call == ORTH_COMM_ALL_REDUCE || call == ORTH_COMM_REDUCE_SCATTER;
    for (int k = 0; k < n->num_out && !sends; k++)
        if (n->out[k].buffer >= 0)
            return &n->out[k];
    for (int k = 0; k < n->num_in; k++)
        if (n->in[k].buffer >= 0)
            return &n->in[k];
    return NULL;
}

void orth_executor_name_instr(const void *executor, int32_t instr, char *text, size_t size)
{
    const orth_executor *e = executor;
    char place[96], of[96] = "", over[32] = "";
    if (instr >= e->p->num_instrs) {
        snprintf(text, size, "instruction %d", instr);
        return;
    }
    const orth_instr *n = &e->p->instrs[instr];
    const orth_operand *o = told_operand(n);
    put_place(n, place, sizeof place);
    if (o)
        snprintf(of, sizeof of, " of '%.80s'", e->p->buffers[o->buffer].name);
    if (n->op >= ORTH_FIRST_COMM_OP)
        snprintf(over, sizeof over, " over %s", orth_group_name(n->attr->group));
    snprintf(text, size, "%s: %s%s%s (instruction %d)", place, orth_op_name(n->op), of, over, instr);
}

static bool all_finite(orth_dtype t, const void *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const bool bad = t == ORTH_F32   ? !isfinite(((const float *)values)[i])
                         : t == ORTH_F64 ? !isfinite(((const double *)values)[i])
                         : (t == ORTH_BF16 || t == ORTH_F16) && !isfinite(orth_load_f32(values, t, i));
        if (bad)
            return false;
    }
    return true;
}

/* Read piece by piece; what cannot be read is no infinity. */
static bool is_finite(orth_ctx *ctx, const orth_executor *e, const orth_operand *o)
{
    double piece[512];
    size_t at;
    orth_region *r = o->buffer < 0 ? NULL : executor_place_of(e, o->buffer, &at);
    const size_t bytes = r ? orth_operand_bytes(o) : 0, elem = orth_dtype_bytes(o->dtype);
    for (size_t done = 0, n; done < bytes; done += n) {
        n = ORTH_MIN(sizeof piece, bytes - done);
        if (r->ops->read(ctx, r, at + o->byte_offset + done, piece, n) != ORTH_OK)
            return true;
        if (!all_finite(o->dtype, piece, (int64_t)(n / elem)))
            return false;
    }
    return true;
}

/* A parameter that was bad before the step; its gradient and update come later in the program. */
static bool is_bad_parameter(orth_ctx *ctx, const orth_executor *e, const orth_operand *o)
{
    if (o->buffer < 0)
        return false;
    orth_bind bind = e->p->buffers[o->buffer].bind;
    return (bind == ORTH_BIND_MASTER || bind == ORTH_BIND_COPY) && !is_finite(ctx, e, o);
}

/* What instruction i has made is there: a result of it that is no number, or NULL. */
static const orth_operand *bad_result(orth_ctx *ctx, const orth_executor *e, int32_t i)
{
    const orth_instr *n = &e->p->instrs[i];
    for (int k = 0; k < n->num_out; k++)
        if (!is_finite(ctx, e, &n->out[k]))
            return &n->out[k];
    return NULL;
}

static void say(const orth_executor *e, int32_t i, const char *what, const orth_operand *bad, char *where, size_t size)
{
    const orth_instr *n = &e->p->instrs[i];
    char place[96];
    put_place(n, place, sizeof place);
    snprintf(where, size, "%s'%s' (op %s, %s, instruction %d)", what, e->p->buffers[bad->buffer].name, orth_op_name(n->op), place, i);
}

/* Among what was completed in other queues since `before`. */
static bool find_completed(orth_ctx *ctx, const orth_executor *e, int32_t *before, char *where, size_t size)
{
    for (int32_t q = 1; q < e->p->num_queues; q++)
        for (; before[q] < e->complete[q]; before[q]++) {
            const int32_t i = executor_instr_of(e, q, before[q]);
            const orth_operand *bad = bad_result(ctx, e, i);
            if (!bad)
                continue;
            say(e, i, "", bad, where, size);
            return true;
        }
    return false;
}

static orth_status find_nonfinite(orth_ctx *ctx, orth_executor *e, char *where, size_t size)
{
    int32_t before[ORTH_MAX_QUEUES] = {0};
    executor_begin(e);
    for (int32_t i = 0; i < e->p->num_instrs; i++) {
        const orth_instr *n = &e->p->instrs[i];
        for (int k = 0; k < n->num_in && n->phase != ORTH_PHASE_UPDATE; k++) /* there it may be at work on them beside the loop */
            if (is_bad_parameter(ctx, e, &n->in[k])) {
                say(e, i, "the parameter ", &n->in[k], where, size);
                return ORTH_OK;
            }
        ORTH_TRY(executor_issue(ctx, e, i));
        if (find_completed(ctx, e, before, where, size))
            return ORTH_OK;
        const orth_operand *bad = n->queue == 0 ? bad_result(ctx, e, i) : NULL;
        if (bad) {
            say(e, i, "", bad, where, size);
            return ORTH_OK;
        }
    }
    ORTH_TRY(executor_finish(ctx, e));
    find_completed(ctx, e, before, where, size);
    return ORTH_OK;
}

orth_status orth_executor_find_nonfinite(orth_ctx *ctx, orth_executor *e, char *where, size_t where_bytes)
{
    executor_show(ctx, e);
    const orth_status s = find_nonfinite(ctx, e, where, where_bytes);
    executor_show(ctx, NULL);
    return s;
}
