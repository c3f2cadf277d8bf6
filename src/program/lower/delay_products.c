/* delay_products.c -- which weight gradients of a block are computed while the gradient of its input waits for other ranks.
 *
 *     derived   dX dW [all-reduce of dX] norm ...          the call needs dX only, and nobody in the block needs dW:
 *     in order  dX [all-reduce of dX] dW norm ...          so dW comes behind it, and overlap.c lets both go on at once
 *
 * With sequence parallelism two calls follow each other, the reduce-scatter that ends one half of the layer and the
 * all-gather that begins the next, with only a norm between. The products before them are shared out, one to each:
 *
 *     derived   dX2 dW2 dX1 dW1 [reduce-scatter] norm [all-gather] dX0 ...
 *     in order  dX2 dX1 [reduce-scatter] dW2 norm [all-gather] dW1 dX0 ...
 *
 * For a block whose backward begins with a call, the block above leaves its last product to the end, as it does for the
 * sums of its last gains over ranks. Other small sums come behind the product. No number changes, only when it is made.
 */
#include "program/ir/graph.h"

/* Sets for_weights of the backward nodes, walking back from the gradient of the input. */
static orth_status find_weight_nodes(orth_graph *g)
{
    bool *needed = ORTH_ARENA_ARRAY(g->ctx, &g->arena, bool, g->num_values);
    if (!needed)
        return ORTH_ERR_NOMEM;
    if (g->input_grad != ORTH_NO_VALUE)
        needed[g->input_grad] = true;
    for (int32_t i = g->num_nodes - 1; i >= g->num_forward; i--) {
        orth_node *n = &g->nodes[i];
        n->for_weights = true;
        for (int k = 0; k < n->num_out; k++)
            if (n->out[k] != ORTH_NO_VALUE && needed[n->out[k]])
                n->for_weights = false;
        for (int k = 0; k < n->num_in && !n->for_weights; k++)
            if (n->in[k] != ORTH_NO_VALUE)
                needed[n->in[k]] = true;
    }
    return ORTH_OK;
}

typedef struct {
    orth_graph *g;
    int32_t *behind;              /* [num_nodes] the node behind which one is moved; -1: it stays */
    int32_t *products, *calls;    /* [num_nodes] since the calls before, and the calls behind them */
    int32_t num_products, num_calls;
    bool begins_with_call;
} order;

/* ROWS: without sequence parallelism all ranks have all rows. */
static const enum { NO = 0, ROWS, YES } waits[ORTH_NUM_OPS] = {
#define OP(...)
#define COMM(name, in, out, vjp, lower, waits, ...) [ORTH_OP_##name] = waits,
#define GRAPH(name, in, out, vjp, lower, waits, ...) [ORTH_OP_##name] = waits,
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
};

/* Of a weight's gradient. */
static bool is_product(const orth_node *n)
{
    return orth_op_family_of(n->op) == ORTH_OPS_PRODUCT && n->param >= 0 && n->for_weights;
}

/* Whether the gradient of the input must wait for a call here. Gathers are made of what the forward left. */
static bool is_call(const orth_graph *g, const orth_node *n)
{
    if (n->for_weights || waits[n->op] == NO)
        return false;
    return waits[n->op] == YES || g->values[n->in[0]].dim[0] != g->values[n->out[0]].dim[0];
}

/* The last products to the calls, in order. */
static void share_out(order *o)
{
    int32_t num = ORTH_MIN(o->num_products, o->num_calls);
    for (int32_t k = 0; k < num; k++)
        o->behind[o->products[o->num_products - num + k]] = o->calls[k];
    o->begins_with_call = o->begins_with_call || (o->num_calls > 0 && o->num_products == 0);
    o->num_products = num > 0 ? 0 : o->num_products;
    o->num_calls = 0;
}

static void share_out_products(order *o)
{
    const orth_graph *g = o->g;
    for (int32_t i = g->num_forward; i < g->num_nodes; i++) {
        o->behind[i] = -1;
        if (is_product(&g->nodes[i])) {
            if (o->num_calls > 0)
                share_out(o);
            o->products[o->num_products++] = i;
        } else if (is_call(g, &g->nodes[i])) {
            o->calls[o->num_calls++] = i;
        }
    }
    int32_t sum = g->num_nodes - 1; /* of the last leaves over ranks */
    while (sum > g->num_forward && (g->nodes[sum].op != ORTH_OP_all_reduce || g->nodes[sum].attr.maximum))
        sum--;
    bool sums_leaves = sum > g->num_forward && (o->num_products == 0 || sum > o->products[o->num_products - 1]);
    if (sums_leaves || o->begins_with_call) /* the call of the next block */
        o->calls[o->num_calls++] = sums_leaves ? sum : g->num_nodes - 1;
    share_out(o);
}

/* What stands between call i and the node that it needs. */
static void move_behind(order *o, int32_t i)
{
    for (int32_t k = i - 1; k >= o->g->num_forward && o->g->nodes[k].for_weights; k--)
        if (o->behind[k] < 0)
            o->behind[k] = i;
}

/* Behind a call: what quantises operands of the product, the product, small sums. */
static int turn_of(const orth_node *n)
{
    return orth_op_family_of(n->op) == ORTH_OPS_QUANT || n->attr.maximum ? 0 : is_product(n) ? 1 : 2;
}

static void place(orth_graph *g, orth_node *nodes, int32_t *at, const orth_node *n)
{
    for (int k = 0; k < n->num_out; k++)
        if (n->out[k] != ORTH_NO_VALUE)
            g->values[n->out[k]].producer = *at;
    nodes[(*at)++ - g->num_forward] = *n;
}

orth_status orth_graph_delay_products(orth_graph *g)
{
    int32_t num = g->num_nodes - g->num_forward, at = g->num_forward;
    int32_t *all = ORTH_ARENA_ARRAY(g->ctx, &g->arena, int32_t, 3 * (int64_t)g->num_nodes + 1);
    orth_node *nodes = ORTH_ARENA_ARRAY(g->ctx, &g->arena, orth_node, num + 1);
    if (!all || !nodes)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(find_weight_nodes(g));
    order o = {.g = g, .behind = all, .products = all + g->num_nodes, .calls = all + 2 * (int64_t)g->num_nodes};
    share_out_products(&o);
    for (int32_t i = g->num_forward; i < g->num_nodes; i++)
        if (is_call(g, &g->nodes[i]))
            move_behind(&o, i);
    for (int32_t i = g->num_forward; i < g->num_nodes; i++) {
        if (o.behind[i] < 0)
            place(g, nodes, &at, &g->nodes[i]);
        for (int turn = 0; turn < 3; turn++)
            for (int32_t k = g->num_forward; k <= i; k++)
                if (o.behind[k] == i && turn_of(&g->nodes[k]) == turn)
                    place(g, nodes, &at, &g->nodes[k]);
    }
    memcpy(g->nodes + g->num_forward, nodes, (size_t)num * sizeof *nodes);
    return ORTH_OK;
}
