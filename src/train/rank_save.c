/* rank_save.c -- a rank and its checkpoints: back into it, and out of it. */
#include "train/rank.h"

#include <inttypes.h>

#include "train/gather.h"
#include "train/weights.h"

/* ---- resuming ---- */

typedef struct {
    const orth_checkpoint *ck;
    orth_bind bind;
    int64_t scale_cols;     /* 0: moments are numbers */
} saved_source;

static orth_status read_saved(orth_ctx *ctx, void *user, int64_t index, float *out)
{
    const saved_source *s = user;
    orth_checkpoint_array a = {.index = index, .scale_cols = s->scale_cols};
    *(s->bind == ORTH_BIND_MASTER ? &a.master : s->bind == ORTH_BIND_M ? &a.m : s->bind == ORTH_BIND_V ? &a.v : &a.scales) = out;
    return orth_checkpoint_load(ctx, s->ck, &a, 1);
}

static orth_status read_moment(orth_ctx *ctx, rank_state *s, const orth_checkpoint *ck, int64_t index, orth_bind bind,
                               int64_t scale_cols, float *whole)
{
    saved_source source = {ck, bind, scale_cols};
    if (orth_program_find(&s->trainer.compiled.program, bind, index) < 0)
        return ORTH_OK;
    ORTH_TRY(read_saved(ctx, &source, index, whole));
    return orth_weights_put(ctx, &s->trainer.compiled, s->trainer.executor, bind, index, whole);
}

static orth_status resume_from(orth_ctx *ctx, rank_state *s, const orth_checkpoint *ck)
{
    const orth_run *r = s->run;
    const orth_checkpoint_state *state = orth_checkpoint_get_state(ck);
    saved_source masters = {.ck = ck, .bind = ORTH_BIND_MASTER};
    ORTH_TRY(orth_weights_fill(ctx, &r->model, &s->trainer.compiled, s->trainer.executor, read_saved, &masters));
    for (int64_t i = 0; i < orth_model_num_params(&r->model); i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, &r->model, i, &p));
        static const orth_bind binds[] = {ORTH_BIND_M, ORTH_BIND_V, ORTH_BIND_SCALES};
        const int64_t scale_cols = orth_setup_scale_cols(r->cfg, &r->model, p.weight);
        float *whole = ORTH_NEW_ARRAY(ctx, float, ORTH_MAX(orth_param_elems(&p), p.dim[0] * scale_cols));
        orth_status status = whole ? ORTH_OK : ORTH_ERR_NOMEM;
        for (int k = 0; k < ORTH_COUNT(binds) && status == ORTH_OK; k++)
            status = read_moment(ctx, s, ck, i, binds[k], scale_cols, whole);
        orth_mem_free(ctx, whole);
        ORTH_TRY(status);
    }
    ORTH_TRY(orth_setup_load_delayed(ctx, r->cfg, &r->model, ck, s->trainer.executor));
    s->steps_done = state->step;
    s->tokens_done = state->tokens;
    if (s->saver)
        orth_saver_goes_on(s->saver, state->step);
    s->trainer.left_out = state->skipped;
    if (s->trainer.scale.dynamic) {
        s->trainer.scale.scale = (float)state->loss_scale;
        s->trainer.scale.streak = state->loss_scale_streak;
    }
    return ORTH_OK;
}

orth_status rank_resume(orth_ctx *ctx, rank_state *s)
{
    orth_checkpoint *ck = NULL;
    ORTH_TRY(orth_checkpoint_open(ctx, &ck, s->run->start_from));
    orth_status status = resume_from(ctx, s, ck);
    orth_checkpoint_close(ctx, ck);
    return status;
}

/* ---- handing in ---- */

orth_status rank_fetch(orth_ctx *ctx, void *rank, orth_bind bind, int64_t index, float *chunk, float *whole)
{
    const rank_state *s = rank;
    return orth_gather_one(ctx, &s->trainer, s->all, bind, index, chunk, whole);
}

static orth_status hand_in(orth_ctx *ctx, rank_state *s)
{
    const orth_bind *binds;
    const int num_binds = orth_saver_binds(s->run->cfg, &binds);
    float *chunk = ORTH_NEW_ARRAY(ctx, float, ORTH_GATHER_CHUNK_ELEMS);
    orth_status status = chunk ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int k = 0; k < num_binds; k++)
        for (int64_t i = 0; status == ORTH_OK && i < orth_model_num_params(&s->run->model); i++) {
            orth_param p;
            status = orth_model_param(ctx, &s->run->model, i, &p);
            if (status == ORTH_OK && orth_saver_keeps(s->run->cfg, &s->run->model, &p, s->trainer.compiled.blocks.spec.params[i].frozen, binds[k]))
                status = rank_fetch(ctx, s, binds[k], i, chunk, NULL);
        }
    orth_mem_free(ctx, chunk);
    return status;
}

/* Rank 0: whole tensors, and a checkpoint of them. The write before it has been told of. */
static orth_status collect_and_write(orth_ctx *ctx, const rank_state *s)
{
    const orth_run *r = s->run;
    const orth_checkpoint_state state = {
        .step = s->steps_done, .next_sequence = s->steps_done * r->cfg->train_global_batch, .tokens = s->tokens_done,
        .skipped = s->trainer.left_out, .seed = r->cfg->train_seed, .loss_scale = (double)s->trainer.scale.scale,
        .loss_scale_streak = s->trainer.scale.streak,
        .tokenizer_fingerprint = orth_tokenizer_fingerprint(r->data->tokenizer),
        .data_fingerprint = r->data->fingerprint, .special = *orth_tokenizer_special(r->data->tokenizer)};
    ORTH_TRY(rank_report_saved(ctx, s, true));
    return orth_saver_write(ctx, s->saver, s->trainer.executor, &state, &r->tokenizer_json, r->tokenizer_config);
}

orth_status rank_report_saved(orth_ctx *ctx, const rank_state *s, bool wait)
{
    orth_saved saved = {.step = 0};
    char text[512];
    if (s->saver)
        ORTH_TRY(orth_saver_outcome(ctx, s->saver, wait, &saved));
    if (saved.step == 0)
        return ORTH_OK;
    snprintf(text, sizeof text, "saved %s/step-%08" PRId64 " (%.2f s; training paused %.2f s)", s->run->checkpoints,
             saved.step, saved.seconds, saved.blocked_s);
    orth_metrics_event(&s->run->metrics, text);
    return ORTH_OK;
}

orth_status rank_save(orth_ctx *ctx, rank_state *s)
{
    orth_progress_part(ctx);
    orth_phase_begin(ctx, "saving checkpoint step-%08" PRId64, s->steps_done);
    orth_status status = s->rank == 0 ? collect_and_write(ctx, s) : hand_in(ctx, s);
    if (status == ORTH_OK)
        status = rank_report_saved(ctx, s, false);
    if (status == ORTH_OK)
        status = rank_barrier(ctx, s);
    orth_phase_end(ctx);
    return status;
}
