/* price.c -- see price.h. */
#include "tools/price.h"

#include <math.h>

#include "base/machine.h"
#include "plan/mixed.h"

#define MAX_THREADS 16
#define BYTES_OF_A_PLAN ((int64_t)2 << 30)

orth_status orth_place_to_run_find(orth_ctx *ctx, orth_place_to_run *out, const char *cluster)
{
    *out = (orth_place_to_run){.described = cluster != NULL};
    if (!cluster)
        return ORTH_OK;
    ORTH_TRY(orth_hardware_find(ctx, &out->hardware, cluster));
    orth_mixed_warn(ctx, &out->hardware);
    out->host = out->hardware.has_host;
    out->described = !out->host;
    if (out->host)
        return ORTH_OK;
    ctx->isa = ORTH_ISA_BASE; /* workspaces depend on threads and instruction set */
    const orth_status s = orth_ctx_use_threads(ctx, 1);
    if (s != ORTH_OK)
        orth_place_to_run_release(ctx, out);
    return s;
}

void orth_place_to_run_release(orth_ctx *ctx, orth_place_to_run *where)
{
    orth_hardware_release(ctx, &where->hardware);
}

static orth_status time_here(orth_ctx *ctx, orth_place_to_run *where, const orth_config *cfg, orth_run_plan *p)
{
    orth_rates *whole = &where->rates[cfg->precision_compute == ORTH_precision_compute_bf16];
    if (where->host)
        return orth_host_price(ctx, p, &where->hardware, orth_setup_compute(cfg), NULL);
    if (whole->flops == 0)
        ORTH_TRY(orth_machine_rates(ctx, cfg, 1, whole));
    if (orth_config_offloads_to_file(cfg) && where->file.read <= 0)
        ORTH_TRY(orth_machine_file_rates(ctx, cfg, &where->file));
    const orth_rates each = {whole->flops / p->num_ranks, whole->bytes / p->num_ranks, orth_file_rates_times(&where->file, 1.0 / p->num_ranks)};
    return orth_run_plan_price(ctx, p, &each, NULL);
}

static orth_status price_here(orth_ctx *ctx, orth_place_to_run *where, const orth_config *cfg, orth_run_plan *p, orth_price *out)
{
    ORTH_TRY(time_here(ctx, where, cfg, p));
    const orth_plan *t = &p->total;
    const double s = t->time.step_s;
    *out = (orth_price){.num_ranks = p->num_ranks, .bytes = t->total_bytes, .limit_bytes = t->limit_bytes, .fits = t->fits, .step_s = s,
                        .tokens_per_s = (double)t->tokens / s, .mfu = t->cost.model_flops / s / t->peak_flops,
                        .hfu = t->cost.hardware_flops / s / t->peak_flops, .peak = {.is_compute = true},
                        .compute_s = t->time.compute_s, .wait_s = t->time.wait_s, .move_s = t->time.move_s, .usd = NAN};
    for (int r = 0; r < p->num_ranks; r++)
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            out->exposed_s[g] += p->ranks[r].time.comm_by_group[g] / p->num_ranks;
    return ORTH_OK;
}

static orth_status price_there(orth_ctx *ctx, const orth_place_to_run *where, const orth_config *cfg, orth_run_plan *p, orth_price *out)
{
    orth_cluster_plan c;
    orth_hardware h = where->hardware;
    int64_t steps;
    ORTH_TRY(orth_describe_steps(ctx, cfg, &steps, &p->total.no_steps));
    ORTH_TRY(orth_hardware_use(ctx, &h, p->num_ranks));
    ORTH_TRY(orth_cluster_price(ctx, p, &h, orth_setup_compute(cfg), steps, NULL, &c));
    *out = (orth_price){.num_ranks = p->num_ranks, .worst_rank = c.worst_rank, .bytes = p->total.worst_bytes,
                        .limit_bytes = p->total.limit_bytes, .fits = p->total.fits, .step_s = c.step_s, .tokens_per_s = c.tokens_per_s,
                        .mfu = c.mfu, .hfu = c.hfu, .peak = c.peak, .compute_s = c.compute_s, .update_s = c.update_s,
                        .data_s = p->total.data_s, .wait_s = c.wait_s, .move_s = c.move_s,
                        .days = c.days, .usd = steps > 0 && h.has_on_demand ? c.on_demand_usd : NAN};
    memcpy(out->exposed_s, c.exposed_s, sizeof out->exposed_s);
    return ORTH_OK;
}

