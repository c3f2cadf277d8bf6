/* test_check.c -- the programs of all ranks, looked at together: sound layouts are accepted, damage is refused. */
#include <time.h>

#include "damage.h"
#include "plan/programs.h"
#include "plan/traffic.h"

static orth_status check_case(orth_ctx *ctx, const layout_case *c)
{
    orth_partition partition;
    orth_model_shape shape = layout_shape(c);
    ORTH_TRY(orth_partition_make(ctx, &partition, &c->layout, &c->model));
    orth_status s = orth_check_layout(ctx, &partition, &c->model, &shape);
    orth_partition_release(ctx, &partition);
    return s;
}

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void check_random(orth_ctx *ctx, layout_sort sort, int n)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < n; i++) {
        layout_case c = layout_random_case(seed + (uint64_t)i, sort);
        char what[256];
        layout_describe(&c, what, sizeof what);
        if (check_case(ctx, &c) != ORTH_OK)
            fail_msg("%s: %s", what, ctx->error.message);
    }
}

TEST(random_layouts_are_accepted)
{
    int n = number("ORTH_CHECKS", 300);
    orth_ctx *ctx = test_ctx(1);
    check_random(ctx, LAYOUT_ANY, n);
    check_random(ctx, LAYOUT_OWNER, n / 5);
    check_random(ctx, LAYOUT_FAST, n / 5);
    print_message("%d random layouts accepted, with those of one owner and of fast mode %d\n", n, n + 2 * (n / 5));
    test_ctx_free(ctx);
}

/* Of ranks with the same shard those call each other that have other shares. */
TEST(replicas_of_shards_with_uneven_shares_count_alike)
{
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 6; k++) {
        layout_case c = layout_base_case(22, k);
        c.layout.dp = 4;
        c.layout.zero = 1;
        c.layout.shard_group = 2;
        c.layout.tp = k % 2 ? 4 : 1;
        c.layout.micro_batch = 1;
        c.layout.reproducible = false;
        c.layout.parts = orth_layout_fast_parts(&c.layout);
        c.model.tied = true;
        layout_draw_shares(&c.layout, k / 2 + 1);
        CHECK_OK(ctx, check_case(ctx, &c));
    }
    test_ctx_free(ctx);
}

/* One rank of dp has one micro-batch, the other three: sums over cp that are held back come in the same order on both. */
TEST(uneven_shares_with_context_ranks_in_a_pipeline_call_alike)
{
    orth_ctx *ctx = test_ctx(1);
    for (int kind = 0; kind < 2; kind++) {
        layout_case c = layout_base_case(31, kind);
        c.layout.dp = c.layout.pp = c.layout.cp = 2;
        c.layout.global_batch = 4;
        c.layout.micro_batch = 1;
        c.layout.reproducible = false;
        c.layout.parts = orth_layout_fast_parts(&c.layout);
        layout_draw_shares(&c.layout, 1);
        c.comm = (orth_comm_policy){.overlap = true, .bucket_bytes = 32768};
        CHECK_OK(ctx, check_case(ctx, &c));
    }
    test_ctx_free(ctx);
}

/* First and last stage have the tied embedding beside other parameters, and sum their shards of its gradient. */
TEST(shards_of_a_tied_parameter_are_cut_alike_on_both_stages)
{
    layout_case c = layout_base_case(1, 0);
    orth_ctx *ctx = test_ctx(1);
    c.layout.dp = 4;
    c.layout.tp = 2;
    c.layout.pp = 4;
    c.layout.zero = 3;
    c.layout.micro_batch = 1;
    c.layout.seq_len = 24;
    CHECK_OK(ctx, check_case(ctx, &c));
    test_ctx_free(ctx);
}

/* Of the processor: other programs on the machine do not count. */
static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* tp=8 pp=8 dp=16 of 32 layers, 16 micro-batches per rank, once with equal data-parallel ranks and once with all
 * programs different. */
TEST(a_thousand_ranks_are_checked_in_seconds)
{
    for (int zero = 0; zero < 4; zero += 3) {
        orth_ctx *ctx = test_ctx(1);
        layout_case c = layout_base_case(1, 1);
        CHECK_OK(ctx, orth_model_preset(ctx, "llama3-8b", &c.model));
        c.layout.tp = 8;
        c.layout.pp = 8;
        c.layout.dp = 16;
        c.layout.zero = zero;
        c.layout.sequence_parallel = true;
        c.layout.global_batch = 256;
        c.layout.seq_len = 2048;
        c.compute = ORTH_BF16;
        double start = seconds();
        CHECK_OK(ctx, check_case(ctx, &c));
        double took = seconds() - start;
        print_message("1024 ranks, zero=%d: %.2f s of CPU\n", zero, took);
        assert_true(took < number("ORTH_CHECK_SECONDS", 10));
        test_ctx_free(ctx);
    }
}

/* All ranks of group g together. */
static int64_t planned_bytes(patient *x, orth_group g, orth_comm_kind kind)
{
    int64_t sum = 0;
    for (int r = 0; r < x->num_ranks; r++) {
        orth_rank_groups groups = {{0}};
        int ranks[MAX_RANKS];
        for (int i = 0; i < ORTH_NUM_GROUPS; i++) {
            groups.size[i] = ORTH_MAX(orth_partition_group(&x->partition, r, (orth_group)i, ranks), 1);
            for (int k = 0; k < groups.size[i]; k++)
                groups.pos[i] = ranks[k] == r ? k : groups.pos[i];
        }
        sum += orth_traffic_planned(&x->p[r], &groups, (orth_comm_method){.shares_memory = true}).ideal[g][kind];
    }
    return sum;
}

