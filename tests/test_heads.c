/* test_heads.c -- rotation of query and key heads, in place and back. */
#include <math.h>

#include "kernels/attention.h"
#include "test.h"

enum { B = 2, T = 21, P = 4, D = 128 };

static orth_tensor view(void *data, orth_dtype type, int64_t d0, int64_t d1)
{
    return (orth_tensor){data, type, d1 ? 2 : 1, {d0, d1 ? d1 : 1, 1, 1}};
}

static void rope(orth_ctx *ctx, orth_attr attr, bool inverse, float *qkv, float *out)
{
    const int64_t N = B * T, R = orth_attn_qkv_cols(&attr);
    int32_t pos[B * T];
    static float table[T * D];
    for (int64_t n = 0; n < N; n++)
        pos[n] = (int32_t)orth_fold_pos(T, P, n % T);
    for (int t = 0; t < T; t++)
        for (int i = 0; i < D / 2; i++) {
            double angle = t * pow(10000.0, -2.0 * i / D);
            table[t * D + i] = (float)cos(angle);
            table[t * D + D / 2 + i] = (float)sin(angle);
        }
    const orth_tensor in[3] = {view(qkv, ORTH_F32, N, R), view(pos, ORTH_I32, N, 0), view(table, ORTH_F32, T, D)};
    const orth_tensor to = view(out, ORTH_F32, N, R);
    attr.inverse = inverse;
    CHECK_OK(ctx, orth_cpu_rope(ctx, &(orth_op_call){in, &to, 3, 1, &attr, NULL}));
}

TEST(rope_in_place_and_back_is_the_identity)
{
    orth_ctx *ctx = test_ctx(2);
    const orth_attr attr = {.num_seqs = B, .seq_len = T, .token_parts = P, .heads = 4, .kv_heads = 2, .head_dim = D};
    const int64_t n = B * T * orth_attn_qkv_cols(&attr);
    const size_t bytes = (size_t)n * sizeof(float);
    float *x = malloc(bytes), *there = malloc(bytes), *y = malloc(bytes);
    for (int64_t i = 0; i < n; i++)
        x[i] = y[i] = 2.0f * test_rand(1, (uint64_t)i);
    rope(ctx, attr, false, x, there);
    rope(ctx, attr, false, y, y);
    assert_memory_equal(y, there, bytes);
    rope(ctx, attr, true, y, y);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabsf(y[i] - x[i]) < 1e-6f);
    free(x), free(there), free(y);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope_in_place_and_back_is_the_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
