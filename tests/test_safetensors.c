/* test_safetensors.c -- what is written is read back; what is damaged is refused, in words. */
#include "ckpt_case.h"

#include <jansson.h>
#include <math.h>

#include "ckpt/safetensors.h"

TEST(tensors_come_back_with_their_bits_and_metadata)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256];
    AT(path, "%s/a.safetensors", dir);
    const float x[6] = {1.5f, -0.0f, 3e-45f, INFINITY, -2.25f, 1e30f};
    const orth_st_spec specs[] = {{"b", ORTH_F32, 2, {2, 3}}, {"a", ORTH_BF16, 1, {6}}, {"empty", ORTH_F32, 1,
                                                                                         {0}},
                                  {"scalar", ORTH_F32, 0, {0}}};
    const char *const meta[] = {"format", "pt", "who", "\"quoted\"", NULL};
    orth_st_writer *w;
    uint64_t hash, bytes;
    CHECK_OK(ctx, orth_st_writer_open(ctx, &w, path, specs, 4, meta));
    CHECK_OK(ctx, orth_st_writer_put_f32(ctx, w, ORTH_F32, x, 6));
    CHECK_OK(ctx, orth_st_writer_put_f32(ctx, w, ORTH_BF16, x, 6));
    CHECK_OK(ctx, orth_st_writer_put_f32(ctx, w, ORTH_F32, x, 1));
    CHECK_OK(ctx, orth_st_writer_commit(ctx, w, &hash, &bytes));
    orth_safetensors st = {0};
    CHECK_OK(ctx, orth_safetensors_open(ctx, &st, path));
    assert_int_equal(st.map.size, bytes);
    assert_int_equal(st.num_tensors, 4);
    uint64_t header_bytes;
    memcpy(&header_bytes, st.map.data, sizeof header_bytes);
    json_t *header = json_loadb((const char *)st.map.data + 8, header_bytes, 0, NULL);
    json_t *wanted = json_pack("{s:s, s:s}", "format", "pt", "who", "\"quoted\"");
    assert_true(json_equal(json_object_get(header, "__metadata__"), wanted));
    json_decref(wanted);
    json_decref(header);
    const orth_st_tensor *b = orth_safetensors_find(&st, "b"), *a = orth_safetensors_find(&st, "a");
    assert_memory_equal(b->data, x, sizeof x);
    assert_int_equal((uintptr_t)b->data % 64, 0);
    float back[6];
    orth_st_load_f32(back, a, 0, 6);
    for (int i = 0; i < 6; i++)
        assert_true(back[i] == orth_bf16_to_f32(orth_bf16_from_f32(x[i])));
    assert_int_equal(orth_safetensors_find(&st, "empty")->elems, 0);
    assert_int_equal(orth_safetensors_find(&st, "scalar")->elems, 1);
    assert_null(orth_safetensors_find(&st, "c"));
    orth_safetensors_close(ctx, &st);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

/* All 65536 halves, through the file: to fp32 and back gives the same half; and between two
 * neighbours the nearer is taken, ties to even. */
TEST(halves_survive_and_round_to_nearest_even)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256];
    AT(path, "%s/h.safetensors", dir);
    enum { N = 65536 };
    static float x[N], mid[N];
    uint16_t *halves = malloc(N * 2);
    for (int i = 0; i < N; i++)
        halves[i] = (uint16_t)i;
    orth_st_tensor t = {.dtype = ORTH_F16, .data = (unsigned char *)halves, .elems = N};
    orth_st_load_f32(x, &t, 0, N);
    assert_true(x[0x3c00] == 1.0f && x[0x0001] == 0x1p-24f && x[0x7bff] == 65504.0f && isinf(x[0xfc00]));
    for (int i = 0; i < N; i++) /* halfway to the next of the same sign; past the largest: 65520 */
        mid[i] = isfinite(x[i]) ? (i % 0x8000 == 0x7bff ? copysignf(65520.0f,
                                                                    x[i]) : 0.5f * (x[i] + x[i + 1])) : x[i];
    const orth_st_spec specs[] = {{"x", ORTH_F16, 1, {N}}, {"mid", ORTH_F16, 1, {N}}};
    orth_st_writer *w;
    CHECK_OK(ctx, orth_st_writer_open(ctx, &w, path, specs, 2, NULL));
    CHECK_OK(ctx, orth_st_writer_put_f32(ctx, w, ORTH_F16, x, N));
    CHECK_OK(ctx, orth_st_writer_put_f32(ctx, w, ORTH_F16, mid, N));
    CHECK_OK(ctx, orth_st_writer_commit(ctx, w, NULL, NULL));
    orth_safetensors st = {0};
    CHECK_OK(ctx, orth_safetensors_open(ctx, &st, path));
    const uint16_t *hx = (const uint16_t *)orth_safetensors_find(&st, "x")->data;
    const uint16_t *hm = (const uint16_t *)orth_safetensors_find(&st, "mid")->data;
    for (int i = 0; i < N; i++) {
        if (isnan(x[i])) {
            assert_true((hx[i] & 0x7c00) == 0x7c00 && (hx[i] & 0x3ff));
            continue;
        }
        assert_int_equal(hx[i], i);
        assert_int_equal(hm[i], isfinite(x[i]) ? i + (i & 1) : i);
    }
    orth_safetensors_close(ctx, &st);
    free(halves);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

