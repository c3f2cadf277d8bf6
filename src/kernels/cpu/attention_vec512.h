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
#define V_EXP2(v) orth_exp2f_m512(v)
#define V_LOG(v) orth_logf_m512(v)
#define V_SEL(m, yes, no) _mm512_mask_blend_ps((m), (no), (yes))
#define V_LESS(a, b) _mm512_cmp_ps_mask((a), (b), _CMP_LT_OQ)

#define V_DIV(a, b) _mm512_div_ps((a), (b))
#define V_FROM_BF16(p) \
    _mm512_castsi512_ps( \
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))

#define V_FROM_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define V_TO_F16(p, v) \
    _mm256_storeu_si256((__m256i *)(p), _mm512_cvtps_ph((v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))

/* orth_bf16_from_f32 of 16 lanes. */
static inline void V_TO_BF16(orth_bf16 *p, __m512 v)
{
    __m512i u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(r));
}

static inline __mmask16 V_RANGE(int first, int lo, int hi)
{
    __m512i lane = _mm512_add_epi32(_mm512_set1_epi32(first),
                                    _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(lo)), lane,
                                        _mm512_set1_epi32(hi));
}

/* A tree over 16 vectors, each step of which joins two: lane i of the result is the fold of v[i], halves upon halves. */
#define V_TREE(name, JOIN)                                                                                       \
    static inline __m512 name(const __m512 *v)                                                                   \
    {                                                                                                            \
        __m512 x[8], y[4], z[2];                                                                                 \
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)                                                      \
        {                                                                                                        \
            const __m512 a = v[i / 4 * 8 + i % 4], b = v[i / 4 * 8 + i % 4 + 4];                                 \
            x[i] = JOIN(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));                     \
        }                                                                                                        \
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)                                                      \
            y[i] = JOIN(_mm512_shuffle_f32x4(x[i], x[i + 4], 0x88), _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd)); \
        _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)                                                      \
        {                                                                                                        \
            const __m512d a = _mm512_castps_pd(y[2 * i]), b = _mm512_castps_pd(y[2 * i + 1]);                    \
            z[i] = JOIN(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b))); \
        }                                                                                                        \
        return JOIN(_mm512_shuffle_ps(z[0], z[1], 0x88), _mm512_shuffle_ps(z[0], z[1], 0xdd));                   \
    }
V_TREE(V_TOPS, _mm512_max_ps)
V_TREE(V_FOLDS, _mm512_add_ps)
#undef V_TREE

static inline float V_FOLD16(const __m512 *v)
{
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(*v), _mm512_extractf32x8_ps(*v, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

/* Four steps of a transpose, each exchanging halves of half the size. */
static inline void transpose16(__m512i *x)
{
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* x[4g + c], lane l: columns 4l + c of rows 4g .. 4g+3 */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xdd);
        t[12 + c] = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xdd);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        x[c] = _mm512_shuffle_i32x4(t[c], t[4 + c], 0x88);
        x[4 + c] = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0x88);
        x[8 + c] = _mm512_shuffle_i32x4(t[c], t[4 + c], 0xdd);
        x[12 + c] = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0xdd);
    }
}

/* The packed form `cols` from rows of num_units units: dst[i][r] = row[r][i], zero for absent rows. */
static inline void transpose_units(uint32_t *dst, const void *const *row, int num_rows, int num_units)
{
    for (int r0 = 0; r0 < ORTH_ATTN_BLOCK; r0 += 16)
        for (int i0 = 0; i0 < num_units; i0 += 16) {
            __m512i x[16];
            const int n = ORTH_MIN(16, num_units - i0);
            const __mmask16 some = (__mmask16)((1u << n) - 1);
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++)
                x[r] = r0 + r < num_rows
                           ? _mm512_maskz_loadu_epi32(some, (const uint32_t *)row[r0 + r] + i0)
                           : _mm512_setzero_si512();
            transpose16(x);
            for (int i = 0; i < n; i++)
                _mm512_storeu_si512(dst + (int64_t)(i0 + i) * ORTH_ATTN_BLOCK + r0, x[i]);
        }
}
#define TRANSPOSE_UNITS transpose_units

#endif
