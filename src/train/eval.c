/* eval.c -- see eval.h. */
#include "train/eval.h"

#include "base/progress.h"

static orth_model_shape eval_shape(const orth_config *cfg)
{
    orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_EVAL);
    shape.num_micro_batches = 1;
    return shape;
}

orth_status orth_eval_unit_build(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model,
                                 const orth_model_shape *step, int num_threads, orth_place_memory *memory,
                                 orth_unit *out)
{
    orth_model_shape shape = eval_shape(cfg);
    shape.external_params = true;
    shape.mesh = step->mesh;
    shape.chunks = step->chunks;
    shape.num_chunks = step->num_chunks;
    return orth_unit_build_for(ctx, model, &shape, num_threads, memory, out);
}

orth_status orth_evaluator_create_beside(orth_ctx *ctx, orth_evaluator *out, const orth_config *cfg,
                                         const orth_model_config *model, const orth_executor *lender,
                                         const orth_unit *unit)
{
    orth_model_shape shape = eval_shape(cfg);
    shape.mesh = unit->blocks.spec.mesh;
    *out = (orth_evaluator){.unit = *unit, .num_seqs = shape.num_seqs, .seq_len = shape.seq_len, .parts = shape.parts,
                            .doc_mask = shape.doc_mask, .model = *model, .rows = orth_setup_rows(&shape)};
    out->pos = ORTH_NEW_ARRAY(ctx, int32_t, out->rows.row_end - out->rows.row_begin);
    orth_status s = out->pos ? orth_executor_create(ctx, &out->executor, &out->unit.program, orth_setup_kernels(cfg),
                                                    lender, lender != NULL)
                             : ORTH_ERR_NOMEM;
    if (s != ORTH_OK)
        orth_evaluator_destroy(ctx, out);
    return s;
}

orth_status orth_evaluator_create(orth_ctx *ctx, orth_evaluator *out, const orth_config *cfg,
                                  const orth_model_config *model)
{
    const orth_model_shape shape = eval_shape(cfg);
    orth_unit unit;
    ORTH_TRY(orth_unit_build(ctx, model, &shape, &unit));
    return orth_evaluator_create_beside(ctx, out, cfg, model, NULL, &unit);
}

void orth_evaluator_destroy(orth_ctx *ctx, orth_evaluator *e)
{
    orth_executor_destroy(ctx, e->executor);
    orth_unit_release(&e->unit);
    orth_mem_free(ctx, e->pos);
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

static void *slot(const orth_evaluator *e, orth_data_slot s)
{
    return orth_executor_find(e->executor, ORTH_BIND_DATA, s);
}

/* Element `at` of a data slot, NULL where this rank's program does not read it. */
static void *row_of(const orth_evaluator *e, orth_data_slot which, int64_t at)
{
    char *base = slot(e, which);
    return base ? base + 4 * at : NULL;
}

/* Rows of the batch from sequence `first` on; what lies past `end` gets weight 0. */
static orth_status fill(orth_ctx *ctx, orth_evaluator *e, const orth_sampler *sampler, int64_t first, int64_t end)
{
    int64_t R = e->rows.row_end - e->rows.row_begin;
    for (int32_t b = 0; b < e->num_seqs; b++) {
        int64_t at = b * R;
        float *weights = row_of(e, ORTH_DATA_WEIGHTS, at);
        orth_sample sample = {.tokens = row_of(e, ORTH_DATA_TOKENS, at), .targets = row_of(e, ORTH_DATA_TARGETS, at),
                              .weights = weights, .pos = e->pos, .doc = row_of(e, ORTH_DATA_DOC_STARTS, at)};
        ORTH_TRY(orth_sampler_fill(ctx, sampler, &sample, ORTH_MIN(first + b, end - 1), &e->rows));
        if (row_of(e, ORTH_DATA_POSITIONS, at))
            memcpy(row_of(e, ORTH_DATA_POSITIONS, at), e->pos, (size_t)R * sizeof *e->pos);
        if (first + b >= end && weights)
            memset(weights, 0, (size_t)R * sizeof(float));
    }
    return ORTH_OK;
}

static void report(const orth_evaluator *e, int64_t first, int64_t end, const int32_t *token_bytes,
                   orth_eval_each each, void *user, orth_eval_result *out)
{
    const float *weights = slot(e, ORTH_DATA_WEIGHTS), *nll = orth_executor_find(e->executor, ORTH_BIND_NLL, 0);
    const int32_t *targets = slot(e, ORTH_DATA_TARGETS);
    if (!nll)
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
        orth_phase_begin(ctx, "reading sequences to evaluate");
        const orth_status filled = fill(ctx, e, sampler, at, first + n);
        orth_phase_end(ctx);
        ORTH_TRY(filled);
        ORTH_TRY(orth_executor_run(ctx, e->executor));
        for (int32_t b = 0; leaves && b < e->num_seqs; b++) /* one by one: the micro-batch does not show in the sum */
            out->nll += leaves[b];
        report(e, at, first + n, token_bytes, each, user, out);
        if (e->stop && at + e->num_seqs < first + n)
            ORTH_TRY(e->stop(ctx, e->stop_user, &out->stopped));
        if (out->stopped)
            break;
    }
    return ORTH_OK;
}
