/* recompute.c -- see recompute.h. */
#include "program/lower/recompute.h"

#include <math.h>

#include "program/ir/comm_call.h"

/* Whether `word` means op: its name, or what it is a variant of. A layout or a precision may have attention_part in place of attention,
 * qlinear in place of linear. */
static bool names(const char *word, orth_op op)
{
    if (strcmp(word, orth_op_name(ORTH_OP_attention)) == 0)
        return orth_op_role_of(op) == ORTH_ROLE_SCORES;
    if (op == ORTH_OP_qlinear && strcmp(word, orth_op_name(ORTH_OP_linear)) == 0)
        return true;
    return strcmp(word, orth_op_name(op)) == 0;
}

static bool is_named(const orth_recompute *r, orth_op op)
{
    for (int32_t i = 0; i < r->num_ops; i++)
        if (names(r->ops[i], op))
            return true;
    return false;
}

static bool is_marked(const orth_recompute *r, int32_t layer, const orth_graph *g, int32_t node)
{
    const orth_op op = g->nodes[node].op;
    switch (r->kind) {
    case ORTH_RECOMPUTE_NONE: return false;
    case ORTH_RECOMPUTE_SELECTIVE: return orth_op_role_of(op) == ORTH_ROLE_SCORES;
    case ORTH_RECOMPUTE_OPS: return is_named(r, op);
    case ORTH_RECOMPUTE_KEEP: return !is_named(r, op);
    case ORTH_RECOMPUTE_CHOSEN: return node < ORTH_RECOMPUTE_NODES && r->chosen[layer] >> node & 1;
    default: return true;
    }
}

orth_status orth_recompute_check(orth_ctx *ctx, const orth_recompute *r, const orth_graph *layer, int32_t tp)
{
    const int64_t *dim = layer->values[layer->input].dim;
    if (r->split_input && dim[0] * dim[1] % tp != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "memory.recompute_split: tp=%d does not divide the %lld elements of a layer's input", (int)tp,
                         (long long)(dim[0] * dim[1]));
    for (int32_t i = 0; i < r->num_ops; i++) {
        char all[256] = "";
        bool found = false;
        for (int32_t n = 0; n < layer->num_forward; n++) {
            const char *name = orth_op_name(layer->nodes[n].op);
            found = found || names(r->ops[i], layer->nodes[n].op);
            if (!strstr(all, name) && strlen(all) + strlen(name) + 3 < sizeof all) {
                strcat(all, n ? ", " : "");
                strcat(all, name);
            }
        }
        if (!found)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "memory.recompute_ops: a layer of this model and layout has no '%s'; it has %s",
                             r->ops[i], all);
    }
    return ORTH_OK;
}

/* Nodes that make no bytes of their own: the output lies where the input does (lower/blocks.c). */
static bool is_in_place(orth_op op, bool sequence_parallel)
{
    const orth_comm_kind call = orth_op_comm_kind(op, sequence_parallel);
    return orth_op_is_comm(op) && (call == ORTH_COMM_ALL_REDUCE || call == ORTH_NO_CALL);
}

static bool read_by_backward(const orth_graph *g, orth_value v)
{
    for (int32_t i = g->num_forward; i < g->num_nodes; i++)
        for (int k = 0; k < g->nodes[i].num_in; k++)
            if (g->nodes[i].in[k] == v)
                return true;
    return false;
}

static bool is_held(const orth_recompute *r, const orth_graph *g, int32_t node)
{
    if (r->kind == ORTH_RECOMPUTE_CHOSEN)
        return node < ORTH_RECOMPUTE_NODES && r->holds >> node & 1;
    return r->kind == ORTH_RECOMPUTE_KEEP && is_named(r, g->nodes[node].op);
}

/* A marked node needs v. What a plain run would not keep is made again, too, unless it is held, or its op is named as kept. */
static void need(const orth_recompute *r, const orth_graph *g, bool sequence_parallel, bool *again, orth_value v)
{
    const int32_t p = v == ORTH_NO_VALUE ? -1 : g->values[v].producer;
    if (p < 0 || again[p] || read_by_backward(g, v) || is_held(r, g, p))
        return;
    const int32_t before = g->values[g->nodes[p].in[0]].producer;
    again[p] = !is_in_place(g->nodes[p].op, sequence_parallel);
    for (int k = 0; k < g->nodes[p].num_in; k++)
        need(r, g, sequence_parallel, again, g->nodes[p].in[k]);
    again[p] = again[p] || (before >= 0 && again[before]);
}

/* A node in place is kept or made again with the one whose bytes it takes over. */
void orth_recompute_mark(const orth_recompute *r, int32_t layer, const orth_graph *g, bool sequence_parallel, bool *again)
{
    for (int32_t i = 0; i < g->num_forward; i++) {
        const int32_t p = g->values[g->nodes[i].in[0]].producer;
        again[i] = is_in_place(g->nodes[i].op, sequence_parallel) ? p >= 0 && again[p] : is_marked(r, layer, g, i);
    }
    for (int32_t i = g->num_forward - 1; i >= 0; i--)
        for (int k = 0; again[i] && k < g->nodes[i].num_in; k++)
            need(r, g, sequence_parallel, again, g->nodes[i].in[k]);
}

static int32_t chosen_group(const uint64_t *chosen, int32_t num_layers, int32_t layer)
{
    int32_t first = layer;
    while (first > 0 && chosen[first] & ORTH_RECOMPUTE_JOINED)
        first--;
    const bool alone = first == layer && (layer + 1 == num_layers || !(chosen[layer + 1] & ORTH_RECOMPUTE_JOINED));
    return alone && !(chosen[layer] & ~ORTH_RECOMPUTE_JOINED) ? -1 : first;
}

int32_t orth_recompute_group(const orth_recompute *r, int32_t first_layer, int32_t num_layers, int32_t layer)
{
    int32_t size = ORTH_MAX(r->layers, 1);
    switch (r->kind) {
    case ORTH_RECOMPUTE_NONE: return -1;
    case ORTH_RECOMPUTE_ALL: return 0;
    case ORTH_RECOMPUTE_CHOSEN: return chosen_group(r->chosen + first_layer, num_layers, layer);
    case ORTH_RECOMPUTE_SQRT: size = (int32_t)ceil(sqrt((double)num_layers)); break;
    case ORTH_RECOMPUTE_FULL:
        if (r->block)
            return layer < size ? layer : -1;
        break;
    default: return layer;
    }
    return layer - layer % size;
}
