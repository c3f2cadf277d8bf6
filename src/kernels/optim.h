/* optim.h -- what an optimizer step needs of the step's values, computed once per call.
 *
 * Bias corrections are made in double by repeated squaring (no libm: its pow is not the same
 * everywhere), then everything is fp32. Formulas: PyTorch's torch.optim (AdamW, Adam, SGD).
 */
#ifndef ORTH_KERNELS_OPTIM_H
#define ORTH_KERNELS_OPTIM_H

#include <math.h>

#include "kernels/op.h"

typedef struct {
    float g_scale;                  /* clipping, loss scaling */
    float keep;                     /* 1 - lr*weight_decay: decoupled decay */
    float l2;                       /* weight decay added to the gradient */
    float beta1, new1, beta2, new2; /* new = 1 - beta */
    float step_size;                /* lr / (1 - beta1^t) */
    float root_scale;               /* 1 / sqrt(1 - beta2^t) */
    float eps, lr, momentum;
    bool nesterov;
} orth_optim_values;

static inline double orth_power(double x, uint64_t n)
{
    double y = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1)
            y *= x;
    return y;
}

static inline orth_optim_values orth_optim_values_make(const orth_attr *attr, const orth_step_values *s)
{
    const float lr = s->lr * attr->lr_factor, decay = s->weight_decay * attr->decay_factor;
    const uint64_t updates = s->step - (uint64_t)s->left_out;
    return (orth_optim_values){
        .g_scale = s->clip_scale,
        .keep = (float)(1.0 - (double)lr * (double)decay),
        .l2 = decay,
        .beta1 = (float)s->beta1,
        .new1 = (float)(1.0 - s->beta1),
        .beta2 = (float)s->beta2,
        .new2 = (float)(1.0 - s->beta2),
        .step_size = (float)((double)lr / (1.0 - orth_power(s->beta1, updates))),
        .root_scale = (float)(1.0 / sqrt(1.0 - orth_power(s->beta2, updates))),
        .eps = s->eps,
        .lr = lr,
        .momentum = s->momentum,
        .nesterov = attr->nesterov,
    };
}

#endif
