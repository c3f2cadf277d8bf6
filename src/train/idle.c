/* idle.c -- see idle.h. */
#include "train/idle.h"

#include <inttypes.h>

#include "data/corpus.h"
#include "train/describe.h"
#include "train/lr.h"
#include "train/setup.h"

/* What the training steps of all ranks have. */
typedef struct {
    bool makes_again, sends_away, state_leaves;
    size_t largest;               /* bytes of an activation */
} found;

static void look(const orth_program *p, found *out)
{
    for (int32_t i = 0; i < p->num_instrs; i++)
        out->makes_again = out->makes_again || p->instrs[i].recomputed;
    for (int32_t i = 0; i < p->num_buffers; i++) {
        const orth_buffer *b = &p->buffers[i];
        out->sends_away = out->sends_away || b->of > 0;
        out->state_leaves = out->state_leaves || (b->cls == ORTH_CLASS_OPTIMIZER && b->bind != ORTH_BIND_NONE && b->space != p->space);
        if (b->cls == ORTH_CLASS_ACTIVATIONS && !b->persistent)
            out->largest = ORTH_MAX(out->largest, b->bytes);
    }
}

static orth_status look_at_all(orth_ctx *ctx, orth_run_plan *p, found *out)
{
    for (int r = 0; r < p->num_ranks; r++) {
        const orth_compiled *compiled;
        if (orth_classes_of(&p->programs.classes, r) != r)
            continue;
        ORTH_TRY(orth_programs_of(ctx, &p->programs, r, &compiled));
        look(&compiled->program, out);
    }
    return ORTH_OK;
}

/* An enum that is not its default, and so was given. */
static void tell(orth_ctx *ctx, const orth_config *cfg, orth_option_id id, int value, const char *why)
{
    orth_log(ctx, ORTH_LOG_INFO, "config", "%s: %s=%s has no effect: %s", cfg->place[id], orth_option_get(id)->path, orth_option_choice(id, value), why);
}

static bool only_the_optimizer_leaves(const orth_config *cfg)
{
    return cfg->memory_offload_optimizer != ORTH_memory_offload_optimizer_none && cfg->memory_offload_params == ORTH_memory_offload_params_none &&
           cfg->memory_offload_gradients == ORTH_memory_offload_gradients_none;
}

static void tell_of_programs(orth_ctx *ctx, const orth_config *cfg, const found *f)
{
    char why[192];
    if (cfg->memory_recompute != ORTH_memory_recompute_none && cfg->memory_recompute != ORTH_memory_recompute_auto && !f->makes_again)
        tell(ctx, cfg, ORTH_OPT_memory_recompute, (int)cfg->memory_recompute, "the backward reads nothing of what would be made again");
    if (only_the_optimizer_leaves(cfg) && !f->state_leaves)
        orth_log(ctx, ORTH_LOG_INFO, "config", "%s: memory.offload_optimizer=%s has no effect on memory: %s", cfg->place[ORTH_OPT_memory_offload_optimizer],
                 orth_option_choice(ORTH_OPT_memory_offload_optimizer, (int)cfg->memory_offload_optimizer),
                 cfg->memory_offload_ratio < 1 ? "memory.offload_ratio lets no parameter leave" : "this optimizer keeps no state, and no masters");
    if (cfg->memory_offload_activations == ORTH_memory_offload_activations_none || f->sends_away)
        return;
    if (f->largest < (size_t)cfg->memory_offload_min_bytes)
        snprintf(why, sizeof why, "no activation is as large as memory.offload_min_bytes, %lld bytes; the largest has %zu",
                 (long long)cfg->memory_offload_min_bytes, f->largest);
    else
        snprintf(why, sizeof why, "no activation of at least memory.offload_min_bytes, %lld bytes, is unused for as long as the copies would take",
                 (long long)cfg->memory_offload_min_bytes);
    tell(ctx, cfg, ORTH_OPT_memory_offload_activations, (int)cfg->memory_offload_activations, why);
}

static orth_status tell_of_factors(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, orth_option_id id, const orth_factors *f,
                                   const bool *frozen)
{
    bool about[ORTH_LIST_MAX];
    ORTH_TRY(orth_factors_about_trained(ctx, f, model, frozen, about));
    for (int32_t w = 0; w < f->num; w++)
        if (!about[w])
            orth_log(ctx, ORTH_LOG_INFO, "config", "%s: %s: '%s' has no effect: all parameters that it matches are frozen (optimizer.freeze)",
                     cfg->place[id], f->key, f->word[w]);
    return ORTH_OK;
}

