/* linear.c -- linear, linear_dx, linear_dw by the fast product, and their weights packed for it. */
#include "kernels/gemm.h"
#include "kernels/linear_desc.h"

orth_status orth_cpu_linear(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_desc(call);
    return orth_gemm(ctx, &g, call->workspace);
}

orth_status orth_cpu_linear_dx(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_dx_desc(call);
    return orth_gemm(ctx, &g, call->workspace);
}

orth_status orth_cpu_linear_dw(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_dw_desc(call);
    return orth_gemm(ctx, &g, call->workspace);
}

orth_status orth_cpu_linear_pack(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_weight(&call->in[0], call->attr);
    orth_gemm_pack_b(ctx, &g, call->out[0].data);
    return ORTH_OK;
}

orth_status orth_cpu_linear_dx_pack(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_dx_weight(&call->in[0], call->attr);
    orth_gemm_pack_b(ctx, &g, call->out[0].data);
    return ORTH_OK;
}

size_t orth_op_packed_bytes(orth_op op, const orth_tensor in[2], const orth_attr *attr, orth_isa isa)
{
    static orth_gemm_desc (*const weights[ORTH_NUM_OPS])(const orth_tensor *, const orth_attr *) = {
#define OP(...)
#define PACK(product, packs) [ORTH_OP_##product] = orth_##product##_weight,
#include "kernels/ops.def"
#undef PACK
#undef OP
    };
    orth_gemm_desc g = weights[op](&in[1], attr);
    g.M = in[0].dim[0];
    return orth_gemm_packed_bytes(&g, isa);
}

size_t orth_workspace_linear(const orth_op_call *call, int num_threads, orth_isa isa)
{
    const orth_gemm_desc g = orth_linear_desc(call);
    return orth_gemm_workspace_bytes(&g, num_threads, isa);
}

size_t orth_workspace_linear_dx(const orth_op_call *call, int num_threads, orth_isa isa)
{
    const orth_gemm_desc g = orth_linear_dx_desc(call);
    return orth_gemm_workspace_bytes(&g, num_threads, isa);
}

size_t orth_workspace_linear_dw(const orth_op_call *call, int num_threads, orth_isa isa)
{
    const orth_gemm_desc g = orth_linear_dw_desc(call);
    return orth_gemm_workspace_bytes(&g, num_threads, isa);
}
