/* blocks.c -- embedding, final norm and head, and the spec for orth_compile. */
#include "model/blocks.h"

#include <inttypes.h>
#include <math.h>

#include "model/layer.h"

static void build_embed(orth_layer_builder *b)
{
    orth_graph *g = b->g;
    orth_attr attr = orth_layer_attr_inside(b);
    const orth_param_desc table = orth_layer_weight(b, ORTH_WEIGHT_embed);
    attr.first_row = orth_split_bound(&table.split, table.first_part);
    orth_value in[] = {
        orth_graph_data(g, ORTH_DATA_TOKENS, ORTH_I32, b->N, 0, 0),
        orth_graph_data(g, ORTH_DATA_POSITIONS, ORTH_I32, b->N, 0, 0),
        orth_layer_param(b, ORTH_WEIGHT_embed),
        orth_layer_param(b, ORTH_WEIGHT_pos),
    };
    orth_value x = orth_graph_temp(g, "embedded", b->s->compute, b->N, b->c->hidden);
    orth_graph_add(g, ORTH_OP_embed, &attr, 4, in, 1, &x);
    if (b->tp > 1) { /* each row is whole on the rank that has its token, and 0 on the others */
        orth_value sum = orth_graph_temp(g, "embedded.sum", b->s->compute, b->outside, b->c->hidden);
        orth_graph_add(g, ORTH_OP_leave, &attr, 1, &x, 1, &sum);
        x = sum;
    }
    g->output = orth_layer_dropout(b, x, ORTH_SITE_EMBED);
}

static void build_layer(orth_layer_builder *b)
{
    const int64_t dim[] = {b->outside, b->c->hidden};
    b->g->input = orth_graph_add_value(b->g, ORTH_VALUE_INPUT, 0, b->s->compute, "layer_in", 2, dim);
    if (b->c->family == ORTH_FAMILY_GPT2)
        orth_gpt2_layer(b);
    else
        orth_llama_layer(b);
}

static void build_final(orth_layer_builder *b)
{
    const int64_t dim[] = {b->outside, b->c->hidden};
    b->g->input = orth_graph_add_value(b->g, ORTH_VALUE_INPUT, 0, b->s->compute, "final_in", 2, dim);
    b->g->output = orth_layer_enter(b, orth_layer_norm(b, ORTH_WEIGHT_final_norm_gain, ORTH_WEIGHT_final_norm_shift, b->g->input, ORTH_NO_VALUE).y);
}

/* Cross-entropy of this rank's columns of the vocabulary: the parts of softmax_xent, with what the
 * ranks must tell each other in between. */
static orth_value split_loss(orth_layer_builder *b, const orth_attr *loss, orth_value logits, orth_value target,
                             orth_value weight, orth_value step, int64_t rows, orth_value dlogits)
{
    orth_graph *g = b->g;
    const orth_attr max_attr = {.group = ORTH_GROUP_TP, .maximum = true}, sum_attr = {.group = ORTH_GROUP_TP};
    orth_value local_max = orth_graph_temp(g, "max.part", ORTH_F32, rows, 0);
    orth_value max = orth_graph_temp(g, "max", ORTH_F32, rows, 0);
    orth_value local_sums = orth_graph_temp(g, "sums.part", ORTH_F32, rows, 2);
    orth_value sums = orth_graph_temp(g, "sums", ORTH_F32, rows, 2);
    orth_value nll = orth_graph_temp(g, "nll", ORTH_F32, rows, 0);
    orth_graph_add(g, ORTH_OP_xent_max, loss, 1, &logits, 1, &local_max);
    orth_graph_add(g, ORTH_OP_all_reduce, &max_attr, 1, &local_max, 1, &max);
    const orth_value sum_in[] = {logits, target, max};
    orth_graph_add(g, ORTH_OP_xent_sum, loss, 3, sum_in, 1, &local_sums);
    orth_graph_add(g, ORTH_OP_all_reduce, &sum_attr, 1, &local_sums, 1, &sums);
    const orth_value grad_in[] = {logits, target, weight, max, sums, step}, out[] = {nll, dlogits};
    orth_graph_add(g, ORTH_OP_xent_grad, loss, 6, grad_in, 2, out);
    return nll;
}

