/* scaling.h -- a run with more and with fewer data-parallel ranks: strong scaling keeps the global batch, weak scaling the batch of a rank. */
#ifndef ORTH_TOOLS_SCALING_H
#define ORTH_TOOLS_SCALING_H

#include "tools/price.h"

#define ORTH_SCALING_POINTS 5   /* parallel.dp times 1/4, 1/2, 1, 2, 4; those that are no whole numbers are refused */

typedef struct {
    int64_t dp, global_batch;
    orth_price price;           /* refused: by a rule, or no such dp */
} orth_scaling_point;

typedef struct {
    orth_scaling_point strong[ORTH_SCALING_POINTS], weak[ORTH_SCALING_POINTS];
} orth_scaling;

/* Plans the run so many times. cluster: as orth_place_to_run_find, whose number of devices does not count here. ORTH_ERR_ARG,
 * ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_scaling_find(orth_ctx *ctx, const orth_config *cfg, const char *cluster, orth_scaling *out);

#endif
