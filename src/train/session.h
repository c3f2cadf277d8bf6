/* session.h -- everything a training run holds between its first and its last step. */
#ifndef ORTH_TRAIN_SESSION_H
#define ORTH_TRAIN_SESSION_H

#include "data/data.h"
#include "train/eval.h"
#include "train/metrics.h"
#include "train/trainer.h"

typedef struct {
    const orth_config *cfg;
    bool resume, quiet;
    const char *init_dir;           /* weights to start from; NULL: at random */
} orth_session_options;

typedef struct {
    orth_session_options options;
    const orth_config *cfg;
    const char *dir;                /* run folder */
    char *checkpoints;              /* dir/checkpoints */
    orth_data *data;
    orth_sampler *train, *valid;    /* valid: NULL if nothing is held out */
    orth_loader *loader;
    orth_model_config model;
    orth_trainer trainer;
    bool has_trainer;
    orth_evaluator evaluator;
    bool has_evaluator;
    orth_metrics metrics;
    char *metrics_path;
    orth_bytes tokenizer_json;
    int32_t *token_bytes;           /* [vocab] */
    int64_t steps_done, tokens_done, skipped;
} orth_session;

/* Opens the data, plans, refuses what does not fit before anything big is allocated, fills the weights
 * (random, --init or the newest checkpoint), writes run.yaml and plan.json. On failure there is nothing to
 * close. ORTH_ERR_ARG, ORTH_ERR_NOMEM (does not fit), ORTH_ERR_DATA, ORTH_ERR_IO, ORTH_ERR_NOSPACE. */
orth_status orth_session_open(orth_ctx *ctx, orth_session *s, const orth_session_options *options);
void orth_session_close(orth_ctx *ctx, orth_session *s);

/* Saves a checkpoint of the steps done so far. The older ones stay valid whatever happens. */
orth_status orth_session_save(orth_ctx *ctx, orth_session *s);

/* Loss on held-out sequences (at most train.eval_batches micro-batches; 0: all). */
orth_status orth_session_evaluate(orth_ctx *ctx, orth_session *s, int64_t max_batches, orth_eval_result *out);

#endif
