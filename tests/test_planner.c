/* test_planner.c -- what described devices and links take: against figures that were worked out by hand. */
#include "priced_case.h"

#include <math.h>

#include "plan/device_time.h"
#include "plan/link_time.h"

/* 8 devices of 100 GB/s a node, a card of 25 GB/s for each, nothing lost, latencies of 2 and 10 us. */
static orth_hardware simple_cluster(void)
{
    return (orth_hardware){.node_devices = 8, .node_GBps = 100, .node_share = 1, .node_latency_us = 2, .network_nics = 8,
                           .network_GBps = 25, .network_share = 1, .network_latency_us = 10, .network_taper = 1, .has_network = true};
}

static orth_link_place on_nodes(int n, int per_node)
{
    return (orth_link_place){.n = n, .per_node = per_node, .num_nodes = n / per_node, .same_node = n <= per_node};
}

static void check_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g, wanted %.12g", a, b);
}

TEST(a_ring_all_reduce_of_1_GB_on_8_ranks_sends_1_75_GB_a_rank_in_14_steps)
{
    const orth_hardware h = simple_cluster();
    const orth_link_place p = on_nodes(8, 8);
    orth_link_algo algo;
    const orth_comm_call call = {.kind = ORTH_COMM_ALL_REDUCE, .dtype = ORTH_U8, .count = 1000000000};
    for (int pos = 0; pos < 8; pos++)
        assert_int_equal(orth_comm_bytes(8, pos, &call), 1750000000);
    check_near(orth_link_seconds(&h, ORTH_COMM_ALL_REDUCE, 1e9, &p, &algo), 1.75e9 / 100e9 + 14 * 2e-6);
    assert_int_equal(algo, ORTH_LINK_RING);
}

TEST(a_network_of_1600_Gbit_for_8_devices_is_25_GB_a_second_each_way_and_the_members_of_a_node_share_their_cards)
{
    const orth_hardware h = simple_cluster();
    const double gb = 1e9, ring = 63.0 / 64;
    orth_link_algo algo;
    orth_link_place p = on_nodes(64, 1);   /* one member on each node: its own card */
    check_near(orth_link_seconds(&h, ORTH_COMM_ALL_GATHER, gb, &p, &algo), ring * gb / 25e9 + 6 * 10e-6);
    p = on_nodes(64, 8);                   /* whole nodes: the ring enters each once, at the rate inside them */
    const double t = orth_link_seconds(&h, ORTH_COMM_ALL_GATHER, gb, &p, &algo);
    assert_true(t >= ring * gb / 100e9 && t < ring * gb / 100e9 + 200e-6);
    p = on_nodes(64, 2);
    check_near(orth_link_seconds(&h, ORTH_COMM_REDUCE_SCATTER, 64 * gb, &p, NULL) / (ring * 64 * gb / 50e9), 1 + 374e-6 / (ring * 64 * gb / 50e9));
}

TEST(trees_win_at_small_messages_and_rings_at_large_ones)
{
    const orth_hardware h = simple_cluster();
    const orth_link_place p = on_nodes(512, 8);
    orth_link_algo small, large;
    orth_link_seconds(&h, ORTH_COMM_ALL_REDUCE, 1e3, &p, &small);
    orth_link_seconds(&h, ORTH_COMM_ALL_REDUCE, 8e9, &p, &large);
    assert_int_equal(small, ORTH_LINK_TREE);
    assert_true(large == ORTH_LINK_RING || large == ORTH_LINK_HIERARCHICAL);
}

TEST(a_message_takes_the_link_between_its_two_ends)
{
    const orth_hardware h = simple_cluster();
    orth_link_place p = {.n = 4, .per_node = 1, .num_nodes = 4};
    check_near(orth_link_seconds(&h, ORTH_COMM_SEND, 25e6, &p, NULL), 1e-3 + 10e-6);
    p.same_node = true;
    check_near(orth_link_seconds(&h, ORTH_COMM_RECV, 25e6, &p, NULL), 0.25e-3 + 2e-6);
    p.n = 1;
    assert_true(orth_link_seconds(&h, ORTH_COMM_ALL_REDUCE, 1e9, &p, NULL) == 0);
}

TEST(groups_are_found_on_their_nodes)
{
    const orth_hardware h = simple_cluster();
    const int tp[] = {0, 1, 2, 3}, dp[] = {3, 7, 11, 15, 19, 23}, pp[] = {0, 64, 128};
    orth_link_place p = orth_link_place_of(&h, tp, 4);
    assert_true(p.per_node == 4 && p.num_nodes == 1 && p.same_node);
    const int across[] = {6, 7, 8}, wrapped[] = {0, 8, 1, 9};
    p = orth_link_place_of(&h, across, 3); /* of nodes of 4: 2 here, 1 there, whose card the ring waits for */
    assert_true(p.per_node == 2 && p.fewest == 1 && p.num_nodes == 2);
    const orth_link_place even = {.n = 3, .per_node = 2, .num_nodes = 2};
    assert_true(orth_link_seconds(&h, ORTH_COMM_ALL_GATHER, 1e9, &p, NULL) > 1.5 * orth_link_seconds(&h, ORTH_COMM_ALL_GATHER, 1e9, &even, NULL));
    p = orth_link_place_of(&h, wrapped, 4);
    assert_true(p.fewest == 0);
    p = orth_link_place_of(&h, dp, 6);
    assert_true(p.per_node == 2 && p.num_nodes == 3 && !p.same_node);
    p = orth_link_place_of(&h, pp, 3);
    assert_true(p.per_node == 1 && p.num_nodes == 3 && !p.same_node);
}

