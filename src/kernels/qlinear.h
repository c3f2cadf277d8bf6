/* qlinear.h -- qlinear, qlinear_dx and qlinear_dw for both kernels: where their quantised operands have which scale, and the product of
 * the numbers that these stand for.
 */
#ifndef ORTH_KERNELS_QLINEAR_H
#define ORTH_KERNELS_QLINEAR_H

#include "kernels/linear_desc.h"

/* A quantised matrix. */
typedef struct {
    const orth_tensor *codes, *scales;
    orth_float8 type;
    orth_tile_axis rows, cols;
} orth_quantised;

/* An activation or its gradient whose columns are contracted: x of qlinear, dy of qlinear_dx. */
static inline orth_quantised orth_quantised_rows(const orth_op_call *call, orth_float8 type)
{
    const orth_tensor *t = &call->in[0];
    const orth_attr *a = call->attr;
    const int32_t tile_k = orth_recipe_of(a->recipe)->tile_k;
    return (orth_quantised){t, &call->in[2], type, {.n = t->dim[0], .tile = tile_k ? 1 : a->seq_len},
                            {.n = t->dim[1], .skip = a->replica_rows, .tile = tile_k, .split = &a->split}};
}

/* Inputs 0 and 1 of each op. */
static inline void orth_qlinear_operands(const orth_op_call *call, orth_quantised q[2])
{
    const orth_recipe_row *r = orth_recipe_of(call->attr->recipe);
    const orth_tensor *w = &call->in[1];
    q[0] = orth_quantised_rows(call, r->forward);
    q[0].cols.skip = 0; /* replica rows of w are outputs here */
    q[1] = (orth_quantised){w, &call->in[3], r->forward, {.n = w->dim[0], .tile = r->tile_w, .split = &call->attr->split_out},
                            {.n = w->dim[1], .tile = r->tile_k, .split = &call->attr->split}};
}

static inline void orth_qlinear_dx_operands(const orth_op_call *call, orth_quantised q[2])
{
    const orth_recipe_row *r = orth_recipe_of(call->attr->recipe);
    const orth_tensor *w = &call->in[1];
    q[0] = orth_quantised_rows(call, r->backward);
    q[1] = (orth_quantised){w, &call->in[3], r->forward,
                            {.n = w->dim[0], .skip = call->attr->replica_rows, .tile = r->tile_k, .split = &call->attr->split},
                            {.n = w->dim[1], .tile = r->tile_w, .split = &call->attr->split_out}};
}

static inline void orth_qlinear_dw_operands(const orth_op_call *call, orth_quantised q[2])
{
    const orth_recipe_row *r = orth_recipe_of(call->attr->recipe);
    for (int i = 0; i < 2; i++) {
        const orth_tensor *t = &call->in[i];
        q[i] = (orth_quantised){t, &call->in[2 + i], i ? r->forward : r->backward, {.n = t->dim[0], .tile = r->tile_k, .split = &call->attr->split},
                                {.n = t->dim[1], .tile = r->tile_k ? 1 : 0}};
    }
}

static inline float orth_quantised_scale(const orth_quantised *q, int64_t row_tile, int64_t col_tile)
{
    const int64_t i = row_tile * q->scales->dim[1] + col_tile;
    return q->scales->dtype == ORTH_U8 ? orth_e8m0_to_f32(((const uint8_t *)q->scales->data)[i]) : ((const float *)q->scales->data)[i];
}

/* The call of linear, linear_dx or linear_dw that has `a` and `b` [same dims] for inputs 0 and 1; in: room for its inputs. */
static inline orth_op_call orth_qlinear_as_plain(const orth_op_call *call, float *a, float *b, orth_tensor in[ORTH_OP_MAX_IN])
{
    orth_op_call plain = *call;
    for (int i = 0; i < 2; i++) {
        in[i] = call->in[i];
        in[i].dtype = ORTH_F32;
        in[i].data = i ? b : a;
    }
    for (int i = 4; i < call->num_in; i++)
        in[i - 2] = call->in[i];
    plain.in = in;
    plain.num_in = call->num_in - 2;
    return plain;
}

/* Terms of one chain: as many as there are, where the recipe says nothing. */
static inline int64_t orth_qlinear_interval(const orth_attr *attr)
{
    const int32_t interval = orth_recipe_of(attr->recipe)->interval;
    return interval ? interval : INT64_MAX;
}

#endif
