/* loop.c -- see loop.h. */
#include "train/loop.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>

#include "base/clock.h"
#include "base/files.h"

static orth_status request_step(orth_ctx *ctx, orth_session *s, int64_t *indices, int64_t step)
{
    int64_t n = s->cfg->train_global_batch;
    for (int64_t i = 0; i < n; i++)
        indices[i] = (step - 1) * n + i;
    return orth_loader_request(ctx, s->loader, indices, n);
}

static orth_status evaluate(orth_ctx *ctx, orth_session *s, int64_t max_batches)
{
    orth_eval_result r;
    ORTH_TRY(orth_session_evaluate(ctx, s, max_batches, &r));
    double loss = isnan(r.nll) ? (double)NAN : r.nll / r.weight;
    double bits = r.target_bytes > 0 ? r.nll / log(2.0) / r.target_bytes : 0;
    char text[256], json[256], loss_text[40], bits_text[40];
    orth_metrics_number(loss_text, sizeof loss_text, loss);
    orth_metrics_number(bits_text, sizeof bits_text, bits);
    snprintf(text, sizeof text, "eval %6" PRId64 "  loss %8.4f  perplexity %.3f  bits per byte %.4f  (%.0f targets)",
             s->steps_done, loss, exp(loss), bits, r.weight);
    snprintf(json, sizeof json, "{\"step\": %" PRId64 ", \"eval_loss\": %s, \"eval_loss_hex\": \"%a\", "
             "\"eval_bits_per_byte\": %s, \"eval_targets\": %.0f}", s->steps_done, loss_text, loss, bits_text,
             r.weight);
    return orth_metrics_event(ctx, &s->metrics, text, json);
}

static orth_status save(orth_ctx *ctx, orth_session *s)
{
    double begin = orth_clock_s();
    ORTH_TRY(orth_session_save(ctx, s));
    char text[512];
    snprintf(text, sizeof text, "saved %s/step-%08" PRId64 " in %.2f s", s->checkpoints, s->steps_done,
             orth_clock_s() - begin);
    return orth_metrics_event(ctx, &s->metrics, text, NULL);
}

static orth_status one_step(orth_ctx *ctx, orth_session *s, int64_t *indices, int64_t step)
{
    int64_t n = s->cfg->train_global_batch, first = (step - 1) * n, weight;
    double begin = orth_clock_s();
    orth_loader_batch batch;
    orth_step_result r;
    ORTH_TRY(orth_loader_get(ctx, s->loader, &batch));
    if (step < s->cfg->train_steps)
        ORTH_TRY(request_step(ctx, s, indices, step + 1));
    ORTH_TRY(orth_sampler_weight(ctx, s->train, &weight, first, n));
    orth_trainer_load(&s->trainer, &batch, (double)weight);
    ORTH_TRY(orth_trainer_step(ctx, &s->trainer, step, &r));
    s->steps_done = step;
    s->tokens_done += s->metrics.plan.tokens;
    s->skipped += r.skipped;
    return orth_metrics_step(ctx, &s->metrics, &r, orth_clock_s() - begin, first, first + n);
}

/* What the run has touched, beside plan.json. */
static orth_status write_counted(orth_ctx *ctx, const orth_session *s)
{
    size_t counted[ORTH_NUM_CLASSES];
    orth_executor_counted(s->trainer.executor, counted);
    char *memory = orth_memory_json(ctx, counted);
    char *text = memory ? orth_mem_printf(ctx, "{\"ranks\": [{\"rank\": 0, \"memory\": %s}]}\n", memory) : NULL;
    char *path = orth_path_join(ctx, s->dir, "memory.json");
    orth_status status = text && path ? orth_file_write(ctx, path, text, strlen(text)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, memory);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, path);
    return status;
}

static orth_status run_steps(orth_ctx *ctx, orth_session *s, int64_t *indices, orth_stop_fn stop, void *user,
                             int *stopped)
{
    const orth_config *c = s->cfg;
    if (s->steps_done < c->train_steps)
        ORTH_TRY(request_step(ctx, s, indices, s->steps_done + 1));
    for (int64_t step = s->steps_done + 1; step <= c->train_steps && !*stopped; step++) {
        ORTH_TRY(one_step(ctx, s, indices, step));
        bool last = step == c->train_steps;
        *stopped = stop ? stop(user) : 0;
        if (s->valid && !last && !*stopped && c->train_eval_every > 0 && step % c->train_eval_every == 0)
            ORTH_TRY(evaluate(ctx, s, c->train_eval_batches));
        if (last || *stopped || (c->checkpoint_every_steps > 0 && step % c->checkpoint_every_steps == 0))
            ORTH_TRY(save(ctx, s));
    }
    return ORTH_OK;
}

orth_status orth_loop_run(orth_ctx *ctx, orth_session *s, orth_stop_fn stop, void *user)
{
    int stopped = 0;
    int64_t *indices = ORTH_NEW_ARRAY(ctx, int64_t, s->cfg->train_global_batch);
    if (!indices)
        return ORTH_ERR_NOMEM;
    bool fresh = s->steps_done < s->cfg->train_steps;
    orth_status status = run_steps(ctx, s, indices, stop, user, &stopped);
    orth_mem_free(ctx, indices);
    ORTH_TRY(status);
    if (s->valid && !stopped)
        ORTH_TRY(evaluate(ctx, s, 0));
    if (fresh)
        ORTH_TRY(write_counted(ctx, s));
    if (stopped)
        return ORTH_FAIL(ctx, ORTH_ERR_SIGNAL, "stopped by %s after step %" PRId64 "; the checkpoint is saved, "
                         "--resume continues", stopped == SIGTERM ? "SIGTERM" : "SIGINT", s->steps_done);
    return ORTH_OK;
}
