/* q8.h -- fp32 numbers as blocks of 8-bit integers: an element of type ORTH_Q8 is 256 numbers, one scale and a code for each.
 *
 * A number is code * scale, rounded to fp32. scale is the largest magnitude of the block / 127, code the integer nearest to
 * number / scale, half to even: symmetric, as DeepSpeed's quantised gradients (Wang et al., "ZeRO++", arXiv:2306.10209).
 *
 * Error: at most scale/2, which is 1/254 of the largest magnitude of the block, and 2^-23 of the number. A block with a number that
 * is not finite is NaN as a whole, so that an overflow is seen behind it; scales below 2^-126 have less accuracy. The numbers that
 * the last block of a tensor has too many are 0.
 */
#ifndef ORTH_TENSOR_Q8_H
#define ORTH_TENSOR_Q8_H

#include "tensor/tensor.h"

typedef struct {
    float scale;
    int8_t code[ORTH_Q8_NUM];
} orth_q8;

/* Numbers of an element. */
static inline int64_t orth_dtype_numbers(orth_dtype t)
{
    return t == ORTH_Q8 ? ORTH_Q8_NUM : 1;
}

static inline void orth_q8_to_f32(float *x, const orth_q8 *q, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)q->code[i] * q->scale;
}

static inline float orth_q8_scale(const float *x, int64_t n)
{
    uint32_t most = 0; /* magnitudes are ordered as their bits are, NaN last */
    for (int64_t i = 0; i < n; i++) {
        const uint32_t a = orth_bits_of_f32(x[i]) & 0x7fffffffu;
        most = a > most ? a : most;
    }
    return orth_f32_of_bits(most < 0x7f800000u ? most : 0x7fc00000u) / 127.0f;
}

/* The first n <= ORTH_Q8_NUM numbers of a block. */
static inline void orth_q8_from_f32(orth_q8 *q, const float *x, int64_t n)
{
    const float scale = orth_q8_scale(x, n), halves_to_even = 0x1.8p23f;
    q->scale = scale;
    memset(q->code, 0, sizeof q->code);
    if (!(scale > 0))
        return;
    for (int64_t i = 0; i < n; i++) {
        const float y = (x[i] / scale + halves_to_even) - halves_to_even;
        q->code[i] = (int8_t)(int32_t)(y > 127 ? 127 : y < -127 ? -127 : y); /* beyond 127 where scale lost bits */
    }
}

#endif
