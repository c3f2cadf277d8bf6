/* test_gemm.c -- the fast product equals its plain definition bit for bit, however it is cut up. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* names of registers in a signal context */
#endif
#include <math.h>

#include "gemm_case.h"

#include "kernels/cpu/gemm_kernels.h"
#if defined(__x86_64__)
#include "amx_emulator.h"
#endif

TEST(fast_equals_plain_at_every_isa)
{
    const orth_isa best = test_top_isa();
    for (int t = 0; t < ORTH_COUNT(thread_counts); t++) {
        orth_ctx *ctx = test_ctx(thread_counts[t]);
        for (uint64_t i = 0; i < 200; i++) {
            const uint64_t seed = 1000 * (uint64_t)(t + 1) + 20 * i;
            ctx->isa = (orth_isa)(i % ((uint64_t)best + 1));
            const orth_dtype half = i / 20 % 2 ? ORTH_F16 : ORTH_BF16, in = i / 5 % 2 ? half : ORTH_F32, out = i / 10 % 2 ? half : ORTH_F32;
            gemm_case c =
                case_make(in, out, test_rand_int(seed, 2, 1, i % 4 ? 40 : 200),
                          test_rand_int(seed, 3, 1, i % 3 ? 70 : 150), random_split((int)(i / 3 % 4), seed),
                          (int)test_rand_int(seed, 4, 0, 7), (int)test_rand_int(seed, 5, 0, 31), seed);
            c.g.interval = i % 7 == 3 ? test_rand_int(seed, 6, 1, 40) : 0;
            check_case(ctx, &c, i % 2, "random");
            case_free(&c);
        }
        test_ctx_free(ctx);
    }
}

/* Long K goes through several stages and chunks: chains are continued, never restarted. */
TEST(long_sums_and_many_columns_equal_plain)
{
    orth_ctx *ctx = test_ctx(3);
    const orth_isa best = test_top_isa();
    for (int isa = ORTH_ISA_AVX2; isa <= (int)best; isa++) {
        ctx->isa = (orth_isa)isa;
        for (int i = 0; i < 4; i++) {
            const orth_split split = {ORTH_SPLIT_EVEN, i % 2 ? 8 : 1, 9001, 1, 1};
            gemm_case c = case_make(i / 2 ? ORTH_BF16 : ORTH_F32, ORTH_F32, 19 + 32 * (isa >= ORTH_ISA_AMX),
                                    50, split, i, 1, 77);
            check_case(ctx, &c, false, "long");
            c.g.interval = 128;
            check_case(ctx, &c, false, "long, of chains");
            case_free(&c);
        }
        gemm_case wide = case_make(ORTH_F32, ORTH_BF16, 67, 2500, ORTH_SPLIT_WHOLE(31), 1, 0, 78);
        check_case(ctx, &wide, false, "wide");
        case_free(&wide);
        gemm_case tall = case_make(ORTH_BF16, ORTH_F32, 2500, 67, ORTH_SPLIT_WHOLE(31), 2, 0, 79);
        check_case(ctx, &tall, false, "tall");
        case_free(&tall);
        gemm_case later = case_make(ORTH_BF16, ORTH_F32, 700, 112, ORTH_SPLIT_WHOLE(64), 2, 0, 81);
        later.g.c_row = 112; /* whole lines */
        check_case(ctx, &later, false, "written past the caches");
        case_free(&later);
    }
    test_ctx_free(ctx);
}

/* B is packed once for several stages of rows: a thread that finds stage 0 taken must not begin the next before that. Whether
 * it does so is seen by ThreadSanitizer, and with luck in the result. */
TEST(stages_that_share_a_packed_b_wait_for_it)
{
    orth_ctx *ctx = test_ctx(7);
    const orth_isa best = test_top_isa();
    for (int isa = ORTH_ISA_BASE; isa <= (int)best; isa++) {
        ctx->isa = (orth_isa)isa;
        for (int i = 0; i < 8; i++) {
            gemm_case tall = case_make(ORTH_BF16, ORTH_F32, 2500, 67, ORTH_SPLIT_WHOLE(31), 2, 0, 79);
            check_case(ctx, &tall, false, "tall");
            case_free(&tall);
        }
    }
    test_ctx_free(ctx);
}