/* Stages of 8 nodes with 8 devices each, and pods of 8 nodes: a stage's own calls stay in its pod, all messages to the next leave it. */
TEST(bandwidth_is_tapered_between_pods_and_not_inside_of_one)
{
    orth_hardware h = simple_cluster();
    h.node_devices = 8;
    h.network_pod_nodes = 8;
    h.network_taper = 4;
    int dp[8];
    for (int i = 0; i < 8; i++)
        dp[i] = 64 + 8 * i;
    const int near[] = {64, 120}, far[] = {120, 128};
    orth_link_place p = orth_link_place_of(&h, dp, 8), in = orth_link_place_of(&h, near, 2), out = orth_link_place_of(&h, far, 2);
    assert_true(!p.leaves_pod && !in.leaves_pod && out.leaves_pod);
    const double a = orth_link_seconds(&h, ORTH_COMM_SEND, 1e9, &in, NULL), b = orth_link_seconds(&h, ORTH_COMM_SEND, 1e9, &out, NULL);
    check_near(b - 10e-6, 4 * (a - 10e-6));
    dp[0] = 56;
    out = orth_link_place_of(&h, dp, 8);
    assert_true(out.leaves_pod);
    assert_true(orth_link_seconds(&h, ORTH_COMM_ALL_REDUCE, 1e9, &out, NULL) > 3 * orth_link_seconds(&h, ORTH_COMM_ALL_REDUCE, 1e9, &p, NULL));
}

TEST(more_members_or_fewer_links_never_make_a_collective_faster)
{
    static const orth_comm_kind kinds[] = {ORTH_COMM_ALL_REDUCE, ORTH_COMM_REDUCE_SCATTER, ORTH_COMM_ALL_GATHER, ORTH_COMM_ALL_TO_ALL};
    const orth_hardware h = simple_cluster();
    orth_hardware slow = h;
    slow.network_GBps /= 4;
    for (int i = 0; i < ORTH_COUNT(kinds); i++)
        for (double bytes = 1e3; bytes < 1e11; bytes *= 10)
            for (int n = 16; n <= 4096; n *= 2) {
                const orth_link_place a = on_nodes(n, 8), b = on_nodes(2 * n, 8), scattered = on_nodes(n, 1);
                const double t = orth_link_seconds(&h, kinds[i], bytes, &a, NULL);
                assert_true(orth_link_seconds(&h, kinds[i], bytes, &b, NULL) >= t);
                assert_true(orth_link_seconds(&slow, kinds[i], bytes, &a, NULL) >= t);
                assert_true(bytes < 1e8 || orth_link_seconds(&h, kinds[i], bytes, &scattered, NULL) >= t);
                assert_true(t >= 0.5 * bytes / 200e9 * (kinds[i] == ORTH_COMM_ALL_REDUCE ? 2 : 1));
            }
}

/* ---- transfers that share links ---- */

static orth_transfer transfer(double begin, double seconds, float node, float out, float in)
{
    return (orth_transfer){.begin = begin, .seconds = seconds, .load = {{node, node, out, in}, true}};
}

TEST(two_transfers_on_one_link_share_it_from_when_the_second_begins)
{
    orth_transfer t[] = {transfer(1, 1, 0, 1, 0), transfer(0, 4, 0, 1, 1)};  /* a message of 1 s beside a gather of 4 s: contention.h draws it */
    orth_contention_run(t, 2);
    check_near(t[0].end, 5);   /* sorted by begin: the gather */
    check_near(t[1].end, 3);
    orth_transfer same[] = {transfer(0, 1, 1, 0, 0), transfer(0, 1, 1, 0, 0), transfer(0, 1, 1, 0, 0)};
    orth_contention_run(same, 3);
    for (int i = 0; i < 3; i++)
        check_near(same[i].end, 3);
}

TEST(who_asks_for_less_than_an_equal_part_of_a_link_gets_it_and_other_links_are_apart)
{
    orth_transfer t[] = {transfer(0, 1, 0.4f, 1, 1), transfer(0, 0.6, 1, 0, 0)}; /* a ring over nodes takes 0.4 of the links inside of one */
    orth_contention_run(t, 2);
    assert_true(fabs(t[0].end - 1) < 1e-6 && fabs(t[1].end - 1) < 1e-6);     /* 0.6 of the links are left for 0.6 s of work */
    orth_transfer ways[] = {transfer(0, 1, 0, 1, 0), transfer(0, 2, 0, 0, 1)}; /* sent and received at once */
    orth_contention_run(ways, 2);
    assert_true(ways[0].end == 1 && ways[1].end == 2);
}

