/* cmd_generate.c -- `orthant generate CHECKPOINT`: sampled text. */
#include <inttypes.h>

#include "cli/numbers.h"
#include "cli/print_token.h"
#include "tools/generate.h"
#include "tools/model_file.h"

typedef struct {
    const char *prompt, *stop;
    int64_t tokens, samples;
    bool logprobs;
    orth_sample_options sample;
} options;

static orth_status read_options(orth_ctx *ctx, const orth_cmd *cmd, options *o)
{
    int64_t seed = 1;
    *o = (options){.prompt = orth_cmd_flag(cmd, "prompt"), .stop = orth_cmd_flag(cmd, "stop"), .tokens = 200, .samples = 1,
                   .logprobs = orth_cmd_flag(cmd, "logprobs") != NULL,
                   .sample = {.temperature = 0.8, .top_k = 50, .top_p = 1}};
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "tokens", 1, 1 << 24, &o->tokens));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "samples", 1, 1 << 24, &o->samples));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "top-k", 0, 1 << 24, &o->sample.top_k));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "seed", 0, INT64_MAX, &seed));
    ORTH_TRY(orth_cmd_flag_real(ctx, cmd, "temperature", 0, 1000, &o->sample.temperature));
    ORTH_TRY(orth_cmd_flag_real(ctx, cmd, "top-p", 0, 1, &o->sample.top_p));
    o->sample.seed = (uint64_t)seed;
    return ORTH_OK;
}

/* Prints the text of a token, or a line with its number, log-probability and text. */
static void print_token(const char *text, size_t num_bytes, int32_t token, float logprob, bool line)
{
    if (line) {
        printf("%d\t%.9g\t%a\t", token, (double)logprob, (double)logprob);
        orth_print_token(text, num_bytes);
        printf("\n");
    } else
        fwrite(text, 1, num_bytes, stdout);
    fflush(stdout);
}

/* Whether `stop`, which may span tokens and end within one, lies in the text and ends after `before`. */
static bool reached(const orth_bytes *text, size_t before, const char *stop)
{
    size_t n = stop ? strlen(stop) : 0;
    for (size_t end = ORTH_MAX(before + 1, n); n > 0 && end <= text->num; end++)
        if (memcmp(text->v + end - n, stop, n) == 0)
            return true;
    return false;
}

/* Sample number `index`: continues the prompt that was fed. `at`: where decoding stands behind the prompt. */
static orth_status print_sample(orth_ctx *ctx, orth_generator *g, const orth_model_file *f, const options *o, int64_t index,
                                orth_decoding at)
{
    orth_sample_options how = o->sample;
    how.seed += (uint64_t)index;
    how.num_tokens = orth_tokenizer_vocab_size(f->tokenizer); /* a model may have rows to spare */
    orth_bytes text = {0};
    orth_status s = ORTH_OK;
    if (!o->logprobs && o->prompt)
        printf("%s", o->prompt);
    const orth_special_tokens *special = orth_tokenizer_special(f->tokenizer);
    for (int64_t i = 0; i < o->tokens && s == ORTH_OK; i++) {
        int32_t token;
        float logprob;
        s = orth_generator_sample(ctx, g, &how, &token, &logprob);
        if (s != ORTH_OK || orth_special_tokens_ends(special, token))
            break;
        size_t before = text.num;
        s = orth_tokenizer_decode_on(ctx, f->tokenizer, &at, &text, &token, 1, false);
        if (s == ORTH_OK)
            print_token(text.num > before ? text.v + before : "", text.num - before, token, logprob, o->logprobs);
        if (s != ORTH_OK || reached(&text, before, o->stop) || i + 1 == o->tokens)
            break;
        s = orth_generator_feed(ctx, g, &token, 1);
    }
    if (!o->logprobs)
        printf("\n");
    orth_bytes_free(ctx, &text);
    return s;
}

static orth_status print_samples(orth_ctx *ctx, orth_generator *g, const orth_model_file *f, const options *o,
                                 const int32_t *prompt, int64_t n)
{
    orth_decoding at = {0};
    orth_bytes text = {0};
    orth_status s = orth_generator_feed(ctx, g, prompt, n);
    if (s == ORTH_OK && o->prompt && o->prompt[0]) /* its text is known */
        s = orth_tokenizer_decode_on(ctx, f->tokenizer, &at, &text, prompt, n, false);
    orth_bytes_free(ctx, &text);
    for (int64_t i = 0; i < o->samples && s == ORTH_OK; i++) {
        if (i > 0) { /* its last token gives the scores again */
            printf("---\n");
            orth_generator_rewind(g, n - 1);
            s = orth_generator_feed(ctx, g, prompt + n - 1, 1);
        }
        if (s == ORTH_OK)
            s = print_sample(ctx, g, f, o, i, at);
    }
    return s;
}

/* Without --tokens as many follow the prompt's n as there is room for, up to the default. */
static orth_status choose_length(orth_ctx *ctx, const orth_cmd *cmd, options *o, int64_t n, int64_t max)
{
    if (n >= max)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the prompt has %" PRId64 " tokens, the model's longest sequence %" PRId64 ", what follows included", n, max);
    if (!orth_cmd_flag(cmd, "tokens"))
        o->tokens = ORTH_MIN(o->tokens, max - n);
    if (o->tokens > max - n)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the prompt's %" PRId64 " tokens and --tokens=%" PRId64 " exceed the model's longest sequence of %" PRId64, n,
                         o->tokens, max);
    return ORTH_OK;
}

static orth_status run(orth_ctx *ctx, const orth_cmd *cmd, orth_model_file *f, options *o)
{
    ORTH_TRY(orth_model_file_use(ctx, f, &cmd->config));
    if (!f->tokenizer)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: no tokenizer.json beside the weights: give data.tokenizer=FILE", f->folder);
    orth_ids ids = {0};
    orth_generator *g = NULL;
    int32_t start = orth_tokenizer_eos(f->tokenizer); /* a document's start follows the end of another */
    orth_status s = ORTH_OK;
    if (o->prompt && o->prompt[0])
        s = orth_tokenizer_encode(ctx, f->tokenizer, &ids, o->prompt, strlen(o->prompt));
    else if (start < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: no end-of-text token is known, which an empty prompt starts from: give "
                         "--prompt, or name the token by data.eos_token", f->folder);
    const int32_t *prompt = ids.num ? ids.v : &start;
    int64_t n = ids.num ? ids.num : 1;
    if (s == ORTH_OK)
        s = choose_length(ctx, cmd, o, n, f->model.max_seq);
    if (s == ORTH_OK)
        s = orth_generator_create(ctx, &g, f, n + o->tokens);
    if (s == ORTH_OK)
        s = print_samples(ctx, g, f, o, prompt, n);
    orth_generator_destroy(ctx, g);
    orth_ids_free(ctx, &ids);
    return s;
}

orth_status orth_cmd_generate(orth_ctx *ctx, const orth_cmd *cmd)
{
    options o;
    orth_model_file f;
    if (cmd->num_words != 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "generate takes one CHECKPOINT (a run folder, a checkpoint or a Hugging "
                         "Face folder), not %d words", cmd->num_words);
    ORTH_TRY(read_options(ctx, cmd, &o));
    ORTH_TRY(orth_model_file_open(ctx, &f, cmd->words[0]));
    orth_status s = run(ctx, cmd, &f, &o);
    orth_model_file_close(ctx, &f);
    return s;
}
