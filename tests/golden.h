/* golden.h -- tests/fixtures/models/CASE for tests: what PyTorch computed, and how far we are from it.
 *
 * tests/fixtures/README.md lists the tensors. Everything is heap memory of the caller (free()); a
 * fixture that cannot be read fails the test with the message of the reader. Comparison of gradients
 * goes tensor by tensor of Hugging Face, which is finer than our fused parameters.
 */
#ifndef ORTH_TESTS_GOLDEN_H
#define ORTH_TESTS_GOLDEN_H

#include <math.h>

#include "ckpt/hf.h"
#include "ckpt/safetensors.h"
#include "test.h"

static const char *const golden_cases[] = {"gpt2", "gpt2_hub", "llama", "llama_tied", "mistral", "qwen2", "qwen3", "gpt2_erf"};
#define GOLDEN_NUM_CASES ((int)(sizeof golden_cases / sizeof golden_cases[0]))

typedef struct {
    char dir[1024];               /* the Hugging Face folder */
    orth_safetensors expected;
} golden;

static inline void golden_open(orth_ctx *ctx, golden *g, const char *name)
{
    char path[1100];
    snprintf(g->dir, sizeof g->dir, "%s/fixtures/models/%s", ORTH_TEST_DIR, name);
    snprintf(path, sizeof path, "%s/expected.safetensors", g->dir);
    CHECK_OK(ctx, orth_safetensors_open(ctx, &g->expected, path));
}

static inline void golden_close(orth_ctx *ctx, golden *g)
{
    orth_safetensors_close(ctx, &g->expected);
}

/* NULL if there is none: gradients of `packed` exist for some cases only. */
static inline const orth_st_tensor *golden_find(const golden *g, const char *batch, const char *what)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", batch, what);
    return orth_safetensors_find(&g->expected, name);
}

/* A copy of tensor BATCH.WHAT, which must be there and of this type. *n: elements; NULL: not wanted. */
static inline void *golden_copy(const golden *g, const char *batch, const char *what, orth_dtype dtype, int64_t *n)
{
    const orth_st_tensor *t = golden_find(g, batch, what);
    if (!t || t->dtype != dtype)
        fail_msg("%s: no %s.%s of type %s", g->dir, batch, what, orth_dtype_name(dtype));
    void *copy = malloc(t->num_bytes + 1);
    memcpy(copy, t->data, t->num_bytes);
    if (n)
        *n = t->elems;
    return copy;
}

static inline float *golden_tensor(const golden *g, const char *batch, const char *what, int64_t *n)
{
    return golden_copy(g, batch, what, ORTH_F32, n);
}

static inline double *golden_doubles(const golden *g, const char *batch, const char *what, int64_t *n)
{
    return golden_copy(g, batch, what, ORTH_F64, n);
}

static inline int32_t *golden_ints(const golden *g, const char *batch, const char *what, int64_t *n)
{
    return golden_copy(g, batch, what, ORTH_I32, n);
}

static inline double golden_number(const golden *g, const char *batch, const char *what)
{
    int64_t n;
    double *v = golden_doubles(g, batch, what, &n), x = v[0];
    assert_int_equal(n, 1);
    free(v);
    return x;
}

/* B and T of a batch. */
static inline void golden_shape(const golden *g, const char *batch, int64_t *B, int64_t *T)
{
    const orth_st_tensor *t = golden_find(g, batch, "input_ids");
    assert_non_null(t);
    *B = t->dim[t->num_dims - 2];
    *T = t->dim[t->num_dims - 1];
}

/* |a - b| / |b| in the Euclidean norm; b is the truth. NaN in a gives NaN, which is below nothing. */
static inline double rel_error_norm(const float *a, const float *b, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)a[i] - b[i];
        diff += d * d;
        norm += (double)b[i] * b[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

/* The relative errors of the gradients that were compared. */
typedef struct {
    double squares;
    int num;
} golden_errors;

/* Every Hugging Face tensor of parameter `index` of the registry, whose gradient in our order is `ours`:
 * relative error at most `fp32_limit`, or, if that is 0, at most bf16_times what PyTorch's own bf16 is
 * away. Fails the test naming the tensor. Adds the errors to `sum`, if it is not NULL. */
static inline void golden_check_grad(orth_ctx *ctx, const golden *g, const orth_model_config *c, const char *batch,
                                     int64_t index, const float *ours, double fp32_limit, double bf16_times,
                                     golden_errors *sum)
{
    orth_hf_tensor part[ORTH_HF_MAX_PARTS];
    int num_parts = 0;
    CHECK_OK(ctx, orth_hf_map_param(ctx, c, index, part, &num_parts));
    for (int i = 0; i < num_parts; i++) {
        char what[128];
        int64_t n;
        snprintf(what, sizeof what, "grad.%.95s", part[i].name);
        float *theirs = golden_tensor(g, batch, what, &n);
        float *mine = calloc((size_t)n, sizeof *mine);
        orth_hf_gather_rows(mine, &part[i], ours, 0, part[i].dim[0]);
        double limit = fp32_limit;
        if (limit <= 0) {
            snprintf(what, sizeof what, "bf16_error.grad.%.95s", part[i].name);
            limit = bf16_times * golden_number(g, batch, what);
        }
        const double error = rel_error_norm(mine, theirs, n);
        if (!(error <= limit))
            fail_msg("%s, %s: gradient of %s is off by %.3g in norm, allowed %.3g", g->dir, batch, part[i].name,
                     error, limit);
        if (sum) {
            sum->squares += error * error;
            sum->num++;
        }
        free(mine);
        free(theirs);
    }
}

/* The gradient of parameter `index` as PyTorch has it, in our order, `elems` elements. */
static inline float *golden_grad(orth_ctx *ctx, const golden *g, const orth_model_config *c, const char *batch,
                                 int64_t index, int64_t *elems)
{
    orth_hf_tensor part[ORTH_HF_MAX_PARTS];
    orth_param p;
    int num_parts = 0;
    CHECK_OK(ctx, orth_model_param(ctx, c, index, &p));
    CHECK_OK(ctx, orth_hf_map_param(ctx, c, index, part, &num_parts));
    *elems = p.num_dims == 2 ? p.dim[0] * p.dim[1] : p.dim[0];
    float *ours = calloc((size_t)*elems, sizeof *ours);
    for (int i = 0; i < num_parts; i++) {
        char what[128];
        snprintf(what, sizeof what, "grad.%.95s", part[i].name);
        float *theirs = golden_tensor(g, batch, what, NULL);
        orth_hf_scatter_rows(ours, &part[i], theirs, 0, part[i].dim[0]);
        free(theirs);
    }
    return ours;
}

#endif
