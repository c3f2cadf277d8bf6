/* test_ops_double.c -- the derivative of every op that has one (column vjp of ops.def) against finite differences in double.
 *
 * The plain kernels, compiled with double for float (ref_double.h), run a graph of the op and the backward that vjp.c derives
 * from it; ops that speak to other ranks run on two at once, node by node. L is a random linear form of the outputs of all
 * ranks. Along random directions the derived gradients must give what a central difference of fourth order gives.
 *
 * A node is drawn from its row (derive_row), unless its `vjp` is in the table `apart`. A row whose `lower` has no call_<lower> does
 * not compile.
 */
#include "op_world.h"

/* ---- one node, drawn from its row ---- */

typedef struct {
    op_case *c;
    orth_value value[ORTH_OP_MAX_IN]; /* of each operand */
    orth_value second;                /* weight of the product behind an activation; ORTH_NO_VALUE */
} drawn;

static bool is_weight(const orth_sig_operand *o)
{
    static const char *const weights[] = {"w", "bias", "gain", "shift", "wte", "wpe", "qgain", "kgain"};
    for (int i = 0; i < ORTH_COUNT(weights); i++)
        if (strlen(weights[i]) == (size_t)o->name_size && memcmp(weights[i], o->name, (size_t)o->name_size) == 0)
            return true;
    return false;
}

static bool is_activation(const orth_sig_operand *o)
{
    return (o->type[0] == 'c' || o->type[0] == 'f') && !o->step && !is_weight(o) &&
           !(o->name_size == 5 && memcmp(o->name, "table", 5) == 0) && !(o->name_size == 6 && memcmp(o->name, "weight", 6) == 0);
}

static const char *name_of(orth_graph *g, const orth_sig_operand *o)
{
    return orth_arena_printf(g->ctx, &g->arena, "%.*s", o->name_size, o->name);
}

static void fill_drawn(world *w, void *arg)
{
    const drawn *d = arg;
    for (int k = 0; k < d->c->num_in; k++)
        if (d->value[k] != ORTH_NO_VALUE)
            for (int r = 0; r < w->ranks; r++)
                memcpy(at(w, r, d->value[k]), d->c->in[k].data, case_bytes(d->c, &d->c->in[k]));
    if (d->second != ORTH_NO_VALUE)
        fill_value(w, 0, d->second, 30);
}

/* The gradient of an activation is folded into the product behind it. */
static void add_product(orth_graph *g, drawn *d)
{
    const int64_t N = d->c->out[0].dim[0], O = d->c->out[0].dim[1];
    orth_attr attr = d->c->attr;
    attr.act = ORTH_ACT_NONE;
    attr.split = ORTH_SPLIT_WHOLE(O);
    attr.split_out = ORTH_SPLIT_WHOLE(4);
    d->second = orth_graph_param(g, 0, "second", ORTH_F32, 2, (const int64_t[]){4, O});
    const orth_value in[] = {g->output, d->second, ORTH_NO_VALUE};
    g->output = orth_graph_temp(g, "behind", ORTH_F32, N, 4);
    orth_graph_add(g, ORTH_OP_linear, &attr, 3, in, 1, &g->output);
}

static void add_sum(orth_graph *g, const drawn *d, const orth_value out[2])
{
    g->output = orth_graph_add_value(g, ORTH_VALUE_TEMP, -1, ORTH_F32, "both", 2, d->c->out[0].dim);
    orth_graph_add(g, ORTH_OP_add, &d->c->attr, 2, out, 1, &g->output);
}

/* The node, with operand `input` as what enters the graph, and what uses its outputs. */
static void add_drawn(orth_graph *g, drawn *d, int input)
{
    op_case *c = d->c;
    orth_value out[ORTH_OP_MAX_OUT];
    for (int k = 0; k < c->num_in; k++) {
        const orth_sig_operand *o = &c->sig.in[k];
        const orth_tensor *t = &c->in[k];
        d->value[k] = ORTH_NO_VALUE;
        if (!t->data)
            continue;
        const orth_value_kind kind = k == input ? ORTH_VALUE_INPUT : is_activation(o) ? ORTH_VALUE_TEMP : ORTH_VALUE_DATA;
        d->value[k] = is_weight(o) ? orth_graph_param(g, 0, name_of(g, o), t->dtype, t->num_dims, t->dim)
                                   : orth_graph_add_value(g, kind, k, t->dtype, name_of(g, o), t->num_dims, t->dim);
        g->input = k == input ? d->value[k] : g->input;
    }
    for (int k = 0; k < c->num_out; k++)
        out[k] = !c->out[k].data ? ORTH_NO_VALUE
                                 : orth_graph_add_value(g, ORTH_VALUE_TEMP, -1, c->out[k].dtype, name_of(g, &c->sig.out[k]),
                                                        c->out[k].num_dims, c->out[k].dim);
    orth_graph_add(g, c->sig.op, &c->attr, c->num_in, d->value, c->num_out, out);
    g->output = out[0];
    d->second = ORTH_NO_VALUE;
    if (case_has_out(c, "sum"))
        add_sum(g, d, out);
    if (case_has_out(c, "pre"))
        add_product(g, d);
}

