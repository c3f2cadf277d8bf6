/* calibrate.h -- measures this machine, for `orthant doctor --calibrate`: a description of hardware (plan/hardware.h) whose ops and collectives
 * have measured times.
 *
 *   small models, trained for a few steps --least time of each instruction--> observations --orth_fit_terms--> coefficients of each op
 *   collectives and messages between thread ranks ------------------------------------------------------------^
 *   a file of 2 GiB in memory.offload_dir, for a few seconds --> node.file_GBps, node.file_write_GBps
 *
 * What is measured are the instructions of real steps, with everything that a step does around them. Of each instruction the least of
 * several steps counts, and observations far above the fit are left out, so that a machine that is busy for a moment gives nearly
 * the same. Ops that no model here has (other optimizers) have no times: a plan takes their bytes at the machine's bandwidth.
 */
#ifndef ORTH_TOOLS_CALIBRATE_H
#define ORTH_TOOLS_CALIBRATE_H

#include "plan/hardware.h"
#include "plan/probe.h"

typedef struct {
    int max_steps;          /* of each model, at most; 0: 12 */
    double model_seconds;   /* after which no further step of a model begins, but for the first three; 0: 0.4 */
    bool brief;             /* only the smallest models, and a small file: for tests */
    const char *file_dir;   /* folder whose disk is measured (memory.offload_dir); NULL: none */
    orth_file_io file_io;
} orth_calibrate_options;

/* Measures for less than a minute, on all threads of ctx and at ctx->isa. h: a description as orth_hardware_parse makes it, with a host. ORTH_ERR_NOMEM,
 * and what a run returns. */
orth_status orth_calibrate(orth_ctx *ctx, const orth_calibrate_options *options, orth_hardware *h);

/* The description as a file that orth_hardware_parse reads. Heap memory; NULL with the error recorded. */
char *orth_calibrate_yaml(orth_ctx *ctx, const orth_hardware *h);

#endif
