/* linear.c -- linear, linear_dx, linear_dw by the plain product. */
#include "kernels/linear_desc.h"

orth_status orth_ref_linear(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_desc(call);
    return orth_gemm_ref(ctx, &g);
}

orth_status orth_ref_linear_dx(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_dx_desc(call);
    return orth_gemm_ref(ctx, &g);
}

orth_status orth_ref_linear_dw(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_dw_desc(call);
    return orth_gemm_ref(ctx, &g);
}
