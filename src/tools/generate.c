/* generate.c -- two decoding programs over one set of weights and caches: one takes many tokens at once
 * (the prompt), the other a single one. Rows do not depend on each other, so it does not show in the
 * numbers which of them a token went through. */
#include "tools/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

#define PREFILL_TOKENS 64

typedef struct {
    float logit;
    int32_t token;
} candidate;

struct orth_generator {
    orth_model_config model;
    const orth_kernel_fn *kernels;
    int64_t max_tokens, past;
    int32_t parts;
    orth_compiled compiled[2];             /* 0: PREFILL_TOKENS at once, 1: one */
    orth_executor *executor[2];
    float *logits;                 /* [V] of the next token */
    bool fed;                      /* they are filled */
    candidate *order;              /* [V] scratch of the sampler */
    double *cumulative;            /* [V] */
};

static orth_status create_unit(orth_ctx *ctx, orth_generator *g, const orth_config *cfg, int i, int32_t tokens)
{
    orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_DECODE);
    g->parts = shape.parts;
    shape.num_micro_batches = shape.num_seqs = 1;
    shape.seq_len = tokens;
    shape.cache_rows = g->max_tokens;
    shape.external_params = i > 0;
    ORTH_TRY(orth_compiled_build(ctx, &g->model, &shape, &g->compiled[i]));
    orth_status s = orth_executor_create(ctx, &g->executor[i], &g->compiled[i].program, g->kernels,
                                         i > 0 ? g->executor[0] : NULL, false);
    if (s != ORTH_OK) {
        orth_compiled_release(&g->compiled[i]);
        return s;
    }
    return orth_setup_rope_table(ctx, g->executor[i], &g->model);
}

orth_status orth_generator_create(orth_ctx *ctx, orth_generator **out, const orth_model_file *file, int64_t max_tokens)
{
    const orth_model_config *model = &file->model;
    if (max_tokens > model->max_seq)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "prompt and continuation of %" PRId64 " tokens exceed the model's "
                         "longest sequence of %" PRId64, max_tokens, model->max_seq);
    orth_generator *g = ORTH_NEW(ctx, orth_generator);
    if (!g)
        return ORTH_ERR_NOMEM;
    g->model = *model;
    g->kernels = orth_setup_kernels(&file->run);
    g->max_tokens = max_tokens;
    g->order = ORTH_NEW_ARRAY(ctx, candidate, model->vocab);
    g->cumulative = ORTH_NEW_ARRAY(ctx, double, model->vocab);
    g->logits = ORTH_NEW_ARRAY(ctx, float, model->vocab);
    orth_status s = g->order && g->cumulative && g->logits ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = create_unit(ctx, g, &file->run, 0, (int32_t)ORTH_MIN(PREFILL_TOKENS, max_tokens));
    if (s == ORTH_OK)
        s = create_unit(ctx, g, &file->run, 1, 1);
    if (s == ORTH_OK)
        s = orth_model_file_fill(ctx, file, &g->compiled[0], g->executor[0]);
    if (s != ORTH_OK) {
        orth_generator_destroy(ctx, g);
        return s;
    }
    *out = g;
    return ORTH_OK;
}

void orth_generator_destroy(orth_ctx *ctx, orth_generator *g)
{
    if (!g)
        return;
    for (int i = 1; i >= 0; i--) {
        if (!g->executor[i])
            continue;
        orth_executor_destroy(ctx, g->executor[i]);
        orth_compiled_release(&g->compiled[i]);
    }
    orth_mem_free(ctx, g->order);
    orth_mem_free(ctx, g->cumulative);
    orth_mem_free(ctx, g->logits);
    orth_mem_free(ctx, g);
}

/* Runs the tokens through compiled step `which`, whose width they have. */
static orth_status feed(orth_ctx *ctx, orth_generator *g, int which, const int32_t *tokens, int64_t n)
{
    orth_executor *e = g->executor[which];
    const size_t row = (size_t)g->model.vocab * sizeof *g->logits;
    const int32_t past = (int32_t)g->past;
    int32_t pos[PREFILL_TOKENS];
    for (int64_t i = 0; i < n; i++)
        pos[i] = past + (int32_t)i;
    ORTH_TRY(orth_setup_put(ctx, e, ORTH_DATA_TOKENS, tokens, (size_t)n * sizeof *tokens));
    ORTH_TRY(orth_setup_put(ctx, e, ORTH_DATA_POSITIONS, pos, (size_t)n * sizeof *pos));
    ORTH_TRY(orth_setup_put(ctx, e, ORTH_DATA_PAST, &past, sizeof past));
    ORTH_TRY(orth_executor_run(ctx, e));
    ORTH_TRY(orth_executor_read(ctx, e, (orth_ref){ORTH_BIND_LOGITS, 0, (size_t)(n - 1) * row, row}, g->logits));
    g->past += n;
    g->fed = true;
    return ORTH_OK;
}

