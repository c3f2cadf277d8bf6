/* vjp.c -- the vector-Jacobian product of each op, in terms of other ops: vjp_<name>, named by a row of ops.def.
 *
 * The walk goes over the forward nodes from last to first; grad[v] is the value that holds the
 * gradient of v so far. A value with several consumers gets its sum where possible inside a kernel
 * (norm_bwd's dres), otherwise by an `add`; the order is the reverse order of the consumers, fixed
 * by the graph.
 */
#include "program/ir/quantise.h"

/* Leaves of parameter value p that other ranks' are being added to. */
typedef struct {
    orth_value p, leaves;
    orth_attr attr;
} merge;

#define MAX_MERGES 16 /* between two products */

typedef struct {
    orth_graph *g;
    orth_value *grad;       /* [cap] per forward value, ORTH_NO_VALUE: none yet */
    bool needs_input_grad;
    orth_value kv_again;    /* keys and values of all tokens, gathered for the backward of attention; ORTH_NO_VALUE */
    merge merges[MAX_MERGES];
    int num_merges;
} walk;

static orth_value like_as(walk *w, orth_value v, const char *prefix, orth_dtype dtype)
{
    orth_graph *g = w->g;
    if (g->failed)
        return 0;
    orth_value_info info = g->values[v];
    const char *name = orth_arena_printf(g->ctx, &g->arena, "%s%s", prefix, info.name);
    if (!name)
        g->failed = ORTH_ERR_NOMEM;
    return orth_graph_add_value(g, ORTH_VALUE_TEMP, -1, dtype, name, info.num_dims, info.dim);
}

static orth_value like(walk *w, orth_value v, const char *prefix)
{
    return w->g->failed ? 0 : like_as(w, v, prefix, w->g->values[v].dtype);
}

static bool wants_grad(const walk *w, orth_value v)
{
    orth_value_kind k = w->g->values[v].kind;
    return k == ORTH_VALUE_TEMP || (k == ORTH_VALUE_INPUT && w->needs_input_grad);
}

/* grad[v] += d. */
static void accumulate(walk *w, orth_value v, orth_value d)
{
    if (w->grad[v] == ORTH_NO_VALUE) {
        w->grad[v] = d;
        return;
    }
    orth_value sum = like(w, v, "d.");
    const orth_value in[] = {w->grad[v], d}, out[] = {sum};
    orth_graph_add(w->g, ORTH_OP_add, &(orth_attr){0}, 2, in, 1, out);
    w->grad[v] = sum;
}

static orth_node *emit(walk *w, orth_op op, const orth_attr *attr, int num_in, const orth_value *in,
                       int num_out, const orth_value *out)
{
    return orth_graph_add(w->g, op, attr, num_in, in, num_out, out);
}

/* A gradient of parameter value p, fp32; leaves: [B, n] per sequence. */
static orth_value param_grad(walk *w, orth_value p, bool leaves, int64_t B)
{
    orth_graph *g = w->g;
    if (g->failed)
        return 0;
    orth_value_info info = g->values[p];
    const char *name = orth_arena_printf(g->ctx, &g->arena, "d.%s", info.name);
    if (!name)
        g->failed = ORTH_ERR_NOMEM;
    const int64_t leaf_dim[] = {B, info.dim[0]};
    return leaves ? orth_graph_add_value(g, ORTH_VALUE_TEMP, -1, ORTH_F32, name, 2, leaf_dim)
                  : orth_graph_add_value(g, ORTH_VALUE_TEMP, -1, ORTH_F32, name, info.num_dims, info.dim);
}

/* Marks out[out_index] of node n as the gradient of parameter value p. */
static void mark(walk *w, orth_node *n, orth_value p, int out_index, bool leaves)
{
    if (!n)
        return;
    n->param = w->g->values[p].slot;
    n->param_out = out_index;
    n->leaves = leaves;
}

/* dst = tree over the sequences of leaves[B, n]: the node that the program turns into gradient
 * accumulation. */
static void add_leaves(walk *w, const merge *m)
{
    orth_value sum = param_grad(w, m->p, false, 0);
    const orth_value in[] = {m->leaves}, out[] = {sum};
    mark(w, emit(w, ORTH_OP_tree_acc, &m->attr, 1, in, 1, out), m->p, 0, true);
}

