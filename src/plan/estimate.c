/* estimate.c -- see estimate.h. */
#include "plan/estimate.h"

#include <math.h>

#include "model/blocks.h"
#include "model/registry.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/simulate.h"
#include "plan/device_time.h"
#include "plan/link_time.h"
#include "program/ir/comm_call.h"

#define NO_BUBBLE "zb-2p" /* whatever memory it takes */

/* What software.def does not fit, since too few published runs depend on it to tell it from the fitted constants. Round figures, each for the
 * reason beside it. */
#define LEFT_BUBBLE 0.02          /* of a step of NO_BUBBLE: Qi et al. 2023 measure about 1 to 2 % */
#define UNFUSED_PRODUCTS 0.6      /* of the rate of large products, in batched products of scores: sums of head_dim terms are short */
#define UNFUSED_MEMORY 0.85       /* of the bandwidth, in passes over scores: the default of device.memory_share */
#define AGAIN_OPS_PRODUCTS 0.5    /* ORTH_AGAIN_OPS makes every second product again, by definition */
#define AGAIN_OPS (4.0 / 3)       /* forward, backward of about twice as many ops, forward again */
#define AGAIN_BLOCKS_FORWARD 0.6  /* of the forward: every second layer, and the sources that say so recompute a little more than half */
#define AGAIN_ACTIVATION_ROWS 0.3 /* of the time between products: one of a layer's about three passes over wide rows */
#define AGAIN_HALF_KEPT 0.5       /* of what a layer saves, where every second product or layer is made again */
#define HYBRID_EXPOSED 0.2        /* of the sum over groups of shards, which goes on beside the backward of the layers before; assumed */
#define UPDATE_BYTES 30.0         /* of an element, by mixed AdamW: 16 read (gradient, master, two moments), 14 written (those, and the weight) */
#define UPDATE_MEMORY 0.8         /* of the bandwidth, in a fused update; assumed */
#define OFFLOAD_BYTES 6.0         /* of an element over the host's link: a gradient of 4 bytes out, a weight of 2 in */
#define OFFLOAD_LINK_GBps 15.0    /* a device, two of which share a PCIe 4 switch; assumed */
#define OFFLOAD_HOST_GBps 20.0    /* of the host's memory for a device, of 8 on 2 sockets; assumed */

orth_states orth_states_of(const orth_state_bytes *r, double elems, int stage, double n)
{
    return (orth_states){r->param * elems / (stage >= 3 ? n : 1), r->grad * elems / (stage >= 2 ? n : 1),
                         r->optimizer * elems / (stage >= 1 ? n : 1)};
}

/* Seconds of one block and micro-batch, and what it keeps. */
typedef struct {
    double products, attention, rows, calls;  /* forward */
    double input, weights, back_calls;        /* backward */
    double all_products, all_attention, all_rows, ops; /* forward and backward */
    double flops, elems, saved;               /* flops: model, forward and backward */
} block;

typedef struct {
    const orth_job *job;
    orth_hardware attention, products;  /* the device, with the shares of this software */
    const orth_software *software;
    const orth_system *system;
    orth_link_place tp, cp;
    double launch;
} pricing;

static orth_link_place group_place(const orth_hardware *h, int n, int stride)
{
    const int fit = (int)h->node_devices / stride;
    const int k = ORTH_MAX(1, ORTH_MIN(n, fit));
    return (orth_link_place){.n = n, .per_node = k, .num_nodes = (n + k - 1) / k, .same_node = n <= k};
}

static double link_seconds(const pricing *x, orth_comm_kind kind, double bytes, const orth_link_place *place)
{
    return orth_link_seconds(&x->attention, kind, bytes / x->system->links, place, NULL);
}

/* It enters or leaves the products that tensor parallelism splits. */
static bool is_of_tp(orth_op op)
{
    return orth_op_comm_kind(op, true) != orth_op_comm_kind(op, false);
}

