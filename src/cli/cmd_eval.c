/* cmd_eval.c -- `orthant eval CHECKPOINT`: loss, perplexity and bits per byte of held-out text. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/files.h"
#include "base/json_out.h"
#include "cli/numbers.h"
#include "cli/text_inputs.h"
#include "data/data.h"
#include "train/eval.h"
#include "train/metrics.h"
#include "tools/model_file.h"
#include "train/setup.h"

typedef struct {
    orth_model_file file;
    orth_dataset *text;       /* --text, prepared in scratch */
    char scratch[64];
    orth_data *data;          /* else the data of the run */
    orth_sampler *sampler;
    orth_evaluator evaluator;
    bool has_evaluator;
    int32_t *token_bytes;
} scoring;

/* As the run read its own text. But what it says of JSONL holds for inputs that are: this text may be a plain one, unless the user of eval calls it
 * JSONL. */
static orth_text_options text_options(const orth_cmd *cmd, const orth_config *run)
{
    orth_text_options o = orth_cmd_text_options(cmd, run);
    o.field_is_default = !orth_cmd_flag(cmd, "field") && !ORTH_CONFIG_IS_SET(&cmd->config, data, jsonl_field);
    if (o.format == ORTH_TEXT_JSONL && !ORTH_CONFIG_IS_SET(&cmd->config, data, format))
        o.format = ORTH_TEXT_AUTO;
    return o;
}

/* The text becomes a data set in a temporary folder, none of it held out. */
static orth_status open_text(orth_ctx *ctx, scoring *s, const orth_cmd *cmd, const orth_corpus **corpus)
{
    if (!s->file.tokenizer)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: no tokenizer.json beside the weights: give data.tokenizer=FILE", s->file.folder);
    snprintf(s->scratch, sizeof s->scratch, "/tmp/orthant-eval-XXXXXX");
    if (!mkdtemp(s->scratch))
        return ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: cannot create a temporary folder", s->scratch);
    orth_inputs files = {0};
    orth_status status = orth_inputs_add(ctx, &files, orth_cmd_flag(cmd, "text"));
    orth_prepare_options o = {.inputs = (const char *const *)files.v, .num_inputs = files.num, .out_dir = s->scratch,
                              .tokenizer = s->file.tokenizer, .text = text_options(cmd, &s->file.run), .overwrite = true};
    if (status == ORTH_OK)
        status = orth_prepare(ctx, &o, NULL);
    orth_inputs_free(ctx, &files);
    ORTH_TRY(status);
    ORTH_TRY(orth_dataset_open(ctx, &s->text, s->scratch));
    ORTH_TRY(orth_path_remove(ctx, s->scratch)); /* what is mapped stays: `eval --logprobs | head` leaves nothing either */
    *corpus = &s->text->train;
    return ORTH_OK;
}

static orth_status open_run_data(orth_ctx *ctx, scoring *s, const orth_cmd *cmd)
{
    const bool other = ORTH_CONFIG_IS_SET(&cmd->config, data, path);
    const orth_config *c = &s->file.run;
    const orth_strings *paths = &c->data_path;
    if (paths->n == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: no data.path is recorded here: give --text FILE or data.path=FOLDER",
                         s->file.folder);
    char *cache = orth_path_join(ctx, c->checkpoint_dir, "data"), *own = orth_path_join(ctx, s->file.folder, "tokenizer.json");
    if (!cache || !own) {
        orth_mem_free(ctx, cache);
        orth_mem_free(ctx, own);
        return ORTH_ERR_NOMEM;
    }
    /* Whatever is scored, it is in tokens of the weights' own tokenizer. */
    orth_data_options o = {.paths = paths->v, .num_paths = paths->n,
                           .tokenizer = orth_path_exists(own) ? own : c->data_tokenizer,
                           .eos = c->data_eos_token.v, .num_eos = c->data_eos_token.n,
                           .auto_vocab = s->file.model.vocab, .text = other ? text_options(cmd, c) : orth_setup_text(c),
                           .valid_fraction = c->data_valid_fraction,
                           .seed = (uint64_t)c->train_seed, .cache_dir = cache};
    orth_status status = orth_data_open_or_prepare(ctx, &s->data, &o);
    orth_mem_free(ctx, cache);
    orth_mem_free(ctx, own);
    ORTH_TRY(status);
    if (s->data->num_valid == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "nothing is held out in %s: give --text FILE", paths->v[0]);
    return ORTH_OK;
}

