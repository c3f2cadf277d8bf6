/* optim.c -- AdamW (Loshchilov and Hutter, arXiv:1711.05101), Adam with L2 (Kingma and Ba,
 * arXiv:1412.6980), SGD with momentum, plainly. Nothing is written in a step that is skipped or bad. */
#include "kernels/optim.h"
#include "kernels/ref/ref.h"

static void adam_step(const orth_op_call *call, bool decoupled)
{
    const orth_step_values *step = call->in[1].data;
    if (step->skip || step->bad)
        return;
    const orth_optim_values o = orth_optim_values_make(call->attr, step);
    const float *grad = call->in[0].data;
    float *p = call->out[0].data, *m = call->out[1].data, *v = call->out[2].data;
    for (int64_t i = 0, n = orth_tensor_elems(&call->out[0]); i < n; i++) {
        float g = grad[i] * o.g_scale, w = p[i];
        if (decoupled)
            w = w * o.keep;
        else
            g = fmaf(o.l2, w, g);
        m[i] = fmaf(o.beta1, m[i], o.new1 * g);
        v[i] = fmaf(o.beta2, v[i], o.new2 * g * g);
        p[i] = fmaf(-o.step_size, m[i] / fmaf(sqrtf(v[i]), o.root_scale, o.eps), w);
        if (call->out[3].data)
            ref_put(&call->out[3], i, p[i]);
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
    if (step->skip || step->bad)
        return ORTH_OK;
    const orth_optim_values o = orth_optim_values_make(call->attr, step);
    const float *grad = call->in[0].data;
    float *p = call->out[0].data, *m = call->out[1].data;
    for (int64_t i = 0, n = orth_tensor_elems(&call->out[0]); i < n; i++) {
        float g = fmaf(o.l2, p[i], grad[i] * o.g_scale);
        m[i] = fmaf(o.momentum, m[i], g);
        p[i] = fmaf(-o.lr, o.nesterov ? fmaf(o.momentum, m[i], g) : m[i], p[i]);
        if (call->out[2].data)
            ref_put(&call->out[2], i, p[i]);
    }
    return ORTH_OK;
}