/* Text was read, cut and shared out when it was prepared. */
static orth_status tell_of_text(orth_ctx *ctx, const orth_config *cfg)
{
    for (int i = 0; i < cfg->data_path.n; i++)
        if (!orth_dataset_exists(cfg->data_path.v[i]))
            return ORTH_OK;
    for (int i = 0; cfg->data_path.n > 0 && i < ORTH_NUM_TEXT_KEYS; i++)
        ORTH_TRY(orth_config_tell_key_idle(ctx, cfg, orth_setup_text_keys[i], "data.path is prepared already"));
    return ORTH_OK;
}

static orth_status tell_of_positions(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model)
{
    static const orth_option_id ids[] = {ORTH_OPT_model_rope_low_freq, ORTH_OPT_model_rope_high_freq, ORTH_OPT_model_rope_original_seq,
                                         ORTH_OPT_model_rope_theta, ORTH_OPT_model_rope_factor};
    const bool learned = model->family == ORTH_FAMILY_GPT2;
    const int num = learned ? ORTH_COUNT(ids) : model->rope_factor == 1 ? 3 : 0;
    for (int i = 0; i < num; i++)
        ORTH_TRY(orth_config_tell_key_idle(ctx, cfg, ids[i], learned ? "model.family=gpt2 has learned positions" : "model.rope_factor=1"));
    return ORTH_OK;
}

/* A schedule that a run of these steps is too short for. */
static void tell_of_schedule(orth_ctx *ctx, const orth_config *cfg)
{
    const int64_t steps = cfg->train_steps, warmup = cfg->schedule_warmup_steps, decay = orth_lr_decay_steps(cfg);
    const double ends = orth_lr_at(cfg, (double)steps) / orth_lr_at(cfg, (double)ORTH_MAX(warmup, 1));
    if (warmup > steps)
        orth_log(ctx, ORTH_LOG_INFO, "config", "%s: schedule.warmup_steps=%" PRId64 " is more than the run has, train.steps=%" PRId64 ": the learning rate ends at "
                 "%.3g of its peak", cfg->place[ORTH_OPT_schedule_warmup_steps], warmup, steps, ends);
    else if (cfg->schedule_name == ORTH_schedule_name_wsd && warmup + decay > steps && ORTH_CONFIG_IS_SET(cfg, schedule, decay_steps))
        orth_log(ctx, ORTH_LOG_INFO, "config", "%s: schedule.decay_steps=%" PRId64 " and schedule.warmup_steps=%" PRId64 " are more than train.steps=%" PRId64
                 ": wsd ends at %.3g of its peak, not at schedule.min_lr_ratio=%g", cfg->place[ORTH_OPT_schedule_decay_steps], decay, warmup, steps, ends,
                 cfg->schedule_min_lr_ratio);
}

/* With the steps of the epochs, where they are known. */
static orth_status look_at_schedule(orth_ctx *ctx, const orth_config *cfg)
{
    orth_config known = *cfg; /* shares the strings */
    const char *why;
    if (cfg->train_epochs > 0)
        ORTH_TRY(orth_describe_steps(ctx, cfg, &known.train_steps, &why));
    if (known.train_steps > 0 && cfg->optimizer_lr > 0)
        tell_of_schedule(ctx, &known);
    return ORTH_OK;
}

orth_status orth_tell_idle_in_plan(orth_ctx *ctx, const orth_config *cfg, orth_run_plan *p)
{
    const orth_model_config *model = p->programs.spec.model;
    const orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    found f = {.makes_again = false};
    ORTH_TRY(tell_of_text(ctx, cfg));
    ORTH_TRY(tell_of_positions(ctx, cfg, model));
    ORTH_TRY(look_at_schedule(ctx, cfg));
    ORTH_TRY(look_at_all(ctx, p, &f));
    tell_of_programs(ctx, cfg, &f);
    bool *frozen = ORTH_NEW_ARRAY(ctx, bool, orth_model_num_params(model));
    orth_status s = frozen ? orth_setup_frozen(ctx, cfg, model, frozen) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = tell_of_factors(ctx, cfg, model, ORTH_OPT_optimizer_lr_factors, &shape.lr_factors, frozen);
    if (s == ORTH_OK)
        s = tell_of_factors(ctx, cfg, model, ORTH_OPT_optimizer_weight_decay_factors, &shape.decay_factors, frozen);
    orth_mem_free(ctx, frozen);
    return s;
}
