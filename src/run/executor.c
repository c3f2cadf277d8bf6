/* executor.c -- see executor.h. */
#include "run/executor.h"

#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/progress.h"
#include "program/ir/comm_call.h"
#include "run/space/space.h"

struct orth_executor {
    const orth_program *p;
    const orth_kernel_fn *kernels;
    const orth_executor *lender;
    orth_region own[ORTH_NUM_SPACES];     /* arenas; none where they lie in the lender's */
    orth_region *region[ORTH_NUM_SPACES]; /* `own`, or the lender's */
    size_t base[ORTH_NUM_SPACES];         /* where the arena begins in it */
    bool borrowed;             /* they are the lender's */
    orth_op_call *calls;       /* [num_instrs] */
    orth_tensor *tensors;      /* of all calls, one after the other */
    int64_t *clock;            /* [num_instrs + 1]: see executor.h */
    int64_t *tags;             /* [num_instrs] of the first call of each */
    orth_comm *comms[ORTH_NUM_GROUPS];
    orth_ticket tickets[ORTH_MAX_TICKETS]; /* of started calls, by attr.ticket */
    uint8_t *spaces;           /* [num_instrs] bits of the spaces that the instruction works in */
    uint8_t held[ORTH_MAX_TICKETS]; /* those of started calls, entered until they are waited for */
    uint8_t *ran;              /* [num_instrs] whether it ever ran */
};

/* The region that a buffer lies in, and *at which byte; NULL: the lender does not have it in that space. */
static orth_region *place_of(const orth_executor *e, int32_t buffer, size_t *at)
{
    const orth_buffer *b = &e->p->buffers[buffer];
    if (!b->external) {
        *at = e->base[b->space] + b->offset;
        return e->region[b->space];
    }
    const int32_t lent = e->lender ? orth_program_find(e->lender->p, b->bind, b->index) : -1;
    return lent < 0 || e->lender->p->buffers[lent].space != b->space ? NULL : place_of(e->lender, lent, at);
}

size_t orth_executor_size(const orth_executor *e, orth_bind bind, int64_t index)
{
    const int32_t b = orth_program_find(e->p, bind, index);
    return b < 0 ? 0 : e->p->buffers[b].bytes;
}

static orth_status find_bytes(orth_ctx *ctx, const orth_executor *e, orth_ref ref, orth_region **out, size_t *at)
{
    const int32_t b = orth_program_find(e->p, ref.bind, ref.index);
    if (b < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "the program has no buffer %" PRId64 " of kind %d", ref.index, (int)ref.bind);
    const orth_buffer *buffer = &e->p->buffers[b];
    if (ref.bytes > buffer->bytes || ref.at > buffer->bytes - ref.bytes)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "bytes %zu to %zu of '%s', which has %zu", ref.at, ref.at + ref.bytes,
                         buffer->name, buffer->bytes);
    *out = place_of(e, b, at);
    *at += ref.at;
    return ORTH_OK;
}

orth_status orth_executor_read(orth_ctx *ctx, const orth_executor *e, orth_ref ref, void *host)
{
    orth_region *r;
    size_t at;
    ORTH_TRY(find_bytes(ctx, e, ref, &r, &at));
    return r->ops->read(ctx, r, at, host, ref.bytes);
}

orth_status orth_executor_write(orth_ctx *ctx, orth_executor *e, orth_ref ref, const void *host)
{
    orth_region *r;
    size_t at;
    ORTH_TRY(find_bytes(ctx, e, ref, &r, &at));
    return r->ops->write(ctx, r, at, host, ref.bytes);
}

static orth_status resolve(orth_ctx *ctx, orth_executor *e, orth_tensor *t, const orth_operand *o)
{
    *t = orth_operand_tensor(o);
    if (o->buffer < 0)
        return ORTH_OK;
    size_t at;
    orth_region *r = place_of(e, o->buffer, &at);
    if (!r)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "buffer '%s' is not lent", e->p->buffers[o->buffer].name);
    t->data = r->base + at + o->byte_offset;
    return ORTH_OK;
}

