/* run_plan.c -- see run_plan.h. */
#include "plan/run_plan.h"

#include "base/machine.h"
#include "plan/peak.h"
#include "plan/recompute_auto.h"

/* ---- memory, FLOPs, traffic ---- */

static orth_plan_coords coords_of(const orth_mesh *m, int rank)
{
    return (orth_plan_coords){orth_mesh_group_pos(m, rank, ORTH_AXES_DP), orth_mesh_coord(m, rank, ORTH_AXIS_TP),
                              orth_mesh_coord(m, rank, ORTH_AXIS_PP), orth_mesh_coord(m, rank, ORTH_AXIS_CP)};
}

/* What is counted once for all ranks of a class. */
typedef struct {
    orth_traffic_calls calls;
    orth_cost own;  /* of the first rank's own instructions */
} class_counts;

/* Twins need the same. Bytes that a rank sends depend on where it stands in its groups, too. */
static orth_status plan_all(orth_ctx *ctx, orth_run_plan *p, orth_comm_method method, orth_arena *arena)
{
    class_counts *classes = ORTH_ARENA_ARRAY(ctx, arena, class_counts, p->num_ranks);
    if (!classes)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < p->num_ranks; r++) {
        const int twin = orth_classes_twin(&p->programs.classes, r), of = orth_classes_of(&p->programs.classes, r);
        const orth_rank_groups groups = orth_partition_groups(&p->partition, r);
        const orth_model_config *model = p->programs.spec.model;
        const orth_compiled *compiled;
        orth_ctx_tell(ctx, "ranks planned", r, p->num_ranks);
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(orth_programs_of(ctx, &p->programs, r, &compiled));
        const orth_program *program = &compiled->program;
        if (of == r) {
            ORTH_TRY(orth_traffic_count(ctx, arena, program, &groups, &classes[r].calls));
            classes[r].own = orth_program_cost_of_own(program);
        }
        p->ranks[r] = twin < r   ? p->ranks[twin]
                      : of < r   ? orth_plan_of_views(&p->ranks[of], &classes[of].own, program)
                                 : orth_plan_of(program, orth_model_num_elems(model), orth_model_num_trained(model, compiled->blocks.spec.params), 0);
        p->ranks[r].traffic = orth_traffic_of_calls(&classes[of].calls, program, &groups, method);
        p->ranks[r].coords = coords_of(&p->partition.mesh, r);
    }
    return ORTH_OK;
}

static orth_status plan_ranks(orth_ctx *ctx, orth_run_plan *p, orth_comm_method method)
{
    orth_arena arena = {0};
    const orth_status s = plan_all(ctx, p, method, &arena);
    orth_arena_release(ctx, &arena);
    return s;
}

orth_status orth_run_plan_make(orth_ctx *ctx, orth_run_plan *p, const orth_layout *layout, const orth_programs_spec *spec,
                               orth_comm_method method)
{
    orth_programs_spec full = *spec;
    const char *again = NULL;
    *p = (orth_run_plan){.ranks = NULL};
    ORTH_TRY(orth_partition_make(ctx, &p->partition, layout, spec->model));
    full.partition = &p->partition;
    p->num_ranks = p->partition.mesh.num_ranks;
    p->ranks = ORTH_NEW_ARRAY(ctx, orth_plan, p->num_ranks);
    orth_status s = p->ranks ? orth_again_resolve(ctx, &p->partition.arena, &full, &again) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_programs_make(ctx, &p->programs, &full);
    if (s == ORTH_OK)
        s = plan_ranks(ctx, p, method);
    for (int r = 0; s == ORTH_OK && r < p->num_ranks; r++)
        p->ranks[r].recomputed = again;
    if (s != ORTH_OK)
        orth_run_plan_release(ctx, p);
    return s;
}

/* ---- peaks ---- */

#define PEAK_ROWS_JSON 32
#define PEAK_ROWS_TEXT 16

/* Rank 0 and, if that is another, the rank that needs the most. Returns how many. */
static int peak_ranks(const orth_run_plan *p, int ranks[2])
{
    ranks[0] = ranks[1] = 0;
    for (int r = 1; r < p->num_ranks; r++)
        ranks[1] = p->ranks[r].total_bytes > p->ranks[ranks[1]].total_bytes ? r : ranks[1];
    return ranks[1] > 0 ? 2 : 1;
}

