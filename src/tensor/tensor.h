/* tensor.h -- element types and dense views. */
#ifndef ORTH_TENSOR_TENSOR_H
#define ORTH_TENSOR_TENSOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ORTH_MAX_DIMS 4

typedef enum { ORTH_F32 = 0, ORTH_BF16, ORTH_F16, ORTH_F64, ORTH_I32, ORTH_I64, ORTH_U8, ORTH_Q8, ORTH_NUM_DTYPES } orth_dtype;

#define ORTH_Q8_NUM 256 /* numbers in an element of Q8, which is a block of them with a scale (q8.h) */

/* Of an element. */
static inline size_t orth_dtype_bytes(orth_dtype t)
{
    static const uint16_t bytes[ORTH_NUM_DTYPES] = {[ORTH_F32] = 4, [ORTH_BF16] = 2, [ORTH_F16] = 2, [ORTH_F64] = 8, [ORTH_I32] = 4,
                                                    [ORTH_I64] = 8, [ORTH_U8] = 1, [ORTH_Q8] = 4 + ORTH_Q8_NUM};
    return bytes[t];
}
const char *orth_dtype_name(orth_dtype t); /* "fp32", "bf16", ... */

typedef uint16_t orth_bf16; /* the upper half of an fp32 */
typedef uint16_t orth_f16;  /* IEEE 754 binary16: 5 bits of exponent, 10 of fraction */

/* A contiguous row-major view; owns nothing. data == NULL: an optional operand that is absent. */
typedef struct {
    void *data;
    orth_dtype dtype;
    int32_t num_dims;
    int64_t dim[ORTH_MAX_DIMS]; /* unused ones are 1 */
} orth_tensor;

static inline int64_t orth_dims_elems(const int64_t *dim, int num_dims)
{
    int64_t n = 1;
    for (int i = 0; i < num_dims; i++)
        n *= dim[i];
    return n;
}
static inline int64_t orth_tensor_elems(const orth_tensor *t)
{
    return orth_dims_elems(t->dim, t->num_dims);
}
static inline size_t orth_tensor_bytes(const orth_tensor *t)
{
    return (size_t)orth_tensor_elems(t) * orth_dtype_bytes(t->dtype);
}

static inline float orth_f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t orth_bits_of_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float orth_bf16_to_f32(orth_bf16 h)
{
    return orth_f32_of_bits((uint32_t)h << 16);
}

/* Round to nearest even; NaN stays NaN (quiet), denormals are kept. */
static inline orth_bf16 orth_bf16_from_f32(float f)
{
    const uint32_t u = orth_bits_of_f32(f);
    return (orth_bf16)((f != f ? u | 0x400000 : u + 0x7fff + (u >> 16 & 1)) >> 16); /* one comparison: it vectorises */
}

/* Exact: every fp16 number, denormals included, is an fp32 number. A NaN becomes quiet. This and the next function do what the
 * instructions of F16C do. */
static inline float orth_f16_to_f32(orth_f16 h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 1023, u;
    if (exponent == 31) {
        u = sign | 0x7f800000u | (fraction ? 0x400000u | fraction << 13 : 0);
    } else if (exponent == 0) {
        const float f = (float)fraction * 0x1p-24f;
        return sign ? -f : f;
    } else {
        u = sign | (exponent + 112) << 23 | fraction << 13;
    }
    return orth_f32_of_bits(u);
}

/* Round to nearest even; NaN stays NaN (quiet), too large becomes infinite, denormals are kept. */
static inline orth_f16 orth_f16_from_f32(float f)
{
    const uint32_t u = orth_bits_of_f32(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (orth_f16)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return (orth_f16)(sign | 0x7c00u);
    if (a < 0x38800000u) /* below 2^-14 the step is 2^-24: adding 1/2 makes the float's own rounding do it */
        return (orth_f16)(sign | (orth_bits_of_f32(orth_f32_of_bits(a) + 0.5f) - 0x3f000000u));
    return (orth_f16)(sign | (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13);
}

/* One element of a tensor of type `t` (F32, BF16, F16; U8: the integer) as fp32, and back: for plain reference code. */
static inline float orth_load_f32(const void *data, orth_dtype t, int64_t i)
{
    return t == ORTH_BF16  ? orth_bf16_to_f32(((const orth_bf16 *)data)[i])
           : t == ORTH_F16 ? orth_f16_to_f32(((const orth_f16 *)data)[i])
           : t == ORTH_U8  ? (float)((const uint8_t *)data)[i]
                           : ((const float *)data)[i];
}

static inline void orth_store_f32(void *data, orth_dtype t, int64_t i, float v)
{
    if (t == ORTH_BF16)
        ((orth_bf16 *)data)[i] = orth_bf16_from_f32(v);
    else if (t == ORTH_F16)
        ((orth_f16 *)data)[i] = orth_f16_from_f32(v);
    else if (t == ORTH_U8)
        ((uint8_t *)data)[i] = (uint8_t)v;
    else
        ((float *)data)[i] = v;
}

#endif