/* What a rank with part of the rows or columns computes is that part of the whole. */
TEST(block_of_a_product_is_the_product_of_a_block)
{
    orth_ctx *ctx = test_ctx(2);
    const orth_isa best = test_top_isa();
    for (int isa = 0; isa <= (int)best; isa++) {
        for (int type = 0; type < 2; type++) {
            ctx->isa = (orth_isa)isa;
            const orth_split split = {ORTH_SPLIT_EVEN, 4, 333, 1, 1};
            gemm_case c = case_make(type ? ORTH_BF16 : ORTH_F32, ORTH_F32, 61, 131, split, 1, 3, 5);
            float *whole = (float *)(void *)output_make(&c), *part = (float *)(void *)output_make(&c);
            c.g.c = whole;
            run_fast(ctx, &c.g);
            for (uint64_t i = 0; i < 12; i++) {
                const int64_t m0 = test_rand_int(i, 1, 0, 60), n0 = test_rand_int(i, 2, 0, 130);
                orth_gemm_desc g = c.g;
                g.M = i % 3 ? test_rand_int(i, 3, 1, 61 - m0) : 1;
                g.N = test_rand_int(i, 4, 1, 131 - n0);
                g.a = (const char *)g.a + (size_t)(m0 * g.a_row) * orth_dtype_bytes(g.in_type);
                g.b = (const char *)g.b + (size_t)(n0 * g.b_col) * orth_dtype_bytes(g.in_type);
                g.bias += n0;
                g.c = part;
                run_fast(ctx, &g);
                for (int64_t m = 0; m < g.M; m++)
                    assert_memory_equal(part + m * g.c_row, whole + (m0 + m) * g.c_row + n0, (size_t)g.N * 4);
            }
            free(whole);
            free(part);
            case_free(&c);
        }
    }
    test_ctx_free(ctx);
}

static void check_isas(orth_ctx *ctx, gemm_case *c, int least)
{
    char *first = output_make(c), *other = output_make(c);
    for (int isa = least; isa <= (int)orth_isa_detect(); isa++) {
        ctx->isa = (orth_isa)isa;
        c->g.c = isa > least ? other : first;
        run_fast(ctx, &c->g);
        if (isa > least)
            assert_memory_equal(first, other, (size_t)c->c_elems * orth_dtype_bytes(c->g.c_type));
    }
    free(first);
    free(other);
    case_free(c);
}

TEST(fp32_bits_do_not_depend_on_the_isa)
{
    orth_ctx *ctx = test_ctx(2);
    const orth_split split = {ORTH_SPLIT_TOKENS, 8, 101, 1, 3};
    gemm_case c = case_make(ORTH_F32, ORTH_BF16, 45, 99, split, 0, 7, 3);
    check_isas(ctx, &c, ORTH_ISA_BASE);
    test_ctx_free(ctx);
}

/* Several chunks of M and N and stages of K, for either way of cutting a product, and more threads than cores.
 * Instruction sets cut differently, so they check each other. */
TEST(chunks_in_all_directions_change_no_bits)
{
    orth_ctx *ctx = test_ctx(7);
    for (int i = 0; i < 4; i++) {
        const orth_split split = {ORTH_SPLIT_EVEN, i / 2 ? 8 : 1, 1040, 1, 1};
        gemm_case c = case_make(ORTH_F32, ORTH_F32, 1033, 2150, split, i % 2 ? 1 : 2, 16, 4);
        check_isas(ctx, &c, ORTH_ISA_AVX2);
    }
    test_ctx_free(ctx);
}

/* Gradients pile up in place: c may be one of the addends. */
TEST(output_may_be_an_addend)
{
    orth_ctx *ctx = test_ctx(2);
    gemm_case c = case_make(ORTH_F32, ORTH_F32, 33, 70, ORTH_SPLIT_WHOLE(40), 0, 16, 9);
    float *want = random_operand(ORTH_F32, c.c_elems, 1), *got = random_operand(ORTH_F32, c.c_elems, 1);
    c.g.c = want;
    c.g.addend[1] = want;
    CHECK_OK(ctx, orth_gemm_ref(ctx, &c.g));
    c.g.c = got;
    c.g.addend[1] = got;
    run_fast(ctx, &c.g);
    assert_memory_equal(want, got, (size_t)c.c_elems * 4);
    free(want);
    free(got);
    case_free(&c);
    test_ctx_free(ctx);
}