static void build_head(orth_layer_builder *b, int64_t rows)
{
    orth_graph *g = b->g;
    const int64_t C = b->c->hidden, dim[] = {rows, C};
    const orth_weight_id table_id = b->c->tied ? ORTH_WEIGHT_embed : ORTH_WEIGHT_head;
    const orth_param_desc table = orth_layer_weight(b, table_id);
    const int64_t V = table.dim[0];
    orth_attr attr = orth_layer_attr_inside(b);
    attr.split = ORTH_SPLIT_WHOLE(C);
    attr.split_out = orth_param_split_here(&table);
    attr.first_row = orth_split_bound(&table.split, table.first_part);
    attr.partial = b->tp > 1;
    g->input = orth_graph_add_value(g, ORTH_VALUE_INPUT, 0, b->s->compute, "head_in", 2, dim);
    orth_value w = orth_layer_param(b, table_id);
    orth_value logits = orth_graph_temp(g, "logits", ORTH_F32, rows, V);
    const orth_value in[] = {g->input, w, ORTH_NO_VALUE}, out[] = {logits, ORTH_NO_VALUE};
    orth_graph_add(g, ORTH_OP_linear, &attr, 3, in, 2, out);
    if (b->s->mode == ORTH_MODE_DECODE) {
        g->output = logits;
        return;
    }
    orth_attr loss = attr;
    loss.split = attr.split_out;
    orth_value target = orth_graph_data(g, ORTH_DATA_TARGETS, ORTH_I32, rows, 0, 0);
    orth_value weight = orth_graph_data(g, ORTH_DATA_WEIGHTS, ORTH_F32, rows, 0, 0);
    orth_value step = orth_graph_data(g, ORTH_DATA_STEP, ORTH_U8, sizeof(orth_step_values), 0, 0);
    orth_value dlogits = b->s->mode == ORTH_MODE_TRAIN ? orth_graph_temp(g, "d.logits", b->s->compute, rows, V)
                                                       : ORTH_NO_VALUE;
    if (b->tp > 1) {
        g->output = split_loss(b, &loss, logits, target, weight, step, rows, dlogits);
        return;
    }
    g->output = orth_graph_temp(g, "nll", ORTH_F32, rows, 0);
    const orth_value loss_in[] = {logits, target, weight, step}, loss_out[] = {g->output, dlogits};
    orth_graph_add(g, ORTH_OP_softmax_xent, &loss, 4, loss_in, 2, loss_out);
}

/* Registry numbers of a graph's parameters. */
static orth_status map_params(orth_model_blocks *m, const orth_model_config *c, orth_block_kind kind, orth_graph *g,
                              int layer, orth_block *out)
{
    int64_t *index = ORTH_ARENA_ARRAY(m->ctx, &m->arena, int64_t, g->num_params + 1);
    if (!index)
        return ORTH_ERR_NOMEM;
    for (orth_value v = 0; v < g->num_values; v++)
        if (g->values[v].kind == ORTH_VALUE_PARAM)
            index[g->values[v].slot] = orth_model_param_index(c, (orth_weight_id)g->values[v].weight, layer);
    *out = (orth_block){kind, g, index};
    return ORTH_OK;
}

/* Of the canonical parts of the split dim, each rank of tensor parallelism has as many. */
static void localize(const orth_place_in_mesh *mesh, orth_param_desc *d)
{
    int32_t tp = ORTH_MAX(mesh->size[ORTH_GROUP_TP], 1);
    d->num_parts = d->split.parts / tp;
    d->first_part = d->num_parts * mesh->pos[ORTH_GROUP_TP];
    d->replica_rows = orth_split_replica(&d->split, d->first_part, &d->replica_first);
    d->dim[d->split_dim] = orth_split_bound(&d->split, d->first_part + d->num_parts) -
                           orth_split_bound(&d->split, d->first_part) + d->replica_rows;
}

