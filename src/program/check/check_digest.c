/* check_digest.c -- what is remembered of a rank's program: its calls, and its part of each parameter. */
#include "program/check/check.h"
#include "program/check/check_ranks_impl.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"

/* What the ends of a message must agree on: where a block of keys stands. Stages of a pipeline know no layer alike. */
static uint64_t hash_message(const orth_instr *n)
{
    uint64_t h = orth_hash_mix(n->phase, (uint64_t)n->layer);
    h = orth_hash_mix(h, (uint64_t)n->attr->key_begin);
    return n->attr->num_keys > 0 ? orth_hash_mix(h, 1) : 0;
}

/* What members of a collective must agree on beyond its type and counts. Bound buffers are known by what they
 * are: the halves of a tied gradient have different names. So are copies of them. */
static uint64_t hash_what(const orth_program *p, const orth_instr *n, int32_t to_come, int k)
{
    uint64_t h = orth_hash_mix(n->phase, (uint64_t)(n->layer + 1));
    h = orth_hash_mix(orth_hash_mix(h, (uint64_t)(to_come + 1)), (uint64_t)k);
    for (int end = n->coalesced ? ORTH_MAX(n->num_in, n->num_out) : k + 1; k < end; k++) {
        const orth_operand *o = k < n->num_in ? &n->in[k] : &n->out[k];
        if (o->buffer < 0)
            continue;
        const int32_t of = p->buffers[o->buffer].copy_of;
        const orth_buffer *b = &p->buffers[of > 0 ? of - 1 : o->buffer];
        h = orth_hash_mix(h, (uint64_t)b->index);
        h = orth_hash_mix(h, b->bind == ORTH_BIND_NONE ? XXH64(b->name, strlen(b->name), 0) : (uint64_t)b->bind);
    }
    return h;
}

static uint64_t hash_counts(const int64_t *counts, int n)
{
    uint64_t h = 1;
    for (int i = 0; counts && i < n; i++)
        h = orth_hash_mix(h, (uint64_t)counts[i]);
    return counts ? h | 1 : 0;
}

/* last_micro_batch: of the program. Ranks with other shares of the batch have other numbers of them before they meet. */
static rank_event event_of(const orth_program *p, int32_t last_micro_batch, int32_t i, int k, int group_size)
{
    const orth_instr *n = &p->instrs[i];
    rank_event e = {.instr = i,
                    .peer = n->attr->peer,
                    .layer = n->layer,
                    .micro_batch = n->micro_batch,
                    .to_come = n->micro_batch < 0 ? -1 : last_micro_batch - n->micro_batch,
                    .operand = k,
                    .op = (uint8_t)n->op,
                    .group = (uint8_t)n->attr->group};
    orth_comm_call call = orth_instr_call(n, i, k, group_size);
    e.kind = (uint8_t)call.kind;
    e.dtype = (uint8_t)call.dtype;
    e.reduce = (uint8_t)call.op;
    e.count = call.count;
    e.blocks = hash_counts(call.counts, group_size);
    if (e.blocks) { /* the blocks of the ranks differ: what is compared is the whole */
        e.count = 0;
        for (int r = 0; r < group_size; r++)
            e.count += call.counts[r];
    }
    e.what = event_is_message(&e) ? hash_message(n) : hash_what(p, n, e.to_come, k);
    return e;
}

static orth_status list_events(rank_check *k, const orth_program *p, const orth_rank_groups *g, digest *d)
{
    rank_event *events = ORTH_ARENA_ARRAY(k->ctx, &k->arena, rank_event, orth_program_num_calls(p) + 1);
    d->events = events;
    if (!events)
        return ORTH_ERR_NOMEM;
    int32_t last = -1;
    for (int32_t i = 0; i < p->num_instrs; i++)
        last = ORTH_MAX(last, p->instrs[i].micro_batch);
    ORTH_TRY(orth_wait_list_open(k->ctx, &k->arena, &d->waits, p));
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        orth_wait_list_add_events(&d->waits, p, i, false);
        if (n->queue > 0 && orth_queue_is_alone(&p->queues[n->queue]))
            orth_wait_list_add_alone(&d->waits, p, i, 0);
        for (int c = 0; c < orth_instr_num_calls(n); c++) {
            events[d->num_events++] = event_of(p, last, i, c, g->size[n->attr->group]);
            orth_wait_list_add_call(&d->waits, p, i, 0);
        }
        d->messages_on[n->attr->group] = d->messages_on[n->attr->group] || orth_op_is_message(n->op);
    }
    orth_wait_list_close(&d->waits, p);
    return ORTH_OK;
}

