/* explain_gradient.c -- see explain_gradient.h. */
#include "cli/explain_gradient.h"

#include <inttypes.h>
#include <stdio.h>

#include "program/lower/route.h"
#include "train/describe.h"

/* A weight of a run. */
typedef struct {
    const orth_config *cfg;
    orth_model_config model;
    orth_partition partition;
    orth_chunk *chunks;    /* [num_chunks] of the rank that is looked at */
    int64_t index;
    const char *name;
} weight;

static orth_status find(orth_ctx *ctx, weight *w)
{
    const int64_t n = orth_model_num_params(&w->model);
    w->index = orth_model_param_find(&w->model, w->name);
    if (w->index >= 0)
        return ORTH_OK;
    orth_param *params = ORTH_NEW_ARRAY(ctx, orth_param, n);
    const char **names = ORTH_NEW_ARRAY(ctx, const char *, n);
    orth_status s = params && names ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int64_t i = 0; s == ORTH_OK && i < n; i++) {
        s = orth_model_param(ctx, &w->model, i, &params[i]);
        names[i] = params[i].name;
    }
    if (s == ORTH_OK) {
        const char *near = orth_nearest(w->name, names, (int)n);
        s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "explain --gradient=%s: the model has no such weight; %s%s'", w->name,
                      near ? "did you mean '" : "one of them is '", near ? near : names[0]);
    }
    orth_mem_free(ctx, names);
    orth_mem_free(ctx, params);
    return s;
}

static void add_place(orth_ctx *ctx, orth_text *t, const weight *w, int rank, const orth_param_desc *p)
{
    const orth_mesh *m = &w->partition.mesh;
    orth_text_addf(ctx, t, "%s: %" PRId64, p->name, p->dim[0]);
    if (p->num_dims > 1)
        orth_text_addf(ctx, t, " x %" PRId64, p->dim[1]);
    orth_text_addf(ctx, t, " on rank %d of %d", rank, m->num_ranks);
    if (m->size[ORTH_AXIS_PP] > 1)
        orth_text_addf(ctx, t, " (stage %d of %d)", orth_mesh_coord(m, rank, ORTH_AXIS_PP), m->size[ORTH_AXIS_PP]);
    orth_text_add(ctx, t, "\n");
}

/* *held: whether the rank has the weight; only then something is added. */
static orth_status describe_on(orth_ctx *ctx, const weight *w, int rank, orth_text *t, bool *held)
{
    orth_model_shape shape = orth_setup_shape(w->cfg, ORTH_MODE_TRAIN);
    orth_model_blocks blocks;
    orth_partition_shape(&w->partition, rank, &shape, w->chunks);
    ORTH_TRY(orth_model_blocks_build(ctx, &w->model, &shape, &blocks));
    bool *all = ORTH_NEW_ARRAY(ctx, bool, blocks.spec.num_params);
    if (all) {
        orth_compile_held(&blocks.spec, all);
        *held = all[w->index];
        if (*held) {
            add_place(ctx, t, w, rank, &blocks.spec.params[w->index]);
            orth_route_print(ctx, t, &blocks.spec, w->index);
        }
    }
    orth_mem_free(ctx, all);
    orth_model_blocks_release(&blocks);
    return all ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* The first rank of each stage that has the weight: others differ in the shape of their slices at most. */
static orth_status describe_stages(orth_ctx *ctx, const weight *w, orth_text *t)
{
    const orth_mesh *m = &w->partition.mesh;
    for (int stage = 0; stage < m->size[ORTH_AXIS_PP]; stage++) {
        bool held = false;
        ORTH_TRY(describe_on(ctx, w, orth_mesh_moved(m, 0, ORTH_AXIS_PP, stage), t, &held));
    }
    return ORTH_OK;
}

static orth_status describe_rank(orth_ctx *ctx, const weight *w, int rank, orth_text *t)
{
    bool held = false;
    if (rank >= w->partition.mesh.num_ranks)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "rank %d is not one of the %d of this layout", rank, w->partition.mesh.num_ranks);
    ORTH_TRY(describe_on(ctx, w, rank, t, &held));
    if (!held)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "explain --gradient=%s: rank %d does not have this weight; without --rank, a rank that has "
                         "it is shown", w->name, rank);
    return ORTH_OK;
}

static orth_status print(orth_ctx *ctx, weight *w, int rank)
{
    orth_text t = {0};
    ORTH_TRY(find(ctx, w));
    orth_text_add(ctx, &t, "# stage  one for each  result  how it is made; sums of a tree: kept until the update, or transient\n");
    w->chunks = ORTH_ARENA_ARRAY(ctx, &w->partition.arena, orth_chunk, w->partition.schedule.num_chunks);
    if (!w->chunks)
        return ORTH_ERR_NOMEM;
    const orth_status s = rank < 0 ? describe_stages(ctx, w, &t) : describe_rank(ctx, w, rank, &t);
    char *text = orth_text_take(ctx, &t);
    if (s == ORTH_OK && text)
        fputs(text, stdout);
    orth_mem_free(ctx, text);
    return s == ORTH_OK && !text ? ORTH_ERR_NOMEM : s;
}

orth_status orth_explain_gradient(orth_ctx *ctx, const orth_config *cfg, const char *name, int rank)
{
    weight w = {.cfg = cfg, .name = name};
    const orth_layout layout = orth_setup_layout(cfg);
    ORTH_TRY(orth_describe_model(ctx, cfg, &w.model));
    ORTH_TRY(orth_partition_make(ctx, &w.partition, &layout, &w.model));
    const orth_status s = print(ctx, &w, rank);
    orth_partition_release(ctx, &w.partition);
    return s;
}
