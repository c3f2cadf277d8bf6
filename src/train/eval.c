/* eval.c -- see eval.h. */
#include "train/eval.h"

#include "base/progress.h"

orth_model_shape orth_eval_shape(const orth_config *cfg)
{
    orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_EVAL);
    shape.num_micro_batches = 1;
    return shape;
}

/* Rows of a batch that are on this rank. */
static int64_t num_rows(const orth_evaluator *e)
{
    return e->num_seqs * (e->rows.row_end - e->rows.row_begin);
}

static orth_status create_arrays(orth_ctx *ctx, orth_evaluator *e)
{
    const int64_t n = num_rows(e);
    e->tokens = ORTH_NEW_ARRAY(ctx, int32_t, 4 * n);
    e->weights = ORTH_NEW_ARRAY(ctx, float, 2 * n);
    e->leaves = ORTH_NEW_ARRAY(ctx, double, e->num_seqs);
    if (!e->tokens || !e->weights || !e->leaves)
        return ORTH_ERR_NOMEM;
    e->targets = e->tokens + n;
    e->pos = e->targets + n;
    e->doc = e->pos + n;
    e->nll = e->weights + n;
    return ORTH_OK;
}

orth_status orth_evaluator_create_beside(orth_ctx *ctx, orth_evaluator *out, const orth_config *cfg,
                                         const orth_model_config *model, const orth_executor *lender,
                                         const orth_compiled *compiled)
{
    orth_model_shape shape = orth_eval_shape(cfg);
    shape.mesh = compiled->blocks.spec.mesh;
    *out = (orth_evaluator){.compiled = *compiled, .num_seqs = shape.num_seqs, .seq_len = shape.seq_len, .parts = shape.parts,
                            .doc_mask = shape.doc_mask, .model = *model, .rows = orth_setup_rows(&shape)};
    orth_status s = create_arrays(ctx, out);
    if (s == ORTH_OK)
        s = orth_executor_create(ctx, &out->executor, &out->compiled.program, orth_setup_kernels(cfg), lender, lender != NULL);
    if (s != ORTH_OK)
        orth_evaluator_destroy(ctx, out);
    return s;
}

orth_status orth_evaluator_create(orth_ctx *ctx, orth_evaluator *out, const orth_config *cfg,
                                  const orth_model_config *model)
{
    const orth_model_shape shape = orth_eval_shape(cfg);
    orth_compiled compiled;
    ORTH_TRY(orth_compiled_build(ctx, model, &shape, &compiled));
    return orth_evaluator_create_beside(ctx, out, cfg, model, NULL, &compiled);
}

void orth_evaluator_destroy(orth_ctx *ctx, orth_evaluator *e)
{
    orth_executor_destroy(ctx, e->executor);
    orth_compiled_release(&e->compiled);
    orth_mem_free(ctx, e->tokens);
    orth_mem_free(ctx, e->weights);
    orth_mem_free(ctx, e->leaves);
    e->executor = NULL;
}

int32_t *orth_eval_token_bytes(orth_ctx *ctx, const orth_tokenizer *t, int64_t vocab)
{
    int32_t *bytes = ORTH_NEW_ARRAY(ctx, int32_t, ORTH_MAX(orth_tokenizer_vocab_size(t), vocab));
    for (int32_t i = 0; bytes && i < orth_tokenizer_vocab_size(t); i++) {
        size_t n = 0;
        if (orth_tokenizer_token(t, i, &n) && !orth_tokenizer_is_special(t, i))
            bytes[i] = (int32_t)n;
    }
    return bytes;
}

/* Rows of the batch from sequence `first` on; what lies past `end` gets weight 0. */
static orth_status fill(orth_ctx *ctx, orth_evaluator *e, const orth_sampler *sampler, int64_t first, int64_t end)
{
    const int64_t R = e->rows.row_end - e->rows.row_begin;
    for (int32_t b = 0; b < e->num_seqs; b++) {
        const int64_t at = b * R;
        orth_sample sample = {.tokens = e->tokens + at, .targets = e->targets + at, .weights = e->weights + at,
                              .pos = e->pos + at, .doc = e->doc + at};
        ORTH_TRY(orth_sampler_fill(ctx, sampler, &sample, ORTH_MIN(first + b, end - 1), &e->rows));
        if (first + b >= end)
            memset(sample.weights, 0, (size_t)R * sizeof(float));
    }
    return ORTH_OK;
}

