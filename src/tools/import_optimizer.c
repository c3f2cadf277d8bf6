/* import_optimizer.c -- how long a run is, its learning rate with the way up and down, and the moments of its optimizer. Their programs count steps or
 * samples, and begin the way down at other steps than here. */
#include "tools/import_impl.h"

#include <inttypes.h>
#include <string.h>

static int64_t steps_of(const orth_importer *x, int64_t samples)
{
    return orth_div_up(samples, x->cfg->train_global_batch);
}

static orth_status set_steps(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_samples);
    int64_t samples;
    ORTH_TRY(orth_import_count(x, ORTH_PART_samples, 0, &samples));
    return p ? orth_import_set_int(x, p->place, "train.steps", steps_of(x, samples)) : ORTH_OK;
}

/* The way down of wsd ends with the run, there with its lr_decay_iters. */
static orth_status set_wsd(orth_importer *x)
{
    const orth_import_pair *end = orth_import_find(x, ORTH_PART_decay_steps), *end_samples = orth_import_find(x, ORTH_PART_decay_samples);
    const orth_import_pair *steps = orth_import_find(x, ORTH_PART_wsd_steps), *down = steps ? steps : orth_import_find(x, ORTH_PART_wsd_samples);
    int64_t samples, last, n;
    ORTH_TRY(orth_import_count(x, ORTH_PART_decay_samples, 0, &samples));
    ORTH_TRY(orth_import_count(x, ORTH_PART_decay_steps, steps_of(x, samples), &last));
    end = end ? end : end_samples;
    if (end && last != x->cfg->train_steps)
        orth_import_unused(x, end->place, "the way down of wsd ends with the run, train.steps");
    if (!down)
        return ORTH_OK;
    ORTH_TRY(orth_import_count(x, steps ? ORTH_PART_wsd_steps : ORTH_PART_wsd_samples, 0, &n));
    return orth_import_set_int(x, down->place, "schedule.decay_steps", steps ? n : steps_of(x, n));
}

/* There the way down begins at step 0 and the warm-up is a part of it; here it begins after the warm-up. */
static orth_status set_warmup_and_decay(orth_importer *x)
{
    const orth_import_pair *down = orth_import_find(x, ORTH_PART_decay_steps), *share = orth_import_find(x, ORTH_PART_warmup_fraction);
    const orth_import_pair *down_samples = orth_import_find(x, ORTH_PART_decay_samples), *up = orth_import_find(x, ORTH_PART_warmup_samples);
    static const orth_import_part of_wsd[] = {ORTH_PART_wsd_steps, ORTH_PART_wsd_samples};
    int64_t decay, samples, warmup;
    double fraction;
    ORTH_TRY(orth_import_count(x, ORTH_PART_decay_samples, 0, &samples));
    ORTH_TRY(orth_import_count(x, ORTH_PART_decay_steps, down_samples ? steps_of(x, samples) : x->cfg->train_steps, &decay));
    ORTH_TRY(orth_import_number(x, ORTH_PART_warmup_fraction, 0, 0, &fraction));
    ORTH_TRY(orth_import_whole(x, ORTH_PART_warmup_samples, 0, 0, &warmup));
    if (fraction > 1)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: must be at most 1", share->place, ORTH_SHOWN(share->value));
    if (share)
        ORTH_TRY(orth_import_set_int(x, share->place, "schedule.warmup_steps", (int64_t)(fraction * (double)decay)));
    if (up)
        ORTH_TRY(orth_import_set_int(x, up->place, "schedule.warmup_steps", steps_of(x, warmup)));
    down = down ? down : down_samples;
    if (x->cfg->schedule_name == ORTH_schedule_name_wsd)
        return set_wsd(x);
    orth_import_unused_parts(x, of_wsd, ORTH_COUNT(of_wsd), "the schedule is not wsd");
    if (!down)
        return ORTH_OK;
    if (decay <= x->cfg->schedule_warmup_steps)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: must be more than the warm-up, %" PRId64 " steps", down->place, ORTH_SHOWN(down->value),
                         x->cfg->schedule_warmup_steps);
    return orth_import_set_int(x, down->place, "schedule.decay_steps", decay - x->cfg->schedule_warmup_steps);
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
    static const orth_import_part params[] = {ORTH_PART_ds_warmup, ORTH_PART_cosine_end};
    int64_t steps;
    if (x->tool != ORTH_TOOL_deepspeed || !type) {
        orth_import_unused_parts(x, params, ORTH_COUNT(params), "no schedule is given that there is here");
        return ORTH_OK;
    }
    if (strcmp(type->value, "WarmupCosineLR") != 0)
        orth_import_unused_parts(x, params + 1, 1, "only WarmupCosineLR has it");
    ORTH_TRY(orth_import_whole(x, ORTH_PART_ds_warmup, 0, 1000, &steps));
    ORTH_TRY(orth_import_set_int(x, up ? up->place : type->place, "schedule.warmup_steps", ORTH_MAX(2, steps)));
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
    if (p && !p->is_default && !orth_import_gives(x, "optimizer.lr"))
        orth_import_unused(x, p->place, "the learning rate is not given: give it, or schedule.min_lr_ratio");
    if (!p || !orth_import_gives(x, "optimizer.lr"))
        return ORTH_OK;
    if (!(x->cfg->optimizer_lr > 0) || least > x->cfg->optimizer_lr)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%g: is more than the learning rate, %g", p->place, least, x->cfg->optimizer_lr);
    return orth_import_set_real(x, p->place, "schedule.min_lr_ratio", least / x->cfg->optimizer_lr);
}

/* Where one of the two is given, the other is that of the run file: its default there counts only where nothing else gave optimizer.betas. */
static orth_status set_betas(orth_importer *x)
{
    static const orth_import_part parts[] = {ORTH_PART_beta1, ORTH_PART_beta2};
    const orth_import_pair *first = orth_import_find(x, ORTH_PART_beta1), *second = orth_import_find(x, ORTH_PART_beta2);
    const double *before = x->cfg->optimizer_betas.v;
    double betas[2];
    char text[96];
    if (x->cfg->optimizer_name == ORTH_optimizer_name_sgd) {
        orth_import_unused_parts(x, parts, ORTH_COUNT(parts), "SGD has no such moments");
        return ORTH_OK;
    }
    if (!first && !second)
        return ORTH_OK;
    for (int i = 0; i < 2; i++)
        ORTH_TRY(orth_import_number(x, parts[i], 0, before[i], &betas[i]));
    snprintf(text, sizeof text, "[%.15g, %.15g]", betas[0], betas[1]);
    const orth_import_pair *given = second && (!first || first->is_default || !second->is_default) ? second : first;
    return orth_import_set(x, given->place, "optimizer.betas", text);
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
