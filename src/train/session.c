/* session.c -- opening, saving and closing a run. */
#include "train/session.h"

#include <inttypes.h>

#include "base/files.h"
#include "base/machine.h"
#include "ckpt/folder.h"
#include "plan/probe.h"
#include "train/describe.h"
#include "train/weights.h"

/* Long enough for a stable peak, short enough not to be felt at the start. */
#define PROBE_SECONDS 0.15

static orth_status open_data(orth_ctx *ctx, orth_session *s)
{
    const orth_config *c = s->cfg;
    if (c->data_path.n == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data.path is not set: a text or JSONL file, or a prepared folder");
    char *cache = orth_path_join(ctx, s->dir, "data");
    if (!cache)
        return ORTH_ERR_NOMEM;
    orth_data_options o = {
        .paths = c->data_path.v, .num_paths = c->data_path.n, .weights = c->data_weights.v,
        .num_weights = c->data_weights.n, .tokenizer = c->data_tokenizer,
        .auto_vocab = ORTH_CONFIG_IS_SET(c, model, vocab) ? c->model_vocab : ORTH_AUTO_VOCAB, .separator = c->data_separator,
        .jsonl_field = c->data_jsonl_field, .valid_fraction = c->data_valid_fraction,
        .seed = (uint64_t)c->train_seed, .cache_dir = cache,
    };
    orth_status status = orth_data_open_or_prepare(ctx, &s->data, &o);
    orth_mem_free(ctx, cache);
    ORTH_TRY(status);
    orth_sampler_options train = {.corpora = s->data->train, .weights = s->data->weights,
                                  .num_corpora = s->data->num_sets, .seq_len = c->data_seq_len,
                                  .seed = (uint64_t)c->train_seed, .doc_mask = c->data_doc_mask};
    ORTH_TRY(orth_sampler_create(ctx, &s->train, &train));
    if (s->data->num_valid == 0)
        return ORTH_OK;
    orth_sampler_options valid = {.corpora = s->data->valid, .num_corpora = s->data->num_valid,
                                  .seq_len = c->data_seq_len, .doc_mask = c->data_doc_mask, .natural = true};
    return orth_sampler_create(ctx, &s->valid, &valid);
}

static orth_status read_tokenizer(orth_ctx *ctx, orth_session *s)
{
    const orth_tokenizer *t = s->data->tokenizer;
    ORTH_TRY(orth_tokenizer_write(ctx, t, &s->tokenizer_json));
    s->token_bytes = ORTH_NEW_ARRAY(ctx, int32_t, ORTH_MAX(orth_tokenizer_vocab_size(t), s->model.vocab));
    if (!s->token_bytes)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < orth_tokenizer_vocab_size(t); i++) {
        size_t n = 0;
        if (orth_tokenizer_token(t, i, &n) && !orth_tokenizer_is_special(t, i))
            s->token_bytes[i] = (int32_t)n;
    }
    return ORTH_OK;
}

/* Dimensions from the run file, or from the weights that the run starts from. */
static orth_status choose_model(orth_ctx *ctx, orth_session *s, const orth_hf_source *init)
{
    int64_t vocab = orth_tokenizer_vocab_size(s->data->tokenizer);
    if (init) {
        double dropout = s->model.dropout;
        s->model = *orth_hf_source_config(init);
        s->model.dropout = ORTH_CONFIG_IS_SET(s->cfg, model, dropout) ? s->cfg->model_dropout : dropout;
    } else {
        ORTH_TRY(orth_setup_model(ctx, s->cfg, vocab, &s->model));
    }
    if (vocab > s->model.vocab)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the tokenizer has %" PRId64 " tokens, the model's vocabulary only %" PRId64,
                         vocab, s->model.vocab);
    return ORTH_OK;
}

static orth_status build(orth_ctx *ctx, orth_session *s)
{
    orth_unit unit;
    orth_model_shape shape = orth_setup_shape(s->cfg, ORTH_MODE_TRAIN);
    ORTH_TRY(orth_unit_build(ctx, &s->model, &shape, &unit));
    size_t limit = s->cfg->memory_limit > 0 ? (size_t)s->cfg->memory_limit : (size_t)orth_machine_available_bytes();
    s->metrics.plan = orth_plan_of(&unit.program, orth_model_num_elems(&s->model), limit);
    orth_status status = orth_plan_require_fit(ctx, &s->metrics.plan);
    if (status != ORTH_OK) {
        orth_unit_release(&unit);
        return status;
    }
    ORTH_TRY(orth_trainer_create(ctx, &s->trainer, s->cfg, &s->model, &unit));
    s->has_trainer = true;
    s->metrics.peak_bytes = s->metrics.plan.total_bytes;
    if (s->valid) {
        ORTH_TRY(orth_evaluator_create(ctx, &s->evaluator, s->cfg, &s->model, s->trainer.executor));
        s->has_evaluator = true;
    }
    int64_t n = s->cfg->train_global_batch;
    orth_loader_options o = {.sampler = s->train, .max_sequences = n,
                             .rows = {.parts = shape.parts, .row_begin = 0, .row_end = s->cfg->data_seq_len}};
    return orth_loader_create(ctx, &s->loader, &o);
}

