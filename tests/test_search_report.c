/* test_search_report.c -- what is said of a search: its best, the popular choices, what the answer depends on, cost and less memory. */
#include "search_case.h"

TEST(the_report_of_a_search_names_the_winner_and_writes_a_run_that_plans_to_the_same_price)
{
    static const char text[] = "model: {preset: llama-tiny, max_seq: 128}\ndata: {seq_len: 128}\ntrain: {global_batch: 8, steps: 100}\n"
                               "precision: {compute: bf16}\nnumerics: {mode: fast}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_config base, cfg, again;
    orth_search s;
    orth_price p;
    char *report;
    int32_t winner;
    read_base(ctx, &base, text);
    set(ctx, &base, "parallel.cp", "%d", 1);
    CHECK_OK(ctx, orth_search_make(ctx, &s, &base, "a100-80gb-4", ORTH_GOAL_COST));
    CHECK_OK(ctx, orth_search_report(ctx, &s, 100, false, &report, &winner));
    if (winner < 0 || !strstr(report, "winner         proved") || !strstr(report, "popular choices against it") || !strstr(report, "what the answer depends on"))
        fail_msg("%s", report);
    if (strstr(report, "tensor parallel in a node, ZeRO 0 or 1   no such")) /* 4 devices of a node of 8 */
        fail_msg("%s", report);
    CHECK_OK(ctx, orth_search_config(ctx, &s, winner, &cfg));
    char *yaml = orth_config_yaml(ctx, &cfg);
    CHECK_OK(ctx, orth_config_init(ctx, &again));
    CHECK_OK(ctx, orth_config_parse(ctx, &again, "best.yaml", yaml, strlen(yaml)));
    CHECK_OK(ctx, orth_price_run(ctx, &s.where, &again, &p));
    assert_true(!p.refused && p.step_s == orth_search_price(&s, winner)->step_s && p.bytes == orth_search_price(&s, winner)->bytes);
    assert_true(p.num_ranks < 4); /* so small a model is cheaper on fewer devices */
    char *json;
    CHECK_OK(ctx, orth_search_report(ctx, &s, 100, true, &json, &winner));
    json_t *root = json_loads(json, 0, NULL), *best = json_array_get(json_object_get(root, "best"), 0), *time = json_object_get(best, "time");
    assert_true(json_is_true(json_object_get(root, "proved")) && json_is_null(json_object_get(root, "next_bound_usd_per_1e9_tokens")));
    assert_true(json_is_boolean(json_object_get(best, "sequence_parallel")));
    assert_true(p.update_s > 0 && fabs(json_number_value(json_object_get(time, "update_s")) - p.update_s) < 1e-8 * p.step_s);
    assert_true(fabs(json_number_value(json_object_get(time, "compute_s")) - p.compute_s - p.update_s) < 1e-8 * p.step_s);
    assert_true(json_is_object(json_object_get(time, "exposed_comm_by_axis_s")));
    json_decref(root);
    orth_mem_free(ctx, json);
    orth_mem_free(ctx, yaml);
    orth_mem_free(ctx, report);
    orth_config_release(ctx, &again);
    orth_config_release(ctx, &cfg);
    orth_config_release(ctx, &base);
    orth_search_release(ctx, &s);
    test_ctx_free(ctx);
}

/* What a report says of a small model on `cluster`, with tp, pp, dp and the micro-batch left open; orth_mem_free. */
static char *report_small(orth_ctx *ctx, const char *cluster, orth_goal goal, int heads, int global_batch, int max_plans, bool json)
{
    char text[640], *report;
    orth_config base;
    orth_search s;
    int32_t winner;
    snprintf(text, sizeof text, "model: {family: llama, layers: 2, hidden: %d, heads: %d, ffn: 384, vocab: 384, max_seq: 128}\ndata: {seq_len: 128}\n"
             "train: {global_batch: %d, steps: 100}\nprecision: {compute: bf16}\nnumerics: {mode: fast}\n", 16 * heads, heads, global_batch);
    read_base(ctx, &base, text);
    static const char *const given[][2] = {{"parallel.cp", "1"}, {"parallel.zero", "0"}, {"parallel.shard_group", "0"}, {"memory.recompute", "none"}};
    for (int k = 0; k < ORTH_COUNT(given); k++)
        CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", given[k][0], given[k][1]));
    for (int k = 0; k < ORTH_COUNT(away); k++)
        CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", away[k], "none"));
    CHECK_OK(ctx, orth_search_make(ctx, &s, &base, cluster, goal));
    CHECK_OK(ctx, orth_search_report(ctx, &s, max_plans, json, &report, &winner));
    assert_true(winner >= 0);
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    return report;
}