static void add_pending_leaves(walk *w)
{
    for (int i = 0; i < w->num_merges && !w->g->failed; i++)
        add_leaves(w, &w->merges[i]);
    w->num_merges = 0;
}

/* Each rank has the tokens of its rows. TP splits those that CP left, so it comes first. What ranks must tell each other
 * is awaited behind the next product. */
static void merge_leaves(walk *w, orth_value p, orth_value leaves, const orth_attr *attr)
{
    static const orth_group inner_first[] = {ORTH_GROUP_TP, ORTH_GROUP_CP};
    for (int i = 0; i < ORTH_COUNT(inner_first) && !w->g->failed; i++) {
        if (!(attr->sum_leaves >> inner_first[i] & 1))
            continue;
        orth_value whole = like(w, leaves, "sum.");
        emit(w, ORTH_OP_all_reduce, &(orth_attr){.group = inner_first[i]}, 1, &leaves, 1, &whole);
        leaves = whole;
    }
    const merge m = {p, leaves, *attr};
    if (w->g->failed)
        return;
    if (!attr->sum_leaves) {
        add_leaves(w, &m);
        return;
    }
    if (w->num_merges == MAX_MERGES)
        add_pending_leaves(w);
    w->merges[w->num_merges++] = m;
}

static void vjp_embed(walk *w, const orth_node *n)
{
    orth_value dx = w->grad[n->out[0]], wte = n->in[2], wpe = n->in[3];
    const orth_value in[] = {n->in[0], dx}, out[] = {param_grad(w, wte, false, 0)};
    orth_attr attr = n->attr;
    mark(w, emit(w, ORTH_OP_embed_bwd, &attr, 2, in, 1, out), wte, 0, false);
    if (wpe == ORTH_NO_VALUE)
        return;
    const orth_value pin[] = {n->in[1], dx}, pout[] = {param_grad(w, wpe, false, 0)};
    mark(w, emit(w, ORTH_OP_pos_embed_bwd, &attr, 2, pin, 1, pout), wpe, 0, false);
}

static void vjp_norm(walk *w, const orth_node *n)
{
    orth_value x = n->in[0], res = n->in[1], gain = n->in[2], shift = n->in[3];
    orth_value sum = n->out[1] == ORTH_NO_VALUE ? x : n->out[1];
    orth_attr attr = n->attr;
    int64_t B = attr.num_seqs;
    /* What reaches the normalised value by the residual path goes through the same kernel. */
    orth_value dres = w->grad[sum], dx = like(w, sum, "d.");
    orth_value dgain = param_grad(w, gain, true, B);
    orth_value dshift = shift == ORTH_NO_VALUE ? ORTH_NO_VALUE : param_grad(w, shift, true, B);
    const orth_value in[] = {w->grad[n->out[0]], sum, n->out[2], gain, dres}, out[] = {dx, dgain, dshift};
    emit(w, ORTH_OP_norm_bwd, &attr, 5, in, 3, out);
    merge_leaves(w, gain, dgain, &attr);
    if (shift != ORTH_NO_VALUE)
        merge_leaves(w, shift, dshift, &attr);
    if (res == ORTH_NO_VALUE) {
        w->grad[x] = dx;
        return;
    }
    accumulate(w, x, dx);
    accumulate(w, res, dx);
}

/* The gradient of x = act(pre) is folded into the product that makes it: the result is then the
 * gradient of `pre`, which is what the producer's own products want. */
static orth_value activation_input(const walk *w, orth_value x, orth_act *act)
{
    int32_t p = w->g->values[x].producer;
    if (p < 0 || w->g->nodes[p].attr.act == ORTH_ACT_NONE) /* only products have one */
        return ORTH_NO_VALUE;
    *act = w->g->nodes[p].attr.act;
    return w->g->nodes[p].out[1];
}

/* Keys and values of attention node n are gathered a second time, so that no layer keeps those of all tokens for its
 * backward. */
static void gather_again(walk *w, const orth_node *n)
{
    orth_graph *g = w->g;
    if (g->failed)
        return;
    orth_node gather = g->nodes[g->values[n->in[1]].producer], pack = g->nodes[g->values[gather.in[0]].producer];
    orth_value qkv = n->in[0], mine = like(w, gather.in[0], "again.");
    w->kv_again = like(w, gather.out[0], "again.");
    emit(w, pack.op, &pack.attr, 1, &qkv, 1, &mine);
    emit(w, gather.op, &gather.attr, 1, &mine, 1, &w->kv_again);
}

