/* timeline.c -- see timeline.h. */
#include "train/timeline.h"

#include "parallel/check_layout.h"

orth_status orth_timeline_clocks(orth_ctx *ctx, const orth_run_plan *p, int64_t ***out)
{
    size_t bytes = (size_t)p->num_ranks * sizeof(int64_t *);
    for (int r = 0; r < p->num_ranks; r++)
        bytes += (size_t)(p->ranks[r].num_instrs + 1) * sizeof(int64_t);
    int64_t **clocks = orth_mem_alloc(ctx, bytes);
    if (!clocks)
        return ORTH_ERR_NOMEM;
    int64_t *at = (int64_t *)(clocks + p->num_ranks);
    for (int r = 0; r < p->num_ranks; r++) {
        clocks[r] = at;
        at += p->ranks[r].num_instrs + 1;
    }
    *out = clocks;
    return ORTH_OK;
}

/* ---- a file of all ranks ---- */

typedef struct {
    const orth_run_plan *plan;
    int64_t *const *clocks;
    int64_t origin;            /* the earliest beginning of a rank */
    orth_arena arena;
    const orth_span **spans;   /* [pp] of the pipeline of rank 0 */
    orth_trace trace;
} timeline;

static orth_status add_rank(orth_ctx *ctx, timeline *x, const orth_program *p, int rank)
{
    const orth_spread *s = &x->plan->spread;
    const int stage = orth_mesh_coord(&s->mesh, rank, ORTH_AXIS_PP);
    const orth_action_list *list = &s->schedule.lists[stage];
    orth_span *spans = ORTH_ARENA_ARRAY(ctx, &x->arena, orth_span, list->num_actions);
    if (!spans)
        return ORTH_ERR_NOMEM;
    char name[48];
    snprintf(name, sizeof name, "rank %d (stage %d)", rank, stage);
    orth_timeline_actions(p, x->clocks[rank], x->origin, spans, list->num_actions);
    orth_timeline_add(ctx, &x->trace, rank, name, p, list, spans, x->clocks[rank], x->origin);
    if (orth_mesh_moved(&s->mesh, 0, ORTH_AXIS_PP, stage) == rank)
        x->spans[stage] = spans;
    return ORTH_OK;
}

static orth_status add_all(orth_ctx *ctx, void *user, const orth_rank_source *source)
{
    timeline *x = user;
    for (int r = 0; r < source->num_ranks; r++) {
        orth_rank_program program;
        ORTH_TRY(source->program(ctx, source->user, r, &program));
        ORTH_TRY(add_rank(ctx, x, program.program, r));
    }
    return ORTH_OK;
}

orth_status orth_timeline_write(orth_ctx *ctx, const orth_run_plan *p, const orth_config *cfg,
                                const orth_model_config *model, int64_t *const *clocks, const char *path,
                                orth_bubble *bubble)
{
    timeline x = {.plan = p, .clocks = clocks, .origin = clocks[0][0]};
    const orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    for (int r = 1; r < p->num_ranks; r++)
        x.origin = ORTH_MIN(x.origin, clocks[r][0]);
    x.spans = ORTH_ARENA_ARRAY(ctx, &x.arena, const orth_span *, p->spread.schedule.num_ranks);
    orth_status s = x.spans ? orth_with_programs(ctx, &p->spread, model, &shape, add_all, &x) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_timeline_bubble(ctx, &p->spread.schedule, x.spans, bubble);
    if (s == ORTH_OK && path)
        s = orth_trace_write(ctx, &x.trace, path);
    orth_trace_release(ctx, &x.trace);
    orth_arena_release(ctx, &x.arena);
    return s;
}

/* ---- planned time ---- */

typedef struct {
    const orth_rates *rates;
    orth_rank_time *times;
    int64_t *const *clocks;
} pricing;

static orth_status simulate(orth_ctx *ctx, void *user, const orth_rank_source *source)
{
    pricing *x = user;
    return orth_simulate_step(ctx, source, orth_seconds_by_rates, (void *)x->rates, x->times, x->clocks);
}

orth_status orth_run_plan_price(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                                const orth_rates *rates, const char *path)
{
    const orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    int64_t **clocks = NULL;
    orth_bubble bubble;
    pricing x = {.rates = rates, .times = ORTH_NEW_ARRAY(ctx, orth_rank_time, p->num_ranks)};
    orth_status s = x.times ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && path)
        s = orth_timeline_clocks(ctx, p, &clocks);
    x.clocks = clocks;
    if (s == ORTH_OK)
        s = orth_with_programs(ctx, &p->spread, model, &shape, simulate, &x);
    for (int r = 0; s == ORTH_OK && r < p->num_ranks; r++)
        p->ranks[r].time = x.times[r];
    if (s == ORTH_OK)
        orth_plan_price_total(&p->total, p->ranks, p->num_ranks, rates->flops * p->num_ranks);
    if (s == ORTH_OK && path)
        s = orth_timeline_write(ctx, p, cfg, model, clocks, path, &bubble);
    orth_mem_free(ctx, clocks);
    orth_mem_free(ctx, x.times);
    return s;
}