static op_case draw_wide(orth_op op, uint64_t seed, uint32_t absent)
{
    op_case c = case_draw(op, seed, ORTH_F32, absent, true);
    const int O = case_letter(&c, "O");
    if (O >= 0)
        c.attr.split_out = ORTH_SPLIT_WHOLE(c.value[O]);
    return c;
}

static int derive_drawn(orth_ctx *ctx, orth_op op, uint64_t seed, uint32_t absent)
{
    int checked = 0, inputs = 0;
    for (int input = 0; input < ORTH_OP_MAX_IN; input++) {
        op_case c = draw_wide(op, seed, absent);
        const bool last = input == c.num_in;
        if (last ? inputs == 0 : (input < c.num_in && c.in[input].data && is_activation(&c.sig.in[input]))) {
            drawn d = {.c = &c};
            world w = world_of(ctx, 1, orth_op_name(op));
            w.scale = op == ORTH_OP_softmax_xent ? (double)c.step.loss_scale : 1;
            w.num_seqs = c.attr.num_seqs;
            add_drawn(&w.g[0], &d, last ? -1 : input);
            checked += check_world(&w, fill_drawn, &d);
            inputs++;
        }
        case_free(c.in, c.num_in);
        case_free(c.out, c.num_out);
        if (last)
            break;
    }
    return checked;
}

static int derive_row(orth_ctx *ctx, orth_op op)
{
    orth_signature s;
    int checked = 0;
    orth_signature_of(op, &s);
    for (uint64_t seed = 0; seed < 4; seed++) {
        checked += derive_drawn(ctx, op, seed, 0);
        for (int k = 0; k < s.num_in + s.num_out; k++)
            if (k < s.num_in ? s.in[k].optional : s.out[k - s.num_in].optional)
                checked += derive_drawn(ctx, op, seed + 10, 1u << k);
    }
    return checked;
}

/* ---- nodes between ranks ---- */

static void fill_input(world *w, void *arg)
{
    (void)arg;
    for (int r = 0; r < w->ranks; r++)
        fill_value(w, r, w->g[0].input, w->same_input ? 20 : 20 + (uint64_t)r);
    for (int r = 1; r < w->ranks; r++)
        for (int64_t i = 0; i < elems(w, w->g[0].input); i++)
            if (is_shared(w, i))
                at(w, r, w->g[0].input)[i] = at(w, 0, w->g[0].input)[i];
}

/* One node from [in_rows, 3] to [out_rows, 3]. */
static int derive_call(orth_ctx *ctx, orth_op op, int64_t in_rows, int64_t out_rows, bool same_input, bool same_output)
{
    world w = world_of(ctx, RANKS, orth_op_name(op));
    const int64_t dim[] = {in_rows, 3};
    w.same_input = same_input;
    w.same_output = same_output;
    for (int r = 0; r < RANKS; r++) {
        orth_graph *g = &w.g[r];
        g->input = orth_graph_add_value(g, ORTH_VALUE_INPUT, 0, ORTH_F32, "x", 2, dim);
        g->output = orth_graph_temp(g, "y", ORTH_F32, out_rows, 3);
        orth_graph_add(g, op, &(orth_attr){0}, 1, &g->input, 1, &g->output);
    }
    return check_world(&w, fill_input, NULL);
}

/* With sequence parallelism, and without. */
static int derive_enter(orth_ctx *ctx, orth_op op)
{
    return derive_call(ctx, op, 4, 8, false, false) + derive_call(ctx, op, 6, 6, true, false);
}

static int derive_leave(orth_ctx *ctx, orth_op op)
{
    return derive_call(ctx, op, 8, 4, false, false) + derive_call(ctx, op, 6, 6, false, true);
}

static int derive_all_to_all(orth_ctx *ctx, orth_op op)
{
    return derive_call(ctx, op, 8, 8, false, false);
}

/* ---- attention over ranks ---- */

static orth_attr attention_attr(int r, int32_t full_len)
{
    return (orth_attr){.num_seqs = 2, .seq_len = full_len / RANKS, .token_parts = 4, .heads = 2, .kv_heads = 1, .head_dim = 4,
                       .head_parts = 1, .full_len = full_len, .slot_begin = 2 * r, .slot_count = 2, .scale = 0.5f,
                       .group = ORTH_GROUP_CP};
}

