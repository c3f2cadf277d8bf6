/* gemm_avx512.c -- matrix product kernels for AVX-512 without bf16 instructions: bf16 and fp16 operands are
 * widened while they are packed. */
#include "kernels/cpu/gemm_finish_avx512.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/gemm_pack_avx512.h"

#define GEMM_DOT(acc, a, b) _mm512_fmadd_ps(a, b, acc)
#define GEMM_TILE tile_f32
#include "kernels/cpu/gemm_tile_avx512.h"

PACK_FN(pack_a_f32, PACK_F32, MR, 1)
PACK_FN(pack_b_f32, PACK_F32, NR, 1)
PACK_FN(pack_a_wide, PACK_WIDE, MR, 1)
PACK_FN(pack_b_wide, PACK_WIDE, NR, 1)
PACK_FN(pack_a_half, PACK_HALF, MR, 1)
PACK_FN(pack_b_half, PACK_HALF, NR, 1)

const orth_gemm_kernels orth_gemm_avx512_f32 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 1024, .task_m = 64, .unpacked_a = true,
    .pack_a = pack_a_f32,
    .pack_b = pack_b_f32, .tile = tile_f32, .finish = finish,
};
const orth_gemm_kernels orth_gemm_avx512_bf16 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 1024, .task_m = 64,
    .pack_a = pack_a_wide, .pack_b = pack_b_wide,
    .tile = tile_f32, .finish = finish,
};
const orth_gemm_kernels orth_gemm_avx512_f16 = {
    .mr = MR, .nr = NR, .unit = 1, .planes = 1, .align = 1, .kc = 1024, .task_m = 64,
    .pack_a = pack_a_half, .pack_b = pack_b_half,
    .tile = tile_f32, .finish = finish,
};
