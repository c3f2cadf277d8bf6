/* test_int8.c -- blocks of int8 (tensor/q8.h) and their sums: those that exact fractions give (tests/fixtures/int8.json), on every
 * instruction set. Collectives of them: comm_case.h; gradients reduced in them: test_layouts.c. */
#include <jansson.h>
#include <math.h>

#include "comm/combine.h"
#include "kernel_case.h"

static json_t *fixture(void)
{
    json_t *root = json_load_file(ORTH_TEST_DIR "/fixtures/int8.json", 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "block")), ORTH_Q8_NUM);
    return root;
}

static int64_t integer(const json_t *of, const char *name, int64_t i)
{
    return json_integer_value(json_array_get(json_object_get(of, name), (size_t)i));
}

static bool is_bits(float is, int64_t want)
{
    return orth_bits_of_f32(is) == (uint32_t)want || (isnan(is) && isnan(orth_f32_of_bits((uint32_t)want)));
}

static void check_case(orth_ctx *ctx, const orth_kernel_fn *kernels, const json_t *c)
{
    const int64_t n = (int64_t)json_array_size(json_object_get(c, "x")), blocks = orth_div_up(n, ORTH_Q8_NUM);
    orth_tensor t[3] = {case_tensor(ORTH_F32, n, 0), case_tensor(ORTH_Q8, blocks, 0), case_tensor(ORTH_F32, n, 0)};
    memset(t[1].data, 0x5a, orth_tensor_bytes(&t[1]));
    const float *back = t[2].data;
    const orth_q8 *q = t[1].data;
    for (int64_t i = 0; i < n; i++)
        ((float *)t[0].data)[i] = orth_f32_of_bits((uint32_t)integer(c, "x", i));
    CHECK_OK(ctx, kernels[ORTH_OP_cast_int8](ctx, &(orth_op_call){&t[0], &t[1], 1, 1, &(orth_attr){0}, NULL}));
    CHECK_OK(ctx, kernels[ORTH_OP_widen_int8](ctx, &(orth_op_call){&t[1], &t[2], 1, 1, &(orth_attr){0}, NULL}));
    for (int64_t b = 0; b < blocks; b++)
        if (!is_bits(q[b].scale, integer(c, "scale", b)))
            fail_msg("scale %d of %d numbers is %a", (int)b, (int)n, (double)q[b].scale);
    for (int64_t i = 0; i < blocks * ORTH_Q8_NUM; i++)
        if (q[i / ORTH_Q8_NUM].code[i % ORTH_Q8_NUM] != integer(c, "code", i))
            fail_msg("code %d of %d numbers is %d, not %d", (int)i, (int)n, q[i / ORTH_Q8_NUM].code[i % ORTH_Q8_NUM], (int)integer(c, "code", i));
    for (int64_t i = 0; i < n; i++)
        if (!is_bits(back[i], integer(c, "back", i)))
            fail_msg("number %d of %d is %a", (int)i, (int)n, (double)back[i]);
    case_free(t, 3);
}

TEST(blocks_are_those_that_exact_fractions_give)
{
    json_t *root = fixture();
    const json_t *cases = json_object_get(root, "cases");
    orth_ctx *ctx = test_ctx(2);
    assert_int_equal(json_array_size(cases), 8);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        check_case(ctx, orth_kernels_ref(), json_array_get(cases, i));
        for (orth_isa isa = ORTH_ISA_BASE; isa <= orth_isa_detect(); isa++) {
            ctx->isa = isa;
            check_case(ctx, orth_kernels_cpu(), json_array_get(cases, i));
        }
    }
    test_ctx_free(ctx);
    json_decref(root);
}

static orth_q8 block_of(const json_t *c)
{
    orth_q8 q = {.scale = orth_f32_of_bits((uint32_t)json_integer_value(json_object_get(c, "scale")))};
    for (int i = 0; i < ORTH_Q8_NUM; i++)
        q.code[i] = (int8_t)integer(c, "code", i);
    return q;
}

TEST(sums_are_made_in_fp32_along_the_tree_and_rounded_once)
{
    json_t *root = fixture();
    const json_t *sums = json_object_get(root, "sums");
    for (size_t k = 0; k < json_array_size(sums); k++) {
        const json_t *c = json_array_get(sums, k), *ranks = json_object_get(c, "ranks");
        const int n = (int)json_array_size(ranks);
        const orth_q8 want = block_of(c);
        orth_q8 block[8], out[2];
        const void *src[8];
        for (int r = 0; r < n; r++) {
            block[r] = block_of(json_array_get(ranks, (size_t)r));
            src[r] = &block[r];
        }
        for (orth_isa isa = ORTH_ISA_BASE; isa <= orth_isa_detect(); isa++) {
            comm_combine(&(comm_combine_how){.isa = isa, .dtype = ORTH_Q8, .order = ORTH_ORDER_CANONICAL}, (void *[]){&out[0], &out[1]}, 2, src, n, 0, 1);
            assert_memory_equal(&out[0], &want, sizeof want);
            assert_memory_equal(&out[1], &want, sizeof want);
        }
        block[n - 1].scale = NAN; /* an overflow on any rank is seen by all */
        comm_combine(&(comm_combine_how){.dtype = ORTH_Q8}, (void *[]){&out[0], &out[1]}, 2, src, n, 0, 1);
        assert_true(isnan(out[0].scale) && isnan(out[1].scale));
    }
    json_decref(root);
}

/* The bound that q8.h states. */
TEST(numbers_come_back_within_half_of_a_scale)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        float x[ORTH_Q8_NUM], back[ORTH_Q8_NUM], most = 0;
        orth_q8 q;
        for (int i = 0; i < ORTH_Q8_NUM; i++) {
            x[i] = test_rand(seed, (uint64_t)i) * exp2f((float)(i % 20) - 10);
            most = fmaxf(most, fabsf(x[i]));
        }
        orth_q8_from_f32(&q, x, ORTH_Q8_NUM);
        orth_q8_to_f32(back, &q, ORTH_Q8_NUM);
        for (int i = 0; i < ORTH_Q8_NUM; i++)
            assert_true(fabs((double)back[i] - (double)x[i]) <= (double)most / 254 + 0x1p-23 * fabs((double)x[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_those_that_exact_fractions_give),
        cmocka_unit_test(sums_are_made_in_fp32_along_the_tree_and_rounded_once),
        cmocka_unit_test(numbers_come_back_within_half_of_a_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
