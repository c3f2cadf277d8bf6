/* bounds.c -- see bounds.h. Letters: m micro-batches of a rank, p stages, v chunks of a stage, n data-parallel ranks. */
#include "plan/bounds.h"

#include <math.h>

#include "plan/device_time.h"
#include "plan/link_time.h"
#include "tensor/q8.h"

#define SMALL_LAYERS 2   /* the first and the last: either may be the cheaper one */
#define SMALL_MICRO_BATCHES 2

orth_status orth_bounds_make(orth_ctx *ctx, orth_bounds *out, const orth_model_config *model, const orth_hardware *h,
                             const orth_model_shape *step)
{
    *out = (orth_bounds){.model = model, .hardware = h, .step = step};
    ORTH_TRY(orth_hardware_peak(ctx, h, step->compute, &out->peak));
    out->cuts = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t *, model->layers + 1);
    out->v_flight = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t *, model->layers + 1);
    return out->cuts && out->v_flight ? ORTH_OK : ORTH_ERR_NOMEM;
}

void orth_bounds_release(orth_ctx *ctx, orth_bounds *b)
{
    orth_arena_release(ctx, &b->arena);
}

/* ---- costs of blocks, read off a small run ---- */

static orth_layout small_layout(const orth_layout *l)
{
    orth_layout s = *l;
    s.dp = s.pp = s.virtual_stages = 1;
    s.num_ranks = s.zero = s.shard_group = s.keep_whole = s.num_stage_layers = s.num_dp_share = 0;
    s.owner = s.whole_layers = false;
    s.stage_layers = s.dp_share = NULL;
    s.pipeline = "1f1b";
    s.global_batch = SMALL_MICRO_BATCHES * l->micro_batch;
    return s;
}

static orth_piece piece_of_layer(int32_t layer)
{
    return layer < 0 ? ORTH_PIECE_EMBED : layer >= SMALL_LAYERS ? ORTH_PIECE_HEAD : ORTH_PIECE_LAYER;
}

/* What one layer, or a section, took of one micro-batch. */
typedef struct {
    double forward, backward, forward_alone, alone, weights, again;
} taken;

/* The call that instruction i waited for: of its events, the last to be complete. -1: none in another queue. */
static int32_t waited_for(const orth_program *p, const int64_t *clock, int32_t i)
{
    int32_t last = -1;
    for (int k = 0; k < p->instrs[i].num_waits; k++) {
        int32_t call = -1;
        for (int32_t left = p->instrs[i].waits[k].count; left > 0; left -= p->instrs[call].queue == p->instrs[i].waits[k].queue)
            call++;
        if (p->instrs[call].queue > 0 && (last < 0 || orth_clock_end(clock, call) > orth_clock_end(clock, last)))
            last = call;
    }
    return last;
}

/* Instruction n, or an event of it, held the rank for s seconds. NULL: it belongs to no micro-batch. */
static taken *take(taken t[SMALL_LAYERS + 2][SMALL_MICRO_BATCHES], const orth_instr *n, double s, bool cp)
{
    if (n->phase == ORTH_PHASE_UPDATE || n->micro_batch < 0)
        return NULL;
    const bool call = orth_op_is_comm(n->op);
    taken *x = &t[n->layer + 1][n->micro_batch];
    *(n->phase == ORTH_PHASE_FORWARD ? &x->forward : &x->backward) += cp && call && n->phase == ORTH_PHASE_BACKWARD ? 0 : s;
    x->alone += n->phase == ORTH_PHASE_BACKWARD && !call ? s : 0;
    x->forward_alone += n->phase == ORTH_PHASE_FORWARD && !call ? s : 0;
    x->again += n->recomputed && !call ? s : 0;
    return x;
}

/* Time that instructions held the rank, the least of layers and micro-batches. A clock is rounded to ns. Where gradients are summed over
 * cp, the calls of the backward may wait for those sums, which bubbles of a pipeline hide: only computing counts there. */
