/* kv_rows.c -- keys and values between fused rows and rows of their own. Letters: ops.def. */
#include "base/pool.h"
#include "kernels/attention.h"
#include "kernels/cpu/rows.h"

#define ROWS_PER_TASK 16

typedef struct {
    const orth_rows *rows;
    const orth_op_call *call;
    int64_t N, R, KV, D2;     /* D2: elements of k_g and v_g */
    size_t esize;
} kv_job;

static kv_job job_of(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attr *a = call->attr;
    return (kv_job){orth_rows_for(ctx->isa), call, call->in[0].dim[0], orth_attn_qkv_cols(a), a->kv_heads,
                    2 * (int64_t)a->head_dim, orth_dtype_bytes(call->out[0].dtype)};
}

static void pack_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const kv_job *j = arg;
    const size_t pair = (size_t)j->D2 * j->esize, group = (size_t)(j->R / j->KV) * j->esize;
    const char *from = j->call->in[0].data;
    char *to = j->call->out[0].data;
    for (int64_t i = t * ROWS_PER_TASK * j->KV; i < ORTH_MIN(j->N, (t + 1) * ROWS_PER_TASK) * j->KV; i++)
        memcpy(to + (size_t)i * pair, from + (size_t)i * group, pair);
}

orth_status orth_cpu_kv_pack(orth_ctx *ctx, const orth_op_call *call)
{
    kv_job job = job_of(ctx, call);
    orth_pool_run(ctx->pool, orth_div_up(job.N, ROWS_PER_TASK), pack_task, &job);
    return ORTH_OK;
}

static void unpack_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const kv_job *j = arg;
    const size_t pair = (size_t)j->D2 * j->esize, group = (size_t)(j->R / j->KV) * j->esize;
    const char *dq = j->call->in[0].data;
    const float *dkv = j->call->in[1].data;
    char *to = j->call->out[0].data;
    for (int64_t i = t * ROWS_PER_TASK * j->KV; i < ORTH_MIN(j->N, (t + 1) * ROWS_PER_TASK) * j->KV; i++) {
        j->rows->round_bias(to + (size_t)i * group, dkv + i * j->D2, NULL, j->D2, j->call->out[0].dtype);
        if (to != dq)
            memcpy(to + (size_t)i * group + pair, dq + (size_t)i * group + pair, group - pair);
    }
}

orth_status orth_cpu_kv_unpack_grad(orth_ctx *ctx, const orth_op_call *call)
{
    kv_job job = job_of(ctx, call);
    orth_pool_run(ctx->pool, orth_div_up(job.N, ROWS_PER_TASK), unpack_task, &job);
    return ORTH_OK;
}