/* What the backward of attention will ask of others does not wait for the product behind it. */
static void ask_ahead(walk *w, orth_value x)
{
    int32_t p = w->g->failed ? -1 : w->g->values[x].producer;
    if (p >= 0 && w->g->nodes[p].op == ORTH_OP_attention_part) {
        const orth_node attention = w->g->nodes[p]; /* a copy: emitting may move the array */
        gather_again(w, &attention);
    }
}

/* Operands of the backward of a product: values, or, with scales, codes. */
typedef struct {
    orth_value x, weight, bias;     /* what the gradients are of */
    orth_quantised_value dy, saved; /* saved: x as the forward had it */
    bool quantised, by_tokens;      /* by_tokens: anew for the gradient of the weight */
} product_use;

static void product_dx(walk *w, const orth_node *n, const product_use *u)
{
    orth_attr attr = n->attr;
    attr.act = ORTH_ACT_NONE;
    attr.split = n->attr.split_out;
    attr.split_out = n->attr.split;
    orth_value pre = activation_input(w, u->x, &attr.act);
    orth_value dx = attr.partial ? like_as(w, u->x, "d.", ORTH_F32) : like(w, pre == ORTH_NO_VALUE ? u->x : pre, "d.");
    if (u->quantised) {
        const orth_quantised_value weight = orth_quantise_weight_back(w->g, u->weight, &n->attr);
        const orth_value in[] = {u->dy.codes, weight.codes, u->dy.scales, weight.scales, u->dy.amax, weight.amax, pre};
        emit(w, ORTH_OP_qlinear_dx, &attr, 7, in, 1, &dx);
    } else {
        const orth_value in[] = {u->dy.codes, u->weight, pre};
        emit(w, ORTH_OP_linear_dx, &attr, 3, in, 1, &dx);
    }
    accumulate(w, pre == ORTH_NO_VALUE ? u->x : pre, dx);
}

static void product_dw(walk *w, const orth_node *n, const product_use *u)
{
    orth_attr attr = n->attr;
    attr.act = ORTH_ACT_NONE;
    const int64_t rows = w->g->failed ? 0 : w->g->values[u->x].dim[0];
    if (rows == (int64_t)attr.num_seqs * attr.seq_len)
        attr.split = (orth_split){ORTH_SPLIT_TOKENS, attr.token_parts, attr.seq_len, 1, attr.num_seqs};
    else /* a chunk of the head: lowering says which leaves of a sequence its rows are */
        attr.split = ORTH_SPLIT_WHOLE(rows);
    const orth_value in[] = {u->dy.codes, u->saved.codes, u->dy.scales, u->saved.scales, u->dy.amax, u->saved.amax}, out[] = {param_grad(w, u->weight, false, 0)};
    mark(w, emit(w, u->quantised ? ORTH_OP_qlinear_dw : ORTH_OP_linear_dw, &attr, u->quantised ? 6 : 2, in, 1, out), u->weight, 0, false);
}

static void product_backward(walk *w, const orth_node *n, product_use *u)
{
    const orth_value dy = w->grad[n->attr.act == ORTH_ACT_NONE ? n->out[0] : n->out[1]];
    ask_ahead(w, u->x);
    u->dy = u->quantised ? orth_quantise_gradient(w->g, dy, &n->attr) : (orth_quantised_value){dy, ORTH_NO_VALUE, ORTH_NO_VALUE};
    if (wants_grad(w, u->x))
        product_dx(w, n, u);
    if (u->bias != ORTH_NO_VALUE) {
        const orth_value in[] = {dy}, out[] = {param_grad(w, u->bias, true, n->attr.num_seqs)};
        emit(w, ORTH_OP_bias_bwd, &n->attr, 1, in, 1, out);
        merge_leaves(w, u->bias, out[0], &n->attr);
    }
    if (u->by_tokens) {
        u->dy = orth_quantise_gradient_tokens(w->g, dy, &n->attr);
        u->saved = orth_quantise_activation_tokens(w->g, u->x, &n->attr);
    }
    product_dw(w, n, u);
    add_pending_leaves(w);
}

