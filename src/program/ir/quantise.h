/* quantise.h -- the nodes that quantise an operand of a product, for the layers of models (forward) and vjp.c (backward).
 *
 * attr is that of the product `qlinear`: its recipe, its parts, and who has which of its rows and columns. What a tensor is does not depend
 * on the layout: a weight is all of the matrix, an activation or its gradient is one sequence of the global batch with all columns. Ranks
 * of tensor and context parallelism that have some of it tell each other its largest magnitude. Tiles are within canonical parts, which no
 * layout cuts. Of a recipe with scales of tensors above those of tiles, tensors are the same. With scales of earlier steps a tensor is all
 * sequences of the global batch, and ranks tell each other its largest magnitude at the end of the step (lower/delayed_scales.c).
 *
 * NVFP4 rounds gradients at random, and the product that makes the gradient of a weight has both operands transformed along the tokens.
 * Source: NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv:2509.25149; the signs are TransformerEngine's.
 */
#ifndef ORTH_PROGRAM_QUANTISE_H
#define ORTH_PROGRAM_QUANTISE_H

#include "program/ir/graph.h"

/* amax: the largest magnitude of each tensor, if the recipe has scales of these above those of tiles; else ORTH_NO_VALUE. */
typedef struct {
    orth_value codes, scales, amax;
} orth_quantised_value;

orth_quantised_value orth_quantise_weight(orth_graph *g, orth_value w, const orth_attr *attr);
/* For the product with its columns contracted, qlinear. */
orth_quantised_value orth_quantise_activation(orth_graph *g, orth_value x, const orth_attr *attr);
/* The same for the backward: w with its rows contracted, dy with its columns; both with tokens contracted, for the gradient of w, where
 * the tiles of the recipe are others than above. */
orth_quantised_value orth_quantise_weight_back(orth_graph *g, orth_value w, const orth_attr *attr);
orth_quantised_value orth_quantise_gradient(orth_graph *g, orth_value dy, const orth_attr *attr);
orth_quantised_value orth_quantise_activation_tokens(orth_graph *g, orth_value x, const orth_attr *attr);
orth_quantised_value orth_quantise_gradient_tokens(orth_graph *g, orth_value dy, const orth_attr *attr);

/* What a node above quantised to `codes`. */
orth_value orth_quantised_from(const orth_graph *g, orth_value codes);

#endif
