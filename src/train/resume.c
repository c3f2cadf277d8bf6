/* resume.c -- see resume.h. */
#include "train/resume.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ckpt/state.h"
#include "train/lr.h"
#include "train/setup.h"

static orth_status read_manifest(orth_ctx *ctx, orth_checkpoint_manifest *m, const char *dir)
{
    char *path = orth_path_join(ctx, dir, "state.json");
    orth_status s = path ? orth_checkpoint_manifest_read(ctx, m, path) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    return s;
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
    char *now = orth_option_text(ctx, cfg, id), *before = orth_option_text(ctx, was, id);
    orth_status s = now && before ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && strcmp(now, before) != 0 && too_late)
        s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: no step is left for it: %s has all train.steps=%" PRId64 ", trained with %s", place_of(cfg, id), key, now, dir,
                      cfg->train_steps, before);
    else if (s == ORTH_OK && strcmp(now, before) != 0)
        s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: %s was trained with %s, and --resume changes nothing that "
                      "decides the numbers (%s--init starts another run from its weights)", place_of(cfg, id), key, now,
                      dir, before, moves_lr(id) ? "--override lets it change the learning rate and its schedule; " : "");
    orth_mem_free(ctx, now);
    orth_mem_free(ctx, before);
    return s;
}

static orth_status compare_options(orth_ctx *ctx, const orth_config *cfg, const orth_checkpoint_manifest *m, const char *dir, bool override)
{
    orth_config was;
    ORTH_TRY(orth_config_init(ctx, &was));
    orth_status s = orth_config_parse(ctx, &was, "state.json: run options", m->run_config, strlen(m->run_config));
    bool same_products = orth_setup_fp32_products(cfg) == orth_setup_fp32_products(&was); /* auto may stand for fma */
    const bool is_done = cfg->train_epochs == 0 && m->state.step >= cfg->train_steps; /* with epochs not known yet */
    for (int id = 0; s == ORTH_OK && id < ORTH_NUM_OPTIONS; id++) {
        const bool moves = override && moves_lr((orth_option_id)id);
        if (orth_option_decides_numbers((orth_option_id)id) && !(id == ORTH_OPT_precision_fp32_products && same_products) && (!moves || is_done))
            s = compare_key(ctx, cfg, &was, (orth_option_id)id, dir, moves);
    }
    orth_config_release(ctx, &was);
    return s;
}

orth_status orth_resume_check_options(orth_ctx *ctx, const orth_config *cfg, const char *dir, bool override)
{
    orth_checkpoint_manifest m;
    ORTH_TRY(read_manifest(ctx, &m, dir));
    orth_status s = m.run_config[0] ? compare_options(ctx, cfg, &m, dir, override) : ORTH_OK;
    orth_checkpoint_manifest_release(ctx, &m);
    return s;
}

static orth_status tell_overrides(orth_ctx *ctx, const orth_config *cfg, const orth_config *was, orth_override_fn tell, void *user)
{
    orth_status s = ORTH_OK;
    for (int id = 0; s == ORTH_OK && id < ORTH_NUM_OPTIONS; id++) {
        if (!moves_lr((orth_option_id)id))
            continue;
        char *now = orth_option_text(ctx, cfg, (orth_option_id)id), *before = orth_option_text(ctx, was, (orth_option_id)id);
        s = now && before ? ORTH_OK : ORTH_ERR_NOMEM;
        if (s == ORTH_OK && strcmp(now, before) != 0)
            s = tell(ctx, user, orth_option_get((orth_option_id)id)->path, before, now);
        orth_mem_free(ctx, now);
        orth_mem_free(ctx, before);
    }
    return s;
}

orth_status orth_resume_overrides(orth_ctx *ctx, const orth_config *cfg, const char *dir, orth_override_fn tell, void *user)
{
    orth_checkpoint_manifest m;
    orth_config was;
    ORTH_TRY(read_manifest(ctx, &m, dir));
    orth_status s = orth_config_init(ctx, &was);
    if (s == ORTH_OK && m.run_config[0]) {
        s = orth_config_parse(ctx, &was, "state.json: run options", m.run_config, strlen(m.run_config));
        if (s == ORTH_OK)
            s = tell_overrides(ctx, cfg, &was, tell, user);
    }
    orth_config_release(ctx, &was);
    orth_checkpoint_manifest_release(ctx, &m);
    return s;
}