/* qkv, absent documents and sequences, and the step values that nobody reads without dropout; o and lse. */
static void attention_values(orth_graph *g, const orth_attr *a, orth_value rest[3], orth_value out[2])
{
    const int64_t N = (int64_t)a->num_seqs * a->seq_len, dim[] = {N, orth_attn_qkv_cols(a)};
    g->input = orth_graph_add_value(g, ORTH_VALUE_INPUT, 0, ORTH_F32, "qkv", 2, dim);
    rest[0] = rest[1] = ORTH_NO_VALUE;
    rest[2] = orth_graph_data(g, ORTH_DATA_STEP, ORTH_U8, sizeof(orth_step_values), 0, 0);
    out[0] = g->output = orth_graph_temp(g, "o", ORTH_F32, N, (int64_t)a->heads * a->head_dim);
    out[1] = orth_graph_temp(g, "lse", ORTH_F32, N, a->heads);
}

/* kv_pack, gather_rows, attention_part: they belong together (vjp.c gathers a second time). */
static int derive_attention_part(orth_ctx *ctx, orth_op op)
{
    world w = world_of(ctx, RANKS, orth_op_name(op));
    for (int r = 0; r < RANKS; r++) {
        orth_graph *g = &w.g[r];
        const orth_attr a = attention_attr(r, 16), over = {.group = ORTH_GROUP_CP};
        orth_value rest[3], out[2];
        attention_values(g, &a, rest, out);
        const int64_t N = (int64_t)a.num_seqs * a.seq_len, W = 2 * (int64_t)a.kv_heads * a.head_dim;
        orth_value mine = orth_graph_temp(g, "mine", ORTH_F32, N, W), kv = orth_graph_temp(g, "kv", ORTH_F32, RANKS * N, W);
        orth_graph_add(g, ORTH_OP_kv_pack, &a, 1, &g->input, 1, &mine);
        orth_graph_add(g, ORTH_OP_gather_rows, &over, 1, &mine, 1, &kv);
        const orth_value in[] = {g->input, kv, rest[0], rest[1], rest[2]};
        orth_graph_add(g, ORTH_OP_attention_part, &a, 5, in, 2, out);
    }
    return check_world(&w, fill_input, NULL);
}

static int derive_kv_pack(orth_ctx *ctx, orth_op op)
{
    return derive_attention_part(ctx, op);
}

static int derive_gather_rows(orth_ctx *ctx, orth_op op)
{
    return derive_attention_part(ctx, op);
}

static int derive_ring_attention(orth_ctx *ctx, orth_op op)
{
    world w = world_of(ctx, RANKS, orth_op_name(op));
    for (int r = 0; r < RANKS; r++) {
        const orth_attr a = attention_attr(r, 2 * RANKS * ORTH_ATTN_BLOCK);
        orth_value rest[3], out[2];
        attention_values(&w.g[r], &a, rest, out);
        const orth_value in[] = {w.g[r].input, rest[0], rest[1], rest[2]};
        orth_graph_add(&w.g[r], op, &a, 4, in, 2, out);
    }
    return check_world(&w, fill_input, NULL);
}

/* Also with two ranks that have query heads of one group: k and v are the same on both. */
static int derive_attention(orth_ctx *ctx, orth_op op)
{
    orth_attr a = attention_attr(0, 8);
    world w = world_of(ctx, RANKS, "attention with shared keys");
    a.seq_len = a.full_len;
    a.slot_count = a.token_parts;
    a.shares_kv = true;
    w.shared_kv = &a;
    for (int r = 0; r < RANKS; r++) {
        orth_value rest[3], out[2];
        attention_values(&w.g[r], &a, rest, out);
        const orth_value in[] = {w.g[r].input, rest[0], rest[1], rest[2]};
        orth_graph_add(&w.g[r], op, &a, 4, in, 2, out);
    }
    return derive_row(ctx, op) + check_world(&w, fill_input, NULL);
}

/* ---- losses ---- */

static void fill_loss(world *w, void *arg)
{
    const orth_value *data = arg; /* target, weight, step */
    fill_input(w, NULL);
    for (int r = 0; r < w->ranks; r++) {
        const orth_step_values step = {.loss_scale = 0.125f};
        memcpy(at(w, r, data[2]), &step, sizeof step);
        for (int64_t i = 0; i < elems(w, data[0]); i++) {
            ((int32_t *)w->value[r][data[0]].data)[i] = (int32_t)test_rand_int(5, (uint64_t)i, 0, 13);
            at(w, r, data[1])[i] = i % 4 != 1 ? 0.5 + (double)i : 0;
        }
    }
}