/* The batch into the program, as far as it reads it. */
static orth_status put_batch(orth_ctx *ctx, orth_evaluator *e)
{
    const size_t bytes = (size_t)num_rows(e) * 4;
    ORTH_TRY(orth_setup_put(ctx, e->executor, ORTH_DATA_TOKENS, e->tokens, bytes));
    ORTH_TRY(orth_setup_put(ctx, e->executor, ORTH_DATA_TARGETS, e->targets, bytes));
    ORTH_TRY(orth_setup_put(ctx, e->executor, ORTH_DATA_WEIGHTS, e->weights, bytes));
    ORTH_TRY(orth_setup_put(ctx, e->executor, ORTH_DATA_POSITIONS, e->pos, bytes));
    return orth_setup_put(ctx, e->executor, ORTH_DATA_DOC_STARTS, e->doc, bytes);
}

/* Of the losses what the program has: the last stage alone. */
static orth_status take_losses(orth_ctx *ctx, const orth_evaluator *e)
{
    const orth_ref leaves = {ORTH_BIND_SEQ_LOSS, 0, 0, (size_t)e->num_seqs * sizeof *e->leaves};
    const orth_ref nll = {ORTH_BIND_NLL, 0, 0, (size_t)num_rows(e) * sizeof *e->nll};
    if (orth_executor_size(e->executor, leaves.bind, 0) > 0)
        ORTH_TRY(orth_executor_read(ctx, e->executor, leaves, e->leaves));
    if (orth_executor_size(e->executor, nll.bind, 0) > 0)
        ORTH_TRY(orth_executor_read(ctx, e->executor, nll, e->nll));
    return ORTH_OK;
}

static void report(const orth_evaluator *e, int64_t first, int64_t end, const int32_t *token_bytes,
                   orth_eval_each each, void *user, orth_eval_result *out)
{
    const float *weights = e->weights;
    const int32_t *targets = e->targets;
    if (orth_executor_size(e->executor, ORTH_BIND_NLL, 0) == 0)
        return;
    for (int64_t b = 0; b < e->num_seqs && first + b < end; b++) {
        for (int64_t p = 0; p < e->seq_len; p++) {
            int64_t local = orth_fold_row(e->seq_len, e->parts, p) - e->rows.row_begin;
            int64_t row = b * (e->rows.row_end - e->rows.row_begin) + local;
            if (local < 0 || local >= e->rows.row_end - e->rows.row_begin)
                continue;
            out->weight += weights[row];
            if (token_bytes && weights[row] > 0)
                out->target_bytes += token_bytes[targets[row]];
            if (each)
                each(user, first + b, p, targets[row], weights[row], -e->nll[row]);
        }
    }
}

orth_status orth_evaluator_run(orth_ctx *ctx, orth_evaluator *e, const orth_sampler *sampler, int64_t first,
                               int64_t n, const int32_t *token_bytes, orth_eval_each each, void *user,
                               orth_eval_result *out)
{
    const orth_step_values step = {.loss_scale = 1.0f};
    *out = (orth_eval_result){0};
    /* The arena may be a trainer's: nothing in it is left from the last time. */
    ORTH_TRY(orth_setup_put(ctx, e->executor, ORTH_DATA_STEP, &step, sizeof step));
    ORTH_TRY(orth_setup_rope_table(ctx, e->executor, &e->model));
    for (int64_t at = first; at < first + n; at += e->num_seqs) {
        orth_phase_begin(ctx, "reading sequences to evaluate");
        const orth_status filled = fill(ctx, e, sampler, at, first + n);
        orth_phase_end(ctx);
        ORTH_TRY(filled);
        ORTH_TRY(put_batch(ctx, e));
        ORTH_TRY(orth_executor_run(ctx, e->executor));
        ORTH_TRY(take_losses(ctx, e));
        for (int32_t b = 0; b < e->num_seqs; b++) /* one by one: the micro-batch does not show in the sum */
            out->nll += e->leaves[b];
        report(e, at, first + n, token_bytes, each, user, out);
        if (e->stop && at + e->num_seqs < first + n)
            ORTH_TRY(e->stop(ctx, e->stop_user, &out->stopped));
        if (out->stopped)
            break;
    }
    return ORTH_OK;
}
