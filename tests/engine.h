/* engine.h -- a compiled step over a fixture's weights, for tests of the whole engine. */
#ifndef ORTH_TESTS_ENGINE_H
#define ORTH_TESTS_ENGINE_H

#include "golden.h"
#include "program/check/check_flow.h"
#include "run/executor.h"
#include "train/setup.h"
#include "train/weights.h"

typedef struct {
    orth_model_config model;
    orth_model_shape shape;
    orth_compiled compiled;
    orth_executor *ex;
} engine;

/* A copy of a bound buffer, for free(); NULL if the program has none. */
static inline void *engine_get(const engine *e, orth_bind bind, int64_t index)
{
    const size_t bytes = orth_executor_size(e->ex, bind, index);
    orth_ctx ctx = {.rank = 0};
    void *host = bytes ? malloc(bytes) : NULL;
    if (host)
        CHECK_OK(&ctx, orth_executor_read(&ctx, e->ex, (orth_ref){bind, index, 0, bytes}, host));
    return host;
}

/* All of a bound buffer, if the program has it. */
static inline void engine_put(engine *e, orth_bind bind, int64_t index, const void *host)
{
    const size_t bytes = orth_executor_size(e->ex, bind, index);
    orth_ctx ctx = {.rank = 0};
    if (bytes)
        CHECK_OK(&ctx, orth_executor_write(&ctx, e->ex, (orth_ref){bind, index, 0, bytes}, host));
}

static inline double engine_loss(const engine *e)
{
    double loss = NAN, *got = engine_get(e, ORTH_BIND_LOSS, 0);
    if (got)
        loss = *got;
    free(got);
    return loss;
}

/* Values of the first update. */
static inline orth_step_values engine_step_values(const engine *e)
{
    orth_step_values *all = engine_get(e, ORTH_BIND_DATA, ORTH_DATA_STEP), first = *all;
    free(all);
    return first;
}

static inline void engine_set_step(engine *e, int update, orth_step_values values)
{
    orth_ctx ctx = {.rank = 0};
    const orth_ref ref = {ORTH_BIND_DATA, ORTH_DATA_STEP, (size_t)update * sizeof values, sizeof values};
    CHECK_OK(&ctx, orth_executor_write(&ctx, e->ex, ref, &values));
}

/* Parameter `index`: w [elems of the buffer] into the fp32 parameter, or bf16 copy, that the program has. */
static inline void engine_put_param(engine *e, orth_bind bind, int64_t index, const float *w)
{
    const orth_dtype type = orth_executor_type(e->ex, bind, index);
    const size_t elem = orth_dtype_bytes(type);
    const size_t n = orth_executor_size(e->ex, bind, index) / elem;
    void *values = malloc(n * elem + 1);
    for (size_t k = 0; k < n; k++)
        orth_store_f32(values, type, (int64_t)k, w[k]);
    engine_put(e, bind, index, values);
    free(values);
}

/* The step that `shape` describes, with the weights of the fixture. */
static inline void engine_open(orth_ctx *ctx, engine *e, const golden *g, const orth_model_shape *shape,
                               const orth_kernel_fn *kernels)
{
    orth_hf_source *src;
    CHECK_OK(ctx, orth_hf_open(ctx, &src, g->dir));
    *e = (engine){.model = *orth_hf_source_config(src), .shape = *shape};
    e->model.dropout = e->model.embed_dropout = e->model.attn_dropout = 0; /* PyTorch computed in evaluation mode */
    CHECK_OK(ctx, orth_compiled_build(ctx, &e->model, shape, &e->compiled));
    CHECK_OK(ctx, orth_executor_create(ctx, &e->ex, &e->compiled.program, kernels, NULL, false));
    for (int64_t i = 0; i < orth_model_num_params(&e->model); i++) {
        orth_param p;
        CHECK_OK(ctx, orth_model_param(ctx, &e->model, i, &p));
        float *w = calloc((size_t)orth_param_elems(&p), sizeof *w);
        CHECK_OK(ctx, orth_hf_read_param(ctx, src, i, w));
        engine_put_param(e, ORTH_BIND_MASTER, i, w);
        engine_put_param(e, ORTH_BIND_COPY, i, w);
        free(w);
    }
    orth_hf_close(ctx, src);
    CHECK_OK(ctx, orth_setup_rope_table(ctx, e->ex, &e->model));
}

static inline void engine_close(orth_ctx *ctx, engine *e)
{
    orth_executor_destroy(ctx, e->ex);
    orth_compiled_release(&e->compiled);
}

/* Rows of the fold storage of a sequence that context parallelism gives this rank. */
static inline int64_t engine_rows(const engine *e)
{
    return e->shape.seq_len / ORTH_MAX(e->shape.mesh.size[ORTH_GROUP_CP], 1);
}

