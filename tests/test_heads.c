/* test_heads.c -- what happens to query and key heads before attention: rope, head_norm. */
#include <math.h>

#include "kernels/attention.h"
#include "test.h"

typedef struct {
    orth_dtype type;
    int B, T, H, KV, D, P;
} shape;

static const shape shapes[] = {
    {ORTH_F32, 1, 1, 1, 1, 64, 1}, {ORTH_F32, 2, 21, 4, 2, 128, 4}, {ORTH_F32, 3, 16, 2, 2, 20, 2},
    {ORTH_F32, 1, 35, 3, 1, 24, 8}, {ORTH_F32, 2, 40, 2, 1, 96, 1},
};

typedef struct {
    shape s;
    orth_attr attr;
    int64_t N, R, J;
    char *qkv, *dout, *out, *dqkv;
    float *stats, *qgain, *kgain, *dqgain, *dkgain, *table;
    int32_t *pos;
} problem;

static void *random_data(orth_dtype type, int64_t n, uint64_t seed)
{
    void *p = malloc((size_t)n * orth_dtype_bytes(type));
    for (int64_t i = 0; i < n; i++)
        orth_store_f32(p, type, i, 2.0f * test_rand(seed, (uint64_t)i));
    return p;
}

static problem problem_new(shape s)
{
    problem p = {.s = s, .N = (int64_t)s.B * s.T, .J = s.H + s.KV};
    p.attr = (orth_attr){.num_seqs = s.B, .seq_len = s.T, .token_parts = s.P, .heads = s.H, .kv_heads = s.KV,
                         .head_dim = s.D, .eps = 1e-5f, .split = {ORTH_SPLIT_EVEN, s.P, s.H, 1, 1, 0, 0}};
    p.R = orth_attn_qkv_cols(&p.attr);
    p.qkv = random_data(s.type, p.N * p.R, 1);
    p.dout = random_data(s.type, p.N * p.R, 2);
    p.out = random_data(s.type, p.N * p.R, 3);
    p.dqkv = random_data(s.type, p.N * p.R, 3);
    p.stats = random_data(ORTH_F32, p.N * p.J, 4);
    p.qgain = random_data(ORTH_F32, s.D, 5);
    p.kgain = random_data(ORTH_F32, s.D, 6);
    p.dqgain = random_data(ORTH_F32, s.B * s.P * s.D, 7);
    p.dkgain = random_data(ORTH_F32, s.B * s.P * s.D, 7);
    p.table = malloc((size_t)(s.T * s.D) * sizeof(float));
    p.pos = malloc((size_t)p.N * sizeof(int32_t));
    for (int64_t n = 0; n < p.N; n++)
        p.pos[n] = (int32_t)orth_fold_pos(s.T, s.P, n % s.T);
    for (int t = 0; t < s.T; t++)
        for (int i = 0; i < s.D / 2; i++) {
            double angle = t * pow(10000.0, -2.0 * i / s.D);
            p.table[t * s.D + i] = (float)cos(angle);
            p.table[t * s.D + s.D / 2 + i] = (float)sin(angle);
        }
    return p;
}

static void problem_free(problem *p)
{
    free(p->qkv), free(p->dout), free(p->out), free(p->dqkv), free(p->stats), free(p->qgain), free(p->kgain);
    free(p->dqgain), free(p->dkgain), free(p->table), free(p->pos);
}

static orth_tensor view(void *data, orth_dtype type, int64_t d0, int64_t d1)
{
    return (orth_tensor){data, type, 2, {d0, d1, 1, 1}};
}

static void rope(orth_ctx *ctx, problem *p, const void *in, void *out, bool inverse, orth_kernel_fn fn)
{
    orth_tensor i[3] = {view((void *)in, p->s.type, p->N, p->R), view(p->pos, ORTH_I32, p->N, 1),
                        view(p->table, ORTH_F32, p->s.T, p->s.D)};
    orth_tensor o = view(out, p->s.type, p->N, p->R);
    p->attr.inverse = inverse;
    orth_op_call c = {i, &o, 3, 1, &p->attr, NULL};
    CHECK_OK(ctx, fn(ctx, &c));
}

static void norm(orth_ctx *ctx, problem *p, orth_kernel_fn fn, orth_kernel_fn bwd)
{
    orth_tensor i[3] = {view(p->qkv, p->s.type, p->N, p->R), view(p->qgain, ORTH_F32, p->s.D, 1),
                        view(p->kgain, ORTH_F32, p->s.D, 1)};
    orth_tensor o[2] = {view(p->out, p->s.type, p->N, p->R), view(p->stats, ORTH_F32, p->N, p->J)};
    orth_op_call c = {i, o, 3, 2, &p->attr, NULL};
    CHECK_OK(ctx, fn(ctx, &c));
    orth_tensor bi[5] = {view(p->dout, p->s.type, p->N, p->R), i[0], o[1], i[1], i[2]};
    const int64_t slots = p->s.B * p->s.P;
    orth_tensor bo[3] = {view(p->dqkv, p->s.type, p->N, p->R), view(p->dqgain, ORTH_F32, slots, p->s.D),
                         view(p->dkgain, ORTH_F32, slots, p->s.D)};
    orth_op_call bc = {bi, bo, 5, 3, &p->attr, NULL};
    CHECK_OK(ctx, bwd(ctx, &bc));
}

