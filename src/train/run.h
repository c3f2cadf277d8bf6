/* run.h -- a training run: what all its ranks share, opened by one of them before they start.
 *
 * Ranks are threads of this process (or there is one, without a world): they read the run's data, model
 * and layout, and meet in the fields of `exchange`, between barriers.
 */
#ifndef ORTH_TRAIN_RUN_H
#define ORTH_TRAIN_RUN_H

#include "ckpt/folder.h"
#include "data/data.h"
#include "train/describe.h"
#include "train/eval.h"
#include "train/metrics.h"
#include "train/timeline.h"

/* Asked between steps: the number of a signal that arrived (the run then saves and ends with
 * ORTH_ERR_SIGNAL), 0 if none. */
typedef int (*orth_stop_fn)(void *user);

/* A run that is watched: it ends after step `steps`, without evaluations or checkpoints, and rank 0 calls
 * `show` with whole tensors, one after the other in registry order: after each step the gradients (before
 * clipping; bind GRAD), after the last one also the weights (bind MASTER). An element that no rank handed in
 * has all bits set. An error ends the run. */
typedef struct {
    int64_t steps;
    orth_status (*show)(orth_ctx *ctx, void *user, const orth_model_config *model, const orth_step_result *result,
                        orth_bind bind, const float *values);
    void *user;
} orth_run_watch;

typedef struct {
    const orth_config *cfg;
    const orth_run_watch *watch;    /* NULL: an ordinary run */
    bool resume, quiet;
    const char *init_dir;           /* weights to start from; NULL: at random */
    int64_t timeline;               /* step of which timeline.json is written; 0: none */
    orth_stop_fn stop;              /* may be NULL */
    void *stop_user;
} orth_run_options;

typedef struct {
    orth_run_options options;
    const orth_config *cfg;
    const char *dir;                /* run folder */
    char *checkpoints;              /* dir/checkpoints */
    char *start_from;               /* folder of the weights; NULL: at random */
    bool resumed;                   /* start_from is a checkpoint of this run */
    orth_data *data;
    orth_sampler *train, *valid;    /* valid: NULL if nothing is held out */
    orth_model_config model;
    orth_run_plan plan;             /* layout, and what each rank needs */
    int num_ranks;
    int64_t last_step;
    orth_metrics metrics;           /* rank 0 writes */
    char *metrics_path;
    orth_bytes tokenizer_json;
    int32_t *token_bytes;           /* [vocab] */
    struct {
        orth_checkpoint_array *arrays; /* [num params] of whole parameters while a checkpoint is saved */
        float *whole;                  /* [elements of the model] of a watched run */
        size_t (*counted)[ORTH_NUM_CLASSES]; /* [num_ranks] at the end */
        int64_t **clocks;              /* of the step of the timeline, NULL: none is asked for */
        _Atomic int signal;            /* that rank 0 saw; written before stop_step */
        _Atomic int64_t stop_step;     /* the last step; 0: no signal */
    } exchange;
} orth_run;

/* Opens the data, applies the layout, plans every rank and refuses what does not fit before anything big
 * is allocated; writes run.yaml and plan.json. On failure there is nothing to close. ORTH_ERR_ARG,
 * ORTH_ERR_NOMEM (does not fit), ORTH_ERR_DATA, ORTH_ERR_IO, ORTH_ERR_NOSPACE. */
orth_status orth_run_open(orth_ctx *ctx, orth_run *r, const orth_run_options *options);
void orth_run_close(orth_ctx *ctx, orth_run *r);

/* Trains to train.steps, with evaluations and checkpoints. The checkpoints there are stay valid whatever
 * happens. */
orth_status orth_run_train(orth_ctx *ctx, orth_run *r);

#endif
