/* executor.c -- see executor.h. */
#include <inttypes.h>

#include "run/executor_impl.h"

orth_region *executor_place_of(const orth_executor *e, int32_t buffer, size_t *at)
{
    const orth_buffer *b = &e->p->buffers[buffer];
    if (!b->external) {
        *at = e->base[b->space] + orth_buffer_begin(e->p, b);
        return e->region[b->space];
    }
    /* Parameters of an evaluation: those of the step's program, which is another list, so they are found by what they are. */
    const int32_t lent = e->lender ? orth_program_find(e->lender->p, b->bind, b->index) : -1;
    return lent < 0 || e->lender->p->buffers[lent].space != b->space ? NULL : executor_place_of(e->lender, lent, at);
}

orth_dtype orth_executor_type(const orth_executor *e, orth_bind bind, int64_t index)
{
    const int32_t b = orth_program_find(e->p, bind, index);
    return b < 0 ? ORTH_F32 : e->p->buffers[b].dtype;
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
    *out = executor_place_of(e, b, at);
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
    orth_region *r = executor_place_of(e, o->buffer, &at);
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

static orth_status resolve_all(orth_ctx *ctx, orth_executor *e)
{
    size_t at;
    const orth_region *scratch = executor_place_of(e, e->p->workspace, &at);
    orth_tensor *t = e->tensors;
    for (int32_t i = 0; i < e->p->num_instrs; i++) {
        const orth_instr *n = &e->p->instrs[i];
        orth_op_call *c = &e->calls[i];
        *c = (orth_op_call){.in = t, .out = t + n->num_in, .num_in = n->num_in, .num_out = n->num_out,
                            .attr = n->attr};
        e->spaces[i] = executor_spaces_of(e->p, n);
        if (e->spaces[i] >> e->p->buffers[e->p->workspace].space & 1) /* kernels of other spaces have none */
            c->workspace = scratch->base + at;
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
    /* Over the lender's transient buffers: between two steps nothing of these is needed. */
    e->region[s] = l->region[s];
    e->base[s] = l->base[s] + l->p->transient_offset[s];
    return ORTH_OK;
}

/* The instructions of each queue, and room for what a step notes of them. */
static orth_status list_queues(orth_ctx *ctx, orth_executor *e)
{
    const orth_program *p = e->p;
    if (p->num_queues == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "a program whose instructions are in no queues cannot run");
    e->list = ORTH_NEW_ARRAY(ctx, int32_t, p->num_instrs);
    e->requests = ORTH_NEW_ARRAY(ctx, orth_request, p->num_instrs);
    e->clock = ORTH_NEW_ARRAY(ctx, int64_t, orth_clock_length(p->num_instrs));
    e->held = ORTH_NEW_ARRAY(ctx, int64_t, p->num_instrs);
    if (!e->list || !e->requests || !e->clock || !e->held)
        return ORTH_ERR_NOMEM;
    int32_t filled[ORTH_MAX_QUEUES] = {0};
    for (int32_t q = 0; q < p->num_queues; q++)
        e->first[q + 1] = e->first[q] + p->queues[q].num_instrs;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const int32_t q = p->instrs[i].queue;
        e->list[e->first[q] + filled[q]++] = i;
    }
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
    e->tags = ORTH_NEW_ARRAY(ctx, int64_t, p->num_instrs);
    e->ran = ORTH_NEW_ARRAY(ctx, uint8_t, p->num_instrs);
    e->spaces = ORTH_NEW_ARRAY(ctx, uint8_t, p->num_instrs);
    e->borrowed = overlay;
    orth_status s = e->calls && e->tensors && e->tags && e->ran && e->spaces ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = list_queues(ctx, e);
    for (int k = 0; s == ORTH_OK && k < ORTH_NUM_SPACES; k++)
        s = map_space(ctx, e, (orth_space)k);
    if (s == ORTH_OK)
        s = resolve_all(ctx, e);
    if (s == ORTH_OK)
        s = executor_number_calls(ctx, e);
    if (s == ORTH_OK)
        s = executor_open_beside(ctx, e);
    if (s != ORTH_OK) {
        orth_executor_destroy(ctx, e);
        return s;
    }
    *out = e;
    return ORTH_OK;
}

void orth_executor_set_comms(orth_executor *e, orth_comm *const comms[ORTH_NUM_GROUPS])
{
    memcpy(e->comms, comms, sizeof e->comms);
}

void orth_executor_destroy(orth_ctx *ctx, orth_executor *e)
{
    if (!e)
        return;
    executor_close_beside(ctx, e);
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        orth_region_unmap(&e->own[s]);
    orth_mem_free(ctx, e->spaces);
    orth_mem_free(ctx, e->calls);
    orth_mem_free(ctx, e->tensors);
    orth_mem_free(ctx, e->clock);
    orth_mem_free(ctx, e->held);
    orth_mem_free(ctx, e->requests);
    orth_mem_free(ctx, e->list);
    orth_mem_free(ctx, e->tags);
    orth_mem_free(ctx, e->ran);
    orth_mem_free(ctx, e);
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
        /* The guest lies over the lender's transient bytes, of which those below own.high are counted as the lender's already. */
        const size_t begin = e->lender->p->transient_offset[s], end = begin + guest.high[s];
        above[s] = end - ORTH_MIN(end, ORTH_MAX(own.high[s], begin));
    }
    return ORTH_OK;
}

size_t orth_executor_mapped_bytes(const orth_executor *e, orth_space s)
{
    return e->own[s].bytes;
}

size_t orth_executor_touched_bytes(const orth_executor *e, orth_space s)
{
    return e->own[s].ops ? e->own[s].ops->touched(&e->own[s]) : 0;
}

orth_file_use orth_executor_file_use(const orth_executor *e)
{
    const orth_region *r = &e->own[ORTH_SPACE_FILE];
    return (orth_file_use){r->base ? &r->file : NULL, r->file.room_bytes, atomic_load(&r->file_read), atomic_load(&r->file_written)};
}
