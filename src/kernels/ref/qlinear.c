/* qlinear.c -- products of quantised operands, one element after the other. */
#include "kernels/gemm_chain.h"
#include "kernels/qlinear.h"
#include "kernels/ref/ref.h"

/* Where term k of row m of A, or of column n of B, is: at [m, skip + k], or across. */
typedef struct {
    const orth_quantised *q;
    bool across;
    int64_t at, skip;
} vector;

typedef struct {
    vector a, b;
    const orth_attr *attr;
} element;

static float number(const vector *v, int64_t k)
{
    const orth_quantised *q = v->q;
    const int64_t row = v->across ? v->skip + k : v->at, col = v->across ? v->at : v->skip + k;
    const float scale = orth_quantised_scale(q, row, orth_tile_at(&q->rows, row).index, orth_tile_at(&q->cols, col).index);
    return orth_float8_to_f32(((const uint8_t *)q->codes->data)[row * q->codes->dim[1] + col], q->type) * scale;
}

static float leaf(const void *arg, int64_t i)
{
    const element *e = arg;
    const int64_t end = orth_split_bound(&e->attr->split, i + 1), interval = orth_qlinear_interval(e->attr);
    float acc = 0;
    for (int64_t k = orth_split_bound(&e->attr->split, i), next; k < end; k = next) {
        float chain = 0;
        next = end - k > interval ? k + interval : end;
        for (; k < next; k++)
            chain = __builtin_fmaf(number(&e->a, k), number(&e->b, k), chain);
        acc += chain;
    }
    return acc;
}

static orth_status run(const orth_op_call *call, orth_gemm_desc (*desc)(const orth_op_call *call), element *e)
{
    orth_tensor in[ORTH_OP_MAX_IN];
    const orth_op_call plain = orth_qlinear_as_plain(call, NULL, NULL, in);
    const orth_gemm_desc g = desc(&plain);
    e->attr = call->attr;
    for (e->a.at = 0; e->a.at < g.M; e->a.at++)
        for (e->b.at = 0; e->b.at < g.N; e->b.at++)
            orth_gemm_finish_element(&g, e->a.at, e->b.at, ref_tree(leaf, e, 0, orth_split_leaves(&g.split)));
    return ORTH_OK;
}

orth_status orth_ref_qlinear(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    orth_quantised q[2];
    orth_qlinear_operands(call, q);
    return run(call, orth_linear_desc, &(element){.a = {.q = &q[0]}, .b = {.q = &q[1]}});
}

orth_status orth_ref_qlinear_dx(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    orth_quantised q[2];
    const int64_t skip = call->attr->replica_rows;
    orth_qlinear_dx_operands(call, q);
    return run(call, orth_linear_dx_desc, &(element){.a = {.q = &q[0], .skip = skip}, .b = {.q = &q[1], .across = true, .skip = skip}});
}

orth_status orth_ref_qlinear_dw(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    orth_quantised q[2];
    orth_qlinear_dw_operands(call, q);
    return run(call, orth_linear_dw_desc, &(element){.a = {.q = &q[0], .across = true}, .b = {.q = &q[1], .across = true}});
}
