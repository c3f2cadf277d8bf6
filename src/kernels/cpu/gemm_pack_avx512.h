/* gemm_pack_avx512.h -- packing into panels with 512-bit registers; see gemm_kernels.h for the layout.
 *
 * Everything moves as dwords: K contiguous in memory is a transposition of 16 x 16 dwords, lanes
 * contiguous a copy (bf16: of two rows woven together). Other strides go one by one.
 */
#ifndef ORTH_KERNELS_CPU_GEMM_PACK_AVX512_H
#define ORTH_KERNELS_CPU_GEMM_PACK_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/gemm_kernels.h"

/* What becomes of the source: fp32 as it is, bf16 in pairs, bf16 widened to fp32. */
typedef enum { PACK_F32, PACK_PAIR, PACK_WIDE } pack_kind;

#define PACK_INLINE static inline __attribute__((always_inline))

PACK_INLINE uint32_t pack_mask(int64_t n, int width)
{
    return n >= width ? (uint32_t)(((uint64_t)1 << width) - 1) : n <= 0 ? 0 : ((uint32_t)1 << n) - 1;
}

PACK_INLINE __m512i pack_widen(__m256i h)
{
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}

/* 16 dwords along K of one lane; `left` k exist. */
PACK_INLINE __m512i pack_load_k(pack_kind kind, const void *p, int64_t left)
{
    if (kind == PACK_F32)
        return _mm512_maskz_loadu_epi32((__mmask16)pack_mask(left, 16), p);
    if (kind == PACK_PAIR)
        return _mm512_maskz_loadu_epi16((__mmask32)pack_mask(left, 32), p);
    return pack_widen(_mm256_maskz_loadu_epi16((__mmask16)pack_mask(left, 16), p));
}

/* One dword of 16 neighbouring lanes, of which `mask` exist; `left` k exist. */
PACK_INLINE __m512i pack_load_lanes(pack_kind kind, const void *p, int64_t k_stride, __mmask16 mask,
                                    int64_t left)
{
    if (kind == PACK_F32)
        return _mm512_maskz_loadu_epi32(mask, p);
    __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
    if (kind == PACK_WIDE)
        return _mm512_slli_epi32(even, 16);
    if (left < 2)
        return even;
    const orth_bf16 *next = (const orth_bf16 *)p + k_stride;
    __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, next));
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
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

/* K contiguous: transposes 16 lanes at a time. */
PACK_INLINE void pack_along_k(pack_kind kind, const int W, uint32_t *dst, const char *src, int64_t lane_stride,
                              int lanes, int64_t len)
{
    const int step = kind == PACK_PAIR ? 32 : 16;
    const size_t size = pack_size(kind);
    for (int w = 0; w < W; w += 16) {
        const __mmask16 width = (__mmask16)pack_mask(W - w, 16);
        for (int64_t k = 0; k < len; k += step) {
            __m512i x[16];
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++)
                x[r] = w + r < ORTH_MIN(lanes, W)
                           ? pack_load_k(kind, src + (size_t)((w + r) * lane_stride + k) * size, len - k)
                           : _mm512_setzero_si512();
            pack_transpose(x);
            const int64_t rows = orth_div_up(ORTH_MIN(len - k, step), step / 16);
            uint32_t *to = dst + k / (step / 16) * W + w;
            for (int r = 0; r < rows; r++)
                _mm512_mask_storeu_epi32(to + r * W, width, x[r]);
        }
    }
}

/* Lanes contiguous: copies. */
PACK_INLINE void pack_along_lanes(pack_kind kind, const int W, uint32_t *dst, const char *src, int64_t k_stride,
                                  int lanes, int64_t len)
{
    const int unit = kind == PACK_PAIR ? 2 : 1;
    const size_t size = pack_size(kind);
    for (int64_t k = 0; k < len; k += unit, dst += W) {
#pragma GCC unroll 4
        for (int w = 0; w < W; w += 16) {
            const __mmask16 mask = (__mmask16)pack_mask(ORTH_MIN(lanes, W) - w, 16);
            __m512i x = pack_load_lanes(kind, src + (size_t)(k * k_stride + w) * size, k_stride, mask, len - k);
            _mm512_mask_storeu_epi32(dst + w, (__mmask16)pack_mask(W - w, 16), x);
        }
    }
}

PACK_INLINE void pack_any(pack_kind kind, const int W, uint32_t *dst, const void *src, int64_t lane_stride,
                          int64_t k_stride, int lanes, int64_t len)
{
    const int unit = kind == PACK_PAIR ? 2 : 1;
    for (int64_t k = 0; k < len; k++) {
        for (int w = 0; w < W; w++) {
            const int64_t at = w * lane_stride + k * k_stride;
            uint32_t x = w >= lanes            ? 0
                         : kind == PACK_F32    ? ((const uint32_t *)src)[at]
                         : kind == PACK_WIDE   ? (uint32_t)((const uint16_t *)src)[at] << 16
                                               : (uint32_t)((const uint16_t *)src)[at] << 16 * (k % 2);
            uint32_t *to = dst + k / unit * W + w;
            *to = k % unit ? *to | x : x;
        }
    }
}

PACK_INLINE void pack_panel(pack_kind kind, const int W, const int align, void *dst, const void *src,
                            int64_t lane_stride, int64_t k_stride, int lanes, int64_t len)
{
    if (k_stride == 1)
        pack_along_k(kind, W, dst, src, lane_stride, lanes, len);
    else if (lane_stride == 1)
        pack_along_lanes(kind, W, dst, src, k_stride, lanes, len);
    else
        pack_any(kind, W, dst, src, lane_stride, k_stride, lanes, len);
    const int64_t rows = orth_div_up(len, kind == PACK_PAIR ? 2 : 1), full = orth_round_up(rows, align);
    if (full > rows)
        memset((uint32_t *)dst + rows * W, 0, (size_t)((full - rows) * W) * 4);
}

#define PACK_FN(name, kind, W, align)                                                                      \
    static void name(void *dst, const void *src, int64_t lane_stride, int64_t k_stride, int lanes,          \
                     int64_t len)                                                                           \
    {                                                                                                       \
        pack_panel(kind, W, align, dst, src, lane_stride, k_stride, lanes, len);                            \
    }

#endif