static inline int64_t engine_first_row(const engine *e)
{
    return engine_rows(e) * e->shape.mesh.pos[ORTH_GROUP_CP];
}

/* Positions of the rows that sequence parallelism leaves on this rank. */
static inline void engine_fill_positions_sp(engine *e, int64_t n)
{
    int32_t *p = engine_get(e, ORTH_BIND_DATA, ORTH_DATA_POSITIONS_SP);
    int64_t tp = e->shape.mesh.size[ORTH_GROUP_TP], rows = p ? engine_rows(e) / tp : 0;
    int64_t first = engine_first_row(e) + rows * e->shape.mesh.pos[ORTH_GROUP_TP];
    for (int64_t i = 0; i < n * rows; i++)
        p[i] = (int32_t)orth_fold_pos(e->shape.seq_len, e->shape.parts, first + i % rows);
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_POSITIONS_SP, p);
    free(p);
}

/* Puts this rank's rows of sequences [0, n), all of the step's, of natural-order arrays into the step's data, in storage order. */
static inline void engine_fill(engine *e, int64_t n, const int32_t *tokens, const int32_t *targets,
                               const float *weights, const int32_t *doc)
{
    const int64_t T = e->shape.seq_len, rows = engine_rows(e);
    int32_t *t = malloc((size_t)(n * rows) * 4), *y = malloc((size_t)(n * rows) * 4), *p = malloc((size_t)(n * rows) * 4);
    int32_t *d = malloc((size_t)(n * rows) * 4), *s = malloc((size_t)n * 4);
    float *w = malloc((size_t)(n * rows) * 4);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t row = 0; row < rows; row++) {
            int parts = e->shape.mode == ORTH_MODE_DECODE ? 1 : e->shape.parts;
            int64_t pos = orth_fold_pos(T, parts, engine_first_row(e) + row), from = i * T + pos, to = i * rows + row;
            t[to] = tokens[from];
            y[to] = targets[from];
            w[to] = weights[from];
            p[to] = (int32_t)pos;
            d[to] = doc ? doc[from] : 0;
        }
        s[i] = (int32_t)i;
    }
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_TOKENS, t);
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_TARGETS, y);
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_WEIGHTS, w);
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_POSITIONS, p);
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_DOC_STARTS, d);
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_SEQ, s);
    engine_fill_positions_sp(e, n);
    free(t);
    free(y);
    free(w);
    free(p);
    free(d);
    free(s);
}

/* Program (of e->model and e->shape), executor and communicators of a rank. */
static inline orth_status engine_open_rank(orth_ctx *ctx, engine *e, orth_world *world, const orth_partition *s,
                                           orth_comm *comms[ORTH_NUM_GROUPS])
{
    int ranks[TEST_MAX_RANKS];
    ORTH_TRY(orth_compiled_build(ctx, &e->model, &e->shape, &e->compiled));
    ORTH_TRY(orth_executor_create(ctx, &e->ex, &e->compiled.program, orth_kernels_cpu(), NULL, false));
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        int n = orth_partition_group(s, orth_world_rank(world), (orth_group)g, ranks);
        if (n > 1)
            ORTH_TRY(orth_comm_create(ctx, world, &comms[g], orth_group_name((orth_group)g), n, ranks));
    }
    orth_executor_set_comms(e->ex, comms);
    return ORTH_OK;
}

/* What was planned and counted of memory; false: alike, else what is not in what[size]. */
static inline bool engine_memory_differs(orth_ctx *ctx, const engine *e, char *what, size_t size)
{
    orth_counted used;
    CHECK_OK(ctx, orth_executor_counted(ctx, e->ex, &used));
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        if (used.peak[s] != e->compiled.program.transient_offset[s] + e->compiled.program.peak_bytes[s]) {
            snprintf(what, size, "peak of %s memory: planned %zu bytes, counted %zu", orth_space_name((orth_space)s),
                     e->compiled.program.transient_offset[s] + e->compiled.program.peak_bytes[s], used.peak[s]);
            return true;
        }
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        for (int k = 0; k < ORTH_NUM_CLASSES; k++)
            if (used.bytes[s][k] != e->compiled.program.class_bytes[s][k]) {
                snprintf(what, size, "%s in %s memory: planned %zu bytes, counted %zu", orth_class_name((orth_class)k),
                         orth_space_name((orth_space)s), e->compiled.program.class_bytes[s][k], used.bytes[s][k]);
                return true;
            }
    return false;
}

/* Sizes of the groups of a rank, and its places in them. */
static inline orth_rank_groups engine_groups(orth_comm *const comms[ORTH_NUM_GROUPS])
{
    orth_rank_groups groups = {{0}};
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        groups.size[g] = comms[g] ? orth_comm_size(comms[g]) : 1;
        groups.pos[g] = comms[g] ? orth_comm_pos(comms[g]) : 0;
    }
    return groups;
}

#endif