TEST(empty_products_are_epilogues_of_zero)
{
    orth_ctx *ctx = test_ctx(2);
    gemm_case c = case_make(ORTH_F32, ORTH_F32, 9, 50, ORTH_SPLIT_WHOLE(0), 1, 1, 2);
    check_case(ctx, &c, true, "K=0");
    case_free(&c);
    orth_gemm_desc none = {.M = 0, .N = 5, .K = 3, .split = ORTH_SPLIT_WHOLE(3)};
    assert_int_equal(orth_gemm_workspace_bytes(&none, 2, ctx->isa), 0);
    CHECK_OK(ctx, orth_gemm(ctx, &none, NULL));
    test_ctx_free(ctx);
}

/* Denormals, infinities and NaN take the same way through the fast kernels and the plain one. */
static void special_values(orth_ctx *ctx, orth_dtype t)
{
    gemm_case c = case_make(t, ORTH_F32, 20, 60, ORTH_SPLIT_WHOLE(37), 3, 0, 4);
    for (int64_t i = 0; i < 20 * 37; i++)
        orth_store_f32(c.a, t, i, i % 3 ? 0x1p-70f * test_rand(8, (uint64_t)i) : 0x1p-130f);
    for (int64_t i = 0; i < 60 * 37; i++)
        orth_store_f32(c.b, t, i, i % 97 == 0 ? 0x1p127f : 0x1p-60f * test_rand(9, (uint64_t)i));
    check_case(ctx, &c, false, "denormals");
    case_free(&c);
    /* 2^-126 - 2^-150: tiny at 24 bits, but fma of 2^-149's multiples rounds it up to the least normal number. */
    gemm_case edge = case_make(t, ORTH_F32, 40, 40, ORTH_SPLIT_WHOLE(3), 1, 0, 5);
    for (int64_t k = 0; k < 3; k++)
        for (int64_t i = 0; i < 40; i++) {
            orth_store_f32(edge.a, t, i * edge.g.a_row + k * edge.g.a_col, (float[]){0x1p-63f, 0.0f, 0x1p-75f}[k]);
            orth_store_f32(edge.b, t, i * edge.g.b_col + k * edge.g.b_row, (float[]){0x1p-63f, 0.0f, -0x1p-75f}[k]);
        }
    check_case(ctx, &edge, false, "the edge of denormals");
    case_free(&edge);
}

TEST(special_values_follow_the_plain_chain)
{
    orth_ctx *ctx = test_ctx(2);
    const orth_isa best = test_top_isa();
    for (int isa = 0; isa <= (int)best; isa++) {
        ctx->isa = (orth_isa)isa;
        special_values(ctx, ORTH_F32);
        special_values(ctx, ORTH_BF16);
    }
    test_ctx_free(ctx);
}

/* -2^-200 rounds to -0, and a chain of such stays that; 2^-126 - 1.5 * 2^-126 becomes -0 where denormals are flushed, in AMX
 * between groups of 32; addends are -0. */
static void tiny_products(orth_ctx *ctx, orth_dtype t, bool flushed, int epilogue, bool later)
{
    gemm_case c = case_make(t, ORTH_F32, 20, 48, ORTH_SPLIT_WHOLE(37), 1, epilogue, 3);
    const float group[2] = {0x1p-63f, -0x1.8p-63f};
    c.g.c_later = later;
    c.g.c_row = 48; /* whole lines */
    for (int64_t k = 0; k < 37; k++) {
        for (int64_t m = 0; m < 20; m++)
            orth_store_f32(c.a, t, m * c.g.a_row + k, !flushed ? -0x1p-100f : k % 32 ? 0 : group[k / 32]);
        for (int64_t n = 0; n < 48; n++)
            orth_store_f32(c.b, t, n * c.g.b_col + k, flushed ? 0x1p-63f : 0x1p-100f);
    }
    for (int i = 0; i < c.g.num_addends; i++)
        for (int64_t e = 0; e < c.c_elems; e++)
            c.addend[i][e] = -0.0f;
    check_case(ctx, &c, false, "tiny");
    char *out = output_make(&c);
    orth_gemm_desc g = c.g;
    g.c = output_body(&c, out);
    run_fast(ctx, &g);
    for (int64_t i = 0; i < 20 * 48; i++) {
        const float x = ((float *)g.c)[i];
        assert_false(x == 0 && signbit(x));
    }
    free(out);
    case_free(&c);
}

