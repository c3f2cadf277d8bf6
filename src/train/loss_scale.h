/* loss_scale.h -- loss scaling: the loss, and so every gradient, is multiplied by a scale, that gradients do not underflow in fp16.
 *
 * The step's values carry the scale (kernels/op.h: grad_scale). clip_scale takes it out of the gradient norm before it clips, and out
 * of the gradients with the factor that clips. A gradient that is not finite makes the step `bad` on all ranks, for all have the sums of
 * squares of all: the update is left out everywhere, in every layout.
 * Dynamic: an overflow multiplies the scale by `backoff`; `interval` steps without one multiply it by `growth`. The same numbers as
 * torch.amp.GradScaler, but that the scale does not fall below `least`. Source: Micikevicius et al., "Mixed precision training",
 * arXiv:1710.03740, section 3.2.
 */
#ifndef ORTH_TRAIN_LOSS_SCALE_H
#define ORTH_TRAIN_LOSS_SCALE_H

#include "config/config.h"

typedef struct {
    bool on, dynamic;
    float scale;                  /* 1 if it is not on */
    int64_t streak;               /* steps without an overflow since the scale last changed */
    double growth, backoff;
    float least;
    int64_t interval;
} orth_loss_scale;

orth_loss_scale orth_loss_scale_make(const orth_config *cfg);

/* After a step. Returns whether the scale answers for an overflow: it is dynamic, and falls. What is not finite at the least scale, or at
 * one that stays, is the run's own. */
bool orth_loss_scale_step(orth_loss_scale *s, bool overflow);

#endif
