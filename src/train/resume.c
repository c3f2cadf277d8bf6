/* resume.c -- see resume.h. */
#include "train/resume.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ckpt/hf.h"
#include "ckpt/state.h"
#include "parallel/pipeline/schedule.h"
#include "train/lr.h"
#include "train/setup.h"

/* A checkpoint's manifest, and the options of its run: the defaults where it records none. */
typedef struct {
    orth_checkpoint_manifest m;
    orth_config cfg;
} recorded;

static void close_recorded(orth_ctx *ctx, recorded *was)
{
    orth_config_release(ctx, &was->cfg);
    orth_checkpoint_manifest_release(ctx, &was->m);
}

static orth_status open_recorded(orth_ctx *ctx, recorded *was, const char *dir)
{
    char *path = orth_path_join(ctx, dir, "state.json");
    orth_status s = path ? orth_checkpoint_manifest_read(ctx, &was->m, path) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    ORTH_TRY(s);
    s = orth_config_init(ctx, &was->cfg);
    if (s == ORTH_OK && was->m.run_config[0])
        s = orth_config_parse(ctx, &was->cfg, "state.json: run options", was->m.run_config, strlen(was->m.run_config));
    if (s != ORTH_OK)
        close_recorded(ctx, was);
    return s;
}

/* A key's value now and then. */
typedef struct {
    char *now, *before;
    bool differ;
} values;

static orth_status values_of(orth_ctx *ctx, const orth_config *cfg, const orth_config *was, orth_option_id id, values *out)
{
    *out = (values){.now = orth_option_text(ctx, cfg, id), .before = orth_option_text(ctx, was, id)};
    if (out->now && out->before)
        out->differ = strcmp(out->now, out->before) != 0;
    return out->now && out->before ? ORTH_OK : ORTH_ERR_NOMEM;
}

static void free_values(orth_ctx *ctx, values *v)
{
    orth_mem_free(ctx, v->now);
    orth_mem_free(ctx, v->before);
}

static const char *place_of(const orth_config *cfg, orth_option_id id)
{
    return cfg->place[id] ? cfg->place[id] : "defaults";
}

/* What --override lets a resumed run have anew. */
static bool moves_lr(orth_option_id id)
{
    return id == ORTH_OPT_optimizer_lr || id == ORTH_OPT_optimizer_lr_scaling || id == ORTH_OPT_optimizer_lr_base_batch ||
           strncmp(orth_option_get(id)->path, "schedule.", 9) == 0;
}

static orth_status compare_key(orth_ctx *ctx, const orth_config *cfg, const orth_config *was, orth_option_id id,
                               const char *dir, bool too_late)
{
    const char *key = orth_option_get(id)->path;
    values v;
    orth_status s = values_of(ctx, cfg, was, id, &v);
    if (v.differ && too_late)
        s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: no step is left for it: %s has all train.steps=%" PRId64 ", trained with %s", place_of(cfg, id), key, v.now,
                      dir, cfg->train_steps, v.before);
    else if (v.differ)
        s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: %s was trained with %s, and --resume changes nothing that "
                      "decides the numbers (%s--init starts another run from its weights)", place_of(cfg, id), key, v.now,
                      dir, v.before, moves_lr(id) ? "--override lets it change the learning rate and its schedule; " : "");
    free_values(ctx, &v);
    return s;
}

/* Layouts change no numbers but for these: an asynchronous schedule updates stale weights, as often as it has micro-batches; and in fast mode
 * blocks of moments in 8 bits follow what tp and cp cut. */
static orth_status compare_layouts(orth_ctx *ctx, const orth_config *cfg, const orth_config *was, const char *dir)
{
    static const orth_option_id ids[] = {ORTH_OPT_parallel_pipeline, ORTH_OPT_parallel_pp, ORTH_OPT_parallel_dp, ORTH_OPT_parallel_dp_share,
                                         ORTH_OPT_parallel_virtual_stages, ORTH_OPT_parallel_stage_layers, ORTH_OPT_parallel_stage_split, ORTH_OPT_train_micro_batch};
    const bool async = orth_schedule_is_async(cfg->parallel_pipeline) || orth_schedule_is_async(was->parallel_pipeline);
    for (int i = 0; async && i < ORTH_COUNT(ids); i++)
        ORTH_TRY(compare_key(ctx, cfg, was, ids[i], dir, false));
    const int64_t parts = orth_setup_layout(cfg).parts, before = orth_setup_layout(was).parts;
    if (cfg->precision_moments == ORTH_precision_moments_8bit && parts != before)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: parallel.tp=%" PRId64 " and cp=%" PRId64 ": with numerics.mode=fast blocks of precision.moments=8bit end where these cut "
                         "weights, into %" PRId64 " parts; %s was trained with tp=%" PRId64 " and cp=%" PRId64 ", %" PRId64 " parts", place_of(cfg, ORTH_OPT_parallel_tp),
                         cfg->parallel_tp, cfg->parallel_cp, parts, dir, was->parallel_tp, was->parallel_cp, before);
    return ORTH_OK;
}