/* In words, or as JSON: an array. */
static orth_status write_peaks(orth_ctx *ctx, orth_run_plan *p, bool json, char **out)
{
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    int ranks[2];
    orth_status s = ORTH_OK;
    if (json)
        orth_json_open(&j, NULL, '[');
    for (int i = 0, n = peak_ranks(p, ranks); i < n && s == ORTH_OK; i++) {
        const orth_compiled *compiled;
        s = orth_programs_of(ctx, &p->programs, ranks[i], &compiled);
        if (s == ORTH_OK && json)
            orth_peak_add_json(&j, &compiled->program, p->ranks[ranks[i]].on_devices, ranks[i], PEAK_ROWS_JSON);
        else if (s == ORTH_OK)
            orth_peak_add_text(ctx, &text, &compiled->program, p->ranks[ranks[i]].on_devices, ranks[i], PEAK_ROWS_TEXT);
    }
    if (json)
        orth_json_close(&j, ']');
    char *taken = orth_text_take(ctx, &text);
    if (s == ORTH_OK && taken)
        *out = taken;
    else
        orth_mem_free(ctx, taken);
    return s == ORTH_OK && !taken ? ORTH_ERR_NOMEM : s;
}

orth_status orth_run_plan_find_peaks(orth_ctx *ctx, orth_run_plan *p)
{
    ORTH_TRY(write_peaks(ctx, p, true, &p->peaks));
    p->total.peaks = p->peaks;
    return ORTH_OK;
}

orth_status orth_run_plan_peaks_text(orth_ctx *ctx, orth_run_plan *p, char **out)
{
    return write_peaks(ctx, p, false, out);
}

char *orth_run_plan_largest_text(orth_ctx *ctx, const orth_run_plan *p)
{
    int ranks[2];
    peak_ranks(p, ranks);
    const orth_plan *most = &p->ranks[ranks[1]];
    char cores[128] = "";
    if (p->num_ranks > orth_machine_cores())
        snprintf(cores, sizeof cores, "%d ranks on the %d cores of this machine; for ranks with a device each: --cluster=NAME\n", p->num_ranks,
                 orth_machine_cores());
    return orth_mem_printf(ctx, "largest rank   %14zu B %9.3f GiB: rank %d (dp %d, tp %d, pp %d, cp %d)\n%s", most->total_bytes,
                           (double)most->total_bytes / (double)(1 << 30), ranks[1], most->coords.dp, most->coords.tp, most->coords.pp,
                           most->coords.cp, cores);
}

void orth_run_plan_release(orth_ctx *ctx, orth_run_plan *p)
{
    orth_mem_free(ctx, p->peaks);
    p->peaks = NULL;
    orth_programs_release(ctx, &p->programs);
    orth_mem_free(ctx, p->ranks);
    orth_partition_release(ctx, &p->partition);
    p->ranks = NULL;
}

orth_status orth_run_plan_check(orth_ctx *ctx, orth_run_plan *p)
{
    const orth_rank_source source = orth_programs_source(&p->programs);
    return orth_check_ranks(ctx, &source);
}

/* ---- timelines ---- */

#define MAX_DRAWN 64          /* ranks: a planned timeline of more shows some of them */
#define MAX_EVENTS (1 << 20)  /* about 130 MB: of more, too */

/* Ranks that a planned timeline shows: `worst` (-1: no matter), those of rank 0's pipeline in its first stages, and the first of all. */
typedef struct {
    int worst, stages, first, num;
} drawn_ranks;

static bool in_first_pipeline(const orth_run_plan *p, int rank)
{
    const orth_mesh *m = &p->partition.mesh;
    return orth_mesh_moved(m, 0, ORTH_AXIS_PP, orth_mesh_coord(m, rank, ORTH_AXIS_PP)) == rank;
}

static bool is_drawn(const orth_run_plan *p, const drawn_ranks *d, int rank)
{
    return rank < d->first || rank == d->worst || (in_first_pipeline(p, rank) && orth_mesh_coord(&p->partition.mesh, rank, ORTH_AXIS_PP) < d->stages);
}

