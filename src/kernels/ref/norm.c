/* norm.c -- LayerNorm, RMSNorm, their gradients, and the gradient of a bias, plainly.
 *
 * Source: Ba et al., arXiv:1607.06450; Zhang and Sennrich, arXiv:1910.07467. Letters: see ops.def.
 * With xhat = (sum - mean)*rstd and g = dy*gain: dx = rstd*(g - mean(g) - xhat*mean(g*xhat)); RMSNorm has
 * neither mean. Row sums: 16 lanes of sums.h.
 */
#include <math.h>

#include "kernels/ref/ref.h"

orth_status orth_ref_norm(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_tensor *x = &call->in[0], *res = &call->in[1], *gain = &call->in[2], *shift = &call->in[3];
    const orth_tensor *y = &call->out[0], *sum = &call->out[1];
    const int64_t N = x->dim[0], C = x->dim[1];
    float *stats = call->out[2].data;
    for (int64_t n = 0; n < N; n++) {
        const orth_tensor *s = sum->data ? sum : x;
        float lane[ORTH_LANES] = {0}, mean = 0;
        for (int64_t c = 0; c < C && sum->data; c++)
            ref_put(sum, n * C + c,
                    res->data ? ref_get(x, n * C + c) + ref_get(res, n * C + c) : ref_get(x, n * C + c));
        if (call->attr->norm == ORTH_NORM_LAYER) {
            for (int64_t c = 0; c < C; c++)
                lane[c % ORTH_LANES] += ref_get(s, n * C + c);
            mean = orth_lanes_fold(lane) / (float)C;
            memset(lane, 0, sizeof lane);
        }
        for (int64_t c = 0; c < C; c++) {
            float d = ref_get(s, n * C + c) - mean;
            lane[c % ORTH_LANES] = fmaf(d, d, lane[c % ORTH_LANES]);
        }
        float rstd = 1.0f / sqrtf(orth_lanes_fold(lane) / (float)C + call->attr->eps);
        for (int64_t c = 0; c < C; c++) {
            float xhat = (ref_get(s, n * C + c) - mean) * rstd, g = ref_get(gain, c);
            ref_put(y, n * C + c, shift->data ? fmaf(xhat, g, ref_get(shift, c)) : xhat * g);
        }
        stats[2 * n] = mean;
        stats[2 * n + 1] = rstd;
    }
    return ORTH_OK;
}

static void norm_bwd_row(const orth_op_call *call, int64_t n)
{
    const orth_tensor *dy = &call->in[0], *sum = &call->in[1], *gain = &call->in[3], *dres = &call->in[4];
    const orth_tensor *dx = &call->out[0];
    const int64_t C = dx->dim[1];
    const float *stats = call->in[2].data;
    const float mean = stats[2 * n], rstd = stats[2 * n + 1];
    float a[ORTH_LANES] = {0}, b[ORTH_LANES] = {0};
    for (int64_t c = 0; c < C; c++) {
        float xhat = (ref_get(sum, n * C + c) - mean) * rstd, g = ref_get(dy, n * C + c) * ref_get(gain, c);
        a[c % ORTH_LANES] += g;
        b[c % ORTH_LANES] = fmaf(g, xhat, b[c % ORTH_LANES]);
    }
    float mean_g = call->attr->norm == ORTH_NORM_LAYER ? orth_lanes_fold(a) / (float)C : 0;
    float mean_gx = orth_lanes_fold(b) / (float)C;
    for (int64_t c = 0; c < C; c++) {
        float xhat = (ref_get(sum, n * C + c) - mean) * rstd, g = ref_get(dy, n * C + c) * ref_get(gain, c);
        float t = fmaf(-xhat, mean_gx, g - mean_g);
        ref_put(dx, n * C + c, dres->data ? fmaf(rstd, t, ref_get(dres, n * C + c)) : rstd * t);
    }
}

typedef struct {
    const orth_tensor *dy, *sum; /* sum NULL: plain column sums of dy */
    const float *stats;
    orth_split split;
    int64_t C, col;
} column;

static float column_leaf(const void *arg, int64_t leaf)
{
    const column *k = arg;
    float acc = 0;
    for (int64_t n = orth_split_bound(&k->split, leaf), end = orth_split_bound(&k->split, leaf + 1); n < end;
         n++) {
        float dy = ref_get(k->dy, n * k->C + k->col);
        if (k->sum)
            acc = fmaf(dy, (ref_get(k->sum, n * k->C + k->col) - k->stats[2 * n]) * k->stats[2 * n + 1], acc);
        else
            acc += dy;
    }
    return acc;
}

/* out[b,c] = tree over the token slots of sequence b. */
static void column_sums(const orth_op_call *call, const orth_tensor *out, const orth_tensor *sum)
{
    column k = {.dy = &call->in[0], .sum = sum, .stats = sum ? call->in[2].data : NULL,
                .split = orth_token_split(call->attr), .C = out->dim[1]};
    for (int64_t b = 0; b < out->dim[0]; b++)
        for (k.col = 0; k.col < k.C; k.col++)
            ref_put(out, b * k.C + k.col, ref_tree(column_leaf, &k, b * k.split.parts, k.split.parts));
}

orth_status orth_ref_norm_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    column_sums(call, &call->out[1], &call->in[1]);
    if (call->out[2].data)
        column_sums(call, &call->out[2], NULL);
    for (int64_t n = 0; n < call->out[0].dim[0]; n++)
        norm_bwd_row(call, n);
    return ORTH_OK;
}

orth_status orth_ref_bias_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    column_sums(call, &call->out[0], NULL);
    return ORTH_OK;
}
