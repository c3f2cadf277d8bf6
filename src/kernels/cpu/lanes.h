/* lanes.h -- sixteen floats as one value, for kernels that are compiled once per instruction set.
 *
 * One __m512, two __m256 or a plain array, by what the including file is compiled for. Each operation
 * is exactly rounded per lane, so the three give the same bits. Loads and stores take k in [1, 16]
 * elements; lanes beyond are 0 on a load and not touched by a store. `type` (F32, BF16, F16) is a
 * constant where it is called, so the choice costs nothing.
 */
#ifndef ORTH_KERNELS_CPU_LANES_H
#define ORTH_KERNELS_CPU_LANES_H

#include <math.h>

#include "kernels/mathf_simd.h"
#include "kernels/sums.h"

#define LANES_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__)
#include "kernels/cpu/lanes_512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/lanes_256.h"
#else
#include "kernels/cpu/lanes_plain.h"
#endif

LANES_INLINE v16 v_ld(const void *p, orth_dtype type, int64_t i, int k)
{
    return type == ORTH_BF16  ? v_ld_bf16((const orth_bf16 *)p + i, k)
           : type == ORTH_F16 ? v_ld_f16((const orth_f16 *)p + i, k)
                              : v_ld_f32((const float *)p + i, k);
}

LANES_INLINE void v_st(void *p, orth_dtype type, int64_t i, v16 v, int k)
{
    if (type == ORTH_BF16)
        v_st_bf16((orth_bf16 *)p + i, v, k);
    else if (type == ORTH_F16)
        v_st_f16((orth_f16 *)p + i, v, k);
    else
        v_st_f32((float *)p + i, v, k);
}

/* The value that v has once stored and loaded again. */
LANES_INLINE v16 v_round(v16 v, orth_dtype type)
{
    return type == ORTH_BF16 ? v_round_bf16(v) : type == ORTH_F16 ? v_round_f16(v) : v;
}

/* Thirty-two values, from element 0 of p on, as sixteen of even and sixteen of odd index, and back. */
LANES_INLINE void v_ld_pairs(const void *p, orth_dtype type, v16 *even, v16 *odd)
{
    if (type == ORTH_BF16) {
        v_ld_pairs_bf16(p, even, odd);
        return;
    }
    float wide[32];
    if (type == ORTH_F16)
        for (int i = 0; i < 32; i += 16)
            v_st_f32(wide + i, v_ld_f16((const orth_f16 *)p + i, 16), 16);
    v_ld_pairs_f32(type == ORTH_F16 ? wide : p, even, odd);
}

LANES_INLINE void v_st_pairs(void *p, orth_dtype type, v16 even, v16 odd)
{
    if (type == ORTH_BF16) {
        v_st_pairs_bf16(p, even, odd);
        return;
    }
    float wide[32];
    v_st_pairs_f32(type == ORTH_F16 ? wide : p, even, odd);
    if (type == ORTH_F16)
        for (int i = 0; i < 32; i += 16)
            v_st_f16((orth_f16 *)p + i, v_ld_f32(wide + i, 16), 16);
}

/* fn(..., type) with a type that the compiler knows. */
#define LANES_TYPED(type, fn, ...)           \
    do {                                     \
        if ((type) == ORTH_BF16)             \
            fn(__VA_ARGS__, ORTH_BF16);      \
        else if ((type) == ORTH_F16)         \
            fn(__VA_ARGS__, ORTH_F16);       \
        else                                 \
            fn(__VA_ARGS__, ORTH_F32);       \
    } while (0)

/* for (i, k) over n elements in steps of 16, the last k shorter. The constant in the full steps lets
 * the compiler drop the partial loads and stores there. */
#define LANES_FOR(n, BODY)                                          \
    do {                                                            \
        int64_t i = 0;                                              \
        for (; i + 16 <= (n); i += 16)                              \
            BODY(16);                                               \
        if (i < (n))                                                \
            BODY((int)((n) - i));                                   \
    } while (0)

#endif
