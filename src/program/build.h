/* build.h -- the state that compile.c, accumulate.c and update.c share while a program grows. */
#ifndef ORTH_PROGRAM_BUILD_H
#define ORTH_PROGRAM_BUILD_H

#include "program/compile.h"
#include "program/gradtree.h"

/* One sum of gradients: a parameter that is used in two blocks (tied embeddings) has two of them,
 * whose results are added at the end, so that no schedule changes the order. */
typedef struct {
    orth_gradtree tree;
    int32_t slot[ORTH_GRADTREE_MAX_DEPTH]; /* buffers; slot 0 of use 0 is the gradient itself; 0: none yet */
    int32_t num_slots;
} orth_grad_use;

typedef struct {
    orth_ctx *ctx;
    const orth_compile_spec *spec;
    orth_program *p;
    int32_t *master, *copy;      /* [num_params] buffers; copy == master where there is none */
    int32_t data[ORTH_NUM_DATA]; /* buffers of the whole step; -1 */
    orth_grad_use *uses;         /* [2*num_params]: 2*index for the first use, +1 for the head's if tied */
    bool tied;
    int32_t logits_or_nll;
    int32_t seq_loss, loss;
    /* Tags of what is being emitted. */
    orth_phase phase;
    int32_t layer, micro_batch;
} orth_builder;

orth_operand orth_build_param(const orth_builder *b, int64_t index, bool master);

/* Instruction with the builder's tags. */
orth_instr *orth_build_emit(orth_builder *b, orth_op op, const orth_attr *attr, int num_in,
                            const orth_operand *in, int num_out, const orth_operand *out);

/* Where the rows of a block's gradients lie among the leaves of the step. */
typedef struct {
    int64_t begin, end, total; /* leaves */
    int64_t rows;              /* rows of activations per leaf */
    bool chunk;                /* a chunk of the head: leaves are equal parts of a sequence */
    bool second_use;           /* of a tied parameter */
    int64_t row0;              /* first row of a head chunk in its micro-batch; -1 for other blocks */
} orth_leaf_range;

/* Emits the backward node that makes a gradient of parameter `index`, once per aligned run of leaves. */
void orth_build_gradient(orth_builder *b, int64_t index, const orth_node *node, const orth_operand *in,
                         const orth_leaf_range *leaves);

/* Gradient norm, clipping and the optimizer's instructions. */
void orth_build_update(orth_builder *b);

#endif
