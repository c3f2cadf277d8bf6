/* optim.c -- optimizer steps: one pass over memory, in ranges shared out dynamically. */
#include "base/pool.h"
#include "kernels/cpu/rows.h"

#define CHUNK 16384 /* elements: 0.5 MB of traffic under AdamW */

typedef struct {
    void (*step)(const rows_optim_args *a, int64_t begin, int64_t n);
    rows_optim_args args;
    int64_t n;
} optim_job;

static void optim_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const optim_job *j = arg;
    j->step(&j->args, t * CHUNK, ORTH_MIN(CHUNK, j->n - t * CHUNK));
}

/* p, m, then `copy` at out[copy]; v, if any, at out[2]. */
static orth_status optim_run(orth_ctx *ctx, const orth_op_call *call, int copy,
                             void (*fn)(const rows_optim_args *, int64_t, int64_t))
{
    const orth_step_values *step = call->in[1].data;
    if (step->skip || step->bad)
        return ORTH_OK;
    optim_job job = {
        fn,
        {.o = orth_optim_values_make(call->attr, step), .g = call->in[0].data, .p = call->out[0].data,
         .m = call->out[1].data, .v = copy == 3 ? call->out[2].data : NULL, .copy = call->out[copy].data, .copy_type = call->out[copy].dtype},
        orth_tensor_elems(&call->out[0]),
    };
    orth_pool_run(ctx->pool, orth_div_up(job.n, CHUNK), optim_task, &job);
    return ORTH_OK;
}

orth_status orth_cpu_adamw(orth_ctx *ctx, const orth_op_call *call)
{
    return optim_run(ctx, call, 3, orth_rows_for(ctx->isa)->adamw);
}

orth_status orth_cpu_adam(orth_ctx *ctx, const orth_op_call *call)
{
    return optim_run(ctx, call, 3, orth_rows_for(ctx->isa)->adam);
}

orth_status orth_cpu_sgd(orth_ctx *ctx, const orth_op_call *call)
{
    return optim_run(ctx, call, 2, orth_rows_for(ctx->isa)->sgd);
}
