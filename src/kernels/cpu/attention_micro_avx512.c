/* attention_micro_avx512.c -- the inner loops of attention on 16 lanes. */
#include "kernels/cpu/attention_vec512.h"

#define PAIRS 0
typedef __m512 vu;
#define V_UNITS(p) _mm512_loadu_ps((const float *)(p))
#define V_BCAST(p) _mm512_set1_ps(*(const float *)(p))
#define V_STEP(acc, a, b) _mm512_fmadd_ps((a), (b), (acc))

#include "kernels/cpu/attention_tile.h"

const orth_attn_micro orth_attn_micro_avx512 = ORTH_ATTN_MICRO_TABLE;
