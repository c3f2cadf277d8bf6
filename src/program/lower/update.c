/* update.c -- the end of a step, when the gradients are reduced (follow.c): gradient norm, clipping, optimizer, and (ZeRO) the
 * updated shards given back to all. */
#include "kernels/signature.h"
#include "program/lower/build.h"

/* This rank's elements of m or v, or their scales. */
static orth_operand state(orth_builder *b, const char *what, orth_bind bind, orth_dtype dtype, int64_t index)
{
    const orth_param_desc *param = &b->spec->params[index];
    const orth_zero_shard own = orth_build_own(b, index);
    const orth_zero_shard mine = bind == ORTH_BIND_SCALES ? orth_shard_scales(param, &own) : own;
    int32_t *known = &b->moments[ORTH_STATES * index + (bind - ORTH_BIND_M)];
    orth_buffer buffer = {
        .name = orth_arena_printf(b->ctx, &b->p->arena, "%s.%s", what, param->name),
        .bytes = orth_build_bytes(dtype, 1, &mine.count), .cls = ORTH_CLASS_OPTIMIZER, .persistent = true, .bind = bind,
        .dtype = dtype, .index = index, .first_elem = mine.first, .shard_elem = b->shards ? (int32_t)orth_dtype_bytes(dtype) : 0,
    };
    if (*known < 0) {
        *known = orth_program_add_buffer(b->p, &buffer);
        orth_offload_put(b, *known);
    }
    orth_operand o = orth_build_vector(*known, dtype, 0, mine.count);
    o.view = own.counts ? ORTH_VIEW_SHARD : ORTH_VIEW_SAME;
    return o;
}

/* ---- tied weights ---- */

/* The sums of the two uses become one. On two pipeline stages each has one of them, and both end with the total, and update
 * their copies alike. */
static void join_tied(orth_builder *b)
{
    const int64_t index = b->spec->embed.param_index[0];
    const orth_route_stage *s = orth_route_find(orth_build_route(b, index), ORTH_ROUTE_JOIN);
    if (!s || s->when != ORTH_MOMENT_UPDATE)
        return;
    const orth_operand g = orth_far_bring(b, orth_build_own_elems(b, orth_build_grad_buffer(b, index), ORTH_F32, index));
    if (s->over == ORTH_GROUP_EMBED) {
        orth_build_emit(b, ORTH_OP_all_reduce, &(orth_attr){.group = ORTH_GROUP_EMBED}, 1, &g, 1, &g);
        orth_far_return(b, g);
        return;
    }
    orth_operand leaf = g;
    leaf.num_dims = 2;
    leaf.dim[0] = 1;
    leaf.dim[1] = g.dim[0];
    const int32_t heads = b->uses[2 * index + 1].sum[ORTH_MOMENT_STEP].slot[0];
    const orth_operand in[] = {leaf, orth_far_bring(b, orth_build_own_elems(b, heads, ORTH_F32, index))};
    orth_build_emit(b, ORTH_OP_tree_acc, &(orth_attr){.num_addends = 1}, 2, in, 1, &g);
    orth_far_return(b, g);
}

/* ---- norm ---- */

/* Whether this stage is the one that counts parameter `index`, if two pipeline stages hold the same of it: tied embeddings. */
static bool counts_norm(const orth_builder *b, int64_t index)
{
    const orth_route_stage *join = orth_route_find(orth_build_route(b, index), ORTH_ROUTE_JOIN);
    bool copy = join && join->over == ORTH_GROUP_EMBED && b->uses[2 * index].route.num == 0;
    return orth_build_trains(b, index) && !copy;
}

