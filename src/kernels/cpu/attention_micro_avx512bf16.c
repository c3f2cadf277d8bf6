/* attention_micro_avx512bf16.c -- the inner loops of attention on pairs of bf16: on Zen 4 and 5 twice the rate of fp32. */
#include "kernels/cpu/attention_vec512bf16.h"

#define PAIRS 1
typedef __m512bh vu;
#define V_UNITS(p) ((__m512bh)_mm512_loadu_si512(p))
#define V_BCAST(p) ((__m512bh)_mm512_set1_epi32(*(const int32_t *)(p)))
#define V_STEP(acc, a, b) _mm512_dpbf16_ps((acc), (a), (b))

#include "kernels/cpu/attention_tile.h"

const orth_attn_micro orth_attn_micro_avx512bf16 = ORTH_ATTN_MICRO_TABLE;
