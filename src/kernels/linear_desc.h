/* linear_desc.h -- the products behind linear, linear_dx and linear_dw, as ops.def describes them.
 *
 * One place for both back ends: they differ in the function that takes the description.
 */
#ifndef ORTH_KERNELS_LINEAR_DESC_H
#define ORTH_KERNELS_LINEAR_DESC_H

#include "kernels/gemm.h"

/* y[N,O] = act(x[N,K] w[O,K]^T + bias[O]) */
static inline orth_gemm_desc orth_linear_desc(const orth_op_call *call)
{
    const orth_tensor *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    const int64_t K = w->dim[1];
    return (orth_gemm_desc){
        .M = x->dim[0], .N = w->dim[0], .K = K, .in_type = x->dtype, .a = x->data, .a_row = K, .a_col = 1,
        .b = w->data, .b_row = 1, .b_col = K, .c = y->data, .c_row = y->dim[1], .c_type = y->dtype,
        .split = call->attr->split, .bias = call->num_in > 2 ? call->in[2].data : NULL,
        .pre = call->num_out > 1 ? call->out[1].data : NULL, .act = call->attr->act,
    };
}

/* Element i of t, which may be absent. */
static inline const void *orth_linear_at(const orth_tensor *t, int64_t i)
{
    return t->data ? (const char *)t->data + (size_t)i * orth_dtype_bytes(t->dtype) : NULL;
}

/* dx[N,K] = dy[N,O] w[O,K] * act'(pre[N,K]), without the first attr.replica_rows of O */
static inline orth_gemm_desc orth_linear_dx_desc(const orth_op_call *call)
{
    const orth_tensor *dy = &call->in[0], *w = &call->in[1], *dx = &call->out[0];
    const int64_t O = w->dim[0], K = w->dim[1], skip = call->attr->replica_rows;
    const void *pre = call->num_in > 2 ? call->in[2].data : NULL;
    return (orth_gemm_desc){
        .M = dy->dim[0], .N = K, .K = O - skip, .in_type = dy->dtype, .a = orth_linear_at(dy, skip), .a_row = O,
        .a_col = 1, .b = orth_linear_at(w, skip * K), .b_row = K, .b_col = 1, .c = dx->data, .c_row = K, .c_type = dx->dtype,
        .split = call->attr->split, .act = pre ? call->attr->act : ORTH_ACT_NONE, .act_grad_of = pre,
    };
}

/* dw[O,K] = dy[N,O]^T x[N,K], then addends */
static inline orth_gemm_desc orth_linear_dw_desc(const orth_op_call *call)
{
    const orth_tensor *dy = &call->in[0], *x = &call->in[1], *dw = &call->out[0];
    const int64_t O = dy->dim[1], K = x->dim[1];
    orth_gemm_desc g = {
        .M = O, .N = K, .K = dy->dim[0], .in_type = dy->dtype, .a = dy->data, .a_row = 1, .a_col = O,
        .b = x->data, .b_row = K, .b_col = 1, .c = dw->data, .c_row = K, .c_type = dw->dtype,
        .c_later = true, .split = call->attr->split, .num_addends = call->attr->num_addends,
    };
    for (int i = 0; i < g.num_addends; i++)
        g.addend[i] = call->in[call->num_in - g.num_addends + i].data;
    return g;
}

#endif
