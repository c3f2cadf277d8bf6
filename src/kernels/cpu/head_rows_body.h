/* head_rows_body.h -- the functions of orth_head_rows in plain C, compiled once per instruction set.
 *
 * Blocks of 16 elements go through local arrays, so that the compiler may use vectors whatever the
 * pointers alias. The arithmetic is that of ref/rope.c and ref/head_norm.c. No include guard.
 */
#include <math.h>

#include "kernels/cpu/head_rows.h"

#define INLINE static inline __attribute__((always_inline))
#define BLOCK 16

/* The compiler makes vectors of these where the instruction set has conversions. */
#if defined(__F16C__)
#include <immintrin.h>
#define HALF_LOAD(h) _cvtsh_ss(h)
#define HALF_STORE(f) _cvtss_sh((f), _MM_FROUND_TO_NEAREST_INT)
#else
#define HALF_LOAD(h) orth_f16_to_f32(h)
#define HALF_STORE(f) orth_f16_from_f32(f)
#endif

/* Elements [at, at + n) as floats. */
INLINE void get(float *v, const void *x, int at, int n, orth_dtype type)
{
    if (type == ORTH_BF16)
        for (int i = 0; i < n; i++)
            v[i] = orth_bf16_to_f32(((const orth_bf16 *)x)[at + i]);
    else if (type == ORTH_F16)
        for (int i = 0; i < n; i++)
            v[i] = HALF_LOAD(((const orth_f16 *)x)[at + i]);
    else
        for (int i = 0; i < n; i++)
            v[i] = ((const float *)x)[at + i];
}

INLINE void put(void *x, const float *v, int at, int n, orth_dtype type)
{
    if (type == ORTH_BF16)
        for (int i = 0; i < n; i++)
            ((orth_bf16 *)x)[at + i] = orth_bf16_from_f32(v[i]);
    else if (type == ORTH_F16)
        for (int i = 0; i < n; i++)
            ((orth_f16 *)x)[at + i] = HALF_STORE(v[i]);
    else
        for (int i = 0; i < n; i++)
            ((float *)x)[at + i] = v[i];
}

/* Runs `step(args, at, n)` over [0, total) in blocks, the full ones with a constant length. */
#define BLOCKS(total, step, ...) \
    do { \
        int at = 0; \
        for (; at + BLOCK <= (total); at += BLOCK) \
            step(__VA_ARGS__, at, BLOCK); \
        if (at < (total)) \
            step(__VA_ARGS__, at, (total) - at); \
    } while (0)

INLINE void rotate_block(void *out, const void *in, const float *cos, const float *sin, int half, float sign,
                         orth_dtype type, int at, int n)
{
    float x[BLOCK], y[BLOCK], p[BLOCK], q[BLOCK];
    get(x, in, at, n, type);
    get(y, in, half + at, n, type);
    for (int i = 0; i < n; i++) {
        float c = cos[at + i], s = sign * sin[at + i];
        p[i] = __builtin_fmaf(-y[i], s, x[i] * c);
        q[i] = __builtin_fmaf(x[i], s, y[i] * c);
    }
    put(out, p, at, n, type);
    put(out, q, half + at, n, type);
}

static void rotate(void *out, const void *x, const float *cos, const float *sin, int half, float sign,
                   orth_dtype type)
{
    if (type == ORTH_BF16)
        BLOCKS(half, rotate_block, out, x, cos, sin, half, sign, ORTH_BF16);
    else if (type == ORTH_F16)
        BLOCKS(half, rotate_block, out, x, cos, sin, half, sign, ORTH_F16);
    else
        BLOCKS(half, rotate_block, out, x, cos, sin, half, sign, ORTH_F32);
}

INLINE void square_block(float *lane, const void *in, orth_dtype type, int at, int n)
{
    float x[BLOCK];
    get(x, in, at, n, type);
    for (int i = 0; i < n; i++)
        lane[i] = __builtin_fmaf(x[i], x[i], lane[i]);
}