TEST(every_isa_and_thread_count_gives_the_bits_of_the_reference)
{
    for (int threads = 1; threads <= 7; threads += 3)
        for (int k = 0; k < 2 * ORTH_COUNT(shapes); k++) {
            orth_ctx *ctx = test_ctx(threads);
            shape s = shapes[k / 2];
            s.type = k % 2 ? ORTH_BF16 : ORTH_F32;
            problem a = problem_new(s), b = problem_new(s);
            const size_t n = (size_t)(a.N * a.R) * orth_dtype_bytes(s.type),
                         g = (size_t)(s.B * s.P * s.D) * sizeof(float);
            for (orth_isa isa = ORTH_ISA_BASE; isa <= orth_isa_detect(); isa++) {
                ctx->isa = isa;
                rope(ctx, &a, a.qkv, a.out, isa % 2, orth_ref_rope);
                rope(ctx, &b, b.qkv, b.out, isa % 2, orth_cpu_rope);
                assert_memory_equal(a.out, b.out, n);
                norm(ctx, &a, orth_ref_head_norm, orth_ref_head_norm_bwd);
                norm(ctx, &b, orth_cpu_head_norm, orth_cpu_head_norm_bwd);
                assert_memory_equal(a.out, b.out, n);
                assert_memory_equal(a.stats, b.stats, (size_t)(a.N * a.J) * sizeof(float));
                assert_memory_equal(a.dqkv, b.dqkv, n);
                assert_memory_equal(a.dqgain, b.dqgain, g);
                assert_memory_equal(a.dkgain, b.dkgain, g);
            }
            problem_free(&a), problem_free(&b);
            test_ctx_free(ctx);
        }
}

TEST(rope_in_place_and_back_is_the_identity)
{
    orth_ctx *ctx = test_ctx(2);
    problem p = problem_new(shapes[1]);
    const int64_t n = p.N * p.R;
    rope(ctx, &p, p.qkv, p.out, false, orth_cpu_rope);
    memcpy(p.dqkv, p.qkv, (size_t)n * sizeof(float));
    rope(ctx, &p, p.dqkv, p.dqkv, false, orth_cpu_rope);
    assert_memory_equal(p.dqkv, p.out, (size_t)n * sizeof(float));
    rope(ctx, &p, p.dqkv, p.dqkv, true, orth_cpu_rope);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabsf(((float *)p.dqkv)[i] - ((float *)p.qkv)[i]) < 1e-6f);
    problem_free(&p);
    test_ctx_free(ctx);
}

/* sum(dout * out) in double, with the input (kind 0), qgain (1) or kgain (2) moved at one place. */
static double norm_loss(const problem *p, int kind, int64_t at, double by)
{
    const float *x = (float *)p->qkv, *dy = (float *)p->dout;
    const int D = p->s.D;
    double total = 0;
    for (int64_t n = 0; n < p->N; n++)
        for (int j = 0; j < p->J; j++) {
            const bool q = j < p->s.H;
            int64_t c = n * p->R + (q ? orth_attn_q_col(&p->attr, j) : orth_attn_k_col(&p->attr, j - p->s.H));
            double sum = 0, dot = 0;
            for (int d = 0; d < D; d++) {
                double v = (double)x[c + d] + (kind == 0 && c + d == at ? by : 0.0);
                double gain = (double)(q ? p->qgain : p->kgain)[d] +
                              (kind == (q ? 1 : 2) && d == at ? by : 0.0);
                sum += v * v;
                dot += v * gain * (double)dy[c + d];
            }
            total += dot / sqrt(sum / D + (double)p->attr.eps);
        }
    for (int64_t n = 0; n < p->N; n++) /* values pass */
        for (int g = 0; g < p->s.KV; g++)
            for (int64_t d = 0, c = n * p->R + orth_attn_v_col(&p->attr, g); d < D; d++)
                total += ((double)x[c + d] + (kind == 0 && c + d == at ? by : 0.0)) * (double)dy[c + d];
    return total;
}

TEST(head_norm_gradients_are_those_of_finite_differences)
{
    orth_ctx *ctx = test_ctx(1);
    problem p = problem_new((shape){ORTH_F32, 1, 6, 2, 1, 10, 2});
    norm(ctx, &p, orth_cpu_head_norm, orth_cpu_head_norm_bwd);
    const float *got[3] = {(float *)p.dqkv, p.dqgain, p.dkgain};
    for (int kind = 0; kind < 3; kind++)
        for (int64_t i = 0; i < (kind == 0 ? p.N * p.R : p.s.D); i++) {
            double want = (norm_loss(&p, kind, i, 1e-5) - norm_loss(&p, kind, i, -1e-5)) / 2e-5;
            double have = got[kind][i];
            for (int slot = 1; kind > 0 && slot < p.s.P; slot++)
                have += got[kind][slot * p.s.D + i];
            assert_true(fabs(have - want) < 1e-5 * (1.0 + fabs(want)));
        }
    problem_free(&p);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_isa_and_thread_count_gives_the_bits_of_the_reference),
        cmocka_unit_test(rope_in_place_and_back_is_the_identity),
        cmocka_unit_test(head_norm_gradients_are_those_of_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