static void vjp_linear(walk *w, const orth_node *n)
{
    product_backward(w, n, &(product_use){.x = n->in[0], .weight = n->in[1], .bias = n->in[2], .saved = {n->in[0], ORTH_NO_VALUE, ORTH_NO_VALUE}});
}

/* Straight through: the gradient of what was rounded is that of what it was rounded to. */
static void vjp_qlinear(walk *w, const orth_node *n)
{
    if (w->g->failed)
        return;
    product_backward(w, n, &(product_use){.x = orth_quantised_from(w->g, n->in[0]), .weight = orth_quantised_from(w->g, n->in[1]), .bias = n->in[6],
                                          .saved = {n->in[0], n->in[2], n->in[4]}, .quantised = true,
                                          .by_tokens = orth_recipe_of(n->attr.recipe)->tile_k > 0});
}

/* What the heads of this rank add to the gradients of kv, slot by slot, becomes what all heads of their groups add. */
static orth_value sum_over_groups(walk *w, orth_value kv, orth_value slots)
{
    orth_value whole = like(w, slots, "sum."), dkv = like_as(w, kv, "d.", ORTH_F32);
    emit(w, ORTH_OP_all_reduce, &(orth_attr){.group = ORTH_GROUP_KV}, 1, &slots, 1, &whole);
    emit(w, ORTH_OP_tree_acc, &(orth_attr){0}, 1, &whole, 1, &dkv);
    return dkv;
}

/* Of an attention node with these rows and keys: *dq, of which the query columns are made; the gradients of kv. */
static orth_value part_backward(walk *w, const orth_node *n, orth_value kv, const orth_value rest[3], orth_value *dq)
{
    orth_graph *g = w->g;
    const orth_attr *a = &n->attr;
    orth_value dkv;
    *dq = like(w, n->in[0], "d.q.");
    if (a->shares_kv) {
        const int64_t elems = g->failed ? 0 : g->values[kv].dim[0] * g->values[kv].dim[1];
        dkv = orth_graph_temp(g, "d.kv.slots", ORTH_F32, a->slot_count, elems);
    } else {
        dkv = like_as(w, kv, "d.", ORTH_F32);
    }
    const orth_value in[] = {w->grad[n->out[0]], n->in[0], kv, n->out[0], n->out[1], rest[0], rest[1], rest[2]};
    const orth_value out[] = {*dq, dkv};
    emit(w, ORTH_OP_attention_part_bwd, a, 8, in, 2, out);
    return a->shares_kv ? sum_over_groups(w, kv, dkv) : dkv;
}

/* Ranks that share kv heads sum the gradients of these before they are rounded. */
static void vjp_attention_shared(walk *w, const orth_node *n)
{
    orth_graph *g = w->g;
    const orth_attr *a = &n->attr;
    orth_value dq, kv = orth_graph_temp(g, "kv", g->failed ? ORTH_F32 : g->values[n->in[0]].dtype,
                                        (int64_t)a->num_seqs * a->seq_len, 2 * (int64_t)a->kv_heads * a->head_dim);
    emit(w, ORTH_OP_kv_pack, a, 1, &n->in[0], 1, &kv);
    orth_value dkv = part_backward(w, n, kv, n->in + 1, &dq), dqkv = like(w, n->in[0], "d.");
    const orth_value in[] = {dq, dkv};
    emit(w, ORTH_OP_kv_unpack_grad, a, 2, in, 1, &dqkv);
    accumulate(w, n->in[0], dqkv);
}

static void attention_backward(walk *w, const orth_node *n, orth_op op)
{
    orth_value dqkv = like(w, n->in[0], "d.");
    const orth_value in[] = {w->grad[n->out[0]], n->in[0], n->out[0], n->out[1], n->in[1], n->in[2], n->in[3]};
    const orth_value out[] = {dqkv};
    emit(w, op, &n->attr, 7, in, 1, out);
    accumulate(w, n->in[0], dqkv);
}

static void vjp_attention(walk *w, const orth_node *n)
{
    if (n->attr.shares_kv)
        vjp_attention_shared(w, n);
    else
        attention_backward(w, n, ORTH_OP_attention_bwd);
}

static void vjp_ring_attention(walk *w, const orth_node *n)
{
    attention_backward(w, n, ORTH_OP_ring_attention_bwd);
}

