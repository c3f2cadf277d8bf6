/* block_costs.c -- what the sections of a model take on a rank, read off the program of a small run: bounds.h. */
#include <math.h>

#include "plan/bounds.h"
#include "plan/device_time.h"

#define SMALL_LAYERS 2   /* the first and the last: either may be the cheaper one */
#define SMALL_MICRO_BATCHES 2

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
 * all updates, on the device and on the host. */
static void read_update(const orth_program *p, const orth_compile_spec *spec, const orth_hardware *h, double elems, orth_block_costs *out)
{
    const bool mixed = spec->types.moments == ORTH_U8;
    double least = INFINITY, least_host = INFINITY, host = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->phase != ORTH_PHASE_UPDATE || orth_op_is_comm(n->op))
            continue;
        const bool update = orth_op_family_of(n->op) == ORTH_OPS_OPTIMIZER;
        const double s = orth_device_seconds(h, n) - 1e-6 * h->device_launch_us, there = orth_instr_cost(n).bytes / (1e9 * h->node_memory_GBps);
        const double of = (double)orth_operand_elems(&n->out[0]);
        if (update) {
            host += there;
            least_host = fmin(least_host, there / of);
        }
        if (mixed && update)
            least = fmin(least, s / of);
        else
            out->update_s += s;
    }
    out->update_s = out->update_s / elems + (mixed ? least : 0);
    out->host_update_s = mixed ? least_host : host / elems;
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
         : strncmp(d->name, "embed.", 6) == 0 ? ORTH_PIECE_EMBED
         : strncmp(d->name, "pos.", 4) == 0 ? ORTH_PIECE_POSITIONS : ORTH_PIECE_HEAD;
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

/* seen: packed weights, which are kept once, whatever is under way. stays: buffers that no activation offload takes away, since an instruction
 * behind `end` writes them (offload_activations.c). */
static void find_staying(const orth_program *p, int32_t end, bool *seen, bool *stays)
{
    for (int32_t i = 0; i < p->num_instrs; i++)
        for (int k = 0; k < p->instrs[i].num_out; k++) {
            const int32_t to = p->instrs[i].out[k].buffer;
            if (to >= 0 && orth_op_family_of(p->instrs[i].op) == ORTH_OPS_PACK)
                seen[orth_buffer_root(p, to)] = true;
            if (to >= 0 && i > end)
                stays[to] = true;
        }
}

/* The last instruction of the layers in the forward of the first micro-batch. */
static int32_t end_of_forward(const orth_program *p)
{
    int32_t end = -1;
    for (int32_t i = 0; i < p->num_instrs; i++)
        if (p->instrs[i].phase == ORTH_PHASE_FORWARD && p->instrs[i].micro_batch == 0 && p->instrs[i].layer >= 0 &&
            p->instrs[i].layer < SMALL_LAYERS)
            end = i;
    return end;
}

/* Bytes of transient buffers that are alive when the forward of the first micro-batch ends, by whose layer wrote them, and of those that
 * leave if activations do: the least of the layers. Buffers that take over each other's bytes count once. */
static orth_status read_kept(orth_ctx *ctx, const orth_program *p, size_t min_bytes, orth_block_costs *out)
{
    double bytes[SMALL_LAYERS + 2] = {0}, leaving[SMALL_LAYERS + 2] = {0};
    const int32_t end = end_of_forward(p);
    bool *seen = ORTH_NEW_ARRAY(ctx, bool, 2 * (int64_t)p->num_buffers);
    if (!seen)
        return ORTH_ERR_NOMEM;
    bool *stays = seen + p->num_buffers;
    find_staying(p, end, seen, stays);
    for (int32_t i = 0; i < p->num_buffers; i++) {
        const orth_buffer *b = &p->buffers[i];
        const int32_t root = orth_buffer_root(p, i);
        if (b->persistent || b->first < 0 || b->first > end || b->last <= end || i == p->workspace || seen[root])
            continue;
        seen[root] = true;
        bytes[p->instrs[b->first].layer + 1] += (double)b->bytes;
        if (b->cls == ORTH_CLASS_ACTIVATIONS && b->bytes >= min_bytes && b->prev < 0 && b->next < 0 && !stays[i])
            leaving[p->instrs[b->first].layer + 1] += (double)b->bytes;
    }
    orth_mem_free(ctx, seen);
    out->piece[ORTH_PIECE_LAYER].kept = fmin(bytes[1], bytes[2]);
    out->piece[ORTH_PIECE_LAYER].leaves = fmin(leaving[1], leaving[2]);
    return ORTH_OK;
}

/* ---- what instructions are given ---- */

