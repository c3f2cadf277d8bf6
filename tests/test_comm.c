/* test_comm.c -- thread ranks compute what the definitions say, together and beside each other. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* CPU_SET */
#endif
#include <sched.h>

#include "comm_case.h"

#include "base/clock.h"
#include "base/machine.h"
#include "comm/combine.h"

#if defined(__SANITIZE_THREAD__)
#define SLOW 1
#else
#define SLOW 0
#endif

static void run_sweep(int R, sweep s)
{
    orth_ctx *ctx = test_ctx(1);
    const orth_world_options o = {.timeout_s = 60};
    CHECK_OK(ctx, orth_run_ranks(ctx, R, sweep_rank, &s, &o));
    assert_true(s.cases > 0);
    test_ctx_free(ctx);
}

TEST(every_collective_equals_the_serial_tree)
{
    for (int R = 1; R <= 9; R++)
        run_sweep(R, (sweep){.max_count = SLOW ? 1000 : R <= 4 ? 70001 : 4099});
    run_sweep(16, (sweep){.max_count = SLOW ? 17 : 1000});
    run_sweep(64, (sweep){.max_count = SLOW ? 3 : 65});
}

TEST(algorithms_agree_with_the_tree)
{
    for (int R = 2; R <= 9; R++) {
        run_sweep(R, (sweep){.max_count = 1000, .algo = ORTH_ALGO_TREE});
        run_sweep(R, (sweep){.max_count = 1000, .algo = ORTH_ALGO_DIRECT, .order = ORTH_ORDER_FREE});
        run_sweep(R, (sweep){.max_count = 1000, .algo = ORTH_ALGO_RING, .order = ORTH_ORDER_FREE});
    }
    run_sweep(2, (sweep){.max_count = 70001, .algo = ORTH_ALGO_RING, .order = ORTH_ORDER_FREE});
    run_sweep(3, (sweep){.max_count = 70001, .algo = ORTH_ALGO_TREE});
    run_sweep(16, (sweep){.max_count = 17, .algo = ORTH_ALGO_TREE});
    run_sweep(16, (sweep){.max_count = 17, .algo = ORTH_ALGO_RING, .order = ORTH_ORDER_FREE});
}

TEST(started_collectives_equal_blocking_ones)
{
    for (int R = 1; R <= 5; R++)
        run_sweep(R, (sweep){.max_count = 1000, .async = true});
    run_sweep(16, (sweep){.max_count = 17, .async = true});
}

/* ---- combine: instruction sets ---- */

TEST(instruction_sets_give_equal_sums)
{
    enum { N = 9, COUNT = 5003 };
    static uint64_t buffers[N][COUNT + 8], sums[2][COUNT + 8];
    for (int p = 0; p < N; p++)
        for (int i = 0; i < COUNT + 8; i++)
            buffers[p][i] = mix((uint64_t)(p * 100000 + i)) & 0xbfffbfffbfffbfffu; /* finite in every type */
    const orth_dtype types[] = {ORTH_F32, ORTH_BF16, ORTH_F16, ORTH_F64, ORTH_I32, ORTH_I64};
    for (int isa = ORTH_ISA_BASE; isa <= (int)orth_isa_detect(); isa++)
        for (int t = 0; t < ORTH_COUNT(types); t++)
            for (int op = 0; op < ORTH_NUM_REDUCES; op++)
                for (int n = 2; n <= N; n++) {
                    const void *src[N];
                    for (int p = 0; p < n; p++)
                        src[p] = (const char *)buffers[p] + orth_dtype_bytes(types[t]) * (size_t)(p % 2);
                    comm_combine_how how = {.dtype = types[t], .op = (orth_reduce)op, .isa = (orth_isa)isa,
                                            .stream = n % 2 == 1};
                    memset(sums, 0, sizeof sums);
                    comm_combine(&how, (void *[]){sums[0]}, 1, src, n, 1, COUNT - 1);
                    how.isa = ORTH_ISA_BASE;
                    comm_combine(&how, (void *[]){sums[1]}, 1, src, n, 1, COUNT - 1);
                    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
                }
}

/* ---- asynchrony ---- */

enum { MANY = 600, LENGTH = 257 };

