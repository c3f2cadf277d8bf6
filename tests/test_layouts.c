/* test_layouts.c -- random layouts: any mesh computes what one rank computes, bit for bit. */
#include <unistd.h>

#include "layout_run.h"
#include "tensor/q8.h"

TEST(data_parallel)
{
    for (int zero = 0; zero <= 3; zero++) {
        for (int k = 0; k < 2; k++) {
            layout_case c = layout_base_case(7, k);
            c.layout.dp = 2 + 2 * k;
            c.layout.zero = zero;
            c.compute = k ? ORTH_BF16 : ORTH_F32;
            check_layout(&c);
        }
    }
}

TEST(names_of_fsdp_stand_for_stages)
{
    static const struct {
        const char *name;
        int stage;
    } names[] = {{"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}, {"NO_SHARD", 0}, {"SHARD_GRAD_OP", 2}, {"FULL_SHARD", 3},
                 {"HYBRID_SHARD", 3}, {"_HYBRID_SHARD_ZERO2", 2}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(names); i++) {
        orth_config c;
        CHECK_OK(ctx, orth_config_init(ctx, &c));
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.zero", names[i].name));
        assert_int_equal(orth_setup_layout(&c).zero, names[i].stage);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* Two to four replicas of two or four shards; three, of which the tree has an odd branch; no shards at all. */
TEST(hybrid_sharding)
{
    static const int dp[] = {4, 8, 8, 6, 4}, group[] = {2, 2, 4, 2, 1};
    for (int k = 0; k < 30; k++) {
        layout_case c = layout_base_case(17, k);
        int m = k / 3 % 5;
        c.layout.dp = dp[m];
        c.layout.shard_group = group[m];
        c.layout.zero = 1 + k % 3;
        c.layout.global_batch = 2 * dp[m];
        c.layout.pp = k % 4 == 3 && dp[m] < 8 ? 2 : 1;
        c.layout.tp = k % 4 == 2 ? 2 : 1;
        c.layout.cp = k % 4 == 1 ? 2 : 1;
        c.layout.keep_whole = c.layout.zero == 3 && k > 15 ? 40 : 0;
        c.compute = k / 2 % 2 ? ORTH_BF16 : ORTH_F32;
        c.model.tied = k % 5 == 0;
        c.model.dropout = c.model.embed_dropout = c.model.attn_dropout = k % 7 == 0 ? 0.1 : 0;
        check_layout(&c);
    }
}

/* Losses whose sum, in fp64, depends on the order: the sequences of a rank are not neighbours under ZeRO 2 and 3. */
TEST(losses_are_summed_in_one_order)
{
    for (int k = 0; k < 12; k++) {
        layout_case c = layout_base_case(18 + (uint64_t)k / 6, k);
        c.layout.dp = k < 6 ? 2 : 4;
        c.layout.shard_group = k < 6 ? 0 : 2;
        c.layout.zero = 1 + k % 3;
        c.layout.global_batch = 16;
        c.model.vocab = 5; /* now and then the target is the likeliest by far */
        c.odd_losses = true;
        check_layout(&c);
    }
}

TEST(pipeline_parallel)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    for (int k = 0; k < 10; k++) {
        layout_case c = layout_base_case(8, k);
        c.layout.pp = 2;
        c.layout.pipeline = schedules[k / 2];
        c.layout.virtual_stages = k / 2 == 2 || k / 2 == 4 ? 2 : 1;
        check_layout(&c);
    }
}

/* One sequence of the step, so one rank of dp, has gradients that overflow: no rank makes the update. */
TEST(an_overflow_on_one_rank_leaves_the_update_out_on_all)
{
    for (int k = 0; k < 6; k++) {
        layout_case c = layout_base_case(5 + 10 * (uint64_t)k, k);
        c.steps = 3;
        c.layout.dp = k < 4 ? 4 : 2;
        c.layout.zero = k % 4;
        c.layout.tp = k == 4 ? 2 : 1;
        c.layout.pp = k == 5 ? 2 : 1;
        check_layout(&c);
    }
}

TEST(zero_bubble_over_four_stages)
{
    for (int k = 0; k < 8; k++) {
        layout_case c = layout_base_case(11, k);
        c.model.layers = 8;
        c.model.tied = k % 2;
        c.layout.pp = 4;
        c.layout.pipeline = k < 4 ? "zb-h1" : "zb-v";
        c.layout.virtual_stages = k < 4 ? 1 : 2;
        c.layout.dp = 1 + k / 2 % 2;
        c.layout.zero = k / 2 % 2 * 3;
        c.layout.global_batch = 16;
        check_layout(&c);
    }
}

/* Bytes of transient buffers that a rank plans. */
static size_t planned_bytes(orth_ctx *ctx, const layout_case *c, const char *pipeline, int rank)
{
    orth_layout layout = c->layout;
    layout.pipeline = pipeline;
    orth_partition partition;
    orth_chunk chunks[64];
    orth_compiled compiled;
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .seq_len = (int32_t)layout.seq_len, .parts = (int32_t)layout.parts,
                              .compute = c->compute, .optimizer = ORTH_OP_adamw};
    CHECK_OK(ctx, orth_partition_make(ctx, &partition, &layout, &c->model));
    orth_partition_shape(&partition, rank, &shape, chunks);
    CHECK_OK(ctx, orth_compiled_build(ctx, &c->model, &shape, &compiled));
    size_t bytes = compiled.program.transient_bytes[ORTH_SPACE_HOST];
    orth_compiled_release(&compiled);
    orth_partition_release(ctx, &partition);
    return bytes;
}

/* Later stages put weight gradients off, and keep what they need. */
TEST(zb_h1_needs_no_more_than_1f1b_on_the_first_stage)
{
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 2; k++) {
        layout_case c = layout_base_case(10, k);
        c.layout.pp = 4;
        for (int r = 0; r < 4; r++)
            print_message("%s, stage %d: 1f1b %zu bytes, zb-h1 %zu\n", k ? "llama" : "gpt2", r,
                          planned_bytes(ctx, &c, "1f1b", r), planned_bytes(ctx, &c, "zb-h1", r));
        assert_true(planned_bytes(ctx, &c, "zb-h1", 0) <= planned_bytes(ctx, &c, "1f1b", 0));
    }
    test_ctx_free(ctx);
}

