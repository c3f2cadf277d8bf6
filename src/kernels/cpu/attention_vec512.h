/* attention_vec512.h -- what attention_tile.h wants, on 16 lanes. */
#ifndef ORTH_KERNELS_CPU_ATTENTION_VEC512_H
#define ORTH_KERNELS_CPU_ATTENTION_VEC512_H

#include "kernels/mathf_simd.h"

#define VW 16
#define TILE_ROWS 6
#define TILE_VECS 4

typedef __m512 vf;
typedef __mmask16 vm;
#define V_LOAD(p) _mm512_loadu_ps(p)
#define V_STORE(p, v) _mm512_storeu_ps((p), (v))
#define V_SET(x) _mm512_set1_ps(x)
#define V_ADD(a, b) _mm512_add_ps((a), (b))
#define V_SUB(a, b) _mm512_sub_ps((a), (b))
#define V_MUL(a, b) _mm512_mul_ps((a), (b))
#define V_FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define V_MAX(a, b) _mm512_max_ps((a), (b))
#define V_EXP(v) orth_expf_m512(v)
#define V_SEL(m, yes, no) _mm512_mask_blend_ps((m), (no), (yes))

static inline __mmask16 V_RANGE(int first, int lo, int hi)
{
    __m512i lane = _mm512_add_epi32(_mm512_set1_epi32(first), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                                                               11, 12, 13, 14, 15));
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(lo)), lane,
                                        _mm512_set1_epi32(hi));
}

static inline float V_TOP(__m512 v)
{
    __m256 y = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

static inline float V_FOLD16(const __m512 *v)
{
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(*v), _mm512_extractf32x8_ps(*v, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

#endif
