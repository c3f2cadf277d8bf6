/* attention_micro_avx512bf16.c -- the inner loops of attention on pairs of bf16: on Zen 4 and 5 twice the rate of fp32. */
#include "kernels/cpu/attention_vec512.h"

#define PAIRS 1
typedef __m512bh vu;
#define V_UNITS(p) ((__m512bh)_mm512_loadu_si512(p))
#define V_BCAST(p) ((__m512bh)_mm512_set1_epi32(*(const int32_t *)(p)))
#define V_STEP(acc, a, b) _mm512_dpbf16_ps((acc), (a), (b))

#define STORE_BF16(p, v0, v1) _mm512_storeu_si512((p), (__m512i)_mm512_cvtne2ps_pbh((v1), (v0)))

static inline void STORE_TWO(uint32_t *p, __m512 v0, __m512 v1)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(v1, v0)));
}

#include "kernels/cpu/attention_tile.h"

const orth_attn_micro orth_attn_micro_avx512bf16 = ORTH_ATTN_MICRO_TABLE;