/* ---- parameters ---- */

/* The first piece, or all; the pieces behind it add to that. */
static void note_update(const orth_program *p, int32_t i, holding *h)
{
    const orth_updated u = orth_instr_updates(p, &p->instrs[i]);
    if (p->instrs[i].attr->piece > 0) {
        h->count += u.count;
        return;
    }
    h->update = i;
    h->first = u.first;
    h->count = u.count;
}

/* All pieces of the update that begins with instruction i. */
static void note_pieces(const orth_program *p, int32_t i, holding *h)
{
    const int64_t index = orth_instr_updates(p, &p->instrs[i]).index;
    const int32_t num = ORTH_MAX(p->instrs[i].attr->num_pieces, 1);
    for (int32_t seen = 0; seen < num && i < p->num_instrs; i++)
        if (orth_op_family_of(p->instrs[i].op) == ORTH_OPS_OPTIMIZER && orth_instr_updates(p, &p->instrs[i]).index == index) {
            note_update(p, i, h);
            seen++;
        }
}

static void note_instr(const orth_program *p, int32_t i, holding *of, digest *d)
{
    const orth_instr *n = &p->instrs[i];
    if (orth_op_family_of(n->op) == ORTH_OPS_OPTIMIZER) {
        note_update(p, i, &of[orth_instr_updates(p, n).index]);
        d->trains = true;
    }
    if (n->op == ORTH_OP_all_reduce && n->attr->group == ORTH_GROUP_EMBED)
        for (int c = 0; c < n->num_in; c++)
            of[p->buffers[n->in[c].buffer].index].embed_sums++;
}

static orth_status list_holdings(rank_check *k, const orth_rank_program *r, digest *d)
{
    const orth_program *p = r->program;
    holding *of = ORTH_NEW_ARRAY(k->ctx, holding, r->num_params + 1);
    if (!of)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < r->num_params; i++)
        of[i] = (holding){.index = -1, .update = -1};
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        bool holds =
            buf->bind == ORTH_BIND_MASTER || buf->bind == ORTH_BIND_COPY || buf->bind == ORTH_BIND_GRAD;
        if (!holds || of[buf->index].index >= 0 || r->params[buf->index].frozen)
            continue;
        const orth_param_desc *desc = &r->params[buf->index];
        of[buf->index].index = (int32_t)buf->index;
        of[buf->index].elems = desc->dim[0] * (desc->num_dims > 1 ? desc->dim[1] : 1);
        d->num_holdings++;
    }
    for (int32_t i = 0; i < p->num_instrs; i++)
        note_instr(p, i, of, d);
    d->holdings = ORTH_ARENA_ARRAY(k->ctx, &k->arena, holding, d->num_holdings + 1);
    int32_t at = 0;
    for (int64_t i = 0; d->holdings && i < r->num_params; i++)
        if (of[i].index >= 0)
            d->holdings[at++] = of[i];
    orth_mem_free(k->ctx, of);
    return d->holdings ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* The same error with the rank in front. */
static orth_status of_rank(orth_ctx *ctx, int rank, orth_status s)
{
    char text[ORTH_MESSAGE_MAX];
    if (s != ORTH_ERR_INTERNAL)
        return s;
    snprintf(text, sizeof text, "%s", ctx->error.message);
    orth_ctx_clear_error(ctx);
    return ORTH_FAIL(ctx, s, "rank %d, %.*s", rank, ORTH_MESSAGE_MAX - 32, text);
}

