/* check_layout.c -- see check_layout.h. */
#include "parallel/check_layout.h"

/* The one program that exists at a time. */
typedef struct {
    const orth_spread *spread;
    const orth_model_config *model;
    const orth_model_shape *shape;
    orth_chunk *chunks; /* [num_chunks] */
    const orth_classes *classes; /* NULL: only programs that are the same are shared */
    int rank;           /* whose it is; -1: there is none */
    orth_model_blocks blocks;
    orth_program program;
} builder;

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
    rank = b->classes ? orth_classes_of(b->classes, rank) : rank;
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
    const builder *b = user;
    return b->classes ? orth_classes_of(b->classes, rank) : orth_spread_same_program(b->spread, rank);
}

static int group_of(void *user, int rank, orth_group group, int *ranks)
{
    return orth_spread_group(((builder *)user)->spread, rank, group, ranks);
}

static orth_rank_groups groups_of(void *user, int rank)
{
    return orth_spread_groups(((builder *)user)->spread, rank);
}

static orth_status with_programs(orth_ctx *ctx, builder b, orth_programs_fn fn, void *user)
{
    const orth_spread *spread = b.spread;
    b.chunks = ORTH_NEW_ARRAY(ctx, orth_chunk, spread->schedule.num_chunks);
    if (!b.chunks)
        return ORTH_ERR_NOMEM;
    const orth_rank_source source = {.num_ranks = spread->mesh.num_ranks,
                                     .user = &b,
                                     .same_as = same_as,
                                     .program = build,
                                     .group = group_of,
                                     .groups = groups_of};
    orth_status s = fn(ctx, user, &source);
    forget(&b);
    orth_mem_free(ctx, b.chunks);
    return s;
}

orth_status orth_with_programs(orth_ctx *ctx, const orth_spread *spread, const orth_model_config *model,
                               const orth_model_shape *shape, orth_programs_fn fn, void *user)
{
    orth_classes classes;
    ORTH_TRY(orth_classes_make(ctx, &classes, spread, model, shape));
    const builder b = {.spread = spread, .model = model, .shape = shape, .classes = &classes, .rank = -1};
    const orth_status s = with_programs(ctx, b, fn, user);
    orth_classes_release(ctx, &classes);
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
    const builder b = {.spread = spread, .model = model, .shape = shape, .rank = -1};
    return with_programs(ctx, b, check, NULL);
}
