/* gemm_tile_avx512.h -- the tile of 8 x 48 on 512-bit registers, written once for fp32 and bf16.
 *
 * The includer defines GEMM_DOT(acc, a, b), one step of 16 chains on dwords, and GEMM_TILE, the name.
 * 24 accumulators, 3 vectors of B and one broadcast of A: 28 of 32 registers, 11 loads for 24 sums.
 * Narrower edges have copies of their own, so that a product with one row costs one row; so have packed
 * and unpacked A.
 */
#include <immintrin.h>

#define MR 8
#define NV 3
#define NR (16 * NV)

typedef void (*tile_shape_fn)(const char *a, int64_t a_stride, const float *b, int64_t num_rows, bool resume,
                              float *to, int num_merges);

/* The dword at p in all lanes; the rows of unpacked bf16 may begin at odd elements. */
static inline __attribute__((always_inline)) __m512 tile_dword(const char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_ps(x);
}

static inline __attribute__((always_inline)) void tile_shape(const int R, const int V, const bool packed,
                                                             const char *a, int64_t a_stride, const float *b,
                                                             int64_t num_rows, bool resume, float *to,
                                                             int num_merges)
{
    __m512 acc[MR][NV];
    const float *from = to + num_merges * MR * NR;
    const int64_t row = packed ? 4 : a_stride, step = packed ? 4 * MR : 4;
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++)
            acc[r][v] = resume ? _mm512_load_ps(from + r * NR + 16 * v) : _mm512_setzero_ps();
    for (int64_t k = 0; k < num_rows; k++, a += step, b += NR) {
        __m512 bv[NV];
#pragma GCC unroll 3
        for (int v = 0; v < V; v++)
            bv[v] = _mm512_load_ps(b + 16 * v);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            __m512 ar = tile_dword(a + r * row);
#pragma GCC unroll 3
            for (int v = 0; v < V; v++)
                acc[r][v] = GEMM_DOT(acc[r][v], ar, bv[v]);
        }
    }
    for (int i = num_merges - 1; i >= 0; i--)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
#pragma GCC unroll 3
            for (int v = 0; v < V; v++)
                acc[r][v] = _mm512_add_ps(_mm512_load_ps(to + i * MR * NR + r * NR + 16 * v), acc[r][v]);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++)
            _mm512_store_ps(to + r * NR + 16 * v, acc[r][v]);
}

#define SHAPE(R, V, P)                                                                                       \
    static void tile_##R##_##V##_##P(const char *a, int64_t a_stride, const float *b, int64_t num_rows,       \
                                     bool resume, float *to, int num_merges)                                \
    {                                                                                                        \
        tile_shape(R, V, P, a, a_stride, b, num_rows, resume, to, num_merges);                               \
    }
#define SHAPES(R) SHAPE(R, 1, 0) SHAPE(R, 2, 0) SHAPE(R, 3, 0) SHAPE(R, 1, 1) SHAPE(R, 2, 1) SHAPE(R, 3, 1)
SHAPES(1) SHAPES(2) SHAPES(3) SHAPES(4) SHAPES(5) SHAPES(6) SHAPES(7) SHAPES(8)

static void GEMM_TILE(const void *a, int64_t a_stride, const void *b, int64_t num_rows, bool resume, float *to,
                      int num_merges, int m, int n)
{
#define ROW(R) {{tile_##R##_1_0, tile_##R##_2_0, tile_##R##_3_0}, {tile_##R##_1_1, tile_##R##_2_1, tile_##R##_3_1}}
    static const tile_shape_fn shapes[MR][2][NV] = {ROW(1), ROW(2), ROW(3), ROW(4),
                                                    ROW(5), ROW(6), ROW(7), ROW(8)};
#undef ROW
    shapes[m - 1][a_stride == 0][(n - 1) / 16](a, a_stride, b, num_rows, resume, to, num_merges);
}
