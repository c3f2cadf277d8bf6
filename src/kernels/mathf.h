/* mathf.h -- elementary functions of fp32 whose bits depend on nothing but the argument.
 *
 * No libm (C libraries differ) and no instruction that processors round differently: only exactly
 * rounded operations in a fixed order. mathf_simd.h has the same functions on __m256 and __m512,
 * bit for bit equal. Errors against the true value, in ulp: exp, exp2, log, erf 1, tanh 1.3, sigmoid 2; the
 * activations 6 (of |x|/16 where that is larger: left of zero they cancel), their derivatives 6 (of 1/8).
 *
 *   orth_expf orth_exp2f orth_logf orth_tanhf orth_erff orth_sigmoidf
 *   orth_act_apply(act, x), orth_act_grad(act, x)       act of kernels/op.h
 */
#ifndef ORTH_KERNELS_MATHF_H
#define ORTH_KERNELS_MATHF_H

#include <stdint.h>
#include <string.h>

#include "kernels/op.h"

#define MF(name) name
#define M_V float
#define M_I int32_t
#define M_M int
#define M_SET(c) (c)
#define M_ISET(c) (c)
#define M_ADD(a, b) ((a) + (b))
#define M_SUB(a, b) ((a) - (b))
#define M_MUL(a, b) ((a) * (b))
#define M_DIV(a, b) ((a) / (b))
#define M_FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#define M_LT(a, b) ((a) < (b))
#define M_LE(a, b) ((a) <= (b))
#define M_SEL(m, a, b) ((m) ? (a) : (b))
#define M_BITS(v) ((int32_t)orth_bits_of_f32(v))
#define M_FLOAT(i) orth_f32_of_bits((uint32_t)(i))
#define M_TOF(i) ((float)(i))
#define M_IADD(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define M_ISUB(a, b) ((int32_t)((uint32_t)(a) - (uint32_t)(b)))
#define M_IAND(a, b) ((a) & (b))
#define M_IOR(a, b) ((a) | (b))
#define M_SHL(i, n) ((int32_t)((uint32_t)(i) << (n)))
#define M_SAR(i, n) ((i) >> (n))
#include "kernels/mathf_body.h"

#endif
