/* graph.h -- a block of a model as ops over values, and the backward pass derived from it.
 *
 * A model family describes a block (embedding, layer, final norm, a chunk of the head) once, on the
 * shapes local to its rank. Values are written once (SSA). orth_graph_differentiate appends the
 * backward nodes to the same graph: a forward value that a backward node reads is what the block
 * saves between its two actions; nobody lists them by hand.
 */
#ifndef ORTH_PROGRAM_GRAPH_H
#define ORTH_PROGRAM_GRAPH_H

#include "base/arena.h"
#include "kernels/op.h"

typedef int32_t orth_value; /* index into a graph's values; ORTH_NO_VALUE: absent operand */
#define ORTH_NO_VALUE (-1)

typedef enum {
    ORTH_VALUE_INPUT,   /* the activation that enters the block */
    ORTH_VALUE_DATA,    /* what the loader or the driver provides: slot is an orth_data_slot */
    ORTH_VALUE_PARAM,   /* slot is the number of a parameter within the block */
    ORTH_VALUE_TEMP     /* made by a node */
} orth_value_kind;

/* Data that enters a step from outside, per micro-batch unless noted. */
typedef enum {
    ORTH_DATA_TOKENS, ORTH_DATA_POSITIONS,
    ORTH_DATA_POSITIONS_SP, /* of the rows that sequence parallelism leaves on this rank */
    ORTH_DATA_DOC_STARTS, ORTH_DATA_TARGETS, ORTH_DATA_WEIGHTS,
    ORTH_DATA_SEQ,        /* [B] global sequence index, low 31 bits */
    ORTH_DATA_STEP,       /* orth_step_values, one per rank */
    ORTH_DATA_ROPE_TABLE, /* [max_seq, D], one per rank */
    ORTH_DATA_PAST,       /* [B] tokens already in the cache (decoding) */
    ORTH_DATA_CACHE_K, ORTH_DATA_CACHE_V, /* [B,S,KV*D] of the layer (decoding) */
    ORTH_DATA_FP8_SCALES, ORTH_DATA_FP8_AMAX, ORTH_DATA_FP8_HISTORY, /* rows of the layer, of those of all layers, one for each tensor
                             of a product (lower/delayed_scales.c); nodes of a training step write to amax */
    ORTH_NUM_DATA
} orth_data_slot;

typedef struct {
    orth_value_kind kind;
    int32_t slot;
    orth_dtype dtype;
    int32_t num_dims;
    int64_t dim[ORTH_MAX_DIMS];
    const char *name;   /* static or in the graph's arena; for people */
    int32_t weight;     /* PARAM: which weight of the model it is, a number that the model gives */
    int32_t producer;   /* node, -1 */
    bool chunked;       /* only chunked nodes read and write it */
} orth_value_info;

typedef struct {
    orth_op op;
    orth_attr attr;
    int32_t num_in, num_out;
    orth_value in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    int32_t param;      /* backward node whose out[param_out] is the gradient of this parameter slot; -1 */
    int32_t param_out;
    bool leaves;        /* that output is [B, n], one leaf per sequence, to be merged by tree_acc */
    bool for_weights;   /* backward node that the gradient of the block's input does not need: a split backward
                           leaves it to the weight gradient */
    bool chunked;       /* computed a chunk of rows at a time, with all others that are (lower/chunks.c) */
} orth_node;

typedef struct {
    orth_arena arena;
    orth_value_info *values;
    orth_node *nodes;
    int32_t num_values, num_nodes, cap_values, cap_nodes;
    int32_t num_forward;       /* nodes [0, num_forward) are forward, the rest backward */
    int32_t num_params;
    orth_value input, output;  /* activations that enter and leave; input ORTH_NO_VALUE: tokens enter */
    orth_value input_grad, output_grad; /* after differentiation; output_grad is a VALUE_INPUT */
    orth_status failed;        /* what went wrong first while building; orth_graph_done returns it */
    orth_ctx *ctx;
} orth_graph;

void orth_graph_init(orth_ctx *ctx, orth_graph *g);
void orth_graph_release(orth_graph *g);

/* Builders record in the graph what fails and go on; orth_graph_done returns it: ORTH_ERR_NOMEM, ORTH_ERR_INTERNAL. */
orth_value orth_graph_add_value(orth_graph *g, orth_value_kind kind, int32_t slot, orth_dtype dtype,
                                const char *name, int32_t num_dims, const int64_t *dim);
/* The same value again for the same slot, which then must have the same type and dims. */
orth_value orth_graph_data(orth_graph *g, orth_data_slot slot, orth_dtype dtype, int64_t d0, int64_t d1,
                           int64_t d2);
/* Parameters are numbered in the order of these calls: the order of the registry within a block. */
orth_value orth_graph_param(orth_graph *g, int32_t weight, const char *name, orth_dtype dtype, int32_t num_dims,
                            const int64_t *dim);
orth_value orth_graph_temp(orth_graph *g, const char *name, orth_dtype dtype, int64_t d0, int64_t d1);
/* Operands that do not fit the signature of the op (kernels/signature.h) fail the graph. NULL if it has failed. */
orth_node *orth_graph_add(orth_graph *g, orth_op op, const orth_attr *attr, int num_in, const orth_value *in,
                          int num_out, const orth_value *out);
orth_status orth_graph_done(orth_graph *g);

/* Appends the backward pass of [0, num_nodes). needs_input_grad: false for the first block.
 * ORTH_ERR_INTERNAL if an op has no vector-Jacobian product. */
orth_status orth_graph_differentiate(orth_graph *g, bool needs_input_grad);

/* Says which nodes of the backward pass are for weights only, and puts products among them behind the calls of other ranks
 * that need not wait for them (delay_products.c). */
orth_status orth_graph_delay_products(orth_graph *g);

/* Some forward nodes, neighbours, are chunked: finds the backward nodes that compute with the same rows, and the values in between. */
void orth_graph_mark_chunked(orth_graph *g);

/* Name of a data slot. */
const char *orth_data_slot_name(orth_data_slot slot);

#endif