/* Activations travel in 16 bits. */
static double call_seconds(const pricing *x, const orth_instr *n)
{
    const orth_comm_kind kind = orth_op_comm_kind(n->op, x->job->sequence_parallel);
    const orth_operand *all = kind == ORTH_COMM_ALL_GATHER ? &n->out[0] : &n->in[0];
    const bool tp = n->attr->group == ORTH_GROUP_TP || is_of_tp(n->op);
    return kind == ORTH_NO_CALL ? 0 : link_seconds(x, kind, 2 * (double)orth_operand_elems(all), tp ? &x->tp : &x->cp);
}

static bool is_attention(orth_op op)
{
    const orth_op_role role = orth_op_role_of(op);
    return role == ORTH_ROLE_SCORES || role == ORTH_ROLE_SCORES_BWD;
}

static double attention_seconds(const pricing *x, const orth_instr *n)
{
    const bool backward = orth_op_role_of(n->op) == ORTH_ROLE_SCORES_BWD;
    const orth_attr *a = n->attr;
    if (x->job->fused_attention)
        return orth_device_seconds(&x->attention, n) * (backward ? 0.8 / x->software->attention_backward : 1);
    const double keys = a->full_len > 0 ? a->full_len : a->seq_len, scores = (double)a->num_seqs * a->heads * a->seq_len * keys;
    const double passes = x->software->attention_unfused, twice = backward ? 2 : 1;
    const double rate = 1e12 * ORTH_MAX(x->attention.device_bf16_tflops, x->attention.device_fp16_tflops) * x->attention.device_gemm_share;
    return twice * (4 * scores * a->head_dim / (UNFUSED_PRODUCTS * rate) + 2 * passes * scores / (1e9 * x->attention.device_memory_GBps * UNFUSED_MEMORY));
}

/* What an op between products takes to move its bytes. */
static double moving_seconds(const pricing *x, double bytes)
{
    return 1e-9 * bytes / (x->attention.device_memory_GBps * x->attention.device_memory_share) + 1e-12 * bytes * x->system->core_s_per_TB;
}

static double node_seconds(const pricing *x, const orth_instr *n)
{
    const orth_cost c = orth_instr_cost(n);
    if (is_attention(n->op))
        return attention_seconds(x, n);
    if (c.hardware_flops > 0)
        return orth_device_seconds(&x->products, n);
    const orth_op_family of = orth_op_family_of(n->op);
    const double factor = of == ORTH_OPS_LOSS ? x->system->loss : of == ORTH_OPS_ATTENTION ? x->system->rope : x->system->rows;
    return x->launch + moving_seconds(x, factor * c.bytes);
}

/* rows > 0: operands with that many rows have `times` as many. */
static orth_operand operand_of(const orth_graph *g, orth_value v, int64_t rows, int64_t times)
{
    if (v == ORTH_NO_VALUE)
        return orth_operand_absent;
    const orth_value_info *i = &g->values[v];
    orth_operand o = orth_operand_of(v, i->dtype, i->num_dims, i->dim);
    if (o.dim[0] == rows)
        o.dim[0] *= times;
    return o;
}

static void add_node(const pricing *x, const orth_graph *g, const orth_node *n, bool forward, int64_t rows, int64_t times, block *b)
{
    orth_operand in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    for (int k = 0; k < n->num_in; k++)
        in[k] = operand_of(g, n->in[k], rows, times);
    for (int k = 0; k < n->num_out; k++)
        out[k] = operand_of(g, n->out[k], rows, times);
    const orth_instr i = {.op = n->op, .attr = &n->attr, .in = in, .out = out, .num_in = n->num_in, .num_out = n->num_out};
    if (orth_op_is_comm(n->op)) {
        *(forward ? &b->calls : &b->back_calls) += call_seconds(x, &i) * (x->job->hides_calls ? 1 - x->system->calls : 1);
        return;
    }
    const orth_cost c = orth_instr_cost(&i);
    const double s = node_seconds(x, &i);
    const bool weights = orth_op_role_of(n->op) == ORTH_ROLE_WEIGHTS;
    b->flops += c.model_flops;
    b->ops++;
    *(is_attention(n->op) ? &b->all_attention : c.hardware_flops > 0 ? &b->all_products : &b->all_rows) += s;
    if (!forward)
        *(weights ? &b->weights : &b->input) += s;
    else
        *(is_attention(n->op) ? &b->attention : c.hardware_flops > 0 ? &b->products : &b->rows) += s;
}