/* Sums of squares of all parameters, made at their first mention. Several ranks: 0 where another one counts. */
static orth_operand squares_of_all(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    int64_t num = 0;
    if (b->squares.buffer >= 0)
        return b->squares;
    for (int64_t i = 0; i < s->num_params; i++)
        num += orth_param_num_sums(&s->params[i]);
    const orth_buffer buffer = {.name = "grad_squares", .bytes = (size_t)num * sizeof(double), .cls = ORTH_CLASS_GRADS, .persistent = true};
    b->squares = orth_build_vector(orth_program_add_buffer(b->p, &buffer), ORTH_F64, 0, num);
    if (orth_build_size(b, ORTH_GROUP_NORM) > 1)
        orth_build_emit(b, ORTH_OP_zero, &(orth_attr){0}, 0, NULL, 1, &b->squares);
    return b->squares;
}

/* Squares of this rank's elements of parameter `index`, whose gradient is in buffer `g`; its sums begin at `base` of the sums of all. A
 * shard may have no row of a part, and what all tensor-parallel ranks hold is the first one's to count; but ranks that share a
 * program have the same instructions. */
static void square_param(orth_builder *b, int64_t index, int32_t g, orth_operand sums, int64_t base)
{
    const orth_param_desc *p = &b->spec->params[index];
    const orth_zero_shard mine = orth_build_own(b, index);
    const bool replica = p->split_dim < 0 && orth_build_size(b, ORTH_GROUP_TP) > 1, elsewhere = replica && b->spec->mesh.pos[ORTH_GROUP_TP] > 0;
    int64_t cols = orth_param_cols(p);
    orth_attr attr = {.block_rows = (int32_t)orth_param_block_rows(p), .split = ORTH_SPLIT_WHOLE(cols)};
    if (p->split_dim == 1) {
        attr.split = orth_param_split_here(p);
        attr.first_part = p->first_part;
    }
    for (int32_t q = p->replica_rows > 0; q < orth_param_row_parts(p); q++) { /* replicas: by the rank they count as */
        const orth_zero_rows none = {0}, rows = elsewhere ? none : orth_zero_shard_rows(p, &mine, q);
        const int64_t first = elsewhere ? 0 : rows.begin * cols - b->p->buffers[g].first_elem;
        orth_operand in = orth_build_vector(g, ORTH_F32, first, rows.count * cols);
        in.num_dims = 2;
        in.dim[0] = rows.count;
        in.dim[1] = cols;
        orth_operand out = orth_operand_rows(sums, base + rows.first_sum, base + rows.first_sum + rows.num_sums);
        out.num_dims = 2;
        out.dim[1] = orth_param_col_parts(p);
        out.dim[0] = rows.num_sums / out.dim[1];
        if (elsewhere || (replica && !b->shards)) {
            in.view = out.view = ORTH_VIEW_OF_FIRST;
        } else if (b->shards) {
            in.view = ORTH_VIEW_SHARD_ROWS;
            out.view = ORTH_VIEW_SUMS;
            in.part = out.part = (uint16_t)q;
        }
        orth_build_emit(b, ORTH_OP_grad_square, &attr, 1, &in, 1, &out);
    }
}

void orth_build_square_early(orth_builder *b, int64_t index, int32_t g)
{
    int64_t base = 0;
    for (int64_t i = 0; i < index; i++)
        base += orth_param_num_sums(&b->spec->params[i]);
    b->squared[index] = true;
    if (counts_norm(b, index))
        square_param(b, index, g, squares_of_all(b), base);
}

/* Whether the gradient is not complete yet, for it waits for a call, or for the other use. */
static bool is_under_way(const orth_builder *b, int64_t index)
{
    const orth_route_stage *join = orth_route_find(orth_build_route(b, index), ORTH_ROUTE_JOIN);
    return orth_build_is_waiting(b, index) || (join && join->when == ORTH_MOMENT_UPDATE);
}

/* Squares of all gradients, from the last parameter to the first: the order of the backward pass, so that what it made
 * last may still be on its way while those before are squared. */
