/* attention_micro_avx2.c -- the inner loops of attention on 8 lanes. */
#include "kernels/mathf_simd.h"

#define VW 8
#define TILE_ROWS 6
#define TILE_VECS 2
#define PAIRS 0

typedef __m256 vf, vu, vm;
#define V_LOAD(p) _mm256_loadu_ps(p)
#define V_STORE(p, v) _mm256_storeu_ps((p), (v))
#define V_SET(x) _mm256_set1_ps(x)
#define V_ADD(a, b) _mm256_add_ps((a), (b))
#define V_SUB(a, b) _mm256_sub_ps((a), (b))
#define V_MUL(a, b) _mm256_mul_ps((a), (b))
#define V_FMA(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define V_MAX(a, b) _mm256_max_ps((a), (b))
#define V_EXP2(v) orth_exp2f_m256(v)
#define V_LOG(v) orth_logf_m256(v)
#define V_SEL(m, yes, no) _mm256_blendv_ps((no), (yes), (m))
#define V_LESS(a, b) _mm256_cmp_ps((a), (b), _CMP_LT_OQ)
#define V_UNITS(p) _mm256_loadu_ps((const float *)(p))
#define V_BCAST(p) _mm256_broadcast_ss((const float *)(p))
#define V_STEP(acc, a, b) _mm256_fmadd_ps((a), (b), (acc))

#define V_DIV(a, b) _mm256_div_ps((a), (b))
#define V_FROM_BF16(p) \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))

#define V_FROM_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define V_TO_F16(p, v) _mm_storeu_si128((__m128i *)(p), _mm256_cvtps_ph((v), _MM_FROUND_TO_NEAREST_INT))

/* orth_bf16_from_f32 of 8 lanes. */
static inline void V_TO_BF16(orth_bf16 *p, __m256 v)
{
    __m256i u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    r = _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    _mm_storeu_si128((__m128i *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
}

static inline __m256 V_RANGE(int first, int lo, int hi)
{
    __m256i lane = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), lane),
                                                   _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane)));
}

/* A tree over 8 vectors, each step of which joins two: lane i of the result is the fold of v[i], halves upon halves. */
#define V_TREE(name, JOIN)                                                                                               \
    static inline __m256 name(const __m256 *v)                                                                           \
    {                                                                                                                    \
        __m256 x[4], y[2];                                                                                               \
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)                                                              \
            x[i] = JOIN(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20), _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));     \
        _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)                                                              \
        {                                                                                                                \
            const __m256d a = _mm256_castps_pd(x[2 * i]), b = _mm256_castps_pd(x[2 * i + 1]);                            \
            y[i] = JOIN(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));         \
        }                                                                                                                \
        return JOIN(_mm256_shuffle_ps(y[0], y[1], 0x88), _mm256_shuffle_ps(y[0], y[1], 0xdd));                           \
    }
V_TREE(V_TOPS, _mm256_max_ps)
V_TREE(V_FOLDS, _mm256_add_ps)
#undef V_TREE

static inline float V_FOLD16(const __m256 *v)
{
    __m256 y = _mm256_add_ps(v[0], v[1]);
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

#include "kernels/cpu/attention_tile.h"

const orth_attn_micro orth_attn_micro_avx2 = ORTH_ATTN_MICRO_TABLE;
