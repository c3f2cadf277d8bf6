/* timeline.h -- planned time of a run, and timelines (plan/timeline.h) of all its ranks, planned or measured. */
#ifndef ORTH_TRAIN_TIMELINE_H
#define ORTH_TRAIN_TIMELINE_H

#include "plan/timeline.h"
#include "train/describe.h"

/* What each of num_ranks ranks on this machine has of its measured peaks: an equal part. peak_flops: as
 * orth_probe_matmul_peak; <= 0: it is measured, too. Takes about a tenth of a second. ORTH_ERR_NOMEM. */
orth_status orth_machine_rates(orth_ctx *ctx, const orth_config *cfg, int num_ranks, double peak_flops, orth_rates *out);

/* Fills in the time of p's ranks and total (plan/simulate.h), for ranks that each have `rates`. timeline: where the
 * simulated step goes as a trace; NULL: nowhere. ORTH_ERR_NOMEM, and what writing a file returns. */
orth_status orth_run_plan_price(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                                const orth_rates *rates, const char *timeline);

/* A clock for each rank, [num_instrs + 1] of its program, in one block that is freed with orth_mem_free(ctx, *out).
 * ORTH_ERR_NOMEM. */
orth_status orth_timeline_clocks(orth_ctx *ctx, const orth_run_plan *p, int64_t ***out);

/* Clocks of all ranks as the file `path` (NULL: none), and the bubble of rank 0's pipeline into *bubble. */
orth_status orth_timeline_write(orth_ctx *ctx, const orth_run_plan *p, const orth_config *cfg,
                                const orth_model_config *model, int64_t *const *clocks, const char *path,
                                orth_bubble *bubble);

#endif
