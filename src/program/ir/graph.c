/* graph.c -- building a block graph. */
#include "program/ir/graph.h"

#include "kernels/signature.h"

void orth_graph_init(orth_ctx *ctx, orth_graph *g)
{
    *g = (orth_graph){.ctx = ctx, .input = ORTH_NO_VALUE, .output = ORTH_NO_VALUE,
                      .input_grad = ORTH_NO_VALUE, .output_grad = ORTH_NO_VALUE};
}

void orth_graph_release(orth_graph *g)
{
    orth_mem_free(g->ctx, g->values);
    orth_mem_free(g->ctx, g->nodes);
    orth_arena_release(g->ctx, &g->arena);
    g->values = NULL;
    g->nodes = NULL;
}

/* Makes room for one more element; false if the graph has failed. */
static bool grow(orth_graph *g, void **array, int32_t *cap, int32_t num, size_t elem)
{
    if (!g->failed && !orth_mem_grow(g->ctx, array, cap, num, elem))
        g->failed = ORTH_ERR_NOMEM;
    return !g->failed;
}

orth_value orth_graph_add_value(orth_graph *g, orth_value_kind kind, int32_t slot, orth_dtype dtype,
                                const char *name, int32_t num_dims, const int64_t *dim)
{
    if (!grow(g, (void **)&g->values, &g->cap_values, g->num_values, sizeof *g->values))
        return 0;
    orth_value_info *v = &g->values[g->num_values];
    *v = (orth_value_info){.kind = kind, .slot = slot, .dtype = dtype, .num_dims = num_dims, .name = name,
                           .producer = -1};
    for (int i = 0; i < ORTH_MAX_DIMS; i++)
        v->dim[i] = i < num_dims ? dim[i] : 1;
    return g->num_values++;
}

static const char *const data_names[ORTH_NUM_DATA] = {
    "tokens", "positions", "positions_sp", "doc_starts", "targets", "weights", "seq", "step", "rope_table", "past",
    "cache_k", "cache_v", "fp8.scales", "fp8.amax", "fp8.amax_history",
};

const char *orth_data_slot_name(orth_data_slot slot)
{
    return data_names[slot];
}

orth_value orth_graph_data(orth_graph *g, orth_data_slot slot, orth_dtype dtype, int64_t d0, int64_t d1,
                           int64_t d2)
{
    const int64_t dim[] = {d0, d1, d2};
    const int num_dims = d2 > 0 ? 3 : d1 > 0 ? 2 : 1;
    for (orth_value v = 0; v < g->num_values; v++) {
        const orth_value_info *old = &g->values[v];
        if (old->kind != ORTH_VALUE_DATA || old->slot != (int32_t)slot)
            continue;
        if (old->dtype != dtype || old->num_dims != num_dims || memcmp(old->dim, dim, (size_t)num_dims * sizeof *dim))
            g->failed = ORTH_FAIL(g->ctx, ORTH_ERR_INTERNAL, "block graph: '%s' is used with two shapes or types",
                                  data_names[slot]);
        return v;
    }
    return orth_graph_add_value(g, ORTH_VALUE_DATA, (int32_t)slot, dtype, data_names[slot], num_dims, dim);
}

orth_value orth_graph_param(orth_graph *g, int32_t weight, const char *name, orth_dtype dtype, int32_t num_dims,
                            const int64_t *dim)
{
    const orth_value v = orth_graph_add_value(g, ORTH_VALUE_PARAM, g->num_params++, dtype, name, num_dims, dim);
    if (!g->failed)
        g->values[v].weight = weight;
    return v;
}

orth_value orth_graph_temp(orth_graph *g, const char *name, orth_dtype dtype, int64_t d0, int64_t d1)
{
    const int64_t dim[] = {d0, d1};
    return orth_graph_add_value(g, ORTH_VALUE_TEMP, -1, dtype, name, d1 > 0 ? 2 : 1, dim);
}

static orth_tensor shape_of(const orth_graph *g, orth_value v)
{
    orth_tensor t = {.num_dims = 0};
    if (v == ORTH_NO_VALUE)
        return t;
    t.dtype = g->values[v].dtype;
    t.num_dims = g->values[v].num_dims;
    memcpy(t.dim, g->values[v].dim, sizeof t.dim);
    return t;
}

