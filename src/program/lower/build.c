/* build.c -- buffers and operands of a growing program (build.h). */
#include "program/lower/build.h"

size_t orth_build_bytes(orth_dtype t, int num_dims, const int64_t *dim)
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
        i->action = b->action;
        i->block = b->block;
        i->node = b->node;
        i->recomputed = b->recomputed;
    }
    return i;
}

int64_t orth_build_elems(const orth_builder *b, int64_t index)
{
    return orth_param_elems_here(&b->spec->params[index]);
}

orth_operand orth_build_own_elems(const orth_builder *b, int32_t buffer, orth_dtype dtype, int64_t index)
{
    const orth_zero_shard elems = orth_build_own(b, index), own = orth_shard_of_type(&elems, b->spec->mesh.pos[ORTH_GROUP_SHARD], dtype);
    orth_operand o = orth_build_vector(buffer, dtype, own.first - b->p->buffers[buffer].first_elem, own.count);
    o.view = own.counts ? ORTH_VIEW_SHARD : ORTH_VIEW_SAME;
    return o;
}

orth_operand orth_build_vector(int32_t buffer, orth_dtype dtype, int64_t first, int64_t n)
{
    orth_operand o = orth_operand_of(buffer, dtype, 1, &n);
    o.byte_offset = (size_t)first * orth_dtype_bytes(dtype);
    return o;
}

int32_t orth_build_start(orth_builder *b, orth_op op, const orth_attr *attr, int num_in, const orth_operand *in, int num_out,
                         const orth_operand *out)
{
    orth_instr *n = orth_build_emit(b, op, attr, num_in, in, num_out, out);
    if (!n)
        return -1;
    n->until = b->p->num_instrs;
    return b->p->num_instrs - 1;
}

void orth_build_until_here(orth_builder *b, int32_t call)
{
    if (call >= 0)
        b->p->instrs[call].until = b->p->num_instrs;
}

orth_operand orth_build_temp(orth_builder *b, const char *name, orth_operand like)
{
    orth_buffer buffer = {.name = name, .bytes = orth_build_bytes(like.dtype, like.num_dims, like.dim),
                          .cls = ORTH_CLASS_ACTIVATIONS};
    like.buffer = orth_program_add_buffer(b->p, &buffer);
    like.byte_offset = 0;
    return like;
}

orth_operand orth_build_param(const orth_builder *b, int64_t index)
{
    const orth_param_desc *param = &b->spec->params[index];
    int32_t buffer = b->copy[index];
    const orth_dtype dtype = orth_build_param_type(b, buffer);
    if (b->version < b->updates && !param->frozen)
        buffer = b->stashed[b->version * b->spec->num_params + index];
    return orth_operand_of(buffer, dtype, param->num_dims, param->dim);
}

bool orth_build_is_gathered(const orth_builder *b, int64_t index)
{
    const orth_route_stage *s = orth_route_find(orth_build_route(b, index), ORTH_ROUTE_GATHER_WEIGHT);
    return s && s->when == ORTH_MOMENT_USE;
}

/* ---- routes ---- */

static void number_units(const orth_compile_spec *s, int32_t *unit)
{
    for (int32_t l = 0; l < s->num_layers; l++)
        for (int32_t i = 0; i < s->layers[l].graph->num_params; i++)
            unit[s->layers[l].param_index[i]] = l + 1;
    for (int64_t i = s->num_params - 1; i >= 0 && unit[i] == 0; i--) /* behind the layers */
        unit[i] = s->num_layers + 1;
}

static void make_shards(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    const int32_t ranks = orth_build_size(b, ORTH_GROUP_SHARD), owners = s->mesh.owner ? 1 : ranks;
    if (!orth_route_is_sharded(s->mesh.zero, ranks))
        return;
    const int64_t shared = orth_build_size(b, ORTH_GROUP_EMBED) > 1 ? s->embed.param_index[0] : -1;
    bool *dealt = ORTH_NEW_ARRAY(b->ctx, bool, s->num_params);
    /* Larger units are gathered by one call only if what each rank has of them are neighbours. */
    const bool by_layers = s->mesh.zero == 3 && (s->comm.unit == ORTH_UNIT_LAYER || s->comm.unit == ORTH_UNIT_HALF);
    const bool units = s->mesh.whole_layers || by_layers;
    int32_t *unit = units ? ORTH_NEW_ARRAY(b->ctx, int32_t, s->num_params) : NULL;
    const orth_deal d = {.params = s->params, .num_params = s->num_params, .shared = shared, .dealt = dealt, .unit = unit, .whole = s->mesh.whole_layers,
                         .num_ranks = ranks, .num_owners = owners};
    for (int64_t i = 0; dealt && i < s->num_params; i++)
        dealt[i] = b->held[i] && (!s->params[i].frozen || orth_route_gathers_for_use(s, i));
    if (unit)
        number_units(s, unit);
    b->p->failed = !dealt || (units && !unit) ||
                   orth_shards_make(b->ctx, &b->p->arena, &d, s->mesh.pos[ORTH_GROUP_SHARD], &b->shards) != ORTH_OK;
    orth_mem_free(b->ctx, dealt);
    orth_mem_free(b->ctx, unit);
}