int orth_run_plan_worst_of_stage(const orth_run_plan *p, int stage, orth_space s)
{
    int worst = -1;
    size_t most = 0;
    for (int r = 0; r < p->num_ranks; r++) {
        const size_t bytes = orth_memory_of_space(&p->ranks[r].memory, s);
        if (orth_mesh_coord(&p->partition.mesh, r, ORTH_AXIS_PP) != stage || (worst >= 0 && bytes <= most))
            continue;
        worst = r;
        most = bytes;
    }
    return worst;
}

int orth_run_plan_worst(const orth_run_plan *p)
{
    int worst = 0;
    for (int r = 1; r < p->num_ranks; r++) {
        const orth_plan *a = &p->ranks[r], *b = &p->ranks[worst];
        const double limits = (double)ORTH_MAX(b->limit_bytes, 1) / (double)ORTH_MAX(a->limit_bytes, 1);
        worst = (double)a->device_bytes * limits > (double)b->device_bytes ? r : worst;
    }
    return worst;
}

/* A span for each instruction, and at most one change of memory. */
static int64_t num_events(const orth_run_plan *p, int rank)
{
    return 2 * (int64_t)p->ranks[rank].num_instrs;
}

/* Counts a rank that is not drawn yet, if there is room for it. */
static bool has_room(const orth_run_plan *p, drawn_ranks *d, int rank, int64_t *room)
{
    if (is_drawn(p, d, rank))
        return true;
    if (num_events(p, rank) > *room)
        return false;
    *room -= num_events(p, rank);
    d->num++;
    return true;
}

/* The worst, one of each stage, then of few ranks the others, as far as there is room. */
static drawn_ranks drawn_of(const orth_run_plan *p)
{
    const int worst = orth_run_plan_worst(p), stages = p->partition.mesh.size[ORTH_AXIS_PP], most = p->num_ranks <= MAX_DRAWN ? p->num_ranks : 0;
    int64_t room = MAX_EVENTS - num_events(p, worst);
    drawn_ranks d = {.worst = worst, .num = 1};
    while (d.stages < stages && has_room(p, &d, orth_mesh_moved(&p->partition.mesh, 0, ORTH_AXIS_PP, d.stages), &room))
        d.stages++;
    while (d.stages == stages && d.first < most && has_room(p, &d, d.first, &room))
        d.first++;
    return d;
}

void orth_run_plan_describe_drawn(const orth_run_plan *p, char out[ORTH_DRAWN_MAX])
{
    const drawn_ranks d = drawn_of(p);
    const int stages = p->partition.mesh.size[ORTH_AXIS_PP];
    char some[96] = "one of each pipeline stage, ", more[40] = "", why[64] = "";
    if (d.num == p->num_ranks) {
        snprintf(out, ORTH_DRAWN_MAX, "all %d ranks", p->num_ranks);
        return;
    }
    if (d.num == 1)
        some[0] = '\0';
    else if (d.stages < stages)
        snprintf(some, sizeof some, "one of each of the first %d of %d pipeline stages, ", d.stages, stages);
    if (d.first > 0)
        snprintf(more, sizeof more, "ranks 0 to %d, ", d.first - 1);
    if (d.stages < stages || p->num_ranks <= MAX_DRAWN)
        snprintf(why, sizeof why, "; more would be over %d events", MAX_EVENTS);
    snprintf(out, ORTH_DRAWN_MAX, "%d of %d ranks: %s%s%srank %d, which needs the most memory%s", d.num, p->num_ranks, some, more, d.num > 1 ? "and " : "", d.worst, why);
}

/* Whether the simulation is to say when a rank's instructions ran: of those that are drawn, and of the pipeline whose bubble is read. */
static bool has_clock(const orth_run_plan *p, const drawn_ranks *d, int rank)
{
    return is_drawn(p, d, rank) || in_first_pipeline(p, rank);
}