/* ---- weights ---- */

static orth_checkpoint_array *list_arrays(orth_ctx *ctx, const orth_session *s)
{
    int64_t n = orth_model_num_params(&s->model);
    orth_checkpoint_array *a = ORTH_NEW_ARRAY(ctx, orth_checkpoint_array, n);
    for (int64_t i = 0; a && i < n; i++)
        a[i] = (orth_checkpoint_array){.index = i,
                                       .master = orth_executor_find(s->trainer.executor, ORTH_BIND_MASTER, i),
                                       .m = orth_executor_find(s->trainer.executor, ORTH_BIND_M, i),
                                       .v = orth_executor_find(s->trainer.executor, ORTH_BIND_V, i)};
    return a;
}

static orth_status load_checkpoint(orth_ctx *ctx, orth_session *s, const char *path)
{
    orth_checkpoint *ck = NULL;
    ORTH_TRY(orth_checkpoint_open(ctx, &ck, path));
    const orth_checkpoint_state *state = orth_checkpoint_get_state(ck);
    uint64_t mine = orth_tokenizer_fingerprint(s->data->tokenizer);
    orth_status status = ORTH_OK;
    if (state->tokenizer_fingerprint != 0 && state->tokenizer_fingerprint != mine)
        status = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: was trained with tokenizer %016" PRIx64 ", the data is for %016" PRIx64,
                           path, state->tokenizer_fingerprint, mine);
    if (status == ORTH_OK && state->next_sequence != state->step * s->cfg->train_global_batch)
        status = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: its next sequence is %" PRId64 ", but %" PRId64 " steps of "
                           "train.global_batch=%" PRId64 " end at %" PRId64, path, state->next_sequence, state->step,
                           s->cfg->train_global_batch, state->step * s->cfg->train_global_batch);
    orth_checkpoint_array *arrays = status == ORTH_OK ? list_arrays(ctx, s) : NULL;
    if (status == ORTH_OK)
        status = arrays ? orth_checkpoint_load(ctx, ck, arrays, orth_model_num_params(&s->model)) : ORTH_ERR_NOMEM;
    s->steps_done = state->step;
    s->tokens_done = state->tokens;
    s->skipped = state->skipped;
    orth_mem_free(ctx, arrays);
    orth_checkpoint_close(ctx, ck);
    return status;
}

static orth_status fill_weights(orth_ctx *ctx, orth_session *s, const orth_hf_source *init, const char *resume_from)
{
    if (resume_from) {
        ORTH_TRY(load_checkpoint(ctx, s, resume_from));
    } else if (init) {
        for (int64_t i = 0; i < orth_model_num_params(&s->model); i++)
            ORTH_TRY(orth_hf_read_param(ctx, init, i, orth_executor_find(s->trainer.executor, ORTH_BIND_MASTER, i)));
    } else {
        return orth_weights_init(ctx, &s->model, s->trainer.executor, (uint64_t)s->cfg->train_seed);
    }
    return orth_weights_refresh(ctx, &s->model, s->trainer.executor);
}

/* ---- the run folder ---- */

