/* measure.h -- timing training steps of any layout on made-up data. For `orthant bench` and calibrate.h. */
#ifndef ORTH_TOOLS_MEASURE_H
#define ORTH_TOOLS_MEASURE_H

#include "plan/plan.h"
#include "plan/timeline.h"
#include "train/trainer.h"

/* A run without data: random weights, and one global batch of random tokens in place on every rank. */
typedef struct orth_measure orth_measure;

/* Lets `fn` run on rank 0 while all others wait for its steps. ORTH_ERR_ARG for an invalid layout,
 * ORTH_ERR_NOMEM if it does not fit, else what fn or a rank failed with. */
typedef orth_status (*orth_measure_fn)(orth_ctx *ctx, orth_measure *m, void *user);
orth_status orth_measure_run(orth_ctx *ctx, const orth_config *cfg, orth_measure_fn fn, void *user);

/* One optimizer step of all ranks; seconds until the last has done it. */
orth_status orth_measure_step(orth_ctx *ctx, orth_measure *m, double *seconds);

/* All ranks together. */
const orth_plan *orth_measure_plan(const orth_measure *m);

/* What the last step says of the pipeline of rank 0. ORTH_ERR_NOMEM. */
orth_status orth_measure_bubble(orth_ctx *ctx, orth_measure *m, orth_bubble *out);
const orth_schedule *orth_measure_schedule(const orth_measure *m);

/* Where the last step's time went on rank 0: one entry per op and phase. */
typedef struct {
    orth_op op;
    orth_phase phase;
    int32_t calls;
    double seconds, flops, bytes;
} orth_measure_share;
#define ORTH_MEASURE_MAX_SHARES (ORTH_NUM_OPS * ORTH_NUM_PHASES)
/* Fills shares in descending order of time; returns how many. */
int orth_measure_shares(const orth_measure *m, orth_measure_share shares[ORTH_MEASURE_MAX_SHARES]);

/* The program of rank 0, and for how long each of its instructions held the last step, in ns. */
const orth_program *orth_measure_program(const orth_measure *m);
const int64_t *orth_measure_held(const orth_measure *m);

#endif
