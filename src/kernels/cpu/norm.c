/* norm.c -- norms forward and backward, and the gradient of a bias. Letters: ops.def.
 *
 * The sums over tokens are chains per token slot, so a slot is the unit of work of the backward pass
 * where there are slots enough for the threads: each task keeps a slot's two chains in cache while it
 * makes dx (one reading of memory). With fewer slots (numerics.parts 1, one sequence) the chains are made
 * by blocks of columns in a second pass over dy and sum. The bits are the same.
 */
#include "base/pool.h"
#include "kernels/cpu/rows.h"

#define ROWS_PER_TASK 16
#define COLUMN_BLOCK 256 /* at most */
#define SLOT_ELEMS 16384 /* of all slots of a block: on the stack of a thread, whose pages plans count */

/* Folds slots 0..parts-1 of [parts][n] into the first, as an aligned tree (parts is a power of two or
 * not; a node without a right half is its left half). */
static void fold_slots(const orth_rows *rows, float *slot, int64_t parts, int64_t stride, int64_t n)
{
    for (int64_t w = 1; w < parts; w *= 2)
        for (int64_t i = 0; i + w < parts; i += 2 * w)
            rows->accumulate(slot + i * stride, slot + (i + w) * stride, n, ORTH_F32);
}

/* Columns of a block: wide, but so that all threads have blocks, and the slots of one SLOT_ELEMS. Bits do not depend on it. */
static int64_t column_block(orth_ctx *ctx, int64_t num_seqs, int64_t columns, int64_t parts)
{
    int64_t n = COLUMN_BLOCK;
    while (n > 64 && num_seqs * orth_div_up(columns, n) < 4 * orth_pool_num_threads(ctx->pool))
        n /= 2;
    return ORTH_MIN(n, SLOT_ELEMS / parts);
}

/* ---- forward ---- */

typedef struct {
    const orth_rows *rows;
    rows_norm_args args;
    int64_t N;
} norm_job;

static void norm_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const norm_job *j = arg;
    j->rows->norm(&j->args, t * ROWS_PER_TASK, ORTH_MIN(j->N, (t + 1) * ROWS_PER_TASK));
}

orth_status orth_cpu_norm(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *x = &call->in[0];
    norm_job job = {
        .rows = orth_rows_for(ctx->isa),
        .N = x->dim[0],
        .args = {.x = x->data, .res = call->in[1].data, .gain = call->in[2].data, .shift = call->in[3].data,
                 .y = call->out[0].data, .sum = call->out[1].data, .stats = call->out[2].data, .C = x->dim[1],
                 .eps = call->attr->eps, .type = x->dtype,
                 .centred = call->attr->norm == ORTH_NORM_LAYER},
    };
    orth_pool_run(ctx->pool, orth_div_up(job.N, ROWS_PER_TASK), norm_task, &job);
    return ORTH_OK;
}

/* ---- backward ---- */

typedef struct {
    const orth_rows *rows;
    rows_norm_bwd_args args;
    orth_split split;
    int64_t N, block;
    float *dgain, *dshift;  /* [B,C]; dshift may be NULL */
    float *leaves;          /* [B*parts][dgain C, dshift C] */
} norm_bwd_job;

static void slot_task(void *arg, int64_t leaf, int worker)
{
    (void)worker;
    const norm_bwd_job *j = arg;
    const int64_t C = j->args.C;
    float *dgain = j->leaves + leaf * 2 * C, *dshift = j->dshift ? dgain + C : NULL;
    memset(dgain, 0, (size_t)(2 * C) * sizeof *dgain);
    j->rows->norm_bwd_sums(&j->args, orth_split_bound(&j->split, leaf), orth_split_bound(&j->split, leaf + 1),
                           dgain, dshift);
}

static void fold_task(void *arg, int64_t b, int worker)
{
    (void)worker;
    const norm_bwd_job *j = arg;
    const int64_t C = j->args.C, parts = j->split.parts;
    float *leaf = j->leaves + b * parts * 2 * C;
    fold_slots(j->rows, leaf, parts, 2 * C, j->dshift ? 2 * C : C);
    memcpy(j->dgain + b * C, leaf, (size_t)C * sizeof *leaf);
    if (j->dshift)
        memcpy(j->dshift + b * C, leaf + C, (size_t)C * sizeof *leaf);
}

static void dx_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const norm_bwd_job *j = arg;
    j->rows->norm_bwd(&j->args, t * ROWS_PER_TASK, ORTH_MIN(j->N, (t + 1) * ROWS_PER_TASK));
}