/* Joined operands lie one after the other, also where they are another program's. */
static orth_status check_coalesced(orth_ctx *ctx, int32_t i, const orth_tensor *t, int num)
{
    const char *end = NULL;
    for (int k = 0; k < num; k++) {
        if (orth_tensor_elems(&t[k]) == 0)
            continue;
        if (end && end != (const char *)t[k].data)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "instruction %d: coalesced operand %d does not follow the one before",
                             i, k);
        end = (const char *)t[k].data + orth_tensor_bytes(&t[k]);
    }
    return ORTH_OK;
}

static uint8_t spaces_of(const orth_program *p, const orth_instr *n)
{
    int bits = orth_op_is_comm(n->op) ? 0 : 1 << p->buffers[p->workspace].space;
    for (int k = 0; k < n->num_in; k++)
        bits |= n->in[k].buffer < 0 ? 0 : 1 << p->buffers[n->in[k].buffer].space;
    for (int k = 0; k < n->num_out; k++)
        bits |= n->out[k].buffer < 0 ? 0 : 1 << p->buffers[n->out[k].buffer].space;
    return (uint8_t)bits;
}

static orth_status resolve_all(orth_ctx *ctx, orth_executor *e)
{
    size_t at;
    const orth_region *scratch = place_of(e, e->p->workspace, &at);
    orth_tensor *t = e->tensors;
    for (int32_t i = 0; i < e->p->num_instrs; i++) {
        const orth_instr *n = &e->p->instrs[i];
        orth_op_call *c = &e->calls[i];
        *c = (orth_op_call){.in = t, .out = t + n->num_in, .num_in = n->num_in, .num_out = n->num_out,
                            .attr = &n->attr, .workspace = scratch->base + at};
        e->spaces[i] = spaces_of(e->p, n);
        for (int k = 0; k < n->num_in; k++)
            ORTH_TRY(resolve(ctx, e, t++, &n->in[k]));
        for (int k = 0; k < n->num_out; k++)
            ORTH_TRY(resolve(ctx, e, t++, &n->out[k]));
        if (n->coalesced) {
            ORTH_TRY(check_coalesced(ctx, i, c->in, n->num_in));
            ORTH_TRY(check_coalesced(ctx, i, c->out, n->num_out));
        }
    }
    return ORTH_OK;
}

/* Tags: the members of a group make the same collectives in one order, and two ranks the same messages, so the number of a
 * call in that order is what they agree on. A rank that leaves one out is found at the next. */
static orth_status number_calls(orth_ctx *ctx, orth_executor *e)
{
    const orth_program *p = e->p;
    int32_t most = 0;
    for (int32_t i = 0; i < p->num_instrs; i++)
        most = ORTH_MAX(most, p->instrs[i].attr.peer);
    enum { COLLECTIVES, SENDS, RECEIVES, NUM };
    int64_t *seen = ORTH_NEW_ARRAY(ctx, int64_t, (int64_t)ORTH_NUM_GROUPS * (most + 1) * NUM);
    if (!seen)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        const int kind = n->op == ORTH_OP_send ? SENDS : n->op == ORTH_OP_recv ? RECEIVES : COLLECTIVES;
        const int64_t peer = kind == COLLECTIVES ? 0 : n->attr.peer;
        const int num = orth_instr_num_calls(n);
        if (num == 0)
            continue;
        int64_t *at = &seen[((int64_t)n->attr.group * (most + 1) + peer) * NUM + kind];
        e->tags[i] = *at + 1;
        *at += num;
    }
    orth_mem_free(ctx, seen);
    return ORTH_OK;
}

static orth_status map_space(orth_ctx *ctx, orth_executor *e, orth_space s)
{
    const size_t bytes = e->p->space_bytes[s];
    if (!e->borrowed) {
        e->region[s] = &e->own[s];
        return orth_region_map(ctx, &e->own[s], s, bytes);
    }
    const orth_executor *l = e->lender;
    if (bytes > l->p->transient_bytes[s])
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "a program of %zu bytes is to lie in %zu bytes of another", bytes,
                         l->p->transient_bytes[s]);
    e->region[s] = l->region[s];
    e->base[s] = l->base[s] + l->p->transient_offset[s];
    return ORTH_OK;
}

