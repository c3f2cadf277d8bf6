/* test_memory_plan.c -- what a plan says of memory: spaces, classes, what lives when most does. */
#include "test.h"

#include <jansson.h>

#include "config/config.h"
#include "program/ir/live.h"
#include "report/memory_svg.h"
#include "train/describe.h"

/* A small run with these words, planned; release with close_plan. */
typedef struct {
    orth_ctx *ctx;
    orth_config cfg;
    orth_model_config model;
    orth_run_plan plan;
} plan_case;

static void open_plan(plan_case *c, const char *const *keys, const char *const *values, int n)
{
    c->ctx = test_ctx(1);
    CHECK_OK(c->ctx, orth_config_init(c->ctx, &c->cfg));
    CHECK_OK(c->ctx, orth_config_set(c->ctx, &c->cfg, "test", "model.preset", "gpt2-tiny"));
    CHECK_OK(c->ctx, orth_config_set(c->ctx, &c->cfg, "test", "data.seq_len", "32"));
    for (int i = 0; i < n; i++)
        CHECK_OK(c->ctx, orth_config_set(c->ctx, &c->cfg, "test", keys[i], values[i]));
    CHECK_OK(c->ctx, orth_config_check(c->ctx, &c->cfg));
    CHECK_OK(c->ctx, orth_describe_model(c->ctx, &c->cfg, &c->model));
    CHECK_OK(c->ctx, orth_describe_plan(c->ctx, &c->plan, &c->cfg, &c->model, false));
}

static void close_plan(plan_case *c)
{
    orth_run_plan_release(c->ctx, &c->plan);
    orth_config_release(c->ctx, &c->cfg);
    test_ctx_free(c->ctx);
}

/* ---- spaces and classes ---- */

TEST(each_space_has_its_section_in_text_and_json)
{
    orth_ctx *ctx = test_ctx(1);
    orth_memory m = {.of = {[ORTH_SPACE_HOST] = {[ORTH_CLASS_OPTIMIZER] = 128}, [ORTH_SPACE_DEVICE] = {[ORTH_CLASS_PARAMS] = 64}}};
    orth_text object = {0};
    orth_json_out out = {ctx, &object, false};
    orth_memory_json(&out, NULL, &m, false);
    char *json = orth_text_take(ctx, &object);
    assert_string_equal(json, "{\"params\": 64, \"grads\": 0, \"optimizer\": 128, \"activations\": 0, \"comm\": 0, \"workspace\": 0, "
                        "\"total\": 192, \"spaces\": {\"host\": {\"params\": 0, \"grads\": 0, \"optimizer\": 128, \"activations\": 0, "
                        "\"comm\": 0, \"workspace\": 0, \"total\": 128}, \"device\": {\"params\": 64, \"grads\": 0, \"optimizer\": 0, "
                        "\"activations\": 0, \"comm\": 0, \"workspace\": 0, \"total\": 64}}}");
    orth_mem_free(ctx, json);
    orth_text text = {0};
    orth_memory_add_rows(ctx, &text, &m, "rank 0");
    char *rows = orth_text_take(ctx, &text);
    assert_non_null(strstr(rows, "memory of rank 0, space host\n"));
    assert_non_null(strstr(rows, "memory of rank 0, space device\n"));
    orth_mem_free(ctx, rows);
    test_ctx_free(ctx);
}

/* Under ZeRO 2 and 3 a micro-batch's gradients are made, reduced into shards, and gone. */
TEST(gradients_that_live_within_a_step_are_of_the_class_grads)
{
    static const char *const keys[] = {"parallel.dp", "parallel.zero", "train.global_batch", "train.micro_batch"};
    static const char *const zeros[] = {"2", "3"};
    for (int i = 0; i < 2; i++) {
        const char *const values[] = {"2", zeros[i], "8", "1"};
        plan_case c;
        int parts = 0;
        open_plan(&c, keys, values, 4);
        const orth_compiled *compiled;
        CHECK_OK(c.ctx, orth_programs_of(c.ctx, &c.plan.programs, 0, &compiled));
        for (int32_t b = 0; b < compiled->program.num_buffers; b++) {
            const orth_buffer *buf = &compiled->program.buffers[b];
            if (buf->persistent || strncmp(buf->name, "grad.", 5) != 0)
                continue;
            parts++;
            assert_true(buf->cls == ORTH_CLASS_GRADS || buf->cls == ORTH_CLASS_COMM);
        }
        assert_true(parts > 0);
        assert_true(compiled->program.transient_class[ORTH_SPACE_HOST][ORTH_CLASS_GRADS] > 0);
        close_plan(&c);
    }
}

