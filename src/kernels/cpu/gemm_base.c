/* gemm_base.c -- matrix product kernels in portable C.
 *
 * Plain loops that compilers for machines with a fused multiply-add turn into vectors.
 */
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/gemm_chain.h"

#define MR 4
#define NR 16

static void tile(const void *pa, int64_t a_stride, const void *pb, int64_t num_rows, bool resume, float *to,
                 int num_merges, int m, int n)
{
    const float *a = pa, *b = pb, *from = to + num_merges * MR * NR;
    float acc[MR][NR] = {{0}};
    (void)n;
    (void)a_stride;
    if (resume)
        memcpy(acc, from, sizeof acc);
    for (int64_t k = 0; k < num_rows; k++, a += MR, b += NR)
        for (int r = 0; r < m; r++)
            for (int j = 0; j < NR; j++)
                acc[r][j] = __builtin_fmaf(a[r], b[j], acc[r][j]);
    for (int i = num_merges - 1; i >= 0; i--)
        for (int r = 0; r < m; r++)
            for (int j = 0; j < NR; j++)
                acc[r][j] = to[(i * MR + r) * NR + j] + acc[r][j];
    memcpy(to, acc, sizeof acc);
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

static void finish(const orth_gemm_desc *g, const float *t, int64_t stride, int64_t m0, int64_t n0, int m, int n)
{
    for (int r = 0; r < m; r++)
        for (int j = 0; j < n; j++)
            orth_gemm_finish_element(g, m0 + r, n0 + j, t[r * stride + j]);
}

const orth_gemm_kernels orth_gemm_base_f32 = {
    .mr = MR, .nr = NR, .unit = 1, .align = 1, .kc = 256, .pack_a = pack_a_f32, .pack_b = pack_b_f32,
    .tile = tile, .finish = finish,
};
const orth_gemm_kernels orth_gemm_base_bf16 = {
    .mr = MR, .nr = NR, .unit = 1, .align = 1, .kc = 256, .pack_a = pack_a_bf16, .pack_b = pack_b_bf16,
    .tile = tile, .finish = finish,
};
