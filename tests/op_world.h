/* op_world.h -- block graphs run in double, by one rank or two at once, and their gradients against finite differences.
 *
 * Computing nodes are run by the plain kernels in double (ref_double.h); nodes that speak to other ranks by what they mean, all
 * ranks together. Ring attention is run by its lowering, both ranks in turns.
 */
#ifndef ORTH_TESTS_OP_WORLD_H
#define ORTH_TESTS_OP_WORLD_H

#include "op_case.h"
#include "program/lower/ring.h"

#define RANKS 2

#define OP(name, ...) orth_status orth_double_##name(orth_ctx *ctx, const orth_op_call *call);
#include "kernels/ops.def"
#undef OP

static const orth_kernel_fn kernels[] = {
#define OP(name, ...) [ORTH_OP_##name] = orth_double_##name,
#include "kernels/ops.def"
#undef OP
};

/* One graph for each rank, alike but for attributes. */
typedef struct {
    orth_ctx *ctx;
    int ranks;
    orth_graph g[RANKS];
    orth_tensor *value[RANKS];  /* doubles, or integers, or step values */
    int32_t num_seqs;
    bool same_input;            /* all ranks have the same input, and the same gradient of it */
    bool same_output;           /* all ranks have the same output: L has it once */
    const orth_attr *shared_kv; /* the k and v columns of the input are the same on all ranks */
    double scale;               /* of the gradient (the loss writes it times step.loss_scale) */
    const char *what;
} world;

/* ---- values ---- */

static double *at(const world *w, int r, orth_value v)
{
    return w->value[r][v].data;
}

static int64_t elems(const world *w, orth_value v)
{
    return orth_tensor_elems(&w->value[0][v]);
}

/* Room for every value that has none yet. */
static void make_values(world *w)
{
    for (int r = 0; r < w->ranks; r++) {
        const orth_graph *g = &w->g[r];
        orth_tensor *old = w->value[r];
        w->value[r] = calloc((size_t)g->num_values, sizeof *old);
        for (orth_value v = 0; v < g->num_values; v++) {
            const orth_value_info *info = &g->values[v];
            orth_tensor *t = &w->value[r][v];
            *t = (orth_tensor){.dtype = info->dtype, .num_dims = info->num_dims};
            memcpy(t->dim, info->dim, sizeof t->dim);
            t->data = calloc((size_t)orth_tensor_elems(t) + 1, sizeof(double));
        }
        free(old);
    }
}

static void fill_value(world *w, int r, orth_value v, uint64_t seed)
{
    for (int64_t i = 0; i < elems(w, v); i++)
        at(w, r, v)[i] = (double)test_rand(seed, (uint64_t)i);
}

static void world_free(world *w)
{
    for (int r = 0; r < w->ranks; r++) {
        for (orth_value v = 0; v < w->g[r].num_values; v++)
            free(w->value[r][v].data);
        free(w->value[r]);
        orth_graph_release(&w->g[r]);
    }
}

/* ---- what nodes that speak to other ranks mean ---- */

/* Row t of sequence s of rank r's part of rows that all ranks have together. */
static int64_t whole_row(const world *w, int64_t rows, int64_t s, int r, int64_t t)
{
    const int64_t T = rows / w->num_seqs;
    return (s * w->ranks + r) * T + t;
}

static void gather(world *w, const orth_node *n)
{
    const int64_t rows = w->value[0][n->in[0]].dim[0], cols = elems(w, n->in[0]) / rows, T = rows / w->num_seqs;
    for (int to = 0; to < w->ranks; to++)
        for (int r = 0; r < w->ranks; r++)
            for (int64_t i = 0; i < rows; i++)
                memcpy(at(w, to, n->out[0]) + whole_row(w, rows, i / T, r, i % T) * cols, at(w, r, n->in[0]) + i * cols,
                       (size_t)cols * sizeof(double));
}

static double over_ranks(const world *w, const orth_node *n, int64_t i)
{
    double sum = at(w, 0, n->in[0])[i];
    for (int r = 1; r < w->ranks; r++)
        sum = n->attr.maximum ? fmax(sum, at(w, r, n->in[0])[i]) : sum + at(w, r, n->in[0])[i];
    return sum;
}

