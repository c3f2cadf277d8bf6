/* import_optimizer.c -- how long a run is, its learning rate with the way up and down, and the moments of its optimizer. Their programs count steps or
 * samples, and begin the way down at other steps than here. */
#include "tools/import_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int64_t steps_of(const orth_importer *x, double samples)
{
    return (int64_t)ceil(samples / (double)x->cfg->train_global_batch);
}

static orth_status set_steps(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_samples);
    double samples;
    ORTH_TRY(orth_import_number(x, ORTH_PART_samples, 1, 0, &samples));
    return p ? orth_import_set_int(x, p->place, "train.steps", steps_of(x, samples)) : ORTH_OK;
}

/* The way down of wsd ends with the run, there with its lr_decay_iters. */
static orth_status set_wsd(orth_importer *x)
{
    const orth_import_pair *end = orth_import_find(x, ORTH_PART_decay_steps), *end_samples = orth_import_find(x, ORTH_PART_decay_samples);
    const orth_import_pair *steps = orth_import_find(x, ORTH_PART_wsd_steps), *down = steps ? steps : orth_import_find(x, ORTH_PART_wsd_samples);
    double samples, last, n;
    ORTH_TRY(orth_import_number(x, ORTH_PART_decay_samples, 1, 0, &samples));
    ORTH_TRY(orth_import_number(x, ORTH_PART_decay_steps, 1, (double)steps_of(x, samples), &last));
    end = end ? end : end_samples;
    if (end && (int64_t)last != x->cfg->train_steps)
        orth_import_unused(x, end->place, "the way down of wsd ends with the run, train.steps");
    if (!down)
        return ORTH_OK;
    ORTH_TRY(orth_import_number(x, steps ? ORTH_PART_wsd_steps : ORTH_PART_wsd_samples, 1, 0, &n));
    return orth_import_set_int(x, down->place, "schedule.decay_steps", steps ? (int64_t)n : steps_of(x, n));
}

/* There the way down begins at step 0 and the warm-up is a part of it; here it begins after the warm-up. */
static orth_status set_warmup_and_decay(orth_importer *x)
{
    const orth_import_pair *down = orth_import_find(x, ORTH_PART_decay_steps), *share = orth_import_find(x, ORTH_PART_warmup_fraction);
    const orth_import_pair *down_samples = orth_import_find(x, ORTH_PART_decay_samples), *up = orth_import_find(x, ORTH_PART_warmup_samples);
    double decay, samples, fraction, warmup;
    ORTH_TRY(orth_import_number(x, ORTH_PART_decay_samples, 1, 0, &samples));
    ORTH_TRY(orth_import_number(x, ORTH_PART_decay_steps, 1, down_samples ? (double)steps_of(x, samples) : (double)x->cfg->train_steps, &decay));
    ORTH_TRY(orth_import_number(x, ORTH_PART_warmup_fraction, 0, 0, &fraction));
    ORTH_TRY(orth_import_number(x, ORTH_PART_warmup_samples, 0, 0, &warmup));
    if (share)
        ORTH_TRY(orth_import_set_int(x, share->place, "schedule.warmup_steps", (int64_t)(fraction * decay)));
    if (up)
        ORTH_TRY(orth_import_set_int(x, up->place, "schedule.warmup_steps", steps_of(x, warmup)));
    down = down ? down : down_samples;
    if (x->cfg->schedule_name == ORTH_schedule_name_wsd)
        return set_wsd(x);
    if (!down)
        return ORTH_OK;
    if ((int64_t)decay <= x->cfg->schedule_warmup_steps)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: must be more than the warm-up, %" PRId64 " steps", down->place, ORTH_SHOWN(down->value),
                         x->cfg->schedule_warmup_steps);
    return orth_import_set_int(x, down->place, "schedule.decay_steps", (int64_t)decay - x->cfg->schedule_warmup_steps);
}

/* Which schedule of DeepSpeed's; NULL: none that there is here. */
static const orth_import_pair *find_schedule(const orth_importer *x)
{
    const orth_import_pair *type = NULL;
    for (const orth_import_pair *p = x->first; p; p = p->next)
        type = p->row && p->row->kind == ORTH_ROW_GIVES && strcmp(p->row->key, "schedule.name") == 0 ? p : type;
    return type;
}