/* N parameters, R ranks: an all-reduce moves 2(R-1)N elements in all, ZeRO 1 as much in two halves, ZeRO 2 one
 * half per micro-batch, ZeRO 3 gathers everything for each forward and each backward besides. */
TEST(planned_traffic_of_data_parallelism_is_the_formula)
{
    for (int zero = 0; zero < 4; zero++) {
        layout_case c = layout_base_case(3, 1);
        c.layout.dp = 4;
        c.layout.zero = zero;
        c.layout.micro_batch = 1; /* two micro-batches a rank */
        patient *x = patient_new(&c, false);
        const int64_t once = 3 * 4 * orth_model_num_elems(&c.model), loss = 2 * 3 * 8 * (zero < 2 ? 1 : 2);
        assert_int_equal(planned_bytes(x, ORTH_GROUP_DP, ORTH_COMM_ALL_REDUCE), loss + (zero ? 0 : 2 * once));
        assert_int_equal(planned_bytes(x, ORTH_GROUP_DP, ORTH_COMM_REDUCE_SCATTER), zero == 0 ? 0 : zero == 1 ? once : 2 * once);
        int64_t again = 2 * 3 * 4 * c.model.vocab * c.model.hidden; /* the head's backward needs no second gather */
        assert_int_equal(planned_bytes(x, ORTH_GROUP_DP, ORTH_COMM_ALL_GATHER),
                         zero == 0 ? 0 : zero < 3 ? once : 4 * once - again);
        patient_free(x);
    }
}

/* dp = 2 replicas x 2 shards, 2 micro-batches a rank: in each of 2 shard groups half of what is above, and an
 * all-reduce of each of 2 shards over 2 replicas, once a step whatever the stage. A threshold above all sizes makes
 * the parameters of ZeRO 3 whole: gathered once, as under ZeRO 2. */
TEST(planned_traffic_of_hybrid_sharding_is_the_formula)
{
    for (int k = 1; k <= 4; k++) {
        layout_case c = layout_base_case(3, 1);
        int64_t zero = ORTH_MIN(k, 3), loss = 2 * 2 * 8;
        c.layout.dp = 4;
        c.layout.shard_group = 2;
        c.layout.zero = zero;
        c.layout.keep_whole = k == 4 ? 1 << 20 : 0;
        patient *x = patient_new(&c, false);
        const int64_t once = 2 * 4 * orth_model_num_elems(&c.model);
        int64_t again = 2 * 2 * 4 * c.model.vocab * c.model.hidden;
        for (int kind = 0; kind < ORTH_NUM_COMM_KINDS; kind++)
            assert_int_equal(planned_bytes(x, ORTH_GROUP_DP, (orth_comm_kind)kind), 0);
        assert_int_equal(planned_bytes(x, ORTH_GROUP_SHARD, ORTH_COMM_ALL_REDUCE), loss * (zero < 2 ? 1 : 2));
        assert_int_equal(planned_bytes(x, ORTH_GROUP_SHARD, ORTH_COMM_REDUCE_SCATTER), zero == 1 ? once : 2 * once);
        assert_int_equal(planned_bytes(x, ORTH_GROUP_SHARD, ORTH_COMM_ALL_GATHER), k != 3 ? once : 4 * once - again);
        assert_int_equal(planned_bytes(x, ORTH_GROUP_REPLICATE, ORTH_COMM_ALL_REDUCE), loss + once);
        patient_free(x);
    }
}

/* A collective of sequence parallelism has an operand for each sequence: more than a 16-bit number can tell apart. */
TEST(the_last_of_40000_operands_of_a_call_is_named)
{
    layout_case c = damage_case(LAYOUT_SP);
    char buffer[96];
    c.model.layers = 1;
    c.layout.seq_len = c.model.max_seq = 8;
    c.layout.micro_batch = c.layout.global_batch = 40000;
    patient *x = patient_new(&c, false);
    int32_t i = 0;
    while (x->p[1].instrs[i].op != ORTH_OP_all_gather || x->p[1].instrs[i].num_in != 40000)
        i++;
    orth_instr *n = &x->p[1].instrs[i];
    snprintf(buffer, sizeof buffer, "buffer '%s'", x->p[0].buffers[x->p[0].instrs[i].in[39999].buffer].name);
    n->num_in = n->num_out = 39999;
    assert_int_equal(patient_check(x), ORTH_ERR_INTERNAL);
    if (!strstr(x->ctx->error.message, "as call 80000 on tp: rank 0") || !strstr(x->ctx->error.message, buffer))
        fail_msg("%s is not named: %s", buffer, x->ctx->error.message);
    patient_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layouts_are_accepted),
        cmocka_unit_test(replicas_of_shards_with_uneven_shares_count_alike),
        cmocka_unit_test(uneven_shares_with_context_ranks_in_a_pipeline_call_alike),
        cmocka_unit_test(shards_of_a_tied_parameter_are_cut_alike_on_both_stages),
        cmocka_unit_test(planned_traffic_of_data_parallelism_is_the_formula),
        cmocka_unit_test(planned_traffic_of_hybrid_sharding_is_the_formula),
        cmocka_unit_test(a_thousand_ranks_are_checked_in_seconds),
        cmocka_unit_test(the_last_of_40000_operands_of_a_call_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
