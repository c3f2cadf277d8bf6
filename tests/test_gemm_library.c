/* test_gemm_library.c -- products by a library (fast mode) are right, and what it does not take keeps its bits. */
#include "gemm_case.h"

#include <math.h>
#include <pthread.h>

#include "kernels/gemm_library.h"

#if defined(ORTH_HAVE_DNNL)
#if defined(__x86_64__)
#define LIBRARY_HAS_BF16 true
#else
#define LIBRARY_HAS_BF16 false      /* oneDNN 2.6 on Arm has none; another version may */
#endif

static float largest_error(const gemm_case *c, const char *want, const char *got)
{
    float worst = 0;
    for (int64_t m = 0; m < c->g.M; m++)
        for (int64_t n = 0; n < c->g.N; n++) {
            const int64_t at = m * c->g.c_row + n;
            const float w = orth_load_f32(want, c->g.c_type, at), v = orth_load_f32(got, c->g.c_type, at);
            const float error = fabsf(v - w) / fmaxf(1.0f, fabsf(w));
            worst = error <= worst ? worst : error; /* NaN is taken */
        }
    return worst;
}

/* Sums of a few hundred terms of size 1 in another order; bf16 may round to its other neighbour. */
static void check_library(orth_ctx *ctx, gemm_case *c, bool with_pre)
{
    const int taken = orth_gemm_library_products(ctx);
    char *out[4];
    orth_gemm_desc g = outputs_make(ctx, c, with_pre, out);
    CHECK_OK(ctx, orth_gemm_library_add(ctx, &g));
    CHECK_OK(ctx, orth_gemm_library_add(ctx, &g)); /* the same again */
    if (g.in_type == ORTH_BF16 && !LIBRARY_HAS_BF16 && orth_gemm_library_products(ctx) == taken) {
        run_fast(ctx, &g);
    } else {
        assert_int_equal(orth_gemm_library_products(ctx), taken + 1);
        ctx->frozen = true;
        CHECK_OK(ctx, orth_gemm(ctx, &g, NULL)); /* no workspace: our kernels do not run */
        ctx->frozen = false;
    }
    const float most = g.c_type == ORTH_BF16 ? 0x1p-6f : 1e-4f;
    for (int i = 0; i < 1 + with_pre; i++) {
        const float e = largest_error(c, output_body(c, out[i]), output_body(c, out[i + 2]));
        if (!(e <= most))
            fail_msg("output %d: %s->%s M=%d N=%d K=%d, %d threads: error %g", i, orth_dtype_name(g.in_type),
                     orth_dtype_name(g.c_type), (int)g.M, (int)g.N, (int)g.K, orth_pool_num_threads(ctx->pool), e);
        const size_t size = orth_dtype_bytes(g.c_type), body = (size_t)c->c_elems * size;
        assert_memory_equal(out[i], out[i + 2], GUARD * size);
        assert_memory_equal(out[i] + GUARD * size + body, out[i + 2] + GUARD * size + body, GUARD * size);
        for (int64_t m = 0; m < g.M; m++) /* the gaps between rows */
            for (int64_t at = m * g.c_row + g.N; at < (m + 1) * g.c_row; at++)
                assert_memory_equal(output_body(c, out[i + 2]) + (size_t)at * size,
                                    output_body(c, out[i]) + (size_t)at * size, size);
    }
    for (int i = 0; i < 4; i++)
        free(out[i]);
}

static void library_cases(orth_ctx *ctx, uint64_t first, int num)
{
    CHECK_OK(ctx, orth_gemm_library_open(ctx, ORTH_GEMM_LIBRARY_ALL));
    for (int i = 0; i < num; i++) {
        const uint64_t seed = 7000 + 20 * (first + (uint64_t)i);
        gemm_case c = case_make(i % 2 ? ORTH_BF16 : ORTH_F32, i / 2 % 2 ? ORTH_BF16 : ORTH_F32,
                                test_rand_int(seed, 2, 128, i % 5 ? 200 : 700), test_rand_int(seed, 3, 128, 300),
                                random_split(i % 4, seed), (int)test_rand_int(seed, 4, 0, 3),
                                (int)test_rand_int(seed, 5, 0, 31), seed);
        if (c.g.K > 0)
            check_library(ctx, &c, i % 3 == 0);
        case_free(&c);
    }
    assert_true(orth_gemm_library_bytes(ctx) > 0);
    orth_gemm_library_close(ctx);
}

TEST(library_products_are_right_and_allocate_nothing_of_ours)
{
    for (int t = 0; t < ORTH_COUNT(thread_counts); t++) {
        orth_ctx *ctx = test_ctx(thread_counts[t]);
        library_cases(ctx, 100 * (uint64_t)t, 24);
        test_ctx_free(ctx);
    }
}

static void *library_rank(void *arg)
{
    orth_ctx *ctx = test_ctx(2);
    library_cases(ctx, *(const uint64_t *)arg, 12);
    test_ctx_free(ctx);
    return NULL;
}

TEST(several_ranks_use_the_library_at_once)
{
    pthread_t threads[4];
    const uint64_t first[4] = {1000, 2000, 3000, 4000};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, library_rank, (void *)(uintptr_t)&first[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* What was not announced, what is small, and runs at a lower isa stay with the kernels of this program. */
TEST(products_that_the_library_does_not_take_keep_their_bits)
{
    orth_ctx *ctx = test_ctx(2);
    CHECK_OK(ctx, orth_gemm_library_open(ctx, ORTH_GEMM_LIBRARY_ALL));
    gemm_case small = case_make(ORTH_F32, ORTH_F32, 20, 200, ORTH_SPLIT_WHOLE(64), 1, 1, 3);
    gemm_case other = case_make(ORTH_F32, ORTH_F32, 140, 150, ORTH_SPLIT_WHOLE(64), 1, 1, 4);
    CHECK_OK(ctx, orth_gemm_library_add(ctx, &small.g));
    check_case(ctx, &small, false, "small");
    check_case(ctx, &other, false, "not announced");
    if (ctx->isa > ORTH_ISA_AVX2) {
        ctx->isa = ORTH_ISA_AVX2;
        CHECK_OK(ctx, orth_gemm_library_add(ctx, &other.g));
        check_case(ctx, &other, false, "lower isa");
    }
    assert_int_equal(orth_gemm_library_products(ctx), 0);
    orth_gemm_library_close(ctx);
    case_free(&small);
    case_free(&other);
    test_ctx_free(ctx);
}

/* In a run the library gets what it multiplies faster than our kernels: fp32 only where those are plain C. */
TEST(library_gets_fp32_where_ours_are_plain_c)
{
    orth_ctx *ctx = test_ctx(2);
    CHECK_OK(ctx, orth_gemm_library_open(ctx, ORTH_GEMM_LIBRARY_FASTER));
    gemm_case c = case_make(ORTH_F32, ORTH_F32, 140, 150, ORTH_SPLIT_WHOLE(64), 1, 1, 4);
    CHECK_OK(ctx, orth_gemm_library_add(ctx, &c.g));
    assert_int_equal(orth_gemm_library_products(ctx), orth_isa_detect() == ORTH_ISA_BASE);
    orth_gemm_library_close(ctx);
    case_free(&c);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_products_are_right_and_allocate_nothing_of_ours),
        cmocka_unit_test(several_ranks_use_the_library_at_once),
        cmocka_unit_test(products_that_the_library_does_not_take_keep_their_bits),
        cmocka_unit_test(library_gets_fp32_where_ours_are_plain_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 0; /* this build has no library */
}
#endif
