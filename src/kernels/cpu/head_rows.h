/* head_rows.h -- loops over one head of one row, for rope and head_norm: a table per instruction set. */
#ifndef ORTH_KERNELS_CPU_HEAD_ROWS_H
#define ORTH_KERNELS_CPU_HEAD_ROWS_H

#include "kernels/attention.h"

typedef struct {
    /* out may be x. `sign` of the angle: 1 or -1. */
    void (*rotate)(void *out, const void *x, const float *cos, const float *sin, int half, float sign,
                   orth_dtype type);
    /* Returns 1/rms. out may be x. */
    float (*norm)(void *out, const void *x, const float *gain, int D, float eps, orth_dtype type);
    void (*norm_bwd)(void *dx, const void *dy, const void *x, const float *gain, float rstd, int D,
                     orth_dtype type);
    /* acc[i] = fma(dy[i], x[i]*rstd, acc[i]) for n <= 16 columns. */
    void (*gain_bwd)(float *acc, const void *dy, const void *x, float rstd, int n, orth_dtype type);
} orth_head_rows;

extern const orth_head_rows orth_head_rows_base;
extern const orth_head_rows orth_head_rows_avx2;
extern const orth_head_rows orth_head_rows_avx512;

const orth_head_rows *orth_head_rows_for(orth_isa isa);

/* Column of head j of H + KV, query heads first. */
static inline int64_t orth_head_col(const orth_attr *a, int j)
{
    return j < a->heads ? orth_attn_q_col(a, j) : orth_attn_k_col(a, j - a->heads);
}

#endif
