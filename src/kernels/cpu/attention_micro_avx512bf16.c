/* attention_micro_avx512bf16.c -- the inner loops of attention on pairs of bf16, twice the rate of fp32. */
#include "kernels/cpu/attention_vec512.h"

#define PAIRS 1
typedef __m512bh vu;
#define V_UNITS(p) ((__m512bh)_mm512_loadu_si512(p))
#define V_BCAST(p) ((__m512bh)_mm512_set1_epi32(*(const int32_t *)(p)))
#define V_STEP(acc, a, b) _mm512_dpbf16_ps((acc), (a), (b))

#define STORE_BF16(p, v0, v1) _mm512_storeu_si512((p), (__m512i)_mm512_cvtne2ps_pbh((v1), (v0)))

static inline void STORE_TWO(uint32_t *p, __m512 v0, __m512 v1)
{
    __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v0));
    __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v1)), 16);
    _mm512_storeu_si512(p, _mm512_or_si512(low, high));
}

#include "kernels/cpu/attention_tile.h"

const orth_attn_micro orth_attn_micro_avx512bf16 = ORTH_ATTN_MICRO_TABLE;