static void column_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const norm_bwd_job *j = arg;
    const int64_t C = j->args.C, blocks = orth_div_up(C, j->block), parts = j->split.parts;
    const int64_t b = t / blocks, first = t % blocks * j->block, n = ORTH_MIN(j->block, C - first);
    float dgain[SLOT_ELEMS], dshift[SLOT_ELEMS];
    for (int64_t p = 0; p < parts; p++)
        j->rows->norm_bwd_columns(&j->args, orth_split_bound(&j->split, b * parts + p),
                                  orth_split_bound(&j->split, b * parts + p + 1), first, n,
                                  dgain + p * j->block, j->dshift ? dshift + p * j->block : NULL);
    fold_slots(j->rows, dgain, parts, j->block, n);
    memcpy(j->dgain + b * C + first, dgain, (size_t)n * sizeof *dgain);
    if (j->dshift) {
        fold_slots(j->rows, dshift, parts, j->block, n);
        memcpy(j->dshift + b * C + first, dshift, (size_t)n * sizeof *dshift);
    }
}

/* Whether slots are enough work for the threads to share evenly. */
static bool by_slots(const orth_attr *attr, int num_threads)
{
    const orth_split s = orth_token_split(attr);
    return num_threads == 1 || orth_split_leaves(&s) >= 4 * num_threads;
}

size_t orth_workspace_norm_bwd(const orth_op_call *call, int num_threads, orth_isa isa)
{
    (void)isa;
    const orth_split s = orth_token_split(call->attr);
    if (!by_slots(call->attr, num_threads))
        return 0;
    return (size_t)(orth_split_leaves(&s) * 2 * call->out[0].dim[1]) * sizeof(float);
}

orth_status orth_cpu_norm_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *dy = &call->in[0];
    norm_bwd_job job = {
        .rows = orth_rows_for(ctx->isa),
        .args = {.dy = dy->data, .sum = call->in[1].data, .dres = call->in[4].data, .stats = call->in[2].data,
                 .gain = call->in[3].data, .dx = call->out[0].data, .C = dy->dim[1],
                 .type = dy->dtype, .centred = call->attr->norm == ORTH_NORM_LAYER},
        .split = orth_token_split(call->attr),
        .N = dy->dim[0],
        .dgain = call->out[1].data,
        .dshift = call->out[2].data,
        .leaves = call->workspace,
        .block = column_block(ctx, call->attr->num_seqs, dy->dim[1], orth_token_split(call->attr).parts),
    };
    if (by_slots(call->attr, orth_pool_num_threads(ctx->pool))) {
        orth_pool_run(ctx->pool, orth_split_leaves(&job.split), slot_task, &job);
        orth_pool_run(ctx->pool, call->attr->num_seqs, fold_task, &job);
    } else {
        /* Columns first: dx may overwrite dy or sum. */
        orth_pool_run(ctx->pool, call->attr->num_seqs * orth_div_up(job.args.C, job.block), column_task,
                      &job);
        orth_pool_run(ctx->pool, orth_div_up(job.N, ROWS_PER_TASK), dx_task, &job);
    }
    return ORTH_OK;
}

/* ---- bias ---- */

typedef struct {
    const orth_rows *rows;
    const orth_tensor *dy;
    float *dbias;
    orth_split split;
    int64_t block;
} bias_job;

static void bias_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const bias_job *j = arg;
    const int64_t O = j->dy->dim[1], blocks = orth_div_up(O, j->block), parts = j->split.parts;
    const int64_t b = t / blocks, first = t % blocks * j->block, n = ORTH_MIN(j->block, O - first);
    float sum[SLOT_ELEMS];
    for (int64_t p = 0; p < parts; p++) {
        const int64_t begin = orth_split_bound(&j->split, b * parts + p);
        const int64_t end = orth_split_bound(&j->split, b * parts + p + 1);
        j->rows->column_sums(sum + p * j->block,
                             (char *)j->dy->data +
                                 (size_t)(begin * O + first) * orth_dtype_bytes(j->dy->dtype),
                             O, end - begin, n, j->dy->dtype);
    }
    fold_slots(j->rows, sum, parts, j->block, n);
    memcpy(j->dbias + b * O + first, sum, (size_t)n * sizeof *sum);
}

orth_status orth_cpu_bias_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const int64_t B = call->attr->num_seqs, O = call->in[0].dim[1];
    bias_job job = {orth_rows_for(ctx->isa), &call->in[0], call->out[0].data, orth_token_split(call->attr),
                    column_block(ctx, B, O, orth_token_split(call->attr).parts)};
    orth_pool_run(ctx->pool, B * orth_div_up(O, job.block), bias_task, &job);
    return ORTH_OK;
}
