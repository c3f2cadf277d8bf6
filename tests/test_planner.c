/* test_planner.c -- what described devices and links take: against figures that were worked out by hand. */
#include "test.h"

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
    check_near(orth_link_seconds(&h, ORTH_COMM_ALL_REDUCE, 1e9, &p, &algo), 1.75e9 / 100e9 + (14 + 2) * 2e-6);
    assert_int_equal(algo, ORTH_LINK_RING);
}

TEST(a_network_of_1600_Gbit_for_8_devices_is_25_GB_a_second_each_way_and_the_members_of_a_node_share_their_cards)
{
    const orth_hardware h = simple_cluster();
    const double gb = 1e9, ring = 63.0 / 64;
    orth_link_algo algo;
    orth_link_place p = on_nodes(64, 1);   /* one member on each node: its own card */
    check_near(orth_link_seconds(&h, ORTH_COMM_ALL_GATHER, gb, &p, &algo), ring * gb / 25e9 + 10e-6 + 6 * 2e-6);
    p = on_nodes(64, 8);                   /* whole nodes: the ring enters each once, at the rate inside them */
    const double t = orth_link_seconds(&h, ORTH_COMM_ALL_GATHER, gb, &p, &algo);
    assert_true(t >= ring * gb / 100e9 && t < ring * gb / 100e9 + 200e-6);
    p = on_nodes(64, 2);
    check_near(orth_link_seconds(&h, ORTH_COMM_REDUCE_SCATTER, 64 * gb, &p, NULL) / (ring * 64 * gb / 50e9), 1 + 384e-6 / (ring * 64 * gb / 50e9));
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
    p = orth_link_place_of(&h, dp, 6);
    assert_true(p.per_node == 2 && p.num_nodes == 3 && !p.same_node);
    p = orth_link_place_of(&h, pp, 3);
    assert_true(p.per_node == 1 && p.num_nodes == 3 && !p.same_node);
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

/* ---- devices ---- */

static orth_instr product(orth_op op, orth_operand *in, orth_operand *out, int64_t rows, int64_t outs, int64_t ins)
{
    const int64_t x[] = {rows, ins}, w[] = {outs, ins}, y[] = {rows, outs};
    const orth_operand X = orth_operand_of(0, ORTH_BF16, 2, x), W = orth_operand_of(1, ORTH_BF16, 2, w),
                       Y = orth_operand_of(2, ORTH_BF16, 2, y), dW = orth_operand_of(1, ORTH_F32, 2, w);
    in[0] = op == ORTH_OP_linear ? X : Y;
    in[1] = op == ORTH_OP_linear_dw ? X : W;
    out[0] = op == ORTH_OP_linear ? Y : op == ORTH_OP_linear_dx ? X : dW;
    return (orth_instr){.op = op, .in = in, .out = out, .num_in = 2, .num_out = 1};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_all_reduce_of_1_GB_on_8_ranks_sends_1_75_GB_a_rank_in_14_steps),
        cmocka_unit_test(a_network_of_1600_Gbit_for_8_devices_is_25_GB_a_second_each_way_and_the_members_of_a_node_share_their_cards),
        cmocka_unit_test(trees_win_at_small_messages_and_rings_at_large_ones),
        cmocka_unit_test(a_message_takes_the_link_between_its_two_ends),
        cmocka_unit_test(groups_are_found_on_their_nodes),
        cmocka_unit_test(more_members_or_fewer_links_never_make_a_collective_faster),
        cmocka_unit_test(no_instruction_is_faster_than_the_peak_or_the_memory),
        cmocka_unit_test(products_fill_a_device_when_they_are_large_and_lose_by_tiles_rounds_and_short_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
