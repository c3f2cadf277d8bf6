/* test_moments8.c -- moments in 8 bits: the dynamic map and the steps of tests/fixtures/moments_8bit.json, which a script recomputes from
 * the published definition. That layouts and resumed runs have the same bits: test_layouts.c, test_train.c. */
#include <jansson.h>

#include "kernel_case.h"
#include "kernels/moments8.h"
#include "program/ir/param.h"

static json_t *fixture(void)
{
    json_t *root = json_load_file(ORTH_TEST_DIR "/fixtures/moments_8bit.json", 0, NULL);
    assert_non_null(root);
    return root;
}

static float number(const json_t *list, int64_t i)
{
    const uint32_t u = (uint32_t)json_integer_value(json_array_get(list, (size_t)i));
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static const json_t *of_step(const json_t *root, const char *key, size_t step)
{
    return json_array_get(json_object_get(root, key), step);
}

TEST(the_dynamic_maps_are_those_of_bitsandbytes)
{
    json_t *root = fixture();
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const json_t *want = json_object_get(json_object_get(root, "map"), is_signed ? "signed" : "unsigned");
        orth_dynamic_map map;
        orth_dynamic_map_make(&map, is_signed);
        assert_int_equal(json_array_size(want), 256);
        for (int c = 0; c < 256; c++)
            assert_true(map.value[c] == number(want, c));
    }
    json_decref(root);
}

/* By looking at all of them, in double; of two equally near ones the smaller magnitude. */
static int nearest(const orth_dynamic_map *map, float x)
{
    int best = 0;
    for (int c = 1; c < 256; c++) {
        const double d = fabs((double)map->value[c] - (double)x), was = fabs((double)map->value[best] - (double)x);
        if (d < was || (d == was && fabsf(map->value[c]) < fabsf(map->value[best])))
            best = c;
    }
    return best;
}

static void check_nearest(const orth_dynamic_map *map, float x)
{
    for (int sign = 0; sign <= map->is_signed; sign++, x = -x)
        if (orth_dynamic_code(map, x) != nearest(map, x))
            fail_msg("%a is %d, not %d", (double)x, orth_dynamic_code(map, x), nearest(map, x));
}

TEST(a_code_is_that_of_the_nearest_of_all_values)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        orth_dynamic_map map;
        orth_dynamic_map_make(&map, is_signed);
        for (int c = 0; c < 255; c++) { /* values, what is halfway between two, and its neighbours */
            const float half = (map.value[c] + map.value[c + 1]) / 2;
            const float at[] = {map.value[c], map.value[c + 1], half, nextafterf(half, 2), nextafterf(half, -2)};
            for (int i = 0; i < ORTH_COUNT(at); i++)
                check_nearest(&map, fabsf(at[i]));
        }
        for (int b = 0; b < ORTH_MAP_BUCKETS; b++) { /* both ends of each bucket of the look-up */
            const uint32_t u = (uint32_t)(b + ORTH_MAP_LOW) << 16;
            float edge;
            memcpy(&edge, &u, sizeof edge);
            check_nearest(&map, edge);
            check_nearest(&map, nextafterf(edge, 0));
        }
        check_nearest(&map, 0);
        check_nearest(&map, 0x1p-149f);
    }
}

static void load(const orth_tensor *t, const json_t *from)
{
    for (int64_t i = 0; i < orth_tensor_elems(t); i++)
        ((float *)t->data)[i] = number(from, i);
}

static void expect_floats(const orth_tensor *t, const json_t *want)
{
    for (int64_t i = 0; i < orth_tensor_elems(t); i++)
        assert_true(((const float *)t->data)[i] == number(want, i));
}

static void expect_codes(const orth_tensor *t, const json_t *want)
{
    for (int64_t i = 0; i < orth_tensor_elems(t); i++)
        assert_int_equal(((const uint8_t *)t->data)[i], json_integer_value(json_array_get(want, (size_t)i)));
}