TEST(links_are_busy_as_long_as_their_bytes_take)
{
    const orth_hardware h = simple_cluster();
    orth_link_place p = on_nodes(8, 8);
    orth_link_busy b = orth_link_busy_in(&h, ORTH_COMM_ALL_REDUCE, 1e9, &p);   /* 1.75 GB at 100 GB/s */
    check_near(b.node_s, 17.5e-3);
    assert_true(b.network_s == 0);
    p = on_nodes(64, 2);                                                        /* a ring at 2 cards of 25 GB/s, so half of the links of 100 */
    b = orth_link_busy_in(&h, ORTH_COMM_REDUCE_SCATTER, 64e9, &p);
    check_near(b.network_s, 63e9 / 50e9);
    check_near(b.node_s, 63e9 / 100e9);
    p = (orth_link_place){.n = 4, .per_node = 1, .num_nodes = 4};
    b = orth_link_busy_in(&h, ORTH_COMM_SEND, 25e6, &p);
    check_near(b.network_s, 1e-3);
    orth_hardware one = h; /* on nodes of one device there are no links inside */
    one.node_devices = 1;
    one.node_GBps = 0;
    p = on_nodes(4, 1);
    b = orth_link_busy_in(&one, ORTH_COMM_ALL_GATHER, 1e6, &p);
    assert_true(b.node_s == 0 && b.network_s > 0);
    for (double bytes = 1e3; bytes < 1e11; bytes *= 10)
        for (int k = 1; k <= 8; k *= 2)
            for (int kind = 0; kind < ORTH_NUM_COMM_KINDS; kind++) {
                p = on_nodes(64, k);
                b = orth_link_busy_in(&h, (orth_comm_kind)kind, bytes, &p);
                const double s = orth_link_seconds(&h, (orth_comm_kind)kind, bytes, &p, NULL);
                assert_true(b.node_s <= s * (1 + 1e-9) && b.network_s <= s * (1 + 1e-9));
            }
}

/* ---- devices ---- */

static const orth_attr no_attr;

static orth_instr product(orth_op op, orth_operand *in, orth_operand *out, int64_t rows, int64_t outs, int64_t ins)
{
    const int64_t x[] = {rows, ins}, w[] = {outs, ins}, y[] = {rows, outs};
    const orth_operand X = orth_operand_of(0, ORTH_BF16, 2, x), W = orth_operand_of(1, ORTH_BF16, 2, w),
                       Y = orth_operand_of(2, ORTH_BF16, 2, y), dW = orth_operand_of(1, ORTH_F32, 2, w);
    in[0] = op == ORTH_OP_linear ? X : Y;
    in[1] = op == ORTH_OP_linear_dw ? X : W;
    out[0] = op == ORTH_OP_linear ? Y : op == ORTH_OP_linear_dx ? X : dW;
    return (orth_instr){.op = op, .attr = &no_attr, .in = in, .out = out, .num_in = 2, .num_out = 1};
}

TEST(no_instruction_is_faster_than_the_peak_or_the_memory)
{
    static const orth_op ops[] = {ORTH_OP_linear, ORTH_OP_linear_dx, ORTH_OP_linear_dw};
    orth_ctx *ctx = test_ctx(1);
    for (const orth_hardware_file *f = orth_hardware_files(); f->name; f++) {
        orth_hardware h;
        CHECK_OK(ctx, orth_hardware_find(ctx, &h, f->name));
        for (int i = 0; i < 200 && h.device_bf16_tflops > 0; i++) {
            orth_operand in[2], out[1];
            const orth_rand4 r = orth_philox(20240917, ORTH_STREAM_TEST, 0, (uint64_t)i);
            const orth_instr n = product(ops[i % 3], in, out, 1 + r.v[0] % 20000, 1 + r.v[1] % 20000, 1 + r.v[2] % 20000);
            const orth_cost c = orth_instr_cost(&n);
            const double t = orth_device_seconds(&h, &n);
            assert_true(t >= c.hardware_flops / (1e12 * h.device_bf16_tflops) && t >= c.bytes / (1e9 * h.device_memory_GBps));
        }
        orth_hardware_release(ctx, &h);
    }
    test_ctx_free(ctx);
}

TEST(products_fill_a_device_when_they_are_large_and_lose_by_tiles_rounds_and_short_sums)
{
    const double full = orth_gemm_fill(8192, 8192, 8192, 108);
    assert_true(full > 0.93 && full <= 1);
    assert_true(orth_gemm_fill(8192, 8192 + 1, 8192, 108) < full);      /* a column more is a column of tiles more */
    assert_true(orth_gemm_fill(8192, 8192, 64, 108) < 0.5);             /* 64 terms */
    assert_true(orth_gemm_fill(128, 128, 128, 108) < 0.05);             /* a tile for 108 units */
    assert_true(orth_gemm_fill(128, 4096, 16384, 108) > orth_gemm_fill(128, 4096, 256, 108)); /* long sums are cut */
    for (int m = 1; m < 5000; m += 37)
        assert_true(orth_gemm_fill(m, 4096, 4096, 132) > 0 && orth_gemm_fill(m, 4096, 4096, 132) <= 1);
}

/* ---- runs on clusters ---- */

#define SMALL_RUN "model: {preset: llama-tiny, max_seq: 256}\ndata: {seq_len: 256}\ntrain: {global_batch: 32, micro_batch: 2}\n" \
                  "parallel: {dp: 4, tp: 4, pp: 2, zero: 1, sequence_parallel: true}\nprecision: {compute: bf16}\n"

