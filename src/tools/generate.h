/* generate.h -- sampling from a model with a KV cache. */
#ifndef ORTH_TOOLS_GENERATE_H
#define ORTH_TOOLS_GENERATE_H

#include "run/executor.h"
#include "tools/model_file.h"

typedef struct {
    int64_t num_tokens;     /* ids below it are sampled: those that the tokenizer has; 0: all */
    double temperature;     /* 0: the likeliest token, ties to the smaller id */
    int64_t top_k;          /* 0: all */
    double top_p;           /* 1: all */
    uint64_t seed;
} orth_sample_options;

typedef struct orth_generator orth_generator;

/* Room for `max_tokens` tokens of prompt and continuation, with the weights of a model. ORTH_ERR_ARG if max_tokens
 * exceeds the model's max_seq; ORTH_ERR_NOMEM. */
orth_status orth_generator_create(orth_ctx *ctx, orth_generator **out, const orth_model_file *file, int64_t max_tokens);
void orth_generator_destroy(orth_ctx *ctx, orth_generator *g); /* NULL is fine */

/* Appends tokens to the text so far. ORTH_ERR_ARG past max_tokens or for an id outside the vocabulary. */
orth_status orth_generator_feed(orth_ctx *ctx, orth_generator *g, const int32_t *tokens, int64_t n);

/* Takes the text back to its first n tokens (0 <= n <= what was fed); another feed must follow. */
void orth_generator_rewind(orth_generator *g, int64_t n);

/* Chooses the next token after what was fed (at least one), without feeding it. *logprob: of the chosen
 * token under the model itself (temperature 1, all tokens): the number that eval gives, bit for bit. */
orth_status orth_generator_sample(orth_ctx *ctx, orth_generator *g, const orth_sample_options *options,
                                  int32_t *token, float *logprob);

/* Log-probability of `token` as the next one. */
orth_status orth_generator_score(orth_ctx *ctx, orth_generator *g, int32_t token, float *logprob);

#endif