static void read_times(const orth_program *p, const int64_t *clock, const orth_hardware *h, bool cp, orth_block_costs *out)
{
    taken t[SMALL_LAYERS + 2][SMALL_MICRO_BATCHES] = {{{0}}};
    int64_t now = clock[0];
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        const int32_t by = waited_for(p, clock, i);
        if (by >= 0)
            take(t, &p->instrs[by], 1e-9 * (double)(orth_clock_begin(clock, i) - now), cp);
        now = n->queue > 0 ? orth_clock_begin(clock, i) : orth_clock_end(clock, i);
        taken *x = take(t, n, 1e-9 * (double)(now - orth_clock_begin(clock, i)), cp);
        if (x && orth_op_role_of(n->op) == ORTH_ROLE_WEIGHTS && orth_op_family_of(n->op) == ORTH_OPS_PRODUCT)
            x->weights += orth_device_seconds(h, n);
    }
    for (int l = 0; l < SMALL_LAYERS + 2; l++)
        for (int k = 0; k < SMALL_MICRO_BATCHES; k++) {
            orth_piece_cost *c = &out->piece[piece_of_layer(l - 1)];
            const bool first = k == 0 && l != 2;
            c->forward_s = first ? t[l][k].forward : fmin(c->forward_s, t[l][k].forward);
            c->forward_alone_s = first ? t[l][k].forward_alone : fmin(c->forward_alone_s, t[l][k].forward_alone);
            c->backward_s = first ? t[l][k].backward : fmin(c->backward_s, t[l][k].backward);
            c->backward_alone_s = first ? t[l][k].alone : fmin(c->backward_alone_s, t[l][k].alone);
            c->again_s = first ? t[l][k].again : fmax(c->again_s, t[l][k].again);
            c->weights_s = fmin(c->backward_alone_s, first ? t[l][k].weights : fmax(c->weights_s, t[l][k].weights));
        }
    for (int k = 0; k < ORTH_NUM_PIECES; k++) {
        out->piece[k].forward_s = fmax(0, out->piece[k].forward_s - 1e-9);
        out->piece[k].backward_s = fmax(0, out->piece[k].backward_s - 1e-9);
        out->piece[k].forward_alone_s = fmax(0, out->piece[k].forward_alone_s - 1e-9);
        out->piece[k].backward_alone_s = fmax(0, out->piece[k].backward_alone_s - 1e-9);
    }
}

/* Seconds of an element, all else spread over all. Where some weights have moments in 8 bits, a stage may hold none but those: the least of
 * all updates. */
static void read_update(const orth_program *p, const orth_compile_spec *spec, const orth_hardware *h, double elems, orth_block_costs *out)
{
    const bool mixed = spec->types.moments == ORTH_U8;
    double least = INFINITY;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->phase != ORTH_PHASE_UPDATE || orth_op_is_comm(n->op))
            continue;
        if (orth_op_family_of(n->op) == ORTH_OPS_OPTIMIZER)
            out->host_update_s += orth_instr_cost(n).bytes / (1e9 * h->node_memory_GBps) / elems;
        const double s = orth_device_seconds(h, n) - 1e-6 * h->device_launch_us;
        const orth_tensor param = orth_operand_tensor(&n->out[0]);
        if (mixed && orth_op_family_of(n->op) == ORTH_OPS_OPTIMIZER)
            least = fmin(least, s / (double)orth_tensor_elems(&param));
        else
            out->update_s += s;
    }
    out->update_s = out->update_s / elems + (mixed ? least : 0);
}

/* What the instructions of a section take on the devices of group g, over what they take on the best: the least of sections and phases. */
static double read_slower(const orth_program *p, const orth_bounds *b, int g)
{
    double best[ORTH_NUM_PIECES][2] = {{0}}, own[ORTH_NUM_PIECES][2] = {{0}}, least = INFINITY;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        const orth_piece k = piece_of_layer(n->layer);
        const bool back = n->phase == ORTH_PHASE_BACKWARD;
        if (n->phase == ORTH_PHASE_UPDATE || n->micro_batch < 0 || orth_op_is_comm(n->op))
            continue;
        best[k][back] += orth_device_seconds(b->hardware, n);
        own[k][back] += orth_device_seconds(&b->groups->mixed->group[g].own, n);
    }
    for (int k = 0; k < ORTH_NUM_PIECES; k++)
        for (int back = 0; back < 2; back++)
            least = best[k][back] > 0 ? fmin(least, own[k][back] / best[k][back]) : least;
    return isfinite(least) ? fmax(1, least) : 1;
}

/* Parameters are numbered section by section, and all layers have as many. */
static orth_piece piece_of_param(const orth_param_desc *d)
{
    return strncmp(d->name, "layers.", 7) == 0 ? ORTH_PIECE_LAYER
         : strncmp(d->name, "embed.", 6) == 0 || strncmp(d->name, "pos.", 4) == 0 ? ORTH_PIECE_EMBED : ORTH_PIECE_HEAD;
}