/* NULL for ranks that have none. */
static orth_status make_clocks(orth_ctx *ctx, const orth_run_plan *p, const drawn_ranks *drawn, int64_t ***out)
{
    size_t bytes = (size_t)p->num_ranks * sizeof(int64_t *);
    for (int r = 0; r < p->num_ranks; r++)
        if (has_clock(p, drawn, r))
            bytes += (size_t)orth_clock_length(p->ranks[r].num_instrs) * sizeof(int64_t);
    int64_t **clocks = orth_mem_alloc(ctx, bytes);
    if (!clocks)
        return ORTH_ERR_NOMEM;
    int64_t *at = (int64_t *)(clocks + p->num_ranks);
    for (int r = 0; r < p->num_ranks; r++) {
        const bool wanted = has_clock(p, drawn, r);
        clocks[r] = wanted ? at : NULL;
        at += wanted ? orth_clock_length(p->ranks[r].num_instrs) : 0;
    }
    *out = clocks;
    return ORTH_OK;
}

orth_status orth_run_plan_clocks(orth_ctx *ctx, const orth_run_plan *p, int64_t ***out)
{
    return make_clocks(ctx, p, &(drawn_ranks){.worst = -1, .first = p->num_ranks}, out);
}

typedef struct {
    const orth_run_plan *plan;
    const drawn_ranks *drawn;  /* NULL: all that have clocks */
    int64_t *const *clocks;
    int64_t origin;            /* the earliest beginning of a rank */
    orth_arena arena;
    const orth_span **spans;   /* [pp] of the pipeline of rank 0 */
    bool traced;
    orth_trace trace;
} timeline;

static orth_status add_rank(orth_ctx *ctx, timeline *x, const orth_program *p, int rank)
{
    const orth_partition *s = &x->plan->partition;
    const int stage = orth_mesh_coord(&s->mesh, rank, ORTH_AXIS_PP);
    const orth_action_list *list = &s->schedule.lists[stage];
    orth_span *spans = ORTH_ARENA_ARRAY(ctx, &x->arena, orth_span, list->num_actions);
    if (!spans)
        return ORTH_ERR_NOMEM;
    char name[48];
    snprintf(name, sizeof name, "rank %d (stage %d)", rank, stage);
    orth_timeline_actions(p, x->clocks[rank], x->origin, spans, list->num_actions);
    if (x->traced && (!x->drawn || is_drawn(x->plan, x->drawn, rank)))
        orth_timeline_add(ctx, &x->trace, rank, name, p, x->plan->ranks[rank].on_devices, list, spans, x->clocks[rank], x->origin);
    if (orth_mesh_moved(&s->mesh, 0, ORTH_AXIS_PP, stage) == rank)
        x->spans[stage] = spans;
    return ORTH_OK;
}

/* Of the ranks that have clocks; without a file, of those that the bubble is read from. */
static orth_status add_ranks(orth_ctx *ctx, timeline *x, orth_run_plan *p)
{
    for (int r = 0; r < p->num_ranks; r++) {
        const orth_compiled *compiled;
        if (!x->clocks[r] || (!x->traced && !in_first_pipeline(p, r)))
            continue;
        ORTH_TRY(orth_programs_of(ctx, &p->programs, r, &compiled));
        ORTH_TRY(add_rank(ctx, x, &compiled->program, r));
    }
    return ORTH_OK;
}

static orth_status write_timeline(orth_ctx *ctx, orth_run_plan *p, int64_t *const *clocks, const char *path, const drawn_ranks *drawn,
                                  orth_bubble *bubble)
{
    timeline x = {.plan = p, .drawn = drawn, .clocks = clocks, .origin = clocks[0][0], .traced = path != NULL};
    char about[ORTH_DRAWN_MAX];
    for (int r = 1; r < p->num_ranks; r++)
        x.origin = clocks[r] ? ORTH_MIN(x.origin, clocks[r][0]) : x.origin;
    orth_run_plan_describe_drawn(p, about);
    x.trace.about = drawn && drawn->num < p->num_ranks ? about : NULL;
    x.spans = ORTH_ARENA_ARRAY(ctx, &x.arena, const orth_span *, p->partition.schedule.num_ranks);
    orth_status s = x.spans ? add_ranks(ctx, &x, p) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_timeline_bubble(ctx, &p->partition.schedule, x.spans, bubble);
    if (s == ORTH_OK && path)
        s = orth_trace_write(ctx, &x.trace, path);
    orth_trace_release(ctx, &x.trace);
    orth_arena_release(ctx, &x.arena);
    return s;
}

