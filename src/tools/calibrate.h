/* calibrate.h -- measures this machine, for `orthant doctor --calibrate`: a description of hardware (plan/hardware.h) whose ops and collectives
 * have measured times.
 *
 *   small models, trained for a few steps --least time of each instruction--> observations --orth_fit_terms--> coefficients of each op
 *   collectives and messages between thread ranks ------------------------------------------------------------^
 *
 * What is measured are the instructions of real steps, with everything that a step does around them. Of each instruction the least of
 * several steps counts, and observations far above the fit are left out, so that a machine that is busy for a moment gives nearly
 * the same. Ops that no model here has (other optimizers) have no times: a plan takes their bytes at the machine's bandwidth.
 */
#ifndef ORTH_TOOLS_CALIBRATE_H
#define ORTH_TOOLS_CALIBRATE_H

#include "plan/hardware.h"

typedef struct {
    int max_steps;          /* of each model, at most; 0: 12 */
    double model_seconds;   /* after which no further step of a model begins, but for the first three; 0: 0.4 */
    bool brief;             /* only the smallest models: for tests */
} orth_calibrate_options;

/* Measures for half a minute, on all threads of ctx and at ctx->isa. h: a description as orth_hardware_parse makes it, with a host. ORTH_ERR_NOMEM,
 * and what a run returns. */
orth_status orth_calibrate(orth_ctx *ctx, const orth_calibrate_options *options, orth_hardware *h);

/* The description as a file that orth_hardware_parse reads. Heap memory; NULL with the error recorded. */
char *orth_calibrate_yaml(orth_ctx *ctx, const orth_hardware *h);

#endif
