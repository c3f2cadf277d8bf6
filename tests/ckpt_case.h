/* ckpt_case.h -- what the tests of src/ckpt share: a scratch folder, models small enough to look at,
 * parameters filled with recognisable numbers. */
#ifndef ORTH_TESTS_CKPT_CASE_H
#define ORTH_TESTS_CKPT_CASE_H

#include "test.h"

#include <unistd.h>

#include "base/files.h"
#include "ckpt/folder.h"

static inline char *scratch_dir(void)
{
    char *path = strdup("/tmp/orth_ckpt_XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void scratch_free(orth_ctx *ctx, char *path)
{
    CHECK_OK(ctx, orth_path_remove(ctx, path));
    free(path);
}

/* "dir/name" in a buffer of the caller's. */
#define AT(buffer, ...) (snprintf((buffer), sizeof(buffer), __VA_ARGS__), (buffer))

typedef struct {
    orth_model_config config;
    int64_t num_params;
    float **p;                    /* [num_params]: weights, then m, then v of each */
    orth_checkpoint_array *arrays;
} model_case;

static inline orth_model_config case_config(orth_ctx *ctx, const char *preset)
{
    orth_model_config c = {0};
    CHECK_OK(ctx, orth_model_preset(ctx, preset, &c));
    c.vocab = 48;
    c.max_seq = 16;
    c.rope_original_seq = c.rope_factor == 1.0 ? 16 : 8;
    return c;
}

static inline model_case case_make(orth_ctx *ctx, const orth_model_config *c, uint64_t seed)
{
    model_case m = {.config = *c, .num_params = orth_model_num_params(c)};
    CHECK_OK(ctx, orth_model_config_check(ctx, c));
    m.p = calloc((size_t)m.num_params * 3, sizeof *m.p);
    m.arrays = calloc((size_t)m.num_params, sizeof *m.arrays);
    for (int64_t i = 0; i < m.num_params; i++) {
        orth_param q;
        CHECK_OK(ctx, orth_model_param(ctx, c, i, &q));
        for (int k = 0; k < 3; k++) {
            float *x = malloc((size_t)orth_param_elems(&q) * sizeof *x);
            for (int64_t j = 0; j < orth_param_elems(&q); j++)
                x[j] = seed ? test_rand(seed + (uint64_t)k, ((uint64_t)i << 32) + (uint64_t)j) : -7.0f;
            m.p[k * m.num_params + i] = x;
        }
        m.arrays[i] = (orth_checkpoint_array){i, m.p[i], m.p[m.num_params + i], m.p[2 * m.num_params + i]};
    }
    return m;
}

static inline void case_free(model_case *m)
{
    for (int64_t i = 0; i < 3 * m->num_params; i++)
        free(m->p[i]);
    free(m->p);
    free(m->arrays);
}

static inline int64_t case_elems(orth_ctx *ctx, const model_case *m, int64_t i)
{
    orth_param q;
    CHECK_OK(ctx, orth_model_param(ctx, &m->config, i, &q));
    return orth_param_elems(&q);
}

/* Weights, and moments if asked for, are the same bits. */
static inline void case_check_equal(orth_ctx *ctx, const model_case *a, const model_case *b, bool moments)
{
    assert_int_equal(a->num_params, b->num_params);
    for (int64_t i = 0; i < a->num_params * (moments ? 3 : 1); i++)
        assert_memory_equal(a->p[i], b->p[i], (size_t)case_elems(ctx, a, i % a->num_params) * 4);
}

static inline void write_text(orth_ctx *ctx, const char *path, const char *text)
{
    CHECK_OK(ctx, orth_file_write(ctx, path, text, strlen(text)));
}

static inline void quiet(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    (void)rank, (void)level, (void)component;
    if (user)
        snprintf(user, 1024, "%s", text);
}

#endif