/* The sums that run through the layers, which norms read. */
static bool is_residual(const orth_graph *g, orth_value v, const orth_node *reader)
{
    const bool of_norm = g->values[v].producer >= 0 && orth_op_family_of(g->nodes[g->values[v].producer].op) == ORTH_OPS_NORM;
    return orth_op_family_of(reader->op) == ORTH_OPS_NORM && (v == g->input || of_norm);
}

/* What the backward reads of what the forward made, and the block's input. Under sequence parallelism a rank keeps its own rows of what
 * enters a column product, which the backward gathers again (Korthikanti et al. 2022, section 4.2.2). */
static double saved_bytes(const pricing *x, const orth_graph *g)
{
    const orth_job *j = x->job;
    double bytes = 0;
    for (orth_value v = 0; v < g->num_values; v++) {
        const orth_value_info *i = &g->values[v];
        const bool made = i->kind == ORTH_VALUE_TEMP && i->producer >= 0 && i->producer < g->num_forward;
        bool read = false;
        double wide = 1;
        for (int32_t n = g->num_forward; n < g->num_nodes && !read; n++)
            for (int k = 0; k < g->nodes[n].num_in; k++)
                if (g->nodes[n].in[k] == v) {
                    read = true;
                    wide = is_residual(g, v, &g->nodes[n]) ? x->system->residual / 2 : 1;
                }
        if ((made || v == g->input) && read) {
            const orth_operand o = orth_operand_of(v, i->dtype, i->num_dims, i->dim);
            const bool entered = made && j->sequence_parallel && is_of_tp(g->nodes[i->producer].op) &&
                                 orth_op_comm_kind(g->nodes[i->producer].op, true) == ORTH_COMM_ALL_GATHER;
            bytes += wide * (double)orth_operand_bytes(&o) / (entered ? j->tp : 1);
        }
    }
    return bytes;
}

static block price_block(const pricing *x, const orth_graph *g, int64_t rows, int64_t times)
{
    block b = {.saved = saved_bytes(x, g) * (double)times};
    for (int32_t n = 0; n < g->num_nodes; n++)
        add_node(x, g, &g->nodes[n], n < g->num_forward, rows, times, &b);
    for (orth_value v = 0; v < g->num_values; v++) {
        const orth_value_info *i = &g->values[v];
        const orth_operand o = orth_operand_of(v, ORTH_U8, i->num_dims, i->dim);
        if (i->kind == ORTH_VALUE_PARAM)
            b.elems += (double)orth_operand_bytes(&o);
    }
    return b;
}

static double forward_of(const block *b)
{
    return b->products + b->attention + b->rows + b->calls;
}

/* Copies of a block's weights in 16 bits, made in each forward, and of their gradients in 32, made in each backward. */
static void add_casts(const pricing *x, block *b)
{
    const double s = moving_seconds(x, x->system->casts * b->elems / 2);
    b->rows += s;
    b->weights += s;
    b->all_rows += 2 * s;
}

/* Of a layer with separate products for queries, keys and values, and for gate and feed-forward layer, in 16 bits: what each keeps of the input
 * that it shares with others, and the activated gate. */
static double copies_of(const pricing *x)
{
    const orth_job *j = x->job;
    const double rows = 2.0 * (double)(j->micro_batch * j->seq_len / j->cp) / j->tp;
    return j->model.family == ORTH_FAMILY_LLAMA ? rows * (x->system->inputs * (double)j->model.hidden + x->system->gates * (double)j->model.ffn) : 0;
}

/* Seconds of a layer's forward that its backward repeats. */
static double again(const orth_job *j, const block *b)
{
    switch (j->recompute) {
    case ORTH_AGAIN_FULL: return forward_of(b);
    case ORTH_AGAIN_CORE: return j->fused_attention ? 0 : b->attention;
    case ORTH_AGAIN_OPS: return AGAIN_OPS_PRODUCTS * b->products + b->rows;
    case ORTH_AGAIN_BLOCKS: return AGAIN_BLOCKS_FORWARD * forward_of(b);
    case ORTH_AGAIN_ACTIVATION: return AGAIN_ACTIVATION_ROWS * b->rows;
    default: return 0;
    }
}

