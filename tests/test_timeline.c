/* test_timeline.c -- programs in time: simulated from their instructions, measured, drawn from either. */
#include "schedule_case.h"

#include <jansson.h>
#include <math.h>

#include "layouts.h"
#include "plan/programs.h"
#include "plan/timeline.h"
#include "plan/simulate.h"
#include "run_case.h"
#include "train/describe.h"

/* ---- compiled programs in unit time ---- */

/* Seconds of each kind of action; the first computing instruction of one takes them all, whatever belongs to none, and
 * every call, takes no time. */
typedef struct {
    const orth_schedule *schedule;
    double time[ORTH_NUM_ACTION_KINDS];
} units;

static double unit_seconds(void *user, const orth_program *p, int32_t i, int k, int rank, const orth_rank_groups *groups)
{
    (void)rank;
    const units *u = user;
    const int32_t action = p->instrs[i].action;
    (void)k;
    if (orth_op_is_comm(p->instrs[i].op) || action < 0)
        return 0;
    for (int32_t before = i - 1; before >= 0 && p->instrs[before].action == action; before--)
        if (!orth_op_is_comm(p->instrs[before].op))
            return 0;
    const orth_action_list *list = &u->schedule->lists[groups->pos[ORTH_GROUP_PP]];
    double s = u->time[list->actions[action].kind];
    bool alone = true; /* a weight gradient that was made with the input's has no instructions */
    for (int32_t n = i; n < p->num_instrs && alone; n++)
        alone = p->instrs[n].action != action + 1;
    return s + (alone && action + 1 < list->num_actions && list->actions[action + 1].kind == ORTH_ACTION_W
                    ? u->time[ORTH_ACTION_W] : 0);
}

static void with_programs(orth_ctx *ctx, const orth_partition *partition, const orth_model_config *model, const orth_model_shape *shape,
                          orth_status (*fn)(orth_ctx *, void *, const orth_rank_source *), void *user)
{
    const orth_programs_spec spec = {.partition = partition, .model = model, .step = *shape, .num_threads = 1};
    orth_programs programs;
    CHECK_OK(ctx, orth_programs_make(ctx, &programs, &spec));
    const orth_rank_source source = orth_programs_source(&programs);
    CHECK_OK(ctx, fn(ctx, user, &source));
    orth_programs_release(ctx, &programs);
}

static orth_status simulate_compiled(orth_ctx *ctx, void *user, const orth_rank_source *source)
{
    void **both = user;
    const orth_timing timing = {.seconds = unit_seconds, .user = both[0]};
    return orth_simulate_step(ctx, source, &timing, both[1], NULL);
}

/* Length of the step that the programs of `name` make. */
static double length_of_programs(orth_ctx *ctx, const char *name, int p, int v, int m, double f, double bi, double w)
{
    layout_case c = layout_base_case(1, 0);
    c.model.layers = p * v;
    c.model.tied = false;
    c.layout.pp = p;
    c.layout.pipeline = name;
    c.layout.virtual_stages = v;
    c.layout.global_batch = m;
    orth_partition partition;
    const orth_model_shape shape = layout_shape(&c);
    CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c.layout, &c.model));
    units u = {&partition.schedule, {f, bi + w, bi, w}};
    orth_rank_time times[8];
    void *both[] = {&u, times};
    with_programs(ctx, &partition, &c.model, &shape, simulate_compiled, both);
    orth_partition_release(ctx, &partition);
    return times[0].step_s;
}

/* What is run, not only the lists that it was made from: its receives, waits and bounded sends cost nothing more. */
TEST(programs_of_every_schedule_have_the_bubble_of_its_formula)
{
    static const double cost[][3] = {{1, 1, 1}, {3, 4, 2}};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 2; k++) {
        const double f = cost[k][0], bi = cost[k][1], w = cost[k][2], b = bi + w;
        for (int p = 2; p <= 4; p++) {
            for (int m = p; m <= 2 * p; m += p) {
                const double work = m * (f + b), one = (p - 1) * (f + b);
                assert_true(length_of_programs(ctx, "naive", p, 1, m, f, bi, w) == work + m * one);
                assert_true(length_of_programs(ctx, "gpipe", p, 1, m, f, bi, w) == work + one);
                assert_true(length_of_programs(ctx, "1f1b", p, 1, m, f, bi, w) == work + one);
                assert_true(length_of_programs(ctx, "pipedream", p, 1, m, f, bi, w) == work + one);
                assert_true(length_of_programs(ctx, "interleaved", p, 2, m, f, bi, w) == 2 * work + one);
                assert_true(length_of_programs(ctx, "zb-h1", p, 1, m, f, bi, w) == work + (p - 1) * (f + bi - w));
                if (k == 0)
                    assert_true(length_of_programs(ctx, "zb-v", p, 2, m, f, bi, w) == 2 * work + (p - 1) * f);
            }
        }
    }
    test_ctx_free(ctx);
}