/* A file of the given header (its length lies by `lie`) and data_bytes of zeros. */
static orth_status parse(orth_ctx *ctx, const char *header, int64_t lie, size_t data_bytes)
{
    size_t n = strlen(header), total = 8 + n + data_bytes;
    unsigned char *file = calloc(1, total);
    uint64_t claimed = (uint64_t)((int64_t)n + lie);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(claimed >> 8 * i);
    memcpy(file + 8, header, n);
    orth_safetensors st = {0};
    orth_status s = orth_safetensors_parse(ctx, &st, "f.st", file, total);
    orth_safetensors_close(ctx, &st);
    free(file);
    return s;
}

#define T(name, type, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end "]}"

TEST(damage_is_refused_with_tensor_value_and_rule)
{
    static const struct {
        const char *header;
        int64_t lie;
        size_t data;
        const char *message;
    } cases[] = {
        {"{" T("a", "F32", "2", "0", "8") "}", 1000, 8,
         "f.st: its header says it has 1054 bytes, the file only 62"},
        {"{}", (int64_t)1 << 40, 0, "at most 100000000 make sense"},
        {"{" T("a", "F32", "2", "0", "8") "}", -3, 11, "not valid JSON"},
        {"{" T("a", "F32", "2", "0", "8") "}", 0, 7,
         "tensor 'a': data_offsets=[0, 8] is not within the 7 bytes"},
        {"{" T("a", "F32", "2", "0", "8") "}", 0, 9, "its tensors end at byte 8 of 9 bytes of data"},
        {"{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "2", "4", "12") "}", 0, 12,
         "tensor 'b' overlaps 'a': it begins at 4, before 8"},
        {"{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "2", "12", "20") "}", 0, 20,
         "tensor 'b' begins at 12 and leaves a hole after 8"},
        {"{" T("a", "F32", "2", "0", "8") "," T("a", "F32", "2", "8", "16") "}", 0, 16,
         "duplicate object key"},
        {"{" T("a", "F32", "3", "0", "8") "}", 0, 8, "tensor 'a': its 8 bytes are not 3 elements of F32"},
        {"{" T("a", "F33", "2", "0", "8") "}", 0, 8,
         "tensor 'a' has dtype 'F33', which the format does not have"},
        {"{" T("a", "F32", "-2", "0", "8") "}", 0, 8, "dim 0 of its shape is not a size"},
        {"{" T("a", "F32", "2", "8", "0") "}", 0, 8, "data_offsets=[8, 0] is not within"},
        {"{" T("a", "F32", "2", "-8", "0") "}", 0, 8, "data_offsets=[-8, 0] is not within"},
        {"{" T("a", "F32", "4294967296,4294967296", "0", "0") "}", 0, 0,
         "the product of its shape overflows"},
        {"{" T("a", "F32", "4611686018427387904", "0", "0") "}", 0, 0,
         "are not 4611686018427387904 elements"},
        {"{" T("a", "F32", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 0, 4, "has 9 dims; at most 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, 8, "data_offsets is not [begin, end]"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 0, 8, "tensor 'a' has no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 0, 8, "tensor 'a' has no shape"},
        {"{\"a\":3}", 0, 0, "the header has no object for tensor 'a'"},
        {"[1]", 0, 0, "is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, 0, "__metadata__ has 'a', which is not a string"},
        {"{\"__metadata__\":7}", 0, 0, "__metadata__ is not an object"},
        {"{\"a\\u0000\":7}", 0, 0, "not valid JSON"},
        {"{\"a\":\"\xff\"}", 0, 0, "not valid JSON"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        CHECK_FAILS(ctx, ORTH_ERR_DATA, cases[i].message, parse(ctx, cases[i].header, cases[i].lie,
                                                                cases[i].data));
    CHECK_OK(ctx, parse(ctx, "{}", 0, 0));
    CHECK_OK(ctx, parse(ctx, "{" T("m", "BOOL", "2,2", "0", "4") "}", 0, 4));
    test_ctx_free(ctx);
}

TEST(deep_nesting_is_refused_without_using_up_the_stack)
{
    orth_ctx *ctx = test_ctx(1);
    enum { DEPTH = 1 << 20 };
    char *header = malloc(DEPTH + 16);
    strcpy(header, "{\"a\":");
    memset(header + 5, '[', DEPTH);
    header[5 + DEPTH] = '\0';
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "depth", parse(ctx, header, 0, 0));
    free(header);
    test_ctx_free(ctx);
}

TEST(short_and_missing_files_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_safetensors st = {0};
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "its 3 bytes are too few",
                orth_safetensors_parse(ctx, &st, "f.st", (const unsigned char *)"abc", 3));
    CHECK_FAILS(ctx, ORTH_ERR_IO, "cannot open", orth_safetensors_open(ctx, &st, "/nonexistent/f.st"));
    CHECK_FAILS(ctx, ORTH_ERR_IO, "/tmp: cannot read", orth_safetensors_open(ctx, &st, "/tmp"));
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_come_back_with_their_bits_and_metadata),
        cmocka_unit_test(halves_survive_and_round_to_nearest_even),
        cmocka_unit_test(damage_is_refused_with_tensor_value_and_rule),
        cmocka_unit_test(deep_nesting_is_refused_without_using_up_the_stack),
        cmocka_unit_test(short_and_missing_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