static void vjp_attention_part(walk *w, const orth_node *n)
{
    if (w->kv_again == ORTH_NO_VALUE)
        gather_again(w, n);
    if (w->g->failed)
        return;
    orth_value dq, dkv = part_backward(w, n, w->kv_again, n->in + 2, &dq);
    w->kv_again = ORTH_NO_VALUE;
    accumulate(w, n->in[0], dq); /* its query columns; the others come by kv_pack */
    accumulate(w, n->in[1], dkv);
}

static void vjp_gather_rows(walk *w, const orth_node *n)
{
    if (w->grad[n->out[0]] == ORTH_NO_VALUE) /* document starts */
        return;
    orth_value dx = like_as(w, n->in[0], "d.", ORTH_F32);
    emit(w, ORTH_OP_scatter_rows, &n->attr, 1, &w->grad[n->out[0]], 1, &dx);
    accumulate(w, n->in[0], dx);
}

static void vjp_kv_pack(walk *w, const orth_node *n)
{
    orth_value dqkv = like(w, n->in[0], "d.");
    const orth_value in[] = {w->grad[n->in[0]], w->grad[n->out[0]]};
    emit(w, ORTH_OP_kv_unpack_grad, &n->attr, 2, in, 1, &dqkv);
    w->grad[n->in[0]] = dqkv;
}

/* As merge_leaves, for leaves [B*P, n] per sequence and token slot, of this rank's heads if attr->partial. */
static void merge_slots(walk *w, orth_value p, orth_value slots, const orth_attr *attr)
{
    orth_attr rows = *attr;
    if (w->g->failed)
        return;
    if (attr->partial) {
        orth_value whole = like(w, slots, "sum.");
        emit(w, ORTH_OP_all_reduce, &(orth_attr){.group = ORTH_GROUP_TP}, 1, &slots, 1, &whole);
        slots = whole;
    }
    rows.seq_len = rows.token_parts; /* a row is a slot */
    orth_value leaves = param_grad(w, p, true, attr->num_seqs);
    emit(w, ORTH_OP_bias_bwd, &rows, 1, &slots, 1, &leaves);
    merge_leaves(w, p, leaves, attr);
}

static void vjp_head_norm(walk *w, const orth_node *n)
{
    orth_attr attr = n->attr;
    int64_t slots = (int64_t)attr.num_seqs * attr.token_parts;
    orth_value dqkv = like(w, n->in[0], "d.");
    orth_value dq = param_grad(w, n->in[1], true, slots), dk = param_grad(w, n->in[2], true, slots);
    const orth_value in[] = {w->grad[n->out[0]], n->in[0], n->out[1], n->in[1], n->in[2]};
    const orth_value out[] = {dqkv, dq, dk};
    emit(w, ORTH_OP_head_norm_bwd, &attr, 5, in, 3, out);
    accumulate(w, n->in[0], dqkv);
    merge_slots(w, n->in[1], dq, &attr);
    merge_slots(w, n->in[2], dk, &attr);
}

/* Whole rows entered: what comes back are this rank's parts of a sum, in fp32. */
static void vjp_enter(walk *w, const orth_node *n)
{
    orth_graph *g = w->g;
    orth_value x = n->in[0], dy = w->grad[n->out[0]];
    orth_value sum = like_as(w, x, "d.", ORTH_F32), dx = sum;
    emit(w, ORTH_OP_leave, &n->attr, 1, &dy, 1, &sum);
    if (!g->failed && g->values[x].dtype != ORTH_F32) {
        dx = like(w, x, "d.");
        const orth_value in[] = {sum, ORTH_NO_VALUE};
        emit(w, ORTH_OP_round_bias, &n->attr, 2, in, 1, &dx);
    }
    accumulate(w, x, dx);
}

static void vjp_leave(walk *w, const orth_node *n)
{
    if (w->g->failed)
        return;
    orth_value ds = w->grad[n->out[0]];
    orth_value dv = like_as(w, n->in[0], "d.", w->g->values[ds].dtype);
    emit(w, ORTH_OP_enter, &n->attr, 1, &ds, 1, &dv);
    accumulate(w, n->in[0], dv);
}

static void vjp_round_bias(walk *w, const orth_node *n)
{
    orth_attr attr = n->attr;
    orth_value dy = w->grad[n->out[0]], bias = n->in[1];
    accumulate(w, n->in[0], dy);
    if (bias == ORTH_NO_VALUE)
        return;
    orth_value leaves = param_grad(w, bias, true, attr.num_seqs);
    emit(w, ORTH_OP_bias_bwd, &attr, 1, &dy, 1, &leaves);
    merge_leaves(w, bias, leaves, &attr);
}

