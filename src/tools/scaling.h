/* scaling.h -- a run with more and with fewer data-parallel ranks: strong scaling keeps the global batch, weak scaling the batch of a rank. */
#ifndef ORTH_TOOLS_SCALING_H
#define ORTH_TOOLS_SCALING_H

#include "tools/price.h"

#define ORTH_SCALING_POINTS 5   /* parallel.dp times 1/4, 1/2, 1, 2, 4 */

typedef struct {
    int64_t dp, global_batch;   /* dp 0: that part of the ranks, or of their batch, is no whole number; there is no such run, and no row */
    orth_price price;           /* refused: by a rule, or there is no such run */
} orth_scaling_point;

typedef struct {
    orth_scaling_point strong[ORTH_SCALING_POINTS], weak[ORTH_SCALING_POINTS];
    bool shared;                /* all ranks share one machine */
} orth_scaling;

/* Plans the run so many times. cluster: as orth_place_to_run_find; the run as it is must have as many ranks as there are devices. ORTH_ERR_ARG, also where the
 * run itself is refused; ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_scaling_find(orth_ctx *ctx, const orth_config *cfg, const char *cluster, orth_scaling *out);

/* Tokens a second of a rank (of all ranks, if they share one machine), over those of the first point that is not refused. */
double orth_scaling_efficiency(const orth_scaling_point points[ORTH_SCALING_POINTS], int k, bool shared);

/* For people, and as JSON. Heap memory; NULL with the error recorded. */
char *orth_scaling_text(orth_ctx *ctx, const orth_scaling *s);
char *orth_scaling_json(orth_ctx *ctx, const orth_scaling *s);

#endif
