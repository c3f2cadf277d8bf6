/* loss.c -- softmax cross-entropy and the leaf sums of the loss, plainly. Letters: see ops.def. */
#include <math.h>

#include "kernels/mathf.h"
#include "kernels/ref/ref.h"

typedef struct {
    const float *row;
    float max;
    orth_split split;
} exp_sum;

/* Sum of exponentials over one canonical part, lanes counted from the start of the part. */
static float exp_leaf(const void *arg, int64_t leaf)
{
    const exp_sum *e = arg;
    float lane[ORTH_LANES] = {0};
    int64_t begin = orth_split_bound(&e->split, leaf), end = orth_split_bound(&e->split, leaf + 1);
    for (int64_t v = begin; v < end; v++)
        lane[(v - begin) % ORTH_LANES] += orth_expf(e->row[v] - e->max);
    return orth_lanes_fold(lane);
}

orth_status orth_ref_softmax_xent(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t N = call->in[0].dim[0], V = call->in[0].dim[1];
    const int32_t *target = call->in[1].data;
    const float *weight = call->in[2].data;
    const orth_step_values *step = call->in[3].data;
    float *nll = call->out[0].data;
    const orth_tensor *dlogits = &call->out[1];
    for (int64_t n = 0; n < N; n++) {
        exp_sum e = {(const float *)call->in[0].data + n * V, -INFINITY, call->attr->split};
        if (weight[n] == 0) {
            nll[n] = 0;
            for (int64_t v = 0; v < V && dlogits->data; v++)
                ref_put(dlogits, n * V + v, 0);
            continue;
        }
        for (int64_t v = 0; v < V; v++)
            e.max = e.row[v] > e.max ? e.row[v] : e.max;
        float sum = ref_tree(exp_leaf, &e, 0, orth_split_leaves(&e.split));
        nll[n] = weight[n] * (e.max + orth_logf(sum) - e.row[target[n]]);
        float inv = 1.0f / sum, scale = weight[n] * step->loss_scale;
        for (int64_t v = 0; v < V && dlogits->data; v++) {
            float p = orth_expf(e.row[v] - e.max) * inv;
            ref_put(dlogits, n * V + v, (v == target[n] ? p - 1.0f : p) * scale);
        }
    }
    return ORTH_OK;
}

static double loss_tree(const float *nll, const orth_split *s, int64_t first, int64_t n)
{
    if (n > 1) {
        int64_t left = orth_tree_left(n);
        return loss_tree(nll, s, first, left) + loss_tree(nll, s, first + left, n - left);
    }
    double sum = 0;
    for (int64_t i = orth_split_bound(s, first), end = orth_split_bound(s, first + 1); i < end; i++)
        sum += nll[i];
    return sum;
}

orth_status orth_ref_loss_sum(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_split s = orth_token_split(call->attr);
    double *out = call->out[0].data;
    for (int64_t b = 0; b < call->attr->num_seqs; b++)
        out[b] = loss_tree(call->in[0].data, &s, b * s.parts, s.parts);
    return ORTH_OK;
}
