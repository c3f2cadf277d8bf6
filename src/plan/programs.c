/* programs.c -- see programs.h. */
#include "plan/programs.h"

#include "base/pool.h"
#include "program/check/check.h"
#include "program/compile.h"
#include "program/passes/order.h"
#include "program/passes/views.h"

/* ---- one program ---- */

orth_status orth_compiled_build(orth_ctx *ctx, const orth_model_config *model, const orth_model_shape *shape,
                                orth_compiled *out)
{
    return orth_compiled_build_for(ctx, model, shape, orth_pool_num_threads(ctx->pool), NULL, out);
}

orth_status orth_compiled_build_for(orth_ctx *ctx, const orth_model_config *model, const orth_model_shape *shape,
                                    int num_threads, orth_place_memory *memory, orth_compiled *out)
{
    out->shared = false;
    ORTH_TRY(orth_model_blocks_build(ctx, model, shape, &out->blocks));
    orth_program_init(ctx, &out->program);
    orth_status s = orth_compile(ctx, &out->blocks.spec, &out->program);
    if (s == ORTH_OK)
        s = orth_place(ctx, &out->program, num_threads, ctx->isa, memory);
    if (s == ORTH_OK)
        s = orth_order(ctx, &out->program);
    if (s == ORTH_OK)
        s = orth_check(ctx, &out->program);
    if (s != ORTH_OK)
        orth_compiled_release(out);
    return s;
}

void orth_compiled_release(orth_compiled *u)
{
    orth_program_release(&u->program);
    if (!u->shared)
        orth_model_blocks_release(&u->blocks);
}

/* ---- of one rank ---- */

orth_status orth_rank_programs_build(orth_ctx *ctx, const orth_programs_spec *spec, int rank, orth_place_memory *memory,
                                     orth_chunk *chunks, orth_rank_programs *out)
{
    *out = (orth_rank_programs){.shape = spec->step, .evaluates = spec->evaluates};
    orth_partition_shape(spec->partition, rank, &out->shape, chunks);
    ORTH_TRY(orth_compiled_build_for(ctx, spec->model, &out->shape, spec->num_threads, memory, &out->step));
    if (!spec->evaluates)
        return ORTH_OK;
    orth_model_shape eval = spec->eval;
    eval.external_params = true; /* it reads those of the step, and lies over the step's transient buffers (orth_place_reserve) */
    eval.mesh = out->shape.mesh;
    eval.chunks = out->shape.chunks;
    eval.num_chunks = out->shape.num_chunks;
    orth_status s = orth_compiled_build_for(ctx, spec->model, &eval, spec->num_threads, memory, &out->eval);
    if (s == ORTH_OK)
        orth_place_reserve(&out->step.program, &out->eval.program);
    else
        orth_compiled_release(&out->step);
    return s;
}

void orth_rank_programs_release(orth_rank_programs *u)
{
    orth_compiled_release(&u->step);
    if (u->evaluates)
        orth_compiled_release(&u->eval);
}

/* ---- of all ranks ---- */

orth_status orth_programs_make(orth_ctx *ctx, orth_programs *out, const orth_programs_spec *spec)
{
    *out = (orth_programs){.ctx = ctx, .spec = *spec, .lock = PTHREAD_MUTEX_INITIALIZER};
    ORTH_TRY(orth_classes_make(ctx, &out->classes, spec->partition, spec->model, &spec->step));
    out->of = ORTH_ARENA_ARRAY(ctx, &out->arena, orth_rank_programs *, spec->partition->mesh.num_ranks);
    if (!out->of)
        orth_programs_release(ctx, out);
    return out->of ? ORTH_OK : ORTH_ERR_NOMEM;
}

void orth_programs_release(orth_ctx *ctx, orth_programs *p)
{
    for (int r = 0; p->of && r < p->spec.partition->mesh.num_ranks; r++)
        if (p->of[r])
            orth_rank_programs_release(p->of[r]);
    p->of = NULL;
    orth_place_forget(ctx, &p->places);
    orth_classes_release(ctx, &p->classes);
    orth_arena_release(ctx, &p->arena);
}

static int32_t shard_of(const orth_programs *p, int rank)
{
    return orth_mesh_coord(&p->spec.partition->mesh, rank, ORTH_AXIS_SHARD);
}

static orth_status bind(orth_ctx *ctx, orth_compiled *u, int32_t shard)
{
    return orth_program_bind(ctx, &u->program, u->blocks.spec.params, u->blocks.spec.num_params, shard);
}

