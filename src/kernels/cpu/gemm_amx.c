/* gemm_amx.c -- bf16 matrix product kernels on AMX tiles; see gemm_tile_amx.h. */
#define FINISH_STREAMS 1
#include "kernels/cpu/gemm_finish_avx512.h"
#include "kernels/cpu/gemm_pack_avx512.h"
#include "kernels/cpu/gemm_tile_amx.h"
#include "kernels/gemm_chain.h"

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

static void tile(const orth_gemm_tile *t)
{
    tile_of_planes(t, 1);
}

const orth_gemm_kernels orth_gemm_amx_bf16 = {
    .mr = MR, .nr = NR, .unit = 2, .planes = 1, .align = ALIGN, .kc = 144, .task_m = 512,
    .prefetches = true, .streams = FINISH_STREAMS,
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
        float row[32], col[32];
        for (int k = 0; k < 32; k++) {
            row[k] = orth_bf16_to_f32(a[0][k]);
            col[k] = orth_bf16_to_f32(b[k / 2][n][k % 2]);
        }
        const float want = orth_amx_step(c[0][n], row, col);
        same = same && memcmp(&want, &got[0][n], 4) == 0;
    }
    return same;
}
