/* test_optim.c -- gradient norm, clipping, AdamW, Adam, SGD follow an independent double-precision version of PyTorch's
 * torch.optim; that fast kernels equal the plain ones is in test_ops.c. */
#include "kernel_case.h"

#include <math.h>

#include "kernels/optim.h"

static orth_step_values step_values(uint64_t t)
{
    return (orth_step_values){.step = t,
                              .lr = 0.01f,
                              .weight_decay = 0.1f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .momentum = 0.9f,
                              .clip_scale = 0.5f};
}

/* op 0 adamw, 1 adam, 2 sgd; with or without the bf16 copy. */
static kernel_case optim_case(int op, int64_t n, bool copy, const orth_step_values *s)
{
    static const char *const names[] = {"adamw", "adam", "sgd"};
    static const orth_kernel_fn ref[] = {orth_ref_adamw, orth_ref_adam, orth_ref_sgd};
    static const orth_kernel_fn cpu[] = {orth_cpu_adamw, orth_cpu_adam, orth_cpu_sgd};
    kernel_case k = {
        .name = names[op], .ref = ref[op], .cpu = cpu[op], .num_in = 2, .num_out = op == 2 ? 3 : 4};
    k.attr.lr_factor = n % 3 ? 1.0f : 0.25f;
    k.attr.decay_factor = 1;
    k.attr.nesterov = n % 2;
    k.in[0] = case_random(ORTH_F32, n, 0, 1, 1);
    k.in[1] = case_step(s);
    k.out[0] = case_random(ORTH_F32, n, 0, 2, 1);
    k.out[1] = case_random(ORTH_F32, n, 0, 3, 0.1f);
    if (op != 2) {
        k.out[2] = case_random(ORTH_F32, n, 0, 4, 0.1f);
        for (int64_t i = 0; i < n; i++)
            ((float *)k.out[2].data)[i] = fabsf(((float *)k.out[2].data)[i]);
    }
    if (copy)
        k.out[k.num_out - 1] = case_random(ORTH_BF16, n, 0, 5, 1);
    return k;
}

TEST(a_skipped_or_bad_step_writes_nothing)
{
    case_pool pool = case_pool_make();
    for (int op = 0; op < 3; op++)
        for (int bad = 0; bad < 2; bad++) {
            orth_step_values s = step_values(3);
            s.skip = !bad;
            s.bad = bad;
            kernel_case k = optim_case(op, 100, true, &s);
            orth_tensor want[ORTH_OP_MAX_OUT];
            case_run_ref(&k, pool.ctx[0], want);
            for (int i = 0; i < k.num_out; i++)
                assert_memory_equal(want[i].data, k.out[i].data, orth_tensor_bytes(&k.out[i]));
            case_free(want, k.num_out);
            case_check(&k, &pool);
        }
    case_pool_free(&pool);
}

typedef struct {
    double p, m, v;
} exact_state;

/* torch.optim.AdamW, Adam and SGD of one element, in double. */
static void exact_step(exact_state *x, int op, double g, const orth_step_values *s, const orth_attr *attr)
{
    const double wd = (double)s->weight_decay * attr->decay_factor, b1 = s->beta1, b2 = s->beta2;
    const double lr = (double)s->lr * attr->lr_factor;
    if (op == 0)
        x->p -= lr * wd * x->p;
    else
        g += wd * x->p;
    if (op == 2) {
        x->m = s->momentum * x->m + g;
        x->p -= lr * (attr->nesterov ? g + s->momentum * x->m : x->m);
        return;
    }
    x->m += (g - x->m) * (1 - b1);
    x->v = x->v * b2 + (1 - b2) * g * g;
    double c1 = 1 - pow(b1, (double)s->step), c2 = 1 - pow(b2, (double)s->step);
    x->p -= lr / c1 * x->m / (sqrt(x->v) / sqrt(c2) + s->eps);
}