orth_status orth_executor_create(orth_ctx *ctx, orth_executor **out, const orth_program *p,
                                 const orth_kernel_fn *kernels, const orth_executor *lender, bool overlay)
{
    int64_t num_tensors = 0;
    for (int32_t i = 0; i < p->num_instrs; i++)
        num_tensors += p->instrs[i].num_in + p->instrs[i].num_out;
    orth_executor *e = ORTH_NEW(ctx, orth_executor);
    if (!e)
        return ORTH_ERR_NOMEM;
    *e = (orth_executor){.p = p, .kernels = kernels, .lender = lender};
    e->calls = ORTH_NEW_ARRAY(ctx, orth_op_call, p->num_instrs);
    e->tensors = ORTH_NEW_ARRAY(ctx, orth_tensor, num_tensors);
    e->clock = ORTH_NEW_ARRAY(ctx, int64_t, p->num_instrs + 1);
    e->tags = ORTH_NEW_ARRAY(ctx, int64_t, p->num_instrs);
    e->ran = ORTH_NEW_ARRAY(ctx, uint8_t, p->num_instrs);
    e->spaces = ORTH_NEW_ARRAY(ctx, uint8_t, p->num_instrs);
    e->borrowed = overlay;
    orth_status s = e->calls && e->tensors && e->clock && e->tags && e->ran && e->spaces ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int k = 0; s == ORTH_OK && k < ORTH_NUM_SPACES; k++)
        s = map_space(ctx, e, (orth_space)k);
    if (s == ORTH_OK)
        s = resolve_all(ctx, e);
    if (s == ORTH_OK)
        s = number_calls(ctx, e);
    if (s != ORTH_OK) {
        orth_executor_destroy(ctx, e);
        return s;
    }
    *out = e;
    return ORTH_OK;
}

void orth_executor_destroy(orth_ctx *ctx, orth_executor *e)
{
    if (!e)
        return;
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        orth_region_unmap(&e->own[s]);
    orth_mem_free(ctx, e->spaces);
    orth_mem_free(ctx, e->calls);
    orth_mem_free(ctx, e->tensors);
    orth_mem_free(ctx, e->clock);
    orth_mem_free(ctx, e->tags);
    orth_mem_free(ctx, e->ran);
    orth_mem_free(ctx, e);
}

void orth_executor_set_comms(orth_executor *e, orth_comm *const comms[ORTH_NUM_GROUPS])
{
    memcpy(e->comms, comms, sizeof e->comms);
}

/* Where call k begins: coalesced operands begin with the first that is not empty. */
static void *begin_of(const orth_instr *n, const orth_tensor *t, int num, int k)
{
    while (n->coalesced && k + 1 < num && orth_tensor_elems(&t[k]) == 0)
        k++;
    return t[k].data;
}

static orth_status run_comm(orth_ctx *ctx, orth_executor *e, int32_t index)
{
    const orth_instr *n = &e->p->instrs[index];
    const orth_op_call *c = &e->calls[index];
    orth_comm *comm = e->comms[n->attr.group];
    if (!comm)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "instruction %d (%s): no communicator for axis %s", index,
                         orth_op_name(n->op), orth_group_name(n->attr.group));
    if (orth_op_is_wait(n->op))
        return orth_comm_wait(ctx, comm, e->tickets[n->attr.ticket % ORTH_MAX_TICKETS]);
    for (int k = 0; k < orth_instr_num_calls(n); k++) {
        orth_comm_call call = orth_instr_call(n, index, k, orth_comm_size(comm));
        call.tag = e->tags[index] + k;
        if (ctx->progress)
            atomic_fetch_add_explicit(&ctx->progress->asked, 1, memory_order_relaxed);
        call.send = k < n->num_in ? begin_of(n, c->in, n->num_in, k) : NULL;
        call.recv = k < n->num_out ? begin_of(n, c->out, n->num_out, k) : NULL;
        if (n->attr.ticket > 0)
            ORTH_TRY(orth_comm_start(ctx, comm, &call, &e->tickets[n->attr.ticket % ORTH_MAX_TICKETS]));
        else
            ORTH_TRY(orth_comm_run(ctx, comm, &call));
    }
    return ORTH_OK;
}

