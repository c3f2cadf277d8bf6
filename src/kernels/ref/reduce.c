/* reduce.c -- aligned trees over sequences, the gradient norm and clipping, plainly. */
#include <math.h>

#include "kernels/ref/ref.h"

typedef struct {
    const float *leaves; /* [L,n] */
    int64_t n, col;
} leaf_column;

static float leaf_at(const void *arg, int64_t leaf)
{
    const leaf_column *k = arg;
    return k->leaves[leaf * k->n + k->col];
}

orth_status orth_ref_tree_acc(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    leaf_column k = {.leaves = call->in[0].data, .n = orth_tensor_elems(&call->out[0])};
    for (k.col = 0; k.col < k.n; k.col++)
        ref_put(&call->out[0], k.col, ref_addends(call, k.col, ref_tree(leaf_at, &k, 0, call->in[0].dim[0])));
    return ORTH_OK;
}

static double tree_f64(const double *leaf, int64_t n)
{
    if (n == 1)
        return leaf[0];
    int64_t left = orth_tree_left(n);
    return tree_f64(leaf, left) + tree_f64(leaf + left, n - left);
}

orth_status orth_ref_tree_acc_f64(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    double *out = call->out[0].data;
    out[0] = tree_f64(call->in[0].data, call->in[0].dim[0]);
    return ORTH_OK;
}

orth_status orth_ref_grad_square(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const float *g = call->in[0].data;
    const int64_t n = orth_tensor_elems(&call->in[0]);
    double *sums = call->out[0].data;
    for (int64_t j = 0; j * ORTH_NORM_BLOCK < n; j++) {
        double lane[ORTH_LANES] = {0};
        const int64_t begin = j * ORTH_NORM_BLOCK, end = ORTH_MIN(n, begin + ORTH_NORM_BLOCK);
        for (int64_t i = begin; i < end; i++) /* the product of two floats is exact in a double */
            lane[(i - begin) % ORTH_LANES] += (double)g[i] * (double)g[i];
        sums[j] = orth_lanes_fold_f64(lane);
    }
    return ORTH_OK;
}

orth_status orth_ref_clip_scale(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const double *sums = call->in[0].data, *loss = call->in[1].data;
    orth_step_values *step = call->out[0].data;
    double total = 0;
    for (int64_t j = 0, m = orth_tensor_elems(&call->in[0]); j < m; j++)
        total += sums[j];
    step->grad_norm = sqrt(total);
    step->bad = !isfinite(total) || (loss && !isfinite(loss[0]));
    step->clip_scale = 1.0f;
    if (step->clip_norm > 0 && step->clip_norm < step->grad_norm + 1e-6)
        step->clip_scale = (float)(step->clip_norm / (step->grad_norm + 1e-6));
    return ORTH_OK;
}