static void read_states(const orth_program *p, const orth_compile_spec *spec, orth_block_costs *out)
{
    for (int64_t i = 0; i < spec->num_params; i++) {
        const orth_piece k = piece_of_param(&spec->params[i]);
        double elems = 1;
        for (int d = 0; d < spec->params[i].num_dims; d++)
            elems *= (double)spec->params[i].dim[d];
        out->piece[k].elems += elems / (k == ORTH_PIECE_LAYER ? SMALL_LAYERS : 1);
    }
    for (int32_t i = 0; i < p->num_buffers; i++) {
        const orth_buffer *b = &p->buffers[i];
        const bool of_param = b->bind == ORTH_BIND_MASTER || b->bind == ORTH_BIND_COPY || b->bind == ORTH_BIND_GRAD ||
                              b->bind == ORTH_BIND_M || b->bind == ORTH_BIND_V || b->bind == ORTH_BIND_SCALES;
        if (!b->persistent || !of_param)
            continue;
        const orth_piece k = piece_of_param(&spec->params[b->index]);
        orth_piece_cost *c = &out->piece[k];
        *(b->cls == ORTH_CLASS_PARAMS ? &c->params : b->cls == ORTH_CLASS_GRADS ? &c->grads : &c->optimizer) +=
            (double)b->bytes / (k == ORTH_PIECE_LAYER ? SMALL_LAYERS : 1);
    }
}

/* Bytes of transient buffers that are alive when the forward of the first micro-batch ends, by whose layer wrote them: the least of the
 * layers. Buffers that take over each other's bytes count once. */
static orth_status read_kept(orth_ctx *ctx, const orth_program *p, orth_block_costs *out)
{
    double bytes[SMALL_LAYERS + 2] = {0};
    int32_t end = -1;
    bool *seen = ORTH_NEW_ARRAY(ctx, bool, p->num_buffers);
    if (!seen)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < p->num_instrs; i++)
        if (p->instrs[i].phase == ORTH_PHASE_FORWARD && p->instrs[i].micro_batch == 0 && p->instrs[i].layer >= 0 &&
            p->instrs[i].layer < SMALL_LAYERS)
            end = i;
    for (int32_t i = 0; i < p->num_buffers; i++) {
        const orth_buffer *b = &p->buffers[i];
        const int32_t root = orth_buffer_root(p, i);
        if (b->persistent || b->first < 0 || b->first > end || b->last <= end || i == p->workspace || seen[root])
            continue;
        seen[root] = true;
        bytes[p->instrs[b->first].layer + 1] += (double)b->bytes;
    }
    orth_mem_free(ctx, seen);
    out->piece[ORTH_PIECE_LAYER].kept = fmin(bytes[1], bytes[2]);
    return ORTH_OK;
}

/* The small run. Its ranks are alike, so that the program of the first is taken for all of them; only messages around a ring need the
 * programs of all. */
typedef struct {
    orth_partition partition;
    orth_programs_spec spec;
    orth_programs programs;     /* of a ring */
    orth_rank_programs rank_programs;      /* else */
    bool ring;
    orth_arena arena;
} small_run;

static orth_status program_of(orth_ctx *ctx, void *user, int rank, orth_rank_program *out)
{
    const orth_compiled *u = &((small_run *)user)->rank_programs.step;
    (void)ctx, (void)rank;
    *out = (orth_rank_program){&u->program, u->blocks.spec.params, u->blocks.spec.num_params};
    return ORTH_OK;
}

static int first_rank(void *user, int rank)
{
    (void)user, (void)rank;
    return 0;
}

static const orth_param_desc *params_of(void *user, int rank)
{
    (void)rank;
    return ((small_run *)user)->rank_programs.step.blocks.spec.params;
}

static int group_of(void *user, int rank, orth_group group, int *ranks)
{
    return orth_partition_group(&((small_run *)user)->partition, rank, group, ranks);
}

static orth_rank_groups groups_of(void *user, int rank)
{
    return orth_partition_groups(&((small_run *)user)->partition, rank);
}

static orth_rank_source source_of(small_run *r)
{
    if (r->ring)
        return orth_programs_source(&r->programs);
    return (orth_rank_source){.num_ranks = r->partition.mesh.num_ranks, .user = r, .same_as = first_rank, .twin_of = first_rank,
                              .program = program_of, .params = params_of, .group = group_of, .groups = groups_of};
}

static orth_status build_small(orth_ctx *ctx, small_run *r)
{
    orth_chunk *chunks = ORTH_ARENA_ARRAY(ctx, &r->arena, orth_chunk, 1);
    if (!chunks)
        return ORTH_ERR_NOMEM;
    r->spec.partition = &r->partition;
    return r->ring ? orth_programs_make(ctx, &r->programs, &r->spec) : orth_rank_programs_build(ctx, &r->spec, 0, NULL, chunks, &r->rank_programs);
}