/* More calls than may be pending, on two communicators, waited for in another order than started. */
static orth_status start_many(orth_ctx *ctx, orth_world *w, void *arg)
{
    (void)arg;
    const int n = orth_world_size(w), me = orth_world_rank(w);
    int ranks[16];
    for (int p = 0; p < n; p++)
        ranks[p] = p;
    orth_comm *c[2];
    ORTH_TRY(orth_comm_create(ctx, w, &c[0], "a", n, ranks));
    ORTH_TRY(orth_comm_create(ctx, w, &c[1], "b", n, ranks));
    int32_t *x = ORTH_NEW_ARRAY(ctx, int32_t, MANY * LENGTH);
    orth_request requests[MANY];
    if (!x)
        return ORTH_ERR_NOMEM;
    ctx->frozen = true; /* nothing may allocate */
    for (int k = 0; k < MANY; k++) {
        for (int i = 0; i < LENGTH; i++)
            x[k * LENGTH + i] = k * 1000 + i + me;
        const orth_comm_call call = {.kind = ORTH_COMM_ALL_REDUCE, .dtype = ORTH_I32, .send = x + k * LENGTH,
                                     .recv = x + k * LENGTH, .count = LENGTH, .instr = k, .tag = k};
        ORTH_TRY(orth_comm_start(ctx, c[k % 2], &call, &requests[k]));
    }
    orth_status status = ORTH_OK;
    for (int k = MANY - 1; k >= 0; k--) {
        ORTH_TRY(orth_comm_wait(ctx, c[k % 2], requests[k]));
        for (int i = 0; i < LENGTH; i++)
            if (x[k * LENGTH + i] != n * (k * 1000 + i) + n * (n - 1) / 2)
                status = ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "call %d element %d is %d", k, i, x[k * LENGTH + i]);
    }
    ctx->frozen = false;
    orth_mem_free(ctx, x);
    return status; /* communicators are left to the world */
}

/* Two inputs into two outputs, past the caches and through them, at every alignment of the outputs. */
TEST(streamed_sums_of_two_equal_stored_ones)
{
    enum { COUNT = 1003 };
    _Alignas(64) static uint64_t in[2][COUNT], out[3][COUNT + 16];
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < COUNT; i++)
            in[p][i] = mix((uint64_t)(p * 100000 + i)) & 0xbfffbfffbfffbfffu;
    const void *const src[2] = {in[0], in[1]};
    const orth_dtype types[] = {ORTH_F32, ORTH_BF16, ORTH_F16, ORTH_F64, ORTH_I32, ORTH_I64};
    for (int isa = ORTH_ISA_BASE; isa <= (int)orth_isa_detect(); isa++)
        for (int t = 0; t < ORTH_COUNT(types); t++)
            for (int op = 0; op < ORTH_NUM_REDUCES; op++)
                for (int shift = 0; shift < 10; shift++) { /* 0, 8: both outputs lie on 64 bytes */
                    comm_combine_how how = {.dtype = types[t], .op = (orth_reduce)op, .isa = (orth_isa)isa};
                    const size_t bytes = COUNT * orth_dtype_bytes(types[t]);
                    memset(out, 0, sizeof out);
                    comm_combine(&how, (void *[]){out[0]}, 1, src, 2, 0, COUNT);
                    how.stream = true;
                    uint64_t *first = (uint64_t *)((uintptr_t)out[1] / 64 * 64) + 8;
                    uint64_t *second = (uint64_t *)((uintptr_t)out[2] / 64 * 64) + 8 - shift % 8;
                    comm_combine(&how, (void *[]){first, second}, 2, src, 2, 0, COUNT);
                    assert_memory_equal(first, out[0], bytes);
                    assert_memory_equal(second, out[0], bytes);
                    assert_memory_equal((char *)first + bytes, "\0\0\0\0\0\0\0", 8);
                    assert_memory_equal((char *)second + bytes, "\0\0\0\0\0\0\0", 8);
                }
}

TEST(many_started_calls_complete_in_any_order)
{
    orth_ctx *ctx = test_ctx(1);
    for (int R = 1; R <= 4; R++)
        CHECK_OK(ctx, orth_run_ranks(ctx, R, start_many, NULL, NULL));
    test_ctx_free(ctx);
}