/* WarmupLR and WarmupDecayLR set a rate of their own, whatever the optimizer's is. Where it is left to a default, or to who calls DeepSpeed, a
 * rate that was given elsewhere stays. */
static orth_status set_rate(orth_importer *x)
{
    const orth_import_pair *lr = orth_import_find(x, ORTH_PART_ds_lr), *peak = orth_import_find(x, ORTH_PART_ds_peak), *type = find_schedule(x);
    const bool own = type && (strcmp(type->value, "WarmupLR") == 0 || strcmp(type->value, "WarmupDecayLR") == 0);
    const bool open = !peak && (orth_import_has(x, "scheduler.params.warmup_max_lr=auto") || (!lr && ORTH_CONFIG_IS_SET(x->cfg, optimizer, lr)));
    char why[160];
    if (peak && !own)
        orth_import_unused(x, peak->place, "only WarmupLR and WarmupDecayLR have a rate of their own");
    if (!own || open || x->tool != ORTH_TOOL_deepspeed)
        return lr ? orth_import_set(x, lr->place, "optimizer.lr", lr->value) : ORTH_OK;
    snprintf(why, sizeof why, "%.20s trains with scheduler.params.warmup_max_lr, %.40s%s", type->value, peak ? ORTH_SHOWN(peak->value) : "0.001",
             peak ? "" : " where it is not given");
    if (lr)
        orth_import_unused(x, lr->place, why);
    return orth_import_set(x, peak ? peak->place : type->place, "optimizer.lr", peak ? peak->value : "0.001");
}

/* DeepSpeed's schedules: 1,000 steps of warm-up by default, 2 at least; an end at 0, or at 0.0001 of the rate. */
static orth_status set_scheduler(orth_importer *x)
{
    const orth_import_pair *type = find_schedule(x), *end = orth_import_find(x, ORTH_PART_cosine_end), *up = orth_import_find(x, ORTH_PART_ds_warmup);
    double steps;
    if (x->tool != ORTH_TOOL_deepspeed || !type)
        return ORTH_OK;
    ORTH_TRY(orth_import_number(x, ORTH_PART_ds_warmup, 0, 1000, &steps));
    ORTH_TRY(orth_import_set_int(x, up ? up->place : type->place, "schedule.warmup_steps", ORTH_MAX(2, (int64_t)steps)));
    if (strcmp(type->value, "WarmupDecayLR") == 0)
        return orth_import_set(x, type->place, "schedule.min_lr_ratio", "0");
    if (strcmp(type->value, "WarmupCosineLR") == 0)
        return orth_import_set(x, end ? end->place : type->place, "schedule.min_lr_ratio", end ? end->value : "0.0001");
    return ORTH_OK;
}

static orth_status set_least_lr(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_min_lr);
    double least;
    ORTH_TRY(orth_import_number(x, ORTH_PART_min_lr, 0, 0, &least));
    if (!p || !orth_import_gives(x, "optimizer.lr"))
        return ORTH_OK;
    if (!(x->cfg->optimizer_lr > 0) || least > x->cfg->optimizer_lr)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%g: is more than the learning rate, %g", p->place, least, x->cfg->optimizer_lr);
    return orth_import_set_real(x, p->place, "schedule.min_lr_ratio", least / x->cfg->optimizer_lr);
}

static orth_status set_betas(orth_importer *x)
{
    const orth_import_pair *first = orth_import_find(x, ORTH_PART_beta1), *second = orth_import_find(x, ORTH_PART_beta2);
    char text[96];
    if (!first || !second || x->cfg->optimizer_name == ORTH_optimizer_name_sgd)
        return ORTH_OK;
    snprintf(text, sizeof text, "[%.32s, %.32s]", first->value, second->value);
    return orth_import_set(x, second->place, "optimizer.betas", text);
}

orth_status orth_import_optimizer(orth_importer *x)
{
    ORTH_TRY(set_steps(x));
    ORTH_TRY(set_warmup_and_decay(x));
    ORTH_TRY(set_scheduler(x));
    ORTH_TRY(set_rate(x));
    ORTH_TRY(set_least_lr(x));
    return set_betas(x);
}
