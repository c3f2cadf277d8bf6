/* gemm.c -- orth_gemm: which kernels, which way, and the memory for it. */
#include "base/pool.h"
#include "kernels/cpu/gemm_work.h"

orth_isa orth_gemm_isa(orth_isa isa, orth_dtype in_type)
{
#if defined(__x86_64__)
    if (in_type == ORTH_F16 || (in_type == ORTH_F32 && isa != ORTH_ISA_AMX_BF16X6))
        return ORTH_MIN(isa, ORTH_ISA_AVX512);
    if (isa >= ORTH_ISA_AMX && !orth_gemm_amx_selfcheck())
        return ORTH_ISA_AVX512;
    return in_type == ORTH_BF16 ? ORTH_MIN(isa, ORTH_ISA_AMX) : isa;
#else
    (void)isa;
    (void)in_type;
    return ORTH_ISA_BASE;
#endif
}

const orth_gemm_kernels *orth_gemm_kernels_for(orth_isa isa, orth_dtype in_type)
{
    const bool bf16 = in_type == ORTH_BF16, f16 = in_type == ORTH_F16;
    switch (orth_gemm_isa(isa, in_type)) {
#if defined(__x86_64__)
    case ORTH_ISA_AMX_BF16X6: return &orth_gemm_amx_bf16x6;
    case ORTH_ISA_AMX: return &orth_gemm_amx_bf16;
    case ORTH_ISA_AVX512BF16: return &orth_gemm_avx512bf16_bf16;
    case ORTH_ISA_AVX512: return bf16 ? &orth_gemm_avx512_bf16 : f16 ? &orth_gemm_avx512_f16 : &orth_gemm_avx512_f32;
    case ORTH_ISA_AVX2: return bf16 ? &orth_gemm_avx2_bf16 : f16 ? &orth_gemm_avx2_f16 : &orth_gemm_avx2_f32;
#endif
    default: return bf16 ? &orth_gemm_base_bf16 : f16 ? &orth_gemm_base_f16 : &orth_gemm_base_f32;
    }
}

const orth_gemm_kernels *orth_gemm_kernels_of(const orth_gemm_desc *g, orth_isa isa)
{
    return orth_gemm_kernels_for(g->interval > 0 ? ORTH_MIN(isa, ORTH_ISA_AVX512) : isa, g->in_type);
}

orth_status orth_gemm(orth_ctx *ctx, const orth_gemm_desc *g, void *workspace)
{
    orth_gemm_run run = {.workspace = workspace};
    orth_gemm_plan *p = &run.plan;
    if (g->M == 0 || g->N == 0)
        return ORTH_OK;
    orth_gemm_plan_make(p, g, orth_gemm_kernels_of(g, ctx->isa), orth_pool_num_threads(ctx->pool));
    memset(run.workspace + p->counters_at, 0, p->a_at - p->counters_at);
    run.progress = (_Atomic int32_t *)(void *)(run.workspace + p->counters_at);
    run.taken = run.progress + p->num_tasks;
    run.packed = run.taken + p->num_stages * p->num_tasks;
    run.computed = run.packed + p->num_stages;
    if (p->by_panel)
        orth_gemm_run_panels(ctx, &run);
    else
        orth_gemm_run_stages(ctx, &run);
    return ORTH_OK;
}

size_t orth_gemm_workspace_bytes(const orth_gemm_desc *g, int num_threads, orth_isa isa)
{
    if (g->M == 0 || g->N == 0)
        return 0;
    orth_gemm_plan p;
    orth_gemm_plan_make(&p, g, orth_gemm_kernels_of(g, isa), num_threads);
    return p.total_bytes;
}