/* ---- any layout ---- */

typedef struct {
    const orth_partition *partition;
    int num_ranks, num_slowed;  /* slowed: steps that take longer where calls share one link */
    int num_beside;             /* steps that are shorter where the host has cores beside the device's */
    orth_rank_time *times;
    int64_t **clocks;      /* [num_ranks] with room for any program here */
    orth_rates *rates;
} timed;

#define MAX_INSTRS (1 << 15)

/* A rank does one action after the other, whatever was started early or is waited for late. */
static void check_actions(orth_ctx *ctx, const timed *t, const orth_program *p, int rank)
{
    const orth_partition *s = t->partition;
    const int32_t num = s->schedule.lists[orth_mesh_coord(&s->mesh, rank, ORTH_AXIS_PP)].num_actions;
    orth_span *spans = orth_mem_alloc(ctx, (size_t)num * sizeof *spans);
    assert_non_null(spans);
    orth_timeline_actions(p, t->clocks[rank], 0, spans, num);
    double end = 0;
    for (int32_t a = 0; a < num; a++) {
        if (spans[a].end <= 0)
            continue; /* made with another one */
        assert_true(spans[a].start >= end && spans[a].end >= spans[a].start);
        end = spans[a].end;
    }
    orth_mem_free(ctx, spans);
}

/* Every call fills every link of its device. */
static orth_port_load whole_link(void *user, const orth_program *p, int32_t instr, int k, int rank, const orth_rank_groups *groups)
{
    (void)user, (void)p, (void)instr, (void)k, (void)rank, (void)groups;
    return (orth_port_load){{1, 1, 1, 1}, true};
}

static orth_status time_programs(orth_ctx *ctx, void *user, const orth_rank_source *source)
{
    timed *t = user;
    t->num_ranks = source->num_ranks;
    const orth_timing timing = {.seconds = orth_seconds_by_rates, .user = t->rates};
    const orth_timing on_one_link = {.seconds = orth_seconds_by_rates, .user = t->rates, .load = whole_link};
    ORTH_TRY(orth_simulate_step(ctx, source, &on_one_link, t->times, NULL));
    const double shared = t->times[0].step_s;
    const orth_timing beside = {.seconds = orth_seconds_by_rates, .user = t->rates, .host_is_beside = true};
    ORTH_TRY(orth_simulate_step(ctx, source, &beside, t->times, t->clocks));
    const double shorter = t->times[0].step_s;
    for (int r = 0; r < source->num_ranks; r++)
        assert_true(fabs(t->times[r].compute_s + t->times[r].comm_s + t->times[r].move_s + t->times[r].wait_s - shorter) < 1e-9 * (1 + shorter));
    ORTH_TRY(orth_simulate_step(ctx, source, &timing, t->times, t->clocks));
    assert_true(shorter <= t->times[0].step_s * (1 + 1e-12));
    t->num_beside += shorter < t->times[0].step_s * (1 - 1e-9);
    assert_true(shared >= t->times[0].step_s * (1 - 1e-12));
    t->num_slowed += shared > t->times[0].step_s;
    for (int r = 0; r < source->num_ranks; r++) {
        orth_rank_program program;
        orth_rank_groups groups = {{0}};
        ORTH_TRY(source->program(ctx, source->user, r, &program));
        const orth_program *p = program.program;
        const int64_t *clock = t->clocks[r];
        double compute = 0;
        assert_true(clock[0] == 0);
        assert_true(orth_clock_length(p->num_instrs) < MAX_INSTRS);
        int64_t done = 0; /* by the queue of computing */
        for (int32_t i = 0; i < p->num_instrs; i++) {
            assert_true(orth_clock_begin(clock, i) >= done && orth_clock_end(clock, i) >= orth_clock_begin(clock, i));
            const bool computes = p->instrs[i].queue == 0 || p->queues[p->instrs[i].queue].kind == ORTH_QUEUE_HOST; /* on the same cores */
            done = computes ? orth_clock_end(clock, i) : done;
            if (orth_op_is_comm(p->instrs[i].op))
                continue;
            const double s = orth_seconds_by_rates(t->rates, p, i, 0, r, &groups);
            assert_true(fabs(1e-9 * (double)(orth_clock_end(clock, i) - orth_clock_begin(clock, i)) - s) <= 2e-9);
            if (computes) /* else a copy beside it */
                compute += s;
        }
        assert_true(fabs(compute - t->times[r].compute_s) < 1e-9 * (1 + compute));
        assert_true(1e-9 * (double)done <= t->times[r].step_s + 1e-8);
        check_actions(ctx, t, p, r);
    }
    return ORTH_OK;
}

