/* test_place.c -- packing of blocks in time and space against the definition: every pair compared. */
#include "program/passes/pack.h"
#include "test.h"

static bool in_the_way(const orth_pack_block *other, const orth_pack_block *b, size_t at)
{
    return other->last >= b->first && other->first <= b->last && other->offset < at + b->bytes &&
           other->offset + other->bytes > at;
}

/* The lowest offset of block i at which none of the blocks before it is in its way: 0, or where another ends. */
static size_t lowest(const orth_pack_block *blocks, int32_t i)
{
    size_t best = SIZE_MAX;
    for (int32_t c = -1; c < i; c++) {
        const size_t at = c < 0 ? 0 : blocks[c].offset + blocks[c].bytes;
        bool free = at < best;
        for (int32_t k = 0; k < i && free; k++)
            free = !in_the_way(&blocks[k], &blocks[i], at);
        best = free ? at : best;
    }
    return best;
}

/* Lives of all lengths: kind 0 short ones, 1 any, 2 many long ones and steps of a schedule. */
static orth_pack_block random_block(uint64_t seed, int32_t i, int32_t num_instrs)
{
    const uint64_t k = 8 * (uint64_t)i;
    const int kind = (int)(seed % 3);
    const int64_t longest = kind == 0 || (kind == 2 && i % 2) ? 20 : num_instrs;
    orth_pack_block b = {.buffer = i, .first = (int32_t)test_rand_int(seed, k, 0, num_instrs - 1)};
    const int64_t life = test_rand_int(seed, k + 1, 0, longest);
    b.last = (int32_t)ORTH_MIN(b.first + life, num_instrs - 1);
    b.bytes = 64 * (size_t)test_rand_int(seed, k + 2, 0, test_rand_int(seed, k + 3, 0, 1) ? 4 : 40);
    return b;
}

TEST(each_block_lies_at_the_lowest_gap_of_its_life)
{
    enum { N = 300 };
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 0; seed < 60; seed++) {
        orth_pack_block blocks[N];
        const int32_t num_instrs = (int32_t)test_rand_int(seed, 1 << 20, 1, 3000);
        size_t height, highest = 0;
        for (int32_t i = 0; i < N; i++)
            blocks[i] = random_block(seed, i, num_instrs);
        CHECK_OK(ctx, orth_pack(ctx, blocks, N, num_instrs, SIZE_MAX, &height));
        for (int32_t i = 0; i < N; i++) {
            if (blocks[i].offset != lowest(blocks, i))
                fail_msg("seed %d: block %d lies at %zu, not at %zu", (int)seed, (int)i, blocks[i].offset, lowest(blocks, i));
            highest = ORTH_MAX(highest, blocks[i].offset + blocks[i].bytes);
        }
        assert_int_equal(height, highest);
    }
    test_ctx_free(ctx);
}

/* As many as a long step has, half of which live through a good part of it: comparing pairs would take hours. */
TEST(a_million_blocks_are_packed)
{
    enum { N = 1000000, LONG = 50 };
    orth_ctx *ctx = test_ctx(1);
    orth_pack_block *blocks = orth_mem_alloc(ctx, N * sizeof *blocks);
    size_t height;
    for (int32_t i = 0; i < N; i++) /* each dies when the block LONG after it begins, or right away */
        blocks[i] = (orth_pack_block){.first = i, .last = ORTH_MIN(i + (i % 2 ? LONG * (1 + i % 7) : 2), N - 1), .bytes = 64};
    CHECK_OK(ctx, orth_pack(ctx, blocks, N, N, SIZE_MAX, &height));
    assert_in_range(height, 64 * LONG, 64 * LONG * 4); /* means of 100 live at once */
    orth_mem_free(ctx, blocks);
    test_ctx_free(ctx);
}

TEST(packing_survives_every_failed_allocation)
{
    enum { N = 60 };
    orth_ctx *ctx = test_ctx(1);
    orth_pack_block blocks[N];
    size_t height;
    orth_status status = ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < N; i++)
        blocks[i] = random_block(1, i, 500);
    for (int k = 1; status == ORTH_ERR_NOMEM; k++) {
        orth_faults faults = {.alloc = k};
        ctx->faults = &faults;
        status = orth_pack(ctx, blocks, N, 500, SIZE_MAX, &height);
        ctx->faults = NULL;
        orth_ctx_clear_error(ctx);
    }
    assert_int_equal(status, ORTH_OK);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_block_lies_at_the_lowest_gap_of_its_life),
        cmocka_unit_test(a_million_blocks_are_packed),
        cmocka_unit_test(packing_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