TEST(tensor_parallel)
{
    for (int k = 0; k < 8; k++) {
        layout_case c = layout_base_case(9, k);
        c.layout.tp = 2;
        c.layout.sequence_parallel = k / 2 % 2;
        c.layout.micro_batch = k < 4 ? 1 : 2;
        c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
        c.model.dropout = c.model.embed_dropout = c.model.attn_dropout = k > 5 ? 0.1 : 0;
        c.model.qk_norm = k % 2 && k < 6;
        check_layout(&c);
    }
}

/* More tensor-parallel ranks than kv heads: each of these lies on several ranks, with some of its query heads. */
static layout_case shared_kv_case(int k)
{
    layout_case c = layout_base_case(17, 1);
    c.guards_device = k == 1;
    c.model.heads = 8;
    c.model.head_dim = 4;
    c.model.kv_heads = k % 3 ? 1 : 2;
    c.layout.tp = 4;
    c.layout.micro_batch = 2;
    c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
    c.doc_mask = k % 3 == 2;
    c.model.dropout = c.model.embed_dropout = c.model.attn_dropout = k % 5 == 2 ? 0.1 : 0;
    c.model.qk_norm = k % 2;
    c.model.qkv_bias = k % 3 > 0;
    return c;
}

TEST(tensor_parallel_with_shared_kv_heads)
{
    for (int k = 0; k < 12; k++) {
        layout_case c = shared_kv_case(k);
        c.layout.sequence_parallel = k / 2 % 2;
        check_layout(&c);
    }
    for (int k = 0; k < 6; k++) { /* with every other axis */
        layout_case c = shared_kv_case(k);
        c.layout.cp = k % 2 + 1;
        c.layout.dp = c.layout.pp = 2;
        c.layout.zero = k % 4;
        c.layout.micro_batch = 1;
        check_layout(&c);
    }
}

/* The formula of docs/parallel.md. */
TEST(shared_kv_heads_send_what_the_formula_says)
{
    for (int k = 0; k < 4; k++) {
        layout_case c = shared_kv_case(k);
        c.layout.cp = k / 2 + 1;
        c.layout.micro_batch = 1;
        check_layout(&c);
        int64_t r = c.layout.tp / c.model.kv_heads, S = c.layout.global_batch * c.steps, P = c.layout.parts;
        int64_t kv = S * c.model.layers * c.layout.seq_len * 2 * c.model.head_dim;
        assert_int_equal(c.over_kv.ideal[ORTH_COMM_ALL_REDUCE], 2 * (r - 1) * (P / c.layout.cp) * 4 * kv / r);
    }
}

