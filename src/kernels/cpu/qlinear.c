/* qlinear.c -- products of quantised operands: both become fp32 in the workspace, and the fast product does the rest. */
#include "base/pool.h"
#include "kernels/qlinear.h"

#define CHUNK 32768 /* elements of a task, about */
#define NUM_CODES 256

typedef struct {
    const orth_quantised *q;
    float *out;
    int64_t chunk;                      /* rows of a task */
    float number[NUM_CODES];
} dequantise_job;

static void dequantise_row(const dequantise_job *j, int64_t row, int64_t row_tile)
{
    const int64_t C = j->q->codes->dim[1];
    const uint8_t *codes = (const uint8_t *)j->q->codes->data + row * C;
    float *out = j->out + row * C;
    for (orth_tile t = ORTH_BEFORE_TILES; orth_tile_next(&j->q->cols, &t);) {
        const float scale = orth_quantised_scale(j->q, row, row_tile, t.index);
        for (int64_t c = t.begin; c < t.end; c++)
            out[c] = j->number[codes[c]] * scale;
    }
}

static void dequantise_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const dequantise_job *j = arg;
    const int64_t begin = task * j->chunk, end = ORTH_MIN(j->q->codes->dim[0], begin + j->chunk);
    orth_tile t = orth_tile_at(&j->q->rows, begin);
    for (int64_t row = begin; row < end; row++) {
        if (row >= t.end)
            orth_tile_next(&j->q->rows, &t);
        dequantise_row(j, row, t.index);
    }
}

static void dequantise(orth_ctx *ctx, const orth_quantised *q, float *out)
{
    dequantise_job job = {.q = q, .out = out, .chunk = ORTH_MAX(1, CHUNK / ORTH_MAX(1, q->codes->dim[1]))};
    for (int code = 0; code < NUM_CODES; code++)
        job.number[code] = orth_float8_to_f32((uint8_t)code, q->type);
    orth_pool_run(ctx->pool, orth_div_up(q->codes->dim[0], job.chunk), dequantise_task, &job);
}

typedef orth_gemm_desc (*desc_fn)(const orth_op_call *call);

/* Bytes of input i as numbers. */
static size_t numbers_bytes(const orth_op_call *call, int i)
{
    return (size_t)orth_round_up(orth_tensor_elems(&call->in[i]) * (int64_t)sizeof(float), 64);
}

static orth_gemm_desc product_of(const orth_op_call *call, desc_fn desc, orth_tensor in[ORTH_OP_MAX_IN])
{
    char *numbers = call->workspace;
    const orth_op_call plain = orth_qlinear_as_plain(call, (float *)(void *)numbers, (float *)(void *)(numbers + numbers_bytes(call, 0)), in);
    orth_gemm_desc g = desc(&plain);
    g.interval = orth_qlinear_interval(call->attr);
    return g;
}

static orth_status run(orth_ctx *ctx, const orth_op_call *call, const orth_quantised q[2], desc_fn desc)
{
    orth_tensor in[ORTH_OP_MAX_IN];
    char *numbers = call->workspace;
    const orth_gemm_desc g = product_of(call, desc, in);
    dequantise(ctx, &q[0], (float *)(void *)numbers);
    dequantise(ctx, &q[1], (float *)(void *)(numbers + numbers_bytes(call, 0)));
    return orth_gemm(ctx, &g, numbers + numbers_bytes(call, 0) + numbers_bytes(call, 1));
}

static size_t workspace(const orth_op_call *call, int num_threads, orth_isa isa, desc_fn desc)
{
    orth_tensor in[ORTH_OP_MAX_IN];
    orth_op_call without = *call;
    without.workspace = NULL;
    const orth_gemm_desc g = product_of(&without, desc, in);
    return numbers_bytes(call, 0) + numbers_bytes(call, 1) + orth_gemm_workspace_bytes(&g, num_threads, isa);
}

#define PRODUCT_OF(plain)                                                                                          \
    orth_status orth_cpu_q##plain(orth_ctx *ctx, const orth_op_call *call)                                         \
    {                                                                                                              \
        orth_quantised q[2];                                                                                       \
        orth_q##plain##_operands(call, q);                                                                         \
        return run(ctx, call, q, orth_##plain##_desc);                                                             \
    }                                                                                                              \
    size_t orth_workspace_q##plain(const orth_op_call *call, int num_threads, orth_isa isa)                        \
    {                                                                                                              \
        return workspace(call, num_threads, isa, orth_##plain##_desc);                                             \
    }
PRODUCT_OF(linear)
PRODUCT_OF(linear_dx)
PRODUCT_OF(linear_dw)
