/* reduce.c -- aligned trees over sequences, sums of squares, clipping. */
#include "base/pool.h"
#include "kernels/cpu/rows.h"

#define COLUMN_BLOCK 512
#define TASK_COLUMNS (16 * COLUMN_BLOCK) /* runs long enough for the prefetcher */
#define TREE_DEPTH 32 /* levels of a tree over 2^31 leaves */

typedef struct {
    const orth_rows *rows;
    const orth_op_call *call;
    int64_t n;
} reduce_job;

typedef struct {
    const orth_rows *rows;
    const orth_attr *attr;
    const float *g;      /* [R,K] */
    double *sums;        /* [blocks,P] */
    int64_t R, K, P, parts;
} square_job;

/* node[0] = tree over `count` leaves at columns [c, c + n): a binary counter. */
static void block_tree(const reduce_job *j, float (*node)[COLUMN_BLOCK], int64_t count, int64_t c, int64_t n)
{
    const float *leaves = j->call->in[0].data;
    int depth = 0;
    for (int64_t l = 0; l < count; l++) {
        const float *leaf = leaves + l * j->n + c;
        int64_t full = l + 1;
        if (full % 2 == 0) { /* the right child of a pair: straight into its left */
            j->rows->accumulate(node[depth - 1], leaf, n, ORTH_F32);
            full /= 2;
        } else {
            memcpy(node[depth++], leaf, (size_t)n * sizeof(float));
            continue;
        }
        for (; full % 2 == 0; full /= 2, depth--)
            j->rows->accumulate(node[depth - 2], node[depth - 1], n, ORTH_F32);
    }
    for (; depth > 1; depth--)
        j->rows->accumulate(node[depth - 2], node[depth - 1], n, ORTH_F32);
}

static void tree_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const reduce_job *j = arg;
    float node[TREE_DEPTH][COLUMN_BLOCK];
    const int64_t end = ORTH_MIN(j->n, (t + 1) * TASK_COLUMNS);
    for (int64_t c = t * TASK_COLUMNS; c < end; c += COLUMN_BLOCK) {
        const int64_t n = ORTH_MIN(COLUMN_BLOCK, end - c);
        block_tree(j, node, j->call->in[0].dim[0], c, n);
        for (int k = 0; k < j->call->attr->num_addends; k++)
            j->rows->accumulate(node[0], orth_addend(j->call, k) + c, n, ORTH_F32);
        memcpy((float *)j->call->out[0].data + c, node[0], (size_t)n * sizeof(float));
    }
}

orth_status orth_cpu_tree_acc(orth_ctx *ctx, const orth_op_call *call)
{
    reduce_job job = {orth_rows_for(ctx->isa), call, orth_tensor_elems(&call->out[0])};
    orth_pool_run(ctx->pool, orth_div_up(job.n, TASK_COLUMNS), tree_task, &job);
    return ORTH_OK;
}

/* A number per sequence: nothing to share out. */
orth_status orth_cpu_tree_acc_f64(orth_ctx *ctx, const orth_op_call *call)
{
    return orth_ref_tree_acc_f64(ctx, call);
}

/* ---- sums of squares: a task per block ---- */

static void square_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const square_job *j = arg;
    const int64_t q = t % j->parts, row = t / j->parts * j->attr->block_rows;
    const int64_t first = j->parts > 1 ? orth_split_bound(&j->attr->split, q) : 0;
    const int64_t end = j->parts > 1 ? orth_split_bound(&j->attr->split, q + 1) : j->K;
    j->sums[t / j->parts * j->P + j->attr->first_part + q] =
        j->rows->sum_squares(j->g + row * j->K + first, j->K, ORTH_MIN(j->attr->block_rows, j->R - row), end - first);
}

orth_status orth_cpu_grad_square(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *g = &call->in[0], *sums = &call->out[0];
    square_job job = {orth_rows_for(ctx->isa), call->attr, g->data, sums->data, g->dim[0], g->dim[1], sums->dim[1],
                      ORTH_MAX(1, call->attr->split.parts)};
    orth_pool_run(ctx->pool, orth_div_up(job.R, call->attr->block_rows) * job.parts, square_task, &job);
    return ORTH_OK;
}

/* Few sums, in order. */
orth_status orth_cpu_clip_scale(orth_ctx *ctx, const orth_op_call *call)
{
    return orth_ref_clip_scale(ctx, call);
}