/* Data-parallel rank 0 has all optimizer state, gets the gradients, and gives the weights back. */
TEST(one_owner)
{
    for (int k = 0; k < 8; k++) {
        layout_case c = layout_base_case(21, k);
        c.layout.dp = k / 2 % 2 ? 4 : 2;
        c.layout.owner = true;
        c.layout.pp = k / 4 + 1;
        c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
        layout_draw_shares(&c.layout, k % 3);
        check_layout(&c);
    }
    layout_case c = layout_base_case(22, 0);
    c.layout.dp = 2;
    c.layout.owner = true;
    check_layout(&c);
    int64_t bytes = 4 * orth_model_num_elems(&c.model); /* of rank 0: weights out, no gradients */
    assert_int_equal(c.over_dp.ideal[ORTH_COMM_ALL_GATHER], c.steps * bytes);
    assert_int_equal(c.over_dp.ideal[ORTH_COMM_REDUCE_SCATTER], 0);
}

/* Ranks that own less than a gradient, or nothing of it, keep no more of it elsewhere (lower/far.c): a micro-batch that is all of the step is
 * reduced before it leaves. */
TEST(gradients_that_are_elsewhere_have_room_for_what_is_kept_of_them)
{
    for (int k = 0; k < 8; k++) {
        layout_case c = layout_base_case(23, k);
        c.layout.dp = k / 2 % 2 ? 4 : 2;
        c.layout.owner = k % 2;
        c.layout.zero = !c.layout.owner;
        c.layout.pp = k / 4 + 1;
        c.layout.micro_batch = k % 3 ? c.layout.global_batch / c.layout.dp : 1;
        c.offload = (orth_offload){.optimizer = ORTH_TIER_HOST, .params = ORTH_TIER_NONE, .sub_group = 1000, .min_bytes = 1,
                                   .gradients = k % 4 == 1 ? ORTH_TIER_FILE : ORTH_TIER_HOST};
        check_layout(&c);
    }
}

/* Shares of the batch that are no single branches of the tree over sequences: ranks of different speed. */
TEST(uneven_shares)
{
    for (int k = 0; k < 18; k++) {
        layout_case c = layout_base_case(18, k);
        c.layout.dp = k / 2 % 3 == 2 ? 4 : 2;
        c.layout.zero = k % 2;
        c.layout.global_batch = k % 4 ? 8 : 16;
        layout_draw_shares(&c.layout, k / 6 + 1);
        c.layout.pp = k % 3 == 1 ? 2 : 1;
        c.layout.cp = k % 5 == 2 ? 2 : 1;
        c.layout.tp = k % 5 == 4 ? 2 : 1;
        c.model.tied = k % 2;
        c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
        check_layout(&c);
    }
    for (int k = 0; k < 4; k++) { /* equal ones that are no powers of two */
        layout_case c = layout_base_case(19, k);
        c.layout.dp = k / 2 ? 3 : 2;
        c.layout.zero = k % 2;
        c.layout.global_batch = k / 2 ? 9 : 12;
        c.layout.micro_batch = k / 2 ? 3 : 2;
        check_layout(&c);
    }
}

/* What a rank sends over dp for gradients. shares: a kind of layout_draw_shares; 0: equal ones. */
static int64_t reduced_in_fast_mode(int k, int shares)
{
    static const orth_dtype types[] = {ORTH_F32, ORTH_F32, ORTH_BF16, ORTH_Q8};
    layout_case c = layout_base_case(21, k);
    c.layout.dp = k % 3 ? 4 : 2;
    c.layout.zero = k % 2;
    c.layout.shard_group = k % 6 == 5 ? 2 : 0;
    c.layout.global_batch = k % 4 ? 8 : 16;
    c.layout.pp = k % 5 == 1 ? 2 : 1;
    c.layout.cp = k % 5 == 2 ? 2 : 1;
    c.layout.tp = k % 5 == 3 ? 2 : 1;
    c.layout.reproducible = false;
    c.layout.parts = orth_layout_fast_parts(&c.layout);
    layout_draw_shares(&c.layout, shares);
    c.model.tied = k / 2 % 2;
    c.comm.reduce = types[k / 3 % 4];
    c.comm.overlap = k % 2;
    c.tolerance = c.comm.reduce == ORTH_F32 ? 1e-5 : 4e-3;
    check_layout_twice(&c);
    return c.over_dp.sent[c.layout.zero ? ORTH_COMM_REDUCE_SCATTER : ORTH_COMM_ALL_REDUCE];
}

/* Without a tree a gradient is one sum, however many micro-batches a rank has. */
TEST(uneven_shares_in_fast_mode_are_reduced_as_equal_ones)
{
    for (int k = 0; k < 24; k++) {
        const int64_t equal = reduced_in_fast_mode(k, 0);
        assert_true(equal > 4000 || k % 6 == 5); /* shards have a group of their own */
        assert_int_equal(reduced_in_fast_mode(k, k % 3 + 1), equal);
    }
}