orth_param_desc orth_weight_here(const orth_model_config *c, const orth_model_shape *shape, orth_weight_id id)
{
    const orth_weight w = orth_weight_get(c, id);
    orth_param_desc d = {.num_dims = w.shape.num_dims, .dim = {w.shape.dim[0], w.shape.dim[1]}, .whole_cols = w.shape.dim[1],
                         .matrix = w.type == ORTH_WEIGHT_COMPUTE, .feed_forward = w.section == ORTH_SECTION_FEED_FORWARD,
                         .moments_8bit = shape->types.moments == ORTH_U8 && orth_weight_moments_8bit(&w),
                         .reduce = w.reduce, .leaf = w.leaf, .split_dim = -1, .lr_factor = 1,
                         .decay_factor = w.decay == ORTH_WEIGHT_DECAY ? 1 : 0};
    if (w.split.cut == ORTH_CUT_WHOLE)
        return d;
    d.split_dim = w.split.cut == ORTH_CUT_ROWS ? 0 : 1;
    d.split = (orth_split){w.split.kind, shape->parts, w.split.units, w.split.unit, w.split.group};
    localize(&shape->mesh, &d);
    return d;
}

/* What the run file says of single parameters. */
static orth_status apply_rules(orth_model_blocks *m, const orth_model_config *c, const orth_model_shape *shape, orth_param_desc *d)
{
    const int64_t n = orth_model_num_params(c);
    float *lr = ORTH_ARENA_ARRAY(m->ctx, &m->arena, float, n), *decay = ORTH_ARENA_ARRAY(m->ctx, &m->arena, float, n);
    bool *frozen = ORTH_ARENA_ARRAY(m->ctx, &m->arena, bool, n);
    if (!lr || !decay || !frozen)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        lr[i] = d[i].lr_factor;
        decay[i] = d[i].decay_factor;
    }
    ORTH_TRY(orth_factors_resolve(m->ctx, &shape->lr_factors, c, lr));
    ORTH_TRY(orth_factors_resolve(m->ctx, &shape->decay_factors, c, decay));
    ORTH_TRY(orth_freeze_resolve(m->ctx, &shape->freeze, c, frozen));
    for (int64_t i = 0; i < n; i++) {
        d[i].lr_factor = lr[i];
        d[i].decay_factor = decay[i];
        d[i].frozen = frozen[i];
    }
    return ORTH_OK;
}

static orth_status list_params(orth_model_blocks *m, const orth_model_config *c, const orth_model_shape *shape)
{
    int64_t n = orth_model_num_params(c);
    orth_param_desc *d = ORTH_ARENA_ARRAY(m->ctx, &m->arena, orth_param_desc, n);
    if (!d)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(m->ctx, c, i, &p));
        char *name = orth_arena_printf(m->ctx, &m->arena, "%s", p.name);
        if (!name)
            return ORTH_ERR_NOMEM;
        d[i] = orth_weight_here(c, shape, p.weight);
        d[i].name = name;
    }
    m->spec.params = d;
    m->spec.num_params = n;
    return apply_rules(m, c, shape, d);
}

int64_t orth_model_num_trained(const orth_model_config *c, const orth_param_desc *params)
{
    orth_ctx none = {.rank = 0}; /* the parameters of a checked model do not fail */
    int64_t n = 0;
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        orth_param p;
        if (!params[i].frozen && orth_model_param(&none, c, i, &p) == ORTH_OK)
            n += orth_param_elems(&p);
    }
    return n;
}

int64_t orth_head_leaves(int64_t seq_len, int64_t parts)
{
    int64_t leaves = seq_len % parts == 0 ? parts : 1;
    while (leaves < 4 && seq_len % (2 * leaves) == 0)
        leaves *= 2;
    return leaves;
}

int64_t orth_head_chunks(int64_t leaves, int64_t num_seqs, int64_t seq_len, int64_t rows)
{
    int64_t chunks = 1;
    while (leaves % (2 * chunks) == 0 && seq_len / chunks > rows)
        chunks *= 2;
    return chunks == 1 && num_seqs == 1 && leaves % 2 == 0 ? 2 : chunks;
}

/* A rank has the leaves of its tokens. */
static void choose_head_chunks(orth_compile_spec *spec, int32_t parts, int32_t rows)
{
    const int32_t cp = ORTH_MAX(spec->mesh.size[ORTH_GROUP_CP], 1);
    spec->head_leaves = (int32_t)orth_head_leaves((int64_t)spec->seq_len * cp, parts) / cp;
    spec->head_chunks = (int32_t)orth_head_chunks(spec->head_leaves, spec->num_seqs, spec->seq_len,
                                                  rows > 0 ? rows : ORTH_HEAD_CHUNK_ROWS);
}