/* Of attention without fusion: probabilities, with what dropout keeps of them (Korthikanti et al. 2022). */
static double scores_of(const orth_job *j)
{
    return j->fused_attention ? 0 : 5.0 * (double)(j->micro_batch * j->model.heads / j->tp) * (double)(j->seq_len * j->seq_len / j->cp);
}

/* Of hidden dropout: one behind attention, one behind the feed-forward layer. */
static double masks_of(const orth_job *j)
{
    return j->keeps_masks ? 2.0 * (double)(j->micro_batch * j->seq_len / j->cp * j->model.hidden) / (j->sequence_parallel ? j->tp : 1) : 0;
}

/* What the backward of a layer reads. */
static double saved_of(const orth_job *j, const block *layer)
{
    return layer->saved + masks_of(j);
}

/* Bytes that a layer keeps of a micro-batch. */
static double kept(const orth_job *j, const block *layer, double input)
{
    switch (j->recompute) {
    case ORTH_AGAIN_FULL: return input;
    case ORTH_AGAIN_CORE: return saved_of(j, layer);
    case ORTH_AGAIN_OPS:
    case ORTH_AGAIN_BLOCKS: return AGAIN_HALF_KEPT * saved_of(j, layer);
    default: return saved_of(j, layer) + scores_of(j);
    }
}

/* ---- the step ---- */

typedef struct {
    block embed, layer, final, head;
    int32_t num_chunks;
    double layers_of_chunk, first_missing, last_missing;
} cut;

/* Layers of a chunk; the first and the last chunk have fewer where they do not divide: the embedding and the head take their place. */
static void cut_layers(const orth_job *j, cut *c)
{
    c->num_chunks = j->pp * j->chunks;
    c->layers_of_chunk = ceil((double)j->model.layers / c->num_chunks);
    const double missing = c->layers_of_chunk * c->num_chunks - (double)j->model.layers;
    c->last_missing = fmin(ceil(missing / 2), c->layers_of_chunk);
    c->first_missing = fmin(missing - c->last_missing, c->layers_of_chunk);
    if (c->num_chunks > 1 && missing > c->last_missing + c->first_missing)
        c->layers_of_chunk = (double)j->model.layers / c->num_chunks;
}

static double layers_in(const cut *c, int chunk)
{
    return c->layers_of_chunk - (chunk == 0 ? c->first_missing : 0) - (chunk == c->num_chunks - 1 ? c->last_missing : 0);
}

static orth_chunk_times times_of(const pricing *x, const cut *c, int chunk)
{
    const orth_job *j = x->job;
    const block *l = &c->layer, *e = &c->embed, *h = &c->head, *f = &c->final;
    const bool first = chunk == 0, last = chunk == c->num_chunks - 1;
    const double n = layers_in(c, chunk);
    orth_chunk_times t = {.time = {0}};
    double input = n * (l->input + l->back_calls + again(j, l)), weights = n * l->weights;
    double forward = n * forward_of(l) + (first ? forward_of(e) : 0) + (last ? forward_of(h) + forward_of(f) : 0);
    input += (first ? e->input + e->back_calls : 0) + (last ? h->input + h->back_calls + f->input : 0);
    weights += (first ? e->weights : 0) + (last ? h->weights : 0);
    /* A device that is faster than the host waits for it. */
    const double ops = n * l->ops * (j->recompute == ORTH_AGAIN_FULL ? AGAIN_OPS : 1) + (first ? e->ops : 0) + (last ? h->ops + f->ops : 0);
    const double wait = fmax(1, ops * 1e-6 * x->system->host_us / (forward + input + weights));
    t.time[ORTH_ACTION_F] = wait * forward;
    t.time[ORTH_ACTION_BI] = wait * input;
    t.time[ORTH_ACTION_W] = wait * weights;
    t.time[ORTH_ACTION_B] = wait * (input + weights);
    return t;
}

/* Ranks that shards are dealt over, or gradients reduced over. */
static orth_link_place data_place(const pricing *x)
{
    const orth_job *j = x->job;
    const int n = j->dp * j->cp;
    const int sharers = j->hybrid_shards ? ORTH_MIN(n, (int)x->attention.node_devices) : n;
    return group_place(&x->attention, sharers, j->tp);
}

