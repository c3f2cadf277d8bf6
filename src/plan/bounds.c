/* bounds.c -- see bounds.h. Letters: m micro-batches of a rank, p stages, v chunks of a stage, n data-parallel ranks. */
#include "plan/bounds.h"

#include <math.h>

#include "plan/file_time.h"
#include "plan/link_time.h"
#include "tensor/q8.h"

orth_status orth_bounds_make(orth_ctx *ctx, orth_bounds *out, const orth_model_config *model, const orth_hardware *h,
                             const orth_model_shape *step)
{
    double peak;
    *out = (orth_bounds){.model = model, .hardware = h, .step = step};
    ORTH_TRY(orth_hardware_peak(ctx, h, step->compute, &peak)); /* refuses; costs are read off priced runs */
    out->cuts = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t *, model->layers + 1);
    out->v_flight = ORTH_ARENA_ARRAY(ctx, &out->arena, int32_t *, model->layers + 1);
    return out->cuts && out->v_flight ? ORTH_OK : ORTH_ERR_NOMEM;
}

void orth_bounds_release(orth_ctx *ctx, orth_bounds *b)
{
    orth_arena_release(ctx, &b->arena);
}

/* ---- groups on the links ---- */

/* n ranks that lie `stride` apart, as close as they can be. */
static orth_link_place group_place(const orth_hardware *h, int64_t n, int64_t stride)
{
    const int64_t fit = orth_div_up((int64_t)h->node_devices, stride), k = ORTH_MAX(1, ORTH_MIN(n, fit)), nodes = orth_div_up(n, k);
    const bool leaves_pod = h->network_pod_nodes > 0 && (double)nodes > h->network_pod_nodes;
    return (orth_link_place){.n = (int32_t)n, .per_node = (int32_t)k, .num_nodes = (int32_t)nodes, .same_node = n <= k, .leaves_pod = leaves_pod};
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
        for (int back = 0; back < 2; back++)
            out->piece[k].weights_in[back] = from->weights_in[back] * tp;
        for (int far = 0; far < ORTH_NUM_AT_ONCE; far++)
            out->piece[k].at_once[far] = from->at_once[far] * tp / (double)l->cp;
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
    const orth_offload *o;
    int far;                /* of at_once */
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
    double leaves, weights_in, weights_once;    /* of a micro-batch; weights_once: if none are brought again for the backward */
    double at_once;                     /* the most of its pieces */
    int32_t layers, least;              /* of all its chunks, of the one with the fewest */
} stage_sum;

/* Schedules that split the backward do weight products beside calls, too: only computing is sure to take time. */
static void add_piece(const layout_bound *x, stage_sum *s, const orth_piece_cost *p, double times)
{
    const bool split = x->split;
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
    s->weights_in += times * (p->weights_in[0] + p->weights_in[1]);
    s->weights_once += times * fmax(p->weights_in[0], p->weights_in[1]);
    s->at_once = fmax(s->at_once, p->at_once[x->far]);
}

/* Layers of a chunk whose activations are away between forward and backward, at least: behind the others not enough is computed
 * (offload_activations.h). */
static int32_t leaving_layers(const orth_offload *o, int32_t layers)
{
    const int32_t stay = o->activations == ORTH_TIER_FILE ? 3 : 2;
    return o->activations == ORTH_TIER_NONE ? 0 : ORTH_MAX(0, layers - stay);
}

