/* compile.c -- actions (forward, backward of a micro-batch) expanded through the block graphs. */
#include "program/build.h"

static size_t dim_bytes(orth_dtype t, int num_dims, const int64_t *dim)
{
    size_t n = orth_dtype_bytes(t);
    for (int i = 0; i < num_dims; i++)
        n *= (size_t)dim[i];
    return n;
}

orth_instr *orth_build_emit(orth_builder *b, orth_op op, const orth_attr *attr, int num_in,
                            const orth_operand *in, int num_out, const orth_operand *out)
{
    orth_instr *i = orth_program_add_instr(b->p, op, attr, num_in, in, num_out, out);
    if (i) {
        i->phase = b->phase;
        i->layer = b->layer;
        i->micro_batch = b->micro_batch;
    }
    return i;
}

int64_t orth_build_elems(const orth_builder *b, int64_t index)
{
    const orth_param_desc *p = &b->spec->params[index];
    return orth_param_rows(p) * orth_param_cols(p);
}

orth_operand orth_build_vector(int32_t buffer, orth_dtype dtype, int64_t first, int64_t n)
{
    orth_operand o = orth_operand_of(buffer, dtype, 1, &n);
    o.byte_offset = (size_t)first * orth_dtype_bytes(dtype);
    return o;
}

orth_operand orth_build_temp(orth_builder *b, const char *name, orth_operand like)
{
    orth_buffer buffer = {.name = name, .bytes = dim_bytes(like.dtype, like.num_dims, like.dim),
                          .cls = ORTH_CLASS_ACTIVATIONS};
    like.buffer = orth_program_add_buffer(b->p, &buffer);
    like.byte_offset = 0;
    return like;
}

/* Parameter `index` as the kernels read it: whole, fp32 or in the compute type. */
static orth_operand param_operand(const orth_builder *b, int64_t index)
{
    const orth_param_desc *param = &b->spec->params[index];
    int32_t buffer = b->copy[index];
    orth_dtype dtype = buffer == b->master[index] ? ORTH_F32 : b->spec->compute;
    return orth_operand_of(buffer, dtype, param->num_dims, param->dim);
}

/* ---- persistent buffers ---- */

static int32_t persistent(orth_builder *b, const char *name, orth_class cls, orth_bind bind, int64_t index,
                          size_t bytes)
{
    orth_buffer buffer = {.name = name, .bytes = bytes, .cls = cls, .persistent = true, .bind = bind,
                          .index = index};
    bool lent = cls == ORTH_CLASS_PARAMS || bind == ORTH_BIND_CACHE_K || bind == ORTH_BIND_CACHE_V;
    buffer.external = lent && b->spec->external_params;
    return orth_program_add_buffer(b->p, &buffer);
}

/* In fp32 a parameter is one buffer; else matrices have a copy in the compute type that the kernels
 * read, and the master counts as optimizer state: a shard of it under ZeRO. Under ZeRO 3 what the kernels
 * read is a shard, too, gathered block by block when it is needed. A program that does not train has no
 * masters beside copies. */
static void add_params(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    for (int64_t i = 0; i < s->num_params; i++) {
        const orth_param_desc *param = &s->params[i];
        b->master[i] = b->copy[i] = -1;
        if (!b->held[i])
            continue;
        bool copied = s->compute != ORTH_F32 && param->matrix, sharded = s->mesh.zero == 3 && b->shards;
        orth_zero_shard all = {0, orth_build_elems(b, i), NULL};
        orth_zero_shard mine = b->shards ? b->shards[i] : all, read = sharded ? mine : all;
        if (!copied || s->mode == ORTH_MODE_TRAIN) {
            orth_zero_shard kept = copied ? mine : read;
            const char *name = copied ? orth_arena_printf(b->ctx, &b->p->arena, "master.%s", param->name)
                                      : param->name;
            b->master[i] = persistent(b, name, copied ? ORTH_CLASS_OPTIMIZER : ORTH_CLASS_PARAMS, ORTH_BIND_MASTER,
                                      i, dim_bytes(ORTH_F32, 1, &kept.count));
            if (!b->p->failed)
                b->p->buffers[b->master[i]].first_elem = kept.first;
        }
        b->copy[i] = b->master[i];
        if (copied) {
            b->copy[i] = persistent(b, param->name, ORTH_CLASS_PARAMS, ORTH_BIND_COPY, i,
                                    dim_bytes(s->compute, 1, &read.count));
            if (!b->p->failed)
                b->p->buffers[b->copy[i]].first_elem = read.first;
        }
    }
}