int64_t orth_ffn_chunk_rows(int64_t most, int64_t num_seqs, int64_t seq_len, int32_t token_parts, int32_t *parts)
{
    int64_t rows = num_seqs * seq_len, within = seq_len % token_parts == 0 ? token_parts : 1;
    while (rows > seq_len && rows > most)
        rows = rows / seq_len % 2 == 0 ? rows / 2 : seq_len;
    while (rows <= seq_len && rows > most && within > 1) {
        rows /= 2;
        within /= 2;
    }
    *parts = rows < seq_len ? token_parts : 1;
    return rows;
}

static void choose_ffn_chunks(orth_compile_spec *spec, const orth_model_shape *shape)
{
    int32_t parts = 1;
    if (shape->ffn_chunk_rows > 0 && shape->mode != ORTH_MODE_DECODE)
        spec->chunk_rows = (int32_t)orth_ffn_chunk_rows(shape->ffn_chunk_rows, spec->num_seqs, spec->seq_len, spec->token_parts, &parts);
    spec->chunk_parts = parts;
}

static orth_status build_all(orth_model_blocks *m, const orth_model_config *c, const orth_model_shape *shape)
{
    orth_layer_builder b = orth_layer_begin(c, shape);
    orth_compile_spec *spec = &m->spec;
    b.g = &m->embed;
    build_embed(&b);
    b.g = &m->layer;
    build_layer(&b);
    b.g = &m->final;
    build_final(&b);
    b.g = &m->head;
    build_head(&b, shape->mode == ORTH_MODE_DECODE ? b.N : b.seq_len / spec->head_chunks);
    orth_graph *graphs[] = {&m->embed, &m->layer, &m->final, &m->head};
    for (int i = 0; i < ORTH_COUNT(graphs); i++) {
        ORTH_TRY(orth_graph_done(graphs[i]));
        graphs[i]->num_forward = graphs[i]->num_nodes;
        if (shape->mode == ORTH_MODE_TRAIN)
            ORTH_TRY(orth_graph_differentiate(graphs[i], graphs[i] != &m->embed));
        orth_graph_mark_chunked(graphs[i]);
    }
    orth_block *layers = ORTH_ARENA_ARRAY(m->ctx, &m->arena, orth_block, c->layers);
    if (!layers)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(map_params(m, c, ORTH_BLOCK_EMBED, &m->embed, -1, &spec->embed));
    for (int l = 0; l < (int)c->layers; l++)
        ORTH_TRY(map_params(m, c, ORTH_BLOCK_LAYER, &m->layer, l, &layers[l]));
    ORTH_TRY(map_params(m, c, ORTH_BLOCK_FINAL, &m->final, -1, &spec->final));
    ORTH_TRY(map_params(m, c, ORTH_BLOCK_HEAD, &m->head, -1, &spec->head));
    spec->layers = layers;
    return list_params(m, c, shape);
}

/* What tiles, blocks and runs of tokens cannot have. */
static orth_status check_rounding(orth_ctx *ctx, const orth_model_config *c, const orth_model_shape *shape, const orth_layer_builder *local)
{
    const orth_recipe_row *r = orth_recipe_of(shape->products);
    if (r->tile_k > 0 && local->kv_ranks > 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "precision.products=%s with parallel.tp=%d above model.kv_heads=%" PRId64 ": the copies of key and value "
                         "heads would cut the tiles of the ranks that own them; take fp8_tensor", r->name, (int)local->tp, c->kv_heads);
    if (shape->comm.reduce == ORTH_Q8 && shape->mode == ORTH_MODE_TRAIN && shape->mesh.size[ORTH_GROUP_DP] > 1 && local->kv_ranks > 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "precision.grad_reduce=int8 with parallel.tp=%d above model.kv_heads=%" PRId64 ": ranks that share a key and value "
                         "head would round its gradient in other blocks, and update it to other weights; take bf16", (int)local->tp, c->kv_heads);
    if (r->delayed && shape->async)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "precision.products=%s with an asynchronous pipeline: scales are those of the steps before, and its steps "
                         "have no end at which all ranks could agree on them; take fp8_tensor", r->name);
    if (r->at_random && shape->mode == ORTH_MODE_TRAIN && shape->seq_len % (ORTH_HADAMARD_RUN * shape->parts) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "precision.products=%s: data.seq_len=%d is no multiple of %d * numerics.parts=%d: each part of a sequence "
                         "must have whole runs of %d tokens, which are transformed together", r->name, (int)shape->seq_len, ORTH_HADAMARD_RUN,
                         (int)shape->parts, ORTH_HADAMARD_RUN);
    return ORTH_OK;
}

