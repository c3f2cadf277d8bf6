/* process.c -- see process.h. */
#include "train/process.h"

#include <string.h>
#include <xxhash.h>

#include "base/pool.h"
#include "base/progress.h"
#include "plan/probe.h"
#include "train/placement.h"

orth_status process_peak(orth_ctx *ctx, orth_run *r, orth_comm *all)
{
    if (r->options.watch)
        return ORTH_OK;
    double *peak = &r->metrics.peak_flops;
    ORTH_TRY(orth_probe_matmul_peak(ctx, peak, r->cfg->precision_compute == ORTH_precision_compute_bf16, r->cfg->run_probe_s));
    return all ? orth_all_reduce(ctx, all, peak, peak, 1, ORTH_F64, ORTH_SUM) : ORTH_OK;
}

/* run.threads=0 means all cores that the launcher left this process: the ranks of a host share them. */
static orth_status share_cores(orth_ctx *ctx, const orth_world *world, const orth_config *cfg)
{
    int ranks = 0;
    for (int k = 0; k < orth_world_size(world); k++)
        ranks += orth_world_shares_host(world, k);
    if (cfg->run_threads > 0)
        return ORTH_OK;
    return orth_ctx_use_threads(ctx, ORTH_MAX(1, orth_pool_num_threads(ctx->pool) / ranks));
}

/* Hosts may differ in their instructions, and results in bf16 with them: all take what every host can. */
static orth_status agree_on_isa(orth_ctx *ctx, orth_comm *all)
{
    double isa = (double)ctx->isa;
    ORTH_TRY(orth_all_reduce(ctx, all, &isa, &isa, 1, ORTH_F64, ORTH_MIN_OF));
    if ((orth_isa)isa < ctx->isa)
        orth_log(ctx, ORTH_LOG_INFO, "run", "run.isa is %s here as on the host with the least", orth_isa_name((orth_isa)isa));
    ctx->isa = (orth_isa)isa;
    return ORTH_OK;
}

/* ---- do all mean the same run? ---- */

/* Options but those that say how one machine is used. */
static orth_status hash_options(orth_ctx *ctx, const orth_config *cfg, uint64_t *h)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const char *path = orth_option_get((orth_option_id)i)->path;
        if (strncmp(path, "run.", 4) == 0 || strncmp(path, "memory.limit", 12) == 0)
            continue;
        char *text = orth_option_text(ctx, cfg, (orth_option_id)i);
        if (!text)
            return ORTH_ERR_NOMEM;
        *h = XXH64(text, strlen(text) + 1, *h);
        orth_mem_free(ctx, text);
    }
    return ORTH_OK;
}

static orth_status require_same_run(orth_ctx *ctx, const orth_run *r, orth_comm *all)
{
    enum { OPTIONS, START, DATA, NUM };
    static const char *const what[NUM] = {"other options (the run file or key=value words)",
                                          "another checkpoint to start from", "other data"};
    const int n = orth_comm_size(all);
    uint64_t mine[NUM] = {0}, (*seen)[NUM] = orth_mem_alloc(ctx, (size_t)n * sizeof *seen);
    const char *start = r->start_from ? r->start_from : "";
    const uint64_t data[] = {orth_tokenizer_fingerprint(r->data->tokenizer), r->data->fingerprint};
    orth_status s = seen ? hash_options(ctx, r->cfg, &mine[OPTIONS]) : ORTH_ERR_NOMEM;
    mine[START] = XXH64(start, strlen(start), 0);
    mine[DATA] = XXH64(data, sizeof data, 0);
    if (s == ORTH_OK)
        s = orth_all_gather(ctx, all, seen, mine, sizeof mine, NULL, ORTH_U8);
    for (int i = 0; i < NUM && s == ORTH_OK; i++)
        if (seen[0][i] != mine[i])
            s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "this process has %s than rank 0: all processes need the same command "
                          "line and see the same files", what[i]);
    orth_mem_free(ctx, seen);
    return s;
}

/* ---- opening ---- */

/* The others open the run once rank 0 has. */
static orth_status meet(orth_ctx *ctx, orth_run *r, orth_world *world, orth_comm *all)
{
    if (orth_world_rank(world) == 0)
        ORTH_TRY(orth_barrier(ctx, all));
    ORTH_TRY(require_same_run(ctx, r, all));
    ORTH_TRY(orth_placement_check_ranks(ctx, r->cfg, &r->plan.partition.mesh, all));
    return process_peak(ctx, r, all);
}

orth_status process_main(orth_ctx *ctx, orth_world *world, void *options)
{
    const orth_run_options *o = options;
    const int n = orth_world_size(world);
    orth_comm *all;
    orth_run run;
    int *ranks = ORTH_NEW_ARRAY(ctx, int, n);
    for (int i = 0; ranks && i < n; i++)
        ranks[i] = i;
    orth_phase_begin(ctx, "opening the run");
    orth_status s = ranks ? orth_comm_create(ctx, world, &all, "processes", n, ranks) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, ranks);
    ORTH_TRY(s);
    ORTH_TRY(share_cores(ctx, world, o->cfg));
    ORTH_TRY(agree_on_isa(ctx, all));
    if (orth_world_rank(world) > 0) {
        ctx->log.level = ORTH_LOG_ERROR; /* rank 0 has reported all there is about files */
        ORTH_TRY(orth_barrier(ctx, all));
    }
    ORTH_TRY(orth_run_open(ctx, &run, o, world));
    s = meet(ctx, &run, world, all);
    orth_phase_end(ctx);
    if (s == ORTH_OK)
        s = orth_run_train(ctx, &run);
    orth_run_close(ctx, &run);
    return s;
}