/* The buffer of a data slot, made at its first mention: all micro-batches, or one for the step. */
static int32_t data_buffer(orth_builder *b, const orth_value_info *v)
{
    if (b->data[v->slot] < 0) {
        bool once = v->slot == ORTH_DATA_STEP || v->slot == ORTH_DATA_ROPE_TABLE;
        size_t bytes = dim_bytes(v->dtype, v->num_dims, v->dim);
        if (v->slot == ORTH_DATA_TARGETS || v->slot == ORTH_DATA_WEIGHTS) /* named by a chunk of the head */
            bytes = orth_dtype_bytes(v->dtype) * (size_t)b->spec->num_seqs * (size_t)b->spec->seq_len;
        b->data[v->slot] = persistent(b, orth_data_slot_name((orth_data_slot)v->slot), ORTH_CLASS_ACTIVATIONS,
                                      ORTH_BIND_DATA, v->slot,
                                      once ? bytes : bytes * (size_t)b->spec->num_micro_batches);
    }
    return b->data[v->slot];
}

static orth_operand data_operand(orth_builder *b, const orth_value_info *v)
{
    if (v->slot == ORTH_DATA_CACHE_K || v->slot == ORTH_DATA_CACHE_V) {
        orth_bind bind = v->slot == ORTH_DATA_CACHE_K ? ORTH_BIND_CACHE_K : ORTH_BIND_CACHE_V;
        int32_t found = orth_program_find(b->p, bind, b->layer);
        if (found < 0)
            found = persistent(b, v->name, ORTH_CLASS_ACTIVATIONS, bind, b->layer,
                               dim_bytes(v->dtype, v->num_dims, v->dim));
        return orth_operand_of(found, v->dtype, v->num_dims, v->dim);
    }
    orth_operand o = orth_operand_of(data_buffer(b, v), v->dtype, v->num_dims, v->dim);
    if (v->slot != ORTH_DATA_STEP && v->slot != ORTH_DATA_ROPE_TABLE)
        o.byte_offset = orth_operand_bytes(&o) * (size_t)b->micro_batch;
    return o;
}

/* ---- nodes ---- */

#define ORTH_OP_MAX_PARAMS 20 /* of one block */
#define SITES_PER_LAYER 8     /* dropouts in a block, at most */
#define MAX_SEQUENCES 1024    /* of a micro-batch that is cut by rows */

/* Operands of one block's values, for one micro-batch. */
typedef struct {
    orth_operand *of;   /* [num_values]; buffer -2: not made yet */
} block_env;

static block_env env_new(orth_builder *b, const orth_graph *g)
{
    block_env e = {ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, orth_operand, g->num_values)};
    if (!e.of) {
        b->p->failed = true;
        return e;
    }
    for (int32_t i = 0; i < g->num_values; i++)
        e.of[i].buffer = -2;
    return e;
}

static orth_operand read_value(orth_builder *b, const orth_block *block, block_env *env, orth_value v,
                               int64_t row0)
{
    if (v == ORTH_NO_VALUE)
        return orth_operand_absent;
    const orth_value_info *info = &block->graph->values[v];
    if (env->of[v].buffer == -2 && info->kind == ORTH_VALUE_PARAM) {
        env->of[v] = param_operand(b, block->param_index[info->slot]);
    } else if (env->of[v].buffer == -2 && info->kind == ORTH_VALUE_DATA) {
        env->of[v] = data_operand(b, info);
        if (row0 >= 0) { /* a chunk of the head: its rows of the micro-batch's data */
            bool rows = info->slot == ORTH_DATA_TARGETS || info->slot == ORTH_DATA_WEIGHTS;
            if (rows) {
                size_t row = orth_dtype_bytes(info->dtype);
                size_t per_micro = (size_t)b->spec->num_seqs * (size_t)b->spec->seq_len;
                env->of[v].byte_offset = ((size_t)b->micro_batch * per_micro + (size_t)row0) * row;
            }
        }
    }
    return env->of[v];
}

