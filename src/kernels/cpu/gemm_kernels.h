/* gemm_kernels.h -- what an instruction set gives to the matrix product: a tile, two packers, an epilogue.
 *
 * A *dword* is 4 bytes of a packed operand: one fp32, or two bf16 with neighbouring k. `unit` k make
 * a dword, so fp32 and bf16 differ in the instruction of the tile only. A *packed row* holds one
 * dword of all lanes of a panel: mr rows of C (operand A) or nr columns (B). fp32 in pieces has as many
 * packed rows for the same k as there are pieces (`planes`).
 * Every leaf of the contraction starts on a new packed row and is filled up with zeros to `align`
 * rows, so the chain of an element never depends on where the leaf lies. 0 * 0 added to a chain
 * that started at +0 leaves its bits alone.
 *
 * A tile's sums are kept in *slots* of mr*nr floats, row-major: slot 0 the left-most finished subtree of
 * the aligned tree (tensor/parts.h), then smaller ones, then the leaf at work.
 */
#ifndef ORTH_KERNELS_CPU_GEMM_KERNELS_H
#define ORTH_KERNELS_CPU_GEMM_KERNELS_H

#include "kernels/gemm.h"

#define ORTH_GEMM_MAX_OLDER 64      /* trees of up to 2^32 blocks, of 64 leaves each */

/* Packs k in [0, len) of `lanes` lanes into neighbouring panels, panel_bytes apart; lane w, index k is
 * src[w*lane_stride + k*k_stride]. Writes whole rows (planes * ceil(len/unit), rounded up to align) of whole
 * panels; lanes and k that do not exist are 0. */
typedef void (*orth_gemm_pack_fn)(void *dst, size_t panel_bytes, const void *src, int64_t lane_stride,
                                  int64_t k_stride, int64_t lanes, int64_t len);

/* Memory to ask for meanwhile: packed rows 2q and 2q+1 ask for the line of at + q%8 * stride + q/8 * step. */
typedef struct {
    const char *at;
    int64_t stride, step;
} orth_gemm_ahead;

/* Rows of memory that are used soon, as many as rows of C: row r is `bytes` at at + r*stride. */
typedef struct {
    const char *at;
    int64_t stride, bytes;
} orth_gemm_prefetch;

/* One call of a tile: adds num_rows packed rows (0 is fine) of panels a, b to its chains, then the older
 * subtrees on the left, and stores the sums. */
typedef struct {
    const char *a, *b;
    int64_t a_stride;               /* 0, or A is not packed: bytes from one of its rows to the next */
    int64_t num_rows;
    const float *from;              /* the slot where the chains go on; NULL: from 0 */
    const float *older[ORTH_GEMM_MAX_OLDER]; /* slots that are added on the left, in this order */
    int num_older;
    float *to;                      /* may be any of these slots */
    int m, n;                       /* how much of the tile is needed */
    orth_gemm_ahead ahead;          /* what is read after this tile; a kernel may leave it */
    /* Kernels that take prefetches (.prefetches) ask for rows [prefetch, prefetch_end), prefetch_step of them in `align` packed rows. */
    const orth_gemm_prefetch *prefetches;
    int num_prefetches;
    int prefetch, prefetch_end, prefetch_step;
} orth_gemm_tile;

/* Asks for row `row` of all prefetches, so that it is in the L2 when it is used. Always inline: GCC drops calls of a function
 * that does nothing but prefetch. */
static inline __attribute__((always_inline)) void orth_gemm_ask(const orth_gemm_tile *t, int row)
{
    for (int i = 0; i < t->num_prefetches; i++)
        for (int64_t at = t->prefetches[i].bytes - 1; at >= 0; at -= 64)
            __builtin_prefetch(t->prefetches[i].at + row * t->prefetches[i].stride + at, 0, 2);
}

/* Epilogues that write past the caches (.streams) do it with this product: it only stores, whole lines. */
static inline bool orth_gemm_past_caches(const orth_gemm_desc *g)
{
    return g->c_later && g->c_type == ORTH_F32 && g->c_row % 16 == 0 && (uintptr_t)g->c % 64 == 0 && !g->bias &&
           !g->pre && g->act == ORTH_ACT_NONE && g->num_addends == 0;
}

typedef void (*orth_gemm_tile_fn)(const orth_gemm_tile *t);

/* Epilogue of g for C[m0.., n0..] (m x n) from finished sums, whose rows are `stride` floats apart. */
typedef void (*orth_gemm_finish_fn)(const orth_gemm_desc *g, const float *sums, int64_t stride, int64_t m0,
                                    int64_t n0, int m, int n);

typedef struct {
    int mr, nr;                     /* tile */
    int unit;                       /* k in a dword */
    int planes;                     /* dwords that have them: pieces of fp32 in bf16, else 1 */
    int align;                      /* packed rows of a leaf are a multiple of it */
    int kc;                         /* packed rows that are worked through at once */
    int task_m;                     /* rows of C that share what is read of B, where A is packed */
    bool prefetches;                    /* the tile asks for prefetches on its way; others: all is asked for before it */
    bool streams;                   /* the epilogue writes past the caches where orth_gemm_past_caches says so */
    bool unpacked_a;                /* the tile takes A as it lies, where K is contiguous */
    orth_gemm_pack_fn pack_a, pack_b;
    orth_gemm_tile_fn tile;
    orth_gemm_finish_fn finish;
    void (*enter)(void), (*leave)(void); /* around a run of tiles on one thread; may be NULL */
} orth_gemm_kernels;

extern const orth_gemm_kernels orth_gemm_base_f32, orth_gemm_base_bf16, orth_gemm_base_f16;
#if defined(__x86_64__)
extern const orth_gemm_kernels orth_gemm_avx2_f32, orth_gemm_avx2_bf16, orth_gemm_avx2_f16;
extern const orth_gemm_kernels orth_gemm_avx512_f32, orth_gemm_avx512_bf16, orth_gemm_avx512_f16;
extern const orth_gemm_kernels orth_gemm_avx512bf16_bf16;
extern const orth_gemm_kernels orth_gemm_amx_bf16, orth_gemm_amx_bf16x6;
/* True if the tile instructions compute what orth_gemm_chain (gemm_chain.h) says they do. Cheap (a
 * few microseconds), so it is asked anew for each product instead of being remembered somewhere. */
bool orth_gemm_amx_selfcheck(void);
#endif

/* The instruction set whose bits orth_gemm and orth_gemm_ref give for this type under `isa`. */
orth_isa orth_gemm_isa(orth_isa isa, orth_dtype in_type);
const orth_gemm_kernels *orth_gemm_kernels_for(orth_isa isa, orth_dtype in_type);
/* Of a product: chains with an interval are fp32 fma at every isa. */
const orth_gemm_kernels *orth_gemm_kernels_of(const orth_gemm_desc *g, orth_isa isa);

#endif