TEST(simulated_time_is_computing_communication_and_waiting)
{
    orth_ctx *ctx = test_ctx(1);
    orth_rank_time times[64];
    int slowed = 0, shorter = 0;
    int64_t *clocks[64], *room = calloc(64 * MAX_INSTRS, sizeof *room);
    for (int r = 0; r < 64; r++)
        clocks[r] = room + r * MAX_INSTRS;
    for (uint64_t seed = 1; seed <= 25; seed++) {
        layout_case c = layout_random_case(seed, LAYOUT_ANY);
        orth_rates rates = {1e9, seed % 2 ? 1e8 : 1e12, {seed % 3 ? 1e7 : 1e11, seed % 3 ? 1e8 : 1e11}};
        const orth_model_shape shape = layout_shape(&c);
        orth_partition partition;
        timed t = {.partition = &partition, .times = times, .clocks = clocks, .rates = &rates};
        CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c.layout, &c.model));
        with_programs(ctx, &partition, &c.model, &shape, time_programs, &t);
        for (int r = 0; r < t.num_ranks; r++) {
            const double sum = times[r].compute_s + times[r].comm_s + times[r].move_s + times[r].wait_s;
            assert_true(times[r].step_s == times[0].step_s && times[r].wait_s >= 0 && times[r].comm_s >= 0);
            assert_true(fabs(sum - times[r].step_s) < 1e-9 * (1 + sum));
        }
        orth_partition_release(ctx, &partition);
        slowed += t.num_slowed;
        shorter += t.num_beside;
    }
    assert_true(slowed > 0 && shorter > 0);
    free(room);
    test_ctx_free(ctx);
}

static orth_status time_shared(orth_ctx *ctx, void *user, const orth_rank_source *source)
{
    double *step = user;
    orth_rates rates = {1e9, 1e9, {1e9, 1e9}};
    orth_rank_time times[64];
    for (int shared = 0; shared < 2; shared++) {
        const orth_timing timing = {.seconds = orth_seconds_by_rates, .user = &rates, .load = shared ? whole_link : NULL};
        ORTH_TRY(orth_simulate_step(ctx, source, &timing, times, NULL));
        step[shared] = times[0].step_s;
    }
    return ORTH_OK;
}

/* A communicator makes one call at a time, so that calls of one group do not slow each other down; those of two groups on one link do. */
TEST(calls_meet_on_a_link_only_where_two_groups_make_them_at_once)
{
    orth_ctx *ctx = test_ctx(1);
    for (int both = 0; both < 2; both++) {
        layout_case c = layout_base_case(1, 0);
        c.layout.tp = 2;
        c.layout.sequence_parallel = true;
        c.layout.dp = both ? 2 : 1;
        c.layout.zero = both ? 2 : 0;
        c.layout.global_batch = 4;
        orth_partition partition;
        double step[2];
        const orth_model_shape shape = layout_shape(&c);
        CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c.layout, &c.model));
        with_programs(ctx, &partition, &c.model, &shape, time_shared, step);
        if (both ? step[1] <= step[0] : fabs(step[1] - step[0]) > 1e-9 * step[0])
            fail_msg("%s: %.12g s on one link, %.12g s apart", both ? "tp and dp" : "tp", step[1], step[0]);
        orth_partition_release(ctx, &partition);
    }
    test_ctx_free(ctx);
}

/* ---- recorded runs ---- */

