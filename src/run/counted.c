/* counted.c -- see counted.h. A buffer that took over the bytes of another is counted with it, a chain as one. */
#include "run/counted.h"

#include "base/pages.h"
#include "base/pool.h"
#include "program/passes/place.h"

/* What instructions were given of a buffer. */
typedef struct {
    size_t begin, end;       /* bytes of the arena; begin >= end: none */
    int32_t first, last;     /* instructions; last < 0: none */
} extent;

typedef struct {
    orth_ctx *ctx;
    const orth_run_record *r;
    extent *of;              /* [num_buffers] */
    int64_t *change;         /* [num_instrs + 1] of live bytes, room */
} counting;

/* From instruction i on, and until the one before `end`. */
static void give(counting *x, int32_t i, int32_t end, int32_t buffer, const void *at, size_t bytes)
{
    const orth_buffer *b = &x->r->p->buffers[buffer];
    extent *e = &x->of[orth_buffer_root(x->r->p, buffer)];
    if (b->external)
        return;
    e->first = e->last < 0 ? i : e->first;
    e->last = ORTH_MAX(e->last, end - 1);
    if (bytes == 0)
        return;
    const size_t begin = (size_t)((const char *)at - x->r->arena[b->space]);
    e->begin = ORTH_MIN(e->begin, begin);
    e->end = ORTH_MAX(e->end, begin + bytes);
}

static void follow_instructions(counting *x)
{
    const orth_program *p = x->r->p;
    for (int32_t b = 0; b < p->num_buffers; b++)
        x->of[b] = (extent){.begin = SIZE_MAX, .last = -1};
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        const orth_op_call *c = &x->r->calls[i];
        const int32_t end = ORTH_MAX(n->until, i + 1); /* a call in another queue holds on to them */
        if (!x->r->ran[i])
            continue;
        for (int k = 0; k < n->num_in; k++)
            if (n->in[k].buffer >= 0)
                give(x, i, end, n->in[k].buffer, c->in[k].data, orth_tensor_bytes(&c->in[k]));
        for (int k = 0; k < n->num_out; k++)
            if (n->out[k].buffer >= 0)
                give(x, i, end, n->out[k].buffer, c->out[k].data, orth_tensor_bytes(&c->out[k]));
        if (!orth_op_is_comm(n->op) && c->workspace)
            give(x, i, end, p->workspace, c->workspace,
                 orth_op_workspace_bytes(n->op, c, orth_pool_num_threads(x->ctx->pool), x->ctx->isa)); /* as the kernel divides it up */
    }
}

/* Of a chain, by its first buffer. */
static extent extent_of_chain(const counting *x, int32_t head)
{
    extent all = {.begin = SIZE_MAX, .last = -1};
    for (int32_t b = head; b >= 0; b = x->r->p->buffers[b].next) {
        const extent *e = &x->of[b];
        if (e->last < 0)
            continue;
        all.first = all.last < 0 ? e->first : ORTH_MIN(all.first, e->first);
        all.last = ORTH_MAX(all.last, e->last);
        all.begin = ORTH_MIN(all.begin, e->begin);
        all.end = ORTH_MAX(all.end, e->end);
    }
    return all;
}

/* Whether buffer b, the first of a chain or in none, was given, and what of it. */
static bool is_given(const counting *x, int32_t b, orth_space s, bool persistent, extent *out)
{
    const orth_buffer *buf = &x->r->p->buffers[b];
    if (buf->space != s || buf->persistent != persistent || buf->external || buf->alias >= 0 || buf->prev >= 0)
        return false;
    *out = extent_of_chain(x, b);
    return out->last >= 0 && out->begin < out->end;
}

static size_t bytes_of(const extent *e)
{
    return (size_t)orth_round_up((int64_t)(e->end - e->begin), ORTH_PLACE_ALIGN);
}

/* The instruction during which most transient bytes of the space lived. */
static int32_t busiest(const counting *x, orth_space s)
{
    const orth_program *p = x->r->p;
    int64_t live = 0, most = 0;
    int32_t at = 0;
    extent e;
    memset(x->change, 0, ((size_t)p->num_instrs + 1) * sizeof *x->change);
    for (int32_t b = 0; b < p->num_buffers; b++) {
        if (!is_given(x, b, s, false, &e))
            continue;
        x->change[e.first] += (int64_t)bytes_of(&e);
        x->change[e.last + 1] -= (int64_t)bytes_of(&e);
    }
    for (int32_t i = 0; i < p->num_instrs; i++) {
        live += x->change[i];
        at = live > most ? i : at;
        most = ORTH_MAX(most, live);
    }
    return at;
}

static void count_space(const counting *x, orth_space s, orth_counted *out)
{
    const orth_program *p = x->r->p;
    const int32_t at = busiest(x, s);
    size_t low = SIZE_MAX, high = 0, live = 0;
    extent e;
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_class c = p->buffers[b].cls;
        if (is_given(x, b, s, true, &e)) {
            out->bytes[s][c] += bytes_of(&e);
            out->persistent[s] += bytes_of(&e);
            out->high[s] = ORTH_MAX(out->high[s], e.begin + bytes_of(&e));
        }
        if (!is_given(x, b, s, false, &e))
            continue;
        low = ORTH_MIN(low, e.begin);
        high = ORTH_MAX(high, e.begin + bytes_of(&e));
        if (e.first <= at && at <= e.last) {
            out->bytes[s][c] += bytes_of(&e);
            live += bytes_of(&e);
        }
    }
    if (high > 0)
        out->bytes[s][ORTH_CLASS_ACTIVATIONS] += high - low - live;
    out->high[s] = ORTH_MAX(out->high[s], high);
    out->peak[s] = out->persistent[s] + live;
}

/* Pages of the space in which some buffer was given. */
static orth_status count_pages(orth_ctx *ctx, const counting *x, orth_space s, orth_counted *out)
{
    const size_t page = orth_pages_size(), skew = (size_t)((uintptr_t)x->r->arena[s] % page);
    const size_t n = (out->high[s] + skew) / page + 1;
    uint8_t *given = orth_mem_alloc(ctx, n);
    if (!given)
        return ORTH_ERR_NOMEM;
    for (int32_t b = 0; b < x->r->p->num_buffers; b++) {
        const extent *e = &x->of[b];
        if (x->r->p->buffers[b].space != s || e->begin >= e->end)
            continue;
        const size_t first = (e->begin + skew) / page, last = (e->end - 1 + skew) / page;
        memset(given + first, 1, last - first + 1);
    }
    for (size_t i = 0; i < n; i++)
        out->pages[s] += given[i] ? page : 0;
    orth_mem_free(ctx, given);
    return ORTH_OK;
}

orth_status orth_count_run(orth_ctx *ctx, const orth_run_record *r, orth_counted *out)
{
    counting x = {.ctx = ctx, .r = r, .of = ORTH_NEW_ARRAY(ctx, extent, r->p->num_buffers + 1),
                  .change = ORTH_NEW_ARRAY(ctx, int64_t, r->p->num_instrs + 1)};
    orth_status status = x.of && x.change ? ORTH_OK : ORTH_ERR_NOMEM;
    *out = (orth_counted){.bytes = {{0}}};
    if (status == ORTH_OK)
        follow_instructions(&x);
    for (int s = 0; s < ORTH_NUM_SPACES && status == ORTH_OK; s++) {
        count_space(&x, (orth_space)s, out);
        if (out->high[s] > 0)
            status = count_pages(ctx, &x, (orth_space)s, out);
    }
    orth_mem_free(ctx, x.of);
    orth_mem_free(ctx, x.change);
    return status;
}
