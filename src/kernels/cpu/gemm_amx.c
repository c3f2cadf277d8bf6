/* gemm_amx.c -- bf16 matrix product kernels on AMX tiles: 32 x 32 of C in four tile registers.
 *
 * tmm0..3 are C (2 x 2 of 16 x 16), tmm4, 5 two tiles of A, tmm6, 7 two of B. A packed row group is 32 k:
 *   A: [16-row groups of packed rows][32 lanes][16 dwords]   a tile is 16 lanes of 64 bytes
 *   B: [packed rows][32 lanes]                               a tile is 16 packed rows, stride 128 bytes
 * The arithmetic is in gemm_chain.h. Rows and columns that do not exist are computed on zeros.
 */
#define FINISH_STREAMS 1
#include "kernels/cpu/gemm_finish_avx512.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/gemm_pack_avx512.h"
#include "kernels/cpu/tiles.h"
#include "kernels/gemm_chain.h"

#define MR 32
#define NR 32
#define ALIGN 16

PACK_FN(pack_b, PACK_PAIR, NR, ALIGN)

/* 16 packed rows of 16 lanes, lane-major: one tile. `left` k exist. */
static void load_a_tile(__m512i x[16], const orth_bf16 *src, int64_t lane_stride, int64_t k_stride, int lanes,
                        int64_t left)
{
    if (k_stride == 1) {
        for (int w = 0; w < 16; w++)
            x[w] = w < lanes ? pack_load_k(PACK_PAIR, src + w * lane_stride, left) : _mm512_setzero_si512();
        for (int w = 0; w < lanes; w++)
            _mm_prefetch(src + (w + 16) * lane_stride, _MM_HINT_T1);
    } else if (lane_stride == 1) {
        const __mmask16 mask = (__mmask16)pack_mask(lanes, 16);
        for (int r = 0; r < 16; r++)
            x[r] = left > 2 * r
                       ? pack_load_lanes(PACK_PAIR, src + 2 * r * k_stride, k_stride, mask, left - 2 * r)
                       : _mm512_setzero_si512();
        pack_transpose(x);
    } else {
        orth_bf16 plain[16][32] = {{0}};
        for (int w = 0; w < lanes; w++)
            for (int k = 0; k < ORTH_MIN(left, 32); k++)
                plain[w][k] = src[w * lane_stride + k * k_stride];
        for (int w = 0; w < 16; w++)
            x[w] = _mm512_loadu_si512(plain[w]);
    }
}

/* 32 lanes side by side, all of one panel. Their rows are far apart, so the next ones are asked for. */
static void pack_a_lanes(char *to, const orth_bf16 *src, int64_t k_stride, int64_t len)
{
    for (int64_t k = 0; k < len; k += 32, to += 2048) {
        __m512i low[16], high[16];
        for (int64_t ahead = k + 32; ahead < ORTH_MIN(len, k + 64); ahead++)
            _mm_prefetch(src + ahead * k_stride, _MM_HINT_T0);
        for (int r = 0; r < 16; r++)
            pack_load_pairs(src + (k + 2 * r) * k_stride, k_stride, &low[r], &high[r]);
        pack_transpose(low);
        pack_transpose(high);
        for (int r = 0; r < 16; r++) {
            _mm512_storeu_si512(to + 64 * r, low[r]);
            _mm512_storeu_si512(to + 1024 + 64 * r, high[r]);
        }
    }
}

static void pack_a(void *dst, size_t panel_bytes, const void *src, int64_t lane_stride, int64_t k_stride,
                   int64_t lanes, int64_t len)
{
    int64_t w = 0;
    for (; lane_stride == 1 && len % 32 == 0 && w + MR <= lanes; w += MR)
        pack_a_lanes((char *)dst + panel_bytes * (size_t)(w / MR), (const orth_bf16 *)src + w, k_stride, len);
    for (; w < orth_round_up(lanes, MR); w += 16) {
        char *to = (char *)dst + panel_bytes * (size_t)(w / MR) + 1024 * (w % MR / 16);
        const int have = (int)ORTH_MAX(0, ORTH_MIN(16, lanes - w));
        for (int64_t k = 0; k < len; k += 32, to += 2048) {
            __m512i x[16];
            load_a_tile(x, (const orth_bf16 *)src + (have ? w * lane_stride + k * k_stride : 0), lane_stride,
                        k_stride, have, have ? len - k : 0);
            for (int r = 0; r < 16; r++)
                _mm512_storeu_si512(to + 64 * r, x[r]);
        }
    }
}

