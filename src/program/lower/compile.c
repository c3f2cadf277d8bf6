/* compile.c -- the actions of a schedule (forward, backward of a micro-batch) become instructions. */
#include "program/lower/frozen.h"
#include "program/lower/stage.h"

/* ---- actions ---- */

static orth_chunk_state *state_of(const orth_stage *st, int32_t local, int32_t micro)
{
    return &st->states[(int64_t)local * st->b->spec->num_micro_batches + micro];
}

static orth_operand activation_shape(const orth_builder *b)
{
    const orth_graph *g = b->spec->layers[0].graph;
    const orth_value_info *x = &g->values[g->input];
    return orth_operand_of(-1, x->dtype, x->num_dims, x->dim);
}

static bool same_rank(const orth_builder *b, int32_t peer)
{
    return peer == b->spec->mesh.pos[ORTH_GROUP_PP];
}

/* Activations travel on PP, gradients on PP_BACK. */
static orth_operand receive(orth_builder *b, orth_group channel, int32_t peer, const char *name)
{
    orth_operand x = orth_build_temp(b, name, activation_shape(b));
    orth_build_emit(b, ORTH_OP_recv, &(orth_attr){.group = channel, .peer = peer}, 0, NULL, 1, &x);
    return x;
}

static void end_oldest(orth_builder *b)
{
    orth_build_until_here(b, b->pending[0]);
    b->num_pending--;
    memmove(b->pending, b->pending + 1, (size_t)b->num_pending * sizeof *b->pending);
}

/* Goes on beside computing. What it sends lives until the ORTH_MAX_PENDING_SENDS-th send after it. */
static void send(orth_builder *b, orth_group channel, int32_t peer, orth_operand x)
{
    if (b->num_pending == ORTH_MAX_PENDING_SENDS)
        end_oldest(b);
    b->pending[b->num_pending++] =
        orth_build_start(b, ORTH_OP_send, &(orth_attr){.group = channel, .peer = peer}, 1, &x, 0, NULL);
}

/* What is built from here on is of this action: it begins before the first layer, or after the last. */
static orth_chunk_state *begin_action(orth_stage *st, orth_phase phase, int32_t local, int32_t micro)
{
    orth_gather_close(st->b);
    st->b->phase = phase;
    st->b->micro_batch = micro;
    st->b->layer = phase == ORTH_PHASE_FORWARD ? -1 : st->b->spec->num_layers;
    return state_of(st, local, micro);
}

static void forward(orth_stage *st, int32_t local, int32_t micro)
{
    orth_builder *b = st->b;
    const orth_chunk *c = &st->chunks[local];
    orth_chunk_state *m = begin_action(st, ORTH_PHASE_FORWARD, local, micro);
    orth_operand x;
    if (c->embed)
        x = orth_build_forward(b, &b->spec->embed, &m->embed, orth_operand_absent);
    else if (same_rank(b, c->prev))
        x = state_of(st, local - 1, micro)->handed;
    else
        x = receive(b, ORTH_GROUP_PP, c->prev, "received");
    m->layers = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, orth_block_env, ORTH_MAX(c->num_layers, 1));
    b->p->failed = b->p->failed || !m->layers;
    for (int32_t l = 0; l < c->num_layers && !b->p->failed; l++) {
        b->layer = c->first_layer + l;
        orth_stage_keep_part(st, c, m, l, x);
        x = orth_build_forward(b, &b->spec->layers[b->layer], &m->layers[l], x);
    }
    b->layer = b->spec->num_layers;
    if (b->p->failed)
        return;
    orth_build_resume(b, ORTH_TRAVELS_IN_BUCKET); /* its memory is wanted by the head */
    if (c->head) /* one group: orth_stage_make_final does that */
        m->normed = orth_stage_is_one_group(st) ? orth_operand_absent
                                                : orth_build_forward(b, &b->spec->final, &m->final, x);
    else if (same_rank(b, c->next))
        m->handed = x;
    else
        send(b, ORTH_GROUP_PP, c->next, x);
    orth_stage_forget(st, c, m);
}

/* The gradient of a chunk's output; absent where everything up to there is frozen. */
static orth_operand output_grad(orth_stage *st, orth_action_kind kind, int32_t local, int32_t micro)
{
    orth_builder *b = st->b;
    const orth_chunk *c = &st->chunks[local];
    orth_chunk_state *m = state_of(st, local, micro);
    if (c->head && orth_stage_is_one_group(st))
        orth_stage_make_final(st, c, m);
    if (c->head) {
        const orth_operand normed = orth_build_head(b, m->normed);
        return b->spec->final.idle ? normed : orth_build_backward(b, &b->spec->final, &m->final, kind, normed);
    }
    if (!orth_frozen_passes(b->spec, c->first_layer + c->num_layers - 1))
        return orth_operand_absent;
    return same_rank(b, c->next) ? state_of(st, local + 1, micro)->handed_back
                                 : receive(b, ORTH_GROUP_PP_BACK, c->next, "d.received");
}