INLINE void scale_block(void *out, const void *in, const float *gain, float rstd, orth_dtype type, int at,
                        int n)
{
    float x[BLOCK];
    get(x, in, at, n, type);
    for (int i = 0; i < n; i++)
        x[i] = x[i] * rstd * gain[at + i];
    put(out, x, at, n, type);
}

INLINE float norm_as(void *out, const void *x, const float *gain, int D, float eps, orth_dtype type)
{
    float lane[BLOCK] = {0};
    BLOCKS(D, square_block, lane, x, type);
    float rstd = 1.0f / sqrtf(orth_lanes_fold(lane) / (float)D + eps);
    BLOCKS(D, scale_block, out, x, gain, rstd, type);
    return rstd;
}

static float norm(void *out, const void *x, const float *gain, int D, float eps, orth_dtype type)
{
    return type == ORTH_BF16  ? norm_as(out, x, gain, D, eps, ORTH_BF16)
           : type == ORTH_F16 ? norm_as(out, x, gain, D, eps, ORTH_F16)
                              : norm_as(out, x, gain, D, eps, ORTH_F32);
}

INLINE void project_block(float *lane, const void *dy, const void *in, const float *gain, float rstd,
                          orth_dtype type, int at, int n)
{
    float x[BLOCK], g[BLOCK];
    get(x, in, at, n, type);
    get(g, dy, at, n, type);
    for (int i = 0; i < n; i++)
        lane[i] = __builtin_fmaf(g[i] * gain[at + i], x[i] * rstd, lane[i]);
}

INLINE void grad_block(void *dx, const void *dy, const void *in, const float *gain, float rstd, float c,
                       orth_dtype type, int at, int n)
{
    float x[BLOCK], g[BLOCK];
    get(x, in, at, n, type);
    get(g, dy, at, n, type);
    for (int i = 0; i < n; i++)
        g[i] = __builtin_fmaf(-(x[i] * rstd), c, g[i] * gain[at + i]) * rstd;
    put(dx, g, at, n, type);
}

INLINE void norm_bwd_as(void *dx, const void *dy, const void *x, const float *gain, float rstd, int D,
                        orth_dtype type)
{
    float lane[BLOCK] = {0};
    BLOCKS(D, project_block, lane, dy, x, gain, rstd, type);
    float c = orth_lanes_fold(lane) / (float)D;
    BLOCKS(D, grad_block, dx, dy, x, gain, rstd, c, type);
}

static void norm_bwd(void *dx, const void *dy, const void *x, const float *gain, float rstd, int D,
                     orth_dtype type)
{
    if (type == ORTH_BF16)
        norm_bwd_as(dx, dy, x, gain, rstd, D, ORTH_BF16);
    else if (type == ORTH_F16)
        norm_bwd_as(dx, dy, x, gain, rstd, D, ORTH_F16);
    else
        norm_bwd_as(dx, dy, x, gain, rstd, D, ORTH_F32);
}

INLINE void gain_block(float *acc, const void *dy, const void *in, float rstd, orth_dtype type, int at, int n)
{
    float x[BLOCK], g[BLOCK];
    get(x, in, at, n, type);
    get(g, dy, at, n, type);
    for (int i = 0; i < n; i++)
        acc[i] = __builtin_fmaf(g[i], x[i] * rstd, acc[i]);
}

static void gain_bwd(float *acc, const void *dy, const void *x, float rstd, int n, orth_dtype type)
{
    if (type == ORTH_BF16)
        BLOCKS(n, gain_block, acc, dy, x, rstd, ORTH_BF16);
    else if (type == ORTH_F16)
        BLOCKS(n, gain_block, acc, dy, x, rstd, ORTH_F16);
    else
        BLOCKS(n, gain_block, acc, dy, x, rstd, ORTH_F32);
}

#define ORTH_HEAD_ROWS_TABLE {rotate, norm, norm_bwd, gain_bwd}