static orth_operand make_value(orth_builder *b, const orth_block *block, block_env *env, orth_value v)
{
    if (v == ORTH_NO_VALUE)
        return orth_operand_absent;
    const orth_value_info *info = &block->graph->values[v];
    if (env->of[v].buffer == -2) {
        orth_buffer buffer = {.name = info->name, .bytes = dim_bytes(info->dtype, info->num_dims, info->dim),
                              .cls = ORTH_CLASS_ACTIVATIONS, .bind = ORTH_BIND_NONE};
        env->of[v] = orth_operand_of(orth_program_add_buffer(b->p, &buffer), info->dtype, info->num_dims,
                                     info->dim);
    }
    return env->of[v];
}

/* Rows of sequence b of the micro-batch. */
static orth_operand sequence_rows(const orth_builder *b, orth_operand x, int64_t sequence)
{
    int64_t T = x.dim[0] / b->spec->num_seqs;
    return orth_operand_rows(x, sequence * T, (sequence + 1) * T);
}

/* A communication node of a graph: in place where it changes values only, sequence by sequence where it
 * changes which rows a rank has. */
static void expand_comm(orth_builder *b, const orth_block *block, block_env *env, const orth_node *n)
{
    orth_operand in[MAX_SEQUENCES], out[MAX_SEQUENCES], x = read_value(b, block, env, n->in[0], -1);
    orth_attr attr = {.group = n->attr.group, .maximum = n->attr.maximum};
    bool tokens = n->op == ORTH_OP_gather_rows || n->op == ORTH_OP_scatter_rows;
    bool rows = tokens || (b->spec->mesh.sequence_parallel && n->op != ORTH_OP_all_reduce);
    bool gathers = n->op == ORTH_OP_enter || n->op == ORTH_OP_gather_rows;
    if (!rows) {
        env->of[n->out[0]] = x;
        if (n->op != ORTH_OP_enter)
            orth_build_emit(b, ORTH_OP_all_reduce, &attr, 1, &x, 1, &x);
        return;
    }
    orth_operand y = make_value(b, block, env, n->out[0]);
    int32_t B = b->spec->num_seqs;
    for (int32_t i = 0; i < B; i++) {
        in[i] = sequence_rows(b, x, i);
        out[i] = sequence_rows(b, y, i);
    }
    orth_build_emit(b, gathers ? ORTH_OP_all_gather : ORTH_OP_reduce_scatter, &attr, B, in, B, out);
}

/* Whether a node is left to the other half of a split backward. */
static bool skipped(orth_action_kind kind, const orth_node *n)
{
    return (kind == ORTH_ACTION_BI && n->for_weights) || (kind == ORTH_ACTION_W && !n->for_weights);
}

static void expand(orth_builder *b, const orth_block *block, block_env *env, int32_t first, int32_t end,
                   orth_action_kind kind, const orth_leaf_range *leaves)
{
    for (int32_t i = first; i < end && !b->p->failed; i++) {
        const orth_node *n = &block->graph->nodes[i];
        orth_operand in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
        if (skipped(kind, n))
            continue;
        if (n->op >= ORTH_FIRST_COMM_OP) {
            expand_comm(b, block, env, n);
            continue;
        }
        for (int k = 0; k < n->num_in; k++)
            in[k] = read_value(b, block, env, n->in[k], leaves->row0);
        if (n->param >= 0) {
            orth_build_gradient(b, block->param_index[n->param], n, in, leaves);
            continue;
        }
        for (int k = 0; k < n->num_out; k++)
            out[k] = make_value(b, block, env, n->out[k]);
        orth_attr attr = n->attr;
        attr.site += SITES_PER_LAYER * (b->layer + 1); /* layers share a graph, not their dropouts */
        orth_build_emit(b, n->op, &attr, n->num_in, in, n->num_out, out);
    }
}

