/* attention_vec512bf16.h -- pairs of bf16 from 16 lanes of fp32, for attention_tile.h. */
#ifndef ORTH_KERNELS_CPU_ATTENTION_VEC512BF16_H
#define ORTH_KERNELS_CPU_ATTENTION_VEC512BF16_H

#include "kernels/cpu/attention_vec512.h"

#define STORE_BF16(p, v0, v1) _mm512_storeu_si512((p), (__m512i)_mm512_cvtne2ps_pbh((v1), (v0)))

static inline void STORE_TWO(uint32_t *p, __m512 v0, __m512 v1)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(v1, v0)));
}

#endif