/* kind: B or BI. The head is whole in both: its logits die with their chunk, and its weight gradient must be
 * made while they live. */
static void backward(orth_stage *st, orth_action_kind kind, int32_t local, int32_t micro)
{
    orth_builder *b = st->b;
    const orth_chunk *c = &st->chunks[local];
    orth_chunk_state *m = begin_action(st, ORTH_PHASE_BACKWARD, local, micro);
    orth_build_hold(b, !c->embed && !same_rank(b, c->prev));
    orth_operand dy = output_grad(st, kind, local, micro);
    for (int32_t l = c->num_layers - 1; l >= 0 && !b->p->failed && orth_frozen_passes(b->spec, c->first_layer + l); l--) {
        b->layer = c->first_layer + l;
        if (!(c->head && orth_stage_is_one_group(st)))
            orth_stage_make_group(st, c, m, l);
        dy = orth_build_backward(b, &b->spec->layers[b->layer], &m->layers[l], kind, dy);
    }
    b->layer = -1;
    if (b->p->failed)
        return;
    const bool passes = orth_frozen_passes(b->spec, c->first_layer - 1);
    if (c->embed && passes)
        orth_build_backward(b, &b->spec->embed, &m->embed, kind, dy);
    else if (!passes)
        m->handed_back = orth_operand_absent;
    else if (same_rank(b, c->prev))
        m->handed_back = dy;
    else
        send(b, ORTH_GROUP_PP_BACK, c->prev, dy);
    orth_build_hold(b, false);
    orth_build_end_of_gradients(b);
}

/* The weight gradients that BI left, in the order of the whole backward. */
static void weights(orth_stage *st, int32_t local, int32_t micro)
{
    orth_builder *b = st->b;
    const orth_chunk *c = &st->chunks[local];
    orth_chunk_state *m = begin_action(st, ORTH_PHASE_BACKWARD, local, micro);
    if (c->head)
        orth_build_weights(b, &b->spec->final, &m->final);
    for (int32_t l = c->num_layers - 1; l >= 0 && !b->p->failed; l--) {
        b->layer = c->first_layer + l;
        orth_build_weights(b, &b->spec->layers[b->layer], &m->layers[l]);
    }
    b->layer = -1;
    if (c->embed)
        orth_build_weights(b, &b->spec->embed, &m->embed);
    orth_build_end_of_gradients(b);
}

/* BI and W of the first chunk in one: nobody waits for what BI makes there, and layer by layer the
 * gradients between them need not be kept. */
static bool is_whole(const orth_chunk *c, const orth_action *a, const orth_action *next)
{
    return c->embed && a->kind == ORTH_ACTION_BI && next->kind == ORTH_ACTION_W && next->chunk == a->chunk &&
           next->micro_batch == a->micro_batch;
}

static int32_t local_chunk(const orth_stage *st, int32_t chunk)
{
    int32_t k = 0;
    while (k < st->num_chunks && st->chunks[k].chunk != chunk)
        k++;
    return k;
}

/* Without a schedule: a micro-batch all the way through this rank's chunks. */
static void run_in_turn(orth_stage *st, int32_t micro)
{
    const orth_compile_spec *s = st->b->spec;
    for (int32_t k = 0; k < st->num_chunks && !st->b->p->failed; k++) {
        forward(st, k, micro);
        if (!st->chunks[k].head || st->b->p->failed)
            continue;
        if (s->mode == ORTH_MODE_EVAL)
            orth_build_head(st->b, state_of(st, k, micro)->normed);
        else if (s->mode == ORTH_MODE_DECODE)
            orth_build_decode_head(st->b, state_of(st, k, micro)->normed);
    }
    for (int32_t k = st->num_chunks - 1; s->mode == ORTH_MODE_TRAIN && k >= 0 && !st->b->p->failed; k--)
        backward(st, ORTH_ACTION_B, k, micro);
}

/* Whether a later backward computes with the weights that are the newest now. */
static bool needed_later(const orth_builder *b, int32_t action)
{
    for (int32_t i = action + 1; i < b->spec->num_actions; i++)
        if (b->spec->actions[i].kind == ORTH_ACTION_B && b->spec->actions[i].version == b->updates)
            return true;
    return false;
}

