/* lr.h -- the learning rate of a step. */
#ifndef ORTH_TRAIN_LR_H
#define ORTH_TRAIN_LR_H

#include "config/config.h"

/* Learning rate of optimizer step `step`, counted from 1; between steps, of a part of one. Warm-up is linear, its first step has
 * 1/warmup of the peak; then constant; or a line, or half a cosine, from the peak down to
 * min_lr_ratio of it over decay_steps; or (wsd, Hu et al. 2024, arXiv:2404.06395) the peak until
 * decay_steps before train.steps, then a line down. optimizer.lr_scaling=linear multiplies the peak by
 * global_batch/lr_base_batch (Goyal et al. 2017, arXiv:1706.02677). */
double orth_lr_at(const orth_config *cfg, double step);
/* Steps of the way down; where schedule.decay_steps says nothing, all behind the warm-up, or of wsd a fifth of all. */
int64_t orth_lr_decay_steps(const orth_config *cfg);

#endif