/* ---- blocks ---- */

/* ZeRO 3: the block's parameters are gathered into transient buffers, in one collective. */
static void gather_block(orth_builder *b, const orth_block *block, block_env *env)
{
    orth_operand in[ORTH_OP_MAX_PARAMS], out[ORTH_OP_MAX_PARAMS];
    int64_t *counts = NULL;
    int n = 0, ranks = orth_build_size(b, ORTH_GROUP_DP);
    if (b->spec->mesh.zero != 3 || !b->shards)
        return;
    counts = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, int64_t, (int64_t)ORTH_OP_MAX_PARAMS * ranks);
    for (orth_value v = 0; counts && v < block->graph->num_values; v++) {
        const orth_value_info *info = &block->graph->values[v];
        if (info->kind != ORTH_VALUE_PARAM)
            continue;
        int64_t index = block->param_index[info->slot];
        orth_operand whole = param_operand(b, index);
        env->of[v] = orth_build_temp(b, "gathered", whole);
        in[n] = orth_build_vector(whole.buffer, whole.dtype, 0, b->shards[index].count);
        out[n] = orth_build_vector(env->of[v].buffer, whole.dtype, 0, orth_build_elems(b, index));
        memcpy(counts + n * ranks, b->shards[index].counts, (size_t)ranks * sizeof *counts);
        n++;
    }
    if (!counts) {
        b->p->failed = true;
        return;
    }
    orth_instr *i = orth_build_emit(b, ORTH_OP_all_gather, &(orth_attr){.group = ORTH_GROUP_DP}, n, in, n, out);
    if (i)
        i->counts = counts;
}

/* Leaves of the micro-batch at hand: its sequences. */
static orth_leaf_range sequences_of(const orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    int64_t begin = (int64_t)b->micro_batch * s->num_seqs;
    return (orth_leaf_range){.begin = begin, .end = begin + s->num_seqs, .micro_begin = begin,
                             .micro_end = begin + s->num_seqs, .rows = s->seq_len, .row0 = -1,
                             .per_sequence = 1,
                             .total = (int64_t)s->num_micro_batches * s->num_seqs};
}

static orth_operand run_forward(orth_builder *b, const orth_block *block, block_env *env, orth_operand x)
{
    *env = env_new(b, block->graph);
    if (b->p->failed)
        return x;
    if (block->graph->input != ORTH_NO_VALUE)
        env->of[block->graph->input] = x;
    gather_block(b, block, env);
    orth_leaf_range leaves = sequences_of(b);
    int32_t end = b->spec->mode == ORTH_MODE_TRAIN ? block->graph->num_forward : block->graph->num_nodes;
    expand(b, block, env, 0, end, ORTH_ACTION_F, &leaves);
    return env->of[block->graph->output];
}

/* kind: B, or BI, which leaves a part of the nodes to run_weights. */
static orth_operand run_backward(orth_builder *b, const orth_block *block, block_env *env, orth_action_kind kind,
                                 orth_operand dy)
{
    const orth_graph *g = block->graph;
    if (b->p->failed)
        return dy;
    env->of[g->output_grad] = dy;
    gather_block(b, block, env);
    orth_leaf_range leaves = sequences_of(b);
    expand(b, block, env, g->num_forward, g->num_nodes, kind, &leaves);
    return g->input_grad == ORTH_NO_VALUE ? orth_operand_absent : env->of[g->input_grad];
}

/* What BI left. Reads activations and their gradients, which live on in env, and no parameters: nothing is
 * gathered under ZeRO 3. */