static void call_all_reduce(world *w, const orth_node *n)
{
    for (int r = 0; r < w->ranks; r++)
        for (int64_t i = 0; i < elems(w, n->in[0]); i++)
            at(w, r, n->out[0])[i] = over_ranks(w, n, i);
}

static void scatter(world *w, const orth_node *n)
{
    const int64_t rows = w->value[0][n->out[0]].dim[0], cols = elems(w, n->out[0]) / rows, T = rows / w->num_seqs;
    for (int r = 0; r < w->ranks; r++)
        for (int64_t i = 0; i < rows * cols; i++)
            at(w, r, n->out[0])[i] =
                over_ranks(w, n, whole_row(w, rows, i / cols / T, r, i / cols % T) * cols + i % cols);
}

static bool changes_rows(const world *w, const orth_node *n)
{
    return elems(w, n->in[0]) != elems(w, n->out[0]);
}

static void call_enter(world *w, const orth_node *n)
{
    for (int r = 0; r < w->ranks && !changes_rows(w, n); r++)
        memcpy(at(w, r, n->out[0]), at(w, r, n->in[0]), (size_t)elems(w, n->in[0]) * sizeof(double));
    if (changes_rows(w, n))
        gather(w, n);
}

static void call_leave(world *w, const orth_node *n)
{
    if (changes_rows(w, n))
        scatter(w, n);
    else
        call_all_reduce(w, n);
}

static void call_gather_rows(world *w, const orth_node *n)
{
    gather(w, n);
}

static void call_scatter_rows(world *w, const orth_node *n)
{
    scatter(w, n);
}

/* Of each sequence block r to rank r. */
static void call_all_to_all(world *w, const orth_node *n)
{
    const int64_t count = elems(w, n->in[0]), block = count / w->num_seqs / w->ranks;
    for (int to = 0; to < w->ranks; to++)
        for (int from = 0; from < w->ranks; from++)
            for (int64_t s = 0; s < w->num_seqs; s++)
                memcpy(at(w, to, n->out[0]) + (s * w->ranks + from) * block,
                       at(w, from, n->in[0]) + (s * w->ranks + to) * block, (size_t)block * sizeof(double));
}

/* ---- ring attention: its lowering, run by all ranks in turns ---- */

#define MAX_CALLS 32

typedef struct {
    orth_program p;
    double **buffer;
    int32_t at;                                     /* next instruction */
    double *sent[MAX_CALLS], *given[MAX_CALLS];     /* messages to the other rank; parts of sums over both */
    int num_sent, num_given, received;
    struct {
        const orth_instr *call;
        int number;
        bool finished;
    } started[MAX_CALLS];
    int num_started;
} ring_rank;

static double *place_of(ring_rank *k, const orth_operand *o)
{
    return k->buffer[o->buffer] + o->byte_offset / sizeof(float);
}

static int64_t count_of(const orth_operand *o)
{
    const orth_tensor t = orth_operand_tensor(o);
    return orth_tensor_elems(&t);
}

static double *copy_of(ring_rank *k, const orth_operand *o)
{
    double *copy = malloc((size_t)count_of(o) * sizeof *copy);
    memcpy(copy, place_of(k, o), (size_t)count_of(o) * sizeof *copy);
    return copy;
}

static void start_call(ring_rank *k, const orth_instr *n)
{
    assert_true(n->until > 0 && k->num_sent < MAX_CALLS && k->num_given < MAX_CALLS && k->num_started < MAX_CALLS);
    const int slot = k->num_started++;
    k->started[slot].call = n;
    k->started[slot].finished = false;
    if (n->op == ORTH_OP_send)
        k->sent[k->num_sent++] = copy_of(k, &n->in[0]);
    else if (n->op == ORTH_OP_recv)
        k->started[slot].number = k->received++;
    else {
        assert_int_equal(n->op, ORTH_OP_reduce_scatter);
        k->started[slot].number = k->num_given;
        k->given[k->num_given++] = copy_of(k, &n->in[0]);
    }
}

