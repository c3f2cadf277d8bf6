/* timeline.h -- planned time of a run, and timelines (plan/timeline.h) of all its ranks, planned or measured. */
#ifndef ORTH_TRAIN_TIMELINE_H
#define ORTH_TRAIN_TIMELINE_H

#include "plan/timeline.h"
#include "train/describe.h"

/* Fills in the time of p's ranks and total (plan/simulate.h), for ranks that each have `rates`. timeline: where the
 * simulated step goes as a trace; NULL: nowhere. ORTH_ERR_NOMEM, and what writing a file returns. */
orth_status orth_run_plan_price(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                                const orth_rates *rates, const char *timeline);

/* A clock for each rank, [num_instrs + 1] of its program, in one block that is freed with orth_mem_free(ctx, *out).
 * The clocks lie one after the other from out[0] on. ORTH_ERR_NOMEM. */
orth_status orth_timeline_clocks(orth_ctx *ctx, const orth_run_plan *p, int64_t ***out);

/* Clocks of all ranks as the file `path` (NULL: none), and the bubble of rank 0's pipeline into *bubble. */
orth_status orth_timeline_write(orth_ctx *ctx, const orth_run_plan *p, const orth_config *cfg,
                                const orth_model_config *model, int64_t *const *clocks, const char *path,
                                orth_bubble *bubble);

#endif
