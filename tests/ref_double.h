/* ref_double.h -- turns the plain kernels into kernels in double: forced into each file of src/kernels/ref, which is
 * compiled a second time with `float` read as `double`. fp32 tensors then hold doubles, and exp, tanh and the like are
 * libm's. What comes before the definitions keeps its types: attributes, step values, base/.
 *
 * The same text with another arithmetic: what it shares with the plain kernels in fp32 is what it is to prove, that a
 * derivative is the derivative of its function (test_ops_double.c).
 */
#ifndef ORTH_TESTS_REF_DOUBLE_H
#define ORTH_TESTS_REF_DOUBLE_H

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/mathf.h"
#include "kernels/op.h"

static inline double ref_double_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static inline double ref_double_act(orth_act act, double x)
{
    const double c = 0.79788456080286535588; /* sqrt(2/pi) */
    switch (act) {
    case ORTH_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(c * (x + 0.044715 * x * x * x)));
    case ORTH_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case ORTH_ACT_SILU: return x * ref_double_sigmoid(x);
    default: return x;
    }
}

static inline double ref_double_act_grad(orth_act act, double x)
{
    const double c = 0.79788456080286535588, t = tanh(c * (x + 0.044715 * x * x * x)), s = ref_double_sigmoid(x);
    switch (act) {
    case ORTH_ACT_GELU_TANH: return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    case ORTH_ACT_GELU_ERF: return 0.5 * (1 + erf(x * 0.70710678118654752440)) + x * exp(-x * x / 2) * 0.5 * c;
    case ORTH_ACT_SILU: return s * (1 + x * (1 - s));
    default: return 1;
    }
}

static inline double ref_double_load(const void *data, orth_dtype t, int64_t i)
{
    (void)t;
    return ((const double *)data)[i];
}

static inline void ref_double_store(void *data, orth_dtype t, int64_t i, double v)
{
    (void)t;
    ((double *)data)[i] = v;
}

#define float double
#define fmaf fma
#define sqrtf sqrt
#define __builtin_fmaf __builtin_fma
#define __builtin_fabsf __builtin_fabs
#define __builtin_copysignf __builtin_copysign
#define orth_expf exp
#define orth_exp2f exp2
#define orth_logf log
#define orth_act_apply ref_double_act
#define orth_act_grad ref_double_act_grad
#define orth_siluf(x) ref_double_act(ORTH_ACT_SILU, (x))
#define orth_silu_gradf(x) ref_double_act_grad(ORTH_ACT_SILU, (x))
#define orth_load_f32 ref_double_load
#define orth_store_f32 ref_double_store
#define orth_dtype_bytes(t) ((void)(t), sizeof(double))
#define orth_tensor_bytes(t) ((size_t)orth_tensor_elems(t) * sizeof(double))
#undef FLT_MAX
#define FLT_MAX DBL_MAX

#include "kernels/attention.h"
#undef ORTH_LOG2E
#undef ORTH_LN2
#define ORTH_LOG2E 1.44269504088896340736
#define ORTH_LN2 0.69314718055994530942

#endif