/* False: the other rank is not so far. */
static bool finish_call(ring_rank *k, ring_rank *other, int slot)
{
    const orth_instr *n = k->started[slot].call;
    const int number = k->started[slot].number;
    if (n->op == ORTH_OP_recv) {
        if (number >= other->num_sent)
            return false;
        memcpy(place_of(k, &n->out[0]), other->sent[number], (size_t)count_of(&n->out[0]) * sizeof(double));
    } else if (n->op == ORTH_OP_reduce_scatter) {
        if (number >= other->num_given)
            return false;
        for (int64_t i = 0; i < count_of(&n->out[0]); i++) /* one rank gets all of a block, the other nothing */
            place_of(k, &n->out[0])[i] = k->given[number][i] + other->given[number][i];
    }
    return true;
}

static void run_kernel(orth_ctx *ctx, ring_rank *k, const orth_instr *n)
{
    orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    for (int i = 0; i < n->num_in; i++) {
        in[i] = orth_operand_tensor(&n->in[i]);
        in[i].data = n->in[i].buffer < 0 ? NULL : place_of(k, &n->in[i]);
    }
    for (int i = 0; i < n->num_out; i++) {
        out[i] = orth_operand_tensor(&n->out[i]);
        out[i].data = place_of(k, &n->out[i]);
    }
    const orth_op_call call = {in, out, n->num_in, n->num_out, n->attr, NULL};
    CHECK_OK(ctx, kernels[n->op](ctx, &call));
}

/* Finishes what ends before the next instruction. */
static bool finish_calls(ring_rank *k, ring_rank *other)
{
    for (int slot = 0; slot < k->num_started; slot++) {
        if (k->started[slot].finished || k->started[slot].call->until > k->at)
            continue;
        if (!finish_call(k, other, slot))
            return false;
        k->started[slot].finished = true;
    }
    return true;
}

/* Runs one rank as far as it gets. */
static void advance(orth_ctx *ctx, ring_rank *k, ring_rank *other)
{
    for (; finish_calls(k, other) && k->at < k->p.num_instrs; k->at++) {
        const orth_instr *n = &k->p.instrs[k->at];
        if (!orth_op_is_comm(n->op))
            run_kernel(ctx, k, n);
        else
            start_call(k, n);
    }
}

typedef void (*ring_fn)(orth_builder *b, const orth_attr *attr, const orth_operand *in, const orth_operand *out);

/* The lowering of node n for rank r; buffers of its values come first. */
static void open_ring(world *w, int r, const orth_node *n, ring_fn lower, ring_rank *k)
{
    const orth_compile_spec spec = {.mesh = {.size = {[ORTH_GROUP_CP] = RANKS}, .pos = {[ORTH_GROUP_CP] = r}}};
    orth_builder *b = calloc(1, sizeof *b);
    orth_operand all[ORTH_OP_MAX_IN + ORTH_OP_MAX_OUT];
    orth_program_init(w->ctx, &k->p);
    *b = (orth_builder){.ctx = w->ctx, .p = &k->p, .spec = &spec};
    double *data[ORTH_OP_MAX_IN + ORTH_OP_MAX_OUT];
    int num = 0;
    for (int i = 0; i < n->num_in + n->num_out; i++) {
        const orth_value v = i < n->num_in ? n->in[i] : n->out[i - n->num_in];
        all[i] = orth_operand_absent;
        if (v == ORTH_NO_VALUE)
            continue;
        const orth_tensor *t = &w->value[r][v];
        data[num++] = t->data;
        all[i] = orth_operand_of(orth_program_add_buffer(&k->p, &(orth_buffer){.name = "value", .bytes = orth_tensor_bytes(t)}),
                                 t->dtype, t->num_dims, t->dim);
    }
    lower(b, &w->g[r].nodes[n - w->g[0].nodes].attr, all, all + n->num_in);
    CHECK_OK(w->ctx, orth_program_done(&k->p));
    k->buffer = calloc((size_t)k->p.num_buffers, sizeof *k->buffer);
    for (int32_t i = 0; i < k->p.num_buffers; i++)
        k->buffer[i] = i < num ? data[i] : calloc(k->p.buffers[i].bytes / sizeof(float) + 1, sizeof(double));
    k->num_given = k->num_sent = 0;
    k->at = -num; /* how many buffers are not its own; made 0 by run_ring */
    free(b);
}