static double step_on(orth_ctx *ctx, const char *text, const orth_hardware *h)
{
    priced x;
    price(ctx, &x, text, *h);
    release(ctx, &x);
    return x.cluster.step_s;
}

TEST(the_parts_of_a_step_make_its_time_and_no_step_is_faster_than_the_peak)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced x;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb"));
    price(ctx, &x, SMALL_RUN, h);
    const orth_cluster_plan *c = &x.cluster;
    double sum = c->compute_s + c->update_s + c->wait_s;
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        sum += c->exposed_s[g];
    assert_true(x.plan.total.data_s == 0 && fabs(sum - c->step_s) < 1e-9 * c->step_s && c->update_s > 0 && c->exposed_s[ORTH_GROUP_TP] > 0);
    assert_true(c->mfu > 0 && c->mfu <= c->hfu && c->hfu < h.device_gemm_share);
    check_near(c->days, 1000 * c->step_s / 86400);
    check_near(c->on_demand_usd, 24 * c->days * 32 * h.price_on_demand);
    release(ctx, &x);
    test_ctx_free(ctx);
}

/* A rank reads 8 sequences of 256 tokens, 8 kB, at an eighth of a node's 1 MB/s. */
TEST(a_step_waits_for_tokens_that_a_slow_disk_brings_later)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced x;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb"));
    const double step = step_on(ctx, SMALL_RUN, &h), loading = 8192 / (1e6 / 8);
    h.node_file_GBps = 0.001;
    price(ctx, &x, SMALL_RUN, h);
    check_near(x.cluster.step_s, loading);
    check_near(x.plan.total.data_s, loading - step);
    check_near(x.cluster.tokens_per_s, 32 * 256 / loading);
    assert_true(x.plan.total.time.step_s == x.cluster.step_s);
    release(ctx, &x);
    test_ctx_free(ctx);
}

TEST(the_same_run_and_cluster_give_the_same_answer_and_worse_links_never_a_faster_one)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h, slow;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb"));
    const double t = step_on(ctx, SMALL_RUN, &h);
    assert_true(step_on(ctx, SMALL_RUN, &h) == t);
    slow = h;
    slow.node_GBps /= 1000;
    assert_true(step_on(ctx, SMALL_RUN, &slow) > t);
    slow = h;
    slow.network_latency_us *= 100;
    assert_true(step_on(ctx, SMALL_RUN, &slow) > t);
    slow = h;
    slow.node_devices = 2; /* tensor-parallel ranks are now on two nodes */
    slow.network_nics = 2;
    assert_true(step_on(ctx, SMALL_RUN, &slow) > t);
    test_ctx_free(ctx);
}

TEST(on_a_cluster_each_rank_is_held_against_the_memory_of_a_device)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced x;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb"));
    price(ctx, &x, SMALL_RUN, h);
    const size_t worst = x.plan.ranks[x.cluster.worst_rank].total_bytes, all = x.plan.total.total_bytes;
    assert_true(all > 20 * worst && x.plan.total.fits);
    for (int r = 0; r < x.plan.num_ranks; r++)
        assert_true(x.plan.ranks[r].total_bytes <= worst);
    release(ctx, &x);
    h.device_reserved_GiB = h.device_memory_GiB - (double)worst / 0x1p30;      /* as much as it needs */
    price(ctx, &x, SMALL_RUN, h);
    assert_true(x.plan.total.fits);
    release(ctx, &x);
    h.device_reserved_GiB += 1.5 / 0x1p30;
    price(ctx, &x, SMALL_RUN, h);
    assert_false(x.plan.total.fits);
    CHECK_FAILS(ctx, ORTH_ERR_NOMEM, "on the rank that needs the most", orth_plan_require_fit(ctx, &x.plan.total));
    release(ctx, &x);
    test_ctx_free(ctx);
}

/* With checkpoint.async rank 0 has a copy of the whole model and its moments, in the memory of its host. */
TEST(on_a_cluster_the_copy_for_a_checkpoint_takes_nothing_of_a_device)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    size_t bytes[2], embedding = 0; /* with its moments */
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb"));
    for (int devices = 0; devices < 2; devices++) {
        static const char text[] = SMALL_RUN "checkpoint: {every_steps: 5}\n";
        orth_config cfg;
        orth_model_config model;
        orth_run_plan plan;
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_config_parse(ctx, &cfg, "run.yaml", text, strlen(text)));
        const orth_config there = devices ? orth_describe_on_devices(&cfg, &h) : cfg;
        CHECK_OK(ctx, orth_describe_model(ctx, &there, &model));
        CHECK_OK(ctx, orth_describe_plan(ctx, &plan, &there, &model, false));
        bytes[devices] = plan.ranks[0].total_bytes;
        embedding = 12 * (size_t)(model.vocab * model.hidden);
        orth_run_plan_release(ctx, &plan);
        orth_config_release(ctx, &cfg);
    }
    assert_true(bytes[0] - bytes[1] > embedding);
    test_ctx_free(ctx);
}

