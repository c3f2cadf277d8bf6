/* trainer.c -- see trainer.h. */
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>

#include "program/ir/cost.h"
#include "train/lr.h"

static orth_status create_arrays(orth_ctx *ctx, orth_trainer *t)
{
    const size_t seq_bytes = orth_executor_size(t->executor, ORTH_BIND_DATA, ORTH_DATA_SEQ);
    t->step = ORTH_NEW_ARRAY(ctx, orth_step_values, t->compiled.program.num_updates);
    if (seq_bytes > 0)
        t->seq = orth_mem_alloc(ctx, seq_bytes);
    return t->step && (t->seq || seq_bytes == 0) ? ORTH_OK : ORTH_ERR_NOMEM;
}

orth_status orth_trainer_create(orth_ctx *ctx, orth_trainer *t, const orth_config *cfg,
                                const orth_model_config *model, const orth_compiled *compiled)
{
    *t = (orth_trainer){.cfg = cfg, .model = *model, .compiled = *compiled, .scale = orth_loss_scale_make(cfg)};
    t->spaces = (orth_space_setup){.file_dir = cfg->memory_offload_dir, .file_io = orth_setup_file_io(cfg)};
    ctx->spaces = &t->spaces;
    orth_status s = orth_executor_create(ctx, &t->executor, &t->compiled.program, orth_setup_kernels(cfg), NULL, false);
    if (s == ORTH_OK)
        s = create_arrays(ctx, t);
    if (s == ORTH_OK)
        s = orth_setup_rope_table(ctx, t->executor, model);
    if (s != ORTH_OK) {
        orth_trainer_destroy(ctx, t);
        return s;
    }
    return ORTH_OK;
}

void orth_trainer_destroy(orth_ctx *ctx, orth_trainer *t)
{
    orth_executor_destroy(ctx, t->executor);
    ctx->spaces = NULL;
    orth_compiled_release(&t->compiled);
    orth_mem_free(ctx, t->step);
    orth_mem_free(ctx, t->seq);
    t->executor = NULL;
}

static float scale_of(int64_t weight)
{
    return weight > 0 ? (float)(1.0 / (double)weight) : 0.0f;
}

orth_status orth_trainer_load(orth_ctx *ctx, orth_trainer *t, const orth_loader_batch *batch, const int64_t *weights)
{
    int64_t total = 0;
    const orth_compile_spec *spec = &t->compiled.blocks.spec;
    const size_t bytes = (size_t)(batch->num_sequences * spec->seq_len) * 4;
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_TOKENS, batch->tokens, bytes));
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_TARGETS, batch->targets, bytes));
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_POSITIONS, batch->pos, bytes));
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_DOC_STARTS, batch->doc, bytes));
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_WEIGHTS, batch->weights, bytes));
    ORTH_TRY(orth_setup_positions_sp(ctx, spec, t->executor, batch->pos, batch->num_sequences));
    for (int64_t i = 0; t->seq && i < batch->num_sequences; i++)
        t->seq[i] = (int32_t)(batch->indices[i] & 0x7fffffff);
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_SEQ, t->seq, (size_t)batch->num_sequences * sizeof *t->seq));
    for (int32_t u = 0; u < t->compiled.program.num_updates; u++) {
        t->step[u].loss_scale = scale_of(weights[u]) * t->scale.scale;
        total += weights[u];
    }
    t->mean = scale_of(total);
    return ORTH_OK;
}

/* Values of update `u` of step `step`. With several updates in a step each is one for the optimizer and the learning
 * rate, which moves in fractions of a step. */
static void set_step_values(orth_trainer *t, int64_t step, int32_t u)
{
    const orth_config *c = t->cfg;
    const int32_t num = t->compiled.program.num_updates;
    const float scale = t->step[u].loss_scale;
    const double at = num == 1 ? (double)step : (double)(step - 1) + (u + 1.0) / num;
    t->step[u] = (orth_step_values){
        .seed = (uint64_t)c->train_seed, .step = (uint64_t)((step - 1) * num + u + 1), .lr = (float)orth_lr_at(c, at),
        .weight_decay = (float)c->optimizer_weight_decay, .beta1 = c->optimizer_betas.v[0],
        .beta2 = c->optimizer_betas.v[1], .eps = (float)c->optimizer_eps,
        .momentum = (float)c->optimizer_momentum, .clip_norm = (float)c->train_clip_norm,
        .loss_scale = scale, .grad_scale = t->scale.scale, .left_out = (int32_t)t->left_out,
        .clip_scale = 1, /* of async programs, which have no norm */
    };
}

static orth_status tell_end(orth_ctx *ctx, const orth_trainer *t, const orth_step_result *r)
{
    return t->ends ? t->ends(ctx, t->ends_user, r) : ORTH_OK;
}

/* Without a norm there is only the loss to look at. */
static orth_status check_async_loss(orth_ctx *ctx, const orth_trainer *t, const orth_step_result *r)
{
    if (isfinite(r->loss))
        return ORTH_OK;
    ORTH_TRY(tell_end(ctx, t, r));
    return ORTH_FAIL(ctx, ORTH_ERR_NUMERIC, "step %" PRId64 ": loss %g: the updates of an asynchronous pipeline cannot be "
                     "left out (train.on_nonfinite)", r->step, fabs(r->loss));
}

orth_status orth_trainer_step(orth_ctx *ctx, orth_trainer *t, int64_t step, orth_step_result *out)
{
    const int32_t num_updates = t->compiled.program.num_updates;
    const orth_step_values *last = &t->step[num_updates - 1];
    const orth_ref values = {ORTH_BIND_DATA, ORTH_DATA_STEP, 0, (size_t)num_updates * sizeof *t->step};
    double sum;
    for (int32_t u = 0; u < num_updates; u++)
        set_step_values(t, step, u);
    ORTH_TRY(orth_executor_write(ctx, t->executor, values, t->step));
    ORTH_TRY(orth_executor_run(ctx, t->executor));
    ORTH_TRY(orth_executor_read(ctx, t->executor, values, t->step));
    ORTH_TRY(orth_executor_read(ctx, t->executor, (orth_ref){ORTH_BIND_LOSS, 0, 0, sizeof sum}, &sum));
    *out = (orth_step_result){.step = step, .loss = sum * (double)t->mean, .lr = last->lr,
                              .grad_norm = last->grad_norm, .loss_scale = t->scale.on ? (double)t->scale.scale : 0, .skipped = last->bad != 0};
    if (t->compiled.blocks.spec.async) {
        out->grad_norm = (double)NAN;
        return check_async_loss(ctx, t, out);
    }
    t->left_out += out->skipped;
    if (orth_loss_scale_step(&t->scale, out->skipped) || !out->skipped ||
        t->cfg->train_on_nonfinite == ORTH_train_on_nonfinite_skip)
        return ORTH_OK;
    ORTH_TRY(tell_end(ctx, t, out));
    /* Nothing was updated, so the same step can be run again, looking at every result. */
    char where[256] = "the gradient norm";
    ORTH_TRY(orth_executor_find_nonfinite(ctx, t->executor, where, sizeof where));
    /* fabs: no sign on a NaN. */
    return ORTH_FAIL(ctx, ORTH_ERR_NUMERIC,
                     "step %" PRId64 ": loss %g, gradient norm %g; the first tensor that is not finite is %s "
                     "(train.on_nonfinite=stop)", step, fabs(out->loss), fabs(out->grad_norm), where);
}
