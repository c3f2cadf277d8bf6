/* test_compare.c -- `plan --compare`: its rows against plans made one by one, and what it refuses. */
#include "test.h"

#include <jansson.h>
#include <math.h>

#include "tools/compare.h"

#define RUN "model: {preset: llama-tiny, max_seq: 256}\ndata: {seq_len: 256}\ntrain: {global_batch: 32, micro_batch: 2, steps: 1000}\n" \
            "parallel: {dp: 4, tp: 4, pp: 2, sequence_parallel: true}\nprecision: {compute: bf16}\n"

static void load(orth_ctx *ctx, orth_config *cfg, const char *zero, const char *recompute, const char *tp)
{
    CHECK_OK(ctx, orth_config_init(ctx, cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, cfg, "run.yaml", RUN, strlen(RUN)));
    if (zero)
        CHECK_OK(ctx, orth_config_set(ctx, cfg, "test", "parallel.zero", zero));
    if (recompute)
        CHECK_OK(ctx, orth_config_set(ctx, cfg, "test", "memory.recompute", recompute));
    if (tp)
        CHECK_OK(ctx, orth_config_set(ctx, cfg, "test", "parallel.tp", tp));
}

/* The plan of one run, as `plan --cluster` makes it. */
static void plan(orth_ctx *ctx, const orth_config *cfg, orth_run_plan *p, orth_model_config *model, orth_cluster_plan *c)
{
    orth_hardware h;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb-32"));
    const orth_config there = orth_describe_on_devices(cfg, &h);
    CHECK_OK(ctx, orth_describe_model(ctx, &there, model));
    CHECK_OK(ctx, orth_describe_plan(ctx, p, &there, model, false));
    CHECK_OK(ctx, orth_hardware_use(ctx, &h, p->num_ranks));
    CHECK_OK(ctx, orth_cluster_price(ctx, p, &h, ORTH_BF16, 1000, NULL, c));
}

static void check_row(orth_ctx *ctx, const json_t *row, const char *zero, const char *recompute)
{
    orth_config cfg;
    orth_run_plan p;
    orth_model_config model;
    orth_cluster_plan c;
    const json_t *values = json_object_get(row, "values");
    assert_string_equal(json_string_value(json_object_get(values, "parallel.zero")), zero);
    assert_string_equal(json_string_value(json_object_get(values, "memory.recompute")), recompute);
    load(ctx, &cfg, zero, recompute, NULL);
    plan(ctx, &cfg, &p, &model, &c);
    assert_true(json_number_value(json_object_get(row, "step_s")) > 0.999999 * c.step_s);
    assert_true(json_number_value(json_object_get(row, "step_s")) < 1.000001 * c.step_s);
    assert_true(json_integer_value(json_object_get(row, "memory")) == (json_int_t)p.total.worst_bytes);
    assert_true(json_is_true(json_object_get(row, "fits")) && json_number_value(json_object_get(row, "on_demand_usd")) > 0);
    orth_run_plan_release(ctx, &p);
    orth_config_release(ctx, &cfg);
}

TEST(every_row_of_a_comparison_is_the_plan_of_that_run_and_the_fastest_is_named)
{
    static const char *const words[] = {"parallel.zero=[0, 1, 3]", "memory.recompute=[none, full]"};
    static const char *const zero[] = {"0", "1", "3"}, *const recompute[] = {"none", "full"};
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    char *text;
    load(ctx, &base, NULL, NULL, NULL);
    CHECK_OK(ctx, orth_compare(ctx, &base, "a100-80gb-32", words, 2, true, &text));
    json_t *root = json_loads(text, 0, NULL);
    const json_t *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 6);
    double best = 1e9;
    for (int i = 0; i < 6; i++) {
        check_row(ctx, json_array_get(rows, (size_t)i), zero[i / 2], recompute[i % 2]);
        best = ORTH_MIN(best, json_number_value(json_object_get(json_array_get(rows, (size_t)i), "step_s")));
    }
    const json_t *fastest = json_array_get(rows, (size_t)json_integer_value(json_object_get(root, "fastest")));
    assert_true(json_number_value(json_object_get(fastest, "step_s")) == best);
    json_decref(root);
    orth_mem_free(ctx, text);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

/* The table of one word on a cluster; until the next call. */
static const char *table_of(orth_ctx *ctx, const char *word, const char *cluster)
{
    static char kept[8192];
    orth_config base;
    char *text;
    load(ctx, &base, NULL, NULL, NULL);
    CHECK_OK(ctx, orth_compare(ctx, &base, cluster, &word, 1, false, &text));
    snprintf(kept, sizeof kept, "%s", text);
    orth_mem_free(ctx, text);
    orth_config_release(ctx, &base);
    return kept;
}

