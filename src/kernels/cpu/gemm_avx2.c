/* gemm_avx2.c -- matrix product kernels for AVX2 with FMA: tiles of 6 x 16; bf16 and fp16 are widened at packing. */
#include "kernels/cpu/gemm_kernels.h"

#include <immintrin.h>

#include "kernels/gemm_chain.h"
#include "kernels/mathf_simd.h"

#define MR 6
#define NR 16

/* ---- tile ---- */

typedef void (*tile_shape_fn)(const orth_gemm_tile *t);

static inline __attribute__((always_inline)) void tile_shape(const int R, const int V, const orth_gemm_tile *t)
{
    __m256 acc[MR][2];
    const float *a = (const float *)(const void *)t->a, *b = (const float *)(const void *)t->b;
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++)
            acc[r][v] = t->from ? _mm256_load_ps(t->from + r * NR + 8 * v) : _mm256_setzero_ps();
    for (int64_t k = 0; k < t->num_rows; k++, a += MR, b += NR) {
        __m256 bv[2];
#pragma GCC unroll 2
        for (int v = 0; v < V; v++)
            bv[v] = _mm256_load_ps(b + 8 * v);
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
            __m256 ar = _mm256_broadcast_ss(a + r);
#pragma GCC unroll 2
            for (int v = 0; v < V; v++)
                acc[r][v] = _mm256_fmadd_ps(ar, bv[v], acc[r][v]);
        }
    }
    for (int i = 0; i < t->num_older; i++)
#pragma GCC unroll 6
        for (int r = 0; r < R; r++)
#pragma GCC unroll 2
            for (int v = 0; v < V; v++)
                acc[r][v] = _mm256_add_ps(_mm256_load_ps(t->older[i] + r * NR + 8 * v), acc[r][v]);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++)
            _mm256_store_ps(t->to + r * NR + 8 * v, acc[r][v]);
}

#define SHAPE(R, V)                                    \
    static void tile_##R##_##V(const orth_gemm_tile *t) \
    {                                                  \
        tile_shape(R, V, t);                           \
    }
#define SHAPES(R) SHAPE(R, 1) SHAPE(R, 2)
SHAPES(1) SHAPES(2) SHAPES(3) SHAPES(4) SHAPES(5) SHAPES(6)

static void tile(const orth_gemm_tile *t)
{
#define ROW(R) {tile_##R##_1, tile_##R##_2}
    static const tile_shape_fn shapes[MR][2] = {ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6)};
#undef ROW
    shapes[t->m - 1][(t->n - 1) / 8](t);
}

/* ---- packing ---- */

#define PACK_INLINE static inline __attribute__((always_inline))

