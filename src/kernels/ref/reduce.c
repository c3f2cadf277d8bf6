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
    const orth_attr *a = call->attr;
    const float *g = call->in[0].data;
    const int64_t R = call->in[0].dim[0], K = call->in[0].dim[1], P = call->out[0].dim[1]; /* unused dims are 1 */
    const int parts = ORTH_MAX(1, a->split.parts);
    double *sums = call->out[0].data;
    for (int64_t j = 0; j * a->block_rows < R; j++)
        for (int q = 0; q < parts; q++) {
            double lane[ORTH_LANES] = {0};
            const int64_t first = parts > 1 ? orth_split_bound(&a->split, q) : 0;
            const int64_t end = parts > 1 ? orth_split_bound(&a->split, q + 1) : K;
            for (int64_t r = j * a->block_rows, i = 0; r < ORTH_MIN(R, (j + 1) * a->block_rows); r++)
                for (int64_t c = first; c < end; c++, i++) { /* the product of two floats is exact in a double */
                    const double v = g[r * K + c];
                    lane[i % ORTH_LANES] += v * v;
                }
            sums[j * P + a->first_part + q] = orth_lanes_fold_f64(lane);
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
    const float scale = step->grad_scale != 0 ? step->grad_scale : 1.0f;
    step->grad_norm = sqrt(total) / (double)scale;
    step->bad = !isfinite(total) || (loss && !isfinite(loss[0]));
    step->clip_scale = 1.0f;
    if (step->clip_norm > 0 && step->clip_norm < step->grad_norm + 1e-6)
        step->clip_scale = (float)(step->clip_norm / (step->grad_norm + 1e-6));
    step->clip_scale /= scale;
    return ORTH_OK;
}
