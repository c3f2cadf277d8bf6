/* test_attention_tiles.c -- the products of attention on bf16 instructions, each element against its chain in plain C. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* names of registers in a signal context */
#endif
#include "kernels/cpu/attention_micro.h"
#include "kernels/gemm_chain.h"
#include "test.h"

#if defined(__x86_64__)
#include "amx_emulator.h"

#define MAX_WIDTH 160               /* columns of c */

/* One product; of a and b what is not part of it is NaN, and a is zero where the limit says so. */
typedef struct {
    orth_attn_product x;
    float before[KB][MAX_WIDTH], c[KB][MAX_WIDTH], row_scale[KB];
    uint32_t a[KB * MAX_WIDTH], b[KB * MAX_WIDTH];
} product_case;

static bool wanted(const orth_attn_product *x, int r, int j)
{
    return x->limit != ORTH_ATTN_COLS || j < x->offset + r + 1;
}

static bool is_term(const orth_attn_product *x, int r, int64_t i)
{
    return x->limit == ORTH_ATTN_KEYS ? i < x->offset + r + 1 : x->limit != ORTH_ATTN_QUERIES || i >= r - x->offset;
}

static orth_bf16 random_bf16(uint64_t seed, int64_t i)
{
    return orth_bf16_from_f32(test_rand(seed, (uint64_t)i));
}

static void case_fill(product_case *p, uint64_t seed)
{
    orth_attn_product *x = &p->x;
    *x = (orth_attn_product){.limit = (orth_attn_limit)(seed % 3), .c = p->c[0], .c_row = MAX_WIDTH, .a = p->a, .b = p->b};
    x->rows = (int)test_rand_int(seed, 1, 1, KB);
    x->cols = 16 * (int)test_rand_int(seed, 2, 1, x->limit == ORTH_ATTN_COLS ? KB / 16 : MAX_WIDTH / 16);
    x->depth = (int)test_rand_int(seed, 3, 1, x->limit == ORTH_ATTN_COLS ? 150 : KB);
    x->offset = test_rand_int(seed, 4, -KB, KB);
    x->accumulate = x->limit != ORTH_ATTN_COLS && test_rand_int(seed, 5, 0, 3) > 0;
    x->row_scale = x->limit == ORTH_ATTN_KEYS && x->accumulate ? p->row_scale : NULL;
    const int64_t units = orth_div_up(x->depth, 2);
    const bool turned = x->limit == ORTH_ATTN_QUERIES;
    x->a_row = turned ? 1 : MAX_WIDTH / 2 + 3;
    x->a_step = turned ? KB : 1;
    x->b_row = x->cols + 16 * test_rand_int(seed, 6, 0, 2);
    memset(p->a, 0xff, sizeof p->a);
    memset(p->b, 0xff, sizeof p->b);
    for (int64_t i = 0; i < 2 * units; i++) {
        for (int r = 0; r < x->rows; r++) {
            orth_bf16 *to = (orth_bf16 *)&p->a[r * x->a_row + i / 2 * x->a_step] + i % 2;
            *to = i < x->depth && is_term(x, r, i) ? random_bf16(seed, 256 * r + i) : 0;
        }
        for (int j = 0; j < x->cols; j++)
            ((orth_bf16 *)&p->b[i / 2 * x->b_row + j])[i % 2] = i < x->depth ? random_bf16(seed + 1, 256 * j + i) : 0;
    }
    for (int r = 0; r < KB; r++) {
        p->row_scale[r] = r % 3 ? 0.5f + 0.01f * (float)r : 1.0f;
        for (int j = 0; j < MAX_WIDTH; j++)
            p->before[r][j] = p->c[r][j] = test_rand(seed + 2, (uint64_t)(256 * r + j));
    }
}

static float chain(const product_case *p, orth_isa isa, int r, int j)
{
    const orth_attn_product *x = &p->x;
    float acc = x->accumulate ? p->before[r][j] * (x->row_scale ? x->row_scale[r] : 1.0f) : 0.0f;
    const int64_t units = orth_div_up(x->depth, 2), step = isa == ORTH_ISA_AMX ? 16 : 1;
    for (int64_t begin = 0; begin < units; begin += step) {
        float sum[2] = {0, 0}; /* AMX: of the even and of the odd terms */
        for (int64_t u = begin; u < ORTH_MIN(begin + step, units); u++) {
            const orth_bf16 *a = (const orth_bf16 *)&x->a[r * x->a_row + u * x->a_step];
            const orth_bf16 *b = (const orth_bf16 *)&x->b[u * x->b_row + j];
            for (int odd = 1; odd >= 0; odd--) {
                float *to = isa == ORTH_ISA_AMX ? &sum[odd] : &acc;
                *to = orth_flushed_fma(orth_bf16_to_f32(a[odd]), orth_bf16_to_f32(b[odd]), *to);
            }
        }
        if (isa == ORTH_ISA_AMX)
            acc = orth_flush(acc + orth_flush(sum[0] + sum[1]));
    }
    return acc;
}

static void check_products(orth_isa isa, int num)
{
    static product_case p;
    const orth_attn_micro *micro = orth_attn_micro_for(ORTH_BF16, isa);
    assert_true(micro->pairs);
    for (uint64_t seed = 0; seed < (uint64_t)num; seed++) {
        case_fill(&p, seed);
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
    amx_emulator_stop();
    assert_true(amx_num_products > 0 || orth_isa_detect() == ORTH_ISA_AMX);
}
#else
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