/* Between micro-batches; so that the scratch folder is removed. */
static orth_status check_stop(orth_ctx *ctx, void *user, bool *out)
{
    (void)user;
    *out = false;
    return orth_ctx_check_stop(ctx);
}

static orth_status open_all(orth_ctx *ctx, scoring *s, const orth_cmd *cmd)
{
    const orth_corpus *text_corpus = NULL;
    const char *text = orth_cmd_flag(cmd, "text");
    if (!text && (orth_cmd_flag(cmd, "field") || orth_cmd_flag(cmd, "document-separator")))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "eval: --field and --document-separator say how --text is read, which is not given");
    ORTH_TRY(orth_model_file_open(ctx, &s->file, cmd->words[0]));
    orth_config *c = &s->file.run;
    ORTH_TRY(orth_model_file_use(ctx, &s->file, &cmd->config));
    if (ORTH_CONFIG_IS_SET(&cmd->config, data, seq_len) && c->data_seq_len > s->file.model.max_seq)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data.seq_len=%" PRId64 " exceeds the model's longest sequence of %" PRId64,
                         c->data_seq_len, s->file.model.max_seq);
    c->data_seq_len = ORTH_MIN(c->data_seq_len, s->file.model.max_seq);
    ORTH_TRY(text ? open_text(ctx, s, cmd, &text_corpus) : open_run_data(ctx, s, cmd));
    orth_sampler_options o = {.corpora = text ? &text_corpus : s->data->valid,
                              .num_corpora = text ? 1 : s->data->num_valid, .seq_len = c->data_seq_len,
                              .doc_mask = c->data_doc_mask, .natural = true};
    ORTH_TRY(orth_sampler_create(ctx, &s->sampler, &o));
    ORTH_TRY(orth_evaluator_create(ctx, &s->evaluator, c, &s->file.model));
    s->has_evaluator = true;
    s->evaluator.stop = check_stop;
    const orth_tokenizer *t = s->file.tokenizer ? s->file.tokenizer : s->data->tokenizer;
    if (orth_tokenizer_vocab_size(t) > s->file.model.vocab)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: the tokenizer has %" PRId64 " tokens, the model's vocabulary only %" PRId64,
                         s->file.folder, (int64_t)orth_tokenizer_vocab_size(t), s->file.model.vocab);
    s->token_bytes = orth_eval_token_bytes(ctx, t, s->file.model.vocab);
    if (!s->token_bytes)
        return ORTH_ERR_NOMEM;
    return orth_model_file_fill(ctx, &s->file, &s->evaluator.compiled, s->evaluator.executor);
}

static void close_all(orth_ctx *ctx, scoring *s)
{
    if (s->has_evaluator)
        orth_evaluator_destroy(ctx, &s->evaluator);
    orth_sampler_destroy(ctx, s->sampler);
    orth_data_close(ctx, s->data);
    orth_dataset_close(ctx, s->text);
    if (s->scratch[0] && orth_path_exists(s->scratch))
        (void)orth_path_remove(ctx, s->scratch);
    orth_mem_free(ctx, s->token_bytes);
    orth_model_file_close(ctx, &s->file);
}

static void print_target(void *user, int64_t sequence, int64_t pos, int32_t target, float weight, float logprob)
{
    (void)user;
    if (weight > 0)
        printf("%" PRId64 "\t%" PRId64 "\t%d\t%.9g\t%a\n", sequence, pos, target, (double)logprob, (double)logprob);
}

static void add_exact(orth_json_out *j, const char *key, double x)
{
    if (isfinite(x))
        orth_json_hex(j, key, x);
    else
        orth_json_number(j, key, x);
}

