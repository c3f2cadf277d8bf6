/* bench.h -- the parts of `bench` with a file of their own. */
#ifndef ORTH_CLI_BENCH_H
#define ORTH_CLI_BENCH_H

#include "cli/cmd.h"
#include "cli/numbers.h"

#define ORTH_BENCH_MAX 1000 /* repetitions of anything */
#define ORTH_BENCH_PEAK_S 0.5 /* the most that a peak is measured for, beside what is held against it */
/* 0 < n <= ORTH_BENCH_MAX. */
double orth_bench_median(const double *v, int n);

/* Collectives between --ranks thread ranks, from 64 KB to --max-mb, medians over --rounds. */
orth_status orth_bench_collectives(orth_ctx *ctx, const orth_cmd *cmd);
/* A training step of the run file's layout. peak: FLOP/s of this machine in the compute type. */
orth_status orth_bench_step(orth_ctx *ctx, const orth_cmd *cmd, double peak);

#endif
