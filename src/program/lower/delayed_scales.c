/* delayed_scales.c -- scales of quantised tensors by the largest magnitudes of the steps before (precision.products=fp8_delayed).
 *
 * Source: Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433; the recipe is DelayedScaling of TransformerEngine.
 *
 *   step:        each micro-batch quantises by `scales` and raises `amax` (quant_delayed): a row for each tensor of each layer
 *   at its end:  amax over all ranks  ->  history, scales of the next step (delayed_scales)  ->  amax = 0
 *
 * A tensor is a weight, or all of an activation or gradient in the global batch: its amax is the largest of all micro-batches and ranks, which no
 * order and no layout changes. Each rank has the rows of all layers, and after the step all ranks have the same. Before the first step all is 0.
 * Memory: 4 * layers * ORTH_DELAYED_ROWS * (history + 2) bytes on each rank.
 */
#include "program/lower/build.h"

/* Of all layers; `cols` of each row. */
static orth_operand rows_of(orth_builder *b, orth_data_slot slot, int num_dims, int64_t cols)
{
    const orth_value_info layer = {.slot = (int32_t)slot, .dtype = ORTH_F32, .num_dims = num_dims, .dim = {ORTH_DELAYED_ROWS, cols, 1, 1}};
    const int64_t dim[] = {(int64_t)b->spec->num_layers * ORTH_DELAYED_ROWS, cols};
    return orth_operand_of(orth_build_data_buffer(b, &layer), ORTH_F32, num_dims, dim);
}

void orth_build_delayed_scales(orth_builder *b)
{
    const orth_delayed_scaling *d = &b->spec->delayed;
    const orth_group over_dp = orth_build_size(b, ORTH_GROUP_REPLICATE) > 1 ? ORTH_GROUP_SHARD : ORTH_GROUP_DP;
    const orth_group inner_first[] = {ORTH_GROUP_TP, ORTH_GROUP_CP, over_dp, ORTH_GROUP_REPLICATE, ORTH_GROUP_NORM};
    if (d->history == 0)
        return;
    const orth_operand amax = rows_of(b, ORTH_DATA_FP8_AMAX, 1, 1);
    for (int k = 0; k < ORTH_COUNT(inner_first); k++)
        if (orth_build_size(b, inner_first[k]) > 1)
            orth_build_emit(b, ORTH_OP_all_reduce, &(orth_attr){.group = inner_first[k], .maximum = true}, 1, &amax, 1, &amax);
    const orth_recipe_row *r = orth_recipe_of(ORTH_RECIPE_fp8_delayed);
    const orth_attr attr = {.float8 = r->forward, .gradients = r->backward, .delayed = *d};
    const orth_operand out[] = {rows_of(b, ORTH_DATA_FP8_SCALES, 1, 1), rows_of(b, ORTH_DATA_FP8_HISTORY, 2, d->history)};
    orth_build_emit(b, ORTH_OP_delayed_scales, &attr, 1, &amax, 2, out);
    orth_build_emit(b, ORTH_OP_zero, &(orth_attr){0}, 0, NULL, 1, &amax);
}