static orth_status write_file(orth_ctx *ctx, const orth_session *s, const char *name, char *text)
{
    char *path = orth_path_join(ctx, s->dir, name);
    orth_status status = path && text ? orth_file_write(ctx, path, text, strlen(text)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    orth_mem_free(ctx, text);
    return status;
}

static orth_status start_folder(orth_ctx *ctx, orth_session *s)
{
    ORTH_TRY(write_file(ctx, s, "run.yaml", orth_config_yaml(ctx, s->cfg)));
    ORTH_TRY(write_file(ctx, s, "plan.json", orth_plan_json(ctx, &s->metrics.plan)));
    s->metrics_path = orth_path_join(ctx, s->dir, "metrics.jsonl");
    if (!s->metrics_path)
        return ORTH_ERR_NOMEM;
    s->metrics.steps = s->cfg->train_steps;
    s->metrics.log_every = s->cfg->train_log_every;
    s->metrics.quiet = s->options.quiet;
    return orth_metrics_open(ctx, &s->metrics, s->metrics_path, s->options.resume ? s->steps_done : -1);
}

/* Finds where to start from, opens data and weights, builds. */
static orth_status open_all(orth_ctx *ctx, orth_session *s, orth_hf_source **init, char **resume_from)
{
    ORTH_TRY(orth_path_make_dirs(ctx, s->dir));
    s->checkpoints = orth_path_join(ctx, s->dir, "checkpoints");
    if (!s->checkpoints)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_checkpoint_newest(ctx, s->checkpoints, resume_from));
    if (s->options.resume && !*resume_from)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: no valid checkpoint to resume from", s->checkpoints);
    if (!s->options.resume && *resume_from)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s holds a run already (%s): continue it with --resume, or give another "
                         "checkpoint.dir", s->dir, *resume_from);
    if (s->options.init_dir || *resume_from) {
        char *folder = NULL;
        if (*resume_from)
            folder = orth_mem_strdup(ctx, *resume_from);
        else if (orth_checkpoint_resolve(ctx, s->options.init_dir, &folder) != ORTH_OK) {
            orth_ctx_clear_error(ctx); /* not a checkpoint of ours: a Hugging Face folder, then */
            folder = orth_mem_strdup(ctx, s->options.init_dir);
        }
        orth_status status = folder ? orth_hf_open(ctx, init, folder) : ORTH_ERR_NOMEM;
        orth_mem_free(ctx, folder);
        ORTH_TRY(status);
    }
    ORTH_TRY(open_data(ctx, s));
    ORTH_TRY(choose_model(ctx, s, *init));
    ORTH_TRY(read_tokenizer(ctx, s));
    ORTH_TRY(build(ctx, s));
    ORTH_TRY(fill_weights(ctx, s, *init, *resume_from));
    bool bf16 = s->cfg->precision_compute == ORTH_precision_compute_bf16;
    ORTH_TRY(orth_probe_matmul_peak(ctx, &s->metrics.peak_flops, bf16, PROBE_SECONDS));
    return start_folder(ctx, s);
}

orth_status orth_session_open(orth_ctx *ctx, orth_session *s, const orth_session_options *options)
{
    *s = (orth_session){.options = *options, .cfg = options->cfg, .dir = options->cfg->checkpoint_dir};
    orth_hf_source *init = NULL;
    char *resume_from = NULL;
    orth_status status = open_all(ctx, s, &init, &resume_from);
    orth_hf_close(ctx, init);
    orth_mem_free(ctx, resume_from);
    if (status != ORTH_OK)
        orth_session_close(ctx, s);
    return status;
}

void orth_session_close(orth_ctx *ctx, orth_session *s)
{
    orth_metrics_close(&s->metrics);
    orth_loader_destroy(ctx, s->loader);
    if (s->has_evaluator)
        orth_evaluator_destroy(ctx, &s->evaluator);
    if (s->has_trainer)
        orth_trainer_destroy(ctx, &s->trainer);
    orth_sampler_destroy(ctx, s->train);
    orth_sampler_destroy(ctx, s->valid);
    orth_data_close(ctx, s->data);
    orth_bytes_free(ctx, &s->tokenizer_json);
    orth_mem_free(ctx, s->token_bytes);
    orth_mem_free(ctx, s->metrics_path);
    orth_mem_free(ctx, s->checkpoints);
    *s = (orth_session){.cfg = NULL};
}

orth_status orth_session_save(orth_ctx *ctx, orth_session *s)
{
    char *config = orth_config_yaml(ctx, s->cfg);
    orth_checkpoint_array *arrays = list_arrays(ctx, s);
    orth_status status = config && arrays ? orth_path_make_dirs(ctx, s->checkpoints) : ORTH_ERR_NOMEM;
    orth_checkpoint_view view = {
        .config = s->model, .arrays = arrays, .num_arrays = orth_model_num_params(&s->model),
        .weight_dtype = ORTH_F32, .run_config = config, .tokenizer = s->tokenizer_json.v,
        .tokenizer_bytes = s->tokenizer_json.num,
        .state = {.step = s->steps_done, .next_sequence = s->steps_done * s->cfg->train_global_batch,
                  .tokens = s->tokens_done, .skipped = s->skipped, .seed = s->cfg->train_seed, .loss_scale = 1,
                  .tokenizer_fingerprint = orth_tokenizer_fingerprint(s->data->tokenizer),
                  .eos_token = orth_tokenizer_eos(s->data->tokenizer)},
    };
    if (status == ORTH_OK)
        status = orth_checkpoint_save(ctx, s->checkpoints, &view, s->cfg->checkpoint_keep, NULL);
    orth_mem_free(ctx, config);
    orth_mem_free(ctx, arrays);
    return status;
}

orth_status orth_session_evaluate(orth_ctx *ctx, orth_session *s, int64_t max_batches, orth_eval_result *out)
{
    int64_t n = orth_sampler_num_windows(s->valid);
    if (max_batches > 0)
        n = ORTH_MIN(n, max_batches * s->cfg->train_micro_batch);
    return orth_evaluator_run(ctx, &s->evaluator, s->valid, 0, n, s->token_bytes, NULL, NULL, out);
}