static void make_route(orth_builder *b, int64_t use)
{
    orth_grad_use *u = &b->uses[use];
    orth_route_make(b->spec, use / 2, use % 2 > 0, &u->route);
    for (int i = 0; i < u->route.num; i++)
        if (u->route.stage[i].op == ORTH_ROUTE_TREE)
            u->sum[u->route.stage[i].when].tree.next = u->route.stage[i].first_leaf;
}

void orth_build_routes(orth_builder *b)
{
    make_shards(b);
    for (int64_t i = 0; i < b->spec->num_params; i++) {
        if (!b->held[i])
            continue;
        make_route(b, 2 * i);
        make_route(b, 2 * i + 1);
    }
}

const orth_route *orth_build_route(const orth_builder *b, int64_t index)
{
    const orth_route *first = &b->uses[2 * index].route;
    return first->num > 0 ? first : &b->uses[2 * index + 1].route;
}

orth_zero_shard orth_build_own(const orth_builder *b, int64_t index)
{
    return orth_route_keeps_shard(orth_build_route(b, index)) ? b->shards[index] : (orth_zero_shard){0, orth_build_elems(b, index), NULL};
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

/* `n` elements of a parameter. */
static int32_t elements(orth_builder *b, const char *name, orth_class cls, orth_bind bind, int64_t index, orth_dtype dtype, int64_t n)
{
    const int32_t buffer = persistent(b, name, cls, bind, index, orth_build_bytes(dtype, 1, &n));
    if (!b->p->failed)
        b->p->buffers[buffer].dtype = dtype;
    return buffer;
}

/* The buffer is as large as this rank's shard. NULL: it holds the whole. */
static void hold_shard(orth_builder *b, int32_t buffer, const orth_zero_shard *shard, orth_dtype dtype)
{
    if (b->p->failed || !shard)
        return;
    b->p->buffers[buffer].shard_elem = (int32_t)orth_dtype_bytes(dtype);
    b->p->buffers[buffer].first_elem = shard->first;
}

/* In fp32, or where matrices are updated in the compute type or frozen, a parameter is one buffer; else matrices have a copy in the compute
 * type that the kernels read, and the master counts as optimizer state: a shard of it under ZeRO. Under ZeRO 3 what the kernels
 * read is a shard, too, gathered block by block when it is needed. A program that does not train has no
 * masters beside copies. */
static void make_params(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    for (int64_t i = 0; i < s->num_params; i++) {
        const orth_param_desc *param = &s->params[i];
        b->master[i] = b->copy[i] = -1;
        if (!b->held[i])
            continue;
        const orth_dtype type = !param->matrix ? ORTH_F32 : param->frozen ? s->compute : s->types.master;
        bool copied = s->compute != type && param->matrix, sharded = orth_build_is_gathered(b, i);
        orth_zero_shard all = {0, orth_build_elems(b, i), NULL};
        orth_zero_shard mine = orth_build_own(b, i), read = sharded ? mine : all;
        if (!copied || s->mode == ORTH_MODE_TRAIN) {
            orth_zero_shard kept = copied ? mine : read;
            const char *name = copied ? orth_arena_printf(b->ctx, &b->p->arena, "master.%s", param->name)
                                      : param->name;
            b->master[i] = elements(b, name, copied ? ORTH_CLASS_OPTIMIZER : ORTH_CLASS_PARAMS, ORTH_BIND_MASTER,
                                      i, type, kept.count);
            if (copied)
                orth_offload_put(b, b->master[i]);
            else
                orth_far_put(b, b->master[i], s->offload.params);
            hold_shard(b, b->master[i], kept.counts ? &kept : NULL, type);
            if (!b->p->failed)
                b->p->buffers[b->master[i]].frozen = param->frozen;
        }
        b->copy[i] = b->master[i];
        if (copied) {
            b->copy[i] = elements(b, param->name, ORTH_CLASS_PARAMS, ORTH_BIND_COPY, i, s->compute, read.count);
            orth_far_put(b, b->copy[i], s->offload.params);
            hold_shard(b, b->copy[i], read.counts ? &read : NULL, s->compute);
        }
    }
}

/* What ZeRO gathers in one bucket, for each use or after the update by the device or by the host, lies in the order of the registry: a run of
 * it is one call. */
static void chain_params(orth_builder *b, const orth_bucket *bucket, bool gathered, bool leaves)
{
    int32_t *chain = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, int32_t, b->spec->num_params), n = 0;
    b->p->failed = b->p->failed || !chain;
    for (int64_t i = 0; !b->p->failed && i < b->spec->num_params; i++) {
        if (b->copy[i] >= 0 && orth_build_gathers(b, i, b->p->buffers[b->copy[i]].dtype) == bucket && orth_build_is_gathered(b, i) == gathered &&
            (gathered || orth_offload_leaves(b, i) == leaves))
            chain[n++] = b->copy[i];
    }
    if (!b->p->failed)
        orth_program_chain(b->p, chain, n);
}