static void run_weights(orth_builder *b, const orth_block *block, block_env *env)
{
    orth_leaf_range leaves = sequences_of(b);
    expand(b, block, env, block->graph->num_forward, block->graph->num_nodes, ORTH_ACTION_W, &leaves);
}

/* ---- the head ---- */

static orth_leaf_range head_leaves(const orth_builder *b, int64_t c, int64_t rows)
{
    const orth_compile_spec *s = b->spec;
    int64_t per_chunk = s->head_leaves / s->head_chunks, per_micro = (int64_t)s->num_seqs * s->head_leaves;
    int64_t first = b->micro_batch * per_micro;
    return (orth_leaf_range){.begin = first + c * per_chunk, .end = first + (c + 1) * per_chunk,
                             .micro_begin = first, .micro_end = first + per_micro,
                             .total = s->num_micro_batches * per_micro, .rows = rows / per_chunk, .chunk = true,
                             .per_sequence = s->head_leaves,
                             .second_use = b->tied, .row0 = c * rows};
}

/* Loss of the micro-batch's sequences, from its rows of nll. */
static void sum_micro_loss(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    int64_t B = s->num_seqs, N = B * s->seq_len;
    orth_operand nll = orth_build_vector(b->logits_or_nll, ORTH_F32, b->micro_batch * N, N);
    orth_operand leaves = orth_build_vector(b->seq_loss, ORTH_F64, b->micro_batch * B, B);
    orth_attr attr = {.num_seqs = s->num_seqs, .seq_len = s->seq_len, .token_parts = s->token_parts};
    orth_build_emit(b, ORTH_OP_loss_sum, &attr, 1, &nll, 1, &leaves);
}

/* Logits, loss and, when training, their gradients, chunk by chunk: a chunk's logits die before the
 * next one's are made. Returns the gradient of the final norm's output. */
static orth_operand head(orth_builder *b, orth_operand normed)
{
    const orth_compile_spec *s = b->spec;
    const orth_block *block = &s->head;
    const orth_graph *g = block->graph;
    int64_t rows = g->values[g->input].dim[0], N = (int64_t)s->num_seqs * s->seq_len;
    bool train = s->mode == ORTH_MODE_TRAIN;
    orth_operand grad = orth_operand_absent;
    if (train) {
        grad = normed;
        grad.dtype = g->values[g->input_grad].dtype;
        grad = orth_build_temp(b, "d.normed", grad);
    }
    block_env gathered = env_new(b, g);
    if (b->p->failed)
        return grad;
    gather_block(b, block, &gathered);
    for (int64_t c = 0; c < N / rows && !b->p->failed; c++) {
        block_env env = env_new(b, g);
        if (b->p->failed)
            break;
        memcpy(env.of, gathered.of, (size_t)g->num_values * sizeof *env.of);
        env.of[g->input] = orth_operand_rows(normed, c * rows, (c + 1) * rows);
        env.of[g->output] = orth_build_vector(b->logits_or_nll, ORTH_F32, b->micro_batch * N + c * rows, rows);
        if (train)
            env.of[g->input_grad] = orth_operand_rows(grad, c * rows, (c + 1) * rows);
        orth_leaf_range leaves = head_leaves(b, c, rows);
        expand(b, block, &env, 0, g->num_nodes, ORTH_ACTION_B, &leaves);
    }
    sum_micro_loss(b);
    return grad;
}

/* Decoding: logits of the rows of one micro-batch, no loss. */
static void decode_head(orth_builder *b, orth_operand normed)
{
    const orth_graph *g = b->spec->head.graph;
    block_env env = env_new(b, g);
    if (b->p->failed)
        return;
    env.of[g->input] = normed;
    const orth_value_info *out = &g->values[g->output];
    env.of[g->output] = orth_operand_of(b->logits_or_nll, ORTH_F32, out->num_dims, out->dim);
    orth_leaf_range leaves = {.row0 = 0};
    expand(b, &b->spec->head, &env, 0, g->num_nodes, ORTH_ACTION_F, &leaves);
}

/* ---- actions ---- */