/* The bubble of 1F1B (Narayanan et al. 2021, arXiv:2104.04473): 8 stages with 32 micro-batches idle (p-1)/(m+p-1) = 17.9 % of a step. Here with links and memory that take nothing,
 * so that all micro-batches take as long; the head is what makes it a little more. */
TEST(eight_stages_with_32_micro_batches_wait_about_18_percent_of_a_step)
{
    static const char text[] = "model: {family: llama, layers: 8, hidden: 1024, heads: 8, vocab: 64, max_seq: 512}\ndata: {seq_len: 512}\n"
                               "train: {global_batch: 32, micro_batch: 1}\nparallel: {pp: 8}\nprecision: {compute: bf16}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced x;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "h100"));
    h.node_GBps = h.device_memory_GBps = 1e9;
    h.node_latency_us = h.device_launch_us = 0;
    price(ctx, &x, text, h);
    const double idle = x.cluster.wait_s / (x.cluster.step_s - x.cluster.update_s);
    if (idle < 0.178 || idle > 0.195)
        fail_msg("waits %.3f of a step, wanted 7/39 = 0.179", idle);
    release(ctx, &x);
    test_ctx_free(ctx);
}

static void price_recipe(orth_ctx *ctx, priced *x, const char *recipe, orth_hardware h)
{
    char text[512];
    snprintf(text, sizeof text, "model: {preset: llama-tiny, max_seq: 256}\ndata: {seq_len: 256}\ntrain: {global_batch: 32, micro_batch: 1}\nparallel: {dp: 32}\n"
             "precision: {compute: bf16, products: %s}\n", recipe);
    price(ctx, x, text, h);
}

static void check_products(orth_ctx *ctx, const char *recipe, const char *device, const char *line)
{
    orth_hardware h;
    priced x;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, device));
    price_recipe(ctx, &x, recipe, h);
    char *shown = orth_cluster_text(ctx, &x.plan, &h, &x.cluster);
    if (line ? !strstr(shown, line) : strstr(shown, "\nproducts ") != NULL)
        fail_msg("%s on %s: wanted %s, it says\n%s", recipe, device, line ? line : "nothing of products", shown);
    orth_mem_free(ctx, shown);
    release(ctx, &x);
    orth_hardware_release(ctx, &h);
}

TEST(products_that_are_timed_at_the_rate_of_other_numbers_are_named)
{
    orth_ctx *ctx = test_ctx(1);
    check_products(ctx, "nvfp4", "h100", "\nproducts       nvfp4 is timed at the rate of fp8 on NVIDIA H100 SXM5 80GB, whose description has no device.fp4_tflops\n");
    check_products(ctx, "nvfp4", "a100-80gb", "\nproducts       nvfp4 is timed at the rate of bf16 on NVIDIA A100 SXM4 80GB, whose description has no device.fp4_tflops\n");
    check_products(ctx, "mxfp8", "a100-80gb", "\nproducts       mxfp8 is timed at the rate of bf16 on NVIDIA A100 SXM4 80GB, whose description has no device.fp8_tflops\n");
    check_products(ctx, "fp8_tensor", "h100-a100", "\nproducts       fp8_tensor is timed at the rate of bf16 on NVIDIA A100 SXM4 80GB, whose");
    check_products(ctx, "nvfp4", "h100-a100", "rate of fp8 on NVIDIA H100 SXM5 80GB, whose description has no device.fp4_tflops; nvfp4 is timed at the rate of bf16 on ");
    check_products(ctx, "fp8_delayed", "h100", NULL);
    check_products(ctx, "nvfp4", "b200", NULL);
    check_products(ctx, "same", "a100-80gb", NULL);
    test_ctx_free(ctx);
}

/* Nothing but products takes time, and these reach the rate: what is left out of a peak shows as a share above 1. */
static void make_ideal(orth_hardware *h)
{
    h->device_gemm_share = h->device_attention_share = h->device_memory_share = 1;
    h->device_units = h->device_launch_us = 0;
    h->device_memory_GBps = 1e6;
    h->node_GBps = h->network_GBps = 1e5;
    for (int i = 0; h->mixed && i < h->mixed->num_groups; i++) {
        make_ideal(&h->mixed->group[i].own);
        make_ideal(&h->mixed->group[i].far);
    }
}

static void check_shares(orth_ctx *ctx, priced *x, const orth_hardware_file *file, const char *recipe, orth_dtype compute)
{
    orth_hardware h;
    double flops;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, file->name));
    const bool has = orth_hardware_peak(ctx, &h, compute, &flops) == ORTH_OK;
    orth_ctx_clear_error(ctx);
    if (!h.has_network)
        h.node_devices = x->plan.num_ranks;
    for (int ideal = 0; has && ideal < 2; ideal++) {
        const orth_cluster_plan *c = &x->cluster;
        if (ideal)
            make_ideal(&h);
        CHECK_OK(ctx, orth_cluster_price(ctx, &x->plan, &h, compute, 0, NULL, &x->cluster));
        if (!(c->mfu >= 0 && c->mfu <= c->hfu && c->hfu <= 1) || (ideal && !h.mixed && c->hfu < 0.02))
            fail_msg("%s, %s, %s: MFU %.3f, HFU %.3f of %.3g FLOP/s (%s)", file->name, recipe, orth_dtype_name(compute), c->mfu, c->hfu,
                     c->peak.flops, c->peak.name);
        if (c->peak.flops < flops || (strcmp(recipe, "same") == 0 && (c->peak.flops > flops || !c->peak.is_compute)))
            fail_msg("%s, %s, %s: a peak of %.6g FLOP/s (%s)", file->name, recipe, orth_dtype_name(compute), c->peak.flops, c->peak.name);
    }
    orth_hardware_release(ctx, &h);
}

