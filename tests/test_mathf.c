/* test_mathf.c -- elementary functions: accuracy against libm in double, vector copies bit for bit. */
#include "test.h"

#include <float.h>
#include <math.h>

#include "kernels/mathf.h"

#define STRIDE 6007 /* between the bit patterns tried: about 715,000 of them */

typedef float (*scalar_fn)(float);

#define ACT(name, act)                                                       \
    static float name##_apply(float x) { return orth_act_apply(act, x); }    \
    static float name##_grad(float x) { return orth_act_grad(act, x); }
ACT(gelu_tanh, ORTH_ACT_GELU_TANH)
ACT(gelu_erf, ORTH_ACT_GELU_ERF)
ACT(silu, ORTH_ACT_SILU)

static double exact_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double exact_gelu_arg(double x) { return 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
static double exact_gelu_tanh(double x) { return x < -30 ? 0 : x * exact_sigmoid(exact_gelu_arg(x)); }
static double exact_gelu_tanh_grad(double x)
{
    if (fabs(x) > 30)
        return x > 0;
    double s = exact_sigmoid(exact_gelu_arg(x));
    return s + x * s * (1 - s) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
static double exact_gelu_erf(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }
static double exact_gelu_erf_grad(double x)
{
    return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}
/* Of larger x nothing is promised. */
static float exp2_up_to_128(float x) { return orth_exp2f(x > 128 ? 128 : x); }
static double exp2_of_up_to_128(double x) { return exp2(x > 128 ? 128 : x); }
static double exact_silu(double x) { return x * exact_sigmoid(x); }
static double exact_silu_grad(double x)
{
    double s = exact_sigmoid(x);
    return s + (fabs(x) > 700 ? 0 : x * s * (1 - s));
}

/* Error in units of the last place of max(|exact|, floor_abs, floor_rel*|x|). */
static const struct {
    const char *name;
    scalar_fn fn;
    double (*exact)(double);
    double max_ulp, floor_abs, floor_rel;
} cases[] = {
    {"exp", orth_expf, exp, 1.5, 0, 0},
    {"exp2", exp2_up_to_128, exp2_of_up_to_128, 1.5, 0, 0},
    {"log", orth_logf, log, 1.5, 0, 0},
    {"tanh", orth_tanhf, tanh, 2, 0, 0},
    {"erf", orth_erff, erf, 1.5, 0, 0},
    {"sigmoid", orth_sigmoidf, exact_sigmoid, 3, 0, 0},
    {"gelu_tanh", gelu_tanh_apply, exact_gelu_tanh, 6, 0, 1.0 / 16},
    {"gelu_tanh_grad", gelu_tanh_grad, exact_gelu_tanh_grad, 6, 1.0 / 8, 0},
    {"gelu_erf", gelu_erf_apply, exact_gelu_erf, 6, 0, 1.0 / 16},
    {"gelu_erf_grad", gelu_erf_grad, exact_gelu_erf_grad, 6, 1.0 / 8, 0},
    {"silu", silu_apply, exact_silu, 6, 1e-28, 0},
    {"silu_grad", silu_grad, exact_silu_grad, 6, 1.0 / 8, 0},
};

static double ulp_error(float got, double exact, double scale)
{
    int e;
    frexp(fmax(fabs(exact), fmax(scale, FLT_MIN)), &e);
    return fabs(got - exact) / ldexp(1, e - 24);
}

TEST(functions_are_within_a_few_units_of_the_last_place)
{
    for (int c = 0; c < ORTH_COUNT(cases); c++) {
        double worst = 0;
        float worst_x = 0;
        for (uint64_t u = 0; u < 0x100000000u; u += STRIDE) {
            float x = orth_f32_of_bits((uint32_t)u);
            float got = cases[c].fn(x);
            double exact = cases[c].exact(x);
            if (isnan(exact) || isnan(x)) {
                if (!isinf(x))
                    assert_true(isnan(got));
                continue;
            }
            if (fabs(exact) > FLT_MAX || isinf(got)) {
                if ((double)got != exact && !(fabs(exact) > FLT_MAX && isinf(got)))
                    fail_msg("%s(%a) = %a, not %a", cases[c].name, (double)x, (double)got, exact);
                continue;
            }
            if (fabs(exact) < 1.001 * FLT_MIN && fabsf(got) <= 1.001f * FLT_MIN)
                continue; /* flushed or denormal: either will do */
            double err = ulp_error(got, exact, fmax(cases[c].floor_abs, cases[c].floor_rel * fabs(x)));
            if (err > worst) {
                worst = err;
                worst_x = x;
            }
        }
        print_message("  %-15s %.3f ulp at %.9g\n", cases[c].name, worst, (double)worst_x);
        if (worst > cases[c].max_ulp)
            fail_msg("%s is off by %f ulp at %.9g", cases[c].name, worst, (double)worst_x);
    }
}

TEST(special_values)
{
    const float inf = INFINITY;
    assert_true(orth_expf(-inf) == 0 && orth_expf(inf) == inf && orth_expf(0) == 1 && orth_expf(-0.0f) == 1);
    assert_true(orth_expf(-87.34f) == 0 && orth_expf(-1000) == 0 && orth_expf(89) == inf);
    assert_true(isnan(orth_expf(NAN)));
    assert_true(orth_exp2f(-inf) == 0 && orth_exp2f(0) == 1 && orth_exp2f(-0.0f) == 1 && orth_exp2f(128) == inf);
    assert_true(orth_exp2f(-126) == FLT_MIN && orth_exp2f(-126.00001f) == 0 && orth_exp2f(-3) == 0.125f);
    assert_true(isnan(orth_exp2f(NAN)));
    assert_true(orth_logf(0) == -inf && orth_logf(-0.0f) == -inf && orth_logf(inf) == inf &&
                orth_logf(1) == 0);
    assert_true(isnan(orth_logf(-1)) && isnan(orth_logf(-inf)) && isnan(orth_logf(NAN)));
    assert_true(fabs(orth_logf(1e-42f) - log((double)1e-42f)) < 1e-5);
    assert_true(orth_tanhf(inf) == 1 && orth_tanhf(-inf) == -1 && orth_tanhf(0) == 0 &&
                isnan(orth_tanhf(NAN)));
    assert_true(orth_erff(inf) == 1 && orth_erff(-inf) == -1 && orth_erff(0) == 0 && isnan(orth_erff(NAN)));
    for (orth_act act = ORTH_ACT_NONE; act <= ORTH_ACT_SILU; act++) {
        assert_true(orth_act_apply(act, 1e30f) == 1e30f && orth_act_grad(act, 1e30f) == 1);
        assert_true(isnan(orth_act_apply(act, NAN)));
        if (act != ORTH_ACT_NONE) {
            assert_true(orth_act_apply(act, -1e30f) == 0 && fabsf(orth_act_grad(act, -1e30f)) < 1e-30f);
            assert_true(isnan(orth_act_grad(act, NAN)));
        }
    }
}

#if defined(__x86_64__)
/* Each copy is compiled for its own instruction set, so that the first runs where the second does not. Results are
 * y[c*16 + lane], in the order of `cases`. */
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "kernels/mathf_simd.h"

static void all_m256(const float *x, float *y)
{
    const orth_act acts[] = {ORTH_ACT_GELU_TANH, ORTH_ACT_GELU_ERF, ORTH_ACT_SILU};
    for (int h = 0; h < 16; h += 8) {
        __m256 v = _mm256_loadu_ps(x + h);
        _mm256_storeu_ps(y + h, orth_expf_m256(v));
        _mm256_storeu_ps(y + h + 16, orth_exp2f_m256(_mm256_min_ps(_mm256_set1_ps(128), v)));
        _mm256_storeu_ps(y + h + 32, orth_logf_m256(v));
        _mm256_storeu_ps(y + h + 48, orth_tanhf_m256(v));
        _mm256_storeu_ps(y + h + 64, orth_erff_m256(v));
        _mm256_storeu_ps(y + h + 80, orth_sigmoidf_m256(v));
        for (int a = 0; a < 3; a++) {
            _mm256_storeu_ps(y + h + 96 + 32 * a, orth_act_apply_m256(acts[a], v));
            _mm256_storeu_ps(y + h + 112 + 32 * a, orth_act_grad_m256(acts[a], v));
        }
    }
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512vl,avx512bw")
#include "kernels/mathf_simd.h"

static void all_m512(const float *x, float *y)
{
    __m512 v = _mm512_loadu_ps(x);
    const orth_act acts[] = {ORTH_ACT_GELU_TANH, ORTH_ACT_GELU_ERF, ORTH_ACT_SILU};
    _mm512_storeu_ps(y, orth_expf_m512(v));
    _mm512_storeu_ps(y + 16, orth_exp2f_m512(_mm512_min_ps(_mm512_set1_ps(128), v))); /* NaN stays */
    _mm512_storeu_ps(y + 32, orth_logf_m512(v));
    _mm512_storeu_ps(y + 48, orth_tanhf_m512(v));
    _mm512_storeu_ps(y + 64, orth_erff_m512(v));
    _mm512_storeu_ps(y + 80, orth_sigmoidf_m512(v));
    for (int a = 0; a < 3; a++) {
        _mm512_storeu_ps(y + 96 + 32 * a, orth_act_apply_m512(acts[a], v));
        _mm512_storeu_ps(y + 112 + 32 * a, orth_act_grad_m512(acts[a], v));
    }
}
#pragma GCC pop_options

static void check_twin(const char *which, void (*all)(const float *, float *))
{
    float x[16], y[16 * ORTH_COUNT(cases)];
    const float specials[] = {0,         -0.0f,     INFINITY,   -INFINITY, NAN,      -NAN,
                              1e-45f,    FLT_MIN,   -FLT_MIN,   FLT_MAX,   -FLT_MAX, 88.7228317f,
                              88.72284f, -87.3365f, -87.33651f, 0.625f};
    for (uint64_t u = 0; u < 0x100000000u; u += 16 * STRIDE) {
        for (int i = 0; i < 16; i++)
            x[i] = u ? orth_f32_of_bits((uint32_t)(u + (uint64_t)i * STRIDE)) : specials[i];
        all(x, y);
        for (int c = 0; c < ORTH_COUNT(cases); c++)
            for (int i = 0; i < 16; i++) {
                float want = cases[c].fn(x[i]), got = y[16 * c + i];
                /* The sign and payload of a NaN are nobody's business. */
                if (orth_bits_of_f32(want) != orth_bits_of_f32(got) && !(isnan(want) && isnan(got)))
                    fail_msg("%s on %s: f(%a) = %a, scalar %a", cases[c].name, which, (double)x[i],
                             (double)got, (double)want);
            }
    }
}

TEST(vector_copies_equal_the_scalar_functions)
{
    orth_isa isa = orth_isa_detect();
    if (isa >= ORTH_ISA_AVX2)
        check_twin("avx2", all_m256);
    if (isa >= ORTH_ISA_AVX512)
        check_twin("avx512", all_m512);
}
#else
TEST(vector_copies_equal_the_scalar_functions)
{
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_within_a_few_units_of_the_last_place),
        cmocka_unit_test(special_values),
        cmocka_unit_test(vector_copies_equal_the_scalar_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
