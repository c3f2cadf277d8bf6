/* mathf_simd.h -- mathf.h on vectors, for files compiled for AVX2 or AVX-512.
 *
 * orth_expf_m256(__m256), orth_act_apply_m256(act, x), ... where __AVX2__ and __FMA__ are on;
 * orth_expf_m512(__m512), ... where __AVX512F__ and __AVX512DQ__ are. Same bits as the scalar ones.
 * A file that compiles parts of itself for each of them includes this once in each part.
 */
#include "kernels/mathf.h"

#if defined(__AVX2__) && defined(__FMA__) && !defined(ORTH_MATHF_M256)
#define ORTH_MATHF_M256
#include <immintrin.h>

#define MF(name) name##_m256
#define M_V __m256
#define M_I __m256i
#define M_M __m256
#define M_SET(c) _mm256_set1_ps(c)
#define M_ISET(c) _mm256_set1_epi32(c)
#define M_ADD(a, b) _mm256_add_ps((a), (b))
#define M_SUB(a, b) _mm256_sub_ps((a), (b))
#define M_MUL(a, b) _mm256_mul_ps((a), (b))
#define M_DIV(a, b) _mm256_div_ps((a), (b))
#define M_FMA(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define M_LT(a, b) _mm256_cmp_ps((a), (b), _CMP_LT_OQ)
#define M_LE(a, b) _mm256_cmp_ps((a), (b), _CMP_LE_OQ)
#define M_SEL(m, a, b) _mm256_blendv_ps((b), (a), (m))
#define M_BITS(v) _mm256_castps_si256(v)
#define M_FLOAT(i) _mm256_castsi256_ps(i)
#define M_TOF(i) _mm256_cvtepi32_ps(i)
#define M_IADD(a, b) _mm256_add_epi32((a), (b))
#define M_ISUB(a, b) _mm256_sub_epi32((a), (b))
#define M_IAND(a, b) _mm256_and_si256((a), (b))
#define M_IOR(a, b) _mm256_or_si256((a), (b))
#define M_SHL(i, n) _mm256_slli_epi32((i), (n))
#define M_SAR(i, n) _mm256_srai_epi32((i), (n))
#include "kernels/mathf_body.h"
#endif

#if defined(__AVX512F__) && defined(__AVX512DQ__) && !defined(ORTH_MATHF_M512)
#define ORTH_MATHF_M512
#include <immintrin.h>

#define MF(name) name##_m512
#define M_V __m512
#define M_I __m512i
#define M_M __mmask16
#define M_SET(c) _mm512_set1_ps(c)
#define M_ISET(c) _mm512_set1_epi32(c)
#define M_ADD(a, b) _mm512_add_ps((a), (b))
#define M_SUB(a, b) _mm512_sub_ps((a), (b))
#define M_MUL(a, b) _mm512_mul_ps((a), (b))
#define M_DIV(a, b) _mm512_div_ps((a), (b))
#define M_FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define M_LT(a, b) _mm512_cmp_ps_mask((a), (b), _CMP_LT_OQ)
#define M_LE(a, b) _mm512_cmp_ps_mask((a), (b), _CMP_LE_OQ)
#define M_SEL(m, a, b) _mm512_mask_blend_ps((m), (b), (a))
#define M_BITS(v) _mm512_castps_si512(v)
#define M_FLOAT(i) _mm512_castsi512_ps(i)
#define M_TOF(i) _mm512_cvtepi32_ps(i)
#define M_IADD(a, b) _mm512_add_epi32((a), (b))
#define M_ISUB(a, b) _mm512_sub_epi32((a), (b))
#define M_IAND(a, b) _mm512_and_si512((a), (b))
#define M_IOR(a, b) _mm512_or_si512((a), (b))
#define M_SHL(i, n) _mm512_slli_epi32((i), (n))
#define M_SAR(i, n) _mm512_srai_epi32((i), (n))
#define M_MIN(a, b) _mm512_min_ps((a), (b))
#define M_NOT_LT(a, b) _mm512_cmp_ps_mask((a), (b), _CMP_NLT_UQ)
#define M_SCALE(m, p, n) _mm512_maskz_scalef_ps((m), (p), (n))
#include "kernels/mathf_body.h"
#endif
