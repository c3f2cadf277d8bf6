/* rows_table_body.h -- everything above, compiled for the including file, as the table ROWS_NAME. */
#include "base/rng.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rows.h"

#include "kernels/cpu/rows_pointwise_body.h"
#include "kernels/cpu/rows_norm_body.h"
#include "kernels/cpu/rows_loss_body.h"
#include "kernels/cpu/rows_optim_body.h"

const orth_rows ROWS_NAME = {
    .add = rows_add,
    .accumulate = rows_accumulate,
    .column_sums = rows_column_sums,
    .cast = rows_cast,
    .zero = rows_zero,
    .swiglu = rows_swiglu,
    .swiglu_bwd = rows_swiglu_bwd,
    .dropout = rows_dropout,
    .norm = rows_norm,
    .norm_bwd = rows_norm_bwd,
    .norm_bwd_sums = rows_norm_bwd_sums,
    .norm_bwd_columns = rows_norm_bwd_columns,
    .softmax_xent = rows_softmax_xent,
    .sum_squares = rows_sum_squares,
    .adamw = rows_adamw,
    .adam = rows_adam,
    .sgd = rows_sgd,
};
