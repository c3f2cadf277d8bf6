/* gemm_base.c -- matrix product kernels for processors without one of their own.
 *
 * Plain loops; on 64-bit Arm a full tile is NEON, which all these processors have. Same chains, same bits.
 */
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/gemm_chain.h"

#if defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

#define MR 4
#define NR 16

static void chains(float (*acc)[NR], const float *a, const float *b, int64_t num_rows, int m)
{
    for (int64_t k = 0; k < num_rows; k++, a += MR, b += NR)
        for (int r = 0; r < m; r++)
            for (int j = 0; j < NR; j++)
                acc[r][j] = __builtin_fmaf(a[r], b[j], acc[r][j]);
}

#if defined(__ARM_NEON) && defined(__aarch64__)
/* The same for MR rows, in 16 vector registers: GCC leaves the loops above in scalars. */
static void chains_full(float (*acc)[NR], const float *a, const float *b, int64_t num_rows)
{
    float32x4_t sum[MR][NR / 4], col[NR / 4];
    for (int i = 0; i < NR; i++)
        sum[i / 4][i % 4] = vld1q_f32(acc[i / 4] + i % 4 * 4);
    for (int64_t k = 0; k < num_rows; k++, a += MR, b += NR) {
        for (int j = 0; j < NR / 4; j++)
            col[j] = vld1q_f32(b + 4 * j);
        for (int r = 0; r < MR; r++)
            for (int j = 0; j < NR / 4; j++)
                sum[r][j] = vfmaq_n_f32(sum[r][j], col[j], a[r]);
    }
    for (int i = 0; i < NR; i++)
        vst1q_f32(acc[i / 4] + i % 4 * 4, sum[i / 4][i % 4]);
}
#else
static void chains_full(float (*acc)[NR], const float *a, const float *b, int64_t num_rows)
{
    chains(acc, a, b, num_rows, MR);
}
#endif

static void tile(const orth_gemm_tile *t)
{
    const float *a = (const float *)(const void *)t->a, *b = (const float *)(const void *)t->b;
    float acc[MR][NR] = {{0}};
    if (t->from)
        memcpy(acc, t->from, sizeof acc);
    if (t->m == MR)
        chains_full(acc, a, b, t->num_rows);
    else
        chains(acc, a, b, t->num_rows, t->m);
    for (int i = 0; i < t->num_older; i++)
        for (int r = 0; r < t->m; r++)
            for (int j = 0; j < NR; j++)
                acc[r][j] = t->older[i][r * NR + j] + acc[r][j];
    memcpy(t->to, acc, sizeof acc);
}

static inline void pack(int W, orth_dtype type, float *dst, const void *src, int64_t lane_stride,
                        int64_t k_stride, int lanes, int64_t len)
{
    for (int64_t k = 0; k < len; k++)
        for (int w = 0; w < W; w++)
            dst[k * W + w] = w < lanes ? orth_load_f32(src, type, w * lane_stride + k * k_stride) : 0.0f;
}

#define PACK_FN(name, W, type)                                                                              \
    static void name(void *dst, size_t panel_bytes, const void *src, int64_t lane_stride, int64_t k_stride, \
                     int64_t lanes, int64_t len)                                                            \
    {                                                                                                       \
        for (int64_t w = 0; w < lanes; w += W)                                                              \
            pack(W, type, (float *)(void *)((char *)dst + panel_bytes * (size_t)(w / W)),                   \
                 (const char *)src + (size_t)(w * lane_stride) * orth_dtype_bytes(type), lane_stride,       \
                 k_stride, (int)ORTH_MIN(W, lanes - w), len);                                               \
    }
PACK_FN(pack_a_f32, MR, ORTH_F32)
PACK_FN(pack_b_f32, NR, ORTH_F32)
PACK_FN(pack_a_bf16, MR, ORTH_BF16)
PACK_FN(pack_b_bf16, NR, ORTH_BF16)
PACK_FN(pack_a_f16, MR, ORTH_F16)
PACK_FN(pack_b_f16, NR, ORTH_F16)

static void finish(const orth_gemm_desc *g, const float *t, int64_t stride, int64_t m0, int64_t n0, int m, int n)
{
    for (int r = 0; r < m; r++)
        for (int j = 0; j < n; j++)
            orth_gemm_finish_element(g, m0 + r, n0 + j, t[r * stride + j]);
}

const orth_gemm_kernels orth_gemm_base_f32 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 256, .task_m = 64,
    .pack_a = pack_a_f32, .pack_b = pack_b_f32,
    .tile = tile, .finish = finish,
};
const orth_gemm_kernels orth_gemm_base_bf16 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 256, .task_m = 64,
    .pack_a = pack_a_bf16, .pack_b = pack_b_bf16,
    .tile = tile, .finish = finish,
};
const orth_gemm_kernels orth_gemm_base_f16 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 256, .task_m = 64,
    .pack_a = pack_a_f16, .pack_b = pack_b_f16,
    .tile = tile, .finish = finish,
};