/* What needs no program is asked first. */
static orth_status check_place(orth_ctx *ctx, const orth_place_to_run *where, const orth_config *cfg)
{
    const orth_layout layout = orth_setup_layout(cfg);
    orth_hardware h = where->hardware;
    ORTH_TRY(orth_config_check(ctx, cfg));
    return where->described ? orth_hardware_use(ctx, &h, orth_layout_ranks(&layout)) : ORTH_OK;
}

static const orth_plan *worst_of(const orth_run_plan *p)
{
    const orth_plan *worst = &p->ranks[0];
    for (int r = 1; r < p->num_ranks; r++)
        if (p->ranks[r].device_bytes > worst->device_bytes)
            worst = &p->ranks[r];
    return worst;
}

static orth_status price(orth_ctx *ctx, orth_place_to_run *where, const orth_config *cfg, orth_price *out)
{
    orth_model_config model;
    orth_run_plan plan;
    bool evaluates;
    ORTH_TRY(check_place(ctx, where, cfg));
    orth_config there = where->described ? orth_describe_on_devices(cfg, &where->hardware) : *cfg;
    if (!where->described && !where->host)
        ORTH_TRY(orth_describe_host(ctx, cfg, &where->hardware, &where->host));
    if (where->host)
        ORTH_TRY(orth_describe_on_host(ctx, cfg, &where->hardware, &there));
    cfg = &there;
    ORTH_TRY(orth_describe_model(ctx, cfg, &model));
    ORTH_TRY(orth_describe_evaluates(ctx, cfg, &evaluates));
    ORTH_TRY((where->least ? orth_describe_least_plan : orth_describe_plan)(ctx, &plan, cfg, &model, evaluates));
    const orth_status s = where->described ? price_there(ctx, where, cfg, &plan, out) : price_here(ctx, where, cfg, &plan, out);
    if (s == ORTH_OK) {
        out->worst_bytes = worst_of(&plan)->device_bytes;
        out->num_instrs = worst_of(&plan)->num_instrs;
        orth_plan_budgets(&plan.total, out->budgets);
    }
    orth_run_plan_release(ctx, &plan);
    return s;
}

orth_status orth_price_run(orth_ctx *ctx, orth_place_to_run *where, const orth_config *cfg, orth_price *out)
{
    void (*const tell)(void *, const char *, int64_t, int64_t) = ctx->tell;
    ctx->tell = NULL; /* one of many: who prices them says how far that is */
    const orth_status s = price(ctx, where, cfg, out);
    ctx->tell = tell;
    const bool none_fits = s == ORTH_ERR_NOMEM && cfg->memory_recompute == ORTH_memory_recompute_auto;
    if (s != ORTH_ERR_ARG && !none_fits)
        return s;
    *out = (orth_price){.refused = true};
    snprintf(out->why, sizeof out->why, "%s", ctx->error.message);
    orth_ctx_clear_error(ctx);
    return ORTH_OK;
}

int orth_price_threads(const orth_place_to_run *where)
{
    const int64_t room = orth_machine_available_bytes() / BYTES_OF_A_PLAN, cores = ORTH_MIN(orth_machine_cores(), MAX_THREADS);
    return where->described ? (int)ORTH_MAX(1, ORTH_MIN(room, cores)) : 1;
}

void orth_price_split(const orth_price *p, char out[ORTH_PRICE_SPLIT_MAX])
{
    const double s = p->step_s;
    size_t at = (size_t)snprintf(out, ORTH_PRICE_SPLIT_MAX, "computing %.1f %%", 100 * p->compute_s / s);
    if (p->update_s > 0)
        at += (size_t)snprintf(out + at, ORTH_PRICE_SPLIT_MAX - at, ", update %.1f %%", 100 * p->update_s / s);
    if (p->data_s > 0)
        at += (size_t)snprintf(out + at, ORTH_PRICE_SPLIT_MAX - at, ", data %.1f %%", 100 * p->data_s / s);
    at += (size_t)snprintf(out + at, ORTH_PRICE_SPLIT_MAX - at, ", waiting %.1f %%", 100 * p->wait_s / s);
    if (p->move_s > 0)
        at += (size_t)snprintf(out + at, ORTH_PRICE_SPLIT_MAX - at, ", exposed copies %.1f %%", 100 * p->move_s / s);
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        if (p->exposed_s[g] >= 0.0005 * s)
            at += (size_t)snprintf(out + at, ORTH_PRICE_SPLIT_MAX - at, ", %s %.1f %%", orth_group_name((orth_group)g),
                                   100 * p->exposed_s[g] / s);
}