orth_status orth_generator_feed(orth_ctx *ctx, orth_generator *g, const int32_t *tokens, int64_t n)
{
    if (g->past + n > g->max_tokens)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%" PRId64 " tokens exceed the room for %" PRId64, g->past + n, g->max_tokens);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= g->model.vocab)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "token %d is not in the model's vocabulary of %" PRId64, tokens[i],
                             g->model.vocab);
    int64_t wide = ORTH_MIN(PREFILL_TOKENS, g->max_tokens), done = 0;
    for (; n - done >= wide; done += wide)
        ORTH_TRY(feed(ctx, g, 0, tokens + done, wide));
    for (; done < n; done++)
        ORTH_TRY(feed(ctx, g, 1, tokens + done, 1));
    return ORTH_OK;
}

void orth_generator_rewind(orth_generator *g, int64_t n)
{
    g->past = ORTH_MIN(n, g->past); /* rows of the caches behind it are not read before they are written */
    g->fed = false;
}

orth_status orth_generator_score(orth_ctx *ctx, orth_generator *g, int32_t token, float *logprob)
{
    int64_t V = g->model.vocab;
    float weight = 1, nll;
    orth_step_values step = {.loss_scale = 1};
    orth_attr attr = {.split = {ORTH_SPLIT_EVEN, g->parts, V, 1, 1}};
    const orth_tensor in[] = {{g->logits, ORTH_F32, 2, {1, V, 1, 1}}, {&token, ORTH_I32, 1, {1, 1, 1, 1}},
                              {&weight, ORTH_F32, 1, {1, 1, 1, 1}}, {&step, ORTH_U8, 1, {sizeof step, 1, 1, 1}}};
    const orth_tensor out[] = {{&nll, ORTH_F32, 1, {1, 1, 1, 1}}, {NULL, ORTH_F32, 1, {0, 1, 1, 1}}};
    orth_op_call call = {.in = in, .out = out, .num_in = 4, .num_out = 2, .attr = &attr};
    ORTH_TRY(g->kernels[ORTH_OP_softmax_xent](ctx, &call));
    *logprob = -nll;
    return ORTH_OK;
}

static int by_logit(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

static int32_t choose(orth_generator *g, const orth_sample_options *o)
{
    const int64_t V = o->num_tokens > 0 ? ORTH_MIN(o->num_tokens, g->model.vocab) : g->model.vocab;
    int64_t n = o->top_k > 0 ? ORTH_MIN(o->top_k, V) : V;
    for (int64_t i = 0; i < V; i++)
        g->order[i] = (candidate){g->logits[i], (int32_t)i};
    qsort(g->order, (size_t)V, sizeof *g->order, by_logit);
    if (o->temperature <= 0)
        return g->order[0].token;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        g->cumulative[i] = sum += exp(((double)g->order[i].logit - g->order[0].logit) / o->temperature);
    double keep = sum;
    for (int64_t i = 0; i < n && o->top_p < 1; i++) {
        if (g->cumulative[i] >= o->top_p * sum) { /* the token that crosses the mark still counts */
            keep = g->cumulative[i];
            n = i + 1;
            break;
        }
    }
    orth_rand4 r = orth_philox(o->seed, ORTH_STREAM_SAMPLE, 0, (uint64_t)g->past);
    double u = ((double)r.v[0] + 0.5) * 0x1p-32 * keep;
    int64_t i = 0;
    while (i < n - 1 && g->cumulative[i] < u)
        i++;
    return g->order[i].token;
}

/* Sorting and sampling need numbers. */
static orth_status check_finite(orth_ctx *ctx, const orth_generator *g)
{
    for (int64_t i = 0; i < g->model.vocab; i++)
        if (!isfinite(g->logits[i]))
            return ORTH_FAIL(ctx, ORTH_ERR_NUMERIC, "after %" PRId64 " tokens the model's score of token %" PRId64 " is %s: the "
                             "weights, or what they compute, are not finite", g->past, i,
                             isnan(g->logits[i]) ? "NaN" : "infinite");
    return ORTH_OK;
}

orth_status orth_generator_sample(orth_ctx *ctx, orth_generator *g, const orth_sample_options *options,
                                  int32_t *token, float *logprob)
{
    if (!g->fed)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "an empty prompt: at least one token must come first");
    ORTH_TRY(check_finite(ctx, g));
    *token = choose(g, options);
    return orth_generator_score(ctx, g, *token, logprob);
}