static void run_actions(orth_stage *st)
{
    const orth_compile_spec *s = st->b->spec;
    for (int32_t i = 0; i < s->num_actions && !st->b->p->failed; i++) {
        const orth_action *a = &s->actions[i];
        int32_t local = local_chunk(st, a->chunk);
        st->b->action = i;
        st->b->version = a->version;
        if (a->kind == ORTH_ACTION_F)
            forward(st, local, a->micro_batch);
        else if (a->kind == ORTH_ACTION_W)
            weights(st, local, a->micro_batch);
        else if (i + 1 < s->num_actions && is_whole(&st->chunks[local], a, a + 1))
            backward(st, ORTH_ACTION_B, local, s->actions[i++].micro_batch);
        else
            backward(st, a->kind, local, a->micro_batch);
        if (s->async && a->kind == ORTH_ACTION_B && !st->b->p->failed)
            orth_build_update_now(st->b, needed_later(st->b, i));
    }
    st->b->action = -1;
    for (int32_t j = 0; !s->actions && j < s->num_micro_batches && !st->b->p->failed; j++)
        run_in_turn(st, j);
}

static void hold(const orth_block *block, bool *held)
{
    for (int32_t i = 0; i < block->graph->num_params; i++)
        held[block->param_index[i]] = true;
}

void orth_compile_held(const orth_compile_spec *s, bool *held)
{
    const orth_chunk whole = {.num_layers = s->num_layers, .embed = true, .head = true};
    for (int32_t c = 0; c < (s->chunks ? s->num_chunks : 1); c++) {
        const orth_chunk *k = s->chunks ? &s->chunks[c] : &whole;
        if (k->embed)
            hold(&s->embed, held);
        for (int32_t l = 0; l < k->num_layers; l++)
            hold(&s->layers[k->first_layer + l], held);
        if (k->head) {
            hold(&s->final, held);
            hold(&s->head, held);
        }
    }
}

/* Notes the parameters that nodes from `first` on read. */
static void note_read(orth_builder *b, const orth_block *block, int32_t first)
{
    const orth_graph *g = block->graph;
    for (int32_t i = first; i < g->num_nodes; i++)
        for (int k = 0; k < g->nodes[i].num_in; k++) {
            const orth_value v = g->nodes[i].in[k];
            if (v != ORTH_NO_VALUE && g->values[v].kind == ORTH_VALUE_PARAM)
                b->read_by_backward[block->param_index[g->values[v].slot]] = true;
        }
}

/* What a backward reads of the weights; the head's forward is a part of it. */
static void note_read_by_backward(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    note_read(b, &s->embed, s->recompute.kind == ORTH_RECOMPUTE_ALL ? 0 : s->embed.graph->num_forward);
    const bool again = s->recompute.kind != ORTH_RECOMPUTE_NONE; /* parts of the forward, too */
    for (int32_t l = 0; l < s->num_layers; l++)
        note_read(b, &s->layers[l], again ? 0 : s->layers[l].graph->num_forward);
    note_read(b, &s->final, s->final.graph->num_forward);
    note_read(b, &s->head, 0);
}

/* What ranks that share the program differ in (views.h). */
static void note_shards(orth_builder *b)
{
    const int64_t n = b->spec->num_params;
    if (!b->shards)
        return;
    b->p->shard = b->spec->mesh.pos[ORTH_GROUP_SHARD];
    b->p->shard_counts = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, const int64_t *, n);
    b->p->failed = b->p->failed || !b->p->shard_counts;
    for (int64_t i = 0; !b->p->failed && i < n; i++)
        b->p->shard_counts[i] = b->held[i] ? b->shards[i].counts : NULL;
}

static void compile_step(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    orth_compile_held(s, b->held);
    orth_build_routes(b);
    if (b->p->failed)
        return;
    const int64_t step_bytes = sizeof(orth_step_values);
    const orth_value_info step = {.slot = ORTH_DATA_STEP, .dtype = ORTH_U8, .num_dims = 1,
                                  .dim = {step_bytes, 1, 1, 1}};
    if (s->async) {
        b->p->num_updates = s->num_micro_batches;
        b->read_by_backward = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, bool, s->num_params);
        b->stashed = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, int32_t, s->num_micro_batches * s->num_params);
        b->p->failed = b->p->failed || !b->read_by_backward || !b->stashed;
        if (b->p->failed)
            return;
        note_read_by_backward(b);
    }
    for (int64_t i = 0; i < s->num_params; i++)
        b->gathered[i] = -1;
    orth_offload_begin(b);
    orth_build_params(b);
    orth_build_results(b);
    orth_build_data_buffer(b, &step); /* also on ranks whose blocks do not read it: the optimizer does */
    orth_stage st = {.b = b, .chunks = s->chunks, .num_chunks = s->num_chunks};
    st.states = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, orth_chunk_state, (int64_t)s->num_chunks * s->num_micro_batches);
    b->p->failed = b->p->failed || !st.states;
    if (b->p->failed)
        return;
    if (!orth_stage_mark(&st))
        return;
    run_actions(&st);
    while (b->num_pending > 0)
        end_oldest(b);
    orth_build_finish_gradients(b, false);
    if (s->mode != ORTH_MODE_DECODE && !b->p->failed)
        orth_build_update(b);
    orth_far_end_returns(b);
    if (s->offload.gradients != ORTH_TIER_NONE)
        orth_far_fit(b);
    note_shards(b);
    b->p->num_tokens = (int64_t)s->num_micro_batches * s->num_seqs * s->seq_len;
}

