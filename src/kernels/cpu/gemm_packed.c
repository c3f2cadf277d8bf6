/* gemm_packed.c -- B packed once for many products: all blocks of K, all panels of each. */
#include "base/pool.h"
#include "kernels/cpu/gemm_work.h"

typedef struct {
    orth_gemm_plan plan;
    char *dst;
} packing;

static void pack_task(void *arg, int64_t index, int worker)
{
    const packing *a = arg;
    const orth_gemm_plan *p = &a->plan;
    const int64_t groups = orth_div_up(p->n_panels, p->b_group), group = index % groups;
    const int64_t block = index / groups * p->b_blocks, end = ORTH_MIN(p->num_blocks, block + p->b_blocks);
    const size_t block_bytes = orth_gemm_panel_b_bytes(p) * (size_t)p->n_panels;
    const orth_gemm_operand o = orth_gemm_operand_b(p, a->dst + block_bytes * (size_t)block, 0, p->n_panels);
    (void)worker;
    orth_gemm_pack(p, &o, group * p->b_group, (group + 1) * p->b_group, block, end);
}

void orth_gemm_pack_b(orth_ctx *ctx, const orth_gemm_desc *g, void *dst)
{
    packing a = {.dst = dst};
    if (g->N == 0)
        return;
    orth_gemm_plan_packed(&a.plan, g, orth_gemm_kernels_of(g, ctx->isa), orth_pool_num_threads(ctx->pool));
    orth_pool_run(ctx->pool, a.plan.num_packs, pack_task, &a);
}

size_t orth_gemm_packed_bytes(const orth_gemm_desc *g, orth_isa isa)
{
    const orth_gemm_kernels *kr = orth_gemm_kernels_of(g, isa);
    orth_gemm_plan p;
    if (g->N == 0 || orth_gemm_is_thin(g, kr))
        return 0;
    orth_gemm_plan_packed(&p, g, kr, 1);
    return orth_gemm_panel_b_bytes(&p) * (size_t)(p.num_blocks * p.n_panels);
}