/* With the ctx of p: what is compiled is kept when the rank that asks has ended. */
static orth_status compile_first(orth_programs *p, int rank)
{
    orth_rank_programs *programs = ORTH_ARENA_ARRAY(p->ctx, &p->arena, orth_rank_programs, 1);
    orth_chunk *chunks = ORTH_ARENA_ARRAY(p->ctx, &p->arena, orth_chunk, p->spec.partition->schedule.num_chunks);
    if (!programs || !chunks)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_rank_programs_build(p->ctx, &p->spec, rank, &p->places, chunks, programs));
    p->of[rank] = programs;
    ORTH_TRY(bind(p->ctx, &programs->step, shard_of(p, rank)));
    return programs->evaluates ? bind(p->ctx, &programs->eval, shard_of(p, rank)) : ORTH_OK;
}

/* Those that `rank` is the lowest to share. */
static orth_status find(orth_ctx *ctx, orth_programs *p, int rank)
{
    if (p->of[rank])
        return ORTH_OK;
    const orth_status s = compile_first(p, rank);
    if (s != ORTH_OK && ctx != p->ctx) { /* the rank that asked reports it */
        ctx->error = p->ctx->error;
        orth_ctx_clear_error(p->ctx);
    }
    return s;
}

orth_status orth_programs_of(orth_ctx *ctx, orth_programs *p, int rank, const orth_compiled **out)
{
    const int of = orth_classes_of(&p->classes, rank);
    ORTH_TRY(find(ctx, p, of));
    *out = &p->of[of]->step;
    return bind(ctx, &p->of[of]->step, shard_of(p, rank));
}

static orth_status share(orth_ctx *ctx, const orth_compiled *of, const orth_model_shape *shape, int32_t shard, orth_compiled *out)
{
    out->blocks = of->blocks;
    out->blocks.spec.mesh = shape->mesh;
    out->shared = true;
    return orth_program_share(ctx, &of->program, of->blocks.spec.params, of->blocks.spec.num_params, shard, &out->program);
}

orth_status orth_programs_take(orth_ctx *ctx, orth_programs *p, int rank, orth_chunk *chunks, orth_rank_programs *out)
{
    const int first = orth_classes_program(&p->classes, rank);
    /* Ranks ask at the same time: one compiles. From then on nobody writes p->of[first]; share copies what is the rank's own. */
    pthread_mutex_lock(&p->lock);
    orth_status s = find(ctx, p, first);
    pthread_mutex_unlock(&p->lock);
    ORTH_TRY(s);
    const orth_rank_programs *of = p->of[first];
    *out = (orth_rank_programs){.shape = p->spec.step, .evaluates = of->evaluates};
    orth_partition_shape(p->spec.partition, rank, &out->shape, chunks);
    ORTH_TRY(share(ctx, &of->step, &out->shape, shard_of(p, rank), &out->step));
    if (!of->evaluates)
        return ORTH_OK;
    s = share(ctx, &of->eval, &out->shape, shard_of(p, rank), &out->eval);
    if (s != ORTH_OK)
        orth_compiled_release(&out->step);
    return s;
}

static orth_status program_of(orth_ctx *ctx, void *user, int rank, orth_rank_program *out)
{
    const orth_compiled *u;
    ORTH_TRY(orth_programs_of(ctx, user, rank, &u));
    *out = (orth_rank_program){&u->program, u->blocks.spec.params, u->blocks.spec.num_params};
    return ORTH_OK;
}

static int same_as(void *user, int rank)
{
    return orth_classes_of(&((orth_programs *)user)->classes, rank);
}

static int twin_of(void *user, int rank)
{
    return orth_classes_twin(&((orth_programs *)user)->classes, rank);
}

static const orth_param_desc *params_of(void *user, int rank)
{
    return orth_classes_params(&((orth_programs *)user)->classes, rank);
}

static int group_of(void *user, int rank, orth_group group, int *ranks)
{
    return orth_partition_group(((orth_programs *)user)->spec.partition, rank, group, ranks);
}

static orth_rank_groups groups_of(void *user, int rank)
{
    return orth_partition_groups(((orth_programs *)user)->spec.partition, rank);
}

orth_rank_source orth_programs_source(orth_programs *p)
{
    return (orth_rank_source){.num_ranks = p->spec.partition->mesh.num_ranks, .user = p, .same_as = same_as, .twin_of = twin_of,
                              .program = program_of, .params = params_of, .group = group_of, .groups = groups_of, .checked = true};
}

orth_status orth_check_layout(orth_ctx *ctx, const orth_partition *partition, const orth_model_config *model,
                              const orth_model_shape *shape)
{
    const orth_programs_spec spec = {.partition = partition, .model = model, .step = *shape, .num_threads = 1};
    orth_programs programs;
    ORTH_TRY(orth_programs_make(ctx, &programs, &spec));
    const orth_rank_source source = orth_programs_source(&programs);
    const orth_status s = orth_check_ranks(ctx, &source);
    orth_programs_release(ctx, &programs);
    return s;
}