/* Two ranks with 7 of 14 rows of the vocabulary each, which tell each other maxima and sums. */
static int derive_split_loss(orth_ctx *ctx)
{
    enum { N = 6, V = 7 };
    world w = world_of(ctx, RANKS, "xent_grad");
    orth_value data[3];
    w.scale = 0.125;
    w.same_output = true;
    for (int r = 0; r < RANKS; r++) {
        orth_graph *g = &w.g[r];
        const int64_t dim[] = {N, V};
        const orth_attr attr = {.split = ORTH_SPLIT_WHOLE(V), .first_row = r * V}, max = {.maximum = true}, sum = {.maximum = false};
        g->input = orth_graph_add_value(g, ORTH_VALUE_INPUT, 0, ORTH_F32, "logits", 2, dim);
        data[0] = orth_graph_data(g, ORTH_DATA_TARGETS, ORTH_I32, N, 0, 0);
        data[1] = orth_graph_data(g, ORTH_DATA_WEIGHTS, ORTH_F32, N, 0, 0);
        data[2] = orth_graph_data(g, ORTH_DATA_STEP, ORTH_U8, sizeof(orth_step_values), 0, 0);
        orth_value m[2] = {orth_graph_temp(g, "max.part", ORTH_F32, N, 0), orth_graph_temp(g, "max", ORTH_F32, N, 0)};
        orth_value s[2] = {orth_graph_temp(g, "sums.part", ORTH_F32, N, 2), orth_graph_temp(g, "sums", ORTH_F32, N, 2)};
        orth_value out[2] = {orth_graph_temp(g, "nll", ORTH_F32, N, 0), orth_graph_temp(g, "d.logits", ORTH_F32, N, V)};
        const orth_value sum_in[] = {g->input, data[0], m[1]}, in[] = {g->input, data[0], data[1], m[1], s[1], data[2]};
        orth_graph_add(g, ORTH_OP_xent_max, &attr, 1, &g->input, 1, &m[0]);
        orth_graph_add(g, ORTH_OP_all_reduce, &max, 1, &m[0], 1, &m[1]);
        orth_graph_add(g, ORTH_OP_xent_sum, &attr, 3, sum_in, 1, &s[0]);
        orth_graph_add(g, ORTH_OP_all_reduce, &sum, 1, &s[0], 1, &s[1]);
        orth_graph_add(g, ORTH_OP_xent_grad, &attr, 6, in, 2, out);
        g->output = out[0];
    }
    return check_world(&w, fill_loss, data);
}

static int derive_loss(orth_ctx *ctx, orth_op op)
{
    if (op == ORTH_OP_xent_grad)
        return derive_split_loss(ctx);
    return derive_drawn(ctx, op, 1, 0) + derive_drawn(ctx, op, 2, 0);
}

/* ---- all rows ---- */

typedef int (*derive_fn)(orth_ctx *ctx, orth_op op);

/* Derivatives that a node by itself, drawn from its row, does not show; NULL: not tried here. */
static const struct {
    const char *vjp;
    derive_fn by;
} apart[] = {
    {"none", NULL},
    {"stop", NULL},    /* what is between the parts of a loss: derive_split_loss */
    {"qlinear", NULL}, /* straight through roundings, which have no derivative: tests/test_products.c */
    {"attention", derive_attention},
    {"attention_part", derive_attention_part},
    {"kv_pack", derive_kv_pack},
    {"loss", derive_loss},
    {"enter", derive_enter},
    {"leave", derive_leave},
    {"all_to_all", derive_all_to_all},
    {"gather_rows", derive_gather_rows},
    {"ring_attention", derive_ring_attention},
};

static const char *const vjps[ORTH_NUM_OPS] = {
#define OP(name, family, in, out, vjp, ...) [ORTH_OP_##name] = #vjp,
#define COMM(name, in, out, vjp, ...) [ORTH_OP_##name] = #vjp,
#define GRAPH(name, in, out, vjp, ...) [ORTH_OP_##name] = #vjp,
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
};

static derive_fn derive_of(const char *vjp)
{
    for (int i = 0; i < ORTH_COUNT(apart); i++)
        if (strcmp(apart[i].vjp, vjp) == 0)
            return apart[i].by;
    return derive_row;
}

TEST(derivatives_are_those_of_finite_differences)
{
    orth_ctx *ctx = test_ctx(1);
    int ops = 0, gradients = 0;
    ctx->isa = ORTH_ISA_BASE;
    for (int op = 0; op < ORTH_NUM_OPS; op++) {
        const derive_fn derive = derive_of(vjps[op]);
        if (!derive)
            continue;
        const int checked = derive(ctx, (orth_op)op);
        assert_true(checked > 0);
        gradients += checked;
        ops++;
    }
    print_message("%d ops, %d gradients\n", ops, gradients);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derivatives_are_those_of_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
