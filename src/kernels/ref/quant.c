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
    const orth_tensor *amaxes = &call->in[1];
    for (int32_t b = 0; b < call->attr->num_seqs; b++) {
        const tile t = sequence(call, b);
        float amax = 0;
        for (int64_t i = 0; i < amaxes->dim[1]; i++)
            amax = fmaxf(amax, ref_get(amaxes, b * amaxes->dim[1] + i));
        const float scale = orth_quant_encode_scale(amax, call->attr->float8, call->attr->power_of_2);
        encode_tile(call, &t, scale);
        ((float *)call->out[1].data)[b] = 1 / scale;
    }
    return ORTH_OK;
}

orth_status orth_ref_quant_blocks(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    for (tile t = {.at = -1}; next_tile(call, &t);) {
        const float scale = orth_quant_encode_scale(amax_of(&call->in[0], &t), call->attr->float8, call->attr->power_of_2);
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

/* Element i of row r; its place in the whole tensor says what is drawn for it. */
static uint8_t e2m1(const orth_op_call *call, int64_t r, int64_t c, float scale)
{
    const orth_attr *a = call->attr;
    const float x = ref_get(&call->in[0], r * call->in[0].dim[1] + c) * scale;
    const int64_t e = a->whole_first + r * a->whole_cols + c;
    if (!a->at_random)
        return orth_float8_saturate(x, ORTH_E2M1);
    const orth_rand4 draw = orth_quant_draw(call->in[2].data, a->use, e);
    return orth_quant_e2m1_at_random(x, orth_quant_bits(&draw, e));
}

orth_status orth_ref_quant_nvfp4(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t C = call->in[0].dim[1];
    const float tensor = orth_quant_nvfp4_tensor(ref_get(&call->in[1], 0));
    for (tile t = {.at = -1}; next_tile(call, &t);) {
        float scale;
        ((uint8_t *)call->out[1].data)[t.at] = orth_quant_nvfp4_block(amax_of(&call->in[0], &t), tensor, &scale);
        for (int64_t r = t.row; r < t.row + t.rows; r++)
            for (int64_t c = t.col; c < t.col + t.cols; c += 2)
                ((uint8_t *)call->out[0].data)[(r * C + c) / 2] = (uint8_t)(e2m1(call, r, c, scale) | e2m1(call, r, c + 1, scale) << 4);
    }
    return ORTH_OK;
}

orth_status orth_ref_hadamard(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    for (int64_t i = 0; i < orth_tensor_elems(&call->in[0]); i += 16) {
        float x[16];
        for (int k = 0; k < 16; k++)
            x[k] = ref_get(&call->in[0], i + k);
        orth_hadamard_16(x, call->attr->signs);
        for (int k = 0; k < 16; k++)
            ref_put(&call->out[0], i + k, x[k]);
    }
    return ORTH_OK;
}
