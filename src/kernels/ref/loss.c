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

/* + 0: a zero has one sign, whoever finds it. */
static float row_max(const float *row, int64_t V)
{
    float max = -INFINITY;
    for (int64_t v = 0; v < V; v++)
        max = row[v] > max ? row[v] : max;
    return max + 0.0f;
}

static float row_sum(const float *row, float max, const orth_split *split)
{
    exp_sum e = {row, max, *split};
    return ref_tree(exp_leaf, &e, 0, orth_split_leaves(split));
}

typedef struct {
    float max, sum, at_target, weight, scale;
    int64_t target;         /* within the row; outside of it: another rank has it */
} row_loss;

static void put_row(const orth_op_call *call, int64_t n, const row_loss *l)
{
    const int64_t V = call->in[0].dim[1];
    const float *row = (const float *)call->in[0].data + n * V, inv = 1.0f / l->sum;
    const orth_tensor *dlogits = &call->out[1];
    ((float *)call->out[0].data)[n] = l->weight == 0 ? 0 : l->weight * (l->max + orth_logf(l->sum) - l->at_target);
    for (int64_t v = 0; v < V && dlogits->data; v++) {
        float p = orth_expf(row[v] - l->max) * inv;
        ref_put(dlogits, n * V + v, l->weight == 0 ? 0 : (v == l->target ? p - 1.0f : p) * l->scale);
    }
}

orth_status orth_ref_softmax_xent(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t N = call->in[0].dim[0], V = call->in[0].dim[1];
    const int32_t *target = call->in[1].data;
    const float *weight = call->in[2].data;
    const orth_step_values *step = call->in[3].data;
    for (int64_t n = 0; n < N; n++) {
        const float *row = (const float *)call->in[0].data + n * V;
        row_loss l = {.max = row_max(row, V), .weight = weight[n], .scale = weight[n] * step->loss_scale,
                      .target = target[n]};
        l.sum = row_sum(row, l.max, &call->attr->split);
        l.at_target = weight[n] == 0 ? 0 : row[target[n]]; /* such a target means nothing */
        put_row(call, n, &l);
    }
    return ORTH_OK;
}

orth_status orth_ref_xent_max(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t V = call->in[0].dim[1];
    for (int64_t n = 0; n < call->in[0].dim[0]; n++)
        ((float *)call->out[0].data)[n] = row_max((const float *)call->in[0].data + n * V, V);
    return ORTH_OK;
}

orth_status orth_ref_xent_sum(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t V = call->in[0].dim[1];
    const int32_t *target = call->in[1].data;
    const float *max = call->in[2].data;
    float *sums = call->out[0].data;
    for (int64_t n = 0; n < call->in[0].dim[0]; n++) {
        const float *row = (const float *)call->in[0].data + n * V;
        const int64_t v = target[n] - call->attr->first_row;
        sums[2 * n] = row_sum(row, max[n], &call->attr->split);
        sums[2 * n + 1] = v >= 0 && v < V ? row[v] : 0.0f;
    }
    return ORTH_OK;
}

orth_status orth_ref_xent_grad(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int32_t *target = call->in[1].data;
    const float *weight = call->in[2].data, *max = call->in[3].data, *sums = call->in[4].data;
    const orth_step_values *step = call->in[5].data;
    for (int64_t n = 0; n < call->in[0].dim[0]; n++)
        put_row(call, n, &(row_loss){max[n], sums[2 * n], sums[2 * n + 1], weight[n], weight[n] * step->loss_scale,
                                     target[n] - call->attr->first_row});
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
