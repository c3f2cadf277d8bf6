/* test_attention_tiles.c -- attention on bf16 instructions: each element of products against its chain in plain C, pieces of
 * fp32 against orth_bf16_pieces. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* names of registers in a signal context */
#endif
#include <math.h>

#include "kernels/cpu/attention_micro.h"
#include "kernels/gemm_chain.h"
#include "test.h"

#if defined(__x86_64__)
#include "amx_emulator.h"

#define MAX_WIDTH 160               /* columns of c */

/* One product; of a and b what is not part of it is NaN, and a, or b, is zero where the limit says so. */
typedef struct {
    orth_attn_product x;
    float before[KB][MAX_WIDTH], c[KB][MAX_WIDTH], row_scale[KB];
    uint32_t a[3][KB * MAX_WIDTH], b[3][KB * MAX_WIDTH]; /* planes */
} product_case;

static bool wanted(const orth_attn_product *x, int r, int j)
{
    return x->limit != ORTH_ATTN_COLS || j < x->offset + r + 1;
}

/* Of a, and of b. */
static bool is_term(const orth_attn_product *x, int r, int64_t i)
{
    return x->limit == ORTH_ATTN_KEYS ? i < x->offset + r + 1 : x->limit != ORTH_ATTN_QUERIES || i >= r - x->offset;
}

static bool is_turned_term(const orth_attn_product *x, int j, int64_t i)
{
    return x->limit != ORTH_ATTN_QUERIES_TURNED || i >= j - x->offset;
}

static orth_bf16 random_bf16(uint64_t seed, int64_t i)
{
    return orth_bf16_from_f32(test_rand(seed, (uint64_t)i));
}

static void case_fill(product_case *p, uint64_t seed, bool turns)
{
    orth_attn_product *x = &p->x;
    *x = (orth_attn_product){.limit = (orth_attn_limit)(seed % 3), .c = p->c[0], .c_row = MAX_WIDTH, .a = p->a[0],
                             .b = p->b[0], .a_plane = KB * MAX_WIDTH, .b_plane = KB * MAX_WIDTH};
    if (x->limit == ORTH_ATTN_QUERIES && turns)
        x->limit = ORTH_ATTN_QUERIES_TURNED;
    const bool keys_in_cols = x->limit == ORTH_ATTN_COLS || x->limit == ORTH_ATTN_QUERIES_TURNED;
    x->rows = (int)test_rand_int(seed, 1, 1, KB);
    x->cols = 16 * (int)test_rand_int(seed, 2, 1, keys_in_cols ? KB / 16 : MAX_WIDTH / 16);
    x->depth = (int)test_rand_int(seed, 3, 1, x->limit == ORTH_ATTN_COLS ? 150 : KB);
    x->offset = test_rand_int(seed, 4, -KB, KB);
    x->accumulate = x->limit != ORTH_ATTN_COLS && test_rand_int(seed, 5, 0, 3) > 0;
    x->row_scale = x->limit == ORTH_ATTN_KEYS && x->accumulate ? p->row_scale : NULL;
    const int64_t units = orth_div_up(x->depth, 2);
    const bool transposed = x->limit == ORTH_ATTN_QUERIES;
    x->a_row = transposed ? 1 : MAX_WIDTH / 2 + 3;
    x->a_step = transposed ? KB : 1;
    x->b_row = x->cols + 16 * test_rand_int(seed, 6, 0, 2);
    memset(p->a, 0xff, sizeof p->a);
    memset(p->b, 0xff, sizeof p->b);
    for (int64_t i = 0; i < 3 * 2 * units; i++) {
        const int plane = (int)(i / (2 * units));
        const int64_t k = i % (2 * units);
        for (int r = 0; r < x->rows; r++) {
            orth_bf16 *to = (orth_bf16 *)&p->a[plane][r * x->a_row + k / 2 * x->a_step] + k % 2;
            *to = k < x->depth && is_term(x, r, k) ? random_bf16(seed, 1024 * r + i) : 0;
        }
        for (int j = 0; j < x->cols; j++)
            ((orth_bf16 *)&p->b[plane][k / 2 * x->b_row + j])[k % 2] =
                k < x->depth && is_turned_term(x, j, k) ? random_bf16(seed + 1, 1024 * j + i) : 0;
    }
    for (int r = 0; r < KB; r++) {
        p->row_scale[r] = r % 3 ? 0.5f + 0.01f * (float)r : 1.0f;
        for (int j = 0; j < MAX_WIDTH; j++)
            p->before[r][j] = p->c[r][j] = test_rand(seed + 2, (uint64_t)(256 * r + j));
    }
}

/* Term i of c[r][j]: of a and b, in one plane each. */
static float term_a(const orth_attn_product *x, int plane, int r, int64_t i)
{
    return orth_bf16_to_f32(((const orth_bf16 *)&x->a[plane * x->a_plane + r * x->a_row + i / 2 * x->a_step])[i % 2]);
}

