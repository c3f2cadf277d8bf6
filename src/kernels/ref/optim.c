/* optim.c -- AdamW (Loshchilov and Hutter, arXiv:1711.05101), Adam with L2 (Kingma and Ba,
 * arXiv:1412.6980), SGD with momentum or without, plainly. Of a step that is skipped or bad nothing is written but the copy. */
#include "kernels/moments8.h"
#include "kernels/optim.h"
#include "kernels/ref/ref.h"
#include "kernels/round.h"

/* Element i of an output, and what it is. */
static void keep(const orth_op_call *call, int out, int64_t i, float x, orth_round_what what)
{
    const orth_tensor *t = &call->out[out];
    if (!call->attr->stochastic || t->dtype != ORTH_BF16) {
        ref_put(t, i, x);
        return;
    }
    int64_t run;
    const int64_t at = orth_elem_in_whole(&call->attr->place, i, &run);
    const orth_rand4 draw = orth_round_draw(call->in[1].data, call->attr->place.param, at / 2);
    ((orth_bf16 *)t->data)[i] = orth_bf16_stochastic(x, orth_round_bits(&draw, at, what));
}

/* The step is left out: the copy is what it was made of. */
static bool leaves_out(const orth_op_call *call, int copy)
{
    const orth_step_values *step = call->in[1].data;
    const bool out = step->skip || step->bad;
    for (int64_t i = 0, n = orth_tensor_elems(&call->out[0]); out && call->out[copy].data && i < n; i++)
        ref_put(&call->out[copy], i, ref_get(&call->out[0], i));
    return out;
}

/* Element i: its weight, and what its moments become. */
static void adam_element(const orth_op_call *call, const orth_optim_values *o, bool decoupled, int64_t i, float *m, float *v)
{
    float g = ((const float *)call->in[0].data)[i] * o->g_scale, w = ref_get(&call->out[0], i);
    if (decoupled)
        w = w * o->keep;
    else
        g = fmaf(o->l2, w, g);
    *m = fmaf(o->beta1, *m, o->new1 * g);
    *v = fmaf(o->beta2, *v, o->new2 * g * g);
    w = fmaf(-o->step_size, *m / fmaf(sqrtf(*v), o->root_scale, o->eps), w);
    keep(call, 0, i, w, ORTH_ROUND_WEIGHT);
    if (call->out[3].data)
        ref_put(&call->out[3], i, w);
}

static void adam_step(const orth_op_call *call, bool decoupled)
{
    const orth_step_values *step = call->in[1].data;
    if (leaves_out(call, 3))
        return;
    const orth_optim_values o = orth_optim_values_make(call->attr, step);
    for (int64_t i = 0, n = orth_tensor_elems(&call->out[0]); i < n; i++) {
        float m = ref_get(&call->out[1], i), v = ref_get(&call->out[2], i);
        adam_element(call, &o, decoupled, i, &m, &v);
        keep(call, 1, i, m, ORTH_ROUND_M);
        keep(call, 2, i, v, ORTH_ROUND_V);
    }
}

orth_status orth_ref_adamw(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    adam_step(call, true);
    return ORTH_OK;
}

orth_status orth_ref_adam(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    adam_step(call, false);
    return ORTH_OK;
}

orth_status orth_ref_sgd(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const orth_step_values *step = call->in[1].data;
    if (leaves_out(call, 2))
        return ORTH_OK;
    const orth_optim_values o = orth_optim_values_make(call->attr, step);
    const float *grad = call->in[0].data;
    const bool has_m = call->out[1].data != NULL;
    for (int64_t i = 0, n = orth_tensor_elems(&call->out[0]); i < n; i++) {
        float w = ref_get(&call->out[0], i), g = fmaf(o.l2, w, grad[i] * o.g_scale), m = has_m ? fmaf(o.momentum, ref_get(&call->out[1], i), g) : g;
        w = fmaf(-o.lr, has_m && o.nesterov ? fmaf(o.momentum, m, g) : m, w);
        keep(call, 0, i, w, ORTH_ROUND_WEIGHT);
        if (has_m)
            keep(call, 1, i, m, ORTH_ROUND_M);
        if (call->out[2].data)
            ref_put(&call->out[2], i, w);
    }
    return ORTH_OK;
}

/* Elements [at, at + n), one block, of both moments as numbers, and back. */
static void load_block(const orth_op_call *call, const orth_dynamic_map map[2], float mv[2][ORTH_MOMENT_BLOCK], int64_t at, int64_t n, const float *scales)
{
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n; i++)
            mv[k][i] = orth_dynamic_value(&map[k], ((const uint8_t *)call->out[1 + k].data)[at + i], scales[k]);
}

static void store_block(const orth_op_call *call, const orth_dynamic_map map[2], float mv[2][ORTH_MOMENT_BLOCK], int64_t at, int64_t n, float *scales)
{
    for (int k = 0; k < 2; k++) {
        scales[k] = 0;
        for (int64_t i = 0; i < n; i++)
            scales[k] = ORTH_MAX((float)fabs(mv[k][i]), scales[k]);
        orth_dynamic_codes(&map[k], (uint8_t *)call->out[1 + k].data + at, mv[k], n, scales[k]);
    }
}

static void adam_8bit_step(const orth_op_call *call, bool decoupled)
{
    const orth_step_values *step = call->in[1].data;
    const orth_split *parts = &call->attr->split;
    const int64_t rows = call->out[0].dim[0], cols = call->out[0].dim[1], blocks = orth_moment_row_blocks(parts);
    orth_dynamic_map map[2];
    if (leaves_out(call, 3))
        return;
    const orth_optim_values o = orth_optim_values_make(call->attr, step);
    orth_dynamic_map_make(&map[0], true);
    orth_dynamic_map_make(&map[1], false);
    for (int64_t b = 0; b < rows * blocks; b++) {
        float mv[2][ORTH_MOMENT_BLOCK], *scales = (float *)call->out[4].data + b * ORTH_BLOCK_SCALES;
        int64_t begin, end;
        orth_moment_block(parts, b % blocks, &begin, &end);
        const int64_t at = b / blocks * cols + begin;
        load_block(call, map, mv, at, end - begin, scales);
        for (int64_t i = 0; i < end - begin; i++)
            adam_element(call, &o, decoupled, at + i, &mv[0][i], &mv[1][i]);
        store_block(call, map, mv, at, end - begin, scales);
    }
}

orth_status orth_ref_adamw_8bit(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    adam_8bit_step(call, true);
    return ORTH_OK;
}

orth_status orth_ref_adam_8bit(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    adam_8bit_step(call, false);
    return ORTH_OK;
}