static void square_params(orth_builder *b, orth_operand sums)
{
    const orth_compile_spec *s = b->spec;
    int64_t at = sums.dim[0];
    bool complete = false;
    for (int64_t i = s->num_params - 1; i >= 0 && !b->p->failed; i--) {
        at -= orth_param_num_sums(&s->params[i]);
        if (!complete && is_under_way(b, i)) {
            complete = true;
            orth_build_resume(b, ORTH_TRAVELS_IN_BUCKET);
            join_tied(b);
        }
        if (!counts_norm(b, i) || b->squared[i])
            continue;
        const int32_t g = orth_build_grad_buffer(b, i);
        square_param(b, i, orth_far_bring(b, orth_build_own_elems(b, g, ORTH_F32, i)).buffer, sums, at);
    }
}

/* One rank gives the loss to a sum over NORM. */
static void leave_loss_to_one(orth_builder *b, orth_operand loss)
{
    const int32_t *pos = b->spec->mesh.pos;
    if (!b->shards && orth_build_size(b, ORTH_GROUP_TP) <= 1)
        return;
    if (pos[ORTH_GROUP_TP] == 0) {
        loss.view = ORTH_VIEW_OF_OTHERS;
        loss.dim[0] = b->shards && pos[ORTH_GROUP_SHARD] > 0;
    }
    orth_build_emit(b, ORTH_OP_zero, &(orth_attr){0}, 0, NULL, 1, &loss);
}

/* The loss comes behind the squares: its call would wait for the last bucket of gradients. */
static void clip(orth_builder *b, bool has_loss, orth_operand step)
{
    const orth_operand sums = squares_of_all(b);
    orth_operand loss = orth_build_vector(b->loss, ORTH_F64, 0, 1);
    square_params(b, sums);
    orth_build_loss(b, has_loss);
    if (orth_build_size(b, ORTH_GROUP_NORM) > 1) {
        /* Each sum, and the loss, comes from one rank and is 0 on the others: adding them is exact, and a
         * NaN stays one. */
        leave_loss_to_one(b, loss);
        const orth_operand both[] = {sums, loss};
        orth_build_emit(b, ORTH_OP_all_reduce, &(orth_attr){.group = ORTH_GROUP_NORM}, 2, both, 2, both);
    }
    const orth_operand in[] = {sums, loss};
    orth_build_emit(b, ORTH_OP_clip_scale, &(orth_attr){0}, 2, in, 1, &step);
}

/* ---- update ---- */

/* A vector of whole rows as a matrix. */
static void as_rows(orth_operand *o, int64_t cols)
{
    if (o->buffer < 0)
        return;
    o->num_dims = 2;
    o->dim[0] /= cols;
    o->dim[1] = cols;
    o->view = o->view == ORTH_VIEW_SHARD ? ORTH_VIEW_SHARD_MATRIX : o->view;
}

/* The update of a parameter whose moments are in 8 bits: blocks of them are parts of rows. Returns its op, of as many outputs as out has. */
static orth_op update_8bit(orth_builder *b, int64_t index, orth_attr *attr, orth_operand in[2], orth_operand out[5])
{
    const orth_param_desc *param = &b->spec->params[index];
    const orth_param_desc scales = orth_param_scales(param);
    attr->split = orth_param_moment_split(param);
    out[4] = state(b, "scales", ORTH_BIND_SCALES, ORTH_F32, index);
    as_rows(&in[0], orth_param_cols(param));
    for (int k = 0; k < 5; k++)
        as_rows(&out[k], k < 4 ? orth_param_cols(param) : scales.dim[1]);
    return b->spec->optimizer == ORTH_OP_adamw ? ORTH_OP_adamw_8bit : ORTH_OP_adam_8bit;
}

