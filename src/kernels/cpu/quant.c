/* quant.c -- quantisers: rows of tiles, shared out dynamically. A tile is read twice, from cache the second time. */
#include "base/pool.h"
#include "kernels/cpu/rows.h"
#include "kernels/quant.h"

#define CHUNK 32768 /* elements of a task, about */

typedef struct quant_job {
    const orth_rows *rows;
    const orth_op_call *call;
    const orth_tensor *x;
    orth_tile_axis row_axis, col_axis;
    int64_t across;               /* tiles of a row of them */
    int64_t n, group;             /* rows, of which a task has the tiles that begin in `group` */
    void (*tile)(const struct quant_job *j, int64_t at, int64_t row, int64_t rows, int64_t col, int64_t cols);
} quant_job;

static const void *element(const orth_tensor *x, int64_t i)
{
    return (const char *)x->data + (size_t)i * orth_dtype_bytes(x->dtype);
}

static float tile_amax(const quant_job *j, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    float amax = 0;
    for (int64_t r = row; r < row + rows; r++)
        amax = fmaxf(amax, j->rows->amax(element(j->x, r * j->x->dim[1] + col), cols, j->x->dtype));
    return amax;
}

static void encode_tile(const quant_job *j, orth_float8 to, float scale, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    for (int64_t r = row; r < row + rows; r++) {
        const int64_t i = r * j->x->dim[1] + col;
        j->rows->quantize((uint8_t *)j->call->out[0].data + i, element(j->x, i), cols, j->x->dtype, scale, to);
    }
}

static void block_tile(const quant_job *j, int64_t at, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    const orth_attr *a = j->call->attr;
    const float scale = orth_quant_encode_scale(tile_amax(j, row, rows, col, cols), a->float8, a->power_of_2, j->x->dtype);
    encode_tile(j, a->float8, scale, row, rows, col, cols);
    ((float *)j->call->out[1].data)[at] = 1 / scale;
}

static void mx_tile(const quant_job *j, int64_t at, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    const orth_float8 to = j->call->attr->float8;
    const uint8_t scale = orth_quant_mx_scale(tile_amax(j, row, rows, col, cols), to);
    encode_tile(j, to, orth_e8m0_reciprocal(scale), row, rows, col, cols);
    ((uint8_t *)j->call->out[1].data)[at] = scale;
}

static void e2m1_at_random(const quant_job *j, float scale, int64_t r, int64_t col, int64_t cols)
{
    const int64_t first = j->call->attr->first_col, row = r * j->x->dim[1];
    uint8_t *q = (uint8_t *)j->call->out[0].data + row;
    orth_rand4 draw = {{0}};
    for (int64_t c = col; c < col + cols; c++) {
        if (c == col || (first + c) % 4 == 0)
            draw = orth_quant_draw_at(j->call, r, c);
        q[c] = orth_quant_e2m1_at_random(orth_load_f32(j->x->data, j->x->dtype, row + c) * scale, orth_quant_bits(&draw, first + c));
    }
}

static void nvfp4_tile(const quant_job *j, int64_t at, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    float scale;
    ((uint8_t *)j->call->out[1].data)[at] = orth_quant_nvfp4_block(tile_amax(j, row, rows, col, cols), orth_quant_tensor_of_row(j->call, row), &scale);
    if (!orth_quant_is_at_random(j->call)) {
        encode_tile(j, ORTH_E2M1, scale, row, rows, col, cols);
        return;
    }
    for (int64_t r = row; r < row + rows; r++)
        e2m1_at_random(j, scale, r, col, cols);
}

static void tiles_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const quant_job *j = arg;
    const int64_t first = task * j->group, end = ORTH_MIN(j->n, first + j->group);
    orth_tile r = orth_tile_at(&j->row_axis, first);
    for (bool any = r.begin >= first || orth_tile_next(&j->row_axis, &r); any && r.begin < end; any = orth_tile_next(&j->row_axis, &r))
        for (orth_tile c = ORTH_BEFORE_TILES; orth_tile_next(&j->col_axis, &c);)
            j->tile(j, r.index * j->across + c.index, r.begin, r.end - r.begin, c.begin, c.end - c.begin);
}

static orth_tile_axis axis_of(int64_t n, int32_t tile, const orth_split *split)
{
    return (orth_tile_axis){.n = n, .tile = tile, .split = split->parts > 0 ? split : NULL};
}

static orth_status run_tiles(orth_ctx *ctx, quant_job *j)
{
    const orth_attr *a = j->call->attr;
    j->rows = orth_rows_for(ctx->isa);
    j->x = &j->call->in[0];
    j->n = j->x->dim[0];
    j->row_axis = axis_of(j->n, a->tile_rows, &a->row_split);
    j->col_axis = axis_of(j->x->dim[1], a->tile_cols, &a->col_split);
    j->across = orth_num_tiles(&j->col_axis);
    j->group = ORTH_MAX(CHUNK / ORTH_MAX(1, j->x->dim[1]), 1);
    orth_pool_run(ctx->pool, orth_div_up(j->n, j->group), tiles_task, j);
    return ORTH_OK;
}

orth_status orth_cpu_quant_blocks(orth_ctx *ctx, const orth_op_call *call)
{
    return run_tiles(ctx, &(quant_job){.call = call, .tile = block_tile});
}