static bool fits(orth_graph *g, orth_op op, const orth_attr *attr, int num_in, const orth_value *in, int num_out,
                 const orth_value *out)
{
    orth_tensor inputs[ORTH_OP_MAX_IN], outputs[ORTH_OP_MAX_OUT];
    orth_signature s;
    char why[256];
    orth_signature_of(op, &s);
    for (int i = 0; i < num_in && i < ORTH_OP_MAX_IN; i++)
        inputs[i] = shape_of(g, in[i]);
    for (int i = 0; i < num_out && i < ORTH_OP_MAX_OUT; i++)
        outputs[i] = shape_of(g, out[i]);
    if (orth_signature_fits(&s, attr, inputs, num_in, outputs, num_out, why, sizeof why))
        return true;
    g->failed = ORTH_FAIL(g->ctx, ORTH_ERR_INTERNAL, "block graph, node %d: %s", g->num_nodes, why);
    return false;
}

orth_node *orth_graph_add(orth_graph *g, orth_op op, const orth_attr *attr, int num_in, const orth_value *in,
                          int num_out, const orth_value *out)
{
    if (!grow(g, (void **)&g->nodes, &g->cap_nodes, g->num_nodes, sizeof *g->nodes) ||
        !fits(g, op, attr, num_in, in, num_out, out))
        return NULL;
    orth_node *n = &g->nodes[g->num_nodes];
    *n = (orth_node){.op = op, .attr = orth_attr_for(op, attr), .num_in = num_in, .num_out = num_out, .param = -1};
    for (int i = 0; i < num_in; i++)
        n->in[i] = in[i];
    for (int i = 0; i < num_out; i++) {
        n->out[i] = out[i];
        if (out[i] != ORTH_NO_VALUE)
            g->values[out[i]].producer = g->num_nodes;
    }
    g->num_nodes++;
    return n;
}

orth_status orth_graph_done(orth_graph *g)
{
    return g->failed;
}

/* ---- rows in chunks ---- */

static bool reads(const orth_node *n, orth_value v)
{
    for (int k = 0; k < n->num_in; k++)
        if (n->in[k] == v)
            return true;
    return false;
}

/* Whether a chunked forward node reads v. */
static bool read_in_chunks(const orth_graph *g, orth_value v)
{
    for (int32_t i = 0; i < g->num_forward; i++)
        if (g->nodes[i].chunked && reads(&g->nodes[i], v))
            return true;
    return false;
}

/* Backward nodes that read what chunks make of the forward, or a matrix of theirs, or make the gradient of one. A bias's gradient is a
 * sum over whole sequences. */
static bool belongs_to_chunks(const orth_graph *g, const orth_node *n)
{
    for (int k = 0; k < n->num_in; k++) {
        const orth_value_info *v = n->in[k] == ORTH_NO_VALUE ? NULL : &g->values[n->in[k]];
        if (v && v->kind == ORTH_VALUE_TEMP && v->producer < g->num_forward && g->nodes[v->producer].chunked &&
            read_in_chunks(g, n->in[k]))
            return true;
        if (v && v->kind == ORTH_VALUE_PARAM && v->num_dims == 2 && read_in_chunks(g, n->in[k]))
            return true;
    }
    for (orth_value p = 0; n->param >= 0 && !n->leaves && p < g->num_values; p++)
        if (g->values[p].kind == ORTH_VALUE_PARAM && g->values[p].slot == n->param)
            return read_in_chunks(g, p);
    return false;
}

void orth_graph_mark_chunked(orth_graph *g)
{
    bool any = false;
    for (int32_t i = 0; i < g->num_forward; i++)
        any = any || g->nodes[i].chunked;
    for (int32_t i = g->num_forward; any && i < g->num_nodes; i++)
        g->nodes[i].chunked = belongs_to_chunks(g, &g->nodes[i]);
    for (orth_value v = 0; any && v < g->num_values; v++) {
        const int32_t producer = g->values[v].producer;
        bool inside = g->values[v].kind == ORTH_VALUE_TEMP && producer >= 0 && g->nodes[producer].chunked && v != g->output &&
                      v != g->input_grad;
        for (int32_t i = 0; inside && i < g->num_nodes; i++)
            inside = g->nodes[i].chunked || !reads(&g->nodes[i], v);
        g->values[v].chunked = inside;
    }
}