/* The second best by cost has more devices, and is faster on any cluster: that is no news of a changed one. */
TEST(what_an_answer_depends_on_is_judged_by_the_goal_and_said_where_the_order_changes)
{
    orth_ctx *ctx = test_ctx(1);
    char *text = report_small(ctx, "h100-16", ORTH_GOAL_TIME, 4, 64, 100, false);
    const char *line = strstr(text, "messages between nodes 10 x as late (jitter)"), *said = line ? strstr(line, "; number 2 is then faster by ") : NULL;
    if (!said || said > strchr(line, '\n'))
        fail_msg("%s", text);
    orth_mem_free(ctx, text);
    for (orth_goal goal = ORTH_GOAL_COST; goal <= ORTH_GOAL_MEMORY; goal++) {
        text = report_small(ctx, "a100-80gb-4", goal, 4, 8, 100, false);
        if (!strstr(text, "links in a node at half the bandwidth") || strstr(text, "; number 2"))
            fail_msg("%s", text);
        orth_mem_free(ctx, text);
    }
    test_ctx_free(ctx);
}

/* tp 8 divides neither 4 nor 12 heads. Of a node of 8, 4 is a part; 3 is not. */
TEST(tensor_parallel_in_a_node_is_any_that_stays_in_a_node)
{
    static const char key[] = "tensor parallel in a node, ZeRO 0 or 1", across[] = "tensor parallel across nodes";
    orth_ctx *ctx = test_ctx(1);
    for (int heads = 4; heads <= 12; heads += 8) {
        char *json = report_small(ctx, heads == 4 ? "h100-8" : "h100-24", ORTH_GOAL_TIME, heads, 48, 100, true);
        json_t *root = json_loads(json, 0, NULL), *popular = json_object_get(root, "popular");
        const json_t *in = json_object_get(popular, key), *out = json_object_get(popular, across);
        const json_int_t tp = json_integer_value(json_object_get(in, "tp")), wide = json_integer_value(json_object_get(out, "tp"));
        if (tp != 2 && tp != 4)
            fail_msg("%d heads, in a node: tp %d", heads, (int)tp);
        assert_true(heads == 4 ? wide == 0 : 8 % wide != 0);
        json_decref(root);
        orth_mem_free(ctx, json);
    }
    test_ctx_free(ctx);
}

TEST(the_plans_that_are_allowed_bound_those_for_the_winner_which_the_report_counts)
{
    static const int most[] = {1, 2, 5, 20};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(most); k++) {
        char said[64], *json = report_small(ctx, "h100-16", ORTH_GOAL_TIME, 4, 64, most[k], true), *text = report_small(ctx, "h100-16", ORTH_GOAL_TIME, 4, 64, most[k], false);
        json_t *root = json_loads(json, 0, NULL);
        const int winner = (int)json_integer_value(json_object_get(root, "winner_plans")), all = (int)json_integer_value(json_object_get(root, "plans"));
        if (winner < 1 || winner > most[k] || all < winner)
            fail_msg("%d plans allowed, %d for the winner, %d in all", most[k], winner, all);
        snprintf(said, sizeof said, "%d full plans, %d of them for the winner\n", all, winner);
        assert_non_null(strstr(text, said));
        json_decref(root);
        orth_mem_free(ctx, json);
        orth_mem_free(ctx, text);
    }
    test_ctx_free(ctx);
}