/* ---- the spaces of an instruction ---- */

static void leave_spaces(const orth_executor *e, int spaces)
{
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        if (!(spaces >> s & 1))
            continue;
        e->region[s]->ops->leave(e->region[s]);
        if (e->lender && !e->borrowed)
            e->lender->region[s]->ops->leave(e->lender->region[s]);
    }
}

/* Those of the lender, too: external buffers are there. */
static orth_status enter_spaces(orth_ctx *ctx, const orth_executor *e, int spaces)
{
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        if (!(spaces >> s & 1))
            continue;
        ORTH_TRY(e->region[s]->ops->enter(ctx, e->region[s]));
        if (e->lender && !e->borrowed)
            ORTH_TRY(e->lender->region[s]->ops->enter(ctx, e->lender->region[s]));
    }
    return ORTH_OK;
}

/* `copy` between two spaces, one of which is the host's memory. */
static orth_status move_between(orth_ctx *ctx, const orth_executor *e, const orth_instr *n)
{
    size_t from, to;
    orth_region *in = place_of(e, n->in[0].buffer, &from), *out = place_of(e, n->out[0].buffer, &to);
    from += n->in[0].byte_offset;
    to += n->out[0].byte_offset;
    if (e->p->buffers[n->out[0].buffer].space == ORTH_SPACE_HOST)
        return in->ops->read(ctx, in, from, out->base + to, orth_operand_bytes(&n->in[0]));
    return out->ops->write(ctx, out, to, in->base + from, orth_operand_bytes(&n->in[0]));
}

static bool moves_between(const orth_executor *e, const orth_instr *n)
{
    return n->op == ORTH_OP_copy && e->p->buffers[n->in[0].buffer].space != e->p->buffers[n->out[0].buffer].space;
}

/* A started call works until it is waited for, and keeps its spaces open so long. */
static orth_status run_in_spaces(orth_ctx *ctx, orth_executor *e, int32_t i)
{
    const orth_instr *n = &e->p->instrs[i];
    const bool started = n->attr.ticket > 0 && !orth_op_is_wait(n->op);
    uint8_t *held = &e->held[n->attr.ticket % ORTH_MAX_TICKETS];
    if (moves_between(e, n))
        return move_between(ctx, e, n);
    if (orth_op_is_wait(n->op)) {
        const orth_status s = run_comm(ctx, e, i);
        leave_spaces(e, *held);
        *held = 0;
        return s;
    }
    ORTH_TRY(enter_spaces(ctx, e, e->spaces[i]));
    const orth_status s = orth_op_is_comm(n->op) ? run_comm(ctx, e, i) : e->kernels[n->op](ctx, &e->calls[i]);
    if (started && s == ORTH_OK)
        *held = e->spaces[i];
    else
        leave_spaces(e, e->spaces[i]);
    return s;
}

static orth_status run_one(orth_ctx *ctx, orth_executor *e, int32_t i)
{
    if (ctx->progress)
        atomic_store_explicit(&ctx->progress->instr, i, memory_order_relaxed);
    orth_tick(ctx);
    e->ran[i] = 1;
    return run_in_spaces(ctx, e, i);
}

static orth_status run_all(orth_ctx *ctx, orth_executor *e)
{
    e->clock[0] = orth_clock_ns();
    for (int32_t i = 0; i < e->p->num_instrs; i++) {
        ORTH_TRY(run_one(ctx, e, i));
        e->clock[i + 1] = orth_clock_ns();
    }
    return ORTH_OK;
}

static void show_program(orth_ctx *ctx, const orth_executor *e)
{
    if (!ctx->progress)
        return;
    atomic_store(&ctx->progress->program, e);
    atomic_store(&ctx->progress->asked, 0);
    atomic_fetch_add(&ctx->progress->epoch, 1);
}