TEST(no_recipe_makes_a_share_of_the_peak_above_1_on_any_device)
{
    static const struct {
        const char *name;
        orth_dtype dtype;
    } types[] = {{"fp32", ORTH_F32}, {"bf16", ORTH_BF16}, {"fp16", ORTH_F16}};
    static const char *const recipes[] = {"same", "fp8_tensor", "fp8_delayed", "fp8_block", "mxfp8", "nvfp4"};
    assert_int_equal(ORTH_COUNT(recipes), ORTH_NUM_RECIPES);
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h100;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h100, "h100"));
    for (int k = 0; k < ORTH_COUNT(recipes); k++)
        for (int i = 0; i < ORTH_COUNT(types); i++) {
            char text[512];
            priced x;
            snprintf(text, sizeof text, "model: {family: llama, layers: 2, hidden: 2048, heads: 16, vocab: 512, max_seq: 1024}\ndata: {seq_len: 1024}\n"
                     "train: {global_batch: 32, micro_batch: 1}\nparallel: {dp: 32}\nmemory: {recompute: full}\nprecision: {compute: %s, products: %s}\n",
                     types[i].name, recipes[k]);
            price(ctx, &x, text, h100);
            for (const orth_hardware_file *file = orth_hardware_files(); file->name; file++)
                check_shares(ctx, &x, file, recipes[k], types[i].dtype);
            release(ctx, &x);
        }
    orth_hardware_release(ctx, &h100);
    test_ctx_free(ctx);
}

/* Speed lines of a plan: the usual one is as it was. */
TEST(a_share_of_another_peak_than_the_compute_type_s_names_it)
{
    static const struct {
        const char *recipe, *device, *line, *name;
    } cases[] = {{"same", "h100", " (estimates)\n", "bf16"},
                 {"fp8_tensor", "h100", " of the fp8 peak (estimates)\n", "fp8"},
                 {"nvfp4", "h100", " of the fp8 peak (estimates)\n", "fp8"},
                 {"nvfp4", "b200", " of the fp4 peak (estimates)\n", "fp4"},
                 {"mxfp8", "a100-80gb", " (estimates)\n", "bf16"},
                 {"mxfp8", "h100-a100", " of the fp8 and bf16 peak (estimates)\n", "fp8 and bf16"}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_hardware h;
        orth_device_peak peak;
        char wanted[128], shares[64];
        priced x;
        CHECK_OK(ctx, orth_hardware_find(ctx, &h, cases[i].device));
        price_recipe(ctx, &x, cases[i].recipe, h);
        CHECK_OK(ctx, orth_device_peak_of(ctx, &h, ORTH_BF16, x.plan.programs.spec.step.products, &peak));
        snprintf(shares, sizeof shares, "; MFU %.3f, HFU %.3f", x.cluster.mfu, x.cluster.hfu);
        snprintf(wanted, sizeof wanted, "%s%s", shares, cases[i].line);
        char *shown = orth_cluster_text(ctx, &x.plan, &h, &x.cluster), *json = orth_plan_json(ctx, x.plan.ranks, x.plan.num_ranks, &x.plan.total);
        if (!strstr(shown, wanted) || strcmp(peak.name, cases[i].name) != 0)
            fail_msg("%s on %s: wanted \"%s\", of %s, it says\n%s", cases[i].recipe, cases[i].device, wanted, peak.name, shown);
        snprintf(wanted, sizeof wanted, "\"mfu_peak\": \"%s\"", cases[i].name);
        assert_non_null(strstr(json, wanted));
        check_near(x.plan.total.peak_flops, x.plan.num_ranks * peak.flops);
        orth_mem_free(ctx, shown);
        orth_mem_free(ctx, json);
        release(ctx, &x);
        orth_hardware_release(ctx, &h);
    }
    test_ctx_free(ctx);
}

/* ---- interruptions ---- */

TEST(a_checkpoint_of_60_s_with_8_hours_between_failures_is_due_every_31_minutes_and_costs_6_5_percent)
{
    const orth_goodput g = orth_goodput_of(8 * 3600, 60, 0);
    check_near(g.interval_s, sqrt(2 * 60 * 8 * 3600.0));
    assert_true(fabs(g.interval_s / 60 - 31) < 0.05 && fabs(1 - g.share - 0.065) < 0.0005);
    for (double s = 0.5; s < 2.01; s += 0.25) { /* no other interval loses less */
        const double i = s * g.interval_s, lost = 60 / i + i / 2 / (8 * 3600);
        assert_true(lost >= 1 - g.share - 1e-12);
    }
}

/* 466 interruptions in 54 days on 16,384 devices (Llama team, "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.4), states of 405e9
 * parameters, 2 TB/s of storage: the paper says more than 90 % effective training time. */
