/* gemm_pack_avx512.h -- packing into panels with 512-bit registers; see gemm_kernels.h for the layout.
 *
 * Everything moves as dwords: K contiguous in memory is a transposition of 16 x 16 dwords, lanes
 * contiguous a copy (bf16: of two rows woven together). Other strides go one by one.
 */
#ifndef ORTH_KERNELS_CPU_GEMM_PACK_AVX512_H
#define ORTH_KERNELS_CPU_GEMM_PACK_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/gemm_kernels.h"

/* What becomes of the source: fp32 as it is, bf16 in pairs, bf16 widened to fp32, fp16 widened to fp32. */
typedef enum { PACK_F32, PACK_PAIR, PACK_WIDE, PACK_HALF } pack_kind;

#define PACK_INLINE static inline __attribute__((always_inline))

PACK_INLINE uint32_t pack_mask(int64_t n, int width)
{
    return n >= width ? (uint32_t)(((uint64_t)1 << width) - 1) : n <= 0 ? 0 : ((uint32_t)1 << n) - 1;
}

PACK_INLINE __m512i pack_widen(pack_kind kind, __m256i h)
{
    if (kind == PACK_HALF)
        return _mm512_castps_si512(_mm512_cvtph_ps(h));
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}

/* 16 dwords along K of one lane; `left` k exist. */
PACK_INLINE __m512i pack_load_k(pack_kind kind, const void *p, int64_t left)
{
    if (kind == PACK_F32)
        return _mm512_maskz_loadu_epi32((__mmask16)pack_mask(left, 16), p);
    if (kind == PACK_PAIR)
        return _mm512_maskz_loadu_epi16((__mmask32)pack_mask(left, 32), p);
    return pack_widen(kind, _mm256_maskz_loadu_epi16((__mmask16)pack_mask(left, 16), p));
}

/* One dword of 16 neighbouring lanes, of which `mask` exist; `left` k exist. */
PACK_INLINE __m512i pack_load_lanes(pack_kind kind, const void *p, int64_t k_stride, __mmask16 mask,
                                    int64_t left)
{
    if (kind == PACK_F32)
        return _mm512_maskz_loadu_epi32(mask, p);
    const __m256i first = _mm256_maskz_loadu_epi16(mask, p);
    if (kind != PACK_PAIR)
        return pack_widen(kind, first);
    const __m512i even = _mm512_cvtepu16_epi32(first);
    if (left < 2)
        return even;
    const orth_bf16 *next = (const orth_bf16 *)p + k_stride;
    __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, next));
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}

/* One dword of each of 32 neighbouring lanes: the even k at p, the odd one a row further. */
PACK_INLINE void pack_load_pairs(const orth_bf16 *p, int64_t k_stride, __m512i *low, __m512i *high)
{
    const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                           37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i even = _mm512_loadu_si512(p), odd = _mm512_loadu_si512(p + k_stride);
    *low = _mm512_permutex2var_epi16(even, first, odd);
    *high = _mm512_permutex2var_epi16(even, _mm512_add_epi16(first, _mm512_set1_epi16(16)), odd);
}