/* ZeRO 3: a layer's parameters are gathered for forward and backward, its gradients scattered, while its neighbours compute. */
static void hide_gathers(const pricing *x, const cut *c, int chunk, orth_chunk_times *t)
{
    const orth_link_place place = data_place(x);
    const double elems = layers_in(c, chunk) * c->layer.elems + (chunk == 0 ? c->embed.elems : 0) + (chunk == c->num_chunks - 1 ? c->head.elems : 0);
    const double gather = link_seconds(x, ORTH_COMM_ALL_GATHER, 2 * elems, &place);
    const double scatter = link_seconds(x, ORTH_COMM_REDUCE_SCATTER, x->job->reduced_bytes * elems, &place);
    const double rest = 1 - x->system->overlap;
    t->time[ORTH_ACTION_F] = fmax(t->time[ORTH_ACTION_F], gather) + rest * fmin(t->time[ORTH_ACTION_F], gather);
    t->time[ORTH_ACTION_B] = fmax(t->time[ORTH_ACTION_B], gather + scatter) + rest * fmin(t->time[ORTH_ACTION_B], gather + scatter);
}

static orth_status run_schedule(orth_ctx *ctx, const pricing *x, const cut *c, orth_estimate *e)
{
    const orth_job *j = x->job;
    orth_arena arena = {0};
    orth_schedule s;
    orth_sim sim;
    const bool free_bubble = strcmp(j->schedule, NO_BUBBLE) == 0;
    const char *name = j->pp == 1 ? "1f1b" : free_bubble ? "zb-h1" : j->schedule;
    orth_chunk_times *times = ORTH_ARENA_ARRAY(ctx, &arena, orth_chunk_times, c->num_chunks);
    orth_status st = times ? orth_schedule_make(ctx, &arena, &s, name, j->pp, j->pp == 1 ? 1 : j->chunks, (int)j->num_micro_batches) : ORTH_ERR_NOMEM;
    const orth_link_place next = {.n = 2, .per_node = 1, .num_nodes = 2, .same_node = (double)j->tp * j->pp * j->dp * j->cp <= x->attention.node_devices};
    const double bytes = 2.0 * (double)(j->micro_batch * j->seq_len / j->cp * j->model.hidden) / (j->sequence_parallel ? j->tp : 1);
    for (int k = 0; st == ORTH_OK && k < c->num_chunks; k++) {
        times[k] = times_of(x, c, k);
        if (j->zero == 3 && j->pp == 1)
            hide_gathers(x, c, k, &times[k]);
        times[k].send_forward = times[k].send_backward = link_seconds(x, ORTH_COMM_SEND, bytes, &next);
    }
    if (st == ORTH_OK)
        st = orth_schedule_simulate(ctx, &arena, &s, times, &sim);
    if (st == ORTH_OK) {
        e->bubble_s = free_bubble ? LEFT_BUBBLE * sim.ideal : sim.bubble;
        e->step_s = sim.ideal + e->bubble_s;
        e->forward_s = times[0].time[ORTH_ACTION_F] * (double)j->num_micro_batches * j->chunks;
        e->backward_s = sim.ideal - e->forward_s;
    }
    orth_arena_release(ctx, &arena);
    return st;
}

/* Of data-parallel communication what the last backward does not hide. */
static double exposed(const pricing *x, const cut *c, double elems)
{
    const orth_job *j = x->job;
    const int n = j->dp * j->cp;
    const orth_link_place place = data_place(x);
    const orth_chunk_times t = times_of(x, c, 0);
    if (n == 1)
        return 0;
    double s = 0;
    if (j->zero == 3 && j->pp == 1)
        s = j->hybrid_shards ? HYBRID_EXPOSED * link_seconds(x, ORTH_COMM_ALL_REDUCE, j->reduced_bytes * elems / place.n, &place) : 0;
    else
        s = link_seconds(x, ORTH_COMM_REDUCE_SCATTER, j->reduced_bytes * elems, &place) + link_seconds(x, ORTH_COMM_ALL_GATHER, (j->zero ? 2 : j->reduced_bytes) * elems, &place);
    return s - fmin(x->system->overlap * s, t.time[ORTH_ACTION_B] * j->chunks);
}

