/* gemm_finish_avx512.h -- the epilogue of a tile on 512-bit registers.
 *
 * Whole vectors go without masks: masked stores of 16-bit elements are slow on some processors. Where the includer
 * defines FINISH_STREAMS as 1, c_later is heeded: lines written past the caches need not be read first. Its kernels say
 * so (.streams).
 */
#ifndef ORTH_KERNELS_CPU_GEMM_FINISH_AVX512_H
#define ORTH_KERNELS_CPU_GEMM_FINISH_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/gemm_kernels.h"
#include "kernels/mathf_simd.h"

#if !defined(FINISH_STREAMS)
#define FINISH_STREAMS 0
#endif
#define FINISH_INLINE static inline __attribute__((always_inline))

FINISH_INLINE __m512 finish_load_f32(bool whole, const float *p, __mmask16 mask)
{
    return whole ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(mask, p);
}

FINISH_INLINE __m512 finish_widen(orth_dtype type, __m256i h)
{
    if (type == ORTH_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

FINISH_INLINE __m512 finish_load(bool whole, const void *c, orth_dtype type, int64_t at, __mmask16 mask)
{
    if (type == ORTH_F32)
        return finish_load_f32(whole, (const float *)c + at, mask);
    const orth_bf16 *p = (const orth_bf16 *)c + at;
    return finish_widen(type, whole ? _mm256_loadu_si256((const __m256i *)p) : _mm256_maskz_loadu_epi16(mask, p));
}

/* As orth_bf16_from_f32 or orth_f16_from_f32. */
FINISH_INLINE __m256i finish_round(orth_dtype type, __m512 v)
{
    if (type == ORTH_F16)
        return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#if defined(__AVX512BF16__)
    /* The instruction rounds likewise, but turns denormals into zero. */
    if (__builtin_expect(_mm512_fpclass_ps_mask(v, 0x20) == 0, 1))
        return (__m256i)_mm512_cvtneps_pbh(v);
#endif
    __m512i u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, _mm512_srli_epi32(rounded, 16), quiet));
}

FINISH_INLINE void finish_store(bool whole, void *c, orth_dtype type, int64_t at, __mmask16 mask, __m512 v)
{
    if (type == ORTH_F32) {
        if (whole)
            _mm512_storeu_ps((float *)c + at, v);
        else
            _mm512_mask_storeu_ps((float *)c + at, mask, v);
    } else {
        if (whole)
            _mm256_storeu_si256((__m256i *)(void *)((orth_bf16 *)c + at), finish_round(type, v));
        else
            _mm256_mask_storeu_epi16((orth_bf16 *)c + at, mask, finish_round(type, v));
    }
}

/* `num` vectors, 1 or 2 whole ones side by side. Two of 16 bits are one register in memory. */
FINISH_INLINE void finish_load_vectors(__m512 v[2], const int num, bool whole, const void *c, orth_dtype type, int64_t at,
                                       __mmask16 mask)
{
    if (num == 2 && type != ORTH_F32) {
        const __m512i both = _mm512_loadu_si512((const orth_bf16 *)c + at);
        v[0] = finish_widen(type, _mm512_castsi512_si256(both));
        v[1] = finish_widen(type, _mm512_extracti64x4_epi64(both, 1));
        return;
    }
#pragma GCC unroll 2
    for (int i = 0; i < num; i++)
        v[i] = finish_load(whole, c, type, at + 16 * i, mask);
}

FINISH_INLINE void finish_store_vectors(const __m512 v[2], const int num, bool whole, void *c, orth_dtype type, int64_t at,
                                        __mmask16 mask)
{
    if (num == 2 && type != ORTH_F32) {
        const __m512i low = _mm512_castsi256_si512(finish_round(type, v[0]));
        _mm512_storeu_si512((orth_bf16 *)c + at, _mm512_inserti64x4(low, finish_round(type, v[1]), 1));
        return;
    }
#pragma GCC unroll 2
    for (int i = 0; i < num; i++)
        finish_store(whole, c, type, at + 16 * i, mask, v[i]);
}

/* The epilogue of `num` vectors, whose chains of arithmetic run side by side, from element `at` of C, column n: whole
 * ones, or the elements of one in mask. act: that of g. */
