/* run_plan.h -- what every rank of a run needs and how long its step takes, from the programs of the run, which it holds; and
 * timelines (plan/timeline.h) of all ranks, planned or measured. */
#ifndef ORTH_PLAN_RUN_PLAN_H
#define ORTH_PLAN_RUN_PLAN_H

#include "plan/plan.h"
#include "plan/programs.h"
#include "plan/timeline.h"

/* More of a planned step, for those who show it. */
typedef struct {
    const orth_span **spans;   /* [stages][actions of the schedule] of rank 0's pipeline, in seconds from the beginning of the step; in the arena of
                                * the plan's partition */
    struct {
        int32_t calls;
        double seconds, flops, bytes; /* flops: with what is computed again */
    } op[ORTH_NUM_OPS];        /* of rank 0's step */
} orth_step_detail;

/* The programs point to `partition`: a plan stays where it was made. */
typedef struct {
    orth_partition partition;
    orth_programs programs;
    int num_ranks;
    orth_plan *ranks;      /* [num_ranks] */
    orth_plan total;
    orth_step_detail *detail; /* of the caller, filled when times are; NULL: not wanted */
    char *peaks;           /* of orth_run_plan_find_peaks, which total.peaks shows; NULL: not looked for */
} orth_run_plan;

/* The layout applied to the model, and every rank's memory, FLOPs and traffic; no total yet. `spec` without its partition; method: of its
 * collectives.
 * ORTH_ERR_ARG for an invalid layout, in words; ORTH_ERR_NOMEM. On failure there is nothing to release. */
orth_status orth_run_plan_make(orth_ctx *ctx, orth_run_plan *p, const orth_layout *layout, const orth_programs_spec *spec,
                               orth_comm_method method);
void orth_run_plan_release(orth_ctx *ctx, orth_run_plan *p);

/* What is live at the peak of rank 0, and of the rank that needs the most if that is another: into the total, for plan.json; and as
 * text for people. ORTH_ERR_NOMEM. */
orth_status orth_run_plan_find_peaks(orth_ctx *ctx, orth_run_plan *p);
orth_status orth_run_plan_peaks_text(orth_ctx *ctx, orth_run_plan *p, char **out);

/* Of several ranks that share this machine: the rank that needs the most, and how to plan for others. Heap memory; NULL with the error recorded. */
char *orth_run_plan_largest_text(orth_ctx *ctx, const orth_run_plan *p);

/* The programs of all ranks together obey the rules of program/check/check_ranks.h: ORTH_ERR_INTERNAL with the first that is
 * broken, ORTH_ERR_NOMEM. */
orth_status orth_run_plan_check(orth_ctx *ctx, orth_run_plan *p);

/* Fills in the time of p's ranks (plan/simulate.h), for instructions that take what `timing` says. timeline: where the simulated step
 * goes as a trace; NULL: nowhere. ORTH_ERR_NOMEM, and what writing a file returns. */
orth_status orth_run_plan_time(orth_ctx *ctx, orth_run_plan *p, const orth_timing *timing, const char *timeline);
/* The same, and the total's, for ranks that each have `rates`. */
orth_status orth_run_plan_price(orth_ctx *ctx, orth_run_plan *p, const orth_rates *rates, const char *timeline);

/* The rank that takes the largest share of its limit (its plan's limit_bytes; of ranks without limits: the most bytes) in the memory of its
 * device; the lowest such. */
int orth_run_plan_worst(const orth_run_plan *p);
/* The rank of a pipeline stage that has the most in a space; the lowest such. */
int orth_run_plan_worst_of_stage(const orth_run_plan *p, int stage, orth_space s);
/* Which ranks a planned timeline shows, in words: all; or of more than 64 those of rank 0's pipeline and the worst; or, of ranks with more than about a million
 * events together, as many as are less: the worst, those of rank 0's pipeline, then others. */
#define ORTH_DRAWN_MAX 256
void orth_run_plan_describe_drawn(const orth_run_plan *p, char out[ORTH_DRAWN_MAX]);

/* A clock (program.h) for each rank, in one block that is freed with orth_mem_free(ctx, *out).
 * The clocks lie one after the other from out[0] on. ORTH_ERR_NOMEM. */
orth_status orth_run_plan_clocks(orth_ctx *ctx, const orth_run_plan *p, int64_t ***out);

/* Clocks of ranks (NULL: not of that rank, which is not drawn; rank 0's pipeline has them) as the file `path` (NULL: none), and the bubble of rank 0's pipeline into *bubble. */
orth_status orth_run_plan_timeline(orth_ctx *ctx, orth_run_plan *p, int64_t *const *clocks, const char *path,
                                   orth_bubble *bubble);

#endif