/* The formula of docs/parallel.md. Sizes are even, so that both slices are halves. */
TEST(uneven_shares_send_what_the_formula_says)
{
    for (int k = 0; k < 2; k++) {
        layout_case c = layout_base_case(20, k);
        c.layout.dp = 2;
        layout_draw_shares(&c.layout, 3); /* 5 : 3 of 8 sequences: rank 0 has branches of 4 and 1 */
        c.model.vocab = 130;
        c.model.tied = false;
        check_layout(&c);
        int64_t grads = 4 * orth_model_num_elems(&c.model), losses = 5 * (int64_t)sizeof(double);
        assert_int_equal(c.over_dp.ideal[ORTH_COMM_SEND], c.steps * 2 * grads / 2);
        assert_int_equal(c.over_dp.ideal[ORTH_COMM_ALL_GATHER], c.steps * (grads / 2 + losses));
    }
}

/* Both stages that hold a tied embedding cut it alike (found as random layout 1058). */
TEST(tied_embeddings_sharded_on_two_stages)
{
    for (int k = 0; k < 4; k++) {
        layout_case c = layout_base_case(14, k);
        c.layout.dp = c.layout.pp = 4;
        c.layout.tp = 2;
        c.layout.zero = 1 + k % 3;
        c.model.vocab = k / 2 ? 67 : 131;
        c.model.tied = true;
        check_layout(&c);
    }
}

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

TEST(random_layouts)
{
    int n = number("ORTH_LAYOUTS", 12), hybrid = 0, whole = 0;
    uint64_t seed = test_seed();
    for (int i = 0; i < n; i++) {
        layout_case c = layout_random_case(seed + (uint64_t)i, LAYOUT_ANY);
        const orth_layout *l = &c.layout;
        hybrid += l->shard_group > 1 && l->shard_group < l->dp;
        whole += l->keep_whole > 0;
        check_layout(&c);
    }
    printf("%d random layouts equal to one rank, bit for bit: %d with replicas of shards, %d with whole parameters under "
           "ZeRO 3\n", n, hybrid, whole);
    printf("%lld bytes in %lld calls and %lld bytes of memory planned and counted alike, over all layouts and ranks\n",
           (long long)matched.traffic, (long long)matched.calls, (long long)matched.memory);
}

/* Each rank runs its queues in an order of its own, some with events told as late as can be (run/shuffle.c). */
TEST(random_layouts_in_any_order_of_their_queues)
{
    int n = ORTH_MAX(number("ORTH_LAYOUTS", 12) / 10, 8), done = 0, queues = 0;
    uint64_t seed = test_seed();
    for (; done < n; seed++) {
        layout_case c = layout_random_case(seed, LAYOUT_ANY);
        if (orth_layout_ranks(&c.layout) > 8) /* threads that poll */
            continue;
        c.shuffle = seed;
        queues += c.comm.overlap || c.layout.pp > 1;
        check_layout(&c);
        done++;
    }
    printf("%d layouts equal to one rank, bit for bit, in any order of their queues; %d of them have several\n", n, queues);
}

/* random_layouts rarely draws one. */
TEST(random_layouts_with_one_owner)
{
    int n = number("ORTH_LAYOUTS", 12) / 10;
    uint64_t seed = test_seed();
    for (int i = 0; i < n; i++) {
        layout_case c = layout_random_case(seed + (uint64_t)i, LAYOUT_OWNER);
        check_layout(&c);
    }
    printf("%d layouts with one owner equal to one rank, bit for bit\n", n);
}

/* Sums in another order: near one rank, and the same bits in a second run with other threads. Bytes and memory are as
 * planned to the byte. */
TEST(random_layouts_in_fast_mode)
{
    int n = number("ORTH_LAYOUTS", 12) / 10;
    uint64_t seed = test_seed();
    for (int i = 0; i < n; i++) {
        layout_case c = layout_random_case(seed + (uint64_t)i, LAYOUT_FAST);
        c.tolerance = c.comm.reduce != ORTH_F32 ? 4e-3 : c.compute == ORTH_F32 ? 1e-5 : 1e-3;
        check_layout_twice(&c);
    }
    printf("%d layouts in fast mode near one rank, and the same bits twice\n", n);
}

/* ---- as one of several processes ---- */

/* Rank 0 knows what one rank computes and tells the others. A difference on any rank is an error, so that all
 * processes hear of it. */
