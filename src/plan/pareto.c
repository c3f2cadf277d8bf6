/* pareto.c -- see pareto.h. */
#include "plan/pareto.h"

#include "base/json_out.h"
#include "plan/recompute_auto.h"

typedef struct {
    orth_pareto *out;
    const orth_layout *layout;
    orth_programs_spec spec;
    orth_again_search *search;
    uint64_t *chosen;
    orth_pareto_price_fn price;
    void *user;
} making;

/* What all ranks compute, and how long it takes: of the plan of this very choice. */
static orth_status price_row(orth_ctx *ctx, making *x, orth_pareto_row *row)
{
    orth_run_plan plan;
    char *words = NULL;
    ORTH_TRY(orth_run_plan_make(ctx, &plan, x->layout, &x->spec, (orth_comm_method){0}));
    plan.total = orth_plan_total(plan.ranks, plan.num_ranks, 0, 0);
    orth_status s = x->price(ctx, x->user, &plan);
    row->flops = plan.total.cost.hardware_flops;
    row->step_s = plan.ranks[0].time.step_s;
    if (s == ORTH_OK)
        words = orth_again_text(ctx, &plan.programs.classes.blocks[0].layer, x->chosen, (int32_t)x->spec.model->layers);
    orth_run_plan_release(ctx, &plan);
    if (words)
        row->recomputed = orth_arena_printf(ctx, &x->out->arena, "%s", words);
    orth_mem_free(ctx, words);
    return s == ORTH_OK && !row->recomputed ? ORTH_ERR_NOMEM : s;
}

static orth_status add_row(orth_ctx *ctx, making *x, size_t limit)
{
    orth_again_result r;
    orth_pareto *p = x->out;
    ORTH_TRY(orth_again_choose(ctx, x->search, limit, 0, x->chosen, &r));
    if (p->num > 0 && p->rows[p->num - 1].worst_bytes == r.worst_bytes)
        return ORTH_OK;
    orth_pareto_row *row = &p->rows[p->num];
    *row = (orth_pareto_row){.worst_bytes = r.worst_bytes, .total_bytes = r.total_bytes, .added_flops = r.added_flops};
    ORTH_TRY(price_row(ctx, x, row));
    p->num++;
    return ORTH_OK;
}

static orth_status add_rows(orth_ctx *ctx, making *x)
{
    orth_again_result least, most;
    x->chosen = ORTH_ARENA_ARRAY(ctx, &x->out->arena, uint64_t, x->spec.model->layers);
    if (!x->chosen)
        return ORTH_ERR_NOMEM;
    x->spec.step.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = x->chosen, .holds = ORTH_RECOMPUTE_HOLDS_ALL};
    ORTH_TRY(orth_again_choose(ctx, x->search, 1, 0, x->chosen, &least));
    ORTH_TRY(orth_again_choose(ctx, x->search, 0, 0, x->chosen, &most));
    const size_t range = most.worst_bytes - least.worst_bytes;
    for (int i = 0; i < ORTH_PARETO_ROWS; i++)
        ORTH_TRY(add_row(ctx, x, most.worst_bytes - range / (ORTH_PARETO_ROWS - 1) * (size_t)i -
                                     range % (ORTH_PARETO_ROWS - 1) * (size_t)i / (ORTH_PARETO_ROWS - 1)));
    return ORTH_OK;
}

/* Less memory in no more time. */
static bool beats(const orth_pareto_row *a, const orth_pareto_row *b)
{
    return a->worst_bytes < b->worst_bytes && a->total_bytes <= b->total_bytes && a->step_s <= b->step_s;
}

/* Rows are chosen by FLOPs, which are not time: of two the one with fewer FLOPs may take longer. */
static void leave_out_beaten(orth_pareto *p)
{
    int kept = 0;
    for (int i = 0; i < p->num; i++) {
        bool beaten = false;
        for (int j = i + 1; j < p->num; j++)
            beaten = beaten || beats(&p->rows[j], &p->rows[i]);
        if (!beaten)
            p->rows[kept++] = p->rows[i];
    }
    p->num = kept;
}

orth_status orth_pareto_make(orth_ctx *ctx, orth_pareto *out, const orth_layout *layout, const orth_programs_spec *spec,
                             orth_pareto_price_fn price, void *user)
{
    orth_partition partition;
    making x = {.out = out, .layout = layout, .spec = *spec, .price = price, .user = user};
    *out = (orth_pareto){.num = 0};
    ORTH_TRY(orth_partition_make(ctx, &partition, layout, spec->model));
    x.spec.partition = &partition;
    orth_status s = orth_again_search_make(ctx, &x.search, &x.spec);
    if (s == ORTH_OK) {
        s = add_rows(ctx, &x);
        leave_out_beaten(out);
        orth_again_search_release(ctx, x.search);
    }
    orth_partition_release(ctx, &partition);
    if (s != ORTH_OK)
        orth_pareto_release(ctx, out);
    return s;
}

void orth_pareto_release(orth_ctx *ctx, orth_pareto *p)
{
    orth_arena_release(ctx, &p->arena);
}

/* ---- shown ---- */

char *orth_pareto_text(orth_ctx *ctx, const orth_pareto *p)
{
    orth_text t = {0};
    orth_text_add(ctx, &t, "  bytes of the worst rank   bytes of all ranks   FLOPs added   step, s   made again\n");
    for (int i = 0; i < p->num; i++) {
        const orth_pareto_row *r = &p->rows[i];
        orth_text_addf(ctx, &t, "%25zu %20zu %11.1f %% %9.4g   %s\n", r->worst_bytes, r->total_bytes,
                       100 * r->added_flops / (r->flops - r->added_flops), r->step_s, r->recomputed);
    }
    return orth_text_take(ctx, &t);
}

char *orth_pareto_json(orth_ctx *ctx, const orth_pareto *p)
{
    orth_text t = {0};
    orth_json_out j = {ctx, &t};
    orth_json_open(&j, NULL, '{');
    orth_json_open(&j, "pareto", '[');
    for (int i = 0; i < p->num; i++) {
        const orth_pareto_row *r = &p->rows[i];
        orth_json_open(&j, NULL, '{');
        orth_json_print(&j, "rank_bytes", "%zu", r->worst_bytes);
        orth_json_print(&j, "total_bytes", "%zu", r->total_bytes);
        orth_json_print(&j, "hardware_flops", "%.0f", r->flops);
        orth_json_print(&j, "added_flops", "%.0f", r->added_flops);
        orth_json_print(&j, "step_s", "%.9g", r->step_s);
        orth_json_string(&j, "recomputed", r->recomputed);
        orth_json_close(&j, '}');
    }
    orth_json_close(&j, ']');
    orth_json_close(&j, '}');
    orth_text_add(ctx, &t, "\n");
    return orth_text_take(ctx, &t);
}