/* Rank 0 starts a collective and computes; the others finish it although rank 0 does not wait yet. */
static orth_status overlap(orth_ctx *ctx, orth_world *w, void *arg)
{
    _Atomic int *others_done = arg;
    const int ranks[] = {0, 1, 2};
    orth_comm *c;
    float x[100] = {0};
    orth_request t;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "dp", 3, ranks));
    const orth_comm_call call = {.kind = ORTH_COMM_ALL_REDUCE, .dtype = ORTH_F32, .send = x, .recv = x, .count = 100};
    ORTH_TRY(orth_comm_start(ctx, c, &call, &t));
    if (orth_world_rank(w) == 0) {
        const double start = orth_clock_s();
        while (atomic_load(others_done) < 2)
            if (orth_clock_s() - start > 20)
                return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "the others wait for rank 0 to wait");
    }
    ORTH_TRY(orth_comm_wait(ctx, c, t));
    atomic_fetch_add(others_done, 1);
    return ORTH_OK;
}

TEST(progress_does_not_need_the_peer_to_wait)
{
    orth_ctx *ctx = test_ctx(1);
    _Atomic int others_done = 0;
    CHECK_OK(ctx, orth_run_ranks(ctx, 3, overlap, &others_done, NULL));
    test_ctx_free(ctx);
}

/* Receives started in the opposite order of the sends, from different peers: neither waits for the other. */
static orth_status crossed(orth_ctx *ctx, orth_world *w, void *arg)
{
    (void)arg;
    const int ranks[] = {0, 1, 2}, me = orth_world_rank(w);
    orth_comm *c;
    int64_t x = me, a = -1, b = -1;
    orth_request ta, tb;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "pp", 3, ranks));
    orth_comm_call in = {.kind = ORTH_COMM_RECV, .dtype = ORTH_I64, .recv = &a, .count = 1, .peer = 1};
    if (me == 0) {
        ORTH_TRY(orth_comm_start(ctx, c, &in, &ta));
        in.peer = 2;
        in.recv = &b;
        ORTH_TRY(orth_comm_start(ctx, c, &in, &tb));
        ORTH_TRY(orth_comm_wait(ctx, c, tb));
        ORTH_TRY(orth_send(ctx, c, &b, 1, ORTH_I64, 1)); /* rank 1 sends only after this */
        ORTH_TRY(orth_comm_wait(ctx, c, ta));
        return a == 21 && b == 2 ? ORTH_OK : ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "got %d and %d", (int)a, (int)b);
    }
    if (me == 2)
        return orth_send(ctx, c, &x, 1, ORTH_I64, 0);
    ORTH_TRY(orth_recv(ctx, c, &a, 1, ORTH_I64, 0));
    a = a * 10 + 1;
    return orth_send(ctx, c, &a, 1, ORTH_I64, 0);
}

TEST(receives_do_not_wait_for_each_other)
{
    orth_ctx *ctx = test_ctx(1);
    CHECK_OK(ctx, orth_run_ranks(ctx, 3, crossed, NULL, NULL));
    test_ctx_free(ctx);
}

/* ---- groups ---- */

/* A 2 x 3 x 2 mesh: each axis sums over its own members only. */
static orth_status mesh(orth_ctx *ctx, orth_world *w, void *arg)
{
    (void)arg;
    const int dims[] = {2, 3, 2}, me = orth_world_rank(w);
    const char *const names[] = {"tp", "dp", "pp"};
    for (int axis = 0, stride = 1; axis < 3; stride *= dims[axis++]) {
        const int base = me - me / stride % dims[axis] * stride;
        int ranks[3];
        int64_t x = me, want = 0;
        for (int i = 0; i < dims[axis]; i++)
            want += ranks[i] = base + i * stride;
        orth_comm *c;
        ORTH_TRY(orth_comm_create(ctx, w, &c, names[axis], dims[axis], ranks));
        ORTH_TRY(orth_all_reduce(ctx, c, &x, &x, 1, ORTH_I64, ORTH_SUM));
        if (x != want || ranks[orth_comm_pos(c)] != me)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "%s: %d, not %d", names[axis], (int)x, (int)want);
        orth_comm_destroy(ctx, c);
    }
    return ORTH_OK;
}