/* Action spans of a recorded timeline. */
static void read_actions(const json_t *events, const orth_schedule *s, orth_span *const *spans)
{
    const json_t *e;
    size_t i;
    json_array_foreach((json_t *)events, i, e) {
        int action;
        const char *detail = json_string_value(json_object_get(json_object_get(e, "args"), "detail"));
        const int rank = (int)json_integer_value(json_object_get(e, "pid"));
        if (json_integer_value(json_object_get(e, "tid")) != 0 || !detail || sscanf(detail, "action %d:", &action) != 1)
            continue;
        assert_true(rank < s->num_ranks && action < s->lists[rank].num_actions);
        const double start = 1e-6 * json_number_value(json_object_get(e, "ts"));
        spans[rank][action] = (orth_span){start, start + 1e-6 * json_number_value(json_object_get(e, "dur"))};
    }
}

static const struct {
    const char *name;
    int v;
} pipelines[] = {{"naive", 1}, {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb-h1", 1}, {"zb-v", 2}, {"pipedream", 1}};

enum { NUM_RECORDED = ORTH_COUNT(pipelines) - 1 }; /* all but the last are fixtures */

/* No action of rank r begins before the one of the other rank that makes its input has sent it, whatever the machine does beside. It is sent at
 * the end of the action, except where weights are updated after each backward (pipedream): spans end where the input was used at the latest. */
static void check_order(const orth_schedule *s, orth_span *const *spans, int r)
{
    const bool updates = strcmp(s->name, "pipedream") == 0;
    for (int b = 0; b < s->lists[r].num_actions; b++)
        for (int a = 0; a < s->lists[1 - r].num_actions; a++) {
            const orth_action *to = &s->lists[r].actions[b], *from = &s->lists[1 - r].actions[a];
            const bool forward = to->kind == ORTH_ACTION_F;
            orth_span *sent = &spans[1 - r][a];
            if (to->kind == ORTH_ACTION_W || from->kind == ORTH_ACTION_W || forward != (from->kind == ORTH_ACTION_F) ||
                from->chunk != to->chunk + (forward ? -1 : 1) || from->micro_batch != to->micro_batch)
                continue;
            assert_true(spans[r][b].start >= (updates && !forward ? sent->start : sent->end) - 1e-6);
            sent->end = fmin(sent->end, spans[r][b].start);
        }
}

/* How a recorded step of pipeline i on two ranks, with 8 micro-batches, idles; its actions do not overlap on a rank. */
static orth_bubble bubble_of(pipe_case *k, int i, const char *path)
{
    json_t *root = json_load_file(path, 0, NULL);
    const orth_schedule s = make(k, pipelines[i].name, 2, pipelines[i].v, 8);
    orth_span *spans[2];
    orth_bubble bubble;
    assert_non_null(root);
    for (int r = 0; r < 2; r++)
        spans[r] = ORTH_ARENA_ARRAY(k->ctx, &k->arena, orth_span, s.lists[r].num_actions);
    read_actions(json_object_get(root, "traceEvents"), &s, spans);
    for (int r = 0; r < 2; r++) {
        double end = 0;
        for (int a = 0; a < s.lists[r].num_actions; a++) {
            if (spans[r][a].end <= 0)
                continue; /* made with another one */
            assert_true(spans[r][a].start >= end - 1e-6 && spans[r][a].end >= spans[r][a].start);
            end = spans[r][a].end;
        }
        assert_true(end > 0);
    }
    check_order(&s, spans, 0);
    check_order(&s, spans, 1);
    CHECK_OK(k->ctx, orth_timeline_bubble(k->ctx, &s, (const orth_span *const *)spans, &bubble));
    assert_true(bubble.seconds > 0 && bubble.replayed > 0);
    assert_true(bubble.replayed <= bubble.idle_share + 1e-6); /* nothing is faster than its schedule */
    json_decref(root);
    return bubble;
}

/* Whatever else the machine does, which lengthens actions and waits. */
TEST(pipelines_that_run_now_idle_no_less_than_their_schedules_say)
{
    run_case *r = run_begin();
    pipe_case k = begin();
    for (int i = 0; i < ORTH_COUNT(pipelines); i++) {
        char path[256];
        RUN(r, 0, "timeline.json: forwards and backwards", "train run.yaml train.steps=3 model.layers=4 model.tied=false train.clip_norm=0 "
            "train.micro_batch=1 train.global_batch=8 parallel.pp=2 parallel.pipeline=%s parallel.virtual_stages=%d checkpoint.dir=p%d --timeline=2",
            pipelines[i].name, pipelines[i].v, i);
        snprintf(path, sizeof path, "%s/p%d/timeline.json", r->dir, i);
        bubble_of(&k, i, path);
    }
    end(&k);
    run_end(r);
}

/* Timelines of larger runs (bench/pipeline.sh says of what, fixtures/README.md how they were reduced), whose actions are long beside what
 * moves between them: a pipeline idles as long as its schedule says for the times that its actions took, to 5 points of the share. */
TEST(recorded_pipelines_idle_as_their_schedules_say)
{
    pipe_case k = begin();
    for (int i = 0; i < NUM_RECORDED; i++) {
        char path[256];
        snprintf(path, sizeof path, ORTH_TEST_DIR "/fixtures/timelines/%s.json", pipelines[i].name);
        const orth_bubble bubble = bubble_of(&k, i, path);
        print_message("%-12s idle %.2f %%, replayed %.2f %%\n", pipelines[i].name, 100 * bubble.idle_share, 100 * bubble.replayed);
        assert_true(bubble.idle_share - bubble.replayed < 0.05);
    }
    end(&k);
}

/* ---- files ---- */

/* Names of all spans of all ranks, one after the other in the order of the file. No span and nothing counted lies before the step, and none
 * ends before it begins. */
static char *names_of(run_case *r, const char *file, int *num_ranks)
{
    size_t n, i;
    char *text = run_read(r, file, &n), *names = calloc(1, n + 1), *at = names;
    json_t *root = json_loads(text, 0, NULL);
    const json_t *e;
    assert_non_null(root);
    *num_ranks = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        if (strcmp(json_string_value(json_object_get(e, "name")), "process_name") == 0)
            ++*num_ranks;
        else if (json_object_get(e, "ts"))
            assert_true(json_number_value(json_object_get(e, "ts")) >= 0);
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") == 0) {
            assert_true(json_number_value(json_object_get(e, "dur")) >= 0);
            at += sprintf(at, "%s %d ", json_string_value(json_object_get(e, "name")),
                          (int)json_integer_value(json_object_get(e, "tid")));
        }
    }
    json_decref(root);
    free(text);
    return names;
}

