/* gemm.h -- matrix products of Orthant's CPU kernels: C = A B with canonical sums and epilogues.
 *
 * Bits: element (m, n) of a leaf is one chain acc = fma(a[m,k], b[k,n], acc) from 0 in ascending k;
 * leaves are combined as the aligned tree of tensor/parts.h. In bf16, and in fp32 at ORTH_ISA_AMX_BF16X6, the
 * unit of the chain is what the processor's bf16 instruction does with a pair (AVX512_BF16) or 32 (AMX) of k,
 * counted from the start of the leaf (gemm_chain.h); docs/numerics.md says which processors agree. The
 * result never depends on M, N, strides, the tile an element falls in, or the number of threads.
 */
#ifndef ORTH_KERNELS_GEMM_H
#define ORTH_KERNELS_GEMM_H

#include "kernels/op.h"

#define ORTH_GEMM_MAX_ADDENDS 25  /* as many as a gradient may have (program/lower/gradtree.h) */

typedef struct {
    int64_t M, N, K;
    orth_dtype in_type;                /* of A and B: F32, BF16 or F16 */
    const void *a;                     /* A[m,k] at a[m*a_row + k*a_col], in elements */
    int64_t a_row, a_col;
    const void *b;                     /* B[k,n] at b[k*b_row + n*b_col] */
    int64_t b_row, b_col;
    const void *b_packed;              /* the same as orth_gemm_pack_b leaves it, or NULL: it is packed on the way */
    void *c;                           /* C[m,n] at c[m*c_row + n] */
    int64_t c_row;
    orth_dtype c_type;                 /* F32, BF16 or F16 */
    bool c_later;                      /* a hint: c is not read soon, and may be written past the caches */
    orth_split split;                  /* along K */
    int64_t interval;                  /* > 0: a leaf is chains of so many k, by fma at every isa, that are added in
                                          ascending order; 0: one chain */
    /* Epilogue on the fp32 sum v, in this order: */
    const float *bias;                 /* v += bias[n]; NULL: none */
    void *pre;                         /* store v (c_type, c_row) here before act; NULL: none */
    orth_act act;                      /* v = act(v), if act_grad_of is NULL */
    const void *act_grad_of;           /* v *= act'(u), u of c_type at [m*c_row + n]; NULL: none */
    const float *addend[ORTH_GEMM_MAX_ADDENDS]; /* v = addend[i][m*c_row + n] + v, i ascending */
    int32_t num_addends;               /* c may be one of them */
    /* and v += +0 if c is F32, so that a zero has one sign: adding 0 to what was stored leaves its bits. */
} orth_gemm_desc;

/* Runs on ctx->pool. workspace: 64-byte aligned, orth_gemm_workspace_bytes of it. Cannot fail on
 * shapes; M, N or K may be 0 (K = 0: v = 0 before the epilogue). */
orth_status orth_gemm(orth_ctx *ctx, const orth_gemm_desc *g, void *workspace);
size_t orth_gemm_workspace_bytes(const orth_gemm_desc *g, int num_threads, orth_isa isa);

/* Packs B of g once for many products: all whose B, N, K, in_type and split are those of g; M, A and C are theirs.
 * Same bits as without. dst: 64-byte aligned, orth_gemm_packed_bytes of it. 0 bytes: a product with so few rows
 * as g has gains nothing. */
void orth_gemm_pack_b(orth_ctx *ctx, const orth_gemm_desc *g, void *dst);
size_t orth_gemm_packed_bytes(const orth_gemm_desc *g, orth_isa isa);

/* The same, plainly: three loops and the tree. No workspace. */
orth_status orth_gemm_ref(orth_ctx *ctx, const orth_gemm_desc *g);

#endif