TEST(each_axis_of_a_mesh_is_a_group_of_its_own)
{
    orth_ctx *ctx = test_ctx(1);
    CHECK_OK(ctx, orth_run_ranks(ctx, 12, mesh, NULL, &(orth_world_options){.pin = true}));
    test_ctx_free(ctx);
}

static orth_status keep_mask(orth_ctx *ctx, orth_world *w, void *arg)
{
    (void)ctx;
    cpu_set_t *of = arg;
    return sched_getaffinity(0, sizeof *of, &of[orth_world_rank(w)]) == 0 ? ORTH_OK : ORTH_ERR_INTERNAL;
}

TEST(ranks_are_bound_to_cores_of_their_own_where_there_are_enough)
{
    enum { MOST = 1024 };
    cpu_set_t of[2], both;
    int cpus[MOST], package[2], core[2] = {-1, -1}, n = 0;
    orth_ctx *ctx = test_ctx(1);
    CHECK_OK(ctx, orth_run_ranks(ctx, 2, keep_mask, of, &(orth_world_options){.pin = true}));
    test_ctx_free(ctx);
    while (n < MOST && !orth_machine_cpus(cpus, n))
        n++;
    if (n == MOST || orth_machine_cores() < 2)
        return;
    orth_machine_core(cpus[0], &package[0], &core[0]);
    for (int i = 1; i < n && (core[1] < 0 || core[1] == core[0]); i++)
        orth_machine_core(cpus[i], &package[1], &core[1]);
    CPU_AND(&both, &of[0], &of[1]);
    if (core[1] != core[0] && core[1] >= 0)
        assert_int_equal(CPU_COUNT(&both), 0);
    assert_in_range(CPU_COUNT(&of[0]), 1, n);
    assert_in_range(CPU_COUNT(&of[1]), 1, n);
}

static orth_status bad_calls(orth_ctx *ctx, orth_world *w, void *arg)
{
    (void)arg;
    orth_comm *c;
    float x[4] = {0};
    const int all[] = {0, 1}, twice[] = {0, 0};
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "listed twice", orth_comm_create(ctx, w, &c, "dp", 2, twice));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "not in the world", orth_comm_create(ctx, w, &c, "dp", 1, (int[]){7}));
    CHECK_OK(ctx, orth_comm_create(ctx, w, &c, "dp", 2, all));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "cannot be reduced", orth_all_reduce(ctx, c, x, x, 1, ORTH_U8, ORTH_SUM));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "negative", orth_all_reduce(ctx, c, x, x, -1, ORTH_F32, ORTH_SUM));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "peer 2 of 2", orth_broadcast(ctx, c, x, 1, ORTH_F32, 2));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "of 2 members", orth_send(ctx, c, x, 1, ORTH_F32, orth_comm_pos(c)));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "canonical", orth_comm_set(ctx, c, ORTH_ALGO_RING, ORTH_ORDER_CANONICAL));
    return ORTH_OK;
}

TEST(calls_are_checked)
{
    orth_ctx *ctx = test_ctx(1);
    const orth_world_options null = {.backend = ORTH_BACKEND_NULL};
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "ranks=0", orth_run_ranks(ctx, 0, bad_calls, NULL, &null));
    /* The null back end runs its ranks on this thread, so that a check may fail the test. */
    CHECK_OK(ctx, orth_run_ranks(ctx, 2, bad_calls, NULL, &null));
    test_ctx_free(ctx);
}

/* ---- counting ---- */

static orth_status count_only(orth_ctx *ctx, orth_world *w, void *arg)
{
    int64_t (*bytes)[2] = arg;
    const int n = orth_world_size(w), me = orth_world_rank(w), ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
    orth_comm *c;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "dp", n, ranks));
    ORTH_TRY(orth_all_reduce(ctx, c, NULL, NULL, 1000, ORTH_F32, ORTH_SUM));
    ORTH_TRY(orth_all_gather(ctx, c, NULL, NULL, 1000, NULL, ORTH_F32));
    const orth_comm_counts counted = orth_comm_counted(c);
    bytes[me][0] = counted.ideal[ORTH_COMM_ALL_REDUCE];
    bytes[me][1] = counted.ideal[ORTH_COMM_ALL_GATHER];
    return counted.sent[ORTH_COMM_ALL_REDUCE] == 0 && counted.calls[ORTH_COMM_ALL_REDUCE] == 1 ? ORTH_OK
                                                                  : ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "calls");
}