/* Under ZeRO 3 a call fills the buffers of whole parameters. A rank alone makes no call. */
TEST(what_a_collective_fills_is_of_the_class_comm)
{
    static const char *const keys[] = {"parallel.dp", "parallel.zero", "train.global_batch", "train.micro_batch"};
    static const char *const values[][4] = {{"2", "3", "8", "1"}, {"1", "0", "8", "1"}};
    for (int i = 0; i < 2; i++) {
        plan_case c;
        const orth_compiled *compiled;
        int gathered = 0, comm = 0;
        open_plan(&c, keys, values[i], 4);
        CHECK_OK(c.ctx, orth_programs_of(c.ctx, &c.plan.programs, 0, &compiled));
        const orth_program *p = &compiled->program;
        for (int32_t b = 0; b < p->num_buffers; b++) {
            const bool whole = !p->buffers[b].persistent && strcmp(p->buffers[b].name, "gathered") == 0;
            gathered += whole;
            comm += p->buffers[b].cls == ORTH_CLASS_COMM;
            assert_true(!whole || p->buffers[b].cls == ORTH_CLASS_COMM);
        }
        assert_true(i == 0 ? gathered > 0 && comm >= gathered : comm == 0);
        assert_int_equal(p->transient_class[ORTH_SPACE_HOST][ORTH_CLASS_COMM] > 0, i == 0);
        assert_int_equal(c.plan.ranks[0].memory.of[ORTH_SPACE_HOST][ORTH_CLASS_COMM],
                         p->transient_class[ORTH_SPACE_HOST][ORTH_CLASS_COMM]);
        close_plan(&c);
    }
}

/* In reproducible mode the tree over micro-batches keeps up to log2 of their number beside it. */
TEST(in_fast_mode_a_gradient_is_one_sum_however_many_micro_batches_there_are)
{
    static const char *const keys[] = {"train.global_batch", "train.micro_batch", "numerics.mode"};
    static const char *const modes[] = {"fast", "reproducible"};
    for (int i = 0; i < 2; i++) {
        const char *const values[] = {"16", "1", modes[i]};
        plan_case c;
        open_plan(&c, keys, values, 3);
        const size_t grads = c.plan.ranks[0].memory.of[ORTH_SPACE_HOST][ORTH_CLASS_GRADS];
        const size_t one = sizeof(float) * (size_t)orth_model_num_elems(&c.model);
        const size_t tied = sizeof(float) * (size_t)(c.model.vocab * c.model.hidden); /* it has a sum for each of its two uses */
        assert_true(i == 0 ? grads < one + tied + 4096 : grads > 4 * one);
        close_plan(&c);
    }
}

/* ---- when most is live ---- */

/* The program of the rank that a plan shows first, in several layouts. */
static const char *const layouts[][4] = {
    {"1", "0", "8", "4"}, {"2", "2", "8", "1"}, {"4", "3", "8", "1"}, {"2", "1", "8", "2"},
};
static const char *const layout_keys[] = {"parallel.dp", "parallel.zero", "train.global_batch", "train.micro_batch"};

TEST(buffers_that_are_live_at_the_peak_add_up_to_it)
{
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        plan_case c;
        const orth_compiled *compiled;
        orth_live_buffer *live;
        orth_live_bytes *over;
        int32_t num;
        size_t sum = 0, most = 0;
        open_plan(&c, layout_keys, layouts[i], 4);
        CHECK_OK(c.ctx, orth_programs_of(c.ctx, &c.plan.programs, 0, &compiled));
        const orth_program *p = &compiled->program;
        const orth_arena_use *use = &c.plan.ranks[0].arenas[ORTH_SPACE_HOST];
        const int32_t at = p->peak_instr[ORTH_SPACE_HOST];
        CHECK_OK(c.ctx, orth_live_during(c.ctx, p, ORTH_SPACE_HOST, at, &live, &num));
        CHECK_OK(c.ctx, orth_live_over_step(c.ctx, p, ORTH_SPACE_HOST, &over));
        for (int32_t k = 0; k < num; k++) {
            sum += live[k].bytes;
            assert_true(k == 0 || live[k].bytes <= live[k - 1].bytes);
        }
        for (int32_t k = 0; k < p->num_instrs; k++)
            most = ORTH_MAX(most, orth_live_sum(&over[k]));
        assert_int_equal(sum, use->peak);
        assert_int_equal(use->between_steps + most, use->peak);
        assert_int_equal(orth_live_sum(&over[at]), most);
        assert_true(use->reserved >= use->peak);
        for (int k = 0; k < ORTH_NUM_CLASSES; k++) {
            const size_t gaps = k == ORTH_CLASS_ACTIVATIONS ? use->reserved - use->peak : 0;
            assert_int_equal(over[at].of[k] + gaps, p->transient_class[ORTH_SPACE_HOST][k]);
        }
        orth_mem_free(c.ctx, live);
        orth_mem_free(c.ctx, over);
        close_plan(&c);
    }
}

/* How often `what` is in `text`. */
static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