static void close_ring(ring_rank *k, int32_t borrowed)
{
    for (int32_t i = borrowed; i < k->p.num_buffers; i++)
        free(k->buffer[i]);
    for (int i = 0; i < k->num_sent; i++)
        free(k->sent[i]);
    for (int i = 0; i < k->num_given; i++)
        free(k->given[i]);
    free(k->buffer);
    orth_program_release(&k->p);
}

static void run_ring(world *w, const orth_node *n, ring_fn lower)
{
    ring_rank *k = calloc(RANKS, sizeof *k);
    int32_t borrowed[RANKS];
    for (int r = 0; r < RANKS; r++) {
        open_ring(w, r, n, lower, &k[r]);
        borrowed[r] = -k[r].at;
        k[r].at = 0;
    }
    for (int turn = 0; turn < 100; turn++)
        advance(w->ctx, &k[turn % 2], &k[1 - turn % 2]);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(k[r].at, k[r].p.num_instrs);
        assert_true(finish_calls(&k[r], &k[1 - r]));
        close_ring(&k[r], borrowed[r]);
    }
    free(k);
}

static void call_ring_attention(world *w, const orth_node *n)
{
    run_ring(w, n, orth_build_ring_forward);
}

static void call_ring_attention_bwd(world *w, const orth_node *n)
{
    run_ring(w, n, orth_build_ring_backward);
}

/* ---- running a graph ---- */

typedef void (*call_fn)(world *w, const orth_node *n);
#define call_none NULL

static const call_fn calls[ORTH_NUM_OPS] = {
#define OP(...)
#define COMM(name, in, out, vjp, lower, ...) [ORTH_OP_##name] = call_##lower,
#define GRAPH(name, in, out, vjp, lower, ...) [ORTH_OP_##name] = call_##lower,
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
};

static void run_node(world *w, int r, const orth_node *n)
{
    const orth_tensor absent = {.data = NULL};
    orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    for (int k = 0; k < n->num_in; k++)
        in[k] = n->in[k] == ORTH_NO_VALUE ? absent : w->value[r][n->in[k]];
    for (int k = 0; k < n->num_out; k++)
        out[k] = n->out[k] == ORTH_NO_VALUE ? absent : w->value[r][n->out[k]];
    const orth_op_call call = {in, out, n->num_in, n->num_out, &n->attr, NULL};
    CHECK_OK(w->ctx, kernels[n->op](w->ctx, &call));
}

static void run_nodes(world *w, int32_t first, int32_t end)
{
    for (int32_t i = first; i < end; i++) {
        const orth_node *n = &w->g[0].nodes[i];
        if (orth_op_is_comm(n->op))
            calls[n->op](w, n);
        else
            for (int r = 0; r < w->ranks; r++)
                run_node(w, r, &w->g[r].nodes[i]);
    }
}

static double loss(world *w)
{
    const orth_graph *g = &w->g[0];
    double sum = 0;
    run_nodes(w, 0, g->num_forward);
    for (int r = 0; r < (w->same_output ? 1 : w->ranks); r++)
        for (int64_t i = 0; i < elems(w, g->output); i++)
            sum += at(w, r, g->output)[i] * (g->output_grad == ORTH_NO_VALUE ? 1 : at(w, r, g->output_grad)[i]);
    return sum;
}

/* ---- comparing ---- */

/* Whether element i of the input is rank 0's on all ranks. */
static bool is_shared(const world *w, int64_t i)
{
    const orth_attr *a = w->shared_kv;
    if (!a)
        return w->same_input;
    const int64_t R = orth_attn_qkv_cols(a), group = R / a->kv_heads;
    return i % R % group < 2 * a->head_dim;
}

static double direction(const world *w, int r, uint64_t seed, int64_t i)
{
    return (double)test_rand(seed + (is_shared(w, i) ? 0 : (uint64_t)r), (uint64_t)i);
}