/* Micro-batches whose activations a rank of the first, or of the last, stage holds at once. */
static double in_flight(const orth_job *j, bool last)
{
    const double m = (double)j->num_micro_batches, p = j->pp, v = j->chunks;
    if (p == 1)
        return 1;
    if (strcmp(j->schedule, NO_BUBBLE) == 0)
        return fmin(m, 2 * p); /* Qi et al. 2023, "Zero bubble pipeline parallelism": twice those of 1F1B, on every stage */
    return fmin(m, last ? ((v - 1) * p + 1) / v : v > 1 ? p * (1 + (p - 1) / (p * v)) : p);
}

/* 16-bit copies of fp32 weights (autocast), the "parameters" of its recipe, are there to the end of the forward; in the backward only until it
 * has passed their layer, and none of layers that are made again. */
static bool drops_weights(const pricing *x)
{
    return x->system->residual > 2;
}

/* Beyond what the backward needs by theory: copies that a system keeps, and logits with their copies and gradient, on the last stage. */
static double temporary_bytes(const pricing *x, const cut *c, double of_layers, double working)
{
    const orth_job *j = x->job;
    const double num_logits = (double)(j->micro_batch * j->seq_len / j->cp * j->model.vocab / j->tp), logits = x->system->logits * num_logits;
    const double theory = of_layers + working + (j->pp == 1 ? c->head.saved : 0);
    if (drops_weights(x) && j->recompute == ORTH_AGAIN_FULL) {
        const double weights = 2 * (double)j->model.layers / j->pp * c->layer.elems;
        return x->system->saved * of_layers + fmax(logits - weights, logits - 2 * num_logits) - theory;
    }
    const double last = of_layers * in_flight(j, true) / in_flight(j, false), saved = x->system->saved;
    return fmax(0, fmax(saved * (of_layers + working), saved * (last + working) + logits) - theory);
}

static void add_memory(const pricing *x, const cut *c, double elems, double input, orth_estimate *e)
{
    const orth_job *j = x->job;
    const orth_states s = orth_states_of(&j->recipe, elems, j->zero, (double)j->dp * j->cp);
    const double of_layers = in_flight(j, false) * ceil((double)j->model.layers / j->pp) * kept(j, &c->layer, input);
    const double working = j->recompute == ORTH_AGAIN_NONE ? 0 : saved_of(j, &c->layer) + scores_of(j); /* of the layer that is made again */
    e->params_bytes = s.params + (j->zero == 3 ? 2 * 2 * c->layer.elems : 0);
    e->grads_bytes = s.grads + (j->zero == 3 ? 2 * c->layer.elems : 0);
    e->optimizer_bytes = j->offload_optimizer ? 0 : s.optimizer;
    e->activation_bytes = of_layers + working + (j->pp == 1 ? c->head.saved : 0);
    e->temporary_bytes = temporary_bytes(x, c, of_layers, working);
    /* Gradients that a step makes anew grow while the backward frees activations: the peak is at one of its ends. */
    const double held = j->num_micro_batches > 1 ? 1 : x->system->grads;
    const double end = e->grads_bytes + working - (drops_weights(x) ? e->params_bytes : 0), loss = held * e->grads_bytes + e->activation_bytes + e->temporary_bytes;
    e->peak_bytes = e->params_bytes + e->optimizer_bytes + fmax(loss, end);
}

/* The mean rank's seconds by what its kernels do, without what is made again. */
static void add_kinds(const pricing *x, const cut *c, orth_estimate *e)
{
    const double times = (double)x->job->num_micro_batches / x->job->pp, layers = (double)x->job->model.layers;
    e->products_s = times * (layers * c->layer.all_products + c->head.all_products);
    e->attention_s = times * layers * c->layer.all_attention;
    e->rows_s = times * (layers * c->layer.all_rows + c->embed.all_rows + c->final.all_rows + c->head.all_rows);
}