/* What one micro-batch leaves behind in a chunk between its forward and its backward. */
typedef struct {
    block_env embed, final;
    block_env *layers;     /* [num_layers of the chunk] */
    orth_operand normed;   /* output of the final norm */
    orth_operand handed, handed_back; /* to a chunk on the same rank: activation up, gradient down */
} chunk_state;

typedef struct {
    orth_builder *b;
    const orth_chunk *chunks;
    int32_t num_chunks;
    chunk_state *states;   /* [num_chunks][num_micro_batches] */
} stage;

static chunk_state *state_of(const stage *st, int32_t local, int32_t micro)
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

static void wait_oldest(orth_builder *b)
{
    orth_attr attr = {.group = b->pending[0].channel, .ticket = b->pending[0].ticket};
    orth_build_emit(b, ORTH_OP_wait, &attr, 1, &b->pending[0].x, 0, NULL);
    b->num_pending--;
    memmove(b->pending, b->pending + 1, (size_t)b->num_pending * sizeof *b->pending);
}

/* Started here; complete when it is waited for. */
static void send(orth_builder *b, orth_group channel, int32_t peer, orth_operand x)
{
    if (b->num_pending == ORTH_MAX_PENDING_SENDS)
        wait_oldest(b);
    orth_attr attr = {.group = channel, .peer = peer, .ticket = ++b->tickets};
    orth_build_emit(b, ORTH_OP_send, &attr, 1, &x, 0, NULL);
    b->pending[b->num_pending].x = x;
    b->pending[b->num_pending].channel = channel;
    b->pending[b->num_pending++].ticket = attr.ticket;
}

static void forward(stage *st, int32_t local, int32_t micro)
{
    orth_builder *b = st->b;
    const orth_chunk *c = &st->chunks[local];
    chunk_state *m = state_of(st, local, micro);
    b->phase = ORTH_PHASE_FORWARD;
    b->micro_batch = micro;
    b->layer = -1;
    orth_operand x;
    if (c->embed)
        x = run_forward(b, &b->spec->embed, &m->embed, orth_operand_absent);
    else if (same_rank(b, c->prev))
        x = state_of(st, local - 1, micro)->handed;
    else
        x = receive(b, ORTH_GROUP_PP, c->prev, "received");
    m->layers = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, block_env, ORTH_MAX(c->num_layers, 1));
    b->p->failed = b->p->failed || !m->layers;
    for (int32_t l = 0; l < c->num_layers && !b->p->failed; l++) {
        b->layer = c->first_layer + l;
        x = run_forward(b, &b->spec->layers[b->layer], &m->layers[l], x);
    }
    b->layer = b->spec->num_layers;
    if (b->p->failed)
        return;
    if (c->head)
        m->normed = run_forward(b, &b->spec->final, &m->final, x);
    else if (same_rank(b, c->next))
        m->handed = x;
    else
        send(b, ORTH_GROUP_PP, c->next, x);
}

/* kind: B or BI. The head is whole in both: its logits die with their chunk, and its weight gradient must be
 * made while they live. */
static void backward(stage *st, orth_action_kind kind, int32_t local, int32_t micro)
{
    orth_builder *b = st->b;
    const orth_chunk *c = &st->chunks[local];
    chunk_state *m = state_of(st, local, micro);
    b->phase = ORTH_PHASE_BACKWARD;
    b->micro_batch = micro;
    b->layer = b->spec->num_layers;
    orth_operand dy;
    if (c->head)
        dy = run_backward(b, &b->spec->final, &m->final, kind, head(b, m->normed));
    else if (same_rank(b, c->next))
        dy = state_of(st, local + 1, micro)->handed_back;
    else
        dy = receive(b, ORTH_GROUP_PP_BACK, c->next, "d.received");
    for (int32_t l = c->num_layers - 1; l >= 0 && !b->p->failed; l--) {
        b->layer = c->first_layer + l;
        dy = run_backward(b, &b->spec->layers[b->layer], &m->layers[l], kind, dy);
    }
    b->layer = -1;
    if (b->p->failed)
        return;
    if (c->embed)
        run_backward(b, &b->spec->embed, &m->embed, kind, dy);
    else if (same_rank(b, c->prev))
        m->handed_back = dy;
    else
        send(b, ORTH_GROUP_PP_BACK, c->prev, dy);
}

