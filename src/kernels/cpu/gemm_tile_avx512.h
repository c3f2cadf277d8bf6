/* gemm_tile_avx512.h -- the tile of 8 x 48 on 512-bit registers, written once for fp32 and bf16.
 *
 * The includer defines GEMM_DOT(acc, a, b), one step of 16 chains on dwords, and GEMM_TILE, the name.
 * 24 accumulators, 3 vectors of B and one broadcast of A: 28 of 32 registers, 11 loads for 24 sums.
 * Narrower edges have copies of their own, so that a product with one row costs one row.
 */
#include <immintrin.h>

#define MR 8
#define NV 3
#define NR (16 * NV)

typedef void (*tile_shape_fn)(const float *a, const float *b, int64_t num_rows, bool resume, float *to,
                              int num_merges);

static inline __attribute__((always_inline)) void tile_shape(const int R, const int V, const float *a,
                                                             const float *b, int64_t num_rows, bool resume,
                                                             float *to, int num_merges)
{
    __m512 acc[MR][NV];
    const float *from = to + num_merges * MR * NR;
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++)
            acc[r][v] = resume ? _mm512_load_ps(from + r * NR + 16 * v) : _mm512_setzero_ps();
    for (int64_t k = 0; k < num_rows; k++, a += MR, b += NR) {
        __m512 bv[NV];
#pragma GCC unroll 3
        for (int v = 0; v < V; v++)
            bv[v] = _mm512_load_ps(b + 16 * v);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            __m512 ar = _mm512_set1_ps(a[r]);
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

#define SHAPE(R, V)                                                                                      \
    static void tile_##R##_##V(const float *a, const float *b, int64_t num_rows, bool resume, float *to, \
                               int num_merges)                                                           \
    {                                                                                                    \
        tile_shape(R, V, a, b, num_rows, resume, to, num_merges);                                        \
    }
#define SHAPES(R) SHAPE(R, 1) SHAPE(R, 2) SHAPE(R, 3)
SHAPES(1) SHAPES(2) SHAPES(3) SHAPES(4) SHAPES(5) SHAPES(6) SHAPES(7) SHAPES(8)

static void GEMM_TILE(const void *a, const void *b, int64_t num_rows, bool resume, float *to, int num_merges,
                      int m, int n)
{
#define ROW(R) {tile_##R##_1, tile_##R##_2, tile_##R##_3}
    static const tile_shape_fn shapes[MR][NV] = {ROW(1), ROW(2), ROW(3), ROW(4),
                                                 ROW(5), ROW(6), ROW(7), ROW(8)};
#undef ROW
    shapes[m - 1][(n - 1) / 16](a, b, num_rows, resume, to, num_merges);
}