static orth_status process_main(orth_ctx *ctx, orth_world *world, void *arg)
{
    layout_case *c = arg;
    orth_comm *all;
    int ranks[64];
    for (int i = 0; i < orth_world_size(world); i++)
        ranks[i] = i;
    ORTH_TRY(orth_comm_create(ctx, world, &all, "all", orth_world_size(world), ranks));
    ORTH_TRY(orth_broadcast(ctx, all, c->loss, c->steps, ORTH_F64, 0));
    ORTH_TRY(orth_broadcast(ctx, all, c->norm, c->steps, ORTH_F64, 0));
    ORTH_TRY(orth_broadcast(ctx, all, c->params, orth_model_num_elems(&c->model), ORTH_F32, 0));
    ORTH_TRY(rank_main(ctx, world, c));
    return c->difference[0] ? ORTH_FAIL(ctx, ORTH_ERR_NUMERIC, "%s", c->difference) : ORTH_OK;
}

/* One of the processes of mpirun (test_mpi.c): `count` layouts of n ranks, from this seed on. */
static int run_process(int rank, int n, uint64_t seed, int count)
{
    for (int done = 0; done < count; seed++) {
        layout_case c = layout_random_case(seed, LAYOUT_ANY);
        char what[256];
        if (orth_layout_ranks(&c.layout) != n)
            continue;
        layout_describe(&c, what, sizeof what);
        orth_ctx *ctx = case_ctx(&c, c.threads);
        case_prepare(ctx, &c, rank == 0);
        orth_world_options options = {.backend = ORTH_BACKEND_MPI, .timeout_s = 30};
        orth_status s = orth_run_ranks(ctx, n, process_main, &c, &options);
        if (s != ORTH_OK && !ctx->error.printed_elsewhere)
            printf("%s: %s\n", what, ctx->error.message);
        else if (s == ORTH_OK && rank == 0)
            printf("equal: %s\n", what);
        fflush(stdout);
        if (s != ORTH_OK) {
            usleep(ctx->error.printed_elsewhere ? 300000 : 0); /* until it has been printed */
            return orth_status_exit_code(s);
        }
        case_release(&c);
        test_ctx_free(ctx);
        done++;
    }
    orth_comm_shutdown();
    return 0;
}

/* ---- gradients reduced in bf16 and int8 ---- */

/* One step of two ranks with a sequence each, whose gradients rank 0 hands out. */
typedef struct {
    layout_case *c;
    float *grad[64];
    int64_t num, elems[64];
} reduced;

static void keep_gradients(engine *e, reduced *x)
{
    x->num = e->compiled.blocks.spec.num_params;
    assert_true(x->num <= 64);
    for (int64_t i = 0; i < x->num; i++) {
        x->elems[i] = orth_param_elems_here(&e->compiled.blocks.spec.params[i]);
        x->grad[i] = engine_get(e, ORTH_BIND_GRAD, i);
    }
}

static orth_status reduce_rank(orth_ctx *ctx, orth_world *world, void *arg)
{
    reduced *x = arg;
    int rank = orth_world_rank(world);
    orth_partition partition;
    orth_chunk chunks[4];
    orth_comm *comms[ORTH_NUM_GROUPS] = {0};
    ORTH_TRY(orth_partition_make(ctx, &partition, &x->c->layout, &x->c->model));
    engine e = {.model = x->c->model, .shape = layout_shape(x->c)};
    orth_partition_shape(&partition, rank, &e.shape, chunks);
    orth_status status = engine_open_rank(ctx, &e, world, &partition, comms);
    if (status == ORTH_OK)
        run_steps(ctx, x->c, &partition, &e.shape, &e, rank, &status);
    if (status == ORTH_OK && rank == 0)
        keep_gradients(&e, x);
    if (e.ex)
        engine_close(ctx, &e);
    orth_partition_release(ctx, &partition);
    return status;
}

/* The gradient of sequence `number` alone, which counts twice as much. */
static void reduce_alone(orth_ctx *ctx, const layout_case *of, int number, reduced *x)
{
    layout_case c = *of;
    c.layout.global_batch = 1;
    c.layout.dp = 1;
    c.comm.reduce = ORTH_F32;
    engine e = {.model = c.model, .shape = layout_shape(&c)};
    e.shape.num_seqs = e.shape.num_micro_batches = 1;
    e.shape.mesh.fast = true;
    CHECK_OK(ctx, orth_compiled_build(ctx, &c.model, &e.shape, &e.compiled));
    CHECK_OK(ctx, orth_executor_create(ctx, &e.ex, &e.compiled.program, orth_kernels_cpu(), NULL, false));
    set_weights(&c, &e);
    CHECK_OK(ctx, orth_setup_rope_table(ctx, e.ex, &c.model));
    fill_step(&c, NULL, &e.shape, &e, 0, number, 0);
    CHECK_OK(ctx, orth_executor_run(ctx, e.ex));
    keep_gradients(&e, x);
    engine_close(ctx, &e);
}