static void follow_fixture(orth_ctx *ctx, const json_t *root, orth_kernel_fn kernel)
{
    const int64_t rows = json_integer_value(json_object_get(root, "rows")), cols = json_integer_value(json_object_get(root, "cols"));
    assert_int_equal(json_integer_value(json_object_get(root, "block")), ORTH_MOMENT_BLOCK);
    const orth_attr attr = {.lr_factor = 1, .decay_factor = 1, .split = ORTH_SPLIT_WHOLE(cols)};
    orth_step_values s = {.clip_scale = 1};
    const struct {
        const char *key;
        float *to;
    } words[] = {{"lr", &s.lr}, {"eps", &s.eps}, {"weight_decay", &s.weight_decay}};
    for (int i = 0; i < ORTH_COUNT(words); i++)
        *words[i].to = (float)json_number_value(json_object_get(root, words[i].key));
    s.beta1 = (float)json_number_value(json_object_get(root, "beta1")); /* as the script has them, too */
    s.beta2 = (float)json_number_value(json_object_get(root, "beta2"));
    orth_tensor in[2] = {case_tensor(ORTH_F32, rows, cols), case_step(&s)};
    orth_tensor out[5] = {case_tensor(ORTH_F32, rows, cols), case_tensor(ORTH_U8, rows, cols), case_tensor(ORTH_U8, rows, cols), {.data = NULL},
                          case_tensor(ORTH_F32, rows, ORTH_BLOCK_SCALES * orth_moment_row_blocks(&attr.split))};
    load(&out[0], json_object_get(root, "w"));
    memset(out[1].data, 0, orth_tensor_bytes(&out[1])); /* as memory is when a run begins */
    memset(out[2].data, 0, orth_tensor_bytes(&out[2]));
    memset(out[4].data, 0, orth_tensor_bytes(&out[4]));
    for (size_t step = 0; step < json_array_size(json_object_get(root, "g")); step++) {
        s.step = step + 1;
        memcpy(in[1].data, &s, sizeof s);
        load(&in[0], of_step(root, "g", step));
        CHECK_OK(ctx, kernel(ctx, &(orth_op_call){in, out, 2, 5, &attr, NULL}));
        expect_floats(&out[0], of_step(root, "p", step));
        expect_codes(&out[1], of_step(root, "m", step));
        expect_codes(&out[2], of_step(root, "v", step));
        expect_floats(&out[4], of_step(root, "scales", step));
    }
    case_free(in, 2);
    case_free(out, 5);
}

TEST(steps_in_8_bits_are_those_of_the_published_definition)
{
    json_t *root = fixture();
    orth_ctx *ctx = test_ctx(2);
    follow_fixture(ctx, root, orth_ref_adamw_8bit);
    for (orth_isa isa = ORTH_ISA_BASE; isa <= orth_isa_detect(); isa++) {
        ctx->isa = isa;
        follow_fixture(ctx, root, orth_cpu_adamw_8bit);
    }
    test_ctx_free(ctx);
    json_decref(root);
}

/* Columns cut into `parts` canonical parts of which tp ranks have some each: the blocks of a rank are those of the whole, one after
 * the other, and so are the columns of its scales. */
static void check_cut(int64_t cols, int32_t parts, int32_t tp)
{
    orth_param_desc whole = {.num_dims = 2, .dim = {3, cols}, .whole_cols = cols, .split_dim = 1, .num_parts = parts,
                             .split = {ORTH_SPLIT_EVEN, parts, cols, 1, 1, 0, 0}};
    const orth_split all = orth_param_moment_split(&whole);
    const orth_param_desc all_scales = orth_param_scales(&whole);
    int64_t block = 0, at_scale = 0;
    for (int32_t r = 0; r < tp; r++) {
        orth_param_desc mine = whole;
        mine.num_parts = parts / tp;
        mine.first_part = r * mine.num_parts;
        const int64_t from = orth_split_bound(&whole.split, mine.first_part);
        mine.dim[1] = orth_split_bound(&whole.split, mine.first_part + mine.num_parts) - from;
        const orth_split here = orth_param_moment_split(&mine);
        const orth_param_desc scales = orth_param_scales(&mine);
        assert_int_equal(orth_split_bound(&scales.split, mine.first_part), at_scale);
        assert_int_equal(scales.whole_cols, all_scales.whole_cols);
        for (int64_t b = 0; b < orth_moment_row_blocks(&here); b++, block++) {
            int64_t begin, end, want_begin, want_end;
            orth_moment_block(&here, b, &begin, &end);
            orth_moment_block(&all, block, &want_begin, &want_end);
            assert_true(begin + from == want_begin && end + from == want_end && end - begin <= ORTH_MOMENT_BLOCK);
        }
        at_scale += scales.dim[1];
    }
    assert_int_equal(block, orth_moment_row_blocks(&all));
    assert_int_equal(at_scale, all_scales.dim[1]);
}

TEST(tensor_parallelism_cuts_no_block)
{
    static const int64_t cols[] = {8, 13, 100, 2048, 2049, 3000, 11008};
    for (int i = 0; i < ORTH_COUNT(cols); i++)
        for (int32_t tp = 1; tp <= 8; tp *= 2)
            check_cut(cols[i], 8, tp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dynamic_maps_are_those_of_bitsandbytes),
        cmocka_unit_test(a_code_is_that_of_the_nearest_of_all_values),
        cmocka_unit_test(steps_in_8_bits_are_those_of_the_published_definition),
        cmocka_unit_test(tensor_parallelism_cuts_no_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
