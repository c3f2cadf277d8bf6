/* pareto.h -- memory against computing: what memory.recompute=auto chooses for limits between what a run needs with nothing made
 * again and the least that is possible (`orthant plan --pareto`).
 */
#ifndef ORTH_PLAN_PARETO_H
#define ORTH_PLAN_PARETO_H

#include "plan/run_plan.h"

typedef struct {
    size_t worst_bytes, total_bytes; /* of the rank that needs the most; of all ranks */
    double flops, added_flops;       /* computed by all ranks in a step; of which beside a run that makes nothing again */
    double step_s;                   /* as priced */
    const char *recomputed;          /* orth_again_text */
} orth_pareto_row;

#define ORTH_PARETO_ROWS 17

typedef struct {
    orth_pareto_row rows[ORTH_PARETO_ROWS]; /* [num] from the most memory to the least */
    int num;
    orth_arena arena;
} orth_pareto;

/* Fills in the time of a plan: orth_run_plan_price, orth_cluster_price. */
typedef orth_status (*orth_pareto_price_fn)(orth_ctx *ctx, void *user, orth_run_plan *p);

/* Limits are at equal distances; rows that would be equal are one, and a row is left out where another one needs less memory and no more time.
 * spec: without its spread. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_pareto_make(orth_ctx *ctx, orth_pareto *out, const orth_layout *layout, const orth_programs_spec *spec,
                             orth_pareto_price_fn price, void *user);
void orth_pareto_release(orth_ctx *ctx, orth_pareto *p);

/* A table; {"pareto": [{...}, ...]} (docs/memory.md). Heap memory; NULL with the error recorded. */
char *orth_pareto_text(orth_ctx *ctx, const orth_pareto *p);
char *orth_pareto_json(orth_ctx *ctx, const orth_pareto *p);

#endif
