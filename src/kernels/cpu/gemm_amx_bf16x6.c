/* gemm_amx_bf16x6.c -- fp32 matrix product kernels on AMX tiles of bf16; see gemm_tile_amx.h, bf16x6 in gemm_chain.h.
 *
 * Packing splits a block of 32 k of 16 lanes: A is wanted by lanes, B by k, and a source that lies the other way is
 * transposed before it is split, when it is two thirds as much.
 */
#define FINISH_STREAMS 1
#include "kernels/cpu/gemm_finish_avx512.h"
#include "kernels/cpu/bf16x3_avx512.h"
#include "kernels/cpu/gemm_pack_avx512.h"
#include "kernels/cpu/gemm_tile_amx.h"

#define STEP 32                     /* k */
#define PLANES 3

/* 16 x 16 of memory, as many as exist; row r at src + r * stride. */
PACK_INLINE void load_square(__m512i x[16], const float *src, int64_t stride, int rows, int cols)
{
    const __mmask16 mask = (__mmask16)pack_mask(cols, 16);
    for (int r = 0; r < 16; r++)
        x[r] = r < rows ? _mm512_maskz_loadu_epi32(mask, src + r * stride) : _mm512_setzero_si512();
}

/* Neither way contiguous: x[r][c] = src[r * row_stride + c * col_stride]. */
static void gather_square(__m512i x[16], const float *src, int64_t row_stride, int64_t col_stride, int rows, int cols)
{
    float plain[16][16] = {{0}};
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            plain[r][c] = src[r * row_stride + c * col_stride];
    load_square(x, plain[0], 16, 16, 16);
}

/* x[r]: line r of 16, `across` of which exist; in it the 16 elements from `along` on one after the other. */
PACK_INLINE void load_lines(__m512i x[16], const float *src, int64_t line_stride, int64_t stride, int64_t lines,
                            int64_t along)
{
    const int rows = (int)ORTH_MAX(0, ORTH_MIN(16, lines)), cols = (int)ORTH_MAX(0, ORTH_MIN(16, along));
    if (stride == 1) {
        load_square(x, src, line_stride, rows, cols);
    } else if (line_stride == 1) {
        load_square(x, src, stride, cols, rows);
        pack_transpose(x);
    } else {
        gather_square(x, src, line_stride, stride, rows, cols);
    }
}

/* 16 lanes of A, whose k are lines. */
PACK_INLINE void pack_a_step(char *to, const float *src, int64_t lane_stride, int64_t k_stride, int64_t lanes,
                             int64_t left)
{
    __m512i low[16], high[16], piece[PLANES], pair[PLANES];
    load_lines(low, src, lane_stride, k_stride, lanes, left);
    load_lines(high, left > 16 ? src + 16 * k_stride : src, lane_stride, k_stride, lanes, left - 16);
    for (int w = 0; w < 16; w++) {
        bf16x3_split(_mm512_castsi512_ps(low[w]), _mm512_castsi512_ps(high[w]), piece, pair);
        for (int p = 0; p < PLANES; p++)
            _mm512_storeu_si512(to + p * PLANE_BYTES + 64 * w, piece[p]);
    }
}

/* 16 lanes of B, which are the lines. */
PACK_INLINE void pack_b_step(char *to, const float *src, int64_t lane_stride, int64_t k_stride, int64_t lanes,
                             int64_t left)
{
    for (int half = 0; half < 2; half++, src += left > 16 ? 16 * k_stride : 0, left -= 16, to += PLANE_BYTES / 2) {
        __m512i x[16], row[PLANES], piece[PLANES];
        load_lines(x, src, k_stride, lane_stride, left, lanes);
        for (int r = 0; r < 8; r++) {
            bf16x3_split(_mm512_castsi512_ps(x[2 * r]), _mm512_castsi512_ps(x[2 * r + 1]), row, piece);
            for (int p = 0; p < PLANES; p++)
                _mm512_storeu_si512(to + p * PLANE_BYTES + 128 * r, piece[p]);
        }
    }
}

typedef void (*step_fn)(char *to, const float *src, int64_t lane_stride, int64_t k_stride, int64_t lanes, int64_t left);

/* In the order of memory. half_bytes: from the first 16 lanes of a panel to the others. */
PACK_INLINE void pack(const step_fn pack_step, size_t half_bytes, char *dst, size_t panel_bytes, const float *src,
                      int64_t lane_stride, int64_t k_stride, int64_t lanes, int64_t len)
{
    const int64_t groups = orth_round_up(lanes, MR) / 16, steps = orth_div_up(len, STEP);
    for (int64_t i = 0; i < groups * steps; i++) {
        const int64_t w = 16 * (lane_stride == 1 ? i % groups : i / steps);
        const int64_t step = lane_stride == 1 ? i / groups : i % steps, k = STEP * step;
        char *to = dst + panel_bytes * (size_t)(w / MR) + half_bytes * (size_t)(w % MR / 16);
        pack_step(to + step * PLANES * PLANE_BYTES, src + (w < lanes ? w * lane_stride : 0) + k * k_stride, lane_stride,
                  k_stride, lanes - w, len - k);
    }
}

static void pack_a(void *dst, size_t panel_bytes, const void *src, int64_t lane_stride, int64_t k_stride, int64_t lanes,
                   int64_t len)
{
    pack(pack_a_step, PLANE_BYTES / 2, dst, panel_bytes, src, lane_stride, k_stride, lanes, len);
}

static void pack_b(void *dst, size_t panel_bytes, const void *src, int64_t lane_stride, int64_t k_stride, int64_t lanes,
                   int64_t len)
{
    pack(pack_b_step, 64, dst, panel_bytes, src, lane_stride, k_stride, lanes, len);
}

static void tile(const orth_gemm_tile *t)
{
    tile_of_planes(t, PLANES);
}

const orth_gemm_kernels orth_gemm_amx_bf16x6 = {
    .mr = MR, .nr = NR, .unit = 2, .planes = PLANES, .align = PLANES * ALIGN, .kc = 144, .task_m = 512, .prefetches = true,
    .streams = FINISH_STREAMS, .pack_a = pack_a, .pack_b = pack_b,
    .tile = tile, .finish = finish, .enter = orth_tiles_configure, .leave = orth_tiles_release,
};
