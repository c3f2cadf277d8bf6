/* gemm_avx512.c -- matrix product kernels for AVX-512 without bf16 instructions, and the epilogue that
 * all 512-bit levels share. bf16 operands are widened while they are packed. */
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/gemm_pack_avx512.h"
#include "kernels/mathf_simd.h"

#define GEMM_DOT(acc, a, b) _mm512_fmadd_ps(a, b, acc)
#define GEMM_TILE tile_f32
#include "kernels/cpu/gemm_tile_avx512.h"

PACK_FN(pack_a_f32, PACK_F32, MR, 1)
PACK_FN(pack_b_f32, PACK_F32, NR, 1)
PACK_FN(pack_a_wide, PACK_WIDE, MR, 1)
PACK_FN(pack_b_wide, PACK_WIDE, NR, 1)

static inline __m512 load_c(const void *c, orth_dtype type, int64_t at, __mmask16 mask)
{
    if (type == ORTH_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)c + at);
    return _mm512_castsi512_ps(pack_widen(_mm256_maskz_loadu_epi16(mask, (const orth_bf16 *)c + at)));
}

/* As orth_bf16_from_f32; vcvtneps2bf16 would turn denormals into zero. */
static inline __m256i round_bf16(__m512 v)
{
    __m512i u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, _mm512_srli_epi32(rounded, 16), quiet));
}

static inline void store_c(void *c, orth_dtype type, int64_t at, __mmask16 mask, __m512 v)
{
    if (type == ORTH_F32)
        _mm512_mask_storeu_ps((float *)c + at, mask, v);
    else
        _mm256_mask_storeu_epi16((orth_bf16 *)c + at, mask, round_bf16(v));
}

void orth_gemm_finish_avx512(const orth_gemm_desc *g, const float *tile, int nr, int64_t m0, int64_t n0, int m,
                             int n)
{
    for (int r = 0; r < m; r++) {
        for (int j = 0; j < n; j += 16) {
            const __mmask16 mask = (__mmask16)pack_mask(n - j, 16);
            const int64_t at = (m0 + r) * g->c_row + n0 + j;
            __m512 v = _mm512_maskz_loadu_ps(mask, tile + r * nr + j);
            if (g->bias)
                v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, g->bias + n0 + j));
            if (g->pre)
                store_c(g->pre, g->c_type, at, mask, v);
            if (g->act_grad_of)
                v = _mm512_mul_ps(v, orth_act_grad_m512(g->act, load_c(g->act_grad_of, g->c_type, at, mask)));
            else if (g->act != ORTH_ACT_NONE)
                v = orth_act_apply_m512(g->act, v);
            for (int i = 0; i < g->num_addends; i++)
                v = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, g->addend[i] + at), v);
            store_c(g->c, g->c_type, at, mask, v);
        }
    }
}

static void finish(const orth_gemm_desc *g, const float *tile, int64_t m0, int64_t n0, int m, int n)
{
    orth_gemm_finish_avx512(g, tile, NR, m0, n0, m, n);
}

const orth_gemm_kernels orth_gemm_avx512_f32 = {
    .mr = MR, .nr = NR, .unit = 1, .align = 1, .kc = 192, .pack_a = pack_a_f32, .pack_b = pack_b_f32,
    .tile = tile_f32, .finish = finish,
};
const orth_gemm_kernels orth_gemm_avx512_bf16 = {
    .mr = MR, .nr = NR, .unit = 1, .align = 1, .kc = 192, .pack_a = pack_a_wide, .pack_b = pack_b_wide,
    .tile = tile_f32, .finish = finish,
};