/* All clocks of a run whose ranks are alike are one. */
static orth_status clocks_of(orth_ctx *ctx, const orth_bounds *b, small_run *r, const orth_compiled **compiled, int64_t ***out)
{
    const orth_rank_source source = source_of(r);
    int64_t **clocks = ORTH_ARENA_ARRAY(ctx, &r->arena, int64_t *, source.num_ranks);
    if (!clocks)
        return ORTH_ERR_NOMEM;
    for (int k = 0; k < source.num_ranks; k++) {
        orth_rank_program p;
        ORTH_TRY(source.program(ctx, source.user, k, &p));
        clocks[k] = k > 0 && !r->ring ? clocks[0] : ORTH_ARENA_ARRAY(ctx, &r->arena, int64_t, orth_clock_length(p.program->num_instrs));
        if (!clocks[k])
            return ORTH_ERR_NOMEM;
    }
    ORTH_TRY(orth_cluster_clocks(ctx, &source, &r->partition, b->hardware, clocks));
    *compiled = &r->rank_programs.step;
    *out = clocks;
    return r->ring ? orth_programs_of(ctx, &r->programs, 0, compiled) : ORTH_OK;
}

static orth_status read_costs(orth_ctx *ctx, const orth_bounds *b, small_run *r, orth_block_costs *out)
{
    const orth_compiled *compiled;
    int64_t **clocks;
    double elems = 0;
    ORTH_TRY(clocks_of(ctx, b, r, &compiled, &clocks));
    *out = (orth_block_costs){.update_s = 0};
    read_times(&compiled->program, clocks[0], b->hardware, r->partition.layout.cp > 1, out);
    read_states(&compiled->program, &compiled->blocks.spec, out);
    for (int k = 0; k < ORTH_NUM_PIECES; k++)
        elems += out->piece[k].elems * (k == ORTH_PIECE_LAYER ? SMALL_LAYERS : 1);
    read_update(&compiled->program, &compiled->blocks.spec, b->hardware, elems, out);
    for (int g = 0; b->groups && g < b->groups->mixed->num_groups; g++)
        out->slower[g] = read_slower(&compiled->program, b, g);
    return read_kept(ctx, &compiled->program, out);
}

/* What is elsewhere takes nothing of the device. The host updates what it has at its own rate, beside the rest of the update. */
static void leave_out_offloaded(const orth_offload *o, orth_block_costs *out)
{
    for (int k = 0; k < ORTH_NUM_PIECES; k++) {
        orth_piece_cost *p = &out->piece[k];
        p->kept = o->activations != ORTH_TIER_NONE ? 0 : p->kept;
        p->params = o->params != ORTH_TIER_NONE ? 0 : p->params;
        p->grads = o->gradients != ORTH_TIER_NONE ? 0 : p->grads;
        p->optimizer = o->optimizer != ORTH_TIER_NONE ? 0 : p->optimizer;
    }
    out->update_s = o->optimizer != ORTH_TIER_NONE ? out->host_update_s : out->update_s;
}

void orth_block_costs_offload(orth_block_costs *c)
{
    leave_out_offloaded(&(orth_offload){.optimizer = ORTH_TIER_HOST}, c);
}

orth_status orth_block_costs_read(orth_ctx *ctx, const orth_bounds *b, const orth_layout *l, const orth_recompute *recompute,
                                  orth_block_costs *out)
{
    orth_model_config model = *b->model;
    const orth_layout small = small_layout(l);
    small_run r = {.ring = l->cp > 1 && l->cp_kind == ORTH_CP_RING};
    model.layers = SMALL_LAYERS;
    r.spec = (orth_programs_spec){.model = &model, .step = *b->step, .num_threads = 1};
    r.spec.step.recompute = *recompute;
    r.spec.step.offload = (orth_offload){.optimizer = ORTH_TIER_NONE}; /* copies only add to times */
    r.spec.step.parts = (int32_t)l->parts;
    r.spec.step.lr_factors.num = r.spec.step.decay_factors.num = 0; /* they cost nothing, and may name a layer that is not here */
    ORTH_TRY(orth_partition_make(ctx, &r.partition, &small, &model));
    orth_status s = build_small(ctx, &r);
    if (s == ORTH_OK) {
        s = read_costs(ctx, b, &r, out);
        leave_out_offloaded(&b->step->offload, out);
        if (r.ring)
            orth_programs_release(ctx, &r.programs);
        else
            orth_rank_programs_release(&r.rank_programs);
    }
    orth_partition_release(ctx, &r.partition);
    orth_arena_release(ctx, &r.arena);
    return s;
}

/* ---- groups on the links ---- */

