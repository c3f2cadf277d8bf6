/* gemm_chain.h -- one element of a product in plain C: its chain at each instruction set, its epilogue.
 *
 * fp32, and bf16 where there is no bf16 instruction: acc = fma(a[k], b[k], acc), k ascending.
 * AVX512_BF16 (vdpbf16ps): for each pair, an fma with the odd k, then one with the even k; denormal
 *   inputs and results are zero, rounding to nearest even. Checked bit for bit on Zen 5.
 * AMX (tdpbf16ps): for each 32 k, two chains from 0 over the even and the odd k, their sum added to
 *   acc; denormals as above. Source of both: Intel SDM, volume 2.
 * Odd ends are filled with zeros.
 */
#ifndef ORTH_KERNELS_GEMM_CHAIN_H
#define ORTH_KERNELS_GEMM_CHAIN_H

#include "kernels/gemm.h"
#include "kernels/mathf.h"

static inline float orth_flush(float x)
{
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

/* Flushed is what 24 bits without a limit of the exponent would leave below 2^-126. fmaf has rounded near there
 * to a multiple of 2^-149 and may have reached 2^-126; the sum in double is exact enough to tell. */
static inline float orth_flushed_fma(float a, float b, float c)
{
    a = orth_flush(a);
    b = orth_flush(b);
    const float r = __builtin_fmaf(a, b, c);
    const bool rounded_up = __builtin_fabsf(r) == 0x1p-126f &&
                            __builtin_fabs((double)a * (double)b + (double)c) < 0x1p-126 - 0x1p-151;
    return rounded_up ? __builtin_copysignf(0.0f, r) : orth_flush(r);
}

/* One strided vector of bf16 or fp32. */
typedef struct {
    const void *data;
    orth_dtype type;
    int64_t stride;
} orth_strided;

/* Element k, or 0 at and past `end`. */
static inline float orth_strided_at(const orth_strided *v, int64_t k, int64_t end)
{
    return k < end ? orth_load_f32(v->data, v->type, k * v->stride) : 0.0f;
}

/* The leaf [k0, k1) of sum over k of a[k] b[k] at `isa`. */
static inline float orth_gemm_chain(orth_isa isa, const orth_strided *a, const orth_strided *b, int64_t k0,
                                    int64_t k1)
{
    float acc = 0.0f;
    if (a->type == ORTH_F32 || isa < ORTH_ISA_AVX512BF16) {
        for (int64_t k = k0; k < k1; k++)
            acc = __builtin_fmaf(orth_strided_at(a, k, k1), orth_strided_at(b, k, k1), acc);
        return acc;
    }
    if (isa == ORTH_ISA_AVX512BF16) {
        for (int64_t k = k0; k < k1; k += 2) {
            acc = orth_flushed_fma(orth_strided_at(a, k + 1, k1), orth_strided_at(b, k + 1, k1), acc);
            acc = orth_flushed_fma(orth_strided_at(a, k, k1), orth_strided_at(b, k, k1), acc);
        }
        return acc;
    }
    for (int64_t k = k0; k < k1; k += 32) {
        float even = 0.0f, odd = 0.0f;
        for (int64_t i = k; i < k + 32; i += 2) {
            even = orth_flushed_fma(orth_strided_at(a, i, k1), orth_strided_at(b, i, k1), even);
            odd = orth_flushed_fma(orth_strided_at(a, i + 1, k1), orth_strided_at(b, i + 1, k1), odd);
        }
        acc = orth_flush(acc + orth_flush(even + odd));
    }
    return acc;
}

/* Epilogue of element (m, n), whose sum is v. */
static inline void orth_gemm_finish_element(const orth_gemm_desc *g, int64_t m, int64_t n, float v)
{
    const int64_t at = m * g->c_row + n;
    if (g->bias)
        v += g->bias[n];
    if (g->pre)
        orth_store_f32(g->pre, g->c_type, at, v);
    if (g->act_grad_of)
        v *= orth_act_grad(g->act, orth_load_f32(g->act_grad_of, g->c_type, at));
    else if (g->act != ORTH_ACT_NONE)
        v = orth_act_apply(g->act, v);
    for (int i = 0; i < g->num_addends; i++)
        v = g->addend[i][at] + v;
    orth_store_f32(g->c, g->c_type, at, g->c_type == ORTH_F32 ? v + 0.0f : v);
}

#endif
