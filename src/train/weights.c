/* weights.c -- see weights.h. */
#include "train/weights.h"

#include "base/pool.h"
#include "base/rng.h"

#define CHUNK ((int64_t)1 << 16) /* elements per task; a multiple of 4, as the generator asks */

typedef struct {
    float *out;
    int64_t n;
    uint64_t seed, number;
    float std, mean;
} init_job;

static void init_chunk(void *arg, int64_t task, int worker)
{
    (void)worker;
    const init_job *j = arg;
    int64_t begin = task * CHUNK, n = ORTH_MIN(CHUNK, j->n - begin);
    float *out = j->out + begin;
    if (j->std > 0)
        orth_rand_normals(out, n, j->seed, ORTH_STREAM_INIT, j->number, begin);
    for (int64_t i = 0; i < n; i++)
        out[i] = j->std > 0 ? j->std * out[i] : j->mean;
}

orth_status orth_weights_init(orth_ctx *ctx, const orth_model_config *c, const orth_executor *e, uint64_t seed)
{
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, c, i, &p));
        init_job job = {.out = orth_executor_find(e, ORTH_BIND_MASTER, i), .n = orth_param_elems(&p), .seed = seed,
                        .number = (uint64_t)i, .std = p.init == ORTH_INIT_NORMAL ? (float)p.init_std : 0.0f,
                        .mean = p.init == ORTH_INIT_ONE ? 1.0f : 0.0f};
        if (!job.out)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "parameter '%s' has no master to fill", p.name);
        orth_pool_run(ctx->pool, orth_div_up(job.n, CHUNK), init_chunk, &job);
    }
    return orth_weights_refresh(ctx, c, e);
}

orth_status orth_weights_refresh(orth_ctx *ctx, const orth_model_config *c, const orth_executor *e)
{
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        void *copy = orth_executor_find(e, ORTH_BIND_COPY, i);
        if (!copy)
            continue;
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, c, i, &p));
        int64_t n = orth_param_elems(&p);
        orth_tensor src = {orth_executor_find(e, ORTH_BIND_MASTER, i), ORTH_F32, 1, {n, 1, 1, 1}};
        orth_tensor dst = {copy, ORTH_BF16, 1, {n, 1, 1, 1}};
        orth_attr attr = {0};
        orth_op_call call = {.in = &src, .out = &dst, .num_in = 1, .num_out = 1, .attr = &attr};
        ORTH_TRY(orth_kernels_cpu()[ORTH_OP_cast](ctx, &call));
    }
    return ORTH_OK;
}
