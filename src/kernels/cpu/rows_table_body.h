/* rows_table_body.h -- everything above, compiled for the including file, as the table ROWS_NAME. */
#include "base/rng.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rows.h"

#include "kernels/cpu/rows_pointwise_body.h"
#include "kernels/cpu/rows_norm_body.h"
#include "kernels/cpu/rows_loss_body.h"
#include "kernels/cpu/rows_optim_body.h"
#include "kernels/cpu/rows_quant_body.h"

const orth_rows ROWS_NAME = {
    .add = rows_add,
    .accumulate = rows_accumulate,
    .column_sums = rows_column_sums,
    .cast = rows_cast,
    .widen = rows_widen,
    .cast_int8 = rows_cast_int8,
    .widen_int8 = rows_widen_int8,
    .round_bias = rows_round_bias,
    .zero = rows_zero,
    .swiglu = rows_swiglu,
    .swiglu_bwd = rows_swiglu_bwd,
    .dropout = rows_dropout,
    .norm = rows_norm,
    .norm_bwd = rows_norm_bwd,
    .norm_bwd_sums = rows_norm_bwd_sums,
    .norm_bwd_columns = rows_norm_bwd_columns,
    .softmax_xent = rows_softmax_xent,
    .xent_max = rows_xent_max,
    .xent_sum = rows_xent_sum,
    .xent_grad = rows_xent_grad,
    .sum_squares = rows_sum_squares,
    .amax = rows_amax,
    .quantize = rows_quantize,
    .adamw = rows_adamw,
    .adam = rows_adam,
    .sgd = rows_sgd,
};