static void update_param(orth_builder *b, int64_t index, orth_operand step)
{
    const orth_param_desc *param = &b->spec->params[index];
    bool has_copy = b->copy[index] != b->master[index];
    orth_operand in[] = {orth_build_own_elems(b, orth_build_grad_buffer(b, index), ORTH_F32, index), step};
    const orth_dtype kept = b->spec->types.moments, moments = kept == ORTH_U8 && !param->moments_8bit ? ORTH_F32 : kept;
    orth_operand out[5] = {orth_build_own_elems(b, b->master[index], orth_build_param_type(b, b->master[index]), index)};
    orth_op op = b->spec->optimizer;
    int num_out = 1;
    out[num_out++] = b->spec->no_moments ? orth_operand_absent : state(b, "m", ORTH_BIND_M, moments, index);
    if (orth_op_output(op, "v") >= 0)
        out[num_out++] = state(b, "v", ORTH_BIND_V, moments, index);
    out[num_out++] = has_copy ? orth_build_own_elems(b, b->copy[index], b->spec->compute, index) : orth_operand_absent;
    orth_attr attr = {.lr_factor = param->lr_factor, .decay_factor = param->decay_factor, .nesterov = b->spec->nesterov,
                      .stochastic = b->spec->types.stochastic};
    if (attr.stochastic)
        attr.place = orth_param_place(param, index, orth_build_own(b, index).first);
    if (param->moments_8bit) {
        op = update_8bit(b, index, &attr, in, out);
        num_out = ORTH_COUNT(out);
    }
    if (!orth_offload_leaves(b, index)) {
        orth_build_emit(b, op, &attr, 2, in, num_out, out);
        return;
    }
    attr.place.param = index;
    attr.place.first = orth_build_own(b, index).first;
    orth_offload_update(b, index, op, &attr, in, num_out, out);
}

/* Everybody gets everybody's updated shards, in the type that the kernels read. */
static void gather_param(orth_builder *b, int64_t index, orth_group group)
{
    const orth_dtype dtype = orth_build_param_type(b, b->copy[index]);
    orth_bucket *k = orth_build_gathers(b, index, dtype);
    const orth_operand whole = orth_far_room(b, orth_build_vector(b->copy[index], dtype, 0, orth_build_elems(b, index)));
    const orth_bucket_item item = {.use = 2 * index, .in = orth_build_own_elems(b, whole.buffer, dtype, index), .out = whole};
    orth_far_bring_to(b, orth_build_own_elems(b, b->copy[index], dtype, index), item.in);
    if (!orth_bucket_fits(b, k, &item))
        orth_bucket_emit(b, k);
    k->group = group;
    orth_bucket_add(k, &item);
    if (k->bytes >= b->spec->comm.bucket_bytes)
        orth_bucket_emit(b, k);
}

static void gather_updated(orth_builder *b, int64_t index)
{
    const orth_route_stage *gather = orth_route_find(orth_build_route(b, index), ORTH_ROUTE_GATHER_WEIGHT);
    if (gather && gather->when == ORTH_MOMENT_UPDATE)
        gather_param(b, index, gather->over);
}

static bool is_updated(const orth_builder *b, int64_t index, bool by_host)
{
    return orth_build_trains(b, index) && orth_offload_leaves(b, index) == by_host;
}

static bool updates_any(const orth_builder *b, bool by_host)
{
    bool any = false;
    for (int64_t i = 0; i < b->spec->num_params; i++)
        any = any || is_updated(b, i, by_host);
    return any;
}

/* What the host updates. Its update of a parameter ends when that of the next has begun; what is updated is gathered from then on, but
 * where the device updates, too, behind that: a gather that waits for the host would hold it up. Likewise where calls do not overlap: each rank
 * updates its own parameters, and would wait in the gather of those before them until their owner is done. */
static void update_by_host(orth_builder *b, orth_operand step, bool gather)
{
    const orth_operand here = orth_offload_step(b, step);
    int64_t before = -1;
    for (int64_t i = 0; i < b->spec->num_params && !b->p->failed; i++) {
        if (!is_updated(b, i, true))
            continue;
        update_param(b, i, here);
        if (gather && before >= 0)
            gather_updated(b, before);
        before = i;
    }
    orth_offload_finish(b);
    if (gather && before >= 0 && !b->p->failed)
        gather_updated(b, before);
}