/* sums: where the tiles have just been stored; the result goes to t->to. */
static void merge(const orth_gemm_tile *t, const float *sums)
{
    enum { VECTORS = 8 };           /* side by side: a loop over the older slots for each one costs more than the sums */
    for (int i = 0; i < MR * NR; i += 16 * VECTORS) {
        __m512 acc[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            acc[v] = _mm512_load_ps(sums + i + 16 * v);
        for (int s = 0; s < t->num_older; s++)
            for (int v = 0; v < VECTORS; v++)
                acc[v] = _mm512_add_ps(_mm512_load_ps(t->older[s] + i + 16 * v), acc[v]);
        for (int v = 0; v < VECTORS; v++)
            _mm512_store_ps(t->to + i + 16 * v, acc[v]);
    }
}

static void tile(const orth_gemm_tile *t)
{
    const char *a = t->a, *b = t->b;
    const size_t stride = 4 * NR;
    float own[MR * NR] __attribute__((aligned(64))); /* t->to may be one of the older */
    float *sums = t->num_older ? own : t->to;
    if (t->from) {
        _tile_loadd(0, t->from, stride);
        _tile_loadd(1, t->from + 16, stride);
        _tile_loadd(2, t->from + 16 * NR, stride);
        _tile_loadd(3, t->from + 16 * NR + 16, stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    const char *ahead = t->ahead.at;
    int wish = t->wish;
    for (int64_t k = 0; k < t->num_rows; k += ALIGN, a += 2048, b += 2048) {
        for (const char *end = ahead + 8 * t->ahead.stride; ahead < end; ahead += 64)
            _mm_prefetch(ahead, _MM_HINT_T1);
        for (const int end = ORTH_MIN(t->wish_end, wish + t->wish_step); wish < end; wish++)
            orth_gemm_ask(t, wish);
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 128);
        _tile_loadd(7, b + 64, 128);
        _tile_loadd(5, a + 1024, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, stride);
    _tile_stored(1, sums + 16, stride);
    _tile_stored(2, sums + 16 * NR, stride);
    _tile_stored(3, sums + 16 * NR + 16, stride);
    if (t->num_older)
        merge(t, sums);
}

const orth_gemm_kernels orth_gemm_amx_bf16 = {
    .mr = MR, .nr = NR, .unit = 2, .align = ALIGN, .kc = 144, .task_m = 512, .wishes = true, .streams = FINISH_STREAMS,
    .pack_a = pack_a, .pack_b = pack_b,
    .tile = tile, .finish = finish, .enter = orth_tiles_configure, .leave = orth_tiles_release,
};

/* One row of 32 k times 32 x 16, with signs, sizes and denormals mixed, on top of a started chain. */
bool orth_gemm_amx_selfcheck(void)
{
    orth_bf16 a[16][32] __attribute__((aligned(64))) = {{0}}, b[16][16][2] __attribute__((aligned(64)));
    float c[16][16] __attribute__((aligned(64))) = {{0}};
    uint32_t x = 2463534242u;
    for (int k = 0; k < 32; k++) {
        for (int n = -1; n < 16; n++) {
            x = x * 1664525u + 1013904223u;
            const uint32_t exponent = k % 8 == 7 && n % 5 == 4 ? 0 : 118 + (x >> 20) % 16;
            const orth_bf16 h = (orth_bf16)((x >> 16 & 0x807f) | exponent << 7);
            *(n < 0 ? &a[0][k] : &b[k / 2][n][k % 2]) = h;
        }
    }
    for (int n = 0; n < 16; n++)
        c[0][n] = 0x1p-5f * (float)(n - 8) / 3.0f;
    orth_tiles_will_read(a);
    orth_tiles_will_read(b);
    orth_tiles_will_read(c);
    orth_tiles_configure();
    _tile_loadd(0, c, 64);
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    float got[16][16] __attribute__((aligned(64)));
    _tile_stored(0, got, 64);
    orth_tiles_release();
    bool same = true;
    for (int n = 0; n < 16; n++) {
        float even = 0.0f, odd = 0.0f;
        for (int k = 0; k < 32; k += 2) {
            even = orth_flushed_fma(orth_bf16_to_f32(a[0][k]), orth_bf16_to_f32(b[k / 2][n][0]), even);
            odd = orth_flushed_fma(orth_bf16_to_f32(a[0][k + 1]), orth_bf16_to_f32(b[k / 2][n][1]), odd);
        }
        float want = orth_flush(c[0][n] + orth_flush(even + odd));
        same = same && memcmp(&want, &got[0][n], 4) == 0;
    }
    return same;
}
