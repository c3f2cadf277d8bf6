/* loss_scale.c -- see loss_scale.h. */
#include "train/loss_scale.h"

#include <math.h>

orth_loss_scale orth_loss_scale_make(const orth_config *cfg)
{
    const orth_option_precision_loss_scale kind = orth_config_loss_scale(cfg);
    return (orth_loss_scale){
        .on = kind != ORTH_precision_loss_scale_none, .dynamic = kind == ORTH_precision_loss_scale_dynamic,
        .scale = kind != ORTH_precision_loss_scale_none ? (float)cfg->precision_loss_scale_start : 1.0f,
        .growth = cfg->precision_loss_scale_growth, .backoff = cfg->precision_loss_scale_backoff,
        .least = (float)cfg->precision_loss_scale_least, .interval = cfg->precision_loss_scale_interval,
    };
}

static bool back_off(orth_loss_scale *s)
{
    const float was = s->scale;
    s->scale = fmaxf((float)((double)was * s->backoff), s->least);
    s->streak = 0;
    return s->scale < was;
}

bool orth_loss_scale_step(orth_loss_scale *s, bool overflow)
{
    if (!s->dynamic)
        return false;
    if (overflow)
        return back_off(s);
    if (++s->streak < s->interval)
        return false;
    const float more = (float)((double)s->scale * s->growth);
    s->scale = isfinite(more) ? more : s->scale;
    s->streak = 0;
    return false;
}