/* n ranks that lie `stride` apart, as close as they can be. */
static orth_link_place group_place(const orth_hardware *h, int64_t n, int64_t stride)
{
    const int64_t fit = orth_div_up((int64_t)h->node_devices, stride), k = ORTH_MAX(1, ORTH_MIN(n, fit));
    return (orth_link_place){.n = (int32_t)n, .per_node = (int32_t)k, .num_nodes = (int32_t)orth_div_up(n, k), .same_node = n <= k};
}

static double call_seconds(const orth_bounds *b, orth_comm_kind kind, double bytes, int64_t n, int64_t stride)
{
    const orth_link_place place = group_place(b->hardware, n, stride);
    return orth_link_seconds(b->hardware, kind, bytes, &place, NULL);
}

/* Bytes of what one micro-batch hands from block to block on a rank. */
static double rows_bytes(const orth_bounds *b, const orth_layout *l)
{
    return (double)(l->micro_batch * l->seq_len / l->cp * b->model->hidden) * (double)orth_dtype_bytes(b->step->compute);
}

/* A smaller product may fill its tiles and rounds better by chance. */
#define LUCK 0.9

void orth_block_costs_scale(const orth_bounds *b, const orth_block_costs *one, const orth_layout *l, orth_block_costs *out)
{
    const double tp = 1.0 / (double)l->tp, share = l->tp * l->cp == 1 ? 1 : LUCK * tp / (double)l->cp, rows = rows_bytes(b, l);
    orth_piece_cost *layer = &out->piece[ORTH_PIECE_LAYER];
    *out = (orth_block_costs){.update_s = one->update_s, .host_update_s = one->host_update_s};
    for (int g = 0; g < ORTH_MAX_DEVICE_GROUPS; g++)
        out->slower[g] = fmax(1, one->slower[g] * (l->tp * l->cp == 1 ? 1 : LUCK));
    for (int k = 0; k < ORTH_NUM_PIECES; k++) {
        const orth_piece_cost *from = &one->piece[k];
        out->piece[k] = (orth_piece_cost){.forward_s = from->forward_s * share, .forward_alone_s = from->forward_alone_s * share,
                                          .backward_s = from->backward_alone_s * share, .backward_alone_s = from->backward_alone_s * share,
                                          .weights_s = from->weights_s * share / LUCK, .again_s = from->again_s * share / LUCK,
                                          .elems = from->elems * tp, .params = from->params * tp, .grads = from->grads * tp,
                                          .optimizer = from->optimizer * tp};
    }
    if (l->tp > 1)
        layer->forward_s += 4 * call_seconds(b, ORTH_COMM_REDUCE_SCATTER, rows, l->tp, 1);
    if (l->cp > 1 && l->cp_kind == ORTH_CP_ALL_GATHER) { /* of keys and values */
        const double kv = 2.0 * (double)(b->model->kv_heads * b->model->head_dim) / (double)b->model->hidden * tp;
        layer->forward_s += call_seconds(b, ORTH_COMM_ALL_GATHER, rows * (double)l->cp * kv, l->cp, l->tp);
    }
}

/* ---- a layout ---- */

/* What is the same for all stages. */
typedef struct {
    orth_bounds *b;
    const orth_block_costs *c;
    const orth_layout *l;
    const int32_t *cut;     /* [chunks + 1] */
    int32_t chunks;
    double m, send;         /* send: seconds of a message to the next stage */
    bool split, v_shape;    /* schedules with BI and W; whose second chunks lie in reverse */
} layout_bound;

/* Sums over the chunks of a stage. */
typedef struct {
    double forward, backward, input;    /* of a micro-batch; input: backward without weights */
    double computing;                   /* of both */
    double returning;                   /* from the gradient that a backward gets to the one that it sends on */
    double elems, params, grads, optimizer;
    int32_t layers, least;              /* of all its chunks, of the one with the fewest */
} stage_sum;

/* Schedules that split the backward do weight products beside calls, too: only computing is sure to take time. */
static void add_piece(stage_sum *s, const orth_piece_cost *p, double times, bool split)
{
    s->forward += times * p->forward_s;
    s->backward += times * (split ? p->backward_alone_s : p->backward_s);
    s->computing += times * (p->forward_alone_s + p->backward_alone_s);
    s->input += times * fmax(0, p->backward_alone_s - p->weights_s);
    /* What is repeated of the forward waits for no gradient. */
    s->returning += times * fmax(0, split ? p->backward_alone_s - p->weights_s - p->again_s
                                          : p->again_s > 0 ? p->backward_alone_s - p->again_s : p->backward_s);
    s->elems += times * p->elems;
    s->params += times * p->params;
    s->grads += times * p->grads;
    s->optimizer += times * p->optimizer;
}