TEST(results_in_fp32_have_no_negative_zero)
{
    orth_ctx *ctx = test_ctx(2);
    const orth_isa best = test_top_isa();
    for (int isa = 0; isa <= (int)best; isa++)
        for (int i = 0; i < 16; i++) {
            ctx->isa = (orth_isa)isa;
            tiny_products(ctx, i & 1 ? ORTH_F32 : ORTH_BF16, i & 2, i & 4 ? 16 : 0, i & 8);
        }
    test_ctx_free(ctx);
}

/* Root of the mean square of the errors of one product at an instruction set, beside sums in double. */
static double error_at(orth_ctx *ctx, gemm_case *c, orth_isa isa)
{
    double sum = 0;
    float *out = (float *)(void *)output_make(c);
    ctx->isa = isa;
    c->g.c = out;
    run_fast(ctx, &c->g);
    for (int64_t m = 0; m < c->g.M; m++)
        for (int64_t n = 0; n < c->g.N; n++) {
            double want = 0;
            for (int64_t k = 0; k < c->g.K; k++)
                want += (double)((float *)c->a)[m * c->g.a_row + k * c->g.a_col] *
                        (double)((float *)c->b)[k * c->g.b_row + n * c->g.b_col];
            const double error = (double)out[m * c->g.c_row + n] - want;
            sum += error * error;
        }
    free(out);
    return sqrt(sum / (double)(c->g.M * c->g.N));
}

/* Short and long sums, of terms of all signs, of one, and of very different sizes. */
TEST(bf16x6_is_more_exact_than_fma)
{
    orth_ctx *ctx = test_ctx(2);
    if (!test_has_bf16x6()) {
        test_ctx_free(ctx);
        skip();
    }
    for (int i = 0; i < 6; i++) {
        gemm_case c = case_make(ORTH_F32, ORTH_F32, 64, 64, ORTH_SPLIT_WHOLE(i % 2 ? 3000 : 64), 1, 0, 31);
        for (int64_t k = 0; k < 64 * c.g.K; k++)
            for (int b = 0; b < 2; b++) {
                float *x = (float *)(b ? c.b : c.a) + k;
                *x = i / 2 == 0 ? *x : i / 2 == 1 ? fabsf(*x) : ldexpf(*x, (int)test_rand_int(5, (uint64_t)(2 * k + b), -12, 12));
            }
        const double fma_error = error_at(ctx, &c, ORTH_ISA_AVX512), error = error_at(ctx, &c, ORTH_ISA_AMX_BF16X6);
        if (!(error < fma_error))
            fail_msg("case %d: error %.3g, of fma %.3g", i, error, fma_error);
        case_free(&c);
    }
    test_ctx_free(ctx);
}

/* One element of A is large or not finite: its row of C is NaN from where it has no pieces. */
TEST(bf16x6_makes_nan_of_what_has_no_pieces)
{
    static const struct { float x; bool is_nan; } cases[] = {
        {0x1.fdp127f, false}, {0x1.ffp127f, true}, {-0x1.fffffep127f, true}, {INFINITY, true}, {NAN, true}};
    orth_ctx *ctx = test_ctx(1);
    if (!test_has_bf16x6()) {
        test_ctx_free(ctx);
        skip();
    }
    ctx->isa = ORTH_ISA_AMX_BF16X6;
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        gemm_case c = case_make(ORTH_F32, ORTH_F32, 33, 40, ORTH_SPLIT_WHOLE(50), 1, 0, 6);
        float *out = (float *)(void *)output_make(&c);
        ((float *)c.a)[7 * c.g.a_row + 20] = cases[i].x;
        for (int64_t n = 0; n < 40; n++)
            ((float *)c.b)[20 * c.g.b_row + n * c.g.b_col] = 0.25f;
        c.g.c = out;
        run_fast(ctx, &c.g);
        for (int64_t m = 0; m < 33; m++)
            for (int64_t n = 0; n < 40; n++)
                assert_true(isnan(out[m * c.g.c_row + n]) == (m == 7 && cases[i].is_nan));
        free(out);
        case_free(&c);
    }
    test_ctx_free(ctx);
}

#if defined(__x86_64__)
static void emulated_products(orth_ctx *ctx, orth_dtype in, uint64_t first_seed)
{
    for (uint64_t i = 0; i < 24; i++) {
        const uint64_t seed = first_seed + 20 * i;
        gemm_case c = case_make(in, i / 4 % 2 ? ORTH_BF16 : ORTH_F32, test_rand_int(seed, 2, 1, 80),
                                test_rand_int(seed, 3, 1, 80), random_split((int)(i % 4), seed),
                                (int)test_rand_int(seed, 4, 0, 7), (int)test_rand_int(seed, 5, 0, 31), seed);
        check_case(ctx, &c, i % 2, "emulated");
        case_free(&c);
    }
    const orth_split split = {ORTH_SPLIT_EVEN, 4, 2301, 1, 1};
    gemm_case c = case_make(in, ORTH_F32, 51, 50, split, 3, 1, 77);
    check_case(ctx, &c, false, "emulated, long");
    case_free(&c);
    special_values(ctx, in);
}