typedef struct {
    orth_ctx *ctx;
    orth_status status;
} json_lines;

/* The same as an object on a line. */
static void print_target_json(void *user, int64_t sequence, int64_t pos, int32_t target, float weight, float logprob)
{
    json_lines *lines = user;
    orth_text text = {0};
    orth_json_out j = {lines->ctx, &text};
    if (weight <= 0 || lines->status != ORTH_OK)
        return;
    orth_json_open(&j, NULL, '{');
    orth_json_print(&j, "sequence", "%" PRId64, sequence);
    orth_json_print(&j, "position", "%" PRId64, pos);
    orth_json_print(&j, "token", "%d", target);
    orth_json_number(&j, "logprob", (double)logprob);
    add_exact(&j, "logprob_hex", (double)logprob);
    orth_json_close(&j, '}');
    lines->status = orth_json_show(&j, stdout);
}

static orth_status print_json(orth_ctx *ctx, const orth_eval_result *r, double loss, double bits, int64_t sequences)
{
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    orth_json_open(&j, NULL, '{');
    orth_json_number(&j, "loss", loss);
    add_exact(&j, "loss_hex", loss);
    orth_json_number(&j, "perplexity", exp(loss));
    orth_json_number(&j, "bits_per_byte", bits);
    orth_json_print(&j, "targets", "%.0f", r->weight);
    orth_json_print(&j, "bytes", "%.0f", r->target_bytes);
    orth_json_print(&j, "sequences", "%" PRId64, sequences);
    orth_json_close(&j, '}');
    return orth_json_show(&j, stdout);
}

/* Without bytes (targets that are all special tokens, say) there is nothing to divide by. */
static void print_line(const orth_eval_result *r, double loss, double bits, int64_t sequences)
{
    char text[32] = "-";
    if (isfinite(bits))
        snprintf(text, sizeof text, "%.5f", bits);
    printf("loss %.6f  perplexity %.4f  bits per byte %s  (%.0f targets, %.0f bytes, %" PRId64 " sequences)\n", loss, exp(loss), text, r->weight,
           r->target_bytes, sequences);
}

static orth_status score(orth_ctx *ctx, const orth_cmd *cmd, scoring *s)
{
    int64_t n = 0, windows = orth_sampler_num_windows(s->sampler);
    const bool lines = orth_cmd_flag(cmd, "logprobs") != NULL, json = orth_cmd_flag(cmd, "json") != NULL;
    json_lines printed = {.ctx = ctx};
    orth_eval_result r;
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "batches", 0, INT64_MAX, &n));
    n = n > 0 ? ORTH_MIN(n, windows) : windows;
    ORTH_TRY(orth_evaluator_run(ctx, &s->evaluator, s->sampler, 0, n, s->token_bytes,
                                !lines ? NULL : json ? print_target_json : print_target, &printed, &r));
    ORTH_TRY(printed.status);
    double loss = r.nll / r.weight, bits = r.target_bytes > 0 ? r.nll / log(2.0) / r.target_bytes : NAN;
    if (json)
        ORTH_TRY(print_json(ctx, &r, loss, bits, n));
    else if (!lines && isfinite(loss))
        print_line(&r, loss, bits, n);
    if (isfinite(loss))
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_NUMERIC, "%s: the loss is %s over %.0f targets: the weights, or what they compute, are not "
                     "finite", s->file.folder, isnan(loss) ? "NaN" : "infinite", r.weight);
}

orth_status orth_cmd_eval(orth_ctx *ctx, const orth_cmd *cmd)
{
    if (cmd->num_words != 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "eval takes one CHECKPOINT (a run folder, a checkpoint or a Hugging Face "
                         "folder), not %d words", cmd->num_words);
    scoring s = {.text = NULL};
    orth_status status = open_all(ctx, &s, cmd);
    if (status == ORTH_OK)
        status = score(ctx, cmd, &s);
    close_all(ctx, &s);
    return status;
}
