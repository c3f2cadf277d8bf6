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

orth_operand orth_build_param(const orth_builder *b, int64_t index, bool master)
{
    const orth_param_desc *param = &b->spec->params[index];
    int32_t buffer = master ? b->master[index] : b->copy[index];
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
 * read, and the master counts as optimizer state. A program that does not train has no masters. */
static void add_params(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    for (int64_t i = 0; i < s->num_params; i++) {
        const orth_param_desc *param = &s->params[i];
        bool copied = s->compute != ORTH_F32 && param->matrix;
        if (!copied || s->mode == ORTH_MODE_TRAIN)
            b->master[i] = persistent(b, copied ? orth_arena_printf(b->ctx, &b->p->arena, "master.%s", param->name)
                                                : param->name,
                                      copied ? ORTH_CLASS_OPTIMIZER : ORTH_CLASS_PARAMS, ORTH_BIND_MASTER, i,
                                      dim_bytes(ORTH_F32, param->num_dims, param->dim));
        else
            b->master[i] = -1;
        b->copy[i] = copied ? persistent(b, param->name, ORTH_CLASS_PARAMS, ORTH_BIND_COPY, i,
                                         dim_bytes(s->compute, param->num_dims, param->dim))
                            : b->master[i];
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
        int64_t index = block->param_index[info->slot];
        env->of[v] = orth_build_param(b, index, info->dtype == ORTH_F32);
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

static void expand(orth_builder *b, const orth_block *block, block_env *env, int32_t first, int32_t end,
                   const orth_leaf_range *leaves)
{
    for (int32_t i = first; i < end && !b->p->failed; i++) {
        const orth_node *n = &block->graph->nodes[i];
        orth_operand in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
        for (int k = 0; k < n->num_in; k++)
            in[k] = read_value(b, block, env, n->in[k], leaves->row0);
        if (n->param >= 0) {
            orth_build_gradient(b, block->param_index[n->param], n, in, leaves);
            continue;
        }
        for (int k = 0; k < n->num_out; k++)
            out[k] = make_value(b, block, env, n->out[k]);
        orth_build_emit(b, n->op, &n->attr, n->num_in, in, n->num_out, out);
    }
}

/* ---- actions ---- */

typedef struct {
    block_env embed, final;
    block_env *layers;
    orth_operand x;      /* output of the last layer; in backward: gradient that travels down */
    orth_operand normed; /* output of the final norm */
} micro_state;

static orth_leaf_range sequences_of(const orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    int64_t begin = (int64_t)b->micro_batch * s->num_seqs;
    return (orth_leaf_range){.begin = begin, .end = begin + s->num_seqs, .rows = s->seq_len, .row0 = -1,
                             .total = (int64_t)s->num_micro_batches * s->num_seqs};
}

static orth_operand run_forward(orth_builder *b, const orth_block *block, block_env *env, orth_operand x)
{
    *env = env_new(b, block->graph);
    if (b->p->failed)
        return x;
    if (block->graph->input != ORTH_NO_VALUE)
        env->of[block->graph->input] = x;
    orth_leaf_range leaves = sequences_of(b);
    int32_t end = b->spec->mode == ORTH_MODE_TRAIN ? block->graph->num_forward : block->graph->num_nodes;
    expand(b, block, env, 0, end, &leaves);
    return env->of[block->graph->output];
}

static void forward(orth_builder *b, micro_state *m)
{
    b->phase = ORTH_PHASE_FORWARD;
    b->layer = -1;
    orth_operand x = run_forward(b, &b->spec->embed, &m->embed, orth_operand_absent);
    m->layers = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, block_env, b->spec->num_layers);
    if (!m->layers) {
        b->p->failed = true;
        return;
    }
    for (int32_t l = 0; l < b->spec->num_layers && !b->p->failed; l++) {
        b->layer = l;
        x = run_forward(b, &b->spec->layers[l], &m->layers[l], x);
    }
    b->layer = b->spec->num_layers;
    m->normed = run_forward(b, &b->spec->final, &m->final, x);
}

/* Logits, loss and, when training, their gradients, chunk by chunk: a chunk's logits die before the
 * next one's are made. Returns the gradient of the final norm's output. */
static orth_operand head(orth_builder *b, micro_state *m)
{
    const orth_compile_spec *s = b->spec;
    const orth_block *block = &s->head;
    const orth_graph *g = block->graph;
    const orth_value_info *x = &g->values[g->input];
    int64_t rows = x->dim[0], chunks = (int64_t)s->num_seqs * s->seq_len / rows;
    int64_t per_chunk = s->head_leaves / s->head_chunks;
    int64_t first_leaf = (int64_t)b->micro_batch * s->num_seqs * s->head_leaves;
    int64_t total = (int64_t)s->num_micro_batches * s->num_seqs * s->head_leaves;

    orth_operand grad = m->normed;
    if (s->mode == ORTH_MODE_TRAIN) {
        orth_buffer buffer = {.name = "d.normed", .bytes = orth_operand_bytes(&m->normed),
                              .cls = ORTH_CLASS_ACTIVATIONS};
        grad.buffer = orth_program_add_buffer(b->p, &buffer);
    }
    for (int64_t c = 0; c < chunks && !b->p->failed; c++) {
        block_env env = env_new(b, g);
        if (b->p->failed)
            break;
        env.of[g->input] = orth_operand_rows(m->normed, c * rows, (c + 1) * rows);
        orth_operand nll = orth_operand_of(b->logits_or_nll, ORTH_F32, 1,
                                           (int64_t[]){(int64_t)s->num_micro_batches * s->num_seqs * s->seq_len});
        int64_t row = (int64_t)b->micro_batch * s->num_seqs * s->seq_len + c * rows;
        env.of[g->output] = orth_operand_rows(nll, row, row + rows);
        if (g->input_grad != ORTH_NO_VALUE)
            env.of[g->input_grad] = orth_operand_rows(grad, c * rows, (c + 1) * rows);
        orth_leaf_range leaves = {.begin = first_leaf + c * per_chunk, .end = first_leaf + (c + 1) * per_chunk,
                                  .total = total, .rows = rows / per_chunk, .chunk = true,
                                  .second_use = b->tied, .row0 = c * rows};
        expand(b, block, &env, 0, g->num_nodes, &leaves);
    }
    int64_t N = (int64_t)s->num_seqs * s->seq_len, row = (int64_t)b->micro_batch * N;
    orth_operand all = orth_operand_of(b->logits_or_nll, ORTH_F32, 1, (int64_t[]){N * s->num_micro_batches});
    orth_operand nll = orth_operand_rows(all, row, row + N);
    orth_operand leaves = orth_operand_of(b->seq_loss, ORTH_F64, 1,
                                          (int64_t[]){(int64_t)s->num_micro_batches * s->num_seqs});
    leaves = orth_operand_rows(leaves, (int64_t)b->micro_batch * s->num_seqs,
                               (int64_t)(b->micro_batch + 1) * s->num_seqs);
    orth_attr attr = {.num_seqs = s->num_seqs, .seq_len = s->seq_len, .token_parts = s->token_parts};
    orth_build_emit(b, ORTH_OP_loss_sum, &attr, 1, &nll, 1, &leaves);
    return grad;
}

static orth_operand run_backward(orth_builder *b, const orth_block *block, block_env *env, orth_operand dy)
{
    const orth_graph *g = block->graph;
    if (b->p->failed)
        return dy;
    env->of[g->output_grad] = dy;
    orth_leaf_range leaves = sequences_of(b);
    expand(b, block, env, g->num_forward, g->num_nodes, &leaves);
    return g->input_grad == ORTH_NO_VALUE ? orth_operand_absent : env->of[g->input_grad];
}

static void backward(orth_builder *b, micro_state *m)
{
    b->phase = ORTH_PHASE_BACKWARD;
    b->layer = b->spec->num_layers;
    orth_operand dy = head(b, m);
    dy = run_backward(b, &b->spec->final, &m->final, dy);
    for (int32_t l = b->spec->num_layers - 1; l >= 0 && !b->p->failed; l--) {
        b->layer = l;
        dy = run_backward(b, &b->spec->layers[l], &m->layers[l], dy);
    }
    b->layer = -1;
    run_backward(b, &b->spec->embed, &m->embed, dy);
}

/* Decoding: logits of the rows of one micro-batch, no loss. */
static void decode_head(orth_builder *b, micro_state *m)
{
    const orth_graph *g = b->spec->head.graph;
    block_env env = env_new(b, g);
    if (b->p->failed)
        return;
    env.of[g->input] = m->normed;
    const orth_value_info *out = &g->values[g->output];
    env.of[g->output] = orth_operand_of(b->logits_or_nll, ORTH_F32, out->num_dims, out->dim);
    orth_leaf_range leaves = {.row0 = 0};
    expand(b, &b->spec->head, &env, 0, g->num_nodes, &leaves);
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
    b->logits_or_nll = persistent(b, "nll", ORTH_CLASS_ACTIVATIONS, ORTH_BIND_NLL, 0,
                                  (size_t)(seqs * s->seq_len) * sizeof(float));
    b->seq_loss = persistent(b, "seq_loss", ORTH_CLASS_ACTIVATIONS, ORTH_BIND_SEQ_LOSS, 0,
                             (size_t)seqs * sizeof(double));
    b->loss = persistent(b, "loss", ORTH_CLASS_ACTIVATIONS, ORTH_BIND_LOSS, 0, sizeof(double));
}

static void compile_step(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    add_params(b);
    add_results(b);
    for (int32_t j = 0; j < s->num_micro_batches && !b->p->failed; j++) {
        micro_state m = {0};
        b->micro_batch = j;
        forward(b, &m);
        if (b->p->failed)
            return;
        if (s->mode == ORTH_MODE_TRAIN)
            backward(b, &m);
        else if (s->mode == ORTH_MODE_EVAL)
            head(b, &m);
        else
            decode_head(b, &m);
    }
    if (s->mode != ORTH_MODE_DECODE && !b->p->failed)
        orth_build_update(b);
    b->p->num_tokens = (int64_t)s->num_micro_batches * s->num_seqs * s->seq_len;
}

orth_status orth_compile(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out)
{
    orth_builder b = {.ctx = ctx, .spec = spec, .p = out, .layer = -1, .micro_batch = -1};
    for (int i = 0; i < ORTH_NUM_DATA; i++)
        b.data[i] = -1;
    b.tied = spec->head.param_index[0] == spec->embed.param_index[0];
    b.master = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, spec->num_params);
    b.copy = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t, spec->num_params);
    b.uses = ORTH_NEW_ARRAY(ctx, orth_grad_use, 2 * spec->num_params);
    if (!b.master || !b.copy || !b.uses)
        out->failed = true;
    else
        compile_step(&b);
    orth_mem_free(ctx, b.uses);
    return orth_program_done(out);
}
