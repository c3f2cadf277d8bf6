/* linear_desc.h -- the products behind linear, linear_dx and linear_dw, as ops.def describes them.
 *
 * One place for both back ends: they differ in the function that takes the description.
 */
#ifndef ORTH_KERNELS_LINEAR_DESC_H
#define ORTH_KERNELS_LINEAR_DESC_H

#include "kernels/gemm.h"

/* Input k, or NULL. */
static inline const void *orth_linear_in(const orth_op_call *call, int k)
{
    return call->num_in > k ? call->in[k].data : NULL;
}

/* The part of `linear` that is w: B, N, K. */
static inline orth_gemm_desc orth_linear_weight(const orth_tensor *w, const orth_attr *attr)
{
    const int64_t K = w->dim[1];
    return (orth_gemm_desc){.N = w->dim[0], .K = K, .in_type = w->dtype, .b = w->data, .b_row = 1, .b_col = K,
                            .split = attr->split};
}

/* y[N,O] = act(x[N,K] w[O,K]^T + bias[O]) */
static inline orth_gemm_desc orth_linear_desc(const orth_op_call *call)
{
    const orth_tensor *x = &call->in[0], *y = &call->out[0];
    orth_gemm_desc g = orth_linear_weight(&call->in[1], call->attr);
    g.M = x->dim[0];
    g.a = x->data;
    g.a_row = g.K;
    g.a_col = 1;
    g.b_packed = orth_linear_in(call, 3);
    g.c = y->data;
    g.c_row = y->dim[1];
    g.c_type = y->dtype;
    g.bias = orth_linear_in(call, 2);
    g.pre = call->num_out > 1 ? call->out[1].data : NULL;
    g.act = call->attr->act;
    return g;
}

/* Element i of t, which may be absent. */
static inline const void *orth_linear_at(const orth_tensor *t, int64_t i)
{
    return t->data ? (const char *)t->data + (size_t)i * orth_dtype_bytes(t->dtype) : NULL;
}

/* The part of `linear_dx` that is w. */
static inline orth_gemm_desc orth_linear_dx_weight(const orth_tensor *w, const orth_attr *attr)
{
    const int64_t K = w->dim[1], skip = attr->replica_rows;
    return (orth_gemm_desc){.N = K, .K = w->dim[0] - skip, .in_type = w->dtype, .b = orth_linear_at(w, skip * K),
                            .b_row = K, .b_col = 1, .split = attr->split};
}

/* dx[N,K] = dy[N,O] w[O,K] * act'(pre[N,K]), without the first attr.replica_rows of O */
static inline orth_gemm_desc orth_linear_dx_desc(const orth_op_call *call)
{
    const orth_tensor *dy = &call->in[0], *dx = &call->out[0];
    orth_gemm_desc g = orth_linear_dx_weight(&call->in[1], call->attr);
    g.M = dy->dim[0];
    g.a = orth_linear_at(dy, call->attr->replica_rows);
    g.a_row = dy->dim[1];
    g.a_col = 1;
    g.b_packed = orth_linear_in(call, 3);
    g.c = dx->data;
    g.c_row = g.N;
    g.c_type = dx->dtype;
    g.act_grad_of = orth_linear_in(call, 2);
    g.act = g.act_grad_of ? call->attr->act : ORTH_ACT_NONE;
    return g;
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
