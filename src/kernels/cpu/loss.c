/* loss.c -- softmax cross-entropy, a row a task; the leaf sums of the loss are too small to share out. */
#include "base/pool.h"
#include "kernels/cpu/rows.h"

typedef struct {
    const orth_rows *rows;
    rows_xent_args args;
    float *scratch;      /* [threads][scratch_elems] */
    int64_t scratch_elems;
} xent_job;

static void xent_task(void *arg, int64_t row, int worker)
{
    const xent_job *j = arg;
    j->rows->softmax_xent(&j->args, row, j->scratch + worker * j->scratch_elems);
}

static int64_t scratch_elems(const orth_op_call *call)
{
    return call->out[1].dtype != ORTH_F32 ? orth_round_up(call->in[0].dim[1], 16) : 0;
}

size_t orth_workspace_softmax_xent(const orth_op_call *call, int num_threads, orth_isa isa)
{
    (void)isa;
    return (size_t)(scratch_elems(call) * num_threads) * sizeof(float);
}

orth_status orth_cpu_softmax_xent(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_step_values *step = call->in[3].data;
    xent_job job = {
        orth_rows_for(ctx->isa),
        {.logits = call->in[0].data, .target = call->in[1].data, .weight = call->in[2].data,
         .nll = call->out[0].data, .loss_scale = step->loss_scale, .dlogits = call->out[1].data,
         .V = call->in[0].dim[1], .split = call->attr->split, .type = call->out[1].dtype},
        call->workspace,
        scratch_elems(call),
    };
    orth_pool_run(ctx->pool, call->in[0].dim[0], xent_task, &job);
    return ORTH_OK;
}

/* ---- in three steps ---- */

typedef struct {
    void (*row)(const rows_xent_args *a, int64_t row);
    rows_xent_args args;
} slice_job;

static void slice_task(void *arg, int64_t row, int worker)
{
    (void)worker;
    const slice_job *j = arg;
    j->row(&j->args, row);
}

static rows_xent_args slice_args(const orth_op_call *call)
{
    return (rows_xent_args){.logits = call->in[0].data, .V = call->in[0].dim[1], .split = call->attr->split,
                            .first_row = call->attr->first_row};
}

orth_status orth_cpu_xent_max(orth_ctx *ctx, const orth_op_call *call)
{
    slice_job job = {orth_rows_for(ctx->isa)->xent_max, slice_args(call)};
    job.args.max = call->out[0].data;
    orth_pool_run(ctx->pool, call->in[0].dim[0], slice_task, &job);
    return ORTH_OK;
}

orth_status orth_cpu_xent_sum(orth_ctx *ctx, const orth_op_call *call)
{
    slice_job job = {orth_rows_for(ctx->isa)->xent_sum, slice_args(call)};
    job.args.target = call->in[1].data;
    job.args.max = call->in[2].data;
    job.args.sums = call->out[0].data;
    orth_pool_run(ctx->pool, call->in[0].dim[0], slice_task, &job);
    return ORTH_OK;
}

orth_status orth_cpu_xent_grad(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_step_values *step = call->in[5].data;
    slice_job job = {orth_rows_for(ctx->isa)->xent_grad, slice_args(call)};
    job.args.target = call->in[1].data;
    job.args.weight = call->in[2].data;
    job.args.max = call->in[3].data;
    job.args.sums = call->in[4].data;
    job.args.nll = call->out[0].data;
    job.args.loss_scale = step->loss_scale;
    job.args.dlogits = call->out[1].data;
    job.args.type = call->out[1].dtype;
    orth_pool_run(ctx->pool, call->in[0].dim[0], slice_task, &job);
    return ORTH_OK;
}

orth_status orth_cpu_loss_sum(orth_ctx *ctx, const orth_op_call *call)
{
    return orth_ref_loss_sum(ctx, call);
}
