/* gemm_tile_amx.h -- products on AMX tiles: 32 x 32 of C in four tile registers.
 *
 * tmm0..3 are C (2 x 2 of 16 x 16), tmm4, 5 two tiles of A, tmm6, 7 two of B. A step is 32 k, 16 packed rows of each
 * plane. Planes are the pieces of fp32 (gemm_chain.h); bf16 is one. Step after step, plane after plane:
 *   A: [32 lanes][16 dwords]   a tile is 16 lanes of 64 bytes
 *   B: [16 dwords][32 lanes]   a tile is 16 packed rows, stride 128 bytes
 * The arithmetic is in gemm_chain.h. Rows and columns that do not exist are computed on zeros.
 */
#ifndef ORTH_KERNELS_CPU_GEMM_TILE_AMX_H
#define ORTH_KERNELS_CPU_GEMM_TILE_AMX_H

#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/tiles.h"

#define MR 32
#define NR 32
#define ALIGN 16
#define PLANE_BYTES 2048            /* of a step, of either operand */

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

#define TILE_INLINE static inline __attribute__((always_inline))

TILE_INLINE void load_a(const char *a)
{
    _tile_loadd(4, a, 64);
    _tile_loadd(5, a + 1024, 64);
}

TILE_INLINE void load_b(const char *b)
{
    _tile_loadd(6, b, 128);
    _tile_loadd(7, b + 64, 128);
}

TILE_INLINE void multiply(void)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* The six products of pieces in the order of orth_bf16x6_a and _b, of which one operand stays each time. */
TILE_INLINE void multiply_pieces(const char *a, const char *b)
{
    load_a(a);
    load_b(b + 2 * PLANE_BYTES);
    multiply();
    load_b(b + PLANE_BYTES);
    multiply();
    load_a(a + PLANE_BYTES);
    multiply();
    load_b(b);
    multiply();
    load_a(a + 2 * PLANE_BYTES);
    multiply();
    load_a(a);
    multiply();
}

/* planes: a constant. */
TILE_INLINE void tile_of_planes(const orth_gemm_tile *t, const int planes)
{
    const char *a = t->a, *b = t->b;
    const size_t stride = 4 * NR;
    const int64_t step = (int64_t)planes * PLANE_BYTES;
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
    int prefetch = t->prefetch;
    for (int64_t k = 0; k < t->num_rows; k += planes * ALIGN, a += step, b += step) {
        for (const char *end = ahead + planes * 8 * t->ahead.stride; ahead < end; ahead += 64)
            _mm_prefetch(ahead, _MM_HINT_T1);
        for (const int end = ORTH_MIN(t->prefetch_end, prefetch + t->prefetch_step); prefetch < end; prefetch++)
            orth_gemm_ask(t, prefetch);
        if (planes == 1) {
            _tile_loadd(4, a, 64);
            load_b(b);
            _tile_loadd(5, a + 1024, 64);
            multiply();
        } else {
            multiply_pieces(a, b);
        }
    }
    _tile_stored(0, sums, stride);
    _tile_stored(1, sums + 16, stride);
    _tile_stored(2, sums + 16 * NR, stride);
    _tile_stored(3, sums + 16 * NR + 16, stride);
    if (t->num_older)
        merge(t, sums);
}

#endif