/* The weight gradients that BI left, in the order of the whole backward. */
static void weights(stage *st, int32_t local, int32_t micro)
{
    orth_builder *b = st->b;
    const orth_chunk *c = &st->chunks[local];
    chunk_state *m = state_of(st, local, micro);
    b->phase = ORTH_PHASE_BACKWARD;
    b->micro_batch = micro;
    b->layer = b->spec->num_layers;
    if (c->head)
        run_weights(b, &b->spec->final, &m->final);
    for (int32_t l = c->num_layers - 1; l >= 0 && !b->p->failed; l--) {
        b->layer = c->first_layer + l;
        run_weights(b, &b->spec->layers[b->layer], &m->layers[l]);
    }
    b->layer = -1;
    if (c->embed)
        run_weights(b, &b->spec->embed, &m->embed);
}

/* BI and W of the first chunk in one: nobody waits for what BI makes there, and layer by layer the
 * gradients between them need not be kept. */
static bool is_whole(const orth_chunk *c, const orth_action *a, const orth_action *next)
{
    return c->embed && a->kind == ORTH_ACTION_BI && next->kind == ORTH_ACTION_W && next->chunk == a->chunk &&
           next->micro_batch == a->micro_batch;
}

static int32_t local_chunk(const stage *st, int32_t chunk)
{
    int32_t k = 0;
    while (k < st->num_chunks && st->chunks[k].chunk != chunk)
        k++;
    return k;
}

/* Without a schedule: a micro-batch all the way through this rank's chunks. */
static void run_in_turn(stage *st, int32_t micro)
{
    const orth_compile_spec *s = st->b->spec;
    for (int32_t k = 0; k < st->num_chunks && !st->b->p->failed; k++) {
        forward(st, k, micro);
        if (!st->chunks[k].head || st->b->p->failed)
            continue;
        if (s->mode == ORTH_MODE_EVAL)
            head(st->b, state_of(st, k, micro)->normed);
        else if (s->mode == ORTH_MODE_DECODE)
            decode_head(st->b, state_of(st, k, micro)->normed);
    }
    for (int32_t k = st->num_chunks - 1; s->mode == ORTH_MODE_TRAIN && k >= 0 && !st->b->p->failed; k--)
        backward(st, ORTH_ACTION_B, k, micro);
}

static void run_actions(stage *st)
{
    const orth_compile_spec *s = st->b->spec;
    for (int32_t i = 0; i < s->num_actions && !st->b->p->failed; i++) {
        const orth_action *a = &s->actions[i];
        int32_t local = local_chunk(st, a->chunk);
        if (a->kind == ORTH_ACTION_F)
            forward(st, local, a->micro_batch);
        else if (a->kind == ORTH_ACTION_W)
            weights(st, local, a->micro_batch);
        else if (i + 1 < s->num_actions && is_whole(&st->chunks[local], a, a + 1))
            backward(st, ORTH_ACTION_B, local, s->actions[i++].micro_batch);
        else
            backward(st, a->kind, local, a->micro_batch);
    }
    for (int32_t j = 0; !s->actions && j < s->num_micro_batches && !st->b->p->failed; j++)
        run_in_turn(st, j);
}