static void add_chunk(const layout_bound *x, stage_sum *s, int32_t chunk)
{
    const orth_piece_cost *pieces = x->c->piece, *embed = &pieces[ORTH_PIECE_EMBED];
    const int32_t layers = x->cut[chunk + 1] - x->cut[chunk];
    const bool first = chunk == 0, last = chunk == x->chunks - 1;
    add_piece(s, &pieces[ORTH_PIECE_LAYER], layers, x->split);
    if (first)
        add_piece(s, embed, 1, x->split);
    if (last)
        add_piece(s, &pieces[ORTH_PIECE_HEAD], 1, x->split);
    if (last && !first && x->b->model->tied && !x->v_shape) { /* its own copy of the embedding's matrix */
        s->elems += embed->elems;
        s->params += embed->params;
        s->grads += embed->grads;
        s->optimizer += embed->optimizer;
    }
    s->least = s->layers == 0 ? layers : ORTH_MIN(s->least, layers);
    s->layers += layers;
}

static stage_sum stage_of(const layout_bound *x, int64_t stage)
{
    const int64_t p = x->l->pp;
    stage_sum s = {0};
    for (int64_t i = 0; i < x->l->virtual_stages; i++)
        add_chunk(x, &s, (int32_t)(x->v_shape && i == 1 ? 2 * p - 1 - stage : i * p + stage));
    return s;
}

/* Seconds of what data-parallel ranks send each other of a stage's `elems` parameters: per_step before the norm, after after it, and
 * per_micro_batch in each. Of many calls one with all bytes takes the least. */
static void data_parallel(layout_bound *x, const stage_sum *s, double *per_step, double *per_micro_batch, double *after)
{
    const orth_layout *l = x->l;
    const int64_t n = l->dp, shards = l->shard_group ? l->shard_group : n, stride = l->tp * l->cp;
    const orth_dtype reduced = x->b->step->comm.reduce;
    const double whole = (double)orth_dtype_bytes(reduced) / (double)orth_dtype_numbers(reduced) * s->elems, copy = (double)orth_dtype_bytes(x->b->step->compute);
    *per_step = *per_micro_batch = *after = 0;
    if (n == 1)
        return;
    const double scatter = l->zero == 0 ? 0 : call_seconds(x->b, ORTH_COMM_REDUCE_SCATTER, whole, shards, stride);
    const double layers = s->layers * x->c->piece[ORTH_PIECE_LAYER].elems;
    if (l->zero == 0)
        *per_step = call_seconds(x->b, ORTH_COMM_ALL_REDUCE, whole, n, stride);
    else if (l->zero == 1)
        *per_step = scatter;
    else
        *per_micro_batch = scatter;
    if (l->zero == 1 || l->zero == 2)
        *after = call_seconds(x->b, ORTH_COMM_ALL_GATHER, copy * s->elems, shards, stride);
    if (l->zero == 3 && l->keep_whole == 0) {
        /* Layers twice, before forward and backward, if none stays whole in between. */
        const double gathered = x->b->step->comm.keep_gathered ? 0 : s->elems + (x->b->step->comm.reuse_elems > 0 ? 0 : layers);
        *per_micro_batch += call_seconds(x->b, ORTH_COMM_ALL_GATHER, copy * gathered, shards, stride);
    }
}

static double update_seconds(const layout_bound *x, const stage_sum *s)
{
    const orth_layout *l = x->l;
    const double sharers = l->zero == 0 ? 1 : (double)(l->shard_group ? l->shard_group : l->dp);
    return x->c->update_s * s->elems / sharers;
}

static double step_bound(layout_bound *x)
{
    double start = 0, back = 0, computed = 0, after = 0, alone = 0;
    for (int64_t stage = 0; stage < x->l->pp; stage++) {
        const stage_sum s = stage_of(x, stage);
        double per_step, per_micro_batch, gather;
        stage_sum first = {0};
        add_chunk(x, &first, (int32_t)stage);
        data_parallel(x, &s, &per_step, &per_micro_batch, &gather);
        const double work = x->m * (s.forward + s.backward), tail = fmax(gather, update_seconds(x, &s));
        double end = start + work;
        /* Gradients of the last backward are reduced when it has begun; of several chunks the last may be any. */
        if (x->l->virtual_stages == 1)
            end = fmax(end, start + work - s.backward + per_step);
        const double returned = x->split ? start + x->m * (s.forward + s.input) + back : start + work + back;
        computed = fmax(computed, fmax(fmax(end, returned), x->m * per_micro_batch));
        after = fmax(after, tail);
        alone = fmax(alone, fmax(end + tail, x->m * per_micro_batch + gather));
        start += first.forward + x->send;
        /* Weight products of the layer that sends its gradient on may come after that. */
        back += fmax(0, first.returning - (x->split ? 0 : x->c->piece[ORTH_PIECE_LAYER].weights_s)) + x->send;
    }
    return x->l->clips ? fmax(computed + after, alone) : fmax(computed, alone);
}