static void add_chunk(const layout_bound *x, stage_sum *s, int32_t chunk)
{
    const orth_piece_cost *pieces = x->c->piece, *embed = &pieces[ORTH_PIECE_EMBED];
    const int32_t layers = x->cut[chunk + 1] - x->cut[chunk];
    const bool first = chunk == 0, last = chunk == x->chunks - 1;
    add_piece(x, s, &pieces[ORTH_PIECE_LAYER], layers);
    s->leaves += leaving_layers(x->o, layers) * pieces[ORTH_PIECE_LAYER].leaves;
    if (first) {
        add_piece(x, s, embed, 1);
        add_piece(x, s, &pieces[ORTH_PIECE_POSITIONS], 1);
    }
    if (last)
        add_piece(x, s, &pieces[ORTH_PIECE_HEAD], 1);
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
    if (l->zero > 0) /* each shard's sum over the groups of shards */
        *per_step = fmax(*per_step, call_seconds(x->b, ORTH_COMM_ALL_REDUCE, whole / (double)shards, n / shards, stride * shards));
    if (l->zero == 1 || l->zero == 2)
        *after = call_seconds(x->b, ORTH_COMM_ALL_GATHER, copy * s->elems, shards, stride);
    if (l->zero == 3 && l->keep_whole == 0) {
        /* Layers twice, before forward and backward, if none stays whole in between. */
        const double gathered = x->b->step->comm.keep_gathered ? 0 : s->elems + (x->b->step->comm.reuse_elems > 0 ? 0 : layers);
        *per_micro_batch += call_seconds(x->b, ORTH_COMM_ALL_GATHER, copy * gathered, shards, stride);
    }
}

/* Ranks that share what ZeRO deals out from this stage on. */
static double sharers(const orth_layout *l, int64_t from_stage)
{
    return l->zero < from_stage ? 1 : (double)(l->shard_group ? l->shard_group : l->dp);
}

/* The host updates what it has at its own rate, and the device beside it what stays, which may be all or nothing of a parameter. */
static double update_seconds(const layout_bound *x, const stage_sum *s)
{
    const bool host = x->o->optimizer != ORTH_TIER_NONE;
    const double elem = host ? x->c->host_update_s : x->c->update_s;
    return host && x->o->stays > 0 ? 0 : elem * s->elems / sharers(x->l, 1);
}

/* ---- copies of what is offloaded ---- */

/* Bytes of a step and rank, to the device and from it; and of its file. */
typedef struct {
    double in, out, read, written;
} copied;

static void add_copied(copied *c, orth_tier tier, double in, double out)
{
    const bool file = tier == ORTH_TIER_FILE;
    c->in += tier != ORTH_TIER_NONE ? in : 0;
    c->out += tier != ORTH_TIER_NONE ? out : 0;
    c->read += file ? in : 0;
    c->written += file ? out : 0;
}

/* Weights come for each forward and backward, as they are gathered for them under ZeRO 3 (data_parallel). */
static double weights_in(const layout_bound *x, const stage_sum *s)
{
    const orth_comm_policy *comm = &x->b->step->comm;
    if (x->l->zero < 3 || x->l->dp == 1)
        return s->weights_in;
    return comm->keep_gathered || x->l->keep_whole > 0 ? 0 : (comm->reuse_elems > 0 ? s->weights_once : s->weights_in) / sharers(x->l, 3);
}

/* Sums of gradients leave after each micro-batch, the last one's reduced, and all but the first micro-batch add to what comes back. */
static copied copies_of(const layout_bound *x, const stage_sum *s)
{
    const orth_offload *o = x->o;
    const double shard = 1 / sharers(x->l, 1), sums = 1 / sharers(x->l, 2);
    copied c = {0};
    add_copied(&c, o->activations, x->m * s->leaves, x->m * s->leaves);
    add_copied(&c, o->params, x->m * weights_in(x, s), 0);
    add_copied(&c, o->gradients, (x->m - 1) * sums * s->grads, ((x->m - 1) * sums + shard) * s->grads);
    if (o->optimizer != ORTH_TIER_NONE && o->stays == 0) { /* gradients come down, weights go up, where both are on the device */
        add_copied(&c, ORTH_TIER_HOST, o->params == ORTH_TIER_NONE ? shard * s->params : 0, o->gradients == ORTH_TIER_NONE ? shard * s->grads : 0);
        c.read += o->optimizer == ORTH_TIER_FILE ? shard * s->optimizer : 0;
        c.written += o->optimizer == ORTH_TIER_FILE ? shard * s->optimizer : 0;
    }
    return c;
}

/* Bytes of activations that follow each other on the link: of a chunk and micro-batch the last layers come back first, when the others have left
 * (a layer's may leave beside those of the two before it), and all else comes back behind them. Where micro-batches have their turns, each
 * waits for its own. */
