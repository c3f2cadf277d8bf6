/* test_quant.c -- numbers of 8 and 4 bits and tensors of them: those of PyTorch, ml_dtypes and TransformerEngine's rules
 * (tests/fixtures/quant.json), on every instruction set. That fast kernels equal the plain ones on other sizes is in test_ops.c. */
#include <jansson.h>

#include "kernel_case.h"
#include "kernels/quant.h"

static const char *const names[ORTH_NUM_FLOAT8] = {"e4m3", "e5m2", "e2m1"};

static json_t *fixture(void)
{
    json_t *root = json_load_file(ORTH_TEST_DIR "/fixtures/quant.json", 0, NULL);
    assert_non_null(root);
    return root;
}

static int64_t integer(const json_t *list, int64_t i)
{
    return json_integer_value(json_array_get(list, (size_t)i));
}

TEST(conversions_are_those_of_pytorch_and_ml_dtypes)
{
    json_t *root = fixture(), *convert = json_object_get(root, "convert"), *x = json_object_get(convert, "x");
    assert_true(json_array_size(x) > 1500);
    for (int t = 0; t < ORTH_NUM_FLOAT8; t++)
        for (int64_t i = 0; i < (int64_t)json_array_size(x); i++) {
            const uint32_t u = (uint32_t)integer(x, i);
            const int64_t want = integer(json_object_get(convert, names[t]), i);
            const uint8_t code = orth_float8_from_f32(orth_f32_of_bits(u), (orth_float8)t);
            if (want != 255 || t != ORTH_E2M1) /* of NaN, which E2M1 has not */
                if (code != want)
                    fail_msg("%s of %a is %d, not %d", names[t], (double)orth_f32_of_bits(u), code, (int)want);
        }
    for (int64_t i = 0; i < (int64_t)json_array_size(x); i++)
        assert_int_equal(orth_float8_saturate(orth_f32_of_bits((uint32_t)integer(x, i)), ORTH_E4M3),
                         integer(json_object_get(convert, "e4m3_saturated"), i));
    json_decref(root);
}

TEST(codes_have_the_values_of_pytorch_and_ml_dtypes)
{
    json_t *root = fixture(), *decode = json_object_get(root, "decode");
    for (int t = 0; t <= ORTH_NUM_FLOAT8; t++) {
        const json_t *want = json_object_get(decode, t < ORTH_NUM_FLOAT8 ? names[t] : "e8m0");
        assert_int_equal(json_array_size(want), t == ORTH_E2M1 ? 16 : 256);
        for (int64_t c = 0; c < (int64_t)json_array_size(want); c++) {
            const float is = t < ORTH_NUM_FLOAT8 ? orth_float8_to_f32((uint8_t)c, (orth_float8)t) : orth_e8m0_to_f32((uint8_t)c);
            const float was = orth_f32_of_bits((uint32_t)integer(want, c));
            assert_true(orth_bits_of_f32(is) == orth_bits_of_f32(was) || (isnan(is) && isnan(was)));
        }
    }
    json_decref(root);
}

TEST(saturated_numbers_are_never_more_than_the_largest)
{
    static const float huge[] = {1e9f, INFINITY, FLT_MAX, 480, 57345, 464.5f, 6.5f};
    for (int t = 0; t < ORTH_NUM_FLOAT8; t++)
        for (int i = 0; i < ORTH_COUNT(huge); i++)
            for (int sign = -1; sign <= 1; sign += 2) {
                const orth_float8_form f = orth_float8_form_of((orth_float8)t);
                const float v = orth_float8_to_f32(orth_float8_saturate((float)sign * huge[i], (orth_float8)t), (orth_float8)t);
                assert_true(huge[i] > f.max ? v == (float)sign * f.max : fabsf(v) <= f.max);
            }
    assert_true(isnan(orth_float8_to_f32(orth_float8_saturate(NAN, ORTH_E4M3), ORTH_E4M3)));
    assert_true(isnan(orth_float8_to_f32(orth_float8_saturate(NAN, ORTH_E5M2), ORTH_E5M2)));
}