TEST(planned_and_measured_timelines_have_the_same_spans)
{
    run_case *r = run_begin();
    const char *layout = "parallel.pp=2 parallel.dp=2 train.micro_batch=1 train.global_batch=8 parallel.pipeline=1f1b";
    int a, b;
    RUN(r, 0, "timeline.json: forwards and backwards", "train run.yaml train.steps=3 %s --timeline=2", layout);
    RUN(r, 0, "time a step", "plan run.yaml %s --timeline p.json", layout);
    char *measured = names_of(r, "a/timeline.json", &a), *planned = names_of(r, "p.json", &b);
    assert_int_equal(a, 4);
    assert_int_equal(b, 4);
    assert_string_equal(measured, planned);
    assert_non_null(strstr(measured, "F0 0 "));
    assert_non_null(strstr(measured, "recv L2 mb0 "));
    free(measured);
    free(planned);
    char *plan = run_read(r, "a/plan.json", NULL);
    assert_non_null(strstr(plan, "\"bubble_fraction\""));
    free(plan);
    RUN(r, 2, "--timeline=9: the last step is 3 (train.steps)", "train run.yaml train.steps=3 checkpoint.dir=b --timeline=9");
    RUN(r, 2, "--timeline=2: the run goes on after step 3", "train run.yaml train.steps=4 %s --resume --timeline=2", layout);
    run_end(r);
}

/* Calls that begin before the one before has ended, and offload beside computing. */
TEST(planned_spans_of_every_queue_last_no_negative_time)
{
    static const char *const layouts[] = {"parallel.dp=4 parallel.zero=3 parallel.pp=2 parallel.pipeline=interleaved parallel.virtual_stages=2 model.layers=4",
                                          "parallel.dp=2 parallel.tp=2 parallel.zero=2 memory.offload_optimizer=host memory.offload_activations=host"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        int ranks;
        RUN(r, 0, "timeline       p.json: all ", "plan run.yaml %s model.tied=false train.micro_batch=1 train.global_batch=8 --cluster h100-%d --timeline p.json",
            layouts[i], i ? 4 : 8);
        free(names_of(r, "p.json", &ranks));
        assert_int_equal(ranks, i ? 4 : 8);
    }
    run_end(r);
}