/* The keys of a model as the weights have them. They stand for the `auto` of a run that began from weights; the run.yaml of such a run, or of a
 * resumed one, gives them. */
typedef struct {
    orth_config now, before;       /* these share the strings of those they are made from */
    bool from_weights;             /* the run file gives no model */
} weights_keys;

static bool is_given(const orth_config *c, orth_option_id id)
{
    return c->place[id] && !(id == ORTH_OPT_model_family && c->model_family == ORTH_model_family_auto);
}

static void compare_with(const weights_keys *w, const orth_config **now, const orth_config **was, orth_option_id id)
{
    const bool then = is_given(*was, id);
    if (!is_given(*now, id) && (!then || w->from_weights))
        *now = &w->now;
    if (!then)
        *was = &w->before;
}

static orth_status compare_options(orth_ctx *ctx, const orth_config *cfg, const recorded *was, const orth_model_config *model, const char *dir,
                                   bool override)
{
    weights_keys weights = {*cfg, was->cfg, !cfg->model_preset[0] && !ORTH_CONFIG_IS_SET(cfg, model, layers)};
    orth_setup_put_model(&weights.now, model, dir);
    orth_setup_put_model(&weights.before, model, dir);
    const bool same_products = orth_setup_fp32_products(cfg) == orth_setup_fp32_products(&was->cfg); /* auto may stand for fma */
    const bool is_done = cfg->train_epochs == 0 && was->m.state.step >= cfg->train_steps; /* with epochs not known yet */
    for (int id = 0; id < ORTH_NUM_OPTIONS; id++) {
        const bool moves = override && moves_lr((orth_option_id)id);
        if (orth_config_is_idle(cfg, (orth_option_id)id) && orth_config_is_idle(&was->cfg, (orth_option_id)id))
            continue;
        if (orth_option_decides_numbers((orth_option_id)id) && !(id == ORTH_OPT_precision_fp32_products && same_products) && (!moves || is_done)) {
            const orth_config *now = cfg, *then = &was->cfg;
            compare_with(&weights, &now, &then, (orth_option_id)id);
            ORTH_TRY(compare_key(ctx, now, then, (orth_option_id)id, dir, moves));
        }
    }
    return compare_layouts(ctx, cfg, &was->cfg, dir);
}

orth_status orth_resume_check_options(orth_ctx *ctx, const orth_config *cfg, const char *dir, bool override)
{
    recorded was;
    orth_hf_source *weights = NULL;
    ORTH_TRY(open_recorded(ctx, &was, dir));
    orth_status s = orth_hf_open(ctx, &weights, dir);
    if (s == ORTH_OK && was.m.run_config[0])
        s = compare_options(ctx, cfg, &was, orth_hf_source_config(weights), dir, override);
    orth_hf_close(ctx, weights);
    close_recorded(ctx, &was);
    return s;
}

orth_status orth_resume_step(orth_ctx *ctx, const char *dir, int64_t *out)
{
    recorded was;
    ORTH_TRY(open_recorded(ctx, &was, dir));
    *out = was.m.state.step;
    close_recorded(ctx, &was);
    return ORTH_OK;
}

static orth_status tell_overrides(orth_ctx *ctx, const orth_config *cfg, const orth_config *was, orth_override_fn tell, void *user)
{
    orth_status s = ORTH_OK;
    for (int id = 0; s == ORTH_OK && id < ORTH_NUM_OPTIONS; id++) {
        if (!moves_lr((orth_option_id)id))
            continue;
        values v;
        s = values_of(ctx, cfg, was, (orth_option_id)id, &v);
        if (v.differ)
            s = tell(ctx, user, orth_option_get((orth_option_id)id)->path, v.before, v.now);
        free_values(ctx, &v);
    }
    return s;
}

orth_status orth_resume_overrides(orth_ctx *ctx, const orth_config *cfg, const char *dir, orth_override_fn tell, void *user)
{
    recorded was;
    ORTH_TRY(open_recorded(ctx, &was, dir));
    const orth_status s = was.m.run_config[0] ? tell_overrides(ctx, cfg, &was.cfg, tell, user) : ORTH_OK;
    close_recorded(ctx, &was);
    return s;
}

