/* gemm.c -- orth_gemm_ref: the product as gemm.h defines it, one element after the other.
 *
 * In bf16 it follows the arithmetic of ctx->isa, so that at any level the fast product has a plain
 * twin that it equals bit for bit.
 */
#include "kernels/gemm.h"

#include "kernels/cpu/gemm_kernels.h"
#include "kernels/gemm_chain.h"

/* Terms [k0, k1) of a leaf. */
static float sum_leaf(const orth_gemm_desc *g, orth_isa isa, const orth_strided *a, const orth_strided *b, int64_t k0, int64_t k1)
{
    if (g->interval == 0)
        return orth_gemm_chain(isa, a, b, k0, k1);
    float acc = 0.0f;
    for (int64_t k = k0, next; k < k1; k = next) {
        next = k1 - k > g->interval ? k + g->interval : k1;
        acc += orth_gemm_chain(ORTH_ISA_BASE, a, b, k, next);
    }
    return acc;
}

/* Aligned tree over the leaves: a binary counter of subtrees (tensor/parts.h). */
static float sum_element(const orth_gemm_desc *g, orth_isa isa, const orth_strided *a, const orth_strided *b)
{
    float stack[64];
    int n = 0;
    int64_t leaves = g->K == 0 ? 0 : orth_split_leaves(&g->split);
    for (int64_t i = 0; i < leaves; i++) {
        float leaf = sum_leaf(g, isa, a, b, orth_split_bound(&g->split, i), orth_split_bound(&g->split, i + 1));
        for (int64_t carry = i; carry & 1; carry >>= 1)
            leaf = stack[--n] + leaf;
        stack[n++] = leaf;
    }
    float acc = n ? stack[--n] : 0.0f;
    while (n)
        acc = stack[--n] + acc; /* cppcheck-suppress uninitvar ; below n all is written */
    return acc;
}

orth_status orth_gemm_ref(orth_ctx *ctx, const orth_gemm_desc *g)
{
    const orth_isa isa = orth_gemm_isa(ctx->isa, g->in_type);
    const size_t size = orth_dtype_bytes(g->in_type);
    for (int64_t m = 0; m < g->M; m++) {
        for (int64_t n = 0; n < g->N; n++) {
            orth_strided a = {(const char *)g->a + (size_t)(m * g->a_row) * size, g->in_type, g->a_col};
            orth_strided b = {(const char *)g->b + (size_t)(n * g->b_col) * size, g->in_type, g->b_row};
            orth_gemm_finish_element(g, m, n, sum_element(g, isa, &a, &b));
        }
    }
    return ORTH_OK;
}