orth_status orth_run_plan_timeline(orth_ctx *ctx, orth_run_plan *p, int64_t *const *clocks, const char *path, orth_bubble *bubble)
{
    return write_timeline(ctx, p, clocks, path, NULL, bubble);
}

/* ---- planned time ---- */

static orth_status keep_spans(orth_ctx *ctx, orth_run_plan *p, int64_t *const *clocks)
{
    const orth_schedule *schedule = &p->partition.schedule;
    p->detail->spans = ORTH_ARENA_ARRAY(ctx, &p->partition.arena, const orth_span *, schedule->num_ranks);
    for (int stage = 0; p->detail->spans && stage < schedule->num_ranks; stage++) {
        const int rank = orth_mesh_moved(&p->partition.mesh, 0, ORTH_AXIS_PP, stage);
        const int32_t n = schedule->lists[stage].num_actions;
        orth_span *spans = ORTH_ARENA_ARRAY(ctx, &p->partition.arena, orth_span, n);
        const orth_compiled *compiled;
        if (!spans)
            return ORTH_ERR_NOMEM;
        ORTH_TRY(orth_programs_of(ctx, &p->programs, rank, &compiled));
        orth_timeline_actions(&compiled->program, clocks[rank], 0, spans, n);
        p->detail->spans[stage] = spans;
    }
    return p->detail->spans ? ORTH_OK : ORTH_ERR_NOMEM;
}

static orth_status sum_ops(orth_ctx *ctx, orth_run_plan *p, const int64_t *clock)
{
    const orth_compiled *compiled;
    ORTH_TRY(orth_programs_of(ctx, &p->programs, 0, &compiled));
    const orth_program *program = &compiled->program;
    for (int32_t i = 0; i < program->num_instrs; i++) {
        const orth_cost c = orth_instr_cost(&program->instrs[i]);
        const orth_op op = program->instrs[i].op;
        p->detail->op[op].calls++;
        p->detail->op[op].seconds += 1e-9 * (double)(orth_clock_end(clock, i) - orth_clock_begin(clock, i));
        p->detail->op[op].flops += c.hardware_flops;
        p->detail->op[op].bytes += c.bytes;
    }
    return ORTH_OK;
}

static orth_status keep_detail(orth_ctx *ctx, orth_run_plan *p, int64_t *const *clocks)
{
    *p->detail = (orth_step_detail){.spans = NULL};
    ORTH_TRY(keep_spans(ctx, p, clocks));
    return sum_ops(ctx, p, clocks[0]);
}

orth_status orth_run_plan_time(orth_ctx *ctx, orth_run_plan *p, const orth_timing *timing, const char *path)
{
    const orth_rank_source source = orth_programs_source(&p->programs);
    const drawn_ranks drawn = path ? drawn_of(p) : (drawn_ranks){.worst = -1};
    int64_t **clocks = NULL;
    orth_bubble bubble;
    orth_rank_time *times = ORTH_NEW_ARRAY(ctx, orth_rank_time, p->num_ranks);
    orth_status s = times ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && (path || p->detail))
        s = make_clocks(ctx, p, &drawn, &clocks);
    if (s == ORTH_OK)
        s = orth_simulate_step(ctx, &source, timing, times, clocks);
    for (int r = 0; s == ORTH_OK && r < p->num_ranks; r++)
        p->ranks[r].time = times[r];
    if (s == ORTH_OK && path)
        s = write_timeline(ctx, p, clocks, path, &drawn, &bubble);
    if (s == ORTH_OK && p->detail)
        s = keep_detail(ctx, p, clocks);
    orth_mem_free(ctx, clocks);
    orth_mem_free(ctx, times);
    return s;
}

orth_status orth_run_plan_price(orth_ctx *ctx, orth_run_plan *p, const orth_rates *rates, const char *path)
{
    const orth_timing timing = {.seconds = orth_seconds_by_rates, .user = (void *)rates};
    ORTH_TRY(orth_run_plan_time(ctx, p, &timing, path));
    orth_plan_price_total(&p->total, p->ranks, p->num_ranks, rates->flops * p->num_ranks);
    orth_plan_set_file_floor(&p->total, &rates->file, p->num_ranks);
    return ORTH_OK;
}