/* ---- tensors ---- */

static float number(int64_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + 12345u;
    h = (h ^ h >> 15) * 2246822519u;
    return (float)(((double)h / 0x1p31 - 1) * exp2((double)(i / 7 % 24 - 12)));
}

/* That of a set of cases: numbers that it has, or those made here. */
static orth_tensor matrix(const json_t *set)
{
    const int64_t rows = json_integer_value(json_object_get(set, "rows")), cols = json_integer_value(json_object_get(set, "cols"));
    const json_t *bits = json_object_get(set, "x");
    const bool bf16 = json_is_true(json_object_get(set, "bf16"));
    orth_tensor x = case_tensor(bf16 ? ORTH_BF16 : ORTH_F32, rows, cols);
    for (int64_t i = 0; bits && i < rows * cols; i++) {
        const uint32_t u = (uint32_t)integer(bits, i);
        if (bf16)
            ((uint16_t *)x.data)[i] = (uint16_t)(u >> 16);
        else
            ((uint32_t *)x.data)[i] = u;
    }
    for (int64_t i = 0; !bits && i < rows * cols; i++)
        ((float *)x.data)[i] = i >= 3 * cols && i < 3 * cols + 32 ? 0 : number(i);
    return x;
}

static void expect_bytes(const orth_tensor *t, const char *hex, const char *what)
{
    const uint8_t *is = t->data;
    assert_int_equal(strlen(hex), 2 * orth_tensor_bytes(t));
    for (size_t i = 0; i < orth_tensor_bytes(t); i++) {
        const char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        const long want = strtol(two, NULL, 16);
        if (is[i] != want)
            fail_msg("%s: byte %zu is %d, not %ld", what, i, is[i], want);
    }
}

static orth_attr attr_of(const json_t *c)
{
    orth_attr a = {.tile_rows = (int32_t)json_integer_value(json_object_get(c, "rows")),
                   .tile_cols = (int32_t)json_integer_value(json_object_get(c, "cols")),
                   .power_of_2 = json_is_true(json_object_get(c, "power_of_2"))};
    const char *type = json_string_value(json_object_get(c, "type"));
    a.float8 = type && strcmp(type, "e5m2") == 0 ? ORTH_E5M2 : ORTH_E4M3;
    return a;
}

static const struct quantiser {
    const char *name;
    orth_op op;
    bool has_amax;
    orth_dtype scale;
} quantisers[] = {
    {"tensor", ORTH_OP_quant_tensor, true, ORTH_F32}, {"blocks", ORTH_OP_quant_blocks, false, ORTH_F32},
    {"mx", ORTH_OP_quant_mx, false, ORTH_U8},         {"nvfp4", ORTH_OP_quant_nvfp4, true, ORTH_U8},
};

