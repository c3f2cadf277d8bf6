/* onednn.h -- matrix products of fixed sizes through oneDNN's C API, each call on the calling thread alone.
 *
 * Everything is created in set-up, memory objects of every thread included: a call only fills in
 * addresses. (oneDNN itself takes a few hundred bytes from the heap for the arguments of a call.)
 */
#ifndef ORTH_KERNELS_CPU_ONEDNN_H
#define ORTH_KERNELS_CPU_ONEDNN_H

#include "base/ctx.h"
#include "tensor/tensor.h"

typedef struct orth_onednn orth_onednn;                 /* engine and streams; one per rank */
typedef struct orth_onednn_product orth_onednn_product;

/* C[M,N] = A[M,K] B[K,N] (+ bias[N]); strides in elements, columns of C contiguous. */
typedef struct {
    int64_t M, N, K;
    orth_dtype in_type, out_type;
    int64_t a_row, a_col, b_row, b_col, c_row;
    bool bias;                                          /* fp32 */
} orth_onednn_shape;

/* "oneDNN 2.6.3" */
void orth_onednn_version(char *out, size_t num_bytes);

/* ORTH_ERR_NOMEM; *out only on success. */
orth_status orth_onednn_create(orth_ctx *ctx, orth_onednn **out, int num_threads);
void orth_onednn_destroy(orth_ctx *ctx, orth_onednn *e);          /* NULL is fine */

/* *out is NULL where oneDNN has no such product (2.6 on Arm: bf16). ORTH_ERR_NOMEM. */
orth_status orth_onednn_product_create(orth_ctx *ctx, orth_onednn *e, orth_onednn_product **out,
                                       const orth_onednn_shape *shape);
void orth_onednn_product_destroy(orth_ctx *ctx, orth_onednn_product *p); /* NULL is fine */

/* Scratch that a call needs, 64-byte aligned. */
size_t orth_onednn_scratch_bytes(const orth_onednn_product *p);

/* By thread `worker` of the engine's num_threads; several may run the same product. */
orth_status orth_onednn_run(const orth_onednn_product *p, int worker, const void *a, const void *b,
                            const float *bias, void *c, void *scratch);

#endif