PACK_INLINE __m256 load8(orth_dtype type, const void *p, int64_t at)
{
    if (type == ORTH_F32)
        return _mm256_loadu_ps((const float *)p + at);
    __m128i h = _mm_loadu_si128((const __m128i *)((const orth_bf16 *)p + at));
    if (type == ORTH_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

PACK_INLINE void transpose8(__m256 x[8])
{
    __m256 t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        x[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        x[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        x[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        x[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
    }
    memcpy(x, t, sizeof t);
}

/* Lanes [w0, w0 + 8) of a panel of W, whole vectors along K; returns how many k are done. */
PACK_INLINE int64_t pack_along_k(const int W, orth_dtype type, float *dst, const void *src,
                                 int64_t lane_stride, int w0, int lanes, int64_t len)
{
    const __m256i keep =
        _mm256_cmpgt_epi32(_mm256_set1_epi32(W - w0), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    int64_t k = 0;
    for (; k + 8 <= len; k += 8) {
        __m256 x[8];
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++)
            x[r] = w0 + r < ORTH_MIN(lanes, W) ? load8(type, src, (w0 + r) * lane_stride + k)
                                               : _mm256_setzero_ps();
        transpose8(x);
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++)
            _mm256_maskstore_ps(dst + (k + r) * W + w0, keep, x[r]);
    }
    return k;
}

PACK_INLINE void pack(const int W, orth_dtype type, float *dst, const void *src, int64_t lane_stride,
                      int64_t k_stride, int lanes, int64_t len)
{
    int64_t done = 0;
    if (k_stride == 1) {
        for (int w = 0; w < W; w += 8)
            done = pack_along_k(W, type, dst, src, lane_stride, w, lanes, len);
    } else if (lane_stride == 1 && W == NR && lanes == NR) {
        for (; done < len; done++)
            for (int w = 0; w < W; w += 8)
                _mm256_storeu_ps(dst + done * W + w, load8(type, src, done * k_stride + w));
    }
    for (int64_t k = done; k < len; k++)
        for (int w = 0; w < W; w++)
            dst[k * W + w] = w < lanes ? orth_load_f32(src, type, w * lane_stride + k * k_stride) : 0.0f;
}

#define PACK_FN(name, W, type)                                                                              \
    static void name(void *dst, size_t panel_bytes, const void *src, int64_t lane_stride, int64_t k_stride, \
                     int64_t lanes, int64_t len)                                                            \
    {                                                                                                       \
        for (int64_t w = 0; w < lanes; w += W)                                                              \
            pack(W, type, (float *)(void *)((char *)dst + panel_bytes * (size_t)(w / W)),                   \
                 (const char *)src + (size_t)(w * lane_stride) * orth_dtype_bytes(type), lane_stride,       \
                 k_stride, (int)ORTH_MIN(W, lanes - w), len);                                               \
    }
PACK_FN(pack_a_f32, MR, ORTH_F32)
PACK_FN(pack_b_f32, NR, ORTH_F32)
PACK_FN(pack_a_bf16, MR, ORTH_BF16)
PACK_FN(pack_b_bf16, NR, ORTH_BF16)
PACK_FN(pack_a_f16, MR, ORTH_F16)
PACK_FN(pack_b_f16, NR, ORTH_F16)

/* ---- epilogue ---- */

static inline void store8(void *c, orth_dtype type, int64_t at, __m256 v)
{
    if (type == ORTH_F32) {
        _mm256_storeu_ps((float *)c + at, v);
        return;
    }
    if (type == ORTH_F16) {
        _mm_storeu_si128((__m128i *)((orth_f16 *)c + at), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
        return;
    }
    __m256i u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i h = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), quiet, nan);
    h = _mm256_permute4x64_epi64(_mm256_packus_epi32(h, h), 0x08);
    _mm_storeu_si128((__m128i *)((orth_bf16 *)c + at), _mm256_castsi256_si128(h));
}

static void finish8(const orth_gemm_desc *g, int64_t at, int64_t n, __m256 v)
{
    if (g->bias)
        v = _mm256_add_ps(v, _mm256_loadu_ps(g->bias + n));
    if (g->pre)
        store8(g->pre, g->c_type, at, v);
    if (g->act_grad_of)
        v = _mm256_mul_ps(v, orth_act_grad_m256(g->act, load8(g->c_type, g->act_grad_of, at)));
    else if (g->act != ORTH_ACT_NONE)
        v = orth_act_apply_m256(g->act, v);
    for (int i = 0; i < g->num_addends; i++)
        v = _mm256_add_ps(_mm256_loadu_ps(g->addend[i] + at), v);
    if (g->c_type == ORTH_F32)
        v = _mm256_add_ps(v, _mm256_setzero_ps());
    store8(g->c, g->c_type, at, v);
}

static void finish(const orth_gemm_desc *g, const float *t, int64_t stride, int64_t m0, int64_t n0, int m, int n)
{
    for (int r = 0; r < m; r++) {
        int j = 0;
        for (; j + 8 <= n; j += 8)
            finish8(g, (m0 + r) * g->c_row + n0 + j, n0 + j, _mm256_loadu_ps(t + r * stride + j));
        for (; j < n; j++)
            orth_gemm_finish_element(g, m0 + r, n0 + j, t[r * stride + j]);
    }
}

const orth_gemm_kernels orth_gemm_avx2_f32 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 256, .task_m = 64,
    .pack_a = pack_a_f32, .pack_b = pack_b_f32,
    .tile = tile, .finish = finish,
};
const orth_gemm_kernels orth_gemm_avx2_bf16 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 256, .task_m = 64,
    .pack_a = pack_a_bf16, .pack_b = pack_b_bf16,
    .tile = tile, .finish = finish,
};
const orth_gemm_kernels orth_gemm_avx2_f16 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 256, .task_m = 64,
    .pack_a = pack_a_f16, .pack_b = pack_b_f16,
    .tile = tile, .finish = finish,
};
