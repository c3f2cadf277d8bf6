/* gemm_chain.h -- one element of a product in plain C: its chain at each instruction set, its epilogue.
 *
 * fp32, fp16, and bf16 where there is no bf16 instruction: acc = fma(a[k], b[k], acc), k ascending.
 * AVX512_BF16 (vdpbf16ps): for each pair, an fma with the odd k, then one with the even k; denormal
 *   inputs and results are zero, rounding to nearest even. Checked bit for bit on Zen 5.
 * AMX (tdpbf16ps): for each 32 k, two chains from 0 over the even and the odd k, their sum added to
 *   acc; denormals as above. Source of both: Intel SDM, volume 2.
 * bf16x6 (fp32 at ORTH_ISA_AMX_BF16X6): a = a0 + a1 + a2, each the rest rounded to bf16, which leaves nothing of a
 *   normal number; b likewise. For each 32 k the step of AMX six times, with (a0, b2), (a0, b1), (a1, b1), (a1, b0),
 *   (a2, b0), (a0, b0). What is left out, a1 b2 + a2 b1 + a2 b2, is about 2^-24 |a b| at most, as much as rounding the
 *   product to fp32 may take. A number that is not finite, or rounds to no bf16 (from 3.396e38 on), gives NaN.
 *   Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
 *   computations", ARITH 2019.
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

/* One strided vector of bf16, fp16 or fp32. */
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

/* piece[0] + piece[1] + piece[2] = x if x is normal and the last piece too. */
static inline void orth_bf16_pieces(float x, float piece[3])
{
    for (int p = 0; p < 3; p++) {
        piece[p] = orth_bf16_to_f32(orth_bf16_from_f32(orth_flush(x)));
        x -= piece[p];
    }
}

#define ORTH_BF16X6 6
static const int orth_bf16x6_a[ORTH_BF16X6] = {0, 0, 1, 1, 2, 0}, orth_bf16x6_b[ORTH_BF16X6] = {2, 1, 1, 0, 0, 0};

/* One step of AMX on 32 terms. */
static inline float orth_amx_step(float acc, const float a[32], const float b[32])
{
    float sum[2] = {0.0f, 0.0f};    /* of the even and of the odd terms */
    for (int k = 0; k < 32; k++)
        sum[k % 2] = orth_flushed_fma(a[k], b[k], sum[k % 2]);
    return orth_flush(acc + orth_flush(sum[0] + sum[1]));
}

/* The same for fp32 in pieces. */
static inline float orth_bf16x6_step(float acc, const float a[32], const float b[32])
{
    float pieces_a[3][32], pieces_b[3][32];
    for (int k = 0; k < 32; k++) {
        float x[3], y[3];
        orth_bf16_pieces(a[k], x);
        orth_bf16_pieces(b[k], y);
        for (int p = 0; p < 3; p++) {
            pieces_a[p][k] = x[p];
            pieces_b[p][k] = y[p];
        }
    }
    for (int i = 0; i < ORTH_BF16X6; i++)
        acc = orth_amx_step(acc, pieces_a[orth_bf16x6_a[i]], pieces_b[orth_bf16x6_b[i]]);
    return acc;
}

/* The leaf [k0, k1) of sum over k of a[k] b[k] at `isa`. */
static inline float orth_gemm_chain(orth_isa isa, const orth_strided *a, const orth_strided *b, int64_t k0,
                                    int64_t k1)
{
    float acc = 0.0f;
    if (a->type == ORTH_F16 || isa < (a->type == ORTH_F32 ? ORTH_ISA_AMX_BF16X6 : ORTH_ISA_AVX512BF16)) {
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
        float x[32], y[32];
        for (int i = 0; i < 32; i++) {
            x[i] = orth_strided_at(a, k + i, k1);
            y[i] = orth_strided_at(b, k + i, k1);
        }
        acc = a->type == ORTH_F32 ? orth_bf16x6_step(acc, x, y) : orth_amx_step(acc, x, y);
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