/* Ops of one activation in (in[0]) and one out whose product is `op` on (dy, the listed operands). */
static void vjp_unary(walk *w, const orth_node *n, orth_op op, bool inverse, bool pass_input)
{
    orth_attr attr = n->attr;
    attr.inverse = inverse;
    orth_value dx = like(w, n->in[0], "d.");
    orth_value in[ORTH_OP_MAX_IN] = {w->grad[n->out[0]]};
    int num_in = 1;
    for (int i = pass_input ? 0 : 1; i < n->num_in; i++)
        in[num_in++] = n->in[i];
    const orth_value out[] = {dx};
    emit(w, op, &attr, num_in, in, 1, out);
    accumulate(w, n->in[0], dx);
}

#define VJP_UNARY(name, op, inverse, pass_input)            \
    static void vjp_##name(walk *w, const orth_node *n)     \
    {                                                       \
        vjp_unary(w, n, ORTH_OP_##op, inverse, pass_input); \
    }
VJP_UNARY(swiglu, swiglu_bwd, false, true)
VJP_UNARY(rope, rope, true, false)
VJP_UNARY(dropout, dropout, false, false)
VJP_UNARY(heads_split, heads_join, false, false)
VJP_UNARY(heads_join, heads_split, false, false)
VJP_UNARY(all_to_all, all_to_all, false, false)

static void vjp_add(walk *w, const orth_node *n)
{
    accumulate(w, n->in[0], w->grad[n->out[0]]);
    accumulate(w, n->in[1], w->grad[n->out[0]]);
}

/* Between the parts of a split cross-entropy: nothing flows back. */
static void vjp_stop(walk *w, const orth_node *n)
{
    (void)w;
    (void)n;
}

/* The second output is the gradient of the logits. */
static void vjp_loss(walk *w, const orth_node *n)
{
    w->grad[n->in[0]] = n->out[1];
}

typedef void (*vjp_fn)(walk *w, const orth_node *n);
#define vjp_none NULL

static const vjp_fn vjps[ORTH_NUM_OPS] = {
#define OP(name, family, in, out, vjp, ...) [ORTH_OP_##name] = vjp_##vjp,
#define COMM(name, in, out, vjp, ...) [ORTH_OP_##name] = vjp_##vjp,
#define GRAPH(name, in, out, vjp, ...) [ORTH_OP_##name] = vjp_##vjp,
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
};

orth_status orth_graph_differentiate(orth_graph *g, bool needs_input_grad)
{
    ORTH_TRY(orth_graph_done(g));
    walk w = {.g = g, .needs_input_grad = needs_input_grad, .kv_again = ORTH_NO_VALUE};
    g->num_forward = g->num_nodes;
    w.grad = ORTH_ARENA_ARRAY(g->ctx, &g->arena, orth_value, g->num_values);
    if (!w.grad)
        return ORTH_ERR_NOMEM;
    for (orth_value v = 0; v < g->num_values; v++)
        w.grad[v] = ORTH_NO_VALUE;
    const vjp_fn last = vjps[g->nodes[g->values[g->output].producer].op];
    if (last != vjp_loss) {
        orth_value_info info = g->values[g->output];
        orth_dtype dtype = last == vjp_enter ? ORTH_F32 : info.dtype; /* parts of a sum come back */
        g->output_grad = orth_graph_add_value(g, ORTH_VALUE_INPUT, 1, dtype, "d.out", info.num_dims, info.dim);
        w.grad[g->output] = g->output_grad;
    }
    for (int32_t i = g->num_forward - 1; i >= 0; i--) {
        orth_node n = g->nodes[i]; /* a copy: emitting may move the array */
        if (!vjps[n.op])
            return ORTH_FAIL(g->ctx, ORTH_ERR_INTERNAL, "op %s has no vector-Jacobian product", orth_op_name(n.op));
        vjps[n.op](&w, &n);
        ORTH_TRY(orth_graph_done(g));
    }
    add_pending_leaves(&w);
    ORTH_TRY(orth_graph_done(g));
    if (needs_input_grad)
        g->input_grad = w.grad[g->input];
    return orth_graph_delay_products(g);
}
