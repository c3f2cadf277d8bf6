/* measure.h -- timing a training step, or one op, on made-up data. For `orthant bench`. */
#ifndef ORTH_TRAIN_MEASURE_H
#define ORTH_TRAIN_MEASURE_H

#include "program/cost.h"
#include "train/trainer.h"

/* A trainer with random weights and one global batch of random tokens in place. */
typedef struct {
    orth_model_config model;
    orth_trainer trainer;
    orth_cost cost;
    int64_t tokens;
    int64_t step;
} orth_measure;

orth_status orth_measure_open(orth_ctx *ctx, orth_measure *m, const orth_config *cfg);
void orth_measure_close(orth_ctx *ctx, orth_measure *m);
/* One optimizer step; its seconds. */
orth_status orth_measure_step(orth_ctx *ctx, orth_measure *m, double *seconds);

/* Where the last step's time went: one entry per op and phase. */
typedef struct {
    orth_op op;
    orth_phase phase;
    int32_t calls;
    double seconds, flops, bytes;
} orth_measure_share;
#define ORTH_MEASURE_MAX_SHARES (ORTH_NUM_OPS * ORTH_NUM_PHASES)
/* Fills shares in descending order of time; returns how many. */
int orth_measure_shares(const orth_measure *m, orth_measure_share shares[ORTH_MEASURE_MAX_SHARES]);

#endif