/* slower [dp * pp]: of the ranks of each stage of each data-parallel rank, how many times as long as on the best devices the slowest computes. */
static orth_status find_slower(orth_ctx *ctx, const layout_bound *x, double *slower)
{
    const orth_layout *l = x->l;
    const orth_mesh_options options = {.dp = l->dp, .tp = l->tp, .pp = l->pp, .cp = l->cp, .shard_group = l->shard_group, .order = l->order};
    orth_mesh mesh;
    ORTH_TRY(orth_mesh_init(ctx, &mesh, &options));
    for (int r = 0; r < mesh.num_ranks; r++) {
        const int64_t at = orth_mesh_group_pos(&mesh, r, ORTH_AXES_DP) * l->pp + orth_mesh_coord(&mesh, r, ORTH_AXIS_PP);
        slower[at] = fmax(slower[at], x->c->slower[orth_mixed_group_of(x->b->groups, r)]);
    }
    return ORTH_OK;
}

/* A step whose ranks only work, on different devices: a data-parallel rank takes what its slowest stage takes for a micro-batch. Calls may hide behind slower
 * computing. With equal shares the slowest rank decides; others may be in proportion at best. */
static double work_bound(const layout_bound *x, const double *slower)
{
    const orth_layout *l = x->l;
    double speed = 0, slowest = 0;
    for (int64_t d = 0; d < l->dp; d++) {
        double seconds = 0;
        for (int64_t stage = 0; stage < l->pp; stage++) {
            const stage_sum s = stage_of(x, stage);
            seconds = fmax(seconds, fmax(s.forward + s.backward, slower[d * l->pp + stage] * s.computing));
        }
        speed += 1 / seconds;
        slowest = fmax(slowest, seconds);
    }
    return l->zero >= 2 ? x->m * slowest : x->m * (double)l->dp / speed;
}

static orth_status mixed_bound(orth_ctx *ctx, const layout_bound *x, double *out)
{
    double *slower = ORTH_NEW_ARRAY(ctx, double, x->l->dp * x->l->pp);
    const orth_status s = slower ? find_slower(ctx, x, slower) : ORTH_ERR_NOMEM;
    *out = s == ORTH_OK ? work_bound(x, slower) : 0;
    orth_mem_free(ctx, slower);
    return s;
}

/* (Chunk, micro-batch) pairs that a stage has between forward and backward at once, at least. */
static double in_flight(const layout_bound *x, int64_t stage)
{
    const double p = (double)x->l->pp, v = (double)x->l->virtual_stages, m = x->m, left = p - (double)stage;
    if (strcmp(x->l->pipeline, "gpipe") == 0)
        return m;
    if (strcmp(x->l->pipeline, "interleaved") == 0 && v > 1)
        return fmin(m * v, 2 * (left - 1) + (v - 1) * p + 1);
    if (x->v_shape)
        return x->b->v_flight[x->l->pp][(int64_t)fmin(m, 2 * p) * x->l->pp + stage];
    if (strcmp(x->l->pipeline, "1f1b") == 0 || strcmp(x->l->pipeline, "zb-h1") == 0)
        return fmin(m, left);
    return 1;
}

/* Partial sums of a gradient that wait for others in the tree over `leaves` micro-batches: as many as a number up to that has ones. In fast mode
 * there is no tree but one running sum. */
static double partial_sums(const orth_layout *l, double leaves)
{
    return leaves < 1 ? 0 : l->reproducible ? floor(log2(leaves + 1)) : 1;
}

static double stage_bytes(const layout_bound *x, int64_t stage)
{
    const orth_layout *l = x->l;
    const stage_sum s = stage_of(x, stage);
    const double n = (double)(l->shard_group ? l->shard_group : l->dp), flight = in_flight(x, stage);
    const double states = s.params / (l->zero >= 3 ? n : 1) + s.grads / (l->zero >= 2 ? n : 1) + s.optimizer / (l->zero >= 1 ? n : 1);
    const double kept = flight * x->c->piece[ORTH_PIECE_LAYER].kept * (l->virtual_stages > 1 ? s.least : s.layers);
    if (l->zero >= 2 && l->dp > 1)
        return states + kept;
    /* One partial sum is the gradient itself. */
    const double with_kept = fmax(0, partial_sums(l, x->m - flight) - 1), alone = fmax(0, partial_sums(l, x->m) - 1);
    return states + fmax(kept + (l->virtual_stages == 1 ? with_kept * s.grads : 0), alone * s.grads);
}