/* What `plan` says of the winner's whole run. */
static void plan_winner(orth_ctx *ctx, const orth_search *s, int32_t winner, orth_cluster_plan *out, double *tokens)
{
    orth_config cfg;
    orth_model_config model;
    orth_run_plan plan;
    orth_hardware h = s->where.hardware;
    CHECK_OK(ctx, orth_search_config(ctx, s, winner, &cfg));
    CHECK_OK(ctx, orth_describe_model(ctx, &cfg, &model));
    CHECK_OK(ctx, orth_describe_plan(ctx, &plan, &cfg, &model, false));
    CHECK_OK(ctx, orth_hardware_use(ctx, &h, plan.num_ranks));
    CHECK_OK(ctx, orth_cluster_price(ctx, &plan, &h, orth_setup_compute(&cfg), cfg.train_steps, NULL, out));
    *tokens = (double)(cfg.train_steps * cfg.train_global_batch * cfg.data_seq_len);
    orth_run_plan_release(ctx, &plan);
    orth_config_release(ctx, &cfg);
}

/* The cost of the winner in a report is the plan's: on demand, or on spot nodes where that is less. line: NULL: none of that kind. */
static void expect_cost_of_plan(orth_ctx *ctx, const orth_config *base, const orth_place_to_run *where, bool spot, const char *line)
{
    orth_search s;
    orth_cluster_plan plan;
    char *json, *text;
    double tokens;
    int32_t winner;
    CHECK_OK(ctx, orth_search_make_on(ctx, &s, base, where, 4, ORTH_GOAL_COST));
    CHECK_OK(ctx, orth_search_report(ctx, &s, 100, true, &json, &winner));
    CHECK_OK(ctx, orth_search_report(ctx, &s, 100, false, &text, &winner));
    if (line ? !strstr(text, line) : strstr(text, "USD/1e9 of the winner") != NULL)
        fail_msg("wanted %s: %s", line ? line : "no line of what the cost counts", text);
    plan_winner(ctx, &s, winner, &plan, &tokens);
    json_t *root = json_loads(json, 0, NULL), *best = json_array_get(json_object_get(root, "best"), 0), *goodput = json_object_get(best, "goodput");
    const double usd = spot ? plan.spot_usd : plan.on_demand_usd, mine = json_number_value(json_object_get(best, "usd_per_1e9_tokens")) * tokens / 1e9;
    const double share = spot && plan.spot_goodput.share > 0 ? plan.spot_goodput.share : plan.goodput.share;
    if (!(usd > 0) || fabs(mine / usd - 1) > 1e-6)
        fail_msg("search: %.9g USD, plan: %.9g", mine, usd);
    assert_true(json_is_true(json_object_get(best, "spot")) == spot && (!spot || plan.spot_usd < plan.on_demand_usd));
    assert_true(share > 0 ? fabs(json_number_value(goodput) - share) < 1e-6 : json_is_null(goodput));
    json_decref(root);
    orth_mem_free(ctx, json);
    orth_mem_free(ctx, text);
    orth_search_release(ctx, &s);
}

