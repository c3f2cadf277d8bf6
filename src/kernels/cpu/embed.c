/* embed.c -- embeddings and their gradients. Letters: ops.def.
 *
 * Backward: rows are sorted by the table row they used (counting sort, stable, so ascending within each),
 * then ranges of the table are shared out. A table row's gradient is the aligned tree over token slots of
 * the chains of its rows; slots without such a row are +0 and drop out of the tree without changing bits
 * (no sum here is ever -0).
 */
#include "base/pool.h"
#include "kernels/cpu/rows.h"

#define COLUMN_BLOCK 256
#define TREE_DEPTH 32         /* levels of a tree over 2^31 slots */
#define ROWS_PER_TASK 16
#define STREAM_ELEMS (4 << 20)  /* a table that no cache holds is zeroed past it */

typedef struct {
    const orth_rows *rows;
    const orth_op_call *call;
    orth_split split;
    int64_t V, C, N, rows_per_task;
    int64_t first_row;        /* the token of row 0 of the table */
    orth_dtype type;
    const int32_t *start;     /* [V+1] where the rows of a table row begin in `order` */
    const int32_t *order;     /* [N] rows of dx */
} embed_job;

/* ---- forward ---- */

static void embed_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const embed_job *j = arg;
    const int32_t *tok = j->call->in[0].data, *pos = j->call->in[1].data;
    const char *wte = j->call->in[2].data, *wpe = j->call->in[3].data;
    char *x = j->call->out[0].data;
    const size_t row = (size_t)j->C * rows_bytes(j->type);
    for (int64_t n = t * ROWS_PER_TASK; n < ORTH_MIN(j->N, (t + 1) * ROWS_PER_TASK); n++) {
        const int64_t v = tok[n] - j->first_row;
        char *to = x + (size_t)n * row;
        if (v < 0 || v >= j->V)
            memset(to, 0, row); /* another rank has it */
        else if (wpe)
            j->rows->add(to, wte + (size_t)v * row, wpe + (size_t)pos[n] * row, j->C, j->type);
        else
            memcpy(to, wte + (size_t)v * row, row);
    }
}

orth_status orth_cpu_embed(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *x = &call->out[0];
    embed_job job = {.rows = orth_rows_for(ctx->isa), .call = call, .V = call->in[2].dim[0],
                     .N = x->dim[0], .C = x->dim[1], .first_row = call->attr->first_row, .type = x->dtype};
    orth_pool_run(ctx->pool, orth_div_up(job.N, ROWS_PER_TASK), embed_task, &job);
    return ORTH_OK;
}

/* ---- backward ---- */

/* Only of those whose row is in the table: [first, first + V). */
static void sort_rows(int32_t *start, int32_t *order, const int32_t *row_of, int64_t first, int64_t N, int64_t V)
{
    /* start[v+2] counts; after the sums start[v+1] is the next place for v, and in the end v's end. */
    memset(start, 0, (size_t)(V + 2) * sizeof *start);
    for (int64_t n = 0; n < N; n++)
        if (row_of[n] >= first && row_of[n] < first + V)
            start[row_of[n] - first + 2]++;
    for (int64_t v = 0; v < V; v++)
        start[v + 2] += start[v + 1];
    for (int64_t n = 0; n < N; n++)
        if (row_of[n] >= first && row_of[n] < first + V)
            order[start[row_of[n] - first + 1]++] = (int32_t)n;
}

static int highest_difference(int64_t a, int64_t b)
{
    return 63 - __builtin_clzll((uint64_t)(a ^ b));
}

/* out[n] = tree of the rows order[begin..end) of dx, columns [first, first + n). */
static void gather_tree(const embed_job *j, float *out, int64_t begin, int64_t end, int64_t first, int64_t n)
{
    float node[TREE_DEPTH][COLUMN_BLOCK];
    int64_t slot_of[TREE_DEPTH];
    int depth = 0;
    const orth_tensor *dx = &j->call->in[1];
    int64_t slot = -1, slot_end = 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t r = j->order[i];
        if (r >= slot_end) {
            /* The slot of r: its sequence, then its place among the slots of that sequence. */
            slot = ORTH_MAX(slot + 1, r / j->split.units * j->split.parts);
            while ((slot_end = orth_split_bound(&j->split, slot + 1)) <= r)
                slot++;
            /* Neighbours whose common node closes before the new slot begins are added now. */
            for (; depth > 1 && highest_difference(slot_of[depth - 2], slot_of[depth - 1]) <
                                    highest_difference(slot_of[depth - 1], slot); depth--)
                j->rows->accumulate(node[depth - 2], node[depth - 1], n, ORTH_F32);
            memset(node[depth], 0, (size_t)n * sizeof(float));
            slot_of[depth++] = slot;
        }
        j->rows->accumulate(node[depth - 1], (char *)dx->data + (size_t)(r * j->C + first) * orth_dtype_bytes(dx->dtype),
                            n, j->type);
    }
    for (; depth > 1; depth--)
        j->rows->accumulate(node[depth - 2], node[depth - 1], n, ORTH_F32);
    memcpy(out, node[0], (size_t)n * sizeof *out);
}

