/* bf16x3_avx512.h -- fp32 as a sum of three bf16, by lanes: orth_bf16_pieces of gemm_chain.h. */
#ifndef ORTH_KERNELS_CPU_BF16X3_AVX512_H
#define ORTH_KERNELS_CPU_BF16X3_AVX512_H

#include <immintrin.h>

/* Lanes of a half next to those of the other. */
static inline __attribute__((always_inline)) __m512i bf16x3_weave(__m512i halves)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                           20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, halves);
}

/* Piece p of the lanes of `low`, then of `high`, in row[p]; in pair[p] units {low[i], high[i]} of them. What is not used
 * costs nothing.
 * What is taken off to leave the next piece is shifted and masked out of the units: fewer shuffles than widening. */
static inline __attribute__((always_inline)) void bf16x3_split(__m512 low, __m512 high, __m512i row[3], __m512i pair[3])
{
    for (int p = 0; p < 3; p++) {
        row[p] = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        pair[p] = bf16x3_weave(row[p]);
        low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(pair[p], 16)));
        high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_and_si512(pair[p], _mm512_set1_epi32((int)0xffff0000))));
    }
}

#endif
