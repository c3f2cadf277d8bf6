/* heads_split.c -- groups of columns become blocks of rows, one for each rank, and back. Letters: see ops.def. */
#include "base/pool.h"
#include "kernels/op.h"

#define ROWS_PER_TASK 32

typedef struct {
    char *wide, *split;
    int64_t N, T, c;
    size_t width;      /* bytes of W elements */
    bool join;
} move_job;

static void move_rows(void *arg, int64_t task, int worker)
{
    (void)worker;
    const move_job *j = arg;
    for (int64_t n = task * ROWS_PER_TASK; n < ORTH_MIN(j->N, (task + 1) * ROWS_PER_TASK); n++)
        for (int64_t r = 0; r < j->c; r++) {
            char *wide = j->wide + (size_t)(n * j->c + r) * j->width;
            char *split = j->split + (size_t)((n / j->T * j->c + r) * j->T + n % j->T) * j->width;
            memcpy(j->join ? wide : split, j->join ? split : wide, j->width);
        }
}

static orth_status move(orth_ctx *ctx, const orth_op_call *call, const orth_tensor *wide, const orth_tensor *split,
                        bool join)
{
    move_job job = {wide->data, split->data, wide->dim[0], call->attr->seq_len, wide->dim[1] / split->dim[1],
                    (size_t)split->dim[1] * orth_dtype_bytes(wide->dtype), join};
    orth_pool_run(ctx->pool, orth_div_up(job.N, ROWS_PER_TASK), move_rows, &job);
    return ORTH_OK;
}

orth_status orth_cpu_heads_split(orth_ctx *ctx, const orth_op_call *call)
{
    return move(ctx, call, &call->in[0], &call->out[0], false);
}

orth_status orth_cpu_heads_join(orth_ctx *ctx, const orth_op_call *call)
{
    return move(ctx, call, &call->out[0], &call->in[0], true);
}