orth_status orth_cpu_quant_mx(orth_ctx *ctx, const orth_op_call *call)
{
    return run_tiles(ctx, &(quant_job){.call = call, .tile = mx_tile});
}

orth_status orth_cpu_quant_nvfp4(orth_ctx *ctx, const orth_op_call *call)
{
    return run_tiles(ctx, &(quant_job){.call = call, .tile = nvfp4_tile});
}

/* ---- sequence by sequence: ranges of the elements of each ---- */

typedef struct {
    int32_t sequence;
    int64_t first, num;           /* elements, of all of x */
} sequence_range;

static int64_t ranges_of_sequence(const quant_job *j)
{
    return orth_div_up(j->call->attr->seq_len * j->x->dim[1], CHUNK);
}

static sequence_range sequence_range_at(const quant_job *j, int64_t task)
{
    const int64_t n = j->call->attr->seq_len * j->x->dim[1], b = task / ranges_of_sequence(j), first = task % ranges_of_sequence(j) * CHUNK;
    return (sequence_range){(int32_t)b, b * n + first, ORTH_MIN(CHUNK, n - first)};
}

static orth_status run_sequences(orth_ctx *ctx, quant_job *j, orth_task_fn fn)
{
    j->rows = orth_rows_for(ctx->isa);
    j->x = &j->call->in[0];
    orth_pool_run(ctx->pool, j->call->attr->num_seqs * ranges_of_sequence(j), fn, j);
    return ORTH_OK;
}

/* *amax, the bits of a number, grows to the largest magnitude of a range. Numbers that are not negative are ordered as their bits are. */
static void raise_amax(uint32_t *amax, const quant_job *j, const sequence_range *r)
{
    const uint32_t mine = orth_bits_of_f32(j->rows->amax(element(j->x, r->first), r->num, j->x->dtype));
    uint32_t most = __atomic_load_n(amax, __ATOMIC_RELAXED);
    while (mine > most && !__atomic_compare_exchange_n(amax, &most, mine, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void amax_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const quant_job *j = arg;
    const sequence_range r = sequence_range_at(j, task);
    raise_amax((uint32_t *)j->call->out[0].data + r.sequence, j, &r);
}

orth_status orth_cpu_amax(orth_ctx *ctx, const orth_op_call *call)
{
    memset(call->out[0].data, 0, orth_tensor_bytes(&call->out[0]));
    return run_sequences(ctx, &(quant_job){.call = call}, amax_task);
}

/* What the numbers of sequence b are multiplied with. */
static float encode_scale_of(const orth_op_call *call, int32_t b)
{
    return orth_quant_encode_scale(((const float *)call->in[1].data)[b], call->attr->float8, call->attr->power_of_2, ORTH_F32);
}

static void encode_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const quant_job *j = arg;
    const sequence_range r = sequence_range_at(j, task);
    j->rows->quantize((uint8_t *)j->call->out[0].data + r.first, element(j->x, r.first), r.num, j->x->dtype,
                      encode_scale_of(j->call, r.sequence), j->call->attr->float8);
}

orth_status orth_cpu_quant_tensor(orth_ctx *ctx, const orth_op_call *call)
{
    for (int32_t b = 0; b < call->attr->num_seqs; b++)
        ((float *)call->out[1].data)[b] = 1 / encode_scale_of(call, b);
    return run_sequences(ctx, &(quant_job){.call = call}, encode_task);
}

static void delayed_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const quant_job *j = arg;
    const orth_op_call *call = j->call;
    const sequence_range r = sequence_range_at(j, task);
    j->rows->quantize((uint8_t *)call->out[0].data + r.first, element(j->x, r.first), r.num, j->x->dtype, orth_quant_scale_before(call),
                      call->attr->float8);
    if (call->out[2].data)
        raise_amax((uint32_t *)call->out[2].data + call->attr->row, j, &r);
}

orth_status orth_cpu_quant_delayed(orth_ctx *ctx, const orth_op_call *call)
{
    for (int32_t b = 0; b < call->attr->num_seqs; b++)
        ((float *)call->out[1].data)[b] = 1 / orth_quant_scale_before(call);
    return run_sequences(ctx, &(quant_job){.call = call}, delayed_task);
}

orth_status orth_cpu_delayed_scales(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    orth_quant_delayed_scales(call);
    return ORTH_OK;
}

static void hadamard_task(void *arg, int64_t run, int worker)
{
    (void)worker;
    const orth_op_call *call = arg;
    const orth_tensor *x = &call->in[0], *y = &call->out[0];
    const int64_t C = x->dim[1], first = run * ORTH_HADAMARD_RUN * C;
    for (int64_t i = first; i < first + C; i++) {
        float v[ORTH_HADAMARD_RUN];
        for (int k = 0; k < ORTH_HADAMARD_RUN; k++)
            v[k] = orth_load_f32(x->data, x->dtype, i + k * C);
        orth_hadamard_16(v, call->attr->signs);
        for (int k = 0; k < ORTH_HADAMARD_RUN; k++)
            orth_store_f32(y->data, y->dtype, i + k * C, v[k]);
    }
}

orth_status orth_cpu_hadamard(orth_ctx *ctx, const orth_op_call *call)
{
    orth_op_call all = *call;
    orth_pool_run(ctx->pool, call->in[0].dim[0] / ORTH_HADAMARD_RUN, hadamard_task, &all);
    return ORTH_OK;
}
