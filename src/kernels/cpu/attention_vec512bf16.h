/* attention_vec512bf16.h -- pairs of bf16 from 16 lanes of fp32, for attention_tile.h. */
#ifndef ORTH_KERNELS_CPU_ATTENTION_VEC512BF16_H
#define ORTH_KERNELS_CPU_ATTENTION_VEC512BF16_H

#include "kernels/cpu/attention_vec512.h"

#define STORE_BF16(p, v0, v1) _mm512_storeu_si512((p), (__m512i)_mm512_cvtne2ps_pbh((v1), (v0)))

/* As STORE_TWO stores {v0, v1} = {row0[i], row1[i]} at p and p + VW, and the rows beside. */
static inline void STORE_ROWS(orth_bf16 *to0, orth_bf16 *to1, uint32_t *p, const __m512 *row0, const __m512 *row1)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                         36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const __m512i r0 = (__m512i)_mm512_cvtne2ps_pbh(row0[1], row0[0]), r1 = (__m512i)_mm512_cvtne2ps_pbh(row1[1], row1[0]);
    _mm512_storeu_si512(to0, r0);
    _mm512_storeu_si512(to1, r1);
    _mm512_storeu_si512(p, _mm512_permutex2var_epi16(r0, low, r1));
    _mm512_storeu_si512(p + VW, _mm512_permutex2var_epi16(r0, high, r1));
}

static inline void STORE_TWO(uint32_t *p, __m512 v0, __m512 v1)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(v1, v0)));
}

#endif