static float term_b(const orth_attn_product *x, int plane, int j, int64_t i)
{
    return orth_bf16_to_f32(((const orth_bf16 *)&x->b[plane * x->b_plane + i / 2 * x->b_row + j])[i % 2]);
}

static float tile_step(const orth_attn_product *x, float acc, int plane_a, int plane_b, int r, int j, int64_t begin)
{
    const int64_t terms = 2 * orth_div_up(x->depth, 2);
    float a[32] = {0}, b[32] = {0};
    for (int64_t i = begin; i < ORTH_MIN(begin + 32, terms); i++) {
        a[i - begin] = term_a(x, plane_a, r, i);
        b[i - begin] = term_b(x, plane_b, j, i);
    }
    return orth_amx_step(acc, a, b);
}

static float chain(const product_case *p, orth_isa isa, int r, int j)
{
    const orth_attn_product *x = &p->x;
    float acc = x->accumulate ? p->before[r][j] * (x->row_scale ? x->row_scale[r] : 1.0f) : 0.0f;
    if (isa == ORTH_ISA_AVX512BF16)
        for (int64_t i = 0; i < x->depth; i += 2)
            for (int odd = 1; odd >= 0; odd--)
                acc = orth_flushed_fma(term_a(x, 0, r, i + odd), term_b(x, 0, j, i + odd), acc);
    else
        for (int64_t i = 0; i < x->depth; i += 32)
            for (int n = 0; n < (isa == ORTH_ISA_AMX ? 1 : ORTH_BF16X6); n++)
                acc = tile_step(x, acc, isa == ORTH_ISA_AMX ? 0 : orth_bf16x6_a[n],
                                isa == ORTH_ISA_AMX ? 0 : orth_bf16x6_b[n], r, j, i);
    return acc;
}

static void check_products(orth_isa isa, int num)
{
    static product_case p;
    const orth_attn_micro *micro = orth_attn_micro_for(isa == ORTH_ISA_AMX_BF16X6 ? ORTH_F32 : ORTH_BF16, isa);
    assert_true(micro->pairs);
    for (uint64_t seed = 0; seed < (uint64_t)num; seed++) {
        case_fill(&p, seed, micro->transpose != NULL);
        orth_attn_enter(micro);
        micro->product(&p.x);
        orth_attn_leave(micro);
        for (int r = 0; r < p.x.rows; r++)
            for (int j = 0; j < p.x.cols; j++) {
                const float want = chain(&p, isa, r, j);
                if (wanted(&p.x, r, j) && memcmp(&want, &p.c[r][j], 4) != 0)
                    fail_msg("%s, seed %d: rows %d cols %d depth %d limit %d offset %d: c[%d][%d] is %a, not %a",
                             orth_isa_name(isa), (int)seed, p.x.rows, p.x.cols, p.x.depth, (int)p.x.limit,
                             (int)p.x.offset, r, j, (double)p.c[r][j], (double)want);
            }
        for (int r = 0; r < KB; r++)
            assert_memory_equal(p.c[r] + p.x.cols, p.before[r] + p.x.cols,
                                (size_t)(MAX_WIDTH - p.x.cols) * sizeof(float));
    }
}

TEST(products_of_pairs_equal_their_chains)
{
    if (orth_isa_detect() < ORTH_ISA_AVX512BF16)
        skip();
    check_products(ORTH_ISA_AVX512BF16, 300);
}

/* On processors without AMX its instructions are emulated. */
TEST(products_on_tiles_equal_their_chains)
{
    if (orth_isa_detect() < ORTH_ISA_AVX512BF16)
        skip();
    amx_emulator_start();
    check_products(ORTH_ISA_AMX, 300);
    check_products(ORTH_ISA_AMX_BF16X6, 300);
    amx_emulator_stop();
    assert_true(amx_num_products > 0 || orth_isa_detect() == ORTH_ISA_AMX);
}

/* Element i of a packed form in three planes, against its pieces. */
static void expect_pieces(const void *packed, int64_t plane, int64_t i, float x, const char *what)
{
    float want[3];
    orth_bf16_pieces(x, want);
    for (int p = 0; p < 3; p++) {
        const float got = orth_bf16_to_f32(((const orth_bf16 *)packed)[p * plane + i]);
        if (memcmp(&got, &want[p], 4) != 0)
            fail_msg("%s: piece %d of %a at %d is %a, not %a", what, p, (double)x, (int)i, (double)got, (double)want[p]);
    }
}

/* Of every magnitude, some of them denormal. */
static float any_float(uint64_t seed, int64_t i)
{
    return ldexpf(test_rand(seed, (uint64_t)i), (int)test_rand_int(seed, (uint64_t)i, -140, 100));
}