/* Of text: a key that makes other tokens of it, and its values now and then; "" where none differs. */
static orth_status explain_data(orth_ctx *ctx, const orth_config *cfg, const orth_config *was, char *out, size_t room)
{
    orth_status s = ORTH_OK;
    out[0] = 0;
    for (int i = 0; s == ORTH_OK && i < ORTH_NUM_TEXT_KEYS && !out[0]; i++) {
        values v;
        s = values_of(ctx, cfg, was, orth_setup_text_keys[i], &v);
        if (v.differ)
            snprintf(out, room, " (%s=%.60s now, %.60s then)", orth_option_get(orth_setup_text_keys[i])->path, v.now, v.before);
        free_values(ctx, &v);
    }
    return s;
}

static orth_status fail_data(orth_ctx *ctx, const orth_config *cfg, const orth_data *data, const recorded *was, const char *dir)
{
    char why[200];
    ORTH_TRY(explain_data(ctx, cfg, &was->cfg, why, sizeof why));
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: data.path=%s: its training tokens have fingerprint %016" PRIx64
                     ", those that %s was trained on %016" PRIx64 "%s: --resume goes on with the same data",
                     place_of(cfg, ORTH_OPT_data_path), cfg->data_path.v[0], data->fingerprint, dir,
                     was->m.state.data_fingerprint, why);
}

static bool same_rate(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* For tell_overrides: the first of them, in words. */
static orth_status first_override(orth_ctx *ctx, void *user, const char *key, const char *was, const char *now)
{
    (void)ctx;
    char *out = user;
    if (!out[0])
        snprintf(out, 200, "%.60s is %.60s now, was %.60s", key, now, was);
    return ORTH_OK;
}

static void tell_lr(orth_ctx *ctx, const orth_config *cfg, const orth_config *was, int64_t step)
{
    const double next = (double)step + 1, end = (double)was->train_steps;
    char why[200] = "";
    if (cfg->train_steps <= step)
        return;
    const double now_lr = orth_lr_at(cfg, next), was_lr = orth_lr_at(was, next);
    if (same_rate(now_lr, was_lr) && (end <= next || same_rate(orth_lr_at(cfg, end), orth_lr_at(was, end))))
        return;
    if (tell_overrides(ctx, cfg, was, first_override, why) != ORTH_OK)
        orth_ctx_clear_error(ctx);
    if (!why[0])
        snprintf(why, sizeof why, "its schedule (%s) now ends at step %" PRId64 ", was to end at %" PRId64,
                 orth_option_choice(ORTH_OPT_schedule_name, (int)cfg->schedule_name), cfg->train_steps, was->train_steps);
    orth_log(ctx, ORTH_LOG_WARN, "resume", "the learning rate of step %.0f is %.3g, where the run would have had %.3g: %s", next, now_lr, was_lr, why);
}

orth_status orth_resume_tell_lr(orth_ctx *ctx, const orth_config *cfg, const char *dir)
{
    recorded was;
    ORTH_TRY(open_recorded(ctx, &was, dir));
    if (was.m.run_config[0])
        tell_lr(ctx, cfg, &was.cfg, was.m.state.step);
    close_recorded(ctx, &was);
    return ORTH_OK;
}

static orth_status compare_data(orth_ctx *ctx, const orth_config *cfg, const orth_data *data, const recorded *was, const char *dir)
{
    const orth_checkpoint_state *state = &was->m.state;
    uint64_t tokenizer = orth_tokenizer_fingerprint(data->tokenizer);
    if (state->tokenizer_fingerprint != 0 && state->tokenizer_fingerprint != tokenizer)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: was trained with tokenizer %016" PRIx64 ", the data is for %016" PRIx64,
                         dir, state->tokenizer_fingerprint, tokenizer);
    if (state->data_fingerprint != 0 && state->data_fingerprint != data->fingerprint)
        return fail_data(ctx, cfg, data, was, dir);
    if (was->m.run_config[0] && was->cfg.data_path.n != cfg->data_path.n)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: data.path names %d data sets, %s was trained on %d: each has an order of its own, so that the sequences "
                         "would be others", place_of(cfg, ORTH_OPT_data_path), (int)cfg->data_path.n, dir, (int)was->cfg.data_path.n);
    if (state->next_sequence != state->step * cfg->train_global_batch)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: its next sequence is %" PRId64 ", but %" PRId64 " steps of "
                         "train.global_batch=%" PRId64 " end at %" PRId64, dir, state->next_sequence, state->step,
                         cfg->train_global_batch, state->step * cfg->train_global_batch);
    return ORTH_OK;
}

orth_status orth_resume_check_data(orth_ctx *ctx, const orth_config *cfg, const orth_data *data, const char *dir)
{
    recorded was;
    ORTH_TRY(open_recorded(ctx, &was, dir));
    const orth_status s = compare_data(ctx, cfg, data, &was, dir);
    close_recorded(ctx, &was);
    return s;
}
