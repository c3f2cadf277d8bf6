/* trainer.h -- one optimizer step after the other on given sequences. Knows neither files nor people. */
#ifndef ORTH_TRAIN_TRAINER_H
#define ORTH_TRAIN_TRAINER_H

#include "data/loader.h"
#include "run/executor.h"
#include "run/space/space.h"
#include "train/loss_scale.h"
#include "train/setup.h"

typedef struct {
    int64_t step;                 /* from 1 */
    double loss;                  /* mean over the weight of all targets of the global batch */
    double grad_norm, lr;         /* asynchronous: no norm (NaN); the rate of the last update */
    double loss_scale;            /* of the step (loss_scale.h); 0: there is none */
    bool skipped;                 /* not finite: the update was left out */
} orth_step_result;

typedef struct {
    const orth_config *cfg;       /* outlives this */
    orth_model_config model;
    orth_compiled compiled;
    orth_executor *executor;
    orth_space_setup spaces;
    orth_step_values *step;       /* [num_updates of the program]: written before a step, read after it */
    int32_t *seq;                 /* [sequences of a step], scratch; NULL: the program does not read them */
    float mean;                   /* 1 / (weight of all targets of the global batch) */
    orth_loss_scale scale;        /* of the next step */
    int64_t left_out;             /* updates of all steps so far */
    /* On every rank, once a step is known to end the run, and before any of them does. NULL: nothing. */
    orth_status (*ends)(orth_ctx *ctx, void *user, const orth_step_result *r);
    void *ends_user;
} orth_trainer;

/* Takes a compiled step of ORTH_MODE_TRAIN (built by the caller, who has looked at its memory plan; owned by the
 * trainer from here on) and maps its arena. Weights are not filled. */
orth_status orth_trainer_create(orth_ctx *ctx, orth_trainer *t, const orth_config *cfg,
                                const orth_model_config *model, const orth_compiled *compiled);
void orth_trainer_destroy(orth_ctx *ctx, orth_trainer *t);

/* Copies the data of the next step in: what the loader made, and for each update of the step the sum of the target weights of
 * its sequences on all ranks: weights [num_updates of the program]. */
orth_status orth_trainer_load(orth_ctx *ctx, orth_trainer *t, const orth_loader_batch *batch, const int64_t *weights);

/* Runs optimizer step `step` (from 1) on the loaded data. Collective over the ranks of the layout: ORTH_ERR_COMM.
 * ORTH_ERR_NUMERIC under on_nonfinite=stop, unless a smaller loss scale may help, naming the first tensor that is not finite; weights and moments are then as before the step. Asynchronous updates cannot be
 * taken back: a loss that is not finite ends the run whatever on_nonfinite says. */
orth_status orth_trainer_step(orth_ctx *ctx, orth_trainer *t, int64_t step, orth_step_result *out);

#endif