static orth_status build(orth_ctx *ctx, const orth_job *j, orth_model_blocks *out)
{
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = (int32_t)j->micro_batch, .seq_len = (int32_t)j->seq_len,
                              .num_micro_batches = 1, .compute = ORTH_BF16, .optimizer = ORTH_OP_adamw};
    shape.parts = j->cp > 1 ? j->cp * (j->tp % 2 ? 2 * j->tp : j->tp) : j->tp;
    shape.mesh.size[ORTH_GROUP_TP] = j->tp;
    shape.mesh.size[ORTH_GROUP_CP] = j->cp;
    shape.mesh.size[ORTH_GROUP_KV] = (int32_t)ORTH_MAX(1, j->tp / j->model.kv_heads);
    shape.mesh.sequence_parallel = j->sequence_parallel;
    shape.mesh.cp_heads = 1;
    return orth_model_blocks_build(ctx, &j->model, &shape, out);
}

orth_status orth_estimate_step(orth_ctx *ctx, const orth_job *job, const orth_hardware *h, const orth_software *software,
                               const orth_system *system, const orth_device_shares *shares, orth_estimate *out)
{
    orth_model_blocks blocks;
    pricing x = {.job = job, .attention = *h, .software = software, .system = system, .launch = 1e-6 * system->launch_us};
    ORTH_TRY(build(ctx, job, &blocks));
    x.attention.device_gemm_share = fmin(1, shares->gemm * system->products);
    x.attention.device_attention_share = fmin(1, shares->attention * system->fused);
    x.attention.device_launch_us = system->launch_us;
    x.products = x.attention;
    if (job->fp8) {
        x.products.device_bf16_tflops = h->device_fp8_tflops;
        x.products.device_gemm_share = fmin(1, shares->fp8 * system->products);
    }
    x.tp = group_place(h, job->tp, 1);
    x.cp = group_place(h, job->cp, job->tp);
    const int64_t rows = blocks.spec.seq_len / blocks.spec.head_chunks, times = (int64_t)blocks.spec.head_chunks * job->micro_batch;
    cut c = {.embed = price_block(&x, &blocks.embed, 0, 1), .layer = price_block(&x, &blocks.layer, 0, 1),
             .final = price_block(&x, &blocks.final, 0, 1), .head = price_block(&x, &blocks.head, rows, times)};
    orth_model_blocks_release(&blocks);
    c.layer.saved += copies_of(&x);
    add_casts(&x, &c.layer);
    add_casts(&x, &c.head);
    cut_layers(job, &c);
    *out = (orth_estimate){.step_s = 0};
    ORTH_TRY(run_schedule(ctx, &x, &c, out));
    const double elems = (double)job->model.layers / job->pp * c.layer.elems + c.embed.elems + (job->pp == 1 && !job->model.tied ? c.head.elems : 0);
    const double input = system->residual * (double)(job->micro_batch * job->seq_len / job->cp * job->model.hidden) / (job->sequence_parallel ? job->tp : 1);
    const double updated = elems / (job->zero ? (double)job->dp * job->cp : 1), nodes = fmax(1, (double)job->tp * job->pp * job->dp * job->cp / h->node_devices);
    out->data_parallel_s = exposed(&x, &c, elems);
    out->update_s = UPDATE_BYTES * updated / (1e9 * UPDATE_MEMORY * h->device_memory_GBps);
    if (job->offload_optimizer)
        out->update_s += 1e-9 * updated * (OFFLOAD_BYTES / OFFLOAD_LINK_GBps + UPDATE_BYTES / OFFLOAD_HOST_GBps);
    out->step_s = (out->step_s + out->data_parallel_s + out->update_s) * (1 + system->jitter * log2(nodes));
    add_kinds(&x, &c, out);
    out->layer_forward_s = forward_of(&c.layer);
    out->layer_backward_s = c.layer.input + c.layer.weights + c.layer.back_calls + again(job, &c.layer);
    const double all = (double)job->num_micro_batches * job->dp * job->tp * job->cp;
    out->flops = all * ((double)job->model.layers * c.layer.flops + c.head.flops);
    out->hardware_flops = out->flops + (job->recompute == ORTH_AGAIN_FULL ? all * (double)job->model.layers * c.layer.flops / 3 : 0);
    add_memory(&x, &c, elems, input, out);
    return ORTH_OK;
}
