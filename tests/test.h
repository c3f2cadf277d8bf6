/* test.h -- what every test program shares: cmocka, a ctx, seeded data, guarded buffers. */
#ifndef ORTH_TESTS_TEST_H
#define ORTH_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/ctx.h"
#include "base/pool.h"
#include "base/rng.h"

#define TEST(name) static void name(void **state_unused_ __attribute__((unused)))
#define TEST_MAX_RANKS 128 /* of a layout that a test runs */

/* The call must succeed; otherwise the recorded message is shown. */
#define CHECK_OK(ctx, call)                                                                \
    do {                                                                                   \
        orth_status check_ = (call);                                                       \
        if (check_ != ORTH_OK)                                                             \
            fail_msg("%s: %s (%s:%d)", #call, (ctx)->error.message, (ctx)->error.file, (ctx)->error.line); \
    } while (0)

/* The call must fail with `code` and a message that contains `text`; the error is then forgotten. */
#define CHECK_FAILS(ctx, code_, text, call)                                                \
    do {                                                                                   \
        orth_status check_ = (call);                                                       \
        if (check_ != (code_) || !strstr((ctx)->error.message, (text)))                    \
            fail_msg("%s: status %d, message \"%s\", wanted %d and \"%s\"", #call, (int)check_, \
                     (ctx)->error.message, (int)(code_), (text));                          \
        orth_ctx_clear_error(ctx);                                                         \
    } while (0)

static inline orth_ctx *test_ctx(int num_threads)
{
    orth_ctx *ctx = calloc(1, sizeof *ctx);
    CHECK_OK(ctx, orth_ctx_init(ctx, num_threads));
    return ctx;
}

/* Fails if anything from orth_mem_alloc is still alive (the pool itself is released first). */
static inline void test_ctx_free(orth_ctx *ctx)
{
    orth_ctx_destroy(ctx);
    assert_int_equal(ctx->heap_bytes, 0);
    free(ctx);
}

/* The first seed of what a test draws: ORTH_SEED, or the clock. Printed, so that a failure can be repeated. */
static inline uint64_t test_seed(void)
{
    const char *given = getenv("ORTH_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("ORTH_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static inline bool test_has_bf16x6(void)
{
    return orth_isa_detect() == ORTH_ISA_AMX;
}

/* The highest level of kernels that this machine can run, asked for or not. */
static inline orth_isa test_top_isa(void)
{
    return test_has_bf16x6() ? ORTH_ISA_AMX_BF16X6 : orth_isa_detect();
}

/* Element i of the test stream, uniform in [-1, 1). */
static inline float test_rand(uint64_t seed, uint64_t i)
{
    return 2.0f * orth_rand_unit(orth_philox(seed, ORTH_STREAM_TEST, 0, i).v[0]) - 1.0f;
}

static inline int64_t test_rand_int(uint64_t seed, uint64_t i, int64_t lo, int64_t hi) /* both included */
{
    return lo + (int64_t)(orth_philox(seed, ORTH_STREAM_TEST, 1, i).v[0] % (uint64_t)(hi - lo + 1));
}

#endif
