/* pointwise.c -- add, swiglu, dropout, cast, widen, bias: contiguous ranges, shared out dynamically. */
#include "base/pool.h"
#include "kernels/cpu/rows.h"
#include "kernels/dropout.h"

/* Elements of a task: some 10 us of memory traffic, so that the counter that hands them out is no cost
 * and the last task no wait. */
#define CHUNK 32768
_Static_assert(CHUNK % ORTH_Q8_NUM == 0, "tasks cut no block of int8");

typedef struct {
    const orth_rows *rows;
    const orth_op_call *call;
    int64_t n, chunk;
    orth_dtype type;
} range_job;

static void *at(const orth_tensor *t, int64_t i)
{
    return (char *)t->data + (size_t)i * orth_dtype_bytes(t->dtype);
}

static orth_status run_ranges(orth_ctx *ctx, const orth_op_call *call, int64_t n, orth_dtype type,
                              orth_task_fn fn)
{
    range_job job = {orth_rows_for(ctx->isa), call, n, CHUNK, type};
    orth_pool_run(ctx->pool, orth_div_up(n, CHUNK), fn, &job);
    return ORTH_OK;
}

static void add_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const int64_t i = t * j->chunk;
    j->rows->add(at(&j->call->out[0], i), at(&j->call->in[0], i), at(&j->call->in[1], i),
                 ORTH_MIN(j->chunk, j->n - i), j->type);
}

orth_status orth_cpu_add(orth_ctx *ctx, const orth_op_call *call)
{
    return run_ranges(ctx, call, orth_tensor_elems(&call->out[0]), call->out[0].dtype, add_task);
}

static void swiglu_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const int64_t i = t * j->chunk;
    j->rows->swiglu(at(&j->call->out[0], i), at(&j->call->in[0], 2 * i), ORTH_MIN(j->chunk, j->n - i),
                    j->type);
}

orth_status orth_cpu_swiglu(orth_ctx *ctx, const orth_op_call *call)
{
    return run_ranges(ctx, call, orth_tensor_elems(&call->out[0]), call->out[0].dtype, swiglu_task);
}

static void swiglu_bwd_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const int64_t i = t * j->chunk;
    j->rows->swiglu_bwd(at(&j->call->out[0], 2 * i), at(&j->call->in[0], i), at(&j->call->in[1], 2 * i),
                        ORTH_MIN(j->chunk, j->n - i), j->type);
}

orth_status orth_cpu_swiglu_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    return run_ranges(ctx, call, orth_tensor_elems(&call->in[0]), call->in[0].dtype, swiglu_bwd_task);
}

static void cast_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const int64_t i = t * j->chunk;
    j->rows->cast(at(&j->call->out[0], i), at(&j->call->in[0], i), ORTH_MIN(j->chunk, j->n - i), j->type);
}

orth_status orth_cpu_cast(orth_ctx *ctx, const orth_op_call *call)
{
    return run_ranges(ctx, call, orth_tensor_elems(&call->out[0]), call->out[0].dtype, cast_task);
}

static void widen_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const int64_t i = t * j->chunk;
    j->rows->widen(at(&j->call->out[0], i), at(&j->call->in[0], i), ORTH_MIN(j->chunk, j->n - i), j->type);
}

orth_status orth_cpu_widen(orth_ctx *ctx, const orth_op_call *call)
{
    return run_ranges(ctx, call, orth_tensor_elems(&call->out[0]), call->in[0].dtype, widen_task);
}

static void cast_int8_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const int64_t i = t * j->chunk;
    j->rows->cast_int8(at(&j->call->out[0], i / ORTH_Q8_NUM), at(&j->call->in[0], i), ORTH_MIN(j->chunk, j->n - i));
}

orth_status orth_cpu_cast_int8(orth_ctx *ctx, const orth_op_call *call)
{
    return run_ranges(ctx, call, orth_tensor_elems(&call->in[0]), ORTH_F32, cast_int8_task);
}

static void widen_int8_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const int64_t i = t * j->chunk;
    j->rows->widen_int8(at(&j->call->out[0], i), at(&j->call->in[0], i / ORTH_Q8_NUM), ORTH_MIN(j->chunk, j->n - i));
}

orth_status orth_cpu_widen_int8(orth_ctx *ctx, const orth_op_call *call)
{
    return run_ranges(ctx, call, orth_tensor_elems(&call->out[0]), ORTH_F32, widen_int8_task);
}

static void copy_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const int64_t i = t * j->chunk;
    memcpy(at(&j->call->out[0], i), at(&j->call->in[0], i),
           (size_t)ORTH_MIN(j->chunk, j->n - i) * orth_dtype_bytes(j->call->out[0].dtype));
}

orth_status orth_cpu_copy(orth_ctx *ctx, const orth_op_call *call)
{
    return run_ranges(ctx, call, orth_tensor_elems(&call->out[0]), call->out[0].dtype, copy_task);
}

/* Rows [t*chunk, +chunk). */
static void round_bias_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const orth_op_call *call = j->call;
    const int64_t C = call->out[0].dim[1];
    for (int64_t n = t * j->chunk; n < ORTH_MIN(j->n, (t + 1) * j->chunk); n++)
        j->rows->round_bias(at(&call->out[0], n * C), at(&call->in[0], n * C), call->in[1].data, C, j->type);
}

orth_status orth_cpu_round_bias(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *y = &call->out[0];
    range_job job = {orth_rows_for(ctx->isa), call, y->dim[0], ORTH_MAX(1, CHUNK / ORTH_MAX(1, y->dim[1])),
                     y->dtype};
    orth_pool_run(ctx->pool, orth_div_up(job.n, job.chunk), round_bias_task, &job);
    return ORTH_OK;
}

static void dropout_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const range_job *j = arg;
    const orth_op_call *call = j->call;
    const int32_t *seq = call->in[1].data, *pos = call->in[2].data;
    const orth_step_values *step = call->in[3].data;
    const int64_t C = call->out[0].dim[1];
    j->rows->dropout(at(&call->out[0], n * C), at(&call->in[0], n * C), C, j->type, call->attr->dropout,
                     step->seed, orth_dropout_hi(call->attr->site, step->step),
                     orth_dropout_lo(seq[n / call->attr->seq_len], pos[n], 0));
}

orth_status orth_cpu_dropout(orth_ctx *ctx, const orth_op_call *call)
{
    range_job job = {orth_rows_for(ctx->isa), call, call->out[0].dim[0], 1, call->out[0].dtype};
    orth_pool_run(ctx->pool, job.n, dropout_task, &job);
    return ORTH_OK;
}

/* Small: the norms of the gradient's blocks, a loss. */
orth_status orth_cpu_zero(orth_ctx *ctx, const orth_op_call *call)
{
    return orth_ref_zero(ctx, call);
}