static void round_to(orth_dtype type, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += orth_dtype_numbers(type)) {
        orth_q8 block;
        if (type == ORTH_BF16)
            x[i] = orth_bf16_to_f32(orth_bf16_from_f32(x[i]));
        if (type == ORTH_BF16)
            continue;
        orth_q8_from_f32(&block, x + i, ORTH_MIN(n - i, ORTH_Q8_NUM));
        orth_q8_to_f32(x + i, &block, ORTH_MIN(n - i, ORTH_Q8_NUM));
    }
}

/* As the reduction makes it of two gradients: in a. The bound of int8: half of each scale that was rounded to. */
static void round_sum(orth_dtype type, float *a, float *b, int64_t n)
{
    float sum[ORTH_Q8_NUM];
    for (int64_t i = 0; i < n; i += ORTH_Q8_NUM) {
        const int64_t m = ORTH_MIN(n - i, ORTH_Q8_NUM);
        double most[3] = {0};
        for (int64_t k = i; k < i + m; k++) {
            sum[k - i] = a[k] + b[k];
            most[0] = fmax(most[0], fabs((double)a[k]));
            most[1] = fmax(most[1], fabs((double)b[k]));
        }
        round_to(type, a + i, m);
        round_to(type, b + i, m);
        for (int64_t k = i; k < i + m; k++) {
            a[k] += b[k];
            most[2] = fmax(most[2], fabs((double)a[k]));
        }
        round_to(type, a + i, m);
        for (int64_t k = i; type == ORTH_Q8 && k < i + m; k++)
            assert_true(fabs((double)a[k] - (double)sum[k - i]) <= 1.0001 * (most[0] + most[1] + most[2]) / 254);
    }
}

/* Each rank's gradient is rounded, the sum is added up in fp32 and rounded: computed again here of two sequences. */
TEST(a_gradient_reduced_in_bf16_or_int8_is_the_rounded_sum_of_rounded_gradients)
{
    for (int kind = 0; kind < 4; kind++) {
        layout_case c = layout_base_case(7, kind);
        reduced both = {.c = &c}, one[2] = {{.c = &c}, {.c = &c}};
        orth_ctx *ctx = test_ctx(1);
        double loss[1], norm[1];
        float *params = calloc((size_t)max_elems, 4);
        c.layout.dp = c.layout.global_batch = 2;
        c.layout.reproducible = false;
        c.layout.parts = orth_layout_fast_parts(&c.layout);
        c.comm.reduce = kind < 2 ? ORTH_BF16 : ORTH_Q8;
        c.model.tied = false; /* two uses would be rounded one by one */
        c.steps = 1;
        c.loss = loss;
        c.norm = norm;
        c.params = params;
        const orth_world_options options = {.threads_per_rank = 1, .timeout_s = 60, .startup_s = 60, .order = ORTH_ORDER_FREE};
        CHECK_OK(ctx, orth_run_ranks(ctx, 2, reduce_rank, &both, &options));
        for (int r = 0; r < 2; r++)
            reduce_alone(ctx, &c, r, &one[r]);
        for (int64_t i = 0; i < both.num; i++) {
            for (int r = 0; r < 2; r++)
                for (int64_t k = 0; k < both.elems[i]; k++)
                    one[r].grad[i][k] /= 2;
            round_sum(c.comm.reduce, one[0].grad[i], one[1].grad[i], both.elems[i]);
            for (int64_t k = 0; k < both.elems[i]; k++) {
                const float want = one[0].grad[i][k], got = both.grad[i][k];
                if (memcmp(&want, &got, 4) != 0 && (want != 0 || got != 0))
                    fail_msg("kind %d, parameter %d, element %d: %a, wanted %a", kind, (int)i, (int)k, (double)got, (double)want);
            }
            free(both.grad[i]);
            free(one[0].grad[i]);
            free(one[1].grad[i]);
        }
        free(params);
        test_ctx_free(ctx);
    }
}