TEST(packs_hold_pieces_of_fp32)
{
    static float x[KB][160];
    static orth_bf16 rows[3 * KB * 160], cols[3 * KB * 160], inner[3 * KB * 160], transposed[3 * KB * 160];
    if (orth_isa_detect() < ORTH_ISA_AVX512BF16)
        skip();
    const orth_attn_micro *micro = &orth_attn_micro_amx_bf16x6;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const int D = (int)test_rand_int(seed, 1, 1, 160), num_rows = (int)test_rand_int(seed, 2, 1, KB);
        const int64_t Dp = orth_attn_padded(D), plane = KB * Dp;
        const void *row[KB];
        for (int r = 0; r < KB; r++) {
            row[r] = x[r];
            for (int d = 0; d < 160; d++)
                x[r][d] = d < D && r < num_rows ? any_float(seed, 160 * r + d) : NAN;
        }
        memset(rows, 0xff, sizeof rows), memset(cols, 0xff, sizeof cols), memset(inner, 0xff, sizeof inner);
        memset(transposed, 0xff, sizeof transposed);
        micro->pack_rows(rows, row, num_rows, D, ORTH_F32);
        micro->pack_cols(cols, row, num_rows, D, ORTH_F32);
        micro->pack_inner(inner, row, num_rows, D, ORTH_F32);
        micro->pack_transposed(transposed, row, num_rows, D, ORTH_F32);
        for (int r = 0; r < KB; r++)
            for (int d = 0; d < Dp; d++) {
                const float want = d < D && r < num_rows ? x[r][d] : 0.0f;
                if (r < num_rows)
                    expect_pieces(rows, plane, r * Dp + d, want, "rows");
                expect_pieces(cols, plane, (d / 2 * KB + r) * 2 + d % 2, want, "cols");
                expect_pieces(inner, plane, (r / 2 * Dp + d) * 2 + r % 2, want, "inner");
                expect_pieces(transposed, plane, d * KB + r, want, "transposed");
            }
        for (int64_t i = 3 * plane; i < 3 * KB * 160; i++)
            assert_true(rows[i] == 0xffff && cols[i] == 0xffff && inner[i] == 0xffff && transposed[i] == 0xffff);
    }
}

/* What enters the products is what the table of fp32 makes, in pieces. */
TEST(probabilities_and_their_gradients_are_stored_in_pieces)
{
    static float s[2][KB][KB], dp[2][KB][KB], m[2][KB], l[2][KB], a[2][KB], delta[KB];
    static orth_bf16 p[3 * KB * KB], ds[3 * KB * KB], p_inner[3 * KB * KB], ds_inner[3 * KB * KB];
    if (orth_isa_detect() < ORTH_ISA_AVX512BF16)
        skip();
    const orth_attn_micro *fma = &orth_attn_micro_avx512, *micro = &orth_attn_micro_amx_bf16x6;
    const int64_t plane = KB * KB;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const int rows = (int)test_rand_int(seed, 1, 1, KB);
        const orth_attn_scores x = {rows, test_rand_int(seed, 2, 0, 100), 0, NULL, NULL, 0.5f};
        for (int grad = 0; grad < 2; grad++) {
            for (int r = 0; r < KB; r++) {
                m[0][r] = m[1][r] = l[0][r] = l[1][r] = delta[r] = test_rand(seed, (uint64_t)r);
                for (int k = 0; k < KB; k++) {
                    s[0][r][k] = s[1][r][k] = 20 * test_rand(seed + 1, (uint64_t)(KB * r + k));
                    dp[0][r][k] = dp[1][r][k] = test_rand(seed + 2, (uint64_t)(KB * r + k));
                }
            }
            if (grad) {
                fma->grad(&x, s[0][0], dp[0][0], m[0], delta, NULL, NULL, NULL);
                micro->grad(&x, s[1][0], dp[1][0], m[1], delta, ds, p_inner, ds_inner);
            } else {
                fma->softmax(&x, s[0][0], NULL, m[0], l[0], a[0]);
                micro->softmax(&x, s[1][0], p, m[1], l[1], a[1]);
                assert_memory_equal(l[0], l[1], (size_t)rows * sizeof(float));
            }
            for (int i = 0; i < rows * KB; i++) {
                const int r = i / KB, k = i % KB;
                const int64_t paired = (r / 2 * KB + k) * 2 + r % 2;
                if (!grad)
                    expect_pieces(p, plane, i, s[0][r][k], "p");
                if (grad) {
                    expect_pieces(ds, plane, i, dp[0][r][k], "ds");
                    expect_pieces(p_inner, plane, paired, s[0][r][k], "p_inner");
                    expect_pieces(ds_inner, plane, paired, dp[0][r][k], "ds_inner");
                }
            }
        }
    }
}
#else
TEST(packs_hold_pieces_of_fp32)
{
    skip();
}

TEST(probabilities_and_their_gradients_are_stored_in_pieces)
{
    skip();
}

TEST(products_of_pairs_equal_their_chains)
{
    skip();
}

TEST(products_on_tiles_equal_their_chains)
{
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_pairs_equal_their_chains),
        cmocka_unit_test(products_on_tiles_equal_their_chains),
        cmocka_unit_test(packs_hold_pieces_of_fp32),
        cmocka_unit_test(probabilities_and_their_gradients_are_stored_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