/* What is updated already is gathered while the rest is updated. Parameters of a bucket ascend, so those of the host have buckets of their own. */
static void update_params(orth_builder *b, orth_operand step)
{
    const bool stay = updates_any(b, false), leave = updates_any(b, true), along = !stay && b->spec->comm.overlap;
    if (leave)
        update_by_host(b, step, along);
    for (int64_t i = 0; stay && i < b->spec->num_params && !b->p->failed; i++) {
        if (!is_updated(b, i, false))
            continue;
        update_param(b, i, step);
        gather_updated(b, i);
    }
    orth_bucket_emit_gathers(b);
    for (int64_t i = 0; leave && !along && i < b->spec->num_params && !b->p->failed; i++)
        if (is_updated(b, i, true))
            gather_updated(b, i);
    orth_bucket_emit_gathers(b);
}

/* Where the embedding is on another rank, the gradient of a tied parameter is the sum of its use by the
 * head. Only now is it known which uses there are: the head's backward comes first. */
static void name_gradients(orth_builder *b)
{
    for (int64_t i = 0; i < b->spec->num_params && !b->p->failed; i++)
        if (orth_build_trains(b, i))
            b->p->buffers[orth_build_grad_buffer(b, i)].bind = ORTH_BIND_GRAD;
}

static orth_operand step_values(orth_builder *b, int64_t update)
{
    const int64_t bytes = sizeof(orth_step_values);
    return orth_build_vector(b->data[ORTH_DATA_STEP], ORTH_U8, update * bytes, bytes);
}

/* ---- asynchronous: PipeDream (arXiv:1806.03377) ---- */

/* The newest weights are about to change: those that a backward will read again are copied to transient buffers,
 * which live until then. */
static void stash(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    b->version = b->updates;
    for (int64_t i = 0; i < s->num_params && !b->p->failed; i++) {
        if (!orth_build_trains(b, i) || !b->read_by_backward[i])
            continue;
        const orth_operand now = orth_build_param(b, i);
        const char *name = orth_arena_printf(b->ctx, &b->p->arena, "stash.%s", s->params[i].name);
        const orth_operand kept = orth_build_temp(b, name, now);
        orth_build_emit(b, ORTH_OP_copy, &(orth_attr){0}, 1, &now, 1, &kept);
        b->stashed[b->updates * s->num_params + i] = kept.buffer;
    }
}

void orth_build_update_now(orth_builder *b, bool needed)
{
    b->phase = ORTH_PHASE_UPDATE;
    b->layer = -1;
    orth_build_finish_gradients(b, true);
    if (needed)
        stash(b);
    name_gradients(b);
    join_tied(b);
    update_params(b, step_values(b, b->micro_batch));
    b->updates++;
}

/* There is no gradient norm; all ranks are told the loss. */
static void end_asynchronous(orth_builder *b)
{
    const orth_operand loss = orth_build_vector(b->loss, ORTH_F64, 0, 1);
    if (orth_build_size(b, ORTH_GROUP_NORM) == 1)
        return;
    leave_loss_to_one(b, loss);
    orth_build_emit(b, ORTH_OP_all_reduce, &(orth_attr){.group = ORTH_GROUP_NORM}, 1, &loss, 1, &loss);
}

/* ---- the end of a step ---- */

void orth_build_update(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    bool has_loss = false;
    for (int32_t c = 0; c < s->num_chunks; c++)
        has_loss = has_loss || s->chunks[c].head;
    b->phase = ORTH_PHASE_UPDATE;
    b->layer = b->micro_batch = -1;
    if (s->mode != ORTH_MODE_TRAIN || s->async) {
        orth_build_loss(b, has_loss);
        if (s->mode == ORTH_MODE_TRAIN)
            end_asynchronous(b);
        return;
    }
    orth_build_combine(b);
    orth_build_delayed_scales(b);
    clip(b, has_loss, step_values(b, 0));
    name_gradients(b);
    update_params(b, step_values(b, 0));
}