static void gradient_row(const embed_job *j, int64_t v)
{
    float sum[COLUMN_BLOCK];
    float *out = (float *)j->call->out[0].data + v * j->C;
    const int addends = j->call->attr->num_addends;
    const bool used = j->start[v + 1] > j->start[v];
    for (int64_t c = 0; c < j->C; c += COLUMN_BLOCK) {
        const int64_t n = ORTH_MIN(COLUMN_BLOCK, j->C - c);
        if (used)
            gather_tree(j, sum, j->start[v], j->start[v + 1], c, n);
        else
            memset(sum, 0, (size_t)n * sizeof *sum);
        for (int k = 0; k < addends; k++)
            j->rows->accumulate(sum, orth_addend(j->call, k) + v * j->C + c, n, ORTH_F32);
        memcpy(out + c, sum, (size_t)n * sizeof *sum);
    }
}

/* The sums of rows [first, end), which no token used: their addend, in its place, if there is one. */
static void unused_rows(const embed_job *j, int64_t first, int64_t end)
{
    if (j->call->attr->num_addends)
        return;
    float *out = (float *)j->call->out[0].data + first * j->C;
    const int64_t num = (end - first) * j->C;
    if (j->V * j->C >= STREAM_ELEMS)
        j->rows->zero(out, num);
    else
        memset(out, 0, (size_t)num * sizeof *out);
}

static void gradient_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const embed_job *j = arg;
    const int addends = j->call->attr->num_addends;
    const bool lie_ready = addends == 0 || (addends == 1 && orth_addend(j->call, 0) == j->call->out[0].data);
    const int64_t end = ORTH_MIN(j->V, (t + 1) * j->rows_per_task);
    for (int64_t v = t * j->rows_per_task; v < end; v++) {
        const int64_t first = v;
        while (lie_ready && v < end && j->start[v + 1] == j->start[v])
            v++;
        unused_rows(j, first, v);
        if (v < end)
            gradient_row(j, v);
    }
}

static orth_status table_gradient(orth_ctx *ctx, const orth_op_call *call, int64_t first_row)
{
    const orth_tensor *dx = &call->in[1], *out = &call->out[0];
    int32_t *start = call->workspace, *order = start + out->dim[0] + 2;
    sort_rows(start, order, call->in[0].data, first_row, dx->dim[0], out->dim[0]);
    embed_job job = {.rows = orth_rows_for(ctx->isa), .call = call, .split = orth_token_split(call->attr),
                     .V = out->dim[0], .C = out->dim[1], .N = dx->dim[0], .type = dx->dtype,
                     .start = start, .order = order};
    /* Small ranges: frequent tokens lie side by side and would make one range the last to end. */
    job.rows_per_task = ORTH_MAX(1, ORTH_MIN(job.V / 512, 65536 / job.C));
    orth_pool_run(ctx->pool, orth_div_up(job.V, job.rows_per_task), gradient_task, &job);
    return ORTH_OK;
}

static size_t table_workspace(const orth_op_call *call)
{
    return (size_t)(call->out[0].dim[0] + 2 + call->in[1].dim[0]) * sizeof(int32_t);
}

size_t orth_workspace_embed_bwd(const orth_op_call *call, int num_threads, orth_isa isa)
{
    (void)num_threads;
    (void)isa;
    return table_workspace(call);
}

size_t orth_workspace_pos_embed_bwd(const orth_op_call *call, int num_threads, orth_isa isa)
{
    (void)num_threads;
    (void)isa;
    return table_workspace(call);
}

orth_status orth_cpu_embed_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    return table_gradient(ctx, call, call->attr->first_row);
}

orth_status orth_cpu_pos_embed_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    return table_gradient(ctx, call, 0);
}