/* Of each layer, or section, in the first micro-batch, which adds to nothing. */
typedef struct {
    const orth_program *p;
    uint8_t *seen;          /* [num_buffers] a bit for each section and phase in which a parameter was read */
    double weights[SMALL_LAYERS + 2][2];        /* bytes of parameters that the forward, the backward reads */
    double at_once[SMALL_LAYERS + 2][ORTH_NUM_AT_ONCE];
} operands;

/* Packed weights are read once a step. */
static void note_weights(operands *x, const orth_instr *n)
{
    const int back = n->phase == ORTH_PHASE_BACKWARD, bit = 2 * (int)piece_of_layer(n->layer) + back;
    for (int k = 0; k < n->num_in && orth_op_family_of(n->op) != ORTH_OPS_PACK; k++) {
        const int32_t i = n->in[k].buffer;
        if (i < 0 || !x->p->buffers[i].persistent || x->p->buffers[i].cls != ORTH_CLASS_PARAMS || (x->seen[i] & 1 << bit))
            continue;
        x->seen[i] |= (uint8_t)(1 << bit);
        x->weights[n->layer + 1][back] += (double)x->p->buffers[i].bytes;
    }
}

/* Operands of one instruction are on the device together, those that share bytes once. */
static void note_at_once(operands *x, const orth_instr *n)
{
    double bytes[3] = {0}; /* transient, parameters, sums of gradients */
    for (int k = 0; k < orth_instr_num_operands(n); k++) {
        const orth_operand *o = orth_instr_operand(n, k);
        bool again = o->buffer < 0 || o->buffer == x->p->workspace;
        for (int j = 0; j < k && !again; j++)
            again = orth_instr_operand(n, j)->buffer >= 0 && orth_buffer_root(x->p, orth_instr_operand(n, j)->buffer) == orth_buffer_root(x->p, o->buffer);
        const orth_buffer *b = again ? NULL : &x->p->buffers[o->buffer];
        if (b && (!b->persistent || b->cls == ORTH_CLASS_PARAMS || b->cls == ORTH_CLASS_GRADS))
            bytes[!b->persistent ? 0 : b->cls == ORTH_CLASS_PARAMS ? 1 : 2] += (double)orth_operand_bytes(o);
    }
    for (int far = 0; far < ORTH_NUM_AT_ONCE; far++) {
        const double sum = bytes[0] + (far & ORTH_FAR_PARAMS ? bytes[1] : 0) + (far & ORTH_FAR_GRADS ? bytes[2] : 0);
        x->at_once[n->layer + 1][far] = fmax(x->at_once[n->layer + 1][far], sum);
    }
}

/* The least of the layers. */
static void sum_up_operands(const operands *x, orth_block_costs *out)
{
    for (int l = 0; l < SMALL_LAYERS + 2; l++) {
        orth_piece_cost *c = &out->piece[piece_of_layer(l - 1)];
        const bool first = l != 2;
        for (int back = 0; back < 2; back++)
            c->weights_in[back] = first ? x->weights[l][back] : fmin(c->weights_in[back], x->weights[l][back]);
        for (int far = 0; far < ORTH_NUM_AT_ONCE; far++)
            c->at_once[far] = first ? x->at_once[l][far] : fmin(c->at_once[far], x->at_once[l][far]);
    }
}

static orth_status read_operands(orth_ctx *ctx, const orth_program *p, orth_block_costs *out)
{
    operands x = {.p = p, .seen = ORTH_NEW_ARRAY(ctx, uint8_t, p->num_buffers)};
    if (!x.seen)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        if (p->instrs[i].phase == ORTH_PHASE_UPDATE || p->instrs[i].micro_batch != 0)
            continue;
        note_weights(&x, &p->instrs[i]);
        note_at_once(&x, &p->instrs[i]);
    }
    orth_mem_free(ctx, x.seen);
    sum_up_operands(&x, out);
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
    ORTH_TRY(read_operands(ctx, &compiled->program, out));
    return read_kept(ctx, &compiled->program, (size_t)b->step->offload.min_bytes, out);
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
    r.spec.step.offload = (orth_offload){.optimizer = ORTH_TIER_NONE}; /* copies are counted by what is kept and read here (bounds.c) */
    r.spec.step.parts = (int32_t)l->parts;
    r.spec.step.lr_factors.num = r.spec.step.decay_factors.num = 0; /* they cost nothing, and may name a layer that is not here */
    ORTH_TRY(orth_partition_make(ctx, &r.partition, &small, &model));
    orth_status s = build_small(ctx, &r);
    if (s == ORTH_OK) {
        s = read_costs(ctx, b, &r, out);
        if (r.ring)
            orth_programs_release(ctx, &r.programs);
        else
            orth_rank_programs_release(&r.rank_programs);
    }
    orth_partition_release(ctx, &r.partition);
    orth_arena_release(ctx, &r.arena);
    return s;
}