/* A message to the next stage, over the faster of the links that may be between two stages. */
static double send_seconds(const orth_bounds *b, const orth_layout *l)
{
    const int64_t stride = l->tp * l->cp * l->dp;
    const bool some_near = stride < (int64_t)b->hardware->node_devices, some_far = stride * l->pp > (int64_t)b->hardware->node_devices;
    const double bytes = rows_bytes(b, l) / (l->sequence_parallel ? (double)l->tp : 1);
    orth_link_place place = {.n = (int32_t)l->pp, .per_node = 1, .num_nodes = (int32_t)l->pp};
    if (l->pp == 1)
        return 0;
    const double far = some_far ? orth_link_seconds(b->hardware, ORTH_COMM_SEND, bytes, &place, NULL) : INFINITY;
    place.same_node = true;
    return some_near ? fmin(far, orth_link_seconds(b->hardware, ORTH_COMM_SEND, bytes, &place, NULL)) : far;
}

static orth_status cut_of(orth_ctx *ctx, orth_bounds *b, const orth_layout *l, int64_t chunks, const int32_t **out)
{
    if (!b->cuts[chunks]) {
        int32_t *cut = ORTH_ARENA_ARRAY(ctx, &b->arena, int32_t, chunks + 1);
        if (!cut)
            return ORTH_ERR_NOMEM;
        ORTH_TRY(orth_partition_cut(ctx, l, b->model, (int)chunks, cut));
        b->cuts[chunks] = cut;
    }
    *out = b->cuts[chunks];
    return ORTH_OK;
}

/* Most pairs of a rank between F and BI at once. */
static int32_t peak_of(const orth_action_list *l)
{
    int32_t now = 0, peak = 0;
    for (int32_t i = 0; i < l->num_actions; i++) {
        now += l->actions[i].kind == ORTH_ACTION_F;
        now -= l->actions[i].kind == ORTH_ACTION_BI || l->actions[i].kind == ORTH_ACTION_B;
        peak = ORTH_MAX(peak, now);
    }
    return peak;
}

/* zb-v has no closed form: counted in its schedule, of 2 p micro-batches at most, since more of them have no fewer under way. */
static orth_status count_v_flight(orth_ctx *ctx, orth_bounds *b, int64_t p, int64_t m)
{
    orth_arena arena = {0};
    orth_schedule schedule;
    m = ORTH_MIN(m, 2 * p);
    if (!b->v_flight[p])
        b->v_flight[p] = ORTH_ARENA_ARRAY(ctx, &b->arena, int32_t, (2 * p + 1) * p);
    if (!b->v_flight[p])
        return ORTH_ERR_NOMEM;
    if (b->v_flight[p][m * p])
        return ORTH_OK;
    const orth_status s = orth_schedule_make(ctx, &arena, &schedule, "zb-v", (int)p, 2, (int)m);
    for (int64_t r = 0; s == ORTH_OK && r < p; r++)
        b->v_flight[p][m * p + r] = peak_of(&schedule.lists[r]);
    orth_arena_release(ctx, &arena);
    return s;
}

orth_status orth_bound_of(orth_ctx *ctx, orth_bounds *b, const orth_block_costs *c, const orth_layout *l, orth_bound *out)
{
    const orth_schedule_kind *kind = orth_schedule_kind_find(l->pipeline);
    layout_bound x = {.b = b, .c = c, .l = l, .chunks = (int32_t)(l->pp * l->virtual_stages),
                      .m = (double)orth_layout_micro_batches(l, 0), .send = send_seconds(b, l), .split = kind && kind->split,
                      .v_shape = strcmp(l->pipeline, "zb-v") == 0 && l->virtual_stages == 2};
    ORTH_TRY(cut_of(ctx, b, l, x.chunks, &x.cut));
    if (x.v_shape)
        ORTH_TRY(count_v_flight(ctx, b, l->pp, (int64_t)x.m));
    double mixed = 0;
    if (b->groups)
        ORTH_TRY(mixed_bound(ctx, &x, &mixed));
    *out = (orth_bound){.step_s = fmax(step_bound(&x), mixed)};
    for (int64_t stage = 0; stage < l->pp; stage++)
        out->bytes = fmax(out->bytes, stage_bytes(&x, stage));
    return ORTH_OK;
}
