/* check_layout.c -- see check_layout.h. */
#include "parallel/check_layout.h"

/* The one program that exists at a time. */
typedef struct {
    const orth_spread *spread;
    const orth_model_config *model;
    const orth_model_shape *shape;
    orth_chunk *chunks; /* [num_chunks] */
    int rank;           /* whose it is; -1: there is none */
    orth_model_blocks blocks;
    orth_program program;
} builder;

int orth_spread_same_program(const orth_spread *s, int rank)
{
    /* Replicas with equal shares differ in their sequences only; without ZeRO, so do all data-parallel ranks. */
    if (s->shares)
        return rank;
    return orth_mesh_group_member(&s->mesh, rank, orth_layout_deals_state(&s->layout) ? ORTH_AXES_REPLICATE : ORTH_AXES_DP, 0);
}

static void forget(builder *b)
{
    if (b->rank < 0)
        return;
    orth_program_release(&b->program);
    orth_model_blocks_release(&b->blocks);
    b->rank = -1;
}

static orth_status build(orth_ctx *ctx, void *user, int rank, orth_rank_program *out)
{
    builder *b = user;
    if (b->rank != rank) {
        orth_model_shape shape = *b->shape;
        forget(b);
        orth_spread_shape(b->spread, rank, &shape, b->chunks);
        ORTH_TRY(orth_model_blocks_build(ctx, b->model, &shape, &b->blocks));
        orth_program_init(ctx, &b->program);
        b->rank = rank;
        ORTH_TRY(orth_compile(ctx, &b->blocks.spec, &b->program));
    }
    *out = (orth_rank_program){&b->program, b->blocks.spec.params, b->blocks.spec.num_params};
    return ORTH_OK;
}

static int same_as(void *user, int rank)
{
    return orth_spread_same_program(((builder *)user)->spread, rank);
}

static int group_of(void *user, int rank, orth_group group, int *ranks)
{
    return orth_spread_group(((builder *)user)->spread, rank, group, ranks);
}

orth_status orth_with_programs(orth_ctx *ctx, const orth_spread *spread, const orth_model_config *model,
                               const orth_model_shape *shape, orth_programs_fn fn, void *user)
{
    builder b = {.spread = spread, .model = model, .shape = shape, .rank = -1};
    b.chunks = ORTH_NEW_ARRAY(ctx, orth_chunk, spread->schedule.num_chunks);
    if (!b.chunks)
        return ORTH_ERR_NOMEM;
    const orth_rank_source source = {.num_ranks = spread->mesh.num_ranks,
                                     .user = &b,
                                     .same_as = same_as,
                                     .program = build,
                                     .group = group_of};
    orth_status s = fn(ctx, user, &source);
    forget(&b);
    orth_mem_free(ctx, b.chunks);
    return s;
}

static orth_status check(orth_ctx *ctx, void *user, const orth_rank_source *source)
{
    (void)user;
    return orth_check_ranks(ctx, source);
}

orth_status orth_check_layout(orth_ctx *ctx, const orth_spread *spread, const orth_model_config *model,
                              const orth_model_shape *shape)
{
    return orth_with_programs(ctx, spread, model, shape, check, NULL);
}
