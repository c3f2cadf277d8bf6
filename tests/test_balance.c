/* test_balance.c -- layers over the chunks of a pipeline. */
#include "test.h"

#include "parallel/pipeline/balance.h"

/* All splits: the least maximum, then the least sum of squares, then the first in order of layer counts. */
static void brute_force(const int64_t *cost, int L, int64_t embed, int64_t head, int C, int32_t *best)
{
    int64_t best_max = INT64_MAX, best_squares = INT64_MAX;
    int32_t cut[8] = {0};
    for (int mask = 0; mask < 1 << (L - 1); mask++) {
        if (__builtin_popcount((unsigned)mask) != C - 1)
            continue;
        int c = 0;
        int64_t now = embed, max = 0, squares = 0;
        for (int l = 0; l < L; l++) {
            now += cost[l];
            if (l == L - 1)
                now += head;
            if (l == L - 1 || mask >> l & 1) {
                max = ORTH_MAX(max, now);
                squares += now * now;
                cut[++c] = l + 1;
                now = 0;
            }
        }
        bool less = max < best_max || (max == best_max && squares < best_squares);
        for (int i = 1; max == best_max && squares == best_squares && i <= C && !less; i++) {
            if (cut[i] > best[i])
                break;
            less = cut[i] < best[i];
        }
        if (less) {
            best_max = max;
            best_squares = squares;
            memcpy(best, cut, (size_t)(C + 1) * sizeof *cut);
        }
    }
}

TEST(balance_equals_brute_force)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 0; seed < 400; seed++) {
        int64_t cost[10];
        int32_t begin_at[11], want[11] = {0};
        const int L = (int)test_rand_int(seed, 0, 1, 10), C = (int)test_rand_int(seed, 1, 1, ORTH_MIN(L, 7));
        const int64_t spread = seed % 4 == 0 ? 0 : 20; /* every fourth: equal layers */
        for (int l = 0; l < L; l++)
            cost[l] = 10 + test_rand_int(seed, (uint64_t)(10 + l), -spread / 2, spread);
        const int64_t embed = test_rand_int(seed, 2, 0, 15), head = test_rand_int(seed, 3, 0, 40);
        CHECK_OK(ctx, orth_balance_layers(ctx, cost, L, embed, head, C, begin_at));
        brute_force(cost, L, embed, head, C, want);
        assert_memory_equal(begin_at, want, (size_t)(C + 1) * sizeof *want);
    }
    test_ctx_free(ctx);
}

TEST(balance_takes_layers_from_the_stage_with_the_head)
{
    orth_ctx *ctx = test_ctx(1);
    int64_t cost[32];
    int32_t at[5];
    for (int l = 0; l < 32; l++)
        cost[l] = 1000;
    CHECK_OK(ctx, orth_balance_layers(ctx, cost, 32, 10, 3500, 4, at));
    assert_int_equal(at[4] - at[3], 5); /* 5 layers + 3.5 beside 9, 9 and 9 */
    assert_int_equal(at[1], 9);
    CHECK_OK(ctx, orth_balance_layers(ctx, cost, 7, 0, 0, 3, at)); /* uneven counts: few in front */
    assert_int_equal(at[1], 2);
    assert_int_equal(at[2], 4);
    const double hand[3] = {1, 2, 4}, zero[3] = {0, 3, 4}, more[3] = {1, 2, 5};
    CHECK_OK(ctx, orth_balance_by_hand(ctx, hand, 3, 7, 3, at));
    assert_true(at[0] == 0 && at[1] == 1 && at[2] == 3 && at[3] == 7);
    CHECK_OK(ctx, orth_balance_evenly(ctx, 12, 3, at));
    assert_true(at[0] == 0 && at[1] == 4 && at[2] == 8 && at[3] == 12);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "3 chunks for layers=7: even stages need a divisor", orth_balance_evenly(ctx, 7, 3, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "stage_layers has 3 numbers, but pp x virtual_stages is 2",
                orth_balance_by_hand(ctx, hand, 3, 7, 2, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "stage_layers of chunk 0 is 0: it must be a whole number from 1 to layers=7",
                orth_balance_by_hand(ctx, zero, 3, 7, 3, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "stage_layers adds up to 8, not to layers=7",
                orth_balance_by_hand(ctx, more, 3, 7, 3, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "8 chunks for layers=7: each needs at least one layer",
                orth_balance_layers(ctx, cost, 7, 0, 0, 8, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "embedding or head costs -1: costs are not negative",
                orth_balance_layers(ctx, cost, 7, 0, -1, 3, at));
    cost[3] = -5;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "layer 3 costs -5: costs are not negative",
                orth_balance_layers(ctx, cost, 7, 0, 0, 3, at));
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(balance_equals_brute_force),
        cmocka_unit_test(balance_takes_layers_from_the_stage_with_the_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