FINISH_INLINE void finish_vectors(const orth_gemm_desc *g, orth_act act, const int num, bool whole, const float *tile,
                                  int64_t at, int64_t n, __mmask16 mask)
{
    __m512 v[2], u[2];
#pragma GCC unroll 2
    for (int i = 0; i < num; i++)
        v[i] = finish_load_f32(whole, tile + 16 * i, mask);
    if (g->bias)
#pragma GCC unroll 2
        for (int i = 0; i < num; i++)
            v[i] = _mm512_add_ps(v[i], finish_load_f32(whole, g->bias + n + 16 * i, mask));
    if (g->pre)
        finish_store_vectors(v, num, whole, g->pre, g->c_type, at, mask);
    if (g->act_grad_of) {
        finish_load_vectors(u, num, whole, g->act_grad_of, g->c_type, at, mask);
#pragma GCC unroll 2
        for (int i = 0; i < num; i++)
            v[i] = _mm512_mul_ps(v[i], orth_act_grad_m512(act, u[i]));
    } else {
#pragma GCC unroll 2
        for (int i = 0; i < num; i++)
            v[i] = orth_act_apply_m512(act, v[i]);
    }
    for (int k = 0; k < g->num_addends; k++)
#pragma GCC unroll 2
        for (int i = 0; i < num; i++)
            v[i] = _mm512_add_ps(finish_load_f32(whole, g->addend[k] + at + 16 * i, mask), v[i]);
    if (g->c_type == ORTH_F32)
#pragma GCC unroll 2
        for (int i = 0; i < num; i++)
            v[i] = _mm512_add_ps(v[i], _mm512_setzero_ps());
    finish_store_vectors(v, num, whole, g->c, g->c_type, at, mask);
}

/* Past the caches, where that is wanted and the tile is whole lines. The counters that tell other threads of it are
 * locked instructions, which wait for it. */
FINISH_INLINE bool finish_stream(const orth_gemm_desc *g, const float *tile, int64_t stride, int64_t m0, int64_t n0,
                                 int m, int n)
{
    float *c = (float *)g->c + m0 * g->c_row + n0;
    if (!FINISH_STREAMS || !orth_gemm_past_caches(g) || (uintptr_t)c % 64 || n % 16)
        return false;
    for (int r = 0; r < m; r++, tile += stride, c += g->c_row)
        for (int j = 0; j < n; j += 16)
            _mm512_stream_ps(c + j, _mm512_add_ps(_mm512_loadu_ps(tile + j), _mm512_setzero_ps()));
    return true;
}

/* act: that of g, which callers give as a constant where it matters. */
FINISH_INLINE void finish_rows(const orth_gemm_desc *g, orth_act act, const float *tile, int64_t stride, int64_t m0,
                               int64_t n0, int m, int n)
{
    const int whole = n & ~15, pairs = g->c_type != ORTH_F32 ? n & ~31 : 0;
    for (int r = 0; r < m; r++, tile += stride) {
        const int64_t at = (m0 + r) * g->c_row + n0;
        int j = 0;
        for (; j < pairs; j += 32)
            finish_vectors(g, act, 2, true, tile + j, at + j, n0 + j, 0);
        for (; j < whole; j += 16)
            finish_vectors(g, act, 1, true, tile + j, at + j, n0 + j, 0);
        if (j < n)
            finish_vectors(g, act, 1, false, tile + j, at + j, n0 + j, (__mmask16)((1u << (n - j)) - 1));
    }
}

/* Only stored. */
FINISH_INLINE void finish_plain(const orth_gemm_desc *g, const float *tile, int64_t stride, int64_t m0, int64_t n0,
                                int m, int n)
{
    const orth_gemm_desc stored = {.c = g->c, .c_row = g->c_row, .c_type = g->c_type};
    if (!finish_stream(g, tile, stride, m0, n0, m, n))
        finish_rows(&stored, ORTH_ACT_NONE, tile, stride, m0, n0, m, n);
}

static void finish(const orth_gemm_desc *g, const float *tile, int64_t stride, int64_t m0, int64_t n0, int m,
                   int n)
{
    if (g->act == ORTH_ACT_GELU_TANH)
        finish_rows(g, ORTH_ACT_GELU_TANH, tile, stride, m0, n0, m, n);
    else if (g->act == ORTH_ACT_NONE && !g->bias && !g->pre && !g->num_addends)
        finish_plain(g, tile, stride, m0, n0, m, n);
    else
        finish_rows(g, g->act, tile, stride, m0, n0, m, n);
}

#endif
