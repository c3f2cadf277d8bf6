/* plan.h -- what a run will need, read off its program: no second formula for anything.
 *
 * One rank on the CPU: memory per class and in all, FLOPs per step. The same figures are counted by the
 * run (memory.json), so that a plan can be held to its word.
 */
#ifndef ORTH_PLAN_PLAN_H
#define ORTH_PLAN_PLAN_H

#include "program/cost.h"

typedef struct {
    size_t class_bytes[ORTH_NUM_CLASSES];
    size_t total_bytes;        /* the arena of the step */
    size_t lower_bound_bytes;  /* what no placement could go below */
    size_t limit_bytes;        /* what it may take; 0: not known */
    orth_cost cost;            /* of a step */
    int64_t tokens;            /* of a step */
    int64_t num_elems;         /* parameters of the model */
    bool fits;
} orth_plan;

/* Of a placed program. */
orth_plan orth_plan_of(const orth_program *p, int64_t num_elems, size_t limit_bytes);

/* "--json" and plan.json: DESIGN section 6. Heap memory; NULL with the error recorded. */
char *orth_plan_json(orth_ctx *ctx, const orth_plan *plan);
/* {"params": ..., ..., "total": ...}: the memory object of plan.json and memory.json. */
char *orth_memory_json(orth_ctx *ctx, const size_t class_bytes[ORTH_NUM_CLASSES]);
/* For people, several lines. */
char *orth_plan_text(orth_ctx *ctx, const orth_plan *plan);

/* ORTH_ERR_NOMEM with the figures of the plan if it does not fit. */
orth_status orth_plan_require_fit(orth_ctx *ctx, const orth_plan *plan);

#endif