/* Of text: a key that makes other tokens of it, and its values then and now; "" where none differs. */
static void explain_data(orth_ctx *ctx, const orth_config *cfg, const char *recorded, char *out, size_t room)
{
    static const orth_option_id ids[] = {ORTH_OPT_data_separator, ORTH_OPT_data_jsonl_field, ORTH_OPT_data_format,
                                         ORTH_OPT_data_valid_fraction};
    orth_config was;
    out[0] = 0;
    if (orth_config_init(ctx, &was) != ORTH_OK)
        return;
    const bool known = orth_config_parse(ctx, &was, "state.json: run options", recorded, strlen(recorded)) == ORTH_OK;
    for (int i = 0; known && i < ORTH_COUNT(ids) && !out[0]; i++) {
        char *now = orth_option_text(ctx, cfg, ids[i]), *before = orth_option_text(ctx, &was, ids[i]);
        if (now && before && strcmp(now, before) != 0)
            snprintf(out, room, " (%s=%.60s now, %.60s then)", orth_option_get(ids[i])->path, now, before);
        orth_mem_free(ctx, now);
        orth_mem_free(ctx, before);
    }
    orth_config_release(ctx, &was);
}

static orth_status fail_data(orth_ctx *ctx, const orth_config *cfg, const orth_data *data,
                             const orth_checkpoint_manifest *m, const char *dir)
{
    char why[200];
    explain_data(ctx, cfg, m->run_config, why, sizeof why);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: data.path=%s: its training tokens have fingerprint %016" PRIx64
                     ", those that %s was trained on %016" PRIx64 "%s: --resume goes on with the same data",
                     place_of(cfg, ORTH_OPT_data_path), cfg->data_path.v[0], data->fingerprint, dir,
                     m->state.data_fingerprint, why);
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
    orth_checkpoint_manifest m;
    orth_config was;
    ORTH_TRY(read_manifest(ctx, &m, dir));
    orth_status s = orth_config_init(ctx, &was);
    if (s == ORTH_OK && m.run_config[0])
        s = orth_config_parse(ctx, &was, "state.json: run options", m.run_config, strlen(m.run_config));
    if (s == ORTH_OK && m.run_config[0])
        tell_lr(ctx, cfg, &was, m.state.step);
    orth_config_release(ctx, &was);
    orth_checkpoint_manifest_release(ctx, &m);
    return s;
}

static orth_status compare_data(orth_ctx *ctx, const orth_config *cfg, const orth_data *data,
                                const orth_checkpoint_manifest *m, const char *dir)
{
    const orth_checkpoint_state *state = &m->state;
    uint64_t tokenizer = orth_tokenizer_fingerprint(data->tokenizer);
    if (state->tokenizer_fingerprint != 0 && state->tokenizer_fingerprint != tokenizer)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: was trained with tokenizer %016" PRIx64 ", the data is for %016" PRIx64,
                         dir, state->tokenizer_fingerprint, tokenizer);
    if (state->data_fingerprint != 0 && state->data_fingerprint != data->fingerprint)
        return fail_data(ctx, cfg, data, m, dir);
    if (state->next_sequence != state->step * cfg->train_global_batch)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: its next sequence is %" PRId64 ", but %" PRId64 " steps of "
                         "train.global_batch=%" PRId64 " end at %" PRId64, dir, state->next_sequence, state->step,
                         cfg->train_global_batch, state->step * cfg->train_global_batch);
    return ORTH_OK;
}

orth_status orth_resume_check_data(orth_ctx *ctx, const orth_config *cfg, const orth_data *data, const char *dir)
{
    orth_checkpoint_manifest m;
    ORTH_TRY(read_manifest(ctx, &m, dir));
    orth_status s = compare_data(ctx, cfg, data, &m, dir);
    orth_checkpoint_manifest_release(ctx, &m);
    return s;
}