/* Thousands of ranks are neither held nor written: a file of 32 GiB once. */
TEST(a_planned_timeline_of_many_ranks_shows_one_of_each_stage_and_the_worst)
{
    run_case *r = run_begin();
    int ranks;
    RUN(r, 0, "timeline       p.json: ", "plan run.yaml parallel.dp=40 parallel.tp=2 parallel.pp=2 train.micro_batch=1 train.global_batch=80 "
        "--cluster h100-160 --timeline p.json");
    char worst[128], *text;
    int rank = -1;
    sscanf(strstr(r->out, "on rank ") + 8, "%d", &rank);
    snprintf(worst, sizeof worst, "of 160 ranks: one of each pipeline stage, and rank %d, which needs the most memory", rank);
    assert_non_null(strstr(r->out, worst));
    free(names_of(r, "p.json", &ranks));
    assert_in_range(ranks, 2, 3);
    text = run_read(r, "p.json", NULL);
    assert_non_null(strstr(text, "\"otherData\": {\"about\": "));
    assert_non_null(strstr(text, worst));
    free(text);
    run_end(r);
}

/* A simulated step of 8 ranks in 4 stages, whose programs the plan is told to have so many instructions: which ranks the file has, in words and counted. */
static void expect_drawn(int32_t instrs, int ranks, const char *words)
{
    static const char text[] = "model: {preset: gpt2-tiny, layers: 4}\ndata: {seq_len: 32}\ntrain: {global_batch: 8, micro_batch: 1}\nparallel: {pp: 4, dp: 2}\n";
    run_case *r = run_begin();
    orth_config cfg;
    orth_model_config model;
    orth_run_plan plan;
    int shown;
    char path[512], about[ORTH_DRAWN_MAX];
    orth_ctx *ctx = test_ctx(1);
    CHECK_OK(ctx, orth_config_init(ctx, &cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, &cfg, "run.yaml", text, strlen(text)));
    CHECK_OK(ctx, orth_describe_model(ctx, &cfg, &model));
    CHECK_OK(ctx, orth_describe_plan(ctx, &plan, &cfg, &model, false));
    for (int k = 0; k < plan.num_ranks; k++)
        plan.ranks[k].num_instrs = ORTH_MAX(instrs, plan.ranks[k].num_instrs);
    snprintf(path, sizeof path, "%s/p.json", r->dir);
    CHECK_OK(ctx, orth_run_plan_price(ctx, &plan, &(orth_rates){.flops = 1e12, .bytes = 1e11}, path));
    orth_run_plan_describe_drawn(&plan, about);
    free(names_of(r, "p.json", &shown));
    if (shown != ranks || !strstr(about, words))
        fail_msg("%d instructions a rank: %d ranks, wanted %d; %s", (int)instrs, shown, ranks, about);
    orth_run_plan_release(ctx, &plan);
    orth_config_release(ctx, &cfg);
    test_ctx_free(ctx);
    run_end(r);
}

/* 32 ranks of 100000 instructions each: a file of 1 GB once. */
TEST(a_planned_timeline_of_long_programs_shows_as_many_ranks_as_a_million_events_allow)
{
    expect_drawn(0, 8, "all 8 ranks");
    expect_drawn(65536, 8, "all 8 ranks");
    expect_drawn(80000, 6, "6 of 8 ranks: one of each pipeline stage, ranks 0 to ");
    expect_drawn(200000, 2, "2 of 8 ranks: one of each of the first ");
    expect_drawn(2000000, 1, "1 of 8 ranks: rank 0, which needs the most memory; more would be over 1048576 events");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_of_every_schedule_have_the_bubble_of_its_formula),
        cmocka_unit_test(calls_meet_on_a_link_only_where_two_groups_make_them_at_once),
        cmocka_unit_test(simulated_time_is_computing_communication_and_waiting),
        cmocka_unit_test(pipelines_that_run_now_idle_no_less_than_their_schedules_say),
        cmocka_unit_test(recorded_pipelines_idle_as_their_schedules_say),
        cmocka_unit_test(planned_and_measured_timelines_have_the_same_spans),
        cmocka_unit_test(planned_spans_of_every_queue_last_no_negative_time),
        cmocka_unit_test(a_planned_timeline_of_many_ranks_shows_one_of_each_stage_and_the_worst),
        cmocka_unit_test(a_planned_timeline_of_long_programs_shows_as_many_ranks_as_a_million_events_allow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