TEST(sixteen_thousand_devices_with_an_interruption_in_three_hours_make_progress_in_more_than_90_percent_of_the_time)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "h100"));
    h.failures_device_hours = 16384 * 54 * 24.0 / 466;
    h.failures_storage_GBps = 2000;
    h.failures_restart_s = 600;
    const orth_goodput g = orth_goodput_on(&h, 16384, 12.0 * 405e9, false);
    assert_true(fabs(g.between_s / 3600 - 2.78) < 0.01 && g.share > 0.90 && g.share < 0.95);
    h.failures_spot_hours = 1000;
    assert_true(orth_goodput_on(&h, 16384, 12.0 * 405e9, true).share < g.share);
    test_ctx_free(ctx);
}

/* 8 devices on nodes of 2, one of which in two is a spot node that is taken away after 100 hours: failures each 3200 / 8 hours, nodes each 100 / 2. */
TEST(a_share_of_spot_nodes_costs_a_mean_price_and_is_taken_away_as_often_as_it_has_nodes)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced all, half;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb"));
    h.node_devices = 2;
    h.price_on_demand = 4;
    h.has_on_demand = true;
    h.price_spot = 1;
    h.failures_device_hours = 3200;
    h.failures_storage_GBps = 1;
    h.failures_spot_hours = 100;
    price(ctx, &all, SMALL_RUN, h);
    h.price_spot_share = 0.5;
    price(ctx, &half, SMALL_RUN, h);
    const double ranks = half.plan.num_ranks, busy = half.cluster.days * half.cluster.goodput.share;
    check_near(half.cluster.spot_goodput.between_s, 3600 / (ranks / 3200 + ceil(ranks / 4) / 100));
    check_near(all.cluster.spot_goodput.between_s, 3600 / (ranks / 3200 + ceil(ranks / 2) / 100));
    check_near(half.cluster.spot_usd, 24 * busy / half.cluster.spot_goodput.share * ranks * 2.5);
    check_near(all.cluster.spot_usd, 24 * busy / all.cluster.spot_goodput.share * ranks);
    char *text = orth_cluster_text(ctx, &half.plan, &h, &half.cluster);
    assert_non_null(strstr(text, " USD with 50 % of the nodes at 1.00 USD (spot), with what is lost when nodes are taken away\n"));
    assert_non_null(strstr(text, "goodput (spot) "));
    orth_mem_free(ctx, text);
    text = orth_plan_json(ctx, half.plan.ranks, half.plan.num_ranks, &half.plan.total);
    assert_non_null(strstr(text, "\"spot_goodput\": 0.9"));
    orth_mem_free(ctx, text);
    release(ctx, &half);
    release(ctx, &all);
    test_ctx_free(ctx);
}

/* Nodes that are taken away each 3 minutes, and restarts of 10: the plan on demand stands, spot nodes have no price. */
TEST(where_only_spot_nodes_make_no_progress_the_plan_says_so_and_has_no_price_for_them)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced x;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb"));
    h.price_on_demand = 4;
    h.has_on_demand = true;
    h.price_spot = 1;
    h.failures_device_hours = 3200;
    h.failures_storage_GBps = 1;
    h.failures_restart_s = 600;
    h.failures_spot_hours = 0.05;
    price(ctx, &x, SMALL_RUN, h);
    assert_true(x.cluster.goodput.share > 0.9 && x.cluster.on_demand_usd > 0 && x.cluster.spot_goodput.share == 0 && x.cluster.spot_usd == 0);
    char *text = orth_cluster_text(ctx, &x.plan, &h, &x.cluster);
    assert_non_null(strstr(text, " USD at 4.00 USD a device and hour; on spot nodes it does not end: it makes no progress there\n"));
    assert_non_null(strstr(text, "goodput (spot) no progress (estimate): an interruption in 0.0"));
    assert_null(strstr(text, "(spot),"));
    orth_mem_free(ctx, text);
    text = orth_plan_json(ctx, x.plan.ranks, x.plan.num_ranks, &x.plan.total);
    assert_non_null(strstr(text, "\"spot_usd\": null"));
    assert_null(strstr(text, "\"on_demand_usd\": null"));
    orth_mem_free(ctx, text);
    release(ctx, &x);
    h.failures_device_hours = 0.05;
    CHECK_OK(ctx, orth_config_init(ctx, &x.cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, &x.cfg, "run.yaml", SMALL_RUN, strlen(SMALL_RUN)));
    CHECK_OK(ctx, orth_describe_model(ctx, &x.cfg, &x.model));
    CHECK_OK(ctx, orth_describe_plan(ctx, &x.plan, &x.cfg, &x.model, false));
    CHECK_OK(ctx, orth_hardware_use(ctx, &h, x.plan.num_ranks));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "leaves no time for progress", orth_cluster_price(ctx, &x.plan, &h, ORTH_BF16, 1000, NULL, &x.cluster));
    release(ctx, &x);
    test_ctx_free(ctx);
}

