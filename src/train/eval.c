/* eval.c -- see eval.h. */
#include "train/eval.h"

orth_status orth_evaluator_create(orth_ctx *ctx, orth_evaluator *out, const orth_config *cfg,
                                  const orth_model_config *model, const orth_executor *lender)
{
    orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_EVAL);
    shape.num_micro_batches = 1;
    shape.external_params = lender != NULL;
    *out = (orth_evaluator){.num_seqs = shape.num_seqs, .seq_len = shape.seq_len, .parts = shape.parts,
                            .doc_mask = shape.doc_mask, .model = *model};
    ORTH_TRY(orth_unit_build(ctx, model, &shape, &out->unit));
    orth_status s = orth_executor_create(ctx, &out->executor, &out->unit.program, orth_setup_kernels(cfg), lender, true);
    if (s != ORTH_OK) {
        orth_evaluator_destroy(ctx, out);
        return s;
    }
    return ORTH_OK;
}

void orth_evaluator_destroy(orth_ctx *ctx, orth_evaluator *e)
{
    orth_executor_destroy(ctx, e->executor);
    orth_unit_release(&e->unit);
    e->executor = NULL;
}

static void *slot(const orth_evaluator *e, orth_data_slot s)
{
    return orth_executor_find(e->executor, ORTH_BIND_DATA, s);
}

/* Rows of the batch from sequence `first` on; what lies past `end` gets weight 0. */
static orth_status fill(orth_ctx *ctx, orth_evaluator *e, const orth_sampler *sampler, int64_t first, int64_t end)
{
    const orth_sample_rows rows = {.parts = e->parts, .row_begin = 0, .row_end = e->seq_len};
    float *weights = slot(e, ORTH_DATA_WEIGHTS);
    int32_t *doc = slot(e, ORTH_DATA_DOC_STARTS), *pos = slot(e, ORTH_DATA_POSITIONS);
    for (int32_t b = 0; b < e->num_seqs; b++) {
        int64_t at = (int64_t)b * e->seq_len;
        orth_sample sample = {.tokens = (int32_t *)slot(e, ORTH_DATA_TOKENS) + at,
                              .targets = (int32_t *)slot(e, ORTH_DATA_TARGETS) + at, .weights = weights + at,
                              .pos = pos ? pos + at : NULL, .doc = doc ? doc + at : NULL};
        ORTH_TRY(orth_sampler_fill(ctx, sampler, &sample, ORTH_MIN(first + b, end - 1), &rows));
        if (first + b >= end)
            memset(weights + at, 0, (size_t)e->seq_len * sizeof(float));
    }
    return ORTH_OK;
}

static void report(const orth_evaluator *e, int64_t first, int64_t end, const int32_t *token_bytes,
                   orth_eval_each each, void *user, orth_eval_result *out)
{
    const float *weights = slot(e, ORTH_DATA_WEIGHTS), *nll = orth_executor_find(e->executor, ORTH_BIND_NLL, 0);
    const int32_t *targets = slot(e, ORTH_DATA_TARGETS);
    for (int64_t b = 0; b < e->num_seqs && first + b < end; b++) {
        for (int64_t p = 0; p < e->seq_len; p++) {
            int64_t row = b * e->seq_len + orth_fold_row(e->seq_len, e->parts, p);
            out->weight += weights[row];
            if (token_bytes && weights[row] > 0)
                out->target_bytes += token_bytes[targets[row]];
            if (each)
                each(user, first + b, p, targets[row], weights[row], -nll[row]);
        }
    }
}

orth_status orth_evaluator_run(orth_ctx *ctx, orth_evaluator *e, const orth_sampler *sampler, int64_t first,
                               int64_t n, const int32_t *token_bytes, orth_eval_each each, void *user,
                               orth_eval_result *out)
{
    *out = (orth_eval_result){0};
    /* The arena may be a trainer's: nothing in it is left from the last time. */
    *(orth_step_values *)slot(e, ORTH_DATA_STEP) = (orth_step_values){.loss_scale = 1.0f};
    if (slot(e, ORTH_DATA_ROPE_TABLE))
        orth_model_rope_table(&e->model, slot(e, ORTH_DATA_ROPE_TABLE), e->seq_len);
    const double *leaves = orth_executor_find(e->executor, ORTH_BIND_SEQ_LOSS, 0);
    for (int64_t at = first; at < first + n; at += e->num_seqs) {
        ORTH_TRY(fill(ctx, e, sampler, at, first + n));
        ORTH_TRY(orth_executor_run(ctx, e->executor));
        for (int32_t b = 0; b < e->num_seqs; b++) /* one by one: the micro-batch does not show in the sum */
            out->nll += leaves[b];
        report(e, at, first + n, token_bytes, each, user, out);
    }
    return ORTH_OK;
}
