/* qlinear.h -- qlinear, qlinear_dx and qlinear_dw for both kernels: where their quantised operands have which scale, and the product of
 * the numbers that these stand for.
 */
#ifndef ORTH_KERNELS_QLINEAR_H
#define ORTH_KERNELS_QLINEAR_H

#include "kernels/linear_desc.h"
#include "kernels/quant.h"

#define ORTH_QLINEAR_OPERANDS 6         /* codes, scales and largest magnitudes of two matrices; what follows is as in `linear` */

/* A quantised matrix. */
typedef struct {
    const orth_tensor *codes, *scales, *amax;
    orth_float8 type;
    orth_scale scale;
    int64_t seq_len;                    /* rows that have one value of amax */
    orth_tile_axis rows, cols;
} orth_quantised;

/* Inputs i, 2 + i and 4 + i of the call. */
static inline orth_quantised orth_quantised_input(const orth_op_call *call, int i, orth_float8 type, int64_t seq_len)
{
    return (orth_quantised){.codes = &call->in[i], .scales = &call->in[2 + i], .amax = &call->in[4 + i], .type = type,
                            .scale = orth_recipe_of(call->attr->recipe)->scale, .seq_len = seq_len};
}

/* An activation or its gradient whose columns are contracted: x of qlinear, dy of qlinear_dx. */
static inline orth_quantised orth_quantised_rows(const orth_op_call *call, orth_float8 type)
{
    const orth_attr *a = call->attr;
    const int32_t tile_k = orth_recipe_of(a->recipe)->tile_k;
    orth_quantised q = orth_quantised_input(call, 0, type, a->seq_len);
    q.rows = (orth_tile_axis){.n = q.codes->dim[0], .tile = tile_k ? 1 : a->seq_len};
    q.cols = (orth_tile_axis){.n = q.codes->dim[1], .skip = a->replica_rows, .tile = tile_k, .split = &a->split};
    return q;
}

static inline orth_quantised orth_quantised_weight(const orth_op_call *call, orth_tile_axis rows, orth_tile_axis cols)
{
    const orth_tensor *w = &call->in[ORTH_IN_WEIGHT];
    orth_quantised q = orth_quantised_input(call, ORTH_IN_WEIGHT, orth_recipe_of(call->attr->recipe)->forward, w->dim[0]);
    q.rows = rows;
    q.cols = cols;
    q.rows.n = w->dim[0];
    q.cols.n = w->dim[1];
    return q;
}

/* Inputs 0 and 1 of each op. */
static inline void orth_qlinear_operands(const orth_op_call *call, orth_quantised q[2])
{
    const orth_recipe_row *r = orth_recipe_of(call->attr->recipe);
    q[0] = orth_quantised_rows(call, r->forward);
    q[0].cols.skip = 0; /* replica rows of w are outputs here */
    q[1] = orth_quantised_weight(call, (orth_tile_axis){.tile = r->tile_w, .split = &call->attr->split_out},
                                 (orth_tile_axis){.tile = r->tile_k, .split = &call->attr->split});
}

static inline void orth_qlinear_dx_operands(const orth_op_call *call, orth_quantised q[2])
{
    const orth_recipe_row *r = orth_recipe_of(call->attr->recipe);
    q[0] = orth_quantised_rows(call, r->backward);
    q[1] = orth_quantised_weight(call, (orth_tile_axis){.skip = call->attr->replica_rows, .tile = r->tile_k, .split = &call->attr->split},
                                 (orth_tile_axis){.tile = r->tile_w, .split = &call->attr->split_out});
}

static inline void orth_qlinear_dw_operands(const orth_op_call *call, orth_quantised q[2])
{
    const orth_recipe_row *r = orth_recipe_of(call->attr->recipe);
    for (int i = 0; i < 2; i++) {
        q[i] = orth_quantised_input(call, i, i ? r->forward : r->backward, call->attr->seq_len);
        q[i].rows = (orth_tile_axis){.n = q[i].codes->dim[0], .tile = r->tile_k, .split = &call->attr->split};
        q[i].cols = (orth_tile_axis){.n = q[i].codes->dim[1], .tile = r->tile_k ? 1 : 0};
    }
}

/* Of tile (row_tile, col_tile), which begins in row `row`. */
static inline float orth_quantised_scale(const orth_quantised *q, int64_t row, int64_t row_tile, int64_t col_tile)
{
    const int64_t i = row_tile * q->scales->dim[1] + col_tile;
    if (q->scale == ORTH_SCALE_F32)
        return ((const float *)q->scales->data)[i];
    const uint8_t code = ((const uint8_t *)q->scales->data)[i];
    if (q->scale == ORTH_SCALE_E8M0)
        return orth_e8m0_to_f32(code);
    return orth_float8_to_f32(code, ORTH_E4M3) * (1 / orth_quant_nvfp4_tensor(((const float *)q->amax->data)[row / q->seq_len]));
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
    for (int i = ORTH_QLINEAR_OPERANDS; i < call->num_in; i++)
        in[2 + i - ORTH_QLINEAR_OPERANDS] = call->in[i];
    plain.in = in;
    plain.num_in = 2 + call->num_in - ORTH_QLINEAR_OPERANDS;
    return plain;
}

/* Terms of one chain: as many as there are, where the recipe says nothing. */
static inline int64_t orth_qlinear_interval(const orth_attr *attr)
{
    const int32_t interval = orth_recipe_of(attr->recipe)->interval;
    return interval ? interval : INT64_MAX;
}

#endif
