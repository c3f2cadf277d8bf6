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

typedef void (*tile_shape_fn)(const orth_gemm_tile *t);

/* The dword at p in all lanes; the rows of unpacked bf16 may begin at odd elements. */
static inline __attribute__((always_inline)) __m512 tile_dword(const char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_ps(x);
}

/* One packed row. */
#define TILE_STEP()                                                         \
    do {                                                                    \
        __m512 bv[NV];                                                      \
        _Pragma("GCC unroll 3") for (int v = 0; v < V; v++)                 \
            bv[v] = _mm512_load_ps(b + 64 * v);                             \
        _Pragma("GCC unroll 8") for (int r = 0; r < R; r++) {               \
            __m512 ar = tile_dword((r < 4 ? low : high) + r % 4 * row);     \
            _Pragma("GCC unroll 3") for (int v = 0; v < V; v++)             \
                acc[r][v] = GEMM_DOT(acc[r][v], ar, bv[v]);                 \
        }                                                                   \
        low += step, high += step, b += 4 * NR;                             \
    } while (0)

static inline __attribute__((always_inline)) void tile_shape(const int R, const int V, const bool packed,
                                                             const orth_gemm_tile *t)
{
    __m512 acc[MR][NV];
    const int64_t row = packed ? 4 : t->a_stride, step = packed ? 4 * MR : 4;
    const char *low = t->a, *high = t->a + 4 * row, *b = t->b;
    orth_gemm_ahead ahead = t->ahead;
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++)
            acc[r][v] = t->from ? _mm512_load_ps(t->from + r * NR + 16 * v) : _mm512_setzero_ps();
    for (int64_t k = t->num_rows; k > 0; k -= 16, ahead.at += ahead.step) {
        const char *line = ahead.at, *end = b + 4 * NR * (ORTH_MIN(k, 16) & ~1);
        for (; b < end; line += ahead.stride) {
            _mm_prefetch(line, _MM_HINT_T1);
            TILE_STEP();
            TILE_STEP();
        }
        if (k % 2 && k < 16)
            TILE_STEP();
    }
    for (int i = 0; i < t->num_older; i++)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
#pragma GCC unroll 3
            for (int v = 0; v < V; v++)
                acc[r][v] = _mm512_add_ps(_mm512_load_ps(t->older[i] + r * NR + 16 * v), acc[r][v]);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int v = 0; v < V; v++)
            _mm512_store_ps(t->to + r * NR + 16 * v, acc[r][v]);
}

#define SHAPE(R, V, P)                                        \
    static void tile_##R##_##V##_##P(const orth_gemm_tile *t) \
    {                                                         \
        tile_shape(R, V, P, t);                               \
    }
#define SHAPES(R) SHAPE(R, 1, 0) SHAPE(R, 2, 0) SHAPE(R, 3, 0) SHAPE(R, 1, 1) SHAPE(R, 2, 1) SHAPE(R, 3, 1)
SHAPES(1) SHAPES(2) SHAPES(3) SHAPES(4) SHAPES(5) SHAPES(6) SHAPES(7) SHAPES(8)

static void GEMM_TILE(const orth_gemm_tile *t)
{
#define ROW(R) {{tile_##R##_1_0, tile_##R##_2_0, tile_##R##_3_0}, {tile_##R##_1_1, tile_##R##_2_1, tile_##R##_3_1}}
    static const tile_shape_fn shapes[MR][2][NV] = {ROW(1), ROW(2), ROW(3), ROW(4),
                                                    ROW(5), ROW(6), ROW(7), ROW(8)};
#undef ROW
    shapes[t->m - 1][t->a_stride == 0][(t->n - 1) / 16](t);
}