/* What the rows of the parameters say about their gradients is what the derived backward of a block makes. */
static orth_status check_gradients(orth_ctx *ctx, const orth_compile_spec *s, const orth_block *block)
{
    const orth_graph *g = block->graph;
    for (int32_t i = g->num_forward; i < g->num_nodes; i++) {
        if (g->nodes[i].param < 0)
            continue;
        const orth_param_desc *p = &s->params[block->param_index[g->nodes[i].param]];
        const orth_leaf_rule made = g->nodes[i].leaves ? ORTH_LEAF_SEQUENCE : ORTH_LEAF_TOKENS;
        if (p->leaf != made)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "the gradient of %s comes %s, its row in weights.def says otherwise",
                             p->name, g->nodes[i].leaves ? "as a vector for each sequence" : "as a sum over tokens");
        if (p->reduce != ORTH_REDUCE_DENSE)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "the gradient of %s has no group of ranks to be summed over", p->name);
    }
    return ORTH_OK;
}

static orth_status check_all_gradients(orth_ctx *ctx, const orth_compile_spec *s)
{
    ORTH_TRY(check_gradients(ctx, s, &s->embed));
    for (int32_t l = 0; l < s->num_layers; l++)
        ORTH_TRY(check_gradients(ctx, s, &s->layers[l]));
    ORTH_TRY(check_gradients(ctx, s, &s->final));
    return check_gradients(ctx, s, &s->head);
}

orth_status orth_lower(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out)
{
    const orth_chunk whole = {.num_layers = spec->num_layers, .embed = true, .head = true};
    orth_compile_spec full = *spec;
    const int64_t n = spec->num_params;
    ORTH_TRY(check_all_gradients(ctx, spec));
    ORTH_TRY(orth_frozen_mark(ctx, &out->arena, &full));
    if (!full.chunks) {
        full.chunks = &whole;
        full.num_chunks = 1;
    }
    out->space = spec->space;
    orth_builder b = {.ctx = ctx, .spec = &full, .p = out, .layer = -1, .micro_batch = -1, .action = -1, .block = ORTH_BLOCK_NONE, .node = -1};
    for (int i = 0; i < ORTH_NUM_DATA; i++)
        b.data[i] = -1;
    b.held = ORTH_ARENA_ARRAY(ctx, &out->arena, bool, n);
    b.master = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, n);
    b.copy = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, n);
    b.gathered = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, n);
    b.squared = ORTH_ARENA_ARRAY(ctx, &out->arena, bool, n);
    b.squares = orth_operand_absent;
    b.moments = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, ORTH_STATES * n);
    for (int64_t i = 0; b.moments && i < ORTH_STATES * n; i++)
        b.moments[i] = -1;
    b.uses = ORTH_NEW_ARRAY(ctx, orth_grad_use, 2 * n);
    orth_bucket_item *items = ORTH_NEW_ARRAY(ctx, orth_bucket_item, (4 + 2 * ORTH_COUNT(b.gathers)) * n);
    b.waiting = ORTH_NEW_ARRAY(ctx, orth_waiting_grad, 2 * n + 1);
    b.cut = ORTH_NEW_ARRAY(ctx, orth_operand, 2 * (int64_t)spec->num_seqs);
    if (!b.held || !b.master || !b.copy || !b.gathered || !b.squared || !b.moments || !b.uses || !items || !b.waiting || !b.cut) {
        out->failed = true;
    } else {
        b.grads = (orth_bucket){.op = ORTH_OP_all_reduce, .items = items};
        b.together = (orth_bucket){.op = ORTH_OP_all_reduce, .items = items + 2 * n};
        for (int k = 0; k < ORTH_COUNT(b.gathers); k++)
            b.gathers[k] = (orth_bucket){.op = ORTH_OP_all_gather, .items = items + (4 + 2 * k) * n};
        compile_step(&b);
    }
    orth_mem_free(ctx, b.uses);
    orth_mem_free(ctx, items);
    orth_mem_free(ctx, b.waiting);
    orth_mem_free(ctx, b.cut);
    return orth_program_done(out);
}
