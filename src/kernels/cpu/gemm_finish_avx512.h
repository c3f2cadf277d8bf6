/* gemm_finish_avx512.h -- the epilogue of a tile on 512-bit registers.
 *
 * Whole vectors go without masks: masked stores of 16-bit elements are slow on some processors. Where the includer
 * defines FINISH_STREAMS, c_later is heeded: lines written past the caches need not be read first.
 */
#ifndef ORTH_KERNELS_CPU_GEMM_FINISH_AVX512_H
#define ORTH_KERNELS_CPU_GEMM_FINISH_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/gemm_kernels.h"
#include "kernels/mathf_simd.h"

#define FINISH_INLINE static inline __attribute__((always_inline))

FINISH_INLINE __m512 finish_load_f32(bool whole, const float *p, __mmask16 mask)
{
    return whole ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(mask, p);
}

FINISH_INLINE __m512 finish_widen(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

FINISH_INLINE __m512 finish_load(bool whole, const void *c, orth_dtype type, int64_t at, __mmask16 mask)
{
    if (type == ORTH_F32)
        return finish_load_f32(whole, (const float *)c + at, mask);
    const orth_bf16 *p = (const orth_bf16 *)c + at;
    return finish_widen(whole ? _mm256_loadu_si256((const __m256i *)p) : _mm256_maskz_loadu_epi16(mask, p));
}

/* As orth_bf16_from_f32. */
FINISH_INLINE __m256i finish_round(__m512 v)
{
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

FINISH_INLINE void finish_store_pair(orth_bf16 *c, const __m512 v[2])
{
    _mm512_storeu_si512(c, _mm512_inserti64x4(_mm512_castsi256_si512(finish_round(v[0])), finish_round(v[1]), 1));
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
            _mm256_storeu_si256((__m256i *)(void *)((orth_bf16 *)c + at), finish_round(v));
        else
            _mm256_mask_storeu_epi16((orth_bf16 *)c + at, mask, finish_round(v));
    }
}

/* 16 elements from element `at` of C, column n; those in mask, or all if whole. act: that of g. */
FINISH_INLINE void finish_vector(const orth_gemm_desc *g, orth_act act, bool whole, const float *tile, int64_t at,
                                 int64_t n, __mmask16 mask)
{
    __m512 v = finish_load_f32(whole, tile, mask);
    if (g->bias)
        v = _mm512_add_ps(v, finish_load_f32(whole, g->bias + n, mask));
    if (g->pre)
        finish_store(whole, g->pre, g->c_type, at, mask, v);
    if (g->act_grad_of)
        v = _mm512_mul_ps(v, orth_act_grad_m512(act, finish_load(whole, g->act_grad_of, g->c_type, at, mask)));
    else
        v = orth_act_apply_m512(act, v);
    for (int i = 0; i < g->num_addends; i++)
        v = _mm512_add_ps(finish_load_f32(whole, g->addend[i] + at, mask), v);
    finish_store(whole, g->c, g->c_type, at, mask, v);
}

/* Two whole vectors of bf16 that are one line: what is loaded and stored is whole registers, and two chains of
 * arithmetic run side by side. */
FINISH_INLINE void finish_pair(const orth_gemm_desc *g, orth_act act, const float *tile, int64_t at, int64_t n)
{
    __m512 v[2] = {_mm512_loadu_ps(tile), _mm512_loadu_ps(tile + 16)};
    if (g->bias)
        for (int i = 0; i < 2; i++)
            v[i] = _mm512_add_ps(v[i], _mm512_loadu_ps(g->bias + n + 16 * i));
    if (g->pre)
        finish_store_pair((orth_bf16 *)g->pre + at, v);
    if (g->act_grad_of) {
        const __m512i u = _mm512_loadu_si512((const orth_bf16 *)g->act_grad_of + at);
        const __m256i half[2] = {_mm512_castsi512_si256(u), _mm512_extracti64x4_epi64(u, 1)};
        for (int i = 0; i < 2; i++)
            v[i] = _mm512_mul_ps(v[i], orth_act_grad_m512(act, finish_widen(half[i])));
    } else {
        for (int i = 0; i < 2; i++)
            v[i] = orth_act_apply_m512(act, v[i]);
    }
    for (int i = 0; i < g->num_addends; i++)
        for (int k = 0; k < 2; k++)
            v[k] = _mm512_add_ps(_mm512_loadu_ps(g->addend[i] + at + 16 * k), v[k]);
    finish_store_pair((orth_bf16 *)g->c + at, v);
}

/* Past the caches, where that is wanted and the tile is whole lines. The counters that tell other threads of it are
 * locked instructions, which wait for it. */
FINISH_INLINE bool finish_stream(const orth_gemm_desc *g, const float *tile, int64_t stride, int64_t m0, int64_t n0,
                                 int m, int n)
{
#if defined(FINISH_STREAMS)
    float *c = (float *)g->c + m0 * g->c_row + n0;
    if (!orth_gemm_past_caches(g) || (uintptr_t)c % 64 || n % 16)
        return false;
    for (int r = 0; r < m; r++, tile += stride, c += g->c_row)
        for (int j = 0; j < n; j += 16)
            _mm512_stream_ps(c + j, _mm512_loadu_ps(tile + j));
    return true;
#else
    (void)g, (void)tile, (void)stride, (void)m0, (void)n0, (void)m, (void)n;
    return false;
#endif
}

/* act: that of g, which callers give as a constant where it matters. */
FINISH_INLINE void finish_rows(const orth_gemm_desc *g, orth_act act, const float *tile, int64_t stride, int64_t m0,
                               int64_t n0, int m, int n)
{
    const int whole = n & ~15, pairs = g->c_type == ORTH_BF16 ? n & ~31 : 0;
    for (int r = 0; r < m; r++, tile += stride) {
        const int64_t at = (m0 + r) * g->c_row + n0;
        int j = 0;
        for (; j < pairs; j += 32)
            finish_pair(g, act, tile + j, at + j, n0 + j);
        for (; j < whole; j += 16)
            finish_vector(g, act, true, tile + j, at + j, n0 + j, 0);
        if (j < n)
            finish_vector(g, act, false, tile + j, at + j, n0 + j, (__mmask16)((1u << (n - j)) - 1));
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
