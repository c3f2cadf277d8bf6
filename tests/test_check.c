/* test_check.c -- the programs of all ranks, looked at together: sound layouts are accepted, damage is refused. */
#include <time.h>

#include "layouts.h"
#include "parallel/check_layout.h"

static orth_status check_case(orth_ctx *ctx, const layout_case *c)
{
    orth_spread spread;
    orth_model_shape shape = layout_shape(c);
    ORTH_TRY(orth_spread_make(ctx, &spread, &c->layout, &c->model));
    orth_status s = orth_check_layout(ctx, &spread, &c->model, &shape);
    orth_spread_release(ctx, &spread);
    return s;
}

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

TEST(random_layouts_are_accepted)
{
    int n = number("ORTH_CHECKS", 300);
    uint64_t seed = (uint64_t)number("ORTH_LAYOUT_SEED", 1);
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < n; i++) {
        layout_case c = layout_random_case(seed + (uint64_t)i);
        char what[256];
        layout_describe(&c, what, sizeof what);
        if (check_case(ctx, &c) != ORTH_OK)
            fail_msg("%s: %s", what, ctx->error.message);
    }
    test_ctx_free(ctx);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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
        print_message("1024 ranks, zero=%d: %.2f s\n", zero, took);
        assert_true(took < 10);
        test_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layouts_are_accepted),
        cmocka_unit_test(a_thousand_ranks_are_checked_in_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
