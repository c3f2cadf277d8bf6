/* eval.h -- loss of a model on given sequences, without gradients. */
#ifndef ORTH_TRAIN_EVAL_H
#define ORTH_TRAIN_EVAL_H

#include "data/sampler.h"
#include "data/tokenizer.h"
#include "run/executor.h"
#include "train/setup.h"

typedef struct {
    orth_compiled compiled;
    orth_executor *executor;
    orth_model_config model;
    int32_t num_seqs, seq_len, parts;   /* seq_len: of the whole sequence */
    orth_sample_rows rows;              /* those on this rank */
    bool doc_mask;
    int32_t *tokens, *targets, *pos, *doc; /* [num_seqs*rows] a batch; one piece of memory with weights */
    float *weights, *nll;               /* [num_seqs*rows] */
    double *leaves;                     /* [num_seqs] losses of the sequences */
    /* NULL, or asked between two batches: *out true ends the evaluation there. Set by the owner. */
    orth_status (*stop)(orth_ctx *ctx, void *user, bool *out);
    void *stop_user;
} orth_evaluator;

typedef struct {
    double nll;             /* sum over targets, natural logarithm */
    double weight;          /* number of targets */
    double target_bytes;    /* bytes of text that the targets stand for; 0 without a byte table */
    bool stopped;           /* by the evaluator's `stop`: sums of a part */
} orth_eval_result;

/* With weights of its own, to be filled by the caller. ORTH_ERR_NOMEM, ORTH_ERR_ARG. */
orth_status orth_evaluator_create(orth_ctx *ctx, orth_evaluator *out, const orth_config *cfg,
                                  const orth_model_config *model);

/* What the run file says of one batch of an evaluation. */
orth_model_shape orth_eval_shape(const orth_config *cfg);
/* Takes a compiled step of such a shape beside that of a training step, which lends its weights and its memory (orth_rank_programs), whatever
 * happens. lender: executor of the step, outlives *out. The executor needs communicators where the step does. ORTH_ERR_NOMEM. */
orth_status orth_evaluator_create_beside(orth_ctx *ctx, orth_evaluator *out, const orth_config *cfg,
                                         const orth_model_config *model, const orth_executor *lender,
                                         const orth_compiled *compiled);
void orth_evaluator_destroy(orth_ctx *ctx, orth_evaluator *e);

/* Bytes of text that each token stands for, 0 for special ones: [max(vocab, tokens)] in heap memory. NULL: no memory. */
int32_t *orth_eval_token_bytes(orth_ctx *ctx, const orth_tokenizer *t, int64_t vocab);

/* Collective over the ranks of a place. Scores sequences [first, first+n) of `sampler`; the result is 0 on
 * ranks without the head. ORTH_ERR_COMM, and what the sampler returns. token_bytes [vocab]: bytes of each token, may be NULL.
 * `each`, if not NULL, is called for every target in order of position with its token, its weight and
 * log-probability. */
typedef void (*orth_eval_each)(void *user, int64_t sequence, int64_t pos, int32_t target, float weight, float logprob);
orth_status orth_evaluator_run(orth_ctx *ctx, orth_evaluator *e, const orth_sampler *sampler, int64_t first,
                               int64_t n, const int32_t *token_bytes, orth_eval_each each, void *user,
                               orth_eval_result *out);

#endif