void orth_build_params(orth_builder *b)
{
    make_params(b);
    for (int k = 0; b->shards && k < ORTH_COUNT(b->gathers); k++) {
        chain_params(b, &b->gathers[k], true, false);
        chain_params(b, &b->gathers[k], false, false);
        chain_params(b, &b->gathers[k], false, true);
    }
}

/* What it has for each micro-batch, or layer. */
static size_t data_copies(const orth_builder *b, int32_t slot)
{
    if (slot >= ORTH_DATA_FP8_SCALES)
        return (size_t)b->spec->num_layers;
    const bool once = (slot == ORTH_DATA_STEP && !b->spec->async) || slot == ORTH_DATA_ROPE_TABLE;
    return once ? 1 : (size_t)b->spec->num_micro_batches;
}

/* Scales are lent to evaluations as parameters are. */
static orth_class data_class(int32_t slot)
{
    return slot == ORTH_DATA_FP8_SCALES ? ORTH_CLASS_PARAMS : slot > ORTH_DATA_FP8_SCALES ? ORTH_CLASS_OPTIMIZER : ORTH_CLASS_ACTIVATIONS;
}

int32_t orth_build_data_buffer(orth_builder *b, const orth_value_info *v)
{
    if (b->data[v->slot] < 0) {
        size_t bytes = orth_build_bytes(v->dtype, v->num_dims, v->dim);
        if (v->slot == ORTH_DATA_TARGETS || v->slot == ORTH_DATA_WEIGHTS) /* named by a chunk of the head */
            bytes = orth_dtype_bytes(v->dtype) * (size_t)b->spec->num_seqs * (size_t)b->spec->seq_len;
        b->data[v->slot] = persistent(b, orth_data_slot_name((orth_data_slot)v->slot), data_class(v->slot), ORTH_BIND_DATA, v->slot,
                                      bytes * data_copies(b, v->slot));
    }
    return b->data[v->slot];
}

orth_operand orth_build_data(orth_builder *b, const orth_value_info *v)
{
    if (v->slot == ORTH_DATA_CACHE_K || v->slot == ORTH_DATA_CACHE_V) {
        orth_bind bind = v->slot == ORTH_DATA_CACHE_K ? ORTH_BIND_CACHE_K : ORTH_BIND_CACHE_V;
        int32_t found = orth_program_find(b->p, bind, b->layer);
        if (found < 0)
            found = persistent(b, v->name, ORTH_CLASS_ACTIVATIONS, bind, b->layer,
                               orth_build_bytes(v->dtype, v->num_dims, v->dim));
        return orth_operand_of(found, v->dtype, v->num_dims, v->dim);
    }
    orth_operand o = orth_operand_of(orth_build_data_buffer(b, v), v->dtype, v->num_dims, v->dim);
    const int32_t copy = v->slot >= ORTH_DATA_FP8_SCALES ? b->layer : b->micro_batch;
    if (data_copies(b, v->slot) > 1)
        o.byte_offset = orth_operand_bytes(&o) * (size_t)copy;
    return o;
}

void orth_build_results(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    int64_t seqs = (int64_t)s->num_micro_batches * s->num_seqs;
    if (s->mode == ORTH_MODE_DECODE) {
        const orth_value_info *out = &s->head.graph->values[s->head.graph->output];
        b->logits_or_nll = persistent(b, "logits", ORTH_CLASS_ACTIVATIONS, ORTH_BIND_LOGITS, 0,
                                      orth_build_bytes(ORTH_F32, out->num_dims, out->dim));
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
