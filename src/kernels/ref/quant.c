/* quant.c -- quantisers, plainly: the largest magnitude of a tile, its scale, its numbers. */
#include "kernels/quant.h"
#include "kernels/ref/ref.h"

typedef struct {
    int64_t row, rows, col, cols; /* of a tile: the last ones may be smaller */
    int64_t at;                   /* its scale */
} tile;

static orth_tile_axis axis_of(const orth_op_call *call, int dim)
{
    const orth_attr *a = call->attr;
    const orth_split *split = dim ? &a->col_split : &a->row_split;
    return (orth_tile_axis){.n = call->in[0].dim[dim], .tile = dim ? a->tile_cols : a->tile_rows, .split = split->parts > 0 ? split : NULL};
}

/* The next one, row by row; begins as {.at = -1}. */
static bool next_tile(const orth_op_call *call, tile *t)
{
    const orth_tile_axis rows = axis_of(call, 0), cols = axis_of(call, 1);
    const int64_t row = t->at < 0 ? 0 : t->col + t->cols == cols.n ? t->row + t->rows : t->row;
    const int64_t col = t->at < 0 || row != t->row ? 0 : t->col + t->cols;
    if (row >= rows.n)
        return false;
    const orth_tile r = orth_tile_at(&rows, row), c = orth_tile_at(&cols, col);
    *t = (tile){r.begin, r.end - r.begin, c.begin, c.end - c.begin, t->at + 1};
    return true;
}

static float amax_of(const orth_tensor *x, const tile *t)
{
    float amax = 0;
    for (int64_t r = t->row; r < t->row + t->rows; r++)
        for (int64_t c = t->col; c < t->col + t->cols; c++) {
            const float a = (float)fabs(ref_get(x, r * x->dim[1] + c));
            amax = a > amax ? a : amax;
        }
    return amax;
}

static void encode_tile(const orth_op_call *call, const tile *t, float scale)
{
    const orth_tensor *x = &call->in[0];
    for (int64_t r = t->row; r < t->row + t->rows; r++)
        for (int64_t c = t->col; c < t->col + t->cols; c++) {
            const int64_t i = r * x->dim[1] + c;
            ((uint8_t *)call->out[0].data)[i] = orth_float8_saturate(ref_get(x, i) * scale, call->attr->float8);
        }
}

static tile sequence(const orth_op_call *call, int32_t b)
{
    const int64_t T = call->attr->seq_len;
    return (tile){b * T, T, 0, call->in[0].dim[1], b};
}

orth_status orth_ref_amax(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    for (int32_t b = 0; b < call->attr->num_seqs; b++) {
        const tile t = sequence(call, b);
        ((float *)call->out[0].data)[b] = amax_of(&call->in[0], &t);
    }
    return ORTH_OK;
}

orth_status orth_ref_quant_tensor(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    for (int32_t b = 0; b < call->attr->num_seqs; b++) {
        const tile t = sequence(call, b);
        const float scale = orth_quant_encode_scale(((const float *)call->in[1].data)[b], call->attr->float8, call->attr->power_of_2, ORTH_F32);
        encode_tile(call, &t, scale);
        ((float *)call->out[1].data)[b] = 1 / scale;
    }
    return ORTH_OK;
}

orth_status orth_ref_quant_delayed(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const float scale = orth_quant_scale_before(call);
    const tile all = {.rows = call->in[0].dim[0], .cols = call->in[0].dim[1]};
    float *amax = call->out[2].data;
    encode_tile(call, &all, scale);
    for (int32_t b = 0; b < call->attr->num_seqs; b++)
        ((float *)call->out[1].data)[b] = 1 / scale;
    if (amax)
        amax[call->attr->row] = fmaxf(amax[call->attr->row], amax_of(&call->in[0], &all));
    return ORTH_OK;
}

orth_status orth_ref_delayed_scales(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    orth_quant_delayed_scales(call);
    return ORTH_OK;
}

orth_status orth_ref_quant_blocks(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    for (tile t = {.at = -1}; next_tile(call, &t);) {
        const float scale = orth_quant_encode_scale(amax_of(&call->in[0], &t), call->attr->float8, call->attr->power_of_2, call->in[0].dtype);
        encode_tile(call, &t, scale);
        ((float *)call->out[1].data)[t.at] = 1 / scale;
    }
    return ORTH_OK;
}

orth_status orth_ref_quant_mx(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    for (tile t = {.at = -1}; next_tile(call, &t);) {
        const uint8_t scale = orth_quant_mx_scale(amax_of(&call->in[0], &t), call->attr->float8);
        encode_tile(call, &t, orth_e8m0_reciprocal(scale));
        ((uint8_t *)call->out[1].data)[t.at] = scale;
    }
    return ORTH_OK;
}

static uint8_t e2m1(const orth_op_call *call, int64_t r, int64_t c, float scale)
{
    const float x = ref_get(&call->in[0], r * call->in[0].dim[1] + c) * scale;
    if (!orth_quant_is_at_random(call))
        return orth_float8_saturate(x, ORTH_E2M1);
    const orth_rand4 draw = orth_quant_draw_at(call, r, c);
    return orth_quant_e2m1_at_random(x, orth_quant_bits(&draw, call->attr->first_col + c));
}

orth_status orth_ref_quant_nvfp4(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    for (tile t = {.at = -1}; next_tile(call, &t);) {
        float scale;
        ((uint8_t *)call->out[1].data)[t.at] = orth_quant_nvfp4_block(amax_of(&call->in[0], &t), orth_quant_tensor_of_row(call, t.row), &scale);
        for (int64_t r = t.row; r < t.row + t.rows; r++)
            for (int64_t c = t.col; c < t.col + t.cols; c++)
                ((uint8_t *)call->out[0].data)[r * call->in[0].dim[1] + c] = e2m1(call, r, c, scale);
    }
    return ORTH_OK;
}

orth_status orth_ref_hadamard(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t C = call->in[0].dim[1];
    for (int64_t r = 0; r < call->in[0].dim[0]; r += ORTH_HADAMARD_RUN)
        for (int64_t c = 0; c < C; c++) {
            float x[ORTH_HADAMARD_RUN];
            for (int k = 0; k < ORTH_HADAMARD_RUN; k++)
                x[k] = ref_get(&call->in[0], (r + k) * C + c);
            orth_hadamard_16(x, call->attr->signs);
            for (int k = 0; k < ORTH_HADAMARD_RUN; k++)
                ref_put(&call->out[0], (r + k) * C + c, x[k]);
        }
    return ORTH_OK;
}