/* The code of the AMX kernels, on processors that have what else it needs. */
TEST(amx_tiles_in_emulation_equal_plain)
{
    if (orth_isa_detect() < ORTH_ISA_AVX512BF16)
        skip();
    amx_emulator_start();
    for (int i = 0; i < 4; i++) {
        orth_ctx *ctx = test_ctx(i % 2 ? 3 : 1);
        const orth_dtype type = i / 2 ? ORTH_F32 : ORTH_BF16;
        ctx->isa = i / 2 ? ORTH_ISA_AMX_BF16X6 : ORTH_ISA_AMX;
        assert_int_equal(orth_gemm_isa(ctx->isa, type), ctx->isa); /* its check of itself passes */
        emulated_products(ctx, type, 5000 * (uint64_t)(i + 1));
        test_ctx_free(ctx);
    }
    amx_emulator_stop();
    assert_true(amx_num_products > 0 || orth_isa_detect() == ORTH_ISA_AMX);
}
#endif

/* What a linear_dw of the longest step adds. */
TEST(all_addends_are_added_in_their_order)
{
    orth_ctx *ctx = test_ctx(3);
    enum { N = 20, K = 24, O = 33 };
    orth_tensor in[2 + ORTH_GEMM_MAX_ADDENDS];
    float *data[2 + ORTH_GEMM_MAX_ADDENDS];
    for (int i = 0; i < ORTH_COUNT(in); i++) {
        data[i] = random_operand(ORTH_F32, O * K, (uint64_t)i);
        in[i] = (orth_tensor){.data = data[i], .dtype = ORTH_F32, .num_dims = 2, .dim = {i < 2 ? N : O, i == 0 ? O : K, 1, 1}};
    }
    const orth_attr attr = {.split = {ORTH_SPLIT_TOKENS, 4, N, 1, 1}, .num_addends = ORTH_GEMM_MAX_ADDENDS};
    const orth_attr alone = {.split = attr.split};
    float out[2][O * K];
    for (int fast = 0; fast < 2; fast++) {
        const orth_tensor o = {.data = out[fast], .dtype = ORTH_F32, .num_dims = 2, .dim = {O, K, 1, 1}};
        orth_op_call call = {.in = in, .out = &o, .num_in = fast ? ORTH_COUNT(in) : 2, .num_out = 1,
                             .attr = fast ? &attr : &alone};
        call.workspace = orth_mem_alloc(ctx, orth_workspace_linear_dw(&call, 3, ctx->isa));
        CHECK_OK(ctx, orth_cpu_linear_dw(ctx, &call));
        orth_mem_free(ctx, call.workspace);
    }
    for (int a = 0; a < ORTH_GEMM_MAX_ADDENDS; a++)
        for (int i = 0; i < O * K; i++)
            out[0][i] = data[2 + a][i] + out[0][i];
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    for (int i = 0; i < ORTH_COUNT(in); i++)
        free(data[i]);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_equals_plain_at_every_isa),
        cmocka_unit_test(long_sums_and_many_columns_equal_plain),
        cmocka_unit_test(stages_that_share_a_packed_b_wait_for_it),
        cmocka_unit_test(block_of_a_product_is_the_product_of_a_block),
        cmocka_unit_test(fp32_bits_do_not_depend_on_the_isa),
        cmocka_unit_test(chunks_in_all_directions_change_no_bits),
        cmocka_unit_test(output_may_be_an_addend),
        cmocka_unit_test(empty_products_are_epilogues_of_zero),
        cmocka_unit_test(bf16x6_is_more_exact_than_fma),
        cmocka_unit_test(bf16x6_makes_nan_of_what_has_no_pieces),
        cmocka_unit_test(special_values_follow_the_plain_chain),
        cmocka_unit_test(results_in_fp32_have_no_negative_zero),
#if defined(__x86_64__)
        cmocka_unit_test(amx_tiles_in_emulation_equal_plain),
#endif
        cmocka_unit_test(all_addends_are_added_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
