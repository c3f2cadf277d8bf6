/* banner.c -- what a run says of itself before its first step. */
#include <inttypes.h>

#include "base/pool.h"
#include "train/rank.h"

static const char *scaled(double n, char out[32])
{
    static const char *const units[] = {"", " thousand", " million", " billion", " trillion"};
    int u = 0;
    for (; n >= 1000 && u < ORTH_COUNT(units) - 1; u++)
        n /= 1000;
    snprintf(out, 32, u ? "%.3g%s" : "%.0f%s", n, units[u]);
    return out;
}

static void say_model(orth_run *r)
{
    const orth_model_config *m = &r->model;
    char text[256], params[32], trained[64] = "";
    const orth_plan *total = &r->plan.total;
    if (total->num_trained < total->num_elems)
        snprintf(trained, sizeof trained, ", %s of them trained", scaled((double)total->num_trained, params));
    snprintf(text, sizeof text, "model   %s, %s parameters%s: %" PRId64 " layers of %" PRId64 ", %" PRId64 " heads, vocabulary %" PRId64,
             orth_family_name(m->family),
             scaled((double)total->num_elems, params), trained, m->layers, m->hidden, m->heads, m->vocab);
    orth_metrics_event(&r->metrics, text);
}

static void say_data(orth_run *r, int64_t steps_done)
{
    char text[256], all[32], step[32];
    const double tokens = (double)orth_sampler_num_windows(r->train) * (double)r->cfg->data_seq_len;
    const double per_step = (double)r->cfg->train_global_batch * (double)r->cfg->data_seq_len;
    int n = snprintf(text, sizeof text, "data    %s tokens to train on; %s a step (%" PRId64 " sequences of %" PRId64 "): ", scaled(tokens, all),
                     scaled(per_step, step), r->cfg->train_global_batch, r->cfg->data_seq_len);
    if (r->last_step <= steps_done)
        snprintf(text + n, sizeof text - (size_t)n, "nothing is left to train, %" PRId64 " steps are done of train.steps=%" PRId64, steps_done, r->last_step);
    else
        snprintf(text + n, sizeof text - (size_t)n, "steps %" PRId64 " to %" PRId64 " are %.3g epochs", steps_done + 1, r->last_step,
                 (double)(r->last_step - steps_done) * per_step / tokens);
    orth_metrics_event(&r->metrics, text);
}

static orth_status say_ranks(orth_ctx *ctx, orth_run *r)
{
    static const struct { const char *name; orth_option_id id; } axes[] = {
        {"dp", ORTH_OPT_parallel_dp}, {"tp", ORTH_OPT_parallel_tp}, {"pp", ORTH_OPT_parallel_pp}, {"cp", ORTH_OPT_parallel_cp}};
    char text[256], layout[96] = "";
    size_t at = 0;
    for (int i = 0; i < ORTH_COUNT(axes); i++) {
        char *degree = orth_option_text(ctx, r->cfg, axes[i].id);
        if (!degree)
            return ORTH_ERR_NOMEM;
        at += (size_t)snprintf(layout + at, sizeof layout - at, "%s%s %s", i ? ", " : "", axes[i].name, degree);
        orth_mem_free(ctx, degree);
    }
    snprintf(text, sizeof text, "ranks   %d (%s; zero %s), %d threads a rank; %s, numerics %s", r->num_ranks, layout,
             orth_option_choice(ORTH_OPT_parallel_zero, (int)r->cfg->parallel_zero), orth_pool_num_threads(ctx->pool),
             orth_option_choice(ORTH_OPT_precision_compute, (int)r->cfg->precision_compute),
             orth_option_choice(ORTH_OPT_numerics_mode, (int)r->cfg->numerics_mode));
    orth_metrics_event(&r->metrics, text);
    return ORTH_OK;
}

static void say_plan(orth_run *r)
{
    char text[256], time[64] = "";
    if (r->plan.total.time.step_s > 0)
        snprintf(time, sizeof time, ", %.3g s a step or more", r->plan.total.time.step_s);
    snprintf(text, sizeof text, "plan    %.3f GiB in all%s", (double)r->plan.total.total_bytes / (double)(1 << 30), time);
    orth_metrics_event(&r->metrics, text);
}

static void say_folder(orth_run *r, int64_t steps_done)
{
    char text[512], from[320] = "";
    if (r->resumed)
        snprintf(from, sizeof from, ", continues after step %" PRId64 " from %.200s", steps_done, r->start_from);
    else if (r->start_from)
        snprintf(from, sizeof from, ", starts with the weights of %.200s", r->start_from);
    snprintf(text, sizeof text, "folder  %.150s%s", r->dir, from);
    orth_metrics_event(&r->metrics, text);
}

orth_status rank_banner(orth_ctx *ctx, orth_run *r, int64_t steps_done)
{
    say_model(r);
    say_data(r, steps_done);
    ORTH_TRY(say_ranks(ctx, r));
    say_plan(r);
    say_folder(r, steps_done);
    return ORTH_OK;
}
