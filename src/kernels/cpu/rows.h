/* rows.h -- the inner loops of the pointwise kernels, one table per instruction set.
 *
 * The op files of this folder cut the work into tasks and call these; rows_<isa>.c compile the same
 * bodies (rows_*_body.h) for each instruction set. All tables give the same bits. `type` is that of the activations:
 * fp32, bf16, fp16. Pointers need no alignment.
 */
#ifndef ORTH_KERNELS_CPU_ROWS_H
#define ORTH_KERNELS_CPU_ROWS_H

#include "kernels/optim.h"
#include "kernels/sums.h"
#include "tensor/q8.h"

static inline size_t rows_bytes(orth_dtype type)
{
    return type == ORTH_F32 ? 4 : 2;
}

typedef struct {
    const void *x, *res;   /* [N,C]; res may be NULL */
    const float *gain, *shift; /* [C]; shift may be NULL */
    void *y, *sum;         /* [N,C]; sum may be NULL when res is */
    float *stats;          /* [N,2] */
    int64_t C;
    float eps;
    orth_dtype type;
    bool centred;          /* LayerNorm */
} rows_norm_args;

typedef struct {
    const void *dy, *sum, *dres; /* [N,C]; dres may be NULL */
    const float *stats, *gain;
    void *dx;
    int64_t C;
    orth_dtype type;
    bool centred;
} rows_norm_bwd_args;

typedef struct {
    const float *logits;   /* [N,V] */
    const int32_t *target;
    const float *weight;
    float *nll, loss_scale;
    void *dlogits;         /* NULL in evaluation */
    int64_t V;
    orth_split split;
    orth_dtype type;       /* of dlogits */
    int64_t first_row;     /* of the slice of the vocabulary; 0 in softmax_xent */
    float *max, *sums;     /* [N], [N,2]: what the steps on a slice hand on */
} rows_xent_args;

typedef struct {
    orth_optim_values o;
    const float *g;
    float *p, *m, *v;      /* m: NULL where sgd has no momentum */
    void *copy;            /* NULL: none */
    orth_dtype copy_type;  /* BF16, F16 */
} rows_optim_args;

typedef struct {
    /* dst = a + b, rounded to the type. */
    void (*add)(void *dst, const void *a, const void *b, int64_t n, orth_dtype type);
    /* dst += src, dst fp32. */
    void (*accumulate)(float *dst, const void *src, int64_t n, orth_dtype type);
    /* dst[c] = chain from 0 over rows r of src[r*stride + c]. */
    void (*column_sums)(float *dst, const void *src, int64_t stride, int64_t rows, int64_t n, orth_dtype type);
    void (*cast)(void *dst, const float *src, int64_t n, orth_dtype type);
    void (*widen)(float *dst, const void *src, int64_t n, orth_dtype type);
    /* n numbers, in blocks. */
    void (*cast_int8)(orth_q8 *dst, const float *src, int64_t n);
    void (*widen_int8)(float *dst, const orth_q8 *src, int64_t n);
    /* y = v + bias, rounded to the type; bias may be NULL, y may be v. */
    void (*round_bias)(void *y, const float *v, const float *bias, int64_t n, orth_dtype type);
    /* Past the caches where that can be done. */
    void (*zero)(float *dst, int64_t n);
    void (*swiglu)(void *a, const void *h, int64_t n, orth_dtype type);
    void (*swiglu_bwd)(void *dh, const void *da, const void *h, int64_t n, orth_dtype type);
    /* One row; lo is orth_dropout_lo of its first column. */
    void (*dropout)(void *y, const void *x, int64_t n, orth_dtype type, float rate, uint64_t seed, uint64_t hi,
                    uint64_t lo);
    /* Rows [begin, end). */
    void (*norm)(const rows_norm_args *a, int64_t begin, int64_t end);
    void (*norm_bwd)(const rows_norm_bwd_args *a, int64_t begin, int64_t end);
    /* The same, adding each row to the chains dgain[C] and dshift[C] (NULL: none) on the way. */
    void (*norm_bwd_sums)(const rows_norm_bwd_args *a, int64_t begin, int64_t end, float *dgain,
                          float *dshift);
    /* Only the chains from 0, of columns [first, first + n). */
    void (*norm_bwd_columns)(const rows_norm_bwd_args *a, int64_t begin, int64_t end, int64_t first,
                             int64_t n, float *dgain, float *dshift);
    /* scratch [V]: needed if dlogits is of 16 bits. */
    void (*softmax_xent)(const rows_xent_args *a, int64_t row, float *scratch);
    void (*xent_max)(const rows_xent_args *a, int64_t row);
    void (*xent_sum)(const rows_xent_args *a, int64_t row);
    void (*xent_grad)(const rows_xent_args *a, int64_t row);
    /* Of rows of n elements, stride apart, one after the other: the bits are those of the same contiguous. */
    double (*sum_squares)(const float *g, int64_t stride, int64_t rows, int64_t n);
    /* Largest magnitude; NaN does not count. */
    float (*amax)(const void *x, int64_t n, orth_dtype type);
    /* orth_float8_saturate of x * scale; E2M1: one to a byte. */
    void (*quantize)(uint8_t *q, const void *x, int64_t n, orth_dtype type, float scale, orth_float8 to);
    /* Elements [begin, begin + n). */
    void (*adamw)(const rows_optim_args *a, int64_t begin, int64_t n);
    void (*adam)(const rows_optim_args *a, int64_t begin, int64_t n);
    void (*sgd)(const rows_optim_args *a, int64_t begin, int64_t n);
} orth_rows;

extern const orth_rows orth_rows_base;
#if defined(__x86_64__)
extern const orth_rows orth_rows_avx2, orth_rows_avx512;
#endif

static inline const orth_rows *orth_rows_for(orth_isa isa)
{
#if defined(__x86_64__)
    if (isa >= ORTH_ISA_AVX512)
        return &orth_rows_avx512;
    if (isa >= ORTH_ISA_AVX2)
        return &orth_rows_avx2;
#endif
    (void)isa;
    return &orth_rows_base;
}

#endif
