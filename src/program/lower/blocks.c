/* blocks.c -- block graphs expanded into instructions for one micro-batch. */
#include "program/lower/build.h"
#include "program/lower/ring.h"

/* ---- nodes ---- */

static orth_block_env env_new(orth_builder *b, const orth_graph *g)
{
    orth_block_env e = {ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, orth_operand, g->num_values)};
    if (!e.of) {
        b->p->failed = true;
        return e;
    }
    for (int32_t i = 0; i < g->num_values; i++)
        e.of[i].buffer = -2;
    return e;
}

static void make_again(orth_builder *b, const orth_block *block, orth_block_env *env, int32_t node);

static orth_operand read_value(orth_builder *b, const orth_block *block, orth_block_env *env, orth_value v,
                               int64_t row0)
{
    if (v == ORTH_NO_VALUE)
        return orth_operand_absent;
    const orth_value_info *info = &block->graph->values[v];
    if (env->of[v].buffer == -2 && env->again && info->kind == ORTH_VALUE_TEMP) {
        make_again(b, block, env, info->producer);
    } else if (env->of[v].buffer == -2 && info->kind == ORTH_VALUE_PARAM) {
        env->of[v] = orth_gather_read(b, block, block->param_index[info->slot]);
    } else if (env->of[v].buffer == -2 && info->kind == ORTH_VALUE_DATA) {
        env->of[v] = orth_build_data(b, info);
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

orth_operand orth_build_read(orth_builder *b, const orth_block *block, orth_block_env *env, orth_value v)
{
    return read_value(b, block, env, v, -1);
}

orth_operand orth_build_make(orth_builder *b, const orth_block *block, orth_block_env *env, orth_value v)
{
    if (v == ORTH_NO_VALUE)
        return orth_operand_absent;
    const orth_value_info *info = &block->graph->values[v];
    if (info->kind == ORTH_VALUE_DATA) /* amax: an evaluation changes no scales */
        return b->spec->mode == ORTH_MODE_TRAIN ? orth_build_data(b, info) : orth_operand_absent;
    if (env->of[v].buffer == -2) {
        orth_buffer buffer = {.name = info->name, .bytes = orth_build_bytes(info->dtype, info->num_dims, info->dim),
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

/* A node of a block whose operands are being made. */
typedef struct {
    orth_builder *b;
    const orth_block *block;
    orth_block_env *env;
    const orth_node *node;
    const orth_leaves *leaves;
} lowering;

/* A call that changes which rows a rank has: sequence by sequence. */
static void call_by_sequence(const lowering *l, orth_op op)
{
    orth_builder *b = l->b;
    const int32_t B = b->spec->num_seqs;
    orth_operand x = read_value(b, l->block, l->env, l->node->in[0], -1);
    orth_operand y = orth_build_make(b, l->block, l->env, l->node->out[0]);
    orth_operand *in = b->cut, *out = b->cut + B;
    for (int32_t i = 0; i < B; i++) {
        in[i] = sequence_rows(b, x, i);
        out[i] = sequence_rows(b, y, i);
    }
    orth_build_emit(b, op, &(orth_attr){.group = l->node->attr.group}, B, in, B, out);
}

/* ---- lower_<name>, named by a row of ops.def: what is no instruction, or one with other operands ---- */

static void lower_all_reduce(const lowering *l)
{
    const orth_attr attr = {.group = l->node->attr.group, .maximum = l->node->attr.maximum};
    orth_operand x = read_value(l->b, l->block, l->env, l->node->in[0], -1);
    l->env->of[l->node->out[0]] = x;
    orth_build_emit(l->b, ORTH_OP_all_reduce, &attr, 1, &x, 1, &x);
}

static void lower_enter(const lowering *l)
{
    if (l->b->spec->mesh.sequence_parallel)
        call_by_sequence(l, ORTH_OP_all_gather);
    else
        l->env->of[l->node->out[0]] = read_value(l->b, l->block, l->env, l->node->in[0], -1);
}

static void lower_leave(const lowering *l)
{
    if (l->b->spec->mesh.sequence_parallel)
        call_by_sequence(l, ORTH_OP_reduce_scatter);
    else
        lower_all_reduce(l);
}

static void lower_gather_rows(const lowering *l)
{
    call_by_sequence(l, ORTH_OP_all_gather);
}

static void lower_scatter_rows(const lowering *l)
{
    call_by_sequence(l, ORTH_OP_reduce_scatter);
}

static void lower_all_to_all(const lowering *l)
{
    call_by_sequence(l, ORTH_OP_all_to_all);
}

static void read_inputs(const lowering *l, orth_operand *in)
{
    for (int k = 0; k < l->node->num_in; k++)
        in[k] = read_value(l->b, l->block, l->env, l->node->in[k], l->leaves->row0);
}

static void make_outputs(const lowering *l, orth_operand *out)
{
    for (int k = 0; k < l->node->num_out; k++)
        out[k] = orth_build_make(l->b, l->block, l->env, l->node->out[k]);
}

/* Layers share a graph, not what they draw. */
static orth_attr attr_of_layer(const lowering *l)
{
    orth_attr attr = l->node->attr;
    attr.site += ORTH_SITES_PER_LAYER * (l->b->layer + 1);
    attr.use += 2 * ORTH_PRODUCTS_PER_LAYER * (l->b->layer + 1);
    return attr;
}

static void lower_ring_attention(const lowering *l)
{
    const orth_attr attr = attr_of_layer(l);
    orth_operand in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    read_inputs(l, in);
    make_outputs(l, out);
    orth_build_ring_forward(l->b, &attr, in, out);
}

static void lower_ring_attention_bwd(const lowering *l)
{
    const orth_attr attr = attr_of_layer(l);
    orth_operand in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    read_inputs(l, in);
    make_outputs(l, out);
    orth_build_ring_backward(l->b, &attr, in, out);
}

/* An instruction like the node; what makes a gradient of a parameter, one for each run of leaves. */
static void lower_op(const lowering *l)
{
    const orth_node *n = l->node;
    orth_operand in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    read_inputs(l, in);
    if (n->param >= 0) {
        orth_build_gradient(l->b, l->block->param_index[n->param], n, in, l->leaves);
        return;
    }
    const orth_attr attr = attr_of_layer(l);
    make_outputs(l, out);
    orth_build_emit(l->b, n->op, &attr, n->num_in, in, n->num_out, out);
}

typedef void (*lower_fn)(const lowering *l);
#define lower_none NULL

static const lower_fn lowers[ORTH_NUM_OPS] = {
#define OP(name, ...) [ORTH_OP_##name] = lower_op,
#define COMM(name, in, out, vjp, lower, ...) [ORTH_OP_##name] = lower_##lower,
#define GRAPH(name, in, out, vjp, lower, ...) [ORTH_OP_##name] = lower_##lower,
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
};

void orth_build_node(orth_builder *b, const orth_block *block, orth_block_env *env, int32_t node, const orth_leaves *leaves)
{
    const orth_node *n = &block->graph->nodes[node];
    orth_build_from_node(b, block->kind, node);
    lowers[n->op](&(lowering){b, block, env, n, leaves});
}

/* Expands forward node `node`, whose output was forgotten, where the backward reads it: those that it needs come first. */
static void make_again(orth_builder *b, const orth_block *block, orth_block_env *env, int32_t node)
{
    const orth_leaves none = {.row0 = -1};
    const orth_block_kind from_block = b->block;
    const int32_t from_node = b->node;
    const bool recomputed = b->recomputed;
    const orth_node *n = &block->graph->nodes[node];
    for (int k = 0; k < n->num_in && !n->chunked; k++)
        read_value(b, block, env, n->in[k], -1);
    b->recomputed = true;
    if (n->chunked)
        orth_build_chunks(b, block, env, false);
    else
        orth_build_node(b, block, env, node, &none);
    b->recomputed = recomputed;
    orth_build_from_node(b, from_block, from_node);
}

/* Whether a node is left to the other half of a split backward. */
static bool skipped(orth_action_kind kind, const orth_node *n)
{
    return (kind == ORTH_ACTION_BI && n->for_weights) || (kind == ORTH_ACTION_W && !n->for_weights);
}

/* What W will read is made again while the parameters are whole (ZeRO 3), and W makes nothing again. */
static void make_inputs_again(orth_builder *b, const orth_block *block, orth_block_env *env, const orth_node *n)
{
    const orth_graph *g = block->graph;
    for (int k = 0; env->again && k < n->num_in; k++)
        if (n->in[k] != ORTH_NO_VALUE && g->values[n->in[k]].producer >= 0 && g->values[n->in[k]].producer < g->num_forward)
            read_value(b, block, env, n->in[k], -1);
}

static void expand(orth_builder *b, const orth_block *block, orth_block_env *env, int32_t first, int32_t end,
                   orth_action_kind kind, const orth_leaves *leaves)
{
    bool chunked = kind == ORTH_ACTION_W; /* done by then */
    for (int32_t i = first; i < end && !b->p->failed; i++) {
        const orth_node *n = &block->graph->nodes[i];
        if (n->chunked && !chunked)
            orth_build_chunks(b, block, env, i >= block->graph->num_forward);
        chunked = chunked || n->chunked;
        if (n->chunked || (block->dead && block->dead[i]))
            continue;
        orth_build_from_node(b, block->kind, i);
        if (!skipped(kind, n))
            orth_build_node(b, block, env, i, leaves);
        else if (kind == ORTH_ACTION_BI)
            make_inputs_again(b, block, env, n);
    }
    orth_build_from_node(b, ORTH_BLOCK_NONE, -1);
}

/* ---- blocks ---- */

/* Leaves of the micro-batch at hand: its sequences. */
static orth_leaves sequences_of(const orth_builder *b)
{
    return (orth_leaves){.num = b->spec->num_seqs, .rows = b->spec->seq_len, .row0 = -1};
}

orth_operand orth_build_forward(orth_builder *b, const orth_block *block, orth_block_env *env, orth_operand x)
{
    *env = env_new(b, block->graph);
    if (b->p->failed)
        return x;
    if (block->graph->input != ORTH_NO_VALUE)
        env->of[block->graph->input] = x;
    orth_gather_block(b, block, env, 0);
    orth_leaves leaves = sequences_of(b);
    int32_t end = b->spec->mode == ORTH_MODE_TRAIN ? block->graph->num_forward : block->graph->num_nodes;
    expand(b, block, env, 0, end, ORTH_ACTION_F, &leaves);
    return env->of[block->graph->output];
}

void orth_build_forget(orth_builder *b, const orth_block *block, orth_block_env *env, const bool *again, bool forget_input)
{
    const orth_graph *g = block->graph;
    if (b->p->failed)
        return;
    env->again = again;
    for (int32_t i = 0; i < g->num_forward; i++)
        for (int k = 0; again[i] && k < g->nodes[i].num_out; k++)
            if (g->nodes[i].out[k] != ORTH_NO_VALUE)
                env->of[g->nodes[i].out[k]].buffer = -2;
    if (forget_input && g->input != ORTH_NO_VALUE)
        env->of[g->input].buffer = -2;
}

/* The parameters that nodes from `first` on read in the backward: there again (gather.c), or older ones (asynchronous). */
static void renew_params(orth_builder *b, const orth_block *block, orth_block_env *env, int32_t first)
{
    const orth_graph *g = block->graph;
    for (orth_value v = 0; b->spec->async && v < g->num_values; v++)
        if (g->values[v].kind == ORTH_VALUE_PARAM)
            env->of[v].buffer = -2; /* the weights of the forward may lie elsewhere by now */
    if (!orth_gather_is_still_whole(b, block))
        orth_gather_block(b, block, env, first);
}

orth_operand orth_build_again(orth_builder *b, const orth_block *block, orth_block_env *env, orth_operand x)
{
    const orth_graph *g = block->graph;
    if (b->p->failed)
        return x;
    if (g->input != ORTH_NO_VALUE)
        env->of[g->input] = x;
    renew_params(b, block, env, g->num_nodes);
    return read_value(b, block, env, g->output, -1);
}

orth_operand orth_build_backward(orth_builder *b, const orth_block *block, orth_block_env *env, orth_action_kind kind,
                                 orth_operand dy)
{
    const orth_graph *g = block->graph;
    if (b->p->failed)
        return dy;
    env->of[g->output_grad] = dy;
    renew_params(b, block, env, g->num_forward);
    orth_leaves leaves = sequences_of(b);
    expand(b, block, env, g->num_forward, g->num_nodes, kind, &leaves);
    return g->input_grad == ORTH_NO_VALUE ? orth_operand_absent : env->of[g->input_grad];
}

/* What BI left. Reads activations and their gradients, which live on in env, and no parameters: nothing is
 * gathered under ZeRO 3. */
void orth_build_weights(orth_builder *b, const orth_block *block, orth_block_env *env)
{
    orth_leaves leaves = sequences_of(b);
    expand(b, block, env, block->graph->num_forward, block->graph->num_nodes, ORTH_ACTION_W, &leaves);
}

/* ---- the head ---- */

static orth_leaves head_leaves(const orth_builder *b, int64_t c, int64_t rows)
{
    const int64_t per_chunk = b->spec->head_leaves / b->spec->head_chunks;
    return (orth_leaves){.num = per_chunk, .rows = rows / per_chunk, .chunk = true,
                         .second_use = orth_route_is_tied(b->spec), .row0 = c * rows};
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

/* Chunk by chunk: a chunk's logits die before the next one's are made. */
orth_operand orth_build_head(orth_builder *b, orth_operand normed)
{
    const orth_compile_spec *s = b->spec;
    const orth_block *block = &s->head;
    const orth_graph *g = block->graph;
    int64_t rows = g->values[g->input].dim[0], N = (int64_t)s->num_seqs * s->seq_len;
    bool train = s->mode == ORTH_MODE_TRAIN && !s->final.idle; /* else nobody reads the gradient of the final norm's output */
    orth_operand grad = orth_operand_absent;
    if (train) {
        grad = normed;
        grad.dtype = g->values[g->input_grad].dtype;
        grad = orth_build_temp(b, "d.normed", grad);
    }
    orth_block_env gathered = env_new(b, g);
    if (b->p->failed)
        return grad;
    orth_gather_block(b, block, &gathered, 0);
    for (int64_t c = 0; c < N / rows && !b->p->failed; c++) {
        orth_block_env env = env_new(b, g);
        if (b->p->failed)
            break;
        memcpy(env.of, gathered.of, (size_t)g->num_values * sizeof *env.of);
        env.of[g->input] = orth_operand_rows(normed, c * rows, (c + 1) * rows);
        env.of[g->output] = orth_build_vector(b->logits_or_nll, ORTH_F32, b->micro_batch * N + c * rows, rows);
        if (train)
            env.of[g->input_grad] = orth_operand_rows(grad, c * rows, (c + 1) * rows);
        orth_leaves leaves = head_leaves(b, c, rows);
        expand(b, block, &env, 0, g->num_nodes, ORTH_ACTION_B, &leaves);
    }
    sum_micro_loss(b);
    return grad;
}

void orth_build_decode_head(orth_builder *b, orth_operand normed)
{
    const orth_graph *g = b->spec->head.graph;
    orth_block_env env = env_new(b, g);
    if (b->p->failed)
        return;
    orth_gather_block(b, &b->spec->head, &env, 0);
    env.of[g->input] = normed;
    const orth_value_info *out = &g->values[g->output];
    env.of[g->output] = orth_operand_of(b->logits_or_nll, ORTH_F32, out->num_dims, out->dim);
    orth_leaves leaves = {.row0 = 0};
    expand(b, &b->spec->head, &env, 0, g->num_nodes, ORTH_ACTION_F, &leaves);
}