TEST(the_cost_of_a_search_counts_interruptions_and_spot_nodes_as_a_plan_does)
{
    static const char text[] = "model: {preset: llama-tiny, max_seq: 128}\ndata: {seq_len: 128}\ntrain: {global_batch: 8, steps: 100}\n"
                               "precision: {compute: bf16}\nnumerics: {mode: fast}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_place_to_run where = {.described = true};
    CHECK_OK(ctx, orth_hardware_find(ctx, &where.hardware, "a100-80gb"));
    read_base(ctx, &base, text);
    set(ctx, &base, "parallel.cp", "%d", 1);
    expect_cost_of_plan(ctx, &base, &where, false, NULL);
    where.hardware.price_spot = 1.2;
    where.hardware.price_spot_share = 0.5;
    expect_cost_of_plan(ctx, &base, &where, true, "USD/1e9 of the winner: on spot nodes, which are cheaper; without interruptions\n");
    let_fail(&where.hardware, 3);
    where.hardware.failures_spot_hours = 0.7;
    expect_cost_of_plan(ctx, &base, &where, false, "USD/1e9 of the winner: on demand; interruptions included, ");
    where.hardware.failures_spot_hours = 50;
    expect_cost_of_plan(ctx, &base, &where, true, "USD/1e9 of the winner: on spot nodes, which are cheaper; interruptions included, ");
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

/* Every layout that cuts model and batch as the winner does, priced by itself. */
static void expect_no_better_beside(orth_ctx *ctx, orth_search *s, const orth_candidate *winner, double limit, double step_s)
{
    for (int64_t i = 0; i < s->space.num; i++) {
        const orth_candidate *c = &s->space.list[i];
        orth_config cfg;
        orth_price p;
        if (c->pp != winner->pp || c->dp != winner->dp || c->zero != winner->zero || c->micro_batch > 4 || c->bytes > limit)
            continue;
        CHECK_OK(ctx, orth_search_config(ctx, s, (int32_t)i, &cfg));
        CHECK_OK(ctx, orth_price_run(ctx, &s->where, &cfg, &p));
        if (!p.refused && (double)p.bytes <= limit && p.step_s < step_s * (1 - 1e-8)) /* JSON has 9 digits */
            fail_msg("in %.0f bytes a row takes %.9g s, a layout like the winner %.9g s", limit, step_s, p.step_s);
        orth_config_release(ctx, &cfg);
    }
}

/* What less memory costs is mostly recomputation, smaller micro-batches and offload of the winner's own layout. */
TEST(in_less_memory_a_row_is_as_good_as_layouts_like_the_winner_and_says_what_is_not_proved)
{
    static const char text[] = "model: {family: llama, layers: 16, hidden: 2048, heads: 16, kv_heads: 8, vocab: 32000, max_seq: 2048}\ndata: {seq_len: 2048}\n"
                               "train: {global_batch: 32}\nprecision: {compute: bf16}\nnumerics: {mode: fast}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_search s;
    char *report;
    int32_t winner;
    read_base(ctx, &base, text);
    set(ctx, &base, "parallel.tp", "%d", 1);
    set(ctx, &base, "parallel.cp", "%d", 1);
    set(ctx, &base, "parallel.shard_group", "%d", 0);
    CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", "memory.offload_params", "none"));
    CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", "memory.offload_gradients", "none"));
    CHECK_OK(ctx, orth_search_make(ctx, &s, &base, "h100-8", ORTH_GOAL_TIME));
    CHECK_OK(ctx, orth_search_report(ctx, &s, 64, true, &report, &winner));
    json_t *root = json_loads(report, 0, NULL), *front = json_object_get(root, "memory_against_time");
    assert_int_equal(json_array_size(front), 3);
    for (size_t k = 0; k < 3; k++) {
        json_t *row = json_array_get(front, k), *best = json_object_get(row, "best");
        const double step_s = json_number_value(json_object_get(best, "step_s")), next = json_number_value(json_object_get(row, "next_bound_s"));
        assert_true(json_is_object(best));
        assert_true(json_is_true(json_object_get(row, "proved")) ? json_is_null(json_object_get(row, "next_bound_s")) : next > 0 && next <= step_s * (1 + 1e-8));
        expect_no_better_beside(ctx, &s, &s.space.list[winner], json_number_value(json_object_get(row, "memory_limit")), step_s);
    }
    json_decref(root);
    orth_mem_free(ctx, report);
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

int main(void)
{
    orth_keep_freed_memory(); /* as the commands that plan do */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_report_of_a_search_names_the_winner_and_writes_a_run_that_plans_to_the_same_price),
        cmocka_unit_test(what_an_answer_depends_on_is_judged_by_the_goal_and_said_where_the_order_changes),
        cmocka_unit_test(tensor_parallel_in_a_node_is_any_that_stays_in_a_node),
        cmocka_unit_test(the_plans_that_are_allowed_bound_those_for_the_winner_which_the_report_counts),
        cmocka_unit_test(the_cost_of_a_search_counts_interruptions_and_spot_nodes_as_a_plan_does),
        cmocka_unit_test(in_less_memory_a_row_is_as_good_as_layouts_like_the_winner_and_says_what_is_not_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
