/* lr.c -- see lr.h. */
#include "train/lr.h"

#include <math.h>

int64_t orth_lr_decay_steps(const orth_config *cfg)
{
    const int64_t steps = cfg->train_steps;
    if (ORTH_CONFIG_IS_SET(cfg, schedule, decay_steps) && cfg->schedule_decay_steps > 0)
        return cfg->schedule_decay_steps;
    const int64_t after = ORTH_MAX(steps - cfg->schedule_warmup_steps, 1);
    return cfg->schedule_name == ORTH_schedule_name_wsd ? ORTH_MIN(ORTH_MAX(steps / 5, 1), after) : after;
}

double orth_lr_at(const orth_config *cfg, double step)
{
    double peak = cfg->optimizer_lr, low = cfg->schedule_min_lr_ratio;
    if (cfg->optimizer_lr_scaling == ORTH_optimizer_lr_scaling_linear)
        peak *= (double)cfg->train_global_batch / (double)cfg->optimizer_lr_base_batch;
    int64_t warmup = cfg->schedule_warmup_steps, steps = cfg->train_steps;
    if (step <= (double)warmup)
        return peak * step / (double)warmup;
    bool wsd = cfg->schedule_name == ORTH_schedule_name_wsd;
    int64_t decay = orth_lr_decay_steps(cfg);
    int64_t begin = wsd ? ORTH_MAX(steps - decay, warmup) : warmup;
    double t = (step - (double)begin) / (double)decay; /* way down: 0 at its start, 1 at its end */
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    switch (cfg->schedule_name) {
    case ORTH_schedule_name_constant: return peak;
    case ORTH_schedule_name_cosine: return peak * (low + (1 - low) * 0.5 * (1 + cos(3.14159265358979323846 * t)));
    case ORTH_schedule_name_linear:
    case ORTH_schedule_name_wsd: break;
    }
    return peak * (1 - (1 - low) * t);
}
