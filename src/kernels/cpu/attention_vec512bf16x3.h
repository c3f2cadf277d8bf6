/* attention_vec512bf16x3.h -- pairs of bf16 in three planes from 16 lanes of fp32: attention_tile.h's stores, and its packs.
 *
 * As attention_vec512bf16.h, with pieces (gemm_chain.h) in place of what one bf16 holds.
 */
#ifndef ORTH_KERNELS_CPU_ATTENTION_VEC512BF16X3_H
#define ORTH_KERNELS_CPU_ATTENTION_VEC512BF16X3_H

#include "kernels/cpu/attention_vec512.h"
#include "kernels/cpu/bf16x3_avx512.h"

#define SQUARE ((int64_t)ORTH_ATTN_BLOCK * ORTH_ATTN_BLOCK) /* elements of a plane of probabilities */

static inline __attribute__((always_inline)) void STORE_BF16(orth_bf16 *to, __m512 v0, __m512 v1)
{
    __m512i piece[3], pair[3];
    bf16x3_split(v0, v1, piece, pair);
    for (int p = 0; p < 3; p++)
        _mm512_storeu_si512(to + p * SQUARE, piece[p]);
}

static inline __attribute__((always_inline)) void STORE_TWO(uint32_t *to, __m512 v0, __m512 v1)
{
    __m512i piece[3], row[3];
    bf16x3_split(v0, v1, row, piece);
    for (int p = 0; p < 3; p++)
        _mm512_storeu_si512(to + p * SQUARE / 2, piece[p]);
}

/* The rows {row0, row1} at to0 and to1, and units of both at `to`; rows are taken out of units again. */
static inline __attribute__((always_inline)) void STORE_ROWS(orth_bf16 *to0, orth_bf16 *to1, uint32_t *to,
                                                             const __m512 *row0, const __m512 *row1)
{
    const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24,
                                          22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
    __m512i row[3], low[3], high[3];
    bf16x3_split(row0[0], row1[0], row, low);
    bf16x3_split(row0[1], row1[1], row, high);
    for (int p = 0; p < 3; p++) {
        _mm512_storeu_si512(to + p * SQUARE / 2, low[p]);
        _mm512_storeu_si512(to + p * SQUARE / 2 + VW, high[p]);
        _mm512_storeu_si512(to0 + p * SQUARE, _mm512_permutex2var_epi16(low[p], even, high[p]));
        _mm512_storeu_si512(to1 + p * SQUARE, _mm512_permutex2var_epi16(low[p], odd, high[p]));
    }
}

/* Lanes of row[d...], zero from D on. */
static inline __m512 lanes_at(const void *row, int64_t d, int64_t D)
{
    const int64_t n = ORTH_MIN(ORTH_MAX(D - d, 0), VW);
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), (const float *)row + d);
}

static void pack_rows(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    const int64_t Dp = orth_round_up(D, 16), plane = ORTH_ATTN_BLOCK * Dp;
    (void)type;
    for (int r = 0; r < num_rows; r++)
        for (int64_t d = 0; d < Dp; d += 2 * VW) {
            __m512i piece[3], pair[3];
            orth_bf16 *to = (orth_bf16 *)dst + r * Dp + d;
            bf16x3_split(lanes_at(row[r], d, D), lanes_at(row[r], d + VW, D), piece, pair);
            for (int p = 0; p < 3; p++)
                _mm512_mask_storeu_epi16(to + p * plane, Dp - d < 2 * VW ? 0xffffu : ~0u, piece[p]);
        }
}

static void pack_inner(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    const int64_t Dp = orth_round_up(D, 16), plane = ORTH_ATTN_BLOCK / 2 * Dp;
    (void)type;
    for (int r = 0; r < ORTH_ATTN_BLOCK; r += 2)
        for (int64_t d = 0; d < Dp; d += VW) {
            __m512i piece[3], halves[3];
            uint32_t *to = (uint32_t *)dst + r / 2 * Dp + d;
            const __m512 even = r < num_rows ? lanes_at(row[r], d, D) : _mm512_setzero_ps();
            const __m512 odd = r + 1 < num_rows ? lanes_at(row[r + 1], d, D) : _mm512_setzero_ps();
            bf16x3_split(even, odd, halves, piece);
            for (int p = 0; p < 3; p++)
                _mm512_storeu_si512(to + p * plane, piece[p]);
        }
}

static void pack_cols(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    const int64_t Dp = orth_round_up(D, 16), plane = ORTH_ATTN_BLOCK / 2 * Dp;
    (void)type;
    for (int r0 = 0; r0 < ORTH_ATTN_BLOCK; r0 += 16)
        for (int64_t d = 0; d < Dp; d += 2 * VW) {
            __m512i x[3][16];
            const int64_t n = ORTH_MIN(16, (Dp - d) / 2);
            for (int r = 0; r < 16; r++) {
                __m512i piece[3] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()}, pair[3];
                if (r0 + r < num_rows)
                    bf16x3_split(lanes_at(row[r0 + r], d, D), lanes_at(row[r0 + r], d + VW, D), piece, pair);
                for (int p = 0; p < 3; p++)
                    x[p][r] = piece[p];
            }
            for (int p = 0; p < 3; p++) {
                transpose16(x[p]);
                for (int64_t i = 0; i < n; i++)
                    _mm512_storeu_si512((uint32_t *)dst + p * plane + (d / 2 + i) * ORTH_ATTN_BLOCK + r0, x[p][i]);
            }
        }
}

static void pack_transposed(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    const int64_t Dp = orth_round_up(D, 16), plane = ORTH_ATTN_BLOCK / 2 * Dp;
    (void)type;
    for (int r0 = 0; r0 < ORTH_ATTN_BLOCK; r0 += 32)
        for (int64_t d = 0; d < Dp; d += VW) {
            __m512i x[3][16];
            for (int i = 0; i < 16; i++) {
                const int r = r0 + 2 * i;
                const __m512 even = r < num_rows ? lanes_at(row[r], d, D) : _mm512_setzero_ps();
                const __m512 odd = r + 1 < num_rows ? lanes_at(row[r + 1], d, D) : _mm512_setzero_ps();
                __m512i halves[3], piece[3];
                bf16x3_split(even, odd, halves, piece);
                for (int p = 0; p < 3; p++)
                    x[p][i] = piece[p];
            }
            for (int p = 0; p < 3; p++) {
                transpose16(x[p]);
                for (int i = 0; i < 16; i++)
                    _mm512_storeu_si512((uint32_t *)dst + p * plane + (d + i) * ORTH_ATTN_BLOCK / 2 + r0 / 2, x[p][i]);
            }
        }
}
#define OWN_PACKS

#endif