TEST(the_parts_of_a_row_are_its_step)
{
    static const char *const words[] = {"memory.offload_optimizer=[none, host]", "train.micro_batch=[1]"}, *const parts[] = {
        "compute_s", "exposed_loading_s", "wait_s", "exposed_copies_s"}; /* the update is a part of computing, as in a plan */
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    char *text;
    load(ctx, &base, NULL, NULL, NULL);
    CHECK_OK(ctx, orth_compare(ctx, &base, "a100-80gb-32", words, 2, true, &text));
    json_t *root = json_loads(text, 0, NULL), *axis;
    for (size_t r = 0; r < 2; r++) {
        json_t *row = json_array_get(json_object_get(root, "rows"), r);
        const char *name;
        double sum = 0;
        for (int i = 0; i < ORTH_COUNT(parts); i++)
            sum += json_number_value(json_object_get(row, parts[i]));
        json_object_foreach(json_object_get(row, "exposed_comm_by_axis_s"), name, axis)
            sum += json_number_value(axis);
        const double step_s = json_number_value(json_object_get(row, "step_s"));
        assert_true(step_s > 0 && fabs(sum - step_s) < 1e-6 * step_s);
        assert_true((json_number_value(json_object_get(row, "exposed_copies_s")) > 0) == (r == 1));
    }
    json_decref(root);
    orth_mem_free(ctx, text);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

/* Each updates its own parameters in its host, all at the same time, whether or not calls overlap. */
TEST(ranks_whose_hosts_update_do_not_wait_for_each_other)
{
    static const char *const word = "comm.overlap=[true, false]", *const keys[][2] = {
        {"model.preset", "llama3-1b"}, {"memory.offload_optimizer", "host"}, {"parallel.zero", "2"}, {"parallel.dp", "32"}, {"parallel.tp", "1"},
        {"parallel.pp", "1"}, {"parallel.sequence_parallel", "false"}, {"train.micro_batch", "1"}};
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    char *text;
    load(ctx, &base, NULL, NULL, NULL);
    for (int i = 0; i < ORTH_COUNT(keys); i++)
        CHECK_OK(ctx, orth_config_set(ctx, &base, "test", keys[i][0], keys[i][1]));
    CHECK_OK(ctx, orth_compare(ctx, &base, "a100-80gb-32", &word, 1, true, &text));
    json_t *root = json_loads(text, 0, NULL);
    double besides_calls[2];
    for (size_t r = 0; r < 2; r++) {
        json_t *row = json_array_get(json_object_get(root, "rows"), r);
        const json_t *dp = json_object_get(json_object_get(row, "exposed_comm_by_axis_s"), "dp");
        besides_calls[r] = json_number_value(json_object_get(row, "step_s")) - json_number_value(dp);
    }
    assert_true(besides_calls[0] > 0 && besides_calls[1] < 1.1 * besides_calls[0]);
    json_decref(root);
    orth_mem_free(ctx, text);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

TEST(a_combination_that_a_rule_refuses_has_a_row_with_the_rule)
{
    orth_ctx *ctx = test_ctx(1);
    const char *text = table_of(ctx, "parallel.tp=[4, 3]", "a100-80gb");
    if (!strstr(text, "3            refused: tp=3 does not divide heads=4") || !strstr(text, "fastest that fits: parallel.tp=4 ("))
        fail_msg("%s", text);
    text = table_of(ctx, "parallel.tp=[4, 3]", "a100-80gb-32");
    if (!strstr(text, "refused: the layout has 24 ranks (parallel.dp * tp * pp * cp), --cluster has 32 devices"))
        fail_msg("%s", text);
    test_ctx_free(ctx);
}

TEST(a_comparison_of_what_rules_refuse_names_no_memory)
{
    orth_ctx *ctx = test_ctx(1);
    const char *text = table_of(ctx, "parallel.tp=[3, 5]", "a100-80gb");
    if (!strstr(text, "all are refused") || strstr(text, "none fits"))
        fail_msg("%s", text);
    test_ctx_free(ctx);
}

TEST(mistakes_in_a_comparison_are_named)
{
    static const struct {
        const char *words[2], *message;
    } bad[] = {
        {{"parallel.zer=[1]", NULL}, "did you mean 'parallel.zero'?"},
        {{"parallel.zero=[1, 4]", NULL}, "parallel.zero=4: must be one of 0, 1"},
        {{"parallel.zero=[]", NULL}, "parallel.zero has no values"},
        {{"parallel.zero=[1]", "parallel.zero=[2]"}, "parallel.zero is given twice"},
        {{"parallel.zero=[1", NULL}, "command line"},
        {{NULL, NULL}, "--compare needs the values to compare"},
    };
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    char *text;
    load(ctx, &base, NULL, NULL, NULL);
    for (int i = 0; i < ORTH_COUNT(bad); i++)
        CHECK_FAILS(ctx, ORTH_ERR_ARG, bad[i].message,
                    orth_compare(ctx, &base, "a100-80gb", bad[i].words, !!bad[i].words[0] + !!bad[i].words[1], false, &text));
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_a_comparison_is_the_plan_of_that_run_and_the_fastest_is_named),
        cmocka_unit_test(the_parts_of_a_row_are_its_step),
        cmocka_unit_test(ranks_whose_hosts_update_do_not_wait_for_each_other),
        cmocka_unit_test(a_combination_that_a_rule_refuses_has_a_row_with_the_rule),
        cmocka_unit_test(a_comparison_of_what_rules_refuse_names_no_memory),
        cmocka_unit_test(mistakes_in_a_comparison_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
