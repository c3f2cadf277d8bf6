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

/* The plain product reads w itself. */
orth_status orth_ref_linear_pack(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    memset(call->out[0].data, 0, orth_tensor_bytes(&call->out[0]));
    return ORTH_OK;
}

orth_status orth_ref_linear_dx_pack(orth_ctx *ctx, const orth_op_call *call)
{
    return orth_ref_linear_pack(ctx, call);
}

orth_status orth_ref_linear_dw(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_gemm_desc g = orth_linear_dw_desc(call);
    return orth_gemm_ref(ctx, &g);
}