static double activations_in_turn(const layout_bound *x, const stage_sum *s)
{
    const double away = ORTH_MAX(0, leaving_layers(x->o, s->least) - 2) * x->c->piece[ORTH_PIECE_LAYER].leaves;
    const bool turns = x->l->pp == 1 && strcmp(x->l->pipeline, "1f1b") == 0;
    return x->m * s->leaves + (turns ? x->m : 1) * away;
}

/* Each direction has a queue, and so have files. Of several kinds of devices the disks are not known here. */
static double copying_seconds(const layout_bound *x, const stage_sum *s)
{
    const orth_hardware *h = x->b->hardware;
    const copied c = copies_of(x, s);
    const double link = fmax(fmax(c.in, c.out), activations_in_turn(x, s)) / (1e9 * h->node_host_GBps);
    if (c.read + c.written == 0 || x->b->groups)
        return link;
    const orth_file_rates file = orth_file_rates_of(h, ORTH_MIN((int64_t)h->node_devices, orth_layout_ranks(x->l)));
    return fmax(link, c.read / file.read + c.written / file.write);
}

static double step_bound(layout_bound *x)
{
    double start = 0, back = 0, computed = 0, after = 0, alone = 0;
    const bool copies = x->o->optimizer != ORTH_TIER_NONE || x->o->activations != ORTH_TIER_NONE; /* the others begin with the optimizer */
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
        alone = copies ? fmax(alone, copying_seconds(x, &s)) : alone;
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

/* Weights that come from elsewhere come while the layer before is at work (passes/fetch.h), so that the forward, or the backward, has those of two layers at
 * once; 0: nothing is sure to be there of the next layer. */
static double ahead(const layout_bound *x, const stage_sum *s, bool back)
{
    const orth_comm_policy *comm = &x->b->step->comm;
    const bool sure = x->o->params != ORTH_TIER_NONE && s->least >= 2 && comm->prefetch > 0 && comm->prefetch_elems == 0;
    return sure ? x->c->piece[ORTH_PIECE_LAYER].weights_in[back] : 0;
}

static double stage_bytes(const layout_bound *x, int64_t stage)
{
    const orth_layout *l = x->l;
    const orth_offload *o = x->o;
    const stage_sum s = stage_of(x, stage);
    const double flight = in_flight(x, stage), grads = o->gradients != ORTH_TIER_NONE ? 0 : s.grads;
    const double states = (o->params != ORTH_TIER_NONE ? 0 : s.params) / sharers(l, 3) + grads / sharers(l, 2) +
                          (o->optimizer != ORTH_TIER_NONE ? 0 : s.optimizer) / sharers(l, 1);
    /* What leaves is there when the forward of its layer ends. */
    const double layers = o->activations != ORTH_TIER_NONE ? fmin(1, s.least) : flight * (l->virtual_stages > 1 ? s.least : s.layers);
    const double forward = ahead(x, &s, false), backward = ahead(x, &s, true);
    /* At the end of a layer's forward, or at the beginning of the first backward. */
    const double kept = layers * x->c->piece[ORTH_PIECE_LAYER].kept + (o->activations != ORTH_TIER_NONE ? forward : 2 * backward);
    const double at_once = fmax(fmax(s.at_once, x->c->piece[ORTH_PIECE_LAYER].at_once[x->far] + fmin(forward, backward)), 2 * fmax(forward, backward));
    if (l->zero >= 2 && l->dp > 1)
        return states + fmax(kept, at_once);
    /* One partial sum is the gradient itself. */
    const double with_kept = fmax(0, partial_sums(l, x->m - flight) - 1), alone = fmax(0, partial_sums(l, x->m) - 1);
    return states + fmax(at_once, fmax(kept + (l->virtual_stages == 1 && o->activations == ORTH_TIER_NONE ? with_kept * grads : 0), alone * grads));
}

/* Of a rank, when the forward of the last of those that are under way ends: two layers may then still leave. */
static double away_bytes(const layout_bound *x, const stage_sum *s, int64_t stage)
{
    const double layers = in_flight(x, stage) * leaving_layers(x->o, s->least);
    return fmax(0, layers - 2) * x->c->piece[ORTH_PIECE_LAYER].leaves;
}

/* State that a rank has in the memory of its host, or in files; gradients only where the update reads them. Of an optimizer of which a part stays on
 * the device it may be none. */
static double stage_state_in(const layout_bound *x, const stage_sum *s, orth_tier tier)
{
    const orth_layout *l = x->l;
    const orth_offload *o = x->o;
    return (o->params == tier ? s->params / sharers(l, 3) : 0) + (o->gradients == tier ? s->grads / sharers(l, 1) : 0) +
           (o->optimizer == tier && o->stays == 0 ? s->optimizer / sharers(l, 1) : 0);
}

static double stage_bytes_in(const layout_bound *x, int64_t stage, orth_tier tier)
{
    const stage_sum s = stage_of(x, stage);
    const double each = stage_state_in(x, &s, tier) + (x->o->activations == tier ? away_bytes(x, &s, stage) : 0);
    return each * (double)(x->l->tp * x->l->cp * x->l->dp);
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

static orth_status layout_of(orth_ctx *ctx, orth_bounds *b, const orth_block_costs *c, const orth_layout *l, const orth_offload *o, layout_bound *out)
{
    const orth_schedule_kind *kind = orth_schedule_kind_find(l->pipeline);
    *out = (layout_bound){.b = b, .c = c, .l = l, .o = o, .far = (o->params != ORTH_TIER_NONE ? ORTH_FAR_PARAMS : 0) |
                          (o->gradients != ORTH_TIER_NONE ? ORTH_FAR_GRADS : 0), .chunks = (int32_t)(l->pp * l->virtual_stages),
                          .m = (double)orth_layout_micro_batches(l, 0), .send = send_seconds(b, l), .split = kind && kind->split,
                          .v_shape = strcmp(l->pipeline, "zb-v") == 0 && l->virtual_stages == 2};
    return cut_of(ctx, b, l, out->chunks, &out->cut);
}

orth_status orth_bound_host_most(orth_ctx *ctx, orth_bounds *b, const orth_block_costs *c, const orth_layout *l, const orth_offload *o, double *bytes)
{
    orth_offload all = *o;
    layout_bound x;
    all.stays = 0;
    ORTH_TRY(layout_of(ctx, b, c, l, &all, &x));
    *bytes = 0;
    for (int64_t stage = 0; stage < l->pp; stage++) {
        const stage_sum s = stage_of(&x, stage);
        const double state = stage_state_in(&x, &s, ORTH_TIER_HOST), flight = strcmp(l->pipeline, "gpipe") == 0 ? x.m : fmin(x.m, 2 * (double)l->pp);
        const double away = o->activations == ORTH_TIER_HOST ? flight * s.layers * c->piece[ORTH_PIECE_LAYER].leaves : 0;
        *bytes = fmax(*bytes, fmin(b->hardware->node_devices, (double)orth_layout_ranks(l)) * (state + away));
    }
    return ORTH_OK;
}

orth_status orth_bound_of(orth_ctx *ctx, orth_bounds *b, const orth_block_costs *c, const orth_layout *l, const orth_offload *o, orth_bound *out)
{
    layout_bound x;
    ORTH_TRY(layout_of(ctx, b, c, l, o, &x));
    if (x.v_shape)
        ORTH_TRY(count_v_flight(ctx, b, l->pp, (int64_t)x.m));
    double mixed = 0;
    if (b->groups)
        ORTH_TRY(mixed_bound(ctx, &x, &mixed));
    *out = (orth_bound){.step_s = fmax(step_bound(&x), mixed)};
    const double num_nodes = b->groups ? orth_mixed_node_of(b->groups, (int)orth_layout_ranks(l) - 1) + 1
                                       : (double)orth_div_up(orth_layout_ranks(l), (int64_t)b->hardware->node_devices);
    for (int64_t stage = 0; stage < l->pp; stage++) {
        out->bytes = fmax(out->bytes, stage_bytes(&x, stage));
        out->node_bytes += stage_bytes_in(&x, stage, ORTH_TIER_HOST) / num_nodes;
        out->node_file_bytes += stage_bytes_in(&x, stage, ORTH_TIER_FILE) / num_nodes;
    }
    return ORTH_OK;
}