/* Rows become columns. */
PACK_INLINE void pack_transpose(__m512i x[16])
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
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        x[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        x[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

PACK_INLINE size_t pack_size(pack_kind kind)
{
    return kind == PACK_F32 ? 4 : 2;
}

/* Stores 16 lanes of one packed row: part of a panel of W, or two panels of 8. */
PACK_INLINE void pack_store(const int W, char *panel, size_t panel_bytes, int64_t row, int w, bool two,
                            __m512i x)
{
    char *to = panel + 4 * (row * W + w);
    if (W != 8) {
        _mm512_storeu_si512(to, x);
        return;
    }
    _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(x));
    if (two)
        _mm256_storeu_si256((__m256i *)(to + panel_bytes), _mm512_extracti64x4_epi64(x, 1));
}

/* K contiguous: transposes 16 lanes at a time. Panels of 32 are those of AMX, which would wait for the next 16
 * if nobody asked for them. */
PACK_INLINE void pack_along_k(pack_kind kind, const int W, char *dst, size_t panel_bytes, const char *src,
                              int64_t lane_stride, int64_t lanes, int64_t len)
{
    const int unit = kind == PACK_PAIR ? 2 : 1;
    const int64_t all = orth_round_up(lanes, W);
    for (int64_t w = 0; w < all; w += 16) {
        char *panel = dst + panel_bytes * (size_t)(w / W);
        for (int64_t k = 0; k < len; k += 16 * unit) {
            __m512i x[16];
            const char *from = src + (size_t)(w * lane_stride + k) * pack_size(kind);
            const size_t step = (size_t)lane_stride * pack_size(kind);
            if (w + 16 <= lanes) {
#pragma GCC unroll 16
                for (int r = 0; r < 16; r++) {
                    x[r] = pack_load_k(kind, from + (size_t)r * step, len - k);
                    if (W == 32)
                        _mm_prefetch(from + (size_t)(r + 16) * step, _MM_HINT_T1);
                }
            } else {
                for (int r = 0; r < 16; r++)
                    x[r] = w + r < lanes ? pack_load_k(kind, from + (size_t)r * step, len - k)
                                         : _mm512_setzero_si512();
            }
            pack_transpose(x);
            const int64_t row = k / unit, rows = ORTH_MIN(16, orth_div_up(len - k, unit));
            if (rows == 16) {
#pragma GCC unroll 16
                for (int r = 0; r < 16; r++)
                    pack_store(W, panel, panel_bytes, row + r, (int)(w % W), w + 8 < all, x[r]);
            } else {
                for (int r = 0; r < rows; r++)
                    pack_store(W, panel, panel_bytes, row + r, (int)(w % W), w + 8 < all, x[r]);
            }
        }
    }
}

/* Lanes contiguous: copies. The rows of the source are far apart, so what comes next is asked for early:
 * processors do not guess such strides. */
PACK_INLINE void pack_along_lanes(pack_kind kind, const int W, char *dst, size_t panel_bytes, const char *src,
                                  int64_t k_stride, int64_t lanes, int64_t len)
{
    const int unit = kind == PACK_PAIR ? 2 : 1;
    const size_t size = pack_size(kind), step = (size_t)k_stride * size;
    const int64_t all = orth_round_up(lanes, W);
    for (int64_t k = 0; k < len; k += unit) {
        const char *from = src + (size_t)k * step;
        if (k + 16 * unit < len)
            for (int64_t at = 0; at < lanes * (int64_t)size; at += 64)
                for (int u = 0; u < unit; u++)
                    _mm_prefetch(from + (size_t)(16 * unit + u) * step + at, _MM_HINT_T0);
        for (int64_t w = 0; w < all; w += 16) {
            if (kind == PACK_PAIR && W % 32 == 0 && w + 32 <= lanes && k + 1 < len) {
                __m512i low, high;
                char *panel = dst + panel_bytes * (size_t)(w / W);
                pack_load_pairs((const orth_bf16 *)(const void *)from + w, k_stride, &low, &high);
                pack_store(W, panel, panel_bytes, k / unit, (int)(w % W), true, low);
                w += 16;
                pack_store(W, panel, panel_bytes, k / unit, (int)(w % W), true, high);
                continue;
            }
            const __mmask16 mask = (__mmask16)pack_mask(lanes - w, 16);
            __m512i x = pack_load_lanes(kind, from + (size_t)w * size, k_stride, mask, len - k);
            pack_store(W, dst + panel_bytes * (size_t)(w / W), panel_bytes, k / unit, (int)(w % W),
                       w + 8 < all, x);
        }
    }
}

PACK_INLINE uint32_t pack_half(orth_f16 h)
{
    const float f = orth_f16_to_f32(h);
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

PACK_INLINE void pack_any(pack_kind kind, const int W, char *dst, size_t panel_bytes, const void *src,
                          int64_t lane_stride, int64_t k_stride, int64_t lanes, int64_t len)
{
    const int unit = kind == PACK_PAIR ? 2 : 1;
    for (int64_t k = 0; k < len; k++) {
        for (int64_t w = 0; w < orth_round_up(lanes, W); w++) {
            const int64_t at = w * lane_stride + k * k_stride;
            uint32_t x = w >= lanes          ? 0
                         : kind == PACK_F32  ? ((const uint32_t *)src)[at]
                         : kind == PACK_HALF ? pack_half(((const orth_f16 *)src)[at])
                         : kind == PACK_WIDE ? (uint32_t)((const uint16_t *)src)[at] << 16
                                             : (uint32_t)((const uint16_t *)src)[at] << 16 * (k % 2);
            uint32_t *to = (uint32_t *)(void *)(dst + panel_bytes * (size_t)(w / W)) + k / unit * W + w % W;
            *to = k % unit ? *to | x : x;
        }
    }
}

/* W: 8 or a multiple of 16. */
PACK_INLINE void pack_panels(pack_kind kind, const int W, const int align, char *dst, size_t panel_bytes,
                             const void *src, int64_t lane_stride, int64_t k_stride, int64_t lanes,
                             int64_t len)
{
    if (k_stride == 1)
        pack_along_k(kind, W, dst, panel_bytes, src, lane_stride, lanes, len);
    else if (lane_stride == 1)
        pack_along_lanes(kind, W, dst, panel_bytes, src, k_stride, lanes, len);
    else
        pack_any(kind, W, dst, panel_bytes, src, lane_stride, k_stride, lanes, len);
    const int64_t rows = orth_div_up(len, kind == PACK_PAIR ? 2 : 1), full = orth_round_up(rows, align);
    for (int64_t w = 0; w < lanes && full > rows; w += W)
        memset(dst + panel_bytes * (size_t)(w / W) + 4 * rows * W, 0, (size_t)(4 * (full - rows) * W));
}

#define PACK_FN(name, kind, W, align)                                                                       \
    static void name(void *dst, size_t panel_bytes, const void *src, int64_t lane_stride, int64_t k_stride, \
                     int64_t lanes, int64_t len)                                                            \
    {                                                                                                       \
        pack_panels(kind, W, align, dst, panel_bytes, src, lane_stride, k_stride, lanes, len);              \
    }

#endif