static void add_results(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    int64_t seqs = (int64_t)s->num_micro_batches * s->num_seqs;
    if (s->mode == ORTH_MODE_DECODE) {
        const orth_value_info *out = &s->head.graph->values[s->head.graph->output];
        b->logits_or_nll = persistent(b, "logits", ORTH_CLASS_ACTIVATIONS, ORTH_BIND_LOGITS, 0,
                                      dim_bytes(ORTH_F32, out->num_dims, out->dim));
        return;
    }
    bool has_head = false;
    for (int32_t c = 0; c < s->num_chunks; c++)
        has_head = has_head || s->chunks[c].head;
    if (has_head) {
        b->logits_or_nll = persistent(b, "nll", ORTH_CLASS_ACTIVATIONS, ORTH_BIND_NLL, 0,
                                      (size_t)(seqs * s->seq_len) * sizeof(float));
        b->seq_loss = persistent(b, "seq_loss", ORTH_CLASS_ACTIVATIONS, ORTH_BIND_SEQ_LOSS, 0,
                                 (size_t)seqs * sizeof(double));
    }
    b->loss = persistent(b, "loss", ORTH_CLASS_ACTIVATIONS, ORTH_BIND_LOSS, 0, sizeof(double));
}

static void hold(orth_builder *b, const orth_block *block)
{
    for (int32_t i = 0; i < block->graph->num_params; i++)
        b->held[block->param_index[i]] = true;
}

static void compile_step(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    for (int32_t c = 0; c < s->num_chunks; c++) {
        const orth_chunk *k = &s->chunks[c];
        if (k->embed)
            hold(b, &s->embed);
        for (int32_t l = 0; l < k->num_layers; l++)
            hold(b, &s->layers[k->first_layer + l]);
        if (k->head) {
            hold(b, &s->final);
            hold(b, &s->head);
        }
    }
    int64_t shared = orth_build_size(b, ORTH_GROUP_EMBED) > 1 ? s->embed.param_index[0] : -1;
    if (s->mesh.zero > 0 && orth_build_size(b, ORTH_GROUP_DP) > 1 &&
        orth_shards_make(b->ctx, &b->p->arena, s->params, b->held, s->num_params, shared, orth_build_size(b, ORTH_GROUP_DP),
                         s->mesh.pos[ORTH_GROUP_DP], &b->shards) != ORTH_OK) {
        b->p->failed = true;
        return;
    }
    const int64_t step_bytes = sizeof(orth_step_values);
    const orth_value_info step = {.slot = ORTH_DATA_STEP, .dtype = ORTH_U8, .num_dims = 1, .dim = {step_bytes, 1, 1, 1}};
    add_params(b);
    add_results(b);
    data_buffer(b, &step); /* also on ranks whose blocks do not read it: the optimizer does */
    stage st = {.b = b, .chunks = s->chunks, .num_chunks = s->num_chunks};
    st.states = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, chunk_state, (int64_t)s->num_chunks * s->num_micro_batches);
    b->p->failed = b->p->failed || !st.states;
    if (b->p->failed)
        return;
    run_actions(&st);
    while (b->num_pending > 0)
        wait_oldest(b);
    if (s->mode != ORTH_MODE_DECODE && !b->p->failed)
        orth_build_update(b);
    b->p->num_tokens = (int64_t)s->num_micro_batches * s->num_seqs * s->seq_len;
}

orth_status orth_compile(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out)
{
    const orth_chunk whole = {.num_layers = spec->num_layers, .embed = true, .head = true};
    orth_compile_spec full = *spec;
    if (!full.chunks) {
        full.chunks = &whole;
        full.num_chunks = 1;
    }
    orth_builder b = {.ctx = ctx, .spec = &full, .p = out, .layer = -1, .micro_batch = -1};
    for (int i = 0; i < ORTH_NUM_DATA; i++)
        b.data[i] = -1;
    b.tied = spec->head.param_index[0] == spec->embed.param_index[0];
    b.held = ORTH_ARENA_ARRAY(ctx, &out->arena, bool, spec->num_params);
    b.master = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, spec->num_params);
    b.copy = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, spec->num_params);
    b.uses = ORTH_NEW_ARRAY(ctx, orth_grad_use, 2 * spec->num_params);
    if (!b.held || !b.master || !b.copy || !b.uses)
        out->failed = true;
    else
        compile_step(&b);
    orth_mem_free(ctx, b.uses);
    return orth_program_done(out);
}
