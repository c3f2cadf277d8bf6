/* recompute.h -- which activations are not kept for the backward pass, but made again in it (memory.recompute).
 *
 * Forward nodes of a layer are marked. What they make is forgotten after the forward; a backward node that reads it has the
 * marked nodes expanded again before it, as far as they are needed, with the same kernels on the same bytes: no bit changes.
 * Dropouts repeat, as their random numbers are functions of site, step, sequence and position.
 *
 * Groups: of neighbouring layers only the input of the first one is kept; the others' are made again with the rest.
 * Which policy fits a limit with the least to compute, plan/recompute_auto.h finds; it is CHOSEN then.
 * Sources: Shoeybi et al., "Megatron-LM" (distribute-saved-activations: split_input); Chen et al., "Training deep nets with
 * sublinear memory cost", arXiv:1604.06174 (groups of sqrt(L) layers); Korthikanti et al., arXiv:2205.05198 (selective);
 * uniform and block as in Megatron-LM; Huang et al., "GPipe", arXiv:1811.06965 (one group).
 */
#ifndef ORTH_PROGRAM_RECOMPUTE_H
#define ORTH_PROGRAM_RECOMPUTE_H

#include "program/ir/graph.h"

typedef enum {
    ORTH_RECOMPUTE_NONE = 0,
    ORTH_RECOMPUTE_SELECTIVE, /* attention itself */
    ORTH_RECOMPUTE_FULL,      /* all nodes, in groups of `layers` layers; block: of the first `layers` layers of a chunk only,
                                 each a group */
    ORTH_RECOMPUTE_SQRT,      /* FULL, in groups of about sqrt(layers of the chunk) */
    ORTH_RECOMPUTE_OPS,       /* the named ops */
    ORTH_RECOMPUTE_KEEP,      /* all but the named ops */
    ORTH_RECOMPUTE_ALL,       /* the layers of a chunk are one group; embedding and final norm are in it */
    ORTH_RECOMPUTE_CHOSEN,    /* layer by layer, as `chosen` says */
    ORTH_RECOMPUTE_AUTO       /* becomes CHOSEN before anything is compiled */
} orth_recompute_kind;

/* Of a layer: bit i is forward node i, whose outputs are not kept; and whether its input is not kept either, so that it is in
 * one group with the layer before. */
#define ORTH_RECOMPUTE_JOINED ((uint64_t)1 << 63)
#define ORTH_RECOMPUTE_NODES 63 /* forward nodes that a set can name */
#define ORTH_RECOMPUTE_HOLDS_ALL (~(uint64_t)0)

typedef struct {
    orth_recompute_kind kind;
    int32_t layers;           /* FULL; 0 counts as 1 */
    bool block;
    bool split_input;         /* FULL, SQRT: each rank of tensor parallelism keeps an equal part of an input that all of them have, and
                                 they gather it before its group is made again. Not with sequence parallelism, which splits it anyway */
    const char *const *ops;   /* [num_ops] names of ops.def, for OPS and KEEP; attention and linear mean their variants, too */
    int32_t num_ops;
    const uint64_t *chosen;   /* CHOSEN: [layers of the model] */
    uint64_t holds;           /* CHOSEN: bit i is forward node i, which is kept where what is made again reads it, though a plain run would not keep
                                 it. ORTH_RECOMPUTE_HOLDS_ALL: nothing is made again that is not in `chosen` */
} orth_recompute;

/* ORTH_ERR_ARG where one of the names is none of the forward ops of a layer; the message lists them. Where inputs are split and
 * tp ranks cannot have equal parts. */
orth_status orth_recompute_check(orth_ctx *ctx, const orth_recompute *r, const orth_graph *layer, int32_t tp);

/* Marks nodes [0, num_forward) of layer number `layer` whose outputs are not kept. sequence_parallel: as the mesh has it. */
void orth_recompute_mark(const orth_recompute *r, int32_t layer, const orth_graph *graph, bool sequence_parallel, bool *again);

/* In the chunk of layers first_layer .. first_layer + num_layers - 1: the first of them, counted from first_layer, that is in
 * the group of `layer`, counted likewise; -1: nothing of it is made again. */
int32_t orth_recompute_group(const orth_recompute *r, int32_t first_layer, int32_t num_layers, int32_t layer);

#endif
