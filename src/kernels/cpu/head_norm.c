/* head_norm.c -- RMSNorm of every query and key head.
 *
 * Backward runs two kinds of tasks in one loop: rows (dx), and for each (sequence, fold slot, 16 columns
 * of a gain) the chains over the slot's rows, which no split of the rows may cut, one for each part of the
 * heads, and their tree.
 */
#include "base/pool.h"
#include "kernels/cpu/head_rows.h"

#define ROWS 16 /* per task */
#define COLS 16

typedef struct {
    const orth_op_call *call;
    const orth_head_rows *rows;
    int64_t gain_tasks, col_blocks;
} head_norm;

static const char *element(const orth_tensor *t, int64_t i)
{
    return (const char *)t->data + (size_t)i * orth_dtype_bytes(t->dtype);
}

static void copy_values(const orth_attr *a, const orth_tensor *out, const orth_tensor *in, int64_t row_at)
{
    for (int g = 0; g < a->kv_heads && out->data != in->data; g++) {
        const int64_t at = row_at + orth_attn_v_col(a, g);
        memcpy((char *)element(out, at), element(in, at), (size_t)a->head_dim * orth_dtype_bytes(in->dtype));
    }
}

static void norm_task(void *arg, int64_t index, int worker)
{
    const head_norm *x = arg;
    (void)worker;
    const orth_attr *a = x->call->attr;
    const orth_tensor *in = &x->call->in[0], *out = &x->call->out[0];
    const int J = a->heads + a->kv_heads;
    float *stats = x->call->out[1].data;
    const int64_t end = ORTH_MIN((index + 1) * ROWS, in->dim[0]);
    for (int64_t n = index * ROWS; n < end; n++) {
        const int64_t row_at = n * orth_attn_qkv_cols(a);
        copy_values(a, out, in, row_at);
        for (int j = 0; j < J; j++) {
            const int64_t at = row_at + orth_head_col(a, j);
            stats[n * J + j] = x->rows->norm((char *)element(out, at), element(in, at),
                                             x->call->in[j < a->heads ? 1 : 2].data, a->head_dim, a->eps,
                                             in->dtype);
        }
    }
}

orth_status orth_cpu_head_norm(orth_ctx *ctx, const orth_op_call *call)
{
    head_norm x = {.call = call, .rows = orth_head_rows_for(ctx->isa)};
    orth_pool_run(ctx->pool, orth_div_up(call->in[0].dim[0], ROWS), norm_task, &x);
    return ORTH_OK;
}

/* 16 columns of a row of dqgain or dkgain: [sequence][slot][q, k][columns]. */
static void gain_task(const head_norm *x, int64_t index)
{
    const orth_attr *a = x->call->attr;
    const orth_tensor *dout = &x->call->in[0], *in = &x->call->in[1];
    const int P = a->token_parts, T = a->seq_len, J = a->heads + a->kv_heads, parts = a->split.parts;
    const int64_t col = index % x->col_blocks * COLS, leaf = index / x->col_blocks / 2, slot = leaf % P;
    const int64_t begin = leaf / P * T + orth_fold_begin(T, P, (int)slot),
                  end = leaf / P * T + orth_fold_begin(T, P, (int)slot + 1);
    const int kv = index / x->col_blocks % 2, cols = (int)ORTH_MIN(COLS, a->head_dim - col);
    const float *stats = x->call->in[2].data;
    float acc[ORTH_MAX_PARTS][COLS];
    memset(acc, 0, (size_t)parts * sizeof *acc);
    for (int i = 0; i < parts; i++) {
        int first, last;
        orth_head_part(a, i, kv, &first, &last);
        for (int64_t n = begin; n < end; n++)
            for (int j = first; j < last; j++) {
                const int64_t at = n * orth_attn_qkv_cols(a) + orth_head_col(a, j) + col;
                x->rows->gain_bwd(acc[i], element(dout, at), element(in, at), stats[n * J + j], cols, in->dtype);
            }
    }
    for (int step = 1; step < parts; step *= 2)
        for (int i = 0; i + step < parts; i += 2 * step)
            for (int d = 0; d < COLS; d++)
                acc[i][d] = acc[i][d] + acc[i + step][d];
    memcpy((float *)x->call->out[1 + kv].data + leaf * a->head_dim + col, acc[0], (size_t)cols * sizeof(float));
}

static void bwd_task(void *arg, int64_t index, int worker)
{
    const head_norm *x = arg;
    (void)worker;
    if (index < x->gain_tasks) {
        gain_task(x, index);
        return;
    }
    index -= x->gain_tasks;
    const orth_attr *a = x->call->attr;
    const orth_tensor *dout = &x->call->in[0], *in = &x->call->in[1], *dx = &x->call->out[0];
    const int J = a->heads + a->kv_heads;
    const float *stats = x->call->in[2].data;
    const int64_t end = ORTH_MIN((index + 1) * ROWS, in->dim[0]);
    for (int64_t n = index * ROWS; n < end; n++) {
        const int64_t row_at = n * orth_attn_qkv_cols(a);
        copy_values(a, dx, dout, row_at);
        for (int j = 0; j < J; j++) {
            const int64_t at = row_at + orth_head_col(a, j);
            x->rows->norm_bwd((char *)element(dx, at), element(dout, at), element(in, at),
                              x->call->in[j < a->heads ? 3 : 4].data, stats[n * J + j], a->head_dim,
                              in->dtype);
        }
    }
}

orth_status orth_cpu_head_norm_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attr *a = call->attr;
    const int64_t col_blocks = orth_div_up(a->head_dim, COLS);
    head_norm x = {call, orth_head_rows_for(ctx->isa), (int64_t)a->num_seqs * a->token_parts * 2 * col_blocks,
                   col_blocks};
    orth_pool_run(ctx->pool, x.gain_tasks + orth_div_up(call->in[0].dim[0], ROWS), bwd_task, &x);
    return ORTH_OK;
}