TEST(fifty_steps_follow_torch_optim_in_double)
{
    enum { N = 200, STEPS = 50 };
    orth_ctx *ctx = test_ctx(2);
    static const float lr_factors[] = {1, 1, 0.5f, 0}, decay_factors[] = {1, 0, 0.3f, 1};
    for (int variant = 0; variant < 24; variant++) {
        const int op = variant % 3;
        orth_step_values s = step_values(1);
        kernel_case k = optim_case(op, N, true, &s);
        k.attr.nesterov = variant / 3 & 1;
        k.attr.lr_factor = lr_factors[variant / 6];
        k.attr.decay_factor = decay_factors[variant / 6];
        exact_state x[N];
        for (int i = 0; i < N; i++)
            x[i] = (exact_state){.p = ((float *)k.out[0].data)[i]};
        memset(k.out[1].data, 0, N * 4);
        if (op != 2)
            memset(k.out[2].data, 0, N * 4);
        for (uint64_t t = 1; t <= STEPS; t++) {
            s.step = t;
            s.lr = 0.01f / (float)t;
            s.clip_scale = t % 3 ? 1.0f : 0.25f;
            memcpy(k.in[1].data, &s, sizeof s);
            for (int i = 0; i < N; i++) {
                float g = test_rand(t, (uint64_t)i) * (i % 5 == 0 ? 1e-4f : 1.0f);
                ((float *)k.in[0].data)[i] = g;
                exact_step(&x[i], op, (double)g * s.clip_scale, &s, &k.attr);
            }
            CHECK_OK(ctx, k.cpu(ctx, &(orth_op_call){k.in, k.out, k.num_in, k.num_out, &k.attr, NULL}));
        }
        for (int i = 0; i < N; i++) {
            float p = ((float *)k.out[0].data)[i];
            assert_true(fabs(p - x[i].p) < 2e-6);
            assert_int_equal(((orth_bf16 *)k.out[k.num_out - 1].data)[i], orth_bf16_from_f32(p));
        }
        case_free(k.in, k.num_in);
        case_free(k.out, k.num_out);
    }
    test_ctx_free(ctx);
}

TEST(bias_corrections_need_no_libm)
{
    for (uint64_t n = 0; n < 3000000; n = n * 3 + 1) {
        assert_true(fabs(orth_power(0.999, n) - pow(0.999, (double)n)) < 1e-12);
        assert_true(fabs(orth_power(0.9999999, n) - pow(0.9999999, (double)n)) < 1e-9);
    }
}

TEST(grad_square_equals_reference_and_double)
{
    case_pool pool = case_pool_make();
    const int64_t n_of[] = {
        1, 17, ORTH_NORM_BLOCK - 1, ORTH_NORM_BLOCK, ORTH_NORM_BLOCK + 1, 5 * ORTH_NORM_BLOCK + 99};
    for (int i = 0; i < ORTH_COUNT(n_of); i++) {
        const int64_t n = n_of[i], m = orth_div_up(n, ORTH_NORM_BLOCK);
        kernel_case k = {KERNEL_CASE(grad_square), .num_in = 1, .num_out = 1,
                         .attr = {.block_rows = ORTH_NORM_BLOCK}};
        k.in[0] = case_random(ORTH_F32, n, 0, 1, 1);
        k.out[0] = case_tensor(ORTH_F64, m, 0);
        orth_tensor want[1];
        case_run_ref(&k, pool.ctx[0], want);
        double got = 0, sum = 0;
        for (int64_t j = 0; j < m; j++)
            got += ((double *)want[0].data)[j];
        for (int64_t j = 0; j < n; j++)
            sum += (double)((float *)k.in[0].data)[j] * ((float *)k.in[0].data)[j];
        assert_true(fabs(got - sum) <= 1e-12 * sum);
        case_free(want, 1);
        case_check(&k, &pool);
    }
    case_pool_free(&pool);
}

static orth_step_values clip(double a, double b, double loss, float clip_norm)
{
    orth_ctx *ctx = test_ctx(1);
    double sums[2] = {a, b};
    orth_step_values s = {.clip_norm = clip_norm};
    orth_tensor in[2] = {{sums, ORTH_F64, 1, {2, 1, 1, 1}}, {&loss, ORTH_F64, 1, {1, 1, 1, 1}}};
    orth_tensor out = {&s, ORTH_U8, 1, {sizeof s, 1, 1, 1}};
    CHECK_OK(ctx, orth_cpu_clip_scale(ctx, &(orth_op_call){in, &out, 2, 1, &(orth_attr){0}, NULL}));
    test_ctx_free(ctx);
    return s;
}

TEST(clipping_scales_to_the_norm_and_marks_what_is_not_finite)
{
    orth_step_values s = clip(9, 16, 1, 1);
    assert_true(s.grad_norm == 5 && s.clip_scale == (float)(1 / (5 + 1e-6)) && !s.bad);
    s = clip(9, 16, 1, 10);
    assert_true(s.grad_norm == 5 && s.clip_scale == 1 && !s.bad);
    s = clip(9, 16, 1, 0);
    assert_true(s.clip_scale == 1 && !s.bad);
    assert_true(clip(9, INFINITY, 1, 1).bad && clip(NAN, 1, 1, 1).bad && clip(9, 16, NAN, 1).bad);
    assert_true(clip(9, 16, -INFINITY, 0).bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skipped_or_bad_step_writes_nothing),
        cmocka_unit_test(fifty_steps_follow_torch_optim_in_double),
        cmocka_unit_test(bias_corrections_need_no_libm),
        cmocka_unit_test(grad_square_equals_reference_and_double),
        cmocka_unit_test(clipping_scales_to_the_norm_and_marks_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