orth_status orth_executor_run(orth_ctx *ctx, orth_executor *e)
{
    show_program(ctx, e);
    ctx->frozen = true;
    orth_status s = run_all(ctx, e);
    ctx->frozen = false;
    show_program(ctx, NULL);
    return s;
}

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
    const bool sends = n->op == ORTH_OP_send || n->op == ORTH_OP_all_reduce || n->op == ORTH_OP_reduce_scatter;
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
        snprintf(over, sizeof over, " over %s", orth_group_name(n->attr.group));
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
    orth_region *r = o->buffer < 0 ? NULL : place_of(e, o->buffer, &at);
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

static orth_status find_nonfinite(orth_ctx *ctx, orth_executor *e, char *where, size_t where_bytes)
{
    for (int32_t i = 0; i < e->p->num_instrs; i++) {
        const orth_instr *n = &e->p->instrs[i];
        const orth_operand *bad = NULL;
        for (int k = 0; k < n->num_in && !bad; k++)
            bad = is_bad_parameter(ctx, e, &n->in[k]) ? &n->in[k] : NULL;
        const char *what = bad ? "the parameter " : "";
        if (!bad)
            ORTH_TRY(run_one(ctx, e, i));
        bool waits = orth_op_is_wait(n->op), started = n->attr.ticket > 0 && !waits; /* then the wait shows its results */
        for (int k = 0; k < n->num_out && !bad && !started; k++)
            bad = is_finite(ctx, e, &n->out[k]) ? NULL : &n->out[k];
        for (int k = 0; k < n->num_in && !bad && waits; k++)
            bad = is_finite(ctx, e, &n->in[k]) ? NULL : &n->in[k];
        if (!bad)
            continue;
        snprintf(where, where_bytes, "%s'%s' (op %s, layer %d, micro-batch %d, instruction %d)", what,
                 e->p->buffers[bad->buffer].name, orth_op_name(n->op), n->layer, n->micro_batch, i);
        return ORTH_OK;
    }
    return ORTH_OK;
}

orth_status orth_executor_find_nonfinite(orth_ctx *ctx, orth_executor *e, char *where, size_t where_bytes)
{
    show_program(ctx, e);
    const orth_status s = find_nonfinite(ctx, e, where, where_bytes);
    show_program(ctx, NULL);
    return s;
}

/* ---- what was used ---- */

orth_status orth_executor_counted(orth_ctx *ctx, const orth_executor *e, orth_counted *out)
{
    orth_run_record record = {.p = e->p, .calls = e->calls, .ran = e->ran};
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        record.arena[s] = e->region[s]->base + e->base[s];
    return orth_count_run(ctx, &record, out);
}

orth_status orth_executor_counted_above(orth_ctx *ctx, const orth_executor *e, size_t above[ORTH_NUM_SPACES])
{
    orth_counted own, guest;
    ORTH_TRY(orth_executor_counted(ctx, e->lender, &own));
    ORTH_TRY(orth_executor_counted(ctx, e, &guest));
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        const size_t begin = e->lender->p->transient_offset[s], end = begin + guest.high[s];
        above[s] = end - ORTH_MIN(end, ORTH_MAX(own.high[s], begin));
    }
    return ORTH_OK;
}

size_t orth_executor_touched_bytes(const orth_executor *e, orth_space s)
{
    return orth_pages_touched_bytes(e->own[s].base, e->own[s].bytes);
}

void orth_executor_exposed(const orth_executor *e, double seconds[ORTH_NUM_GROUPS])
{
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        seconds[g] = 0;
    for (int32_t i = 0; i < e->p->num_instrs; i++)
        if (orth_op_is_comm(e->p->instrs[i].op))
            seconds[e->p->instrs[i].attr.group] += 1e-9 * (double)(e->clock[i + 1] - e->clock[i]);
}

const int64_t *orth_executor_clock(const orth_executor *e)
{
    return e->clock;
}