/* The fixture has two codes of 4 bits in a byte, the first in the lower bits. */
static void pack_codes(orth_tensor *q)
{
    uint8_t *codes = q->data;
    q->dim[1] /= 2;
    for (int64_t i = 0; i < orth_tensor_elems(q); i++)
        codes[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
}

static void check_quantised(orth_ctx *ctx, const orth_kernel_fn *kernels, const json_t *set, const struct quantiser *z, const json_t *c)
{
    orth_attr attr = attr_of(c);
    orth_step_values step = {.step = 1};
    orth_tensor in[5] = {matrix(set), case_tensor(ORTH_F32, 1, 1), {.data = NULL}, {.data = NULL}, case_step(&step)}, amax = case_tensor(ORTH_F32, 1, 1);
    attr.num_seqs = 1;
    attr.seq_len = (int32_t)in[0].dim[0];
    attr.row_split = ORTH_SPLIT_WHOLE(in[0].dim[0]);
    attr.col_split = ORTH_SPLIT_WHOLE(in[0].dim[1]);
    const int64_t rows = in[0].dim[0], cols = in[0].dim[1], down = attr.tile_rows ? orth_div_up(rows, attr.tile_rows) : 1;
    orth_tensor out[2] = {case_tensor(ORTH_U8, rows, cols),
                          case_tensor(z->scale, down, attr.tile_cols ? orth_div_up(cols, attr.tile_cols) : 1)};
    CHECK_OK(ctx, kernels[ORTH_OP_amax](ctx, &(orth_op_call){in, &amax, 1, 1, &attr, NULL}));
    assert_int_equal(orth_bits_of_f32(*(float *)amax.data), json_integer_value(json_object_get(set, "amax")));
    memcpy(in[1].data, amax.data, sizeof(float));
    CHECK_OK(ctx, kernels[z->op](ctx, &(orth_op_call){in, out, z->op == ORTH_OP_quant_nvfp4 ? 5 : z->has_amax ? 2 : 1, 2, &attr, NULL}));
    if (z->op == ORTH_OP_quant_nvfp4)
        pack_codes(&out[0]);
    const json_t *scale = json_object_get(c, "scale");
    for (int64_t i = 0; z->scale == ORTH_F32 && i < orth_tensor_elems(&out[1]); i++)
        assert_int_equal(orth_bits_of_f32(((float *)out[1].data)[i]), integer(scale, i));
    if (z->scale == ORTH_U8)
        expect_bytes(&out[1], json_string_value(scale), z->name);
    expect_bytes(&out[0], json_string_value(json_object_get(c, "q")), z->name);
    case_free(in, 5);
    case_free(out, 2);
    case_free(&amax, 1);
}

/* All recipes of a matrix, by all kernels. */
static void check_set(orth_ctx *ctx, const json_t *set)
{
    int checked = 0;
    for (int k = 0; k < ORTH_COUNT(quantisers); k++) {
        const json_t *cases = json_object_get(set, quantisers[k].name);
        for (size_t i = 0; i < json_array_size(cases); i++, checked++) {
            check_quantised(ctx, orth_kernels_ref(), set, &quantisers[k], json_array_get(cases, i));
            for (orth_isa isa = ORTH_ISA_BASE; isa <= orth_isa_detect(); isa++) {
                ctx->isa = isa;
                check_quantised(ctx, orth_kernels_cpu(), set, &quantisers[k], json_array_get(cases, i));
            }
        }
    }
    assert_int_equal(checked, 9);
}

/* The maker of the fixture runs TransformerEngine's references on the same matrices. */
TEST(tensors_are_quantised_as_by_transformer_engines_rules)
{
    json_t *root = fixture();
    orth_ctx *ctx = test_ctx(2);
    check_set(ctx, root);
    test_ctx_free(ctx);
    json_decref(root);
}

TEST(infinities_no_numbers_zeros_and_denormals_in_fp32_and_bf16_are_quantised_by_the_same_rules)
{
    json_t *root = fixture(), *special = json_object_get(root, "special");
    orth_ctx *ctx = test_ctx(2);
    assert_int_equal(json_array_size(special), 8);
    for (size_t i = 0; i < json_array_size(special); i++) {
        print_message("%s\n", json_string_value(json_object_get(json_array_get(special, i), "name")));
        check_set(ctx, json_array_get(special, i));
    }
    test_ctx_free(ctx);
    json_decref(root);
}

/* What is larger than in the steps before saturates, and is heard of; where there was no step, numbers are not scaled. */
TEST(delayed_scales_are_those_of_the_steps_before)
{
    orth_ctx *ctx = test_ctx(1);
    float x[2] = {1, -100}, scales[2] = {0, 448.0f / 8}, amax[2] = {3, 3}, scale;
    uint8_t q[2];
    const orth_tensor in[2] = {{x, ORTH_F32, 2, {1, 2, 1, 1}}, {scales, ORTH_F32, 1, {2, 1, 1, 1}}};
    const orth_tensor out[3] = {{q, ORTH_U8, 2, {1, 2, 1, 1}}, {&scale, ORTH_F32, 2, {1, 1, 1, 1}}, {amax, ORTH_F32, 1, {2, 1, 1, 1}}};
    for (int row = 0; row < 2; row++) {
        const orth_attr attr = {.num_seqs = 1, .seq_len = 1, .float8 = ORTH_E4M3, .row = row};
        CHECK_OK(ctx, orth_cpu_quant_delayed(ctx, &(orth_op_call){in, out, 2, 3, &attr, NULL}));
        assert_true(scale == (row ? 1.0f / 56 : 1) && orth_float8_to_f32(q[0], ORTH_E4M3) == (row ? 56 : 1));
        assert_true(orth_float8_to_f32(q[1], ORTH_E4M3) == (row ? -448 : -96) && amax[row] == 100 && amax[1] == (row ? 100 : 3));
    }
    test_ctx_free(ctx);
}

TEST(rounding_at_random_is_right_in_the_mean)
{
    enum { DRAWS = 4000 };
    orth_step_values step = {.seed = 3, .step = 2};
    for (float x = -6.5f; x <= 6.5f; x += 0.37f) {
        double sum = 0;
        const float want = fminf(fmaxf(x, -6), 6);
        for (int e = 0; e < DRAWS; e++) {
            const orth_rand4 draw = orth_quant_draw(&step, 1, 3, 5, e);
            const float v = orth_float8_to_f32(orth_quant_e2m1_at_random(x, orth_quant_bits(&draw, e)), ORTH_E2M1);
            assert_true(fabsf(v - want) < 2);
            sum += (double)v;
        }
        assert_true(fabs(sum / DRAWS - (double)want) < 5 * 1.0 / sqrt(DRAWS)); /* deviation of a draw: at most half of a step of 2 */
    }
    for (uint8_t c = 0; c < 16; c++) /* exact numbers are kept, whatever is drawn */
        assert_int_equal(orth_quant_e2m1_at_random(orth_float8_to_f32(c, ORTH_E2M1), 0xffffff * (c % 2)), c);
}

TEST(the_hadamard_transform_is_orthogonal_and_its_own_inverse)
{
    float x[16], y[16];
    double before = 0, after = 0;
    for (int i = 0; i < 16; i++) {
        x[i] = y[i] = test_rand(9, (uint64_t)i);
        before += (double)x[i] * x[i];
    }
    orth_hadamard_16(y, 0xa53c);
    for (int i = 0; i < 16; i++) {
        double want = 0; /* H[i][k] = (-1)^(number of bits that i and k share) */
        for (int k = 0; k < 16; k++)
            want += (__builtin_popcount((unsigned)(i & k)) % 2 ? -1 : 1) * (0xa53c >> k & 1 ? -(double)x[k] : (double)x[k]) / 4;
        assert_true(fabs((double)y[i] - want) < 1e-6);
        after += (double)y[i] * y[i];
    }
    assert_true(fabs(before - after) < 1e-5);
    orth_hadamard_16(y, 0);
    for (int i = 0; i < 16; i++)
        assert_true(fabs((double)y[i] - (0xa53c >> i & 1 ? -(double)x[i] : (double)x[i])) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions_are_those_of_pytorch_and_ml_dtypes),
        cmocka_unit_test(codes_have_the_values_of_pytorch_and_ml_dtypes),
        cmocka_unit_test(saturated_numbers_are_never_more_than_the_largest),
        cmocka_unit_test(tensors_are_quantised_as_by_transformer_engines_rules),
        cmocka_unit_test(infinities_no_numbers_zeros_and_denormals_in_fp32_and_bf16_are_quantised_by_the_same_rules),
        cmocka_unit_test(delayed_scales_are_those_of_the_steps_before),
        cmocka_unit_test(rounding_at_random_is_right_in_the_mean),
        cmocka_unit_test(the_hadamard_transform_is_orthogonal_and_its_own_inverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