/* What rank 0 of four sends in reductions of gradients over dp, planned and counted alike (check_plan), near the result of one rank. */
static int64_t sent_of_gradients(int k, orth_dtype type)
{
    layout_case c = layout_base_case(7, k);
    c.layout.dp = 4;
    c.layout.zero = k < 4 ? k : 2 + k % 2;
    c.layout.shard_group = k < 4 ? 0 : 2;
    c.layout.reproducible = false;
    c.layout.parts = orth_layout_fast_parts(&c.layout);
    c.comm.reduce = type;
    c.compute = k % 2 ? ORTH_BF16 : ORTH_F32;
    c.tolerance = 4e-3;
    check_layout(&c);
    return c.over_dp.sent[k == 0 ? ORTH_COMM_ALL_REDUCE : ORTH_COMM_REDUCE_SCATTER];
}

/* Half of the bytes of each gradient in bf16, 260 of 1024 in int8, but for blocks that a tensor, or a shard of it, does not fill: one for
 * each of fewer than 64 tensors and each of 4 ranks, in 5 steps of 2 micro-batches, or of all-reduces that send twice. With replicas of
 * shards, too. */
TEST(gradients_reduced_in_bf16_send_half_and_in_int8_a_quarter)
{
    const int64_t loss = 4096, unfilled = 10 * (64 + 4) * (int64_t)sizeof(orth_q8); /* the loss, in fp64, is reduced in all types */
    for (int k = 0; k < 6; k++) {
        const int64_t wide = sent_of_gradients(k, ORTH_F32), half = sent_of_gradients(k, ORTH_BF16), quarter = sent_of_gradients(k, ORTH_Q8);
        const int64_t least = wide * (int64_t)sizeof(orth_q8) / (4 * ORTH_Q8_NUM) - loss;
        if (k < 4 && (labs(2 * half - wide) > loss || half >= wide || quarter < least || quarter > least + 2 * loss + unfilled || quarter >= half))
            fail_msg("case %d: %lld bytes in fp32, %lld in bf16, %lld in int8", k, (long long)wide, (long long)half, (long long)quarter);
    }
}

/* ZeRO 3: layers gathered for the forward of a micro-batch and again for its backward, but those that stay whole in between, which are
 * the last. Of four equal layers; embedding and head are one weight, gathered for its two uses. */
TEST(layers_that_are_used_again_soon_are_gathered_once)
{
    const int64_t layer = 4 * 32 * 32 + 2 * 32 * 48 + 3 * 32 + 32 + 48 + 32 + 4 * 32, head = 131 * 32 + 2 * 32, none = 0;
    const int64_t reuse[] = {none, head - 1, head, head + 2 * layer, INT64_C(1) << 40, INT64_C(1) << 40}, live[] = {0, 0, 0, 0, 0, 3 * layer};
    const int kept[] = {0, 0, 1, 2, 4, 3};
    int64_t calls[ORTH_COUNT(reuse)];
    for (int i = 0; i < ORTH_COUNT(reuse); i++) {
        layout_case c = layout_base_case(7, 0);
        c.layout.dp = 2;
        c.layout.zero = 3;
        c.layout.micro_batch = 2;
        c.comm.reuse_elems = reuse[i];
        c.comm.live_elems = live[i];
        check_layout(&c);
        calls[i] = c.over_dp.calls[ORTH_COMM_ALL_GATHER];
        if (calls[0] - calls[i] != kept[i] * 2 * c.steps) /* of two micro-batches */
            fail_msg("reuse within %lld: %lld gathers of %lld are saved, wanted those of %d layers", (long long)reuse[i],
                     (long long)(calls[0] - calls[i]), (long long)calls[0], kept[i]);
    }
}

/* ZeRO 3: the calls that gather four layers for a forward and a backward, by what is gathered together. */
TEST(parameters_are_gathered_in_the_units_that_were_asked_for)
{
    const int64_t layer = 4 * 32 * 32 + 2 * 32 * 48 + 3 * 32 + 32 + 48 + 32 + 4 * 32;
    const struct {
        orth_gather_unit unit;
        int64_t size;
        int calls;
    } cases[] = {{ORTH_UNIT_LAYER, 0, 4}, {ORTH_UNIT_HALF, 0, 8}, {ORTH_UNIT_LAYERS, 2, 2}, {ORTH_UNIT_LAYERS, 3, 2}, {ORTH_UNIT_LAYERS, INT64_MAX, 1},
                 {ORTH_UNIT_ELEMS, layer, 4}, {ORTH_UNIT_ELEMS, layer + 1, 2}, {ORTH_UNIT_ELEMS, 3 * layer, 2}};
    int64_t calls[ORTH_COUNT(cases)];
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        layout_case c = layout_base_case(7, 0);
        c.layout.dp = 2;
        c.layout.zero = 3;
        c.layout.micro_batch = 2;
        c.comm.unit = cases[i].unit;
        c.comm.unit_size = cases[i].size;
        check_layout(&c);
        calls[i] = c.over_dp.calls[ORTH_COMM_ALL_GATHER];
        if (calls[i] - calls[0] != (cases[i].calls - 4) * 2 * 2 * c.steps) /* of two micro-batches, there and back */
            fail_msg("unit %d of %lld: %lld gathers beside %lld, wanted %d for four layers", (int)cases[i].unit, (long long)cases[i].size,
                     (long long)calls[i], (long long)calls[0], cases[i].calls);
    }
}