TEST(interruptions_make_a_run_longer_and_dearer_by_the_share_that_is_lost)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced without, with;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "a100-80gb"));
    price(ctx, &without, SMALL_RUN, h);
    h.failures_device_hours = 3200;
    h.failures_storage_GBps = 1;
    h.failures_restart_s = 600;
    price(ctx, &with, SMALL_RUN, h);
    assert_true(with.cluster.goodput.share > 0.9 && with.cluster.goodput.share < 1 && without.cluster.goodput.share == 0);
    check_near(with.cluster.goodput.between_s, 100 * 3600);
    check_near(with.cluster.days * with.cluster.goodput.share, without.cluster.days);
    check_near(with.cluster.on_demand_usd * with.cluster.goodput.share, without.cluster.on_demand_usd);
    release(ctx, &with);
    release(ctx, &without);
    test_ctx_free(ctx);
}

/* FLOPs of a token are 6 for each parameter. */
TEST(claims_about_speed_are_held_against_the_peak_of_the_described_devices)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h100, a100;
    double h, a;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h100, "h100"));
    CHECK_OK(ctx, orth_hardware_find(ctx, &a100, "a100-80gb"));
    CHECK_OK(ctx, orth_hardware_peak(ctx, &h100, ORTH_BF16, &h));
    CHECK_OK(ctx, orth_hardware_peak(ctx, &a100, ORTH_BF16, &a));
    assert_true(fabs(6 * 100e9 * 45000 / (128 * h) - 0.21) < 0.005);      /* 100 B at 45,000 tokens/s on 128 H100: 21 % */
    priced x;
    price(ctx, &x, SMALL_RUN, h100); /* 1000 steps: its hours for as many tokens, at its speed */
    const double tokens = 1000.0 * (double)x.plan.total.tokens, hours = 24 * x.cluster.days;
    assert_true(fabs(hours * (1e12 / tokens) * (x.cluster.tokens_per_s / 45000) - 6173) < 1); /* 10^12 tokens at 45,000 tokens/s: 6,173 hours */
    release(ctx, &x);
    assert_true(fabs(0.4 * h / (6 * 70e9) - 940) < 5);                    /* 70 B at 40 %: 940 tokens/s a device */
    assert_true(6 * 74e9 * 444000 / (128 * a) > 4.9);                     /* 74 B at 444,000 tokens/s on 128 A100: five times the peak */
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_all_reduce_of_1_GB_on_8_ranks_sends_1_75_GB_a_rank_in_14_steps),
        cmocka_unit_test(a_network_of_1600_Gbit_for_8_devices_is_25_GB_a_second_each_way_and_the_members_of_a_node_share_their_cards),
        cmocka_unit_test(trees_win_at_small_messages_and_rings_at_large_ones),
        cmocka_unit_test(a_message_takes_the_link_between_its_two_ends),
        cmocka_unit_test(two_transfers_on_one_link_share_it_from_when_the_second_begins),
        cmocka_unit_test(who_asks_for_less_than_an_equal_part_of_a_link_gets_it_and_other_links_are_apart),
        cmocka_unit_test(links_are_busy_as_long_as_their_bytes_take),
        cmocka_unit_test(groups_are_found_on_their_nodes),
        cmocka_unit_test(bandwidth_is_tapered_between_pods_and_not_inside_of_one),
        cmocka_unit_test(more_members_or_fewer_links_never_make_a_collective_faster),
        cmocka_unit_test(no_instruction_is_faster_than_the_peak_or_the_memory),
        cmocka_unit_test(products_fill_a_device_when_they_are_large_and_lose_by_tiles_rounds_and_short_sums),
        cmocka_unit_test(the_parts_of_a_step_make_its_time_and_no_step_is_faster_than_the_peak),
        cmocka_unit_test(a_step_waits_for_tokens_that_a_slow_disk_brings_later),
        cmocka_unit_test(the_same_run_and_cluster_give_the_same_answer_and_worse_links_never_a_faster_one),
        cmocka_unit_test(on_a_cluster_each_rank_is_held_against_the_memory_of_a_device),
        cmocka_unit_test(on_a_cluster_the_copy_for_a_checkpoint_takes_nothing_of_a_device),
        cmocka_unit_test(a_checkpoint_of_60_s_with_8_hours_between_failures_is_due_every_31_minutes_and_costs_6_5_percent),
        cmocka_unit_test(sixteen_thousand_devices_with_an_interruption_in_three_hours_make_progress_in_more_than_90_percent_of_the_time),
        cmocka_unit_test(products_that_are_timed_at_the_rate_of_other_numbers_are_named),
        cmocka_unit_test(no_recipe_makes_a_share_of_the_peak_above_1_on_any_device),
        cmocka_unit_test(a_share_of_another_peak_than_the_compute_type_s_names_it),
        cmocka_unit_test(where_only_spot_nodes_make_no_progress_the_plan_says_so_and_has_no_price_for_them),
        cmocka_unit_test(a_share_of_spot_nodes_costs_a_mean_price_and_is_taken_away_as_often_as_it_has_nodes),
        cmocka_unit_test(interruptions_make_a_run_longer_and_dearer_by_the_share_that_is_lost),
        cmocka_unit_test(claims_about_speed_are_held_against_the_peak_of_the_described_devices),
        cmocka_unit_test(eight_stages_with_32_micro_batches_wait_about_18_percent_of_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
