/* linear.c -- linear, linear_dx, linear_dw by the fast product. */
#include "kernels/gemm_library.h"
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

orth_status orth_op_prepare(orth_ctx *ctx, orth_op op, const orth_op_call *call)
{
    if (!ctx->gemm_library || (op != ORTH_OP_linear && op != ORTH_OP_linear_dx && op != ORTH_OP_linear_dw))
        return ORTH_OK;
    const orth_gemm_desc g = op == ORTH_OP_linear      ? orth_linear_desc(call)
                             : op == ORTH_OP_linear_dx ? orth_linear_dx_desc(call)
                                                       : orth_linear_dw_desc(call);
    return orth_gemm_library_add(ctx, &g);
}