/* How much is brought ahead depends on elements, which are others for each rank's shard: their gathers must come in one order. */
TEST(weights_that_are_elsewhere_are_gathered_in_one_order)
{
    static const int64_t limits[] = {0, 3000, 5000, 7500};
    for (int i = 0; i < 2 * ORTH_COUNT(limits); i++) {
        layout_case c = layout_base_case(8, 0);
        c.layout.dp = 2;
        c.layout.pp = i % 2 ? 4 : 1;
        c.layout.zero = 3;
        c.layout.keep_whole = 1600;
        c.layout.micro_batch = 1;
        c.layout.global_batch = 4;
        c.model.tied = true;
        c.offload = (orth_offload){.optimizer = ORTH_TIER_HOST, .params = ORTH_TIER_HOST, .sub_group = 1000};
        c.comm.prefetch = 4;
        c.comm.prefetch_elems = limits[i / 2];
        check_layout(&c);
    }
}

/* The bits are those of one rank; what is sent is a whole layer from its owner. */
TEST(layers_with_one_owner_each)
{
    for (int k = 0; k < 8; k++) {
        layout_case c = layout_base_case(7, k);
        c.layout.dp = k < 4 ? 4 : 2;
        c.layout.zero = 1 + k % 3;
        c.layout.pp = k < 4 ? 1 : 2;
        c.layout.whole_layers = true;
        c.layout.shard_group = k == 3 ? 2 : 0;
        c.model.tied = k % 2;
        c.compute = k % 2 ? ORTH_BF16 : ORTH_F32;
        check_layout(&c);
    }
}

int main(int argc, char **argv)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (argc == 4 && rank)
        return run_process(atoi(rank), atoi(argv[1]), strtoull(argv[2], NULL, 10), atoi(argv[3]));
    if (argc == 2) /* a test by its name */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_parallel),
        cmocka_unit_test(names_of_fsdp_stand_for_stages),
        cmocka_unit_test(hybrid_sharding),
        cmocka_unit_test(losses_are_summed_in_one_order),
        cmocka_unit_test(pipeline_parallel),
        cmocka_unit_test(an_overflow_on_one_rank_leaves_the_update_out_on_all),
        cmocka_unit_test(zero_bubble_over_four_stages),
        cmocka_unit_test(zb_h1_needs_no_more_than_1f1b_on_the_first_stage),
        cmocka_unit_test(tensor_parallel),
        cmocka_unit_test(tensor_parallel_with_shared_kv_heads),
        cmocka_unit_test(shared_kv_heads_send_what_the_formula_says),
        cmocka_unit_test(one_owner),
        cmocka_unit_test(gradients_that_are_elsewhere_have_room_for_what_is_kept_of_them),
        cmocka_unit_test(uneven_shares),
        cmocka_unit_test(uneven_shares_in_fast_mode_are_reduced_as_equal_ones),
        cmocka_unit_test(uneven_shares_send_what_the_formula_says),
        cmocka_unit_test(tied_embeddings_sharded_on_two_stages),
        cmocka_unit_test(parameters_are_gathered_in_the_units_that_were_asked_for),
        cmocka_unit_test(layers_with_one_owner_each),
        cmocka_unit_test(weights_that_are_elsewhere_are_gathered_in_one_order),
        cmocka_unit_test(random_layouts),
        cmocka_unit_test(random_layouts_in_any_order_of_their_queues),
        cmocka_unit_test(random_layouts_with_one_owner),
        cmocka_unit_test(a_gradient_reduced_in_bf16_or_int8_is_the_rounded_sum_of_rounded_gradients),
        cmocka_unit_test(gradients_reduced_in_bf16_send_half_and_in_int8_a_quarter),
        cmocka_unit_test(layers_that_are_used_again_soon_are_gathered_once),
        cmocka_unit_test(random_layouts_in_fast_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
