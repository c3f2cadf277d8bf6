/* float8.h -- numbers of 8 and 4 bits, as bytes: E4M3 and E5M2, E2M1 (in the lower four bits), and E8M0, which are powers of 2.
 *
 * Sources: Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433; OCP Microscaling Formats (MX) 1.0.
 *
 *              sign exponent fraction  bias  largest  smallest   not a number
 *   E4M3        1      4        3       7      448     2^-9      0x7f; no infinity
 *   E5M2        1      5        2      15    57344     2^-16     0x7d..0x7f; infinity 0x7c
 *   E2M1        1      2        1       1        6     1/2       none; no infinity
 *   E8M0        0      8        0     127    2^127     2^-127    0xff; no 0
 *
 * Conversions round to nearest even and keep denormals. orth_float8_from_f32 makes of what is too large no number (E4M3), infinity (E5M2),
 * the largest (E2M1), as ml_dtypes does, and PyTorch for E5M2. orth_float8_saturate makes the largest of all that is too large,
 * infinities included, as PyTorch's float8_e4m3fn does: that is how quantisers convert.
 */
#ifndef ORTH_TENSOR_FLOAT8_H
#define ORTH_TENSOR_FLOAT8_H

#include "tensor/tensor.h"

typedef enum { ORTH_E4M3 = 0, ORTH_E5M2, ORTH_E2M1, ORTH_NUM_FLOAT8 } orth_float8;

typedef struct {
    int fraction, bias, sign_shift; /* bits; 24 minus the place of the sign */
    uint32_t largest;               /* code, */
    float max;                      /* and value */
    uint32_t over, nan;             /* codes of what is too large, and of NaN */
} orth_float8_form;

static inline orth_float8_form orth_float8_form_of(orth_float8 t)
{
    return t == ORTH_E4M3   ? (orth_float8_form){3, 7, 24, 0x7e, 448.0f, 0x7f, 0x7f}
           : t == ORTH_E5M2 ? (orth_float8_form){2, 15, 24, 0x7b, 57344.0f, 0x7c, 0x7f}
                            : (orth_float8_form){1, 1, 28, 0x7, 6.0f, 0x7, 0x7};
}

/* The magnitude `a` (bits of an fp32) as a code, rounded; beyond the largest code if it is too large, but below 2^24. */
static inline uint32_t orth_float8_magnitude(uint32_t a, const orth_float8_form *f)
{
    const int drop = 23 - f->fraction;
    /* Denormals are multiples of a power of 2: adding 2^23 of these makes the float's own rounding do it. */
    const uint32_t magic = (uint32_t)(127 + 1 - f->bias - f->fraction + 23) << 23, least = (uint32_t)(127 + 1 - f->bias) << 23;
    if (a < least)
        return orth_bits_of_f32(orth_f32_of_bits(a) + orth_f32_of_bits(magic)) - magic;
    return (a - ((uint32_t)(127 - f->bias) << 23) + ((1u << (drop - 1)) - 1) + (a >> drop & 1)) >> drop;
}

static inline uint8_t orth_float8_from_f32(float x, orth_float8 t)
{
    const orth_float8_form f = orth_float8_form_of(t);
    const uint32_t u = orth_bits_of_f32(x), a = u & 0x7fffffffu, sign = u >> 31 << (31 - f.sign_shift);
    const uint32_t code = a < 0x7f800000u ? orth_float8_magnitude(a, &f) : f.over;
    return (uint8_t)(sign | (a > 0x7f800000u ? f.nan : code > f.largest ? f.over : code));
}

static inline uint8_t orth_float8_saturate(float x, orth_float8 t)
{
    const orth_float8_form f = orth_float8_form_of(t);
    return x > f.max ? (uint8_t)f.largest : x < -f.max ? (uint8_t)(f.largest | 1u << (31 - f.sign_shift)) : orth_float8_from_f32(x, t);
}

/* Exact. */
static inline float orth_float8_to_f32(uint8_t code, orth_float8 t)
{
    const orth_float8_form f = orth_float8_form_of(t);
    const uint32_t sign = (uint32_t)code >> (31 - f.sign_shift) << 31, a = code & ((1u << (31 - f.sign_shift)) - 1);
    if (t != ORTH_E2M1 && a > f.largest)
        return orth_f32_of_bits(sign | 0x7f800000u | (t == ORTH_E5M2 && a == f.over ? 0 : 0x400000u));
    const uint32_t exponent = a >> f.fraction, fraction = a & ((1u << f.fraction) - 1);
    if (exponent > 0)
        return orth_f32_of_bits(sign | (exponent + 127 - (uint32_t)f.bias) << 23 | fraction << (23 - f.fraction));
    const float unit = orth_f32_of_bits((uint32_t)(128 - f.bias - f.fraction) << 23);
    return orth_f32_of_bits(sign | orth_bits_of_f32((float)fraction * unit));
}

/* The smallest E8M0 that is not below x >= 0. Infinite: 2^127; NaN: 0xff. */
static inline uint8_t orth_e8m0_up(float x)
{
    const uint32_t u = orth_bits_of_f32(x), exponent = u >> 23, fraction = u & 0x7fffffu;
    if (exponent == 255)
        return fraction ? 255 : 254;
    return (uint8_t)(exponent + (exponent == 0 ? fraction > 0x400000u : exponent < 254 && fraction > 0));
}

static inline float orth_e8m0_to_f32(uint8_t e)
{
    return orth_f32_of_bits(e == 255 ? 0x7fc00000u : e ? (uint32_t)e << 23 : 0x400000u);
}

/* 1 / value, which is one, too, or 2^-127. */
static inline float orth_e8m0_reciprocal(uint8_t e)
{
    return orth_e8m0_to_f32((uint8_t)(e == 255 ? 255 : 254 - e));
}

#endif