TEST(the_picture_of_memory_has_every_class_and_the_timeline_reaches_the_peak)
{
    plan_case c;
    const orth_compiled *compiled;
    orth_text svg = {0};
    open_plan(&c, layout_keys, layouts[1], 4);
    CHECK_OK(c.ctx, orth_programs_of(c.ctx, &c.plan.programs, 0, &compiled));
    const orth_program *p = &compiled->program;
    orth_memory_svg(c.ctx, &svg, p, 0);
    assert_int_equal(occurrences(svg.s, "<polygon"), ORTH_NUM_CLASSES);
    orth_mem_free(c.ctx, svg.s);
    int64_t *clock = calloc((size_t)orth_clock_length(p->num_instrs), sizeof *clock);
    for (int32_t i = 0; i < p->num_instrs; i++)
        orth_clock_set(clock, i, 1000 * i, 1000 * i + 1000);
    orth_trace trace = {0};
    const orth_action_list none = {0};
    orth_timeline_add(c.ctx, &trace, 0, "rank 0", p, false, &none, NULL, clock, 0);
    char *text = orth_trace_take(c.ctx, &trace);
    json_t *root = json_loads(text, 0, NULL), *event, *value;
    size_t i, most = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        size_t sum = 0;
        const char *key;
        if (strcmp(json_string_value(json_object_get(event, "ph")), "C") != 0)
            continue;
        json_object_foreach(json_object_get(event, "args"), key, value)
            sum += (size_t)json_integer_value(value);
        most = ORTH_MAX(most, sum);
    }
    assert_int_equal(most, c.plan.ranks[0].arenas[ORTH_SPACE_HOST].peak);
    json_decref(root);
    orth_mem_free(c.ctx, text);
    free(clock);
    close_plan(&c);
}

/* Bytes of the buffers of a peak, the listed ones largest first, and the others. */
static json_int_t sum_of_buffers(const json_t *peak)
{
    const json_t *buffers = json_object_get(peak, "buffers");
    json_int_t sum = json_integer_value(json_object_get(json_object_get(peak, "others"), "bytes")), before = INT64_MAX;
    for (size_t i = 0; i < json_array_size(buffers); i++) {
        const json_int_t bytes = json_integer_value(json_object_get(json_array_get(buffers, i), "bytes"));
        assert_true(bytes <= before);
        before = bytes;
        sum += bytes;
    }
    return sum;
}

TEST(plan_json_lists_what_is_live_at_the_peak_of_the_first_and_the_worst_rank)
{
    static const char *const keys[] = {"parallel.pp", "train.global_batch", "train.micro_batch", "model.vocab"};
    static const char *const values[] = {"2", "8", "1", "4096"};
    plan_case c;
    open_plan(&c, keys, values, 4);
    CHECK_OK(c.ctx, orth_run_plan_find_peaks(c.ctx, &c.plan));
    char *text = orth_plan_json(c.ctx, c.plan.ranks, c.plan.num_ranks, &c.plan.total), *rows;
    json_t *root = json_loads(text, 0, NULL), *peaks = json_object_get(root, "live_at_peak");
    const int worst = c.plan.ranks[1].total_bytes > c.plan.ranks[0].total_bytes;
    assert_int_equal(json_array_size(peaks), worst ? 2 : 1);
    for (size_t k = 0; k < json_array_size(peaks); k++) {
        const json_t *one = json_array_get(peaks, k), *layers = json_object_get(one, "activations_by_layer");
        const orth_plan *r = &c.plan.ranks[json_integer_value(json_object_get(one, "rank"))];
        assert_int_equal(json_integer_value(json_object_get(one, "bytes")), r->arenas[ORTH_SPACE_HOST].peak);
        assert_int_equal(sum_of_buffers(one), r->arenas[ORTH_SPACE_HOST].peak);
        assert_true(json_array_size(json_object_get(one, "buffers")) > 10 && json_object_size(layers) > 0);
    }
    CHECK_OK(c.ctx, orth_run_plan_peaks_text(c.ctx, &c.plan, &rows));
    assert_non_null(strstr(rows, "activations by op:"));
    orth_mem_free(c.ctx, rows);
    json_decref(root);
    orth_mem_free(c.ctx, text);
    close_plan(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_space_has_its_section_in_text_and_json),
        cmocka_unit_test(gradients_that_live_within_a_step_are_of_the_class_grads),
        cmocka_unit_test(what_a_collective_fills_is_of_the_class_comm),
        cmocka_unit_test(in_fast_mode_a_gradient_is_one_sum_however_many_micro_batches_there_are),
        cmocka_unit_test(buffers_that_are_live_at_the_peak_add_up_to_it),
        cmocka_unit_test(the_picture_of_memory_has_every_class_and_the_timeline_reaches_the_peak),
        cmocka_unit_test(plan_json_lists_what_is_live_at_the_peak_of_the_first_and_the_worst_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