static double loss_at(world *w, orth_value v, double *const from[RANKS], uint64_t seed, double h)
{
    const size_t bytes = (size_t)elems(w, v) * sizeof(double);
    for (int r = 0; r < w->ranks; r++)
        for (int64_t i = 0; i < elems(w, v); i++)
            at(w, r, v)[i] = from[r][i] + h * direction(w, r, seed, i);
    const double l = loss(w);
    for (int r = 0; r < w->ranks; r++)
        memcpy(at(w, r, v), from[r], bytes);
    return l;
}

/* The gradient of v on each rank, kept while v changes. */
static void check_gradient(world *w, orth_value v, orth_value gradient)
{
    const int64_t n = elems(w, v);
    double *from[RANKS], *grad[RANKS], size = 0;
    assert_int_equal(n, elems(w, gradient));
    for (int r = 0; r < w->ranks; r++) {
        from[r] = memcpy(malloc((size_t)n * sizeof(double)), at(w, r, v), (size_t)n * sizeof(double));
        grad[r] = memcpy(malloc((size_t)n * sizeof(double)), at(w, r, gradient), (size_t)n * sizeof(double));
        for (int64_t i = 0; i < n; i++)
            size += grad[r][i] * grad[r][i];
    }
    size = sqrt(size);
    if (!(size > 1e-9 && isfinite(size)))
        fail_msg("%s: the gradient of '%s' has the norm %g", w->what, w->g[0].values[v].name, size);
    for (uint64_t k = 0; k < 3; k++) {
        const double h = 1e-3;
        double want = 0;
        for (int r = 0; r < w->ranks; r++)
            for (int64_t i = 0; i < n; i++)
                if (r == 0 || !is_shared(w, i))
                    want += grad[r][i] * direction(w, r, 70 + 10 * k, i);
        const double near = loss_at(w, v, from, 70 + 10 * k, h) - loss_at(w, v, from, 70 + 10 * k, -h);
        const double far = loss_at(w, v, from, 70 + 10 * k, 2 * h) - loss_at(w, v, from, 70 + 10 * k, -2 * h);
        const double got = w->scale * (8 * near - far) / (12 * h);
        if (!(fabs(got - want) <= 1e-7 * (size + fabs(want))))
            fail_msg("%s: '%s' along direction %d: derived %.10g, by differences %.10g (the gradient's norm is %.4g)", w->what,
                     w->g[0].values[v].name, (int)k, want, got, size);
    }
    for (int r = 0; r < w->ranks; r++) {
        free(from[r]);
        free(grad[r]);
    }
}

/* Differentiates, and checks the gradients of the input and of all parameters; the number of them. */
static int check_world(world *w, void (*fill)(world *w, void *arg), void *arg)
{
    int checked = 0;
    for (int r = 0; r < w->ranks; r++)
        CHECK_OK(w->ctx, orth_graph_differentiate(&w->g[r], w->g[r].input != ORTH_NO_VALUE));
    const orth_graph *g = &w->g[0];
    make_values(w);
    fill(w, arg);
    for (int r = 0; r < w->ranks && g->output_grad != ORTH_NO_VALUE; r++)
        fill_value(w, r, g->output_grad, w->same_output ? 50 : 50 + (uint64_t)r);
    loss(w);
    run_nodes(w, g->num_forward, g->num_nodes);
    for (int32_t i = g->num_forward; i < g->num_nodes; i++) {
        const orth_node *n = &g->nodes[i];
        for (orth_value v = 0; n->param >= 0 && v < g->num_values; v++)
            if (g->values[v].kind == ORTH_VALUE_PARAM && g->values[v].slot == n->param) {
                check_gradient(w, v, n->out[n->param_out]);
                checked++;
            }
    }
    if (g->input != ORTH_NO_VALUE) {
        check_gradient(w, g->input, g->input_grad);
        checked++;
    }
    world_free(w);
    return checked;
}

static world world_of(orth_ctx *ctx, int ranks, const char *what)
{
    world w = {.ctx = ctx, .ranks = ranks, .num_seqs = 2, .scale = 1, .what = what};
    for (int r = 0; r < ranks; r++)
        orth_graph_init(ctx, &w.g[r]);
    return w;
}

#endif
