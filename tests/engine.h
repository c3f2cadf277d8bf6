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
    orth_unit unit;
    orth_executor *ex;
} engine;

/* The step that `shape` describes, with the weights of the fixture. */
static inline void engine_open(orth_ctx *ctx, engine *e, const golden *g, const orth_model_shape *shape,
                               const orth_kernel_fn *kernels)
{
    orth_hf_source *src;
    CHECK_OK(ctx, orth_hf_open(ctx, &src, g->dir));
    *e = (engine){.model = *orth_hf_source_config(src), .shape = *shape};
    e->model.dropout = e->model.embed_dropout = e->model.attn_dropout = 0; /* PyTorch computed in evaluation mode */
    CHECK_OK(ctx, orth_unit_build(ctx, &e->model, shape, &e->unit));
    CHECK_OK(ctx, orth_executor_create(ctx, &e->ex, &e->unit.program, kernels, NULL, false));
    for (int64_t i = 0; i < orth_model_num_params(&e->model); i++) {
        orth_param p;
        CHECK_OK(ctx, orth_model_param(ctx, &e->model, i, &p));
        float *w = calloc((size_t)orth_param_elems(&p), sizeof *w);
        CHECK_OK(ctx, orth_hf_read_param(ctx, src, i, w));
        float *master = orth_executor_find(e->ex, ORTH_BIND_MASTER, i);
        orth_bf16 *copy = orth_executor_find(e->ex, ORTH_BIND_COPY, i);
        for (int64_t k = 0; k < orth_param_elems(&p); k++) {
            if (master)
                master[k] = w[k];
            if (copy)
                copy[k] = orth_bf16_from_f32(w[k]);
        }
        free(w);
    }
    orth_hf_close(ctx, src);
    int64_t rows = shape->mode == ORTH_MODE_DECODE ? shape->cache_rows : shape->seq_len;
    float *table = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_ROPE_TABLE);
    if (table)
        orth_model_rope_table(&e->model, table, rows);
}

static inline void engine_close(orth_ctx *ctx, engine *e)
{
    orth_executor_destroy(ctx, e->ex);
    orth_unit_release(&e->unit);
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
    int32_t *p = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_POSITIONS_SP);
    int64_t tp = e->shape.mesh.size[ORTH_GROUP_TP], rows = p ? engine_rows(e) / tp : 0;
    int64_t first = engine_first_row(e) + rows * e->shape.mesh.pos[ORTH_GROUP_TP];
    for (int64_t i = 0; i < n * rows; i++)
        p[i] = (int32_t)orth_fold_pos(e->shape.seq_len, e->shape.parts, first + i % rows);
}

/* Puts this rank's rows of sequences [0, n) of natural-order arrays into the step's data, in storage order. */
static inline void engine_fill(engine *e, int64_t n, const int32_t *tokens, const int32_t *targets,
                               const float *weights, const int32_t *doc)
{
    const int64_t T = e->shape.seq_len, rows = engine_rows(e);
    int32_t *t = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_TOKENS);
    int32_t *y = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_TARGETS);
    int32_t *p = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_POSITIONS);
    int32_t *d = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_DOC_STARTS);
    int32_t *s = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_SEQ);
    float *w = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_WEIGHTS);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t row = 0; row < rows; row++) {
            int parts = e->shape.mode == ORTH_MODE_DECODE ? 1 : e->shape.parts;
            int64_t pos = orth_fold_pos(T, parts, engine_first_row(e) + row), from = i * T + pos, to = i * rows + row;
            if (t)
                t[to] = tokens[from];
            if (y)
                y[to] = targets[from];
            if (w)
                w[to] = weights[from];
            if (p)
                p[to] = (int32_t)pos;
            if (d)
                d[to] = doc ? doc[from] : 0;
        }
        if (s)
            s[i] = (int32_t)i;
    }
    engine_fill_positions_sp(e, n);
}

static inline orth_step_values *engine_step_values(engine *e)
{
    return orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_STEP);
}

/* Program (of e->model and e->shape), executor and communicators of a rank. */
static inline orth_status engine_open_rank(orth_ctx *ctx, engine *e, orth_world *world, const orth_spread *s,
                                           orth_comm *comms[ORTH_NUM_GROUPS])
{
    int ranks[64];
    ORTH_TRY(orth_unit_build(ctx, &e->model, &e->shape, &e->unit));
    ORTH_TRY(orth_executor_create(ctx, &e->ex, &e->unit.program, orth_kernels_cpu(), NULL, false));
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        int n = orth_spread_group(s, orth_world_rank(world), (orth_group)g, ranks);
        if (n > 1)
            ORTH_TRY(orth_comm_create(ctx, world, &comms[g], orth_group_name((orth_group)g), n, ranks));
    }
    orth_executor_set_comms(e->ex, comms);
    return ORTH_OK;
}

/* What was planned and counted of memory; false: alike, else what is not in what[size]. */
static inline bool engine_memory_differs(const engine *e, char *what, size_t size)
{
    size_t used[ORTH_NUM_CLASSES];
    orth_executor_counted(e->ex, used);
    for (int k = 0; k < ORTH_NUM_CLASSES; k++)
        if (used[k] != e->unit.program.class_bytes[k]) {
            snprintf(what, size, "%s: planned %zu bytes, counted %zu", orth_class_name((orth_class)k),
                     e->unit.program.class_bytes[k], used[k]);
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