TEST(bytes_are_those_of_a_ring)
{
    orth_ctx *ctx = test_ctx(1);
    int64_t bytes[8][2] = {0}, all_reduce = 0, all_gather = 0;
    CHECK_OK(ctx, orth_run_ranks(ctx, 8, count_only, bytes, &(orth_world_options){.backend = ORTH_BACKEND_NULL}));
    for (int r = 0; r < 8; r++) {
        all_reduce += bytes[r][0];
        all_gather += bytes[r][1];
        assert_int_equal(bytes[r][0], 2 * 7 * 125 * 4); /* 2(n-1)/n of 4000 bytes */
    }
    assert_int_equal(all_reduce, 2 * 7 * 4000);
    assert_int_equal(all_gather, 8 * 7 * 4000);
    /* 1 GB on 8 ranks: 2(n-1)/n of it, 1.75 GB each; slices of uneven counts add up to 2(n-1)*count. */
    orth_comm_call call = {.kind = ORTH_COMM_ALL_REDUCE, .dtype = ORTH_F32, .count = 250000000};
    assert_int_equal(orth_comm_bytes(8, 3, &call), 1750000000);
    call.count = 17;
    int64_t sum = 0;
    for (int r = 0; r < 7; r++)
        sum += orth_comm_bytes(7, r, &call);
    assert_int_equal(sum, 2 * 6 * 17 * 4);
    test_ctx_free(ctx);
}

/* The thresholds that bench/algorithms.sh measured: between processes small sums take a tree, large ones go direct. */
TEST(small_sums_take_a_tree_where_members_send_messages)
{
    orth_comm_method messages = {.algo = ORTH_ALGO_AUTO}, shared = {.algo = ORTH_ALGO_AUTO, .shares_memory = true};
    orth_comm_call call = {.kind = ORTH_COMM_ALL_REDUCE, .dtype = ORTH_F32, .count = 4096};
    for (int n = 2; n <= 64; n *= 2) {
        call.count = 4096;
        assert_int_equal(orth_comm_algo_of(messages, n, &call), ORTH_ALGO_TREE);
        assert_int_equal(orth_comm_algo_of(shared, n, &call), ORTH_ALGO_DIRECT);
        call.count = 4097;
        assert_int_equal(orth_comm_algo_of(messages, n, &call), ORTH_ALGO_DIRECT);
    }
    call.dtype = ORTH_BF16; /* a tree sends sums of bf16 as fp32 */
    assert_int_equal(orth_comm_algo_of(messages, 4, &call), ORTH_ALGO_DIRECT);
    call.kind = ORTH_COMM_BROADCAST;
    assert_int_equal(orth_comm_algo_of(messages, 4, &call), ORTH_ALGO_TREE);
    call.count = 1 << 20;
    assert_int_equal(orth_comm_algo_of(messages, 8, &call), ORTH_ALGO_DIRECT);
    assert_int_equal(orth_comm_algo_of(messages, 9, &call), ORTH_ALGO_TREE);
    messages.algo = ORTH_ALGO_RING; /* asked for, and not there for this kind */
    assert_int_equal(orth_comm_algo_of(messages, 9, &call), ORTH_ALGO_DIRECT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_equals_the_serial_tree),
        cmocka_unit_test(algorithms_agree_with_the_tree),
        cmocka_unit_test(started_collectives_equal_blocking_ones),
        cmocka_unit_test(instruction_sets_give_equal_sums),
        cmocka_unit_test(streamed_sums_of_two_equal_stored_ones),
        cmocka_unit_test(many_started_calls_complete_in_any_order),
        cmocka_unit_test(progress_does_not_need_the_peer_to_wait),
        cmocka_unit_test(receives_do_not_wait_for_each_other),
        cmocka_unit_test(each_axis_of_a_mesh_is_a_group_of_its_own),
        cmocka_unit_test(ranks_are_bound_to_cores_of_their_own_where_there_are_enough),
        cmocka_unit_test(calls_are_checked),
        cmocka_unit_test(bytes_are_those_of_a_ring),
        cmocka_unit_test(small_sums_take_a_tree_where_members_send_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
