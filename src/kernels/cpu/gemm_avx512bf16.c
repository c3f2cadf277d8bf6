/* gemm_avx512bf16.c -- matrix product kernels on vdpbf16ps; its arithmetic is in gemm_chain.h. */
#include "kernels/cpu/gemm_finish_avx512.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/gemm_pack_avx512.h"

#define GEMM_DOT(acc, a, b) _mm512_dpbf16_ps(acc, (__m512bh)(a), (__m512bh)(b))
#define GEMM_TILE tile_bf16
#include "kernels/cpu/gemm_tile_avx512.h"

PACK_FN(pack_a, PACK_PAIR, MR, 1)
PACK_FN(pack_b, PACK_PAIR, NR, 1)

const orth_gemm_kernels orth_gemm_avx512bf16_bf16 = {
    .mr = MR, .nr = NR, .unit = 2, .planes = 1, .align = 1, .kc = 1024, .task_m = 64, .unpacked_a = true,
    .pack_a = pack_a, .pack_b = pack_b,
    .tile = tile_bf16, .finish = finish,
};