orth_status orth_model_blocks_build(orth_ctx *ctx, const orth_model_config *c, const orth_model_shape *shape,
                                    orth_model_blocks *out)
{
    int64_t longest = shape->mode == ORTH_MODE_DECODE ? shape->cache_rows : shape->seq_len;
    if (longest > c->max_seq && c->family == ORTH_FAMILY_GPT2)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "sequences of %" PRId64 " tokens exceed model.max_seq=%" PRId64,
                         longest, c->max_seq);
    const orth_layer_builder local = orth_layer_begin(c, shape);
    ORTH_TRY(check_rounding(ctx, c, shape, &local));
    *out = (orth_model_blocks){.ctx = ctx};
    out->spec = (orth_compile_spec){
        .mode = shape->mode, .num_layers = (int32_t)c->layers, .compute = shape->compute, .types = shape->types, .space = shape->space, .offload = shape->offload,
        .num_micro_batches = shape->num_micro_batches, .num_seqs = shape->num_seqs, .seq_len = local.seq_len,
        .token_parts = local.token_parts, .shares = shape->mode == ORTH_MODE_TRAIN ? shape->shares : NULL,
        .optimizer = shape->optimizer, .nesterov = shape->nesterov, .no_moments = shape->no_moments, .cache_rows = shape->cache_rows,
        .external_params = shape->external_params, .mesh = shape->mesh, .comm = shape->comm, .recompute = shape->recompute,
        .chunks = shape->chunks, .num_chunks = shape->num_chunks, .actions = shape->actions,
        .num_actions = shape->num_actions, .async = shape->async, .keep_packed = shape->keep_packed,
        .delayed = orth_recipe_of(shape->products)->delayed ? shape->delayed : (orth_delayed_scaling){0},
    };
    choose_head_chunks(&out->spec, shape->parts, shape->head_chunk_rows);
    choose_ffn_chunks(&out->spec, shape);
    orth_graph_init(ctx, &out->embed);
    orth_graph_init(ctx, &out->layer);
    orth_graph_init(ctx, &out->final);
    orth_graph_init(ctx, &out->head);
    orth_status s = build_all(out, c, shape);
    if (s == ORTH_OK)
        s = orth_recompute_check(ctx, &shape->recompute, &out->layer, local.tp);
    if (s != ORTH_OK)
        orth_model_blocks_release(out);
    return s;
}

void orth_model_blocks_release(orth_model_blocks *b)
{
    orth_graph_release(&b->embed);
    orth_graph_release(&b->layer);
    orth_graph_release(&b->final);
    orth_graph_release(&b->head);
    orth_arena_release(b->ctx, &b->arena);
}

/* Llama-3's piecewise change of wavelengths: long ones are stretched by `factor`, short ones kept,
 * those between are blended. */
static double scaled_frequency(const orth_model_config *c, double freq)
{
    if (c->rope_factor == 1.0)
        return freq;
    double turns = (double)c->rope_original_seq * freq / 6.283185307179586476925;
    if (turns < c->rope_low_freq)
        return freq / c->rope_factor;
    if (turns > c->rope_high_freq)
        return freq;
    double blend = (turns - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
    return (1 - blend) * freq / c->rope_factor + blend * freq;
}

void orth_model_rope_table(const orth_model_config *c, float *table, int64_t rows)
{
    int64_t D = c->head_dim, half = D / 2;
    for (int64_t i = 0; i < half; i++) {
        double freq = scaled_frequency(c, pow(c->rope_theta, -2.0 * (double)i / (double)D));
        for (int64_t p = 0; p < rows; p++) {
            table[p * D + i] = (float)cos((double)p * freq);
            table[p * D + half + i] = (float)sin((double)p * freq);
        }
    }
}