orth_status rank_digest(rank_check *k, int rank, digest *out)
{
    orth_rank_program r = {0};
    orth_rank_groups g = {0};
    ORTH_TRY(k->source->program(k->ctx, k->source->user, rank, &r));
    for (int i = 0; i < ORTH_NUM_GROUPS; i++) {
        g.size[i] = k->instances.of[rank][i] < 0 ? 1 : k->instances.list[k->instances.of[rank][i]].n;
        g.pos[i] = k->instances.pos[rank][i];
    }
    if (!k->source->checked)
        ORTH_TRY(of_rank(k->ctx, rank, orth_check(k->ctx, r.program)));
    ORTH_TRY(orth_check_flow(k->ctx, r.program, rank, &g));
    ORTH_TRY(list_events(k, r.program, &g, out));
    return list_holdings(k, &r, out);
}

orth_status rank_digest_views(rank_check *k, int rank, const digest *like, digest *out)
{
    orth_rank_program r = {0};
    ORTH_TRY(k->source->program(k->ctx, k->source->user, rank, &r));
    ORTH_TRY(of_rank(k->ctx, rank, orth_check_views(k->ctx, r.program, k->of)));
    *out = *like;
    out->holdings = ORTH_ARENA_ARRAY(k->ctx, &k->arena, holding, like->num_holdings + 1);
    if (!out->holdings)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < like->num_holdings; i++) {
        out->holdings[i] = like->holdings[i];
        if (like->holdings[i].update >= 0)
            note_pieces(r.program, like->holdings[i].update, &out->holdings[i]);
    }
    return ORTH_OK;
}

/* ---- words ---- */

void rank_describe(rank_check *k, int rank, const rank_event *e, char *out, size_t size)
{
    orth_rank_program r;
    const char *name = "-";
    if (k->source->program(k->ctx, k->source->user, rank, &r) == ORTH_OK &&
        e->instr < r.program->num_instrs) {
        const orth_instr *n = &r.program->instrs[e->instr];
        int32_t b = e->operand < n->num_in ? n->in[e->operand].buffer
                    : n->num_out > 0       ? n->out[e->operand].buffer
                                           : -1;
        name = b >= 0 ? r.program->buffers[b].name : "-";
    }
    size_t at = (size_t)snprintf(out, size, "rank %d, instruction %d (%s", rank, e->instr,
                                 orth_op_name((orth_op)e->op));
    if (at < size)
        at += (size_t)snprintf(out + at, size - at, "%s of %" PRId64 " %s",
                               e->reduce == ORTH_MAX_OF ? " of the maximum" : "", e->count,
                               orth_dtype_name((orth_dtype)e->dtype));
    if (at < size && event_is_message(e))
        at += (size_t)snprintf(out + at, size - at, " %s position %d", orth_op_sends(e->op) ? "to" : "from",
                               e->peer);
    if (at < size)
        snprintf(out + at, size - at, " on %s, layer %d, micro-batch %d), buffer '%s'",
                 orth_group_name((orth_group)e->group), e->layer, e->micro_batch, name);
}

void rank_param_name(rank_check *k, int rank, int32_t index, char *out, size_t size)
{
    orth_rank_program r;
    bool known = k->source->program(k->ctx, k->source->user, rank, &r) == ORTH_OK && index < r.num_params;
    snprintf(out, size, "%s", known ? r.params[index].name : "?");
}

const holding *rank_holding(const rank_check *k, int rank, int32_t index, int32_t near)
{
    const digest *d = k->digests[rank];
    if (near < d->num_holdings && d->holdings[near].index == index)
        return &d->holdings[near];
    int32_t low = 0, high = d->num_holdings;
    while (low < high) {
        int32_t mid = (low + high) / 2;
        if (d->holdings[mid].index < index)
            low = mid + 1;
        else
            high = mid;
    }
    return low < d->num_holdings && d->holdings[low].index == index ? &d->holdings[low] : NULL;
}
